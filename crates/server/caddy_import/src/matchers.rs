//! Matchers of requests, as conditions of our file.
//!
//! Caddy compares paths without case, after they were decoded and cleaned. A condition compares
//! each reading of the path in the same way.

use conditions::Lists;
use imported::cel::{self, Cel, PARTS_MAX};
use imported::pattern::escaped;
use ipnet::IpNet;

use crate::blocks::Directive;

/// A condition that requests must meet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Test {
    pub(crate) cel: Cel,
    /// The path is one of these. Empty: the condition is not about the path alone.
    paths: Vec<Glob>,
}

impl Test {
    /// A condition that is not about the path alone.
    pub(crate) fn of(cel: Cel) -> Test {
        Test { cel, paths: Vec::new() }
    }

    /// Whether a request can meet both. If in doubt, it can.
    pub(crate) fn meets(&self, other: &Test) -> bool {
        let is_known = !self.paths.is_empty() && !other.paths.is_empty();
        !is_known || self.paths.iter().any(|one| other.paths.iter().any(|two| one.meets(two)))
    }
}

/// A pattern for paths, in lower case.
#[derive(Clone, Debug, PartialEq)]
enum Glob {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Part(String),
    Other(String),
}

impl Glob {
    fn of(pattern: &str) -> Option<Glob> {
        let odd = ['?', '[', '\\', '%', '{'];
        if pattern.contains(odd) || pattern.contains("//") || pattern.contains("**") {
            return None;
        }
        let text = pattern.to_ascii_lowercase();
        let bare = text.trim_matches('*').to_owned();
        Some(match (text.matches('*').count(), text.starts_with('*'), text.ends_with('*')) {
            (0, ..) => Glob::Exact(text),
            (1, true, false) => Glob::Suffix(bare),
            (1, false, true) => Glob::Prefix(bare),
            (2, true, true) => Glob::Part(bare),
            _ => Glob::Other(text),
        })
    }

    fn meets(&self, other: &Glob) -> bool {
        match (self, other) {
            (Glob::Exact(one), other) | (other, Glob::Exact(one)) => other.holds(one),
            (Glob::Prefix(one), Glob::Prefix(two)) => one.starts_with(two) || two.starts_with(one),
            _ => true,
        }
    }

    /// Whether a path has this pattern. If in doubt, it has.
    fn holds(&self, path: &str) -> bool {
        match self {
            Glob::Exact(text) => path == text,
            Glob::Prefix(text) => path.starts_with(text),
            Glob::Suffix(text) => path.ends_with(text),
            Glob::Part(text) => path.contains(text),
            Glob::Other(_) => true,
        }
    }

    fn cel(&self) -> Option<Cel> {
        let (Glob::Exact(text)
        | Glob::Prefix(text)
        | Glob::Suffix(text)
        | Glob::Part(text)
        | Glob::Other(text)) = self;
        let has_letters = text.bytes().any(|b| b.is_ascii_alphabetic());
        let value = if has_letters { "path.lowerAscii()" } else { "path" };
        // Dots and blanks at the end of a path do not count.
        let ended = |start: &str| {
            let case = if has_letters { "(?i)" } else { "" };
            cel::matches("path", &format!("{case}{start}{}[. ]*$", escaped(text)))
        };
        let method = match self {
            Glob::Exact(_) => return ended("^"),
            Glob::Suffix(_) => return ended(""),
            Glob::Prefix(_) => "startsWith",
            Glob::Part(_) => "contains",
            Glob::Other(_) => "glob",
        };
        Some(Cel::one(format!("{value}.{method}({})", cel::quoted(text)?)))
    }
}

/// How the path differs from the path that the client sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Rewriting {
    /// It does not.
    #[default]
    Same,
    /// This prefix is off. A slash follows it in every request.
    Stripped(String),
    /// It is this path for all requests.
    Fixed(String),
    /// This text is in front of it.
    Added(String),
    /// It is not known.
    Unknown,
}

/// What is known of a matcher.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// All of these must hold.
    pub(crate) tests: Vec<Test>,
    /// Why a part of it is not carried; empty: all of it is.
    pub(crate) why: String,
    /// No request can meet it.
    pub(crate) never: bool,
    /// It is a path and nothing else: the length of the path.
    pub(crate) length: usize,
    /// The prefix, if it is `/prefix*`.
    pub(crate) prefix: Option<String>,
}

