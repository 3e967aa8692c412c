# Every target sets up what it needs in .venv (quick when nothing changed) and exits non-zero when what it checks fails.
SHELL := /bin/bash
VENV ?= .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.ready
SEEDS ?= 50
ONLY ?=
MINUTES ?= 30

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format bench test-java test-pythons sim drill fixtures clean

help: ## What there is to call
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(STAMP) ## The environment in .venv, with everything for work on Penstock

$(STAMP): pyproject.toml constraints.txt tools/setup hatch_build.py $(wildcard src/penstock/spark/native/*)
	@tools/setup "$(VENV)"

demo: setup ## Penstock at work: three brokers, payments, a pipeline on Spark, a broker killed; some minutes
	@$(PY) -m tools.demo

test: setup ## All tests but the long ones
	@$(PY) -m pytest -n 2 --dist loadgroup -m "not java"

check: setup ## Format, lint, types, layers
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache

format: setup ## Puts every file into the house's format
	@$(VENV)/bin/ruff check --fix-only .
	@$(VENV)/bin/ruff format .

bench: setup ## Benchmarks side by side; ONLY=log|broker|cluster|spark|groups for one of them
	@$(PY) -m bench $(ONLY)

test-java: setup ## Against Apache Kafka's own tools; needs Java and Maven, and says so where they are missing
	@tools/with-java $(PY) -m pytest -m java tests/java

sim: setup ## Simulation until this commit has SEEDS=N fresh seeds, added up in docs/SIM.csv
	@$(PY) -m penstock.sim --seeds $(SEEDS) --results docs/SIM.csv --commit "$$(git describe --always --dirty)"

drill: setup ## The long ones, MINUTES=30 of each, or ONLY=word: simulation, kill -9, fuzzing, Spark; keeps results in docs/DRILLS.md
	@$(PY) -m tools.drill $(MINUTES) $(ONLY)

test-pythons: ## The tests on every Python from 3.11 on that is found, each in an environment of its own
	@tools/test-pythons

fixtures: setup ## Makes the fixtures in tests/ anew with Apache Kafka; needs Java and Maven
	@tools/with-java $(PY) -m tests.java.make_wire_bytes
	@tools/with-java $(PY) -m tests.java.make_fixtures

clean: ## Removes what the targets above made
	@rm -rf .venv* .kafka-peer .mypy_cache .ruff_cache .pytest_cache .hypothesis
