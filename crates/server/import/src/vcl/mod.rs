//! VCL: a program, which is run for each host and path that it names; see [`eval`].

mod backends;
mod conditions;
mod doubts;
mod eval;
mod lexer;
mod parser;
mod state;
mod store;
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use self::conditions::{Named, named};
use self::eval::Runner;
use self::lexer::Word;
use self::parser::{Kind, Program, Stmt, parse};
use self::state::{End, PRIVATE, Request, State};
use crate::SyntaxError;
use crate::input::Input;
use crate::limits::ROUTES_MAX;
use crate::note::{Fate, Notes, Place};
use crate::route::{Action, Keys, Path, add, change};
use crate::tree::{Section, Tree, Value};

/// Where the listener is put: VCL does not say, and other machines must not reach it by mistake.
const ADDRESS: &str = "127.0.0.1:6081";

/// Imports a text.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub(crate) fn import(
    file: &Rc<str>,
    text: &str,
    open: bool,
    input: &mut Input<'_>,
) -> Result<(Tree, Notes), SyntaxError> {
    let mut program = Program::default();
    parse(file, text, input, &mut program)?;
    let (mut tree, mut notes) = (Tree::default(), std::mem::take(&mut input.notes));
    let at = Place::new(file, 1);
    let forwards = !eval::replaces_forwarded(&program);
    let names = backends::upstreams(&program, forwards, &mut tree, &mut notes);
    backends::init_notes(&program, &names, &mut notes);
    let mut listen = Section::new("listen");
    listen.set_for("address", ADDRESS, "not in VCL: see -a of varnishd");
    tree.add(listen);
    let text = "addresses and sizes are flags of varnishd (-a, -s): write them into [[listen]] \
                and [store]; the listener is on loopback only";
    notes.other(&at, "varnishd", Fate::Different, text);
    let redirects = redirects(&program);
    let named = named(&program);
    let mut methods = named.methods.clone();
    methods.extend(["HEAD", "POST", "DELETE"].map(str::to_owned));
    // These are orders to Varnish; what the program does with them is not what clients see.
    for order in ["GET", "PURGE", "BAN", "REFRESH"] {
        methods.remove(order);
    }
    let mut run = Run {
        program: &program,
        runner: Runner::new(&program, redirects.keys().copied().collect(), &names, forwards),
        forwards,
        redirects,
        methods,
        names,
        with_queries: BTreeSet::new(),
        open,
        codes: None,
        at: at.clone(),
    };
    let Named { hosts, mut paths, .. } = named;
    let root = Path::root();
    paths.remove(&root);
    if (hosts.len() + 1) * (paths.len() + 1) > ROUTES_MAX {
        let text = format!("hosts and paths make more than {ROUTES_MAX} routes");
        return Err(SyntaxError::at(&at, text));
    }
    let hosts: Vec<Option<String>> =
        [None].into_iter().chain(hosts.into_iter().map(Some)).collect();
    let paths: Vec<Path> = [root].into_iter().chain(paths).collect();
    for route in run.routes(&hosts, &paths, &at)? {
        tree.add(route);
    }
    run.compression(&mut tree);
    let from = run.purgers(&hosts, &paths, &mut notes);
    tree.section("purge").set_for("from", from, "who may PURGE, by vcl_recv");
    if run.removes_via() {
        tree.section("via").set_for("responses", false, "unset resp.http.Via");
    }
    run.notes(&mut notes);
    Ok((tree, notes))
}

struct Run<'p> {
    program: &'p Program,
    runner: Runner<'p>,
    /// Statuses of `synth` that `vcl_synth` makes redirects of, and the status that is sent.
    redirects: BTreeMap<u64, (u64, Vec<usize>)>,
    /// Methods that are tried besides GET.
    methods: BTreeSet<String>,
    names: Vec<String>,
    /// Upstreams are sent X-Forwarded-For.
    forwards: bool,
    /// Paths that are open without a query, and refused with one.
    with_queries: BTreeSet<String>,
    open: bool,
    /// Types of responses that are coded, if some are; empty: all that can be.
    codes: Option<Vec<String>>,
    at: Place,
}

/// What a cell becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    action: Action,
    store: bool,
    request: BTreeMap<String, Option<String>>,
    response: BTreeMap<String, Option<String>>,
    keys: Keys,
    codes: bool,
    closed: bool,
}

