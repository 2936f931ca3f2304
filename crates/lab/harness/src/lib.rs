//! Starts servers, drives load at them, and records them.
//!
//! The demo, the studies and the benchmark share this crate. `servers` runs our program as origin
//! and proxy, [`peer`] runs other programs, [`recipe`] configures other programs, [`origin`] runs
//! an origin in this process, [`rounds`] puts measurements into random order and makes rows of
//! figures with intervals, [`wrk`] is a load generator that is not ours, and [`environment`]
//! describes the machine.
#![forbid(unsafe_code)]

pub mod environment;
pub mod origin;
pub mod peer;
#[path = "../../../core/transport/tests/common/ports.rs"]
mod ports;
pub mod recipe;
pub mod rounds;
mod servers;
pub mod wrk;

pub use environment::Environment;
pub use servers::{
    ANY, Caching, Cpus, Error, HOT, Process, Recording, Server, Source, Span, address, annotate,
    cold_max, drive,
};
