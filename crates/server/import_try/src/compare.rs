//! The report: where the answers of the two servers differ, grouped by kind.

use std::collections::{BTreeSet, HashMap};

use import::{Fate, Imported, Note};
use serde::Serialize;

use crate::endpoints;
use crate::job::{Answer, Echo, NUMBER, Request};

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Requests that both servers were sent.
    pub requests: usize,
    /// Requests that both answered alike.
    pub alike: usize,
    /// Requests that were planned, but for which there was no time.
    pub unsent: usize,
    /// Parts of the original that no request was for.
    pub unasked: Vec<String>,
    /// Requests that the original answered from its store.
    pub hits: usize,
    /// Requests that our server answered from its store.
    pub our_hits: usize,
    /// The differences, the most frequent first.
    pub differences: Vec<Difference>,
}

/// Differences of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// What differs.
    pub kind: String,
    /// Requests with this difference.
    pub count: usize,
    /// The first of them, as a command line.
    pub curl: String,
    /// What the original has there.
    pub original: String,
    /// What our server has there.
    pub ours: String,
    /// The note of the import that explains it, if one does.
    pub note: Option<String>,
}

impl Report {
    /// Whether there is no difference.
    #[must_use]
    pub fn is_alike(&self) -> bool {
        self.differences.is_empty() && self.unsent == 0 && self.unasked.is_empty()
    }

    /// In one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let Report { requests, alike, unsent, .. } = self;
        let kinds = self.differences.len();
        let mut text = format!("{alike} of {requests} requests alike");
        if kinds > 0 {
            let s = if kinds == 1 { "" } else { "s" };
            text.push_str(&format!("; {} differ in {kinds} kind{s}", requests - alike));
        }
        if *unsent > 0 {
            text.push_str(&format!("; for {unsent} more there was no time"));
        }
        match self.unasked.len() {
            0 => {}
            1 => text.push_str("; 1 part of the file was not asked"),
            count => text.push_str(&format!("; {count} parts of the file were not asked")),
        }
        text
    }

    /// For a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Difference { kind, count, curl, original, ours, note } in &self.differences {
            let [kind, curl, original, ours] = [kind, curl, original, ours].map(|t| printable(t));
            text.push_str(&format!("{count}x {kind}: {original} there, {ours} here\n  {curl}\n"));
            match note {
                Some(note) => text.push_str(&format!("  {}\n", printable(note))),
                None => text.push_str("  no note explains this\n"),
            }
        }
        for part in self.unasked.iter().take(UNASKED_SHOWN_MAX) {
            text.push_str(&format!("not asked: {}\n", printable(part)));
        }
        let (hits, ours) = (self.hits, self.our_hits);
        text.push_str(&format!("from the store: {hits} there, {ours} here\n"));
        text.push_str(&self.summary());
        text.push('\n');
        text
    }
}

/// Parts of the file that are shown as not asked, at most. In JSON all are.
const UNASKED_SHOWN_MAX: usize = 20;

/// A text of a server for a terminal, which obeys control characters.
fn printable(text: &str) -> String {
    let each = text.chars().map(|c| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    each.collect()
}

/// Fields of a response that are each server's own.
const OWN: &[&str] = &[
    "accept-ranges",
    "age",
    "cache-status",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "server",
    "transfer-encoding",
    "via",
    "x-cache-lookup",
    "x-squid-error",
    "x-varnish",
    NUMBER,
];
/// How the name of a server begins in its own `Server`.
const SERVERS: &[&str] = &["caddy", "nginx", "squid", "varnish", "plimsoll"];
/// Fields of a file or a page that a server made itself.
const OWN_OF_PAGES: &[&str] = &["content-type", "etag", "last-modified"];
/// Fields of a refusal or another page without content of the site.
const OWN_OF_ERRORS: &[&str] =
    &["cache-control", "content-language", "mime-version", "proxy-status", "retry-after", "vary"];
/// Fields that a cache adds to a request for its own sake. They count if the client sent them.
const OWN_UNLESS_SENT: &[&str] = &["cache-control", "if-modified-since", "if-none-match"];
/// Fields between a proxy and an origin that are each server's own.
const OWN_OF_UPSTREAMS: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "max-forwards",
    "te",
    "transfer-encoding",
    "via",
    "x-varnish",
];

