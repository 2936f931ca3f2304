//! Purges as saved on disk: single records for a journal, and all of them at once.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Generation, Mark, Marks, Purges, Records, Table};
use crate::disk::bytes::{Put, Take};
use crate::key::KeyHasher;

/// What a purge concerns, as recorded: URLs and tags by their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded<'a> {
    /// Everything.
    All,
    /// One URL or one tag.
    Exact {
        /// Its key.
        key: u128,
        /// It is a tag.
        tag: bool,
    },
    /// Every URL with this prefix.
    Prefix(&'a [u8]),
}

impl Recorded<'_> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Recorded::All => out.put_u8(0),
            Recorded::Exact { key, tag } => {
                out.put_u8(1 + u8::from(*tag));
                out.put_u128(*key);
            }
            Recorded::Prefix(prefix) => {
                out.put_u8(3);
                out.put_u16(u16::try_from(prefix.len()).expect("PURGE_PREFIX_BYTES_MAX"));
                out.put(prefix);
            }
        }
    }

    pub(crate) fn decode<'b>(take: &mut Take<'b>) -> Option<Recorded<'b>> {
        Some(match take.u8()? {
            0 => Recorded::All,
            tag @ (1 | 2) => Recorded::Exact { key: take.u128()?, tag: tag == 2 },
            3 => {
                let len = take.u16()?;
                Recorded::Prefix(take.bytes(usize::from(len))?)
            }
            _ => return None,
        })
    }
}

fn put_marks(out: &mut Vec<u8>, marks: Marks) {
    for mark in [marks.hard, marks.soft] {
        out.put_u64(mark.generation);
        out.put_u64(mark.at_ms);
    }
}

/// No mark is newer than the last generation.
fn take_marks(take: &mut Take<'_>, last: Generation) -> Option<Marks> {
    let mut mark = || {
        let mark = Mark { generation: take.u64()?, at_ms: take.u64()? };
        (mark.generation <= last).then_some(mark)
    };
    Some(Marks { hard: mark()?, soft: mark()? })
}

fn put_table(out: &mut Vec<u8>, tables: [&Table; 2]) {
    let exact = || tables.iter().flat_map(|table| &table.exact);
    let prefixes = || tables.iter().flat_map(|table| &table.prefixes);
    out.put_u32(exact().count() as u32);
    for (key, marks) in exact() {
        Recorded::Exact { key: *key, tag: false }.encode(out);
        put_marks(out, *marks);
    }
    out.put_u32(prefixes().count() as u32);
    for (prefix, marks) in prefixes() {
        Recorded::Prefix(prefix).encode(out);
        put_marks(out, *marks);
    }
}

fn take_records(take: &mut Take<'_>) -> Option<(Generation, Records)> {
    let count = take.u64()?;
    let mut records = Records { floor: take.u64()?, ..Records::default() };
    (records.floor <= count).then_some(())?;
    records.all = take_marks(take, count)?;
    records.tag = take_marks(take, count)?;
    for _ in 0..take.u32()? {
        let Recorded::Exact { key, .. } = Recorded::decode(take)? else { return None };
        records.young.exact.entry(key).or_default().merge(take_marks(take, count)?);
    }
    for _ in 0..take.u32()? {
        let Recorded::Prefix(prefix) = Recorded::decode(take)? else { return None };
        let marks = take_marks(take, count)?;
        records.young.prefixes.entry(prefix.into()).or_default().merge(marks);
    }
    Some((count, records))
}

impl Marks {
    fn merge(&mut self, other: Marks) {
        self.note(other.hard, false);
        self.note(other.soft, true);
    }
}

impl Purges {
    /// All purges that still matter, encoded.
    pub(crate) fn save(&self) -> Vec<u8> {
        let records = self.read();
        assert!(records.floor <= self.now(), "the floor is a generation that there was");
        let mut out = Vec::new();
        out.put_u64(self.now());
        out.put_u64(records.floor);
        put_marks(&mut out, records.all);
        put_marks(&mut out, records.tag);
        put_table(&mut out, [&records.young, &records.old]);
        out
    }

    /// Merges the purges that another process of the same store knew.
    pub(crate) fn absorb(&self, other: Purges) {
        let count = other.now();
        let theirs = other.records.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut ours = self.write();
        ours.all.merge(theirs.all);
        ours.tag.merge(theirs.tag);
        ours.floor = ours.floor.max(theirs.floor);
        for table in [theirs.old, theirs.young] {
            for (key, marks) in table.exact {
                ours.young.exact.entry(key).or_default().merge(marks);
            }
            for (prefix, marks) in table.prefixes {
                ours.young.prefixes.entry(prefix).or_default().merge(marks);
            }
        }
        self.count.fetch_max(count, Ordering::AcqRel);
        let folded = ours.is_full().then(|| {
            let mark = Mark { generation: self.now(), at_ms: ours.all.hard.at_ms };
            ours.fold(mark)
        });
        assert!(!ours.is_full() && ours.floor <= self.now());
        drop(ours);
        drop(folded);
    }

    /// Decodes saved purges; `None`: they are invalid.
    pub(crate) fn restored(hasher: KeyHasher, saved: &[u8]) -> Option<Purges> {
        let (count, records) = take_records(&mut Take(saved))?;
        let purges = Purges::new(hasher);
        *purges.write() = records;
        purges.advance_to(count);
        Some(purges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purges::{Concerns, Known, Verdict};

    #[test]
    fn saved_purges_have_the_same_effect() {
        let hasher = KeyHasher::seeded(3, 4);
        let purges = Purges::new(hasher.clone());
        let mut journal = Vec::new();
        for (what, soft) in [
            (Concerns::Url(b"h/a"), false),
            (Concerns::Tag(b"blue"), true),
            (Concerns::Prefix(b"h/img/"), false),
        ] {
            purges.purge_with(what, soft, 7, |recorded, mark| {
                recorded.encode(&mut journal);
                journal.put_u8(u8::from(soft));
                journal.put_u64(mark.generation);
            });
        }
        let restored = Purges::restored(hasher.clone(), &purges.save()).unwrap();
        let replayed = Purges::new(hasher.clone());
        let mut take = Take(&journal);
        while !take.0.is_empty() {
            let what = Recorded::decode(&mut take).unwrap();
            let soft = take.u8().unwrap() == 1;
            let mark = Mark { generation: take.u64().unwrap(), at_ms: 7 };
            replayed.replay(what, soft, mark);
            replayed.replay(what, soft, mark);
        }
        for (url, tags) in [("h/a", ""), ("h/b", "blue"), ("h/img/x", ""), ("h/c", "red")] {
            let known = Known { url: url.as_bytes(), tags: tags.as_bytes(), more_tags: false };
            for since in 0..4 {
                let verdict = purges.judge(known, since);
                assert_eq!(restored.judge(known, since), verdict, "{url} {since}");
                assert_eq!(replayed.judge(known, since), verdict, "{url} {since}");
            }
        }
        let more = Known { url: b"h/x", tags: b"", more_tags: true };
        assert!(matches!(restored.judge(more, 0).0, Verdict::Stale(_)));
        assert!(Purges::restored(hasher, b"garbage").is_none());
    }
}
