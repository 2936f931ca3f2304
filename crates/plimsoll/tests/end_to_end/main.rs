//! The command from its outside: the built binary, real servers, real files.
//!
//! One binary of tests, so that one lock serves all of them: a load on two cores is measured alone.
//! Each test has a directory and ports of its own, ends what it started, and waits for nothing
//! longer than it says.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod asking;
mod bad_input;
mod boost;
mod demo;
mod disk;
mod lab;
mod peers;
mod proxy_header;
mod settings;
mod smuggling;
mod support;
mod tls;
mod tools;
mod top;
mod turns;
mod upstreams;
mod verbs;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");
