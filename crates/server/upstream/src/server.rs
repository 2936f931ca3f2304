//! The state of one upstream server, which all cores share for as long as it is configured.
//!
//! A server that is one address of a name is in a slot, and another address may take the slot while
//! requests to the first address are in flight. So the state has a generation, which changes with
//! the address. A request remembers the generation, and its outcome counts for no other.

use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use runtime::time::Instant;

use crate::limits::ADDRESS_REMEMBERED;
use crate::look_up::{Found, Hosts};
use crate::orders::{Order, Orders};
use config::limits::SERVERS_PER_GROUP_MAX;

/// An instant before all others: "never".
const NEVER: u64 = 0;

/// See the module's text. What each request writes comes first, in one cache line, which the cores
/// take from each other. The other fields are nearly always only read.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct ServerState {
    /// The generation in the upper half, its requests in flight in the lower half: see
    /// [`Generation`].
    taken: AtomicU64,
    pub(super) figures: ServerFigures,
    /// The lock is in the line, and the addresses are behind it.
    addresses: Mutex<Addresses>,
    /// Its health check says that it is down.
    down: AtomicBool,
    /// Its name has had no address yet.
    unresolved: AtomicBool,
    /// It gets no requests until then, in nanoseconds of the clock.
    ejected_until: AtomicU64,
    /// Failed requests since the last success.
    failures: AtomicU32,
    /// Ejections since the last success.
    ejections: AtomicU32,
    /// When it came back, in nanoseconds of the clock.
    up_since: AtomicU64,
    pub(super) discovered: Discovered,
    pub(super) orders: Orders,
    pub(super) check: CheckState,
}

/// The addresses of a server. A copy of a single address changes no count of references, which
/// would be in one more cache line that each request writes.
#[derive(Clone, Debug)]
pub(super) enum Addresses {
    One([SocketAddr; 1]),
    More(Arc<[SocketAddr]>),
}

impl From<Arc<[SocketAddr]>> for Addresses {
    fn from(addresses: Arc<[SocketAddr]>) -> Addresses {
        match *addresses {
            [one] => Addresses::One([one]),
            _ => Addresses::More(addresses),
        }
    }
}

impl Deref for Addresses {
    type Target = [SocketAddr];

    #[inline]
    fn deref(&self) -> &[SocketAddr] {
        match self {
            Addresses::One(one) => one,
            Addresses::More(addresses) => addresses,
        }
    }
}

impl PartialEq for Addresses {
    fn eq(&self, other: &Addresses) -> bool {
        **self == **other
    }
}

/// Which of the addresses that a slot has had one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation(u32);

impl Generation {
    /// The two halves of a word.
    fn of(word: u64) -> (Generation, u32) {
        (Generation((word >> 32) as u32), word as u32)
    }

    /// The word in which this generation has no request in flight.
    fn word(self) -> u64 {
        u64::from(self.0) << 32
    }
}

/// The state of a server's health checks. One task runs them.
#[derive(Debug, Default)]
pub(super) struct CheckState {
    /// A check is in progress.
    pub(super) asking: AtomicBool,
    /// When the last one began, in nanoseconds of the clock.
    pub(super) asked_at: AtomicU64,
    /// Consecutive results that contradict the current state.
    contrary: AtomicU32,
}

/// What is known of the address in a slot, besides the address.
#[derive(Debug, Default)]
pub(super) struct Discovered {
    /// A hash of its text.
    pub(super) identity: AtomicU64,
    /// Its number in cookies.
    pub(super) id: AtomicU16,
    /// Its weight; 0: that of the configuration.
    pub(super) weight: AtomicU32,
    pub(super) is_backup: AtomicBool,
    /// No name server has given its address in the last look-up: the address is an earlier one.
    pub(super) is_stale: AtomicBool,
    /// The address that has left the slot, and when.
    left: Mutex<Option<(SocketAddr, Instant)>>,
    // The rest is of the name, and is used in its first slot.
    /// A look-up is in progress.
    pub(super) looking: AtomicBool,
    /// The last look-up has found more addresses than there are slots.
    pub(super) has_more: AtomicBool,
    /// The name servers did not answer the last look-up, or said that there is nothing.
    pub(super) is_unanswered: AtomicBool,
    /// The hosts of a service.
    pub(super) hosts: Hosts,
}

