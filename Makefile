# Every target makes .venv by itself, from the lock, with nothing but python3 (3.11 or newer) and make.

VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
UV     := $(or $(shell command -v uv 2>/dev/null),$(wildcard $(BIN)/uv))
PYTEST := $(BIN)/python -m pytest

TESTS  ?=
JOBS   ?= 4
ARGS   ?=
SUITE  = -m pytest --no-header -n $(JOBS) --dist worksteal $(ARGS) -m
AGAIN  = $(if $(CI),|| $(1) -m tests.again)
FORGET = $(if $(CI),rm -f .pytest_cache/v/cache/lastfailed)

# The suite starts thousands of Python processes: without bytecode on disk each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

# One resolution for every platform Perdure runs on; wheels only; no index is named, each machine has its own.
COMPILE := pip compile --quiet --universal --python-version 3.11 --no-build --generate-hashes \
           --no-header --no-annotate --no-emit-index-url --no-emit-find-links

.DEFAULT_GOAL := help
.PHONY: cluster cluster-test help demo agents test stories coverage left-out test-slow check fmt schema types replay attack chaos chaos-backlog chaos-github fuzz bench-recovery bench-treasury bench-verdict bench-setup bench-parallel bench-agents bench-tokens bench-looking bench-growth bench-calls gauntlet screenshots lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

$(READY): requirements.lock pyproject.toml deploy/venv.sh
	@deploy/venv.sh $(VENV) requirements.lock .
	@touch $@

demo: $(READY) ## one request becomes one pull request while you kill the worker (ARGS: options of perdure demo)
	@$(BIN)/perdure demo $(ARGS)

agents: ## Claude Code and Codex, pinned, below .venv/agents: for tests that run them and for the demo (800 MB)
	@deploy/packages.sh npm=npm
	@deploy/agents.sh $(VENV)/agents

# On a build server (CI=true) up to ten failed tests run once more, alone, and those that pass are named as flaky.
# Most tests wait for processes and servers, so there are more workers than two cores; no more than four, for each collects
# and starts a server for itself. worksteal keeps neighbours, which share a server, on one of them.
test: $(READY) ## all tests but stories and slow ones, and the stories of the README's promises (TESTS=tests/cli: all there; ARGS; JOBS)
ifeq ($(strip $(TESTS)),)
	@deploy/packages.sh chromium=chromium node=nodejs npm=npm
	@$(FORGET)
	@$(BIN)/python $(SUITE) "not slow and (not story or always)" $(call AGAIN,$(BIN)/python)
else
	@$(PYTEST) -q $(TESTS) $(ARGS)
endif

stories: $(READY) ## whole deliveries, browsers, hosts with all their processes: what `make test` leaves out (ARGS; JOBS)
	@deploy/packages.sh chromium=chromium node=nodejs npm=npm
	@$(FORGET)
	@$(BIN)/python $(SUITE) "story and not (slow or always)" $(call AGAIN,$(BIN)/python)

# Measuring costs a third of the time again: stories are not measured. Worker processes are (tool.coverage.run).
coverage: $(READY) ## what `make test` runs, and how many lines and branches it goes through: at least 85 %
	@deploy/packages.sh chromium=chromium node=nodejs npm=npm
	@rm -f .coverage .coverage.*
	@$(FORGET)
	@$(BIN)/python -m coverage run $(SUITE) "not slow and (not story or always)" $(call AGAIN,$(BIN)/python -m coverage run)
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage report --skip-covered --sort=cover >$(VENV)/coverage.txt || \
	  { rc=$$?; cat $(VENV)/coverage.txt; exit $$rc; }
	@echo "coverage: $$($(BIN)/python -m coverage report --format=total) % of lines and branches ($(VENV)/coverage.txt)"

# On a build server once more what failed, as above.
left-out: $(READY) ## the tests that the last run left out for a missing program, where it is here now (JOBS)
	@deploy/packages.sh chromium=chromium node=nodejs npm=npm
	@test ! -s .pytest_cache/left_out.txt || { cp .pytest_cache/left_out.txt $(VENV)/left_out.txt && rm -rf .pytest_cache && \
	  { $(PYTEST) -q --no-header -n $(JOBS) --dist worksteal $(ARGS) @$(VENV)/left_out.txt $(call AGAIN,$(BIN)/python); }; }

test-slow: $(READY) ## longer versions of what the tests show, without coverage: more turns, kills, workers
	@$(PYTEST) -q --no-header -m slow -n $(JOBS) --dist worksteal $(ARGS)

cluster: $(READY) ## a real Temporal cluster to try a fleet on this machine, until Ctrl-C (DIR: kept there; PORT: of its frontend)
	@deploy/packages.sh pg_createcluster=postgresql
	@$(BIN)/python deploy/cluster.py $(if $(PORT),--port $(PORT)) $(DIR)

cluster-test: $(READY) ## the stories that are played on a real Temporal cluster too, and its faults (ARGS)
	@deploy/packages.sh pg_createcluster=postgresql
	@$(BIN)/python deploy/cluster.py -- sh -c 'CLUSTER=$$TEMPORAL_ADDRESS exec $(PYTEST) -q --no-header -n 2 -m "cluster and not slow" $(ARGS)'

check: $(READY) ## format, lint, types, arrows, lock, wheel
	@echo "format" && $(BIN)/ruff format --quiet --check .
	@echo "lint"   && $(BIN)/ruff check --quiet .
	@echo "types"  && $(BIN)/mypy --no-error-summary && $(BIN)/mypy --no-error-summary worker.py starter.py deploy/cluster.py
	@echo "arrows" && { $(BIN)/lint-imports >$(VENV)/arrows.txt 2>&1 || { cat $(VENV)/arrows.txt; exit 1; }; }
	@echo "lock and wheel" && $(PYTEST) -q --no-header tests/packaging

