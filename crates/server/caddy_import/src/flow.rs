//! What a site does with a request: the directives in Caddy's order, as a list of cases.
//!
//! A directive with a matcher splits the requests: the requests that meet the matcher are followed
//! to their end first, then the other requests. The first case whose conditions a request meets is
//! its case, so a condition never has to say that an earlier case does not apply.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use imported::cel::{self, Cel};
use imported::note::{Fate, Notes, Place};
use imported::route::{Action, Files};
use imported::table::Becomes::{self, Carried, Different, Left, Text, Unprotected};
use imported::table::is_one;

use crate::Caddy;
use crate::blocks::Directive;
use crate::fields::{self, Change};
use crate::matchers::{self, Found, Rewriting, Test};
use crate::proxy::{self, Auth};

/// Cases of a site, at most.
pub(crate) const CASES_MAX: usize = 100;
/// Lines of a site that set fields for a part of its requests, at most.
const RULED_MAX: usize = 256;
/// Conditions of a case, at most.
const TESTS_MAX: usize = 16;

/// Requests that meet these conditions and those of no case before.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) at: Place,
    pub(crate) tests: Vec<Test>,
    pub(crate) action: Action,
    pub(crate) state: State,
    /// A rule that keeps requests out is not carried.
    pub(crate) closed: bool,
}

impl Case {
    /// Whether a request can meet the conditions of both.
    pub(crate) fn meets(&self, other: &Case) -> bool {
        self.tests.iter().all(|one| other.tests.iter().all(|two| one.meets(two)))
    }
}

/// What the directives before have said.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    tests: Vec<Test>,
    pub(crate) way: Rewriting,
    root: Option<(String, Place)>,
    tries: Option<(Vec<String>, Place)>,
    pub(crate) request: Vec<Change>,
    pub(crate) response: Vec<Change>,
    pub(crate) body_max: Option<(u64, Place)>,
    pub(crate) auth: Option<Auth>,
    pub(crate) codes: bool,
    /// Files are programs.
    templates: bool,
}

/// Matchers with names.
type Named<'d> = Rc<BTreeMap<&'d str, &'d Directive>>;

/// A list of directives, and how far a request has come.
#[derive(Clone)]
struct Frame<'d> {
    list: Rc<[&'d Directive]>,
    next: usize,
    named: Named<'d>,
    /// Directives of which only the first that matches is used.
    taken: Vec<&'static str>,
}

/// What a directive does to a request.
enum Step<'d> {
    On,
    Enter(Frame<'d>),
    /// The same, for paths with a slash after the prefix.
    Below(Frame<'d>),
    End(Action),
}

struct Flow<'c> {
    caddy: &'c mut Caddy,
    found: Cases,
    /// There are too many cases.
    full: bool,
    site: Place,
    /// Directives that some request reaches.
    seen: BTreeSet<usize>,
}

/// What becomes of the requests of a site.
#[derive(Debug, Default)]
pub(crate) struct Cases {
    pub(crate) all: Vec<Case>,
    /// Changes to responses of all cases whose requests meet the conditions.
    pub(crate) ruled: Vec<Ruled>,
}

/// A `header` with a matcher.
#[derive(Debug)]
pub(crate) struct Ruled {
    pub(crate) at: Place,
    pub(crate) tests: Vec<Test>,
    pub(crate) changes: Vec<Change>,
}

/// The cases of a site. `None`: there are too many.
pub(crate) fn cases(
    all: &[Directive],
    tests: Vec<Test>,
    site: &Place,
    caddy: &mut Caddy,
) -> Option<Cases> {
    let (found, site, seen) = (Cases::default(), site.clone(), BTreeSet::new());
    let mut flow = Flow { caddy, found, full: false, site, seen };
    let frame = flow.frame(all, None, &Rewriting::Same, true);
    flow.walk(vec![frame], State { tests, ..State::default() });
    flow.unseen(all);
    (!flow.full).then_some(flow.found)
}

