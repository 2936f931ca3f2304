//! What one of our routes does, in the form that all languages share.

use std::time::Duration;

use crate::cel::Cel;
use crate::limits::PATTERNS_MAX;
use crate::note::Place;
use crate::tree::{Section, Tree, Value};

/// The path of a route. A pattern has captures: `/{lang}/shop/*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// All paths below it. The text ends with a slash.
    Prefix(String),
    /// All paths that begin with this text, which ends in the middle of a segment.
    Start(String),
    /// This path.
    Exact(String),
    /// Paths with captures.
    Pattern(String),
}

impl Default for Path {
    fn default() -> Path {
        Path::root()
    }
}

impl Path {
    /// All paths that begin with a text.
    pub fn beginning(text: &str) -> Path {
        match text.ends_with('/') {
            true => Path::Prefix(text.to_owned()),
            false => Path::Start(text.to_owned()),
        }
    }

    /// All paths.
    pub fn root() -> Path {
        Path::Prefix("/".to_owned())
    }

    /// The path, as our file writes it.
    pub fn text(&self) -> &str {
        let (Path::Prefix(text) | Path::Start(text) | Path::Exact(text) | Path::Pattern(text)) =
            self;
        text
    }

    /// The start that all matching paths have.
    pub fn start(&self) -> &str {
        let text = self.text();
        match self {
            Path::Pattern(_) => &text[..text.find(['{', '*']).unwrap_or(text.len())],
            Path::Prefix(_) | Path::Start(_) | Path::Exact(_) => text,
        }
    }

    /// The number of named segments. Of two paths that match a request, the path with more named
    /// segments is used.
    pub fn segments(&self) -> usize {
        self.text().split('/').filter(|part| !part.is_empty() && *part != "*").count()
    }

    /// Whether a request can match both paths.
    pub fn meets(&self, other: &Path) -> bool {
        let (one, another) = (self.start(), other.start());
        let is_free = |part: &str| part.starts_with(['{', '*']);
        let same = |(a, b): (&str, &str)| a == b || is_free(a) || is_free(b);
        // The rest of the path is free. The last segment of a prefix may be the start of a segment.
        let is_open = |path: &Path| match path {
            Path::Prefix(_) | Path::Start(_) => true,
            Path::Exact(_) | Path::Pattern(_) => path.text().ends_with('*'),
        };
        let parts = |path: &Path| path.text().split('/').count() - usize::from(is_open(path));
        let (mine, others) = (parts(self), parts(other));
        let fits = (mine >= others || is_open(self)) && (others >= mine || is_open(other));
        let both = self.text().split('/').zip(other.text().split('/'));
        let mut both = both.take(mine.min(others));
        (one.starts_with(another) || another.starts_with(one)) && fits && both.all(same)
    }

    /// Whether every request that matches both paths gets this path.
    pub fn comes_before(&self, other: &Path) -> bool {
        !self.meets(other) || !matches!(other, Path::Exact(_)) && self.segments() > other.segments()
    }

    /// Writes the path into a route.
    pub fn write(&self, section: &mut Section, from: &str) {
        match self {
            Path::Prefix(text) => {
                debug_assert!(text.ends_with('/'), "{text} is no prefix of whole segments");
                section.set("prefix", text.as_str(), from);
            }
            Path::Start(text) => section.set("path", format!("{text}*"), from),
            Path::Exact(text) | Path::Pattern(text) => section.set("path", text.as_str(), from),
        }
    }
}

/// What a route does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes to the upstream of this name.
    Upstream(String),
    /// It gets a file. What is no file gets what the other action says, or 404.
    Files(Box<Files>, Option<Box<Action>>),
    /// It is answered with a redirect.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u64,
        /// The target.
        to: String,
        /// Whether path and query of the request are appended.
        with_path: bool,
    },
    /// It is answered with a text.
    Answer {
        /// The status.
        status: u64,
        /// The text.
        body: String,
    },
    /// The action is not carried. The requests must not find another route.
    NotCarried,
}

/// The files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The directory.
    pub root: String,
    /// The name of a file is the path without the prefix of the route.
    pub alias: bool,
    /// The files for a path with a slash at its end. `None`: `index.html`.
    pub index: Option<Vec<String>>,
    /// Paths that are tried where the path has no file.
    pub tries: Vec<String>,
    /// Coded files beside a file are sent in its place.
    pub precompressed: bool,
    /// The value of Cache-Control.
    pub cache_control: Option<String>,
}

