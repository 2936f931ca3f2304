//! A recording that runs in parallel to a test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use record::{Error, Spec, Summary, record};
use trial::Interval;

/// Longest wait for an interval.
const INTERVAL_MAX: Duration = Duration::from_secs(60);

/// More than the remainder that a recorder drops when it is stopped.
const REMAINDER: Duration = Duration::from_millis(20);

/// Each interval arrives as it is written.
pub(crate) struct Running {
    thread: thread::JoinHandle<Result<Summary, Error>>,
    intervals: mpsc::Receiver<Interval>,
    stop: &'static AtomicBool,
}

impl Running {
    pub(crate) fn start(spec: Spec) -> Running {
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let (sender, intervals) = mpsc::channel();
        let thread = thread::spawn(move || {
            record(&spec, stop, &mut |interval| {
                // A test that has seen enough no longer listens.
                let _ = sender.send(interval.clone());
            })
        });
        Running { thread, intervals, stop }
    }

    /// Waits until the first interval is written, or returns why there is none.
    #[allow(dead_code, reason = "most tests can always record")]
    pub(crate) fn begun(spec: Spec) -> Result<Running, Error> {
        let running = Running::start(spec);
        match running.intervals.recv_timeout(INTERVAL_MAX) {
            Ok(_) => Ok(running),
            Err(_) => Err(running.join().expect_err("a recording has intervals")),
        }
    }

    /// The same. `None`, with a message, if sockets cannot be observed here.
    #[allow(dead_code, reason = "most tests can always record")]
    pub(crate) fn begun_or_skipped(spec: Spec) -> Option<Running> {
        match Running::begun(spec) {
            Ok(running) => Some(running),
            Err(Error::Sockets { why }) => {
                println!("skipped: {why}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn next(&self) -> Interval {
        self.intervals.recv_timeout(INTERVAL_MAX).expect("it records")
    }

    /// What has happened until now is in an interval.
    pub(crate) fn stop(self) -> Summary {
        thread::sleep(REMAINDER);
        self.stop.store(true, Ordering::Relaxed);
        self.join().unwrap()
    }

    pub(crate) fn join(self) -> Result<Summary, Error> {
        self.thread.join().unwrap()
    }
}