impl Found {
    fn unknown(mut self, why: impl Into<String>) -> Found {
        self.why = why.into();
        self
    }
}

/// Matches paths.
pub(crate) fn paths(patterns: &[String], way: &Rewriting) -> Found {
    let mut found = Found::default();
    if patterns.iter().any(|one| one == "*") {
        return found;
    }
    let of_prefix = |one: &String| one.strip_suffix('*').map(str::to_owned);
    if let [one] = patterns {
        found.length = one.len();
        found.prefix = of_prefix(one).filter(|prefix| !prefix.contains('*'));
    }
    let globs: Option<Vec<Glob>> = patterns.iter().map(|one| Glob::of(one)).collect();
    let Some(globs) = globs.filter(|all| all.len() <= PARTS_MAX) else {
        return found.unknown("a pattern of its path is not known here");
    };
    let globs = match way {
        Rewriting::Same => globs,
        Rewriting::Fixed(path) => {
            let path = path.split('?').next().unwrap_or_default().to_ascii_lowercase();
            found.never = !globs.iter().any(|one| one.holds(&path));
            let is_known = !globs.iter().any(|one| matches!(one, Glob::Other(_)));
            return if is_known { found } else { found.unknown(REWRITTEN) };
        }
        Rewriting::Stripped(prefix) => {
            let prefix = prefix.to_ascii_lowercase();
            let below = |glob: &Glob| match glob {
                Glob::Exact(text) => Some(Glob::Exact(format!("{prefix}{text}"))),
                Glob::Prefix(text) => Some(Glob::Prefix(format!("{prefix}{text}"))),
                Glob::Suffix(text) if text.starts_with('.') => Some(glob.clone()),
                _ => None,
            };
            match globs.iter().map(below).collect::<Option<Vec<Glob>>>() {
                Some(all) => all,
                None => return found.unknown(REWRITTEN),
            }
        }
        Rewriting::Added(_) | Rewriting::Unknown => return found.unknown(REWRITTEN),
    };
    match globs.iter().map(Glob::cel).collect::<Option<Vec<Cel>>>().and_then(Cel::any) {
        Some(cel) => found.tests.push(Test { cel, paths: globs }),
        None => found.why = "its path is not in ASCII".to_owned(),
    }
    found
}

const REWRITTEN: &str = "the path was changed before";

/// All that a block of a matcher says: every kind must match, and one of the words of a kind.
pub(crate) fn block(all: &[Directive], way: &Rewriting) -> Found {
    let mut found = Found::default();
    let mut names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let kinds = names.len();
    for name in names {
        let lines: Vec<&Directive> = all.iter().filter(|one| one.name == name).collect();
        let one = kind(name, &lines, way);
        found.never |= one.never;
        found.length += one.length;
        found.prefix = one.prefix.filter(|_| kinds == 1);
        if found.why.is_empty() {
            found.why = one.why;
        }
        found.tests.extend(one.tests);
    }
    found
}

fn kind(name: &str, lines: &[&Directive], way: &Rewriting) -> Found {
    let words: Vec<String> = lines.iter().flat_map(|one| one.words.iter().cloned()).collect();
    let found = Found::default();
    if words.iter().any(|word| word.contains('{') && name != "path_regexp") {
        return found.unknown("it has a placeholder");
    }
    let parts: Option<Vec<Cel>> = match name {
        "path" => return paths(&words, way),
        "path_regexp" if *way == Rewriting::Same => {
            words.last().map(|text| cel::matches("path", text)).into_iter().collect()
        }
        "path_regexp" => return found.unknown(REWRITTEN),
        "method" => words.iter().map(|word| cel::is("method", word)).collect(),
        "host" => words.iter().map(|word| host(word)).collect(),
        "protocol" => words.iter().map(|word| protocol(word)).collect(),
        "header" if lines.len() == 1 => header(&words).map(|one| vec![one]),
        "header_regexp" if lines.len() == 1 => header_regexp(&words).map(|one| vec![one]),
        "query" if words.len() == 1 => query(&words[0]).map(|one| vec![one]),
        "remote_ip" | "client_ip" => networks(&words),
        "not" => {
            // Each line is negated for itself.
            let mut all = Found::default();
            for line in lines {
                let inner = match line.words.split_first() {
                    Some((name, words)) => {
                        let (name, words) = (name.clone(), words.to_vec());
                        vec![Directive { name, words, ..Directive::default() }]
                    }
                    None => line.inner.clone(),
                };
                let one = block(&inner, way);
                let parts = one.tests.iter().map(|test| test.cel.clone()).collect();
                match Cel::all(parts).filter(|_| one.why.is_empty() && !one.never) {
                    Some(cel) => all.tests.push(Test::of(cel.negated())),
                    None if one.never => {}
                    None if one.why.is_empty() => all.never = true,
                    None => all.why = one.why,
                }
            }
            return all;
        }
        _ => return found.unknown(format!("matchers of the kind {name} are not carried")),
    };
    let parts = parts.filter(|parts| parts.len() <= PARTS_MAX);
    let cel = parts.and_then(Cel::any).filter(|cel| cel::check(cel, &Lists::new()).is_some());
    match cel {
        Some(cel) => Found { tests: vec![Test::of(cel)], ..found },
        None => found.unknown(format!("its {name} is not known here")),
    }
}

