# The commands a user types are `make demo`, `make build` and `make test`. Cargo does the rest.

# Debian's cargo is too old. It may come before the one in ~/.cargo/bin in PATH.
CARGO_DIR := $(shell ./setup.sh --cargo-dir 2>/dev/null)
ifneq ($(CARGO_DIR),)
export PATH := $(CARGO_DIR):$(PATH)
endif

.PHONY: help demo build test nightly bench studies lint setup clean

help:
	@echo "make demo    install what is missing, build what the demo needs, draw a load line"
	@echo "make build   install what is missing, build the whole program: target/release/plimsoll"
	@echo "make test    install what is missing, check format and lints, run every test"
	@echo "make nightly run the tests that take too long for make test (an hour)"
	@echo "make bench   measure what a request costs, beside other servers; ten minutes of trouble"
	@echo "make studies run every experiment of the papers, on one page (half an hour)"
	@echo "make lint    check format, lints, style and dependencies only"
	@echo "make setup   install what the tests need"

demo:
	@./setup.sh demo
	cargo build --release --locked -p plimsoll --no-default-features --features measure
	@target/release/plimsoll demo
	@echo "This build has only what the demo needs. The whole program: make build"

build:
	@./setup.sh build
	cargo build --release --locked -p plimsoll -p interpose -p studies

# One pass lints and builds. Then every test runs, and a simulation of the disk store tries fresh
# seeds for one minute. A failure there prints its seed and the command to repeat it. The last
# line counts all tests.
test:
	@./setup.sh test
	cargo fmt --all -- --check
	cargo xtask tidy
	cargo xtask site
	cargo xtask test

# What takes too long for each run. Run it before a release.
nightly:
	@./setup.sh test
	rustup toolchain install nightly --profile minimal --component miri --component rust-src
	cargo xtask nightly

lint:
	@./setup.sh test
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo xtask tidy
	cargo deny --version >/dev/null 2>&1 || cargo install cargo-deny --locked
	cargo deny --offline check licenses bans sources

bench:
	@./setup.sh bench
	cargo build --release --locked -p plimsoll -p bench
	cargo run --release --locked -p readiness --example wait_cost
	cargo run --release --locked -p bench
	cargo run --release --locked -p bench -- soak --hours 0.17

studies:
	@./setup.sh bench
	cargo build --release --locked -p plimsoll -p studies
	@target/release/plimsoll study all --out target/studies

setup:
	@./setup.sh test

clean:
	cargo clean
