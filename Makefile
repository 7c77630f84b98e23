# One command each; every target installs what it needs. `make help` lists them.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
STAMP := $(VENV)/.complete

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## Make .venv with everything in it (.venv/bin/respool)

$(STAMP): pyproject.toml requirements/build.txt requirements/dev.txt scripts/make-venv
	@PYTHON=$(PYTHON) scripts/make-venv $(VENV)
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Play the main walk-through on an embedded Kafka broker, and check it
	@$(BIN)/respool demo

.PHONY: check
check: $(STAMP) ## Lint, types, contracts between layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

.PHONY: test
test: check ## Run all tests, on real brokers and real Sparks, in two processes
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(TESTS)
# A Spark test keeps little more than one core busy. The long ones come first and the short ones last, so that
# both processes end together.
TESTS := tests/scenarios tests/kafka tests/spark tests/unit

.PHONY: test-cluster
test-cluster: $(STAMP) ## Run the tests on a standalone Spark cluster of two workers
	$(BIN)/pytest tests/cluster

.PHONY: bench
bench: $(STAMP) ## Compare respool with other engines, and write a report (ARGS=--help lists the options)
	PYTHONPATH=tests $(BIN)/python -m benchmarks $(ARGS)

.PHONY: chaos
chaos: $(STAMP) ## Inject faults into running pipelines, and check that nothing is lost (ARGS="--seed 123 --minutes 5")
	$(BIN)/python -m chaos $(ARGS)

.PHONY: mutants
mutants: $(STAMP) ## Change the modules that differ from origin/main in small ways; a unit test must fail (ARGS=--help)
	PYTHONPATH=tests $(BIN)/python -m mutants $(ARGS)

.PHONY: lock
lock: $(STAMP) ## Write the pinned requirements again, from pyproject.toml
	$(BIN)/uv pip compile $(LOCK) --group build -o requirements/build.txt
	$(BIN)/uv pip compile $(LOCK) pyproject.toml --extra spark --group dev -o requirements/dev.txt
	$(BIN)/uv pip compile $(LOCK) pyproject.toml --extra spark --extra s3 --extra registry -c requirements/dev.txt \
		-o requirements/run.txt
	$(BIN)/uv pip compile $(LOCK) --group mutants -o requirements/mutants.txt
LOCK := --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-emit-index-url \
	--custom-compile-command 'make lock'

.PHONY: clean
clean: ## Remove .venv and caches; .respool stays
	rm -rf $(VENV) .mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis
