//! Random histories against a model.
//!
//! The model knows the registrations. It asks poll(2) directly (or the simulated net) what is
//! ready, once per descriptor, without our backends. After every wait: only tokens of present
//! registrations are delivered, only directions of their interest, and every registration that is
//! ready for its interest. An event may date from the wait that had no room for it, so a direction
//! may be spurious or come only with the next wait: the second of two consecutive waits is exact.

use std::collections::BTreeMap;
use std::os::fd::RawFd;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use readiness::{Interest, Kind, Ready, Token};

use crate::world::{World, directions};

const SOCKETS: usize = 5;

#[derive(Clone, Debug)]
enum Step {
    Register(usize, u8),
    Change(usize, u8),
    Remove(usize),
    /// The peer writes this many bytes.
    PeerWrites(usize, usize),
    /// We read at most this many.
    Read(usize, usize),
    /// We write until there is no room.
    Fill(usize),
    PeerDrains(usize),
    PeerShuts(usize),
    PeerCloses(usize),
    /// The descriptor is removed, closed, and its number given to another connection.
    Reuse(usize),
    /// A wait with enough room for everything.
    Wait,
    /// A wait with room for one.
    WaitForOne,
    Wake,
}

fn step() -> impl Strategy<Value = Step> {
    let socket = 0..SOCKETS;
    prop_oneof![
        4 => (socket.clone(), 0..4u8).prop_map(|(at, interest)| Step::Register(at, interest)),
        3 => (socket.clone(), 0..4u8).prop_map(|(at, interest)| Step::Change(at, interest)),
        1 => socket.clone().prop_map(Step::Remove),
        4 => (socket.clone(), 1..100usize).prop_map(|(at, count)| Step::PeerWrites(at, count)),
        4 => (socket.clone(), 1..200usize).prop_map(|(at, count)| Step::Read(at, count)),
        1 => socket.clone().prop_map(Step::Fill),
        2 => socket.clone().prop_map(Step::PeerDrains),
        1 => socket.clone().prop_map(Step::PeerShuts),
        1 => socket.clone().prop_map(Step::PeerCloses),
        1 => socket.prop_map(Step::Reuse),
        6 => Just(Step::Wait),
        2 => Just(Step::WaitForOne),
        1 => Just(Step::Wake),
    ]
}

pub(crate) fn random_histories(world: &mut World) {
    let kind = world.poller().kind();
    let mut runner =
        TestRunner::new(Config { cases: 150, failure_persistence: None, ..Config::default() });
    let histories = prop::collection::vec(step(), 1..60);
    runner
        .run(&histories, |history| {
            Model::new(kind).live_through(&history);
            Ok(())
        })
        .unwrap();
}

/// With io_uring, a half close that a writer did not ask for completed a poll. If the completion
/// had found no room in its wait, the next wait took it without arming the poll again, and slept.
pub(crate) fn a_half_close_that_found_no_room_ends_no_registration(world: &mut World) {
    let (read, write) = (1, 2);
    Model::new(world.poller().kind()).live_through(&[
        Step::Fill(4),
        Step::Register(4, 0),
        Step::Register(1, write),
        Step::PeerShuts(0),
        Step::Register(0, read),
        Step::WaitForOne,
        Step::Change(4, write),
        Step::PeerShuts(4),
        Step::WaitForOne,
        Step::PeerCloses(4),
        Step::Wait,
    ]);
}

struct Model {
    world: World,
    sockets: Vec<Socket>,
    next_generation: u32,
}

struct Socket {
    fd: RawFd,
    /// `None` once it has closed.
    peer: Option<RawFd>,
    peer_shut: bool,
    registration: Option<(Token, Interest)>,
}

impl Model {
    fn new(kind: Kind) -> Model {
        let mut world = World::open(kind).expect("the case runs, so the backend opens");
        let sockets = (0..SOCKETS).map(|_| Socket::from(world.pair())).collect();
        Model { world, sockets, next_generation: 0 }
    }

    fn live_through(&mut self, history: &[Step]) {
        for step in history {
            self.take(step);
        }
        self.check();
    }

