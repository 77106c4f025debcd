# The verbs of this repository. `make` lists them; CI calls the same ones.
# Needs python3 (3.11 or newer) and make, nothing else.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
ARGS   ?=
CUTS   ?= 20
SEED   ?= 0
RUNS   ?= 1
SEEDS  ?= 5
ROUNDS ?= 3
SHAPES ?= clusters
PART   ?=
MINUTES ?= 10
KILLS  ?= 20
WORKERS ?= 2

# Each folder below tests/ is a kind of proof and a verb of its own: make laws, make unit ARGS="-k lease".
KINDS  := $(filter-out __pycache__,$(patsubst tests/%/.,%,$(wildcard tests/*/.)))

.DEFAULT_GOAL := help
.PHONY: help setup setup-system run tour test lint types pytest long bench bench-spark cluster-conformance cluster-faults cluster-members failover chaos rolling moves spark-faults sqs-suite sim power-cut format lock clean $(KINDS)

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' Makefile
	@printf '  %-20s %s\n' 'one kind' '$(sort $(KINDS)): pytest over tests/<kind>, ARGS="-k name" to narrow'

setup: $(STAMP) ## create .venv and install the locked packages (only when the lock or pyproject.toml changed)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "mqueue needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot create virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup-system: ## install the Debian packages that some tests need (as root); ARGS=long for those of `make long`, too
	tools/setup-system.sh $(ARGS)

run: setup ## install, then start the server: http://127.0.0.1:8080, data in ./data; ARGS are handed on
	$(BIN)/mqueue serve $(ARGS)

tour: setup ## install, then a tour of the embedded broker: a second or two, showing the code it runs
	$(BIN)/python -m mqueue.demo $(ARGS)

test: lint types pytest ## install, then everything that must hold: lint, types, all tests

lint: setup ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## mypy, strict, over src and examples
	$(BIN)/mypy

pytest: setup ## all tests, in WORKERS=2 processes, each file in one of them; ARGS="-k name" to narrow
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 2 $(ARGS)

long: setup ## the tests that `make test` leaves out, because each takes half a minute or more
	$(BIN)/python -m pytest -m long $(ARGS)

$(KINDS): setup
	$(BIN)/python -m pytest tests/$@ $(ARGS)

bench: setup ## run the benchmarks; ARGS are handed on
	$(BIN)/python -m benchmarks $(ARGS)

bench-spark: setup ## the benchmarks of the data pipeline, with a real Spark; ARGS are handed on
	$(BIN)/python -m benchmarks.spark $(ARGS)

cluster-faults: setup ## break a cluster in every way it knows, under a load, SEEDS=5 times each, and check the histories
	$(BIN)/python -m tests.cluster.faults --seeds $(SEEDS) $(ARGS)

chaos: setup ## break a cluster at random for MINUTES=10, under a load that never ends, and check the histories; SEED=0
	$(BIN)/python -m tests.cluster.chaos --minutes $(MINUTES) --seed $(SEED) $(ARGS)

rolling: setup ## restart the nodes of a cluster in turn, under a load, ROUNDS=3 times: nobody is to notice
	$(BIN)/python -m tests.cluster.rolling --rounds $(ROUNDS) $(ARGS)

failover: setup ## kill PostgreSQL primaries and Redis masters under a load, KILLS=20 times each, and check the history; ARGS="--only patroni"
	$(BIN)/python -m tests.cluster.failover --kills $(KILLS) $(ARGS)

moves: setup ## move virtual shards under a load and grow a cluster while messages flow, SEEDS=5 times each, and check what came of it
	$(BIN)/python -m tests.cluster.moves --seeds $(SEEDS) $(ARGS)

cluster-members: setup ## an assigned group whose members come and go under a load, and again with its owner killed
	$(BIN)/python -m tests.cluster.members $(ARGS)
	$(BIN)/python -m tests.cluster.members --kill $(ARGS)

sqs-suite: setup ## the SQS tests of moto, fetched for it, against a server of ours: what differs is known, and why
	$(BIN)/python -m tests.integration.sqs_suite

cluster-conformance: setup ## the conformance suite on clusters of every shape (SHAPES="1-shard-3-nodes idle-node" for some, PART=0/9 for a ninth)
	MQUEUE_BACKENDS="$(SHAPES)" MQUEUE_PART="$(PART)" $(BIN)/python -m pytest tests/conformance -k node $(ARGS)

spark-faults: setup ## break the data pipeline in every way it knows, SEEDS=5 times each, and audit it
	$(BIN)/python -m tests.pipeline.faults --seeds $(SEEDS) $(ARGS)

sim: setup ## replay crash simulations: SEED=0, RUNS=1
	$(BIN)/python -m tests.simulation --seed $(SEED) --runs $(RUNS)

power-cut: setup ## cut the power under a broker, CUTS=20 times; as root, after setup-system
	$(BIN)/python tools/power_cut/run.py --cuts $(CUTS) --control $(ARGS)

format: setup ## rewrite the sources in house format, the stub of the async broker, the picture of the states, the dashboards
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m tools.async_stub
	$(BIN)/python -m tools.client_stub
	$(BIN)/python tools/draw_states.py
	$(BIN)/python -m tools.dashboards

lock: setup ## recompile requirements.lock; ARGS=--upgrade for newer versions
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
	  --extra cluster --extra dev --extra dev-cluster --extra lake --extra server --extra spark --extra spark-java \
	  --extra taskiq --extra telemetry \
	  --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
	  --output-file requirements.lock $(ARGS) pyproject.toml

clean: ## remove .venv, caches and build products
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
