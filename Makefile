# The one task runner: `make help`.

VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help venv check test lint ruff format pyright imports spelling types-workloads sql docs docs-update bench clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

venv: ## Make .venv with all that development needs
	python3 -m venv $(VENV)
	$(BIN)/pip install --editable ".[test,lint,docs,bench]"

check: lint test docs ## What has to hold before a commit

test: ## Run the tests (ARGS="-k name" for some)
	$(BIN)/python -m pytest -n 4 --dist worksteal $(ARGS)

lint: ruff format pyright imports spelling sql ## ruff, ruff format, pyright, import-linter, codespell, sqlfluff

ruff:
	$(BIN)/ruff check --output-format concise .

format:
	$(BIN)/ruff format --check .

pyright:
	$(BIN)/pyright --pythonpath $(BIN)/python

imports:
	$(BIN)/lint-imports

spelling:
	$(BIN)/codespell

types-workloads: ## pyright on the workloads (needs the workloads extra), in the package as it is installed
	rm -rf build/typed && mkdir -p build/typed && cp -r k25trace build/typed/k25trace
	cp -r workloads build/typed/k25trace/workloads
	$(BIN)/pyright --project build/typed/k25trace/workloads --pythonpath $(BIN)/python

sql:
	$(BIN)/sqlfluff lint --disable-progress-bar queries

docs: ## Check that generated pages are current, and build the site
	$(BIN)/python docs/generate.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

docs-update: ## Write the generated parts of the pages anew
	$(BIN)/python docs/generate.py

bench: ## Measure speed and memory beside what one would use instead (ARGS="--kernels 1000000")
	$(BIN)/python tests/bench/bench.py $(ARGS)

clean: ## Remove what can be made again
	rm -rf build dist site .venv-ci .venv-wheel .pytest_cache .ruff_cache .import_linter_cache
