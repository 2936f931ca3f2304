//! Locations of a server, as routes.
//!
//! A location with a rule that keeps requests out and is not carried is closed. If its requests
//! would then find another route (an expression), the whole server is closed. A location with an
//! action that is not carried is answered with 501, because its requests must not go elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ::conditions::Lists;

use super::actions::{Passed, action, after_files};
use super::blocks::{self, Directive, named};
use super::errors::{self, Page};
use super::files;
use super::found::Places;
use super::guards::{self, Guard};
use super::headers::fields;
use super::limits::{self, Limited};
use super::redirects;
use super::responses::{self, Redirects};
use super::scope::{Scope, Server};
use super::variables::{self, Constants};
use super::{Nginx, conditions, rules, store, table};
use imported::cel::{self, Cel};
use imported::limits::{COMPARISONS_MAX, CONDITIONS_MAX, DEPTH_MAX, ROUTES_MAX};
use imported::note::{Fate, Place};
use imported::pattern::{path_of, starts};
use imported::route::{Action, CAPTURES, Keys, Path, change};
use imported::table::Becomes::{self, Left, Nothing, Unprotected};
use imported::table::is_one;
use imported::tree::Section;

#[derive(Clone)]
struct Route<'d> {
    at: Place,
    path: Path,
    /// The path also matches this condition.
    when: Option<Cel>,
    /// Conditions under which the location answers before it does anything else.
    first: Vec<(Cel, Action)>,
    /// nginx compares expressions before it uses the location: those before this number.
    after: usize,
    action: Action,
    scope: Scope<'d>,
    /// The result of [`does`], if nginx compares expressions before it uses this location.
    does: Option<String>,
    /// `None`: nothing is stored.
    keys: Option<Keys>,
    closed: bool,
    /// What is taken off the start of Location.
    cut: Option<String>,
    /// What becomes of responses, and who may use it.
    more: Rc<More>,
    /// nginx makes this redirect by itself, unless a location has this path.
    is_automatic: bool,
    /// The numbers of its location and of those around it.
    within: Vec<usize>,
    /// Its location has an expression.
    is_expression: bool,
    /// The starts of the paths of its expression, if the expression is its condition.
    starts: Rc<Vec<String>>,
    /// The limit on bodies.
    body: u64,
}

