//! The swap-ins and swap-outs of a server, extracted from the output of `strace`.
//!
//! What: the reads (or writes) of a descriptor between the opening of a file in the cache's
//! directory and its close, with the time at which each began and how long it took. What never
//! happens: a guess. A line that is not understood is left out, and a swap without its open or
//! close does not count.

use std::collections::HashMap;

/// One object read from the cache or written to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Swap {
    /// The file's name.
    pub(super) file: String,
    /// Whether it was written, not read.
    pub(super) out: bool,
    /// Bytes of each read or write, in order.
    pub(super) calls: Vec<u64>,
    /// Microseconds from the open to the end of the call with the first block.
    pub(super) first_us: f64,
    /// Microseconds to the end of the last call.
    pub(super) total_us: f64,
}

impl Swap {
    pub(super) fn bytes(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// Calls that transferred nothing.
    pub(super) fn zero(&self) -> u64 {
        self.calls.iter().filter(|bytes| **bytes == 0).count() as u64
    }
}

/// One system call.
struct Call<'t> {
    begun_s: f64,
    took_s: f64,
    name: &'t str,
    arguments: &'t str,
    result: i64,
}

/// The swaps of files under `directory`, in the order in which they ended. The trace is the output
/// of `strace -f -ttt -T`.
pub(super) fn swaps(trace: &str, directory: &str) -> Vec<Swap> {
    let mut open: HashMap<i64, (f64, Swap)> = HashMap::new();
    let mut done = Vec::new();
    for call in trace.lines().filter_map(parsed) {
        let descriptor = || call.arguments.split([',', ')']).next()?.trim().parse::<i64>().ok();
        match call.name {
            "openat" | "open" if call.result >= 0 => {
                open.remove(&call.result);
                let Some(path) = call.arguments.split('"').nth(1) else { continue };
                let Some(inside) = path.strip_prefix(directory) else { continue };
                // Squid names its objects 00/00/00000000; the rest are its indexes.
                let Some((_, name)) = inside.rsplit_once('/') else { continue };
                if name.len() != 8 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    continue;
                }
                let out = ["O_WRONLY", "O_RDWR"].iter().any(|flag| call.arguments.contains(flag));
                let swap = Swap { file: name.to_owned(), out, ..Swap::default() };
                open.insert(call.result, (call.begun_s, swap));
            }
            "read" | "pread64" | "preadv" | "preadv2" | "write" | "pwrite64" | "writev"
            | "pwritev" => {
                let Some((begun_s, swap)) = descriptor().and_then(|fd| open.get_mut(&fd)) else {
                    continue;
                };
                let Ok(bytes) = u64::try_from(call.result) else { continue };
                swap.total_us = (call.begun_s + call.took_s - *begun_s) * 1e6;
                // A file that is written begins with Squid's own header.
                if swap.calls.len() <= usize::from(swap.out) {
                    swap.first_us = swap.total_us;
                }
                swap.calls.push(bytes);
            }
            "close" => {
                let closed = descriptor().and_then(|fd| open.remove(&fd));
                done.extend(closed.map(|(_, swap)| swap).filter(|swap| !swap.calls.is_empty()));
            }
            _ => {}
        }
    }
    done
}

/// `20944 1795326969.421016 openat(AT_FDCWD, "/c/00/00/00000004", O_RDONLY) = 17 <0.000008>`
fn parsed(line: &str) -> Option<Call<'_>> {
    // The process id is padded to a fixed width.
    let (_pid, rest) = line.split_once(' ')?;
    let (begun, call) = rest.trim_start().split_once(' ')?;
    let begun_s = begun.parse().ok()?;
    let (name, rest) = call.split_once('(')?;
    // The data comes before the result and may contain anything.
    let (arguments, tail) = rest.rsplit_once(" = ")?;
    let result = tail.split(' ').next()?.parse().ok()?;
    let took_s = tail.rsplit_once('<')?.1.trim_end_matches('>').parse().ok()?;
    Some(Call { begun_s, took_s, name, arguments, result })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trace of Squid 5.7 with a ufs cache_dir by strace 6.1.
    const SEEN: &str = include_str!("seen.strace");

    #[test]
    fn swaps_are_read_from_open_to_close() {
        let swaps = swaps(SEEN, "/c");
        assert_eq!(swaps.len(), 2, "{swaps:?}");
        assert!(swaps[0].out && !swaps[1].out);
        assert_eq!(swaps[0].calls, [123, 4096]);
        assert!((swaps[0].first_us - 168.0).abs() < 0.5, "{swaps:?}");
        assert!((swaps[0].total_us - 168.0).abs() < 0.5, "{swaps:?}");
        assert_eq!(swaps[1].file, "00000005");
        assert_eq!(swaps[1].calls, [4096, 266, 0]);
        assert_eq!((swaps[1].bytes(), swaps[1].zero()), (4362, 1));
        assert!((swaps[1].first_us - 84.0).abs() < 0.5, "{swaps:?}");
        assert!((swaps[1].total_us - 221.0).abs() < 0.5, "{swaps:?}");
    }

    #[test]
    fn a_trace_of_anything_else_has_none() {
        assert!(swaps("", "/c").is_empty());
        assert!(swaps("strace: Process 1 attached\n\u{fffd} = \n1 2 x(\n", "/c").is_empty());
        assert!(swaps(SEEN, "/other").is_empty());
    }
}
