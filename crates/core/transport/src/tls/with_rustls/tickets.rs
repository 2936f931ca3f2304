//! Session tickets: what a client presents to resume its session (RFC 8446, 4.6.1; RFC 5077).
//!
//! ```text
//!   ticket = name of the secret (16) | nonce (12) | AES-256-GCM of the session | tag (16)
//!   key    = HKDF(secret; format of sessions, digest of TLS settings, listener's address)
//! ```
//!
//! Who owns: the process has one [`TicketKeys`] for all listeners and cores. A reload keeps it, and
//! a restart in place hands it over. [`Tickets`] are those of one listener.
//! What never happens: a secret leaves the memory of the process and its successor, or opens
//! tickets more than two periods after it was made; a ticket is valid on another listener, or after
//! a change of the certificates, or by a process with another format of sessions; a damaged ticket
//! does more than cause a full handshake.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;

use crate::limits::TICKET_PERIOD_SECS;

const NAME_BYTES: usize = 16;
const SECRET_BYTES: usize = NAME_BYTES + 32;
const SINCE_BYTES: usize = 8;
/// Who wrote the session inside a ticket. Its format has no version, and a successor may be another
/// binary: this is the version of rustls that we are built with.
const SESSION_FORMAT: &str = "rustls 0.23.46";

/// A random name, and what keys are derived from.
type Secret = [u8; SECRET_BYTES];

/// The secrets behind the tickets of a process.
#[derive(Default)]
pub struct TicketKeys(Mutex<Keys>);

#[derive(Clone, Copy, Default)]
struct Keys {
    /// Since when there is `current`, in seconds of wall time.
    since: u64,
    /// For new tickets. `None`: there have been none, or the system has no random numbers.
    current: Option<Secret>,
    /// Still opens tickets.
    previous: Option<Secret>,
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketKeys")
    }
}

impl TicketKeys {
    /// The secrets that are still valid, for the successor of this process.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes_at(now())
    }

    fn bytes_at(&self, now: u64) -> Vec<u8> {
        let mut keys = self.lock();
        if keys.current.is_some() {
            keys.rotate(now);
        }
        let Some(current) = keys.current else { return Vec::new() };
        let previous = keys.previous.iter().flatten();
        keys.since.to_le_bytes().iter().chain(&current).chain(previous).copied().collect()
    }

    /// Takes the secrets of the predecessor. Others than those of [`Self::to_bytes`] are ignored.
    pub fn adopt(&self, bytes: &[u8]) {
        let Some((since, secrets)) = bytes.split_first_chunk::<SINCE_BYTES>() else { return };
        let (current, previous) = match secrets.split_first_chunk::<SECRET_BYTES>() {
            Some((current, [])) => (*current, None),
            Some((current, previous)) => match previous.try_into() {
                Ok(previous) => (*current, Some(previous)),
                Err(_) => return,
            },
            None => return,
        };
        let since = u64::from_le_bytes(*since);
        *self.lock() = Keys { since, current: Some(current), previous };
    }

    /// The secrets at this time.
    fn at(&self, now: u64) -> Keys {
        let mut keys = self.lock();
        keys.rotate(now);
        *keys
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    fn rotate(&mut self, now: u64) {
        // If the clock was set back, the current secret gets no more than another period.
        self.since = self.since.min(now);
        let age = now - self.since;
        if self.current.is_some() && age < TICKET_PERIOD_SECS {
            return;
        }
        self.previous = self.current.filter(|_| age < 2 * TICKET_PERIOD_SECS);
        let mut new = [0; SECRET_BYTES];
        self.current = rand::fill(&mut new).ok().map(|()| new);
        self.since = now;
        debug_assert!(
            self.previous.is_none() || self.previous != self.current,
            "a secret is random"
        );
    }
}

/// The tickets of a listener.
#[derive(Debug)]
pub(super) struct Tickets {
    /// A digest of what a session must not outlive.
    settings: [u8; 32],
    listener: OnceLock<(Arc<TicketKeys>, SocketAddr)>,
}

impl Tickets {
    /// For a listener with these settings.
    pub(super) fn new<'s>(settings: impl IntoIterator<Item = &'s [u8]>) -> Tickets {
        let mut digest = Context::new(&SHA256);
        for setting in settings {
            digest.update(&(setting.len() as u64).to_le_bytes());
            digest.update(setting);
        }
        let mut settings = [0; 32];
        settings.copy_from_slice(digest.finish().as_ref());
        Tickets { settings, listener: OnceLock::new() }
    }

    /// Uses the keys of the process for a listener at this address. Only the first call counts.
    pub(super) fn share(&self, keys: &Arc<TicketKeys>, listener: SocketAddr) {
        let _ = self.listener.set((Arc::clone(keys), listener));
    }

    fn keys(&self, now: u64) -> Keys {
        let unspecified = || (Arc::default(), SocketAddr::from(([0; 4], 0)));
        self.listener.get_or_init(unspecified).0.at(now)
    }

    fn key(&self, secret: &Secret) -> Option<LessSafeKey> {
        let listener = self.listener.get().map(|(_, listener)| listener.to_string());
        let prk = Prk::new_less_safe(HKDF_SHA256, &secret[NAME_BYTES..]);
        let what = [b"plimsoll ticket ", SESSION_FORMAT.as_bytes()].concat();
        let of = [&what[..], &self.settings, listener.as_deref()?.as_bytes()];
        let key = prk.expand(&of, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(key)))
    }

    fn seal(&self, session: &[u8], now: u64) -> Option<Vec<u8>> {
        let secret = self.keys(now).current?;
        let name = &secret[..NAME_BYTES];
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut ticket = [name, &nonce, session].concat();
        let text = &mut ticket[NAME_BYTES + NONCE_LEN..];
        let nonce = Nonce::assume_unique_for_key(nonce);
        let key = self.key(&secret)?;
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(name), text).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    fn open(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let Keys { current, previous, .. } = self.keys(now);
        let mut secrets = [current, previous].into_iter().flatten();
        let secret = secrets.find(|secret| secret.starts_with(name))?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let mut session = sealed.to_vec();
        let length =
            self.key(&secret)?.open_in_place(nonce, Aad::from(name), &mut session).ok()?.len();
        session.truncate(length);
        Some(session)
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        (2 * TICKET_PERIOD_SECS) as u32
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.seal(session, now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, now())
    }
}