/// Directives of a site that are no handlers.
pub(crate) const OF_SITES: &str = "tls log bind handle_errors";

impl Flow<'_> {
    fn frame<'d>(
        &mut self,
        all: &'d [Directive],
        outer: Option<&Named<'d>>,
        way: &Rewriting,
        sorted: bool,
    ) -> Frame<'d> {
        let mut named = outer.map(|one| BTreeMap::clone(one)).unwrap_or_default();
        for one in all.iter().filter(|one| one.name.starts_with('@')) {
            named.insert(&one.name, one);
            self.caddy.notes.carried(&one.at);
            inside(one, Fate::Carried, "", &mut self.caddy.notes);
        }
        let named = Rc::new(named);
        let list: Vec<&Directive> = match sorted {
            true => self.caddy.order.sorted(all, |one| matcher(one, &named, way).0),
            false => all.iter().collect(),
        };
        let is_one = |one: &&&Directive| !one.name.starts_with('@');
        let list = list.iter().filter(is_one).copied().collect();
        Frame { list, next: 0, named, taken: Vec::new() }
    }

    fn walk<'d>(&mut self, mut frames: Vec<Frame<'d>>, mut state: State) {
        self.full |= state.tests.len() > TESTS_MAX;
        loop {
            self.full |= self.found.all.len() >= CASES_MAX;
            if self.full {
                return;
            }
            let is_outer = frames.len() == 1;
            let Some(frame) = frames.last_mut() else {
                // Caddy answers what no directive answers with an empty response.
                let action = Action::Answer { status: 200, body: String::new() };
                let at = self.site.clone();
                return self.case(&at, action, state, false);
            };
            let Some(one) = frame.list.get(frame.next).copied() else {
                frames.pop();
                continue;
            };
            frame.next += 1;
            let group = group(&one.name);
            if frame.taken.contains(&group) || is_outer && is_one(OF_SITES, &one.name) {
                continue;
            }
            let named = Rc::clone(&frame.named);
            let (found, skip) = self.matched(one, &named, &state);
            self.seen.insert(one.at.id());
            self.named(one, &named, &found);
            if found.never {
                self.caddy.notes.nothing(&one.at, "no request comes here");
                continue;
            }
            let changed = &mut state.clone();
            changed
                .tests
                .extend(found.tests.iter().filter(|test| !state.tests.contains(test)).cloned());
            let is_apart =
                found.tests.iter().any(|test| state.tests.iter().any(|own| !own.meets(test)));
            if is_apart {
                continue;
            }
            if !found.why.is_empty() {
                // Which requests it is for is not known.
                let is_harmless =
                    is_one("header encode request_body push tracing map vars", &one.name);
                let why = format!("its matcher is not carried: {}", found.why);
                let fate = if is_harmless { Fate::NotCarried } else { Fate::Unprotected };
                self.caddy.notes.add(&one.at, fate, why);
                inside(one, fate, "its matcher is not carried", &mut self.caddy.notes);
                if is_harmless || self.caddy.open {
                    continue;
                }
                let is_all = changed.tests.len() == state.tests.len();
                self.case(&one.at, Action::NotCarried, changed.clone(), true);
                if is_all { return } else { continue }
            }
            let is_split = changed.tests.len() > state.tests.len();
            if is_split && one.name == "header" && is_outer && !self.caddy.is_reordered {
                self.ruled(one, skip, found.tests);
                continue;
            }
            let place = (one, skip, found.prefix.as_deref());
            let step = self.step(place, &named, changed);
            let changed = changed.clone();
            match (step, is_split) {
                (Step::End(action), true) => self.case(&one.at, action, changed, false),
                (Step::End(action), false) => return self.case(&one.at, action, changed, false),
                (Step::On, false) => state = changed,
                (Step::Below(inner), _) => {
                    // The other requests of the matcher would get another path.
                    let mut rest = frames.clone();
                    take(&mut rest, group);
                    rest.push(inner);
                    let left = State { tests: changed.tests.clone(), ..state.clone() };
                    let mut below = changed;
                    let prefix = found.prefix.clone().unwrap_or_default() + "/*";
                    below.tests.extend(matchers::paths(&[prefix], &state.way).tests);
                    self.walk(rest, below);
                    self.case(&one.at, Action::NotCarried, left, false);
                    continue;
                }
                (Step::Enter(inner), false) => {
                    take(&mut frames, group);
                    frames.push(inner);
                    state = changed;
                    continue;
                }
                (step, true) => {
                    let same = changed.is_same(&state);
                    let mut rest = frames.clone();
                    take(&mut rest, group);
                    match step {
                        Step::Enter(inner) => rest.push(inner),
                        _ if same => continue,
                        _ => {}
                    }
                    self.walk(rest, changed);
                    continue;
                }
            }
            if !is_split {
                take(&mut frames, group);
            }
        }
    }

    /// The matcher of a directive. Files that are tried change the path.
    fn matched(&mut self, one: &Directive, named: &Named<'_>, state: &State) -> (Found, usize) {
        let found = matcher(one, named, &state.way);
        let Some((tries, _)) = &state.tries else { return found };
        let is_fixed = tries.iter().any(|word| !word.starts_with("{path}"));
        let is_below = found.0.prefix.as_ref().is_some_and(|prefix| prefix.ends_with('/'));
        match is_fixed || !is_below {
            true => matcher(one, named, &Rewriting::Unknown),
            false => found,
        }
    }

    /// A `header` with a matcher, for all requests of a site.
    fn ruled(&mut self, one: &Directive, skip: usize, tests: Vec<Test>) {
        if self.found.ruled.iter().any(|other| other.at == one.at) {
            return;
        }
        if self.found.ruled.len() >= RULED_MAX {
            let why = "a site has fewer such lines";
            inside(one, Fate::NotCarried, why, &mut self.caddy.notes);
            return self.caddy.notes.left(&one.at, why);
        }
        let (changes, notes) = fields::of(one, skip);
        notes.iter().for_each(|(at, becomes)| self.caddy.notes.became(at, becomes));
        self.caddy.notes.carried(&one.at);
        if !changes.is_empty() {
            self.found.ruled.push(Ruled { at: one.at.clone(), tests, changes });
        }
    }

    /// Directives that no request reaches.
    fn unseen(&mut self, all: &[Directive]) {
        for one in all {
            let is_list = matches!(one.name.as_str(), "handle" | "handle_path" | "route");
            match self.seen.contains(&one.at.id()) {
                true if is_list => self.unseen(&one.inner),
                true => {}
                false if one.name.starts_with('@') || is_one(OF_SITES, &one.name) => {}
                false => {
                    let (fate, why) = (Fate::Nothing, "no request reaches it");
                    self.caddy.notes.add(&one.at, fate, why);
                    inside(one, fate, why, &mut self.caddy.notes);
                }
            }
        }
    }

    fn case(&mut self, at: &Place, action: Action, state: State, closed: bool) {
        let tests = state.tests.clone();
        // A request that meets all of these has met an earlier case.
        let is_hidden = |one: &Case| one.tests.iter().all(|test| tests.contains(test));
        if !self.found.all.iter().any(is_hidden) {
            self.found.all.push(Case { at: at.clone(), tests, action, state, closed });
        }
    }

    /// The note of the matcher with a name.
    fn named(&mut self, one: &Directive, named: &Named<'_>, found: &Found) {
        let Some(line) = named.get(one.word(0)) else { return };
        let becomes = match found.why.is_empty() {
            true => Carried,
            false => Text(Fate::NotCarried, found.why.clone()),
        };
        self.caddy.notes.became(&line.at, &becomes);
        let (fate, why) = becomes.parts().unwrap_or((Fate::Carried, ""));
        inside(line, fate, why, &mut self.caddy.notes);
    }

    fn step<'d>(
        &mut self,
        (one, skip, prefix): (&'d Directive, usize, Option<&str>),
        named: &Named<'d>,
        state: &mut State,
    ) -> Step<'d> {
        let words = one.words.get(skip..).unwrap_or_default();
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let mut end = None;
        let becomes = match one.name.as_str() {
            "handle" | "route" | "handle_path" => {
                self.caddy.notes.carried(&one.at);
                let is_below =
                    one.name == "handle_path" && prefix.is_some_and(|p| !p.ends_with('/'));
                match prefix.filter(|_| one.name == "handle_path") {
                    Some(prefix) => state.strip(prefix.trim_end_matches('/').to_owned()),
                    None if one.name == "handle_path" => {
                        state.way = Rewriting::Fixed("/".to_owned())
                    }
                    None => {}
                }
                let frame = self.frame(&one.inner, Some(named), &state.way, one.name != "route");
                if is_below {
                    let why =
                        "only paths with a slash after the prefix; others are answered with 501";
                    self.caddy.notes.different(&one.at, why);
                    return Step::Below(frame);
                }
                return Step::Enter(frame);
            }
            "root" => {
                state.root = Some((word(0).to_owned(), one.at.clone()));
                Carried
            }
            "header" => {
                let (changes, notes) = fields::of(one, skip);
                notes.iter().for_each(|(at, becomes)| self.caddy.notes.became(at, becomes));
                match fields::join(&mut state.response, &changes) {
                    true => Carried,
                    false => Left("a route changes fewer fields"),
                }
            }
            "request_header" => {
                let changed = fields::change(words, &one.at);
                match changed.map(|change| fields::join(&mut state.request, &[change])) {
                    Ok(true) => Carried,
                    Ok(false) | Err(_) => Unprotected("this change of a field is not carried"),
                }
            }
            "request_body" => {
                for line in &one.inner {
                    match size(line.word(0)).filter(|_| line.name == "max_size") {
                        Some(size) => {
                            state.body_max = Some((size, line.at.clone()));
                            self.caddy.notes.carried(&line.at);
                        }
                        None => self.caddy.notes.left(&line.at, "the size is not known here"),
                    }
                }
                Carried
            }
            "redir" => {
                let (action, becomes) = redirect(words, &state.way);
                end = Some(action);
                becomes
            }
            "respond" | "error" => {
                let (action, becomes, json) = respond(one, words);
                if json && let Ok(change) = fields::change(&json_type(), &one.at) {
                    state.response.insert(0, change);
                }
                one.inner.iter().for_each(|line| match line.name.as_str() {
                    "body" => self.caddy.notes.carried(&line.at),
                    _ => self.caddy.notes.left(&line.at, "the connection stays open"),
                });
                end = Some(action);
                becomes
            }
            "abort" => {
                let body = "closed\n".to_owned();
                end = Some(Action::Answer { status: 403, body });
                Different("the request is answered with 403, and its connection stays open")
            }
            "rewrite" if words.len() == 1 => match rewritten(word(0), &state.way) {
                Some(way) => {
                    state.way = way;
                    Carried
                }
                None => {
                    state.way = Rewriting::Unknown;
                    Left("its requests are answered with 501")
                }
            },
            "uri" if word(0) == "strip_prefix" && word(1).starts_with('/') => {
                let text = word(1).trim_end_matches('/');
                match state.begins_with(text) {
                    true => {
                        state.strip(text.to_owned());
                        Carried
                    }
                    false => {
                        state.way = Rewriting::Unknown;
                        Left("not all of its requests have this prefix: answered with 501")
                    }
                }
            }
            "uri" | "rewrite" | "method" => {
                state.way = Rewriting::Unknown;
                Left("its requests are answered with 501")
            }
            "try_files" => {
                state.tries = Some((words.to_vec(), one.at.clone()));
                one.inner.iter().for_each(|line| self.caddy.notes.left(&line.at, "not known here"));
                match one.inner.is_empty() {
                    true => Carried,
                    false => {
                        state.tries = Some((Vec::new(), one.at.clone()));
                        Left("its requests are answered with 501")
                    }
                }
            }
            "encode" => {
                state.codes = true;
                self.caddy.encode(one, words)
            }
            "templates" => {
                state.templates = true;
                inside(one, Fate::NotCarried, "files are no programs", &mut self.caddy.notes);
                Left("files are no programs; they are answered with 501")
            }
            "basicauth" | "basic_auth" => {
                inside(one, Fate::Unprotected, PASSWORDS, &mut self.caddy.notes);
                if !self.caddy.open {
                    self.caddy.notes.unprotected(&one.at, PASSWORDS);
                    self.case(&one.at, Action::NotCarried, state.clone(), true);
                    return Step::End(Action::NotCarried);
                }
                Unprotected(PASSWORDS)
            }
            "forward_auth" => match self.caddy.forward_auth(one, words) {
                Some(auth) if state.auth.is_none() => {
                    state.auth = Some(auth);
                    Different("the service gets Authorization and Cookie, and no other fields")
                }
                _ => {
                    inside(one, Fate::Unprotected, NO_AUTH, &mut self.caddy.notes);
                    self.caddy.notes.unprotected(&one.at, NO_AUTH);
                    if !self.caddy.open {
                        self.case(&one.at, Action::NotCarried, state.clone(), true);
                        return Step::End(Action::NotCarried);
                    }
                    Unprotected(NO_AUTH)
                }
            },
            "reverse_proxy" => {
                let (action, becomes) = self.proxied(one, words, state);
                end = Some(action);
                becomes
            }
            "file_server" => match self.files(one, words, state) {
                Ok((files, becomes)) => {
                    end = Some(Action::Files(Box::new(files), None));
                    becomes
                }
                Err(why) => {
                    inside(
                        one,
                        Fate::NotCarried,
                        "its files are not carried",
                        &mut self.caddy.notes,
                    );
                    end = Some(Action::NotCarried);
                    Text(Fate::NotCarried, format!("{why}; its requests are answered with 501"))
                }
            },
            "php_fastcgi" | "metrics" | "acme_server" | "php_server" => {
                inside(one, Fate::NotCarried, NO_HANDLER, &mut self.caddy.notes);
                end = Some(Action::NotCarried);
                Left(NO_HANDLER)
            }
            "map" | "vars" | "tracing" | "push" | "log_append" | "skip_log" | "log_skip"
            | "log" | "log_name" => {
                let why = "it has no counterpart, and decides about no request by itself";
                inside(one, Fate::NotCarried, why, &mut self.caddy.notes);
                Left(why)
            }
            _ => {
                let why = "this directive is not known here, so its requests are closed";
                inside(one, Fate::Unprotected, why, &mut self.caddy.notes);
                self.caddy.notes.unprotected(&one.at, why);
                if !self.caddy.open {
                    self.case(&one.at, Action::NotCarried, state.clone(), true);
                    return Step::End(Action::NotCarried);
                }
                Unprotected(why)
            }
        };
        self.caddy.notes.became(&one.at, &becomes);
        match end {
            Some(action) => Step::End(state.unless_lost(action)),
            None => Step::On,
        }
    }

    fn proxied(
        &mut self,
        one: &Directive,
        words: &[String],
        state: &mut State,
    ) -> (Action, Becomes) {
        let found = proxy::of(one, words, self.caddy);
        let proxy = match found {
            Ok(proxy) => proxy,
            Err(why) => {
                let text = format!("{why}; its requests are answered with 501");
                return (Action::NotCarried, Text(Fate::NotCarried, text));
            }
        };
        if let Some(line) = &proxy.rewrite {
            state.way = rewritten(line.word(0), &state.way).unwrap_or(Rewriting::Unknown);
        }
        let is_room = fields::join(&mut state.request, &proxy.request);
        let is_room = fields::join(&mut state.response, &proxy.response) && is_room;
        if state.tries.is_some() || !is_room {
            let text = "files decide which requests come here; they are answered with 501";
            return (Action::NotCarried, Left(text));
        }
        if state.way == Rewriting::Unknown {
            return (Action::NotCarried, Left("its path is not known; answered with 501"));
        }
        (Action::Upstream(proxy.name), Carried)
    }

    fn files(
        &mut self,
        one: &Directive,
        words: &[String],
        state: &State,
    ) -> Result<(Files, Becomes), String> {
        let mut root = state.root.as_ref().map(|(text, _)| text.clone());
        let mut files = Files {
            index: Some(vec!["index.html".into(), "index.txt".into()]),
            ..Files::default()
        };
        let mut hides = Vec::new();
        let mut browses = words.iter().any(|word| word == "browse");
        for line in &one.inner {
            let becomes = match line.name.as_str() {
                "root" => {
                    root = Some(line.word(0).to_owned());
                    Carried
                }
                "index" if line.words.iter().all(|word| !word.contains(['/', '{'])) => {
                    files.index = Some(line.words.clone());
                    Carried
                }
                "hide" => {
                    hides.extend(line.words.iter().cloned());
                    Carried
                }
                "precompressed" => {
                    files.precompressed = true;
                    Different("files with the endings .br, .zst and .gz are sent")
                }
                "browse" => {
                    browses = true;
                    Left(NO_LISTING)
                }
                "disable_canonical_uris" => Left("a directory is redirected to its slash"),
                _ => return Err(format!("its {} is not known here", line.name)),
            };
            self.caddy.notes.became(&line.at, &becomes);
        }
        let root = root.ok_or("no directory is named")?;
        if !root.starts_with('/') || root.contains('{') {
            return Err("the directory is not a fixed absolute path".to_owned());
        }
        files.root = match root.trim_end_matches('/') {
            "" => "/".to_owned(),
            text => text.to_owned(),
        };
        match &state.way {
            Rewriting::Same => {}
            Rewriting::Stripped(_) => files.alias = true,
            _ => return Err("its path was changed before".to_owned()),
        }
        if let Some((tries, _)) = &state.tries {
            files.tries =
                tried(tries).ok_or("a path of try_files is not {path} with an ending, or fixed")?;
            if files.alias && !files.tries.is_empty() {
                return Err("its path was changed before".to_owned());
            }
        }
        for hidden in hides {
            self.hide(&one.at, &hidden, state)?;
        }
        let becomes = match browses {
            true => Left(NO_LISTING),
            false => Different(DIFFERENCE),
        };
        Ok((files, becomes))
    }

    /// Requests for hidden files are answered with 404.
    fn hide(&mut self, at: &Place, text: &str, state: &State) -> Result<(), String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.*".contains(&b);
        let is_known = !text.is_empty() && text.bytes().all(plain) && state.way == Rewriting::Same;
        let name = text.replace('.', r"\.").replace('*', "[^/]*");
        let cel = cel::matches("path", &format!("/{name}(/|$)")).filter(|_| is_known);
        let cel: Cel = cel.ok_or_else(|| format!("the hidden {text} is not known here"))?;
        let mut hidden = state.clone();
        hidden.tests.push(Test::of(cel));
        let body = String::new();
        self.case(at, Action::Answer { status: 404, body }, hidden, false);
        Ok(())
    }
}

