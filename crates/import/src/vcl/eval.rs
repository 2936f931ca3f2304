//! What the subroutines do with a request, by running them.
//!
//! Routes are chosen by host and path, whatever their order; VCL is a program. So the program is
//! run for one request of each *cell*, a host and a path that its conditions name, and the result
//! becomes the route of the cell. A condition on anything else is not known: nothing inside it is
//! carried. If that kept requests out, the cell is closed; if it kept responses out of the store,
//! the cell stores nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::Word;
use super::parser::{Arm, Expr, Kind, Program, Stmt};
use super::pattern::literal;
use crate::note::Fate;

/// Statements that are run for all cells together, at most.
const STEPS_MAX: usize = 1_000_000;

/// The path of a cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Path {
    Prefix(String),
    Exact(String),
}

/// A request: a cell, and a method.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// `None`: a host that no condition names.
    pub(crate) host: Option<String>,
    pub(crate) path: Path,
    pub(crate) method: String,
    /// Whether the client is in the access lists; `None`: not known.
    pub(crate) client_inside: Option<bool>,
}

/// How a subroutine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Hash,
    Pass,
    Purge,
    /// A status and the words of its reason.
    Synth(u64, Vec<Word>),
    /// Another action, which goes on as usual.
    Other,
}

/// What was done to a request and its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) backend: Option<String>,
    /// Changes to fields, by name: a value, or `None` if it is removed.
    pub(crate) request: BTreeMap<String, Option<String>>,
    pub(crate) response: BTreeMap<String, Option<String>>,
    pub(crate) end: Option<End>,
    /// Something that was not carried kept requests out.
    pub(crate) unprotected: bool,
    /// Something that was not carried kept responses out of the store.
    pub(crate) store_unknown: bool,
    /// Responses are never stored.
    pub(crate) uncacheable: bool,
    /// Access lists that a purge asked for.
    pub(crate) lists: BTreeSet<String>,
}

/// Runs subroutines, and remembers what became of each statement.
pub(crate) struct Runner<'p> {
    program: &'p Program,
    fates: Vec<Option<(Fate, String)>>,
    steps: usize,
    depth: usize,
    /// Statuses of `synth` that become redirects.
    redirects: BTreeSet<u64>,
}

/// Whether a condition holds; `None`: not known.
type Truth = Option<bool>;

const UNKNOWN: &str = "its condition is not carried: routes know hosts and paths only";
const KEY: &str = "the cache key is the URL, with the fields that Vary names; nothing is stored";
const AGES: &str = "lifetimes are those of responses, as RFC 9111 says; change Cache-Control with \
                    route.response";

impl<'p> Runner<'p> {
    pub(crate) fn new(program: &'p Program, redirects: BTreeSet<u64>) -> Runner<'p> {
        let fates = vec![None; program.statements];
        Runner { program, fates, steps: 0, depth: 0, redirects }
    }

    /// Whether too much was run.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps > STEPS_MAX
    }

    /// What became of a statement; `None`: it was never reached.
    pub(crate) fn fate(&self, stmt: &Stmt) -> Option<&(Fate, String)> {
        self.fates.get(stmt.id).and_then(Option::as_ref)
    }

    /// Runs a subroutine, if there is one.
    pub(crate) fn sub(&mut self, name: &str, request: &Request, state: &mut State) {
        let program = self.program;
        if let Some((_, body)) = program.subs.iter().find(|(there, _)| there == name) {
            self.body(body, request, state);
        }
    }

    /// Returns whether the subroutine has ended.
    fn body(&mut self, body: &'p [Stmt], request: &Request, state: &mut State) -> bool {
        for stmt in body {
            self.steps += 1;
            if self.is_exhausted() {
                return true;
            }
            if self.statement(stmt, request, state) {
                return true;
            }
        }
        false
    }

    fn note(&mut self, stmt: &Stmt, fate: Fate, why: &str) {
        let Some(there) = self.fates.get_mut(stmt.id) else { return };
        if there.as_ref().is_none_or(|(other, _)| *other < fate) {
            *there = Some((fate, why.to_owned()));
        }
    }

