//! Starts servers, drives load at them, and records them.
//!
//! The demo, the studies and the benchmark share it. [`servers`] runs our own program as origin and
//! proxy, [`peer`] runs other programs, [`rounds`] puts measurements into random order and computes
//! intervals, and [`environment`] describes the machine.
#![forbid(unsafe_code)]

pub mod environment;
pub mod peer;
pub mod rounds;
mod servers;

pub use environment::Environment;
pub use servers::{
    ANY, Caching, Cpus, Error, HOT, Process, Recording, Server, Source, Span, address, annotate,
    cold_max, drive,
};
