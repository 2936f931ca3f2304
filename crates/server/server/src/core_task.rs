//! One core's loop: it accepts, ticks, and ends.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use core_io::{CoreIo, Draining};
use exchange::Worker;
use metrics::Counters;
use policy::overload::Sample;
use runtime::stop::StopToken;
use runtime::time::{self, Instant, Turns};
use runtime::{Either, JoinHandle};

use crate::change::{Change, Changes};
use crate::hold::hold_now_and_then;
use crate::listening::Listening;

/// How often a core hands over its log lines, sweeps its pool and publishes its counters.
const TICK: Duration = Duration::from_millis(100);
/// Turns of the core in which tunnels must end when the drain time-out is over.
const CUT_TURNS_MAX: usize = 100;

/// A worker and the state of its loop.
#[derive(Debug)]
pub(crate) struct CoreTask {
    pub(crate) worker: Rc<Worker>,
    /// Serve the addresses that a process leaves when another one replaces it: the admin address
    /// and those of queries, if this core has them.
    pub(crate) at_addresses: RefCell<Vec<JoinHandle<()>>>,
    /// Answers of the admin address that are in progress on this core.
    pub(crate) admin_answers: Cell<usize>,
    /// Readings of the last tick.
    measured: Cell<Measured>,
}

/// What a core reads at a tick, to compare it with the next one.
#[derive(Clone, Copy, Debug)]
struct Measured {
    at: Instant,
    cpu: Duration,
    starved: Duration,
    turns: Turns,
    requests: u64,
}

impl Measured {
    fn now(counters: &Counters) -> Measured {
        let requests = counters.requests.get();
        let held = Duration::from_nanos(counters.core.held_ns.get());
        let cpu = time::thread_cpu().saturating_sub(held);
        let starved = time::thread_starved();
        Measured { at: time::now(), cpu, starved, turns: time::turns(), requests }
    }

    fn since(&self, earlier: &Measured) -> Sample {
        Sample {
            wall: self.at.since(earlier.at),
            cpu: self.cpu.saturating_sub(earlier.cpu),
            starved: self.starved.saturating_sub(earlier.starved),
            delay: self.turns.since(&earlier.turns).delay(),
            requests: self.requests - earlier.requests,
        }
    }
}

impl CoreTask {
    pub(crate) fn new(worker: Rc<Worker>) -> Rc<CoreTask> {
        let measured = Cell::new(Measured::now(&worker.io.counters));
        Rc::new(CoreTask {
            worker,
            at_addresses: RefCell::default(),
            admin_answers: Cell::new(0),
            measured,
        })
    }

    /// Serves the listeners until it is stopped or replaced, then lets the requests in flight
    /// finish.
    pub(crate) async fn run(
        self: Rc<Self>,
        mut listening: Listening,
        mut changes: Changes,
        stop: StopToken,
    ) {
        let ticking = runtime::spawn(Rc::clone(&self).tick());
        let holding = runtime::spawn(hold_now_and_then(Rc::clone(&self.worker)));
        let how = loop {
            let change = match runtime::race(stop.stopped(), changes.next()).await {
                Either::Left(()) | Either::Right(None) => break Draining::Now,
                Either::Right(Some(change)) => change,
            };
            let Change { update, handed_over } = change;
            if let Some(update) = update {
                listening.change(update);
            }
            if handed_over {
                break Draining::Patient;
            }
        };
        holding.abort();
        listening.close(how);
        if how == Draining::Patient {
            // From now on, the answers are those of the other process.
            self.leave_addresses();
        }
        self.drain(how, &stop).await;
        self.leave_addresses();
        ticking.abort();
        self.publish();
        self.io().log.flush();
    }

    /// Accepts no more calls and queries. Calls in progress are answered.
    fn leave_addresses(&self) {
        for task in self.at_addresses.take() {
            task.abort();
        }
    }

    fn io(&self) -> &CoreIo {
        &self.worker.io
    }