    fn statement(&mut self, stmt: &'p Stmt, request: &Request, state: &mut State) -> bool {
        match &stmt.kind {
            Kind::If(arms) => self.branch(stmt, arms, request, state),
            Kind::Call(name) => {
                let found = self.program.subs.iter().find(|(there, _)| there == name);
                let Some((_, body)) = found.filter(|_| self.depth < crate::limits::DEPTH_MAX)
                else {
                    state.unprotected = true;
                    self.note(stmt, Fate::Unprotected, "there is no such subroutine");
                    return false;
                };
                self.note(stmt, Fate::Carried, "");
                self.depth += 1;
                let ended = self.body(body, request, state);
                self.depth -= 1;
                ended
            }
            Kind::Return(words) => {
                let end = self.end(stmt, words);
                // What an unknown action would have done with the request is not known.
                state.unprotected |= end.is_none();
                state.end = Some(end.unwrap_or(End::Other));
                true
            }
            Kind::Set(to, value) => {
                self.set(stmt, to, value, state);
                false
            }
            Kind::Unset(what) => {
                self.unset(stmt, what, state);
                false
            }
            Kind::Other(name, words) => {
                self.other(stmt, name, words, state);
                false
            }
        }
    }

    fn branch(
        &mut self,
        stmt: &'p Stmt,
        arms: &'p [Arm],
        request: &Request,
        state: &mut State,
    ) -> bool {
        for (at, (condition, body)) in arms.iter().enumerate() {
            self.steps += condition.as_ref().map_or(0, comparisons);
            let truth = match condition {
                None => Some(true),
                // A response to a request with Authorization is stored only as RFC 9111 allows, so
                // one that is passed for it needs no care. One that is refused does.
                Some(condition) if mentions(condition, "req.http.authorization") => {
                    let (refuses, _) = self.keeps_out(&body.iter().collect::<Vec<_>>());
                    truth(condition, request, state).filter(|_| !refuses)
                }
                Some(condition) => truth(condition, request, state),
            };
            match truth {
                Some(false) => self.note(stmt, Fate::Carried, ""),
                Some(true) => {
                    self.note(stmt, Fate::Carried, "");
                    return self.body(body, request, state);
                }
                None => {
                    // Only this arm and those after it are not known.
                    let rest: Vec<&Stmt> = arms[at..].iter().flat_map(|(_, b)| b).collect();
                    let is_sign = condition.as_ref().is_some_and(|c| mentions(c, "obj.hits"));
                    if is_sign {
                        let text = "every response has Cache-Status, which says this";
                        self.note(stmt, Fate::Different, text);
                        rest.iter().for_each(|one| self.mark(one, Fate::Different, text));
                        return false;
                    }
                    let (refuses, passes) = self.keeps_out(&rest);
                    state.unprotected |= refuses;
                    state.store_unknown |= passes;
                    let fate = if refuses { Fate::Unprotected } else { Fate::NotCarried };
                    let text = match passes && !refuses {
                        true => format!("{UNKNOWN}; nothing is stored where it applied"),
                        false => UNKNOWN.to_owned(),
                    };
                    self.note(stmt, fate, &text);
                    rest.iter().for_each(|one| self.mark(one, Fate::NotCarried, UNKNOWN));
                    return false;
                }
            }
        }
        false
    }

    /// Gives a statement and all inside it a fate.
    fn mark(&mut self, stmt: &Stmt, fate: Fate, why: &str) {
        self.note(stmt, fate, why);
        if let Kind::If(arms) = &stmt.kind {
            arms.iter().flat_map(|(_, body)| body).for_each(|one| self.mark(one, fate, why));
        }
    }

