PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: install demo test test-fast bench docs notebooks package clean

install: $(STAMP)

# torch first: the pinned CPU build then satisfies every other package's range.
$(STAMP): pyproject.toml setup.py $(wildcard src/graphveil/*/*.c src/graphveil/*/*/*.c) constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test,serve]'
	touch $(STAMP)

demo: install
	rm -rf runs/demo
	$(BIN)/graphveil train --level k-neighbor --k 1 --epsilon 8 --out runs/demo

# A process of one thread for each of two cores. Where a test asks for more threads, they sleep while they wait: by
# default they spin, and take the cores from what they wait for.
PYTEST := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist worksteal

test: install
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST)

# Daily work: without what is marked slow.
test-fast: install
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

# The long audit goes on where it was stopped, and skips graphs' rows that are there.
bench: install
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)
	$(if $(QUICK),,$(BIN)/graphveil audit --all --seed 1 --out docs/results/audit)

# The docs' packages stay out of the other targets' way.
docs: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo 'written to build/site/index.html'

# The notebooks of the documentation, run again, with what comes out of them.
notebooks: install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[notebooks]'
	$(BIN)/python tools/run_notebooks.py

# Source distribution and wheel, checked, and installed on Python 3.11, 3.12 and 3.13 where they are there.
package: install
	$(BIN)/python tools/package.py $(foreach python,$(PYTHONS),--python $(python))

clean:
	rm -rf $(VENV) build dist *.egg-info src/graphveil/*/*.so src/graphveil/*/*/*.so
