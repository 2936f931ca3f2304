//! The URLs with most requests and why they miss, while a page watches.
//!
//! Each core gives a sample of its requests to one table. The table keeps the most frequent URLs in
//! bounded memory (space-saving, Metwally et al. 2005): if it is full, a new URL takes the place of
//! the one with the fewest requests, and its count begins there. The count is shown without that
//! beginning, so it is never too high.
//!
//! What never happens:
//!
//! - A core waits for the table. If the table is locked, the sample is lost, and a page keeps the
//!   figures that it has.
//! - A table exists for long while no page watches.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use outcome::{Fault, Outcome};

use crate::Record;
use crate::limits::{
    REASONS_MAX, REASONS_OF_ALL_MAX, SAMPLES_OF_TICK, SAMPLES_REMEMBERED, URL_BYTES_MAX, URLS_MAX,
};

/// What all cores share: how many pages watch, and the table.
#[derive(Debug, Default)]
pub struct UrlWatch {
    watchers: AtomicUsize,
    table: Mutex<Option<Box<Table>>>,
}

/// While it lives, requests are sampled.
#[derive(Debug)]
pub struct Watching<'w>(&'w UrlWatch);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        if self.0.watchers.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.forget_unwatched();
        }
    }
}

/// A URL of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UrlCount {
    /// The URL, perhaps cut.
    pub url: String,
    /// Requests in the sample, weighted by how many each stands for.
    pub requests: u64,
    /// Requests that were answered from the store.
    pub hits: u64,
    /// Why the other requests were not.
    pub reasons: Vec<(String, u64)>,
    /// The count at which `requests` began.
    inherited: u64,
}

/// The table as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopUrls {
    /// Requests in the sample.
    pub sampled: u64,
    /// Requests that they stand for.
    pub requests: u64,
    /// Why requests were not answered from the store, whatever the URL.
    pub reasons: Vec<(String, u64)>,
    /// The URLs that missed most often and those that were requested most often. The former come
    /// first.
    pub urls: Vec<UrlCount>,
}

impl UrlWatch {
    /// Begins to sample requests, or goes on to.
    pub fn watch(&self) -> Watching<'_> {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Watching(self)
    }

    /// Whether a page watches.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Up to `count` URLs; `None` if a core has the table just now.
    #[must_use]
    pub fn top(&self, count: usize) -> Option<TopUrls> {
        let table = self.table()?;
        Some(table.as_ref().map(|table| table.top(count)).unwrap_or_default())
    }

    /// Drops the table if no page watches, unless a core has it just now.
    pub fn forget_unwatched(&self) {
        if !self.is_watched()
            && let Some(mut table) = self.table()
        {
            *table = None;
        }
    }

    /// Adds a request that stands for `weight` requests.
    pub(crate) fn add(&self, record: &Record<'_>, weight: u64) {
        let Some(mut table) = self.table() else { return };
        // A core notices up to a tick late that no page watches any more.
        if self.is_watched() {
            table.get_or_insert_default().add(record, weight);
        }
    }

    fn table(&self) -> Option<MutexGuard<'_, Option<Box<Table>>>> {
        match self.table.try_lock() {
            Ok(table) => Some(table),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    sampled: u64,
    requests: u64,
    reasons: Vec<(String, u64)>,
    places: HashMap<Vec<u8>, usize>,
    urls: Vec<UrlCount>,
    url: Vec<u8>,
}

impl Table {
    fn add(&mut self, record: &Record<'_>, weight: u64) {
        if matches!(record.outcome, Outcome::Tunnel) || record.request.is_none() {
            return;
        }
        if self.sampled >= SAMPLES_REMEMBERED {
            self.halve();
        }
        self.sampled += 1;
        self.requests += weight;
        let place = self.place(record);
        let of = &mut self.urls[place];
        of.requests += weight;
        match why(record) {
            None => of.hits += weight,
            Some(why) => {
                count(&mut self.reasons, &why, weight, REASONS_OF_ALL_MAX);
                count(&mut of.reasons, &why, weight, REASONS_MAX);
            }
        }
        debug_assert!(of.inherited + of.hits <= of.requests, "{of:?}");
    }

