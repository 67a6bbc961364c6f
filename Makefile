PY := .venv/bin/python
STAMP := .venv/ready

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	test -x $(PY) || python3 -m venv .venv
	$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $(STAMP)

setup: $(STAMP)  ## make .venv and install everything, pinned

run: $(STAMP)  ## run a real language model and show what happened inside
	$(PY) -m cutaway pull smollm2
	$(PY) -m cutaway run smollm2 "The capital of France is" --max-tokens 24 --trace

test: $(STAMP)  ## the tests (a few minutes)
	$(PY) -m cutaway pull smollm2
	$(PY) -m pytest -n 2 -m "not slow"

slow: $(STAMP)  ## the long tests
	$(PY) -m cutaway pull smollm2
	$(PY) -m pytest -m slow

check: $(STAMP)  ## format, lint, layers
	$(PY) -m ruff format --check cutaway tests
	$(PY) -m ruff check cutaway tests
	.venv/bin/lint-imports

bench: $(STAMP)  ## speed against transformers, in one run
	$(PY) benchmarks/first.py

clean:  ## remove the environment and what builds left
	rm -rf .venv build dist *.egg-info

.PHONY: help setup run test slow check bench clean
