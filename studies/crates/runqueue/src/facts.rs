//! The figures that Yamamura et al. published in 2002, read from `studies/runqueue/facts.toml`,
//! which is the only place that contains them.

use serde::Serialize;
use toml::{Table, Value};

use crate::Layout;
use crate::drivers::Driver;

const FACTS: &str = include_str!("../../../runqueue/facts.toml");

/// Number of servers in the WebBench tables.
const PUBLISHED_HTTPD: u32 = 256;

/// The file.
#[derive(Debug)]
pub struct Facts(Table);

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
    #[must_use]
    pub fn read() -> Facts {
        Facts(FACTS.parse().expect("the facts are part of the program, and a test reads them"))
    }

    /// A text: the title of the source, or the description of a machine.
    #[must_use]
    pub fn text(&self, table: &str, key: &str) -> &str {
        self.0.get(table).and_then(|table| table.get(key)?.as_str()).unwrap_or_default()
    }

    /// A value of a row of a table.
    fn value(&self, table: &str, row: &str, at: usize) -> Option<f64> {
        let value = self.0.get(table)?.get(row)?.get(at)?;
        value.as_float().or_else(|| value.as_integer().map(|value| value as f64))
    }

    /// Table 2: misses in the walk, by cache size.
    #[must_use]
    pub fn by_size(&self, l2_kib: u64, layout: Layout) -> Option<f64> {
        let sizes = self.0.get("table2")?.get("l2_kib")?.as_array()?;
        let wanted = Value::Integer(l2_kib.try_into().ok()?);
        let at = sizes.iter().position(|kib| *kib == wanted)?;
        self.value("table2", &format!("{}_percent", row_of(layout)?), at)
    }

    /// Whether the published figures apply to this number of tasks: 256 for httpd. For the chat,
    /// with 2,400 threads, the number of runnable ones was not published.
    pub(super) fn comparable(driver: Driver, runnable: u32) -> bool {
        driver == Driver::Chat || runnable == PUBLISHED_HTTPD
    }

    /// Table 4: throughput over vanilla, percent.
    #[must_use]
    pub fn gain(&self, driver: Driver, cpus: u32, layout: Layout) -> Option<f64> {
        let at = cpus.checked_sub(1)? as usize;
        let table = (driver == Driver::WebBench).then_some("table4")?;
        self.value(table, row_of(layout)?, at)
    }

    /// Tables 5 and 7: misses in the walk.
    pub(super) fn missed(&self, driver: Driver, cpus: u32, layout: Layout) -> Option<f64> {
        let table = if driver == Driver::WebBench { "table5" } else { "table7" };
        self.value(table, row_of(layout)?, cpus.checked_sub(1)? as usize)
    }

    /// Tables 6 and 8: the lock. They begin with two processors.
    #[must_use]
    pub fn lock(&self, driver: Driver, cpus: u32, layout: Layout) -> Option<PublishedLock> {
        let table = if driver == Driver::WebBench { "table6" } else { "table8" };
        let (row, at) = (row_of(layout)?, cpus.checked_sub(2)? as usize);
        let value = |what: &str| self.value(table, &format!("{row}_{what}"), at);
        Some(PublishedLock {
            contention_percent: value("contention_percent")?,
            hold_mean_us: value("hold_mean_us")?,
            hold_max_us: value("hold_max_us"),
        })
    }
}

/// The name of a layout's rows.
fn row_of(layout: Layout) -> Option<&'static str> {
    match layout {
        Layout::Vanilla => Some("vanilla"),
        Layout::Colours(32) => Some("colours32"),
        Layout::MultiQueue => Some("multi_queue"),
        _ => None,
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