    /// The place of the request's URL, which may replace another one.
    fn place(&mut self, record: &Record<'_>) -> usize {
        self.url.clear();
        let authority = record.authority_before();
        if !authority.is_empty() {
            self.url.extend_from_slice(record.scheme().as_bytes());
            self.url.extend_from_slice(b"://");
            self.url.extend_from_slice(authority);
        }
        self.url.extend_from_slice(record.target());
        self.url.truncate(URL_BYTES_MAX);
        if let Some(place) = self.places.get(&self.url) {
            return *place;
        }
        let url = String::from_utf8_lossy(&self.url).into_owned();
        let place = if self.urls.len() < URLS_MAX {
            self.urls.push(UrlCount::default());
            self.urls.len() - 1
        } else {
            let least = self.urls.iter().enumerate().min_by_key(|(_, of)| of.requests);
            let place = least.map_or(0, |(place, _)| place);
            self.places.retain(|_, of| *of != place);
            place
        };
        let inherited = self.urls[place].requests;
        self.urls[place] = UrlCount { url, requests: inherited, inherited, ..UrlCount::default() };
        self.places.insert(self.url.clone(), place);
        debug_assert!(self.places.len() == self.urls.len() && self.urls.len() <= URLS_MAX);
        place
    }

    /// Old requests count less.
    fn halve(&mut self) {
        self.sampled /= 2;
        self.requests /= 2;
        let halve = |reasons: &mut Vec<(String, u64)>| {
            reasons.iter_mut().for_each(|(_, count)| *count /= 2);
        };
        halve(&mut self.reasons);
        for of in &mut self.urls {
            of.requests /= 2;
            of.hits /= 2;
            of.inherited /= 2;
            halve(&mut of.reasons);
        }
    }

    fn top(&self, count: usize) -> TopUrls {
        let most_first = |reasons: &[(String, u64)]| {
            let mut reasons = reasons.to_vec();
            reasons.sort_by_key(|(_, count)| Reverse(*count));
            reasons
        };
        let mut urls: Vec<UrlCount> = self.urls.clone();
        for of in &mut urls {
            of.requests -= of.inherited;
        }
        let misses = |of: &UrlCount| of.requests - of.hits;
        urls.sort_by_key(|of| Reverse(of.requests));
        let rest = urls.split_off(urls.len().min(count.div_ceil(2)));
        let mut rest: Vec<UrlCount> = rest.into_iter().filter(|of| misses(of) > 0).collect();
        rest.sort_by_key(|of| Reverse(misses(of)));
        urls.extend(rest.into_iter().take(count / 2));
        urls.sort_by_key(|of| Reverse((misses(of), of.requests)));
        for of in &mut urls {
            of.reasons = most_first(&of.reasons);
        }
        let reasons = most_first(&self.reasons);
        TopUrls { sampled: self.sampled, requests: self.requests, reasons, urls }
    }
}

/// Counts a reason. If there is no room for a further one, it counts as the last.
fn count(reasons: &mut Vec<(String, u64)>, why: &str, weight: u64, max: usize) {
    let full = reasons.len() >= max;
    match reasons.iter_mut().find(|(known, _)| known == why) {
        Some((_, count)) => *count += weight,
        None if full => reasons[max - 1].1 += weight,
        None => reasons.push((why.to_owned(), weight)),
    }
}

