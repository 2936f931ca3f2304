//! What the server counts. Each counter is declared once: name, labels, help, and storage.
//! A name that ends in `_seconds`, `_bytes` or `_ratio` has that unit.
//!
//! A core has its own [`Counters`] and is their only writer, so that counting costs one load and
//! one store on a cache line that no other core touches; readers add up the cores. The text of
//! `/metrics`, `plimsoll metrics --list` and the reference in `docs/` are generated from the same
//! lists.
#![forbid(unsafe_code)]

mod latency;
pub mod rules;

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use outcome::{COUNTED, Refusal};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

pub use self::latency::{Histogram, Latency};

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A value that only grows; `_total` is appended to its name on the wire.
    Counter,
    /// A level.
    Gauge,
    /// Counters with these labels.
    CounterBy(&'static [&'static str]),
    /// Levels with these labels.
    GaugeBy(&'static [&'static str]),
    /// Histograms with these labels.
    HistogramBy(&'static [&'static str]),
}

impl Shape {
    /// Its type in OpenMetrics.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Counter | Shape::CounterBy(_) => "counter",
            Shape::Gauge | Shape::GaugeBy(_) => "gauge",
            Shape::HistogramBy(_) => "histogram",
        }
    }

    /// The same kind with these labels.
    pub const fn by(self, labels: &'static [&'static str]) -> Shape {
        match self {
            Shape::Counter | Shape::CounterBy(_) => Shape::CounterBy(labels),
            Shape::Gauge | Shape::GaugeBy(_) => Shape::GaugeBy(labels),
            Shape::HistogramBy(_) => Shape::HistogramBy(labels),
        }
    }

    /// Its labels.
    pub fn labels(self) -> &'static [&'static str] {
        match self {
            Shape::Counter | Shape::Gauge => &[],
            Shape::CounterBy(labels) | Shape::GaugeBy(labels) | Shape::HistogramBy(labels) => {
                labels
            }
        }
    }
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

impl Described {
    /// A gauge.
    pub const fn gauge(name: &'static str, help: &'static str) -> Described {
        Described { name, help, shape: Shape::Gauge }
    }

    /// A counter.
    pub const fn counter(name: &'static str, help: &'static str) -> Described {
        Described { name, help, shape: Shape::Counter }
    }

    /// `seconds`, `bytes`, `ratio`, or nothing.
    pub fn unit(&self) -> &'static str {
        let named = ["seconds", "bytes", "ratio"].into_iter();
        let of_name = |unit: &&str| self.name.rsplit_once('_').is_some_and(|(_, end)| end == *unit);
        named.into_iter().find(of_name).unwrap_or_default()
    }

    /// Whether the system may not provide it; then it is absent from the text.
    pub fn depends_on_the_system(&self) -> bool {
        self.name == STALLED.name || OF_PROCESS.iter().any(|of| of.name == self.name)
    }

    /// Its name on the wire, without the suffixes of a histogram.
    pub fn full_name(&self) -> String {
        let total = if self.shape.name() == "counter" { "_total" } else { "" };
        format!("plimsoll_{}{total}", self.name)
    }

    /// The value on the wire: times are stored in nanoseconds, ratios in millionths.
    fn wire(&self, value: u64) -> f64 {
        let kept_in = match self.unit() {
            "seconds" => 1e9,
            "ratio" => 1e6,
            _ => 1.0,
        };
        value as f64 / kept_in
    }
}