impl<'d> Route<'d> {
    /// A route that stores nothing, and whose requests no expression can take.
    fn plain(at: &Place, path: Path, action: Action, scope: &Scope<'d>) -> Route<'d> {
        let (at, scope) = (at.clone(), scope.clone());
        let (when, first, after) = (None, Vec::new(), 0);
        let (does, keys, cut, closed, is_automatic) = (None, None, None, false, false);
        let (more, starts, within) = (Rc::default(), Rc::default(), Vec::new());
        let (is_expression, body) = (false, 0);
        Route {
            at,
            path,
            when,
            first,
            after,
            action,
            scope,
            does,
            keys,
            closed,
            cut,
            more,
            is_automatic,
            within,
            is_expression,
            starts,
            body,
        }
    }
}

/// What a route to an upstream or to files says besides.
#[derive(Debug, Default)]
struct More {
    /// `None`: a part of the guard is not carried.
    guard: Option<Guard>,
    pages: Vec<Page>,
    redirects: Redirects,
    /// What the upstream gets in place of the path, and the URL that the path takes the place of in
    /// Location.
    upstream_path: Option<(String, Option<String>)>,
}

/// A location with an expression.
struct Other {
    at: Place,
    /// The starts of its paths.
    starts: Vec<String>,
    does: String,
    /// Its limit on bodies, if it has one.
    body: Option<u64>,
    /// `None`: nothing is stored.
    stores: Option<String>,
    /// The number of the location around it: it takes only requests of that location.
    around: Option<usize>,
}

/// What is closed, whatever the locations say.
#[derive(Clone, Copy)]
pub(crate) struct Closed {
    /// Something restricts all servers and is not carried.
    pub(crate) all: bool,
    /// Requests for other hosts would go to the default server.
    pub(crate) default: bool,
}

/// Writes the routes of a server.
///
/// `own`: the condition that a request is for the server, if a condition can say it.
pub(crate) fn server<'d>(
    server: &Server<'d>,
    own: Option<Option<Cel>>,
    closed: Closed,
    nginx: &mut Nginx<'d>,
) {
    let inner = server.directive.inner();
    nginx.constants = Constants::of(inner, &nginx.switches.by_blocks);
    nginx.places = Places::of(inner);
    // The blocks before an answer to all requests.
    let end = inner.iter().position(redirects::is_answer).unwrap_or(inner.len());
    let names = server.names(&server.scope);
    let carried = match own {
        Some(own) => nginx.conditions_of(&inner[..end], &names, own.as_ref()).1,
        None => BTreeSet::new(),
    };
    let mut found = Found {
        nginx,
        server,
        closed,
        routes: Vec::new(),
        others: Vec::new(),
        expressions: Vec::new(),
        is_roomy: false,
        paths: Vec::new(),
        compared: 0,
        around: Vec::new(),
        numbered: 0,
    };
    found.paths_of(inner, 0);
    let expressions = named(inner, "location").filter(|one| one.word(0).starts_with('~')).count();
    // Two for each: one with the hosts, and one for the default server.
    let expressions = 2 * expressions * (found.paths.len() + 1);
    found.is_roomy = found.nginx.expressions + expressions <= CONDITIONS_MAX / 2;
    found.nginx.expressions += if found.is_roomy { expressions } else { 0 };
    let (at, names) = (&server.directive.at, server.names(&server.scope));
    // A rewrite of the whole server comes before its locations.
    let mut answers = inner.iter().filter(|one| redirects::is_answer(one)).peekable();
    while let Some(one) = answers.peek().copied()
        && let Some((path, action)) = redirects::pattern(one, &names)
    {
        answers.next();
        let more = match found.paths.iter().all(|(_, other)| path.comes_before(other)) {
            true => "",
            false => "; a location with a longer path comes first",
        };
        found.nginx.notes.different(&one.at, format!("{CAPTURES}{more}"));
        found.routes.push(Route::plain(&one.at, path, action, &server.scope));
    }
    let root = Path::root();
    let answer = redirects::action(answers, &names, &mut root.clone(), &mut found.nginx.notes);
    if let Some(answer) = answer {
        let (fate, text) = match answer {
            Action::NotCarried => (Fate::NotCarried, "what its server does before is not carried"),
            _ => (Fate::Nothing, "the server answers all requests before"),
        };
        for location in named(inner, "location") {
            found.nginx.notes.add(&location.at, fate, text);
            table::inside(location, fate, text, &mut found.nginx.notes);
        }
        found.routes.push(Route::plain(at, root, answer, &server.scope));
    } else {
        // A condition of the server that answers with an error keeps requests out.
        found.closed.all |= found.nginx.conditions(inner, &carried);
        found.locations(inner, &server.scope);
        if !found.routes.iter().any(|route| route.path == root) {
            found.rest(root);
        }
    }
    found.add_expressions();
    found.compare_others();
    found.write();
}

/// The routes of a server that were found.
struct Found<'f, 'd> {
    nginx: &'f mut Nginx<'d>,
    server: &'f Server<'d>,
    /// All of the server is closed if requests that were kept out could find another route.
    closed: Closed,
    routes: Vec<Route<'d>>,
    /// Locations with expressions, which are not written.
    others: Vec<Other>,
    /// Locations with expressions that are conditions, in their order.
    expressions: Vec<Route<'d>>,
    /// There is room for the conditions of all expressions.
    is_roomy: bool,
    /// The paths of all locations, with whether one comes before any expression.
    paths: Vec<(bool, Path)>,
    /// Paths that were compared with those of expressions.
    compared: usize,
    /// The locations around this one.
    around: Vec<Around>,
    /// Locations that have been numbered.
    numbered: usize,
}

/// A location around another one.
struct Around {
    number: usize,
    path: Path,
    does: Option<String>,
    is_of_files: bool,
}

