//! Shares of something bounded, by client network.
//!
//! What: clients hold parts of one total, such as the memory of TLS handshakes. While the total is
//! above its bound, the network that holds the most loses its oldest holder. Why: a first-come
//! bound lets a stranger who holds everything keep all others waiting. Who owns: each core has its
//! [`Shares`], and each connection that may hold a part has a [`Share`].
//!
//! What never happens: a holder is evicted while its network holds less than another network;
//! the total is above its bound after a call; a holder waits for another one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Whom a share belongs to: an address of IPv4, or the /64 of an address of IPv6. An IPv4 address
/// inside IPv6 counts as one of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNetwork(u64);

impl ClientNetwork {
    /// The network of a client with this address.
    pub fn of(client: IpAddr) -> ClientNetwork {
        ClientNetwork(match client.to_canonical() {
            // No global /64 has 32 zeros at its beginning (RFC 4291, 2.5.4).
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        })
    }

    /// A number that no other network has.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The total and its holders.
#[derive(Debug)]
pub struct Shares {
    max: u64,
    table: RefCell<Table>,
}

#[derive(Debug, Default)]
struct Table {
    held: u64,
    next: u64,
    /// By network, the oldest first.
    holders: BTreeMap<(ClientNetwork, u64), Holder>,
    /// What each network holds, which is never 0.
    networks: HashMap<ClientNetwork, u64>,
    /// The same, the least first.
    by_amount: BTreeSet<(u64, ClientNetwork)>,
}

#[derive(Debug)]
struct Holder {
    amount: u64,
    /// The task that waits in [`Share::poll_evicted`].
    waker: Option<Waker>,
}

impl Shares {
    /// Nothing is held of a total of `max`.
    pub fn new(max: u64) -> Rc<Shares> {
        Rc::new(Shares { max, table: RefCell::default() })
    }

    /// A share that holds nothing yet, for a client at this address.
    pub fn share(self: &Rc<Shares>, client: IpAddr) -> Share {
        let (network, number) = (ClientNetwork::of(client), Cell::new(None));
        Share { shares: Rc::clone(self), network, number }
    }

    /// What all holders hold.
    pub fn held(&self) -> u64 {
        self.table.borrow().held
    }
}

impl Table {
    /// Changes what a network holds.
    fn account(&mut self, network: ClientNetwork, before: u64, after: u64) {
        let of_network = self.networks.remove(&network).unwrap_or(0);
        if of_network > 0 {
            self.by_amount.remove(&(of_network, network));
        }
        assert!(of_network >= before && self.held >= before, "what is given back was held");
        let of_network = of_network - before + after;
        if of_network > 0 {
            self.networks.insert(network, of_network);
            self.by_amount.insert((of_network, network));
        }
        self.held = self.held - before + after;
        assert!(self.networks.len() == self.by_amount.len(), "each network once");
        assert!(self.held >= of_network, "a network holds a part of the whole");
    }

    /// Takes everything from the oldest holder of the network that holds the most.
    fn evict_one(&mut self) -> Option<Waker> {
        let (_, network) = *self.by_amount.last().expect("something is held");
        let oldest = self.holders.range((network, 0)..=(network, u64::MAX)).next();
        let key = *oldest.expect("a network that holds something has a holder").0;
        let holder = self.holders.remove(&key).expect("it was just found");
        assert!(holder.amount <= self.held && self.networks.len() <= self.holders.len() + 1);
        self.account(network, holder.amount, 0);
        holder.waker
    }
}

/// What one client holds; given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    shares: Rc<Shares>,
    network: ClientNetwork,
    /// Its place among the holders, once it has held something.
    number: Cell<Option<u64>>,
}

impl Share {
    /// Sets what is held. While the total is above its bound, holders are evicted, which may
    /// include this one: see [`Share::evicted`].
    pub fn set(&self, amount: u64) {
        if self.is_evicted() || (amount == 0 && self.number.get().is_none()) {
            return;
        }
        let mut evicted = Vec::new();
        let table = &mut *self.shares.table.borrow_mut();
        let number = self.number.get().unwrap_or(table.next);
        if self.number.replace(Some(number)).is_none() {
            table.next += 1;
        }
        let key = (self.network, number);
        assert!(number < table.next, "a number names one holder");
        let holder = table.holders.entry(key).or_insert(Holder { amount: 0, waker: None });
        let before = std::mem::replace(&mut holder.amount, amount);
        table.account(self.network, before, amount);
        while table.held > self.shares.max {
            evicted.extend(table.evict_one());
        }
        evicted.into_iter().for_each(Waker::wake);
    }

    /// Whether it was evicted. Its connection must end then.
    pub fn is_evicted(&self) -> bool {
        let table = self.shares.table.borrow();
        self.number.get().is_some_and(|at| !table.holders.contains_key(&(self.network, at)))
    }

