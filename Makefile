# `make` alone shows what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo demo-deploy test lint format bench reproduce docs clean

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
	@rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
