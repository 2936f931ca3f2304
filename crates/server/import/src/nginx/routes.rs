//! Locations of a server, as routes.
//!
//! A location with a rule that keeps requests out and is not carried is closed. If its requests
//! would then find another route (an expression), the whole server is closed. A location with an
//! action that is not carried is answered with 501, because its requests must not go elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use ::conditions::Lists;

use super::blocks::{Directive, named};
use super::limits::{self, Limited};
use super::redirects;
use super::scope::{Scope, Server};
use super::upstreams::Wanted;
use super::variables::only;
use super::{Nginx, conditions, rules, store, table};
use imported::cel::{self, Cel};
use imported::fields;
use imported::limits::{COMPARISONS_MAX, CONDITIONS_MAX, DEPTH_MAX, ROUTES_MAX};
use imported::note::{Fate, Notes, Place};
use imported::pattern::{host_of, literal, path_of, repeated};
use imported::route::{Action, CAPTURES, Keys, Path, change, has_value};
use imported::table::Becomes::{self, Carried, Different, Left, Nothing, Unprotected};
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
    /// nginx makes this redirect by itself, unless a location has this path.
    is_automatic: bool,
}

impl<'d> Route<'d> {
    /// A route that stores nothing, and whose requests no expression can take.
    fn plain(at: &Place, path: Path, action: Action, scope: &Scope<'d>) -> Route<'d> {
        let (at, scope) = (at.clone(), scope.clone());
        let (when, first, after) = (None, Vec::new(), 0);
        let (does, keys, cut, closed, is_automatic) = (None, None, None, false, false);
        Route { at, path, when, first, after, action, scope, does, keys, closed, cut, is_automatic }
    }
}

/// A location with an expression.
struct Other {
    at: Place,
    /// The starts of its paths.
    starts: Vec<String>,
    does: String,
    /// `None`: nothing is stored.
    stores: Option<String>,
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
        depth: 0,
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
            let text = "requests that no location carries are answered with 501";
            found.nginx.notes.different(at, text);
            found.routes.push(Route::plain(at, root, Action::NotCarried, &server.scope));
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
    expressions: Vec<(Vec<String>, Route<'d>)>,
    /// There is room for the conditions of all expressions.
    is_roomy: bool,
    /// The paths of all locations, with whether one comes before any expression.
    paths: Vec<(bool, Path)>,
    /// Paths that were compared with those of expressions.
    compared: usize,
    /// Locations inside each other.
    depth: usize,
}

impl<'d> Found<'_, 'd> {
    fn paths_of(&mut self, all: &[Directive], depth: usize) {
        for location in named(all, "location").filter(|_| depth < DEPTH_MAX) {
            let path = match (location.word(0), location.word(1)) {
                ("=", path) => (true, Path::Exact(path.to_owned())),
                ("^~", path) => (true, Path::beginning(path)),
                ("~", pattern) => (false, path_of(pattern).map_or_else(Path::root, |one| one.0)),
                (path, _) => (false, Path::beginning(path)),
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
        if self.depth < DEPTH_MAX {
            self.depth += 1;
            named(all, "location").for_each(|location| self.location(location, outer));
            self.depth -= 1;
        }
    }

    fn location(&mut self, location: &'d Directive, outer: &Scope<'d>) {
        let inner = location.inner();
        let mut scope = outer.inside(inner, &mut self.nginx.notes);
        let (first, carried) = self.first_of(inner, &scope);
        scope.unprotected |= self.nginx.conditions(inner, &carried);
        let has = |name| named(inner, name).next().is_some();
        // The files of the server decide which requests go to the upstream.
        scope.unprotected |= has("try_files") && has("proxy_pass");
        let when = self.expression(location);
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
        let mut cut = None;
        let action = action(inner, (&mut path, &mut cut), &scope, self.server, self.nginx);
        let forwards = matches!(action, Action::Upstream(_));
        if let Path::Prefix(prefix) = &path
            && forwards
            && prefix.len() > 1
            && when.is_none()
            && location.word(0) != "~"
            && let Some(bare) = prefix.strip_suffix('/')
        {
            // nginx answers a request for the prefix without its slash like this.
            let action = Action::Redirect { status: 301, to: prefix.clone(), with_path: false };
            let path = Path::Exact(bare.to_owned());
            let route = Route::plain(&location.at, path, action, &Scope::default());
            self.routes.push(Route { is_automatic: true, ..route });
        }
        let beats = matches!(path, Path::Exact(_)) || location.word(0) == "^~";
        let does = (!beats && forwards).then(|| does(inner, &scope));
        let switches = (&self.nginx.switches.maps, &self.nginx.switches.tests);
        let keys = match forwards {
            true => store::keys(&scope, switches, &mut self.nginx.notes),
            false => None,
        };
        let after = if beats { 0 } else { usize::MAX };
        let after = if location.word(0) == "~" { self.expressions.len() } else { after };
        let route = Route::plain(&location.at, path, action, &scope);
        let route = Route { when, first, after, does, keys, cut, ..route };
        match &route.when {
            Some(_) => self.expressions.push((starts(location.word(1)), route)),
            None => self.routes.push(route),
        }
        self.locations(inner, &scope);
    }

    /// The condition of a location with an expression, if our file can express it, and the location
    /// has no other inside.
    fn expression(&mut self, location: &Directive) -> Option<Cel> {
        let [sign, pattern] = &location.words[..] else { return None };
        let case = match sign.as_str() {
            "~" => "",
            "~*" => "(?i)",
            _ => return None,
        };
        let is_outer = self.depth == 1 && named(location.inner(), "location").next().is_none();
        if !is_outer || !self.is_roomy {
            return None;
        }
        let is_path = sign == "~" && self.of_expression(pattern).is_some();
        let found = cel::matches("path", &format!("{case}{pattern}"))
            .filter(|one| cel::check(one, &Lists::new()).is_some());
        found.filter(|_| !is_path)
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
            let Some((when, why)) = conditions::of_if(one, &nginx.switches.tests) else { continue };
            let answer = redirects::answer(answered, &names);
            if answer.is_err() {
                continue;
            }
            let (action, becomes) = redirects::carried(answered, answer);
            nginx.notes.became(&answered.at, &becomes);
            nginx.notes.became(&one.at, &conditions::becomes(why));
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
            for (starts, expression) in expressions.iter().take(route.after) {
                let meets = |start: &String| start.starts_with(&path) || path.starts_with(start);
                if starts.iter().any(meets) {
                    all.push(Route { path: route.path.clone(), ..expression.clone() });
                }
            }
            all.push(route);
        }
        self.routes = all;
    }

    /// The path of a location, or what becomes of a location that is not written.
    fn path(&mut self, location: &Directive, scope: &mut Scope<'d>) -> Result<Path, Becomes> {
        let inner = location.inner();
        let path = match &location.words[..] {
            [sign, pattern]
                if sign == "~"
                    && let Some((path, groups)) = self.of_expression(pattern) =>
            {
                scope.groups.extend(groups);
                return Ok(path);
            }
            [path] if path.starts_with('/') => Path::beginning(path),
            [sign, path] if sign == "=" && path.starts_with('/') => Path::Exact(path.clone()),
            [sign, path] if sign == "^~" && path.starts_with('/') => Path::beginning(path),
            _ if scope.is_denied()
                || scope.is_unprotected()
                || inner.iter().any(table::restricts) =>
            {
                let text = "routes have no such expressions, and this one refuses requests";
                return Err(Unprotected(text));
            }
            _ => {
                // No request of a client reaches a location with a name.
                if !location.word(0).starts_with('@') {
                    self.others.push(Other {
                        at: location.at.clone(),
                        starts: starts(location.word(1)),
                        does: does(inner, scope),
                        stores: stores(scope),
                    });
                }
                return Err(Left(
                    "routes have exact paths, prefixes and captures of segments; its requests go \
                     to the others",
                ));
            }
        };
        match has_no_route(path.text()) {
            true => Err(Unprotected("the path of a route has no such characters")),
            false => Ok(path),
        }
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
        for route in self.routes.iter().filter(|one| !one.is_automatic || !is_own(&one.path)) {
            if self.nginx.tree.count("route") < ROUTES_MAX {
                write(route, self.server, self.closed, self.nginx);
                continue;
            }
            self.nginx.is_full = true;
            let text = format!("of more than {ROUTES_MAX} routes, its requests would find another");
            self.nginx.notes.unprotected(&route.at, text);
        }
    }
}

/// Where a location sends its requests, and with which fields.
fn does(inner: &[Directive], scope: &Scope<'_>) -> String {
    let is_action = |one: &&Directive| {
        one.name.ends_with("_pass") || matches!(one.name.as_str(), "return" | "rewrite")
    };
    let all = inner.iter().filter(is_action).chain(scope.all("proxy_set_header").iter().copied());
    let all = all.chain(scope.all("proxy_hide_header").iter().copied());
    all.map(|one| one.shown() + ";").collect()
}

/// What decides what a location stores; `None`: nothing.
fn stores(scope: &Scope<'_>) -> Option<String> {
    let cache = store::cache(scope)?;
    let more = store::about(scope);
    Some([cache].into_iter().chain(more).map(|one| one.shown() + ";").collect())
}

/// The starts of the paths that an expression matches, in lower case.
pub(super) fn starts(pattern: &str) -> Vec<String> {
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

/// Whether this text cannot be the path of a route.
fn has_no_route(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    path.contains(['?', '#', ' ', '{', '}', '*', '\\']) || matches!(last, "." | "..")
}

/// What a location does. Writes the notes.
fn action<'d>(
    inner: &'d [Directive],
    (path, cut): (&mut Path, &mut Option<String>),
    scope: &Scope<'d>,
    server: &Server<'d>,
    nginx: &mut Nginx<'d>,
) -> Action {
    if let Some(answer) =
        redirects::action(inner.iter(), &server.names(scope), path, &mut nginx.notes)
    {
        return answer;
    }
    let pass = inner.iter().find(|one| matches!(one.name.as_str(), "proxy_pass" | "grpc_pass"));
    let Some(pass) = pass else { return Action::NotCarried };
    let (scheme, authority) = match server_of(pass, path) {
        Ok(parts) => parts,
        Err(why) => {
            nginx.notes.left(&pass.at, format!("{why}; this is answered with 501"));
            return Action::NotCarried;
        }
    };
    let (host, forwarded) = sent(scope, authority);
    // By default, nginx removes the URL of the upstream from Location.
    let redirect = scope.get("proxy_redirect");
    let (cuts, becomes) = match redirect.map_or("default", |one| one.word(0)) {
        "default" => (host.as_deref() == Some(authority), Carried),
        "off" => (false, Carried),
        _ => {
            let text = "of Location only the URL of the upstream is taken off, by `default`";
            (false, Left(text))
        }
    };
    if let Some(one) = redirect {
        nginx.notes.became(&one.at, &becomes);
    }
    *cut = cuts.then(|| format!("{scheme}://{authority}"));
    let (scheme, authority) = (scheme.to_owned(), authority.to_owned());
    let wanted = Wanted { at: pass.at.clone(), scheme, authority, host, forwarded, scope };
    match nginx.upstreams.name(&wanted, &mut nginx.tree, &mut nginx.notes) {
        Some(name) => {
            nginx.notes.carried(&pass.at);
            Action::Upstream(name)
        }
        None => {
            nginx.notes.left(&pass.at, "no server of it is carried");
            Action::NotCarried
        }
    }
}

/// The scheme and the authority of `proxy_pass`, or why it is not carried.
fn server_of<'d>(pass: &'d Directive, path: &Path) -> Result<(&'d str, &'d str), String> {
    let (scheme, rest) = pass.word(0).split_once("://").ok_or("the server is not a URL")?;
    let (authority, uri) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let known = matches!(scheme, "http" | "https" | "grpc" | "grpcs");
    if !known || pass.word(0).contains('$') || authority.is_empty() || authority.contains("unix:") {
        return Err("the server is not a fixed host and port".to_owned());
    }
    let own = path.text();
    if !uri.is_empty() && uri != own {
        return Err(format!(
            "{own} would be replaced by {uri} in each URL, and paths are passed on as they are"
        ));
    }
    Ok((scheme, authority))
}

/// The Host that upstreams get, `None` for the client's, and whether X-Forwarded-For is sent.
fn sent(scope: &Scope<'_>, authority: &str) -> (Option<String>, bool) {
    let (mut host, mut forwarded) = (Some(authority.to_owned()), false);
    for header in scope.all("proxy_set_header") {
        let (name, value) = (header.word(0).to_ascii_lowercase(), header.word(1));
        match name.as_str() {
            "host" => {
                host = match value {
                    "$proxy_host" => Some(authority.to_owned()),
                    value if value.contains('$') => None,
                    value => Some(value.to_owned()),
                };
            }
            "x-forwarded-for" => forwarded = value == "$proxy_add_x_forwarded_for",
            _ => {}
        }
    }
    // If the original replaces X-Forwarded-For, ours must not append to the client's field.
    (host, forwarded)
}

fn write<'d>(route: &Route<'d>, server: &Server<'d>, closed: Closed, nginx: &mut Nginx<'d>) {
    let (scope, from) = (&route.scope, route.at.to_string());
    let forwards = matches!(route.action, Action::Upstream(_) | Action::NotCarried);
    let is_denied = scope.is_denied() && forwards;
    let denied = Action::Answer { status: 403, body: "denied\n".to_owned() };
    let mut first = route.first.clone();
    first.extend(scope.refused().filter(|_| forwards).map(|one| (one.clone(), denied.clone())));
    let and = |one: &Cel| Cel::all(route.when.iter().chain([one]).cloned().collect());
    let mut keys = route.keys.clone();
    let passes = keys.as_ref().map(|keys| keys.passes.clone()).unwrap_or_default();
    let mut is_closed = closed.all || route.closed || scope.is_unprotected();
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
    if let Action::Upstream(_) = route.action
        && !is_denied
    {
        if let Some(passes) = Cel::any(passes).filter(|_| keys.is_some()) {
            sections.push(to_upstream(route, and(&passes).as_ref(), None, nginx));
        }
        sections.push(to_upstream(route, route.when.as_ref(), keys.as_ref(), nginx));
        nginx.limited.push(Limited::new(server, &route.path, scope));
        nginx.bodies.push(limits::body(scope));
    } else {
        let mut section = Section::new("route");
        route.path.write(&mut section, &from);
        section.set_some("when", route.when.as_ref().map(Cel::text), &from);
        match is_denied {
            true => denied.write(&mut section, "deny all"),
            false => route.action.write(&mut section, &from),
        }
        sections.push(section);
    }
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
        Some(keys) => {
            keys.write(&mut section, "proxy_cache");
            let codes = store::compression(scope, &mut nginx.tree, &mut nginx.notes);
            if nginx.codes && !codes {
                section.set("compression", false, "gzip is off here");
            }
        }
        None if stores(scope).is_none() => {
            section.set("store", false, "without proxy_cache nothing is stored");
        }
        None if route.keys.is_some() => {
            section.set("store", false, "proxy_cache_bypass, proxy_no_cache");
        }
        None => section.set("store", false, "see the notes of the import"),
    }
    fields(&mut section, scope, keys.is_some(), &mut nginx.notes);
    if let Some(url) = &route.cut {
        let rule = section.below("route.response");
        change(rule, "cut", "Location", Some(url), "proxy_redirect default");
    }
    section
}

