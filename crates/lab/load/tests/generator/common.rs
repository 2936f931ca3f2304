//! Servers for the generator's tests: ours in a thread, and a scripted one that can misbehave.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use load::{Arrivals, Outcome, Plan, Schedule, Tick};

/// How long a run goes on at most until what the test waits for has happened.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The rate of a pause, as a share of the rate before it: no request starts.
const PAUSE: f64 = 1e-9;

/// What a server does with a request, which is the n-th on its connection.
#[derive(Clone, Copy)]
pub(crate) enum Reaction {
    /// Status 200 and this many bytes of object 0.
    Content(usize),
    Status(u16),
    Reset,
    /// GOAWAY: this and later requests are not processed. The connection ends.
    GoAway,
    /// Status 200, and a frame that the protocol forbids. Only over HTTP/3.
    Break,
    Close,
    Nothing,
}

/// A server in a thread, stopped when it is dropped.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn origin() -> Server {
        let origin = load::Origin::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Server::start(origin.local_addr(), move |stop| origin.run(stop).unwrap())
    }

    pub(crate) fn null() -> Server {
        let server = load::NullServer::bind("127.0.0.1:0".parse().unwrap(), 1024).unwrap();
        Server::start(server.local_addr(), move |stop| {
            server.run(stop).unwrap();
        })
    }

    /// Serves each connection in a thread. `talk` gets the request's number on its connection and
    /// returns whether to continue.
    pub(crate) fn scripted(
        talk: impl Fn(&mut TcpStream, u32) -> bool + Send + Sync + 'static,
    ) -> Server {
        Server::connections(move |stream| converse(stream, &talk))
    }

    /// Serves each connection in a thread.
    pub(crate) fn connections(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let serve = Arc::new(serve);
        Server::start(listener.local_addr().unwrap(), move |stop| {
            while !stop.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let serve = Arc::clone(&serve);
                        stream.set_nonblocking(false).unwrap();
                        stream.set_nodelay(true).unwrap();
                        thread::spawn(move || serve(stream));
                    }
                    Err(_) => thread::sleep(Duration::from_millis(1)),
                }
            }
        })
    }

    pub(crate) fn start(
        addr: SocketAddr,
        run: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> Server {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = Some(thread::spawn(move || run(&flag)));
        Server { addr, stop, thread }
    }

    /// A closed loop against this server, for [`run_observed`] to stop.
    pub(crate) fn closed(&self, path: &str) -> Plan {
        Plan { duration: PATIENCE, ..self.plan(path, "closed", 1) }
    }

    /// A plan of `length_ms` against this server, deterministic, with few connections.
    pub(crate) fn plan(&self, path: &str, schedule: &str, length_ms: u64) -> Plan {
        let target = format!("http://{}{path}", self.addr).parse().unwrap();
        let schedule: Schedule = schedule.parse().unwrap();
        let mut plan = Plan::new(target, schedule, Duration::from_millis(length_ms));
        plan.arrivals = Arrivals::Deterministic;
        plan.connections = 8;
        plan
    }

    /// A plan of exactly `count` requests at `rate` per second, followed by a pause. [`run`] ends
    /// the pause when all requests have ended, so that a busy machine still completes all of them
    /// within the run.
    pub(crate) fn requests(&self, path: &str, rate: f64, count: u32) -> Plan {
        let busy_s = (f64::from(count) - 0.5) / rate;
        let levels = (PATIENCE.as_secs_f64() / busy_s).ceil() as usize;
        let mut levels = vec![rate * PAUSE; levels.max(2)];
        levels[0] = rate;
        let mut plan = self.plan(path, "1", 1);
        plan.duration = Duration::from_secs_f64(levels.len() as f64 * busy_s);
        plan.schedule = Schedule::Steps(levels);
        plan
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "the server panicked");
        }
    }
}

/// Calls `talk` for each head of a request, until it or the peer ends the conversation.
pub(crate) fn converse<S: Read>(mut stream: S, talk: &dyn Fn(&mut S, u32) -> bool) {
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    let mut number = 0;
    loop {
        while let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
            seen.drain(..end + 4);
            if !talk(&mut stream, number) {
                return;
            }
            number += 1;
        }
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => seen.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
}

/// Sends all of `text`; the peer may already be gone.
pub(crate) fn say(stream: &mut TcpStream, text: &str) -> bool {
    stream.write_all(text.as_bytes()).is_ok()
}

/// Runs a plan to its end, or until all requests of [`Server::requests`] have ended.
pub(crate) fn run(plan: &Plan) -> Outcome {
    run_observed(plan, |_| false)
}

/// Runs a plan until the observer says that it has seen enough, or as [`run`].
pub(crate) fn run_observed(plan: &Plan, mut is_enough: impl FnMut(&Tick<'_>) -> bool) -> Outcome {
    let (stop, planned) = (AtomicBool::new(false), planned(plan));
    let outcome = load::run(plan, &stop, &mut |tick: &Tick<'_>| {
        let ended = tick.counts.completed + tick.counts.errors.total();
        if is_enough(tick) || planned == Some(ended) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let outcome = outcome.unwrap();
    conserved(&outcome);
    outcome
}

/// Requests that have one connection each, against a server that never answers.
pub(crate) fn given_up_requests_end_their_connections(plan: Plan) {
    let timeout = Duration::from_millis(500);
    let plan = Plan { keep_alive: false, connections: 1, timeout, ..plan };
    let outcome = run_observed(&plan, |tick| tick.counts.errors.timeout > 2);
    assert!(outcome.counts.connects > 1, "{:?}", outcome.counts);
}

/// How many requests a plan of [`Server::requests`] has.
fn planned(plan: &Plan) -> Option<u64> {
    let Schedule::Steps(levels) = &plan.schedule else { return None };
    let &[rate, pause, ..] = &levels[..] else { return None };
    let busy_s = plan.duration.as_secs_f64() / levels.len() as f64;
    (pause == rate * PAUSE).then(|| (rate * busy_s + 0.5).round() as u64)
}

/// Checks that nothing is lost or counted twice.
pub(crate) fn conserved(outcome: &Outcome) {
    let counts = &outcome.counts;
    let ended = counts.completed + counts.errors.total();
    assert_eq!(counts.started, ended + outcome.in_flight, "{counts:?}");
    assert_eq!(counts.intended, counts.started + outcome.unstarted, "{counts:?}");
    assert_eq!(outcome.latency.count + outcome.latency_invalid.count, counts.completed);
    let rows = &outcome.rows;
    assert_eq!(rows.iter().map(|row| row.counts.intended).sum::<u64>(), counts.intended);
    assert_eq!(rows.iter().map(|row| row.counts.started).sum::<u64>(), counts.started);
    let completed = rows.iter().map(|row| row.counts.completed).sum::<u64>();
    assert!(
        completed <= counts.completed
            && counts.completed - completed <= outcome.plan.slots().into()
    );
    assert!(rows.iter().all(|row| row.latency.count + row.late == row.counts.completed));
    assert!(rows.windows(2).all(|pair| pair[0].start_ns < pair[1].start_ns));
    assert_eq!(rows.iter().filter(|row| row.behind).count() as u64, outcome.rows_behind);
}
