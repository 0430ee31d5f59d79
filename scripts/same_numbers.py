"""Compare the numbers of all recipes between an earlier revision and the working tree, run by run.

    python scripts/same_numbers.py HEAD~3                 # every recipe at smoke scale, in float32, on one thread
    python scripts/same_numbers.py v0.1 --only 'jiang/*'

A change of names, layout or language must not move a number. Both trees run here, in processes of their own: bits
differ between processors, so that arrays kept from another machine would prove nothing. Runs are matched by recipe,
cell and seed. The exit code is 1 if a recipe, run or variable is missing or differs in one bit.
"""

import argparse
import fnmatch
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# It runs in both trees, so that it uses public names only.
DRIVER = """
import pickle, sys, tempfile, traceback, warnings
import torch
import benign as bo

names, device, out = sys.argv[1].split(","), sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
warnings.simplefilter("ignore")
for name in names:
    found = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = bo.recipe(name).experiment("smoke").run(folder + "/run", device)
            dims = [dim for dim in result["status"].dims]
            runs = result.stack(run=dims)
            for place in range(runs.sizes["run"]):
                one = runs.isel(run=place)
                where = tuple((dim, str(one[dim].item())) for dim in dims)
                found[where] = {
                    name: (value.dtype.str, value.shape, value.values.tobytes())
                    for name, value in one.data_vars.items()
                    if "run" in runs[name].dims or set(dims) & set(result[name].dims)
                }
    except Exception:
        found = traceback.format_exc(limit=-2)
    with open(out, "ab") as file:
        pickle.dump((name, found), file)
    print(name, "failed" if isinstance(found, str) else f"{len(found)} runs", flush=True)
"""
LISTING = """
try:
    from benign.papers.registry import recipes
except ModuleNotFoundError:  # a revision that has no registry of papers yet
    from benign.papers.recipes import recipes
print(*recipes())
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("revision", help="the earlier state: a commit, tag or branch")
    parser.add_argument("--only", default="*", help="recipes whose name matches this pattern")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run(
            [*git, "add", "--quiet", "--detach", str(before), given.revision], check=True
        )
        try:
            old = numbers(before, given.only, given.device, Path(folder) / "old")
            new = numbers(ROOT, given.only, given.device, Path(folder) / "new")
        finally:
            subprocess.run([*git, "remove", "--force", str(before)], check=True)
    problems = differences(old, new)
    print("\n".join(problems) or f"{len(old)} recipes: every number is the same, bit for bit")
    return 1 if problems else 0


def numbers(tree: Path, only: str, device: str, out: Path) -> dict:
    """Return the arrays of every run by recipe, computed by the code of a tree."""
    python = [sys.executable, "-c"]
    path = os.pathsep.join(filter(None, [str(tree / "src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    listed = subprocess.run(
        [*python, LISTING], env=environment, cwd=tree, check=True, capture_output=True, text=True
    )
    names = fnmatch.filter(listed.stdout.split(), only)
    print(f"{tree}: {len(names)} recipes", flush=True)
    subprocess.run(
        [*python, DRIVER, ",".join(names), device, str(out)], env=environment, cwd=tree, check=True
    )
    found = {}
    with out.open("rb") as file:
        while file.peek(1):
            name, runs = pickle.load(file)
            found[name] = runs
    return found


def differences(old: dict, new: dict) -> list[str]:
    """What is missing or differs, a line each."""
    problems = [
        f"{name}: only {'before' if name in old else 'now'}" for name in old.keys() ^ new.keys()
    ]
    for name in old.keys() & new.keys():
        if isinstance(old[name], str) or isinstance(new[name], str):
            problems.append(f"{name}: failed\n{old[name]}\n{new[name]}")
            continue
        if old[name].keys() != new[name].keys():
            problems.append(f"{name}: other runs")
        for run in old[name].keys() & new[name].keys():
            before, now = old[name][run], new[name][run]
            changed = [
                each for each in before.keys() | now.keys() if before.get(each) != now.get(each)
            ]
            if changed:
                problems.append(f"{name}, {dict(run)}: {', '.join(sorted(changed))}")
    return sorted(problems)


if __name__ == "__main__":
    sys.exit(main())