/// Changes to fields. Their notes are those of [`header_notes`].
fn fields(section: &mut Section, scope: &Scope<'_>, stores: bool, notes: &mut Notes) {
    let (_, forwarded) = sent(scope, "");
    for header in scope.all("proxy_set_header") {
        let (name, value) = (header.word(0), header.word(1));
        let is_sent = forwarded && is_forwarded(name);
        if is_sent && !value.starts_with('$') && !name.eq_ignore_ascii_case("x-forwarded-for") {
            let text = "X-Forwarded-For, -Proto and -Host are sent together, as the client came";
            notes.left(&header.at, text);
        }
        if fields::is_free(name) && !is_sent && !is_own(name, value) {
            // The original replaces the client's field. If the new value is not carried, the field
            // is removed, so that the upstream does not believe the client.
            let new = sent_value(value, &scope.groups);
            if new.is_none() && value.contains('$') {
                notes.left(&header.at, REMOVED);
            }
            let rule = section.below("route.request");
            change(rule, "set", name, new.as_deref(), &header.at.to_string());
        }
    }
    for header in scope.all("proxy_hide_header") {
        let name = header.word(0);
        if stores && fields::is_about_caching(name) && !name.eq_ignore_ascii_case("set-cookie") {
            let text = "clients get it: without it, the store would not respect it";
            notes.left(&header.at, text);
        } else if fields::is_free(name) && !fields::has_tags(name) {
            section.below("route.response").set("remove", header.word(0), &header.at);
        }
    }
    for header in scope.all("add_header") {
        let name = header.word(0);
        if fields::is_free(name)
            && !fields::is_about_caching(name)
            && let Some(value) = fixed(header.word(1), &scope.groups)
        {
            let rule = section.below("route.response");
            change(rule, "add", name, Some(&value), &header.at.to_string());
        }
    }
}