/// The condition for a host, which can have `*` in place of labels.
pub(crate) fn host(text: &str) -> Option<Cel> {
    let text = text.to_ascii_lowercase();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.*:[]".contains(&b);
    if !text.bytes().all(plain) {
        return None;
    }
    if !text.contains('*') {
        return cel::is("host", &text);
    }
    let label = |label: &str| match label {
        "*" => Some("[^.]+".to_owned()),
        label => (!label.contains('*')).then(|| label.to_owned()),
    };
    let labels: Vec<String> = text.split('.').map(label).collect::<Option<_>>()?;
    cel::matches("host", &format!("^{}$", labels.join(r"\.")))
}

fn protocol(text: &str) -> Option<Cel> {
    match text {
        "http" | "https" => cel::is("scheme", text),
        "grpc" => Some(Cel::one("fields['content-type'].startsWith('application/grpc')")),
        _ => None,
    }
}

fn header(words: &[String]) -> Option<Cel> {
    let name = words.first()?;
    if let Some(absent) = name.strip_prefix('!').filter(|_| words.len() == 1) {
        return Some(cel::has_field(absent)?.negated());
    }
    let [name, value] = words else { return None };
    let field = cel::field(name).filter(|_| !name.eq_ignore_ascii_case("host"))?;
    let bare = cel::quoted(value.trim_matches('*'))?;
    let text = match (value.starts_with('*'), value.ends_with('*')) {
        _ if value == "*" => return cel::has_field(name),
        (true, true) => format!("{field}.contains({bare})"),
        (true, false) => format!("{field}.endsWith({bare})"),
        (false, true) => format!("{field}.startsWith({bare})"),
        (false, false) => format!("{field} == {bare}"),
    };
    Some(Cel::one(text))
}

fn header_regexp(words: &[String]) -> Option<Cel> {
    let (name, pattern) = match words {
        [name, pattern] | [_, name, pattern] => (name, pattern),
        _ => return None,
    };
    Cel::all(vec![cel::has_field(name)?, cel::matches(&cel::field(name)?, pattern)?])
}

fn query(word: &str) -> Option<Cel> {
    if word.is_empty() {
        return Some(Cel::one("query == ''"));
    }
    let (name, value) = word.split_once('=')?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if name.is_empty() || !name.bytes().all(plain) {
        return None;
    }
    match value {
        "*" => Some(Cel::one(format!("'{name}' in args"))),
        _ => cel::is(&format!("args['{name}']"), value),
    }
}

/// What Caddy means by `private_ranges`.
pub(crate) const PRIVATE: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.1/8", "fd00::/8", "::1"];

/// The networks in words.
pub(crate) fn ranges(words: &[String]) -> Option<Vec<String>> {
    let mut all: Vec<String> = Vec::new();
    for word in words {
        match word.as_str() {
            "private_ranges" => all.extend(PRIVATE.map(str::to_owned)),
            word => all.push(word.to_owned()),
        }
    }
    let network = |text: &String| match text.contains('/') {
        true => text.parse::<IpNet>().ok().map(|net| net.trunc()),
        false => text.parse().ok().map(|address: std::net::IpAddr| IpNet::from(address)),
    };
    all.iter().map(|one| network(one).map(|net| net.to_string())).collect()
}

