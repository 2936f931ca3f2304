//! A worker: it waits and handles the reported events, in every way of sharing.
//!
//! ```text
//!  wait --event--> listener?   accept, register        --> work, or nothing remained
//!    ^             connection? read, respond / its end --> work, or nothing remained
//!    |             stop?       return
//!    '------------------------------------------------'
//! ```
//!
//! A piece of *work* is a connection accepted, a request answered, or an end seen. The amount of
//! work in a visit is known in advance. A wait that gave no work was in vain.

use std::io::{self, ErrorKind, Read, Write};
use std::iter::Sum;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use load::sys::thread_cpu_ns;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};

use super::Sharing;
use super::meter::{Call, Counted, Meter};

/// Bytes of a request, written and read at once: loopback does not split them.
pub(super) const REQUEST_BYTES: usize = 64;
/// Bytes of a response.
pub(super) const ANSWER_BYTES: usize = 512;
/// The most events that one wait may report.
const EVENTS_MAX: usize = 64;
/// Tokens that no connection has.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// A connection. Its socket stays open until the visit ends, so that a worker with a stale event
/// for it never reads from another connection.
#[derive(Default)]
struct Slot {
    stream: OnceLock<TcpStream>,
    ended: AtomicBool,
}

/// The state that all workers of a visit share.
pub(super) struct Shared {
    sharing: Sharing,
    slots: Box<[Slot]>,
    taken: AtomicUsize,
    /// All connections below this index have ended.
    ended_below: AtomicUsize,
    ended: AtomicUsize,
    /// Changes when a connection begins or ends; the lists for poll() are then rebuilt.
    version: AtomicU64,
    /// Readable when all workers have to stop.
    stop_event: OwnedFd,
}

impl Shared {
    /// With room for a number of connections in all.
    pub(super) fn new(sharing: Sharing, connections: usize, stop_event: OwnedFd) -> Shared {
        Shared {
            sharing,
            slots: (0..connections).map(|_| Slot::default()).collect(),
            taken: AtomicUsize::new(0),
            ended_below: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            version: AtomicU64::new(0),
            stop_event,
        }
    }

    /// Connections that have ended.
    pub(super) fn ended(&self) -> usize {
        self.ended.load(Ordering::Acquire)
    }

    /// Stops all workers.
    pub(super) fn stop(&self) -> io::Result<()> {
        rustix::io::write(&self.stop_event, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// An epoll set with the listener and these silent ones.
    pub(super) fn set(&self, listener: &TcpListener, cold: &[impl AsFd]) -> io::Result<OwnedFd> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, &self.stop_event, EventData::new_u64(STOP), EventFlags::IN)?;
        let flags = match self.sharing {
            Sharing::Exclusive => EventFlags::IN | EventFlags::EXCLUSIVE,
            _ => self.flags(),
        };
        epoll::add(&set, listener, EventData::new_u64(LISTENER), flags)?;
        for silent in cold {
            // It never becomes ready, so its token never occurs.
            epoll::add(&set, silent, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(set)
    }

    /// The flags with which a connection is registered.
    fn flags(&self) -> EventFlags {
        match self.sharing {
            Sharing::Edge => EventFlags::IN | EventFlags::ET,
            Sharing::OneShot => EventFlags::IN | EventFlags::ONESHOT,
            _ => EventFlags::IN,
        }
    }

    fn end(&self, slot: &Slot) -> bool {
        if slot.ended.swap(true, Ordering::AcqRel) {
            return false;
        }
        let mut below = self.ended_below.load(Ordering::Relaxed);
        while self.slots.get(below).is_some_and(|slot| slot.ended.load(Ordering::Relaxed)) {
            below += 1;
        }
        self.ended_below.fetch_max(below, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
        self.ended.fetch_add(1, Ordering::AcqRel);
        true
    }
}

/// The counts of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Waits that returned.
    pub(super) waits: u64,
    /// Events that they reported.
    pub(super) reported: u64,
    /// Waits that gave no work.
    pub(super) vain: u64,
    /// Work.
    pub(super) work: u64,
    /// How often the thread slept and was woken.
    pub(super) wakes: u64,
    /// CPU time, nanoseconds.
    pub(super) cpu_ns: u64,
    /// System calls.
    pub(super) calls: [Counted; Call::ALL.len()],
}

impl Tally {
    /// CPU time without that of measuring: each timed call reads the clock twice.
    pub(super) fn own_cpu_ns(&self, clock_ns: u64) -> f64 {
        let timed: u64 = self.calls.iter().map(|call| call.timed).sum();
        (self.cpu_ns as f64 - 2.0 * (timed * clock_ns) as f64).max(1.0)
    }
}

impl Sum for Tally {
    fn sum<I: Iterator<Item = Tally>>(tallies: I) -> Tally {
        tallies.fold(Tally::default(), |mut all, one| {
            all.waits += one.waits;
            all.reported += one.reported;
            all.vain += one.vain;
            all.work += one.work;
            all.wakes += one.wakes;
            all.cpu_ns += one.cpu_ns;
            for (all, one) in all.calls.iter_mut().zip(one.calls) {
                *all += one;
            }
            all
        })
    }
}

/// How a worker waits.
enum Waiter<'w> {
    Set {
        set: &'w OwnedFd,
        room: Vec<epoll::Event>,
    },
    List {
        list: Vec<PollFd<'w>>,
        tokens: Vec<u64>,
        /// The version of the connections that the list represents.
        version: Option<u64>,
        cold: &'w [OwnedFd],
    },
}

/// A worker.
pub(super) struct Worker<'w> {
    shared: &'w Shared,
    listener: &'w TcpListener,
    waiter: Waiter<'w>,
    meter: Meter,
    tally: Tally,
}

