//! Regular expressions that one of our settings can express: a few literal texts (`^/(a|b)/`), a
//! path with captures (`^/([^/]+)/shop/(.*)$`), names of cookies, or parameters of a query.

use crate::cel::in_path;
use crate::route::Path;

/// An expression stands for at most so many texts.
const TEXTS_MAX: usize = 64;

/// What an expression matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// The texts.
    pub texts: Vec<String>,
    /// The text is the whole path or host, and not only its start.
    pub whole: bool,
}

/// A literal text as an expression.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if c.is_ascii_punctuation() && !"-_/:".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Reads an expression that begins with `^`. Returns `None` if it stands for other than a few
/// texts.
pub fn literal(pattern: &str) -> Option<Literal> {
    let rest = pattern.strip_prefix('^')?;
    let (rest, whole) = match rest.strip_suffix('$') {
        Some(rest) if !rest.ends_with('\\') => (rest, true),
        _ => (rest, false),
    };
    let mut texts = vec![String::new()];
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        let parts: Vec<String> = match c {
            '\\' => vec![chars.next().filter(char::is_ascii_punctuation)?.to_string()],
            '(' => {
                let group: String = chars.by_ref().take_while(|c| *c != ')').collect();
                let group = group.strip_prefix("?:").unwrap_or(&group);
                let mut parts: Vec<String> = group.split('|').map(plain).collect::<Option<_>>()?;
                if let Some(rest) = chars.as_str().strip_prefix('?') {
                    chars = rest.chars();
                    parts.push(String::new());
                }
                parts
            }
            c if is_special(c) => return None,
            c => vec![c.to_string()],
        };
        // A repeated part is more than a few texts.
        if chars.as_str().starts_with(['*', '+', '?', '{']) {
            return None;
        }
        texts = texts
            .iter()
            .flat_map(|text| parts.iter().map(move |part| format!("{text}{part}")))
            .take(TEXTS_MAX + 1)
            .collect();
        if texts.len() > TEXTS_MAX {
            return None;
        }
    }
    Some(Literal { texts, whole })
}

/// The starts of the paths that an expression matches, in lower case, as paths of our file.
pub fn starts(pattern: &str) -> Vec<String> {
    literal_starts(pattern).iter().map(|start| in_path(start)).collect()
}

fn literal_starts(pattern: &str) -> Vec<String> {
    if let Some(found) = literal(pattern) {
        return found.texts.iter().map(|text| text.to_ascii_lowercase()).collect();
    }
    let Some(rest) = pattern.strip_prefix('^') else { return vec![String::new()] };
    let mut depth = 0_i32;
    for c in rest.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            '|' if depth == 0 => return vec![String::new()],
            _ => {}
        }
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    let end = rest.find(|c| !plain(c)).unwrap_or(rest.len());
    let (text, after) = rest.split_at(end);
    let optional = after.starts_with(['?', '*', '{']);
    vec![text[..text.len() - usize::from(optional && !text.is_empty())].to_ascii_lowercase()]
}

fn is_special(c: char) -> bool {
    ".*+?[]{}^$|)".contains(c)
}

/// A part without special characters.
fn plain(text: &str) -> Option<String> {
    let (mut out, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(chars.next().filter(char::is_ascii_punctuation)?),
            c if c == '(' || is_special(c) => return None,
            c => out.push(c),
        }
    }
    Some(out)
}

/// A path, or a host, with captures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// The path or the host, as our file writes it.
    pub text: String,
    /// What `$1`, `\1` or the name of a group stands for, as our file repeats it: `{c1}`, `{*}`.
    pub groups: Vec<(String, String)>,
}

impl Captured {
    /// Takes a group from the front: `([^/]+)` or `(?<name>[^/]+)` with `class` for `[^/]+`, or the
    /// class alone. Returns the name of the capture, and the remainder.
    fn take<'p>(&mut self, pattern: &'p str, class: &str) -> Option<(String, &'p str)> {
        let is_number = |(name, _): &&(String, String)| name.parse::<u8>().is_ok();
        let number = self.groups.iter().filter(is_number).count() + 1;
        let mut name = format!("c{number}");
        if let Some(rest) = pattern.strip_prefix(class) {
            // A class without brackets has no number, so its name must differ from those of groups.
            return Some((format!("d{}", rest.len()), rest));
        }
        let mut inner = pattern.strip_prefix('(')?;
        if let Some(named) = inner.strip_prefix("?<").or_else(|| inner.strip_prefix("?P<")) {
            let (own, rest) = named.split_once('>')?;
            let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            let is_value = own == "host";
            if own.is_empty() || is_value || !own.bytes().all(plain) {
                return None;
            }
            (name, inner) = (own.to_owned(), rest);
        }
        let rest = inner.strip_prefix(class)?.strip_prefix(')')?;
        let repeated = if class == ".*" { "{*}".to_owned() } else { format!("{{{name}}}") };
        self.groups.push((number.to_string(), repeated.clone()));
        if name != format!("c{number}") {
            self.groups.push((name.clone(), repeated));
        }
        Some((name, rest))
    }
}

