//! Models of what cores share: loom runs them in every order that the memory model allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::primitives::loom::{self, future::block_on, thread};
use super::{SendError, inbox};
use crate::stop::StopSource;

/// A lost wake would leave the receiver asleep, which loom reports.
#[test]
fn a_receiver_gets_all_messages_in_order_and_the_end() {
    loom::model(|| {
        let (sender, mut inbox) = inbox(2);
        let last = sender.clone();
        let sending = thread::spawn(move || {
            sender.send(1).unwrap();
            sender.send(2).unwrap();
        });
        let received = async { [inbox.recv().await, inbox.recv().await] };
        assert_eq!(block_on(received), [Some(1), Some(2)]);
        let ending = thread::spawn(move || drop(last));
        assert_eq!(block_on(inbox.recv()), None);
        sending.join().unwrap();
        ending.join().unwrap();
    });
}

#[test]
fn no_message_of_two_senders_is_lost_or_exceeds_the_capacity() {
    loom::model(|| {
        let (sender, mut inbox) = inbox(1);
        let of_thread = sender.clone();
        let sending = thread::spawn(move || of_thread.send(1).is_ok());
        let sent = usize::from(sender.send(2).is_ok());
        let early = usize::from(inbox.try_recv().is_some());
        let sent = sent + usize::from(sending.join().unwrap());
        assert!(1 <= sent && sent <= 1 + early, "{sent} sent, {early} received meanwhile");
        drop(sender);
        let late = std::iter::from_fn(|| block_on(inbox.recv())).count();
        assert_eq!(early + late, sent);
    });
}

/// Counts when it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_message_to_a_receiver_that_goes_away_is_dropped_or_returned() {
    loom::model(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let (sender, inbox) = inbox(1);
        let leaving = thread::spawn(move || drop(inbox));
        let sent = sender.send(Counted(Arc::clone(&dropped)));
        leaving.join().unwrap();
        let returned = matches!(sent, Err(SendError::Closed(_)));
        assert_eq!(dropped.load(Ordering::Relaxed), usize::from(!returned));
    });
}

#[test]
fn no_task_that_waits_for_a_stop_misses_it() {
    loom::model(|| {
        let source = StopSource::new();
        let (token, other) = (source.token(), source.token());
        let stopping = thread::spawn(move || source.stop());
        // A future that is dropped does not take the wake of another one with it.
        drop(other.stopped());
        block_on(token.stopped());
        assert!(other.is_stopped());
        stopping.join().unwrap();
    });
}
