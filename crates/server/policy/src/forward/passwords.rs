//! Proxy authentication: Basic (RFC 7617), with hashes that are slow on purpose.
//!
//! Verifying a password takes as long as a bcrypt hash, so it is done on the runtime's pool, one at
//! a time for each core. A verified password is remembered for a while: not the password itself,
//! but a keyed hash of it, the user's name and the hash it was compared with, so that a changed
//! file changes the result. Requests that wait with the same password find it verified when it is
//! their turn.
//!
//! A core that sheds requests sheds those that would be verified, too, before they are.
//!
//! What never happens: a core hashes; more requests wait than a limit; one network of clients keeps
//! another one waiting for more than one of its passwords; a client can distinguish an
//! unknown name from a wrong password, by the answer or by its time.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::mem;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http1::{Name, RequestHead};
use runtime::time::{self, Instant};
use store::KeyHasher;
use transport::shares::ClientNetwork;

use crate::limits::{PASSWORD_KNOWN_FOR, PASSWORDS_KNOWN_MAX, PASSWORDS_WAITING_MAX};
use crate::overload::Overload;
use config::Users;
use outcome::Refusal;

/// Recently verified passwords, and until when each is remembered.
#[derive(Debug)]
pub struct Known {
    hasher: KeyHasher,
    until: Mutex<HashMap<u128, Instant>>,
}

impl Default for Known {
    /// Nothing is remembered yet.
    fn default() -> Known {
        Known { hasher: KeyHasher::random(), until: Mutex::default() }
    }
}

impl Known {
    fn key(&self, given: &Given, hash: &str) -> u128 {
        self.hasher.key(&[&given.user, &given.password, hash.as_bytes()]).to_u128()
    }

    fn holds(&self, key: u128) -> bool {
        self.until().get(&key).is_some_and(|until| time::now() < *until)
    }

    fn add(&self, key: u128) {
        let mut known = self.until();
        if known.len() >= PASSWORDS_KNOWN_MAX {
            known.clear();
        }
        known.insert(key, time::now() + PASSWORD_KNOWN_FOR);
    }

    /// Nothing panics while it holds this lock.
    fn until(&self) -> MutexGuard<'_, HashMap<u128, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One core's turns at the pool. The networks of clients take turns, and each of them serves its
/// requests in their order: however many passwords one network sends, another one waits for one of
/// them at most.
#[derive(Default)]
pub struct Verifying {
    busy: Cell<bool>,
    waiting: RefCell<Vec<Waiting>>,
    /// Numbers the requests that wait.
    next: Cell<u64>,
    /// The network that had its turn last.
    last: Cell<Option<ClientNetwork>>,
}

/// A request that waits for its turn.
struct Waiting {
    network: ClientNetwork,
    number: u64,
    state: WaitState,
}

impl Waiting {
    fn waits(&self) -> bool {
        matches!(self.state, WaitState::New | WaitState::Waits(_))
    }
}

enum WaitState {
    /// It has not been polled.
    New,
    Waits(Waker),
    /// It has the turn.
    Chosen,
    /// Another one needs its place.
    Refused,
}

/// A turn; given back when dropped.
struct Turn<'v>(&'v Verifying);

/// A place among the requests that wait; given back when dropped.
struct InLine<'v> {
    verifying: &'v Verifying,
    number: u64,
}

impl Verifying {
    async fn turn(&self, client: IpAddr) -> Result<Turn<'_>, Refusal> {
        if !self.busy.replace(true) {
            return Ok(Turn(self));
        }
        let place = self.wait_in_line(ClientNetwork::of(client))?;
        poll_fn(|cx| place.poll(cx)).await
    }

    /// Takes a place. If there is none, the network that has the most loses its newest.
    fn wait_in_line(&self, network: ClientNetwork) -> Result<InLine<'_>, Refusal> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.iter().filter(|one| one.waits()).count() >= PASSWORDS_WAITING_MAX {
            let count = |of: ClientNetwork| {
                waiting.iter().filter(|one| one.waits() && one.network == of).count()
            };
            let most = waiting.iter().map(|one| count(one.network)).max().unwrap_or(0);
            if count(network) >= most {
                return Err(Refusal::PasswordsBusy);
            }
            let newest = waiting.iter().rposition(|one| one.waits() && count(one.network) == most);
            let newest = newest.expect("some network has the most");
            if let WaitState::Waits(waker) =
                mem::replace(&mut waiting[newest].state, WaitState::Refused)
            {
                waker.wake();
            }
        }
        let number = self.next.replace(self.next.get() + 1);
        waiting.push(Waiting { network, number, state: WaitState::New });
        Ok(InLine { verifying: self, number })
    }

    /// Gives the turn to the oldest request of the network that comes after the last one.
    fn give_turn(&self) {
        let mut waiting = self.waiting.borrow_mut();
        let last = self.last.get();
        let next = waiting
            .iter_mut()
            .filter(|one| one.waits())
            .min_by_key(|one| (Some(one.network) <= last, one.network, one.number));
        self.busy.set(next.is_some());
        let Some(next) = next else { return };
        self.last.set(Some(next.network));
        if let WaitState::Waits(waker) = mem::replace(&mut next.state, WaitState::Chosen) {
            waker.wake();
        }
    }
}

