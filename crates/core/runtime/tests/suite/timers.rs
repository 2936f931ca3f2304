//! Time. Nothing here asserts how long something took, only what came before what.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use runtime::time::{self, Elapsed, now, sleep, sleep_until, timeout};
use runtime::{Either, race, spawn, yield_now};

use crate::Ground;

const MS: Duration = Duration::from_millis(1);

pub(crate) async fn timers_fire_in_order_and_never_early(_: Ground) {
    let log = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = [7, 1, 5, 3, 70, 30, 0]
        .into_iter()
        .map(|ms| {
            let log = Rc::clone(&log);
            spawn(async move {
                let deadline = now() + ms * MS;
                sleep(ms * MS).await;
                assert!(now() >= deadline, "{ms} ms came early");
                log.borrow_mut().push(ms);
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    // A delayed core finds several timers due at once; they are still in order.
    assert_eq!(*log.borrow(), [0, 1, 3, 5, 7, 30, 70]);
}

pub(crate) async fn a_dropped_sleep_is_gone(_: Ground) {
    yield_now().await; // by now the harness has set its timer
    let before = runtime::counters();
    let task = spawn(sleep(Duration::from_millis(50)));
    while runtime::counters().since(&before).timers_set == 0 {
        yield_now().await;
    }
    task.abort();
    sleep(Duration::from_millis(60)).await;
    let since = runtime::counters().since(&before);
    assert_eq!((since.timers_set, since.timers_fired), (2, 1), "only the second one fired");
}

pub(crate) async fn a_deadline_can_be_moved_both_ways(_: Ground) {
    let start = now();
    let mut moved = sleep(2 * MS);
    assert!(!moved.is_armed(), "it has not been polled");
    assert_eq!(race(&mut moved, async {}).await, Either::Right(()), "it is in the wheel");
    moved.reset(start + 10 * MS);
    (&mut moved).await;
    assert!(now() >= start + 10 * MS, "later");
    assert!(!moved.is_armed(), "it has fired");
    let far = start + Duration::from_secs(3600);
    moved.reset(far);
    assert_eq!(race(&mut moved, async {}).await, Either::Right(()));
    assert!(moved.is_armed());
    moved.reset(far + MS);
    assert!(moved.is_armed(), "it looks again when it fires");
    moved.reset(now() + MS);
    assert!(!moved.is_armed(), "it must be set again");
    (&mut moved).await;
    assert!(now() < far, "earlier");
    moved.reset(now() - MS);
    moved.await;
    sleep_until(start).await;
}

pub(crate) async fn a_timeout_cuts_and_lets_pass(_: Ground) {
    assert_eq!(timeout(MS, std::future::pending::<()>()).await, Err(Elapsed));
    assert_eq!(timeout(Duration::from_secs(60), async { 3 }).await, Ok(3));
    let inner = timeout(Duration::MAX, sleep(MS));
    assert_eq!(inner.await, Ok(()));
    assert_eq!(timeout(Duration::ZERO, async { 4 }).await, Ok(4), "what is done wins");
    assert_eq!(timeout(Duration::ZERO, yield_now()).await, Err(Elapsed));
}

pub(crate) async fn the_clock_does_not_move_within_a_turn(ground: Ground) {
    let cached = now();
    let started = std::time::Instant::now();
    while !ground.is_twin() && started.elapsed().is_zero() {}
    assert_eq!(now(), cached);
    sleep(MS).await;
    assert!(now() > cached);
    let wall = time::wall_ms();
    sleep(2 * MS).await;
    if ground.is_twin() {
        assert!(time::wall_ms() > wall);
        let epoch = 1_767_225_600_000; // 1 January 2026
        assert!((epoch..epoch + 24 * 3_600_000).contains(&wall));
    }
}

pub(crate) async fn ten_thousand_timers(_: Ground) {
    let tasks: Vec<_> = (0..10_000_u32).map(|i| spawn(sleep(i % 50 * MS))).collect();
    for task in tasks {
        task.await;
    }
}
