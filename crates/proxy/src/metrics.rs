//! What the server counts, each counter declared once: name, help, and where it is kept.
//!
//! A core has its own [`Counters`] and is their only writer, so that counting costs one load and
//! one store on a line that no other core touches; readers add the cores up. The text that
//! `/metrics` serves and the reference in `docs/` are both made from [`COUNTERS`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Whether a counter only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only grows; `_total` is added to its name on the wire.
    Counter,
    /// A level.
    Gauge,
}

/// One counter as it is documented.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Name on `/metrics`, without the prefix `plimsoll_` and without `_total`.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Counter or gauge.
    pub shape: Shape,
}

macro_rules! counters {
    ($($field:ident: $shape:ident, $help:literal;)*) => {
        /// The counters of one core.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct Counters { $(#[doc = $help] pub(crate) $field: Count,)* }

        /// Every counter, in the order in which `/metrics` shows them.
        pub(crate) const COUNTERS: &[Described] = &[
            $(Described { name: stringify!($field), help: $help, shape: Shape::$shape },)*
        ];

        impl Counters {
            /// The values, in the order of [`COUNTERS`].
            pub(crate) fn values(&self) -> Vec<u64> {
                vec![$(self.$field.get(),)*]
            }
        }
    };
}

counters! {
    requests: Counter, "Requests answered, whatever the status";
    hits: Counter, "Requests answered from the store without asking the origin";
    misses: Counter, "Requests that a fetch from the origin answered and that may be stored";
    revalidated: Counter, "Requests answered from the store after the origin said 304";
    collapsed: Counter, "Requests that waited for a fetch that was already under way";
    passed: Counter, "Requests passed through: method, request or response may not be stored";
    not_modified: Counter, "304 responses to a client's own validators";
    client_errors: Counter, "Requests refused as malformed or too large";
    upstream_errors: Counter, "Requests that failed because of the upstream (502, 504)";
    bytes_received: Counter, "Bytes read from clients";
    bytes_sent: Counter, "Bytes written to clients";
    upstream_bytes_received: Counter, "Bytes read from upstreams";
    upstream_bytes_sent: Counter, "Bytes written to upstreams";
    connections_accepted: Counter, "Client connections accepted";
    connections_refused: Counter, "Client connections closed at once: no slot or no descriptor";
    connections_open: Gauge, "Client connections open now";
    upstream_connects: Counter, "Connections opened to upstreams";
    upstream_reuses: Counter, "Requests sent on a pooled upstream connection";
    upstream_retries: Counter, "Requests repeated because a pooled connection had gone";
    upstream_idle: Gauge, "Idle upstream connections in the pool now";
    tunnels: Counter, "Tunnels opened: CONNECT, and upgraded connections";
    tunnels_open: Gauge, "Tunnels open now";
    tunnel_bytes_sent: Counter, "Bytes written to clients through tunnels";
    tunnel_bytes_received: Counter, "Bytes read from clients and written on through tunnels";
    timeouts: Counter, "Client connections cut by a time-out other than idle keep-alive";
    proxy_headers_refused: Counter,
        "Client connections closed for want of a PROXY header from a network that may send one";
    tls_handshakes: Counter, "TLS handshakes with clients that were completed";
    tls_resumptions: Counter, "Of these, those that took up an earlier session";
    tls_failures_plain_http: Counter, "Clients told that they spoke HTTP in the clear to a TLS port";
    tls_failures_slow: Counter, "TLS handshakes with clients cut by the time-out";
    tls_failures_closed: Counter, "TLS handshakes that clients broke off";
    tls_failures_protocol: Counter,
        "TLS handshakes that failed: no version, cipher, certificate or protocol in common, or no TLS";
    tls_failures_client_certificate: Counter,
        "TLS handshakes that failed because the client's certificate is missing or not accepted";
    tls_failures_rejected: Counter,
        "TLS handshakes that clients ended because they do not accept our certificate";
    log_lines: Counter, "Access log lines made";
    waits: Counter, "Calls of the event notification's wait";
    events: Counter, "Events that those waits delivered";
    empty_waits: Counter, "Waits that delivered nothing";
}

/// A number with one writer.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds `n`. Only the core that owns the counter calls it.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Subtracts `n`; gauges only.
    #[inline]
    pub(crate) fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// Sets the value.
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// The value now.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The counters of all cores and of what they share, as the metrics text wants them.
#[derive(Debug)]
pub(crate) struct AllCores {
    cores: Vec<Arc<Counters>>,
    shared: Arc<dyn SharedFigures>,
}

/// Figures that do not belong to one core.
pub(crate) trait SharedFigures: Send + Sync + std::fmt::Debug {
    /// Name, help, shape and value of each.
    fn figures(&self) -> Vec<(Described, u64)>;

