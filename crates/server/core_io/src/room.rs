//! Room in the table of connections, and for descriptors.
//!
//! What: when few places are free, connections that have been silent for a while close, so that the
//! next client finds a place at once. They are those of the client networks with the most
//! connections. When no place is free, the core accepts no connection until one has closed
//! ([`CoreIo::wait_to_accept`]). Who owns: each core its table and its [`Room`].
//!
//! What never happens: a connection with a request in progress is closed for another one; a client
//! loses its connection while others have more than twice as many.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Poll, Waker};

use readiness::Token;
use readiness::slots::SlotTable;
use runtime::PackedWaker;
use runtime::sync::Notify;
use runtime::time::Instant;
use transport::shares::ClientNetwork;

use crate::CoreIo;
use crate::limits::{ROOM_AT_ONCE, ROOM_AT_ONCE_MAX, ROOM_IDLE, ROOM_LOOKS, ROOM_SHARE};

/// A client connection in the table.
#[derive(Debug)]
pub(crate) struct Place {
    waker: PackedWaker,
    client: ClientNetwork,
}

const _: () = assert!(SlotTable::<Place>::SLOT_BYTES == 24, "a cold connection pays for it");

impl Place {
    pub(crate) fn new(waker: &Waker, client: IpAddr) -> Place {
        Place { waker: PackedWaker::new(waker), client: ClientNetwork::of(client) }
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.waker()
    }
}

/// The search for room.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// How many silent connections must close.
    wanted: Cell<u32>,
    /// The networks with the most connections.
    of: RefCell<HashSet<ClientNetwork>>,
    /// Where the next search begins.
    from: Cell<usize>,
    /// Accepted connections without a place: see [`Entering`].
    entering: Cell<usize>,
    /// A connection has left the table.
    left: Notify,
}

impl Room {
    /// A connection has left the table.
    pub(crate) fn left(&self) {
        if self.left.waiting() > 0 {
            self.left.notify_all();
        }
    }
}

impl CoreIo {
    /// Whether a connection finds a place now.
    pub fn has_room(&self) -> bool {
        let connections = self.connections.borrow();
        connections.len() + self.room.entering.get() < connections.limit() as usize
    }

    /// Waits until a connection may be accepted: until no more than one waits for its place. That
    /// one is accepted so that its client is known: what a quota refuses takes no place.
    pub async fn wait_to_accept(&self) {
        while !self.may_accept() {
            self.room.left.notified().await;
        }
    }

    /// Whether [`CoreIo::wait_to_accept`] would not wait.
    pub fn may_accept(&self) -> bool {
        let connections = self.connections.borrow();
        connections.len() + self.room.entering.get() <= connections.limit() as usize
    }

    /// A connection was accepted. Its task begins with [`CoreIo::entering`].
    pub fn will_enter(&self) {
        self.room.entering.set(self.room.entering.get() + 1);
    }

    /// The connection enters the table next, or ends.
    pub fn entering(self: &Rc<CoreIo>) -> Entering {
        Entering(Rc::clone(self))
    }

    /// The client of a connection is at this address, and not where it came from.
    pub fn set_client(&self, token: Token, client: IpAddr) {
        if let Some(place) = self.connections.borrow_mut().get_mut(token) {
            place.client = ClientNetwork::of(client);
        }
    }

    /// Makes room in the table if few places are free.
    #[inline]
    pub fn look_for_room(&self) {
        let (limit, taken) = {
            let connections = self.connections.borrow();
            (connections.limit(), connections.len() + self.room.entering.get())
        };
        let reserve = limit / ROOM_SHARE;
        if taken + reserve as usize > limit as usize && self.room.wanted.get() == 0 {
            self.close_silent((2 * reserve).clamp(1, ROOM_AT_ONCE_MAX));
        }
    }

    /// Closes some silent connections, because no descriptor is free.
    pub fn make_room(&self) {
        self.close_silent(ROOM_AT_ONCE);
    }