/// Translates an expression to our path. Each capture is a whole segment, or the rest of the path.
pub fn path_of(pattern: &str) -> Option<(Path, Captured)> {
    let mut rest = pattern.strip_prefix('^')?;
    let (mut found, mut has_captures) = (Captured::default(), false);
    loop {
        let after_slash = found.text.ends_with('/');
        if rest == "$" || rest.is_empty() {
            let text = found.text.clone();
            let path = match (rest, has_captures, after_slash) {
                ("", true, true) => Path::Pattern(text + "*"),
                ("", false, true) => Path::Prefix(text),
                ("", _, false) => return None,
                (_, true, false) => Path::Pattern(text),
                (_, true, true) => return None,
                (_, false, _) => Path::Exact(text),
            };
            return path.text().starts_with('/').then_some((path, found));
        }
        if after_slash
            && let Some((_, end)) = found.take(rest, ".*")
            && matches!(end, "" | "$")
        {
            let text = format!("{}*", found.text);
            return text.starts_with('/').then_some((Path::Pattern(text), found));
        }
        if after_slash && let Some((name, after)) = found.take(rest, "[^/]+") {
            if !after.starts_with('/') && after != "$" {
                return None;
            }
            found.text.push_str(&format!("{{{name}}}"));
            (rest, has_captures) = (after, true);
            continue;
        }
        let (c, after) = character(rest)?;
        found.text.push(c);
        rest = after;
        if c == '/' && found.text.ends_with("//") || found.text.ends_with("/.") {
            return None;
        }
    }
}

/// Translates an expression that captures the first label to our host.
pub fn host_of(pattern: &str) -> Option<Captured> {
    let mut found = Captured::default();
    let (name, mut rest) = found.take(pattern.strip_prefix('^')?, "[^.]+")?;
    // A path may have a capture with the same number.
    let is_named = found.groups.len() == 2;
    found.text = if is_named { format!("{{{name}}}") } else { "{h}".to_owned() };
    found.groups.iter_mut().for_each(|(_, repeated)| repeated.clone_from(&found.text));
    while rest != "$" {
        let (c, after) = character(rest)?;
        found.text.push(c.to_ascii_lowercase());
        rest = after;
    }
    let ok = found.text.contains("}.") && !found.text.ends_with('.') && !found.text.contains("..");
    ok.then_some(found)
}

/// A literal character, with what follows.
fn character(pattern: &str) -> Option<(char, &str)> {
    let mut chars = pattern.chars();
    let c = match chars.next()? {
        '\\' => chars.next().filter(|c| matches!(c, '.' | '-' | '/'))?,
        c if c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_') => c,
        _ => return None,
    };
    let rest = chars.as_str();
    (!rest.starts_with(['*', '+', '?', '{'])).then_some((c, rest))
}

/// Replaces captures (`$1`, `${name}`, `$name`). Returns `None` if a variable is not a capture.
pub fn repeated(text: &str, sign: char, groups: &[(String, String)]) -> Option<String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(sign) {
        let (inner, braces) = match after.strip_prefix('{') {
            Some(inner) => (inner, true),
            None => (after, false),
        };
        let is_number = inner.starts_with(|c: char| c.is_ascii_digit());
        let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = inner.find(|c| !of_name(c)).unwrap_or(inner.len());
        let (name, mut left) = inner.split_at(if is_number { 1 } else { end });
        if braces {
            left = left.strip_prefix('}')?;
        }
        out.push_str(before);
        out.push_str(&groups.iter().rev().find(|(own, _)| own == name)?.1);
        rest = left;
    }
    // In our file, braces of the original would be captures.
    let plain = |text: &str| !text.contains(['{', '}']);
    out.push_str(rest);
    (plain(rest) && plain(&text.replace("${", "$").replace('}', ""))).then_some(out)
}

