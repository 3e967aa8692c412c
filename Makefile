# Every target sets up .venv first (quick when nothing changed) and exits non-zero on failure.
SHELL := /bin/bash
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.ready
SEEDS ?= 50
ONLY ?=
MINUTES ?= 30
HOURS ?= 1
SEED ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-more check format wheel bench test-java test-pythons sim drill siege soak fixtures clean

help: ## Lists the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(STAMP) ## Creates the development environment in .venv

$(STAMP): pyproject.toml constraints.txt tools/setup hatch_build.py $(wildcard src/penstock/spark/kernel/native/*)
	@tools/setup "$(VENV)"

demo: setup ## Runs three brokers, a payments stream and its Spark pipeline; kills a broker and Spark; two minutes
	@$(PY) -m tools.demo

test: setup ## The tests; under 15 minutes on two cores
	@$(PY) -m pytest -n 2 --dist loadgroup -m "not java and not more"

test-more: setup ## Longer tests that every landing must pass
	@$(PY) -m pytest -n 2 --dist loadgroup -m "more and not java"

check: setup ## Checks format, lint, types and import layers
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache
	@$(PY) -m tools.filemap --check

wheel: setup ## Builds dist/penstock-*.whl
	@$(VENV)/bin/hatchling build -t wheel
	@ls dist/*.whl

format: setup ## Formats every file
	@$(VENV)/bin/ruff check --fix-only .
	@$(VENV)/bin/ruff format .

bench: setup ## Runs benchmarks beside Apache Kafka; ONLY=broker|cluster|crowd|curves|groups|log|many|metrics|quotas|spark|tls|transactions runs one
	@$(PY) -m bench $(ONLY)

test-java: setup ## Tests against Apache Kafka's own tools; needs Java and Maven
	@tools/with-java $(PY) -m pytest -m java tests/java

sim: setup ## Simulates SEEDS=N fresh seeds on this commit, and walks of the explorers; totals in docs/SIM.csv
	@$(PY) -m penstock.sim --seeds $(SEEDS) --results docs/SIM.csv --commit "$$(git describe --always --dirty)"

drill: setup ## Runs the long drills, MINUTES=30 each, or ONLY=word; results in docs/DRILLS.md
	@$(PY) -m tools.drill $(MINUTES) $(ONLY)

siege: setup ## Measures a client of a node under hostile clients; needs an idle machine and ulimit -Hn 17000
	@PENSTOCK_SIEGE=1 $(PY) -m pytest -n 0 -m more tests/e2e/test_e2e_siege.py

soak: setup ## Runs a cluster under every fault for HOURS=1, or those of SEED=n; a row in docs/SOAK.md
	@$(PY) -m tools.soak $(HOURS) $(SEED)

test-pythons: ## Runs the tests on every Python from 3.11 on, each in its own environment
	@tools/test-pythons

fixtures: setup ## Regenerates the fixtures in tests/ with Apache Kafka; needs Java and Maven
	@tools/with-java $(PY) -m tests.java.make_wire_bytes
	@tools/with-java $(PY) -m tests.java.make_fixtures

clean: ## Removes everything the targets above create
	@rm -rf .venv* dist .kafka-peer .mypy_cache .ruff_cache .pytest_cache .hypothesis