impl<'v> InLine<'v> {
    fn poll(&self, cx: &Context<'_>) -> Poll<Result<Turn<'v>, Refusal>> {
        let mut waiting = self.verifying.waiting.borrow_mut();
        let at = waiting.iter().position(|one| one.number == self.number);
        let at = at.expect("it waits until it is dropped");
        match waiting[at].state {
            WaitState::Refused => Poll::Ready(Err(Refusal::PasswordsBusy)),
            WaitState::Chosen => {
                waiting.remove(at);
                Poll::Ready(Ok(Turn(self.verifying)))
            }
            WaitState::New | WaitState::Waits(_) => {
                waiting[at].state = WaitState::Waits(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut waiting = self.verifying.waiting.borrow_mut();
        let at = waiting.iter().position(|one| one.number == self.number);
        let left = at.map(|at| waiting.remove(at));
        drop(waiting);
        // It leaves with a turn that it has not taken.
        if left.is_some_and(|left| matches!(left.state, WaitState::Chosen)) {
            self.verifying.give_turn();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.give_turn();
    }
}

/// A name and a password as received.
struct Given {
    user: Vec<u8>,
    password: Vec<u8>,
}

/// What verifying the password of one request needs.
#[derive(Clone, Copy)]
pub struct Passwords<'p> {
    /// The passwords that all cores remember.
    pub known: &'p Known,
    /// The core's turns.
    pub verifying: &'p Verifying,
    /// Whether a verified password is remembered.
    pub remembers: bool,
    /// The core's load: while it sheds, it verifies passwords only for those who get a turn.
    pub overload: &'p Overload,
}

impl Passwords<'_> {
    /// The user that a request names in this field, once its password has been verified.
    pub(crate) async fn user(
        self,
        client: IpAddr,
        (head, field): (&RequestHead<'_>, Name),
        users: &Users,
    ) -> Result<Arc<[u8]>, Refusal> {
        let given = given(head, field)?;
        let hash = users.hash_of(&given.user);
        let name: Arc<[u8]> = given.user.as_slice().into();
        let is_known = hash.is_some_and(|hash| self.known.holds(self.known.key(&given, hash)));
        // A hash costs more than most requests to an upstream.
        if !is_known && self.remembers && self.overload.sheds_of(client) {
            return Err(Refusal::Overload);
        }
        if is_known || self.verified(client, users, given, hash).await? {
            Ok(name)
        } else {
            Err(Refusal::PasswordWrong)
        }
    }

    async fn verified(
        self,
        client: IpAddr,
        users: &Users,
        given: Given,
        hash: Option<&str>,
    ) -> Result<bool, Refusal> {
        let known = self.known;
        let _turn = self.verifying.turn(client).await?;
        let key = hash.map(|hash| known.key(&given, hash));
        if key.is_some_and(|key| known.holds(key)) {
            return Ok(true);
        }
        // A name that does not exist takes as long as one that does.
        let Some(against) = hash.or(users.any_hash()).map(str::to_owned) else { return Ok(false) };
        let matches = move || bcrypt::verify(&given.password, &against).unwrap_or(false);
        let matches = runtime::fs::unblock(matches).await;
        match key {
            Some(key) if matches => {
                if self.remembers {
                    known.add(key);
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

fn given(head: &RequestHead<'_>, field: Name) -> Result<Given, Refusal> {
    let mut fields = head.fields.all(field);
    let field = fields.next().ok_or(Refusal::PasswordMissing)?;
    if fields.next().is_some() {
        return Err(Refusal::PasswordWrong);
    }
    let (scheme, rest) = field.split_at_checked(5).ok_or(Refusal::PasswordMissing)?;
    if !scheme.eq_ignore_ascii_case(b"basic") || !rest.starts_with(b" ") {
        return Err(Refusal::PasswordMissing);
    }
    let decoded = BASE64_STANDARD.decode(rest.trim_ascii()).map_err(|_| Refusal::PasswordWrong)?;
    let colon = decoded.iter().position(|&b| b == b':').ok_or(Refusal::PasswordWrong)?;
    if decoded.iter().any(u8::is_ascii_control) {
        return Err(Refusal::PasswordWrong);
    }
    let (user, password) = decoded.split_at(colon);
    Ok(Given { user: user.to_vec(), password: password[1..].to_vec() })
}

#[cfg(test)]
mod tests {
    use http1::{Limits, Scratch, parse_request};

    use super::*;

    fn read(fields: &str) -> Result<(String, String), Refusal> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let (mut scratch, limits) = (Scratch::new(), Limits::default());
        let head = parse_request(bytes.as_bytes(), &mut scratch, &limits).unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        given(&head, Name::ProxyAuthorization).map(|given| (text(given.user), text(given.password)))
    }

    fn simulated(test: impl AsyncFnOnce()) {
        let mut runtime = runtime::Runtime::simulated(runtime::sim::Options::new(1));
        runtime.block_on(test());
    }

    /// A stranger that sent many wrong passwords kept all others waiting, and then refused.
    #[test]
    fn networks_take_turns_and_the_one_with_the_most_is_refused() {
        simulated(async || {
            let verifying = std::rc::Rc::new(Verifying::default());
            let order = std::rc::Rc::new(RefCell::new(Vec::new()));
            let begin = |host: u8, name: usize| {
                let (verifying, order) = (verifying.clone(), order.clone());
                runtime::spawn(async move {
                    let turn = verifying.turn(IpAddr::from([192, 0, 2, host])).await;
                    let Ok(_turn) = turn else { return false };
                    order.borrow_mut().push(name);
                    runtime::yield_now().await;
                    true
                })
            };
            let Ok(turn) = verifying.turn(IpAddr::from([192, 0, 2, 7])).await else {
                panic!("no other one has it");
            };
            let count = PASSWORDS_WAITING_MAX + 5;
            let strangers: Vec<_> = (0..count).map(|at| begin(7, at)).collect();
            runtime::yield_now().await;
            let honest = [begin(9, 1000), begin(9, 1001)];
            runtime::yield_now().await;
            drop(turn);
            for one in honest {
                assert!(one.await);
            }
            let before = order.borrow().iter().take_while(|name| **name != 1001).count();
            assert!(before <= 3, "{:?}", order.borrow());
            let mut refused = 0;
            for one in strangers {
                refused += usize::from(!one.await);
            }
            assert_eq!(refused, 5 + 2, "two have made room");
            assert!(!verifying.busy.get() && verifying.waiting.borrow().is_empty());
        });
    }

    #[test]
    fn one_that_leaves_with_the_turn_gives_it_on() {
        simulated(async || {
            let verifying = Verifying::default();
            let client = IpAddr::from([192, 0, 2, 1]);
            let Ok(turn) = verifying.turn(client).await else { panic!("no other one has it") };
            let cx = Context::from_waker(Waker::noop());
            let Ok(first) = verifying.wait_in_line(ClientNetwork::of(client)) else { panic!() };
            let Ok(second) = verifying.wait_in_line(ClientNetwork::of(client)) else { panic!() };
            assert!(first.poll(&cx).is_pending() && second.poll(&cx).is_pending());
            drop(turn);
            drop(first);
            assert!(matches!(second.poll(&cx), Poll::Ready(Ok(_))));
            drop(second);
            assert!(!verifying.busy.get());
        });
    }

    #[test]
    fn names_and_passwords_are_read_strictly() {
        let field = |what: &[u8]| {
            format!("Proxy-Authorization: BASIC {}\r\n", BASE64_STANDARD.encode(what))
        };
        let pair = |user: &str, password: &str| Ok((user.to_owned(), password.to_owned()));
        assert_eq!(read(&field(b"jo:secret")), pair("jo", "secret"));
        assert_eq!(read(&field(b"jo:a:b:")), pair("jo", "a:b:"));
        assert_eq!(read(&field("j\u{f6}:\u{20ac}".as_bytes())), pair("j\u{f6}", "\u{20ac}"));
        assert_eq!(read(&field(b":")), pair("", ""));
        for wrong in
            [field(b"jo"), field(b"jo:a\nb"), field(b"jo:a\0"), field(b"j:p") + &field(b"j:p")]
        {
            assert_eq!(read(&wrong), Err(Refusal::PasswordWrong), "{wrong}");
        }
        assert_eq!(read("Proxy-Authorization: Basic ###\r\n"), Err(Refusal::PasswordWrong));
        for missing in ["", "Proxy-Authorization: Bearer x\r\n", "Proxy-Authorization: Basi\r\n"] {
            assert_eq!(read(missing), Err(Refusal::PasswordMissing), "{missing}");
        }
        assert_eq!(read("Authorization: Basic am86c2VjcmV0\r\n"), Err(Refusal::PasswordMissing));
    }
}
