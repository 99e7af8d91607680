# What to run; every target works from a clean checkout with a Rust toolchain, `lint` with Python 3 as well.

CARGO ?= cargo
# Programs of the demo and of `bench` are built here.
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)

# With SQL, and without the systems that the laboratory compares with. One set for all: another one would build
# nearly everything again.
FEATURES := --no-default-features --features terrane-cli/sql

.PHONY: help demo build test python-environment test-python wheel loom shuttle lint soak bench bench-sql bench-python differential

help:
	@echo 'make demo    build the release binary, then import, query, kill and recover on real data'
	@echo 'make build   build the release binaries, terrane and terrane-lab'
	@echo 'make test    unit, integration and documentation tests, then loom and shuttle: one seed, a sample of the crashes'
	@echo 'make test-python  the tests of the Python package, in an environment that it makes'
	@echo 'make wheel   the Python package, below target/wheels'
	@echo 'make loom    the concurrent kernels under every interleaving'
	@echo 'make shuttle stores and persistent memory under several threads, in orders that are drawn'
	@echo 'make lint    formatting, clippy, documentation and circles of imports, warnings denied'
	@echo 'make soak    every crash, every fault, many seeds, the peers of the laboratory: hours'
	@echo 'make bench   terrane-lab compare: Terrane beside other systems on the same data'
	@echo 'make bench-sql  SQL beside DuckDB and SedonaDB, on the data that TERRANE_DATA names'
	@echo 'make bench-python  the Python package beside shapely and rtree, on the data that TERRANE_DATA names'
	@echo 'make differential  answers beside those of DuckDB and GeoPandas, on the data that TERRANE_DATA names'

# The map is the only part of terrane-lab that the demo needs; the peers are left out, and SQL.
demo:
	$(CARGO) build --release -p terrane-cli -p terrane-lab --no-default-features
	bash demo/run.sh

build:
	$(CARGO) build --release -p terrane-cli -p terrane-lab

# The models keep one core busy while shuttle's programs are built.
test:
	$(CARGO) test --workspace $(FEATURES)
	$(MAKE) --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) loom shuttle
	@if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
		echo 'The tests of the Python package were NOT RUN: $(PYTHON) is not Python 3.11 or newer.' >&2; \
		exit $(if $(NEEDS_PYTHON),1,0); \
	elif ! $(MAKE) python-environment; then \
		echo 'The tests of the Python package were NOT RUN: its requirements could not be installed.' >&2; \
	else \
		$(MAKE) test-python; \
	fi

# The package as a wheel has it: its Python files and the extension. With all targets, what it depends on stays as the
# tests have built it.
PYTHON ?= python3
PACKAGE := $(TARGET)/python/package
ENVIRONMENT := $(TARGET)/python/environment