impl Cell {
    fn refuses(&self) -> bool {
        matches!(self.action, Action::Answer { status: 400.., .. } | Action::NotCarried)
    }
}

impl Run<'_> {
    fn compression(&self, tree: &mut Tree) {
        if let Some(types) = &self.codes {
            let section = tree.section("compression");
            let from = "beresp.do_gzip";
            section.set_for("codings", vec!["gzip".to_owned()], from);
            section.set_for("bytes_min", Value::Bytes(0), "Varnish codes any length");
            if !types.is_empty() {
                section.set_for("types", types.clone(), from);
            }
        }
    }

    /// The routes of all cells that differ from the cell that their requests would find otherwise.
    fn routes(
        &mut self,
        hosts: &[Option<String>],
        paths: &[Path],
        at: &Place,
    ) -> Result<Vec<Section>, SyntaxError> {
        let mut routes = Vec::new();
        let mut of_any: BTreeMap<Path, Cell> = BTreeMap::new();
        let mut found: Vec<(Option<String>, BTreeMap<Path, Cell>)> = Vec::new();
        for host in hosts {
            let mut of_host: BTreeMap<Path, Cell> = BTreeMap::new();
            for path in paths {
                let mut cell = self.cell(host.as_deref(), path);
                // The program compares a path with its query: with one, it is not this path.
                if let Path::Exact(text) = path
                    && above(&of_host, path).is_some_and(Cell::refuses)
                    && !cell.refuses()
                {
                    cell.closed |= !self.open;
                    self.with_queries.insert(text.clone());
                }
                of_host.insert(path.clone(), cell);
            }
            if self.runner.is_exhausted() {
                return Err(SyntaxError::at(at, "the program has too many cases"));
            }
            // Without a difference the requests of this host go to the routes for any host.
            if host.is_none() || of_host != of_any {
                found.push((host.clone(), of_host.clone()));
            }
            if host.is_none() {
                of_any = of_host;
            }
        }
        // Whether some cell codes its responses must be known for all.
        for (host, cells) in &found {
            for (path, cell) in cells {
                // The captures of a redirect are those of its path.
                let is_new = |above: &Cell| above != cell || matches!(path, Path::Pattern(_));
                if *path == paths[0] || above(cells, path).is_none_or(is_new) {
                    routes.push(self.route(host.as_deref(), path, cell));
                }
            }
        }
        Ok(routes)
    }

    /// Runs the program for a request of each method. A route has all methods, so where they differ
    /// it does what opens and stores the least.
    fn cell(&mut self, host: Option<&str>, path: &Path) -> Cell {
        let request = |method: &str| Request {
            host: host.map(str::to_owned),
            path: path.clone(),
            method: method.to_owned(),
            client_inside: None,
        };
        let mut state = self.runner.run(&request("GET"));
        let answers = |state: &State| matches!(state.end, Some(End::Synth(..) | End::Purge));
        for method in self.methods.clone() {
            let other = self.runner.run(&request(&method));
            let mut differs = None;
            let mut close = |text| differs = Some((Fate::Unprotected, text));
            if answers(&state) {
                // All methods get this answer.
            } else if answers(&other) {
                close("requests of some methods are answered here, and routes have all methods");
            } else if self.backend(&other) != self.backend(&state) {
                close("requests of some methods go elsewhere, and routes have all methods");
            } else if method == "HEAD" && passes(&other) && !passes(&state) {
                state.uncacheable = true;
                differs = Some((Fate::NotCarried, METHODS));
            }
            if !answers(&state) && !answers(&other) {
                for name in different(&state.request, &other.request) {
                    differs = differs.or(Some((Fate::NotCarried, METHODS)));
                    state.store_unknown = true;
                    match PRIVATE.contains(&name.as_str()) {
                        true => state.request.remove(&name),
                        false => state.request.insert(name, None),
                    };
                }
                for name in different(&state.response, &other.response) {
                    differs = differs.or(Some((Fate::NotCarried, METHODS)));
                    state.response.remove(&name);
                }
            }
            if let Some((fate, why)) = differs {
                state.unprotected |= fate == Fate::Unprotected;
                for id in state.ran.symmetric_difference(&other.ran) {
                    self.runner.note_id(*id, fate, why);
                }
            }
            state.unprotected |= other.unprotected;
        }
        // Varnish passes a request that has one of these, unless the program says otherwise.
        let passes_cookies = state.keys.bypass.iter().any(|name| name == "*");
        let is_absent = |name: &&str| state.lacks(name) || *name == "cookie" && passes_cookies;
        let is_anonymous = PRIVATE.iter().all(is_absent);
        let explicit = state.end == Some(End::Hash);
        let mut store = (explicit || is_anonymous)
            && !state.store_unknown
            && !passes(&state)
            && state.keys.fits();
        // Varnish has read these before the program changes them. A lifetime for all responses
        // replaces what they say.
        let is_changed = |name: &&str| state.response.contains_key(*name);
        let has_lifetime =
            state.keys.lifetimes.iter().any(|one| eval::is_usual(one) && one.ttl.is_some());
        if OF_LIFETIMES.iter().any(is_changed) && !has_lifetime {
            store = false;
        }
        if !self.forwards {
            state.request.insert("x-forwarded-for".to_owned(), None);
        }
        let action = self.action(&state, &request("GET"));
        if let Some(types) = state.codes.as_ref().filter(|_| store) {
            let all = self.codes.get_or_insert_with(|| types.clone());
            // An empty list is all types.
            match types.is_empty() {
                true => all.clear(),
                false if all.is_empty() => {}
                false => types.iter().for_each(|kind| add(all, kind.as_str())),
            }
        }
        Cell {
            action,
            store,
            request: state.request,
            response: state.response,
            keys: state.keys,
            codes: state.codes.is_some(),
            closed: (state.unprotected || self.program.unreadable) && !self.open,
        }
    }

    /// The upstream of a request, if it is one.
    fn backend(&self, state: &State) -> Option<String> {
        let first = || self.program.blocks.iter().find(|block| block.kind == "backend");
        let usual = self.program.block("backend", "default").or_else(first);
        let name = state.backend.as_ref().or(usual.map(|block| &block.name))?;
        self.names.contains(name).then(|| name.clone())
    }

    /// The answer that the program gives itself, or the upstream.
    fn action(&self, state: &State, request: &Request) -> Action {
        let Some(End::Synth(status, reason)) = &state.end else {
            return self.backend(state).map_or(Action::NotCarried, Action::Upstream);
        };
        if let Some((sent, _)) = self.redirects.get(status) {
            let own = request.host.as_deref().filter(|host| host.starts_with('{'));
            let own = own.and_then(|host| host.split('.').next()).unwrap_or_default();
            let found = texts::text_of(reason, request).filter(|_| !state.is_rewritten());
            let action = found.and_then(|(to, path)| Action::redirect(*sent, to, path, own));
            return action.unwrap_or(Action::NotCarried);
        }
        if !(200..=599).contains(status) || matches!(status, 204 | 304) {
            return Action::NotCarried;
        }
        let text = match &reason[..] {
            [Word::Text(text)] if !text.is_empty() => text.clone(),
            _ => status.to_string(),
        };
        Action::Answer { status: *status, body: text + "\n" }
    }

    fn route(&self, host: Option<&str>, path: &Path, cell: &Cell) -> Section {
        let mut route = Section::new("route");
        let from = "vcl_recv";
        if let Some(host) = host {
            route.set_for("hosts", vec![host.to_owned()], from);
        }
        path.write(&mut route, from);
        cell.action.write(&mut route, from);
        if let Action::Upstream(_) = cell.action {
            match cell.store {
                true => cell.keys.write(&mut route, "VCL"),
                false => route.set_for("store", false, "passed, or not known to be safe"),
            }
            if self.codes.is_some() && cell.store && !cell.codes {
                route.set_for("compression", false, "without beresp.do_gzip");
            }
            for (name, value) in &cell.request {
                change(route.below("route.request"), "set", name, value.as_deref(), "VCL");
            }
            for (name, value) in cell.response.iter().filter(|(name, _)| *name != "via") {
                change(route.below("route.response"), "set", name, value.as_deref(), "VCL");
            }
        }
        if cell.closed {
            route.close();
        }
        route
    }

    /// The networks that may purge: those of the access list that decides about it, if all cells
    /// agree and nothing else decides.
    fn purgers(
        &mut self,
        hosts: &[Option<String>],
        paths: &[Path],
        notes: &mut Notes,
    ) -> Vec<String> {
        let mut agreed: Option<Purgers> = None;
        let mut known = !self.program.unreadable;
        for (host, path) in hosts.iter().flat_map(|host| paths.iter().map(move |path| (host, path)))
        {
            let mut run = |inside| {
                let (host, path) = (host.clone(), path.clone());
                let method = "PURGE".to_owned();
                self.runner.run(&Request { host, path, method, client_inside: Some(inside) })
            };
            let (inside, outside) = (run(true), run(false));
            let purges = |state: &State| state.end == Some(End::Purge);
            let lists: Vec<&String> = inside.lists.union(&outside.lists).collect();
            let of_cell = match (purges(&inside), purges(&outside), &lists[..]) {
                (false, false, _) => Purgers::None,
                (true, true, _) => Purgers::Everyone,
                (true, false, [list]) => Purgers::List((*list).clone()),
                _ => Purgers::Unknown,
            };
            known &= !inside.unprotected && !outside.unprotected && !self.runner.is_exhausted();
            known &= agreed.as_ref().is_none_or(|agreed| *agreed == of_cell);
            // The first that allows something is kept, for the note.
            agreed = agreed.filter(|agreed| *agreed != Purgers::None).or(Some(of_cell));
        }
        let agreed = agreed.unwrap_or(Purgers::None);
        if agreed != Purgers::None && (!known || agreed == Purgers::Unknown) {
            let text = "not only one list of networks decides who may, so no client may";
            notes.other(&self.at, "PURGE", Fate::Unprotected, text);
            return Vec::new();
        }
        let from = match &agreed {
            Purgers::Everyone => vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
            Purgers::List(name) => self.networks(name, notes),
            Purgers::None | Purgers::Unknown => Vec::new(),
        };
        for parser::List { at, name, .. } in &self.program.lists {
            if agreed != Purgers::List(name.clone()) {
                notes.left(at, "networks decide only about PURGE here");
            }
        }
        from
    }

    fn networks(&self, name: &str, notes: &mut Notes) -> Vec<String> {
        let mut from = Vec::new();
        let found = self.program.lists.iter().find(|list| list.name == name);
        let Some(parser::List { at, entries, .. }) = found else { return from };
        let mut left = Vec::new();
        let negated = entries.iter().any(|(negated, _)| *negated);
        for (_, entry) in entries {
            match entry.as_str() {
                "localhost" => from.extend(["127.0.0.0/8".to_owned(), "::1/128".to_owned()]),
                entry if is_network(entry) => from.push(entry.to_owned()),
                entry => left.push(entry.to_owned()),
            }
        }
        if negated {
            notes.left(at, "it has an entry with `!`, so no client may PURGE");
            return Vec::new();
        }
        match left.is_empty() {
            true => notes.carried(at),
            false => notes.left(at, format!("without {}", left.join(", "))),
        }
        from
    }

    fn removes_via(&mut self) -> bool {
        let method = "GET".to_owned();
        let request = Request { host: None, path: Path::root(), method, client_inside: None };
        self.runner.run(&request).response.get("via") == Some(&None)
    }

    /// One note for each statement.
    fn notes(&self, notes: &mut Notes) {
        for (name, body) in self.program.subs.iter().filter(|(name, _)| name != "vcl_init") {
            for stmt in body {
                self.note(stmt, name, notes);
            }
        }
        for path in &self.with_queries {
            let text = "the path with a query is refused, and routes do not look at queries";
            notes.other(&self.at, &format!("req.url {path}"), Fate::Unprotected, text);
        }
        let unset = |field: &str| {
            let is = |stmt: &Stmt| matches!(&stmt.kind, Kind::Unset(what) if what == field);
            self.program.subs.iter().any(|(_, body)| body.iter().any(is))
        };
        if !unset("req.http.cookie") || !unset("req.http.authorization") {
            let text = "Varnish passes requests with Cookie or Authorization, and routes do not: \
                        where they are not removed, and there is no `return (hash)`, nothing is \
                        stored";
            notes.other(&self.at, "builtin vcl_recv", Fate::NotCarried, text);
        }
    }

    fn note(&self, stmt: &Stmt, sub: &str, notes: &mut Notes) {
        let is_redirect = self.redirects.values().any(|(_, ids)| ids.contains(&stmt.id));
        match self.runner.fate(stmt) {
            _ if is_redirect => notes.carried(&stmt.at),
            Some((fate, why)) => notes.add(&stmt.at, *fate, why.clone()),
            None if sub == "vcl_synth" || sub == "vcl_backend_error" => {
                notes.left(&stmt.at, "an answer of a route has its reason as plain text");
            }
            None => {
                notes.left(&stmt.at, "no request that was tried reaches this");
            }
        }
        if let Kind::If(arms) = &stmt.kind {
            for inner in arms.iter().flat_map(|(_, body)| body) {
                self.note(inner, sub, notes);
            }
        }
    }
}

