//! One loaded and attached BPF object, and the parts that all BPF objects have: the set of observed
//! processes, and the counts of unseen events.

use std::collections::BTreeSet;
use std::path::Path;

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput, ProgramMut,
    ProgramType, UprobeOpts,
};

use crate::error::Unsupported;

/// As in `common.h`.
const SERVER: u8 = 1;
const RECORDER: u8 = 2;

/// Programs see process ids as the first PID namespace numbers them (`PROC_PID_INIT_INO`).
const OWN_NAMESPACE: &str = "/proc/self/ns/pid";
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// To an uprobe: whatever process maps the file.
const EVERY_PROCESS: i32 = -1;

/// Counts in the map `unseen`.
pub(super) const UNSEEN: usize = 16;

/// Bytes aligned like the structs of an object file.
#[repr(align(8))]
pub(super) struct Aligned<T: ?Sized>(pub(super) T);

/// A running program. It ends when this is dropped.
pub(super) struct Program {
    object: Object,
    links: Vec<Link>,
    observed: MapHandle,
    unseen: MapHandle,
    /// The counts at the last read.
    unseen_before: [u64; UNSEEN],
    /// Processes in the set that were not the server's at the last check: forks that were too
    /// recent for it, or processes that have ended.
    doubtful: BTreeSet<u32>,
}

impl Program {
    /// Loads an object file and attaches all its programs.
    pub(super) fn start(object: &Aligned<[u8]>, pids: &[u32]) -> Result<Program, Unsupported> {
        if std::fs::read_link(OWN_NAMESPACE).is_ok_and(|own| own.as_os_str() != FIRST_NAMESPACE) {
            let why = "the kernel numbers processes differently from this PID namespace: run it \
                       outside the container";
            return Err(Unsupported(why.to_owned()));
        }
        // libbpf would print details on stderr; the error has a summary.
        libbpf_rs::set_print(None);
        let object = ObjectBuilder::default()
            .open_memory(&object.0)
            .and_then(libbpf_rs::OpenObject::load)
            .map_err(|error| unsupported(&error))?;
        let observed = map(&object, "observed")?;
        let unseen = map(&object, "unseen")?;
        let mut program = Program {
            object,
            links: Vec::new(),
            observed,
            unseen,
            unseen_before: [0; UNSEEN],
            doubtful: BTreeSet::new(),
        };
        program.attach()?;
        // A full set or a missing own process costs attribution, not the recording.
        let _ = program.put(std::process::id(), RECORDER);
        program.observe(pids);
        Ok(program)
    }

    /// Attaches all programs that [`detach`](Program::detach) detached.
    pub(super) fn attach(&mut self) -> Result<(), Unsupported> {
        let traces = |program: &ProgramMut<'_>| program.prog_type() == ProgramType::Tracing;
        let links = self.object.progs_mut().filter(traces).map(|program| program.attach());
        self.links = links.collect::<Result<_, _>>().map_err(|error| unsupported(&error))?;
        Ok(())
    }

    /// Detaches all programs, so that what they observe costs nothing. Maps keep their content.
    pub(super) fn detach(&mut self) {
        self.links.clear();
    }

    /// Attaches a program to a function of a file, at its calls or at its returns.
    pub(super) fn probe(
        &mut self,
        name: &str,
        file: &Path,
        function: &str,
    ) -> Result<(), libbpf_rs::Error> {
        let found = self.object.progs_mut().find(|program| program.name() == name);
        let program = found.expect("the program is in the object");
        let options = UprobeOpts {
            func_name: Some(function.to_owned()),
            retprobe: program.section() == "uretprobe",
            ..UprobeOpts::default()
        };
        self.links.push(program.attach_uprobe_with_opts(EVERY_PROCESS, file, 0, options)?);
        Ok(())
    }

    /// Runs a program that is not attached to anything.
    pub(super) fn run(&mut self, name: &str) {
        let found = self.object.progs_mut().find(|program| program.name() == name);
        // It was loaded, and has no reason to fail.
        let _ = found.map(|program| program.test_run(ProgramInput::default()));
    }