/// Variables, and the values of our file that they are.
const VALUES: [(&str, &str); 7] = [
    ("remote_addr", "{client}"),
    ("scheme", "{scheme}"),
    ("host", "{host}"),
    ("server_port", "{port}"),
    ("request_id", "{request_id}"),
    ("ssl_server_name", "{tls.sni}"),
    ("ssl_client_s_dn", "{tls.client_subject}"),
];

/// A value that upstreams are sent.
fn sent_value(value: &str, groups: &[(String, String)]) -> Option<String> {
    let values = VALUES.iter().map(|(name, own)| ((*name).to_owned(), (*own).to_owned()));
    let all: Vec<(String, String)> = values.chain(groups.iter().cloned()).collect();
    match value.contains('$') {
        true => repeated(value, '$', &all),
        false => fixed(value, groups).filter(|value| !has_value(value)),
    }
}

/// A value whose only variables are captures, in the form of our file.
fn fixed(value: &str, groups: &[(String, String)]) -> Option<String> {
    match value.contains('$') {
        true => repeated(value, '$', groups),
        // In a route with captures, braces are captures.
        false if !groups.is_empty() && value.contains('{') || has_value(value) => None,
        false => Some(value.to_owned()).filter(|value| !value.is_empty()),
    }
}

/// Whether a value is the client's own field of this name.
fn is_own(name: &str, value: &str) -> bool {
    let own = only(value);
    let own = own.as_deref().and_then(|own| own.strip_prefix("http_"));
    own.is_some_and(|own| own == name.to_ascii_lowercase().replace('-', "_"))
}

