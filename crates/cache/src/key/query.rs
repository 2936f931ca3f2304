//! The query of a URI as it is stored: with some parameters dropped, and perhaps sorted.
//!
//! Parameters are separated by `&`. Their bytes are not decoded: `%61` and `a` differ, because it
//! is the origin that decides what a query means. Empty parameters are dropped, and so is a `?`
//! after which nothing is left. The order of parameters with the same name is kept.

use config::{KeySettings, Query};

use super::names::Names;
use crate::limits::PARAMETERS_ON_STACK;

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

impl QueryRules {
    /// `None` if queries are not changed.
    pub(super) fn new(config: &KeySettings) -> Option<QueryRules> {
        let keeps = !config.query_keep.is_empty();
        let names = Names::new(if keeps { &config.query_keep } else { &config.query_drop });
        let changes = config.query != Query::All || names.is_some();
        changes.then_some(QueryRules { query: config.query, names, keeps })
    }

    /// The key of the configuration that decides most.
    pub(super) fn setting(&self) -> &'static str {
        match (self.query, &self.names, self.keeps) {
            (_, Some(_), true) => "query_keep",
            (_, Some(_), false) => "query_drop",
            _ => "query",
        }
    }

    /// A path with its query, normalised. Nothing is written beyond the length of the input.
    #[inline]
    pub(super) fn normal<'p>(
        &self,
        full: &'p [u8],
        out: &mut [u8],
        may_allocate: bool,
    ) -> Normal<'p> {
        let Some(mark) = memchr::memchr(b'?', full) else { return Normal::Borrowed(full) };
        if self.query == Query::None {
            return Normal::Borrowed(&full[..mark]);
        }
        self.normal_query(full, mark, out, may_allocate)
    }

    fn normal_query<'p>(
        &self,
        full: &'p [u8],
        mark: usize,
        out: &mut [u8],
        may_allocate: bool,
    ) -> Normal<'p> {
        let mut kept = Kept { full, mark, out, filled: None, last: &[], sorted: true };
        let mut at = mark + 1;
        while at <= full.len() {
            let end = memchr::memchr(b'&', &full[at..]).map_or(full.len(), |len| at + len);
            let parameter = &full[at..end];
            let keeps = !parameter.is_empty() && self.keeps(parameter);
            if keeps && self.query == Query::Sort {
                kept.note_order(parameter);
            }
            let fits = if keeps { kept.keep(parameter) } else { kept.drop_before(at) };
            if !fits {
                return Normal::NoRoom;
            }
            at = end + 1;
        }
        if kept.sorted { kept.finish() } else { kept.sort(may_allocate) }
    }

    #[inline]
    fn keeps(&self, parameter: &[u8]) -> bool {
        match &self.names {
            None => true,
            Some(names) => names.matches(name(parameter)) == self.keeps,
        }
    }
}

#[inline]
fn name(parameter: &[u8]) -> &[u8] {
    memchr::memchr(b'=', parameter).map_or(parameter, |at| &parameter[..at])
}

/// The parameters that are kept, copied only once one was dropped.
struct Kept<'p, 'o> {
    full: &'p [u8],
    mark: usize,
    out: &'o mut [u8],
    /// The bytes in `out`; `None`: everything so far was kept.
    filled: Option<usize>,
    /// The name of the last parameter.
    last: &'p [u8],
    sorted: bool,
}

impl<'p> Kept<'p, '_> {
    #[inline]
    fn note_order(&mut self, parameter: &'p [u8]) {
        let name = name(parameter);
        self.sorted &= self.last <= name;
        self.last = name;
    }

    #[inline]
    fn keep(&mut self, parameter: &[u8]) -> bool {
        let Some(filled) = self.filled else { return true };
        let separator = if filled == self.mark { b'?' } else { b'&' };
        let end = filled + 1 + parameter.len();
        let Some(place) = self.out.get_mut(filled..end) else { return false };
        place[0] = separator;
        place[1..].copy_from_slice(parameter);
        self.filled = Some(end);
        true
    }

    /// Drops the parameter that begins here.
    #[inline]
    fn drop_before(&mut self, at: usize) -> bool {
        if self.filled.is_none() {
            // Without the separator.
            let before = &self.full[..at - 1];
            let Some(place) = self.out.get_mut(..before.len()) else { return false };
            place.copy_from_slice(before);
            self.filled = Some(before.len());
        }
        true
    }

    #[inline]
    fn finish(self) -> Normal<'p> {
        self.filled.map_or(Normal::Borrowed(self.full), Normal::Written)
    }

    /// Sorts what was kept by name.
    fn sort(self, may_allocate: bool) -> Normal<'p> {
        let Kept { full, mark, out, filled, .. } = self;
        // The parameters are copied from a copy: the output may be their place.
        let mut copy = [0; crate::limits::STORED_PATH_ON_STACK];
        let mut long = Vec::new();
        let source: &[u8] = match filled {
            None => full,
            Some(filled) => {
                let place = match copy.get_mut(..filled) {
                    Some(place) => place,
                    None if may_allocate => {
                        long.resize(filled, 0);
                        &mut long[..]
                    }
                    None => return Normal::NoRoom,
                };
                place.copy_from_slice(&out[..filled]);
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
        let Some(place) = out.get_mut(..length) else { return Normal::NoRoom };
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
        let mut out = vec![0; path.len()];
        match rules.normal(path.as_bytes(), &mut out, true) {
            Normal::Borrowed(path) => String::from_utf8_lossy(path).into_owned(),
            Normal::Written(bytes) => String::from_utf8_lossy(&out[..bytes]).into_owned(),
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
        let mut out = vec![0; path.len()];
        assert_eq!(sort.normal(path.as_bytes(), &mut out, false), Normal::NoRoom);
        let wide = format!("/a?b={}&x&a", "1".repeat(5000));
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
        /// Normalising is what the plain reading says, is done once and for all, and never needs
        /// more room than the input.
        #[test]
        fn normal_forms_are_normal(path in "/[ab]?(\\?[abx=&?]{0,24})?", how in 0usize..3) {
            let query = [Query::All, Query::None, Query::Sort][how];
            let drop: &[&str] = if query == Query::None { &[] } else { &["x", "ab"] };
            let rules = rules(query, drop, &[]);
            let once = normal(&rules, &path);
            prop_assert_eq!(&once, &plain(query, drop, &path));
            prop_assert_eq!(&normal(&rules, &once), &once);
            let mut small = vec![0; path.len()];
            match rules.normal(path.as_bytes(), &mut small, false) {
                Normal::Written(bytes) => prop_assert_eq!(&small[..bytes], once.as_bytes()),
                Normal::Borrowed(same) => prop_assert_eq!(same, once.as_bytes()),
                Normal::NoRoom => prop_assert!(false),
            }
        }
    }
}
