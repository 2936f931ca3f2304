//! Reading /proc: bytes to numbers. No state, no judgement.
//!
//! Every reader takes a path's bytes in one read into a caller's buffer, because /proc makes a
//! file anew at every open and a sample must not cost more than it tells. A file that does not
//! parse is `None`: the process ended in between, or the kernel is not one we know.

use std::fs::File;
use std::io::{self, Read};

/// What `/proc/PID/stat` tells of a process or (under `task`) of a thread. Times in clock ticks.
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
    /// Whether it has ended and waits for its parent to notice.
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

/// The numbers that are names in a directory: the processes of /proc, the threads of a process.
pub(crate) fn numbers(path: &str) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        // An entry that ends while it is listed is not there.
        let Ok(entry) = entry else { continue };
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            found.push(number);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Parses a `stat` (proc(5)). The name stands in parentheses and may hold any byte, also `)`.
pub(crate) fn stat(bytes: &[u8]) -> Option<Stat> {
    let open = memchr::memchr(b'(', bytes)?;
    let close = memchr::memrchr(b')', bytes)?;
    let name = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    // The field of proc(5) with number n stands at n - 3.
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

/// Voluntary and involuntary context switches, from a thread's `status`.
pub(crate) fn switches(bytes: &[u8]) -> Option<(u64, u64)> {
    // They are the last lines; looking from the end spares the fifty before them.
    let find = |label: &[u8]| {
        let at = memchr::memmem::rfind(bytes, label)? + label.len();
        let line = bytes[at..].split(|&byte| byte == b'\n').next()?;
        std::str::from_utf8(line).ok()?.trim().parse().ok()
    };
    Some((find(b"\nvoluntary_ctxt_switches:")?, find(b"\nnonvoluntary_ctxt_switches:")?))
}

/// The CPU that a thread is held to, from its `status`; `None` if it may run on several.
pub(crate) fn only_cpu(bytes: &[u8]) -> Option<u32> {
    let label = b"\nCpus_allowed_list:";
    let at = memchr::memmem::rfind(bytes, label)? + label.len();
    let line = bytes[at..].split(|&byte| byte == b'\n').next()?;
    // A list of one is a number, of several "0-3" or "0,2".
    std::str::from_utf8(line).ok()?.trim().parse().ok()
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
    fn a_thread_is_held_to_a_cpu_if_its_list_has_one() {
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
