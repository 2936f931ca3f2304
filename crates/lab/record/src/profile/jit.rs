//! Names of code made at run time: `/tmp/perf-PID.map`, with lines of start, size and name, as JIT
//! compilers write it on request (Node's `--perf-basic-prof`, Java's perf-map-agent, PHP, .NET).
//!
//! The file grows as long as the process runs. Only the added part is read, at most once a second.
//! The file is not trusted: lines that cannot be names are skipped.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Most bytes per read.
const BYTES_MAX: u64 = 16 << 20;

/// Most names kept per process.
const NAMES_MAX: usize = 1 << 20;

/// Minimum time between two reads.
const AGAIN_NS: i64 = 1_000_000_000;

/// The names of one process.
#[derive(Debug, Default)]
pub(crate) struct JitNames {
    /// By start: the end and the name.
    names: BTreeMap<u64, (u64, String)>,
    bytes_read: u64,
    read_ns: Option<i64>,
}

impl JitNames {
    /// The name at an address.
    pub(crate) fn symbol(&mut self, pid: u32, address: u64, now_ns: i64) -> Option<&str> {
        let due = self.read_ns.is_none_or(|then| now_ns - then >= AGAIN_NS);
        if due && self.find(address).is_none() {
            self.read_ns = Some(now_ns);
            if let Some(file) = open(pid) {
                self.read(&file);
            }
        }
        self.find(address)
    }

    fn find(&self, address: u64) -> Option<&str> {
        let (_, (end, name)) = self.names.range(..=address).next_back()?;
        (address < *end).then_some(name.as_str())
    }

    /// Reads what was added since the last time.
    fn read(&mut self, file: &File) {
        let length = file.metadata().map_or(0, |kind| kind.len());
        if length < self.bytes_read {
            // Another file of the same name.
            *self = JitNames { read_ns: self.read_ns, ..JitNames::default() };
        }
        let added = (length - self.bytes_read).min(BYTES_MAX);
        let mut bytes = vec![0; usize::try_from(added).unwrap_or(0)];
        if file.read_exact_at(&mut bytes, self.bytes_read).is_ok() {
            self.bytes_read += self.add(&bytes) as u64;
        }
    }

    /// Adds complete lines and returns how many bytes they had.
    fn add(&mut self, bytes: &[u8]) -> usize {
        let Some(end) = memchr::memrchr(b'\n', bytes) else { return 0 };
        for line in bytes[..end].split(|&byte| byte == b'\n') {
            let Some((start, end, name)) = name_of(line) else { continue };
            if self.names.len() >= NAMES_MAX {
                self.names.clear();
            }
            // Newer code replaces older code with the same start.
            self.names.insert(start, (end, name));
        }
        end + 1
    }
}

/// Opens the file under the process's own pid and in its own /tmp.
fn open(pid: u32) -> Option<File> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let inner = inner.and_then(|line| line.split_whitespace().last())?;
    let path = format!("/proc/{pid}/root/tmp/perf-{inner}.map");
    // Opening a pipe of that name would block.
    std::fs::metadata(&path).ok()?.is_file().then(|| File::open(path).ok())?
}

fn name_of(line: &[u8]) -> Option<(u64, u64, String)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut parts = line.splitn(3, ' ');
    let mut number = || u64::from_str_radix(parts.next()?.trim_start_matches("0x"), 16).ok();
    let (start, length) = (number()?, number()?);
    let name = parts.next()?.trim();
    (!name.is_empty()).then_some((start, start.checked_add(length)?, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    #[test]
    fn added_names_are_read_and_the_last_one_at_a_start_counts() {
        let mut written = tempfile::tempfile().unwrap();
        let mut jit = JitNames::default();
        written
            .write_all(b"1000 10 old\nnonsense\n2000 8 LazyCompile:~f g.js:1\n3000 8 cu")
            .unwrap();
        jit.read(&written);
        assert_eq!(jit.find(0x100f), Some("old"));
        assert_eq!(jit.find(0x2007), Some("LazyCompile:~f g.js:1"));
        assert_eq!((jit.find(0x2008), jit.find(0xfff), jit.find(0x3000)), (None, None, None));
        written.write_all(b"t\n0x1000 0x20 new\n").unwrap();
        jit.read(&written);
        assert_eq!((jit.find(0x3000), jit.find(0x101f)), (Some("cut"), Some("new")));
        written.set_len(0).unwrap();
        jit.read(&written);
        assert_eq!(jit.find(0x1000), None, "the file was truncated");
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "([0-9a-fx]{0,20} [0-9a-f]{0,20} .{0,9}\n){0,9}") {
            let mut jit = JitNames::default();
            jit.add(text.as_bytes());
            let _ = jit.find(7);
        }
    }
}
