//! The limits of a comparison.

use std::time::Duration;

/// Requests that are sent, at most.
pub const REQUESTS_MAX: usize = 200;
/// Until a server accepts a connection.
pub(crate) const START: Duration = Duration::from_secs(15);
/// One request.
pub(crate) const REQUEST: Duration = Duration::from_secs(5);
/// All requests to one server.
pub(crate) const REQUESTS: Duration = Duration::from_secs(35);
/// A whole sandbox.
pub(crate) const SANDBOX: Duration = Duration::from_secs(60);
/// Bytes of a response that are read.
pub(crate) const RESPONSE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a content that are reported. Of the rest there is a hash.
pub(crate) const BODY_BYTES_SHOWN_MAX: usize = 12 * 1024;
/// Bytes of a report of a sandbox.
pub(crate) const REPORT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Bytes of a file that is copied into a sandbox, and of all of them.
pub(crate) const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes of all files that are copied into a sandbox.
pub(crate) const FILES_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Ports that the origin listens on.
pub(crate) const PORTS_MAX: usize = 256;
/// Entries of a directory that is shown in the sandbox, with those below it.
pub(crate) const ENTRIES_MAX: usize = 100_000;
/// The root of a sandbox, in memory.
pub(crate) const ROOT: &str = "size=256m,nr_inodes=65536,mode=0755";
/// Bytes of address space of a process.
pub(crate) const ADDRESS_BYTES_MAX: u64 = 4 << 30;
/// Bytes of a file that a process writes.
pub(crate) const WRITTEN_BYTES_MAX: u64 = 128 << 20;
/// Open files of a process.
pub(crate) const OPEN_FILES_MAX: u64 = 4096;
/// Processes and threads of a sandbox.
pub(crate) const PROCESSES_MAX: u64 = 1024;
/// CPU time of a process, in seconds.
pub(crate) const CPU_SECONDS_MAX: u64 = 60;

const _: () = {
    let all = START.as_secs() + REQUESTS.as_secs() + REQUEST.as_secs();
    assert!(all < SANDBOX.as_secs(), "a sandbox has time for all requests");
    assert!(REQUEST.as_secs() < REQUESTS.as_secs());
    assert!(CPU_SECONDS_MAX >= SANDBOX.as_secs());
    assert!(FILE_BYTES_MAX < FILES_BYTES_MAX);
};
