#!/usr/bin/env bash
# Build the wheel, install it far from the checkout and use it as a stranger would.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="$PWD/.venv/bin/python"
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT

"$python" -m build --wheel --no-isolation --outdir "$away/dist" . >"$away/log" 2>&1 || {
  cat "$away/log" >&2
  exit 1
}
wheel=$(echo "$away"/dist/benign-*.whl)

echo "wheel: every file of src/benign is in it"
find src/benign -type f -not -path '*/__pycache__/*' | sed 's|^src/||' | sort >"$away/expected"
"$python" -m zipfile --list "$wheel" | awk '/^benign\// { print $1 }' | sort >"$away/shipped"
diff "$away/expected" "$away/shipped"
grep -qx benign/py.typed "$away/shipped"

# The new environment borrows the dependencies of .venv, for torch alone is 750 MB. A path named in
# a .pth file is searched, but the .pth files found there are not read: the editable benign of .venv,
# which is such a file, stays out of sight.
"$python" -m venv --without-pip "$away/venv"
"$python" -m pip --disable-pip-version-check --python "$away/venv/bin/python" \
  install --quiet --no-index --no-deps "$wheel"
site='import sysconfig; print(sysconfig.get_path("purelib"))'
"$python" -c "$site" >"$("$away/venv/bin/python" -c "$site")/borrowed.pth"

cd "$away"
unset PYTHONPATH
echo "wheel: installed outside the checkout, its commands run"
venv/bin/python -c "
import pathlib, sys, benign
assert pathlib.Path(benign.__file__).is_relative_to(sys.prefix), benign.__file__
"
venv/bin/benign --version
venv/bin/benign papers >/dev/null
venv/bin/python -c "
import benign as bo
assert bo.published('zhang/fig1').robust_accuracy.shape == (11, 12)
"
venv/bin/benign run jiang/fig1 --scale smoke --out "$away/run" >"$away/log" 2>&1 || {
  cat "$away/log" >&2
  exit 1
}
test -n "$(find "$away/run" -name '*.png')" || {
  echo "the run from the wheel drew no picture" >&2
  exit 1
}
echo "wheel: ok"
