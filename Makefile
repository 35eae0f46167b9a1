# Developer tasks. You need Python 3.11 or newer, and make.

VENV ?= .venv
BIN := $(VENV)/bin
CORES := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# one more than there are cores, because some tests wait; of the long ones, most do
WORKERS ?= $(shell echo $$(( $(CORES) + 1 )))
LONG_WORKERS ?= $(shell echo $$(( $(CORES) * 2 )))
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-all lint format bench record fuzz soak laws moves quotas faults reference docs picture vsix lock clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="	" read -r name text; do \
	  printf '  make %-9s %s\n' "$$name" "$$text"; done

demo: $(VENV)/.demo ## run a cluster and the scheduler on this machine; ARGS='--fleet' for several clusters
	@$(BIN)/python -m kube_policy_scheduler.demo $(ARGS)

test: $(VENV)/.dev ## run the quick tests (under 5 min on two cores); ARGS='-k tenant' for some of them
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not long and not dear' --hypothesis-profile same \
	  --durations 5 --durations-min 5 $(ARGS)

test-long: $(VENV)/.dev ## run the tests with processes, browsers, control planes, packages and simulations
	@.ci/programs
	@$(BIN)/python -m pytest -n $(LONG_WORKERS) --dist worksteal -m 'long and not dear' --hypothesis-profile same $(ARGS)

test-all: test test-long ## run all tests, first the quick ones

lint: $(VENV)/.dev ## ruff, import-linter and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy

format: $(VENV)/.dev ## ruff's fixes and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## run the benchmarks
	@$(BIN)/python -m tests.benchmarks $(ARGS)

record: $(VENV)/.dev ## repeat the record on the GPU trace: NODES=openb_node_list_all_node.csv PODS=openb_pod_list_default.csv
	@$(BIN)/policyctl simulate policies/gpu/fgd-balanced.policy policies/gpu/fgd-reserve.policy --until 130% --seeds 10 \
	  --cluster $(NODES) --pods $(PODS) $(ARGS)

fuzz: $(VENV)/.dev ## fuzz each parser of untrusted input for ten minutes; ARGS='yaml --minutes 1' for less
	@$(BIN)/python -m tests.fuzz $(ARGS)

soak: $(VENV)/.dev ## run 1,000 simulations of 2,000 steps, and 200 each with queues, backfill, moves of pods and shards; a failure prints its seed
	@failed=0; for kind in '--runs 1000' '--queues --runs 200' '--backfill --runs 200' '--moving --runs 200' \
	  '--sharded --runs 200 --steps 1000'; do \
	  $(BIN)/python -m tests.simulation --steps 2000 $$kind --workers $(WORKERS) $(ARGS) || failed=1; \
	done; exit $$failed

laws: $(VENV)/.dev ## try each law with 500 examples, not 25, and the dear cases that `make test` leaves out (15 to 30 min)
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'hypothesis or dear' --hypothesis-profile many --timeout 1800 $(ARGS)

faults: $(VENV)/.dev ## run the long fault tests: 2,000 bindings, 200,000 pods, 100,000 pending, 100 restarts, 24 take-overs (25 to 40 min)
	@.ci/programs
	@FAULTS=long $(BIN)/python -m pytest -s tests/faults $(ARGS)

moves: $(VENV)/.dev ## plan moves of pods on 10,000 random clusters, and see that none is ever undone; a failure prints its seed
	@$(BIN)/python -m tests.tooling.random_moves --clusters 10000 --workers $(WORKERS) $(ARGS)

quotas: $(VENV)/.dev ## run 10,000 random cases of quotas, and check each with a model of its own; a failure prints its seed
	@$(BIN)/python -m tests.quotas --cases 10000 --workers $(WORKERS) $(ARGS)

reference: $(VENV)/.dev ## regenerate the language reference and the parser's tables in grammar/, the table of metrics, schemas, editors' grammars, the Helm chart
	@$(BIN)/python -m tests.lang.test_reference
	@$(BIN)/python -m tests.deploy.test_operations
	@$(BIN)/python -m tests.deploy.test_kubernetes_versions
	@$(BIN)/python -m tests.lang.test_parse_tables
	@$(BIN)/python -m tests.daemon.test_configuration_schema
	@$(BIN)/python -m tests.editor.test_textmate
	@$(BIN)/python -m tests.editor.tree_sitter_parser
	@$(BIN)/python -m tests.deploy.chart
	@$(BIN)/python -m tests.adapters.grpc.test_estimator_messages

docs: $(VENV)/.dev ## build the site into build/docs, without a network; open build/docs/index.html
	@$(BIN)/sphinx-build -q -W -b html -c docs . build/docs

picture: $(VENV)/.dev ## record the moving picture of the README: needs Chromium
	@$(BIN)/python docs/picture.py

vsix: ## test and build the VS Code extension into editors/vscode/dist; needs Node 20 and npm
	@cp LICENSE editors/vscode/LICENSE
	@cd editors/vscode && npm ci --no-audit --no-fund && npm test && npm run package

lock: $(VENV)/.dev ## resolve the newest versions into the files requirements*.lock
	@.ci/lock $(BIN)/python

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

# The stamp files let a second run start at once, without a network.
$(VENV)/.demo: pyproject.toml requirements.lock
	@.ci/environment $(VENV) requirements.lock
	@touch $@

$(VENV)/.dev: pyproject.toml requirements-dev.lock
	@.ci/environment $(VENV) requirements-dev.lock
	@touch $@ $(VENV)/.demo
