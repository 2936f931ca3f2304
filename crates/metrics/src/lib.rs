//! What the server counts, each counter declared once: name, labels, help, and where it is kept.
//! A name that ends in `_seconds`, `_bytes` or `_ratio` has that unit.
//!
//! A core has its own [`Counters`] and is their only writer, so that counting costs one load and
//! one store on a line that no other core touches; readers add the cores up. The text that
//! `/metrics` serves, `plimsoll metrics --list` and the reference in `docs/` are all made from
//! the same lists.
#![forbid(unsafe_code)]

mod latency;

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use outcome::{COUNTED, Refusal};
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

pub use self::latency::{Histogram, Latency};

/// Whether a counter only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only grows; `_total` is added to its name on the wire.
    Counter,
    /// A level.
    Gauge,
    /// Counters that differ in the values of these labels.
    CounterBy(&'static [&'static str]),
    /// Levels that do.
    GaugeBy(&'static [&'static str]),
    /// Histograms that do.
    HistogramBy(&'static [&'static str]),
}

impl Shape {
    /// The word of OpenMetrics for it.
    pub fn name(self) -> &'static str {
        match self {
            Shape::Counter | Shape::CounterBy(_) => "counter",
            Shape::Gauge | Shape::GaugeBy(_) => "gauge",
            Shape::HistogramBy(_) => "histogram",
        }
    }

    /// The same, in members that differ in the values of these labels.
    pub const fn by(self, labels: &'static [&'static str]) -> Shape {
        match self {
            Shape::Counter | Shape::CounterBy(_) => Shape::CounterBy(labels),
            Shape::Gauge | Shape::GaugeBy(_) => Shape::GaugeBy(labels),
            Shape::HistogramBy(_) => Shape::HistogramBy(labels),
        }
    }

    /// What tells its members apart.
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

    /// Whether the system may have nothing to tell of it; then it is absent from the text.
    pub fn depends_on_the_system(&self) -> bool {
        self.name == STALLED.name || OF_PROCESS.iter().any(|of| of.name == self.name)
    }

    /// Its name on the wire, without the suffixes of a histogram.
    pub fn full_name(&self) -> String {
        let total = if self.shape.name() == "counter" { "_total" } else { "" };
        format!("plimsoll_{}{total}", self.name)
    }

    /// The value on the wire: times are kept in nanoseconds, ratios in millionths.
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
            /// How long answers took.
            pub latency: Latency,
            /// What connections are at.
            pub states: States,
            /// What is told of each core apart.
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
    collapsed: Counter, "Requests that waited for a fetch that was already under way";
    passed: Counter, "Requests passed through: method, request or response may not be stored";
    not_modified: Counter, "304 responses to a client's own validators";
    bodies_repaired: Counter,
        "Stored bodies that broke off on the disk and were completed by the origin";
    client_errors: Counter, "Requests refused as malformed or too large";
    upstream_errors: Counter, "Requests that failed because of the upstream (502, 504)";
    bytes_received as "received_bytes": Counter, "Bytes read from clients";
    bytes_sent as "sent_bytes": Counter, "Bytes written to clients";
    upstream_bytes_received as "upstream_received_bytes": Counter, "Bytes read from upstreams";
    upstream_bytes_sent as "upstream_sent_bytes": Counter, "Bytes written to upstreams";
    connections_accepted: Counter, "Client connections accepted";
    connections_refused: Counter, "Client connections closed at once: no slot or no descriptor";
    connections_denied: Counter, "Client connections that a rule ended before their first request; \
        the log names the rule";
    connections_open: Gauge, "Client connections open now";
    connections_busy: Gauge, "Of these, those with a request that waits: for an upstream, or for \
        either body";
    connections_shed: Counter, "Client connections closed at once: overload, or memory pressure";
    connections_closed_for_room: Counter, "Idle client connections closed because no descriptor \
        was left";
    held_bytes as "client_held_bytes": Gauge, "Bytes of answers that clients have not taken yet";
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
    tls_failures_plain_http: Counter,
        "Clients told that they spoke HTTP in the clear to a TLS port";
    tls_failures_slow: Counter, "TLS handshakes with clients cut by the time-out";
    tls_failures_closed: Counter, "TLS handshakes that clients broke off";
    tls_failures_protocol: Counter,
        "TLS handshakes that failed: no version, cipher, certificate or protocol in common, or no \
         TLS";
    tls_failures_client_certificate: Counter,
        "TLS handshakes that failed because the client's certificate is missing or not accepted";
    tls_failures_rejected: Counter,
        "TLS handshakes that clients ended because they do not accept our certificate";
    upstream_tls_handshakes: Counter, "TLS handshakes with upstreams that were completed";
    upstream_tls_resumptions: Counter, "Of these, those that took up an earlier session";
    upstream_tls_failures: Counter,
        "TLS handshakes with upstreams that failed, certificates that were not accepted included";
    log_lines: Counter, "Access log lines made";
    waits: Counter, "Calls of the event notification's wait";
    events: Counter, "Events that those waits delivered";
    empty_waits: Counter, "Waits that delivered nothing";
    turns: Counter, "Turns of the cores' loops";
    polls: Counter, "Times a task was run";
    wakes: Counter, "Wakes of a core by another thread";
    recv_calls: Counter, "System calls that read from a socket";
    send_calls: Counter, "System calls that write to a socket";
    allocations: Counter, "Blocks of memory that the cores have asked the allocator for; 0 where \
        the program has an allocator that does not count";
    allocated_bytes: Counter, "Bytes that the cores have asked for, given back or not";
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
}