    /// One of its maps.
    pub(super) fn map(&self, name: &str) -> Result<MapHandle, Unsupported> {
        map(&self.object, name)
    }

    /// Updates the set of observed processes and returns those that left it.
    pub(super) fn observe(&mut self, pids: &[u32]) -> BTreeSet<u32> {
        let server: BTreeSet<u32> = pids.iter().copied().collect();
        let own = std::process::id();
        let inside: BTreeSet<u32> = self
            .observed
            .keys()
            .filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?)))
            .filter(|&pid| pid != own)
            .collect();
        for &pid in server.difference(&inside) {
            let _ = self.put(pid, SERVER);
        }
        let doubtful: BTreeSet<u32> = inside.difference(&server).copied().collect();
        // One check's grace: the program adds a fork before the recorder can have seen it.
        let gone: BTreeSet<u32> = doubtful.intersection(&self.doubtful).copied().collect();
        for pid in &gone {
            let _ = self.observed.delete(&pid.to_ne_bytes());
        }
        self.doubtful = doubtful;
        gone
    }

    /// The events that were not seen since the last call, by kind.
    pub(super) fn take_unseen(&mut self) -> [u64; UNSEEN] {
        let mut grown = [0; UNSEEN];
        for (kind, (grown, before)) in (0u32..).zip(grown.iter_mut().zip(&mut self.unseen_before)) {
            let found = self.unseen.lookup(&kind.to_ne_bytes(), MapFlags::ANY);
            let now = found.ok().flatten().map(|value| Fields(&value).u64());
            let now = now.unwrap_or(*before);
            *grown = now.wrapping_sub(*before);
            *before = now;
        }
        grown
    }

    fn put(&mut self, pid: u32, owner: u8) -> Result<(), libbpf_rs::Error> {
        self.observed.update(&pid.to_ne_bytes(), &[owner], MapFlags::ANY)
    }
}

/// Entries of a map that are forgotten per call.
const BATCH: u32 = 256;

/// Deletes all entries of a map.
pub(super) fn forget(map: &MapHandle) {
    let entries = map.lookup_and_delete_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
    entries.map(|entries| entries.for_each(drop)).ok();
}

/// The only entry of a map, of each CPU. It cannot be missing.
pub(super) fn of_each_cpu(map: &MapHandle) -> Vec<Vec<u8>> {
    let found = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
    found.ok().flatten().unwrap_or_default()
}

/// Reads the numbers of a struct one after the other; zeros after its end.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    /// Nanoseconds in the trial's type.
    pub(super) fn ns(&mut self) -> i64 {
        i64::try_from(self.u64()).unwrap_or(i64::MAX)
    }

    /// Addresses, up to the first zero.
    pub(super) fn addresses(&mut self, most: usize) -> Vec<u64> {
        let all: Vec<u64> = (0..most).map(|_| self.u64()).collect();
        all.into_iter().take_while(|&address| address != 0).collect()
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((head, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *head
    }
}

fn map(object: &Object, name: &str) -> Result<MapHandle, Unsupported> {
    let found = object.maps().find(|map| map.name() == name);
    let found = found.ok_or_else(|| Unsupported(format!("the BPF program has no map {name}")))?;
    MapHandle::try_from(&found).map_err(|error| unsupported(&error))
}

/// Why the program cannot run, as far as known.
fn unsupported(error: &libbpf_rs::Error) -> Unsupported {
    let reason = format!("{error:#}");
    Unsupported(if error.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        format!("not permitted to load a BPF program ({reason}): run as root")
    } else if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        format!("this kernel has no BTF: /sys/kernel/btf/vmlinux is missing ({reason})")
    } else {
        format!("the BPF program cannot be loaded: {reason}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_order_and_are_zero_after_the_end() {
        let bytes: Vec<u8> =
            [7u64, u64::MAX, 5, 0, 9].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let mut fields = Fields(&bytes);
        assert_eq!((fields.u64(), fields.ns()), (7, i64::MAX));
        assert_eq!(fields.addresses(3), [5]);
        assert_eq!((fields.u32(), fields.u64()), (0, 0));
    }
}
