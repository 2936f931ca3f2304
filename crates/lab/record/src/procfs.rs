//! Reading /proc: bytes to numbers. No state, no judgement.
//!
//! Every reader reads a file in one go into the caller's buffer: /proc generates a file again at
//! every open, and a sample must cost less than it is worth. A file that does not parse is `None`:
//! the process has ended in the meantime, or the kernel is one we do not know.

use std::fs::File;
use std::io::{self, Read};

/// The fields of `/proc/PID/stat`, for a process or (under `task`) a thread. Times are in clock
/// ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) user_ticks: i64,
    pub(crate) kernel_ticks: i64,
    pub(crate) reaped_user_ticks: i64,
    pub(crate) reaped_kernel_ticks: i64,
    pub(crate) threads: u32,
    pub(crate) start_ticks: u64,
    pub(crate) rss_pages: u64,
}

impl Stat {
    /// Whether it has ended and waits for its parent to collect it.
    pub(crate) fn ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// Reads a whole file of /proc into `buffer`.
pub(crate) fn read<'b>(path: &str, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
    buffer.clear();
    File::open(path)?.read_to_end(buffer)?;
    Ok(buffer)
}

/// The entries of a directory that are numbers: the processes of /proc, the threads of a process.
pub(crate) fn numbers(path: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        // An entry that ends during the listing is skipped.
        let Ok(entry) = entry else { continue };
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            found.push(number);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Parses a `stat` (proc(5)). The name is in parentheses and may contain any byte, even `)`.
pub(crate) fn stat(bytes: &[u8]) -> Option<Stat> {
    let open = memchr::memchr(b'(', bytes)?;
    let close = memchr::memrchr(b')', bytes)?;
    let name = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    // Field number n of proc(5) has the index n - 3.
    let fields: Vec<&str> = rest.split_ascii_whitespace().take(22).collect();
    let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
    Some(Stat {
        name,
        state: *fields.first()?.as_bytes().first()?,
        parent: u32::try_from(number(1)?).ok()?,
        user_ticks: number(11)?,
        kernel_ticks: number(12)?,
        reaped_user_ticks: number(13)?,
        reaped_kernel_ticks: number(14)?,
        threads: u32::try_from(number(17)?).ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
        rss_pages: u64::try_from(number(21)?).unwrap_or(0),
    })
}

/// The first field of a thread's `schedstat`: its time on a CPU, ns.
pub(crate) fn schedstat_ns(bytes: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// The threads of a process; none if it has ended.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task")).unwrap_or_default()
}

/// The `stat` of a process, if it still exists.
pub(crate) fn stat_of(pid: u32, buffer: &mut Vec<u8>) -> Option<Stat> {
    stat(read(&format!("/proc/{pid}/stat"), buffer).ok()?)
}

/// Voluntary and involuntary context switches, from a thread's `status`.
pub(crate) fn switches(bytes: &[u8]) -> Option<(u64, u64)> {
    let find = |label: &[u8]| value_of(bytes, label)?.parse().ok();
    Some((find(b"\nvoluntary_ctxt_switches:")?, find(b"\nnonvoluntary_ctxt_switches:")?))
}

/// The only CPU that a thread may run on, from its `status`; `None` if there are several.
pub(crate) fn only_cpu(bytes: &[u8]) -> Option<u32> {
    // A list of one CPU is a number; longer ones are like "0-3" or "0,2".
    value_of(bytes, b"\nCpus_allowed_list:")?.parse().ok()
}

/// The rest of the line that begins with `label`. The wanted lines are among the last: searching
/// from the end skips the fifty lines before them.
fn value_of<'s>(status: &'s [u8], label: &[u8]) -> Option<&'s str> {
    let at = memchr::memmem::rfind(status, label)? + label.len();
    let line = status[at..].split(|&byte| byte == b'\n').next()?;
    Some(std::str::from_utf8(line).ok()?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &[u8] = b"4242 (a) b (c) S 17 1 1 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 3 0 1337 \
        3133440 380 18446744073709551615 1 1\n";

    #[test]
    fn a_stat_with_parentheses_in_its_name() {
        let stat = stat(LINE).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), ("a) b (c", b'S', 17));
        assert_eq!((stat.user_ticks, stat.kernel_ticks), (50, 60));
        assert_eq!((stat.reaped_user_ticks, stat.reaped_kernel_ticks), (7, 8));
        assert_eq!((stat.threads, stat.start_ticks, stat.rss_pages), (3, 1337, 380));
        assert!(!stat.ended());
    }

    #[test]
    fn this_process_is_readable() {
        let mut buffer = Vec::new();
        let own = stat(read("/proc/self/stat", &mut buffer).unwrap()).unwrap();
        assert!(own.threads >= 1 && own.rss_pages > 0);
        let tids = numbers("/proc/self/task").unwrap();
        assert!(tids.contains(&std::process::id()));
        let path = format!("/proc/self/task/{}/status", tids[0]);
        assert!(switches(read(&path, &mut buffer).unwrap()).is_some());
        assert!(schedstat_ns(read("/proc/self/schedstat", &mut buffer).unwrap()).unwrap() > 0);
    }

    #[test]
    fn the_two_kinds_of_switches_are_not_confused() {
        let status = b"Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t5\n";
        assert_eq!(switches(status), Some((7, 5)));
        assert_eq!(switches(b"Name:\tx\n"), None);
    }

    #[test]
    fn a_thread_is_bound_to_a_cpu_if_its_list_has_only_that_one() {
        let status =
            |list: &str| format!("Name:\tx\nCpus_allowed_list:\t{list}\nMems_allowed:\t1\n");
        assert_eq!(only_cpu(status("12").as_bytes()), Some(12));
        for several in ["0-1", "0,2", ""] {
            assert_eq!(only_cpu(status(several).as_bytes()), None, "{several:?}");
        }
        assert_eq!(only_cpu(b"Name:\tx\n"), None);
    }

    proptest! {
        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (stat(&bytes), schedstat_ns(&bytes), switches(&bytes), only_cpu(&bytes));
        }

        #[test]
        fn a_cut_stat_never_panics(keep in 0..LINE.len()) {
            let _ = stat(&LINE[..keep]);
        }
    }
}
