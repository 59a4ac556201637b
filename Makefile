# `make` alone shows what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo demo-deploy test test-python lint format bench reproduce docs clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

# One stamp per set of extras, renewed when the dependencies change.
$(VENV)/stamp-train: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing fedegoists and PyTorch into $(VENV) (a few minutes) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train]'
	@touch $@

$(VENV)/stamp-flare: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing fedegoists, PyTorch and NVIDIA FLARE into $(VENV) (a few minutes) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[train,flare]'
	@touch $@

$(VENV)/stamp-dev: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing fedegoists and its development tools into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,train,privacy,flare,coordinator,postgresql]'
	@touch $@

demo: $(VENV)/stamp-train ## Run an example consortium: benefit, coalitions, training, report
	@$(BIN)/fedegoists demo

demo-deploy: $(VENV)/stamp-flare ## Deploy three example banks on this machine with mutual TLS, and run
	@$(BIN)/fedegoists deploy demo --out demo-deploy

test: $(VENV)/stamp-dev ## Run all tests and doctests
	@$(BIN)/python -m pytest -n 2 --dist loadfile --ignore tests/flare
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/flare

# The rooms that need no PyTorch, and what only checks them.
CORE := graphs coalitions commitments
CORE_TESTS := $(CORE:%=tests/%) $(CORE:%=src/fedegoists/%)

test-python: ## Run the quick core tests on another Python: make test-python PYTHON=python3.13
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') && own=.venv-$$version && \
	{ test -x $$own/bin/python || $(PYTHON) -m venv $$own; } && \
	if ! test -e $$own/stamp || test pyproject.toml -nt $$own/stamp || test constraints.txt -nt $$own/stamp; then \
		echo "Installing fedegoists for Python $$version into $$own …"; \
		$$own/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
			-e . hypothesis pytest pytest-xdist && touch $$own/stamp; fi && \
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

reproduce: $(VENV)/stamp-train ## Reproduce the paper: make reproduce ARGS="table6 table7 --out results"
	@$(BIN)/python -m reproduction $(ARGS)

docs: $(VENV)/stamp-dev ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html"

clean: ## Remove the virtual environment and everything built
	@rm -rf $(VENV) .venv-* site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
