//! VCL: a program, which is run for each host and path that it names; see [`eval`].

#![forbid(unsafe_code)]

mod backends;
mod cases;
mod conditions;
mod dialect;
mod doubts;
mod eval;
mod filters;
mod late;
mod lexer;
mod parser;
mod responses;
mod state;
mod store;
mod texts;
mod translate;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ::conditions::Lists;

use self::cases::{Case, QUESTIONS_FEW, QUESTIONS_MAX};
use self::conditions::{Named, named};
use self::lexer::Word;
use self::parser::{Kind, Program, Stmt, parse};
use self::responses::{Guard, ResponseRule};
use self::state::{Changes, End, Request, State};
use imported::cel::{self, Cel};
use imported::input::Input;
use imported::limits::{CONDITIONS_MAX, ROUTES_MAX};
use imported::note::{Fate, Notes, Place};
use imported::route::{Action, Keys, Lifetime, Path, add, change};
use imported::table::is_one;
use imported::tree::{Section, Tree, Value};
use imported::{Parsed, SyntaxError};

/// The address of the listener. VCL has no address, and other machines must not reach the listener
/// by mistake.
const ADDRESS: &str = "127.0.0.1:6081";

/// The parameter default_ttl of varnishd, unless it is set.
const DEFAULT_TTL: Duration = Duration::from_secs(120);

/// Imports a text.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub fn import(file: &Rc<str>, text: &str, input: &mut Input<'_>) -> Parsed<(Tree, Notes)> {
    let mut program = Program::default();
    parse(file, text, input, &mut program)?;
    if !program.is_recent {
        dialect::modernise(&mut program);
    }
    let (mut tree, mut notes) = (Tree::default(), std::mem::take(&mut input.notes));
    let at = Place::new(file, 1);
    let forwards = !eval::replaces_forwarded(&program);
    let names = backends::upstreams(&program, forwards, &mut tree, &mut notes);
    backends::init_notes(&program, &names, &mut notes);
    let mut listen = Section::new("listen");
    listen.set("address", ADDRESS, "not in VCL: see -a of varnishd");
    tree.add(listen);
    let text = "addresses, sizes and the lifetime of responses that have none are flags of \
                varnishd (-a, -s, -t): write them into [[listen]], [store] and [[route.lifetime]]; \
                the listener is on loopback only, and such responses live for 2 minutes";
    notes.other(&at, "varnishd", Fate::Different, text);
    let Named { hosts, mut paths, mut methods } = named(&program);
    // These methods are orders to Varnish, and say nothing about other requests.
    let is_plain = |method: &str| {
        !method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase() || b"-_".contains(&b))
    };
    methods.retain(|method| !is_one("GET HEAD PURGE BAN REFRESH OTHER", method));
    methods.retain(|method| is_plain(method));
    paths.remove(&Path::root());
    if (hosts.len() + 1) * (paths.len() + 1) > ROUTES_MAX {
        let text = format!("hosts and paths make more than {ROUTES_MAX} routes");
        return Err(SyntaxError::at(&at, text));
    }
    let mut run = Run {
        program: &program,
        tree,
        notes,
        open: input.open,
        at,
        fates: vec![None; program.statements],
        steps: 0,
        depth: 0,
        is_late: false,
        redirects: redirects(&program),
        hosts: [None].into_iter().chain(hosts.into_iter().map(Some)).collect(),
        paths: [Path::root()].into_iter().chain(paths).collect(),
        methods,
        names,
        forwards,
        with_queries: BTreeSet::new(),
        codes: None,
        lists: Lists::new(),
        checked: RefCell::default(),
        named_lists: BTreeSet::new(),
        questions_max: QUESTIONS_MAX,
        now: 0,
        in_sub: "",
        enclosing: Vec::new(),
        ended: Vec::new(),
        rules: BTreeMap::new(),
        sent_hosts: BTreeSet::new(),
    };
    run.read_lists();
    run.routes()?;
    run.write_rules();
    run.write_sent_hosts();
    run.compression();
    // The runs that follow ask nothing, so what they do not know is no loss.
    let known = run.fates.clone();
    run.purge();
    if run.run(run.request(None, &Path::root(), "GET")).response.get("via") == Some(&None) {
        run.tree.section("via").set("responses", false, "unset resp.http.Via");
    }
    let fates = run.fates.iter_mut().zip(known);
    fates.filter(|(_, known)| known.is_some()).for_each(|(fate, known)| *fate = known);
    run.write_notes();
    Ok((run.tree, run.notes))
}