const PASSWORDS: &str = "passwords are in a file of their own: write its names and bcrypt hashes, \
                         one NAME:HASH a line, and name the file in route.users";
const NO_AUTH: &str = "this service is not carried: write [route.auth]";
const NO_HANDLER: &str = "its requests are answered with 501: no such program is spoken with";
const NO_LISTING: &str = "directories are not listed";
/// How our files differ from Caddy's.
const DIFFERENCE: &str = "content types and tags are ours, methods other than GET and HEAD get \
                          404, a file with a slash at its end is not redirected, and no link leads \
                          out of the directory";

impl State {
    /// Takes a prefix off the path. All requests have it, with a slash after it.
    fn strip(&mut self, prefix: String) {
        self.way = match &self.way {
            _ if prefix.is_empty() => return,
            Rewriting::Same => Rewriting::Stripped(prefix),
            Rewriting::Stripped(before) => Rewriting::Stripped(before.clone() + &prefix),
            _ => Rewriting::Unknown,
        };
    }

    /// Whether the conditions say that all of its requests have this prefix and a slash after it.
    fn begins_with(&self, prefix: &str) -> bool {
        let text = format!(".startsWith('{}/", prefix.to_ascii_lowercase());
        let is_it =
            |test: &Test| test.cel.text().contains(&text) && !test.cel.text().contains("||");
        self.way == Rewriting::Same && self.tests.iter().any(is_it)
    }

