# How to use this checkout: `make` lists the targets. A target checks that the programs it needs are installed, builds
# what is missing once, and starts within seconds from then on. Steps longer than a line are scripts in deploy/dev.
#
# CARGO_TARGET_DIR        where cargo builds (default: target)
# PILEUS_FROM_DEBIAN=1    builds the wasm32-wasip2 target from Debian's packages, for machines that can't reach rustup
# PILEUS_KUBE_BIN         folders with kube-apiserver, etcd, etcdutl and kubectl, instead of building them
# PILEUS_REGISTRY_BIN     folders with registry, oras and cosign, instead of building them
# RUST_TEST_THREADS       how many tests of a binary run at a time (default: 8)

GUESTS := -p simulated-provider -p hetzner-provider -p azure-provider -p hostile-provider -p unruly-provider
# One command builds all of them: with one set of features, each dependency is compiled once.
PROGRAMS := -p pileus -p simulated-cloud -p pileus-dev
TARGET := $(or $(CARGO_TARGET_DIR),target)
PROGRESS := deploy/dev/progress
# More than there are cores, as most tests wait for other processes.
export RUST_TEST_THREADS ?= 8

.DEFAULT_GOAL := help
.PHONY: help demo test test-full lint bench mutants audit first-time guests language-guests stack registry demo-registry

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Start with `make demo` (KEEP=1 leaves it running). Before a change is proposed: `make lint test`.'

demo: first-time stack guests demo-registry ## Show Pileus at work, with a real API server and a simulated cloud (2 minutes once built)
	@$(PROGRESS) 'Pileus, the simulated cloud and the demo' 'about 6 minutes on two cores, then kept' \
		cargo build --locked $(PROGRAMS)
	@$(TARGET)/debug/demo $(if $(KEEP),--keep)

test: first-time language-guests stack registry guests ## Run all tests (15 minutes once built)
	@$(PROGRESS) 'all tests' 'about 15 minutes on two cores, then kept' cargo test --locked --workspace --no-run
	@deploy/dev/test

test-full: test ## Run all tests, then fuzz the gate, load a slow cloud and play an hour of random history
	deploy/dev/fuzz 60
	PILEUS_RANDOM_SEED=$${PILEUS_RANDOM_SEED:-$$(date +%s)} PILEUS_RANDOM_SECONDS=$${PILEUS_RANDOM_SECONDS:-3600} \
		cargo test --locked --workspace --test cluster -- random --nocapture
	cargo test --locked --workspace --test gate -- --ignored --nocapture

lint: ## Check format, lints, licenses, architecture, words, sizes and links
	@deploy/dev/require cargo cc
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy --locked -p pileus-loader --features keyless --all-targets -- -D warnings
	deploy/dev/deny check --hide-inclusion-graph bans licenses sources
	deploy/dev/check

bench: stack registry guests ## Measure against the targets of the design (a release build, then an hour)
	@deploy/dev/kubernetes/build --with kwok >/dev/null
	cargo build --locked --release --workspace --bin simulated-cloud --bin azure-simulator
	cargo bench --locked --workspace --bench targets

# The seed makes random tests the same each time, so that a figure can be repeated. Shrinking would only cost time.
mutants: ## Break the controllers' decisions in 1,200 ways and check that tests notice (takes hours)
	@deploy/dev/require cargo cc cargo-mutants
	PROPTEST_RNG_SEED=1 PROPTEST_MAX_SHRINK_ITERS=0 PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 \
		cargo mutants --output $(TARGET)

audit: ## Check dependencies against the RustSec advisories (needs github.com)
	@deploy/dev/require cargo cc
	deploy/dev/deny check advisories

# The first line that a first run prints.
first-time:
	@[ -d $(TARGET)/debug/deps ] || echo 'First run: builds the API server, the wasm target, the components and Pileus,' \
		'about 15 minutes on two cores. Later runs start within seconds.'

# The components that tests, demo and bench load.
guests:
	@deploy/dev/require cargo cc
	@$(PROGRESS) 'the wasm32-wasip2 target' 'about 2 minutes from Debian, seconds from rustup; then kept' \
		deploy/dev/wasm-target
	@$(PROGRESS) 'the components' 'about a minute on two cores, then kept' \
		cargo build --locked --target wasm32-wasip2 --profile guest $(GUESTS)

# The providers in Python and JavaScript. Only tests of the host load them, so that demo and bench need neither.
language-guests:
	@deploy/dev/require python3-venv node npm
	@$(PROGRESS) 'the providers in Python and JavaScript' 'about 2 minutes, then kept' \
		deploy/dev/language-guests $(TARGET)/languages

# etcd, etcdutl, kube-apiserver and kubectl.
stack:
	@deploy/dev/require setpriv
	@deploy/dev/kubernetes/build >/dev/null

# The demo needs the registry alone.
demo-registry:
	@deploy/dev/require setpriv unshare
	@deploy/dev/registry/build registry >/dev/null

# A registry, oras and cosign, for tests and the bench.
registry:
	@deploy/dev/require setpriv unshare
	@deploy/dev/registry/build >/dev/null
