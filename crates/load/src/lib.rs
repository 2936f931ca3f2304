//! The workload: schedules, populations, connections, latencies.
//!
//! What: an open- or closed-loop HTTP/1.1 generator ([`run`] carries out a [`Plan`] and gives an
//! [`Outcome`]), an origin for experiments ([`Origin`]), and the floor to measure servers against
//! ([`NullServer`]). Why: a load
//! line is only as good as the load; the generator is cheap, counts latency from the intended
//! start, and says when it was itself too slow. Who owns: each of them runs in the caller's thread
//! until its time is over or its stop flag is set. What never happens: a second thread; a request
//! that is forgotten; a latency that is the generator's fault and not marked so.

mod answer;
mod connections;
pub mod content;
pub mod family;
mod generator;
mod ledger;
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

pub use generator::{DRAIN_MAX, Error, Observer, Phase, QUEUE_MAX, TICK, Tick, run};
pub use null_server::NullServer;
pub use origin::{Origin, OriginCounters};
pub use outcome::{Counts, ErrorKind, Errors, LATENCY_NS_MAX, Latency, Outcome, Row};
pub use plan::{
    BadPlan, COLD_MAX, CONNECTIONS_MAX, CONNECTIONS_PER_SOURCE, DURATION_MAX, Plan, SOURCES_MAX,
    Target,
};
pub use population::{OBJECTS_MAX, Objects, Population, SIZE_BYTES_MAX, Size};
pub use schedule::{Arrivals, BadRate, LEVELS_MAX, RATE_MAX, Schedule, Starts};