    /// Whether a request goes on as with the other state.
    fn is_same(&self, other: &State) -> bool {
        self.way == other.way
            && self.root == other.root
            && self.tries == other.tries
            && self.request == other.request
            && self.response == other.response
            && self.body_max == other.body_max
            && self.auth == other.auth
            && self.codes == other.codes
            && self.templates == other.templates
    }

    /// The action, unless something before it is not carried.
    fn unless_lost(&self, action: Action) -> Action {
        let serves = matches!(action, Action::Files(..));
        match serves && self.templates {
            true => Action::NotCarried,
            false => action,
        }
    }
}

/// No other directive of the group is used in the innermost list.
fn take(frames: &mut [Frame<'_>], group: &'static str) {
    if let Some(frame) = frames.last_mut().filter(|_| !group.is_empty()) {
        frame.taken.push(group);
    }
}

fn group(name: &str) -> &'static str {
    match name {
        "handle" | "handle_path" => "handle",
        "rewrite" => "rewrite",
        "root" => "root",
        _ => "",
    }
}

/// The matcher of a directive, and how many words it has.
fn matcher(one: &Directive, named: &BTreeMap<&str, &Directive>, way: &Rewriting) -> (Found, usize) {
    let first = one.word(0);
    let count = one.words.len();
    let is_own = match one.name.as_str() {
        // A path alone is what they are for.
        "root" | "rewrite" | "try_files" | "method" => count == 1,
        name => is_one(OF_SITES, name),
    };
    if is_own {
        return (Found::default(), 0);
    }
    match first {
        "*" => (Found::default(), 1),
        _ if first.starts_with('/') => (matchers::paths(&[first.to_owned()], way), 1),
        _ if first.starts_with('@') => {
            let found = match named.get(first) {
                Some(line) => match line.words.split_first() {
                    Some((name, words)) => {
                        let (name, words, inner) =
                            (name.clone(), words.to_vec(), line.inner.clone());
                        let at = line.at.clone();
                        matchers::block(&[Directive { at, name, words, inner }], way)
                    }
                    None => matchers::block(&line.inner, way),
                },
                None => Found { why: format!("there is no matcher {first}"), ..Found::default() },
            };
            (found, 1)
        }
        _ => (Found::default(), 0),
    }
}