fn is_forwarded(name: &str) -> bool {
    let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
    names.iter().any(|one| name.eq_ignore_ascii_case(one))
}

/// The notes of `proxy_set_header` and `add_header`, once for each line.
pub(crate) fn header_notes(all: &[Directive], groups: &[(String, String)], notes: &mut Notes) {
    for one in all {
        let (name, value) = (one.word(0).to_ascii_lowercase(), one.word(1));
        match one.name.as_str() {
            "proxy_set_header" => notes.became(&one.at, &set_header(&name, value, groups)),
            "add_header" => notes.became(&one.at, &add_header(&name, value, groups)),
            _ => {}
        }
        let more = match (one.name.as_str(), one.word(0)) {
            ("location", "~") => path_of(one.word(1)).map(|(_, found)| found.groups),
            ("server", _) => {
                let names = named(one.inner(), "server_name").flat_map(|one| &one.words);
                names.filter_map(|word| host_of(word.strip_prefix('~')?)).next().map(|h| h.groups)
            }
            _ => None,
        };
        let groups = [groups, &more.unwrap_or_default()].concat();
        header_notes(one.inner(), &groups, notes);
    }
}

/// What becomes of `proxy_set_header NAME VALUE`. The name is in lower case.
fn set_header(name: &str, value: &str, groups: &[(String, String)]) -> Becomes {
    match name {
        "host" => match value {
            "$http_host" | "$proxy_host" => Carried,
            "$host" => Different("the client's Host is sent as it is, with its port"),
            _ if value.contains('$') => Left("there are no variables; the client's Host is sent"),
            _ => Carried,
        },
        "connection" | "upgrade" => {
            Nothing("connections are kept, and websocket is passed on (upgrade.protocols)")
        }
        "x-forwarded-for" if value == "$proxy_add_x_forwarded_for" => {
            Different("X-Forwarded-For, -Proto and -Host are sent together")
        }
        // With X-Forwarded-For, our server sends the same.
        "x-forwarded-proto" if only(value).as_deref() == Some("scheme") => Carried,
        "x-forwarded-host" if sent_value(value, groups).is_some() && value.starts_with('$') => {
            Different("with X-Forwarded-For it is the client's Host, with its port")
        }
        "x-forwarded-proto" | "x-forwarded-host" if value.starts_with('$') => {
            Different("sent with X-Forwarded-For as the client came, or removed")
        }
        _ if is_own(name, value) => Carried,
        _ if sent_value(value, groups).is_some_and(|new| is_known(&new, groups))
            && fields::is_free(name) =>
        {
            Carried
        }
        _ => match variable(name, value, groups) {
            Some(becomes) => becomes,
            None if value.contains('$') => Left(REMOVED),
            None if has_value(value) => Left("our file would replace a part of the value"),
            None if !fields::is_free(name) => Left("this field cannot be changed"),
            None => Carried,
        },
    }
}

