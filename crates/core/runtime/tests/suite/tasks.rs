//! Tasks, their handles, and their communication on one core.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use runtime::stop::StopSource;
use runtime::sync::{Notify, SendError, inbox};
use runtime::time::sleep;
use runtime::{Either, join, race, spawn, spawn_detached, yield_now};

use crate::Ground;

pub(crate) async fn a_task_gives_its_output(_: Ground) {
    let inner = spawn(async { 20 });
    let outer = spawn(async move { inner.await + spawn(async { 22 }).await });
    assert!(!outer.is_finished());
    assert_eq!(outer.await, 42);
    let done = spawn(async { "early" });
    sleep(Duration::from_millis(1)).await;
    assert!(done.is_finished());
    assert_eq!(done.await, "early");
}

pub(crate) async fn a_dropped_handle_detaches(_: Ground) {
    let ran = Rc::new(Cell::new(false));
    let flag = Rc::clone(&ran);
    drop(spawn(async move {
        sleep(Duration::from_millis(1)).await;
        flag.set(true);
    }));
    while !ran.get() {
        sleep(Duration::from_millis(1)).await;
    }
    yield_now().await;
    assert_eq!(runtime::tasks(), 0);
}

pub(crate) async fn a_detached_task_runs_and_is_dropped(_: Ground) {
    let dropped = Rc::new(Cell::new(false));
    let guard = SetOnDrop(Rc::clone(&dropped));
    let polls = Rc::new(Cell::new(0));
    let count = Rc::clone(&polls);
    spawn_detached(async move {
        let _guard = guard;
        for _ in 0..3 {
            count.set(count.get() + 1);
            sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(runtime::tasks(), 1);
    while !dropped.get() {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((polls.get(), runtime::tasks()), (3, 0));
}

struct SetOnDrop(Rc<Cell<bool>>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

pub(crate) async fn abort_drops_the_future_at_once(_: Ground) {
    let dropped = Rc::new(Cell::new(false));
    let guard = SetOnDrop(Rc::clone(&dropped));
    let task = spawn(async move {
        pending::<()>().await;
        drop(guard);
    });
    yield_now().await;
    assert!(!dropped.get());
    task.abort();
    assert!(dropped.get(), "gone when abort returns");
    yield_now().await;
    yield_now().await;
    assert_eq!(runtime::tasks(), 0, "and its slot is free");
    spawn(async {}).abort(); // before it was ever polled
    let finished = spawn(async {});
    yield_now().await;
    yield_now().await;
    finished.abort();
    yield_now().await;
    assert_eq!(runtime::tasks(), 0);
}

pub(crate) async fn a_task_can_abort_itself(_: Ground) {
    let dropped = Rc::new(Cell::new(false));
    let guard = SetOnDrop(Rc::clone(&dropped));
    let own = Rc::new(RefCell::new(None));
    let handle = Rc::clone(&own);
    let task = spawn(async move {
        let _guard = guard;
        yield_now().await;
        let me: runtime::JoinHandle<()> = handle.borrow_mut().take().unwrap();
        me.abort();
        pending::<()>().await;
    });
    *own.borrow_mut() = Some(task);
    while !dropped.get() {
        yield_now().await;
    }
    assert_eq!(runtime::tasks(), 0);
}

pub(crate) async fn a_stale_waker_wakes_no_other_task(_: Ground) {
    let kept: Rc<RefCell<Option<Waker>>> = Rc::default();
    let keep = Rc::clone(&kept);
    spawn(poll_fn(move |cx| {
        *keep.borrow_mut() = Some(cx.waker().clone());
        Poll::Ready(())
    }))
    .await;
    let polls = Rc::new(Cell::new(0));
    let count = Rc::clone(&polls);
    let stranger = spawn(poll_fn(move |_| -> Poll<()> {
        count.set(count.get() + 1);
        Poll::Pending
    }));
    yield_now().await;
    let before = polls.get();
    kept.borrow().as_ref().unwrap().wake_by_ref();
    for _ in 0..3 {
        yield_now().await;
    }
    assert_eq!(polls.get(), before);
    stranger.abort();
}

pub(crate) async fn yielding_lets_the_others_run(_: Ground) {
    let log = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..3)
        .map(|task| {
            let log = Rc::clone(&log);
            spawn(async move {
                for round in 0..3 {
                    log.borrow_mut().push((round, task));
                    yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    let mut sorted = log.borrow().clone();
    sorted.sort_unstable();
    assert_eq!(*log.borrow(), sorted, "one round after the other");
}

/// A peer that always has more data must not monopolise the core.
pub(crate) async fn a_busy_task_does_not_starve_the_others(_: Ground) {
    let (client, server) = crate::pair().await;
    let sent = client.write_all(&[7; 512]).await;
    sent.unwrap();
    let turns = Rc::new(Cell::new(0));
    let count = Rc::clone(&turns);
    let other = spawn(async move {
        loop {
            count.set(count.get() + 1);
            yield_now().await;
        }
    });
    server.readable().await.unwrap();
    for _ in 0..2_000 {
        server.readable().await.unwrap(); // never cleared
    }
    assert!(turns.get() > 5, "{} turns", turns.get());
    other.abort();
}

pub(crate) async fn ten_thousand_tasks(_: Ground) {
    let sum = Rc::new(Cell::new(0_u64));
    let tasks: Vec<_> = (0..10_000_u64)
        .map(|i| {
            let sum = Rc::clone(&sum);
            spawn(async move {
                yield_now().await;
                sum.set(sum.get() + i);
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    assert_eq!(sum.get(), 10_000 * 9_999 / 2);
    assert_eq!(runtime::tasks(), 0);
}

pub(crate) async fn race_and_join(_: Ground) {
    let quick = sleep(Duration::from_millis(1));
    let first = race(pending::<()>(), quick).await;
    assert_eq!(first, Either::Right(()));
    assert_eq!(race(async { 1 }, async { 2 }).await, Either::Left(1), "left wins a tie");
    let slow = async {
        sleep(Duration::from_millis(2)).await;
        1
    };
    assert_eq!(join(slow, async { 2 }).await, (1, 2));
}

pub(crate) async fn notify_one_and_all(_: Ground) {
    let notify = Rc::new(Notify::new());
    let order = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..4)
        .map(|i| {
            let (notify, order) = (Rc::clone(&notify), Rc::clone(&order));
            spawn(async move {
                notify.notified().await;
                order.borrow_mut().push(i);
            })
        })
        .collect();
    yield_now().await;
    yield_now().await;
    assert_eq!(notify.waiting(), 4);
    notify.notify_one();
    notify.notify_one();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(*order.borrow(), [0, 1], "those who waited longest");
    notify.notify_all();
    for task in tasks {
        task.await;
    }
    assert_eq!(order.borrow().len(), 4);
    let made_before = notify.notified();
    notify.notify_all();
    made_before.await;
    notify.notify_one(); // no task waits: kept for the next
    notify.notified().await;
    assert_eq!(notify.waiting(), 0);
}

pub(crate) async fn a_dropped_waiter_passes_its_turn_on(_: Ground) {
    let notify = Rc::new(Notify::new());
    let waiter = |notify: &Rc<Notify>| {
        let notify = Rc::clone(notify);
        spawn(async move { notify.notified().await })
    };
    let (first, second) = (waiter(&notify), waiter(&notify));
    yield_now().await;
    yield_now().await;
    notify.notify_one();
    first.abort(); // chosen, but never polled
    second.await;
}

pub(crate) async fn an_inbox_on_one_core(_: Ground) {
    let (sender, mut inbox) = inbox(2);
    assert_eq!(inbox.try_recv(), None);
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    assert_eq!(sender.send(3), Err(SendError::Full(3)));
    assert_eq!(inbox.recv().await, Some(1));
    sender.send(3).unwrap();
    let other = sender.clone();
    drop(sender);
    assert_eq!(inbox.recv().await, Some(2));
    assert_eq!(inbox.recv().await, Some(3));
    let last = spawn(async move {
        sleep(Duration::from_millis(1)).await;
        other.send(4).unwrap();
    });
    assert_eq!(inbox.recv().await, Some(4));
    last.await;
    assert_eq!(inbox.recv().await, None);
    let (sender, closed) = runtime::sync::inbox(1);
    drop(closed);
    assert_eq!(sender.send(1), Err(SendError::Closed(1)));
}

pub(crate) async fn stop_reaches_everybody(_: Ground) {
    let source = StopSource::new();
    let count = Rc::new(Cell::new(0));
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let (token, count) = (source.token(), Rc::clone(&count));
            spawn(async move {
                token.stopped().await;
                count.set(count.get() + 1);
            })
        })
        .collect();
    let token = source.token();
    let given_up = runtime::time::timeout(Duration::from_millis(2), token.stopped()).await;
    assert!(given_up.is_err() && !token.is_stopped());
    assert_eq!(count.get(), 0);
    source.stop();
    source.stop();
    for task in tasks {
        task.await;
    }
    assert_eq!(count.get(), 10);
    token.stopped().await; // and any later waiter
    assert!(source.is_stopped());
}
