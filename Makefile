PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NOTEBOOKS := docs/tutorials
# Modules are compiled when they are first imported: of 28,000 installed files most never are.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-compile --constraint constraints.txt
# A GPU counts even where its driver is missing: NVIDIA's number on the PCI bus, or the device of WSL.
TORCH ?= $(shell if [ "$$(uname -s)" != Linux ] || ls /dev/nvidia* /dev/dxg >/dev/null 2>&1 \
	|| grep -qsi 0x10de /sys/bus/pci/devices/*/vendor; then echo cuda; else echo cpu; fi)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.PHONY: help install demo test test-ci test-all check results docs docs-serve notebooks hub findings release canary clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(VENV)/.torch: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@if [ "$(TORCH)" = cpu ]; then \
		echo "PyTorch without CUDA, as this machine shows no NVIDIA GPU (make TORCH=cuda $(MAKECMDGOALS): with CUDA)"; \
		$(PIP) --quiet --retries 0 --timeout 15 --no-deps --index-url $(TORCH_INDEX) torch torchvision 2>/dev/null \
		|| echo "$(TORCH_INDEX) gives none: PyTorch comes with CUDA, which is far larger, and works without a GPU, too"; \
	fi
	touch $@

$(VENV)/.demo: $(VENV)/.torch
	$(PIP) --editable '.[cli]'
	touch $@

$(VENV)/.installed: $(VENV)/.torch
	$(PIP) --editable '.[dev]'
	touch $(VENV)/.demo $@

install: $(VENV)/.installed  ## Make .venv and install the package into it, with the developers' tools

demo: $(VENV)/.demo  ## The main job on real digits: a table and a picture in runs/demo
	$(BIN)/fda compare --dataset digits --shift rotate --rounds 30 --seeds 3 --output runs/demo --resume

test: install  ## Test in a few minutes: all maths and contracts
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-ci: install  ## The same, with one test of each real part: SuperLink, Ray, browser, site, wheel
	$(BIN)/python -m pytest -n 2 -m "not slow or smoke" --durations=60

test-all: install  ## Run every test, and measure the lines that they run
	$(BIN)/python -m pytest -n 2 --cov

check: install  ## Lint, format and types, and whether the pages of results follow from their records
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python experiments/tools/results.py --check

results: install  ## Remake the pages and tables of results from the records
	$(BIN)/python experiments/tools/results.py

docs: install  ## Build the documentation's site in site/
	$(MKDOCS) build --strict

docs-serve: install  ## Show the site on this machine, and build it anew after each change
	$(MKDOCS) serve

notebooks: install  ## Execute the tutorials (NOTEBOOKS=... some), without pytest's settings for the tests
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -c /dev/null -p no:cacheprovider -n 2 \
		--nbmake --nbmake-timeout=600 $(NOTEBOOKS)

hub: install  ## The app for Flower's hub, in build/hub, with its bundle
	rm -rf build/hub
	$(BIN)/python hub/assemble.py build/hub/fda-flower
	cd build/hub && "$(CURDIR)/$(BIN)/flwr" build --app fda-flower

findings:  ## Run what other packages do against a good guess; needs an index of packages
	@status=0; summary=; for script in findings/*.sh; do \
		echo "$$script"; \
		if bash "$$script"; then result=passed; else result=FAILED; status=1; fi; \
		summary="$$summary$$result $$script\n"; \
	done; printf "\n$$summary"; exit $$status

release:  ## Build sdist and wheel, and type README's commands where only the wheel is (PYTHONS=..., EXTRAS=...)
	rm -rf build/release && $(PYTHON) -m venv build/release
	build/release/bin/python -m pip install --disable-pip-version-check --quiet build twine psutil
	build/release/bin/python -m release.check $(PYTHONS) $(if $(EXTRAS),--extras $(EXTRAS)) \
		$(if $(filter cpu,$(TORCH)),--torch-index $(TORCH_INDEX))

canary: install  ## Test with another flwr (VERSION=1.42; default: the newest, also a nightly): a row for docs/install.md
	$(BIN)/python -m release.canary $(VERSION)

clean:  ## Remove the environment and the caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* build dist site