    /// Whether some statement answers with an error, and whether some keeps responses out of the
    /// store.
    fn keeps_out(&self, all: &[&Stmt]) -> (bool, bool) {
        let (mut refuses, mut passes) = (false, false);
        for stmt in all {
            match &stmt.kind {
                Kind::Return(words) => match words.first() {
                    Some(Word::Name(name)) if name == "synth" => {
                        let status = words.iter().find_map(|word| match word {
                            Word::Name(number) => number.parse::<u64>().ok(),
                            _ => None,
                        });
                        let sends = |status: u64| status < 400 || self.redirects.contains(&status);
                        refuses |= !status.is_some_and(sends);
                    }
                    Some(Word::Name(name)) => {
                        passes |= matches!(name.as_str(), "pass" | "pipe" | "restart");
                    }
                    _ => {}
                },
                Kind::Set(to, _) => {
                    passes |= matches!(
                        to.as_str(),
                        "beresp.uncacheable" | "beresp.ttl" | "req.hash_always_miss" | "req.url"
                    ) || to.starts_with("req.http.");
                }
                Kind::Other(name, _) => passes |= name == "hash_data",
                // Its content is looked at where it is called.
                Kind::Call(_) => refuses = true,
                Kind::If(arms) => {
                    let inner: Vec<&Stmt> = arms.iter().flat_map(|(_, body)| body).collect();
                    let (more, less) = self.keeps_out(&inner);
                    refuses |= more;
                    passes |= less;
                }
                Kind::Unset(_) => {}
            }
        }
        (refuses, passes)
    }

    fn end(&mut self, stmt: &Stmt, words: &[Word]) -> Option<End> {
        let first = match words.first() {
            Some(Word::Name(name)) => name.as_str(),
            _ => "",
        };
        Some(match first {
            "hash" | "lookup" => {
                self.note(stmt, Fate::Carried, "");
                End::Hash
            }
            "pass" => {
                self.note(stmt, Fate::Carried, "");
                End::Pass
            }
            "pipe" => {
                let text = "the request is passed on without the store; its connection is not \
                            handed over";
                self.note(stmt, Fate::Different, text);
                End::Pass
            }
            "purge" => {
                self.note(stmt, Fate::Carried, "");
                End::Purge
            }
            "synth" => {
                let inner = &words[1..];
                let status = inner.iter().find_map(|word| match word {
                    Word::Name(number) => number.parse::<u64>().ok(),
                    _ => None,
                });
                let comma = inner.iter().position(|word| *word == Word::Sign(","));
                let reason = comma.map_or(&[][..], |at| &inner[at + 1..]);
                let reason = match reason {
                    [inner @ .., Word::Sign(")")] => inner,
                    all => all,
                };
                self.note(stmt, Fate::Carried, "");
                End::Synth(status.unwrap_or(503), reason.to_vec())
            }
            "deliver" | "fetch" | "ok" | "miss" => {
                self.note(stmt, Fate::Carried, "");
                End::Other
            }
            _ => {
                self.note(stmt, Fate::Unprotected, "this action is not known here");
                return None;
            }
        })
    }