/// Why the request was not answered from the store; `None` if it was.
fn why(record: &Record<'_>) -> Option<String> {
    match record.outcome {
        Outcome::Hit | Outcome::NotModified => return None,
        Outcome::Own => return Some("answered by this proxy itself".to_owned()),
        Outcome::Refused if Fault::is_name(record.rule) => {
            return Some(format!("failed: {}", record.rule));
        }
        Outcome::Refused | Outcome::Denied => return Some(format!("refused ({})", record.rule)),
        _ => {}
    }
    let status = String::from_utf8_lossy(record.response_field(b"cache-status"));
    let parameter = |name: &str| {
        status.split(';').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
    };
    let stored = status.split(';').any(|part| part.trim() == "stored");
    let mut why = match parameter("fwd") {
        Some("uri-miss") if record.outcome == Outcome::Collapsed => "waited for another's fetch",
        Some("uri-miss") if stored => "not in the store",
        Some("uri-miss") => "the response was not stored",
        Some("vary-miss") => "another variant was stored (Vary)",
        Some("stale") if record.outcome == Outcome::Revalidated => "stale, and still valid",
        Some("stale") => "stale",
        Some("request") => "the client demanded a fresh one",
        Some("method") => "the method",
        Some("bypass") => "passed through by a rule",
        Some("partial") => "only a part was stored",
        _ => "nothing usable was stored",
    }
    .to_owned();
    if let Some(detail) = parameter("detail") {
        why.push_str(&format!(" ({})", detail.trim_matches('"')));
    }
    Some(why)
}

/// A core's choice of requests.
#[derive(Debug)]
pub(crate) struct Sampling {
    /// One request of so many is chosen.
    stride: Cell<u32>,
    /// Requests to pass over before the next choice.
    skip: Cell<u32>,
    /// Chosen since the last tick.
    chosen: Cell<u32>,
    random: Cell<u32>,
}

impl Default for Sampling {
    fn default() -> Sampling {
        let [stride, skip, chosen] = [1, 0, 0].map(Cell::new);
        Sampling { stride, skip, chosen, random: Cell::new(0x9e37_79b9) }
    }
}

impl Sampling {
    /// Whether this request is chosen. The steps are random, so that a load that repeats itself is
    /// sampled evenly.
    pub(crate) fn chooses(&self) -> bool {
        let skip = self.skip.get();
        if skip > 0 {
            self.skip.set(skip - 1);
            return false;
        }
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        self.random.set(random);
        // From 0 to 2 · (stride − 1), on average stride − 1.
        debug_assert!(self.stride.get() >= 1);
        self.skip.set(random % (2 * self.stride.get() - 1));
        self.chosen.set(self.chosen.get() + 1);
        true
    }

    /// How many requests a chosen one stands for.
    pub(crate) fn weight(&self) -> u64 {
        u64::from(self.stride.get())
    }

