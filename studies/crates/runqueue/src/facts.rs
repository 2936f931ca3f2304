//! The figures that Yamamura et al. published in 2002, read from `studies/runqueue/facts.toml`,
//! which is the only place that contains them.

use serde::{Deserialize, Serialize};

use crate::Layout;
use crate::drivers::Driver;

const FACTS: &str = include_str!("../../../runqueue/facts.toml");

/// Number of servers in the WebBench tables.
const PUBLISHED_HTTPD: u32 = 256;

#[derive(Debug, Deserialize)]
pub(super) struct Facts {
    pub(super) source: Source,
    pub(super) machine: Machines,
    table2: BySize,
    table4: Gains,
    table5: Misses,
    table6: Locks,
    table7: Misses,
    table8: Locks,
}

#[derive(Debug, Deserialize)]
pub(super) struct Source {
    pub(super) title: String,
}

/// Descriptions of the machines for the two workloads.
#[derive(Debug, Deserialize)]
pub(super) struct Machines {
    pub(super) webbench: String,
    pub(super) chat: String,
}

/// By size of the second level, KiB.
#[derive(Debug, Deserialize)]
struct BySize {
    l2_kib: Vec<u64>,
    vanilla_percent: Vec<f64>,
    colours32_percent: Vec<f64>,
}

/// Indexed by the number of processors, from one.
#[derive(Debug, Deserialize)]
struct Gains {
    colours32: Vec<f64>,
    multi_queue: Vec<f64>,
}

/// Indexed by the number of processors, from one.
#[derive(Debug, Deserialize)]
struct Misses {
    vanilla: Vec<f64>,
    colours32: Vec<f64>,
}

/// Indexed by the number of processors, from two.
#[derive(Debug, Deserialize)]
struct Locks {
    vanilla_contention_percent: Vec<f64>,
    vanilla_hold_mean_us: Vec<f64>,
    vanilla_hold_max_us: Option<Vec<f64>>,
    colours32_contention_percent: Vec<f64>,
    colours32_hold_mean_us: Vec<f64>,
    colours32_hold_max_us: Option<Vec<f64>>,
}

/// The published use of the run queue's lock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PublishedLock {
    /// Attempts that found it held, percent.
    pub contention_percent: f64,
    /// Mean hold time, microseconds.
    pub hold_mean_us: f64,
    /// Longest hold time, microseconds; not published for the chat.
    pub hold_max_us: Option<f64>,
}

impl Facts {
    /// Reads all facts.
    pub(super) fn read() -> Facts {
        toml::from_str(FACTS).expect("the facts are part of the program, and a test reads them")
    }

    /// Table 2: misses in the walk, by cache size.
    pub(super) fn by_size(&self, l2_kib: u64, layout: Layout) -> Option<f64> {
        let at = self.table2.l2_kib.iter().position(|kib| *kib == l2_kib)?;
        match layout {
            Layout::Vanilla => self.table2.vanilla_percent.get(at).copied(),
            Layout::Colours(32) => self.table2.colours32_percent.get(at).copied(),
            _ => None,
        }
    }

    /// Whether the published figures apply to this number of tasks: 256 for httpd. For the chat,
    /// with 2,400 threads, the number of runnable ones was not published.
    pub(super) fn comparable(driver: Driver, runnable: u32) -> bool {
        driver == Driver::Chat || runnable == PUBLISHED_HTTPD
    }

    /// Table 4: throughput over vanilla, percent.
    pub(super) fn gain(&self, driver: Driver, cpus: u32, layout: Layout) -> Option<f64> {
        let row = match (driver, layout) {
            (Driver::WebBench, Layout::Colours(32)) => &self.table4.colours32,
            (Driver::WebBench, Layout::MultiQueue) => &self.table4.multi_queue,
            _ => return None,
        };
        row.get(cpus.checked_sub(1)? as usize).copied()
    }

    /// Tables 5 and 7: misses in the walk.
    pub(super) fn missed(&self, driver: Driver, cpus: u32, layout: Layout) -> Option<f64> {
        let table = match driver {
            Driver::WebBench => &self.table5,
            Driver::Chat => &self.table7,
        };
        let row = match layout {
            Layout::Vanilla => &table.vanilla,
            Layout::Colours(32) => &table.colours32,
            _ => return None,
        };
        row.get(cpus.checked_sub(1)? as usize).copied()
    }

    /// Tables 6 and 8: the lock.
    pub(super) fn lock(&self, driver: Driver, cpus: u32, layout: Layout) -> Option<PublishedLock> {
        let table = match driver {
            Driver::WebBench => &self.table6,
            Driver::Chat => &self.table8,
        };
        let at = cpus.checked_sub(2)? as usize;
        let (contention, mean, max) = match layout {
            Layout::Vanilla => (
                &table.vanilla_contention_percent,
                &table.vanilla_hold_mean_us,
                &table.vanilla_hold_max_us,
            ),
            Layout::Colours(32) => (
                &table.colours32_contention_percent,
                &table.colours32_hold_mean_us,
                &table.colours32_hold_max_us,
            ),
            _ => return None,
        };
        Some(PublishedLock {
            contention_percent: *contention.get(at)?,
            hold_mean_us: *mean.get(at)?,
            hold_max_us: max.as_ref().and_then(|max| max.get(at).copied()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_facts_are_read() {
        let facts = Facts::read();
        let colours = Layout::Colours(32);
        assert_eq!(facts.by_size(256, colours), Some(82.7));
        assert_eq!(facts.by_size(1024, Layout::Vanilla), Some(99.5));
        assert_eq!(facts.by_size(2048, colours), None);
        assert_eq!(facts.gain(Driver::WebBench, 1, Layout::MultiQueue), Some(-3.0));
        assert_eq!(facts.gain(Driver::WebBench, 8, colours), Some(23.3));
        assert_eq!(facts.gain(Driver::WebBench, 9, colours), None);
        assert_eq!(facts.gain(Driver::Chat, 1, colours), None);
        assert_eq!(facts.missed(Driver::WebBench, 2, Layout::Vanilla), Some(98.0));
        assert_eq!(facts.missed(Driver::Chat, 1, colours), Some(3.2));
        assert_eq!(facts.missed(Driver::Chat, 1, Layout::MultiQueue), None);
        assert_eq!(facts.lock(Driver::WebBench, 1, Layout::Vanilla), None);
        let lock = facts.lock(Driver::WebBench, 8, Layout::Vanilla).unwrap();
        assert_eq!((lock.contention_percent, lock.hold_mean_us), (45.6, 36.0));
        assert_eq!(lock.hold_max_us, Some(156.0));
        let lock = facts.lock(Driver::Chat, 2, colours).unwrap();
        assert_eq!((lock.contention_percent, lock.hold_max_us), (23.6, None));
    }
}