/// Runs the program for the requests of each cell, and remembers what became of each statement.
struct Run<'p> {
    program: &'p Program,
    tree: Tree,
    notes: Notes,
    /// Keep open what was protected by a rule that was not carried.
    open: bool,
    /// The first line.
    at: Place,
    fates: Vec<Option<(Fate, String)>>,
    /// Statements and comparisons that were run.
    steps: usize,
    /// Calls of subroutines inside each other.
    depth: usize,
    /// After `vcl_recv`, when no answer can be given any more.
    is_late: bool,
    /// Statuses of `synth` that `vcl_synth` makes redirects of, and the status that is sent.
    redirects: BTreeMap<u64, (u64, Vec<usize>)>,
    /// The hosts and the paths of the cells. The first host is any, and the first path is `/`.
    hosts: Vec<Option<String>>,
    paths: Vec<Path>,
    /// Methods that are tried besides GET, HEAD, and a method that the program does not name.
    methods: BTreeSet<String>,
    /// The upstreams.
    names: Vec<String>,
    /// Upstreams are sent X-Forwarded-For.
    forwards: bool,
    /// Paths that are open without a query, and refused with a query.
    with_queries: BTreeSet<String>,
    /// Types of responses that are coded, if some are; empty: all that can be.
    codes: Option<Vec<String>>,
    /// The access lists that conditions can name.
    lists: Lists,
    /// The conditions that were checked: whether they read what differs between requests for one
    /// stored response. `None`: the server would refuse them.
    checked: RefCell<BTreeMap<String, Option<bool>>>,
    /// The access lists that conditions name.
    named_lists: BTreeSet<String>,
    /// The most questions of one run.
    questions_max: usize,
    /// The statement that is run.
    now: usize,
    /// The subroutine of Varnish that is run.
    in_sub: &'static str,
    /// What holds where a statement of `vcl_backend_response` is run, for all cells alike. `None`:
    /// a condition that our file cannot have.
    enclosing: Vec<Option<Cel>>,
    /// Where the subroutine may have ended before.
    ended: Vec<Guard>,
    /// The rules that statements of `vcl_backend_response` become.
    rules: BTreeMap<usize, Vec<ResponseRule>>,
    /// Upstreams that are sent a host of the program: the upstream, the host.
    sent_hosts: BTreeSet<(String, String)>,
}

/// What the requests of a cell, or of a case of a cell, get.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    action: Action,
    store: bool,
    request: Changes,
    defaults: BTreeMap<String, String>,
    response: Changes,
    keys: Keys,
    codes: bool,
    closed: bool,
}

impl Cell {
    fn refuses(&self) -> bool {
        matches!(self.action, Action::Answer { status: 400.., .. } | Action::NotCarried)
    }

    /// The same without a use of the store.
    fn without_store(&self) -> Cell {
        Cell { store: false, keys: Keys::default(), codes: false, ..self.clone() }
    }
}

/// The cases of a cell, with their conditions. The last has none.
type Cells = Vec<(Option<Cel>, Cell)>;

/// A host, or any, with its cells.
type OfHost = (Option<String>, BTreeMap<Path, Cells>);

