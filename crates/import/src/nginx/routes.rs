//! Locations of a server, as routes.
//!
//! A location with a rule that keeps requests out and is not carried is closed. If its requests
//! would then find another route (an expression, or a prefix inside a segment), the whole server
//! is closed. A location with an action that is not carried is answered with 501, because its
//! requests must not go elsewhere.

use super::blocks::Directive;
use super::redirects::{self, Answer};
use super::scope::Scope;
use super::table;
use super::upstreams::{Upstreams, Wanted};
use crate::fields;
use crate::limits::{DEPTH_MAX, ROUTES_MAX};
use crate::note::{Fate, Notes, Place};
use crate::tree::{Section, Tree, Value};
use crate::vcl::pattern::literal;

/// Where routes are written.
pub(crate) struct Writer<'w> {
    pub(crate) tree: &'w mut Tree,
    pub(crate) notes: &'w mut Notes,
    pub(crate) upstreams: &'w mut Upstreams,
    pub(crate) open: bool,
}

/// A server with its names.
pub(crate) struct Server<'s> {
    pub(crate) directive: &'s Directive,
    pub(crate) scope: Scope,
    /// Hosts as routes have them.
    pub(crate) hosts: Vec<String>,
    /// It also answers requests for hosts that no server has.
    pub(crate) default: bool,
}

/// The path of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Path {
    Exact(String),
    Prefix(String),
}

/// What a route does.
#[derive(Clone, Debug)]
enum Action {
    Upstream(String),
    Answer(Answer),
    NotCarried,
}

struct Route {
    at: Place,
    path: Path,
    action: Action,
    scope: Scope,
    /// What [`does`] says, if a location with an expression can have its requests.
    does: Option<String>,
    store: bool,
    closed: bool,
}

impl Route {
    /// A route that stores nothing, and whose requests are no expression's.
    fn plain(at: Place, path: Path, action: Action, scope: Scope) -> Route {
        Route { at, path, action, scope, does: None, store: false, closed: false }
    }
}

/// A location with an expression.
struct Other {
    at: Place,
    shown: String,
    /// How its paths begin.
    starts: Vec<String>,
    does: String,
    /// `None`: nothing is stored.
    stores: Option<String>,
}

/// Writes the routes of a server.
///
/// `closed`: something restricts all servers and is not carried. `default_closed`: requests for
/// other hosts would go to the default server.
pub(crate) fn server(
    server: &Server<'_>,
    closed: bool,
    default_closed: bool,
    writer: &mut Writer<'_>,
) {
    let mut found = Found { routes: Vec::new(), unprotected: closed, others: Vec::new() };
    let inner = server.directive.inner();
    // A rewrite of the whole server comes before its locations.
    if let Some(answer) = redirects::action(inner, &server.hosts, server.default, writer.notes) {
        let skipped = inner.iter().filter(|directive| directive.name == "location");
        let (fate, text) = match answer {
            Some(_) => (Fate::Nothing, "the server answers all requests before"),
            None => (Fate::NotCarried, "what its server does before is not carried"),
        };
        for location in skipped {
            writer.notes.add(&location.at, &location.shown(), fate, text);
            table::inside(location, fate, text, writer.notes);
        }
        found.routes.push(Route::plain(
            server.directive.at.clone(),
            Path::Prefix("/".to_owned()),
            answer.map_or(Action::NotCarried, Action::Answer),
            server.scope.clone(),
        ));
    } else {
        found.conditions(inner, writer.notes);
        found.locations(inner, &server.scope, server, writer, 0);
        if !found.routes.iter().any(|route| route.path == Path::Prefix("/".to_owned())) {
            let text = "requests that no location carries are answered with 501";
            writer.notes.different(&server.directive.at, "server", text);
            found.routes.push(Route::plain(
                server.directive.at.clone(),
                Path::Prefix("/".to_owned()),
                Action::NotCarried,
                server.scope.clone(),
            ));
        }
    }
    found.compare_others(writer.notes);
    let closed = found.unprotected;
    for route in found.routes {
        if writer.tree.all("route").count() >= ROUTES_MAX {
            let text = format!("there are more than {ROUTES_MAX} routes");
            writer.notes.left(&route.at, "location", text);
            continue;
        }
        write(&route, server, (closed, default_closed), writer);
    }
}