    fn set(&mut self, stmt: &Stmt, to: &str, value: &[Word], state: &mut State) {
        let field = |prefixes: &[&str]| {
            prefixes.iter().find_map(|prefix| to.strip_prefix(prefix)).map(str::to_owned)
        };
        if matches!(to, "req.backend_hint" | "bereq.backend")
            && let [Word::Name(name), ..] = value
        {
            state.backend = Some(name.trim_end_matches(".backend").to_owned());
            return self.note(stmt, Fate::Carried, "");
        }
        let text = match value {
            [Word::Text(text)] => Some(text.clone()),
            _ => None,
        };
        if let Some(name) = field(&["req.http.", "bereq.http."]) {
            return match (text, name.as_str()) {
                (_, "x-forwarded-for") => {
                    let text = "X-Forwarded-For is sent by upstream.forwarded";
                    self.note(stmt, Fate::Different, text);
                }
                (Some(text), name) if is_free(name) && !text.is_empty() => {
                    state.request.insert(name.to_owned(), Some(text));
                    self.note(stmt, Fate::Carried, "");
                }
                _ => {
                    // A changed Host or Cookie can change the key, or who gets a response.
                    state.store_unknown |= name != "x-real-ip";
                    let text = "the value is not a fixed text, so it is not set, and nothing is \
                                stored";
                    self.note(stmt, Fate::NotCarried, text);
                }
            };
        }
        if let Some(name) = field(&["beresp.http.", "resp.http."]) {
            return match text {
                Some(text) if is_free(&name) && !text.is_empty() => {
                    let late = to.starts_with("resp.");
                    if late && is_about_caching(&name) {
                        let text = "it would change stored responses, not only what clients see";
                        return self.note(stmt, Fate::NotCarried, text);
                    }
                    state.response.insert(name, Some(text));
                    self.note(stmt, Fate::Carried, "");
                }
                _ => self.note(stmt, Fate::NotCarried, "the value is not a fixed text"),
            };
        }
        match to {
            "req.url" | "bereq.url" => {
                state.store_unknown = true;
                let text = "URLs are passed on as they are, so nothing is stored";
                self.note(stmt, Fate::NotCarried, text);
            }
            "beresp.uncacheable" => {
                if value != [Word::Name("true".to_owned())] {
                    return self.note(stmt, Fate::NotCarried, AGES);
                }
                state.uncacheable = true;
                self.note(stmt, Fate::Carried, "");
            }
            "beresp.ttl" if is_zero(value) => {
                state.uncacheable = true;
                self.note(stmt, Fate::Carried, "");
            }
            "beresp.ttl" | "beresp.grace" | "beresp.keep" | "req.grace" | "req.ttl" => {
                self.note(stmt, Fate::NotCarried, AGES);
            }
            "beresp.do_gzip" | "beresp.do_gunzip" => {
                self.note(stmt, Fate::NotCarried, "bodies are not compressed here");
            }
            "beresp.do_stream" => self.note(stmt, Fate::Nothing, "bodies are always streamed"),
            "beresp.do_esi" => self.note(stmt, Fate::NotCarried, "ESI is not processed"),
            "resp.reason" | "resp.status" => {
                self.note(stmt, Fate::NotCarried, "the status is the upstream's");
            }
            "req.hash_always_miss" | "req.hash_ignore_busy" => {
                self.note(stmt, Fate::NotCarried, "requests are always collapsed");
            }
            _ => self.note(stmt, Fate::NotCarried, "this variable is not known here"),
        }
    }

    fn unset(&mut self, stmt: &Stmt, what: &str, state: &mut State) {
        let of = |prefixes: [&str; 2]| {
            prefixes.iter().find_map(|prefix| what.strip_prefix(prefix)).map(str::to_owned)
        };
        if let Some(name) = of(["req.http.", "bereq.http."]) {
            if is_free(&name) {
                state.request.insert(name, None);
                return self.note(stmt, Fate::Carried, "");
            }
            return self.note(stmt, Fate::Nothing, "fields of one connection are never passed on");
        }
        if let Some(name) = of(["beresp.http.", "resp.http."]) {
            return match name.as_str() {
                "x-varnish" => self.note(stmt, Fate::Nothing, "there is no such field"),
                "via" => {
                    state.response.insert(name, None);
                    self.note(stmt, Fate::Carried, "");
                }
                "age" => self.note(stmt, Fate::NotCarried, "a stored response has its Age"),
                name if is_about_caching(name) && what.starts_with("resp.") => {
                    let text = "it would change stored responses, not only what clients see";
                    self.note(stmt, Fate::NotCarried, text);
                }
                name if is_free(name) => {
                    state.response.insert(name.to_owned(), None);
                    self.note(stmt, Fate::Carried, "");
                }
                _ => self.note(stmt, Fate::NotCarried, "this field cannot be changed"),
            };
        }
        self.note(stmt, Fate::NotCarried, "this variable is not known here");
    }

