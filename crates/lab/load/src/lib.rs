//! The workload: schedules, populations, connections, latencies.
//!
//! What: an open- or closed-loop generator of HTTP/1.1, HTTP/2 and HTTP/3, with TLS or without
//! ([`run`] executes a [`Plan`] and returns an [`Outcome`]), an origin for experiments
//! ([`Origin`]), and two floors: the lowest possible cost of an answer ([`NullServer`]), and of
//! passing an answer on ([`NullRelay`]).
//!
//! Why: a load line is only as good as the load. The generator is cheap, measures latency from the
//! intended start, and reports when it was itself too slow.
//!
//! Ownership: the generator, the origin and the floors run in the caller's thread until their time
//! is over or their stop flag is set.
//!
//! What never happens: a second thread; a lost request; a latency that the generator caused and
//! that is not marked.

#[cfg(not(feature = "tls"))]
mod absent;
mod answer;
mod connections;
pub mod content;
pub mod family;
mod generator;
mod ledger;
mod null_relay;
mod null_server;
mod origin;
mod outcome;
mod plan;
mod population;
mod random;
mod request;
mod response;
mod schedule;
pub mod sys;
#[cfg(feature = "tls")]
mod tls;
mod websocket;

#[cfg(not(feature = "tls"))]
use absent as tls;

pub use generator::{Error, Observer, Phase, QUEUE_MAX, TICK, Tick, run};
pub use null_relay::NullRelay;
pub use null_server::NullServer;
pub use origin::{Origin, OriginCounters};
pub use outcome::{Counts, ErrorKind, Errors, Latency, Outcome, Row};
pub use plan::{
    BadPlan, COLD_MAX, CONNECTIONS_MAX, CONNECTIONS_PER_SOURCE, DRAIN_MAX, DURATION_MAX, Opening,
    Plan, Protocol, SOURCES_MAX, STREAMS_MAX, Target,
};
pub use population::{OBJECTS_MAX, Objects, Population, SIZE_BYTES_MAX, Size};
pub use schedule::{Arrivals, BadRate, LEVELS_MAX, RATE_MAX, Schedule, Starts};