    /// Wakes connections of the networks with the most, of which so many close if they are silent.
    #[cold]
    fn close_silent(&self, count: u32) {
        self.room.wanted.set(count);
        let connections = self.connections.borrow();
        let most = networks_with_most(connections.iter().map(|(_, place)| place.client));
        let candidates = connections.iter().filter(|(_, place)| most.contains(&place.client));
        let from = self.room.from.get();
        let wakers: Vec<Waker> =
            candidates.skip(from).take(ROOM_LOOKS).map(|(_, place)| place.waker()).collect();
        self.room.from.set(if wakers.len() < ROOM_LOOKS { 0 } else { from + ROOM_LOOKS });
        drop(connections);
        self.room.of.replace(most);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// No more connections need to close.
    pub fn room_was_made(&self) {
        self.room.wanted.set(0);
        self.look_for_room();
    }

    /// Whether a connection of this client that has been silent since then must close for others.
    #[inline]
    pub fn takes_room_of(&self, since: Instant, client: IpAddr) -> bool {
        self.room.wanted.get() > 0 && self.takes(since, client)
    }

    #[cold]
    fn takes(&self, since: Instant, client: IpAddr) -> bool {
        let is_one = self.room.of.borrow().contains(&ClientNetwork::of(client));
        if !is_one || since.elapsed() < ROOM_IDLE {
            return false;
        }
        self.room.wanted.set(self.room.wanted.get() - 1);
        self.counters.connections_closed_for_room.add(1);
        true
    }

    /// Waits until a connection of this client, silent since then, must close for others. The
    /// waker of its place wakes it.
    pub async fn room_taken(&self, since: Instant, client: IpAddr) {
        poll_fn(|_| match self.takes_room_of(since, client) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// A connection that was accepted and has no place in the table yet.
#[derive(Debug)]
pub struct Entering(Rc<CoreIo>);

impl Entering {
    /// Takes a place if one is free.
    ///
    /// # Errors
    /// None is, and the connection may wait for it.
    pub fn now(self, waker: &Waker, client: IpAddr) -> Result<Token, Entering> {
        let io = Rc::clone(&self.0);
        if io.connections.borrow().is_full() {
            return Err(self);
        }
        drop(self);
        Ok(io.enter(waker, client).expect("the table is not full"))
    }

    /// Waits for a place, and takes it.
    pub async fn wait(mut self, waker: Waker, client: IpAddr) -> Token {
        loop {
            match self.now(&waker, client) {
                Ok(token) => return token,
                Err(waiting) => self = waiting,
            }
            self.0.look_for_room();
            self.0.room.left.notified().await;
        }
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        let Room { entering, .. } = &self.0.room;
        entering.set(entering.get().checked_sub(1).expect("it was counted"));
        self.0.room.left();
    }
}

/// The networks that have more than half of the connections of the one with the most.
fn networks_with_most(connections: impl Iterator<Item = ClientNetwork>) -> HashSet<ClientNetwork> {
    let mut counts = HashMap::<ClientNetwork, usize>::new();
    connections.for_each(|network| *counts.entry(network).or_default() += 1);
    let most = counts.values().copied().max().unwrap_or(0);
    counts.into_iter().filter(|(_, count)| 2 * count > most).map(|(network, _)| network).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_networks_with_the_most_are_those_near_the_first() {
        let network = |at: u8| ClientNetwork::of(IpAddr::from([10, 0, 0, at]));
        let of = |counts: &[(u8, usize)]| {
            let each = counts.iter().flat_map(|&(at, count)| vec![network(at); count]);
            let mut found: Vec<_> = networks_with_most(each).into_iter().collect();
            found.sort();
            found
        };
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[(1, 1), (2, 1)]), [network(1), network(2)]);
        assert_eq!(of(&[(1, 10), (2, 6), (3, 5)]), [network(1), network(2)]);
    }
}