    fn take(&mut self, step: &Step) {
        let (world, sockets) = (&mut self.world, &mut self.sockets);
        match *step {
            Step::Register(at, interest) | Step::Change(at, interest) => {
                let token = Token::new(at as u32, self.next_generation);
                self.next_generation += 1;
                let interest = [Interest::NONE, Interest::READ, Interest::WRITE, Interest::BOTH]
                    [usize::from(interest)];
                let socket = &mut sockets[at];
                match (step, socket.registration) {
                    (Step::Register(..), None) => {
                        world.poller().register(socket.fd, token, interest).unwrap();
                    }
                    (Step::Change(..), Some(_)) => {
                        world.poller().change(socket.fd, token, interest).unwrap();
                    }
                    _ => return,
                }
                socket.registration = Some((token, interest));
            }
            Step::Remove(at) => {
                if sockets[at].registration.take().is_some() {
                    world.remove(sockets[at].fd);
                }
            }
            Step::PeerWrites(at, count) => {
                if let Some(peer) = sockets[at].peer
                    && !sockets[at].peer_shut
                {
                    world.write(peer, count);
                }
            }
            Step::Read(at, count) => {
                world.read(sockets[at].fd, count);
            }
            Step::Fill(at) => world.fill(sockets[at].fd),
            Step::PeerDrains(at) => {
                if let Some(peer) = sockets[at].peer {
                    world.drain(peer);
                }
            }
            Step::PeerShuts(at) => {
                if let Some(peer) = sockets[at].peer
                    && !std::mem::replace(&mut sockets[at].peer_shut, true)
                {
                    world.shut_write(peer);
                }
            }
            Step::PeerCloses(at) => {
                if let Some(peer) = sockets[at].peer.take() {
                    world.close(peer);
                }
            }
            Step::Reuse(at) => {
                let fd = sockets[at].fd;
                if sockets[at].registration.is_some() {
                    world.remove(fd);
                }
                if let Some(peer) = sockets[at].peer.take() {
                    world.close(peer);
                }
                let peer = world.reopen(fd);
                sockets[at] = Socket::from((fd, peer));
            }
            Step::Wait => self.check(),
            Step::WaitForOne => self.check_one(),
            Step::Wake => world.poller().waker().unwrap().wake(),
        }
    }

    /// What is ready and of interest, by present token.
    fn expected(&self) -> BTreeMap<Token, Ready> {
        let mut expected = BTreeMap::new();
        for socket in &self.sockets {
            let Some((token, interest)) = socket.registration else { continue };
            let truth = self.world.truth(socket.fd);
            let mut ready = Ready::NONE;
            if interest.contains(Interest::READ) && truth.has(Ready::READABLE) {
                ready |= Ready::READABLE;
            }
            if interest.contains(Interest::WRITE) && truth.has(Ready::WRITABLE) {
                ready |= Ready::WRITABLE;
            }
            if !ready.is_empty() {
                expected.insert(token, ready);
            }
        }
        expected
    }

    /// What was delivered, narrowed to the interest. Asserts that nothing else was delivered.
    fn narrowed(&self, delivered: BTreeMap<Token, Ready>) -> BTreeMap<Token, Ready> {
        let present: BTreeMap<Token, Interest> =
            self.sockets.iter().filter_map(|socket| socket.registration).collect();
        let narrow = |(token, ready): (Token, Ready)| {
            let interest = *present.get(&token).expect("only present registrations are delivered");
            let mut asked = Ready::NONE;
            if interest.contains(Interest::READ) && ready.has(Ready::READABLE) {
                asked |= Ready::READABLE;
            }
            if interest.contains(Interest::WRITE) && ready.has(Ready::WRITABLE) {
                asked |= Ready::WRITABLE;
            }
            assert!(!asked.is_empty(), "{token:?} was delivered {ready:?} and wants {interest:?}");
            if !ready.has(Ready::HANGUP) && !ready.has(Ready::ERROR) {
                assert_eq!(directions(ready), asked, "{token:?} wants {interest:?}");
            }
            (token, asked)
        };
        delivered.into_iter().map(narrow).collect()
    }

    fn check(&mut self) {
        let expected = self.expected();
        let delivered = self.world.delivered();
        let delivered = self.narrowed(delivered);
        for (token, ready) in &expected {
            assert!(delivered.contains_key(token), "{token:?} is {ready:?} and was not delivered");
        }
        let again = self.world.delivered();
        assert_eq!(self.narrowed(again), expected, "nothing happened between two waits");
    }

    fn check_one(&mut self) {
        let expected = self.expected();
        self.world.set_capacity(1);
        let mut delivered = self.world.delivered();
        if delivered.is_empty() {
            // A wake may have taken the only place.
            delivered = self.world.delivered();
        }
        self.world.set_capacity(1024);
        assert!(delivered.len() == 1 || expected.is_empty(), "of {expected:?} none was delivered");
        self.narrowed(delivered);
    }
}

impl From<(RawFd, RawFd)> for Socket {
    fn from((fd, peer): (RawFd, RawFd)) -> Socket {
        Socket { fd, peer: Some(peer), peer_shut: false, registration: None }
    }
}
