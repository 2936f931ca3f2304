//! The query of a URI as it is stored: with some parameters dropped, and perhaps sorted.
//!
//! Parameters are separated by `&`. Their bytes are not decoded: `%61` and `a` differ, because it
//! is the origin that decides what a query means. Empty parameters are dropped, and so is a `?`
//! after which nothing is left. The order of parameters with the same name is kept.

use config::{KeySettings, Query};

use super::names::{Names, find, name};
use crate::limits::{PARAMETERS_ON_STACK, STORED_PATH_ON_STACK};

/// What is done with a query.
#[derive(Debug)]
pub(super) struct QueryRules {
    query: Query,
    /// The parameters that are dropped or, if `keeps`, those that are not.
    names: Option<Names>,
    keeps: bool,
}

/// A path and query after that.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Normal<'p> {
    /// All of it, or its beginning.
    Borrowed(&'p [u8]),
    /// So many bytes of the output.
    Written(usize),
    /// It does not fit, or cannot be sorted without allocation.
    NoRoom,
}

/// Where the path and query of a URI are written, if the rules change them. No bytes are there
/// before they are needed: most requests need none.
#[derive(Debug)]
pub struct PathBuffer {
    on_stack: Option<[u8; STORED_PATH_ON_STACK]>,
    /// Used instead, if it is there.
    on_heap: Option<Vec<u8>>,
}

impl PathBuffer {
    /// For at most [`STORED_PATH_ON_STACK`] bytes, without allocation.
    #[inline]
    pub fn on_stack() -> PathBuffer {
        PathBuffer { on_stack: None, on_heap: None }
    }

    /// For all.
    pub(super) fn on_heap() -> PathBuffer {
        PathBuffer { on_stack: None, on_heap: Some(Vec::new()) }
    }

    /// The bytes that [`Normal::Written`] counts.
    pub(super) fn written(&self, bytes: usize) -> &[u8] {
        match (&self.on_heap, &self.on_stack) {
            (Some(all), _) => &all[..bytes],
            (None, Some(all)) => &all[..bytes],
            (None, None) => &[],
        }
    }

    fn is_on_heap(&self) -> bool {
        self.on_heap.is_some()
    }

    /// Room for so many bytes.
    fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        match &mut self.on_heap {
            None => self.on_stack.get_or_insert([0; STORED_PATH_ON_STACK]).get_mut(..bytes),
            Some(all) => {
                all.resize(bytes, 0);
                Some(all)
            }
        }
    }
}

impl QueryRules {
    /// `None` if queries are not changed.
    pub(super) fn new(config: &KeySettings) -> Option<QueryRules> {
        let keeps = !config.query_keep.is_empty();
        let names = Names::new(if keeps { &config.query_keep } else { &config.query_drop });
        let changes = config.query != Query::All || names.is_some();
        changes.then_some(QueryRules { query: config.query, names, keeps })
    }

    /// The keys of the configuration that change this path, each with the path after it.
    pub(super) fn acting(&self, full: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
        let mut acting = Vec::new();
        let mut path = full.to_vec();
        let dropping = if self.keeps { "query_keep" } else { "query_drop" };
        for (setting, query) in [(dropping, Query::All), ("query", self.query)] {
            let mut buffer = PathBuffer::on_heap();
            let next = match self.normal_as(query, &path, &mut buffer) {
                Normal::Borrowed(path) => path.to_vec(),
                Normal::Written(bytes) => buffer.written(bytes).to_vec(),
                Normal::NoRoom => unreachable!("the heap has room for a path"),
            };
            // With `sort` alone, empty parameters are dropped by it.
            if next != path && (query != Query::All || self.names.is_some()) {
                acting.push((setting, next.clone()));
                path = next;
            }
        }
        acting
    }

    /// A path with its query, normalised. It is never longer than before.
    #[inline]
    pub(super) fn normal<'p>(&self, full: &'p [u8], out: &mut PathBuffer) -> Normal<'p> {
        self.normal_as(self.query, full, out)
    }

    #[inline]
    fn normal_as<'p>(&self, query: Query, full: &'p [u8], out: &mut PathBuffer) -> Normal<'p> {
        let Some(mark) = find(b'?', full) else { return Normal::Borrowed(full) };
        if query == Query::None {
            return Normal::Borrowed(&full[..mark]);
        }
        let mut kept = Kept { full, mark, run: 0, filled: 0, out };
        let (mut last, mut sorted) = (&b""[..], true);
        let mut at = mark + 1;
        while at <= full.len() {
            let end = find(b'&', &full[at..]).map_or(full.len(), |len| at + len);
            let parameter = &full[at..end];
            if parameter.is_empty() || !self.keeps(parameter) {
                if !kept.drop(at - 1, end) {
                    return Normal::NoRoom;
                }
            } else if query == Query::Sort {
                sorted &= in_order(last, parameter);
                last = parameter;
            }
            at = end + 1;
        }
        if sorted { kept.finish() } else { kept.sort() }
    }

    #[inline]
    fn keeps(&self, parameter: &[u8]) -> bool {
        match &self.names {
            None => true,
            Some(names) => names.matches(parameter) == self.keeps,
        }
    }
}