fmt: $(READY) ## format the code and fix what can be fixed
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

schema: $(READY) ## write docs/schema and the types in Go, Java and TypeScript from the models
	@$(BIN)/python -m schemas

types: $(READY) ## build and use the types that usual generators make of docs/schema, and ours (go, npm, mvn; four minutes)
	@$(PYTEST) -q --no-header -m "slow or story" tests/schemas $(ARGS)

replay: $(READY) ## replay the kept histories against today's workflows
	@$(PYTEST) -q tests/replay $(ARGS)

attack: $(READY) ## the attack table, by root once more as an ordinary user (ARGS="--only WORD": some of it)
	@$(BIN)/python -m tests.attack $(ARGS)

chaos: $(READY) ## N=40 deliveries under random faults: kills, sleep, resets, damaged worktrees (SEED: the first)
	@first=$(or $(SEED),$$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')); echo "seeds from $$first: make chaos N=1 SEED=…"; \
	  CHAOS=$$first:$(or $(N),40) $(PYTEST) -q --no-header -n $(if $(filter file,$(origin JOBS)),2,$(JOBS)) -rP tests/chaos $(ARGS)

chaos-backlog: $(READY) ## N=1 nights of examples/backlog, each with KILLS=20 of worker and server (SEED: the first)
	@first=$(or $(SEED),$$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')); echo "seeds from $$first: make chaos-backlog SEED=…"; \
	  CHAOS_BACKLOG=$$first:$(or $(KILLS),20):$(or $(N),1) $(PYTEST) -q --no-header -rP tests/chaos/test_chaos_backlog.py $(ARGS)

chaos-github: $(READY) ## a hundred SIGKILLs inside open_pull_request, beside faults of GitHub (FORGE_KILLS=1-25: the seeds)
	@FORGE_KILLS=$(or $(FORGE_KILLS),1-25) $(PYTEST) -q -n 2 -rP tests/e2e/test_github.py -k exactly_one $(ARGS)

fuzz: $(READY) ## N=10000 starts, signals, updates and queries of any shape, to workflows of every type (SEED: the first)
	@FUZZ=$(or $(SEED),$$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')):$(or $(N),10000) $(PYTEST) -q --no-header -rP tests/fuzz $(ARGS)

bench-recovery: $(READY) ## from SIGKILL of the worker to the next turn: median, p95, worst (KILLS=100)
	@$(BIN)/python benchmarks/recovery.py $(ARGS)

bench-treasury: $(READY) ## events of a budget that many deliveries share (DELIVERIES=50)
	@$(BIN)/python benchmarks/treasury.py $(ARGS)

bench-verdict: $(READY) ## what a verdict costs beside running the test command bare (ROUNDS=7)
	@$(BIN)/python benchmarks/verdict.py $(ARGS)

bench-setup: $(READY) ## what setup costs the second delivery of a repository (MEGABYTES=300, FILES=12000)
	@$(BIN)/python benchmarks/setup.py $(ARGS)

bench-parallel: $(READY) ## 1, 5 and 15 deliveries at once beside a plain script that does the same work (ROUNDS=3)
	@$(BIN)/python benchmarks/parallel.py $(ARGS)

bench-agents: $(READY) ## agents killed at random: orphans, tools done twice, spend not accounted (N=20; after make agents)
	@$(BIN)/python benchmarks/agents.py $(ARGS)

screenshots: $(READY) ## the pictures of docs/ anew, and all pages in both schemes and two widths below .venv (a browser; five minutes)
	@$(BIN)/python docs/screenshots.py $(VENV)/screenshots
	@echo "$(VENV)/screenshots: look at each"

gauntlet: $(READY) ## real projects of others, judged and compared with their bare runners (ARGS=--fixed: CI's ten; ARGS="qs …")
	@$(BIN)/python -m benchmarks.gauntlet $(ARGS)

bench-tokens: $(READY) ## the share of a step's input that is read from the cache, with our marks and without (ARGS="--turns 30")
	@$(BIN)/python benchmarks/tokens.py $(ARGS)

bench-growth: $(READY) ## processor seconds of a turn by its place in a step of 96 (PRINTS="0 4096", TURNS=96)
	@$(BIN)/python benchmarks/growth.py $(ARGS)

bench-calls: $(READY) ## calls of git, programs, fsync and execve in vain of one delivery, counted by strace
	@deploy/packages.sh strace=strace
	@$(BIN)/python benchmarks/calls.py

bench-looking: $(READY) ## the share of a core that the page and top take (DELIVERIES="50 200", SECONDS=20, CHANGES=5)
	@$(BIN)/python benchmarks/looking.py $(ARGS)

lock: ## write the lock files from pyproject.toml (ARGS=--upgrade: to the newest versions)
	@$(if $(UV),,{ echo "error: uv is needed to write the lock; pip install uv" >&2; exit 1; })
	@$(UV) $(COMPILE) $(ARGS) --group dev -o requirements.lock pyproject.toml
	@$(UV) $(COMPILE) $(ARGS) --constraints requirements.lock -o requirements-run.lock pyproject.toml
	@echo "requirements.lock, requirements-run.lock"

clean: ## remove .venv and everything that was made
	@rm -rf $(VENV) dist build .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