impl<'d> Found<'_, 'd> {
    /// Requests that no location is for: they get the files of the server, if it has a directory.
    fn rest(&mut self, mut root: Path) {
        let server = self.server;
        let (at, inner) = (&server.directive.at, server.directive.inner());
        let found = match server.scope.get("root") {
            Some(_) => files::of((inner, inner), (&mut root, false), &server.scope, self.nginx),
            None => Err(String::new()),
        };
        let (action, other) = match found {
            Ok((files, last)) => after_files(files, last, server, self.nginx),
            Err(_) => (Action::NotCarried, None),
        };
        if action == Action::NotCarried {
            let text = "requests that no location carries are answered with 501";
            self.nginx.notes.different(at, text);
        }
        let passed = other.unwrap_or_else(|| Passed::of(&server.scope));
        // An expression takes its requests before.
        let route = Route { after: usize::MAX, ..Route::plain(at, root, action, &server.scope) };
        let route = self.finished(route, inner, passed, &server.scope);
        self.routes.push(route);
    }

    /// A route with all that its location says besides its path and its action.
    fn finished(
        &mut self,
        route: Route<'d>,
        inner: &'d [Directive],
        passed: Passed<'d>,
        outer: &Scope<'d>,
    ) -> Route<'d> {
        let is_other = matches!(&route.action, Action::Files(_, Some(_)));
        let mut scope = if is_other { passed.scope } else { outer.clone() };
        if is_other {
            scope.keep_out_as(outer, &mut self.nginx.notes);
        }
        let nginx = &mut *self.nginx;
        let beats = matches!(route.path, Path::Exact(_));
        let does = (!beats).then(|| does(inner, &scope, &nginx.constants));
        let body = limits::body(&scope);
        if !forwards(&route.action) {
            let does = does.filter(|_| route.is_expression);
            return Route { scope, does, body, ..route };
        }
        let switches = (&nginx.switches.maps, &nginx.switches.tests);
        let keys = match route.action.forwards() {
            true => store::keys(&scope, switches, &mut nginx.notes),
            false => None,
        };
        let redirects = match route.action.forwards() {
            true => Redirects::of(&scope, &mut nginx.notes),
            false => Redirects::default(),
        };
        let more = More {
            guard: guards::of(&scope, self.server, nginx).ok(),
            pages: errors::of(&scope, self.server, nginx),
            redirects,
            upstream_path: passed.upstream_path,
        };
        Route { scope, does, body, keys, cut: passed.cut, more: Rc::new(more), ..route }
    }

    fn paths_of(&mut self, all: &[Directive], depth: usize) {
        for location in named(all, "location").filter(|_| depth < DEPTH_MAX) {
            let path = match (location.word(0), location.word(1)) {
                ("=", path) => (true, Path::Exact(cel::in_path(path))),
                ("^~", path) => (true, Path::beginning(&cel::in_path(path))),
                ("~", pattern) => (false, path_of(pattern).map_or_else(Path::root, |one| one.0)),
                (path, _) => (false, Path::beginning(&cel::in_path(path))),
            };
            self.paths.push(path);
            self.paths_of(location.inner(), depth + 1);
        }
    }

    /// The path of an expression, if its requests find no other route than its own.
    fn of_expression(&mut self, pattern: &str) -> Option<(Path, Vec<(String, String)>)> {
        let (path, found) = path_of(pattern)?;
        self.compared += self.paths.len();
        if self.compared > COMPARISONS_MAX {
            return None;
        }
        let own = self.paths.iter().position(|(_, other)| *other == path);
        let mut others = self.paths.iter().enumerate().filter(|(at, _)| Some(*at) != own);
        let is_first = |(_, (beats, other)): (usize, &(bool, Path))| {
            path.comes_before(other) && !(*beats && path.meets(other))
        };
        others.all(is_first).then_some((path.clone(), found.groups))
    }

    fn locations(&mut self, all: &'d [Directive], outer: &Scope<'d>) {
        if self.around.len() < DEPTH_MAX {
            named(all, "location").for_each(|location| self.location(location, outer));
        }
    }

    fn location(&mut self, location: &'d Directive, outer: &Scope<'d>) {
        let inner = location.inner();
        let mut scope = outer.inside(inner, &mut self.nginx.notes);
        let (first, carried) = self.first_of(inner, &scope);
        scope.unprotected |= self.nginx.conditions(inner, &carried);
        let tried = named(inner, "try_files").next();
        if let Some(tried) = tried.filter(|_| named(inner, "proxy_pass").next().is_some()) {
            let text = "beside proxy_pass, files decide which requests go to the upstream";
            self.nginx.notes.unprotected(&tried.at, text);
            scope.unprotected = true;
        }
        // What leads to it is carried with it.
        if location.word(0).starts_with('@') && self.is_tried(location.word(0)) {
            return;
        }
        let when = self.expression(location, &scope);
        let path = match &when {
            Some(_) => Ok(Path::root()),
            None => self.path(location, &mut scope),
        };
        let mut path = match path {
            Ok(path) => path,
            Err(becomes) => {
                // The requests that the location keeps out would find another route.
                self.closed.all |= matches!(becomes, Unprotected(_));
                return self.nginx.not_carried(location, &becomes, "its location is not carried");
            }
        };
        self.nginx.notes.carried(&location.at);
        let asked = path.clone();
        let place = (&mut path, when.is_some());
        let (action, passed) = action(inner, place, &scope, self.server, self.nginx);
        let is_empty = !inner.iter().any(is_action) && !scope.is_denied();
        if action == Action::NotCarried && is_empty {
            let text = "nothing says what becomes of its requests; they are answered with 501";
            self.nginx.notes.different(&location.at, text);
        }
        if let (Path::Start(_), Path::Prefix(_)) = (&asked, &path) {
            // The rest of the location must not find another route.
            self.routes.push(Route::plain(&location.at, asked, Action::NotCarried, &scope));
        }
        let is_internal = named(inner, "internal").next().is_some();
        let passes = inner.iter().any(|one| one.name.ends_with("_pass"));
        if let Path::Prefix(prefix) = &path
            && (action.forwards() || is_internal && passes)
            && prefix.len() > 1
            && when.is_none()
            && location.word(0) != "~"
            && let Some(bare) = prefix.strip_suffix('/')
        {
            // nginx answers a request for the prefix without its slash like this.
            let redirect = Action::Redirect { status: 301, to: prefix.clone(), with_path: false };
            let action = if is_internal { action.clone() } else { redirect };
            let path = Path::Exact(bare.to_owned());
            let route = Route::plain(&location.at, path, action, &Scope::default());
            self.routes.push(Route { is_automatic: true, ..route });
        }
        let beats = matches!(path, Path::Exact(_)) || location.word(0) == "^~";
        let after = if beats { 0 } else { usize::MAX };
        // An expression inside a location comes before those of the server.
        let earlier = if self.around.is_empty() { self.expressions.len() } else { 0 };
        let after = if location.word(0) == "~" { earlier } else { after };
        let route = Route::plain(&location.at, path, action, &scope);
        let is_expression = location.word(0).starts_with('~');
        let route = Route { when, first, after, is_expression, ..route };
        let mut route = self.finished(route, inner, passed, &scope);
        if beats {
            route.does = None;
        }
        self.numbered += 1;
        let own = Around {
            number: self.numbered,
            path: route.path.clone(),
            does: route.does.clone(),
            is_of_files: matches!(route.action, Action::Files(..)),
        };
        route.within = self.around.iter().map(|one| one.number).chain([own.number]).collect();
        match &route.when {
            Some(_) => {
                route.starts = Rc::new(starts(location.word(1)));
                self.expressions.push(route);
            }
            None => self.routes.push(route),
        }
        self.around.push(own);
        self.locations(inner, &scope);
        self.around.pop();
    }

    /// Whether a location leads to the location of this name.
    fn is_tried(&self, name: &str) -> bool {
        let mut levels = vec![self.server.directive.inner()];
        while let Some(level) = levels.pop() {
            let is_last = |one: &Directive| one.words.last().is_some_and(|word| word == name);
            if named(level, "try_files").any(is_last) {
                return true;
            }
            levels.extend(named(level, "location").map(Directive::inner));
        }
        false
    }

    /// The condition of a location with an expression, if our file can express it, and the location
    /// has no other inside.
    fn expression(&mut self, location: &Directive, scope: &Scope<'_>) -> Option<Cel> {
        let [sign, pattern] = &location.words[..] else { return None };
        let case = match sign.as_str() {
            "~" => "",
            "~*" => "(?i)",
            _ => return None,
        };
        let is_outer =
            self.around.is_empty() && named(location.inner(), "location").next().is_none();
        if !is_outer || !self.is_roomy {
            return None;
        }
        let found = cel::path_matches(&format!("{case}{pattern}"))
            .filter(|one| cel::check(one, &Lists::new()).is_some())?;
        let repeats =
            || blocks::with_inner(location.inner()).any(|one| repeats_captures(one, pattern));
        let keeps_out = keeps_out(location.inner(), scope);
        let is_path = sign == "~"
            && (is_whole(pattern) || repeats())
            && self.as_path(location, keeps_out).is_some();
        (!is_path).then_some(found)
    }

    /// The path of a location with an expression, if its requests find no other route than its own,
    /// and no request that it keeps out finds another route.
    fn as_path(
        &mut self,
        location: &Directive,
        keeps_out: bool,
    ) -> Option<(Path, Vec<(String, String)>)> {
        let pattern = location.word(1);
        let found = self.of_expression(pattern).filter(|_| is_whole(pattern) || !keeps_out)?;
        // All requests of the path must find the locations around it.
        let is_below = |one: &Around| {
            let is_open = matches!(one.path, Path::Prefix(_) | Path::Start(_));
            is_open && found.0.start().starts_with(one.path.text())
        };
        if !self.around.iter().all(is_below) {
            return None;
        }
        if !is_whole(pattern) {
            let text = "a path with a line break finds the route of another path";
            self.nginx.notes.different(&location.at, text);
        }
        Some(found)
    }

    /// The `if` blocks of a location that only answer, before anything else in the location does.
    /// Also returns which directives are carried.
    fn first_of(
        &mut self,
        inner: &'d [Directive],
        scope: &Scope<'d>,
    ) -> (Vec<(Cel, Action)>, BTreeSet<usize>) {
        let (mut first, mut carried) = (Vec::new(), BTreeSet::new());
        let names = self.server.names(scope);
        let nginx = &mut *self.nginx;
        for one in inner.iter().take_while(|one| !redirects::is_answer(one)) {
            let answered = rules::answer(one).filter(|_| one.name == "if");
            let Some(answered) = answered else { continue };
            nginx.asked += 1;
            if nginx.asked > CONDITIONS_MAX {
                break;
            }
            let tests = &nginx.switches.tests;
            let Some((when, why)) = conditions::of_if(one, tests, names.unnamed) else { continue };
            let answer = redirects::answer(answered, &names);
            if answer.is_err() {
                continue;
            }
            let (action, becomes) = redirects::carried(answered, answer);
            nginx.notes.became(&answered.at, &becomes);
            nginx.notes.became(&one.at, &conditions::becomes(why));
            rules::besides(one, &mut nginx.notes);
            first.push((when, action));
            carried.insert(one.at.id());
        }
        (first, carried)
    }

    /// Adds a route for each expression below each location whose requests it can take.
    fn add_expressions(&mut self) {
        let expressions = std::mem::take(&mut self.expressions);
        let mut all = Vec::new();
        for route in std::mem::take(&mut self.routes) {
            let path = route.path.start().to_ascii_lowercase();
            for expression in expressions.iter().take(route.after) {
                if meet(&expression.starts, std::slice::from_ref(&path)) {
                    // nginx asks the expressions inside the location of the route before.
                    let within = [&route.within[..], &expression.within].concat();
                    all.push(Route { path: route.path.clone(), within, ..expression.clone() });
                }
            }
            all.push(route);
        }
        self.routes = all;
    }

    /// The path of a location, or what becomes of a location that is not written.
    fn path(&mut self, location: &Directive, scope: &mut Scope<'d>) -> Result<Path, Becomes> {
        let inner = location.inner();
        let keeps_out = keeps_out(inner, scope);
        let path = match &location.words[..] {
            [sign, _]
                if sign == "~"
                    && let Some((path, groups)) = self.as_path(location, keeps_out) =>
            {
                scope.groups.extend(groups);
                return Ok(path);
            }
            [path] if path.starts_with('/') => Path::beginning(&cel::in_path(path)),
            [sign, path] if sign == "=" && path.starts_with('/') => Path::Exact(cel::in_path(path)),
            [sign, path] if sign == "^~" && path.starts_with('/') => {
                Path::beginning(&cel::in_path(path))
            }
            _ if keeps_out => {
                let text = "routes have no such expressions, and this one refuses requests";
                return Err(Unprotected(text));
            }
            _ => {
                // No request of a client reaches a location with a name.
                if !location.word(0).starts_with('@') {
                    self.others.push(self.other(location, scope));
                }
                if self.is_as_around(inner) {
                    return Err(Left(
                        "its requests get the files of the location around it, with the fields \
                         and the other files of that location",
                    ));
                }
                return Err(Left(
                    "routes have exact paths, prefixes and captures of segments; its requests go \
                     to the others",
                ));
            }
        };
        if path.text().contains("//") || path.text().contains("/./") || path.text().contains("/../")
        {
            return Err(Nothing("nginx resolves dots and merges slashes before"));
        }
        match has_no_route(path.text()) {
            true => Err(Unprotected("the path of a route has no such characters")),
            false => Ok(path),
        }
    }

    /// A location with an expression, which takes only requests of the location around it.
    fn other(&self, location: &Directive, scope: &Scope<'d>) -> Other {
        let inner = location.inner();
        let mut starts = starts(location.word(1));
        let mut of_files = None;
        let around = self.around.last();
        if let Some(Around { path, does, .. }) = around {
            let path = path.start().to_ascii_lowercase();
            starts.retain(|start| start.starts_with(&path) || path.starts_with(start.as_str()));
            for start in starts.iter_mut().filter(|start| path.starts_with(start.as_str())) {
                start.clone_from(&path);
            }
            of_files = does.clone().filter(|_| self.is_as_around(inner));
        }
        let does = of_files.unwrap_or_else(|| does(inner, scope, &self.nginx.constants));
        let around = around.map(|one| one.number);
        let body = named(inner, "client_max_body_size").next().map(|_| limits::body(scope));
        Other { at: location.at.clone(), starts, does, body, stores: stores(scope), around }
    }

    /// Whether a location serves the files of the location around it.
    fn is_as_around(&self, inner: &[Directive]) -> bool {
        let is_of_files = self.around.last().is_some_and(|one| one.is_of_files);
        is_of_files && !inner.iter().any(|one| is_action(one) || one.name == "if")
    }

    /// Compares each location with an expression with the routes that its requests would find. A
    /// route that does something else is closed. A route that stores otherwise stores nothing.
    fn compare_others(&mut self) {
        let mut by_start: BTreeMap<&str, Vec<&Other>> = BTreeMap::new();
        for other in &self.others {
            for start in &other.starts {
                by_start.entry(start).or_default().push(other);
            }
        }
        let notes = &mut self.nginx.notes;
        for route in &mut self.routes {
            let Some(does) = &route.does else { continue };
            let path = route.path.start().to_ascii_lowercase();
            // Expressions that begin above the path of the route, then those that begin below it.
            let above = (0..path.len()).filter(|end| path.is_char_boundary(*end));
            let above = above.filter_map(|end| by_start.get(&path[..end]));
            let below =
                by_start.range(path.as_str()..).take_while(|(start, _)| start.starts_with(&path));
            for other in above.chain(below.map(|(_, others)| others)).flatten() {
                self.compared += 1;
                if self.compared > COMPARISONS_MAX {
                    self.closed.all = true;
                    let text = "there are too many: the server is closed";
                    return notes.unprotected(&other.at, text);
                }
                let is_outside = |around| !route.within.contains(&around) && !route.is_expression;
                // No path of the expression is one of the other.
                if !route.starts.is_empty() && !meet(&route.starts, &other.starts) {
                    continue;
                }
                let is_answer = route.is_expression && !forwards(&route.action);
                if other.around.map_or(is_answer, is_outside) {
                    continue;
                }
                if let Some(body) = other.body.filter(|body| *body < route.body) {
                    route.body = body;
                    notes.left(&other.at, "a limit on bodies holds for the others, too");
                }
                if *does != other.does {
                    route.closed = true;
                    let text = "its requests would find a route that does something else";
                    notes.unprotected(&other.at, text);
                } else if route.keys.is_some() && stores(&route.scope) != other.stores {
                    route.keys = None;
                    notes.left(&other.at, "nothing is stored where it would be stored otherwise");
                }
            }
        }
    }

    fn write(self) {
        let own = self.routes.iter().filter(|route| !route.is_automatic);
        let own: BTreeSet<Path> = own.map(|route| route.path.clone()).collect();
        // If there is also a location `/api`, nginx does not redirect `/api` to `/api/`.
        let is_own =
            |path: &Path| own.contains(path) || own.contains(&Path::Start(path.text().to_owned()));
        let mut written = BTreeSet::new();
        for route in self.routes.iter().filter(|one| !one.is_automatic || !is_own(&one.path)) {
            if self.nginx.tree.count("route") < ROUTES_MAX {
                write(route, self.server, (self.closed, &mut written), self.nginx);
                continue;
            }
            self.nginx.is_full = true;
            let text = format!("of more than {ROUTES_MAX} routes, its requests would find another");
            self.nginx.notes.unprotected(&route.at, text);
        }
    }
}