struct Found {
    routes: Vec<Route>,
    /// Locations with expressions, which are not written.
    others: Vec<Other>,
    /// Requests that were kept out could find another route.
    unprotected: bool,
}

impl Found {
    /// `if` blocks of a server. One that answers with an error keeps requests out.
    fn conditions(&mut self, all: &[Directive], notes: &mut Notes) {
        for condition in all.iter().filter(|directive| directive.name == "if") {
            self.unprotected |= redirects::condition(condition, notes);
        }
    }

    fn locations(
        &mut self,
        all: &[Directive],
        outer: &Scope,
        server: &Server<'_>,
        writer: &mut Writer<'_>,
        depth: usize,
    ) {
        for location in all.iter().filter(|directive| directive.name == "location") {
            if depth < DEPTH_MAX {
                self.location(location, outer, server, writer, depth);
            }
        }
    }

    fn location(
        &mut self,
        location: &Directive,
        outer: &Scope,
        server: &Server<'_>,
        writer: &mut Writer<'_>,
        depth: usize,
    ) {
        let inner = location.inner();
        let mut scope = outer.inside(inner, writer.notes);
        for condition in inner.iter().filter(|directive| directive.name == "if") {
            scope.unprotected |= redirects::condition(condition, writer.notes);
        }
        let keeps_out = scope.denied || scope.unprotected || inner.iter().any(table::restricts);
        let shown = format!("location {}", location.words.join(" "));
        let path = match &location.words[..] {
            [path] if path.starts_with('/') => Path::Prefix(path.clone()),
            [sign, path] if sign == "=" && path.starts_with('/') => Path::Exact(path.clone()),
            [sign, path] if sign == "^~" && path.starts_with('/') => Path::Prefix(path.clone()),
            _ if keeps_out => {
                self.unprotected = true;
                let text = "routes have no expressions, and this one refuses requests";
                writer.notes.unprotected(&location.at, &shown, text);
                return not_written(location, writer);
            }
            _ => {
                let text = "routes have exact paths and prefixes; its requests go to the others";
                writer.notes.left(&location.at, &shown, text);
                // Other requests do not reach a location with a name.
                if !location.word(0).starts_with('@') {
                    self.others.push(Other {
                        at: location.at.clone(),
                        shown,
                        starts: starts(location.word(1)),
                        does: does(inner, &scope),
                        stores: stores(&scope),
                    });
                }
                return not_written(location, writer);
            }
        };
        let beats = matches!(path, Path::Exact(_)) || location.word(0) == "^~";
        let (Path::Exact(text) | Path::Prefix(text)) = &path;
        if text.contains(['?', '#', ' ']) {
            self.unprotected |= keeps_out;
            let text = "the path of a route has no such characters";
            writer.notes.unprotected(&location.at, &shown, text);
            return not_written(location, writer);
        }
        match &path {
            Path::Prefix(prefix) if !prefix.ends_with('/') && keeps_out => {
                self.unprotected = true;
                let text = format!("a prefix ends at a slash: {prefix}x would not be refused");
                writer.notes.unprotected(&location.at, &shown, text);
            }
            Path::Prefix(prefix) if !prefix.ends_with('/') => {
                let text = format!("a prefix ends at a slash: {prefix}x goes to another route");
                writer.notes.different(&location.at, &shown, text);
            }
            _ => writer.notes.carried(&location.at, &shown),
        }
        let action = action(inner, &path, &scope, server, writer);
        let forwards = matches!(action, Action::Upstream(_));
        if let Path::Prefix(prefix) = &path
            && forwards
            && prefix.len() > 1
            && let Some(bare) = prefix.strip_suffix('/')
        {
            // nginx answers a request for the prefix without its slash like this.
            let answer = Answer {
                at: location.at.clone(),
                status: 301,
                location: Some(prefix.clone()),
                with_path: false,
                body: None,
            };
            self.routes.push(Route::plain(
                location.at.clone(),
                Path::Exact(bare.to_owned()),
                Action::Answer(answer),
                Scope::default(),
            ));
        }
        let at = location.at.clone();
        // An exact location of that path comes before the redirect.
        self.routes.retain(|other| other.path != path || matches!(path, Path::Prefix(_)));
        let does = (!beats && forwards).then(|| does(inner, &scope));
        let store = forwards && stored(&scope, writer.notes);
        self.routes.push(Route {
            at,
            path,
            action,
            scope: scope.clone(),
            does,
            store,
            closed: false,
        });
        self.locations(inner, &scope, server, writer, depth + 1);
    }

