//! The proxy's own code, unmodified, on the twin: simulated clients, a simulated origin, and a
//! network that delays, splits, resets and half-closes, all of it drawn from a seed.
//!
//! A failure prints its seed; the same seed makes it happen again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod acme;
mod bodies;
mod caching_rules;
mod changes;
mod classifying;
mod client_proxy_header;
mod cluster;
mod cluster_losses;
mod cluster_members;
mod coding_forms;
mod coding_passed;
mod collapsing;
mod conditions;
mod datagrams;
mod digests;
mod disk;
mod dns;
mod error_pages;
mod explaining;
mod faults;
mod files;
mod guards;
mod histories;
mod hostile;
mod http2_client;
mod http3_client;
mod keys;
mod large_bodies;
mod leaving;
mod limits;
mod origin;
mod overlaps;
mod parents;
mod partial;
mod proxy_header;
mod purging;
mod quotas;
mod ranges;
mod refusals;
mod request_text;
mod routes;
mod siblings;
mod sizing;
mod stale;
mod stopping;
mod storm;
mod strangers;
mod stress;
mod tls;
mod tls_client;
mod tls_upstream;
mod tunnels;
mod upstreams;
mod variants;
mod world;

#[path = "../common/certificates.rs"]
mod certificates;
#[path = "../common/mod.rs"]
mod common;

/// A fifth of the seeds of an expensive scenario, or all of them if [`ALL_SEEDS`] is set, as by
/// `make nightly` and for planted bugs.
fn some(seeds: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let count = seeds.end - seeds.start;
    let count = if std::env::var_os(ALL_SEEDS).is_some() { count } else { count.div_ceil(5) };
    seeds.start..seeds.start + count
}

const ALL_SEEDS: &str = "PLIMSOLL_ALL_SEEDS";
