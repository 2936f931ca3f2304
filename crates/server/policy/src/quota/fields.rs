//! The fields `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10, and
//! `Retry-After`.
//!
//! Both are lists of strings with parameters (RFC 9651). The string is the name of the quota. In
//! the policy, `q` is what may be asked for at once, `w` the seconds in which that is refilled, and
//! `qu` the unit, if it is not requests. In the level, `r` is the remainder, and `t` the seconds
//! until it is as large as `q` again. No partition key is sent: it would name clients to each
//! other.

use std::fmt::Write;
use std::time::Duration;

use super::{Quota, table::Table};

/// Appends both fields, for these quotas and keys.
pub fn append(out: &mut Vec<u8>, quotas: &[(&Quota, u64)], now_ns: u64) {
    let (mut policies, mut levels) = (String::new(), String::new());
    for (quota, key) in quotas {
        let (config, state) = (&quota.config, &quota.state);
        let name = &config.name;
        if let (Some(rate), Some(table)) = (&config.requests, &state.requests) {
            let at_once = config.requests_at_once(rate);
            item(&mut policies, name, &format!("q={at_once};w={}", rate.seconds_of(at_once)));
            item(&mut levels, name, &level(table, *key, now_ns));
        }
        if let Some(max) = config.concurrency {
            let name = format!("{name} concurrency");
            item(&mut policies, &name, &format!("q={max};qu=\"concurrent-requests\""));
            let left = max.saturating_sub(state.concurrency.of(*key));
            item(&mut levels, &name, &format!("r={left}"));
        }
        if let (Some(rate), Some(table)) = (&config.bytes, &state.bytes) {
            let at_once = config.bytes_at_once(rate);
            let window = rate.seconds_of(at_once);
            let name = format!("{name} bytes");
            item(&mut policies, &name, &format!("q={at_once};w={window};qu=\"content-bytes\""));
            item(&mut levels, &name, &level(table, *key, now_ns));
        }
    }
    if !policies.is_empty() {
        let lines = format!("RateLimit-Policy: {policies}\r\nRateLimit: {levels}\r\n");
        out.extend_from_slice(lines.as_bytes());
    }
}

fn item(list: &mut String, name: &str, parameters: &str) {
    let separator = if list.is_empty() { "" } else { ", " };
    // A name has neither quotes nor backslashes: the configuration refuses them.
    let _ = write!(list, "{separator}\"{name}\";{parameters}");
}

fn level(table: &Table, key: u64, now_ns: u64) -> String {
    let level = table.level(key, now_ns);
    format!("r={};t={}", level.remaining, seconds(level.full_in))
}

/// Whole seconds, rounded up.
pub fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
