# Two commands matter: `make demo` and `make test`. Both create what they need.
# Another interpreter: make test PYTHON=/path/to/python3.12

SHELL := /bin/bash
# Compiled modules are kept: tests start many processes that import the same ones.
export PYTHONDONTWRITEBYTECODE :=
PYTHON ?=
# More than two cores need: tests wait for processes, Java and servers.
WORKERS ?= 4

PY := .venv/bin/python
# One stamp per place and interpreter: a moved checkout, another PYTHON or a changed lock
# installs again.
HERE := $(shell printf '%s %s' "$(CURDIR)" "$(PYTHON)" | cksum | cut -d ' ' -f 1)
STAMP := .venv/.ready-$(HERE)
# The temporary directories of pytest lie in memory where there is enough.
SCRATCH = PYTEST_DEBUG_TEMPROOT="$$(bash tools/scratch-directory)"

.PHONY: demo test test-slow fuzz bench lint fmt docs lock clean java strace shells pyright

demo: java $(STAMP)
	@PATH="$(CURDIR)/.venv/bin:$$PATH" bash demo/run.sh

# The processes of a run share compiled tests: one compiles them all while mypy uses the other core.
test: java strace $(STAMP)
	@$(SCRATCH) $(PY) -m pytest --collect-only -qq -n 0 >/dev/null 2>&1 & \
	$(MAKE) --no-print-directory lint; status=$$?; wait; exit $$status
	$(SCRATCH) $(PY) -m pytest -n $(WORKERS)

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

# -- slower suites -----------------------------------------------------------------------------

# RESUME=1 leaves out what has passed with these files; SUITE="crash soak" runs some suites.
test-slow: java strace shells $(STAMP) pyright
	@$(SCRATCH) $(PY) tools/slow_suites.py --workers $(WORKERS) $(if $(RESUME),--resume) $(SUITE)

fuzz: $(STAMP)
	$(SCRATCH) $(PY) -m pytest -n $(WORKERS) -m "fuzz or property" --hypothesis-profile=fuzz

bench: $(STAMP)
	@missed=; for each in bench/*.py; do echo "== $$each"; $(PY) "$$each" || missed="$$missed $$each"; done; \
	if [ -n "$$missed" ]; then echo "missed a goal or failed:$$missed"; exit 1; fi

# -- the work place ----------------------------------------------------------------------------

fmt: $(STAMP)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

# The pages of codes, of commands, of the API and of the HTTP API, and the console blocks of the documentation with what the commands print now.
docs: $(STAMP)
	$(PY) tools/codes_page.py >.venv/codes.md
	mv .venv/codes.md docs/codes.md
	$(PY) tools/commands_page.py >.venv/commands.md
	mv .venv/commands.md docs/commands.md
	$(PY) tools/api_page.py >.venv/api.md
	mv .venv/api.md docs/api.md
	$(PY) tools/http_api_page.py >.venv/http-api.md
	mv .venv/http-api.md docs/http-api.md
	$(PY) -c 'from omnigraph.server.openapi import document_text; print(document_text(), end="")' >.venv/openapi.json
	mv .venv/openapi.json docs/openapi.json
	$(PY) -m tests.pages

java:
	@bash tools/ensure-java

# The crash tests stop processes inside system calls.
strace:
	@bash tools/ensure-strace

# The tests of completion press Tab in real shells.
shells:
	@bash tools/ensure-shells

# A second type checker reads the package as users do.
pyright: $(STAMP)
	@bash tools/ensure-pyright

$(STAMP): requirements.lock pyproject.toml tools/make-venv
	@PYTHON="$(PYTHON)" bash tools/make-venv
	@rm -f .venv/.ready-*
	@touch "$@"

# Newest versions that pyproject.toml allows, from a clean install; commit the result.
lock:
	@PYTHON="$(PYTHON)" bash tools/make-lock

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
