PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NOTEBOOKS := docs/tutorials
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.PHONY: help install demo test test-ci test-all check docs docs-serve notebooks clean

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

test: install  ## Test in a few minutes: all maths and contracts
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-ci: install  ## The same, with one test of each real part: SuperLink, Ray, browser, site, wheel
	$(BIN)/python -m pytest -n 2 -m "not slow or smoke" --durations=60

test-all: install  ## Run every test, and measure the lines that they run
	$(BIN)/python -m pytest -n 2 --cov

check: install  ## Lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: install  ## Build the documentation's site in site/
	$(MKDOCS) build --strict

docs-serve: install  ## Show the site on this machine, and build it anew after each change
	$(MKDOCS) serve

notebooks: install  ## Execute the tutorials (NOTEBOOKS=... some), without pytest's settings for the tests
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -c /dev/null -p no:cacheprovider -n 2 \
		--nbmake --nbmake-timeout=600 $(NOTEBOOKS)

clean:  ## Remove the environment and the caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* dist site
