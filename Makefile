# Two commands: `make report` does the main job, `make test` proves it. Both install what they need into .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.installed

.PHONY: report numbers interventions kill certify test slow fuzz lint format bench wheel docs notebooks pictures clean

report: $(READY)
	$(BIN)/layerstep reproduce

# Every number of the report anew, and into results/numbers: after a change of code that they depend on.
numbers: $(READY)
	rm -rf build/numbers
	$(BIN)/layerstep reproduce --recompute --out build/numbers
	rm -rf results/numbers && cp -r build/numbers/numbers results/numbers

# Writes into the layers of every model whose weights are here, and keeps what comes out in results/interventions.
interventions: $(READY)
	$(BIN)/layerstep reproduce --measure outdated

# A file's tests stay together: they share what is costly to prepare.
test: lint
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist loadfile

# kill -9 at random moments; what is called again ends with the same bits.
kill: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/kill_training.py --kills 100
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/kill_report.py --kills 20
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/kill_sweep.py --runs 1000 --seconds 10

slow: $(READY)
	$(BIN)/python -m pytest -m slow

# 10,000 command lines and 10,000 calls of the library.
fuzz: $(READY)
	$(BIN)/python -m pytest -m fuzz -s tests/fuzz

# A million predictions of constructed networks and of TransformerKRR against 80-bit arithmetic.
certify: $(READY)
	$(BIN)/python tests/fuzz/certify.py

# ls.sweep on a real Slurm of two nodes (Debian's packages, 4 MB, root) and on a Ray cluster of two raylets (259 MB).
.PHONY: cluster-test
cluster-test: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[slurm,ray]'
	command -v slurmctld >/dev/null || apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m cluster tests/cluster

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

bench: $(READY)
	$(BIN)/layerstep bench

# sdist and wheel in dist/, the wheel installed into an empty environment, the README run there.
wheel: $(READY)
	$(BIN)/python tests/wheel.py

# The documentation in site/, from docs/ and docstrings; stops at a link that leads nowhere. site/index.html opens it.
docs: .venv/.docs
	$(BIN)/zensical build --clean --strict

# The notebooks from their first cell to their last, in an empty directory. They are stored without outputs.
notebooks: .venv/.notebooks
	$(BIN)/python tests/notebooks.py

# The pictures of README and documentation, from the figures of the report.
pictures: report
	$(BIN)/python benchmarks/pictures.py report
	$(BIN)/python benchmarks/page.py report --pictures docs/pictures

.venv/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[docs]'
	touch $@

.venv/.notebooks: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[notebooks]'
	touch $@

clean:
	rm -rf .venv report

# torch first and pinned: any looser requirement may fetch another, larger build of it.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("layerstep needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[dev]'
	touch $@