    /// Where requests of an expression would find a route that does something else, that is closed;
    /// where they would find one that stores otherwise, nothing is stored.
    fn compare_others(&mut self, notes: &mut Notes) {
        for other in &self.others {
            for route in &mut self.routes {
                let (Path::Exact(path) | Path::Prefix(path)) = &route.path;
                let path = path.to_ascii_lowercase();
                let meet = |start: &String| path.starts_with(start) || start.starts_with(&path);
                let meets = other.starts.iter().any(meet);
                let Some(does) = route.does.as_ref().filter(|_| meets) else { continue };
                if *does != other.does {
                    route.closed = true;
                    let text = "its requests would find a route that does something else";
                    notes.unprotected(&other.at, &other.shown, text);
                } else if route.store && stores(&route.scope) != other.stores {
                    route.store = false;
                    let text = "nothing is stored where it would be stored otherwise";
                    notes.left(&other.at, &other.shown, text);
                }
            }
        }
    }
}

/// Notes for what is inside a location that is not written.
fn not_written(location: &Directive, writer: &mut Writer<'_>) {
    table::inside(location, Fate::NotCarried, "its location is not carried", writer.notes);
}

/// Where a location sends its requests, and with which fields.
fn does(inner: &[Directive], scope: &Scope) -> String {
    let is_action = |one: &&Directive| {
        one.name.ends_with("_pass") || matches!(one.name.as_str(), "return" | "rewrite")
    };
    let all = inner.iter().filter(is_action).chain(&scope.set_headers);
    all.map(|one| one.shown() + ";").collect()
}

/// What decides what a location stores; `None`: nothing.
fn stores(scope: &Scope) -> Option<String> {
    let cache = scope.get("proxy_cache").filter(|cache| cache.word(0) != "off")?;
    let names = ["proxy_cache_key", "proxy_cache_bypass", "proxy_no_cache", "proxy_ignore_headers"];
    let more = names.iter().filter_map(|name| scope.get(name));
    Some([cache].into_iter().chain(more).map(|one| one.shown() + ";").collect())
}

/// How the paths begin, in lower case, that an expression matches.
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

fn action(
    inner: &[Directive],
    path: &Path,
    scope: &Scope,
    server: &Server<'_>,
    writer: &mut Writer<'_>,
) -> Action {
    if let Some(answer) = redirects::action(inner, &server.hosts, server.default, writer.notes) {
        return answer.map_or(Action::NotCarried, Action::Answer);
    }
    let pass = inner.iter().find(|one| matches!(one.name.as_str(), "proxy_pass" | "grpc_pass"));
    let Some(pass) = pass else { return Action::NotCarried };
    let (at, shown) = (&pass.at, pass.shown());
    let Some((scheme, rest)) = pass.word(0).split_once("://") else {
        writer.notes.left(at, &shown, "the server is not a URL; this is answered with 501");
        return Action::NotCarried;
    };
    let split = rest.find('/').unwrap_or(rest.len());
    let (authority, uri) = rest.split_at(split);
    let known = matches!(scheme, "http" | "https" | "grpc" | "grpcs");
    if !known || pass.word(0).contains('$') || authority.is_empty() || authority.contains("unix:") {
        let text = "the server is not a fixed host and port; this is answered with 501";
        writer.notes.left(at, &shown, text);
        return Action::NotCarried;
    }
    let (Path::Exact(own) | Path::Prefix(own)) = path;
    if !uri.is_empty() && uri != own {
        let text = format!(
            "{own} would be replaced by {uri} in each URL, and paths are passed on as they are; \
             this is answered with 501"
        );
        writer.notes.left(at, &shown, text);
        return Action::NotCarried;
    }
    let (host, forwarded) = sent(scope, authority);
    let (scheme, authority) = (scheme.to_owned(), authority.to_owned());
    let wanted = Wanted { at: at.clone(), scheme, authority, host, forwarded, scope };
    match writer.upstreams.name(&wanted, writer.tree, writer.notes) {
        Some(name) => {
            writer.notes.carried(at, &shown);
            Action::Upstream(name)
        }
        None => {
            writer.notes.left(at, &shown, "no server of it is carried");
            Action::NotCarried
        }
    }
}