/// Where a location sends its requests, and with which fields.
fn does(inner: &[Directive], scope: &Scope<'_>, constants: &Constants) -> String {
    let constants = constants.at(inner);
    let is_unfixed = |one: &&Directive| {
        one.name == "set"
            && variables::only(one.word(0)).is_none_or(|name| !constants.contains_key(&name))
    };
    let all = inner
        .iter()
        .filter(|one| is_action(one) || is_unfixed(one))
        .chain(scope.all("proxy_set_header").iter().copied());
    let all = all.chain(scope.all("proxy_hide_header").iter().copied());
    all.map(|one| variables::with_values(&one.shown(), &constants) + ";").collect()
}

/// Whether requests get a file, or may go to an upstream.
fn forwards(action: &Action) -> bool {
    action.forwards() || matches!(action, Action::Files(..))
}

/// Whether this says what becomes of a request.
fn is_action(one: &Directive) -> bool {
    one.name.ends_with("_pass") || is_one("return rewrite root alias try_files internal", &one.name)
}

/// What decides what a location stores; `None`: nothing.
fn stores(scope: &Scope<'_>) -> Option<String> {
    let cache = store::cache(scope)?;
    let more = store::about(scope);
    Some([cache].into_iter().chain(more).map(|one| one.shown() + ";").collect())
}

