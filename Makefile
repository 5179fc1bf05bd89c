# make demo: train a small model, translate, measure and draw; make test, make check: what continuous integration runs.
# Each target creates the environment first, in .venv, and again only when pyproject.toml or constraints.txt changes.

PYTHON ?= python3
WORKERS ?= 3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := demo
BENCH := runs/benchmarks
FAULTS ?= 10
# Further index of pip for torch: https://download.pytorch.org/whl/cpu has builds without CUDA.
TORCH_INDEX ?=

# On a small machine two test workers with one thread each are faster than two that compete for the cores.
test test-fast faults mutants: export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-fast faults mutants check bench bench-table wheel results web format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(INSTALLED)  ## create .venv and install the package with all development dependencies

# torch first and by itself: its pin decides the build, before another package can require a different one.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "jointnmt needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX) )torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)  ## train on the bundled corpus (ten minutes, no GPU), translate unseen sentences, measure, draw
	$(BIN)/jointnmt train recipes/demo.yaml --out $(DEMO)/run
	$(BIN)/jointnmt data tatoeba-de-en --out $(DEMO)/data
	$(BIN)/jointnmt translate $(DEMO)/run --input $(DEMO)/data/test.de --out $(DEMO)/test.translation.en
	$(BIN)/jointnmt evaluate --hypothesis $(DEMO)/test.translation.en --source $(DEMO)/data/test.de \
		--reference $(DEMO)/data/test.en --language en --show 10
	$(BIN)/jointnmt attention $(DEMO)/run --text "$$(sed -n 5p $(DEMO)/data/test.de)" --out $(DEMO)/attention.png

test: $(INSTALLED)  ## run the whole test suite, tensor shapes checked
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-fast: $(INSTALLED)  ## run the fast tests, within two minutes on 2 cores: no whole commands or trainings, shapes not checked
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not integration and not slow" --jaxtyping-packages=

faults: $(INSTALLED)  ## unlikely faults, ten times as many as in the tests: kills, failing disks, damage, random input, broken requests
	JOINTNMT_FAULTS=$(FAULTS) $(BIN)/pytest -n $(WORKERS) --dist worksteal tests/faults

mutants: $(INSTALLED)  ## put chosen errors into a copy of the code, one by one, and check that a test fails
	$(BIN)/python tests/mutants/run.py

check: $(INSTALLED)  ## lint, check the format and the types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)  ## measure speed, memory and their growth of every family, and what lexical shortcuts cost
	$(BIN)/python -m benchmarks --out $(BENCH)
	$(BIN)/python -m benchmarks.shortcuts --out $(BENCH)/shortcuts.json
	$(BIN)/python -m benchmarks.padding
	$(BIN)/python -m benchmarks.traffic

bench-table: $(INSTALLED)  ## measure this machine in ten minutes, for the table of its kind in docs/performance.md
	$(BIN)/python -m benchmarks.table
	$(BIN)/python docs/generate.py

wheel: $(INSTALLED)  ## build dist/*.whl, with kernels for x86-64 processors in it
	rm -rf build
	$(BIN)/python -m jointnmt.ops.native.prebuilt
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	rm -rf src/jointnmt/ops/native/prebuilt build

results: $(INSTALLED)  ## rebuild the tables and figures of the pages of results from the translations and logs in results/
	$(BIN)/python docs/generate.py
	$(BIN)/python -m results figures

web:  ## build the page of serve and explore from web/ (needs node and npm)
	npm ci --prefix web --no-audit --no-fund
	npm run --prefix web check
	npm run --prefix web build

format: $(INSTALLED)  ## format, and fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environment and the demo
	rm -rf $(VENV) $(DEMO)
