//! Changes that are made and to be waited for before they are told.
//!
//! An unsafe method or a purge takes out what it concerns at once, here and in memory. It is
//! answered when no later request *anywhere* can be served what was there before: when the store on
//! disk has the delete for good, or, while another process takes our place ([`crate::handover`]),
//! when that process has taken the change in.
//! What never happens: a disk, or a process, that fails fails a request, or has it wait for ever.

use runtime::time;
use store::Concerns;
use store::disk::Pending;

use crate::Cache;
use crate::limits::DURABLE_WAIT_MAX;

/// A change, as another process can be told it.
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
    /// Of one.
    pub fn of(what: Concerns<'_>, soft: bool) -> Notice {
        let what = match what {
            Concerns::All => What::All,
            Concerns::Url(url) => What::Url(url.to_vec()),
            Concerns::Prefix(prefix) => What::Prefix(prefix.to_vec()),
            Concerns::Tag(tag) => What::Tag(tag.to_vec()),
        };
        Notice { what, soft }
    }

    /// What a URL had is gone.
    pub fn of_url(url: Vec<u8>) -> Notice {
        Notice { what: What::Url(url), soft: false }
    }

    fn concerns(&self) -> Concerns<'_> {
        match &self.what {
            What::All => Concerns::All,
            What::Url(url) => Concerns::Url(url),
            What::Prefix(prefix) => Concerns::Prefix(prefix),
            What::Tag(tag) => Concerns::Tag(tag),
        }
    }

    /// Appends it in the form in which another process reads it.
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

    /// Takes the first one off; `None`: that is none.
    fn decode(bytes: &mut &[u8]) -> Option<Notice> {
        let (kind, rest) = bytes.split_first()?;
        let (len, rest) = rest.split_first_chunk()?;
        let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
        let (text, rest) = rest.split_at_checked(len)?;
        let what = match kind >> 1 {
            0 => What::All,
            1 => What::Url(text.to_vec()),
            2 if len <= store::PURGE_PREFIX_BYTES_MAX => What::Prefix(text.to_vec()),
            3 => What::Tag(text.to_vec()),
            _ => return None,
        };
        *bytes = rest;
        Some(Notice { what, soft: kind & 1 == 1 })
    }
}

/// A change that is made.
#[derive(Debug)]
#[must_use = "it is for good only after Changes::durable"]
pub struct Made {
    notice: Notice,
    /// Of our disk, if it was ours.
    pending: Option<Pending>,
    /// How often the disk had gone and come back before.
    rounds: u64,
}

/// Changes that are seen by all here and not yet for good.
#[derive(Debug, Default)]
#[must_use = "they are for good only after Changes::durable"]
pub struct Changes(Vec<Made>);

impl Changes {
    /// Of one.
    pub fn of(made: Made) -> Changes {
        Changes(vec![made])
    }

    /// Adds one.
    pub fn push(&mut self, made: Made) {
        self.0.push(made);
    }

    /// Waits until no crash brings back what was there before and no other process serves it, but
    /// not for ever. Says whether they are on a disk for good.
    pub async fn durable(self, shared: &Cache) -> bool {
        let left = self.not_durable().await;
        if left.is_empty() {
            return true;
        }
        let notices = left.iter().map(|(notice, _)| notice);
        if let Some(taken) = shared.handover.tell(notices).await {
            return taken;
        }
        // Nobody takes our place. But our disk may have gone and come back meanwhile.
        let rounds = shared.handover.rounds();
        let mut again = Changes::default();
        for (notice, of) in &left {
            if *of == rounds || shared.disk().is_none() {
                return false;
            }
            again.push(shared.take_in(notice));
        }
        again.not_durable().await.is_empty()
    }

    /// Waits for the disk; which of them it has not got, and in which round they were made.
    async fn not_durable(self) -> Vec<(Notice, u64)> {
        let deadline = time::now() + DURABLE_WAIT_MAX;
        let mut left = Vec::new();
        for Made { notice, pending, rounds } in self.0 {
            let durable = match pending {
                Some(pending) => {
                    let patience = deadline.since(time::now());
                    let durable = time::timeout(patience, pending.durable()).await;
                    matches!(durable, Ok(Ok(())))
                }
                None => false,
            };
            if !durable {
                left.push((notice, rounds));
            }
        }
        left
    }
}

impl Cache {
    /// A change that was begun in a round, and made by its disk or by none.
    pub fn made(notice: Notice, pending: Option<Pending>, rounds: u64) -> Made {
        Made { notice, pending, rounds }
    }

    /// Makes a change that another process has told of.
    fn take_in(&self, notice: &Notice) -> Made {
        self.purge(notice.concerns(), notice.soft, time::wall_ms()).1
    }

    /// The same for all that were told at once. `None`: they cannot be read.
    pub fn take_in_all(&self, mut told: &[u8]) -> Option<Changes> {
        let mut changes = Changes::default();
        while !told.is_empty() {
            changes.push(self.take_in(&Notice::decode(&mut told)?));
        }
        Some(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let notices = [
            Notice::of(Concerns::All, false),
            Notice::of(Concerns::Url(b"h/a"), true),
            Notice::of_url(b"".to_vec()),
            Notice::of(Concerns::Prefix(b"h/"), false),
            Notice::of(Concerns::Tag(b"news"), true),
        ];
        let mut told = Vec::new();
        notices.iter().for_each(|notice| notice.encode(&mut told));
        let mut rest = &told[..];
        for notice in &notices {
            assert_eq!(Notice::decode(&mut rest).as_ref(), Some(notice));
        }
        assert!(rest.is_empty());
        for cut in 1..told.len() {
            let mut rest = &told[..cut];
            while Notice::decode(&mut rest).is_some() {}
            assert!(rest.len() < told.len());
        }
        let long = Notice::of(Concerns::Prefix(&[b'x'; store::PURGE_PREFIX_BYTES_MAX + 1]), false);
        told.clear();
        long.encode(&mut told);
        assert_eq!(Notice::decode(&mut &told[..]), None, "which nobody could purge by");
    }
}