/// Whether two parameters are sorted by name. Most are decided by their first byte.
#[inline]
fn in_order(first: &[u8], second: &[u8]) -> bool {
    match (first.first(), second.first()) {
        (Some(a), Some(b)) if a != b && *a != b'=' && *b != b'=' => a < b,
        _ => name(first) <= name(second),
    }
}

/// What is kept of a path and query: copied only once a parameter was dropped, as runs of
/// parameters that follow each other.
struct Kept<'p, 'o> {
    full: &'p [u8],
    mark: usize,
    /// Where the run begins that is not copied yet, with its separator.
    run: usize,
    /// The bytes that were copied.
    filled: usize,
    out: &'o mut PathBuffer,
}

impl<'p> Kept<'p, '_> {
    /// Drops the parameter between these two separators, with the first.
    #[inline]
    fn drop(&mut self, separator: usize, end: usize) -> bool {
        let fits = self.copy(separator);
        self.run = end;
        fits
    }

    /// Copies the run that ends here.
    fn copy(&mut self, end: usize) -> bool {
        let run = &self.full[self.run..end];
        let filled = self.filled + run.len();
        let Some(place) = self.out.room(filled) else { return false };
        place[self.filled..].copy_from_slice(run);
        // The first parameter that is kept may not be the first one.
        if let Some(separator) = place.get_mut(self.mark) {
            *separator = b'?';
        }
        self.filled = filled;
        true
    }

    fn is_copied(&self) -> bool {
        self.run > 0
    }

    #[inline]
    fn finish(mut self) -> Normal<'p> {
        if !self.is_copied() {
            return Normal::Borrowed(self.full);
        }
        match self.copy(self.full.len()) {
            true => Normal::Written(self.filled),
            false => Normal::NoRoom,
        }
    }

    /// Sorts what was kept by name.
    fn sort(mut self) -> Normal<'p> {
        if self.is_copied() && !self.copy(self.full.len()) {
            return Normal::NoRoom;
        }
        let may_allocate = self.out.is_on_heap();
        let is_copied = self.is_copied();
        let Kept { full, mark, out, filled, .. } = self;
        // The parameters are copied from a copy, because the output is their place.
        let (mut on_stack, on_heap);
        let source: &[u8] = match (is_copied, may_allocate) {
            (false, _) => full,
            (true, true) => {
                on_heap = out.written(filled).to_vec();
                &on_heap
            }
            (true, false) => {
                on_stack = [0; STORED_PATH_ON_STACK];
                let place = &mut on_stack[..filled];
                place.copy_from_slice(out.written(filled));
                place
            }
        };
        let parameters = || source[mark + 1..].split(|byte| *byte == b'&');
        let mut few: [&[u8]; PARAMETERS_ON_STACK] = [&[]; PARAMETERS_ON_STACK];
        let mut many = Vec::new();
        let mut count = 0;
        let mut rest = parameters();
        for (place, parameter) in few.iter_mut().zip(rest.by_ref()) {
            *place = parameter;
            count += 1;
        }
        let sorted: &mut [&[u8]] = if rest.next().is_none() {
            &mut few[..count]
        } else if may_allocate {
            many.extend(parameters());
            &mut many[..]
        } else {
            return Normal::NoRoom;
        };
        match sorted.len() {
            // Insertion keeps the order of equal names, and does not allocate.
            0..=PARAMETERS_ON_STACK => insertion_sort(sorted),
            _ => sorted.sort_by(|a, b| name(a).cmp(name(b))),
        }
        let length = source.len();
        let Some(place) = out.room(length) else { return Normal::NoRoom };
        place[..mark].copy_from_slice(&full[..mark]);
        let mut at = mark;
        for (number, parameter) in sorted.iter().enumerate() {
            place[at] = if number == 0 { b'?' } else { b'&' };
            place[at + 1..at + 1 + parameter.len()].copy_from_slice(parameter);
            at += 1 + parameter.len();
        }
        Normal::Written(length)
    }
}