/// Whether a location keeps requests out.
fn keeps_out(inner: &[Directive], scope: &Scope<'_>) -> bool {
    scope.is_denied()
        || scope.is_unprotected()
        || scope.asks_login()
        || scope.refused().is_some()
        || inner.iter().any(table::restricts)
}

/// Whether the path of our file for an expression matches the same paths as the expression. `$`
/// also matches before a line break, and `.` matches no line break.
fn is_whole(pattern: &str) -> bool {
    !pattern.ends_with('$')
}

/// Whether a directive repeats what an expression captures.
fn repeats_captures(one: &Directive, pattern: &str) -> bool {
    let groups: Vec<String> = variables::captures(pattern).collect();
    let mut all = one.words.iter().flat_map(|word| variables::variables(word));
    all.any(|name| name.parse::<u8>().is_ok() || groups.contains(&name))
}

/// Whether this text cannot be the path of a route.
fn has_no_route(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    path.contains(['?', '#', ' ', '{', '}', '*', '\\']) || matches!(last, "." | "..")
}

/// Writes the routes of a location. `written`: the paths and the conditions of the server's routes,
/// of which the first is taken.
fn write<'d>(
    route: &Route<'d>,
    server: &Server<'d>,
    (closed, written): (Closed, &mut BTreeSet<(Path, String)>),
    nginx: &mut Nginx<'d>,
) {
    let (scope, from) = (&route.scope, route.at.to_string());
    let is_of_files = matches!(route.action, Action::Files(..));
    let forwards = route.action.forwards() || is_of_files || route.action == Action::NotCarried;
    let is_denied = scope.is_denied() && forwards;
    let denied = Action::Answer { status: 403, body: "denied\n".to_owned() };
    let mut first = route.first.clone();
    let guard = route.more.guard.as_ref();
    let refuses = forwards && !guard.is_some_and(Guard::has_networks);
    first.extend(scope.refused().filter(|_| refuses).map(|one| (one.clone(), denied.clone())));
    let route = &Route { when: with(&server.only_for, &route.when), ..route.clone() };
    nginx.conditions += 2 * usize::from(server.only_for.is_some());
    nginx.is_full |= server.only_for.is_some() && nginx.conditions > CONDITIONS_MAX;
    let and = |one: &Cel| with(&route.when, &Some(one.clone()));
    let mut keys = route.keys.clone();
    let passes = keys.as_ref().map(|keys| keys.passes.clone()).unwrap_or_default();
    let lacks_guard = guard.is_none() && (route.action.forwards() || is_of_files);
    let mut is_closed = closed.all || route.closed || scope.is_unprotected() || lacks_guard;
    // Two for each: one with the hosts, and one for the default server.
    let wanted = 2 * (first.len() + usize::from(!passes.is_empty()));
    if wanted > 0 && nginx.conditions + wanted > CONDITIONS_MAX / 2 {
        let text = "there are too many conditions, so it is closed, or nothing is stored";
        nginx.notes.unprotected(&route.at, text);
        is_closed |= !first.is_empty();
        first.clear();
        keys = None;
    } else {
        nginx.conditions += wanted;
    }
    let mut sections = Vec::new();
    for (when, action) in &first {
        let mut section = Section::new("route");
        route.path.write(&mut section, &from);
        section.set_some("when", and(when).as_ref().map(Cel::text), &from);
        action.write(&mut section, &from);
        sections.push(section);
    }
    if route.action.forwards() && !is_denied {
        if let Some(passes) = Cel::any(passes).filter(|_| keys.is_some()) {
            sections.push(to_upstream(route, and(&passes).as_ref(), None, nginx));
        }
        sections.push(to_upstream(route, route.when.as_ref(), keys.as_ref(), nginx));
        nginx.limited.push(Limited::new(server, &route.path, scope));
    } else {
        let mut section = Section::new("route");
        route.path.write(&mut section, &from);
        section.set_some("when", route.when.as_ref().map(Cel::text), &from);
        match is_denied {
            true => denied.write(&mut section, "deny all"),
            false => route.action.write(&mut section, &from),
        }
        if is_of_files && !is_denied {
            besides(route, false, &mut section);
            nginx.limited.push(Limited::new(server, &route.path, scope));
        }
        sections.push(section);
    }
    let is_first = |section: &Section| {
        let when = section.text("when").map(|when| (route.path.clone(), when.to_owned()));
        when.is_none_or(|one| written.insert(one))
    };
    sections.retain(is_first);
    for mut section in sections {
        let answers = section.text("answer").is_some_and(|text| text == "denied\n");
        if !answers && is_closed && !nginx.open {
            section.close();
        }
        if !server.hosts.is_empty() {
            let mut named = section.clone();
            named.set("hosts", server.hosts.clone(), &server.directive.at);
            nginx.tree.add(named);
        }
        if server.default {
            if closed.default && !nginx.open {
                section.close();
            }
            nginx.tree.add(section);
        }
    }
}

