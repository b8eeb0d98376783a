# On a fresh machine with Python 3.11 (or newer), make, gcc and git: `make demo`, `make test`. Nothing else to set up.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(firstword $(foreach v,3.11 3.12 3.13 3.14,$(shell command -v python$(v) 2>/dev/null)) python3)
# Whatever goes to pytest: make test PYTEST_ARGS="-x tests/policies"
PYTEST_ARGS ?=
# Test files run side by side; much of them is waiting, so three keep two cores busy, and the suite fits ten minutes.
JOBS ?= 3
# What failed is asked once more with the machine to itself, for it may have had to wait longer for another process than
# it does: both runs are printed, and the first test that fails again, ends it.
ALONE = echo "== what failed, once more alone" \
  && $(BIN)/coverage run -m pytest --last-failed --last-failed-no-failures none --maxfail 1 -v $(PYTEST_ARGS)
# Groups come from pyproject.toml; `pip install --group` is as old as pip 25.1.
GROUPS := test check bench
# Every module of loadtest/bench is a programme that prints its figures and exits 1 where it misses its targets; these
# are the cheap ones.
BENCHES := $(patsubst loadtest/bench/%.py,loadtest.bench.%,$(filter-out %/__init__.py %/proxied.py %/instructions.py,\
  $(wildcard loadtest/bench/*.py)))
COMPILED := build/compiled
# What of the suite meets the compiled modules: a compiled class can differ in what is rarely asked of it. What replaces
# a part of them is marked `interpreted`.
COMPILED_TESTS := tests/policies tests/stores tests/gateway tests/wire tests/incidents
SOURCES := $(shell find gateway policies -name '*.py')

.DEFAULT_GOAL := help
.PHONY: help demo test test-compiled check format compiled bench bench-check soak fuzz clean

help:  ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

$(VENV)/.stamp: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "evenhand needs Python 3.11 or newer; found none (set PYTHON=...)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . $(GROUPS:%=--group %)
	@touch $@

demo: $(VENV)/.stamp  ## a dozen light tenants beside a backfill, over real sockets
	$(BIN)/evenhand demo

test: $(VENV)/.stamp  ## the whole suite, with the coverage gates
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS) || { test $$? = 1 && $(ALONE); }
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include='policies/*' --fail-under=100
	$(BIN)/coverage report --include='gateway/*' --fail-under=90

check: $(VENV)/.stamp  ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.stamp  ## let ruff rewrite what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

compiled: $(COMPILED)/.stamp  ## the hot path as extension modules, in build/compiled (needs a C compiler)

$(COMPILED)/.stamp: $(VENV)/.stamp hatch_build.py $(SOURCES)
	@rm -rf $(COMPILED)
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation \
	  --target $(COMPILED) .
	@touch $@

test-compiled: $(COMPILED)/.stamp  ## the suite against what `make compiled` built, which can differ
	@rm -rf build/tested && mkdir build/tested
	@cp -r $(COMPILED)/gateway $(COMPILED)/policies $(COMPILED)/*.so tests loadtest docs *.toml *.md build/tested
	cd build/tested && PYTHONPATH=. $(abspath $(BIN))/python -m pytest -p no:cacheprovider \
	  -n $(JOBS) --dist loadfile -m "not interpreted" $(COMPILED_TESTS) $(PYTEST_ARGS)

bench: $(VENV)/.stamp  ## cost of a decision, a key, a request beside the peers (QUICK=1: 2 minutes; MATRIX=1: 20 more)
	@$(MAKE) --silent compiled || echo "not compiled: measured in pure Python alone"
	@for bench in $(BENCHES); do echo "== $$bench"; $(BIN)/python -m $$bench || true; done
	@echo "== loadtest.bench.proxied"; $(BIN)/python -m loadtest.bench.proxied $(if $(QUICK),--quick) || true
	@$(if $(MATRIX),$(BIN)/python -m loadtest.bench.proxied --matrix || true)

bench-check: $(VENV)/.stamp  ## instructions a request against the committed baseline, and cheap targets
	@missed=; for bench in $(BENCHES); do echo "== $$bench"; $(BIN)/python -m $$bench || missed="$$missed $$bench"; done; \
	  echo "== instructions"; $(BIN)/python -m loadtest.bench.instructions || missed="$$missed instructions"; \
	  test -z "$$missed" || { echo "missed:$$missed" >&2; exit 1; }

soak: $(VENV)/.stamp  ## tests marked `soak` at their full size
	$(BIN)/python -m pytest -m soak --soak -o faulthandler_timeout=3600 $(PYTEST_ARGS)

fuzz: $(VENV)/.stamp  ## a million inputs through every parser; every property test with many more examples
	$(BIN)/python -m loadtest.fuzz --inputs 1000000
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=fuzz $(PYTEST_ARGS)

clean:  ## remove what was made
	rm -rf $(VENV) dist build .coverage* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
