//! One visit: it opens the sockets, runs workers and clients, and closes everything again.
//!
//! Each client is a thread with blocking sockets, on the last CPU if there are several. The
//! scheduler places the workers. A visit ends after a fixed number of requests, not after a time,
//! so that all ways of sharing do the same work.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use runtime::net::ListenOptions;
use rustix::event::{EventfdFlags, eventfd};

use super::worker::{ANSWER_BYTES, REQUEST_BYTES, Shared, Tally, Worker};
use super::{Cell, Load, Sharing};

/// Timeout of a response. When it passes, the study fails.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long the workers may take to notice that the last connections have ended.
const ENDS_MAX: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// The result of a visit, all workers together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// The sum over the workers.
    pub(super) tally: Tally,
    /// Work of the busiest worker relative to an equal share.
    pub(super) busiest: f64,
    /// Seconds until the last client had its last response.
    pub(super) seconds: f64,
}

/// Measures a combination once: with so many clients, requests of each on a kept connection, and
/// silent connections.
pub(super) fn visit(
    cell: Cell,
    (count, kept, cold): (u32, u32, u32),
    seed: u64,
) -> io::Result<Seen> {
    let workers = cell.workers as usize;
    let requests = cell.load.requests(kept);
    let per_client = if cell.load == Load::Kept { 1 } else { requests };
    let connections = (count * per_client) as usize;
    let listeners = listeners(cell)?;
    let address = listeners[0].local_addr()?;
    let cold: Vec<OwnedFd> = (0..cold)
        .map(|_| Ok(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.into()))
        .collect::<io::Result<_>>()?;
    let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let shared = Shared::new(cell.sharing, connections, stop);
    let sets = sets(cell, &shared, &listeners, &cold)?;
    let ready = Barrier::new(workers + 1);
    let (tallies, seconds) = thread::scope(|scope| {
        let mut running = Vec::new();
        for at in 0..workers {
            let listener = &listeners[at % listeners.len()];
            let set = sets.get(at % sets.len().max(1));
            let (shared, cold, ready) = (&shared, &cold, &ready);
            running.push(scope.spawn(move || {
                let worker = Worker::new(shared, listener, set, cold, seed.wrapping_add(at as u64));
                ready.wait();
                worker.run()
            }));
        }
        ready.wait();
        let begun = Instant::now();
        let answered = clients(count, || request(address, cell.load, requests));
        let seconds = begun.elapsed().as_secs_f64();
        let ended = answered.and_then(|()| until_ended(&shared, connections));
        // The workers have to stop in any case; otherwise the scope never ends.
        shared.stop()?;
        let tallies = running.into_iter().map(joined).collect::<io::Result<Vec<Tally>>>();
        // If a worker failed, that explains why a client got no response.
        let tallies = tallies?;
        ended.map(|()| (tallies, seconds))
    })?;
    Ok(Seen::of(&tallies, seconds))
}

/// One listener, or one for each worker.
fn listeners(cell: Cell) -> io::Result<Vec<TcpListener>> {
    let each = cell.sharing == Sharing::ReusePort;
    let options = ListenOptions::default().with_reuse_port(each);
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut listeners = vec![runtime::process::listen(any, &options)?];
    let address = listeners[0].local_addr()?;
    while each && listeners.len() < cell.workers as usize {
        listeners.push(runtime::process::listen(address, &options)?);
    }
    for listener in &listeners {
        listener.set_nonblocking(true)?;
    }
    Ok(listeners)
}

/// No epoll set, one, or one for each worker; the silent connections are distributed over the sets.
fn sets(
    cell: Cell,
    shared: &Shared,
    listeners: &[TcpListener],
    cold: &[OwnedFd],
) -> io::Result<Vec<OwnedFd>> {
    if cell.sharing == Sharing::Poll {
        return Ok(Vec::new());
    }
    let count = if cell.sharing.own_sets() { cell.workers as usize } else { 1 };
    let each = cold.len().div_ceil(count).max(1);
    let mut shares = cold.chunks(each);
    (0..count)
        .map(|at| shared.set(&listeners[at % listeners.len()], shares.next().unwrap_or(&[])))
        .collect()
}