/// The Host that upstreams see, if it is not the client's, and whether X-Forwarded-For is sent.
fn sent(scope: &Scope, authority: &str) -> (Option<String>, bool) {
    let mut host = Some(authority.to_owned());
    let (mut added, mut others) = (None, false);
    for header in &scope.set_headers {
        let (name, value) = (header.word(0).to_ascii_lowercase(), header.word(1));
        match name.as_str() {
            "host" => {
                host = match value {
                    "$proxy_host" => Some(authority.to_owned()),
                    value if value.contains('$') => None,
                    value => Some(value.to_owned()),
                };
            }
            "x-forwarded-for" => added = Some(value == "$proxy_add_x_forwarded_for"),
            "x-forwarded-proto" | "x-forwarded-host" => others |= value.starts_with('$'),
            _ => {}
        }
    }
    // A field that is replaced must not be appended to the client's.
    (host, added.unwrap_or(others))
}

fn write(
    route: &Route,
    server: &Server<'_>,
    (closed, default_closed): (bool, bool),
    writer: &mut Writer<'_>,
) {
    let mut section = Section::new("route");
    let (key, text) = match &route.path {
        Path::Exact(text) => ("path", text),
        Path::Prefix(text) => ("prefix", text),
    };
    section.set(key, text.clone(), &route.at);
    match &route.action {
        Action::Upstream(name) => {
            section.set("upstream", name.clone(), &route.at);
            if stores(&route.scope).is_none() {
                section.set_for("store", false, "without proxy_cache nothing is stored");
            } else if !route.store {
                section.set_for("store", false, "see the notes of the import");
            }
            fields(&mut section, &route.scope);
        }
        Action::Answer(answer) => answer.write(&mut section),
        Action::NotCarried => {
            section.set_for("answer", "not imported\n", "see the notes of the import");
            section.set_for("status", Value::Count(501), "see the notes of the import");
        }
    }
    if route.scope.denied && matches!(route.action, Action::Upstream(_) | Action::NotCarried) {
        for key in ["upstream", "store"] {
            section.unset(key);
        }
        section.set_for("answer", "denied\n", "deny all");
        section.set_for("status", Value::Count(403), "deny all");
    } else if (closed || route.closed || route.scope.unprotected) && !writer.open {
        section.close();
    }
    if !server.hosts.is_empty() {
        let mut named = section.clone();
        named.set("hosts", server.hosts.clone(), &server.directive.at);
        writer.tree.add(named);
    }
    if server.default {
        if default_closed && !writer.open {
            section.close();
        }
        writer.tree.add(section);
    }
}

/// Whether a location stores what nginx does. Writes the note if it cannot.
fn stored(scope: &Scope, notes: &mut Notes) -> bool {
    let Some(cache) = scope.get("proxy_cache").filter(|cache| cache.word(0) != "off") else {
        return false;
    };
    let ignored = scope.get("proxy_ignore_headers");
    let is_cookie = |word: &String| word.eq_ignore_ascii_case("set-cookie");
    let shares_cookies = ignored.is_some_and(|names| names.words.iter().any(is_cookie));
    if !shares_cookies {
        let text = "nginx stores no response with Set-Cookie, and routes do not look at that, so \
                    nothing is stored; with `proxy_ignore_headers Set-Cookie` it is";
        notes.left(&cache.at, &cache.shown(), text);
    }
    shares_cookies && !is_divided(scope)
}

/// Whether something in the request decides who gets a stored response. That is not carried, so
/// nothing is stored.
fn is_divided(scope: &Scope) -> bool {
    let usual = [
        "scheme",
        "proxy_host",
        "http_host",
        "host",
        "server_name",
        "request_uri",
        "uri",
        "is_args",
        "args",
        "request_method",
    ];
    let by_key = scope.get("proxy_cache_key").is_some_and(|key| {
        let text = key.words.join(" ").replace(['{', '}'], "");
        let name = |part: &str| {
            let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            part[..end.unwrap_or(part.len())].to_owned()
        };
        text.split('$').skip(1).map(name).any(|name| !usual.contains(&name.as_str()))
    });
    by_key || ["proxy_cache_bypass", "proxy_no_cache"].iter().any(|one| scope.get(one).is_some())
}

