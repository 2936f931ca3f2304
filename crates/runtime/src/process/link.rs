//! What a process and the one that takes its place say to each other, over a pair of sockets.
//!
//! ```text
//! successor:    "store\n"           "doors\n"             reply       "ready\n"       reply ...
//! predecessor:            granted             told changes     granted          told changes ...
//! ```
//!
//! The successor asks for what only one of the two can have, each time it is about to need it, and
//! waits. From when it has asked for the doors on, the predecessor tells it of changes, which it
//! takes in and replies to, one after the other, until the predecessor has ended. What a change is
//! the link does not know. Any other words are why it cannot serve.
//! What never happens: one speaks out of turn, or waits for ever for one that has ended.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What a successor says when it is about to open what is stored ...
pub(super) const STORE: &[u8] = b"store\n";
/// ... to take connections ...
pub(super) const LISTENERS: &[u8] = b"doors\n";
/// ... and when it serves.
pub(super) const READY: &[u8] = b"ready\n";

const GRANTED: u8 = b'G';
const CHANGES: u8 = b'C';
const TAKEN: u8 = b'+';
const NOT_TAKEN: u8 = b'-';
/// No more bytes of changes are told at once.
pub const CHANGES_BYTES_MAX: usize = 1024 * 1024;

/// One end of it. Blocks: not for a core's thread.
#[derive(Debug)]
pub struct Link(pub(super) UnixStream);

/// What a successor is told.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// It may go on.
    Granted,
    /// Something has been changed, which is to be taken in and replied to.
    Changes(Vec<u8>),
}

impl Link {
    /// Ours, and the one that is passed on.
    pub(super) fn pair() -> io::Result<(Link, OwnedFd)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Link(ours), theirs.into()))
    }

    /// The same end once more.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Link> {
        self.0.try_clone().map(Link)
    }

    /// The successor may go on.
    ///
    /// # Errors
    /// It has ended.
    pub fn grant(&self) -> io::Result<()> {
        (&self.0).write_all(&[GRANTED])
    }

    /// Tells the successor of changes, and waits until it has replied: whether it has taken them
    /// in for good.
    ///
    /// # Errors
    /// It has ended, or does not reply within `patience`: nothing more can be told it.
    pub fn send_changes(&self, changes: &[u8], patience: Duration) -> io::Result<bool> {
        let too_long = || io::Error::other("more is told than the link carries");
        let len = u32::try_from(changes.len()).map_err(|_| too_long())?;
        if changes.len() > CHANGES_BYTES_MAX {
            return Err(too_long());
        }
        self.0.set_read_timeout(Some(patience))?;
        self.0.set_write_timeout(Some(patience))?;
        let [a, b, c, d] = len.to_le_bytes();
        (&self.0).write_all(&[CHANGES, a, b, c, d])?;
        (&self.0).write_all(changes)?;
        match self.byte()? {
            TAKEN => Ok(true),
            NOT_TAKEN => Ok(false),
            other => Err(io::Error::other(format!("{other} is no reply"))),
        }
    }

    /// Waits for what the predecessor says.
    ///
    /// # Errors
    /// It has ended.
    pub fn receive(&self) -> io::Result<Message> {
        match self.byte()? {
            GRANTED => Ok(Message::Granted),
            CHANGES => {
                let mut len = [0; 4];
                (&self.0).read_exact(&mut len)?;
                let len = u32::from_le_bytes(len) as usize;
                if len > CHANGES_BYTES_MAX {
                    return Err(io::Error::other("more was told than the link carries"));
                }
                let mut changes = vec![0; len];
                (&self.0).read_exact(&mut changes)?;
                Ok(Message::Changes(changes))
            }
            other => Err(io::Error::other(format!("{other} is nothing that can be told"))),
        }
    }

    /// Replies to changes.
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
    fn changes_are_told_and_replied_to_until_the_end() {
        let (ours, theirs) = Link::pair().unwrap();
        let theirs = Link(UnixStream::from(theirs));
        let successor = std::thread::spawn(move || {
            let mut heard = Vec::new();
            while let Ok(said) = theirs.receive() {
                if let Message::Changes(changes) = &said {
                    theirs.reply(!changes.is_empty()).unwrap();
                }
                heard.push(said);
            }
            heard
        });
        assert!(ours.send_changes(b"a change", SOON).unwrap());
        ours.grant().unwrap();
        assert!(!ours.send_changes(b"", SOON).unwrap());
        assert!(ours.send_changes(&vec![0; CHANGES_BYTES_MAX + 1], SOON).is_err());
        assert!(ours.send_changes(&vec![7; CHANGES_BYTES_MAX], SOON).unwrap());
        drop(ours);
        let [first, second, third, last] = &successor.join().unwrap()[..] else {
            panic!("four things were said")
        };
        assert_eq!((first, second), (&Message::Changes(b"a change".to_vec()), &Message::Granted));
        assert_eq!(third, &Message::Changes(Vec::new()));
        assert_eq!(last, &Message::Changes(vec![7; CHANGES_BYTES_MAX]));
    }

    #[test]
    fn one_that_has_ended_or_does_not_reply_is_not_waited_for_for_ever() {
        let (ours, theirs) = Link::pair().unwrap();
        assert!(ours.send_changes(b"a", Duration::from_millis(20)).is_err());
        drop(theirs);
        assert!(ours.send_changes(b"a", SOON).is_err());
        assert!(ours.receive().is_err());
    }
}