macro_rules! counters {
    ($($field:ident $(as $name:literal)?: $shape:ident, $help:literal;)*) => {
        /// The counters of one core.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Counters {
            $(#[doc = $help] pub $field: Count,)*
            /// Durations of responses.
            pub latency: Latency,
            /// States of connections.
            pub states: States,
            /// Figures of this core alone.
            pub core: OfCore,
        }

        /// Every counter, in the order in which `/metrics` shows them.
        pub const COUNTERS: &[Described] = &[
            $(Described {
                name: counters!(@name $field $($name)?),
                help: $help,
                shape: Shape::$shape,
            },)*
        ];

        impl Counters {
            /// The values, in the order of [`COUNTERS`].
            pub fn values(&self) -> Vec<u64> {
                vec![$(self.$field.get(),)*]
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
}

counters! {
    requests: Counter, "Requests answered, whatever the status";
    hits: Counter, "Requests answered from the store without asking the origin";
    misses: Counter, "Requests that a fetch from the origin answered and that may be stored";
    revalidated: Counter, "Requests answered from the store after the origin said 304";
    collapsed: Counter, "Requests that waited for a fetch that was already in flight";
    passed: Counter, "Requests passed through: method, request or response may not be stored";
    from_files: Counter, "Requests answered with a file";
    not_modified: Counter, "304 responses to a client's own validators";
    bodies_repaired: Counter,
        "Stored bodies that broke off on the disk and were completed by the origin";
    fetches_continued: Counter,
        "Clients that fell behind the others of a fetch and got the rest by a range request";
    fetches_cut: Counter,
        "Clients that fell behind the others of a fetch and were broken off";
    client_errors: Counter, "Requests refused as malformed or too large";
    upstream_errors: Counter, "Requests that failed because of the upstream (502, 504)";
    bytes_received as "received_bytes": Counter, "Bytes read from clients";
    bytes_sent as "sent_bytes": Counter, "Bytes written to clients";
    upstream_bytes_received as "upstream_received_bytes": Counter, "Bytes read from upstreams";
    upstream_bytes_sent as "upstream_sent_bytes": Counter, "Bytes written to upstreams";
    spliced_bytes: Counter, "Bytes passed on from one socket to another without being copied";
    connections_accepted: Counter, "Client connections accepted";
    connections_refused: Counter, "Client connections that were not accepted: no descriptor, or no \
        place for one of HTTP/3";
    connections_denied: Counter, "Client connections that a rule ended before their first request; \
        the log names the rule";
    connections_open: Gauge, "Client connections open now";
    connections_busy: Gauge, "Client connections with a request that waits: for an upstream, or \
        for either body";
    connections_shed: Counter, "Client connections closed at once: overload, or memory pressure";
    connections_closed_for_room: Counter, "Silent client connections closed because few \
        places or no descriptor was left";
    held_bytes as "client_held_bytes": Gauge, "Bytes of responses that clients have not read yet";
    clears_ignored as "htcp_clears_ignored": Counter,
        "Purges of other caches (CLR) that came too often, and were ignored";
    upstream_connects: Counter, "Connections opened to upstreams";
    upstream_reuses: Counter, "Requests sent on a pooled upstream connection";
    upstream_retries: Counter, "Requests repeated because a pooled connection was closed";
    upstream_idle: Gauge, "Idle upstream connections in the pool now";
    cluster_passed: Counter, "Requests passed on to another member of the cluster";
    cluster_kept: Counter, "Responses that other members gave for our store: what is requested \
        often, or has become stale here";
    cluster_failed: Counter, "Requests that another member of the cluster did not answer";
    cluster_continued: Counter, "Responses of another member of the cluster that broke off and \
        were asked for elsewhere";
    cluster_purges_waiting: Counter, "Purges that a member of the cluster did not acknowledge at \
        once";
    cluster_changes_lost: Counter, "Changes by unsafe methods that did not reach a member of the \
        cluster";
    cluster_strangers: Counter, "Connections closed because they came from no member of the \
        cluster";
    tunnels: Counter, "Tunnels opened: CONNECT, and upgraded connections";
    tunnels_open: Gauge, "Tunnels open now";
    tunnel_bytes_sent: Counter, "Bytes written to clients through tunnels";
    tunnel_bytes_received: Counter, "Bytes read from clients and written on through tunnels";
    timeouts: Counter, "Client connections cut by a timeout other than idle keep-alive";
    proxy_headers_refused: Counter,
        "Client connections closed because a PROXY header from an allowed network was missing";
    tls_handshakes: Counter, "TLS handshakes with clients that were completed";
    tls_resumptions: Counter, "TLS handshakes with clients that resumed a session";
    tls_validations: Counter,
        "TLS handshakes by which a certification authority checked a name (TLS-ALPN-01)";
    tls_failures_plain_http: Counter,
        "Requests in plain HTTP to a TLS port, answered with an error";
    tls_failures_slow: Counter, "TLS handshakes with clients cut by the timeout";
    tls_failures_evicted: Counter,
        "TLS handshakes with clients cut because their network held the most at the limit";
    tls_failures_closed: Counter, "TLS handshakes that clients broke off";
    tls_failures_protocol: Counter,
        "TLS handshakes that failed: no version, cipher, certificate or protocol in common, or no \
         TLS";
    tls_failures_client_certificate: Counter,
        "TLS handshakes that failed because the client's certificate is missing or not accepted";
    tls_failures_rejected: Counter,
        "TLS handshakes that clients ended because they do not accept our certificate";
    upstream_tls_handshakes: Counter, "TLS handshakes with upstreams that were completed";
    upstream_tls_resumptions: Counter, "TLS handshakes with upstreams that resumed a session";
    upstream_tls_failures: Counter,
        "TLS handshakes with upstreams that failed, including certificates that were not accepted";
    log_lines: Counter, "Access log lines written";
    waits: Counter, "Calls of the event notification's wait";
    events: Counter, "Events that those waits delivered";
    empty_waits: Counter, "Waits that delivered nothing";
    turns: Counter, "Turns of the cores' loops";
    polls: Counter, "Times a task was run";
    wakes: Counter, "Wakes of a core by another thread";
    recv_calls: Counter, "System calls that read from a socket";
    send_calls: Counter, "System calls that write to a socket";
    allocations: Counter, "Blocks of memory that the cores have allocated; 0 if the allocator of \
        the program does not count";
    allocated_bytes: Counter, "Bytes that the cores have allocated, freed or not";
}

/// A number with one writer.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`. Only the core that owns the counter calls it.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Subtracts `n`; gauges only.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// Sets the value.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds one until the returned guard is dropped; gauges only.
    pub fn while_here(&self) -> Here<'_> {
        self.add(1);
        Here(self)
    }
}

/// See [`Count::while_here`].
#[derive(Debug)]
pub struct Here<'c>(&'c Count);

