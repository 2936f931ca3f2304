//! Proxy authentication: Basic (RFC 7617), with hashes that are slow on purpose.
//!
//! Verifying a password takes as long as a bcrypt hash, so it is done on the runtime's pool, one at
//! a time for each core. A verified password is remembered for a while: not the password itself,
//! but a keyed hash of it, the user's name and the hash it was compared with, so that a changed
//! file changes the result. Requests that wait with the same password find it verified when it is
//! their turn.
//!
//! What never happens: a core hashes; more requests wait than a limit; a client can distinguish an
//! unknown name from a wrong password, by the answer or by its time.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http1::{Name, RequestHead};
use runtime::sync::Notify;
use runtime::time::{self, Instant};
use store::KeyHasher;

use crate::limits::{PASSWORD_KNOWN_FOR, PASSWORDS_KNOWN_MAX, PASSWORDS_WAITING_MAX};
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

/// One core's turns at the pool.
#[derive(Default)]
pub struct Verifying {
    busy: Cell<bool>,
    free: Notify,
}

/// A turn; given back when dropped.
struct Turn<'v>(&'v Verifying);

impl Verifying {
    async fn turn(&self) -> Result<Turn<'_>, Refusal> {
        while self.busy.get() {
            if self.free.waiting() >= PASSWORDS_WAITING_MAX {
                return Err(Refusal::PasswordsBusy);
            }
            self.free.notified().await;
        }
        self.busy.set(true);
        Ok(Turn(self))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.set(false);
        self.0.free.notify_one();
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
}

impl Passwords<'_> {
    /// The user that a request names, once its password has been verified.
    pub(super) async fn user(
        self,
        head: &RequestHead<'_>,
        users: &Users,
    ) -> Result<Arc<[u8]>, Refusal> {
        let given = given(head)?;
        let hash = users.hash_of(&given.user);
        let name: Arc<[u8]> = given.user.as_slice().into();
        let is_known = hash.is_some_and(|hash| self.known.holds(self.known.key(&given, hash)));
        if is_known || self.verified(users, given, hash).await? {
            Ok(name)
        } else {
            Err(Refusal::PasswordWrong)
        }
    }

    async fn verified(
        self,
        users: &Users,
        given: Given,
        hash: Option<&str>,
    ) -> Result<bool, Refusal> {
        let known = self.known;
        let _turn = self.verifying.turn().await?;
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

fn given(head: &RequestHead<'_>) -> Result<Given, Refusal> {
    let mut fields = head.fields.all(Name::ProxyAuthorization);
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
        given(&head).map(|given| (text(given.user), text(given.password)))
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
