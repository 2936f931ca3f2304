//! Addresses to the trial's frames. Each distinct address is looked up once.

use std::collections::HashMap;

use blazesym::MaybeDefault;
use blazesym::symbolize::Input;
use blazesym::symbolize::source::{Kernel, Source};
use trial::Writer;
use trial::profile::{Frame, FrameMode};

use super::files::{FileId, Files, name_at};
use super::maps::Space;

/// Most addresses of a kind that are cached. When a cache is full, it is emptied.
const REMEMBERED_MAX: usize = 1 << 18;

/// The name of the kernel's code.
const KERNEL: &str = "[kernel]";

/// Code made at run time, which is in no file.
const JIT: &str = "[jit]";

/// Code at an unknown place.
const UNKNOWN: &str = "[unknown]";

/// Where interrupts enter the kernel: a stack with one of these procedures was interrupted.
const INTERRUPTS: [&str; 6] = [
    "asm_sysvec_",
    "asm_common_interrupt",
    "handle_softirqs",
    "__do_softirq",
    "el1_interrupt",
    "el1h_64_irq",
];

/// A procedure of the kernel.
#[derive(Clone, Copy)]
pub(crate) struct KernelFrame {
    pub(crate) frame: u32,
    /// Whether interrupts enter here.
    pub(crate) interrupt: bool,
}

/// The names that were looked up so far.
pub(crate) struct Names {
    pub(crate) files: Files,
    kernel_source: Source<'static>,
    kernel: HashMap<u64, KernelFrame>,
    user: HashMap<(FileId, u64), u32>,
    processes: HashMap<u32, u32>,
}

impl Names {
    pub(crate) fn new() -> Names {
        let kernel = Kernel {
            kallsyms: MaybeDefault::Default,
            // A kernel image would have more names, but is much more expensive to read.
            vmlinux: MaybeDefault::None,
            debug_syms: false,
            ..Kernel::default()
        };
        Names {
            files: Files::new(),
            kernel_source: Source::Kernel(kernel),
            kernel: HashMap::new(),
            user: HashMap::new(),
            processes: HashMap::new(),
        }
    }

    /// Whether the kernel's procedures have names here. Reads all of them, which takes a while.
    pub(crate) fn kernel_is_named(&self) -> bool {
        let text = std::fs::File::open("/proc/kallsyms").and_then(|mut file| {
            let mut begin = [0; 4096];
            let length = std::io::Read::read(&mut file, &mut begin)?;
            Ok(String::from_utf8_lossy(&begin[..length]).into_owned())
        });
        // Without permission, all addresses are zero.
        let shown = text.is_ok_and(|text| {
            text.lines().any(|line| {
                let address = line.split(' ').next().unwrap_or_default();
                u64::from_str_radix(address, 16).is_ok_and(|address| address != 0)
            })
        });
        if shown {
            let _ = self.kernel_symbol(u64::MAX / 2 + 1);
        }
        shown
    }

    /// The frame of an address in the kernel.
    pub(crate) fn kernel(
        &mut self,
        writer: &mut Writer,
        address: u64,
    ) -> Result<KernelFrame, trial::Error> {
        if let Some(&known) = self.kernel.get(&address) {
            return Ok(known);
        }
        let symbol = self.kernel_symbol(address);
        let interrupt =
            symbol.as_ref().is_some_and(|name| INTERRUPTS.iter().any(|i| name.starts_with(i)));
        let frame =
            writer.frame(&Frame { symbol, module: KERNEL.to_owned(), mode: FrameMode::Kernel })?;
        let found = KernelFrame { frame, interrupt };
        make_room(&mut self.kernel);
        self.kernel.insert(address, found);
        Ok(found)
    }

    /// The frame of an address in an observed process.
    pub(crate) fn user(
        &mut self,
        writer: &mut Writer,
        space: &mut Space,
        (pid, address): (u32, u64),
        now_ns: i64,
    ) -> Result<u32, trial::Error> {
        if space.find(address).is_none() {
            space.read_again(pid, &mut self.files, now_ns);
        }
        let Some(mapping) = space.find(address) else {
            return user_frame(writer, None, UNKNOWN);
        };
        let Some(file) = mapping.file else {
            // Not cached, because code made at run time changes.
            let symbol = space.jit.symbol(pid, address, now_ns).map(str::to_owned);
            return user_frame(writer, symbol, JIT);
        };
        let offset = address - mapping.map.start + mapping.map.offset;
        let stated = self.files.elf(file, &mapping.map).and_then(|elf| elf.address_of(offset));
        let key = (file, stated.unwrap_or(u64::MAX));
        if let Some(&known) = self.user.get(&key) {
            return Ok(known);
        }
        let symbol = stated.and_then(|stated| self.files.symbol(file, stated));
        let frame = user_frame(writer, symbol, self.files.name(file))?;
        make_room(&mut self.user);
        self.user.insert(key, frame);
        Ok(frame)
    }

    /// The frame that represents all code of a process that is not observed.
    pub(crate) fn process(&mut self, writer: &mut Writer, pid: u32) -> Result<u32, trial::Error> {
        if let Some(&known) = self.processes.get(&pid) {
            return Ok(known);
        }
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let name = name.map_or_else(|_| UNKNOWN.to_owned(), |name| name.trim_end().to_owned());
        self.name_process(writer, pid, &name)
    }

    /// Sets a process's current name.
    pub(crate) fn name_process(
        &mut self,
        writer: &mut Writer,
        pid: u32,
        name: &str,
    ) -> Result<u32, trial::Error> {
        let frame = user_frame(writer, None, name)?;
        make_room(&mut self.processes);
        self.processes.insert(pid, frame);
        Ok(frame)
    }

    /// A child has its parent's name until it sets another.
    pub(crate) fn fork_process(&mut self, pid: u32, parent: u32) {
        if let Some(&frame) = self.processes.get(&parent) {
            self.processes.insert(pid, frame);
        }
    }

    /// Forgets a process.
    pub(crate) fn forget_process(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    fn kernel_symbol(&self, address: u64) -> Option<String> {
        name_at(self.files.symbolizer(), &self.kernel_source, Input::AbsAddr(address))
    }
}

fn user_frame(
    writer: &mut Writer,
    symbol: Option<String>,
    module: &str,
) -> Result<u32, trial::Error> {
    writer.frame(&Frame { symbol, module: module.to_owned(), mode: FrameMode::User })
}

fn make_room<K, V>(remembered: &mut HashMap<K, V>) {
    if remembered.len() >= REMEMBERED_MAX {
        remembered.clear();
    }
}
