//! One order: from the name to its certificate, or to the reason why there is none.
//!
//! ```text
//!            no order is known              an order was begun before
//!                   |                                  |
//!                 Begin --------.                   Resume
//!                   ^           v                      |
//!   it is gone      |   .---> Look <-------------------'
//!   or useless -----'   |       |-- pending ----> Prove --> Wait --.
//!                       |       |-- processing -> Wait             |
//!                       |       |-- ready ------> Finalize         |
//!                       |       |-- valid ------> Download --> End |
//!                       |       '-- invalid ----> Fail             |
//!                       '------------------------------------------'
//! ```
//!
//! Each step reads the state that the authority reports, so an order that an earlier process began
//! goes on where it was. The order and its key are saved before anything depends on them.
//!
//! What never happens: a step reads a clock or a file; an order goes on for longer than
//! `ORDER_TIME_MAX`; a second order is begun while the first one can still become a certificate.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::{NONCE_TRIES_MAX, ORDER_TIME_MAX, POLL, RETRY_AFTER_MAX};
use crate::prove::{self, Answer, Proof};

/// The state of an order, as the authority reports it (RFC 8555, 7.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The name has to be proven.
    Pending,
    /// The name is proven.
    Ready,
    /// The certificate is made.
    Processing,
    /// The certificate is there.
    Valid,
    /// There will be no certificate.
    Invalid,
}

/// Why an attempt has failed, or was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) kind: TroubleKind,
    pub(crate) what: String,
    /// How long the authority wants to be left alone.
    pub(crate) retry_after: Option<Duration>,
}

/// Kinds of trouble that are treated differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TroubleKind {
    /// The authority wants another nonce (RFC 8555, 6.5).
    BadNonce,
    /// The authority does not know the account, or the order.
    Unknown,
    /// This process is about to end, or has another configuration.
    Interrupted,
    /// Anything else.
    Other,
}

impl Trouble {
    pub(crate) fn of(what: impl Into<String>) -> Trouble {
        Trouble { kind: TroubleKind::Other, what: what.into(), retry_after: None }
    }

    pub(crate) fn interrupted() -> Trouble {
        Trouble { kind: TroubleKind::Interrupted, ..Trouble::of("interrupted") }
    }
}

/// A certification authority, and one order there.
pub(crate) trait Authority {
    /// Orders a certificate for a name. Returns the URL of the order.
    fn begin(&mut self, name: &str) -> Result<String, Trouble>;

    /// Goes on with the order at this URL.
    fn resume(&mut self, url: &str) -> Result<(), Trouble>;

    /// Asks for the status, and for how long not to ask again.
    fn status(&mut self) -> Result<(Status, Option<Duration>), Trouble>;

    /// The check to prepare for; `None` if the name needs none.
    fn proof(&mut self) -> Result<Option<Proof>, Trouble>;

    /// Has the authority make its check.
    fn check(&mut self) -> Result<(), Trouble>;

    /// Sends the request to sign, as DER.
    fn finalize(&mut self, signing_request: &[u8]) -> Result<(), Trouble>;

    /// The chain, as PEM.
    fn certificate(&mut self) -> Result<String, Trouble>;

    /// Why the order is invalid.
    fn why_invalid(&mut self) -> Trouble;
}

/// What an order needs besides the authority.
pub(crate) trait World {
    /// Seconds since the Unix epoch.
    fn now_s(&mut self) -> u64;

    /// Waits for this time.
    ///
    /// # Errors
    /// [`TroubleKind::Interrupted`].
    fn wait(&mut self, time: Duration) -> Result<(), Trouble>;

    /// Answers the check of the authority like this, on all members of a cluster when it returns.
    fn answer(&mut self, answer: &Answer) -> Result<(), Trouble>;

    /// The check is over: gives no answer any more.
    fn end_answer(&mut self);

    /// Makes what is known of a name durable.
    fn save(&mut self, name: &str, record: &Record) -> Result<(), Trouble>;
}

/// What is known of a name besides its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Attempts that have failed since the last one that has not.
    pub(crate) failures: u32,
    /// No attempt before that, in seconds since the Unix epoch.
    pub(crate) not_before_s: u64,
    /// Why the last attempt failed.
    pub(crate) error: Option<String>,
    /// An order that may still become a certificate.
    pub(crate) order: Option<Begun>,
}

/// An order that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// Its URL.
    pub(crate) url: String,
    /// The private key that the certificate will be for, as PEM.
    pub(crate) key: String,
}