test-python: $(ENVIRONMENT)/installed
	$(CARGO) build --workspace $(FEATURES) --all-targets
	mkdir -p $(PACKAGE)/terrane
	cp crates/python/python/terrane/* $(PACKAGE)/terrane/
	cp $(TARGET)/debug/lib_terrane.so $(PACKAGE)/terrane/_terrane.abi3.so
	cd crates/python && PYTHONPATH=$(abspath $(PACKAGE)) $(abspath $(ENVIRONMENT))/bin/python -m pytest -q tests --doctest-modules $(abspath $(PACKAGE))/terrane/__init__.py
	cd crates/python && PYTHONPATH=$(abspath $(PACKAGE)):tests $(abspath $(ENVIRONMENT))/bin/python -m pytest -q -W ignore -p strtree_by_index --pyargs shapely.tests.test_strtree geopandas.tests.test_sindex
	PYTHONPATH=$(PACKAGE) $(ENVIRONMENT)/bin/python -m mypy.stubtest terrane --ignore-missing-stub --ignore-disjoint-bases
	MYPYPATH=$(PACKAGE) $(ENVIRONMENT)/bin/python -m mypy --strict $(PACKAGE)/terrane/__init__.pyi

python-environment: $(ENVIRONMENT)/installed

$(ENVIRONMENT)/installed: crates/python/tests/requirements.txt
	$(PYTHON) -m venv $(ENVIRONMENT)
	$(ENVIRONMENT)/bin/python -m pip install --quiet --requirement crates/python/tests/requirements.txt
	touch $@

wheel:
	$(PYTHON) -m venv $(TARGET)/python/maturin
	$(TARGET)/python/maturin/bin/python -m pip install --quiet 'maturin>=1.16,<2'
	$(TARGET)/python/maturin/bin/maturin build --release --manifest-path crates/python/Cargo.toml --out $(TARGET)/wheels

# Another configuration of this workspace. With all of its packages, what they depend on stays as it is built.
loom:
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/.ci/rustc-loom $(CARGO) test --workspace $(FEATURES) --lib loom_tests

# TEST is a part of a test's name; a failed one says how to replay it.
shuttle:
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/.ci/rustc-shuttle $(CARGO) test --workspace $(FEATURES) --test '*_shuttle' $(TEST)

lint:
	@! for suite in crates/*/tests/suite.rs; do for file in $${suite%/suite.rs}/*.rs; do \
	  name=$$(basename $$file .rs); \
	  grep -qs "^mod $$name;" $${suite%/suite.rs}/*.rs || grep -Eqs "^(name = \"$$name\"|path = \"tests/$$name.rs\")" $${suite%/tests/suite.rs}/Cargo.toml \
	    || echo "$$file is in no program of tests: name it in $$suite"; \
	done; done | grep .
	@! grep -rnE '#\[path = "(\.\./)+[a-z]+/(src|tests)/' --include=*.rs crates
	@! grep -rnE '#\[path = "(\.\./)+tests/' --include=*.rs crates/*/src
	python3 .ci/circles_test.py
	python3 .ci/circles.py
	python3 .ci/english.py --counts
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace $(FEATURES) --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace $(FEATURES) --no-deps

soak:
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	TERRANE_SOAK=1 $(CARGO) test --release --workspace
	TERRANE_SOAK=1 $(MAKE) shuttle

bench:
	$(CARGO) build --release -p terrane-lab
	$(TARGET)/release/terrane-lab compare

# Needs Python with venv; what is compared is installed into an environment of its own, as pinned.
DIFFERENTIAL := $(TARGET)/differential
QUESTIONS ?= 3

differential: $(DIFFERENTIAL)/python/installed
	$(CARGO) build --release -p terrane-cli
	$(DIFFERENTIAL)/python/bin/python differential/run.py --program $(TARGET)/release/terrane --work $(DIFFERENTIAL)/work --questions $(QUESTIONS)

bench-sql: optimised-package
	PYTHONPATH=$(DIFFERENTIAL)/package $(DIFFERENTIAL)/python/bin/python differential/speed.py --program $(TARGET)/release/terrane
	PYTHONPATH=$(DIFFERENTIAL)/package $(DIFFERENTIAL)/python/bin/python differential/writing.py

bench-python: optimised-package
	PYTHONPATH=$(DIFFERENTIAL)/package $(DIFFERENTIAL)/python/bin/python differential/python_speed.py --wheels $(TARGET)/wheels

# The package is that of test-python, with an optimised extension.
.PHONY: optimised-package
optimised-package: $(DIFFERENTIAL)/python/installed
	$(CARGO) build --release -p terrane-cli -p terrane-python
	mkdir -p $(DIFFERENTIAL)/package/terrane
	cp crates/python/python/terrane/* $(DIFFERENTIAL)/package/terrane/
	cp $(TARGET)/release/lib_terrane.so $(DIFFERENTIAL)/package/terrane/_terrane.abi3.so

$(DIFFERENTIAL)/python/installed: differential/requirements.txt
	python3 -m venv $(DIFFERENTIAL)/python
	$(DIFFERENTIAL)/python/bin/python -m pip install --quiet --requirement differential/requirements.txt
	touch $@
