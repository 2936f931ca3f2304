//! `plimsoll import --try`: runs the original server on its file and our server on the imported
//! file, sends both the same requests, and reports where they differ.
//!
//! [`plan`](mod@plan) chooses the requests from both files. [`outside`] runs each server in its own
//! [`sandbox`] with an [`origin`] that stands for every upstream, and [`client`] sends the requests
//! there. [`compare`] is the report.
//!
//! ```text
//! outer process --- sandbox --- init of the sandbox --- the server, as a user without rights
//!   plan, compare    namespaces   root, network,    |
//!                                 client            +-- origin, in a network namespace behind veth
//! ```
//!
//! The file is foreign, so the server that reads it can do no harm:
//!
//! - It has its own user, mount, network, process, IPC and host name namespaces, and no capability
//!   in any of them, and makes no more of them. If the caller is root, it runs as a user that owns
//!   nothing. It has no descriptor and no key of the caller, and no way into the processes that
//!   keep the sandbox.
//! - Its root is a tmpfs that vanishes with it. System directories and the paths that the file
//!   names are bound read-only, without devices, and the latter without sockets.
//! - Its network ends at the origin. Every address and every name lead there.
//! - Time, processes, address space, CPU time, open files and the size of files have [`limits`].
//!
//! What never happens: a server runs outside a sandbox; a file outside is written; a process
//! remains, because the end of the first process of the sandbox ends all the others.
#![forbid(unsafe_code)]

mod caddy;
mod client;
mod compare;
mod endpoints;
mod haproxy;
mod inputs;
mod job;
mod limits;
mod network;
mod nginx;
mod origin;
mod outside;
mod plan;
mod root;
mod sample;
mod sandbox;
mod texts;
mod words;

pub use compare::{Difference, Report};
pub use inputs::Original;
pub use limits::REQUESTS_MAX;
pub use outside::{absolute, run};
pub use sandbox::{ROLES, inside};

/// Why there is no comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The machine has no program of this name, or lacks a part that the program needs.
    Absent(String),
    /// The sandbox is not to be had here.
    Sandbox(String),
    /// User namespaces are not permitted.
    NotPermitted(String),
    /// A sandbox ended without a report.
    Ended(String),
    /// A server does not start on its file, or answers nothing.
    Server(String),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Absent(why) | Failed::Server(why) => f.write_str(why),
            Failed::Ended(why) => write!(f, "there is no comparison: a sandbox {why}"),
            Failed::Sandbox(why) => write!(
                f,
                "a foreign configuration runs only in a sandbox, which cannot be had here: {why}"
            ),
            Failed::NotPermitted(why) => write!(
                f,
                "a foreign configuration runs only in a sandbox, which cannot be had here: user \
                 namespaces are not permitted here: {why}; to fix this: allow user namespaces \
                 (sysctl user.max_user_namespaces, \
                 kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), \
                 or run the command on another machine"
            ),
        }
    }
}
