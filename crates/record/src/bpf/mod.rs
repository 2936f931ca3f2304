//! The samplers that are BPF programs: waits for locks, and the anatomy of file access.
//!
//! | part | what it owns |
//! | --- | --- |
//! | `locks.bpf.c`, `files.bpf.c` | the programs: they sum up in the kernel, in bounded maps |
//! | `program` | loading, the set of observed processes, what found no room |
//! | `locks`, `files` | reading the sums, interval by interval, into rows of the trial |
//! | `symbols` | addresses to procedures |
//! | `samplers`, `absent` | both for the recorder, or why there is none |
//!
//! The programs are built without any header of a kernel and placed by the running one's BTF. They
//! run in the time of whoever makes the system call or waits for the lock: their cost is not in
//! the recorder's own CPU time.
//!
//! What never happens: a recording fails because of them. Without the feature `bpf`, on another
//! machine than x86-64, or without the right to load them, they are a capability that the trial
//! says is not supported here, with the reason.

#[cfg(not(bpf))]
mod absent;
#[cfg(bpf)]
mod files;
#[cfg(bpf)]
mod locks;
#[cfg(bpf)]
mod program;
#[cfg(bpf)]
mod samplers;
#[cfg(bpf)]
mod symbols;

#[cfg(not(bpf))]
pub(crate) use absent::Samplers;
#[cfg(bpf)]
pub(crate) use samplers::Samplers;

use trial::Capability;

use crate::error::Unsupported;

/// Which samplers are asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) locks: bool,
    pub(crate) files: bool,
}

fn capability(name: &str, started: Result<&str, Unsupported>) -> Capability {
    let (supported, reason) = match started {
        Ok(source) => (true, source.to_owned()),
        Err(Unsupported(reason)) => (false, reason),
    };
    Capability { name: name.to_owned(), supported, reason }
}