fn networks(words: &[String]) -> Option<Vec<Cel>> {
    let within = |text: &String| Cel::one(format!("client.within('{text}')"));
    Some(ranges(words)?.iter().map(within).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(found: &Found) -> String {
        let parts = found.tests.iter().map(|test| test.cel.clone()).collect();
        let all = Cel::all(parts).map_or(String::new(), |cel| cel.text().to_owned());
        if found.why.is_empty() { all } else { format!("? {all}") }
    }

    fn line(text: &str) -> Directive {
        let mut words = text.split(' ').map(str::to_owned);
        let name = words.next().unwrap();
        Directive { name, words: words.collect(), ..Directive::default() }
    }

    fn all(lines: &[&str]) -> String {
        let lines: Vec<Directive> = lines.iter().map(|one| line(one)).collect();
        text(&block(&lines, &Rewriting::Same))
    }

    #[test]
    fn paths_are_compared_without_case_and_after_changes() {
        assert_eq!(
            all(&["path /A /b/* *.PHP"]),
            concat!(
                "path.matches('(?i)^/a[. ]*$') || path.lowerAscii().startsWith('/b/') || ",
                r"path.matches(r'(?i)\.php[. ]*$')"
            )
        );
        assert_eq!(
            all(&["path /1/*/2 *wp*"]),
            "path.glob('/1/*/2') || path.lowerAscii().contains('wp')"
        );
        assert_eq!((all(&["path *"]), all(&["path /a?"])), (String::new(), "? ".to_owned()));
        let of = |pattern: &str, way: &Rewriting| {
            let found = paths(&[pattern.to_owned()], way);
            (text(&found), found.never)
        };
        let below = Rewriting::Stripped("/Api".to_owned());
        let wanted = ("path.matches('(?i)^/api/x[. ]*$')".to_owned(), false);
        assert_eq!(of("/x", &below), wanted);
        assert_eq!(of("/x", &Rewriting::Unknown).0, "? ");
        assert_eq!(of("/x*", &Rewriting::Fixed("/X/y?z".to_owned())), (String::new(), false));
        assert_eq!(of("/z*", &Rewriting::Fixed("/x".to_owned())), (String::new(), true));
    }

    #[test]
    fn which_paths_can_meet() {
        let test = |pattern: &str| paths(&[pattern.to_owned()], &Rewriting::Same).tests.remove(0);
        for (one, two, meets) in [
            ("/a", "/A", true),
            ("/a", "/b", false),
            ("/a/*", "/a", false),
            ("/a*", "/ab/*", true),
            ("/a/*", "/b/*", false),
            ("*.php", "/a/*", true),
            ("*.php", "/a.css", false),
        ] {
            assert_eq!(test(one).meets(&test(two)), meets, "{one} {two}");
        }
    }

    #[test]
    fn other_kinds() {
        for (lines, wanted) in [
            (&["method GET HEAD"][..], "method == 'GET' || method == 'HEAD'"),
            (&["host a.test *.b.test"], r"host == 'a.test' || host.matches(r'^[^.]+\.b\.test$')"),
            (&["header X-A *b*"], "fields['x-a'].contains('b')"),
            (&["header !X-A"], "!('x-a' in fields)"),
            (&["header_regexp n X-A ^b"], "'x-a' in fields && fields['x-a'].matches('^b')"),
            (&["query a=1"], "args['a'] == '1'"),
            (
                &["remote_ip 10.1.2.3/8 ::1"],
                "client.within('10.0.0.0/8') || client.within('::1/128')",
            ),
            (
                &["not path /a", "not method GET"],
                "!path.matches('(?i)^/a[. ]*$') && method != 'GET'",
            ),
            (&["path_regexp ^/a[0-9]+$", "protocol https"], {
                "path.matches('^/a[0-9]+$') && scheme == 'https'"
            }),
            (&["expression true", "path /a"], "? path.matches('(?i)^/a[. ]*$')"),
            (&["not file /a"], "? "),
            (&["path_regexp (?=a)"], "? "),
            (&["query a=1 b=2"], "? "),
        ] {
            assert_eq!(all(lines), wanted);
        }
    }
}
