//! The samplers, as the recorder uses them.

use trial::{Capability, Loss, Writer};

use super::answers::Answers;
use super::files::Files;
use super::locks::Locks;
use super::stretches::{Marks, Stretches};
use super::{ANSWERS, Requested, TURNS, TurnsIn};
use crate::error::{Error, Unsupported};
use crate::host;

const LOCKS: &str = "lock:contention_begin and _end on the whole machine, futex calls of the \
                     server; waiting, not holding; a wait counts where it ends";
const FILES: &str = "system calls of the server on regular files, from their open to their close";
const STRETCHES: &str = "CPU time and receives of the server's threads from one return of \
                         epoll_wait, poll, select and io_uring_enter to the next, and from wake \
                         to sleep";

const ANSWERED: &str = "receives and sends of the server's threads on sockets; at high rates in 1 \
                        interval of 10";

/// The running samplers.
pub(crate) struct Samplers {
    locks: Option<Locks>,
    files: Option<Files>,
    stretches: Option<Stretches>,
    answers: Option<Answers>,
}

impl Samplers {
    /// Starts the requested samplers and adds a capability for each.
    pub(crate) fn start(
        requested: Requested,
        pids: &[u32],
        capabilities: &mut Vec<Capability>,
    ) -> Samplers {
        let mut samplers = Samplers { locks: None, files: None, stretches: None, answers: None };
        if requested.locks {
            let started = Locks::start(pids).map(|sampler| samplers.locks = Some(sampler));
            capabilities.push(host::sampler("locks", Some(&started), |()| LOCKS.to_owned()));
        }
        if requested.files {
            let started = Files::start(pids).map(|sampler| samplers.files = Some(sampler));
            capabilities.push(host::sampler("file anatomy", Some(&started), |()| FILES.to_owned()));
        }
        if let Some(turns) = requested.turns {
            let started =
                Stretches::start(pids, turns).map(|sampler| samplers.stretches = Some(sampler));
            capabilities
                .push(host::sampler(TURNS, Some(&started), |()| format!("{STRETCHES}; {turns}")));
            let started = Answers::start(pids, requested.redact)
                .map(|sampler| samplers.answers = Some(sampler));
            capabilities.push(host::sampler(ANSWERS, Some(&started), |()| ANSWERED.to_owned()));
        }
        samplers
    }

    /// What a thread needs that holds the server.
    pub(crate) fn marks(&self) -> Result<Marks, Unsupported> {
        let none = || Unsupported("turns are not counted, which show how it catches up".to_owned());
        self.stretches.as_ref().ok_or_else(none)?.marks()
    }

    /// Whether turns can be counted, without which holds show nothing.
    pub(crate) fn can_count_turns(pids: &[u32], turns: TurnsIn) -> Result<(), Unsupported> {
        Stretches::start(pids, turns)?.marks().map(drop)
    }

    /// Discards what came before the first interval.
    pub(crate) fn baseline(&mut self, pids: &[u32]) {
        if let Some(locks) = &mut self.locks {
            locks.baseline(pids);
        }
        if let Some(files) = &mut self.files {
            files.baseline(pids);
        }
        if let Some(stretches) = &mut self.stretches {
            stretches.baseline(pids);
        }
        if let Some(answers) = &mut self.answers {
            answers.baseline(pids);
        }
    }

    /// Writes what happened since the last call to the trial and returns the losses.
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
        if let Some(stretches) = &mut self.stretches {
            losses.extend(stretches.interval(index, pids, writer));
        }
        if let Some(answers) = &mut self.answers {
            losses.extend(answers.interval(index, pids, writer));
        }
        Ok(losses)
    }

    /// An interval begins. Its number need not follow the last one's.
    pub(crate) fn begin(&mut self, index: u64, pids: &[u32]) {
        if let Some(stretches) = &mut self.stretches {
            stretches.begin(index, pids);
        }
        if let Some(answers) = &mut self.answers {
            answers.begin(index, pids);
        }
    }

    /// Notes that are only known at the end.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.files.as_ref().map(Files::notes).unwrap_or_default()
    }
}
