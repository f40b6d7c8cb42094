# Everything happens in $(VENV), inside the project. Choose another interpreter with PYTHON=...
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test coverage fuzz test-ppl test-ppl-full test-minimum test-pre docs record record-check bench benchmarks evidence heldout lint format review dist smoke clean

demo: $(VENV)/.demo ## Combine three regressions on real data; writes demo-output/
	$(BIN)/python -m lockquack.demo

# TESTS=... chooses some of them. Two test processes with a linear algebra library of one thread each, not of two.
test: $(VENV)/.dev ## Run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(TESTS)

# A floor, for all tests only: sources of PPL models have tests of their own, in another environment.
coverage: $(VENV)/.dev ## Run the tests and tell which lines none of them reaches
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered --cov-report=xml \
		--cov-fail-under=$(if $(TESTS),0,82) $(TESTS)

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

# What can break with older libraries: ways through the package, files, dask, numba, pictures, the command line. What old
# libraries say about newer ones is no concern of ours.
AGAINST = tests/test_package.py tests/test_adapters.py tests/test_lock.py tests/test_stack.py tests/test_methods.py \
	tests/test_combination.py tests/test_distribution.py tests/test_files.py tests/test_lazy.py tests/test_kernels.py \
	tests/test_plots.py tests/test_cli.py tests/test_arviz.py tests/test_csv.py tests/test_labels.py
test-minimum: ## Run the tests that libraries could break with the lowest versions that pyproject.toml allows
	$(MAKE) VENV=$(VENV)-minimum minimum-tests

minimum-tests: $(VENV)/.minimum
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -W ignore::DeprecationWarning $(AGAINST)

test-pre: ## Run the same tests with pre-releases of all libraries
	$(MAKE) VENV=$(VENV)-pre pre-tests

pre-tests: $(VENV)/.pre
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(AGAINST)

docs: ## Build the documentation, examples run, into docs/_build/html
	$(MAKE) VENV=$(VENV)-docs docs-site

docs-site: $(VENV)/.docs
	rm -rf docs/api
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -E -W --keep-going -q -b html -d docs/_build/doctrees docs docs/_build/html

# PyMC, Bambi, NumPyro and Stan are not needed to build the site: what pages with them print is recorded, in docs/recorded.
record: ## Run the pages that need PyMC, Bambi, NumPyro or Stan, where their code has changed: PAGES=docs/howto/pymc.md
	$(MAKE) VENV=$(VENV)-record recordings

record-check: ## Run them all, and fail where they print something else than what is recorded
	$(MAKE) VENV=$(VENV)-record PAGES=--check recordings

recordings: $(VENV)/.record
	OMP_NUM_THREADS=1 $(BIN)/python scripts/record_pages.py $(PAGES)

# Peers that cannot be installed here are left out. The current ArviZ needs a newer Python than ours.
BENCH_PYTHON ?= $(firstword $(foreach each,python3.13 $(wildcard $(HOME)/.pyenv/versions/3.13.*/bin/python) $(PYTHON),\
	$(shell $(each) -c '' 2>/dev/null && echo $(each))))
bench: export R_LIBS = $(CURDIR)/build/R
bench: ## Measure lockquack beside its peers; writes docs/benchmarks.md
	-scripts/ensure_loo.sh
	-$(MAKE) VENV=$(VENV)-bayesblend $(VENV)-bayesblend/.bayesblend
	$(MAKE) VENV=$(VENV)-bench PYTHON=$(BENCH_PYTHON) benchmarks

evidence: ## Score all methods on held-out parts of real data; writes docs/evidence.md
	$(MAKE) VENV=$(VENV)-evidence heldout

heldout: $(VENV)/.evidence
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/heldout.py

# bayesblend needs older libraries than lockquack, so it has an environment of its own.
benchmarks: $(VENV)/.bench
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/run.py --python-of-bayesblend $(VENV:-bench=-bayesblend)/bin/python

lint: $(VENV)/.dev ## Check style, types, who imports whom, spelling, and what GitHub and Read the Docs are told to do
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/zizmor --offline --quiet --persona=pedantic .github
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yaml

format: $(VENV)/.dev ## Put the code into the project's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

review: ## Compare the project with the guide of Scientific Python
	$(MAKE) VENV=$(VENV)-review guide

guide: $(VENV)/.review
	$(BIN)/repo-review . --show errskip

dist: ## Build the wheel and the source distribution into dist/
	$(MAKE) VENV=$(VENV)-dist distributions

distributions: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*

smoke: dist ## Install what `make dist` built into an empty environment and use it
	scripts/smoke.sh $(PYTHON)

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

$(VENV)/.evidence: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable . --group evidence
	touch $@

$(VENV)/.bayesblend: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --group bayesblend
	touch $@

$(VENV)/.docs: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable . --group docs
	touch $@

$(VENV)/.record: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --editable . --group record
	touch $@

$(VENV)/.review: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --group review
	touch $@

$(VENV)/.dist: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --group dist
	touch $@

$(VENV)/.minimum: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --group minimum
	$(BIN)/uv pip compile --quiet --python $(BIN)/python --resolution lowest-direct --no-annotate \
		--extra cli --extra dask --extra fast --extra paper --extra demo --extra nuts pyproject.toml --output-file $(VENV)/minimum.txt
	$(BIN)/python -m pip install --quiet --editable . --group test --constraint $(VENV)/minimum.txt
	touch $@

$(VENV)/.pre: pyproject.toml | $(VENV)/.pip
	$(BIN)/python -m pip install --quiet --pre --editable . --group test
	touch $@

# Dependency groups need a newer pip than Python 3.11 brings.
$(VENV)/.pip:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@
