# make run        set up .venv (once) and answer PROMPT="…" with the default pair
# make test       set up .venv with the development tools and run every check
# make test-unit  the quick tests alone: no models, no network once set up
# make clean      remove .venv and the tools' caches
# BACKEND=cpu|cuda|vulkan|metal overrides the backend that set-up picks; PYTHON=… the interpreter.

PYTHON ?= python3
PROMPT ?= Write a Python function that merges two sorted lists, with a short docstring.
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

# Through the environment, so that quotes, $ and ` in a prompt stay what they are.
export PROMPT PYTHON

.PHONY: help run setup setup-dev test test-unit clean

help:
	@sed -n '1,5s/^# //p' Makefile

run: setup
	@$(BIN)/localspec run --temp 0 --max-tokens 400 -- "$$PROMPT"

test: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST)

test-unit: setup-dev
	$(PYTEST) -m "not real" tests/unit

setup:
	@sh .ci/setup run

setup-dev:
	@sh .ci/setup dev

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
