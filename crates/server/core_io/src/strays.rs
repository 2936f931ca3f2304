//! Datagrams of QUIC that arrive elsewhere than at their connection: at another core, or at the
//! process that has taken the place of theirs.
//!
//! What: the kernel chooses the core by the addresses of a datagram, so a client that moves to
//! another address may come to another core. After a restart in place, the new process receives
//! all datagrams, and the old one still has connections. The connection id in a datagram was made
//! by us, and names the process and the core that own the connection. The datagram goes there
//! through a queue, and to the old process over a link first.
//! Why ids look random: an observer must not learn from two of them that they belong together
//! (RFC 9000 section 5.1). What an id names is hidden by a hash with a secret key, which the new
//! process gets from the old one.
//!
//! What never happens: a queue grows beyond [`STRAYS_MAX`]; what does not fit is lost, as on the
//! way. A datagram goes to an older process, so it never goes in a circle.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{OnceLock, PoisonError};

use runtime::process::DatagramLink;
use runtime::sync::{Inbox, Lock, LockKind, Sender, inbox};
use siphasher::sip::SipHasher13;

/// The length of our connection ids: a random part, and a hidden part with the number of the core
/// (two bytes), that of the process, and a zero.
pub const ID_BYTES: usize = 9;
const RANDOM_BYTES: usize = 5;
/// Datagrams that wait for their core.
const STRAYS_MAX: usize = 256;
/// The longest datagram with the line before it ([`Stray::message`]).
const MESSAGE_BYTES_MAX: usize = 256 + u16::MAX as usize;

static STRAYS: LockKind = LockKind::new("quic strays");

/// A datagram for another core or process.
#[derive(Debug, PartialEq, Eq)]
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

impl Stray {
    /// The datagram after a line of text with its addresses, the listener's first.
    fn message(&self, listener: SocketAddr) -> Vec<u8> {
        let to = self.to.map_or("-".to_owned(), |to| to.to_string());
        let mut message = format!("{listener} {} {to} {}\n", self.from, self.ecn).into_bytes();
        message.extend_from_slice(&self.bytes);
        message
    }

    fn of_message(message: &[u8]) -> Option<(SocketAddr, Stray)> {
        let line = message.iter().position(|byte| *byte == b'\n')?;
        let mut words = str::from_utf8(&message[..line]).ok()?.split(' ');
        let listener = words.next()?.parse().ok()?;
        let from = words.next()?.parse().ok()?;
        let to = match words.next()? {
            "-" => None,
            to => Some(to.parse().ok()?),
        };
        let ecn = words.next()?.parse().ok()?;
        Some((listener, Stray { bytes: message[line + 1..].to_vec(), from, to, ecn }))
    }
}

/// Who owns the connection of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This core of this process.
    Core(u16),
    /// A process that was replaced.
    Predecessor,
    /// We have not made this id.
    Unknown,
}

/// What hides the contents of ids, and the number of this process.
#[derive(Clone, Copy)]
struct Secret {
    key: [u8; 16],
    generation: u8,
}

/// Without the key: it must not get into a log.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// The queues of the cores, by the address that they listen on.
#[derive(Debug)]
pub struct Strays {
    secret: OnceLock<Secret>,
    predecessor: OnceLock<DatagramLink>,
    queues: Lock<HashMap<(SocketAddr, u16), Sender<Stray>>>,
}

impl Default for Strays {
    fn default() -> Strays {
        Strays {
            secret: OnceLock::new(),
            predecessor: OnceLock::new(),
            queues: Lock::new(&STRAYS, HashMap::new()),
        }
    }
}

impl Strays {
    /// A connection id of this core with this random part.
    pub fn id(&self, core: u16, random: u64) -> [u8; ID_BYTES] {
        let mut id = [0; ID_BYTES];
        id[..RANDOM_BYTES].copy_from_slice(&random.to_le_bytes()[..RANDOM_BYTES]);
        let secret = self.secret();
        let hidden = secret.mask(&id) ^ (u32::from(secret.generation) << 16 | u32::from(core));
        id[RANDOM_BYTES..].copy_from_slice(&hidden.to_le_bytes());
        id
    }

    /// Who made a connection id.
    pub fn owner(&self, id: &[u8; ID_BYTES]) -> Owner {
        let [.., a, b, c, d] = *id;
        let secret = self.secret();
        let [core @ .., generation, zero] =
            (u32::from_le_bytes([a, b, c, d]) ^ secret.mask(id)).to_le_bytes();
        // How many restarts ago that process was the newest.
        let age = secret.generation.wrapping_sub(generation);
        match (zero, age) {
            (0, 0) => Owner::Core(u16::from_le_bytes(core)),
            (0, 1..0x80) => Owner::Predecessor,
            _ => Owner::Unknown,
        }
    }