/// Whether a value has values of the request, and no captures.
fn is_known(value: &str, groups: &[(String, String)]) -> bool {
    has_value(value) && !groups.iter().any(|(_, own)| value.contains(own.as_str()))
}

/// What becomes of `add_header NAME VALUE`.
fn add_header(name: &str, value: &str, groups: &[(String, String)]) -> Becomes {
    match variable(name, value, groups) {
        Some(becomes) => becomes,
        None if value.contains('$') => Left("there are no variables"),
        None if has_value(value) => Left("our file would replace a part of the value"),
        None if !fields::is_free(name) => Left("this field cannot be changed"),
        None if fields::is_about_caching(name) => Left("it would change stored responses"),
        None if value.is_empty() => Nothing("nginx adds no field without a value"),
        None => Different("it is added to responses of upstreams, whatever their status"),
    }
}

/// What becomes of a value with variables, if these are captures or what Cache-Status says.
fn variable(name: &str, value: &str, groups: &[(String, String)]) -> Option<Becomes> {
    if value.contains("$upstream_cache_status") {
        return Some(Different("every response has Cache-Status instead"));
    }
    let is_carried = value.contains('$')
        && fields::is_free(name)
        && !fields::is_about_caching(name)
        && fixed(value, groups).is_some();
    is_carried.then_some(Different(CAPTURES))
}

const REMOVED: &str = "there are no variables, so the client's field is removed";
