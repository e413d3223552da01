# Two commands do everything on a fresh machine with Python 3.11 or newer and make:
#   make test    set-up, then every check          make paper [FULL=1]   set-up, then the paper's comparison
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SLOW_READY := .venv/.slow-ready
OUT ?= paper-results/$(if $(FULL),full,quick)

.PHONY: test check tests slow notebooks faults paper docs format lock clean

test: check tests

check: $(READY)
	$(BIN)/ruff format --check --exclude src/episafe2 --exclude tests2 .
	$(BIN)/ruff check --extend-exclude src/episafe2 --extend-exclude tests2 .
	$(BIN)/mypy
	$(BIN)/lint-imports

tests: $(READY)
	$(BIN)/pytest

slow: $(SLOW_READY)
	$(BIN)/pytest -m slow

notebooks: $(SLOW_READY)
	$(BIN)/python docs/notebooks/execute.py

faults: $(READY)
	$(BIN)/python benchmarks/faults.py $(if $(QUICK),--quick)

paper: $(READY)
	$(BIN)/episafe paper $(if $(FULL),,--quick) --out $(OUT)

docs: $(READY)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	-$(BIN)/python benchmarks/figures.py
	@echo "open docs/_build/html/index.html"

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:
	uv pip compile --universal --python-version 3.11 --upgrade pyproject.toml --group dev -o requirements.lock \
	  --no-emit-index-url --no-header --no-annotate
	uv pip compile --universal --python-version 3.11 --upgrade --group slow -c requirements.lock -o requirements-slow.lock \
	  --no-emit-index-url --no-header --no-annotate

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "episafe needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

$(SLOW_READY): $(READY) requirements-slow.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: -r requirements-slow.lock
	@touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
