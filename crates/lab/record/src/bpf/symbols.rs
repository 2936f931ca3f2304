//! Addresses to procedures: in the kernel by kallsyms, in a process by the files that it maps.
//!
//! A procedure without a name is shown as its module and its offset there, as a disassembler shows
//! it.

use std::collections::HashMap;
use std::fs;

use blazesym::symbolize::source::{Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolizer};
use trial::profile::{Frame, FrameMode};

use crate::profile::files::name_at;
use crate::profile::maps;
use crate::profile::records::Map;

/// Names that are cached. When the cache is full, it is emptied.
const REMEMBERED_MAX: usize = 50_000;

/// Resolves addresses to names and caches them.
pub(super) struct Symbols {
    symbolizer: Symbolizer,
    kernel: HashMap<u64, Frame>,
    /// By process and address; `None` where there is no code.
    user: HashMap<(u32, u64), Option<Frame>>,
}

impl Symbols {
    pub(super) fn new() -> Symbols {
        Symbols {
            symbolizer: Symbolizer::builder().enable_code_info(false).build(),
            kernel: HashMap::new(),
            user: HashMap::new(),
        }
    }

    /// The kernel procedure that contains the call at this return address.
    pub(super) fn kernel(&mut self, address: u64) -> Frame {
        if let Some(frame) = self.kernel.get(&address) {
            return frame.clone();
        }
        let source = Source::Kernel(Kernel { debug_syms: false, ..Kernel::default() });
        let frame = Frame {
            symbol: name_at(&self.symbolizer, &source, Input::AbsAddr(called_from(address))),
            module: "[kernel]".to_owned(),
            mode: FrameMode::Kernel,
        };
        forget_too_many(&mut self.kernel);
        self.kernel.insert(address, frame.clone());
        frame
    }

    /// The procedures of a process, up to the first address that is not code.
    pub(super) fn user(&mut self, pid: u32, addresses: &[u64]) -> Vec<Frame> {
        let mut maps = None;
        let mut frames = Vec::new();
        for &address in addresses {
            if !self.user.contains_key(&(pid, address)) {
                let maps = maps.get_or_insert_with(|| code_of(pid));
                let frame = self.find(pid, address, maps);
                forget_too_many(&mut self.user);
                self.user.insert((pid, address), frame);
            }
            match &self.user[&(pid, address)] {
                Some(frame) => frames.push(frame.clone()),
                None => break,
            }
        }
        frames
    }

    /// Forgets a process, because its number will be reused.
    pub(super) fn forget(&mut self, pid: u32) {
        self.user.retain(|(of, _), _| *of != pid);
    }

    fn find(&self, pid: u32, address: u64, maps: &[Map]) -> Option<Frame> {
        let at = called_from(address);
        let code = maps.iter().find(|code| (code.start..code.end).contains(&at))?;
        let mut process = Process::new(pid.into());
        (process.debug_syms, process.perf_map) = (false, false);
        let name = name_at(&self.symbolizer, &Source::Process(process), Input::AbsAddr(at));
        let offset = || format!("+{:#x}", at - code.start + code.offset);
        Some(Frame {
            symbol: Some(name.unwrap_or_else(offset)),
            module: module_of(code),
            mode: FrameMode::User,
        })
    }
}

/// Addresses are return addresses, which may be past the end of the caller.
fn called_from(address: u64) -> u64 {
    address.saturating_sub(1)
}

fn forget_too_many<K, V>(names: &mut HashMap<K, V>) {
    if names.len() >= REMEMBERED_MAX {
        names.clear();
    }
}

/// The code of a process; nothing if it has ended.
fn code_of(pid: u32) -> Vec<Map> {
    maps::parse(pid, &fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default())
}

/// The file of a mapping.
fn module_of(map: &Map) -> String {
    if map.path.is_empty() { "[anonymous]".to_owned() } else { map.file_name().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_code_are_distinguished_from_data() {
        let code = |line: &str| maps::parse(7, line).into_iter().next();
        let text = code("7f1200-7f3400 r-xp 00028000 fe:01 131 /usr/lib/x/libc.so.6").unwrap();
        assert_eq!((text.start, text.end, text.offset), (0x7f1200, 0x7f3400, 0x28000));
        assert_eq!(module_of(&text), "libc.so.6");
        let anonymous = code("7f12-7f34 r-xp 00000000 00:00 0").unwrap();
        assert_eq!(module_of(&anonymous), "[anonymous]");
        assert!(code("7f12-7f34 rw-p 00028000 fe:01 131 /usr/lib/libc.so.6").is_none());
        assert!(code("").is_none() && code("7f12 r-xp 0 0 0").is_none());
    }

    #[test]
    fn a_procedure_of_this_process_has_its_name_or_its_place() {
        let address = a_procedure_of_this_process_has_its_name_or_its_place as fn() as usize as u64;
        let frames = Symbols::new().user(std::process::id(), &[address + 1, 1, address + 1]);
        assert_eq!(frames.len(), 1, "nothing behind an address that is none");
        assert!(frames[0].module.starts_with("record"), "{frames:?}");
        let name = frames[0].symbol.as_deref().unwrap();
        assert!(name.contains("a_procedure_of_this_process") || name.starts_with('+'), "{name}");
    }
}
