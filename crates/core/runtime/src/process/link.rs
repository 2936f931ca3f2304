//! The protocol between a process and its successor, over a pair of sockets.
//!
//! ```text
//! successor:    "store\n"         "doors\n"                  reply       "ready\n"       reply ...
//! predecessor:          granted          tickets, changes         granted         changes ...
//!                                        backlog                                  backlog ...
//! ```
//!
//! The successor requests what only one of the two can have, just before it needs it, and waits.
//! Once it has requested the listeners ("doors"), the predecessor sends it the secrets of its
//! session tickets and a backlog, which are not acknowledged, and changes, which it applies and
//! acknowledges one after the other until the predecessor has ended. The link does not know what
//! they are. Any other text from the successor is the reason why it cannot serve.
//! What never happens: one side sends out of turn, or waits for ever for the other after that has
//! ended.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What a successor sends when it is about to open the store ...
pub(super) const STORE: &[u8] = b"store\n";
/// ... to accept connections ...
pub(super) const LISTENERS: &[u8] = b"doors\n";
/// ... and when it serves.
pub(super) const READY: &[u8] = b"ready\n";

const GRANTED: u8 = b'G';
const CHANGES: u8 = b'C';
const TICKETS: u8 = b'T';
const BACKLOG: u8 = b'B';
const TAKEN: u8 = b'+';
const NOT_TAKEN: u8 = b'-';
/// The largest message.
pub const CHANGES_BYTES_MAX: usize = 1024 * 1024;

/// One end of the link. It blocks, so it must not be used on a core's thread.
#[derive(Debug)]
pub struct Link(pub(super) UnixStream);

/// What a predecessor sends.
#[derive(PartialEq, Eq)]
pub enum Message {
    /// The successor may continue.
    Granted,
    /// Changes that the successor must apply and acknowledge.
    Changes(Vec<u8>),
    /// The secrets of session tickets.
    Tickets(Vec<u8>),
    /// What the predecessor has not finished, and the successor goes on with.
    Backlog(Vec<u8>),
}

/// Without the bytes: secrets must not get into a log.
impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Message::Granted => f.write_str("Granted"),
            Message::Changes(bytes) => write!(f, "Changes({} bytes)", bytes.len()),
            Message::Tickets(bytes) => write!(f, "Tickets({} bytes)", bytes.len()),
            Message::Backlog(bytes) => write!(f, "Backlog({} bytes)", bytes.len()),
        }
    }
}

