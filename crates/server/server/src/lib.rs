//! The process: cores on their threads, listeners, reload, restart, the admin address.
//!
//! What: [`Server`] binds, starts one [`Core`] in each thread, carries out orders and ends;
//! [`admin`] answers operators. Why separate from the crates `proxy` and `exchange`: code that
//! serves requests knows nothing of processes, threads, signals or files. Cores share the cache
//! with its fetches in flight, the destination of the log and the state of upstreams, and nothing
//! else.
//!
//! What never happens: a core blocks; a server goes on without one of its cores; a reload that
//! fails changes anything; a restart closes a socket that the next process does not hold.
#![forbid(unsafe_code)]

mod admin;
mod call;
mod certificates;
mod change;
mod control;
mod core;
mod core_task;
mod dashboard;
mod descriptors;
mod handover;
mod hold;
mod limits;
mod listening;
mod locks;
mod log_to;
mod metrics_text;
mod name_lookups;
mod our_digest;
mod peer_digests;
mod process;
mod purge_api;
mod queries;
mod server;
mod sockets;
mod start_error;

pub use self::process::end_process_at_panic;
pub use access_log::{LogCode, LogFormat, LogTemplate, LogWriter, SyslogTo, log_codes};
pub use cache::sizing::{Size, WhatIfReport};
pub use config::{
    ClientField, Config, DiskConfig, Domain, Forward, Listener, Origin, PasswordRealm, Ports,
    Problem, Process, Protocol, PurgeRules, Role, SetCookie, Settings, Unusable, Users,
};
pub use control::{Answer, Order, Orders};
pub use core::Core;
pub use dns::NameServers;
pub use exchange::explain;
pub use ipnet::IpNet;
pub use log_to::LogTo;
pub use metrics::{Described, Shape, rules};
pub use name_lookups::look_up_names;
pub use server::{Bound, Renewal, Server};
pub use sockets::Sockets;
pub use start_error::StartError;
pub use store::disk::Verify;
pub use transport::tls::{ClientTls, ServerTls, TlsPeer};

/// What a configuration says about a request that no client has sent.
pub mod dry {
    pub use config::Expect;
    pub use policy::dry::{Judged, Outcome, Question, Verdict, verdict};
    pub use policy::routes::Routes;

    /// What keeps a configuration from being used although each of its keys is right: expectations
    /// that it does not meet, and what this build lacks.
    pub fn unmet(config: &config::Config) -> Vec<String> {
        let lacking = crate::certificates::unmet(config);
        policy::dry::unmet(config).into_iter().chain(lacking).collect()
    }
}

/// The reference of the configuration file, and an example of one, made from its list of keys.
pub mod config_documents {
    pub use config::{example, markdown};
}

/// Every metric that `/metrics` serves.
pub fn described_metrics() -> Vec<Described> {
    metrics_text::all()
}