impl Run<'_> {
    fn request(&self, host: Option<&str>, path: &Path, method: &str) -> Request {
        let (host, path, method) = (host.map(str::to_owned), path.clone(), method.to_owned());
        Request { host, path, method, client_inside: None }
    }

    fn compression(&mut self) {
        if let Some(types) = &self.codes {
            let section = self.tree.section("compression");
            let from = "beresp.do_gzip";
            section.set("codings", vec!["gzip".to_owned()], from);
            section.set("bytes_min", Value::Bytes(0), "Varnish codes any length");
            section.set_list("types", types, from);
        }
    }

    /// Writes an upstream for each host that the program sends to a backend.
    fn write_sent_hosts(&mut self) {
        for (name, host) in std::mem::take(&mut self.sent_hosts) {
            let of_name = |one: &&Section| one.text("name") == Some(&name);
            let Some(mut section) = self.tree.all("upstream").find(of_name).cloned() else {
                continue;
            };
            section.set("name", sends(&name, &host), "req.http.host");
            section.set("host", host, "req.http.host");
            self.tree.add(section);
        }
    }

    /// The access lists that conditions can name.
    fn read_lists(&mut self) {
        for list in &self.program.lists {
            if let Some(networks) = translate::networks(list) {
                // A name that the server refuses is in no condition.
                let _ = self.lists.add_list(&translate::list_name(&list.name), networks);
            }
        }
    }

    /// Writes the routes, with conditions if that does not take too much.
    fn routes(&mut self) -> Parsed<()> {
        let found = loop {
            if let Some(found) = self.cells() {
                break found;
            }
            if self.questions_max == 0 {
                return Err(SyntaxError::at(&self.at, "the program has too many cases"));
            }
            // Few attempts, because each may take all steps.
            let most = self.questions_max / 3;
            let most = if most < QUESTIONS_FEW { 0 } else { most };
            (self.steps, self.questions_max) = (0, most);
        };
        // Whether any cell codes its responses must be known before the first route is written.
        for (host, cells) in &found {
            for (path, cell) in cells {
                // The captures of a redirect are those of its path.
                let is_new = |above: &Cells| above != cell || matches!(path, Path::Pattern(_));
                if *path == Path::root() || above(cells, path).is_none_or(is_new) {
                    for (when, cell) in cell {
                        let route = self.route(host.as_deref(), path, when.as_ref(), cell);
                        self.tree.add(route);
                    }
                }
            }
        }
        let named = |list: &&parser::List| {
            let within = format!("client.within({})", translate::list_name(&list.name));
            self.tree.all("route").any(|one| one.text("when").is_some_and(|w| w.contains(&within)))
        };
        for list in self.program.lists.iter().filter(named).collect::<Vec<_>>() {
            let mut section = Section::new("list");
            section.set("name", translate::list_name(&list.name), format!("acl {}", list.name));
            section.set("values", translate::networks(list).unwrap_or_default(), &list.at);
            self.tree.add(section);
            self.notes.carried(&list.at);
            self.named_lists.insert(list.name.clone());
        }
        Ok(())
    }

    /// The cells of all hosts. `None`: they take too many steps or conditions.
    fn cells(&mut self) -> Option<Vec<OfHost>> {
        let (hosts, paths) = (self.hosts.clone(), self.paths.clone());
        assert!(hosts[0].is_none() && paths[0] == Path::root(), "the first cell is any request");
        let mut of_all = Vec::new();
        for host in &hosts {
            for path in &paths {
                of_all.push((host, path, self.by_method(host.as_deref(), path)));
                if self.is_exhausted() {
                    return None;
                }
            }
        }
        let cases = of_all.iter().flat_map(|(_, _, all)| all).flat_map(|(_, cases)| cases);
        let rule = cases::common(cases);
        let mut found: Vec<OfHost> = Vec::new();
        let mut of_host: BTreeMap<Path, Cells> = BTreeMap::new();
        for (host, path, all) in of_all {
            let mut cells = self.of_methods(all, rule.as_ref());
            if let Path::Exact(text) = path
                && let Some(above) = above(&of_host, path)
            {
                self.close_with_queries(text, above, &mut cells);
            }
            of_host.insert(path.clone(), cells);
            if of_host.len() == paths.len() {
                let of_host = std::mem::take(&mut of_host);
                // A host without a difference uses the routes for any host.
                if found.first().is_none_or(|(_, of_any)| *of_any != of_host) {
                    found.push((host.clone(), of_host));
                }
            }
        }
        let cells = found.iter().flat_map(|(_, cells)| cells.values()).flatten();
        if cells.filter(|(when, _)| when.is_some()).count() > CONDITIONS_MAX {
            return None;
        }
        if let Some(rule) = rule {
            let mut section = Section::new("rule");
            section.comment("Varnish passes requests of clients that identify themselves.");
            section.set("name", "identified", "built-in vcl_recv");
            section.set("when", rule.text(), "built-in vcl_recv");
            section.set("store", false, "built-in vcl_recv");
            self.tree.add(section);
        }
        Some(found)
    }

    /// The program compares the path together with the query, so a path with a query is another
    /// URL. Where such a URL is refused, the path is closed.
    fn close_with_queries(&mut self, path: &str, above: &Cells, cells: &mut Cells) {
        let refused = above.iter().filter(|(_, cell)| cell.refuses());
        let is_refused = |(when, _): &&(Option<Cel>, Cell)| {
            cells.iter().any(|(own, cell)| own == when && cell.refuses())
        };
        let is_wider = refused.clone().any(|one| !is_refused(&one));
        if is_wider && cells.iter().any(|(_, cell)| !cell.refuses()) {
            cells.iter_mut().for_each(|(_, cell)| cell.closed |= !self.open);
            self.with_queries.insert(path.to_owned());
        }
    }

    /// The cases of the requests of each method that is tried. The first is GET, and the last is
    /// a method that the program does not name.
    fn by_method(&mut self, host: Option<&str>, path: &Path) -> Vec<(String, Vec<Case>)> {
        let mut all = Vec::new();
        let named = self.methods.clone();
        let methods = ["GET", "HEAD"].into_iter().chain(named.iter().map(String::as_str));
        for method in methods.chain([OTHER]) {
            let cases = self.cases(&self.request(host, path, method));
            all.push((method.to_owned(), cases));
        }
        all
    }

    /// The cells of all methods: first those of methods whose requests are treated otherwise than
    /// requests with GET.
    fn of_methods(&self, all: Vec<(String, Vec<Case>)>, rule: Option<&Cel>) -> Cells {
        let mut all = all.into_iter().map(|(method, cases)| (method, cases::cells(cases, rule)));
        let Some((_, get)) = all.next() else { return Cells::new() };
        let unsafe_get = without_store(&get);
        let mut groups: Vec<Group> = Vec::new();
        for (method, cells) in all {
            // Only responses to GET and HEAD are stored.
            let (cells, is_usual) = match method == "HEAD" {
                true if cells == get => (cells, true),
                true => (without_store(&cells), false),
                false => (without_store(&cells), without_store(&cells) == unsafe_get),
            };
            match groups.iter_mut().find(|one| one.cells == cells && one.is_usual == is_usual) {
                Some(group) => group.methods.push(method),
                None => groups.push(Group { methods: vec![method], cells, is_usual }),
            }
        }
        let has_other = |group: &&Group| group.methods.iter().any(|method| method == OTHER);
        // What the methods have in common comes first, without a condition on the method.
        let is_common = |at: &usize| {
            let other = |group: &Group| group.is_usual || group.cells.get(*at) == get.get(*at);
            let (when, cell) = &get[*at];
            when.is_some() && !cell.store && groups.iter().all(other)
        };
        let common = (0..get.len()).take_while(is_common).count();
        let mut out: Cells = get[..common].to_vec();
        for group in groups.iter().filter(|one| !one.is_usual) {
            let condition = match has_other(&group) {
                false => of_methods(group.methods.iter()),
                // All methods but those of the other groups.
                true => {
                    let others = groups.iter().filter(|one| !has_other(one));
                    let get = "GET".to_owned();
                    of_methods([&get].into_iter().chain(others.flat_map(|one| &one.methods)))
                        .map(Cel::negated)
                }
            };
            let Some(condition) = condition else { continue };
            out.extend(group.cells[common..].iter().map(|(when, cell)| {
                let parts = [Some(condition.clone()), when.clone()].into_iter().flatten();
                (Cel::all(parts.collect()), cell.clone())
            }));
        }
        out.extend_from_slice(&get[common..]);
        cases::merged(out)
    }

    /// What the requests of a case get.
    fn outcome(&mut self, mut state: State) -> Cell {
        let explicit = state.end == Some(End::Hash);
        let mut store = (explicit || state.is_anonymous)
            && !state.store_unknown
            && !passes(&state)
            && state.keys.fits();
        // Varnish reads these fields before the program changes them. A lifetime for all responses
        // overrules them.
        let is_changed = |name: &&str| state.response.contains_key(*name);
        let has_lifetime =
            state.keys.lifetimes.iter().any(|one| eval::is_usual(one) && one.ttl.is_some());
        if OF_LIFETIMES.iter().any(is_changed) && !has_lifetime {
            store = false;
        }
        if !self.forwards {
            state.request.entry("x-forwarded-for".to_owned()).or_insert(None);
        }
        // The upstream must not read the cookies that the program takes out of a request whose
        // response is stored.
        if state.filter.is_some() && state.is_own("cookie") {
            match state.empty.contains("cookie") {
                true => drop(state.request.insert("cookie".to_owned(), None)),
                false => store = false,
            }
        }
        // A request without cookies gets the same as one whose cookies are removed. With
        // `cookies_sent`, only requests that the store may answer lose theirs.
        let loses = store && !state.keys.only_key_cookies && state.lacks("cookie");
        if loses && self.program.removes("req.http.cookie") {
            state.request.entry("cookie".to_owned()).or_insert(None);
        }
        let mut action = self.action(&state);
        if let (Action::Upstream(name), Some(host)) = (&mut action, &state.host) {
            self.sent_hosts.insert((name.clone(), host.clone()));
            *name = sends(name, host);
        }
        if let Some(types) = state.codes.as_ref().filter(|_| store) {
            let all = self.codes.get_or_insert_with(|| types.clone());
            // An empty list is all types.
            match types.is_empty() {
                true => all.clear(),
                false if all.is_empty() => {}
                false => types.iter().for_each(|kind| add(all, kind.as_str())),
            }
        }
        let cell = Cell {
            action,
            store,
            request: state.request,
            defaults: state.defaults,
            response: state.response,
            keys: state.keys,
            codes: state.codes.is_some(),
            closed: (state.unprotected || self.program.unreadable) && !self.open,
        };
        match &cell.action {
            Action::Upstream(_) if cell.store => cell,
            // Nothing else is written.
            Action::Upstream(_) => cell.without_store(),
            _ => Cell {
                request: Changes::new(),
                defaults: BTreeMap::new(),
                response: Changes::new(),
                ..cell.without_store()
            },
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
    fn action(&self, state: &State) -> Action {
        let Some(End::Synth(status, reason)) = &state.end else {
            return self.backend(state).map_or(Action::NotCarried, Action::Upstream);
        };
        if let Some((sent, _)) = self.redirects.get(status) {
            let own = state.asked.host.as_deref().filter(|host| host.starts_with('{'));
            let own = own.and_then(|host| host.split('.').next()).unwrap_or_default();
            let found = texts::text_of(reason, &state.asked).filter(|_| !state.is_rewritten());
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

    fn route(&self, host: Option<&str>, path: &Path, when: Option<&Cel>, cell: &Cell) -> Section {
        let mut route = Section::new("route");
        let from = "vcl_recv";
        route.set_some("hosts", host.map(|host| vec![host.to_owned()]), from);
        path.write(&mut route, from);
        route.set_some("when", when.map(Cel::text), from);
        cell.action.write(&mut route, from);
        if let Action::Upstream(_) = cell.action {
            match cell.store {
                true => with_default(&cell.keys).write(&mut route, "VCL"),
                false => route.set("store", false, "passed, or not known to be safe"),
            }
            if self.codes.is_some() && cell.store && !cell.codes {
                route.set("compression", false, "without beresp.do_gzip");
            }
            for (name, value) in &cell.request {
                change(route.below("route.request"), "set", name, value.as_deref(), "VCL");
            }
            for (name, value) in &cell.defaults {
                change(route.below("route.request"), "default", name, Some(value), "VCL");
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

    /// Writes who may purge: the networks of the access list that decides about it, if all cells
    /// agree and nothing else decides.
    fn purge(&mut self) {
        let mut agreed: Option<Purgers> = None;
        let mut known = !self.program.unreadable;
        let (hosts, paths) = (self.hosts.clone(), self.paths.clone());
        for (host, path) in hosts.iter().flat_map(|host| paths.iter().map(move |path| (host, path)))
        {
            let request = self.request(host.as_deref(), path, "PURGE");
            let [inside, outside] = [Some(true), Some(false)]
                .map(|client_inside| self.run(Request { client_inside, ..request.clone() }));
            let purges = |state: &State| state.end == Some(End::Purge);
            let lists: Vec<&String> = inside.lists.union(&outside.lists).collect();
            let of_cell = match (purges(&inside), purges(&outside), &lists[..]) {
                (false, false, _) => Purgers::None,
                (true, true, _) => Purgers::Everyone,
                (true, false, [list]) => Purgers::List((*list).clone()),
                _ => Purgers::Unknown,
            };
            known &= !inside.unprotected && !outside.unprotected && !self.is_exhausted();
            known &= agreed.as_ref().is_none_or(|agreed| *agreed == of_cell);
            // The first that allows something is kept, for the note.
            agreed = agreed.filter(|agreed| *agreed != Purgers::None).or(Some(of_cell));
        }
        let from = self.purgers(agreed.unwrap_or(Purgers::None), known);
        self.tree.section("purge").set("from", from, "who may PURGE, by vcl_recv");
    }

    /// The networks that may purge. `known`: nothing else decides.
    fn purgers(&mut self, agreed: Purgers, known: bool) -> Vec<String> {
        if agreed != Purgers::None && (!known || agreed == Purgers::Unknown) {
            let text = "not only one list of networks decides who may, so no client may";
            self.notes.other(&self.at, "PURGE", Fate::Unprotected, text);
            return Vec::new();
        }
        let from = match &agreed {
            Purgers::Everyone => vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
            Purgers::List(name) => self.networks(name),
            Purgers::None | Purgers::Unknown => Vec::new(),
        };
        for parser::List { at, name, .. } in &self.program.lists {
            if agreed != Purgers::List(name.clone()) && !self.named_lists.contains(name) {
                self.notes.left(at, "no condition that is carried names this list");
            }
        }
        from
    }

    fn networks(&mut self, name: &str) -> Vec<String> {
        let (mut from, mut left) = (Vec::new(), Vec::new());
        let found = self.program.lists.iter().find(|list| list.name == name);
        let Some(parser::List { at, entries, .. }) = found else { return from };
        for (_, entry) in entries {
            match entry.as_str() {
                "localhost" => from.extend(["127.0.0.0/8".to_owned(), "::1/128".to_owned()]),
                entry if is_network(entry) => from.push(entry.to_owned()),
                entry => left.push(entry),
            }
        }
        if entries.iter().any(|(negated, _)| *negated) {
            self.notes.left(at, "it has an entry with `!`, so no client may PURGE");
            return Vec::new();
        }
        match left.is_empty() {
            true => self.notes.carried(at),
            false => self.notes.left(at, format!("without {}", left.join(", "))),
        }
        from
    }

    /// Writes one note for each statement.
    fn write_notes(&mut self) {
        for (name, body) in self.program.subs.iter().filter(|(name, _)| name != "vcl_init") {
            body.iter().for_each(|stmt| self.write_note(stmt, name));
        }
        for path in &self.with_queries {
            let text = "the path with a query is refused, and routes do not look at queries";
            self.notes.other(&self.at, &format!("req.url {path}"), Fate::Unprotected, text);
        }
    }

    fn write_note(&mut self, stmt: &Stmt, sub: &str) {
        let is_redirect = self.redirects.values().any(|(_, ids)| ids.contains(&stmt.id));
        let (fate, why) = match &self.fates[stmt.id] {
            _ if is_redirect => (Fate::Carried, ""),
            Some((fate, why)) => (*fate, why.as_str()),
            None if sub == "vcl_synth" || sub == "vcl_backend_error" => {
                (Fate::NotCarried, "an answer of a route has its reason as plain text")
            }
            None => (Fate::NotCarried, "no request that was tried reaches this"),
        };
        self.notes.add(&stmt.at, fate, why);
        if let Kind::If(arms) = &stmt.kind {
            arms.iter().flat_map(|(_, body)| body).for_each(|one| self.write_note(one, sub));
        }
    }
}

/// The keys of a route with the lifetime that varnishd gives to responses that have none.
fn with_default(keys: &Keys) -> Keys {
    let mut keys = keys.clone();
    let at = keys.lifetimes.iter().position(eval::is_usual).unwrap_or(keys.lifetimes.len());
    let usual = keys.lifetimes.get(at).cloned().unwrap_or_default();
    if usual.ttl.is_none() {
        let status = Vec::new();
        keys.lifetimes.insert(at, Lifetime { status, ttl: Some(DEFAULT_TTL), ..usual });
    }
    keys
}

/// The name of an upstream that is sent another host than the client's.
fn sends(upstream: &str, host: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("{upstream}-{}", host.chars().map(plain).collect::<String>())
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

/// Methods whose requests are treated alike.
struct Group {
    methods: Vec<String>,
    cells: Cells,
    /// Requests with GET are treated like this, too.
    is_usual: bool,
}

/// A condition for these methods.
fn of_methods<'m>(methods: impl Iterator<Item = &'m String>) -> Option<Cel> {
    let all: Vec<&str> = methods.map(String::as_str).collect();
    match all[..] {
        [one] => cel::is("method", one),
        _ => Some(Cel::one(format!("method in {}", cel::list(all)?))),
    }
}

/// Stands for all methods that the program does not name.
const OTHER: &str = "OTHER";

/// The same cells without a use of the store.
fn without_store(cells: &Cells) -> Cells {
    let all = cells.iter().map(|(when, cell)| (when.clone(), cell.without_store()));
    cases::merged(all.collect())
}

fn passes(state: &State) -> bool {
    state.uncacheable
        || matches!(state.end, Some(End::Pass | End::Pipe | End::Purge | End::Synth(..)))
}

/// The cell that requests of a path find if it has no route.
fn above<'c>(cells: &'c BTreeMap<Path, Cells>, path: &Path) -> Option<&'c Cells> {
    let own = path.start();
    let shorter = |(other, cell): (&'c Path, &'c Cells)| match other {
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
            let Some(sent) = redirect(body) else { continue };
            let ids: Vec<usize> = [stmt].into_iter().chain(body).map(|one| one.id).collect();
            found.extend(statuses.into_iter().map(|one| (one, (sent.unwrap_or(one), ids.clone()))));
        }
    }
    found
}

/// Whether these statements make a redirect, and the status that they set.
fn redirect(body: &[Stmt]) -> Option<Option<u64>> {
    let (mut sets_location, mut sent) = (false, None);
    for stmt in body {
        match &stmt.kind {
            Kind::Set(to, value) if to == "resp.http.location" => {
                sets_location = *value == [Word::Name("resp.reason".to_owned())];
            }
            Kind::Set(to, value) if to == "resp.status" => match &value[..] {
                [Word::Name(number)] => sent = number.parse().ok(),
                _ => return None,
            },
            Kind::Set(to, _) if to == "resp.reason" => {}
            Kind::Return(_) => {}
            _ => return None,
        }
    }
    sets_location.then_some(sent)
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