impl Drop for Here<'_> {
    fn drop(&mut self) {
        self.0.sub(1);
    }
}

/// Client connections in states that are counted directly; see [`CONNECTIONS`].
#[derive(Debug, Default)]
pub struct States {
    /// Before the first request.
    pub arriving: Count,
    /// Part of a head has arrived.
    pub reading: Count,
    /// Waiting for the client to read.
    pub sending: Count,
    /// Outside of an exchange, with bytes to send or a close to wait for.
    pub finishing: Count,
}

/// Connections by state, with the label `state`. Their sum is `connections_open`.
pub const CONNECTIONS: Described = Described {
    name: "connections",
    help: "Client connections by state: arriving (PROXY header, TLS handshake), idle, reading \
           (part of a head has arrived), waiting (for an upstream, for a body, for the client's \
           close), sending (the client reads more slowly than we could send), tunnel",
    shape: Shape::GaugeBy(&["state"]),
};

/// The values of [`CONNECTIONS`] from the counters of a core. They cost a hit nothing: the states
/// that are not counted follow from the others.
pub fn states(of: &Counters) -> [(&'static str, u64); 6] {
    let (states, tunnels) = (&of.states, of.tunnels_open.get());
    let (arriving, reading, sending) =
        (states.arriving.get(), states.reading.get(), states.sending.get());
    let active = of.connections_busy.get() + states.finishing.get();
    let idle = of.connections_open.get().saturating_sub(arriving + reading + active);
    let waiting = active.saturating_sub(sending + tunnels);
    [
        ("arriving", arriving),
        ("idle", idle),
        ("reading", reading),
        ("waiting", waiting),
        ("sending", sending),
        ("tunnel", tunnels),
    ]
}

/// The figures of one core, which are not added up: its position on its load line.
#[derive(Debug, Default)]
pub struct OfCore {
    /// Millionths of the last tick that the core was busy.
    pub busy_ppm: Count,
    /// How long ready events waited in the last tick.
    pub delay_ns: Count,
    /// Processor time that one more request costs.
    pub marginal_ns: Count,
    /// Millionths of the requests that are shed.
    pub shed_ppm: Count,
    /// Processor time that the core has used.
    pub cpu_ns: Count,
    /// How often the core has slept.
    pub sleeps: Count,
    /// When these figures were read, nanoseconds of the loop's clock; and the requests until then.
    pub read_ns: Count,
    /// See `read_ns`.
    pub requests: Count,
    /// Processor time in which the core was held, which is not in `cpu_ns`.
    pub held_ns: Count,
    /// Processor time that the core has used to catch up after holds.
    pub caught_up_ns: Count,
    /// The requests that it answered meanwhile.
    pub caught_up_requests: Count,
}

/// A figure of one core, and its field.
type OneOfCore = (Described, fn(&OfCore) -> &Count);

/// A metric of one core.
const fn of_core(name: &'static str, help: &'static str, shape: Shape) -> Described {
    Described { name, help, shape: shape.by(&["core"]) }
}

/// The figures of [`OfCore`], by the label `core`.
pub const OF_CORE: &[OneOfCore] = &[
    (
        of_core(
            "core_busy_ratio",
            "Share of the last tick in which the core's processor was busy",
            Shape::Gauge,
        ),
        |of| &of.busy_ppm,
    ),
    (
        of_core(
            "core_delay_seconds",
            "How long ready events waited in the last tick, if the core was busy throughout",
            Shape::Gauge,
        ),
        |of| &of.delay_ns,
    ),
    (
        of_core(
            "core_request_cpu_seconds",
            "Processor time that one more request costs: the slope of the core's load line",
            Shape::Gauge,
        ),
        |of| &of.marginal_ns,
    ),
    (
        of_core(
            "core_shed_ratio",
            "Share of the requests for an upstream that are answered with 503 because of overload",
            Shape::Gauge,
        ),
        |of| &of.shed_ppm,
    ),
    (of_core("core_cpu_seconds", "Processor time that the core has used", Shape::Counter), |of| {
        &of.cpu_ns
    }),
    (
        of_core(
            "core_sleeps",
            "Times that the core slept until an event (voluntary context switches)",
            Shape::Counter,
        ),
        |of| &of.sleeps,
    ),
    (
        of_core(
            "core_catching_up_cpu_seconds",
            "Processor time that the core has used to catch up after it stopped (limits.hold)",
            Shape::Counter,
        ),
        |of| &of.caught_up_ns,
    ),
    (
        of_core(
            "core_catching_up_requests",
            "Requests that were answered while the core caught up",
            Shape::Counter,
        ),
        |of| &of.caught_up_requests,
    ),
];

/// The metric of [`Latency`].
pub const LATENCY: Described = Described {
    name: "request_duration_seconds",
    help: "From the end of a request's head to the last byte of its response",
    shape: Shape::HistogramBy(&["status", "cache"]),
};

const fn of_process(name: &'static str, help: &'static str) -> Described {
    Described { name, help, shape: Shape::Gauge }
}

/// Figures of the process, from the system.
pub const OF_PROCESS: &[Described] = &[
    of_process("process_descriptors", "Descriptors that the process has open"),
    of_process("process_descriptors_max", "Descriptors that the process may have open"),
    of_process("process_resident_bytes", "Resident memory of the process"),
];

/// The time of memory stalls, with the label `tasks`.
pub const STALLED: Described = Described {
    name: "memory_stall_seconds",
    help: "Time in which some tasks, or all at once (full), waited for memory, in our control \
           group or on the machine (pressure stall information); absent if the kernel has none",
    shape: Shape::CounterBy(&["tasks"]),
};

/// How many requests each rule has refused, all cores together.
#[derive(Debug)]
pub struct RefusalCounts([AtomicU64; COUNTED.len()]);

impl Default for RefusalCounts {
    fn default() -> RefusalCounts {
        RefusalCounts([const { AtomicU64::new(0) }; COUNTED.len()])
    }
}

impl RefusalCounts {
    /// Counts a refusal.
    pub fn count(&self, refusal: Refusal) {
        self.0[refusal.place()].fetch_add(1, Relaxed);
    }

    /// The names of the rules, and how many requests each has refused.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        COUNTED.iter().copied().zip(self.0.iter().map(|count| count.load(Relaxed))).collect()
    }
}