    /// The names of the rules and how many requests each has refused.
    fn refusals(&self) -> Vec<(&'static str, u64)>;

    /// What [`FORECASTS`] tell, by size.
    fn forecasts(&self) -> [Vec<(&'static str, f64)>; 2];
}

/// Of [`SharedFigures::forecasts`]; their label is `memory`.
pub(crate) const FORECASTS: [Described; 2] = [
    Described {
        name: "what_if_hit_ratio",
        help: "Hits of all look-ups that so many times the memory would give (label memory)",
        shape: Shape::Gauge,
    },
    Described {
        name: "what_if_byte_hit_ratio",
        help: "Bytes of hits that so many times the memory would give (label memory)",
        shape: Shape::Gauge,
    },
];

/// Of [`SharedFigures::refusals`]; its label is `rule`.
pub(crate) const REFUSALS: Described = Described {
    name: "refusals",
    help: "Requests refused, by the rule that refused them (label rule)",
    shape: Shape::Counter,
};

impl AllCores {
    pub(crate) fn new(cores: Vec<Arc<Counters>>, shared: Arc<dyn SharedFigures>) -> AllCores {
        AllCores { cores, shared }
    }

    /// The sum over cores, in the order of [`COUNTERS`], then what is shared.
    fn sums(&self) -> Vec<(Described, u64)> {
        let mut sums = vec![0u64; COUNTERS.len()];
        for core in &self.cores {
            for (sum, value) in sums.iter_mut().zip(core.values()) {
                *sum = sum.wrapping_add(value);
            }
        }
        let mut all: Vec<_> = COUNTERS.iter().copied().zip(sums).collect();
        all.extend(self.shared.figures());
        all
    }

    /// The OpenMetrics text, with what another collector has.
    pub(crate) fn text(self, also: impl Collector) -> String {
        let mut registry = prometheus_client::registry::Registry::with_prefix("plimsoll");
        registry.register_collector(Box::new(self));
        registry.register_collector(Box::new(also));
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &registry) {
            Ok(()) => text,
            Err(error) => format!("# the metrics could not be written: {error}\n"),
        }
    }
}

impl Collector for AllCores {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (described, value) in self.sums() {
            match described.shape {
                Shape::Counter => encode_one(&mut encoder, &described, &ConstCounter::new(value))?,
                Shape::Gauge => {
                    let value = i64::try_from(value).unwrap_or(i64::MAX);
                    encode_one(&mut encoder, &described, &ConstGauge::new(value))?;
                }
            }
        }
        let Described { name, help, .. } = REFUSALS;
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (rule, count) in self.shared.refusals() {
            ConstCounter::new(count).encode(family.encode_family(&[("rule", rule)])?)?;
        }
        for (Described { name, help, .. }, ratios) in FORECASTS.iter().zip(self.shared.forecasts())
        {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (memory, ratio) in ratios {
                ConstGauge::new(ratio).encode(family.encode_family(&[("memory", memory)])?)?;
            }
        }
        Ok(())
    }
}

fn encode_one(
    encoder: &mut DescriptorEncoder<'_>,
    described: &Described,
    metric: &impl EncodeMetric,
) -> Result<(), std::fmt::Error> {
    let Described { name, help, .. } = described;
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::figures::UpstreamFigures;

    #[derive(Debug)]
    struct Nothing;
    impl SharedFigures for Nothing {
        fn figures(&self) -> Vec<(Described, u64)> {
            Vec::new()
        }

        fn refusals(&self) -> Vec<(&'static str, u64)> {
            vec![("a-rule", 7)]
        }

        fn forecasts(&self) -> [Vec<(&'static str, f64)>; 2] {
            [vec![("0.5", 0.25)], vec![("0.5", f64::NAN)]]
        }
    }

    #[test]
    fn cores_are_added_up_and_every_counter_is_in_the_text() {
        let (a, b) = (Arc::new(Counters::default()), Arc::new(Counters::default()));
        a.requests.add(2);
        b.requests.add(3);
        let text = AllCores::new(vec![a, b], Arc::new(Nothing)).text(UpstreamFigures(Arc::new([])));
        assert!(text.contains("plimsoll_requests_total 5\n"), "{text}");
        assert!(text.contains("plimsoll_refusals_total{rule=\"a-rule\"} 7\n"), "{text}");
        let forecast = "plimsoll_what_if_hit_ratio{memory=\"0.5\"} 0.25\n";
        assert!(text.contains(forecast) && text.contains("{memory=\"0.5\"} NaN\n"), "{text}");
        for counter in COUNTERS {
            assert!(text.contains(&format!("plimsoll_{}", counter.name)), "{}", counter.name);
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