impl Link {
    /// Our end, and the end to pass on.
    pub(super) fn pair() -> io::Result<(Link, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Link(ours), theirs.into()))
    }

    /// Another handle to the same end.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Link> {
        self.0.try_clone().map(Link)
    }

    /// Lets the successor continue.
    ///
    /// # Errors
    /// It has ended.
    pub fn grant(&self) -> io::Result<()> {
        (&self.0).write_all(&[GRANTED])
    }

    /// Sends changes to the successor and waits for its reply. Returns whether it has applied them
    /// permanently.
    ///
    /// # Errors
    /// It has ended, or does not reply within `patience`: the link can no longer be used.
    pub fn send_changes(&self, changes: &[u8], patience: Duration) -> io::Result<bool> {
        self.0.set_read_timeout(Some(patience))?;
        self.0.set_write_timeout(Some(patience))?;
        self.send_message(CHANGES, changes)?;
        match self.byte()? {
            TAKEN => Ok(true),
            NOT_TAKEN => Ok(false),
            other => Err(io::Error::other(format!("{other} is not a reply"))),
        }
    }

    /// Sends the secrets of session tickets to the successor.
    ///
    /// # Errors
    /// It has ended.
    pub fn send_tickets(&self, secrets: &[u8]) -> io::Result<()> {
        self.send_message(TICKETS, secrets)
    }

    /// Sends the successor what it goes on with: [`CHANGES_BYTES_MAX`] at most.
    ///
    /// # Errors
    /// It has ended.
    pub fn send_backlog(&self, backlog: &[u8]) -> io::Result<()> {
        self.send_message(BACKLOG, backlog)
    }

    fn send_message(&self, kind: u8, bytes: &[u8]) -> io::Result<()> {
        let too_long = || io::Error::other("a message exceeds the limit of the link");
        let len = u32::try_from(bytes.len()).map_err(|_| too_long())?;
        if bytes.len() > CHANGES_BYTES_MAX {
            return Err(too_long());
        }
        let [a, b, c, d] = len.to_le_bytes();
        (&self.0).write_all(&[kind, a, b, c, d])?;
        (&self.0).write_all(bytes)
    }

    /// Waits for the predecessor's next message.
    ///
    /// # Errors
    /// It has ended.
    pub fn receive(&self) -> io::Result<Message> {
        match self.byte()? {
            GRANTED => Ok(Message::Granted),
            CHANGES => self.message().map(Message::Changes),
            TICKETS => self.message().map(Message::Tickets),
            BACKLOG => self.message().map(Message::Backlog),
            other => Err(io::Error::other(format!("{other} is not a known message"))),
        }
    }

    fn message(&self) -> io::Result<Vec<u8>> {
        let mut len = [0; 4];
        (&self.0).read_exact(&mut len)?;
        let len = u32::from_le_bytes(len) as usize;
        if len > CHANGES_BYTES_MAX {
            return Err(io::Error::other("a message exceeds the limit of the link"));
        }
        let mut bytes = vec![0; len];
        (&self.0).read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Acknowledges changes.
    ///
    /// # Errors
    /// The predecessor has ended.
    pub fn reply(&self, taken: bool) -> io::Result<()> {
        (&self.0).write_all(&[if taken { TAKEN } else { NOT_TAKEN }])
    }

    pub(super) fn send(&self, words: &[u8]) -> io::Result<()> {
        (&self.0).write_all(words)
    }

    fn byte(&self) -> io::Result<u8> {
        let mut byte = [0];
        (&self.0).read_exact(&mut byte)?;
        Ok(byte[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn changes_are_sent_and_acknowledged_until_the_end() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link(UnixStream::from(theirs));
        let successor = std::thread::spawn(move || {
            let mut received = Vec::new();
            while let Ok(message) = theirs.receive() {
                if let Message::Changes(changes) = &message {
                    theirs.reply(!changes.is_empty()).unwrap();
                }
                received.push(message);
            }
            received
        });
        ours.send_tickets(b"secrets").unwrap();
        assert!(ours.send_changes(b"a change", SOON).unwrap());
        ours.grant().unwrap();
        assert!(!ours.send_changes(b"", SOON).unwrap());
        assert!(ours.send_changes(&vec![0; CHANGES_BYTES_MAX + 1], SOON).is_err());
        assert!(ours.send_changes(&vec![7; CHANGES_BYTES_MAX], SOON).unwrap());
        drop(ours);
        let [secrets, first, second, third, last] = &successor.join().unwrap()[..] else {
            panic!("there are five messages")
        };
        assert_eq!(secrets, &Message::Tickets(b"secrets".to_vec()));
        assert_eq!(format!("{secrets:?}"), "Tickets(7 bytes)");
        assert_eq!((first, second), (&Message::Changes(b"a change".to_vec()), &Message::Granted));
        assert_eq!(third, &Message::Changes(Vec::new()));
        assert_eq!(last, &Message::Changes(vec![7; CHANGES_BYTES_MAX]));
    }

    #[test]
    fn waiting_ends_when_the_peer_has_ended_or_does_not_reply() {
        let (ours, theirs) = Link::pair().unwrap();
        assert!(ours.send_changes(b"a", Duration::from_millis(20)).is_err());
        drop(theirs);
        assert!(ours.send_changes(b"a", SOON).is_err());
        assert!(ours.receive().is_err());
    }
}
