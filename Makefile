# Needs only python3 (3.11 or newer, with venv and headers), cc and make.
# `make report` and `make test` each set everything up in .venv by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BUILT := $(VENV)/.built
CORE := $(shell find pcpmodel -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
STUBS := $(shell find pcpmodel -name '*.pyi')
SANITIZED := build/sanitize
PYTEST_FLAGS ?=
RERUN_FLAGS ?=
LAB_FLAGS ?=

# Tests and reports start hundreds of processes, each of which would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: report test test-long browser env lab bench docs lint wheel sanitize clean
.DELETE_ON_ERROR:

report: env ## Bring reports/ up to date: run the notebooks whose inputs changed
	$(BIN)/pcpmodel rerun $(RERUN_FLAGS)

PYTEST := $(BIN)/python -m pytest -n logical --dist loadgroup --no-loadscope-reorder

test: env ## Run the tests, all but the long ones and the browser's
	$(PYTEST) -m "not long and not browser" $(PYTEST_FLAGS)

test-long: env ## Run the long tests, and the property tests on new examples
	$(PYTEST) -m "long or hypothesis" --hypothesis-profile=random $(PYTEST_FLAGS)

browser: env ## Run every notebook in JupyterLab with chromium; screenshots in build/browser
	$(BIN)/python -m pytest -v -m browser tests/project $(PYTEST_FLAGS)

env: $(BUILT) ## Set up .venv and build the core

lab: env ## Open JupyterLab on 00-start-here (this machine only, with its token)
	$(BIN)/jupyter lab --ServerApp.ip=127.0.0.1 --LabApp.default_url=/lab/tree/00-start-here.ipynb \
	  $(LAB_FLAGS) notebooks

bench: env ## Measure speed, with the ratio to the slowest twin of each group
	$(BIN)/python -m pytest -o addopts= -o python_files="bench_*.py" --benchmark-only \
	  --benchmark-group-by=group --benchmark-columns=min,median,iqr,rounds tests/benchmarks

docs: env ## Build the documentation below build/docs; a warning is an error
	$(BIN)/python docs/build_docs.py build

lint: env ## Check style, stubs and that the notebooks are stored clean
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint pcpmodel
	$(BIN)/lint-imports --no-cache
	$(if $(STUBS),$(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml --allowlist tests/stubtest_allowlist.txt \
	  --ignore-unused-allowlist $(subst /,.,$(STUBS:.pyi=)))
	$(BIN)/python -m pytest -q -m "not notebook" tests/project/test_notebooks.py

wheel: env ## Build a wheel for this machine's Python below dist/
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
	  $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# In a copy, so that the ordinary build stays as it is.  Tests of rooms where nothing is
# compiled are left out, but those of study/ that share engines and memory.  The C++ library comes with the sanitizer's, which must
# know where exceptions are thrown before matplotlib throws one.
UNCOMPILED := datasets figures proc project reports test_cli.py test_files.py \
  $(addprefix hardware/test_,hold_time.py latency_input.py latency_ways.py platform.py sizes_explained.py) \
  $(addprefix study/test_,advise.py answer.py autotuning.py batching.py compare.py cover_letter.py defaults.py \
    judge.py limit.py other_tables.py questions.py rules.py throughput.py validate.py)

# Memory that is not there is refused with NULL, as without the sanitizer: the core looks.
sanitize: env ## Run the quick tests of the core under AddressSanitizer and UBSan
	rm -rf $(SANITIZED)
	mkdir -p $(SANITIZED)
	tar -c --exclude='*.so' --exclude=__pycache__ setup.py pyproject.toml README.md LICENSE \
	  pcpmodel tests tools data docs examples notebooks | tar -x -C $(SANITIZED)
	test ! -e ../shared || ln -sfn $(abspath ../shared) build/shared # kernel sources beside the checkout
	cd $(SANITIZED) && PCPMODEL_SANITIZE=1 $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace
	cd $(SANITIZED) && LD_PRELOAD="$(foreach l,libasan.so libstdc++.so.6,$(shell $(CC) -print-file-name=$(l)))" PYTHONMALLOC=malloc \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	  $(CURDIR)/$(PYTEST) -q -p no:cacheprovider --capture=sys \
	  -m "not slow and not long and not notebook" $(UNCOMPILED:%=--ignore=tests/%)

clean: ## Remove everything that make made, reports/ included
	rm -rf $(VENV) build dist reports *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache \
	  .benchmarks
	find pcpmodel tests notebooks -name __pycache__ -prune -exec rm -rf {} +
	find pcpmodel -name '*.so' -delete

# PIP_BUILD_CONSTRAINT is PIP_CONSTRAINT's successor for the build environment.
$(INSTALLED): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "pcpmodel needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1)." \
	    "Choose one: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments (Debian: apt install python3-venv)." >&2; \
	  exit 2; }
	@$(PYTHON) -c 'import os, sys, sysconfig as s; \
	  sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))' || { \
	  echo "$(PYTHON) has no C headers (Debian: apt install python3-dev)." >&2; exit 2; }
	@command -v $(firstword $(CC)) >/dev/null || { \
	  echo "no C compiler: $(CC) is not there (Debian: apt install gcc)." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PCPMODEL_CORE=0 \
	  $(BIN)/python -m pip install --quiet --no-compile --editable '.[cluster,docs,test]'
	touch $@

$(BUILT): $(INSTALLED) $(CORE)
	@# An extension whose source is gone would be imported in place of a module of that name.
	@for so in $$(find pcpmodel -name '*.so'); do test -e "$${so%%.*}.pyx" || rm -f "$$so"; done
	$(BIN)/python setup.py -q build_ext --inplace
	touch $@
