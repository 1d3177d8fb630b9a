# Two commands: `make report` does the main job, `make test` proves it. Both install what they need into .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.installed

.PHONY: report test slow lint format bench clean

report: $(READY)
	$(BIN)/layerstep reproduce

test: lint
	$(BIN)/python -m pytest

slow: $(READY)
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

bench: $(READY)
	$(BIN)/layerstep bench

clean:
	rm -rf .venv report

# torch is installed by its pinned name first: a looser requirement would fetch gigabytes of GPU libraries.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[dev]'
	touch $@