    fn other(&mut self, stmt: &Stmt, name: &str, words: &[Word], state: &mut State) {
        let first = words.iter().find_map(|word| match word {
            Word::Name(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        });
        match name {
            "hash_data" => match first.as_deref() {
                Some("req.url" | "req.http.host" | "server.ip") => {
                    self.note(stmt, Fate::Carried, "");
                }
                _ => {
                    state.store_unknown = true;
                    self.note(stmt, Fate::NotCarried, KEY);
                }
            },
            "std.log" | "std.syslog" | "std.collect" => {
                self.note(stmt, Fate::Nothing, "the access log is by request");
            }
            "synthetic" => {
                self.note(stmt, Fate::Different, "the body of an answer is its reason");
            }
            "ban" | "std.ban" => {
                self.note(stmt, Fate::NotCarried, "use `plimsoll purge` with a prefix or a tag");
            }
            _ => self.note(stmt, Fate::NotCarried, "this function is not known here"),
        }
    }
}

fn is_zero(value: &[Word]) -> bool {
    match value {
        [Word::Name(number)] => number.trim_end_matches(|c: char| c.is_ascii_alphabetic()) == "0",
        _ => false,
    }
}

fn is_free(name: &str) -> bool {
    let fixed = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "via",
    ];
    !name.is_empty() && !fixed.contains(&name)
}

fn is_about_caching(name: &str) -> bool {
    ["cache-control", "expires", "vary", "age", "date", "etag", "last-modified", "set-cookie"]
        .contains(&name)
}

/// How many comparisons a condition has.
fn comparisons(expr: &Expr) -> usize {
    match expr {
        Expr::Or(all) | Expr::And(all) => all.iter().map(comparisons).sum(),
        Expr::Not(inner) => comparisons(inner),
        Expr::Compare(..) | Expr::Is(_) | Expr::Unknown => 1,
    }
}

fn mentions(expr: &Expr, name: &str) -> bool {
    match expr {
        Expr::Or(all) | Expr::And(all) => all.iter().any(|one| mentions(one, name)),
        Expr::Not(inner) => mentions(inner, name),
        Expr::Compare(left, ..) | Expr::Is(left) => left == name,
        Expr::Unknown => false,
    }
}

fn truth(expr: &Expr, request: &Request, state: &mut State) -> Truth {
    match expr {
        Expr::Or(all) => {
            let mut known = Some(false);
            for one in all {
                match truth(one, request, state) {
                    Some(true) => return Some(true),
                    Some(false) => {}
                    None => known = None,
                }
            }
            known
        }
        Expr::And(all) => {
            let mut known = Some(true);
            for one in all {
                match truth(one, request, state) {
                    Some(false) => return Some(false),
                    Some(true) => {}
                    None => known = None,
                }
            }
            known
        }
        Expr::Not(inner) => truth(inner, request, state).map(|truth| !truth),
        Expr::Compare(left, sign, right) => compare(left, sign, right, request, state),
        Expr::Is(name) if name == "req.http.authorization" => Some(false),
        Expr::Is(name) if name == "req.http.host" => Some(true),
        // A field that was removed is not there.
        Expr::Is(name) => {
            let field = name.strip_prefix("req.http.")?;
            matches!(state.request.get(field), Some(None)).then_some(false)
        }
        Expr::Unknown => None,
    }
}