    fn secret(&self) -> &Secret {
        self.secret.get_or_init(|| {
            let random = RandomState::new();
            let [a, b] = [0, 1].map(|half| random.hash_one(half).to_le_bytes());
            Secret { key: *[a, b].as_flattened().first_chunk().expect("16"), generation: 0 }
        })
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

    /// Gives a datagram to the process that this one has replaced. False if that has ended: then no
    /// connection has an id of it.
    #[cold]
    #[must_use]
    pub fn send_back(&self, listener: SocketAddr, stray: &Stray) -> bool {
        let Some(link) = self.predecessor.get() else { return false };
        match link.send(&stray.message(listener)) {
            Ok(()) => true,
            // If it does not keep up, the datagram is lost, as on the way.
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// Sends a successor what it needs to know whose a datagram is.
    ///
    /// # Errors
    /// It has ended.
    pub fn introduce(&self, link: &DatagramLink) -> io::Result<()> {
        let Secret { key, generation } = *self.secret();
        link.send(&[&key[..], &[generation]].concat())
    }

    /// Takes over from a predecessor that has introduced itself. Must come before the first
    /// connection.
    ///
    /// # Errors
    /// It has not, or there is no descriptor left.
    pub fn succeed(&self, link: &DatagramLink) -> io::Result<()> {
        let mut introduction = [0; 17];
        let received = link.receive(&mut introduction)?.map_or(0, <[u8]>::len);
        let [key @ .., generation] = introduction;
        let secret = Secret { key, generation: generation.wrapping_add(1) };
        if received != introduction.len() || self.secret.set(secret).is_err() {
            return Err(io::Error::other("the predecessor did not say whose its datagrams are"));
        }
        // It is set only here.
        let _ = self.predecessor.set(link.try_clone()?);
        Ok(())
    }

    /// Gives the datagrams of the link to their cores, or to the process before, until the
    /// successor has ended. Blocks.
    pub fn receive_from(&self, successor: &DatagramLink) {
        let mut room = vec![0; MESSAGE_BYTES_MAX];
        while let Ok(Some(message)) = successor.receive(&mut room) {
            let Some((listener, stray)) = Stray::of_message(message) else { continue };
            match id_of(&stray.bytes).map(|(id, header)| (self.owner(id), header)) {
                Some((Owner::Core(core), _)) => self.send(listener, core, stray),
                Some((Owner::Predecessor, header)) => {
                    if !self.send_back(listener, &stray) && header == Header::Long {
                        // The client has chosen the id, so any core may take the connection.
                        self.send(listener, 0, stray);
                    }
                }
                Some((Owner::Unknown, _)) | None => {}
            }
        }
    }
}

impl Secret {
    fn mask(&self, id: &[u8; ID_BYTES]) -> u32 {
        SipHasher13::new_with_key(&self.key).hash(&id[..RANDOM_BYTES]) as u32
    }
}

/// The form of a datagram's first header (RFC 8999 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// That of an open connection.
    Short,
    /// That of a handshake. Its id may be one that the client has chosen.
    Long,
}

/// The connection id that a datagram is sent to, if it is as long as ours.
pub fn id_of(datagram: &[u8]) -> Option<(&[u8; ID_BYTES], Header)> {
    match datagram {
        [first, id @ ..] if first & 0x80 == 0 => Some((id.first_chunk()?, Header::Short)),
        // After the version comes the length of the id.
        [_, _, _, _, _, len, id @ ..] if usize::from(*len) == ID_BYTES => {
            Some((id.first_chunk()?, Header::Long))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process after `before`, and its end of the link.
    fn restarted(before: &Strays) -> (Strays, DatagramLink) {
        let (ours, theirs) = DatagramLink::pair().unwrap();
        before.introduce(&ours).unwrap();
        let after = Strays::default();
        after.succeed(&theirs).unwrap();
        (after, ours)
    }

    #[test]
    fn an_id_names_its_core_and_hides_it() {
        let strays = Strays::default();
        let ids: Vec<_> = (0..1000).map(|random| strays.id(3, random << 20)).collect();
        assert!(ids.iter().all(|id| strays.owner(id) == Owner::Core(3)));
        let ends: std::collections::HashSet<_> = ids.iter().map(|id| &id[RANDOM_BYTES..]).collect();
        assert!(ends.len() > 900, "the part with the core looks random: {}", ends.len());
    }

    #[test]
    fn an_id_names_its_process_among_those_that_replaced_each_other() {
        let first = Strays::default();
        let (second, _link) = restarted(&first);
        let (third, _link) = restarted(&second);
        let ids = [&first, &second, &third].map(|strays| strays.id(1, 7));
        let owners = |strays: &Strays| ids.map(|id| strays.owner(&id));
        let (ours, before) = (Owner::Core(1), Owner::Predecessor);
        assert_eq!(owners(&first), [ours, Owner::Unknown, Owner::Unknown]);
        assert_eq!(owners(&second), [before, ours, Owner::Unknown]);
        assert_eq!(owners(&third), [before, before, ours]);
        // Of those that others have chosen, nearly none is taken for ours: about two here.
        let stranger = Strays::default();
        let chosen = (0..1000).map(|random| stranger.id(1, random << 20));
        let mistaken = chosen.filter(|id| third.owner(id) == Owner::Predecessor).count();
        assert!(mistaken < 30, "{mistaken}");
    }

    #[test]
    fn the_number_of_a_process_begins_again_after_255() {
        let mut processes = vec![Strays::default()];
        for _ in 0..300 {
            processes.push(restarted(processes.last().unwrap()).0);
        }
        let id = |back: usize| processes[300 - back].id(2, 5);
        let owner = |back| processes[300].owner(&id(back));
        let found = [0, 1, 127, 128].map(owner);
        assert_eq!(found, [Owner::Core(2), Owner::Predecessor, Owner::Predecessor, Owner::Unknown]);
    }

    #[test]
    fn a_datagram_finds_its_core_through_two_processes() {
        let listener = "[::1]:443".parse().unwrap();
        let first = Strays::default();
        let mut inbox = first.open(listener, 1);
        let (second, to_first) = restarted(&first);
        let (third, to_second) = restarted(&second);
        let short = [&[0x40], &first.id(1, 99)[..], b"content"].concat();
        let long = [&[0xc0, 0, 0, 0, 1, 9], &first.id(1, 98)[..], b"\0"].concat();
        let from = "[fe80::1%4]:5000".parse().unwrap();
        let to = Some("192.0.2.1".parse().unwrap());
        for (bytes, to) in [(short, to), (long, None)] {
            let stray = || Stray { bytes: bytes.clone(), from, to, ecn: 2 };
            assert!(third.send_back(listener, &stray()));
            let mut room = vec![0; MESSAGE_BYTES_MAX];
            let passed = to_second.receive(&mut room).unwrap().unwrap();
            let (at, passed) = Stray::of_message(passed).unwrap();
            assert_eq!((at, &passed), (listener, &stray()));
            assert!(second.send_back(at, &passed));
        }
        drop((second, third));
        first.receive_from(&to_first);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for form in [Header::Short, Header::Long] {
            let std::task::Poll::Ready(Some(stray)) = inbox.poll_recv(&mut cx) else { panic!() };
            assert_eq!(id_of(&stray.bytes).map(|(_, header)| header), Some(form));
        }
    }

    /// Such an Initial was lost each time that the client sent it, because the id stays the same.
    #[test]
    fn an_initial_whose_id_seems_to_be_that_of_a_process_that_has_ended_is_not_lost() {
        let listener = "[::1]:443".parse().unwrap();
        let first = Strays::default();
        let (second, to_first) = restarted(&first);
        let (third, to_second) = restarted(&second);
        let bytes = [&[0xc0, 0, 0, 0, 1, 9], &first.id(7, 98)[..], b"\0"].concat();
        let stray = Stray { bytes, from: "[::1]:5000".parse().unwrap(), to: None, ecn: 0 };
        drop((first, to_first));
        // The newest process takes it itself, and an older one does what the newest asked it to.
        assert!(!second.send_back(listener, &stray));
        assert!(third.send_back(listener, &stray));
        let mut inbox = second.open(listener, 0);
        drop(third);
        second.receive_from(&to_second);
        assert_eq!(inbox.try_recv().map(|taken| taken.bytes), Some(stray.bytes.clone()));
        assert!(!second.send_back(listener, &stray), "there is no predecessor any more");
    }

    #[test]
    fn a_process_that_says_nothing_is_not_succeeded() {
        let (ours, theirs) = DatagramLink::pair().unwrap();
        drop(ours);
        let after = Strays::default();
        assert!(after.succeed(&theirs).is_err());
        assert_eq!(after.owner(&after.id(4, 1)), Owner::Core(4));
    }

    #[test]
    fn ids_of_other_lengths_and_cut_datagrams_are_not_ours() {
        for datagram in [&b""[..], b"\x40short", b"\xc0\0\0\0\x01", b"\xc0\0\0\0\x01\x0912345678"] {
            assert_eq!(id_of(datagram), None);
        }
        assert_eq!(id_of(b"\xc0\0\0\0\x01\x08123456789"), None);
    }
}