/// Who may purge.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Purgers {
    None,
    Everyone,
    /// The networks of this list.
    List(String),
    Unknown,
}

/// Fields of responses by which their lifetime is computed.
const OF_LIFETIMES: [&str; 6] =
    ["cache-control", "cdn-cache-control", "expires", "pragma", "age", "date"];

const METHODS: &str = "requests of some methods differ here, and routes have all methods; the \
                       difference is left out, or the field removed, and nothing is stored";

fn passes(state: &State) -> bool {
    state.uncacheable
        || matches!(state.end, Some(End::Pass | End::Pipe | End::Purge | End::Synth(..)))
}

/// The names that do not have the same value in both.
fn different(
    one: &BTreeMap<String, Option<String>>,
    other: &BTreeMap<String, Option<String>>,
) -> Vec<String> {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    names.into_iter().filter(|name| one.get(*name) != other.get(*name)).cloned().collect()
}

/// The cell that requests of a path find if it has no route.
fn above<'c>(cells: &'c BTreeMap<Path, Cell>, path: &Path) -> Option<&'c Cell> {
    let own = path.start();
    let shorter = |(other, cell): (&'c Path, &'c Cell)| match other {
        Path::Prefix(prefix) | Path::Start(prefix)
            if other != path && own.starts_with(prefix.as_str()) =>
        {
            Some((prefix.len(), cell))
        }
        _ => None,
    };
    cells.iter().filter_map(shorter).max_by_key(|(length, _)| *length).map(|(_, cell)| cell)
}