/// The condition that both hold, of those that there are.
fn with(one: &Option<Cel>, other: &Option<Cel>) -> Option<Cel> {
    Cel::all(one.iter().chain(other).cloned().collect())
}

/// A route to an upstream. `keys`: what it stores; `None`: nothing.
fn to_upstream<'d>(
    route: &Route<'d>,
    when: Option<&Cel>,
    keys: Option<&Keys>,
    nginx: &mut Nginx<'d>,
) -> Section {
    let mut section = Section::new("route");
    let (scope, from) = (&route.scope, route.at.to_string());
    route.path.write(&mut section, &from);
    section.set_some("when", when.map(Cel::text), &from);
    route.action.write(&mut section, &from);
    match keys {
        Some(keys) => keys.write(&mut section, "proxy_cache"),
        None if stores(scope).is_none() => {
            section.set("store", false, "without proxy_cache nothing is stored");
        }
        None if route.keys.is_some() => {
            section.set("store", false, "proxy_cache_bypass, proxy_no_cache");
        }
        None => section.set("store", false, "see the notes of the import"),
    }
    let codes = store::compression(scope, &mut nginx.tree, &mut nginx.notes);
    if nginx.codes && !codes {
        section.set("compression", false, "gzip is off here");
    }
    fields(&mut section, scope, keys.is_some(), &mut nginx.notes);
    limits::own_body(&mut section, scope, route.body, nginx.body);
    besides(route, keys.is_some(), &mut section);
    if let Some(expires) = scope.on("expires") {
        nginx.notes.left(&expires.at, "Cache-Control is the upstream's");
    }
    let (more, by_default) = (&route.more, route.more.redirects.by_default);
    more.redirects.write(&mut section);
    responses::cookies(scope, &mut section, &mut nginx.notes);
    if let Some((path, url)) = &more.upstream_path {
        section.set("upstream_path", path.clone(), &from);
        if let Some(url) = url.as_ref().filter(|_| by_default) {
            let location = section.below("route.location");
            location.set("from", url.clone(), "proxy_redirect default");
            location.set("to", route.path.text(), "proxy_redirect default");
        }
    }
    if let Some(url) = route.cut.as_ref().filter(|_| by_default) {
        let rule = section.below("route.response");
        change(rule, "cut", "Location", Some(url), "proxy_redirect default");
    }
    section
}

/// The guard and the error pages of a route.
fn besides(route: &Route<'_>, stores: bool, section: &mut Section) {
    if let Some(guard) = &route.more.guard {
        guard.write(section, stores, &route.at.to_string());
    }
    errors::write(&route.more.pages, &route.scope, section);
}

/// Whether a path can begin as one of both lists says.
fn meet(starts: &[String], others: &[String]) -> bool {
    let meets = |a: &String, b: &String| a.starts_with(b) || b.starts_with(a);
    starts.iter().any(|start| others.iter().any(|other| meets(start, other)))
}
