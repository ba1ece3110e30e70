SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:

BIN := .venv/bin
STAMP := .venv/.installed
DEMO_STAMP := .venv/.installed-demo
BENCH_STAMP := .venv-bench/.installed
WORKERS ?= 2
# On two cores three at once are done sooner: most tests of the second run wait, for leases, servers and processes.
WAITERS ?= $(shell expr $(WORKERS) + 1)
# Files of the tests and of their servers live in memory where there is plenty: each sync is asked for as ever, and waits
# for no disk. The proof and the benchmarks stay on the disk.
SCRATCH = $(shell grep -q ' /dev/shm .*noexec' /proc/mounts || df --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 8000000 { print "/dev/shm" }')

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | awk -F'|' '{ printf "  make %-10s %s\n", $$1, $$2 }'

.PHONY: install
install: $(STAMP) ## Create .venv and install Nebis with all that its tests need

$(BIN)/python:
	@chosen=""; \
	for candidate in $(PYTHON) python3.11 python3 python3.14 python3.13 python3.12; do \
	    if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then chosen="$$candidate"; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	    echo "Nebis needs Python 3.11 or newer, and found $$(python3 --version 2>&1 || true)." >&2; \
	    echo "Install one (Debian: apt install python3 python3-venv) or name it: make install PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	fi; \
	if ! "$$chosen" -c 'import ensurepip, venv' 2>/dev/null; then \
	    echo "$$chosen cannot create virtual environments because its ensurepip module is missing." >&2; \
	    echo "Install it (Debian: apt install python3-venv), then run make again." >&2; \
	    exit 1; \
	fi; \
	"$$chosen" -m venv .venv

# The stamp is younger than all that is installed from exactly when the environment matches it.
NATIVE := hatch_build.py $(wildcard src/native/*)
$(STAMP): pyproject.toml $(NATIVE) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(DEMO_STAMP)

# The demo needs less than the tests, whose environment has everything that it needs.
$(DEMO_STAMP): pyproject.toml $(NATIVE) | $(BIN)/python
	@echo "Installing what the demo needs into .venv (once) ..."
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

.PHONY: lint
lint: install ## Check style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

.PHONY: fmt
fmt: install ## Fix style and formatting in place
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: types
types: install ## Check types
	$(BIN)/mypy

.PHONY: imports
imports: install ## Check that imports point down the layers
	$(BIN)/lint-imports --no-logo

.PHONY: test
test: lint types imports ## Run every check, then the tests on real servers, then the proof at its smallest
	NEBIS_PURE=1 $(BIN)/python -m pytest --numprocesses=$(WORKERS) tests/core tests/flows --cov=nebis.core --cov=nebis.flows --cov-report=term --cov-fail-under=100
	TMPDIR=$${TMPDIR:-$(SCRATCH)} $(BIN)/python -m pytest --numprocesses=$(WAITERS) --ignore=tests/core --ignore=tests/flows
	$(BIN)/python -m nebis.testing.prove --size smoke --processes $(WORKERS)

.PHONY: coverage
coverage: install ## Run the tests and report which branches they missed
	$(BIN)/python -m pytest --numprocesses=$(WORKERS) --cov=nebis --cov-report=term

SIZE ?= smoke

.PHONY: prove
prove: install ## Gather the proof, as one table: SIZE=smoke, ci or night
	$(BIN)/python -m nebis.testing.prove --size $(SIZE) --processes $(WORKERS)

.PHONY: demo
demo: $(DEMO_STAMP) ## Run the payments service, its worker, a card gateway and the Retry Lab
	@exec $(BIN)/python -m examples.payments.demo

# The benchmarks bring the libraries that Nebis is compared with, which must not meet the tests' own.
$(BENCH_STAMP): pyproject.toml $(NATIVE) benchmarks/requirements.txt | $(BIN)/python
	@echo "Installing what the benchmarks need into .venv-bench (once) ..."
	@test -x .venv-bench/bin/python || $(BIN)/python -m venv .venv-bench
	@.venv-bench/bin/python -m pip install --quiet --quiet --disable-pip-version-check --editable . --requirement benchmarks/requirements.txt
	@touch $@

.PHONY: bench
bench: $(BENCH_STAMP) ## Measure Nebis beside naive tables and other libraries; QUICK=1 takes three minutes
	@exec .venv-bench/bin/python -m benchmarks $(if $(QUICK),--quick) $(BENCH)

.PHONY: clean
clean: ## Remove the environment and all that was generated
	rm -rf .venv .venv-bench dist build htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
