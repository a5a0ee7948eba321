PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help install demo test test-all check clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): a few minutes, some gigabytes, most of them PyTorch"
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

install: $(VENV)/.installed  ## Make .venv and install the package into it

demo: install  ## The main job on real digits: a table and a picture in runs/demo
	$(BIN)/fda compare --dataset digits --shift rotate --rounds 30 --seeds 3 --output runs/demo --resume

test: install  ## Test in a few minutes: all maths and contracts, Ray and a SuperLink once
	$(BIN)/python -m pytest -n 2 -m "not slow or smoke"

test-all: install  ## Run every test, and measure the lines that they run
	$(BIN)/python -m pytest -n 2 --cov

check: install  ## Lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## Remove the environment and the caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* dist
