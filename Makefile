PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: install demo test bench clean

install: $(STAMP)

# torch first: the pinned CPU build then satisfies every other package's range.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt pip setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $(STAMP)

demo: install
	$(BIN)/graphveil plan --method dpdgc --level k-neighbor --k 5 --epsilon 8 --delta 1e-5 \
		--nodes 10000 --train-nodes 7500 --features 200 --classes 2

test: install
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

bench: install
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

clean:
	rm -rf $(VENV) build dist *.egg-info
