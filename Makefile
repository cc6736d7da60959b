# The tasks, by name. .ci/run calls them, so does a developer.
SHELL := /bin/bash
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
# Installed means: the stamp is newer than what it was made from.
STAMP := $(VENV)/.installed

.PHONY: help install demo test fast pythons check fix bench chaos clean packages

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(STAMP) ## a virtual environment with everything that demo and tests need

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch first: verl would otherwise bring a CUDA build of several gigabytes
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[probe,verl,dev]'
	touch $(STAMP)

demo: install ## the main job on a real verl run on this machine: baseline, healthy replay, planted faults
	$(BIN)/sentinel demo $(ARGS)

packages: ## Debian packages of the live tests (Prometheus, Alertmanager, Chromium); as root
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then deploy/debian_packages.sh; \
	else echo "not root: the tests that need Prometheus, Alertmanager or Chromium are left out unless installed"; fi

# On a shared machine a test can lose its time limit to somebody else: with ONCE_MORE=1 what failed is tried again, alone,
# and fails for good when it fails twice.
once_more = $(if $(ONCE_MORE),|| { echo 'once more what failed:'; $(BIN)/python -m pytest --last-failed -m '$(1)'; })

# Two at a time, the live ones by file: most of a verl run is one process after another starting and importing.
test: install packages ## all tests, the live ones included; K=name for some
ifdef K
	$(BIN)/python -m pytest -k '$(K)'
else
	$(BIN)/python -m pytest -n 2 -m 'not live' $(call once_more,not live)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m live $(call once_more,live)
endif

fast: install ## the tests that need no verl run
	$(BIN)/python -m pytest -n 2 -m 'not live'

pythons: ## the tests that need no torch, on Python 3.10 and 3.12
	tests/on_python.sh 3.10 $(VENV)-3.10
	tests/on_python.sh 3.12 $(VENV)-3.12

check: install ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: install ## format and safe lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install ## the numbers, beside their peers, as ratios of one run
	$(BIN)/python -m bench

chaos: install ## real verl runs with everything around them going wrong; long (ARGS='--runs 8')
	$(BIN)/python -m bench.chaos_training $(ARGS)

clean: ## what the tasks above made
	rm -rf $(VENV) dist build sentinel-demo