impl<'w> Worker<'w> {
    /// A worker that waits with an epoll set or, without one, by poll() on everything.
    pub(super) fn new(
        shared: &'w Shared,
        listener: &'w TcpListener,
        set: Option<&'w OwnedFd>,
        cold: &'w [OwnedFd],
        seed: u64,
    ) -> Worker<'w> {
        let waiter = match set {
            Some(set) => Waiter::Set { set, room: Vec::with_capacity(EVENTS_MAX) },
            None => Waiter::List { list: Vec::new(), tokens: Vec::new(), version: None, cold },
        };
        Worker { shared, listener, waiter, meter: Meter::new(seed), tally: Tally::default() }
    }

    /// Works until the workers are stopped. The wait that the stop event ends is not counted.
    pub(super) fn run(mut self) -> io::Result<Tally> {
        let begun = (thread_cpu_ns(), sleeps()?);
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            self.wait(&mut events)?;
            if events.contains(&STOP) {
                break;
            }
            self.tally.waits += 1;
            self.tally.reported += events.len() as u64;
            let mut work = 0;
            for token in &events {
                work += match *token {
                    LISTENER => self.accept()?,
                    token => self.serve(token as usize)?,
                };
            }
            self.tally.work += work;
            self.tally.vain += u64::from(work == 0);
        }
        self.tally.cpu_ns = thread_cpu_ns() - begun.0;
        // The last sleep ended with the stop event.
        self.tally.wakes = (sleeps()? - begun.1).saturating_sub(1);
        self.tally.calls = self.meter.counted();
        Ok(self.tally)
    }

    fn wait(&mut self, events: &mut Vec<u64>) -> io::Result<()> {
        events.clear();
        let returned = match &mut self.waiter {
            Waiter::Set { set, room } => {
                room.clear();
                let spare = rustix::buffer::spare_capacity(room);
                let returned = self.meter.call(Call::Wait, || epoll::wait(set, spare, None));
                events.extend(room.iter().map(|event| event.data.u64()));
                returned
            }
            Waiter::List { list, tokens, version, cold } => {
                let now = self.shared.version.load(Ordering::Acquire);
                if *version != Some(now) {
                    rebuild((list, tokens), self.shared, self.listener, cold);
                    *version = Some(now);
                }
                let returned = self.meter.call(Call::Wait, || poll(list, None));
                let ready = list.iter().zip(tokens).filter(|(one, _)| !one.revents().is_empty());
                events.extend(ready.map(|(_, token)| *token));
                returned
            }
        };
        match returned {
            // Interrupted by a signal: the wait reports nothing.
            Err(error) if error == rustix::io::Errno::INTR => {
                events.clear();
                Ok(())
            }
            other => Ok(other.map(drop)?),
        }
    }

    fn accept(&mut self) -> io::Result<u64> {
        let mut work = 0;
        loop {
            let listener = self.listener;
            let accepted = self.meter.call(Call::Accept, || {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(stream)
            });
            match accepted {
                Ok(stream) => {
                    self.register(stream)?;
                    work += 1;
                }
                Err(error) if is_taken(&error) => break,
                Err(error) => return Err(error),
            }
            if self.shared.sharing != Sharing::Edge {
                break;
            }
        }
        if self.shared.sharing == Sharing::OneShot {
            self.rearm(self.listener, LISTENER)?;
        }
        Ok(work)
    }

    fn register(&mut self, stream: TcpStream) -> io::Result<()> {
        let at = self.shared.taken.fetch_add(1, Ordering::Relaxed);
        let Some(slot) = self.shared.slots.get(at) else {
            return Err(io::Error::other("more connections than the study opened"));
        };
        let stream = slot.stream.get_or_init(|| stream);
        self.shared.version.fetch_add(1, Ordering::Release);
        let Waiter::Set { set, .. } = &self.waiter else { return Ok(()) };
        let (set, flags) = (*set, self.shared.flags());
        let data = EventData::new_u64(at as u64);
        Ok(self.meter.call(Call::Control, || epoll::add(set, stream, data, flags))?)
    }

    fn serve(&mut self, at: usize) -> io::Result<u64> {
        let shared = self.shared;
        let slot = &shared.slots[at];
        let Some(mut stream) = slot.stream.get() else { return Ok(0) };
        if slot.ended.load(Ordering::Acquire) {
            return Ok(0);
        }
        let mut work = 0;
        loop {
            let mut request = [0; REQUEST_BYTES];
            match self.meter.call(Call::Read, || stream.read(&mut request)) {
                Ok(0) => return Ok(work + self.end(slot, stream)?),
                Ok(REQUEST_BYTES) => {
                    let response = [request[0]; ANSWER_BYTES];
                    self.meter.call(Call::Write, || stream.write_all(&response))?;
                    work += 1;
                }
                Ok(_) => return Err(io::Error::other("a request arrived in parts")),
                Err(error) if is_taken(&error) => break,
                Err(error) => return Err(error),
            }
            if shared.sharing != Sharing::Edge {
                break;
            }
        }
        if shared.sharing == Sharing::OneShot {
            self.rearm(stream, at as u64)?;
        }
        Ok(work)
    }

    /// The first worker that sees the end takes the connection out of the set.
    fn end(&mut self, slot: &Slot, stream: &TcpStream) -> io::Result<u64> {
        if !self.shared.end(slot) {
            return Ok(0);
        }
        if let Waiter::Set { set, .. } = &self.waiter {
            let set = *set;
            self.meter.call(Call::Control, || epoll::delete(set, stream))?;
        }
        Ok(1)
    }

    fn rearm(&mut self, what: impl AsFd, token: u64) -> io::Result<()> {
        let Waiter::Set { set, .. } = &self.waiter else { return Ok(()) };
        let (set, data, flags) = (*set, EventData::new_u64(token), self.shared.flags());
        Ok(self.meter.call(Call::Control, || epoll::modify(set, what, data, flags))?)
    }
}

