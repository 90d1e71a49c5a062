# Everything happens in .venv; nothing is installed anywhere else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Where ROCm's own torch must stay: `make CONSTRAINTS= VENV_FLAGS=--system-site-packages …`
CONSTRAINTS ?= constraints.txt
VENV_FLAGS ?=
INSTALL = @command -v $(PYTHON) >/dev/null || { \
	echo "install: $(PYTHON) is not here: apt-get install python3 python3-venv" >&2; exit 3; }; \
	$(PYTHON) .ci/install.py $(VENV) $(VENV_FLAGS) --constraints "$(CONSTRAINTS)"
# Tests wait for programs that they start: one worker more than there are cores.
WORKERS ?= $(shell echo $$(($$(nproc) + 1)))
.PHONY: help extras verify test test-all lock lint format schema readme bench release clean

help:  ## Show this help
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

verify: $(BIN)/.installed  ## Prove patches/rmsnorm on this machine
	$(BIN)/contribbot verify patches/rmsnorm --evidence .contribbot/evidence

extras: $(BIN)/.extras  ## Install what compiles for AMD GPUs, emulates them, explains and reports

test: $(BIN)/.dev  ## Run the tests: of many slow ones of a kind, one
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-all: $(BIN)/.dev  ## Run every test
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_FLAGS)

lint: $(BIN)/.dev  ## Format, lint and types, all strict
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(BIN)/.dev  ## Format, and repair what can be repaired
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

schema: $(BIN)/.dev  ## Write the JSON schemas anew from the models
	$(BIN)/python -m contribbot.schemas

readme: $(BIN)/.dev  ## Write the README's table and pictures anew from the records
	$(BIN)/python -m docs.readme

bench: $(BIN)/.dev  ## Measure; prints ratios
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/import_tree.py
	$(BIN)/python -m benchmarks.reapply
	$(BIN)/python -m benchmarks.move
	$(BIN)/python -m benchmarks.status
	$(BIN)/python benchmarks/verify.py
	$(BIN)/python -m benchmarks.bench_repeat

release: $(BIN)/.dev  ## Tag what is committed, and build its wheel and sdist; uploads nothing
	.ci/release "$(abspath $(BIN))/python"

clean:  ## Remove what make has made
	rm -rf $(VENV) .contribbot .mypy_cache .pytest_cache .ruff_cache

LOCK ?= constraints.txt
# constraints.txt keeps its versions as long as they fit; LOCK_FLAGS=--upgrade takes the newest.
lock: $(BIN)/.dev  ## Write constraints.txt anew from pyproject.toml
	$(BIN)/uv pip compile --quiet --no-python-downloads --universal --python-version 3.11 --all-extras --no-annotate \
	    --no-emit-package pip --no-emit-package setuptools \
	    --custom-compile-command 'make lock' $(LOCK_FLAGS) --output-file $(LOCK) pyproject.toml

$(BIN)/.installed: pyproject.toml constraints.txt
	$(INSTALL)
	touch $@

$(BIN)/.extras: pyproject.toml constraints.txt
	$(INSTALL) --extra emulate,explain,report
	touch $@ $(BIN)/.installed

$(BIN)/.dev: pyproject.toml constraints.txt
	$(INSTALL) --extra dev
	touch $@ $(BIN)/.installed $(BIN)/.extras
