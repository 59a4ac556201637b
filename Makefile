# `make` alone shows what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo demo-deploy test test-long test-python lint format bench chaos reproduce docs lock sbom audit clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

# One stamp per set of extras, renewed when the dependencies change. Every file that is installed has one of
# the hashes in its lock, but for PyTorch: locks/write_locks.py says why.
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

define install
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing $(2) into $(VENV) (a few minutes) …"
	@$(PIP) --require-hashes --no-deps -r locks/$(1).txt
	@$(PIP) -c constraints.txt torch
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@
endef

$(VENV)/stamp-train: pyproject.toml locks/train.txt
	$(call install,train,fedegoists and PyTorch)

$(VENV)/stamp-flare: pyproject.toml locks/flare.txt
	$(call install,flare,fedegoists with PyTorch and NVIDIA FLARE)

$(VENV)/stamp-dev: pyproject.toml locks/dev.txt
	$(call install,dev,fedegoists and its development tools)

# The tools that check the others live apart.
.venv-audit/stamp: locks/audit.txt
	@test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	@.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r locks/audit.txt
	@touch $@

demo: $(VENV)/stamp-train ## Run an example consortium: benefit, coalitions, training, report
	@$(BIN)/fedegoists demo --replace

demo-deploy: $(VENV)/stamp-flare ## Deploy three example banks on this machine with mutual TLS, and run
	@$(BIN)/fedegoists deploy demo --out demo-deploy --replace

# Tests over FLARE's processes wait more than they compute.
test: $(VENV)/stamp-dev ## Run the tests and doctests, all but the long ones
	@$(BIN)/python -m pytest -m 'not long' -n 2 --dist loadfile --durations=15 --ignore tests/flare
	@$(BIN)/python -m pytest -m 'not long' -n 3 --dist loadfile --durations=15 tests/flare

test-long: $(VENV)/stamp-dev ## Run the long tests, such as every poison with every method: before a release
	@$(BIN)/python -m pytest -m long -n 2 --dist loadfile --durations=15

# The rooms that need no PyTorch, and what only checks them.
CORE := graphs coalitions commitments
CORE_TESTS := $(CORE:%=tests/%) $(CORE:%=src/fedegoists/%)

test-python: ## Run the quick core tests on another Python: make test-python PYTHON=python3.13
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') && own=.venv-$$version && \
	{ test -x $$own/bin/python || $(PYTHON) -m venv $$own; } && \
	if ! test -e $$own/stamp || test pyproject.toml -nt $$own/stamp || test locks/core.txt -nt $$own/stamp; then \
		echo "Installing fedegoists for Python $$version into $$own …"; \
		$$own/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r locks/core.txt && \
		$$own/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . && \
		touch $$own/stamp; fi && \
	$$own/bin/python -m pytest -n 2 --dist loadfile -m 'not slow' $(CORE_TESTS)

lint: $(VENV)/stamp-dev ## Check style, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/stamp-dev ## Format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: $(VENV)/stamp-dev ## Run the benchmarks; results go to benchmarks/results
	@for file in benchmarks/bench_*.py; do \
		echo "== $$file"; $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

chaos: $(VENV)/stamp-dev ## Kill coordinators, silos and runs, and check what must hold: make chaos ARGS="--kills 300 --seed 1"
	@$(BIN)/python -m benchmarks.chaos $(ARGS)

reproduce: $(VENV)/stamp-train ## Reproduce the paper: make reproduce ARGS="table6 table7 --out results"
	@$(BIN)/python -m reproduction $(ARGS)

docs: $(VENV)/stamp-dev ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

lock: ## Write locks/ from constraints.txt and pyproject.toml; needs uv
	@$(PYTHON) locks/write_locks.py

sbom: $(VENV)/stamp-dev .venv-audit/stamp ## Write the software bill of materials (CycloneDX) of the environment to sbom.json
	@.venv-audit/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --mc-type library \
		--output-reproducible --output-format JSON --output-file sbom.json
	@echo "Wrote sbom.json"

audit: .venv-audit/stamp ## Look up known vulnerabilities of all locked packages
	@.venv-audit/bin/python locks/audit.py

clean: ## Remove the virtual environment and everything built
	@rm -rf $(VENV) .venv-* sbom.json site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