/// Obtains a certificate: the chain and the key, as one PEM text. The record keeps the order until
/// the caller has stored the certificate: if that fails, the next attempt fetches the same one.
pub(crate) fn obtain(
    authority: &mut dyn Authority,
    world: &mut dyn World,
    by: config::Challenge,
    name: &str,
    record: &mut Record,
) -> Result<String, Trouble> {
    let until_s = world.now_s() + ORDER_TIME_MAX.as_secs();
    let mut is_resumed = false;
    if let Some(begun) = &record.order {
        match patiently(|| authority.resume(&begun.url)) {
            Ok(()) => is_resumed = true,
            Err(trouble) if trouble.kind == TroubleKind::Unknown => record.order = None,
            Err(trouble) => return Err(trouble),
        }
    }
    if !is_resumed {
        begin(authority, world, name, record)?;
    }
    let mut is_proven = false;
    loop {
        let (status, retry_after) = patiently(|| authority.status())?;
        let begun = record.order.as_ref().expect("an order was begun");
        match status {
            Status::Pending if !is_proven => {
                if let Some(proof) = patiently(|| authority.proof())? {
                    world.answer(&proof.answer(by).map_err(Trouble::of)?)?;
                    patiently(|| authority.check())?;
                }
                is_proven = true;
                continue;
            }
            Status::Ready => {
                let request = prove::signing_request(name, &begun.key).map_err(Trouble::of)?;
                patiently(|| authority.finalize(&request))?;
                continue;
            }
            Status::Valid => {
                let chain = patiently(|| authority.certificate())?;
                return Ok(format!("{}\n{}", chain.trim_end(), begun.key));
            }
            Status::Invalid if is_resumed => {
                // It may have become invalid while no process was there to answer.
                (is_resumed, is_proven) = (false, false);
                begin(authority, world, name, record)?;
                continue;
            }
            Status::Invalid => {
                record.order = None;
                return Err(authority.why_invalid());
            }
            Status::Pending | Status::Processing => {}
        }
        let wait = retry_after.unwrap_or_default().clamp(POLL, RETRY_AFTER_MAX);
        if world.now_s() + wait.as_secs() > until_s {
            let (what, seconds) = (name, ORDER_TIME_MAX.as_secs());
            let what = format!("the authority has not come to a result for {what} in {seconds} s");
            return Err(Trouble { retry_after, ..Trouble::of(what) });
        }
        world.wait(wait)?;
    }
}

fn begin(
    authority: &mut dyn Authority,
    world: &mut dyn World,
    name: &str,
    record: &mut Record,
) -> Result<(), Trouble> {
    // First, so that a full disk costs no order.
    record.order = None;
    world.save(name, record)?;
    let key = prove::new_key().map_err(Trouble::of)?;
    let url = patiently(|| authority.begin(name))?;
    record.order = Some(Begun { url, key });
    world.save(name, record)
}

/// Tries again with another nonce.
fn patiently<T>(mut request: impl FnMut() -> Result<T, Trouble>) -> Result<T, Trouble> {
    for _ in 1..NONCE_TRIES_MAX {
        match request() {
            Err(trouble) if trouble.kind == TroubleKind::BadNonce => {}
            done => return done,
        }
    }
    request()
}

#[cfg(test)]
mod tests {
    use config::Challenge::{Http01, TlsAlpn01};

    use super::*;
    use crate::fake::{FakeAuthority, FakeWorld, NOW_S, trouble};

    fn world() -> FakeWorld {
        FakeWorld { now_s: NOW_S, ..FakeWorld::default() }
    }

    #[test]
    fn an_order_goes_from_step_to_step_and_is_saved_before_anything_depends_on_it() {
        for by in [Http01, TlsAlpn01] {
            let mut authority = FakeAuthority { slowness: 2, ..FakeAuthority::default() };
            let (mut world, mut record) = (world(), Record::default());
            let pem = obtain(&mut authority, &mut world, by, "a.test", &mut record).unwrap();
            assert_eq!(pem.matches("BEGIN CERTIFICATE").count(), 1);
            assert_eq!(pem.matches("BEGIN PRIVATE KEY").count(), 1);
            let [first, .., last] = authority.calls.as_slice() else { panic!("no calls") };
            assert_eq!((*first, *last), ("begin", "certificate"));
            for once in ["begin", "proof", "check", "finalize", "certificate"] {
                assert_eq!(authority.count(once), 1, "{once}");
            }
            let [answer] = world.answers.as_slice() else { panic!("one answer") };
            match answer {
                Answer::Http { token, content } => {
                    assert_eq!((token.as_str(), content.as_str()), ("token", "token.thumb"));
                }
                Answer::Tls { name, pem } => {
                    assert!(name == "a.test" && pem.contains("PRIVATE KEY"));
                }
            }
            assert_eq!(matches!(answer, Answer::Http { .. }), by == Http01);
            // The caller removes it when the certificate is stored.
            assert_eq!(world.saved, Some(record));
        }
    }