/// Changes to fields. Their notes are those of [`header_notes`].
fn fields(section: &mut Section, scope: &Scope) {
    let (_, forwarded) = sent(scope, "");
    for header in &scope.set_headers {
        let (name, value) = (header.word(0), header.word(1));
        let is_sent = forwarded && is_forwarded(name) && value.starts_with('$');
        if !fields::is_free(name) || is_sent || is_own(name, value) {
            continue;
        }
        let rule = section.below("route.request");
        // A value that is not carried replaced the client's, which the upstream would believe.
        if value.is_empty() || value.contains('$') {
            rule.set("remove", name, &header.at);
        } else {
            rule.set("set", name, &header.at);
            rule.set("value", value, &header.at);
        }
    }
    for header in &scope.hidden {
        if fields::is_free(header.word(0)) {
            section.below("route.response").set("remove", header.word(0), &header.at);
        }
    }
    for header in &scope.add_headers {
        let (name, value) = (header.word(0), header.word(1));
        let about_caching = fields::is_about_caching(name);
        if fields::is_free(name) && !value.contains('$') && !value.is_empty() && !about_caching {
            let rule = section.below("route.response");
            rule.set("add", name, &header.at);
            rule.set("value", value, &header.at);
        }
    }
}

/// Whether a value is the client's own field of this name.
fn is_own(name: &str, value: &str) -> bool {
    let own = value.strip_prefix("$http_");
    own.is_some_and(|own| own == name.to_ascii_lowercase().replace('-', "_"))
}

fn is_forwarded(name: &str) -> bool {
    let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
    names.iter().any(|one| name.eq_ignore_ascii_case(one))
}

/// The notes of `proxy_set_header` and `add_header`, once for each line.
pub(crate) fn header_notes(all: &[Directive], notes: &mut Notes) {
    for header in all {
        let (at, shown) = (&header.at, header.shown());
        let (name, value) = (header.word(0).to_ascii_lowercase(), header.word(1));
        match (header.name.as_str(), name.as_str()) {
            ("proxy_set_header", "host") => match value {
                "$http_host" | "$proxy_host" => notes.carried(at, &shown),
                "$host" => {
                    let text = "the client's Host is sent as it is, with its port";
                    notes.different(at, &shown, text);
                }
                value if value.contains('$') => {
                    notes.left(at, &shown, "there are no variables; the client's Host is sent");
                }
                _ => notes.carried(at, &shown),
            },
            ("proxy_set_header", "connection" | "upgrade") => {
                let text = "connections are kept, and websocket is passed on (upgrade.protocols)";
                notes.nothing(at, &shown, text);
            }
            ("proxy_set_header", "x-forwarded-for") if value == "$proxy_add_x_forwarded_for" => {
                let text = "X-Forwarded-For, -Proto and -Host are sent together";
                notes.different(at, &shown, text);
            }
            ("proxy_set_header", "x-forwarded-proto" | "x-forwarded-host")
                if value.starts_with('$') =>
            {
                let text = "sent with X-Forwarded-For, and removed where that is replaced";
                notes.different(at, &shown, text);
            }
            ("proxy_set_header", name) if is_own(name, value) => notes.carried(at, &shown),
            ("proxy_set_header" | "add_header", _) if value.contains("$upstream_cache_status") => {
                notes.different(at, &shown, "every response has Cache-Status instead");
            }
            ("proxy_set_header", _) if value.contains('$') => {
                let text = "there are no variables, so the client's field is removed";
                notes.left(at, &shown, text);
            }
            ("add_header", _) if value.contains('$') => {
                notes.left(at, &shown, "there are no variables");
            }
            ("proxy_set_header" | "add_header", _) if !fields::is_free(&name) => {
                notes.left(at, &shown, "this field cannot be changed");
            }
            ("proxy_set_header", _) => notes.carried(at, &shown),
            ("add_header", name) if fields::is_about_caching(name) => {
                notes.left(at, &shown, "it would change stored responses");
            }
            ("add_header", _) if value.is_empty() => {
                notes.nothing(at, &shown, "nginx adds no field without a value");
            }
            ("add_header", _) => {
                let text = "it is added to responses of upstreams, whatever their status";
                notes.different(at, &shown, text);
            }
            _ => {}
        }
        header_notes(header.inner(), notes);
    }
}
