//! Changes that must be durable before they are acknowledged.
//!
//! An unsafe method or a purge removes what it concerns at once, here and in memory. It is
//! acknowledged when no later request *anywhere* can get the old response: when the delete is
//! durable in the store on disk or, while another process takes over ([`crate::handover`]), when
//! that process has applied the change. What never happens: a failing disk or process fails a
//! request, or makes it wait forever.

use runtime::time;
use store::Concerns;
use store::disk::Pending;

use crate::Cache;
use crate::limits::DURABLE_WAIT_MAX;

/// A change, as sent to another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    what: What,
    soft: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    All,
    Url(Vec<u8>),
    Prefix(Vec<u8>),
    Tag(Vec<u8>),
}

impl Notice {
    /// From a purge.
    pub fn of(what: Concerns<'_>, soft: bool) -> Notice {
        let what = match what {
            Concerns::All => What::All,
            Concerns::Url(url) => What::Url(url.to_vec()),
            Concerns::Prefix(prefix) => What::Prefix(prefix.to_vec()),
            Concerns::Tag(tag) => What::Tag(tag.to_vec()),
        };
        Notice { what, soft }
    }

    /// The removal of a URL's responses.
    pub fn of_url(url: Vec<u8>) -> Notice {
        Notice { what: What::Url(url), soft: false }
    }

    /// Whether it removes all that is stored, at once.
    pub(crate) fn empties(&self) -> bool {
        self.what == What::All && !self.soft
    }

    pub(crate) fn concerns(&self) -> Concerns<'_> {
        match &self.what {
            What::All => Concerns::All,
            What::Url(url) => Concerns::Url(url),
            What::Prefix(prefix) => Concerns::Prefix(prefix),
            What::Tag(tag) => Concerns::Tag(tag),
        }
    }

    /// Appends it in the form that another process reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, bytes): (u8, &[u8]) = match &self.what {
            What::All => (0, b""),
            What::Url(url) => (1, url),
            What::Prefix(prefix) => (2, prefix),
            What::Tag(tag) => (3, tag),
        };
        out.push(kind << 1 | u8::from(self.soft));
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(bytes);
    }

    /// All notices of a message; `None`: the bytes are invalid.
    pub fn decode_all(mut bytes: &[u8]) -> Option<Vec<Notice>> {
        let mut notices = Vec::new();
        while !bytes.is_empty() {
            notices.push(Notice::decode(&mut bytes)?);
        }
        Some(notices)
    }

    /// Takes the first notice off; `None`: the bytes are invalid.
    fn decode(bytes: &mut &[u8]) -> Option<Notice> {
        let (kind, rest) = bytes.split_first()?;
        let (len, rest) = rest.split_first_chunk()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let (text, rest) = rest.split_at_checked(len)?;
        let what = match kind >> 1 {
            0 if len == 0 => What::All,
            1 => What::Url(text.to_vec()),
            2 if len <= store::PURGE_PREFIX_BYTES_MAX => What::Prefix(text.to_vec()),
            3 => What::Tag(text.to_vec()),
            _ => return None,
        };
        *bytes = rest;
        Some(Notice { what, soft: kind & 1 == 1 })
    }
}

/// A change that was made.
#[derive(Debug)]
#[must_use = "it is durable only after Changes::durable"]
pub struct Made {
    notice: Notice,
    /// Of our disk, if we had it.
    pending: Option<Pending>,
    /// The handover round in which it was made.
    rounds: u64,
}

/// Changes that are visible here and not durable yet.
#[derive(Debug, Default)]
#[must_use = "they are durable only after Changes::durable"]
pub struct Changes(Vec<Made>);

impl FromIterator<Made> for Changes {
    fn from_iter<I: IntoIterator<Item = Made>>(made: I) -> Changes {
        Changes(made.into_iter().collect())
    }
}

impl Changes {
    /// One change.
    pub fn of(made: Made) -> Changes {
        Changes(vec![made])
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a change.
    pub fn push(&mut self, made: Made) {
        self.0.push(made);
    }

    /// Adds these changes.
    pub fn append(&mut self, mut others: Changes) {
        self.0.append(&mut others.0);
    }

    /// What was changed, in the form that another process applies ([`Cache::apply_all`]).
    pub fn notices(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.iter().for_each(|made| made.notice.encode(&mut out));
        out
    }

    /// Waits, for a bounded time, until no crash brings the old state back and no other process
    /// serves it. Returns whether the changes are durable on a disk.
    pub async fn durable(mut self, shared: &Cache) -> bool {
        self.wait_for_disk().await;
        if self.is_empty() {
            return true;
        }
        if let Some(taken) = shared.handover.send(self.0.iter().map(|made| &made.notice)).await {
            return taken;
        }
        // No process takes over. But our disk may have been handed over and come back meanwhile.
        let rounds = shared.handover.rounds();
        let mut again = Changes::default();
        for Made { notice, rounds: of, .. } in &self.0 {
            if *of == rounds || shared.disk().is_none() {
                return false;
            }
            again.push(shared.apply(notice));
        }
        again.wait_for_disk().await;
        again.is_empty()
    }

    /// Waits for the disk, and leaves the changes that are not durable there.
    async fn wait_for_disk(&mut self) {
        let deadline = time::now() + DURABLE_WAIT_MAX;
        let mut left = 0;
        for at in 0..self.0.len() {
            let is_durable = match self.0[at].pending.take() {
                Some(pending) => {
                    let patience = deadline.since(time::now());
                    let durable = time::timeout(patience, pending.durable()).await;
                    matches!(durable, Ok(Ok(())))
                }
                None => false,
            };
            if !is_durable {
                self.0.swap(left, at);
                left += 1;
            }
        }
        self.0.truncate(left);
    }
}

impl Cache {
    /// A change that was started in this round; `pending` is of its disk, if there was one.
    pub fn made(notice: Notice, pending: Option<Pending>, rounds: u64) -> Made {
        Made { notice, pending, rounds }
    }

    /// Applies a change sent by another process.
    fn apply(&self, notice: &Notice) -> Made {
        self.purge(notice.concerns(), notice.soft, time::wall_ms()).1
    }

    /// Applies all changes of a message. `None`: they are invalid, and none was applied.
    pub fn apply_all(&self, notices: &[u8]) -> Option<Changes> {
        let notices = Notice::decode_all(notices)?;
        let mut changes = Changes::default();
        notices.iter().for_each(|notice| changes.push(self.apply(notice)));
        Some(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_decoded_as_encoded() {
        let notices = [
            Notice::of(Concerns::All, false),
            Notice::of(Concerns::Url(b"h/a"), true),
            Notice::of_url(b"".to_vec()),
            Notice::of(Concerns::Prefix(b"h/"), false),
            Notice::of(Concerns::Tag(b"news"), true),
        ];
        let mut sent = Vec::new();
        notices.iter().for_each(|notice| notice.encode(&mut sent));
        let mut rest = &sent[..];
        for notice in &notices {
            assert_eq!(Notice::decode(&mut rest).as_ref(), Some(notice));
        }
        assert!(rest.is_empty());
        for cut in 1..sent.len() {
            let mut rest = &sent[..cut];
            while Notice::decode(&mut rest).is_some() {}
            assert!(rest.len() < sent.len());
        }
        let long = Notice::of(Concerns::Prefix(&[b'x'; store::PURGE_PREFIX_BYTES_MAX + 1]), false);
        sent.clear();
        long.encode(&mut sent);
        assert_eq!(Notice::decode(&mut &sent[..]), None, "the prefix is too long");
    }
}
