//! Purges in O(1): a purge is a record with a generation, and no stored object is touched.
//!
//! [`Purges`] counts purges. An object carries the generation at which its fetch *began*. Every
//! later record concerns it that matches its URL, a prefix of it, one of its tags, or everything.
//! So a fetch in flight during a purge does not count as newer than the purge.
//!
//! Look-ups stay cheap: the owner of an object also notes the generation up to which it was last
//! found good. While that equals [`Purges::now`], a hit costs one comparison. Otherwise
//! [`Purges::judge`] searches the tables once, and the new generation is noted.
//!
//! Memory is bounded. New records go to the young table. A sweep ([`Purges::begin_sweep`]) makes it
//! the old table. When the sweeper has passed every stored object to [`Purges::judge`], the old
//! table is dropped ([`Purges::end_sweep`]) and the *floor* rises: an object not judged since
//! counts as purged. If records come faster than sweeps, they are folded into one that concerns
//! everything, which purges too much but never too little.
//!
//! What never happens: a purge looks at objects; a lock is held for longer than a few look-ups in
//! tables (tables are dropped outside).

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use runtime::sync::primitives::{AtomicU64, RwLock, RwLockReadGuard, RwLockWriteGuard};
use serde::{Deserialize, Serialize};

use crate::key::KeyHasher;

/// Records of single URLs and tags per table; beyond this all are folded into one.
pub const PURGE_RECORDS_MAX: usize = 64 * 1024;
/// Records of prefixes per table; beyond this all are folded into one.
pub const PURGE_PREFIXES_MAX: usize = 4 * 1024;
/// Maximum length of a prefix to purge.
pub const PURGE_PREFIX_BYTES_MAX: usize = 2 * 1024;

// A record on disk has the length of its prefix in 16 bits.
const _: () = assert!(PURGE_PREFIX_BYTES_MAX <= u16::MAX as usize);
const _: () =
    assert!(PURGE_PREFIXES_MAX <= PURGE_RECORDS_MAX && PURGE_RECORDS_MAX <= u32::MAX as usize / 2);

/// The number of a purge. Objects with a smaller number were fetched before it.
pub type Generation = u64;

/// What a purge concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concerns<'a> {
    /// Everything.
    All,
    /// One URL, as stored with the objects, with all its variants.
    Url(&'a [u8]),
    /// Every URL with this prefix.
    Prefix(&'a [u8]),
    /// Every object with this tag. In a [`Hit`] it is empty if the object has more tags than are
    /// known.
    Tag(&'a [u8]),
}

/// One purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Its generation; zero: there was none.
    pub generation: Generation,
    /// Its time, in unix milliseconds.
    pub at_ms: u64,
}

/// A purge that concerns an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    /// The match; for a prefix, the bytes that matched.
    pub by: Concerns<'a>,
    /// Soft: marks the object stale.
    pub soft: bool,
    /// The purge.
    pub mark: Mark,
}

/// The effect of purges on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No purge concerned it.
    Good,
    /// It counts as stale from this purge on.
    Stale(Mark),
    /// It counts as removed.
    Gone,
}

/// What purges match an object by.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Its URL.
    pub url: &'a [u8],
    /// Its tags, separated by single spaces.
    pub tags: &'a [u8],
    /// It has more tags than these: any purge by tag concerns it.
    pub more_tags: bool,
}

impl<'a> Known<'a> {
    fn each_tag(&self) -> impl Iterator<Item = &'a [u8]> {
        self.tags.split(|&byte| byte == b' ').filter(|tag| !tag.is_empty())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    hard: Mark,
    soft: Mark,
}

impl Marks {
    fn note(&mut self, mark: Mark, soft: bool) {
        let kept = if soft { &mut self.soft } else { &mut self.hard };
        // A record from a journal may be known already.
        if mark.generation >= kept.generation {
            *kept = mark;
        }
        assert!(kept.generation >= mark.generation, "the last purge is kept");
    }

    /// Those of the two purges that came after `since`.
    fn after(self, since: Generation) -> impl Iterator<Item = (bool, Mark)> {
        [(false, self.hard), (true, self.soft)]
            .into_iter()
            .filter(move |(_, mark)| mark.generation > since)
    }
}

#[derive(Debug, Default)]
struct Table {
    /// URLs and tags, by keys that cannot collide with each other.
    exact: HashMap<u128, Marks>,
    prefixes: BTreeMap<Box<[u8]>, Marks>,
}

