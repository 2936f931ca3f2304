//! Tests of the built binary from outside, with real servers and real files.
//!
//! All tests are in one binary, so that one lock keeps measured loads apart on two cores. Each test
//! has its own directory and ports, ends what it started, and waits with a timeout.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod acme;
mod admin_calls;
mod bad_input;
mod boost;
mod clickhouse;
mod cluster;
mod collector;
mod compression;
mod conditions;
mod dashboard;
mod demo;
mod digests;
mod disk;
mod documentation;
mod fleet;
mod forward_rules;
mod guards;
mod hierarchy;
mod http2;
mod http2_upstreams;
mod http3;
mod import;
mod init;
mod keep;
mod lab;
mod load;
mod packages;
mod peers;
mod prometheus;
mod proxy_header;
mod quotas;
mod settings;
mod smuggling;
mod static_files;
mod support;
mod switchback;
mod tls;
mod tools;
mod top;
mod tutorials;
mod upstreams;
mod verbs;

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");
