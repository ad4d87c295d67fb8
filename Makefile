# Everything that a newcomer needs: `make sweep` sets up and runs the main job, `make test` sets up and tests.
.DEFAULT_GOAL := help
.PHONY: help setup sweep train smoke test ui tensorboard bench study lock

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More Hydra overrides, say: make sweep ARGS="sweep.n_trials=40"
ARGS ?=
PORT ?= 5000
TENSORBOARD_PORT ?= 6006

help:
	@echo "make setup        create $(VENV) with the locked packages"
	@echo "make sweep        search reward weights (ARGS=\"...\" adds overrides)"
	@echo "make train        train one policy"
	@echo "make smoke        the CI smoke-train job: fails when learning is broken"
	@echo "make test         lint, type-check, test"
	@echo "make ui           MLflow at http://127.0.0.1:$(PORT)"
	@echo "make tensorboard  the same curves at http://127.0.0.1:$(TENSORBOARD_PORT)"
	@echo "make bench        measure the figures of the README's table"
	@echo "make study        run the study of docs/study.md again"

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is $$($(PYTHON) -V 2>&1); Python 3.11 or newer is needed, e.g. make setup PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

sweep: setup
	$(BIN)/python -m orchestrator +sweep=reward_weights $(ARGS)

train: setup
	$(BIN)/python -m orchestrator $(ARGS)

smoke: setup
	$(BIN)/python -m orchestrator experiment=smoke $(ARGS)

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(ARGS)

ui: setup
	$(BIN)/mlflow server --backend-store-uri sqlite:///$(CURDIR)/mlruns/mlflow.db --default-artifact-root $(CURDIR)/mlruns \
	  --host 127.0.0.1 --port $(PORT) --workers 1

tensorboard: setup
	$(BIN)/tensorboard --logdir sweeps --host 127.0.0.1 --port $(TENSORBOARD_PORT)

bench: setup
	$(BIN)/python -m tests.benchmarks $(ARGS)

# Search, confirm on fresh seeds, and keep the pictures beside docs/study.md.
study: setup
	$(BIN)/python -m navtask.doctor task=nav
	$(BIN)/python -m orchestrator +sweep=reward_weights sweep.name=study sweep.n_trials=32 confirm.top_k=3 confirm.seeds=5 $(ARGS)
	$(BIN)/python -m orchestrator.report study=study pictures=docs/study

lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet '.[dev]'
	(echo '# Every package with the version that was tested, for Python 3.11 and newer on Linux. Made by `make lock`.'; \
	 build/lock/bin/python -m pip freeze --exclude navtune | sed 's/+cpu//') > requirements.lock