/// The notes of all that is inside a directive.
pub(crate) fn inside(one: &Directive, fate: Fate, why: &str, notes: &mut Notes) {
    for line in &one.inner {
        notes.add(&line.at, fate, why);
        inside(line, fate, why, notes);
    }
}

/// `redir TO [STATUS]`
fn redirect(words: &[String], way: &Rewriting) -> (Action, Becomes) {
    let status = match words.get(1).map_or("", String::as_str) {
        "" | "temporary" => Some(302),
        "permanent" => Some(301),
        text => text.parse().ok(),
    };
    let to = words.first().map_or("", String::as_str);
    let ends = ["{uri}", "{http.request.uri}"];
    let bare = ends.iter().find_map(|end| to.strip_suffix(end));
    let with_path = bare.is_some();
    let target = bare.unwrap_or(to);
    let is_plain = !to.contains('{') || *way == Rewriting::Same;
    let found = fields::value_of(target).filter(|_| is_plain).and_then(|target| {
        let has_query = with_path && target.contains('?') || target.contains("{uri}");
        // A host alone is a path for Caddy, too.
        let target = if target.is_empty() && with_path { None } else { Some(target) };
        target.filter(|_| !has_query).and_then(|to| Action::redirect(status?, to, with_path, ""))
    });
    match found {
        Some(action) => (action, Carried),
        None => {
            let why = "its status or its URL is not known here; answered with 501";
            (Action::NotCarried, Left(why))
        }
    }
}