/// The parts of expressions that match before the name of a cookie: the start of the field, or the
/// end of another cookie.
const COOKIE_STARTS: [&str; 8] = [
    r"(^|;\s*)",
    r"(?:^|;\s*)",
    r"(^|;\s?)",
    "(^|; ?)",
    "(^|; )",
    "(?:^|; )",
    r"(^|;\s+)",
    r"(^|\s*;\s*)",
];

/// The difference of a bypass whose expression also matches inside the value of a cookie.
pub const COOKIE_NAMES: &str = "the names of cookies count, and not their values";

/// The expression matches if the request has one of these cookies. Also returns whether the
/// patterns are exact. If the expression lacks the start of a cookie (`session=`), the patterns
/// match all names with this end.
pub fn cookies(pattern: &str) -> Option<(Vec<String>, bool)> {
    let start = COOKIE_STARTS.iter().find_map(|start| pattern.strip_prefix(start));
    let (rest, exact) = (start.unwrap_or(pattern), start.is_some());
    let (names, tail) = names(rest)?;
    let star = match tail {
        "=" | "=.+" | "=[^;]+" => "",
        "[^=]*=" | "" | "[^=]+=" | ".*=" if exact => "*",
        _ => return None,
    };
    let front = if exact { "" } else { "*" };
    Some((names.iter().map(|name| format!("{front}{name}{star}")).collect(), exact))
}

/// The parameters that a substitution removes from a query, as patterns. Returns `None` for other
/// expressions.
pub fn parameters(pattern: &str) -> Option<Vec<String>> {
    let starts =
        [r"([?&])", r"(\?|&)", r"(\?|\&)", "[?&]", "[&?]", r"[\?&]", "&", r"\?", r"(?:[?&])"];
    let start = starts.iter().find_map(|start| pattern.strip_prefix(start));
    let (names, tail) = names(start.unwrap_or(pattern))?;
    let is_known = tail == "(=[^&]*)?&?"
        || tail == "(=[^&]*)?"
        || is_value(tail.strip_suffix("&?").unwrap_or(tail));
    (is_known && (start.is_some() || tail.starts_with('='))).then_some(names)
}

/// Whether an expression is `=` and the value of a parameter: a class, or anything but `&`.
fn is_value(text: &str) -> bool {
    let Some(value) = text.strip_prefix('=') else { return false };
    let value = value.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(value);
    let Some(class) = value.strip_suffix(['*', '+']).and_then(|one| one.strip_prefix('[')) else {
        return false;
    };
    let Some(class) = class.strip_suffix(']') else { return false };
    // A class of most signs that values have.
    let has_letters = class.contains("A-z") || class.contains("a-z") && class.contains("A-Z");
    let is_wide = has_letters && class.contains("0-9") && class.contains('%');
    !class.contains(['[', ']'])
        && (class == "^&" || is_wide && !class.starts_with('^') && !class.contains('&'))
}