/// Whether another worker has handled the event.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn rebuild<'w>(
    (list, tokens): (&mut Vec<PollFd<'w>>, &mut Vec<u64>),
    shared: &'w Shared,
    listener: &'w TcpListener,
    cold: &'w [OwnedFd],
) {
    list.clear();
    tokens.clear();
    let mut put = |one: PollFd<'w>, token: u64| {
        list.push(one);
        tokens.push(token);
    };
    put(PollFd::new(&shared.stop_event, PollFlags::IN), STOP);
    put(PollFd::new(listener, PollFlags::IN), LISTENER);
    for silent in cold {
        put(PollFd::new(silent, PollFlags::IN), 0);
    }
    let from = shared.ended_below.load(Ordering::Relaxed);
    let to = shared.taken.load(Ordering::Acquire).min(shared.slots.len());
    for (at, slot) in shared.slots.iter().enumerate().take(to).skip(from) {
        if slot.ended.load(Ordering::Acquire) {
            continue;
        }
        if let Some(stream) = slot.stream.get() {
            put(PollFd::new(stream, PollFlags::IN), at as u64);
        }
    }
}

/// How often the calling thread has gone to sleep voluntarily. Each sleep ended with a wake.
fn sleeps() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    sleeps_in(&status).ok_or_else(|| io::Error::other("/proc does not show context switches"))
}

fn sleeps_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_are_the_voluntary_switches() {
        let status = "Name:\tx\nnonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t41\n";
        assert_eq!(sleeps_in(status), Some(41));
        assert_eq!(sleeps_in("Name:\tx\n"), None);
        let before = sleeps().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(sleeps().unwrap() > before);
    }

    #[test]
    fn an_end_counts_once_and_is_removed_from_the_list_for_poll() {
        let stop_event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let shared = Shared::new(Sharing::Poll, 3, stop_event);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for slot in &shared.slots[..2] {
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            slot.stream.set(client).unwrap();
            shared.taken.fetch_add(1, Ordering::Relaxed);
        }
        let mut list = (Vec::new(), Vec::new());
        rebuild((&mut list.0, &mut list.1), &shared, &listener, &[]);
        assert_eq!(list.1, [STOP, LISTENER, 0, 1]);
        assert!(shared.end(&shared.slots[0]));
        assert!(!shared.end(&shared.slots[0]), "another worker has seen it");
        rebuild((&mut list.0, &mut list.1), &shared, &listener, &[]);
        assert_eq!(list.1, [STOP, LISTENER, 1]);
        assert_eq!((shared.ended(), shared.ended_below.load(Ordering::Relaxed)), (1, 1));
    }
}
