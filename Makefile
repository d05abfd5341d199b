# make run   sets up .venv (once) and answers PROMPT with the default pair
# make test  sets up .venv with the development tools and runs every check
# BACKEND=cpu|cuda|vulkan|metal overrides the backend that set-up picks.

PYTHON ?= python3
PROMPT ?= Write a Python function that merges two sorted lists, with a short docstring.
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help run setup setup-dev test test-unit clean

help:
	@sed -n '1,3s/^# //p' Makefile

run: setup
	@$(BIN)/localspec run "$(PROMPT)" --temp 0 --max-tokens 200

test: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

test-unit: setup-dev
	$(BIN)/python -m pytest -m "not real" tests/unit

setup:
	@PYTHON="$(PYTHON)" sh .ci/setup run

setup-dev:
	@PYTHON="$(PYTHON)" sh .ci/setup dev

clean:
	rm -rf $(VENV)
