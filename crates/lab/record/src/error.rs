//! Why a recording cannot be made, who can fix it, and how. One line each.

/// Why there is no recording, or why it ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operator's fault: no such process.
    #[error("no process {pid}; find it with pgrep, or name the server instead")]
    NoProcess {
        /// The process.
        pid: u32,
    },
    /// The operator's fault: no process of that name.
    #[error("no process is named {name:?}; find its name with ps -e -o comm")]
    NoName {
        /// The name.
        name: String,
    },
    /// The operator's fault: no process in that cgroup.
    #[error("no process is in the cgroup {name:?}; find it with systemd-cgls")]
    NoCgroup {
        /// The name of a systemd unit, or a path.
        name: String,
    },
    /// The operator's fault: the access log cannot be followed.
    #[error(transparent)]
    Log(#[from] logs::Unreadable),
    /// The operator's fault: the counter of requests cannot be read.
    #[error("{url}: {what}")]
    Counter {
        /// Where it was expected.
        url: String,
        /// What failed, or what is there instead.
        what: String,
    },
    /// The system's or the operator's fault: the server's sockets cannot be observed.
    #[error(
        "requests cannot be counted on the server's sockets (it takes root and Linux 6.3): {why}; \
         or give --access-log FILE or --requests-from URL#METRIC"
    )]
    Sockets {
        /// What is missing.
        why: String,
    },
    /// The operator's fault, or the server's: it has no OpenSSL that can be observed.
    #[error(
        "requests over TLS cannot be counted: {why}; leave out --tls, or give --access-log FILE or \
         --requests-from URL#METRIC"
    )]
    Tls {
        /// What was looked for, and where.
        why: String,
    },
    /// The operator's fault, or the system's: the server cannot or must not be held.
    #[error("the server is not held: {why}; leave out --hold to record without holds")]
    Hold {
        /// What is missing, or what speaks against it.
        why: String,
    },
    /// The operator's fault: an interval that cannot be sampled.
    #[error("the interval of {found_ms} ms must be between {least_ms} ms and {most_ms} ms")]
    Interval {
        /// The requested interval.
        found_ms: u128,
        /// The shortest.
        least_ms: u128,
        /// The longest.
        most_ms: u128,
    },
    /// The system's fault: /proc lacks something that every Linux has.
    #[error("{path}: {what}; is /proc mounted?")]
    Proc {
        /// The file.
        path: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The trial cannot be written.
    #[error(transparent)]
    Trial(#[from] trial::Error),
}

/// Why a sampler cannot work here, and what would help. It becomes a capability of the manifest and
/// never fails a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported(pub(crate) String);
