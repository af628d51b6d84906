# Weighbridge: `make demo` to see it, `make test` for everything that CI runs.

PYTHON ?= python3
PORT ?= 8000
SERVE ?= 1
WORKERS ?= 3
RECEIPTS ?= 10000000
BIN := .venv/bin
RUN := $(BIN)/python manage.py

.DEFAULT_GOAL := help
# Modules compiled once serve every process that the tests start.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help install install-dev compiled demo serve test checks lint types contracts migrations unit chromium \
	bench bench-short bench-growth bench-gateway bench-phases bench-ledger bench-simulator bench-slo \
	bench-pages seed-large test-clients diagnosis-long crash-long faults-long simulator-long soak \
	audit screenshots lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 20

.venv/runtime: requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Weighbridge needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

.venv/dev: requirements-dev.lock .venv/runtime
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements-dev.lock
	@touch $@

install: .venv/runtime  ## a virtual environment with what serving needs
install-dev: .venv/dev  ## the same with what testing needs

compiled: .venv/dev  ## the simulator's engine as machine code, twice as fast (needs a C compiler)
	$(RUN) compile_simulator

demo: .venv/runtime  ## an hour of traffic replayed, then served on PORT (SERVE=0: only replayed)
	$(RUN) demo --base-url http://127.0.0.1:$(PORT)
ifneq ($(SERVE),0)
	$(RUN) serve --port $(PORT)
endif

serve: .venv/runtime  ## serve the ledger that is there, on PORT
	$(RUN) serve --port $(PORT)

test: .venv/dev chromium  ## everything that CI runs; the checks beside the tests, which mostly wait
	$(MAKE) --no-print-directory -j2 unit checks

checks: lint types contracts migrations

lint: .venv/dev  ## format and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/dev
	$(BIN)/mypy .

contracts: .venv/dev  ## who may import whom
	$(BIN)/lint-imports

migrations: .venv/dev
	WEIGHBRIDGE_VAR=$$(mktemp -d) $(RUN) makemigrations --check --dry-run

unit: .venv/dev chromium
	$(RUN) compile_simulator || echo "The tests run the simulator's engine from its source."
	WEIGHBRIDGE_VAR=$$(mktemp -d) $(BIN)/pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

chromium:  # for the browser tests; the headless shell takes a third of the browser's time
	@command -v chromium-headless-shell >/dev/null \
	  || { apt-get update -q && apt-get install -qy --no-install-recommends chromium-headless-shell; } \
	  || command -v chromium >/dev/null || apt-get install -qy --no-install-recommends chromium

bench: .venv/dev compiled  ## beside LiteLLM, Portkey, vLLM's and SGLang's routers: docs/benchmarks.md
	$(BIN)/python -m benchmarks.peers --docs docs
bench-short: .venv/dev  ## the same as a smoke test, without the others
	$(BIN)/python -m benchmarks.peers --short
bench-growth: .venv/dev  ## what a request costs beside RECEIPTS receipts
	$(BIN)/python -m benchmarks.peers --growth $(RECEIPTS) --rounds 5 --docs docs
bench-gateway: .venv/dev compiled  ## requests/s, added latency, the cost of a decision and of the whole decision path
	$(BIN)/python -m benchmarks.gateway
bench-phases: .venv/dev  ## the processor's time of a request, phase by phase
	$(BIN)/python -m benchmarks.gateway_phases
bench-ledger: .venv/dev  ## rows and whole requests per second, bytes, verification
	$(BIN)/python -m benchmarks.ledger
bench-simulator: .venv/dev compiled  ## simulated requests per second, beside the Dynamo mocker
	$(BIN)/python -m benchmarks.simulator
bench-slo: .venv/dev  ## all objectives over a million receipts, and what a pass costs the data plane
	$(BIN)/python -m benchmarks.slo
diagnosis-long: .venv/dev  ## nine scenarios over twenty seeds: the confusion matrix of the diagnosis
	SCENARIO_SEEDS=20 WEIGHBRIDGE_VAR=$$(mktemp -d) $(BIN)/pytest -s -k twenty tests/gateway/demo/test_scenarios.py
bench-pages: .venv/dev  ## each page's queries over a million receipts
	$(BIN)/python -m benchmarks.pages
seed-large: .venv/dev  ## a ledger of RECEIPTS receipts in var/large
	$(BIN)/python -m benchmarks.seed --receipts $(RECEIPTS) --to var/large
test-clients: .venv/dev  ## clients of others, and schemathesis, against a running server
	test -x .venv-clients/bin/python || $(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install -q -r tests/clients/requirements.txt
	-command -v npm >/dev/null && npm install --silent --prefix .venv-clients openai
	-command -v promtool >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends prometheus; }
	CLIENT_EXAMPLES=20 WEIGHBRIDGE_VAR=$$(mktemp -d) $(BIN)/pytest -n 0 -rs tests/clients
crash-long: .venv/dev  ## ten thousand seeded crashes of the ledger; prints the seed
	$(BIN)/python -m tests.crashes --steps 10000
faults-long: .venv/dev  ## 500 seeded faults under load, and what must hold after each; prints the seed
	WEIGHBRIDGE_VAR=$$(mktemp -d) $(BIN)/python -m tests.faults --injections 500
soak: .venv/dev  ## an hour of virtual traffic with faults, then ten real minutes: memory, files, books
	WEIGHBRIDGE_VAR=$$(mktemp -d) $(BIN)/python -m tests.soak
audit:  ## known vulnerabilities of the pinned packages; needs a registry that serves them
	test -x .venv-audit/bin/python || $(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet pip-audit
	.venv-audit/bin/pip-audit --disable-pip --require-hashes -r requirements.lock
simulator-long: .venv/dev  ## the engine against the oracle on 20,000 workloads
	HYPOTHESIS_PROFILE=long $(BIN)/pytest tests/simulator

screenshots: .venv/dev chromium  ## every page at two widths in both themes, under var/screenshots
	$(BIN)/python -m tests.screenshots

lock: .venv/dev  ## renew the lock files from pyproject.toml (needs pip-tools)
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile $(LOCK) -o requirements.lock pyproject.toml
	$(BIN)/pip-compile $(LOCK) --extra dev -c requirements.lock -o requirements-dev.lock pyproject.toml
LOCK := -q --upgrade --generate-hashes --no-emit-index-url --no-emit-trusted-host \
	--no-emit-find-links --no-header --strip-extras --allow-unsafe --no-annotate

clean:  ## remove the virtual environments, what was compiled, and everything under var/
	rm -rf .venv .venv-clients .venv-peers .venv-audit simulator/_compiled var
