//! A process and its descendants, so that a server of several processes is measured as one.
//!
//! What: the pids of the family, read from /proc, and its CPU time. Why here: a driver of load
//! needs the cost to the server. What never happens: a process is changed.

use std::collections::BTreeMap;
use std::fs;

use crate::sys;

/// The pid and its current descendants.
pub fn of(pid: i32) -> Vec<i32> {
    let parents = parents();
    let mut family = vec![pid];
    let mut at = 0;
    while at < family.len() {
        let parent = family[at];
        family.extend(parents.iter().filter(|(_, of)| **of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    family
}

/// CPU time of a family so far, ns. Processes that have ended are not counted.
pub fn cpu_ns(family: &[i32]) -> u64 {
    family.iter().filter_map(|pid| sys::process_cpu_ns(*pid).ok()).sum()
}

/// The parent of each process.
fn parents() -> BTreeMap<i32, i32> {
    let parent_of = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may contain any byte. The state and the parent follow it.
        let after = &stat[stat.rfind(')')? + 1..];
        after.split_whitespace().nth(1)?.parse().ok()
    };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_family_is_a_process_and_its_children() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 30 & wait"]).stdin(Stdio::null());
        let mut shell = command.spawn().unwrap();
        let pid = i32::try_from(shell.id()).unwrap();
        let began = Instant::now();
        while of(pid).len() < 2 && began.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let family = of(pid);
        assert_eq!((family.len(), family[0]), (2, pid));
        assert!(cpu_ns(&family) > 0);
        for pid in &family {
            sys::terminate(*pid).unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(of(pid), [pid], "who has ended has no children");
    }
}
