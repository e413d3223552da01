# On a fresh machine with Python 3.11 or newer and make; each of them sets up .venv first:
#   make demo    a live session on a file log, and its page        make test             every check
#   make docs    the documentation                                 make paper [FULL=1]   the paper's comparison
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
OUT ?= paper-results/$(if $(FULL),full,quick)

.PHONY: demo test check tests slow paper size docs format lock clean

test: check tests

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

tests: $(READY)
	$(BIN)/pytest

slow: $(READY)
	$(BIN)/pytest -m slow

demo: $(READY)
	@rm -rf demo
	$(BIN)/python examples/inventory.py
	@$(BIN)/episafe report demo

paper: $(READY)
	$(BIN)/episafe paper $(if $(FULL),,--quick) --out $(OUT)

size: $(READY)
	$(BIN)/python benchmarks/size.py

docs: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:
	uv pip compile --universal --python-version 3.11 --upgrade pyproject.toml --group dev -o requirements.lock \
	  --no-emit-index-url --no-header --no-annotate

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "episafe needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
