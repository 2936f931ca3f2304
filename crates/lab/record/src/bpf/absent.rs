//! Replaces the samplers in a build without them, and gives the reason why they are missing.

use trial::{Capability, Loss, Writer};

use super::{ANSWERS, Requested, TURNS, TurnsIn};
use crate::error::{Error, Unsupported};
use crate::host;
use crate::spread::Spread;

/// No samplers.
pub(crate) struct Samplers;

impl Samplers {
    pub(crate) fn start(
        requested: Requested,
        _pids: &[u32],
        capabilities: &mut Vec<Capability>,
    ) -> Samplers {
        let missing = Err::<(), _>(unsupported());
        let names = [
            ("locks", requested.locks),
            ("file anatomy", requested.files),
            (TURNS, requested.turns.is_some()),
            (ANSWERS, requested.turns.is_some()),
        ];
        for (name, _) in names.into_iter().filter(|(_, requested)| *requested) {
            capabilities.push(host::sampler(name, Some(&missing), |()| String::new()));
        }
        Samplers
    }

    pub(crate) fn marks(&self) -> Result<Marks, Unsupported> {
        Err(unsupported())
    }

    pub(crate) fn can_count_turns(_pids: &[u32], _turns: TurnsIn) -> Result<(), Unsupported> {
        Err(unsupported())
    }

    pub(crate) fn baseline(&mut self, _pids: &[u32]) {}

    pub(crate) fn interval(
        &mut self,
        _index: u64,
        _pids: &[u32],
        _writer: &mut Writer,
    ) -> Result<Vec<Loss>, Error> {
        Ok(Vec::new())
    }

    pub(crate) fn begin(&mut self, _index: u64, _pids: &[u32]) {}

    pub(crate) fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Without samplers, no server is held.
#[derive(Debug)]
pub(crate) enum Marks {}

impl Marks {
    pub(crate) fn are_seen(&self) -> bool {
        match *self {}
    }

    pub(crate) fn hold_ends(&mut self, _hold: u64, _ended_ns: i64, _until_ns: i64) {
        match *self {}
    }

    pub(crate) fn caught_up_ns(&self) -> i64 {
        match *self {}
    }
}

/// No counter of requests: it cannot be started.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) tls: Vec<String>,
    pub(crate) ended: bool,
}

impl Sockets {
    pub(crate) fn start(_pids: &[u32], _tls: bool) -> Result<Sockets, Error> {
        let Unsupported(why) = unsupported();
        Err(Error::Sockets { why })
    }

    pub(crate) fn mark(&mut self) {}

    pub(crate) fn observe(&mut self, _pids: &[u32]) {}

    pub(crate) fn poll(&mut self, _spread: &mut Spread) -> Vec<(&'static str, u64, &'static str)> {
        Vec::new()
    }
}

fn unsupported() -> Unsupported {
    let reason = match cfg!(feature = "bpf") {
        true => "the BPF programs are for x86-64 only",
        false => "this program was built without the feature bpf",
    };
    Unsupported(reason.to_owned())
}
