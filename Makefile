# What a user types: `make demo` and `make test`. Everything else is cargo's.

# A cargo that is new enough may live in ~/.cargo/bin, and Debian's own, too old, before it in PATH.
CARGO_DIR := $(shell ./setup.sh --cargo-dir 2>/dev/null)
ifneq ($(CARGO_DIR),)
export PATH := $(CARGO_DIR):$(PATH)
endif

.PHONY: help demo test bench studies lint setup clean

help:
	@echo "make demo    install what is missing, build, draw a load line (a minute after the build)"
	@echo "make test    format, lints, tidy, two minutes of simulation, every test"
	@echo "make bench   what a request costs: the floor, the peers, our own"
	@echo "make studies every experiment of the papers, on one page (half an hour)"
	@echo "make lint    format, lints and tidy alone"
	@echo "make setup   install what the tests need"

demo:
	@./setup.sh demo
	cargo build --release --locked -p plimsoll
	@target/release/plimsoll demo

# One pass lints and builds; then the tests run, and two minutes of fresh seeds for the disk store.
# A failure there prints its seed and the command that runs it again. The closing line counts all
# tests.
test:
	@./setup.sh test
	cargo fmt --all -- --check
	cargo xtask tidy
	cargo xtask test

lint:
	@./setup.sh test
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo xtask tidy

bench:
	@./setup.sh bench
	cargo build --release --locked -p plimsoll -p bench
	cargo run --release --locked -p readiness --example wait_cost
	cargo run --release --locked -p bench

studies:
	@./setup.sh bench
	cargo build --release --locked -p plimsoll -p studies
	@target/release/plimsoll study all --out target/studies

setup:
	@./setup.sh test

clean:
	cargo clean
