# Everything happens in $(VENV), inside the project. Choose another interpreter with PYTHON=...
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test fuzz test-ppl test-ppl-full docs bench benchmarks lint format clean

demo: $(VENV)/.demo ## Combine three regressions on real data; writes demo-output/
	$(BIN)/python -m lockquack.demo

# TESTS=... chooses some of them. Two test processes with a linear algebra library of one thread each, not of two.
test: $(VENV)/.dev ## Run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(TESTS)

# What it finds it remembers in .hypothesis/, and tries first the next time. ONLY=... as pytest's -k.
CASES ?= 5000
fuzz: $(VENV)/.dev ## Try random models, operators, rules, layouts, files and bad input: CASES=20000
	OMP_NUM_THREADS=1 FUZZ_CASES=$(CASES) $(BIN)/python -m pytest -n 2 tests/fuzz -k "$(ONLY)"

test-ppl: ## Run the tests of PyMC, Bambi, NumPyro and Stan models, in an environment of their own
	$(MAKE) VENV=$(VENV)-ppl ppl-tests

test-ppl-full: ## Run these with every model of the corpus, not with a few of each kind
	$(MAKE) VENV=$(VENV)-ppl MODELS="-m 'full or not full'" ppl-tests

ppl-tests: $(VENV)/.ppl
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(MODELS) tests/ppl

docs: ## Build the documentation, examples run, into docs/_build/html
	$(MAKE) VENV=$(VENV)-docs docs-site

docs-site: $(VENV)/.docs
	rm -rf docs/api
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -E -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

# Peers that cannot be installed here are left out.
bench: ## Measure lockquack beside its peers; writes docs/benchmarks.md
	-scripts/ensure_loo.sh
	-$(MAKE) VENV=$(VENV)-bayesblend $(VENV)-bayesblend/.bayesblend
	$(MAKE) VENV=$(VENV)-bench benchmarks

# bayesblend needs older libraries than lockquack, so it has an environment of its own.
benchmarks: $(VENV)/.bench
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py --python-of-bayesblend $(VENV:-bench=-bayesblend)/bin/python

lint: $(VENV)/.dev ## Check style, types and who imports whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Put the code into the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## Remove the environments
	rm -rf .venv*

$(VENV)/.demo: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

$(VENV)/.ppl: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable . --group ppl
	touch $@

$(VENV)/.bench: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable . --group bench
	touch $@

$(VENV)/.bayesblend: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --group bayesblend
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable . --group docs
	touch $@

# Dependency groups need a newer pip than Python 3.11 brings.
$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@
