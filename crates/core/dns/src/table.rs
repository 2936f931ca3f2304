//! The names that are known, and the look-ups in flight: without I/O and without a clock.
//!
//! ```text
//!   find --> Kept                      an answer that is valid
//!        \-> Join(id)                  a look-up in flight, which the caller waits for
//!        \-> Start(id)                 the caller starts it
//!        \-> Busy                      the limit, and no look-up can make room
//!   leave, note, end                   a waiter leaves; an answer comes; the look-up is over
//! ```
//!
//! At a limit, the oldest look-up makes room for a new one: of the client's network, if that has
//! its share, and otherwise of the network with the most. So the look-ups of one network, such as
//! those for names whose servers say nothing, delay no other network, and a name that is answered
//! soon is found beside them.
//!
//! What never happens: more look-ups are in flight for clients than [`LOOKUPS_MAX`]; more bytes
//! are kept than [`CACHE_BYTES_MAX`], or names than [`NAMES_MAX`]; a look-up that no task waits for
//! goes on, unless it refreshes an answer in use.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::task::Waker;

use hashbrown::HashMap;
use runtime::time::Instant;

use crate::limits::{
    CACHE_BYTES_MAX, ENTRY_BYTES, LOOKUPS_MAX, LOOKUPS_OF_NETWORK_MAX, NAMES_MAX, NETWORK_PREFIX,
};
use crate::{Answer, NotFound};

/// The network of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network(u128);

impl Network {
    pub(crate) fn of(client: IpAddr) -> Network {
        let (bits, prefix) = match client.to_canonical() {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), 96 + NETWORK_PREFIX.0),
            IpAddr::V6(v6) => (v6.to_bits(), NETWORK_PREFIX.1),
        };
        Network(bits & (u128::MAX << (u128::BITS - prefix)))
    }
}

/// The number of a look-up, or of a waiter. None is used twice.
pub(crate) type Id = u64;

#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) result: Result<Answer, NotFound>,
    pub(crate) until: Instant,
    /// From then on a use starts another query.
    pub(crate) refresh_at: Instant,
}

/// What is known of a name.
#[derive(Debug, Default)]
struct Known {
    answer: Option<Kept>,
    /// The answer was used since the cache was last full.
    is_used: bool,
    asking: Option<Asking>,
}

/// A look-up in flight.
#[derive(Debug)]
struct Asking {
    id: Id,
    /// The clients for which it was started; `None`: no client.
    by: Option<Network>,
    waiting: HashMap<Id, Waker>,
    /// The task that asks.
    task: Option<Waker>,
    /// It goes on without a waiter.
    is_refresh: bool,
}

/// What a caller finds.
#[derive(Debug)]
pub(crate) enum Find {
    /// An answer. `Some`: the caller starts this look-up, which refreshes it.
    Kept(Result<Answer, NotFound>, Option<Id>),
    /// A look-up to wait for, and for whom it was started.
    Join(Id, Option<Network>),
    /// A look-up to start, and to wait for.
    Start(Id),
    /// There is no room for another look-up.
    Busy,
}

/// The table that all cores share.
#[derive(Debug, Default)]
pub(crate) struct Table {
    names: HashMap<String, Known>,
    /// Bytes of all names and answers.
    bytes: usize,
    /// Look-ups for clients, the oldest first.
    in_flight: VecDeque<(Id, Network, String)>,
    /// Look-ups cannot be cancelled.
    is_patient: bool,
    next: Id,
}

impl Table {
    /// An empty table. `is_patient`: look-ups cannot be cancelled.
    pub(crate) fn new(is_patient: bool) -> Table {
        Table { is_patient, ..Table::default() }
    }

