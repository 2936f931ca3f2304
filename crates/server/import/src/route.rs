//! What one of our routes does: the form in which each language hands it to the file.

use std::time::Duration;

use crate::limits::PATTERNS_MAX;
use crate::tree::{Section, Value};

/// The path of a route. A pattern has captures: `/{lang}/shop/*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Path {
    /// All paths below it. The text ends with a slash.
    Prefix(String),
    /// All paths that begin so, in the middle of a segment.
    Start(String),
    Exact(String),
    Pattern(String),
}

impl Path {
    /// All paths that begin with a text.
    pub(crate) fn beginning(text: &str) -> Path {
        match text.ends_with('/') {
            true => Path::Prefix(text.to_owned()),
            false => Path::Start(text.to_owned()),
        }
    }

    pub(crate) fn root() -> Path {
        Path::Prefix("/".to_owned())
    }

    pub(crate) fn text(&self) -> &str {
        let (Path::Prefix(text) | Path::Start(text) | Path::Exact(text) | Path::Pattern(text)) =
            self;
        text
    }

    /// How the paths begin that it matches.
    pub(crate) fn start(&self) -> &str {
        let text = self.text();
        match self {
            Path::Pattern(_) => &text[..text.find(['{', '*']).unwrap_or(text.len())],
            Path::Prefix(_) | Path::Start(_) | Path::Exact(_) => text,
        }
    }

    /// Segments that it names: of two that match, that with more is used.
    pub(crate) fn segments(&self) -> usize {
        self.text().split('/').filter(|part| !part.is_empty() && *part != "*").count()
    }

    /// Whether some path is one of both.
    pub(crate) fn meets(&self, other: &Path) -> bool {
        let (one, another) = (self.start(), other.start());
        let is_free = |part: &str| part.starts_with(['{', '*']);
        let same = |(a, b): (&str, &str)| a == b || is_free(a) || is_free(b);
        // What follows is free. The last segment of a prefix may be the start of one.
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

    /// Whether all requests of both come to this one.
    pub(crate) fn comes_before(&self, other: &Path) -> bool {
        !self.meets(other) || !matches!(other, Path::Exact(_)) && self.segments() > other.segments()
    }

    pub(crate) fn write(&self, section: &mut Section, from: &str) {
        match self {
            Path::Prefix(text) => section.set_for("prefix", text.as_str(), from),
            Path::Start(text) => section.set_for("path", format!("{text}*"), from),
            Path::Exact(text) | Path::Pattern(text) => section.set_for("path", text.as_str(), from),
        }
    }
}

/// What a route does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Upstream(String),
    Redirect {
        status: u64,
        to: String,
        with_path: bool,
    },
    Answer {
        status: u64,
        body: String,
    },
    /// It is not carried. Its requests must not go elsewhere.
    NotCarried,
}

impl Action {
    pub(crate) fn write(&self, section: &mut Section, from: &str) {
        let status = match self {
            Action::Upstream(name) => return section.set_for("upstream", name.clone(), from),
            Action::Redirect { status, to, with_path } => {
                section.set_for("redirect", to.clone(), from);
                if *with_path {
                    section.set_for("with_path", true, from);
                }
                *status
            }
            Action::Answer { status, body } => {
                section.set_for("answer", body.clone(), from);
                *status
            }
            Action::NotCarried => {
                let from = "see the notes of the import";
                section.set_for("answer", "not imported\n", from);
                return section.set_for("status", Value::Count(501), from);
            }
        };
        section.set_for("status", Value::Count(status), from);
    }

    /// A redirect, if ours can do it. What a path captures (`{c1}`) may not be in the host, and the
    /// host's capture (`own`) may not end it: no client may choose where a redirect leads.
    pub(crate) fn redirect(status: u64, to: String, with_path: bool, own: &str) -> Option<Action> {
        let rest = to.split_once("://").map_or(&to[..], |(_, rest)| rest);
        let absolute = rest.len() < to.len();
        let host = if absolute { &rest[..rest.find(['/', '?']).unwrap_or(rest.len())] } else { "" };
        let bare = if own.is_empty() { host.to_owned() } else { host.replace(own, "") };
        let safe = absolute != host.is_empty()
            && !bare.contains('{')
            && !host.ends_with('}')
            && (absolute || to.starts_with('/') && !to.starts_with("//"))
            && !(with_path && to.contains('{'))
            && !to.contains('\\')
            && to.bytes().all(|b| b.is_ascii_graphic());
        let fits = matches!(status, 301 | 302 | 303 | 307 | 308);
        (fits && safe).then_some(Action::Redirect { status, to, with_path })
    }
}

/// How texts with captures differ.
pub(crate) const CAPTURES: &str = "what is captured is percent-encoded, and the query is not \
                                   repeated";