impl Table {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty()
    }

    fn len(&self) -> usize {
        self.exact.len() + self.prefixes.len()
    }
}

#[derive(Debug, Default)]
struct Records {
    all: Marks,
    /// Of any tag.
    tag: Marks,
    young: Table,
    old: Table,
    /// Objects not judged since this generation count as purged.
    floor: Generation,
    sweeping: bool,
    folded: u64,
}

impl Records {
    /// Adds a purge. Returns folded tables, to be dropped outside the lock.
    fn note(&mut self, what: Recorded<'_>, soft: bool, mark: Mark) -> Option<[Table; 2]> {
        let marks = match what {
            Recorded::Prefix(prefix) => self.young.prefixes.entry(prefix.into()).or_default(),
            Recorded::Exact { key, .. } => self.young.exact.entry(key).or_default(),
            Recorded::All => &mut self.all,
        };
        marks.note(mark, soft);
        if let Recorded::Exact { tag: true, .. } = what {
            self.tag.note(mark, soft);
        }
        let folded = self.is_full().then(|| self.fold(mark));
        assert!(!self.is_full(), "the records are bounded");
        folded
    }

    fn is_full(&self) -> bool {
        self.young.exact.len() > PURGE_RECORDS_MAX || self.young.prefixes.len() > PURGE_PREFIXES_MAX
    }

    /// Folds all records into one that concerns everything. Returns the tables, to be dropped
    /// outside the lock.
    fn fold(&mut self, mark: Mark) -> [Table; 2] {
        let tables = [std::mem::take(&mut self.young), std::mem::take(&mut self.old)];
        let marks =
            tables.iter().flat_map(|table| table.exact.values().chain(table.prefixes.values()));
        let any_hard = marks.into_iter().any(|marks| marks.hard.generation > 0);
        self.all.note(mark, !any_hard);
        self.folded += 1;
        assert!(self.young.is_empty() && self.old.is_empty(), "one record is left");
        tables
    }
}

/// All purges that still matter. Aligned apart from its neighbours: every look-up reads its count.
#[derive(Debug)]
#[repr(align(128))]
pub struct Purges {
    count: AtomicU64,
    records: RwLock<Records>,
    hasher: KeyHasher,
}

/// A sweep in progress: every stored object must be judged once before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a sweep that does not end keeps its records"]
pub struct Sweep {
    up_to: Generation,
}

impl Purges {
    /// No purges yet. The hasher's seed keeps clients from choosing collisions.
    #[must_use]
    pub fn new(hasher: KeyHasher) -> Purges {
        Purges { count: AtomicU64::new(0), records: RwLock::default(), hasher }
    }

    /// The current generation.
    #[inline]
    pub fn now(&self) -> Generation {
        self.count.load(Ordering::Acquire)
    }

    /// Adds a purge. Requests that begin after it returns do not see what it concerned.
    ///
    /// # Panics
    /// When a prefix is longer than [`PURGE_PREFIX_BYTES_MAX`].
    pub fn purge(&self, what: Concerns<'_>, soft: bool, now_ms: u64) -> Mark {
        self.purge_with(what, soft, now_ms, |_, _| ())
    }