fn is_network(text: &str) -> bool {
    text.parse::<ipnet::IpNet>().is_ok() || text.parse::<std::net::IpAddr>().is_ok()
}

/// In `vcl_synth`: `if (resp.status == N) { set resp.http.Location = resp.reason; … }`.
fn redirects(program: &Program) -> BTreeMap<u64, (u64, Vec<usize>)> {
    let mut found = BTreeMap::new();
    for stmt in program.sub("vcl_synth").unwrap_or_default() {
        let Kind::If(arms) = &stmt.kind else { continue };
        for (condition, body) in arms {
            let Some(statuses) = condition.as_ref().and_then(statuses) else { continue };
            let mut sets_location = false;
            let (mut sent, mut known) = (None, true);
            let mut ids = vec![stmt.id];
            for inner in body {
                ids.push(inner.id);
                match &inner.kind {
                    Kind::Set(to, value) if to == "resp.http.location" => {
                        sets_location = *value == [Word::Name("resp.reason".to_owned())];
                    }
                    Kind::Set(to, value) if to == "resp.status" => match &value[..] {
                        [Word::Name(number)] => sent = number.parse::<u64>().ok(),
                        _ => known = false,
                    },
                    Kind::Set(to, _) if to == "resp.reason" => {}
                    Kind::Return(_) => {}
                    _ => known = false,
                }
            }
            if sets_location && known {
                for status in statuses {
                    found.insert(status, (sent.unwrap_or(status), ids.clone()));
                }
            }
        }
    }
    found
}

/// The statuses of `resp.status == N || …`.
fn statuses(condition: &parser::Expr) -> Option<Vec<u64>> {
    use parser::Expr;
    match condition {
        Expr::Or(all) => {
            let each: Option<Vec<Vec<u64>>> = all.iter().map(statuses).collect();
            each.map(|all| all.concat())
        }
        Expr::And(all) if all.len() == 1 => statuses(&all[0]),
        Expr::Compare(left, "==", Word::Name(number)) if left == "resp.status" => {
            Some(vec![number.parse().ok()?])
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