    /// A number that was not given out before.
    pub(crate) fn id(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    /// What a caller does that needs the addresses of a name. Tasks to wake are added to `wake`.
    pub(crate) fn find(
        &mut self,
        name: &str,
        by: Option<Network>,
        now: Instant,
        wake: &mut Vec<Waker>,
    ) -> Find {
        if let Some(known) = self.names.get_mut(name) {
            let is_asking = known.asking.is_some();
            if let Some(kept) = known.answer.as_ref().filter(|kept| now < kept.until) {
                known.is_used = true;
                let result = kept.result.clone();
                let is_due = now >= kept.refresh_at && result.is_ok() && !is_asking;
                let refresh = is_due.then(|| self.start(name, by, true, now, wake)).flatten();
                return Find::Kept(result, refresh);
            }
            if let Some(asking) = &known.asking {
                return Find::Join(asking.id, asking.by);
            }
        }
        self.start(name, by, false, now, wake).map_or(Find::Busy, Find::Start)
    }

    /// Whether this look-up is still wanted.
    pub(crate) fn is_asking(&self, name: &str, id: Id) -> bool {
        self.asking(name).is_some_and(|asking| asking.id == id)
    }

    /// Whether an answer is valid.
    pub(crate) fn has_answer(&self, name: &str, now: Instant) -> bool {
        let answer = self.names.get(name).and_then(|known| known.answer.as_ref());
        answer.is_some_and(|kept| now < kept.until)
    }

    /// A waiter waits for the look-up that is in flight.
    pub(crate) fn wait(&mut self, name: &str, waiter: Id, waker: &Waker) {
        let asking = self.names.get_mut(name).and_then(|known| known.asking.as_mut());
        if let Some(asking) = asking {
            asking.waiting.insert(waiter, waker.clone());
        }
    }

    /// The task of a look-up waits; it is woken when the look-up is cancelled.
    pub(crate) fn set_task(&mut self, name: &str, id: Id, waker: &Waker) {
        let asking = self.names.get_mut(name).and_then(|known| known.asking.as_mut());
        if let Some(asking) = asking.filter(|asking| asking.id == id) {
            asking.task = Some(waker.clone());
        }
    }

    /// A waiter leaves. If no other one waits, the look-up is cancelled.
    pub(crate) fn leave(&mut self, name: &str, waiter: Id, wake: &mut Vec<Waker>) {
        let is_patient = self.is_patient;
        let Some(known) = self.names.get_mut(name) else { return };
        let Some(asking) = &mut known.asking else { return };
        let was_waiting = asking.waiting.remove(&waiter).is_some();
        if was_waiting && asking.waiting.is_empty() && !asking.is_refresh && !is_patient {
            let id = asking.id;
            wake.extend(self.take(name, id));
        }
    }

    /// Keeps what a look-up has found.
    pub(crate) fn note(&mut self, name: &str, id: Id, kept: Kept, now: Instant) {
        if !self.is_asking(name, id) {
            return;
        }
        let Some(known) = self.names.get_mut(name) else { return };
        let is_whole = |kept: &Kept| kept.result.as_ref().is_ok_and(|one| one.unanswered.is_none());
        let unanswered = match &kept.result {
            Ok(answer) => {
                answer.unanswered.is_some() && known.answer.as_ref().is_some_and(is_whole)
            }
            Err(error) => *error == NotFound::Unanswered,
        };
        let still_good = known.answer.as_ref().is_some_and(|old| now < old.until);
        // A valid answer is kept when the servers do not respond for a while, or for one family.
        if unanswered && still_good {
            return;
        }
        assert!(self.bytes >= cost(name, known), "each name is counted");
        debug_assert!(kept.refresh_at <= kept.until, "an answer is refreshed while it is valid");
        self.bytes -= cost(name, known);
        known.answer = Some(kept);
        self.bytes += cost(name, known);
        if self.bytes > CACHE_BYTES_MAX {
            self.make_room(now);
        }
        debug_assert!(self.bytes <= CACHE_BYTES_MAX, "the cache is bounded");
    }

    /// Ends a look-up, whether it has found anything or not; returns the tasks to wake.
    pub(crate) fn take(&mut self, name: &str, id: Id) -> Vec<Waker> {
        if !self.is_asking(name, id) {
            return Vec::new();
        }
        self.in_flight.retain(|(one, ..)| *one != id);
        let Some(known) = self.names.get_mut(name) else { return Vec::new() };
        let asking = known.asking.take();
        if known.answer.is_none() {
            assert!(self.bytes >= cost(name, known), "each name is counted");
            self.bytes -= cost(name, known);
            self.names.remove(name);
        }
        asking.into_iter().flat_map(|one| one.waiting.into_values().chain(one.task)).collect()
    }

    fn asking(&self, name: &str) -> Option<&Asking> {
        self.names.get(name)?.asking.as_ref()
    }

    /// Marks a name as being looked up; `None`: there is no room for the look-up.
    fn start(
        &mut self,
        name: &str,
        by: Option<Network>,
        is_refresh: bool,
        now: Instant,
        wake: &mut Vec<Waker>,
    ) -> Option<Id> {
        if let Some(network) = by
            && let Some(oldest) = self.over_limit(network)
        {
            if is_refresh || self.is_patient {
                return None;
            }
            let (id, _, other) = self.in_flight[oldest].clone();
            wake.extend(self.take(&other, id));
        }
        if self.names.len() >= NAMES_MAX {
            self.make_room(now);
        }
        let id = self.id();
        self.in_flight.extend(by.map(|network| (id, network, name.to_owned())));
        assert!(self.in_flight.len() <= LOOKUPS_MAX, "the oldest has made room");
        debug_assert!(self.in_flight.iter().is_sorted_by_key(|(id, ..)| *id), "the oldest first");
        if !self.names.contains_key(name) {
            self.bytes += ENTRY_BYTES + name.len();
        }
        let known = self.names.entry_ref(name).or_default();
        assert!(known.asking.is_none(), "a name has one look-up at a time");
        let waiting = HashMap::new();
        known.asking = Some(Asking { id, by, waiting, task: None, is_refresh });
        Some(id)
    }

    /// The place of the look-up that makes room for another one of a network, if one has to.
    fn over_limit(&self, network: Network) -> Option<usize> {
        let count = |of: Network| self.in_flight.iter().filter(|(_, one, _)| *one == of).count();
        let oldest = |of: Network| self.in_flight.iter().position(|(_, one, _)| *one == of);
        if count(network) >= LOOKUPS_OF_NETWORK_MAX {
            return oldest(network);
        }
        if self.in_flight.len() < LOOKUPS_MAX {
            return None;
        }
        let most = self.in_flight.iter().map(|(_, one, _)| *one).max_by_key(|one| count(*one));
        most.and_then(oldest)
    }

    /// Removes expired names and those that were not used since the cache was last full; if that is
    /// not enough, all names without a look-up in flight.
    fn make_room(&mut self, now: Instant) {
        let holds = |known: &Known| known.answer.as_ref().is_some_and(|kept| now < kept.until);
        self.names.retain(|_, known| {
            known.asking.is_some() || (std::mem::take(&mut known.is_used) && holds(known))
        });
        let bytes = |names: &HashMap<String, Known>| -> usize {
            names.iter().map(|(name, known)| cost(name, known)).sum()
        };
        self.bytes = bytes(&self.names);
        if self.names.len() > NAMES_MAX / 2 || self.bytes > CACHE_BYTES_MAX / 2 {
            self.names.retain(|_, known| known.asking.is_some());
            self.bytes = bytes(&self.names);
        }
        debug_assert!(
            self.names.len() >= self.in_flight.len(),
            "a look-up in flight keeps its name"
        );
    }
}

/// The bytes that are counted for a name.
fn cost(name: &str, known: &Known) -> usize {
    let answer = known.answer.as_ref().and_then(|kept| kept.result.as_ref().ok());
    let of_answer = answer.map_or(0, |answer| size_of_val(&*answer.ips) + answer.name.len());
    ENTRY_BYTES + name.len() + of_answer
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
