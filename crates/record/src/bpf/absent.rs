//! Replaces the samplers where they were not built, and gives the reason.

use trial::{Capability, Loss, Writer};

use super::Requested;
use crate::error::{Error, Unsupported};
use crate::host;

/// No samplers.
pub(crate) struct Samplers;

impl Samplers {
    pub(crate) fn start(
        requested: Requested,
        _pids: &[u32],
        capabilities: &mut Vec<Capability>,
    ) -> Samplers {
        let reason = match cfg!(feature = "bpf") {
            true => "the BPF programs are for x86-64 only",
            false => "this program was built without the feature bpf",
        };
        let missing = Err::<(), _>(Unsupported(reason.to_owned()));
        let names = [
            ("locks", requested.locks),
            ("file anatomy", requested.files),
            ("episodes", requested.episodes_every.is_some()),
        ];
        for (name, _) in names.into_iter().filter(|(_, requested)| *requested) {
            capabilities.push(host::sampler(name, Some(&missing), |()| String::new()));
        }
        Samplers
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

    pub(crate) fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}
