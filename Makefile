# Every target sets up what it needs on a bare Python 3.11: a virtual environment in .venv, filled once.
# Name another interpreter with `make PYTHON=/path/to/python`.

PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && exit; done; echo python3)
VENV := .venv
RUNTIME := $(VENV)/.runtime
DEVELOPMENT := $(VENV)/.development
ORACLE := $(VENV)/.oracle
PLOTS := $(VENV)/.plots
EVIDENCE := .[plots,calibrate]
# The checks of accessibility that the tests of the page run; nothing else comes from npm.
AXE := .cache/npm/node_modules/axe-core/axe.min.js
LOCKED := parquet yaml shell dask plots calibrate mcp
EXTRAS := .[dev,parquet,bench,dask,plots,calibrate]
# The build without GPU libraries, where the package index has it; the bytes are the same.
TORCH := torch==2.13.0+cpu
# Installed alone: what it asks for is for GPUs, and importing it needs no more than the extra `oracle`.
MEGATRON := megatron-core==0.16.1
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --quiet --disable-pip-version-check --no-input
SWEEP ?= llama-3.1-70b --gpu h100-80gb --num-gpus 512 --global-batch-size 1024 --seq-length 8192

INPUTS ?= 1000000

# Tests that draw more where ORACLES=full.
DRAWN := $(shell grep -rlE --include='test_*.py' --exclude-dir=oracles '^from oracles.extent import|get\("ORACLES"\)' tests)

LATEX := pdflatex -interaction=nonstopmode -halt-on-error -output-directory=build
LATEX_FILES := booktabs.sty lmodern.sty ptmr7t.tfm
LATEX_PACKAGES := texlive-latex-base texlive-latex-recommended texlive-fonts-recommended lmodern

MAPPED := catalogue generated symbolic templates
TYPED := .cache/mypy/shardmath

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help derive check appendix docs page sweep lowest quick test matrix oracle lint constraints documents coverage counted pictures validate simplest bench fuzz clean latex \
	chromium

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

derive: $(RUNTIME) ## write generated/ anew from the ledger, if anything changed
	@$(RUN) -m shardmath.symbolic.unchanged || { $(RUN) -m shardmath.symbolic.write && $(RUN) -m shardmath.symbolic.unchanged --keep; }

check: $(RUNTIME) ## fail, with a diff, if generated/ is stale or was edited by hand
	@$(RUN) -m shardmath.symbolic.write --check

appendix: build/appendix.pdf build/supplement.pdf ## typeset the appendix and its supplement in generated/ as PDF in build/
	@echo "$^"

docs: $(DEVELOPMENT) ## build the documentation as a site in build/site, and refuse broken links
	@SHARDMATH_LIVE_PAGE=1 NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --config-file website/mkdocs.yml
	@echo "build/site; with its search: python3 -m http.server --directory build/site"

page: $(DEVELOPMENT) $(AXE) | chromium ## write build/page.html, and try the page in Chromium
	@mkdir -p build && $(VENV)/bin/shardmath page -o build/page.html
	@WRITTEN_PAGE=build/page.html $(RUN) -m pytest -n 2 -m browser tests/browser

sweep: $(RUNTIME) ## the main job: every layout of Llama 3.1 70B on 512 H100, ranked
	@$(VENV)/bin/shardmath sweep $(SWEEP)

lowest: $(DEVELOPMENT) ## the main job and the quick tests with the lowest versions of all that they need
	@.ci/environment .cache/environments/lowest $(RUN) lowest parquet,yaml,shell,plots,calibrate,dev
	@.cache/environments/lowest/bin/shardmath sweep $(SWEEP)
	@.cache/environments/lowest/bin/python -m pytest -n 2 --dist worksteal --quick

quick: $(DEVELOPMENT) ## the tests that start no process, derive and compile no other kernels and ask no oracle: half a minute
	@$(RUN) -m pytest -n 2 --dist worksteal --quick

test: $(ORACLE) ## all tests but those that need pdflatex or chromium, with a few random cases of each oracle
	@$(RUN) -m pytest -n 2 --dist worksteal -m "not latex and not browser"

matrix: $(DEVELOPMENT) ## the tests with the lowest and the highest versions, on every Python from 3.11 to 3.13 that is here
	@.ci/matrix

oracle: $(ORACLE) ## thousands of random cases: bytes against PyTorch, Transformers and Megatron-Core, all that draws against exact counting
	@ORACLES=full $(RUN) -m pytest -n 2 --dist worksteal tests/oracles $(DRAWN)