/// The name at the start of an expression, or several names in brackets, and the rest of the
/// expression. `utm_[^=&]*` is `utm_*`.
fn names(pattern: &str) -> Option<(Vec<String>, &str)> {
    let name = |text: &str| {
        let stars = ["[^=&]*", "[a-z]+", "[a-z_]+", "[a-zA-Z]+", r"\w+", "[^=]*", "[^=]+", ".*"];
        let (bare, star) = match stars.iter().find_map(|star| text.strip_suffix(star)) {
            Some(bare) => (bare, "*"),
            None => (text, ""),
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        (!bare.is_empty() && bare.bytes().all(plain)).then(|| format!("{bare}{star}"))
    };
    if let Some(inner) = pattern.strip_prefix('(') {
        let (inner, rest) = inner.split_once(')')?;
        let all = inner.strip_prefix("?:").unwrap_or(inner).split('|');
        return Some((all.map(name).collect::<Option<_>>()?, rest));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let end = pattern.find(|c| !plain(c)).unwrap_or(pattern.len());
    let (own, rest) = pattern.split_at(end);
    match rest.strip_prefix("[^=&]*").filter(|_| !own.is_empty()) {
        Some(rest) => Some((vec![format!("{own}*")], rest)),
        None => Some((vec![name(own)?], rest)),
    }
}

/// Translates an expression for `Content-Type` to media types. Returns `None` if it stands for
/// other than a few types.
pub fn types(pattern: &str) -> Option<Vec<String>> {
    let all = literal(pattern.strip_prefix("(?i)").unwrap_or(pattern))?.texts;
    let kind = |text: &String| match text.split_once('/') {
        Some((_, "")) => Some(format!("{text}*")),
        Some((kind, sub)) if !kind.is_empty() && !sub.contains(['/', ';']) => Some(text.clone()),
        // `^text` and `^image` begin no other type.
        None if matches!(text.as_str(), "text" | "image" | "video" | "audio" | "font") => {
            Some(format!("{text}/*"))
        }
        _ => None,
    };
    all.iter().map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions() {
        let of = |pattern: &str| literal(pattern).map(|found| (found.texts.join(" "), found.whole));
        for (pattern, texts, whole) in [
            ("^/api/", "/api/", false),
            ("^/(a|b)/$", "/a/ /b/", true),
            (r"^(www\.)?example\.org$", "www.example.org example.org", true),
            (r"^x\$", "x$", false),
        ] {
            assert_eq!(of(pattern), Some((texts.to_owned(), whole)), "{pattern}");
        }
        for pattern in
            ["/api/", "^/a.*", "^/a+", "^[ab]", "^(a(b))", "^(a)*", r"^\d", "^a|b", "(?i)^a"]
        {
            assert_eq!(of(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn starts_of_paths_are_those_of_our_file() {
        for (pattern, start) in [
            ("^/a", "/a"),
            ("^/ab?", "/a"),
            ("/a", ""),
            ("^/a|^/b", ""),
            ("^/A(b|c)", "/ab /ac"),
            ("^/a%b", "/a%25b"),
        ] {
            assert_eq!(starts(pattern).join(" "), start, "{pattern}");
        }
    }

    #[test]
    fn paths_and_hosts_with_captures() {
        let path = |pattern: &str| path_of(pattern).map(|(path, _)| path.text().to_owned());
        for (pattern, text) in [
            (r"^/([^/]+)/shop/(.*)$", "/{c1}/shop/*"),
            (r"^/(?<lang>[^/]+)/x\.html$", "/{lang}/x.html"),
            ("^/old/(.*)", "/old/*"),
            ("^/([^/]+)/shop/", "/{c1}/shop/*"),
            ("^/a/", "/a/"),
            ("^/a$", "/a"),
        ] {
            assert_eq!(path(pattern).as_deref(), Some(text), "{pattern}");
        }
        for pattern in ["^/a", "/a/", "^/a(.*)$", "^/([^/]+)", "^/(a|b)/", "^/x/(.+)$", "^(.*)$"] {
            assert_eq!(path(pattern), None, "{pattern}");
        }
        let (_, found) = path_of("^/(?<lang>[^/]+)/(.*)$").unwrap();
        let text = |text| repeated(text, '$', &found.groups);
        assert_eq!(text("/$2?l=$lang&m=${1}").as_deref(), Some("/{*}?l={lang}&m={lang}"));
        assert_eq!((text("$other"), text("{x}")), (None, None));
        let host = host_of(r"^(?<tenant>[^.]+)\.Old\.example$").unwrap();
        assert_eq!(host.text, "{tenant}.old.example");
        assert_eq!(host_of(r"^internal\."), None);
    }

    #[test]
    fn names_of_cookies_and_parameters() {
        let of = |pattern: &str| cookies(pattern).map(|(all, exact)| (all.join(" "), exact));
        let some = |text: &str, exact| Some((text.to_owned(), exact));
        assert_eq!(of(r"(^|;\s*)session[^=]*="), some("session*", true));
        assert_eq!(of("(^|; )(a|b)="), some("a b", true));
        assert_eq!(of("session="), some("*session", false));
        assert_eq!((of("session"), of("^a=")), (None, None));
        let of = |pattern: &str| parameters(pattern).map(|all| all.join(" "));
        let text = Some("utm_* fbclid gclid".to_owned());
        assert_eq!(of("([?&])(utm_[^=&]*|fbclid|gclid)(=[^&]*)?"), text);
        assert_eq!((of("&&+"), of(r"\?.*$")), (None, None));
        let of_tracking = "(utm_[a-z]+|gclid|cx)=[-_A-z0-9+()%.]+&?";
        assert_eq!(of(of_tracking).as_deref(), Some("utm_* gclid cx"));
        assert_eq!((of("(a|b)=[^;]+"), of("(a|b)")), (None, None));
        let all = types("^(image/|text/css)").map(|all| all.join(" "));
        assert_eq!(all.as_deref(), Some("image/* text/css"));
    }
}