impl Action {
    /// Whether requests may go to an upstream.
    pub fn forwards(&self) -> bool {
        match self {
            Action::Upstream(_) => true,
            Action::Files(_, other) => other.as_ref().is_some_and(|other| other.forwards()),
            Action::Redirect { .. } | Action::Answer { .. } | Action::NotCarried => false,
        }
    }

    /// Writes the action into a route.
    pub fn write(&self, section: &mut Section, from: &str) {
        let status = match self {
            Action::Upstream(name) => return section.set("upstream", name.clone(), from),
            Action::Files(files, other) => {
                section.set("files", files.root.clone(), from);
                section.set_some("alias", files.alias.then_some(true), from);
                section.set_some("index", files.index.clone(), from);
                section.set_list("try_files", &files.tries, from);
                section.set("dot_files", true, "the original serves them");
                section.set_some("precompressed", files.precompressed.then_some(true), from);
                section.set_some("cache_control", files.cache_control.clone(), from);
                return other.iter().for_each(|other| other.write(section, from));
            }
            Action::Redirect { status, to, with_path } => {
                section.set("redirect", to.clone(), from);
                section.set_some("with_path", with_path.then_some(true), from);
                *status
            }
            Action::Answer { status, body } => {
                section.set("answer", body.clone(), from);
                *status
            }
            Action::NotCarried => {
                let from = "see the notes of the import";
                section.set("answer", "not imported\n", from);
                return section.set("status", Value::Count(501), from);
            }
        };
        section.set("status", Value::Count(status), from);
    }

    /// A redirect, if our routes can express it. No client may choose the server that a redirect
    /// leads to, so the host may not contain a capture of the path (`{c1}`), and may not end with
    /// the capture of the host (`own`).
    pub fn redirect(status: u64, to: String, with_path: bool, own: &str) -> Option<Action> {
        // The requested host leads to where the client is already.
        let shown = to.replace("{host}", "host.example");
        let rest = shown.split_once("://").map_or(&shown[..], |(_, rest)| rest);
        let absolute = rest.len() < shown.len();
        let host = if absolute { &rest[..rest.find(['/', '?']).unwrap_or(rest.len())] } else { "" };
        let bare = if own.is_empty() { host.to_owned() } else { host.replace(own, "") };
        let safe = absolute != host.is_empty()
            && !bare.contains('{')
            && !host.ends_with('}')
            && (absolute || to.starts_with('/') && !to.starts_with("//"))
            && !(with_path && shown.contains('{'))
            && !to.contains('\\')
            && to.bytes().all(|b| b.is_ascii_graphic());
        let fits = matches!(status, 301 | 302 | 303 | 307 | 308);
        (fits && safe).then_some(Action::Redirect { status, to, with_path })
    }
}

/// Whether a text has a part that our file would replace by a value: `{host}`.
pub fn has_value(text: &str) -> bool {
    let of_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.*".contains(&b);
    text.match_indices('{').any(|(at, _)| {
        let inner = &text[at + 1..];
        let name = inner.find('}').map_or("", |end| &inner[..end]);
        name.starts_with("cookie.") || !name.is_empty() && name.bytes().all(of_name)
    })
}

/// The difference of texts with captures.
pub const CAPTURES: &str = "what is captured is percent-encoded, and the query is not \
                                   repeated";

/// The parts of a key of the store, and how long responses are fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// `none` or `sort`.
    pub query: Option<&'static str>,
    /// Parameters that are dropped.
    pub drop: Vec<String>,
    /// Parameters that are kept.
    pub keep: Vec<String>,
    /// Cookies in the key.
    pub cookies: Vec<String>,
    /// A request that the store may answer is sent to upstreams with the cookies of the key only.
    pub only_key_cookies: bool,
    /// A stored response is sent with its Set-Cookie to every client.
    pub shares_cookies: bool,
    /// Fields in the key.
    pub fields: Vec<String>,
    /// Cookies that keep a request from the store.
    pub bypass: Vec<String>,
    /// Requests for which one of these holds do not use the store.
    pub passes: Vec<Cel>,
    /// How long responses are fresh.
    pub lifetimes: Vec<Lifetime>,
}

/// Statuses that a lifetime cannot name: of partial responses, of updates, and of responses to a
/// single client.
pub const WITHOUT_LIFETIME: [u16; 8] = [206, 304, 401, 407, 428, 429, 431, 511];

/// Patterns for all statuses.
pub fn all_statuses() -> Vec<String> {
    ["2xx", "3xx", "4xx", "5xx"].map(str::to_owned).to_vec()
}