    #[test]
    fn bad_nonces_are_tried_again_and_not_for_ever() {
        let nonces = |count| vec![trouble(TroubleKind::BadNonce); count];
        let mut authority = FakeAuthority { failing: nonces(5), ..FakeAuthority::default() };
        let (mut one, mut record) = (world(), Record::default());
        obtain(&mut authority, &mut one, Http01, "a.test", &mut record).unwrap();
        assert_eq!((authority.count("begin"), authority.orders), (6, 1));
        let mut authority = FakeAuthority { failing: nonces(99), ..FakeAuthority::default() };
        let (mut other, mut record) = (world(), Record::default());
        let refused = obtain(&mut authority, &mut other, Http01, "a.test", &mut record);
        assert_eq!(refused.unwrap_err().kind, TroubleKind::BadNonce);
        assert_eq!((authority.count("begin"), authority.orders), (NONCE_TRIES_MAX, 0));
    }

    /// After each number of waits, the process ends and another one goes on.
    #[test]
    fn a_restart_in_the_middle_goes_on_with_the_same_order_and_the_same_key() {
        for ends_after in 0..6 {
            let mut authority = FakeAuthority { slowness: 3, ..FakeAuthority::default() };
            let mut first = FakeWorld { ends_after: Some(ends_after), ..world() };
            let mut record = Record::default();
            let done = obtain(&mut authority, &mut first, Http01, "a.test", &mut record);
            assert_eq!(done.unwrap_err().kind, TroubleKind::Interrupted, "{ends_after}");
            let (mut second, mut record) = (world(), first.saved.unwrap());
            let key = record.order.clone().unwrap().key;
            let pem = obtain(&mut authority, &mut second, Http01, "a.test", &mut record).unwrap();
            assert!(pem.ends_with(&key));
            assert_eq!((authority.orders, authority.count("finalize")), (1, 1), "{ends_after}");
        }
    }

    #[test]
    fn an_order_that_is_gone_or_invalid_after_a_restart_is_begun_again() {
        let begun = || {
            let (url, key) = ("https://authority.test/order/0".into(), prove::new_key().unwrap());
            Record { order: Some(Begun { url, key }), ..Record::default() }
        };
        let gone = vec![trouble(TroubleKind::Unknown)];
        for failing in [gone, Vec::new()] {
            // Without a failure, the order is there and invalid.
            let mut authority = FakeAuthority { failing, ..FakeAuthority::default() };
            (authority.status, authority.next) = (Status::Invalid, Status::Invalid);
            let (mut world, mut record) = (world(), begun());
            obtain(&mut authority, &mut world, Http01, "a.test", &mut record).unwrap();
            assert_eq!((authority.count("resume"), authority.orders), (1, 1));
        }
        // If the authority is away, the order may still be there.
        let failing = vec![Trouble::of("away")];
        let mut authority = FakeAuthority { failing, ..FakeAuthority::default() };
        let (mut world, mut record) = (world(), begun());
        obtain(&mut authority, &mut world, Http01, "a.test", &mut record).unwrap_err();
        assert!(record.order.is_some() && authority.orders == 0);
    }

    #[test]
    fn a_wrong_name_fails_with_the_reason_and_leaves_no_order() {
        let mut authority = FakeAuthority { checked: Status::Invalid, ..FakeAuthority::default() };
        let (mut world, mut record) = (world(), Record::default());
        let done = obtain(&mut authority, &mut world, Http01, "a.test", &mut record);
        assert_eq!(done.unwrap_err().what, "the address is not yours");
        assert_eq!((record.order, authority.count("finalize")), (None, 0));
    }

    #[test]
    fn an_authority_that_comes_to_no_result_is_left_and_its_wish_is_respected() {
        let mut authority = FakeAuthority { slowness: u32::MAX, ..FakeAuthority::default() };
        let (mut one, mut record) = (world(), Record::default());
        let done = obtain(&mut authority, &mut one, Http01, "a.test", &mut record).unwrap_err();
        assert!(done.what.contains("no result") || done.what.contains("come to a result"));
        assert!(one.now_s - NOW_S <= ORDER_TIME_MAX.as_secs());
        assert!(record.order.is_some(), "the next attempt goes on with it");
        let asked = Some(Duration::from_secs(3600));
        let slowness = u32::MAX;
        let mut authority =
            FakeAuthority { retry_after: asked, slowness, ..FakeAuthority::default() };
        let (mut other, mut record) = (world(), Record::default());
        let done = obtain(&mut authority, &mut other, Http01, "a.test", &mut record).unwrap_err();
        assert_eq!((done.retry_after, other.now_s), (asked, NOW_S), "it waits for no hour");
    }

    #[test]
    fn a_full_disk_costs_no_order() {
        let mut authority = FakeAuthority::default();
        let mut world = FakeWorld { disk_is_full: true, ..world() };
        let done = obtain(&mut authority, &mut world, Http01, "a.test", &mut Record::default());
        assert!(done.unwrap_err().what.contains("full"));
        assert_eq!(authority.orders, 0);
    }
}
