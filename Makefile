PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
READY := $(VENV)/ready
CASES := $(or $(CUTAWAY_CASES),../shared)
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup peers run test slow check lab bench clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 8

# The stamp is written last: an interrupted set-up goes on where it stopped, a finished one needs no network.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than Python 3.11: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV), once (torch is large) ..."
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) -e '.[test]'
	@touch $@

setup: $(READY)  ## make .venv and install everything, pinned

# Compiled for the sake of its answers, not of its speed: -O3 takes twice as long.
peers: export CMAKE_ARGS := -DLLAVA_BUILD=OFF -DLLAMA_BUILD_COMMON=OFF -DLLAMA_CURL=OFF -DCMAKE_CXX_FLAGS_RELEASE=-O1
peers: $(READY)  ## build llama.cpp for the slow tests that compare with it (minutes; needs a C++ compiler)
	CMAKE_BUILD_PARALLEL_LEVEL=$(WORKERS) $(PIP) llama-cpp-python

run: $(READY)  ## run a real language model and show what happened inside
	@$(PY) -m cutaway pull smollm2
	$(PY) -m cutaway run smollm2 "The capital of France is" --max-tokens 24 --trace
	@echo; echo "Next: source $(VENV)/bin/activate, then what README.md asks, or cutaway --help; make lab is the course."

# The browser tests run apart: their event loop lives as long as their process, and the server's tests have their own.
test: $(READY)  ## the same set-up, then the tests (a few minutes)
	@$(PY) -m cutaway pull smollm2
	@test -d "$(CASES)" || echo "!!! No handed cases at $(CASES): the tests that need them will FAIL. Set CUTAWAY_CASES to their folder. !!!"
	$(PY) -m pytest -n 1 -m "not slow" tests/browser
	$(PY) -m pytest -n $(WORKERS) -m "not slow" --ignore tests/browser

slow: $(READY)  ## the long tests
	@$(PY) -m cutaway pull smollm2
	$(PY) -m pytest -n 1 -m slow tests/browser
	$(PY) -m pytest -n $(WORKERS) -m slow --ignore tests/browser

check: $(READY)  ## format, lint, types, layers, rules of the house, examples in docstrings
	@$(PY) -m cutaway pull smollm2
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(VENV)/bin/pyrefly check --summarize-errors
	$(VENV)/bin/lint-imports
	$(PY) -m pytest tests/house/test_style.py tests/house/test_boundaries.py tests/house/test_public.py

lab: $(READY)  ## the course in the browser (builds its page once; that needs node or the network)
	@test -f cutaway/lab/static/index.html || $(PY) web/build.py
	$(PY) -m cutaway lab

bench: $(READY)  ## speed against transformers, in one run, the cost of taps, and the lab's page
	@$(PY) -m cutaway pull smollm2
	$(PY) benchmarks/first.py
	$(PY) -W ignore benchmarks/taps.py
	@test -f cutaway/lab/static/index.html || $(PY) web/build.py
	$(PY) benchmarks/lab.py

clean:  ## remove the environment and what builds left
	rm -rf $(VENV) build dist *.egg-info cutaway/lab/static .pytest_cache .ruff_cache .import_linter_cache .hypothesis