static RATIO: LazyLock<Unit> = LazyLock::new(|| Unit::Other("ratio".to_owned()));

/// Begins a metric family: its name, unit, type and help.
pub fn describe<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    described: &'e Described,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    let kind = match described.shape.name() {
        "counter" => MetricType::Counter,
        "gauge" => MetricType::Gauge,
        _ => MetricType::Histogram,
    };
    // The encoder appends the unit to the name.
    let unit = described.unit();
    let name = described.name.strip_suffix(unit).unwrap_or_default();
    let name = name.strip_suffix('_').unwrap_or(name);
    let unit = match unit {
        "seconds" => Some(&Unit::Seconds),
        "bytes" => Some(&Unit::Bytes),
        "ratio" => Some(&*RATIO),
        _ => None,
    };
    encoder.encode_descriptor(name, described.help, unit, kind)
}

/// Writes one value in the unit of its metric.
pub fn encode_value(
    metric: &mut MetricEncoder<'_>,
    described: &Described,
    value: u64,
) -> Result<(), fmt::Error> {
    let is_whole = !matches!(described.unit(), "seconds" | "ratio");
    match (described.shape.name(), is_whole) {
        ("counter", true) => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
        ("counter", false) => {
            metric.encode_counter::<NoLabelSet, _, u64>(&described.wire(value), None)
        }
        (_, true) => metric.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
        (_, false) => metric.encode_gauge(&described.wire(value)),
    }
}
