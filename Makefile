# Everything happens in .venv; nothing is installed anywhere else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Where ROCm's own torch must stay: `make CONSTRAINTS= VENV_FLAGS=--system-site-packages …`
CONSTRAINTS ?= constraints.txt
VENV_FLAGS ?=
PIP := $(BIN)/python -m pip --disable-pip-version-check
WITH := $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS))

.PHONY: help verify test lint format schema bench clean

help:  ## Show this help
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

verify: $(BIN)/.installed  ## Prove patches/rmsnorm on this machine
	$(BIN)/contribbot verify patches/rmsnorm

test: $(BIN)/.dev  ## Run the whole test suite
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(BIN)/.dev  ## Format, lint and types, all strict
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(BIN)/.dev  ## Format, and repair what can be repaired
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schema: $(BIN)/.dev  ## Write the JSON schemas anew from the models
	$(BIN)/python -m contribbot.schemas

bench: $(BIN)/.dev  ## Measure; prints ratios
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/import_tree.py
	$(BIN)/python -m benchmarks.reapply
	$(BIN)/python -m benchmarks.move
	$(BIN)/python -m benchmarks.status
	$(BIN)/python benchmarks/verify.py
	$(BIN)/python -m benchmarks.fleet

clean:  ## Remove what make has made
	rm -rf $(VENV) .contribbot .mypy_cache .pytest_cache .ruff_cache

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "contribbot needs Python 3.11 or newer; name one with PYTHON=…")'
	$(PYTHON) -m venv $(VENV_FLAGS) $(VENV) || { rm -rf $(VENV); exit 1; }

$(BIN)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet $(WITH) --editable .
	touch $@

$(BIN)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet $(WITH) --editable '.[dev]'
	touch $@ $(BIN)/.installed
