//! Both samplers, as the recorder drives them.

use trial::{Capability, Loss, Writer};

use super::files::Files;
use super::locks::Locks;
use super::{Asked, capability};
use crate::error::Error;

const LOCKS: &str = "lock:contention_begin and _end on the whole machine, futex calls of the \
                     server; waiting, not holding; a wait counts where it ends";
const FILES: &str = "system calls of the server on regular files, from their open to their close";

/// The samplers that run.
pub(crate) struct Samplers {
    locks: Option<Locks>,
    files: Option<Files>,
}

impl Samplers {
    /// Starts what is asked for, and says what became of it.
    pub(crate) fn start(
        asked: Asked,
        pids: &[u32],
        capabilities: &mut Vec<Capability>,
    ) -> Samplers {
        let mut samplers = Samplers { locks: None, files: None };
        if asked.locks {
            let started = Locks::start(pids).map(|sampler| samplers.locks = Some(sampler));
            capabilities.push(capability("locks", started.map(|()| LOCKS)));
        }
        if asked.files {
            let started = Files::start(pids).map(|sampler| samplers.files = Some(sampler));
            capabilities.push(capability("file anatomy", started.map(|()| FILES)));
        }
        samplers
    }

    /// What came before the first interval does not count.
    pub(crate) fn baseline(&mut self, pids: &[u32]) {
        if let Some(locks) = &mut self.locks {
            locks.baseline(pids);
        }
        if let Some(files) = &mut self.files {
            files.baseline(pids);
        }
    }

    /// Hands what happened since the last call to the trial, and returns what was not seen.
    pub(crate) fn interval(
        &mut self,
        index: u64,
        pids: &[u32],
        writer: &mut Writer,
    ) -> Result<Vec<Loss>, Error> {
        let mut losses = Vec::new();
        if let Some(locks) = &mut self.locks {
            losses.extend(locks.interval(index, pids, writer)?);
        }
        if let Some(files) = &mut self.files {
            losses.extend(files.interval(pids, writer));
        }
        Ok(losses)
    }

    /// What can be said at the end only.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.files.as_ref().map(Files::notes).unwrap_or_default()
    }
}