# mypy does not follow an editable install, so it gets a tree of links that looks like the wheel.
lint: $(DEVELOPMENT) ## ruff and mypy --strict
	@rm -rf $(TYPED) && mkdir -p $(TYPED)
	@ln -s "$(CURDIR)"/src/shardmath/* $(addprefix "$(CURDIR)"/,$(MAPPED)) $(TYPED)/
	@status=0; $(RUN) -m ruff check . || status=1; \
	$(RUN) -m mypy --strict >.cache/mypy.txt || status=1; \
	sed -e 's#^$(TYPED)/#src/shardmath/#' $(foreach folder,$(MAPPED),-e 's#^src/shardmath/$(folder)/#$(folder)/#') .cache/mypy.txt; exit $$status

constraints: $(DEVELOPMENT) ## write constraints.txt anew: versions and hashes of all that the package and its extras need
	@$(VENV)/bin/uv pip compile --quiet --universal --no-build --generate-hashes --no-emit-index-url --no-header --no-annotate \
	--python-version 3.11 $(LOCKED:%=--extra %) --output-file constraints.txt pyproject.toml

documents: $(DEVELOPMENT) ## write what commands print into README.md and docs/ anew, after a change of constants (minutes)
	@UPDATE_DOCUMENTS=1 $(RUN) -m pytest -q -n 0 tests/pages/test_readme.py tests/pages/test_documents.py tests/pages/test_notebooks.py tests/commands/test_mistakes.py -k 'commands_print or every_cell or every_mistake'
	@UPDATE_SCALING=1 $(RUN) -m pytest -q -n 0 tests/commands/test_scaling.py -k document

coverage: $(ORACLE) ## write the tables of docs/coverage.md: families, implementations, oracles that count them, and lines of rows
	@UPDATE_DOCUMENTS=1 $(RUN) -m pytest -q -n 0 tests/oracles/test_coverage.py
	@UPDATE_DOCUMENTS=1 $(RUN) -m pytest -q -n 0 tests/ledger/test_code_lines.py -k page

counted: $(ORACLE) ## write tests/data/counted_rows.toml anew: the rows that tests compare with counted bytes, from a run of them; then `make coverage`
	@COUNTED_ROWS=1 $(RUN) -m pytest -q -n 0 tests/oracles $$(grep -rl --include='test_*.py' --exclude-dir=oracles 'from oracles.instruments.traced import' tests)

pictures: $(PLOTS) ## write the pictures of docs/, by the commands on its pages and from the ledger
	@$(RUN) -m validation.pictures >/dev/null
	@$(RUN) -m website.concepts

validate: $(PLOTS) ## write docs/validation.md with its plots, docs/fujii2024.md, docs/field-reports.md, docs/known-to-run.md, docs/bridge-recipes.md, docs/beside-recipes.md and docs/leaderboard.md: predicted against measured
	@$(RUN) -m validation.fujii2024
	@$(RUN) -m validation.field_reports
	@$(RUN) -m validation.report
	@$(RUN) -m validation.known_recipes
	@$(RUN) -m validation.bridge_checkout
	@$(RUN) -m validation.beside_recipes
	@$(RUN) -m validation.leaderboard

fuzz: $(DEVELOPMENT) ## a million inputs for everything that reads a file, a name or an option (about an hour)
	@$(PIP) install --no-build-isolation --editable '.[fuzz]'
	@$(RUN) -m fuzzing.run --inputs $(INPUTS)

simplest: $(ORACLE) ## write docs/simplest.md: operations of all formulas, and searches for simpler forms (minutes)
	@$(RUN) -m validation.simplest

bench: $(DEVELOPMENT) ## measure the sweep beside its alternatives
	@$(RUN) -m benchmarks.run

clean: ## remove what was built, and caches; keep .venv
	@rm -rf build dist *.egg-info .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# install(what): the checkout into the environment, editable; setuptools first, as old ones cannot build it
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "shardmath needs Python 3.11 or newer, and $(PYTHON) is not; try: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(RUN) -m pip --version >/dev/null 2>&1 || { echo "making $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing $(1) into $(VENV)"
	@$(PIP) install --upgrade 'setuptools>=77'
	@$(PIP) install --no-build-isolation --editable '$(1)'
endef

$(AXE):
	@mkdir -p .cache/npm && npm install --silent --no-save --no-audit --no-fund --prefix .cache/npm axe-core@4.14.1 || \
	echo "axe-core is not to be had with npm: the tests of accessibility are left out" >&2

$(RUNTIME): pyproject.toml
	$(call install,.)
	@touch $@

$(PLOTS): pyproject.toml | $(RUNTIME)
	$(call install,$(EVIDENCE))
	@touch $@

$(DEVELOPMENT): pyproject.toml
	$(call install,$(EXTRAS))
	@touch $(RUNTIME) $@

$(ORACLE): $(DEVELOPMENT)
	@$(PIP) install '$(TORCH)' 2>/dev/null || \
	echo "no $(TORCH) in the package index: the build with GPU libraries follows, some GiB more" >&2
	$(call install,.[oracle])
	@$(PIP) install --no-deps '$(MEGATRON)'
	@touch $(RUNTIME) $(DEVELOPMENT) $@

# Tables as wide as their columns settle after three passes.
build/appendix.pdf build/supplement.pdf: build/%.pdf: generated/%.tex | latex
	@mkdir -p build && rm -f build/$*.*
	@for pass in 1 2 3 4; do \
	$(LATEX) $< >build/latex.txt || { tail -n 30 build/latex.txt; exit 1; }; \
	if [ $$pass -gt 1 ] && ! grep -q 'Rerun LaTeX\|Rerun to get' build/$*.log; then break; fi; done

latex:
	@if command -v pdflatex >/dev/null && kpsewhich $(LATEX_FILES) >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	echo "installing $(LATEX_PACKAGES)"; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -qq --no-install-recommends $(LATEX_PACKAGES) >/dev/null; \
	else echo "The appendix needs pdflatex; install $(LATEX_PACKAGES), or TeX Live." >&2; exit 1; fi

chromium:
	@for browser in chromium chromium-browser google-chrome; do \
	if command -v $$browser >/dev/null; then exit 0; fi; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	echo "installing chromium"; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; \
	else echo "The tests of the page need Chromium; install chromium." >&2; exit 1; fi