fn compare(left: &str, sign: &str, right: &Word, request: &Request, state: &mut State) -> Truth {
    let positive = matches!(sign, "==" | "~");
    let negative = matches!(sign, "!=" | "!~");
    if !positive && !negative {
        return None;
    }
    let is = match (left, right) {
        ("req.restarts" | "bereq.retries", Word::Name(zero)) if zero == "0" => Some(true),
        ("client.ip", Word::Name(list)) => {
            state.lists.insert(list.clone());
            request.client_inside
        }
        ("req.method" | "bereq.method", Word::Text(text)) => match sign {
            "==" | "!=" => Some(*text == request.method),
            _ => {
                let found = literal(text).filter(|found| found.whole)?;
                Some(found.texts.contains(&request.method))
            }
        },
        ("req.http.host" | "bereq.http.host", Word::Text(text)) => {
            let hosts = hosts(sign, text)?;
            Some(request.host.as_ref().is_some_and(|host| hosts.contains(host)))
        }
        ("req.url" | "bereq.url", Word::Text(text)) => {
            let paths = paths(sign, text)?;
            Some(paths.iter().any(|path| match (path, &request.path) {
                (Path::Exact(path), Path::Exact(own)) => path == own,
                (Path::Exact(_), Path::Prefix(_)) => false,
                (Path::Prefix(path), Path::Exact(own) | Path::Prefix(own)) => {
                    own.starts_with(path.as_str())
                }
            }))
        }
        _ => None,
    };
    is.map(|is| is == positive)
}

/// The hosts of a comparison; `None`: not a few names.
fn hosts(sign: &str, text: &str) -> Option<Vec<String>> {
    let names = match sign {
        "==" | "!=" => vec![text.to_owned()],
        // Names of hosts have no case.
        _ => literal(text.strip_prefix("(?i)").unwrap_or(text)).filter(|found| found.whole)?.texts,
    };
    let plain = |name: &String| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
            && !name.starts_with('.')
            && !name.ends_with('.')
    };
    let names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    names.iter().all(plain).then_some(names)
}

/// The paths of a comparison. A prefix must end with a slash, because those of routes are whole
/// segments.
fn paths(sign: &str, text: &str) -> Option<Vec<Path>> {
    let (texts, whole) = match sign {
        "==" | "!=" => (vec![text.to_owned()], true),
        _ => {
            let found = literal(text)?;
            (found.texts, found.whole)
        }
    };
    let path = |text: &String| {
        let plain = text.starts_with('/') && !text.contains(['?', '#', ' ', '%']);
        match whole {
            _ if !plain || text.contains("//") || text.contains("/.") => None,
            true => Some(Path::Exact(text.clone())),
            false if text.ends_with('/') => Some(Path::Prefix(text.clone())),
            false => None,
        }
    };
    texts.iter().map(path).collect()
}

/// What conditions name.
#[derive(Debug, Default)]
pub(crate) struct Named {
    pub(crate) hosts: BTreeSet<String>,
    pub(crate) paths: BTreeSet<Path>,
    pub(crate) methods: BTreeSet<String>,
}

/// The hosts, paths and methods that conditions name.
pub(crate) fn named(program: &Program) -> Named {
    let mut named = Named::default();
    let mut todo: Vec<&Stmt> = program.subs.iter().flat_map(|(_, body)| body).collect();
    let mut conditions: Vec<&Expr> = Vec::new();
    while let Some(stmt) = todo.pop() {
        if let Kind::If(arms) = &stmt.kind {
            conditions.extend(arms.iter().filter_map(|(condition, _)| condition.as_ref()));
            todo.extend(arms.iter().flat_map(|(_, body)| body));
        }
    }
    while let Some(condition) = conditions.pop() {
        match condition {
            Expr::Or(all) | Expr::And(all) => conditions.extend(all),
            Expr::Not(inner) => conditions.push(inner),
            Expr::Compare(left, sign, Word::Text(text)) => match left.as_str() {
                "req.http.host" | "bereq.http.host" => {
                    named.hosts.extend(hosts(sign, text).unwrap_or_default());
                }
                "req.url" | "bereq.url" => {
                    named.paths.extend(paths(sign, text).unwrap_or_default());
                }
                "req.method" | "bereq.method" if matches!(*sign, "==" | "!=") => {
                    named.methods.insert(text.clone());
                }
                "req.method" | "bereq.method" => {
                    let found = literal(text).map(|found| found.texts);
                    named.methods.extend(found.unwrap_or_default());
                }
                _ => {}
            },
            Expr::Compare(..) | Expr::Is(_) | Expr::Unknown => {}
        }
    }
    named
}
