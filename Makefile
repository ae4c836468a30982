# One definition of clean, for people, commit hooks and CI. `make` lists it.
#
# Everything lives in .venv, target and dist; nothing outside is changed, except that a missing Rust compiler is
# installed where the system's package manager allows it. PYTHON=/path/to/python chooses another interpreter.

.DEFAULT_GOAL := help
# The steps share one virtual environment and one target directory.
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
STAMPS := $(VENV)/.stamps
WORKERS ?= 2
FUZZ_CASES ?= 20000
SECONDS ?= 600

# rustup's compiler first, as its own set-up does: a distribution's may be older.
export PATH := $(HOME)/.cargo/bin:$(PATH)
# One interpreter for every build of pyo3; another would have it compiled again.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export VIRTUAL_ENV := $(CURDIR)/$(VENV)

RUST := Cargo.toml $(wildcard Cargo.lock) $(shell find rust -path '*/src/*.rs' -o -name Cargo.toml 2>/dev/null)
# A stamp says that the core was built; a `git clean` may have taken it away since.
REBUILD := $(if $(wildcard python/tenure/_core*.so python/tenure/_core*.pyd),,rebuild)
# mypy refuses a directory that is not there.
EXTRA := $(patsubst %/,%,$(sort $(dir $(wildcard benchmarks/*.py examples/*.py))))

.PHONY: help
help: ## List what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMPS)/core ## Make .venv, fetch the tools, build the Rust core

.PHONY: demo
demo: $(STAMPS)/core ## See it work: a writer dies, the next one takes over
	$(BIN)/python examples/demo.py

.PHONY: test
test: test-rust test-python ## Run every test

.PHONY: test-rust
test-rust: $(STAMPS)/cargo $(STAMPS)/tools ## ... those of the Rust crates
	@# The bindings convert and nothing else: Python tests them, and to link their test program needs a libpython.
	cargo test --quiet --workspace --exclude tenure-bindings

.PHONY: test-python
test-python: $(STAMPS)/core ## ... those in tests/; ARGS="-k lease" narrows it
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

.PHONY: lint
lint: $(STAMPS)/tools $(STAMPS)/rust-lint ## Check style: ruff, rustfmt, clippy, shellcheck, zizmor
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/shellcheck scripts/*.sh .ci/run
	$(BIN)/zizmor --offline --quiet --strict-collection .github
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings

.PHONY: format
format: $(STAMPS)/tools $(STAMPS)/rust-lint ## Put the code into shape
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	cargo fmt --all

.PHONY: types
types: $(STAMPS)/tools ## Check types as Linux, macOS and Windows see them
	@# The tests make odd Linux processes; what users import is checked as each system sees it. Code for the other
	@# systems is unreachable there, and meant to be.
	$(BIN)/mypy --platform linux --cache-dir .mypy_cache/linux python tests scripts $(EXTRA)
	$(BIN)/mypy --platform darwin --no-warn-unreachable --cache-dir .mypy_cache/darwin python
	$(BIN)/mypy --platform win32 --no-warn-unreachable --cache-dir .mypy_cache/win32 python

.PHONY: stubs
stubs: $(STAMPS)/core ## Check that the manual of the core tells the truth
	$(BIN)/python -m mypy.stubtest tenure._core --mypy-config-file pyproject.toml --allowlist scripts/stubtest-allowlist.txt

.PHONY: walls
walls: $(STAMPS)/tools ## Check who imports whom
	@# From the root, so that the contract in scripts/ is found; the cache would survive a change of that contract.
	PYTHONPATH=python:. $(BIN)/lint-imports --no-cache --no-logo

.PHONY: bench
bench: $(STAMPS)/core ## Measure, against something run in the same minute
	@for file in benchmarks/[!_]*.py; do $(BIN)/python "$$file" || exit 1; done

.PHONY: soak
soak: $(STAMPS)/core ## Torture lease and datastore, play seeds, explore the model; SECONDS says how long each, SEED repeats a run
	$(BIN)/python -m tests.torture --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
	TENURE_TORTURE_SECONDS=$(SECONDS) $(BIN)/python -m pytest -q tests/torture/test_datastore.py tests/torture/test_bucket.py
	TENURE_RACE_ROUNDS=1000 $(BIN)/python -m pytest -q tests/store/test_sql.py -k sixteen
	$(BIN)/python -m tests.simulation --seconds $(SECONDS)
	$(BIN)/python -m tests.model --soak --states 1000000

.PHONY: fuzz
fuzz: $(STAMPS)/core ## Search for inputs that break the parsers; FUZZ_CASES says how long
	PROPTEST_CASES=$(FUZZ_CASES) cargo test --quiet --release --workspace --exclude tenure-bindings

.PHONY: wheel
wheel: $(STAMPS)/cargo $(STAMPS)/tools ## Build the wheel into dist/
	$(BIN)/maturin build --quiet --release --locked --interpreter $(BIN)/python --out dist

.PHONY: wheels
wheels: $(STAMPS)/cargo $(STAMPS)/tools ## Build and check the wheels that a Linux machine can; TARGETS narrows it
	scripts/build-wheels.sh $(TARGETS)

.PHONY: test-wheel
test-wheel: ## ... and test the one for this machine on each CPython at hand; TESTS="tests/lease -n 2" narrows it
	scripts/test-wheel.sh dist/release/tenure-*-cp310-abi3-manylinux2014_x86_64.*.whl

.PHONY: cross
cross: $(STAMPS)/tools ## Check the core for macOS, Windows, Arm and musl; STEPS="darwin musl" narrows it
	scripts/cross-check.sh $(STEPS)

.PHONY: cross-quick
cross-quick: $(STAMPS)/tools ## ... only what needs no run: clippy, Apple's headers
	scripts/cross-check.sh layouts darwin windows bsd

.PHONY: all
all: lint walls types stubs wheel demo test ## What CI runs

.PHONY: clean
clean: ## Remove what the above made
	rm -rf $(VENV) target dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	rm -f python/tenure/_core*.so python/tenure/_core*.pyd

# Set-up, each step once: a stamp is newer than what it depends on, or the step runs again.

$(STAMPS)/tools: pyproject.toml scripts/ensure-venv.sh
	@sh scripts/ensure-venv.sh $(VENV) $(BIN)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/cargo: Cargo.toml scripts/ensure-cargo.sh $(STAMPS)/tools
	@sh scripts/ensure-cargo.sh
	@touch $@

$(STAMPS)/rust-lint: $(STAMPS)/cargo
	@sh scripts/ensure-cargo.sh clippy rustfmt
	@touch $@

$(STAMPS)/core: $(RUST) pyproject.toml $(STAMPS)/tools $(STAMPS)/cargo $(REBUILD)
	PIP_QUIET=1 $(BIN)/maturin develop --quiet --release --extras cli
	@touch $@

.PHONY: rebuild
rebuild:
