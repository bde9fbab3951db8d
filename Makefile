# One command for each act, the same in CI (.ci/run). Plain `make` lists them.

PYTHON ?= python3
BIN := .venv/bin
MADE := .venv/.made
LOCKING := build/locking

# Programs that tests or benches run and pip cannot install; their Debian packages have the same names.
SERVICES := curl wrk espeak-ng

.DEFAULT_GOAL := help
.PHONY: help setup demo examples test check docs bench services lock

help:
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(MADE) ## the virtual environment, from requirements.lock; quick when nothing changed

$(MADE): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here; say which: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed and " \
	  "$(PYTHON) is %d.%d; say which: make PYTHON=python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## real models served, asked and explained; stays up (DEMO_ONCE=1: ends after the show)
	$(BIN)/python examples/build.py sentences filetype ocr fraud
	$(BIN)/python examples/demo.py

examples: setup ## the example pipelines, into examples/.work/models
	$(BIN)/python examples/build.py

test: setup ## every test
	$(BIN)/pytest

check: setup ## format, lint, types, architecture, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_architecture.py tests/test_docs.py

docs: setup ## docs/reference.md, docs/steps.md and src/forwardpass/use.pyi, written from the code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_steps.py
	$(BIN)/python docs/make_use.py

bench: examples ## what the server adds to the model, and the steps to their libraries, in ratios of one run
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/steps.py

services: ## programs that pip cannot install
	@missing=""; for name in $(SERVICES); do command -v $$name >/dev/null || missing="$$missing $$name"; done; \
	if [ -z "$$missing" ]; then echo "services: nothing to install"; \
	elif [ "$$(id -u)" = 0 ]; then apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$missing; \
	else echo "services: run this as root: apt-get install$$missing" >&2; exit 1; fi

# Resolved for every platform and Python from 3.11 on. No index is named in it: pip asks the one it is set up for.
lock: ## requirements.lock, from pyproject.toml: the newest versions of everything
	$(PYTHON) -m venv $(LOCKING)
	$(LOCKING)/bin/pip install --quiet uv
	@echo "setuptools>=70.1" > $(LOCKING)/build.in
	@echo "# Made by 'make lock' from pyproject.toml: every extra, and what builds the package. Do not edit." > $(LOCKING)/new
	$(LOCKING)/bin/uv pip compile pyproject.toml $(LOCKING)/build.in --all-extras --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --upgrade --quiet --output-file $(LOCKING)/found
	@cat $(LOCKING)/found >> $(LOCKING)/new
	@! grep -n '://\|index-url\|find-links\|^-e\|^\.' $(LOCKING)/new
	@mv $(LOCKING)/new requirements.lock