/// Runs all clients at once, and gives the first failure.
fn clients(count: u32, work: impl Fn() -> io::Result<()> + Sync) -> io::Result<()> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let started: Vec<_> = (0..count)
            .map(|_| {
                scope.spawn(|| {
                    if cpus > 1 {
                        load::sys::pin_to_cpu(cpus - 1)?;
                    }
                    work()
                })
            })
            .collect();
        started.into_iter().try_for_each(joined)
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the study failed")))
}

fn request(address: SocketAddr, load: Load, requests: u32) -> io::Result<()> {
    let connect = || {
        let stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Ok::<_, io::Error>(stream)
    };
    let mut stream = None;
    for number in 0..requests {
        let mut used = match stream.take() {
            Some(kept) => kept,
            None => connect()?,
        };
        let mark = number as u8;
        used.write_all(&[mark; REQUEST_BYTES])?;
        let mut answer = [0; ANSWER_BYTES];
        used.read_exact(&mut answer)?;
        if answer != [mark; ANSWER_BYTES] {
            return Err(io::Error::other("a response belongs to another request"));
        }
        stream = (load == Load::Kept).then_some(used);
    }
    Ok(())
}

fn until_ended(shared: &Shared, connections: usize) -> io::Result<()> {
    let begun = Instant::now();
    while shared.ended() < connections {
        if begun.elapsed() > ENDS_MAX {
            return Err(io::Error::other("the workers did not notice the end of every connection"));
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

impl Seen {
    fn of(tallies: &[Tally], seconds: f64) -> Seen {
        let tally: Tally = tallies.iter().copied().sum();
        let most = tallies.iter().map(|tally| tally.work).max().unwrap_or(0);
        let busiest = most as f64 * tallies.len() as f64 / tally.work.max(1) as f64;
        Seen { tally, busiest, seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients, requests of each, and silent connections.
    const COUNTS: (u32, u32, u32) = (5, 40, 3);

    #[test]
    fn every_way_of_sharing_does_the_same_work() {
        for sharing in Sharing::ALL {
            for workers in [1, 2, 7] {
                let kept = visit(Cell { load: Load::Kept, workers, sharing }, COUNTS, 1).unwrap();
                // 40 requests, a connection and its end, for each of five clients.
                assert_eq!(kept.tally.work, 5 * 42, "{sharing:?} with {workers}");
                let fresh = visit(Cell { load: Load::Fresh, workers, sharing }, COUNTS, 2).unwrap();
                assert_eq!(fresh.tally.work, 5 * 10 * 3, "{sharing:?} with {workers}");
                for seen in [kept, fresh] {
                    let Tally { waits, vain, calls, .. } = seen.tally;
                    assert!(vain <= waits && waits > 0, "{sharing:?}: {seen:?}");
                    assert!((1.0..=7.0).contains(&seen.busiest), "{sharing:?}: {seen:?}");
                    let [wait, control, accept, read, write] = calls.map(|call| call.calls);
                    // Each worker made one more wait, the one that the stop event ended.
                    assert_eq!(wait, waits + u64::from(workers), "{sharing:?}");
                    assert_eq!(control == 0, sharing == Sharing::Poll);
                    assert!(accept >= 5 && read > write && write >= 50, "{sharing:?}: {seen:?}");
                }
            }
        }
    }

    /// A connection in a worker's own set concerns no other worker, so no wait for it is in vain.
    #[test]
    fn with_nothing_shared_no_wait_is_in_vain() {
        for load in Load::ALL {
            let cell = Cell { load, workers: 4, sharing: Sharing::ReusePort };
            let seen = visit(cell, COUNTS, 3).unwrap();
            assert_eq!(seen.tally.vain, 0, "{seen:?}");
        }
    }

    #[test]
    fn a_visit_is_the_sum_of_its_workers_and_names_the_busiest() {
        let tally = |work: u64| Tally { work, waits: 2 * work, ..Tally::default() };
        let seen = Seen::of(&[tally(30), tally(10)], 1.0);
        assert_eq!((seen.tally.work, seen.tally.waits), (40, 80));
        assert_eq!(seen.busiest, 1.5);
        assert_eq!(Seen::of(&[], 1.0).busiest, 0.0);
    }
}