    /// Keeps the number of samples of a tick near [`SAMPLES_OF_TICK`].
    pub(crate) fn tick(&self) {
        let (stride, chosen) = (self.stride.get(), self.chosen.take());
        if chosen > SAMPLES_OF_TICK {
            self.stride.set((stride * 2).min(1 << 16));
        } else if chosen < SAMPLES_OF_TICK / 3 {
            self.stride.set((stride / 2).max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(watch: &UrlWatch, path: &str, outcome: Outcome, head: &str, weight: u64) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        crate::tests::with_record(request.as_bytes(), |record| {
            watch.add(&Record { outcome, response_head: head.as_bytes(), ..record }, weight);
        });
    }

    fn top(watch: &UrlWatch, count: usize) -> TopUrls {
        watch.top(count).expect("no one has the table")
    }

    #[test]
    fn nothing_is_kept_while_no_page_watches() {
        let watch = UrlWatch::default();
        add(&watch, "/a", Outcome::Hit, "", 1);
        assert_eq!(watch.top(9), Some(TopUrls::default()));
        let watching = watch.watch();
        add(&watch, "/a", Outcome::Hit, "", 1);
        assert_eq!(top(&watch, 9).sampled, 1);
        let taken = watch.table();
        assert_eq!(watch.top(9), None);
        // This must not wait either.
        drop(watching);
        drop(taken);
        watch.forget_unwatched();
        assert!(watch.table().expect("it is free").is_none());
    }

    #[test]
    fn frequent_urls_stay_among_many_rare_ones_and_counts_are_never_too_high() {
        let watch = UrlWatch::default();
        let _watching = watch.watch();
        for k in 0..4 * URLS_MAX {
            add(&watch, &format!("/rare/{k}"), Outcome::Miss, "", 1);
            add(&watch, "/often", if k % 4 == 0 { Outcome::Miss } else { Outcome::Hit }, "", 2);
        }
        let top = top(&watch, 8);
        let n = 4 * URLS_MAX as u64;
        assert_eq!((top.sampled, top.requests), (2 * n, 3 * n));
        assert_eq!(top.urls.len(), 8);
        assert_eq!((top.urls[0].requests, top.urls[0].hits), (2 * n, 2 * n - n / 2));
        assert!(top.urls[0].url.ends_with("/often"), "{:?}", top.urls[0]);
        assert!(top.urls[1].requests <= 1, "{:?}", top.urls[1]);
        assert_eq!(top.reasons, [("nothing usable was stored".to_owned(), n + n / 2)]);
        let table = watch.table().expect("it is free");
        let table = table.as_ref().expect("it is watched");
        assert_eq!((table.urls.len(), table.places.len()), (URLS_MAX, URLS_MAX));
    }

    #[test]
    fn a_miss_has_a_reason_in_words() {
        let watch = UrlWatch::default();
        let _watching = watch.watch();
        let stored = "HTTP/1.1 200 OK\r\nCache-Status: plimsoll; fwd=uri-miss; stored\r\n\r\n";
        let passed =
            "HTTP/1.1 200 OK\r\nCache-Status: plimsoll; fwd=uri-miss; detail=no-store\r\n\r\n";
        add(&watch, "/a", Outcome::Miss, stored, 1);
        add(&watch, "/a", Outcome::Pass, passed, 3);
        add(
            &watch,
            "/a",
            Outcome::Revalidated,
            "HTTP/1.1 200\r\nCache-Status: p; fwd=stale\r\n\r\n",
            2,
        );
        for k in 0..2 * REASONS_MAX {
            let odd = format!("HTTP/1.1 200 OK\r\nCache-Status: p; fwd=miss; detail=d{k}\r\n\r\n");
            add(&watch, "/b", Outcome::Miss, &odd, 1);
        }
        let top = top(&watch, 2);
        let b = &top.urls[0].reasons;
        assert_eq!(
            (b.len(), b.iter().map(|(_, n)| n).sum()),
            (REASONS_MAX, 2 * REASONS_MAX as u64)
        );
        let words: Vec<_> = top.urls[1].reasons.iter().map(|(why, n)| (why.as_str(), *n)).collect();
        let expected = [
            ("the response was not stored (no-store)", 3),
            ("stale, and still valid", 2),
            ("not in the store", 1),
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn an_upstream_that_fails_does_not_read_as_a_refusal_by_this_proxy() {
        let of = |rule| {
            let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
            crate::tests::with_record(request, |record| {
                why(&Record { outcome: Outcome::Refused, rule, ..record })
            })
        };
        assert_eq!(of("upstream-connect").as_deref(), Some("failed: upstream-connect"));
        assert_eq!(of("bare-lf").as_deref(), Some("refused (bare-lf)"));
    }

    #[test]
    fn a_busy_core_chooses_few_requests_that_stand_for_all() {
        let sampling = Sampling::default();
        let (mut stood_for, mut most) = (0, 0);
        for tick in 0..40 {
            let mut chosen = 0;
            for _ in 0..5_000 {
                if sampling.chooses() {
                    chosen += 1;
                    stood_for += if tick < 20 { 0 } else { sampling.weight() };
                }
            }
            most = if tick < 20 { 0 } else { most.max(chosen) };
            sampling.tick();
        }
        assert!(most < 3 * SAMPLES_OF_TICK, "{most}");
        assert!((80_000..120_000).contains(&stood_for), "{stood_for} for 100,000");
    }
}
