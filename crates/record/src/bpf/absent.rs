//! Replaces the samplers where they were not built, and gives the reason.

use trial::{Capability, Loss, Writer};

use super::{Asked, capability};
use crate::error::{Error, Unsupported};

/// No samplers.
pub(crate) struct Samplers;

impl Samplers {
    pub(crate) fn start(
        asked: Asked,
        _pids: &[u32],
        capabilities: &mut Vec<Capability>,
    ) -> Samplers {
        let reason = match cfg!(feature = "bpf") {
            true => "its BPF program is for x86-64 only",
            false => "this program was built without the feature bpf",
        };
        for (name, asked) in [("locks", asked.locks), ("file anatomy", asked.files)] {
            if asked {
                capabilities.push(capability(name, Err(Unsupported(reason.to_owned()))));
            }
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