    /// Waits until it is evicted.
    pub async fn evicted(&self) {
        poll_fn(|cx| self.poll_evicted(cx)).await;
    }

    /// [`Self::evicted`] for hand-written futures.
    pub fn poll_evicted(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_evicted() {
            return Poll::Ready(());
        }
        if let Some(number) = self.number.get() {
            let table = &mut *self.shares.table.borrow_mut();
            let holder = table.holders.get_mut(&(self.network, number));
            holder.expect("it was not evicted").waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let Some(number) = self.number.get() else { return };
        let table = &mut *self.shares.table.borrow_mut();
        if let Some(holder) = table.holders.remove(&(self.network, number)) {
            table.account(self.network, holder.amount, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(network: u8, host: u8) -> IpAddr {
        IpAddr::from([10, network, 0, host])
    }

    #[test]
    fn a_network_is_an_address_of_ipv4_or_a_64_of_ipv6() {
        let of = |text: &str| ClientNetwork::of(text.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

    #[test]
    fn the_oldest_of_the_network_that_holds_the_most_is_evicted() {
        let shares = Shares::new(10);
        let small = shares.share(address(1, 1));
        small.set(2);
        let many: Vec<Share> = (0..4).map(|_| shares.share(address(2, 2))).collect();
        many.iter().for_each(|share| share.set(2));
        assert_eq!(shares.held(), 10);
        let late = shares.share(address(3, 3));
        late.set(1);
        let evicted: Vec<bool> = many.iter().map(Share::is_evicted).collect();
        assert_eq!(evicted, [true, false, false, false]);
        assert!(!small.is_evicted() && !late.is_evicted());
        // One that was evicted holds nothing any more, whatever it does.
        many[0].set(9);
        assert_eq!(shares.held(), 9);
        drop(many);
        drop((small, late));
        assert_eq!(shares.held(), 0);
        assert!(shares.table.borrow().networks.is_empty());
    }

    #[test]
    fn a_task_that_waits_learns_of_its_eviction() {
        let mut runtime = runtime::Runtime::simulated(runtime::sim::Options::new(1));
        runtime.block_on(async {
            let shares = Shares::new(1);
            let first = shares.share(address(1, 1));
            first.set(1);
            let waits = runtime::spawn(async move { first.evicted().await });
            runtime::yield_now().await;
            let second = shares.share(address(1, 1));
            second.set(1);
            waits.await;
            assert!(!second.is_evicted());
        });
    }

    proptest! {
        /// Compared with a list that is searched from its beginning.
        #[test]
        fn shares_do_as_a_plain_list_does(
            steps in prop::collection::vec((0u8..12, 0u64..40, any::<bool>()), 1..200),
        ) {
            const MAX: u64 = 100;
            let shares = Shares::new(MAX);
            let mut real: Vec<Share> = Vec::new();
            let network = |holder: usize| address((holder % 3) as u8, 0);
            // The amount of each holder, and when it first held something.
            let mut plain: Vec<(Option<u64>, u64)> = Vec::new();
            let mut first = 0;
            for holder in 0..12 {
                real.push(shares.share(network(holder)));
                plain.push((Some(0), u64::MAX));
            }
            for (holder, amount, replaces) in steps {
                let holder = usize::from(holder);
                if replaces {
                    real[holder] = shares.share(network(holder));
                    plain[holder] = (Some(0), u64::MAX);
                }
                real[holder].set(amount);
                if let (Some(held), since) = &mut plain[holder] {
                    if amount > 0 && *since == u64::MAX {
                        *since = first;
                        first += 1;
                    }
                    *held = amount;
                }
                let sum = |plain: &[(Option<u64>, u64)], network: Option<ClientNetwork>| -> u64 {
                    let of = |&(at, _): &(usize, _)| {
                        let its = ClientNetwork::of(address((at % 3) as u8, 0));
                        network.is_none_or(|network| network == its)
                    };
                    plain.iter().enumerate().filter(of).filter_map(|(_, (held, _))| *held).sum()
                };
                while sum(&plain, None) > MAX {
                    let networks = (0..3).map(|at| ClientNetwork::of(address(at, 0)));
                    let most = networks.max_by_key(|&of| (sum(&plain, Some(of)), of)).unwrap();
                    let its = |at: &usize| ClientNetwork::of(network(*at)) == most;
                    let there = (0..12).filter(its).filter(|&at| plain[at].0.is_some());
                    let oldest = there.min_by_key(|&at| plain[at].1).unwrap();
                    plain[oldest].0 = None;
                }
                for (real, (held, _)) in real.iter().zip(&plain) {
                    prop_assert_eq!(real.is_evicted(), held.is_none());
                }
                prop_assert_eq!(shares.held(), sum(&plain, None));
                prop_assert!(shares.held() <= MAX);
            }
        }
    }
}