fn now() -> u64 {
    runtime::time::wall_ms() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_700_000_000;
    const PERIOD: u64 = TICKET_PERIOD_SECS;

    fn listener(keys: &Arc<TicketKeys>, settings: &str, port: u16) -> Tickets {
        let tickets = Tickets::new([settings.as_bytes()]);
        tickets.share(keys, SocketAddr::from(([127, 0, 0, 1], port)));
        tickets
    }

    #[test]
    fn a_ticket_is_valid_for_its_period_and_the_next() {
        let keys = Arc::default();
        let tickets = listener(&keys, "a", 443);
        let first = tickets.seal(b"session", START).unwrap();
        let late = tickets.seal(b"session", START + PERIOD - 1).unwrap();
        let second = tickets.seal(b"session", START + PERIOD).unwrap();
        assert_eq!(first[..NAME_BYTES], late[..NAME_BYTES]);
        assert_ne!(first[..NAME_BYTES], second[..NAME_BYTES]);
        for ticket in [&first, &late, &second] {
            let opened = tickets.open(ticket, START + 2 * PERIOD - 1);
            assert_eq!(opened.as_deref(), Some(&b"session"[..]));
        }
        assert_eq!(tickets.open(&first, START + 2 * PERIOD), None);
        assert_eq!(tickets.open(&late, START + 2 * PERIOD), None);
        assert!(tickets.open(&second, START + 2 * PERIOD).is_some());
        // Without handshakes meanwhile, no secret outlives two periods either.
        assert_eq!(tickets.open(&second, START + 9 * PERIOD), None);
        assert_eq!(keys.lock().previous, None);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_prolong_a_secret() {
        let tickets = listener(&Arc::default(), "a", 443);
        let ticket = tickets.seal(b"session", START).unwrap();
        assert!(tickets.open(&ticket, START - 9 * PERIOD).is_some());
        assert!(tickets.open(&ticket, START - 7 * PERIOD).is_none());
    }

    #[test]
    fn a_ticket_is_valid_only_on_its_listener_and_undamaged() {
        let keys = Arc::default();
        let tickets = listener(&keys, "a", 443);
        let ticket = tickets.seal(b"session", START).unwrap();
        assert!(listener(&keys, "a", 443).open(&ticket, START).is_some());
        assert_eq!(listener(&keys, "a", 444).open(&ticket, START), None);
        assert_eq!(listener(&keys, "b", 443).open(&ticket, START), None);
        assert_eq!(listener(&Arc::default(), "a", 443).open(&ticket, START), None);
        for at in 0..ticket.len() {
            let mut damaged = ticket.clone();
            damaged[at] ^= 1;
            assert_eq!(tickets.open(&damaged, START), None);
            assert_eq!(tickets.open(&ticket[..at], START), None);
        }
    }

    #[test]
    fn a_successor_opens_the_tickets_of_both_secrets() {
        let (keys, successors) = (Arc::default(), Arc::default());
        let (old, new) = (listener(&keys, "a", 443), listener(&successors, "a", 443));
        successors.adopt(&keys.bytes_at(START));
        let first = old.seal(b"session", START).unwrap();
        successors.adopt(&keys.bytes_at(START));
        assert!(new.open(&first, START).is_some());
        let second = old.seal(b"session", START + PERIOD).unwrap();
        let bytes = keys.bytes_at(START + PERIOD);
        successors.adopt(&bytes);
        for ticket in [&first, &second] {
            assert!(new.open(ticket, START + PERIOD).is_some());
        }
        assert_eq!(new.open(&first, START + 2 * PERIOD), None);
        assert!(new.open(&second, START + 2 * PERIOD).is_some());
        // Whatever else arrives leaves the secrets as they are.
        for length in (0..bytes.len()).filter(|length| *length != SINCE_BYTES + SECRET_BYTES) {
            successors.adopt(&bytes[..length]);
        }
        assert!(new.open(&second, START + 2 * PERIOD).is_some());
    }

    #[test]
    fn a_secret_that_has_expired_is_not_handed_over() {
        let keys = Arc::default();
        let old = listener(&keys, "a", 443).seal(b"session", START).unwrap();
        let bytes = keys.bytes_at(START + 2 * PERIOD);
        assert_eq!(bytes.len(), SINCE_BYTES + SECRET_BYTES);
        assert_ne!(bytes[SINCE_BYTES..][..NAME_BYTES], old[..NAME_BYTES]);
    }

    #[test]
    fn the_format_of_sessions_is_that_of_the_rustls_in_use() {
        let lock = include_str!("../../../../../../Cargo.lock");
        let (name, version) = SESSION_FORMAT.split_once(' ').unwrap();
        let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n");
        assert!(lock.contains(&entry), "SESSION_FORMAT must name the version in Cargo.lock");
    }
}
