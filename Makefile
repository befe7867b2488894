.DEFAULT_GOAL := help
.PHONY: help install test check coverage soak lint docs dist audit bench chaos load recovery screenshots demo clean
.DELETE_ON_ERROR:

VENV := .venv
VENV_BENCH := .venv-bench
STAMP := $(VENV)/.installed
STAMP_BENCH := $(VENV_BENCH)/.installed
PIP_INSTALL := -m pip install -qq --disable-pip-version-check -c constraints.txt
# Two more than there are cores: many tests wait for processes they started.
WORKERS ?= $(shell echo $$(( $$(nproc) + 2 )))
# Where memory can be had as a folder, no test waits for a disk.
ROOM := $(shell df --output=avail -BG /dev/shm 2>/dev/null | awk 'NR == 2 && int($$1) >= 4 { print "/dev/shm" }')
# A socket's path may have 107 signs, and Chromium and PostgreSQL need some of them.
ifneq ($(shell printf %s "$$TMPDIR" | wc -c | awk '$$1 > 60'),)
export TMPDIR := /tmp
endif
# The tests call schemathesis by hand; its plugin takes most of a second to import in each process.
PYTEST := pytest -p no:schemathesis -n $(WORKERS) --dist worksteal -q
ARGS ?=
PACKAGES = $(patsubst src/kesin/%/__init__.py,%,$(wildcard src/kesin/*/__init__.py))

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

install: $(STAMP) ## Set up .venv and the programs the tests start
	@scripts/setup-system.sh programs

# Each test process starts hundreds of others: compiled modules are kept, whatever the shell says.
test: install ## Run the tests (ARGS="-k name")
	@PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT=$(ROOM) $(VENV)/bin/python -m $(PYTEST) $(ARGS)

coverage: install ## Run the tests, print their coverage, write htmlcov/ (ARGS="-k name")
	@$(VENV)/bin/coverage erase
	@PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT=$(ROOM) $(VENV)/bin/coverage run -m $(PYTEST) $(ARGS); \
	status=$$?; $(VENV)/bin/coverage combine --quiet && $(VENV)/bin/coverage html --quiet; \
	for package in $(PACKAGES); do \
	  printf '%-10s %3s %%\n' $$package $$($(VENV)/bin/coverage report --format=total --include="src/kesin/$$package/*"); \
	done; \
	printf '%-10s %3s %%  htmlcov/index.html\n' all $$($(VENV)/bin/coverage report --format=total); exit $$status

check: lint ## Check style and types, and run the tests that start no servers
	@PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT=$(ROOM) $(VENV)/bin/python -m $(PYTEST) --fast $(ARGS)

soak: install ## Run the long forms: ten million simulated steps, kills, faults, fuzzing (ARGS="--help")
	@PYTHONDONTWRITEBYTECODE= PYTEST_DEBUG_TEMPROOT=$(ROOM) $(VENV)/bin/python scripts/soak.py $(ARGS)

lint: $(STAMP) ## Check style, types and imports
	@$(VENV)/bin/ruff check --quiet
	@$(VENV)/bin/ruff format --check --quiet
	@$(VENV)/bin/mypy --no-error-summary
	@$(VENV)/bin/lint-imports --no-logo

docs: $(STAMP) ## Build the documentation as a site, in site/
	@$(VENV)/bin/python scripts/make-reference.py
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build

dist: $(STAMP) ## Build sdist and wheel, reproducibly, with a bill of materials, into dist/
	@rm -rf dist
	@$(VENV)/bin/python scripts/make-dist.py dist

audit: $(STAMP) ## Compare vendored scripts with npm, check libraries for known vulnerabilities
	@$(VENV)/bin/python $(PIP_INSTALL) pip-audit
	@$(VENV)/bin/python scripts/provenance.py

bench: $(STAMP_BENCH) ## Measure Kesin and its peers (ARGS="--help")
	@scripts/setup-system.sh programs
	@$(VENV_BENCH)/bin/python -m bench $(ARGS)

chaos: $(STAMP_BENCH) ## Break Kesin and its peers: lost, doubled, stuck (ARGS="--help")
	@scripts/setup-system.sh programs
	@$(VENV_BENCH)/bin/python -m bench.chaos $(ARGS)

load: install ## Send requests from 200 clients to `kesin serve` (ARGS="--help")
	@$(VENV)/bin/python -m bench.load $(ARGS)

recovery: install ## Measure how long a recovery takes after each kind of crash (ARGS="--json")
	@$(VENV)/bin/python -m bench.recovery $(ARGS)

screenshots: install ## Take the dashboard's pictures for the documentation
	@$(VENV)/bin/python scripts/screenshots.py $(ARGS)

demo: $(STAMP) ## Run the demonstration
	@scripts/setup-system.sh drawing
	@$(VENV)/bin/kesin demo $(ARGS)

clean: ## Remove both virtual environments, caches and builds
	@rm -rf $(VENV) $(VENV_BENCH) build dist site htmlcov .coverage .hypothesis .*_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml constraints.txt
	@scripts/setup-system.sh venv $(VENV)
	@echo "Installing Kesin into $(VENV); this takes a minute or two"
	@$(VENV)/bin/python $(PIP_INSTALL) -e '.[all,dev]'
	@touch $@

$(STAMP_BENCH): pyproject.toml constraints.txt bench/requirements-peers.txt
	@scripts/setup-system.sh venv $(VENV_BENCH)
	@echo "Installing Kesin and its peers into $(VENV_BENCH); this takes some minutes"
	@$(VENV_BENCH)/bin/python $(PIP_INSTALL) -e '.[all]' -r bench/requirements-peers.txt
	@touch $@
