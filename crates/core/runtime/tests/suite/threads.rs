//! What reaches a core from other threads.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use runtime::fs::unblock;
use runtime::spawn;
use runtime::stop::StopSource;
use runtime::sync::inbox;

use crate::Ground;

pub(crate) async fn a_waker_works_from_another_thread(_: Ground) {
    for round in 0..20 {
        let woken = Arc::new(AtomicBool::new(false));
        let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
        let (flag, shared) = (Arc::clone(&woken), Arc::clone(&waker));
        let thread = thread::spawn(move || {
            loop {
                if let Some(waker) = shared.lock().unwrap().take() {
                    flag.store(true, Ordering::Release);
                    return waker.wake();
                }
                thread::yield_now();
            }
        });
        let wait = poll_fn(move |cx| {
            if woken.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            *waker.lock().unwrap() = Some(cx.waker().clone());
            Poll::Pending
        });
        if round % 2 == 0 {
            wait.await
        } else {
            spawn(wait).await
        }
        thread.join().unwrap();
    }
}

pub(crate) async fn an_inbox_takes_from_many_threads(_: Ground) {
    const THREADS: u64 = 4;
    const MESSAGES: u64 = 2_000;
    let (sender, mut inbox) = inbox(100);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let sender = sender.clone();
            thread::spawn(move || {
                for i in 0..MESSAGES {
                    while sender.send(thread * MESSAGES + i).is_err() {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    drop(sender);
    let mut last = [None; THREADS as usize];
    let mut count = 0;
    while let Some(message) = inbox.recv().await {
        let (thread, i) = ((message / MESSAGES) as usize, message % MESSAGES);
        assert!(last[thread] < Some(i), "in the order of sending");
        last[thread] = Some(i);
        count += 1;
    }
    assert_eq!(count, THREADS * MESSAGES);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

pub(crate) async fn a_stop_from_another_thread(_: Ground) {
    let source = StopSource::new();
    let token = source.token();
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(2));
        source.stop();
    });
    token.stopped().await;
    assert!(token.is_stopped());
    thread.join().unwrap();
}

pub(crate) async fn blocking_work_is_done_elsewhere(ground: Ground) {
    let here = thread::current().id();
    let there = unblock(move || thread::current().id()).await;
    assert_eq!(here == there, ground.is_twin());
    if !ground.is_twin() {
        // The 41st field of proc_pid_stat(5); 3 is SCHED_BATCH: the submitting thread keeps the
        // processor.
        let stat = unblock(|| std::fs::read_to_string("/proc/thread-self/stat")).await.unwrap();
        let (_, behind_name) = stat.rsplit_once(") ").unwrap();
        assert_eq!(behind_name.split(' ').nth(38), Some("3"), "{stat}");
    }
    let works: Vec<_> = (0..50_u64)
        .map(|i| {
            spawn(unblock(move || {
                if i % 10 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                i
            }))
        })
        .collect();
    let mut sum = 0;
    for work in works {
        sum += work.await;
    }
    assert_eq!(sum, 50 * 49 / 2);
}