impl Discovered {
    pub(super) fn set(&self, found: &Found) {
        self.weight.store(found.weight.unwrap_or(0), Relaxed);
        self.is_backup.store(found.is_backup, Relaxed);
        self.is_stale.store(found.is_stale, Relaxed);
    }

    fn left(&self) -> MutexGuard<'_, Option<(SocketAddr, Instant)>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counters of a server. The first three are of each request.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct ServerFigures {
    pub(super) requests: AtomicU64,
    pub(super) connects: AtomicU64,
    pub(super) reuses: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) ejections: AtomicU64,
    pub(super) checks_failed: AtomicU64,
}

impl ServerFigures {
    /// Those of another server begin.
    fn restart(&self) {
        let ServerFigures { requests, connects, reuses, failures, ejections, checks_failed } = self;
        for figure in [requests, connects, reuses, failures, ejections, checks_failed] {
            figure.store(0, Relaxed);
        }
    }
}

impl ServerState {
    pub(super) fn new(addresses: Arc<[SocketAddr]>) -> ServerState {
        let unresolved = AtomicBool::new(addresses.is_empty());
        ServerState {
            taken: AtomicU64::new(0),
            figures: ServerFigures::default(),
            addresses: Mutex::new(addresses.into()),
            down: AtomicBool::new(false),
            unresolved,
            ejected_until: AtomicU64::new(NEVER),
            failures: AtomicU32::new(0),
            ejections: AtomicU32::new(0),
            up_since: AtomicU64::new(NEVER),
            discovered: Discovered::default(),
            orders: Orders::default(),
            check: CheckState::default(),
        }
    }