fn insertion_sort(parameters: &mut [&[u8]]) {
    for end in 1..parameters.len() {
        let mut at = end;
        while at > 0 && name(parameters[at - 1]) > name(parameters[at]) {
            parameters.swap(at - 1, at);
            at -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(query: Query, drop: &[&str], keep: &[&str]) -> QueryRules {
        let patterns = |list: &[&str]| list.iter().map(|one| one.parse().unwrap()).collect();
        let (query_drop, query_keep) = (patterns(drop), patterns(keep));
        let config = KeySettings { query, query_drop, query_keep, ..KeySettings::default() };
        QueryRules::new(&config).unwrap()
    }

    fn normal(rules: &QueryRules, path: &str) -> String {
        let mut out = PathBuffer::on_heap();
        match rules.normal(path.as_bytes(), &mut out) {
            Normal::Borrowed(path) => String::from_utf8_lossy(path).into_owned(),
            Normal::Written(bytes) => String::from_utf8_lossy(out.written(bytes)).into_owned(),
            Normal::NoRoom => unreachable!(),
        }
    }

    #[test]
    fn parameters_are_dropped_kept_and_sorted() {
        let drop = rules(Query::All, &["utm_*", "fbclid"], &[]);
        for (path, expected) in [
            ("/a", "/a"),
            ("/a?", "/a"),
            ("/a?&", "/a"),
            ("/a?b=1", "/a?b=1"),
            ("/a?utm_source=x", "/a"),
            ("/a?utm_source=x&b=1", "/a?b=1"),
            ("/a?b=1&utm_source=x&c=2", "/a?b=1&c=2"),
            ("/a?b=1&utm_source=x&fbclid", "/a?b=1"),
            ("/a?b=1&&c", "/a?b=1&c"),
            ("/a?b=utm_source=x", "/a?b=utm_source=x"),
            ("/a?%75tm_source=x", "/a?%75tm_source=x"),
            ("/a?b=2&b=1&b=1", "/a?b=2&b=1&b=1"),
            ("/a?b=?&utm_x=?", "/a?b=?"),
        ] {
            assert_eq!(normal(&drop, path), expected, "{path}");
        }
        let keep = rules(Query::All, &[], &["page", "q"]);
        assert_eq!(normal(&keep, "/a?x=1&q=2&page=3&pages=4"), "/a?q=2&page=3");
        assert_eq!(normal(&keep, "/a?x=1"), "/a");
        let none = rules(Query::None, &[], &[]);
        assert_eq!(normal(&none, "/a?x=1"), "/a");
        let sort = rules(Query::Sort, &[], &[]);
        assert_eq!(normal(&sort, "/a?b=1&a=2"), "/a?a=2&b=1");
        assert_eq!(normal(&sort, "/a?a[]=2&a[]=1&A"), "/a?A&a[]=2&a[]=1");
        assert_eq!(normal(&sort, "/a?&b&a&"), "/a?a&b");
        let both = rules(Query::Sort, &["x"], &[]);
        assert_eq!(normal(&both, "/a?c=1&x=3&a=2&b=4"), "/a?a=2&b=4&c=1");
    }

    #[test]
    fn a_long_query_is_sorted_too_but_not_on_the_stack() {
        let sort = rules(Query::Sort, &["x"], &[]);
        let count = PARAMETERS_ON_STACK + 5;
        let names = |order: &mut dyn Iterator<Item = usize>| {
            order.map(|n| format!("p{n:03}=1")).collect::<Vec<_>>().join("&")
        };
        let path = format!("/a?{}", names(&mut (0..count).rev()));
        assert_eq!(normal(&sort, &path), format!("/a?{}", names(&mut (0..count))));
        let fits_on_stack = |path: &str| {
            sort.normal(path.as_bytes(), &mut PathBuffer::on_stack()) != Normal::NoRoom
        };
        assert!(!fits_on_stack(&path));
        let wide = format!("/a?b={}&x&a", "1".repeat(5000));
        assert!(!fits_on_stack(&wide));
        assert_eq!(normal(&sort, &wide), format!("/a?a&b={}", "1".repeat(5000)));
    }

    /// The same, plainly.
    fn plain(query: Query, drop: &[&str], path: &str) -> String {
        let Some((path, text)) = path.split_once('?') else { return path.to_owned() };
        let name = |one: &str| one.split('=').next().unwrap().to_owned();
        let mut kept: Vec<&str> = text.split('&').filter(|one| !one.is_empty()).collect();
        kept.retain(|one| !drop.contains(&&*name(one)));
        if query == Query::Sort {
            kept.sort_by_key(|one| name(one));
        }
        match kept.is_empty() || query == Query::None {
            true => path.to_owned(),
            false => format!("{path}?{}", kept.join("&")),
        }
    }

    proptest! {
        /// Normalising is what the plain reading says, and is done once and for all.
        #[test]
        fn normal_forms_are_normal(path in "/[ab]?(\\?[abx=&?]{0,24})?", how in 0usize..3) {
            let query = [Query::All, Query::None, Query::Sort][how];
            let drop: &[&str] = if query == Query::None { &[] } else { &["x", "ab"] };
            let rules = rules(query, drop, &[]);
            let once = normal(&rules, &path);
            prop_assert_eq!(&once, &plain(query, drop, &path));
            prop_assert_eq!(&normal(&rules, &once), &once);
            let mut stack = PathBuffer::on_stack();
            match rules.normal(path.as_bytes(), &mut stack) {
                Normal::Written(bytes) => prop_assert_eq!(stack.written(bytes), once.as_bytes()),
                Normal::Borrowed(same) => prop_assert_eq!(same, once.as_bytes()),
                Normal::NoRoom => prop_assert!(false),
            }
        }
    }
}
