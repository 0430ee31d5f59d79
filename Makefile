# Everything is installed into .venv; after `make clean`, which deletes it, only your results remain.
# Stamp files inside it record the installed packages, so a second call needs no network.

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Only the pinned versions, and build with the pinned backend rather than a freshly fetched one.
INSTALL := $(PIP) install --constraint constraints.txt
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))

# pyright would otherwise ask its registry whether it is out of date.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# The theme would otherwise advertise its successor.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test test-slow test-gpu lint format docs gallery bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

install: .venv/.installed ## make .venv with the package in it: .venv/bin/benign is ready

demo: install ## install, run jiang/fig1 at quick scale (about a minute), print where its pictures and its page are
	$(BIN)/benign run jiang/fig1 --scale quick
	@$(BIN)/benign report runs/jiang/fig1/quick/default

test: lint docs ## install what tests need, then lint, types, the documentation, unit tests and the wheel
	$(BIN)/pytest -n $(JOBS)
	scripts/check_wheel.sh

test-slow: .venv/.installed-dev ## the long tests: laws, attack strength, faults
	$(BIN)/pytest -n $(JOBS) -m slow --timeout 1800

test-gpu: .venv/.installed-dev ## the tests that need a CUDA device; they skip without one
	$(BIN)/pytest -m gpu --timeout 1800 -rs

lint: .venv/.installed-dev ## ruff and pyright, changing nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/python scripts/size.py
	$(BIN)/python scripts/words.py

format: .venv/.installed-dev ## let ruff rewrite the files
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: .venv/.installed-dev ## build the documentation into site/; open site/index.html
	@# Not --quiet: warnings would then not count.
	$(BIN)/mkdocs build --strict
	@# It must work from disk, without a network: no page may load anything from elsewhere.
	@! grep -rlE '<(script|link|img)[^>]*(src|href)="?(https?:)?//' --include='*.html' site

gallery: .venv/.installed ## write the gallery's pages again, after `scripts/gallery.py add` or a change of its texts
	$(BIN)/python scripts/gallery.py index

bench: .venv/.installed-bench ## time the engine against a plain loop, vmap and JAX (ten minutes)
	$(BIN)/python -m benchmarks.peers --json benchmarks/results/cpu.json
	$(BIN)/python -m benchmarks.peers.report

clean: ## remove .venv, caches and builds; results in runs/ stay
	rm -rf .venv dist site screenshots .hypothesis .pytest_cache .ruff_cache
	find src tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# What a killed pip leaves behind (a .dist-info it had not finished, a folder renamed to ~...) would
# pass for an installed package.
define sweep_leftovers
@for info in .venv/lib/python3*/site-packages/*.dist-info; do [ -e "$$info/INSTALLER" ] || rm -rf "$$info"; done
@rm -rf .venv/lib/python3*/site-packages/~*
endef

# A stamp is written last, so an interrupted install is taken up again.
.venv/.installed: pyproject.toml constraints.txt
	@"$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null || { \
	  echo "benign needs Python 3.11, 3.12 or 3.13; $(PYTHON) --version says: $$("$(PYTHON)" --version 2>&1 | tail -n 1). Try: make install PYTHON=python3.12" >&2; exit 1; }
	@{ $(BIN)/python -c '$(SUPPORTED)' && $(PIP) --version; } >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear .venv
	$(sweep_leftovers)
	@echo "Installing into .venv (torch alone is 750 MB: minutes the first time)"
	$(INSTALL) hatchling
	$(INSTALL) --no-build-isolation --editable '.[report]'
	@touch $@

.venv/.installed-dev: .venv/.installed
	$(sweep_leftovers)
	$(INSTALL) --no-build-isolation --editable '.[test,dev,docs]'
	@# A reference attack to compare with; only its torch code is used, so not what it asks for.
	$(INSTALL) --no-deps adv-lib
	@touch $@

.venv/.installed-bench: .venv/.installed
	$(sweep_leftovers)
	$(INSTALL) --no-build-isolation --editable '.[bench]'
	@touch $@