    async fn drain(&self, how: Draining, stop: &StopToken) {
        self.io().drain(how);
        let deadline = time::now() + self.io().limits().limits.drain_timeout;
        // Connections accepted just now enter the table.
        runtime::yield_now().await;
        self.io().wake_all();
        while self.is_needed() && time::now() < deadline {
            if stop.is_stopped() && !self.io().closes_silent() {
                self.io().drain(Draining::Now);
                self.io().wake_all();
            }
            time::sleep(Duration::from_millis(5)).await;
        }
        if !self.io().closes_silent() {
            // Connections without a request: they are closed in order before the end.
            self.io().drain(Draining::Now);
            self.io().wake_all();
            let deadline = time::now() + self.io().limits().limits.linger_timeout;
            while self.is_needed() && time::now() < deadline {
                time::sleep(Duration::from_millis(5)).await;
            }
        }
        self.end_tunnels().await;
        let left = self.io().connections();
        if left > 0 {
            tracing::warn!(left, "connections cut: the drain time-out has passed");
        }
    }

    /// Tunnels log their last bytes when they end, so they are notified and given a moment.
    async fn end_tunnels(&self) {
        self.io().cut_tunnels();
        for _ in 0..CUT_TURNS_MAX {
            if self.io().counters.tunnels_open.get() == 0 {
                return;
            }
            runtime::yield_now().await;
        }
    }

    /// Whether a client of this core, or a reader on another core of a fetch of this core, is still
    /// being served.
    fn is_needed(&self) -> bool {
        self.io().connections() > 0
            || self.admin_answers.get() > 0
            || self.worker.fillings.borrow().iter().any(|(_, flight)| flight.has_readers())
    }

    async fn tick(self: Rc<Self>) {
        loop {
            time::sleep(TICK).await;
            let Worker { io, upstreams, cache, sizing, .. } = &*self.worker;
            io.log.flush();
            io.log.look_at_watchers();
            upstreams.sweep();
            cache.sweep_purged(time::now());
            sizing.flush(&cache.sizing, time::wall_ms());
            io.room_was_made();
            self.measure();
            cache.look_at_memory(&io.limits().limits);
            if let Some(quotas) = &self.worker.snapshot().quotas {
                quotas.sweep();
            }
            self.publish();
        }
    }

    /// Gives the overload control the figures since the last tick.
    fn measure(&self) {
        let now = Measured::now(&self.io().counters);
        let sample = now.since(&self.measured.replace(now));
        self.worker.overload.tick(&sample, &self.io().limits().limits);
        let of_core = &self.io().counters.core;
        let nanoseconds = |duration: Duration| duration.as_nanos() as u64;
        let wall = nanoseconds(sample.wall).max(1);
        of_core.busy_ppm.set(nanoseconds(sample.cpu) * 1_000_000 / wall);
        of_core.delay_ns.set(nanoseconds(sample.delay));
        of_core.marginal_ns.set(nanoseconds(self.worker.overload.marginal()));
        of_core.shed_ppm.set(self.worker.overload.share_ppm());
        of_core.cpu_ns.set(nanoseconds(now.cpu));
        of_core.sleeps.set(time::thread_sleeps());
        of_core.requests.set(now.requests);
        of_core.read_ns.set(now.at.as_ns());
    }

    /// Copies the runtime's counters to where other threads can read them.
    fn publish(&self) {
        let ours = &self.io().counters;
        let counters = runtime::poller_counters();
        ours.waits.set(counters.waits);
        ours.events.set(counters.events);
        ours.empty_waits.set(counters.empty_waits);
        let counters = runtime::counters();
        ours.turns.set(counters.turns);
        ours.wakes.set(counters.remote_wakes);
        ours.polls.set(counters.tasks_polled);
        ours.recv_calls.set(counters.recv_calls);
        ours.send_calls.set(counters.send_calls);
        let made = runtime::allocations();
        ours.allocations.set(made.count);
        ours.allocated_bytes.set(made.bytes);
    }
}