/// The members of each upstream, as the origin reports where it was reached.
pub(crate) type Members = HashMap<String, String>;

/// The members of each upstream in our file: the address of a member, and the name of the first
/// upstream that has it.
pub(crate) fn members(toml: &toml::Table) -> Members {
    let mut members = Members::new();
    let all = toml.get("upstream").and_then(toml::Value::as_array);
    for upstream in all.into_iter().flatten() {
        let name = upstream.get("name").and_then(toml::Value::as_str).unwrap_or_default();
        let servers = upstream.get("server").and_then(toml::Value::as_array);
        for server in servers.into_iter().flatten() {
            let url = server.get("url").and_then(toml::Value::as_str).unwrap_or_default();
            if let Some((host, port)) = endpoints::of_url(url) {
                members.entry(endpoints::reached(&host, port)).or_insert_with(|| name.to_owned());
            }
        }
    }
    members
}

/// An answer with what the origin says about it.
struct Read<'a> {
    answer: &'a Answer,
    echo: Option<Echo>,
    /// Whether it came from the store. `None`: it is not from an origin.
    is_hit: Option<bool>,
}

fn read(answers: &[Answer]) -> Vec<Read<'_>> {
    let mut seen = BTreeSet::new();
    let each = |answer| {
        let number = Answer::field(answer, NUMBER);
        let is_hit = number.map(|number| !seen.insert(number));
        Read { answer, echo: serde_json::from_str(&answer.body).ok(), is_hit }
    };
    answers.iter().map(each).collect()
}