/// What belongs to a key, and for how long responses are fresh.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys {
    /// `none` or `sort`.
    pub(crate) query: Option<&'static str>,
    pub(crate) drop: Vec<String>,
    pub(crate) keep: Vec<String>,
    pub(crate) cookies: Vec<String>,
    /// Upstreams get only the cookies of the key with requests that the store may answer.
    pub(crate) only_key_cookies: bool,
    /// A stored response goes to every client with the cookie that it sets.
    pub(crate) shares_cookies: bool,
    pub(crate) fields: Vec<String>,
    pub(crate) bypass: Vec<String>,
    pub(crate) lifetimes: Vec<Lifetime>,
}

/// Statuses that a lifetime cannot name: of a part, of an update, and of what answers one client.
pub(crate) const WITHOUT_LIFETIME: [u16; 8] = [206, 304, 401, 407, 428, 429, 431, 511];

/// Patterns for all statuses.
pub(crate) fn all_statuses() -> Vec<String> {
    ["2xx", "3xx", "4xx", "5xx"].map(str::to_owned).to_vec()
}

/// How long some responses are fresh: `[[route.lifetime]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lifetime {
    pub(crate) status: Vec<String>,
    pub(crate) types: Vec<String>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) overrule: bool,
    pub(crate) grace: Option<Duration>,
    pub(crate) error_grace: Option<Duration>,
}

impl Keys {
    /// Whether the server takes it.
    pub(crate) fn fits(&self) -> bool {
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

    pub(crate) fn write(&self, route: &mut Section, from: &str) {
        if let Some(query) = self.query {
            route.set_for("query", query, from);
        }
        for (key, list) in [
            ("query_drop", &self.drop),
            ("query_keep", &self.keep),
            ("key_cookies", &self.cookies),
            ("key_fields", &self.fields),
            ("bypass_cookies", &self.bypass),
        ] {
            if !list.is_empty() {
                route.set_for(key, list.clone(), from);
            }
        }
        if self.only_key_cookies {
            route.set_for("cookies_sent", "key", from);
        }
        if self.shares_cookies {
            route.set_for("set_cookie", "share", from);
        }
        for one in &self.lifetimes {
            let section = route.below("route.lifetime");
            for (key, list) in [("status", &one.status), ("content_type", &one.types)] {
                if !list.is_empty() {
                    section.set_for(key, list.clone(), from);
                }
            }
            // What is never fresh is never used stale, though others are.
            let stale = one.ttl.filter(Duration::is_zero);
            let (grace, error_grace) = (stale.or(one.grace), stale.or(one.error_grace));
            let times = [("ttl", one.ttl), ("grace", grace), ("error_grace", error_grace)];
            for (key, time) in times {
                if let Some(time) = time {
                    section.set_for(key, Value::Time(time), from);
                }
            }
            if one.overrule && one.ttl.is_some() {
                section.set_for("overrule", true, from);
            }
        }
    }
}

/// Adds a name to a list, once.
pub(crate) fn add(list: &mut Vec<String>, name: impl Into<String>) {
    let name = name.into();
    if !list.contains(&name) {
        list.push(name);
    }
}

/// Writes a change to a field: a value, or `None` to remove it.
pub(crate) fn change(
    rule: &mut Section,
    kind: &'static str,
    name: &str,
    value: Option<&str>,
    from: &str,
) {
    match value {
        Some(value) => {
            rule.set_for(kind, name, from);
            rule.set_for("value", value, from);
        }
        None => rule.set_for("remove", name, from),
    }
}

/// A number in some seconds, as one of our rates; `None`: it is no whole number of any unit.
pub(crate) fn rate(count: u64, seconds: u64) -> Option<String> {
    let units = [(1, "s"), (60, "m"), (3600, "h"), (86_400, "d")];
    let whole =
        units.iter().find(|(unit, _)| seconds > 0 && (count * unit).is_multiple_of(seconds))?;
    let amount = count * whole.0 / seconds;
    (amount > 0 && amount < 1 << 30).then(|| format!("{amount}/{}", whole.1))
}

/// A quota by the address of the client, with a name that no other one has.
pub(crate) fn quota(tree: &crate::tree::Tree, name: &str, by: &str, from: &str) -> Section {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().map(plain).take(40).collect();
    let is_taken = |name: &String| {
        tree.all("quota").any(|other| other.get("name") == Some(&Value::from(name.clone())))
    };
    let names = [name.clone()].into_iter().chain((2..).map(|at| format!("{name}-{at}")));
    let mut section = Section::new("quota");
    let unique = names.into_iter().find(|name| !is_taken(name));
    section.set_for("name", unique.unwrap_or_default(), from);
    section.set_for("by", by, from);
    if by == "network" {
        section.set_for("v6_prefix", Value::Count(128), "each address by itself");
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