/// `respond [TEXT] [STATUS]` and `error [MESSAGE] [STATUS]`, and whether the text is JSON.
fn respond(one: &Directive, words: &[String]) -> (Action, Becomes, bool) {
    let is_error = one.name == "error";
    let status_of = |text: &str| text.parse::<u64>().ok().filter(|n| (200..=599).contains(n));
    let mut body = String::new();
    let mut status = Some(if is_error { 500 } else { 200 });
    match words {
        [] => {}
        [text] => match status_of(text).filter(|_| text.len() == 3) {
            Some(one) => status = Some(one),
            None => body.clone_from(text),
        },
        [text, code, ..] => {
            body.clone_from(text);
            status = status_of(code);
        }
    }
    if let Some(line) = one.inner.iter().find(|line| line.name == "body") {
        line.word(0).clone_into(&mut body);
    }
    if is_error {
        body.clear();
    }
    let is_plain = fields::value_of(&body.replace(['\n', '\t'], " "))
        .is_some_and(|own| own == body.replace(['\n', '\t'], " "));
    let text = body.trim();
    let is_json =
        text.starts_with(['{', '[']) && serde_json::from_str::<serde_json::Value>(text).is_ok();
    match status.filter(|_| is_plain) {
        Some(status) => (Action::Answer { status, body }, Carried, is_json),
        None => {
            let why = "its status or a placeholder is not known here; answered with 501";
            (Action::NotCarried, Left(why), false)
        }
    }
}

