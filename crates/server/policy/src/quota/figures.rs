//! The figures of quotas for `/metrics` and `/quotas`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use metrics::{Described, Shape, describe, encode_value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use runtime::time;
use serde_json::{Value, json};

use super::fields::seconds;
use super::table::Table;
use super::{Quota, Quotas};

/// Cores that add to a [`Spread`] without disturbing each other.
pub(super) const PARTS: usize = 16;

/// A counter that many cores add to. Each core has a cache line.
#[derive(Debug, Default)]
pub(super) struct Spread([Part; PARTS]);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Part(AtomicU64);

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PART: usize = THREADS.fetch_add(1, Relaxed) % PARTS;
}

/// The part of this core.
#[inline]
pub(super) fn own_part() -> usize {
    PART.with(|part| *part)
}

impl Spread {
    #[inline]
    pub(super) fn add(&self, count: u64) {
        self.0[own_part()].0.fetch_add(count, Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.iter().map(|Part(count)| count.load(Relaxed)).sum()
    }
}

/// A figure: its documentation, its key in JSON, and how it is read.
struct Figure {
    described: Described,
    key: &'static str,
    read: fn(&Quota) -> u64,
}

macro_rules! figures {
    ($($key:ident = $name:literal, $shape:ident, $help:literal, $read:expr;)*) => {
        const FIGURES: &[Figure] = &[$(Figure {
            described: Described { name: $name, help: $help, shape: Shape::$shape.by(&["quota"]) },
            key: stringify!($key),
            read: $read,
        },)*];

        /// All figures, in the order of the documentation.
        pub const DESCRIBED: &[Described] = &[
            $(Described { name: $name, help: $help, shape: Shape::$shape.by(&["quota"]) },)*
        ];
    };
}

figures! {
    allowed = "quota_allowed", Counter,
        "Requests that a quota let pass at once",
        |quota| quota.state.allowed.get();
    delayed = "quota_delayed", Counter,
        "Requests that a quota delayed, and responses that it paced",
        |quota| quota.state.delayed.get();
    refused = "quota_refused", Counter,
        "Requests that a quota refused",
        |quota| quota.state.refused.get();
    connections_refused = "quota_connections_refused", Counter,
        "Connections that a quota closed at once",
        |quota| quota.state.connections_refused.get();
    waiting = "quota_waiting", Gauge,
        "Requests that a quota delays now",
        |quota| quota.state.waiting.all();
    connections = "quota_connections", Gauge,
        "Open connections that a quota counts",
        |quota| quota.state.connections.all();
    in_progress = "quota_in_progress", Gauge,
        "Requests in progress that a quota counts",
        |quota| quota.state.concurrency.all();
    paced = "quota_paced_bytes", Counter,
        "Bytes of content that a quota paced",
        |quota| quota.state.paced_bytes.get();
    table = "quota_table_bytes", Gauge,
        "Size of the tables of a quota",
        |quota| sum(quota, Table::bytes);
    occupied = "quota_table_occupied", Gauge,
        "Clients whose buckets are not full, within the last minute",
        |quota| sum(quota, Table::occupied);
    evicted = "quota_table_evicted", Counter,
        "Buckets that were not full and had to make room for other clients",
        |quota| sum(quota, Table::evicted);
}

fn sum(quota: &Quota, of: fn(&Table) -> u64) -> u64 {
    [&quota.state.requests, &quota.state.bytes].into_iter().flatten().map(of).sum()
}

/// All quotas as OpenMetrics.
#[derive(Debug)]
pub struct QuotaFigures(pub Option<Arc<Quotas>>);

impl Collector for QuotaFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for figure in FIGURES {
            let mut family = describe(&mut encoder, &figure.described)?;
            for quota in self.0.iter().flat_map(|quotas| quotas.all()) {
                let labels = [("quota", quota.config.name.as_str())];
                let value = (figure.read)(quota);
                encode_value(&mut family.encode_family(&labels)?, &figure.described, value)?;
            }
        }
        Ok(())
    }
}

/// All quotas as JSON, each with the clients that exceed it most.
pub fn json(quotas: Option<&Quotas>) -> Value {
    let all: Vec<Value> =
        quotas.into_iter().flat_map(|quotas| quotas.all()).map(of_quota).collect();
    json!({ "quotas": all })
}

fn of_quota(quota: &Quota) -> Value {
    let mut of = serde_json::Map::new();
    of.insert("name".to_owned(), json!(quota.config.name));
    of.insert("by".to_owned(), json!(quota.config.by.to_string()));
    of.extend(FIGURES.iter().map(|figure| (figure.key.to_owned(), json!((figure.read)(quota)))));
    let (state, now_ns) = (&quota.state, time::now().as_ns());
    let busiest: Vec<Value> = state
        .busiest
        .all()
        .into_iter()
        .map(|named| {
            let level = |table: &Option<Table>| {
                let level = table.as_ref()?.level(named.key, now_ns);
                Some(json!({ "remaining": level.remaining, "full_in": seconds(level.full_in) }))
            };
            json!({
                "client": named.name,
                "over": named.over,
                "requests": level(&state.requests),
                "bytes": level(&state.bytes),
                "connections": state.connections.of(named.key),
                "in_progress": state.concurrency.of(named.key),
            })
        })
        .collect();
    of.insert("busiest".to_owned(), json!(busiest));
    Value::Object(of)
}

/// One quota that applies to a request, and its state.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Its name.
    pub quota: String,
    /// Requests that may come now.
    pub remaining: Option<u64>,
    /// How long the request would wait, in milliseconds.
    pub wait_ms: u64,
    /// It would be refused.
    pub refused: bool,
}

impl Quota {
    /// What it would do with a request now; nothing is taken.
    pub fn judged(&self, key: u64) -> Judged {
        let now_ns = time::now().as_ns();
        let in_progress = self.state.concurrency.of(key);
        let is_full = self.config.concurrency.is_some_and(|max| in_progress >= max);
        let judged = self.judge(key, now_ns);
        let table = self.state.requests.as_ref();
        Judged {
            quota: self.config.name.clone(),
            remaining: table.map(|table| table.level(key, now_ns).remaining),
            wait_ms: judged.unwrap_or_default().as_millis() as u64,
            refused: is_full || judged.is_err(),
        }
    }
}
