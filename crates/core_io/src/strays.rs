//! Datagrams of QUIC that arrive at another core than that of their connection.
//!
//! What: the kernel chooses the core by the addresses of a datagram, so a client that moves to
//! another address may come to another core. The connection id that it uses there was made by us,
//! and names the core that owns the connection; the datagram goes there through a queue.
//! Why ids look random: an observer must not learn from two of them that they belong together
//! (RFC 9000 section 5.1). The number of the core is hidden by a hash with a secret key.
//!
//! What never happens: a queue grows beyond [`STRAYS_MAX`]; what does not fit is lost, as on the
//! way.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;

use runtime::sync::{Inbox, Lock, LockKind, Sender, inbox};

/// The length of our connection ids: a random part, and the hidden number of the core.
pub const ID_BYTES: usize = 8;
const RANDOM_BYTES: usize = 6;
/// Datagrams that wait for their core.
const STRAYS_MAX: usize = 256;

static STRAYS: LockKind = LockKind::new("quic strays");

/// A datagram for another core.
#[derive(Debug)]
pub struct Stray {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Who sent it.
    pub from: SocketAddr,
    /// The address that it was sent to, if it is known.
    pub to: Option<IpAddr>,
    /// The two ECN bits.
    pub ecn: u8,
}

/// The queues of the cores, by the address that they listen on.
#[derive(Debug)]
pub struct Strays {
    hasher: RandomState,
    queues: Lock<HashMap<(SocketAddr, u16), Sender<Stray>>>,
}

impl Default for Strays {
    fn default() -> Strays {
        Strays { hasher: RandomState::new(), queues: Lock::new(&STRAYS, HashMap::new()) }
    }
}

impl Strays {
    /// A connection id of this core with this random part.
    pub fn id(&self, core: u16, random: u64) -> [u8; ID_BYTES] {
        let mut id = random.to_le_bytes();
        let hidden = core ^ self.mask(&id);
        id[RANDOM_BYTES..].copy_from_slice(&hidden.to_le_bytes());
        id
    }

    /// The core that made a connection id.
    pub fn core_of(&self, id: &[u8; ID_BYTES]) -> u16 {
        u16::from_le_bytes([id[RANDOM_BYTES], id[RANDOM_BYTES + 1]]) ^ self.mask(id)
    }

    fn mask(&self, id: &[u8; ID_BYTES]) -> u16 {
        self.hasher.hash_one(&id[..RANDOM_BYTES]) as u16
    }

    /// Begins to receive for a core.
    pub fn open(&self, listener: SocketAddr, core: u16) -> Inbox<Stray> {
        let (sender, strays) = inbox(STRAYS_MAX);
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.insert((listener, core), sender);
        strays
    }

    /// Gives a datagram to its core, if there is one.
    pub fn send(&self, listener: SocketAddr, core: u16, stray: Stray) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(&(listener, core)) {
            // A queue that is full, or whose core has ended.
            let _ = queue.send(stray);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_core_and_hides_it() {
        let strays = Strays::default();
        let ids: Vec<_> = (0..1000).map(|random| strays.id(3, random << 20)).collect();
        assert!(ids.iter().all(|id| strays.core_of(id) == 3));
        let ends: std::collections::HashSet<_> = ids.iter().map(|id| &id[RANDOM_BYTES..]).collect();
        assert!(ends.len() > 900, "the part with the core looks random: {}", ends.len());
    }
}