impl Count {
    /// One more, until what this gives back is dropped; gauges only.
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

/// Client connections that are in a state of their own; see [`CONNECTIONS`].
#[derive(Debug, Default)]
pub struct States {
    /// Before the first request.
    pub arriving: Count,
    /// A head has come in part.
    pub reading: Count,
    /// The client is waited for to take bytes.
    pub sending: Count,
    /// Outside of an exchange, with bytes left to send or a close to wait for.
    pub finishing: Count,
}

/// Connections by what they do; their label is `state`. Together they are `connections_open`.
pub const CONNECTIONS: Described = Described {
    name: "connections",
    help: "Client connections by state: arriving (PROXY header, TLS handshake), idle, reading (a \
           head has come in part), waiting (for an upstream, for a body, for the client's close), \
           sending (the client does not take bytes as fast as there are any), tunnel",
    shape: Shape::GaugeBy(&["state"]),
};

/// The values of [`CONNECTIONS`], of the counters of a core. A hit pays nothing for them: what it
/// is in is known from what the others are not.
pub fn states(of: &Counters) -> [(&'static str, u64); 6] {
    let (states, tunnels) = (&of.states, of.tunnels_open.get());
    let (arriving, reading, sending) =
        (states.arriving.get(), states.reading.get(), states.sending.get());
    let under_way = of.connections_busy.get() + states.finishing.get();
    let idle = of.connections_open.get().saturating_sub(arriving + reading + under_way);
    let waiting = under_way.saturating_sub(sending + tunnels);
    [
        ("arriving", arriving),
        ("idle", idle),
        ("reading", reading),
        ("waiting", waiting),
        ("sending", sending),
        ("tunnel", tunnels),
    ]
}

/// What a core tells of itself, and nobody adds up: its place on its load line.
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
}

/// A figure of one core, and where it stands.
type OneOfCore = (Described, fn(&OfCore) -> &Count);

/// The figures of [`OfCore`], by the label `core`.
pub const OF_CORE: &[OneOfCore] = &[
    (
        Described {
            name: "core_busy_ratio",
            help: "Share of the last tick in which the core's processor was busy",
            shape: Shape::GaugeBy(&["core"]),
        },
        |of| &of.busy_ppm,
    ),
    (
        Described {
            name: "core_delay_seconds",
            help: "How long ready events waited in the last tick, if the core was busy throughout",
            shape: Shape::GaugeBy(&["core"]),
        },
        |of| &of.delay_ns,
    ),
    (
        Described {
            name: "core_request_cpu_seconds",
            help: "Processor time that one more request costs: the slope of the core's load line",
            shape: Shape::GaugeBy(&["core"]),
        },
        |of| &of.marginal_ns,
    ),
    (
        Described {
            name: "core_shed_ratio",
            help: "Share of the requests that need an upstream which is answered 503: overload",
            shape: Shape::GaugeBy(&["core"]),
        },
        |of| &of.shed_ppm,
    ),
    (
        Described {
            name: "core_cpu_seconds",
            help: "Processor time that the core has used",
            shape: Shape::CounterBy(&["core"]),
        },
        |of| &of.cpu_ns,
    ),
];

/// Of [`Latency`].
pub const LATENCY: Described = Described {
    name: "request_duration_seconds",
    help: "From the end of a request's head to the last byte of its answer",
    shape: Shape::HistogramBy(&["status", "cache"]),
};

/// What the system says of the process when it is asked.
pub const OF_PROCESS: &[Described] = &[
    Described {
        name: "process_descriptors",
        help: "Descriptors that the process has open",
        shape: Shape::Gauge,
    },
    Described {
        name: "process_descriptors_max",
        help: "Descriptors that it may have open",
        shape: Shape::Gauge,
    },
    Described {
        name: "process_resident_bytes",
        help: "Memory of the process that is in use",
        shape: Shape::Gauge,
    },
];

/// Of [`stalled`]; its label is `tasks`.
pub const STALLED: Described = Described {
    name: "memory_stall_seconds",
    help: "Time in which some tasks, or all at once (full), waited for memory, in our control \
           group or on the machine (pressure stall information); none where the kernel tells none",
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
    /// Counts one.
    pub fn count(&self, refusal: Refusal) {
        self.0[refusal.place()].fetch_add(1, Relaxed);
    }

    /// The names of the rules and how many requests each has refused.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        COUNTED.iter().copied().zip(self.0.iter().map(|count| count.load(Relaxed))).collect()
    }
}

static RATIO: LazyLock<Unit> = LazyLock::new(|| Unit::Other("ratio".to_owned()));

/// Begins a family: its name, unit, kind and help.
pub fn describe<'e>(
    encoder: &'e mut DescriptorEncoder<'_>,
    described: &'e Described,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    let kind = match described.shape.name() {
        "counter" => MetricType::Counter,
        "gauge" => MetricType::Gauge,
        _ => MetricType::Histogram,
    };
    // The encoder puts the unit behind the name.
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