/// How long some responses are fresh: `[[route.lifetime]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// Statuses; empty: the usual ones.
    pub status: Vec<String>,
    /// Content types; empty: all.
    pub types: Vec<String>,
    /// The condition for it.
    pub when: Option<Cel>,
    /// The freshness lifetime.
    pub ttl: Option<Duration>,
    /// Whether the lifetime replaces the origin's.
    pub overrule: bool,
    /// How long a stale response is served while it is revalidated.
    pub grace: Option<Duration>,
    /// How long a stale response is served if the origin fails.
    pub error_grace: Option<Duration>,
}

impl Keys {
    /// Whether the server takes it.
    pub fn fits(&self) -> bool {
        let lists = [&self.drop, &self.keep, &self.cookies, &self.fields, &self.bypass];
        let name = |name: &String| {
            let bare = name.trim_matches('*');
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
            !name.is_empty() && name.len() <= 64 && bare.bytes().all(plain)
        };
        let kinds = [self.query == Some("none"), !self.drop.is_empty(), !self.keep.is_empty()];
        lists.iter().all(|list| list.len() <= PATTERNS_MAX && list.iter().all(name))
            && kinds.iter().filter(|is| **is).count() <= 1
            && self.lifetimes.len() <= PATTERNS_MAX
    }

    /// Writes the settings into a route.
    pub fn write(&self, route: &mut Section, from: &str) {
        route.set_some("query", self.query, from);
        route.set_list("query_drop", &self.drop, from);
        route.set_list("query_keep", &self.keep, from);
        route.set_list("key_cookies", &self.cookies, from);
        route.set_list("key_fields", &self.fields, from);
        route.set_list("bypass_cookies", &self.bypass, from);
        route.set_some("cookies_sent", self.only_key_cookies.then_some("key"), from);
        route.set_some("set_cookie", self.shares_cookies.then_some("share"), from);
        self.write_lifetimes(route, "route.lifetime", from);
    }

    /// Writes how long responses are fresh into sections of this name.
    pub fn write_lifetimes(&self, route: &mut Section, name: &'static str, from: &str) {
        for one in &self.lifetimes {
            let section = route.below(name);
            section.set_some("when", one.when.as_ref().map(Cel::text), from);
            section.set_list("status", &one.status, from);
            section.set_list("content_type", &one.types, from);
            // A response that is never fresh is never used stale, even if other responses are.
            let stale = one.ttl.filter(Duration::is_zero);
            section.set_some("ttl", one.ttl, from);
            section.set_some("grace", stale.or(one.grace), from);
            section.set_some("error_grace", stale.or(one.error_grace), from);
            let overrules = one.overrule && one.ttl.is_some();
            section.set_some("overrule", overrules.then_some(true), from);
        }
    }
}

/// Adds a name to a list, once.
pub fn add(list: &mut Vec<String>, name: impl Into<String>) {
    let name = name.into();
    if !list.contains(&name) {
        list.push(name);
    }
}

/// Writes a change to a field: a value, or `None` to remove it.
pub fn change(rule: &mut Section, kind: &'static str, name: &str, value: Option<&str>, from: &str) {
    match value {
        Some(value) => {
            rule.set(kind, name, from);
            rule.set("value", value, from);
        }
        None => rule.set("remove", name, from),
    }
}

/// The rate of so many events in so many seconds, in the first unit of our file in which it is a
/// whole number.
pub fn rate(count: u64, seconds: u64) -> Option<String> {
    let units = [(1, "s"), (60, "m"), (3600, "h"), (86_400, "d")];
    let whole =
        units.iter().find(|(unit, _)| seconds > 0 && (count * unit).is_multiple_of(seconds))?;
    let amount = count * whole.0 / seconds;
    (amount > 0 && amount < 1 << 30).then(|| format!("{amount}/{}", whole.1))
}

/// A quota with a name that no other quota has.
pub fn quota(tree: &Tree, name: &str, by: &str, from: &Place) -> Section {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().map(plain).take(40).collect();
    let is_taken = |name: &String| tree.all("quota").any(|one| one.text("name") == Some(name));
    let names = [name.clone()].into_iter().chain((2..).map(|at| format!("{name}-{at}")));
    let mut section = Section::new("quota");
    let unique = names.into_iter().find(|name| !is_taken(name));
    section.set_some("name", unique, from);
    section.set("by", by, from);
    if by == "network" {
        section.set("v6_prefix", Value::Count(128), "each address by itself");
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with `proxy_cache_valid 429 1s` was imported as one that the server refused.
    #[test]
    fn no_lifetime_is_written_that_the_server_refuses() {
        for status in 200..600 {
            let is_refused = format!("{status}").parse::<config::StatusPattern>().is_err();
            assert_eq!(WITHOUT_LIFETIME.contains(&status), is_refused, "{status}");
        }
    }
}
