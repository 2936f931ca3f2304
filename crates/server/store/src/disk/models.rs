//! The flusher and the callers that wait for it: loom runs each model in every order, and reports a
//! caller that is never woken.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use runtime::sync::primitives::AtomicU64;
use runtime::sync::primitives::loom::{self, future::block_on, thread};

use super::journal::{Change, Journal, NotDurable};
use super::signal::{Rounds, Signal};

#[test]
fn a_signal_that_is_raised_is_never_missed() {
    loom::model(|| {
        let signal = Arc::new(Signal::default());
        let raised = Arc::clone(&signal);
        let raising = thread::spawn(move || raised.raise());
        block_on(signal.wait());
        raising.join().unwrap();
    });
}

/// Writes what was put before each round, then ends.
fn flusher(rounds: &Rounds, put: &AtomicU64, written: &AtomicU64) {
    rounds.begin();
    written.store(put.load(Ordering::Relaxed), Ordering::Relaxed);
    rounds.end();
    rounds.finish();
}

/// A flush while the store was closed reported an object as written that was put after the last
/// round; or it waited for ever, for a round after the last one.
#[test]
fn a_flush_during_the_close_never_takes_an_unwritten_object_for_written() {
    loom::model(|| {
        let rounds = Arc::new(Rounds::default());
        let (put, written) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let flushing = thread::spawn({
            let (rounds, put, written) = (rounds.clone(), put.clone(), written.clone());
            move || flusher(&rounds, &put, &written)
        });
        put.store(1, Ordering::Relaxed);
        let round = rounds.ask();
        if block_on(rounds.wait(round)) {
            assert_eq!(written.load(Ordering::Relaxed), 1);
        }
        flushing.join().unwrap();
    });
}

#[test]
fn a_change_is_reported_durable_only_after_it_was_written() {
    for fails in [false, true] {
        loom::model(move || {
            let (journal, on_disk) = (Arc::new(Journal::default()), Arc::new(AtomicU64::new(0)));
            let committing = thread::spawn({
                let (journal, on_disk) = (journal.clone(), on_disk.clone());
                move || {
                    block_on(journal.signal.wait());
                    let (_, position) = journal.take();
                    if fails {
                        return journal.note_failed(true);
                    }
                    on_disk.store(position, Ordering::Relaxed);
                    journal.note_durable(position);
                }
            });
            let position = journal.append(&Change::Delete { print: 1 });
            let result = block_on(journal.durable(position));
            assert_eq!(result, if fails { Err(NotDurable) } else { Ok(()) });
            assert!(fails || on_disk.load(Ordering::Relaxed) >= position);
            committing.join().unwrap();
        });
    }
}