/// Compares the answers.
pub(crate) fn compare(
    requests: &[Request],
    theirs: &[Answer],
    ours: &[Answer],
    members: &Members,
    imported: &Imported,
) -> Report {
    let (theirs, ours) = (read(theirs), read(ours));
    let sent = theirs.len().min(ours.len());
    let mut kinds: Vec<(Difference, &Request)> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut alike = 0;
    for ((request, one), other) in requests.iter().zip(&theirs).zip(&ours) {
        let differences = differences(one, other, members, request);
        alike += usize::from(differences.is_empty());
        for (kind, original, ours) in differences {
            let at = *index.entry(kind.clone()).or_insert_with(|| {
                let (curl, note) = (curl(request), None);
                kinds.push((Difference { kind, count: 0, curl, original, ours, note }, request));
                kinds.len() - 1
            });
            kinds[at].0.count += 1;
        }
    }
    for (difference, request) in &mut kinds {
        let everywhere = EVERYWHERE.iter().find(|(kind, _)| difference.kind.starts_with(kind));
        let note = explained(difference, request, &imported.notes).map(Note::to_string);
        difference.note = everywhere.map(|(_, why)| (*why).to_owned()).or(note);
    }
    let mut differences: Vec<Difference> = kinds.into_iter().map(|(one, _)| one).collect();
    differences.sort_by_key(|difference| std::cmp::Reverse(difference.count));
    let hits = |all: &[Read<'_>]| all[..sent].iter().filter(|one| one.is_hit == Some(true)).count();
    let (hits, our_hits) = (hits(&theirs), hits(&ours));
    let unsent = requests.len() - sent;
    let unasked = Vec::new();
    Report { requests: sent, alike, unsent, unasked, hits, our_hits, differences }
}

/// What differs, and both values.
fn differences(
    one: &Read<'_>,
    other: &Read<'_>,
    members: &Members,
    request: &Request,
) -> Vec<(String, String, String)> {
    let (theirs, ours) = (one.answer, other.answer);
    if theirs.status != ours.status {
        let shown = |status: u16| match status {
            0 => "no response".to_owned(),
            status => status.to_string(),
        };
        let (theirs, ours) = (shown(theirs.status), shown(ours.status));
        return vec![(format!("status {theirs} and {ours}"), theirs, ours)];
    }
    let mut all = Vec::new();
    if theirs.status == 0 {
        let (kind, none) = ("no response of either server, not compared", "no response");
        return vec![(kind.to_owned(), none.to_owned(), none.to_owned())];
    }
    if one.is_hit != other.is_hit {
        let shown = |is_hit| match is_hit {
            Some(true) => "from the store",
            Some(false) => "from an upstream",
            None => "from the server itself",
        };
        let (theirs, ours) = (shown(one.is_hit), shown(other.is_hit));
        all.push((format!("source, {theirs} and {ours}"), theirs.to_owned(), ours.to_owned()));
        return all;
    }
    if theirs.is_cut || ours.is_cut {
        let shown = |one: &Answer| if one.is_cut { "cut off" } else { "whole" }.to_owned();
        all.push(("end of the content".to_owned(), shown(theirs), shown(ours)));
    }
    let is_page = one.is_hit.is_none();
    if is_page && request.method == "PURGE" {
        // Each server reports in its own words what it purged.
        return all;
    }
    let others = |one: &Answer| {
        let own = |name: &str| SERVERS.iter().any(|own| name.to_ascii_lowercase().starts_with(own));
        let names = one.fields.iter().filter(|(name, value)| name == "server" && !own(value));
        names.map(|(_, value)| value.clone()).collect::<Vec<String>>().join(", ")
    };
    if others(theirs) != others(ours) {
        let (theirs, ours) = (format!("{:?}", others(theirs)), format!("{:?}", others(ours)));
        all.push(("response field server changed".to_owned(), theirs, ours));
    }
    let targets = [&one.echo, &other.echo].map(|echo| echo.as_ref().map(|echo| &echo.target));
    let is_error = is_page && theirs.status >= 400;
    // Squid's own X-Cache comes with another field.
    let is_squid = theirs.field("x-cache-lookup").is_some();
    let has_both = |name: &str| theirs.field(name).is_some() && ours.field(name).is_some();
    // Each server has its own tags and times of a file, but not its type.
    let is_said = |name: &str| name == "content-type" || !has_both(name);
    let skipped = |name: &str| {
        OWN.contains(&name)
            || is_page && OWN_OF_PAGES.contains(&name) && !(theirs.status == 200 && is_said(name))
            || is_error && OWN_OF_ERRORS.contains(&name)
            || is_squid && name == "x-cache"
            // The origin makes it of the target.
            || name == "etag" && has_both(name) && targets[0] != targets[1]
    };
    fields(theirs, ours, skipped, "response field", request, &mut all);
    let is_coded = [theirs, ours].iter().any(|one| one.field("content-encoding").is_some());
    let start = |text: &str| format!("{:?}", text.chars().take(40).collect::<String>());
    match (&one.echo, &other.echo) {
        (Some(theirs), Some(ours)) => {
            upstreams(theirs, ours, members, request, &mut all);
            if theirs.filler != ours.filler {
                all.push(("content".to_owned(), start(&theirs.filler), start(&ours.filler)));
            }
        }
        (Some(_), None) | (None, Some(_)) if !is_coded => {
            all.push(("content".to_owned(), start(&theirs.body), start(&ours.body)));
        }
        // A page of an error is each server's own.
        (None, None) if !is_coded && theirs.status == 200 && theirs.body != ours.body => {
            all.push(("body".to_owned(), start(&theirs.body), start(&ours.body)));
        }
        _ => {}
    }
    all
}

fn fields(
    one: &Answer,
    other: &Answer,
    is_skipped: impl Fn(&str) -> bool,
    what: &str,
    request: &Request,
    all: &mut Vec<(String, String, String)>,
) {
    let fields = one.fields.iter().chain(&other.fields);
    let names: BTreeSet<&str> = fields.map(|(name, _)| name.as_str()).collect();
    for name in names.into_iter().filter(|name| !is_skipped(name)) {
        let (theirs, ours) = (one.field(name), other.field(name));
        let target =
            |value: &Option<String>| value.as_deref().map(|value| leads_to(value, request));
        // The content has what each server sent, so its length differs.
        let range = |value: &Option<String>| {
            value.as_deref().and_then(|value| value.split('/').next()).map(str::to_owned)
        };
        if theirs == ours
            || name == "location" && target(&theirs) == target(&ours)
            || name == "content-range" && range(&theirs) == range(&ours)
            || name == "vary" && names_in(&theirs) == names_in(&ours)
        {
            continue;
        }
        let how = match (&theirs, &ours) {
            (None, _) => "added",
            (_, None) => "lost",
            _ => "changed",
        };
        let shown = |value: Option<String>| value.map_or("none".to_owned(), |v| format!("{v:?}"));
        all.push((format!("{what} {name} {how}"), shown(theirs), shown(ours)));
    }
}

/// The names in a list, whose order says nothing.
fn names_in(value: &Option<String>) -> BTreeSet<String> {
    let names = value.iter().flat_map(|value| value.split(','));
    names.map(|name| name.trim().to_ascii_lowercase()).collect()
}

/// The URL that a `Location` leads to. Without a scheme and a host, they are those of the request.
fn leads_to(location: &str, request: &Request) -> String {
    let scheme = if request.tls { "https" } else { "http" };
    match location {
        _ if location.starts_with("//") => format!("{scheme}:{location}"),
        _ if location.starts_with('/') => format!("{scheme}://{}{location}", request.host),
        _ => location.to_owned(),
    }
}

/// What the origin received.
fn upstreams(
    one: &Echo,
    other: &Echo,
    members: &Members,
    request: &Request,
    all: &mut Vec<(String, String, String)>,
) {
    let name = |at: &String| members.get(at).unwrap_or(at).clone();
    let host = |echo: &Echo| {
        let field = echo.fields.iter().find(|(name, _)| name == "host");
        field.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    for (what, theirs, ours) in [
        ("upstream", name(&one.at), name(&other.at)),
        ("method at the upstream", one.method.clone(), other.method.clone()),
        ("target at the upstream", one.target.clone(), other.target.clone()),
        ("Host at the upstream", host(one), host(other)),
        ("length at the upstream", one.length.to_string(), other.length.to_string()),
    ] {
        if theirs != ours {
            all.push((what.to_owned(), theirs, ours));
        }
    }
    let answer = |echo: &Echo| Answer { fields: echo.fields.clone(), ..Answer::default() };
    let is_sent =
        |name: &str| request.fields.iter().any(|(sent, _)| sent.eq_ignore_ascii_case(name));
    let skipped = |name: &str| {
        OWN_OF_UPSTREAMS.contains(&name) || OWN_UNLESS_SENT.contains(&name) && !is_sent(name)
    };
    fields(&answer(one), &answer(other), skipped, "field at the upstream", request, all);
}

/// The request as a command line.
fn curl(request: &Request) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let mut line = "curl -i".to_owned();
    let mut add = |flag: &str, value: &str| line.push_str(&format!(" {flag} {}", quoted(value)));
    if !request.from.is_loopback() {
        add("--interface", &request.from.to_string());
    }
    for (name, value) in &request.fields {
        add("-H", &format!("{name}: {value}"));
    }
    if !request.body.is_empty() {
        add("-d", &request.body);
    }
    let flags = match request.method.as_str() {
        "GET" => "",
        "HEAD" => " -I",
        "POST" if !request.body.is_empty() => "",
        method => &format!(" -X {method}"),
    };
    line.push_str(flags);
    if !request.target.starts_with('/') {
        return format!("{line} -x {} {}", request.to, quoted(&request.target));
    }
    let (scheme, more) = if request.tls { ("https", " -k") } else { ("http", "") };
    let url = format!("{scheme}://{}{}", request.to, request.target);
    format!(
        "{line}{more} --path-as-is -H {} {}",
        quoted(&format!("Host: {}", request.host)),
        quoted(&url)
    )
}

/// Kinds of differences that no line of a file causes (docs/import.md, differences that have no
/// note).
const EVERYWHERE: &[(&str, &str)] = &[
    ("status 200 and 206", "every import: ours sends the range of a response that it stores"),
    (
        "status 206 and 200",
        "every import: a range of a response that is not stored is the origin's",
    ),
    (
        "field at the upstream if-none-match",
        "every import: a condition of the client goes to the origin only if nothing is stored",
    ),
];

/// The note that explains a difference best: about the same field, or in the lines that the
/// request is for.
fn explained<'n>(
    difference: &Difference,
    request: &Request,
    notes: &'n [Note],
) -> Option<&'n Note> {
    let kind = difference.kind.to_ascii_lowercase();
    let field = kind.split(' ').rev().nth(1).filter(|_| kind.contains("field")).unwrap_or("\n");
    let words: &[&str] = match () {
        () if kind.contains("source") => &["cache", "store", "expires", "valid", "bypass"],
        () if kind.starts_with("status 3") || kind.contains("location") => {
            &["return", "rewrite", "redirect", "location", "host"]
        }
        () if kind.contains("503") || kind.contains("429") => &["limit_req", "limit_conn"],
        () if kind.contains("404 and") || kind.contains("and 404") => &["root", "alias"],
        () if kind.contains("content-type") => &["charset", "types", "default_type"],
        () if kind.contains("target") => &["rewrite", "proxy_pass", "path"],
        () if kind.starts_with("host") => &["host"],
        () if kind.starts_with("body") => {
            &["root", "alias", "try_files", "return", "index", "sub_"]
        }
        () if kind.contains("content-encoding") || kind.contains("vary") => &["gzip", "brotli"],
        () => &[],
    };
    let score = |note: &Note| {
        let text = format!("{} {}", note.directive, note.why).to_ascii_lowercase();
        let about = 4 * usize::from(text.contains(field));
        let words = 3 * usize::from(words.iter().any(|word| text.contains(word)));
        let near = request.place.as_ref().map_or(0, |(file, first, last)| {
            let is_inside = note.file == *file && (*first..=*last).contains(&note.line);
            // The fewer lines, the nearer.
            usize::from(is_inside) * if last - first < 40 { 3 } else { 2 }
        });
        let closed = 3 * usize::from(
            note.fate == Fate::Unprotected
                && (difference.ours == "403" || difference.ours == "501"),
        );
        // A note about the same lines says nothing about a field that it does not name.
        if kind.contains("field") && about + words == 0 { 0 } else { about + words + near + closed }
    };
    let counted = notes.iter().filter(|note| note.fate >= Fate::Different);
    let best = counted.map(|note| (score(note), note));
    // Of equal notes, the first.
    best.filter(|(score, _)| *score >= 3).rev().max_by_key(|(score, _)| *score).map(|(_, n)| n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use import::Source;

    fn request() -> Request {
        Request {
            to: ([127, 0, 0, 1], 80).into(),
            from: [127, 0, 0, 1].into(),
            tls: false,
            method: "GET".to_owned(),
            target: "/it's".to_owned(),
            host: "a.example".to_owned(),
            fields: vec![("Cookie".to_owned(), "a=1".to_owned())],
            body: String::new(),
            place: Some(("x.conf".to_owned(), 3, 5)),
        }
    }

    fn answer(status: u16, fields: &[(&str, &str)]) -> Answer {
        let fields = fields.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Answer { status, fields: fields.collect(), ..Answer::default() }
    }

    fn imported(notes: Vec<Note>) -> Imported {
        Imported { source: Source::Nginx, configuration: String::new(), notes }
    }

    #[test]
    fn differences_are_grouped_and_explained_by_the_note_of_their_lines() {
        let note = |line, directive: &str, fate| Note {
            file: "x.conf".to_owned(),
            line,
            directive: directive.to_owned(),
            fate,
            why: "why".to_owned(),
        };
        let notes = vec![
            note(1, "elsewhere", Fate::Unprotected),
            note(4, "carried", Fate::Carried),
            note(4, "auth_jwt x", Fate::Unprotected),
        ];
        let number = (NUMBER, "1");
        let theirs = [answer(200, &[number]), answer(200, &[number]), answer(200, &[("x-a", "1")])];
        let ours = [answer(403, &[]), answer(403, &[]), answer(200, &[])];
        let requests = [request(), request(), request()];
        let report = compare(&requests, &theirs, &ours, &Members::new(), &imported(notes));
        assert_eq!(report.summary(), "0 of 3 requests alike; 3 differ in 2 kinds");
        let [status, field] = &report.differences[..] else { panic!("{report:?}") };
        assert_eq!((status.kind.as_str(), status.count), ("status 200 and 403", 2));
        assert_eq!(
            status.curl,
            "curl -i -H 'Cookie: a=1' --path-as-is -H 'Host: a.example' \
             'http://127.0.0.1:80/it'\\''s'"
        );
        assert!(status.note.as_ref().is_some_and(|note| note.contains("auth_jwt")), "{report:?}");
        assert_eq!(field.kind, "response field x-a lost");
        assert!(!report.is_alike());
    }

    /// The kinds of differences between two answers.
    fn kinds(theirs: Answer, ours: Answer) -> Vec<String> {
        let (theirs, ours, none) = ([theirs], [ours], Members::new());
        let report = compare(&[request()], &theirs, &ours, &none, &imported(vec![]));
        report.differences.into_iter().map(|one| one.kind).collect()
    }

    #[test]
    fn a_content_that_differs_is_not_alike() {
        let echo = |filler: &str| {
            let echo = Echo {
                at: String::new(),
                method: "GET".to_owned(),
                target: "/".to_owned(),
                fields: vec![],
                length: 0,
                filler: filler.to_owned(),
            };
            let body = serde_json::to_string(&echo).unwrap();
            Answer { body, ..answer(200, &[(NUMBER, "1"), ("etag", "a")]) }
        };
        let same = [""; 0];
        assert_eq!(kinds(echo("abc"), echo("abc")), same);
        // `sub_filter` in the filler, and in the echo itself.
        assert_eq!(kinds(echo("abc"), echo("EVIL")), ["content"]);
        let broken = Answer { body: "{".to_owned(), ..echo("") };
        assert_eq!(kinds(echo("abc"), broken), ["content"]);
        // A hidden tag, a second `Server`, and an end that did not arrive.
        let hidden = Answer { fields: vec![(NUMBER.to_owned(), "1".to_owned())], ..echo("") };
        assert_eq!(kinds(echo(""), hidden), ["response field etag lost"]);
        let mut named = echo("");
        named.fields.push(("server".to_owned(), "nginx/1.22".to_owned()));
        assert_eq!(kinds(named.clone(), echo("")), same);
        named.fields.push(("server".to_owned(), "evil".to_owned()));
        assert_eq!(kinds(named, echo("")), ["response field server changed"]);
        let cut = Answer { is_cut: true, ..echo("") };
        assert_eq!(kinds(cut, echo("")), ["end of the content"]);
        // The type of a file.
        let file = |kind| answer(200, &[("content-type", kind)]);
        assert_eq!(kinds(file("text/html"), file("text/plain")).len(), 1);
        let nothing = kinds(Answer::default(), Answer::default());
        assert_eq!(nothing, ["no response of either server, not compared"]);
    }

    #[test]
    fn a_terminal_gets_no_control_characters_of_a_server() {
        let evil = "\u{1b}]0;x\u{7}\u{9b}2J";
        let difference = Difference {
            kind: evil.to_owned(),
            count: 1,
            curl: evil.to_owned(),
            original: evil.to_owned(),
            ours: evil.to_owned(),
            note: Some(evil.to_owned()),
        };
        let report = Report {
            requests: 1,
            alike: 0,
            unsent: 0,
            unasked: vec![evil.to_owned()],
            hits: 0,
            our_hits: 0,
            differences: vec![difference],
        };
        let text = report.text();
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("1 part of the file was not asked"), "{text}");
    }

    #[test]
    fn the_same_number_twice_is_a_hit() {
        let stored = answer(200, &[(NUMBER, "1")]);
        let fresh = answer(200, &[(NUMBER, "2")]);
        let theirs = [stored.clone(), stored.clone()];
        let ours = [stored.clone(), fresh];
        let report =
            compare(&[request(), request()], &theirs, &ours, &Members::new(), &imported(vec![]));
        assert_eq!((report.hits, report.our_hits, report.alike), (1, 0, 1));
        assert_eq!(report.differences[0].kind, "source, from the store and from an upstream");
        let report =
            compare(&[request(), request()], &theirs, &theirs, &Members::new(), &imported(vec![]));
        assert!(report.is_alike());
        // What holds for every import is said in place of a note.
        let report = compare(
            &[request()],
            &[answer(200, &[])],
            &[answer(206, &[])],
            &Members::new(),
            &imported(vec![]),
        );
        let note = report.differences[0].note.as_deref();
        assert!(note.is_some_and(|note| note.starts_with("every import: ")), "{report:?}");
        // The order of names in Vary says nothing.
        let varies = |value: &str| [answer(200, &[("vary", value)])];
        let report = compare(
            &[request()],
            &varies("Accept-Encoding, Accept-Language"),
            &varies("accept-language,Accept-Encoding"),
            &Members::new(),
            &imported(vec![]),
        );
        assert!(report.is_alike(), "{report:?}");
        // What was not sent is not alike.
        let report = compare(
            &[request(), request()],
            &theirs[..1],
            &theirs,
            &Members::new(),
            &imported(vec![]),
        );
        assert!(!report.is_alike() && report.summary().contains("for 1 more"), "{report:?}");
    }
}