    /// As [`Purges::purge`]. Passes the record to `record` before the new generation is visible, so
    /// that a journal has it before any object stored later.
    pub(crate) fn purge_with(
        &self,
        what: Concerns<'_>,
        soft: bool,
        now_ms: u64,
        record: impl FnOnce(&Recorded<'_>, Mark),
    ) -> Mark {
        let what = match what {
            Concerns::All => Recorded::All,
            Concerns::Url(url) => Recorded::Exact { key: self.url_key(url), tag: false },
            Concerns::Tag(tag) => Recorded::Exact { key: self.tag_key(tag), tag: true },
            Concerns::Prefix(prefix) => {
                assert!(prefix.len() <= PURGE_PREFIX_BYTES_MAX, "the caller refuses longer ones");
                Recorded::Prefix(prefix)
            }
        };
        let mut records = self.write();
        let mark = Mark { generation: self.count.load(Ordering::Relaxed) + 1, at_ms: now_ms };
        assert!(records.floor < mark.generation, "a purge is newer than every sweep");
        record(&what, mark);
        let folded = records.note(what, soft, mark);
        // Under the lock: a thread that sees the new count also finds its record.
        let before = self.count.swap(mark.generation, Ordering::AcqRel);
        assert!(before + 1 == mark.generation, "generations change under the lock only");
        drop(records);
        drop(folded);
        mark
    }

    /// Adds an earlier purge from a journal. Later generations are greater.
    pub(crate) fn replay(&self, what: Recorded<'_>, soft: bool, mark: Mark) {
        let mut records = self.write();
        let folded = records.note(what, soft, mark);
        let before = self.count.fetch_max(mark.generation, Ordering::AcqRel);
        assert!(
            records.floor <= before.max(mark.generation),
            "the floor is a generation that there was"
        );
        drop(records);
        drop(folded);
    }

    /// Makes all later generations at least this.
    pub(crate) fn advance_to(&self, generation: Generation) {
        // A purge that is noted meanwhile would take the count back.
        let _records = self.write();
        self.count.fetch_max(generation, Ordering::AcqRel);
    }

    /// The effect of the purges after `since` on an object, and the generation up to which it
    /// holds.
    #[cold]
    pub fn judge(&self, known: Known<'_>, since: Generation) -> (Verdict, Generation) {
        let now = self.now();
        let records = self.read();
        if since < records.floor {
            return (Verdict::Gone, now);
        }
        let mut verdict = Verdict::Good;
        self.each_hit(&records, known, since, &mut |hit| {
            verdict = match verdict {
                _ if !hit.soft => Verdict::Gone,
                Verdict::Good => Verdict::Stale(hit.mark),
                Verdict::Stale(first) if hit.mark.generation < first.generation => {
                    Verdict::Stale(hit.mark)
                }
                other => other,
            };
        });
        (verdict, now)
    }

    /// Whether this URL was purged after a fetch that began at `since`. Tags are not known yet.
    pub fn overtaken(&self, url: &[u8], since: Generation) -> bool {
        since != self.now()
            && self.judge(Known { url, tags: b"", more_tags: false }, since).0 != Verdict::Good
    }

    /// Calls `show` with every purge after `since` that concerns an object, for an explanation.
    pub fn hits<'a>(&self, known: Known<'a>, since: Generation, mut show: impl FnMut(Hit<'a>)) {
        let records = self.read();
        self.each_hit(&records, known, since, &mut show);
    }

    /// Whether so many records came since the sweep began that it should end soon.
    pub fn is_crowded(&self) -> bool {
        let young = &self.read().young;
        young.exact.len() > PURGE_RECORDS_MAX / 4 || young.prefixes.len() > PURGE_PREFIXES_MAX / 4
    }

    /// Whether there are records that a sweep would drop.
    pub fn wants_sweep(&self) -> bool {
        let records = self.read();
        !records.sweeping && !records.young.is_empty()
    }

    /// Begins a sweep, unless one is in progress or there is nothing to drop.
    pub fn begin_sweep(&self) -> Option<Sweep> {
        let mut records = self.write();
        if records.sweeping || records.young.is_empty() {
            return None;
        }
        let old = std::mem::take(&mut records.young);
        let before = std::mem::replace(&mut records.old, old);
        assert!(before.is_empty(), "the sweep before has dropped its records");
        assert!(!records.old.is_empty(), "a sweep has records to drop");
        records.sweeping = true;
        let up_to = self.count.load(Ordering::Relaxed);
        assert!(records.floor <= up_to, "the floor is a generation that there was");
        drop(records);
        drop(before);
        Some(Sweep { up_to })
    }

    /// Ends a sweep. Every stored object must have been judged since it began, and been removed or
    /// marked.
    pub fn end_sweep(&self, sweep: Sweep) {
        let mut records = self.write();
        assert!(records.sweeping, "a sweep ends once");
        let old = std::mem::take(&mut records.old);
        records.sweeping = false;
        records.floor = records.floor.max(sweep.up_to);
        assert!(records.floor <= self.now(), "the floor is a generation that there was");
        drop(records);
        drop(old);
    }

    /// Number of records.
    pub fn records(&self) -> usize {
        let records = self.read();
        records.young.len() + records.old.len()
    }

    /// How often records were folded into one because there were too many.
    pub fn folded(&self) -> u64 {
        self.read().folded
    }

    fn each_hit<'a>(
        &self,
        records: &Records,
        known: Known<'a>,
        since: Generation,
        show: &mut impl FnMut(Hit<'a>),
    ) {
        let mut of = |by, marks: Marks| {
            for (soft, mark) in marks.after(since) {
                show(Hit { by, soft, mark });
            }
        };
        of(Concerns::All, records.all);
        if known.more_tags {
            of(Concerns::Tag(b""), records.tag);
        }
        for table in [&records.young, &records.old] {
            if !table.exact.is_empty() {
                if let Some(marks) = table.exact.get(&self.url_key(known.url)) {
                    of(Concerns::Url(known.url), *marks);
                }
                for tag in known.each_tag() {
                    if let Some(marks) = table.exact.get(&self.tag_key(tag)) {
                        of(Concerns::Tag(tag), *marks);
                    }
                }
            }
            each_prefix(&table.prefixes, known.url, &mut |bytes, marks| {
                of(Concerns::Prefix(bytes), marks);
            });
        }
    }

    fn url_key(&self, url: &[u8]) -> u128 {
        self.hasher.key(&[b"url", url]).to_u128()
    }

    fn tag_key(&self, tag: &[u8]) -> u128 {
        self.hasher.key(&[b"tag", tag]).to_u128()
    }

    /// No code in this file panics while it holds the lock with half-changed data.
    fn read(&self) -> RwLockReadGuard<'_, Records> {
        self.records.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Records> {
        self.records.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Calls `show` with every key of the map that is a prefix of `text`. Each step either finds a
/// prefix, or cuts the text to what it shares with a key that is not one. So few keys are compared,
/// however many there are.
fn each_prefix<'a>(
    map: &BTreeMap<Box<[u8]>, Marks>,
    text: &'a [u8],
    show: &mut impl FnMut(&'a [u8], Marks),
) {
    let mut bound = Bound::Included(text);
    loop {
        let Some((key, marks)) = map.range::<[u8], _>((Bound::Unbounded, bound)).next_back() else {
            return;
        };
        let common = key.iter().zip(text).take_while(|(a, b)| a == b).count();
        bound = if common == key.len() {
            show(&text[..common], *marks);
            Bound::Excluded(&text[..common])
        } else {
            Bound::Included(&text[..common])
        };
    }
}

#[cfg(all(test, loom))]
mod models;
mod saved;

pub(crate) use saved::Recorded;

#[cfg(test)]
mod tests {
    use super::*;

    fn purges() -> Purges {
        Purges::new(KeyHasher::seeded(3, 4))
    }

    fn known<'a>(url: &'a str, tags: &'a str) -> Known<'a> {
        Known { url: url.as_bytes(), tags: tags.as_bytes(), more_tags: false }
    }

    #[test]
    fn a_purge_affects_only_older_objects_that_match() {
        let purges = purges();
        let before = purges.now();
        purges.purge(Concerns::Url(b"h/a"), false, 1);
        purges.purge(Concerns::Tag(b"blue"), false, 2);
        purges.purge(Concerns::Prefix(b"h/img/"), false, 3);
        let verdict = |url, tags, since| purges.judge(known(url, tags), since).0;
        for (url, tags) in [("h/a", ""), ("h/b", "red blue"), ("h/img/x", ""), ("h/img/", "")] {
            assert_eq!(verdict(url, tags, before), Verdict::Gone, "{url} {tags}");
            assert_eq!(verdict(url, tags, purges.now()), Verdict::Good, "{url} {tags}");
        }
        for (url, tags) in [("h/ab", ""), ("h/", "blu bluer"), ("h/img", ""), ("g/img/x", "")] {
            assert_eq!(verdict(url, tags, before), Verdict::Good, "{url} {tags}");
        }
        assert!(purges.overtaken(b"h/a", before) && !purges.overtaken(b"h/b", before));
        purges.purge(Concerns::All, true, 4);
        let stale = Verdict::Stale(Mark { generation: 4, at_ms: 4 });
        assert_eq!(verdict("h/b", "", before), stale);
        assert_eq!(verdict("h/a", "", before), Verdict::Gone, "hard wins");
    }

    #[test]
    fn the_first_soft_purge_counts_and_all_are_shown() {
        let purges = purges();
        purges.purge(Concerns::Tag(b"t"), true, 10);
        purges.purge(Concerns::Url(b"h/a"), true, 20);
        let known = known("h/a", "t");
        let first = Mark { generation: 1, at_ms: 10 };
        assert_eq!(purges.judge(known, 0), (Verdict::Stale(first), 2));
        let mut shown = Vec::new();
        purges.hits(known, 0, |hit| shown.push((hit.by, hit.mark.at_ms)));
        assert_eq!(shown, [(Concerns::Url(b"h/a"), 20), (Concerns::Tag(b"t"), 10)]);
    }

    #[test]
    fn an_object_with_unknown_tags_matches_any_tag() {
        let purges = purges();
        purges.purge(Concerns::Url(b"h/b"), false, 0);
        let more = Known { more_tags: true, ..known("h/a", "a b") };
        assert_eq!(purges.judge(more, 0).0, Verdict::Good);
        purges.purge(Concerns::Tag(b"c"), false, 0);
        assert_eq!(purges.judge(more, 0).0, Verdict::Gone);
        assert_eq!(purges.judge(known("h/a", "a b"), 0).0, Verdict::Good);
    }

    #[test]
    fn every_prefix_is_found_among_many() {
        let purges = purges();
        for n in 0..2000 {
            purges.purge(Concerns::Prefix(format!("h/a/{n}/").as_bytes()), false, 0);
        }
        for prefix in ["h/", "h/a/", "h/a/77/x"] {
            purges.purge(Concerns::Prefix(prefix.as_bytes()), false, 0);
        }
        let mut shown = Vec::new();
        purges.hits(known("h/a/77/xyz", ""), 0, |hit| shown.push(hit.by));
        let prefixes =
            ["h/a/77/x", "h/a/77/", "h/a/", "h/"].map(|p| Concerns::Prefix(p.as_bytes()));
        assert_eq!(shown, prefixes);
    }

    #[test]
    fn a_sweep_drops_records_and_unjudged_objects_count_as_purged() {
        let purges = purges();
        assert_eq!(purges.begin_sweep(), None, "nothing to drop");
        purges.purge(Concerns::Url(b"h/a"), false, 0);
        let sweep = purges.begin_sweep().unwrap();
        assert_eq!(purges.begin_sweep(), None, "one at a time");
        let (verdict, judged) = purges.judge(known("h/b", ""), 0);
        assert_eq!((verdict, judged), (Verdict::Good, 1));
        assert_eq!(purges.judge(known("h/a", ""), 0).0, Verdict::Gone, "old records count too");
        purges.purge(Concerns::Url(b"h/c"), false, 0);
        purges.end_sweep(sweep);
        assert_eq!(purges.records(), 1, "records made during the sweep stay");
        assert_eq!(purges.judge(known("h/c", ""), judged).0, Verdict::Gone);
        assert_eq!(purges.judge(known("h/b", ""), judged).0, Verdict::Good);
        assert_eq!(purges.judge(known("h/z", ""), 0).0, Verdict::Gone, "it was not judged in time");
    }

    #[test]
    fn too_many_records_are_folded_into_one() {
        let purges = purges();
        for n in 0..=PURGE_RECORDS_MAX {
            purges.purge(Concerns::Tag(format!("t{n}").as_bytes()), true, 0);
        }
        assert_eq!((purges.folded(), purges.records()), (1, 0));
        let (verdict, now) = purges.judge(known("h/untouched", ""), 5);
        assert!(matches!(verdict, Verdict::Stale(_)), "only soft ones were folded");
        for n in 0..=PURGE_PREFIXES_MAX {
            purges.purge(Concerns::Prefix(format!("h/{n}/").as_bytes()), false, 0);
        }
        assert_eq!((purges.folded(), purges.records()), (2, 0));
        assert_eq!(purges.judge(known("other/", ""), now).0, Verdict::Gone);
    }

    #[test]
    fn a_thread_that_sees_the_new_count_finds_the_record() {
        let purges = std::sync::Arc::new(purges());
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let purges = purges.clone();
                std::thread::spawn(move || {
                    let mut seen = 0;
                    for _ in 0..20_000 {
                        let now = purges.now();
                        if now > seen {
                            let known = known("h/a", "");
                            assert_eq!(purges.judge(known, seen).0, Verdict::Gone);
                            seen = now;
                        }
                    }
                })
            })
            .collect();
        for n in 0..2000 {
            purges.purge(Concerns::Url(b"h/a"), false, n);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
