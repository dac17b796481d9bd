# Everything works on a fresh clone: each target makes the environment that it needs, in .venv, and brings it
# up to date when pyproject.toml has changed.
#
# PYTHON=…  the interpreter to make .venv with. The gpu- targets take it as it is, with whatever is installed
#           there and without .venv, since a machine with a GPU may have no network.

VENV := .venv
PY := $(VENV)/bin/python
RUNTIME := $(VENV)/.installed-runtime
DEV := $(VENV)/.installed-dev
GPU_PY := $(or $(PYTHON),$(PY))

PIP_INSTALL = if command -v uv >/dev/null; then uv pip install --quiet --python $(PY) $(1); \
	else $(PY) -m pip install --quiet --disable-pip-version-check $(1); fi

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-all check bench gpu-test gpu-bench wheel clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(RUNTIME) ## the live screen with the bundled workload
	@$(VENV)/bin/roofmon demo

test: $(DEV) ## the quick tests (a minute or so): they wait as much as they compute
	@$(PY) -m pytest -n $$(n=$$(nproc); echo $$((n < 4 ? 4 : n)))

test-slow: $(DEV) ## the others: real terminals, broken files, driver faults, packaging, long fuzzing
	@$(PY) -m pytest -n auto -m "slow and not gpu"

test-all: test test-slow ## both

check: $(DEV) ## formatting, lint, types
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@$(PY) -m mypy --strict roofmon

bench: $(DEV) ## what roofmon costs, and what its probes reach
	@for file in tests/benchmarks/bench_*.py; do echo "== $$file"; $(PY) $$file || exit 1; done

gpu-test: $(if $(PYTHON),,$(DEV)) ## the tests that need a GPU
	@set -- $(wildcard tests/gpu/test_*.py); \
	if [ $$# = 0 ]; then echo "skipped: there are no GPU tests"; \
	elif ! $(GPU_PY) -c "import pytest" 2>/dev/null; then echo "skipped: $(GPU_PY) has no pytest"; \
	else PYTHONPATH="$(CURDIR):$$PYTHONPATH" $(GPU_PY) -m pytest -m gpu -rs "$$@"; fi

gpu-bench: $(if $(PYTHON),,$(DEV)) ## the benchmarks that need a GPU
	@set -- $(wildcard tests/gpu/bench_*.py); \
	if [ $$# = 0 ]; then echo "skipped: there are no GPU benchmarks"; fi; \
	for file; do echo "== $$file"; PYTHONPATH="$(CURDIR):$$PYTHONPATH" $(GPU_PY) $$file || exit 1; done

wheel: $(DEV) ## wheel and source distribution, in dist
	@rm -rf dist
	@$(PY) -m build --outdir dist . >/dev/null
	@ls dist/*

clean: ## remove all that was made here: .venv, dist, caches
	@rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find roofmon tests -name __pycache__ -prune -exec rm -rf {} +

# A version is tried by running it: a shim on the PATH may stand for a Python that is not installed.
$(PY):
	@rm -rf $(VENV)
	@if command -v uv >/dev/null; then exec uv venv --quiet --python "$(or $(PYTHON),>=3.11)" $(VENV); fi; \
	for python in $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3 python); do \
		if "$$python" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then \
			echo "making $(VENV) with $$("$$python" --version)"; \
			"$$python" -m venv $(VENV) && exit; \
			rm -rf $(VENV); \
			echo "roofmon: $$python cannot make an environment: install its venv package (python3-venv)" >&2; \
			exit 1; \
		fi; \
	done; \
	echo "roofmon: no Python 3.11 or newer was found: install one, or name it: make demo PYTHON=…" >&2; \
	exit 1

$(RUNTIME): pyproject.toml | $(PY)
	@echo "installing roofmon into $(VENV)"
	@$(call PIP_INSTALL,-e .)
	@touch $@

# The group is read here because pip knows --group from 25.1 on only.
$(DEV): pyproject.toml $(RUNTIME)
	@echo "installing what tests and checks need into $(VENV)"
	@$(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' > $(VENV)/dev.txt
	@$(call PIP_INSTALL,-r $(VENV)/dev.txt)
	@touch $@