    pub(super) fn addresses(&self) -> Addresses {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if it had none before, so that requests can go to it now.
    pub(super) fn set_addresses(&self, addresses: Arc<[SocketAddr]>) -> bool {
        let has_some = !addresses.is_empty();
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses.into();
        has_some && self.unresolved.swap(false, Relaxed)
    }

    /// A slot whose address has left.
    pub(super) fn lose_address(&self, now: Instant) {
        let address = self.addresses().first().copied();
        *self.discovered.left() = address.map(|address| (address, now));
        self.set_addresses([].into());
        self.unresolved.store(true, Relaxed);
    }

    /// The address that has left the slot, and when, if that is remembered.
    pub(super) fn left(&self, now: Instant) -> Option<(SocketAddr, Instant)> {
        let is_recent = |(_, at): &(SocketAddr, Instant)| now.since(*at) < ADDRESS_REMEMBERED;
        self.discovered.left().filter(is_recent)
    }

    /// The address that has left the slot is there again: the same server.
    pub(super) fn come_back(&self, address: SocketAddr, now: Instant) {
        *self.discovered.left() = None;
        self.came_back(now);
        self.set_addresses([address].into());
    }

    /// Another address in this slot: another server.
    pub(super) fn renew(&self, address: SocketAddr, identity: u64, id: u16, now: Instant) {
        // First of all, so that the requests that are in flight change nothing of what follows.
        let next = |word| {
            let (Generation(generation), _) = Generation::of(word);
            Some(Generation(generation.wrapping_add(1)).word())
        };
        let _ = self.taken.fetch_update(SeqCst, SeqCst, next);
        self.discovered.identity.store(identity, Relaxed);
        self.discovered.id.store(id, Relaxed);
        for zero in [&self.failures, &self.ejections, &self.check.contrary] {
            zero.store(0, Relaxed);
        }
        self.ejected_until.store(NEVER, Relaxed);
        self.down.store(false, Relaxed);
        self.figures.restart();
        self.orders.forget();
        self.come_back(address, now);
    }

    /// Its name has no address.
    pub(super) fn is_unresolved(&self) -> bool {
        self.unresolved.load(Relaxed)
    }

    pub(super) fn outstanding(&self) -> u32 {
        Generation::of(self.taken.load(Relaxed)).1
    }

    /// Takes one more request if it has fewer than `max`. Ordered with the queue: see there.
    #[inline]
    pub(super) fn take(&self, max: u32) -> Option<Generation> {
        let more = |word| (Generation::of(word).1 < max).then(|| word + 1);
        let word = self.taken.fetch_update(SeqCst, SeqCst, more).ok()?;
        self.figures.requests.fetch_add(1, Relaxed);
        Some(Generation::of(word).0)
    }

    /// A request that it has taken in this generation has ended.
    #[inline]
    pub(super) fn give_back(&self, generation: Generation) {
        let fewer = |word| {
            let (now, outstanding) = Generation::of(word);
            (now == generation).then(|| {
                debug_assert!(outstanding > 0, "each request is given back once");
                word - 1
            })
        };
        let _ = self.taken.fetch_update(SeqCst, SeqCst, fewer);
    }

    /// Whether its address is still the one of this generation.
    #[inline]
    pub(super) fn is_in(&self, generation: Generation) -> bool {
        Generation::of(self.taken.load(Relaxed)).0 == generation
    }

    /// Its health check says so, or its name has had no address yet.
    pub(super) fn is_down(&self) -> bool {
        self.down.load(Relaxed) || self.unresolved.load(Relaxed)
    }

    /// Whether requests that belong to no session may go to it: it is not down, and no operator has
    /// ordered otherwise.
    #[inline]
    pub(super) fn takes_new(&self) -> bool {
        !self.is_down() && self.orders.order() == Order::Ready
    }

    /// Whether requests of its sessions may go to it.
    pub(super) fn takes_sessions(&self) -> bool {
        !self.is_down() && self.orders.order() != Order::Disabled
    }

    /// There are no checks, so none can have found it down.
    pub(super) fn is_not_checked(&self) {
        self.down.store(false, Relaxed);
        self.check.contrary.store(0, Relaxed);
    }

    /// It gets requests again, beginning with few of them if it starts slowly.
    pub(super) fn came_back(&self, now: Instant) {
        self.up_since.store(now.as_ns(), Relaxed);
    }

    pub(super) fn is_ejected(&self, now: Instant) -> bool {
        now.as_ns() < self.ejected_until.load(Relaxed)
    }

    /// How long it has been back; `None` if it was never away.
    pub(super) fn up_for(&self, now: Instant) -> Option<Duration> {
        let back = self.up_since.load(Relaxed).max(self.ejected_until.load(Relaxed));
        (back != NEVER).then(|| now.since(Instant::from_ns(back)))
    }

    #[inline]
    pub(super) fn note_success(&self) {
        // Nearly always there is nothing to reset, and the cache line stays shared between cores.
        if self.failures.load(Relaxed) != 0 {
            self.failures.store(0, Relaxed);
            self.ejections.store(0, Relaxed);
        }
    }

    /// Counts a failure, and returns the number of failures in a row.
    pub(super) fn note_failure(&self) -> u32 {
        self.figures.failures.fetch_add(1, Relaxed);
        self.failures.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// Ejects it, each time for twice as long; false if it is ejected already.
    pub(super) fn eject(&self, now: Instant, base: Duration, max: Duration) -> bool {
        let until = self.ejected_until.load(Relaxed);
        if now.as_ns() < until {
            return false;
        }
        let before = self.ejections.load(Relaxed);
        let long = base.saturating_mul(1 << before.min(16)).min(max);
        let next = (now + long).as_ns();
        let won = self.ejected_until.compare_exchange(until, next, Relaxed, Relaxed).is_ok();
        if won {
            self.ejections.store(before + 1, Relaxed);
            self.figures.ejections.fetch_add(1, Relaxed);
        }
        won
    }

    /// Takes in the result of a check. True if the server has come up or gone down by it.
    pub(super) fn note_check(&self, well: bool, rise: u32, fall: u32, now: Instant) -> bool {
        if !well {
            self.figures.checks_failed.fetch_add(1, Relaxed);
        }
        let contrary = &self.check.contrary;
        if well != self.down.load(Relaxed) {
            contrary.store(0, Relaxed);
            return false;
        }
        let in_row = contrary.fetch_add(1, Relaxed) + 1;
        if in_row < if well { rise } else { fall } {
            return false;
        }
        contrary.store(0, Relaxed);
        if well {
            self.came_back(now);
            self.failures.store(0, Relaxed);
        }
        self.down.store(!well, Relaxed);
        true
    }
}

/// The servers on which a request has failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried(u128);

const _: () = assert!(SERVERS_PER_GROUP_MAX <= u128::BITS as usize);

impl Tried {
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn has(self, at: usize) -> bool {
        self.0 & 1 << at != 0
    }

    pub(super) fn add(&mut self, at: usize) {
        self.0 |= 1 << at;
    }

    /// Their number.
    pub(super) fn count(self) -> u32 {
        self.0.count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn server() -> ServerState {
        ServerState::new([SocketAddr::from(([10, 0, 0, 1], 80))].into())
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(1_000_000_000 * seconds)
    }

    #[test]
    fn a_request_writes_to_one_cache_line() {
        use std::mem::offset_of;
        let server = server();
        let ServerState { taken, figures, addresses, .. } = &server;
        let start = std::ptr::from_ref(&server).addr();
        let written = [taken, &figures.requests, &figures.connects, &figures.reuses];
        let offsets = written.map(|one| std::ptr::from_ref(one).addr() - start);
        assert!(offsets.iter().all(|offset| offset + size_of::<AtomicU64>() <= 64), "{offsets:?}");
        // The lock comes first in a mutex.
        let lock = std::ptr::from_ref(addresses).addr() - start;
        assert!(lock + size_of::<u32>() <= 64, "{lock}");
        assert!(offset_of!(ServerState, down) >= 64);
    }

    #[test]
    fn a_single_address_is_copied_and_several_are_shared() {
        let [first, second] = [1, 2].map(|last| SocketAddr::from(([10, 0, 0, last], 80)));
        let server = ServerState::new([first].into());
        assert!(matches!(server.addresses(), Addresses::One([one]) if one == first));
        assert!(!server.set_addresses([first, second].into()));
        assert!(matches!(server.addresses(), Addresses::More(_)));
        assert_eq!(*server.addresses(), [first, second]);
        server.set_addresses([].into());
        assert!(server.addresses().is_empty());
    }

    #[test]
    fn it_goes_down_and_comes_up_by_answers_in_a_row() {
        let server = server();
        let mut changes = Vec::new();
        for (second, well) in "..x.xx.xxx.xx..x...".chars().map(|c| c == '.').enumerate() {
            if server.note_check(well, 3, 3, at(second as u64)) {
                changes.push((second, server.is_down()));
            }
        }
        assert_eq!(changes, [(9, true), (18, false)]);
        assert_eq!(server.up_for(at(20)), Some(2 * SECOND));
    }

    #[test]
    fn each_ejection_is_twice_as_long_until_a_success() {
        let server = server();
        let mut now = at(1);
        for seconds in [1, 2, 4, 5, 5] {
            server.note_failure();
            assert!(server.eject(now, SECOND, 5 * SECOND));
            assert!(!server.eject(now, SECOND, 5 * SECOND), "it is already");
            assert!(server.is_ejected(now + SECOND * seconds - Duration::from_nanos(1)));
            now += SECOND * seconds;
            assert!(!server.is_ejected(now));
        }
        server.note_success();
        assert!(server.eject(now, SECOND, 5 * SECOND));
        assert!(!server.is_ejected(now + SECOND));
    }

    #[test]
    fn a_server_without_an_address_is_down_until_it_has_one() {
        let server = ServerState::new([].into());
        assert!(server.is_down());
        assert!(!server.set_addresses([].into()) && server.is_down());
        let address = SocketAddr::from(([10, 0, 0, 1], 80));
        assert!(server.set_addresses([address].into()), "requests that wait are called");
        assert!(!server.is_down());
        assert!(!server.set_addresses([address].into()));
    }
}
