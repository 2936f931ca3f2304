//! The counters of one core, each incremented where the event happens.
//!
//! The macro call below is the only list. It generates the fields of [`Counters`], their names and
//! their help for a metrics page. Each core counts in its own plain cells; nothing here is shared
//! between threads. Tests of the hot path assert differences of these counters, never durations.

use std::cell::Cell;

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident,)+) => {
        /// A copy of one core's counters. The difference of two copies says what happened in
        /// between.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl Counters {
            /// Every counter as (name, help, value), in the order of the list.
            pub fn list(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($name), concat!($($help),+).trim_ascii(), self.$name),)+]
            }

            /// What happened since `earlier`, a copy taken on the same core.
            #[must_use]
            pub fn since(&self, earlier: &Counters) -> Counters {
                Counters { $($name: self.$name - earlier.$name,)+ }
            }
        }

        /// The cells in which a core counts.
        #[derive(Debug, Default)]
        pub(crate) struct CounterCells {
            $(pub(crate) $name: Cell<u64>,)+
        }

        impl CounterCells {
            pub(crate) fn copy(&self) -> Counters {
                Counters { $($name: self.$name.get(),)+ }
            }
        }
    };
}

counters! {
    /// Turns of the core's loop.
    turns,
    /// Calls of the poller's wait.
    waits,
    /// Events that waits delivered.
    events,
    /// Descriptors registered with the poller.
    registers,
    /// Changes of a registered descriptor's interest.
    changes,
    /// Descriptors removed from the poller.
    removes,
    /// System calls that read from a socket.
    recv_calls,
    /// System calls that write to a socket.
    send_calls,
    /// System calls that accept a connection.
    accept_calls,
    /// System calls that start or finish a connect.
    connect_calls,
    /// Reads of a file answered on the core.
    file_reads_direct,
    /// Reads of a file that would have blocked and went to the pool.
    file_reads_would_block,
    /// Reads of a file that returned less than requested before its end.
    file_reads_short,
    /// Writes to a file.
    file_writes,
    /// Writes whose whole pages bypassed the page cache.
    file_writes_uncached,
    /// Syncs of a file.
    file_syncs,
    /// Jobs sent to the thread pool because they might block the core.
    pool_jobs,
    /// Tasks spawned.
    tasks_spawned,
    /// Times a task was polled.
    tasks_polled,
    /// Tasks that ended.
    tasks_ended,
    /// Timers set in the wheel.
    timers_set,
    /// Timers that fired.
    timers_fired,
    /// Wakes from another thread.
    remote_wakes,
}

/// Adds one.
pub(crate) fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_each_counter_with_its_help() {
        let cells = CounterCells::default();
        count(&cells.changes);
        let list = cells.copy().list();
        let changes = list.iter().find(|(name, _, _)| *name == "changes").unwrap();
        assert_eq!(*changes, ("changes", "Changes of a registered descriptor's interest.", 1));
        assert!(list.iter().all(|(_, help, _)| !help.is_empty()));
    }
}
