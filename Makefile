# One command for each act, the same in CI (.ci/run). Plain `make` lists them.

PYTHON ?= python3
BIN := .venv/bin
MADE := .venv/.made
LOCKING := build/locking

# Real clients: each environment of tests/clients/environments is one of those that go together.
CLIENTS := build/clients
ENVIRONMENTS := triton kserve openai mlflow

# Programs that tests or benches run and pip cannot install; their Debian packages have the same names.
SERVICES := curl wrk valgrind espeak-ng chromium redis-server

.DEFAULT_GOAL := help
.PHONY: help setup demo examples test faults check clients docs bench bench-peers services lock clients-lock

help:
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 21

setup: $(MADE) ## the virtual environment, from requirements.lock; quick when nothing changed

# Compiled for a faster first start; sources that cannot be written to are served all the same.
$(MADE): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here; say which: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed and " \
	  "$(PYTHON) is %d.%d; say which: make PYTHON=python3.11" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	-@$(BIN)/python -m compileall -q src
	@touch $@

demo: setup ## real models served, asked and explained; stays up (DEMO_ONCE=1: ends after the show)
	$(BIN)/python examples/build.py sentences filetype ocr fraud
	$(BIN)/python examples/demo.py

examples: setup ## the example pipelines, into examples/.work/models
	$(BIN)/python examples/build.py

# How HTTP, its limits, streams and the drain fare where several processes listen.
FRONTED := $(addprefix tests/,ingress/test_http_connection.py ingress/test_http_screen.py ingress/test_in_flight.py \
  e2e/test_transport.py faults/test_fault_shutdown.py) \
  -k "not (asyncio or unix_socket or operator or rebound or s7_ or honest)" # these meet no front, or only what is the owner's

# A file stays with one of the two; what measures time or loads the machine is marked "alone" and runs by itself.
test: setup ## every test
	$(BIN)/pytest -n 2 --dist loadfile -m "not alone"
	$(BIN)/pytest -m alone
	FORWARDPASS_TEST_FRONTS=2 $(BIN)/pytest -n 2 --dist loadfile $(FRONTED)

faults: setup ## what must not break us: cases and figures of each group of faults
	$(BIN)/python -m tests.faults.run

check: setup ## format, lint, types, architecture, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_architecture.py tests/test_docs.py

clients: setup $(ENVIRONMENTS:%=$(CLIENTS)/%/.made) $(CLIENTS)/perf_analyzer/.made ## every client that people have, against our server
	$(BIN)/python -m tests.clients.run

# pip takes minutes for these, uv seconds; it is locked like the rest.
$(CLIENTS)/installer/.made: tests/clients/environments/installer.lock
	$(PYTHON) -m venv --clear $(CLIENTS)/installer
	$(CLIENTS)/installer/bin/pip install --quiet --require-hashes -r $<
	@touch $@

$(CLIENTS)/%/.made: tests/clients/environments/%.lock $(CLIENTS)/installer/.made
	$(CLIENTS)/installer/bin/uv venv --quiet --clear --no-python-downloads --python $(PYTHON) $(CLIENTS)/$*
	$(CLIENTS)/installer/bin/uv pip sync --quiet --require-hashes --python $(CLIENTS)/$*/bin/python $<
	@touch $@

$(CLIENTS)/perf_analyzer/.made: tests/clients/perf_analyzer.py $(MADE)
	$(BIN)/python tests/clients/perf_analyzer.py
	@touch $@

docs: setup ## docs/reference.md, docs/steps.md and src/forwardpass/use.pyi, written from the code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_steps.py
	$(BIN)/python docs/make_use.py

bench: examples ## what the server adds to the model, and the steps to their libraries, in ratios of one run
	$(BIN)/python bench/overhead.py
	$(BIN)/python bench/steps.py
	$(BIN)/python bench/protocols.py
	$(BIN)/python bench/overload.py
	$(BIN)/python bench/cold.py
	$(BIN)/python bench/fronts.py

# The first time, an environment for each peer is made.
bench-peers: setup ## the server beside its peers on this machine, and docs/benchmarks.md from that: 25 minutes
	$(BIN)/python bench/peers/run.py
	$(BIN)/python bench/peers/report.py

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

clients-lock: ## tests/clients/environments/*.lock, from the .in files beside them
	$(PYTHON) -m venv $(LOCKING)
	$(LOCKING)/bin/pip install --quiet uv
	@for name in installer $(ENVIRONMENTS); do \
	  echo "clients-lock: $$name"; \
	  echo "# Made by 'make clients-lock' from $$name.in. Do not edit." > $(LOCKING)/new; \
	  $(LOCKING)/bin/uv pip compile tests/clients/environments/$$name.in --universal --python-version 3.11 \
	    --generate-hashes --no-header --no-annotate --upgrade --quiet --output-file $(LOCKING)/found-$$name || exit 1; \
	  cat $(LOCKING)/found-$$name >> $(LOCKING)/new; \
	  ! grep -n '://\|index-url\|find-links\|^-e\|^\.' $(LOCKING)/new || exit 1; \
	  mv $(LOCKING)/new tests/clients/environments/$$name.lock; \
	done
