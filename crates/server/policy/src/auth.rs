//! What a service has said about requests: whether they are allowed, and for how long that may be
//! remembered.
//!
//! What never happens: a refusal is remembered; more is remembered than a limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use config::Auth;
use http1::{Fields, tokens, write};
use runtime::time::{self, Instant};

use crate::limits::{AUTH_COPIED_BYTES_MAX, AUTH_KNOWN_FOR, AUTH_KNOWN_MAX};

/// What the service has said about a request that it allows.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// The fields that the upstream gets.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The user.
    pub user: Option<Arc<[u8]>>,
}

/// What the client gets of the response of the service.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The status.
    pub status: u16,
    /// The field lines.
    pub lines: Vec<u8>,
}

/// Permissions that the service has allowed to be remembered.
#[derive(Debug, Default)]
pub struct Known {
    known: Mutex<HashMap<u128, (Instant, Arc<Allowed>)>>,
    configurations: AtomicU64,
}

impl Known {
    /// Forgets all of them for a new configuration. Returns its number, which is part of its keys:
    /// requests that began with the old configuration may still add permissions.
    pub fn renewed(&self) -> u64 {
        self.known().clear();
        self.configurations.fetch_add(1, Ordering::Relaxed)
    }

    /// The permission of this key.
    pub fn get(&self, key: u128) -> Option<Arc<Allowed>> {
        let known = self.known();
        let (until, allowed) = known.get(&key)?;
        (time::now() < *until).then(|| Arc::clone(allowed))
    }

    /// Remembers a permission for a while.
    pub fn add(&self, key: u128, life: Duration, allowed: &Arc<Allowed>) {
        let mut known = self.known();
        if known.len() >= AUTH_KNOWN_MAX {
            known.clear();
        }
        known.insert(key, (time::now() + life, Arc::clone(allowed)));
        assert!(known.len() <= AUTH_KNOWN_MAX, "the number of permissions is bounded");
    }

    /// Nothing panics while it holds this lock.
    fn known(&self) -> MutexGuard<'_, HashMap<u128, (Instant, Arc<Allowed>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a response that allows the request says; `None`: its fields are too long.
pub fn allowed(auth: &Auth, fields: &Fields<'_>) -> Option<Allowed> {
    let mut allowed = Allowed::default();
    let mut bytes = 0;
    for name in &auth.copy {
        for value in fields.values(name.as_bytes()) {
            bytes += name.len() + value.len();
            allowed.fields.push((name.clone(), value.to_vec()));
        }
    }
    let user = auth.user.as_ref().and_then(|name| fields.values(name.as_bytes()).next());
    bytes += user.map_or(0, <[u8]>::len);
    allowed.user = user.map(Arc::from);
    (bytes <= AUTH_COPIED_BYTES_MAX).then_some(allowed)
}

/// What the client gets of a response that refuses the request; `None`: the service has failed.
pub fn refused(status: u16, fields: &Fields<'_>) -> Option<Refused> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308 | 401 | 403) {
        return None;
    }
    let mut lines = Vec::new();
    for name in ["WWW-Authenticate", "Location", "Set-Cookie"] {
        for value in fields.values(name.as_bytes()) {
            // It was parsed from a head.
            let _ = write::field(&mut lines, name.as_bytes(), value);
        }
    }
    Some(Refused { status, lines })
}

/// How long a permission may be remembered.
pub fn life(fields: &Fields<'_>) -> Option<Duration> {
    let directives = || fields.values(b"cache-control").flat_map(tokens);
    let is = |directive: &[u8], name: &[u8]| directive.eq_ignore_ascii_case(name);
    if directives().any(|directive| is(directive, b"no-store") || is(directive, b"no-cache")) {
        return None;
    }
    let seconds = directives().find_map(|directive| {
        let (name, value) = directive.split_at_checked(b"max-age=".len())?;
        is(name, b"max-age=").then(|| std::str::from_utf8(value).ok()?.parse::<u64>().ok())?
    });
    let life = Duration::from_secs(seconds.filter(|seconds| *seconds > 0)?);
    Some(life.min(AUTH_KNOWN_FOR))
}
