# How to use this checkout. Each target says what it needs, fetches or builds that once, and starts in seconds after.
# What takes more than a line lives in deploy/dev. CARGO_TARGET_DIR is respected; PILEUS_FROM_DEBIAN=1 builds the
# wasm32-wasip2 target from Debian's packages where rustup's server is out of reach.

GUESTS := -p simulated-provider -p hostile-provider -p unruly-provider
# Built by one command, so that they share one set of features and dependencies are compiled once.
PROGRAMS := -p pileus -p simulated-cloud -p pileus-dev
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What takes most of the time of all tests is waiting for processes, and so there are more of them at a time than cores.
export RUST_TEST_THREADS ?= 6

.DEFAULT_GOAL := help
.PHONY: help demo test test-full lint bench mutants audit guests python-guest stack

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: stack guests ## Run Pileus with the simulated cloud against a real API server, here
	@[ -x $(TARGET)/debug/demo ] || echo 'Building Pileus, the simulated cloud and the demo, once: about 5 minutes on two cores.'
	cargo build --locked $(PROGRAMS)
	@$(TARGET)/debug/demo $(if $(KEEP),--keep)

test: python-guest stack guests ## Run all tests
	deploy/dev/check speed scenarios attacks
	cargo test --locked --workspace

test-full: test ## Also fuzz the gate, load a slow cloud and play an hour of random history; PILEUS_RANDOM_SEED and _SECONDS choose one
	deploy/dev/fuzz 60
	PILEUS_RANDOM_SEED=$${PILEUS_RANDOM_SEED:-$$(date +%s)} PILEUS_RANDOM_SECONDS=$${PILEUS_RANDOM_SECONDS:-3600} \
		cargo test --locked --workspace --test cluster -- random --nocapture
	cargo test --locked --workspace --test gate -- --ignored --nocapture

lint: ## Check format, lints, licences, sources and architecture
	@deploy/dev/require cargo cc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	deploy/dev/deny check --hide-inclusion-graph bans licenses sources
	deploy/dev/check

bench: stack guests ## Measure against the design's targets (a release build, then about half an hour)
	@deploy/dev/kubernetes/build --with kwok >/dev/null
	cargo build --locked --release --workspace --bin simulated-cloud
	cargo bench --locked --workspace --bench targets

# The seed makes random tests the same each time, so that a figure can be repeated; nobody reads what they shrink to.
mutants: ## Break what the controllers decide, in 1,200 ways, and see tests notice (takes hours)
	@deploy/dev/require cargo cc cargo-mutants
	PROPTEST_RNG_SEED=1 PROPTEST_MAX_SHRINK_ITERS=0 PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 \
		cargo mutants --output $(TARGET)

audit: ## Check dependencies against the RustSec advisories (needs github.com)
	@deploy/dev/require cargo cc
	deploy/dev/deny check advisories

# Components that tests, demo and bench load.
guests:
	@deploy/dev/require cargo cc
	@deploy/dev/wasm-target
	@[ -e $(TARGET)/wasm32-wasip2/guest/simulated_provider.wasm ] || \
		echo 'Building the components, once: about a minute on two cores.'
	cargo build --locked --target wasm32-wasip2 --profile guest $(GUESTS)

# The provider in Python, which the host's tests alone load, so that demo and bench need no Python.
python-guest:
	@deploy/dev/require python3-venv
	@deploy/dev/python-guest $(TARGET)/python/simulated.wasm

# etcd, kube-apiserver and kubectl.
stack:
	@deploy/dev/require setpriv
	@deploy/dev/kubernetes/build >/dev/null
