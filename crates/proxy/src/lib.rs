//! The server: a caching HTTP proxy, reverse and forward.
//!
//! What: listeners, connections, the store's use by the rules of RFC 9111, collapsed fetches,
//! upstream connections, the access log and the admin address. Why: to answer a request for as
//! little CPU as can be, correctly. One [`Core`] runs on one thread; cores share the store, the
//! table of fetches under way and the way to the log, and nothing else.
//!
//! A request's way: [`connection`] reads and parses; a fresh stored response leaves in the same
//! turn; all else goes through [`exchange`] to [`flight`], [`fetch`] and [`upstream`].
//!
//! What never happens: a core blocks; a silent connection holds a buffer; a response is taken for
//! whole that was not; a byte of a client grows memory beyond a limit of [`limits`].
#![forbid(unsafe_code)]

mod access_log;
mod admin;
mod arrival;
mod changes;
mod client;
pub mod config;
mod connection;
mod control;
mod core;
mod disk;
mod exchange;
pub mod explain;
mod fault;
mod fetch;
mod flight;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod hop;
pub mod limits;
mod listening;
mod locks;
mod metrics;
mod overload;
mod partial;
mod pressure;
pub mod proxy_protocol;
mod purge;
mod ranges;
mod refusal;
mod request_body;
mod resolve;
mod routes;
mod server;
mod shared;
mod site;
mod sizing;
mod sockets;
mod stored;
mod tls;
mod told;
mod transport;
mod tunnel;
mod underway;
mod upgrade;
mod upstream;
mod variants;
mod worker;

pub use access_log::{LogCode, LogFormat, LogTemplate, LogWriter, log_codes};
pub use config::{
    Config, DiskConfig, Domain, Forward, Listener, Origin, PasswordRealm, Ports, Problem, Process,
    Protocol, PurgeRules, Role, Settings, TellClient, Unusable, Users,
};
pub use control::{Answer, Order, Orders};
pub use core::Core;
pub use ipnet::IpNet;
pub use metrics::{Described, Shape};
pub use resolve::NameServers;
pub use server::{Bound, LogTo, Renewal, Server, StartError};
pub use sizing::{Size, WhatIfReport};
pub use sockets::Sockets;
pub use store::disk::Verify;
pub use tls::{ClientTls, ServerTls, TlsPeer};

/// The reference of the configuration file, and an example of one, made from its list of keys.
pub mod config_documents {
    pub use crate::config::{example, markdown};
}

/// Every metric that `/metrics` serves.
pub fn described_metrics() -> Vec<Described> {
    metrics::all()
}