fn json_type() -> [String; 2] {
    ["Content-Type".to_owned(), "application/json".to_owned()]
}

/// The way after `rewrite TO`. `None`: our file cannot say it.
fn rewritten(to: &str, way: &Rewriting) -> Option<Rewriting> {
    let is_same = *way == Rewriting::Same;
    match to {
        "{uri}" | "{path}" => return Some(way.clone()),
        _ => {}
    }
    if let Some(text) = to.strip_suffix("{uri}").or(to.strip_suffix("{path}{?query}")) {
        let fits = is_same && text.starts_with('/') && !text.contains(['{', '?', '#']);
        return fits.then(|| Rewriting::Added(text.trim_end_matches('/').to_owned()));
    }
    // The query of the request stays in our file, and in Caddy if the new path has none.
    let fits = to.starts_with('/') && !to.contains(['{', '?', '#', '%']);
    fits.then(|| Rewriting::Fixed(to.to_owned()))
}

/// The paths that are tried after the path itself.
fn tried(words: &[String]) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for word in words {
        let word = word.replace("{http.request.uri.path}", "{path}");
        let word = word.replace("{uri}", "{path}");
        let is_fixed = |text: &str| !text.contains(['{', '?', '*']);
        match word.strip_prefix("{path}") {
            Some("" | "/") => {}
            Some(end) if is_fixed(end) => all.push(word.clone()),
            None if word.starts_with('/') && is_fixed(&word) => all.push(word.clone()),
            _ => return None,
        }
    }
    (!words.is_empty()).then_some(all)
}

/// A number of bytes: `10MB`, `10MiB`.
fn size(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}
