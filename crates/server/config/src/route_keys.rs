//! The keys of routes: `[[route]]`, and the changes to fields that routes and rules share.

use std::path::PathBuf;
use std::time::Duration;

use caching::SetCookie;

use super::error_pages::ErrorPageTable;
use super::here::Here;
use super::keys::{SET_COOKIE, STATUS};
use super::table::{Key, Table, Whole, keys};
use super::value::{Kind, Parsed, WHILE};
use super::when::When;
use super::{
    CookieRewrite, FieldRule, Files, Guard, Host, KeySettings, Lifetime, LocationRewrite, Path,
    Timeouts,
};

/// `[[route]]`
#[derive(Clone, Debug)]
pub(crate) struct RouteTable {
    /// It is a part of another route.
    pub(crate) is_part: bool,
    pub(crate) parts: Vec<RouteTable>,
    pub(crate) hosts: Vec<Parsed<Host>>,
    pub(crate) path: Option<Parsed<Path>>,
    pub(crate) prefix: Option<String>,
    pub(crate) when: Option<When>,
    pub(crate) upstream: Option<String>,
    pub(crate) redirect: Option<String>,
    pub(crate) answer: Option<String>,
    pub(crate) files: Option<PathBuf>,
    pub(crate) file_settings: Files,
    pub(crate) status: Option<u16>,
    pub(crate) with_path: bool,
    pub(crate) guard: Guard,
    pub(crate) upstream_path: Option<String>,
    pub(crate) body_bytes_max: Option<u64>,
    pub(crate) timeouts: Option<Timeouts>,
    pub(crate) error_page: Vec<ErrorPageTable>,
    pub(crate) store: bool,
    pub(crate) set_cookie: Option<SetCookie>,
    pub(crate) early_data: bool,
    pub(crate) finish_abandoned: bool,
    pub(crate) compression: bool,
    pub(crate) compress_passed: Option<bool>,
    pub(crate) key: KeySettings,
    pub(crate) lifetime: Vec<Lifetime>,
    pub(crate) negative: Option<Duration>,
    pub(crate) peers: bool,
    pub(crate) location: Vec<LocationRewrite>,
    pub(crate) cookie: Vec<CookieRewrite>,
    pub(crate) request: Vec<FieldTable>,
    pub(crate) response: Vec<FieldTable>,
}

impl Default for RouteTable {
    fn default() -> RouteTable {
        RouteTable {
            is_part: false,
            parts: Vec::new(),
            hosts: Vec::new(),
            path: None,
            prefix: None,
            when: None,
            upstream: None,
            redirect: None,
            answer: None,
            files: None,
            file_settings: Files::default(),
            status: None,
            with_path: false,
            guard: Guard::default(),
            upstream_path: None,
            body_bytes_max: None,
            timeouts: None,
            error_page: Vec::new(),
            store: true,
            set_cookie: None,
            early_data: false,
            finish_abandoned: false,
            compression: true,
            compress_passed: None,
            key: KeySettings::default(),
            lifetime: Vec::new(),
            negative: None,
            peers: false,
            location: Vec::new(),
            cookie: Vec::new(),
            request: Vec::new(),
            response: Vec::new(),
        }
    }
}

impl Table for RouteTable {
    const KEYS: &'static [Key<RouteTable>] = keys![RouteTable;
        hosts: Kind::Texts, hosts,
            "Hosts, without ports: `example.org`, or `*.example.org` for all hosts below it, or \
             `{name}.example.org`, which captures one label. Empty: any host.",
            example "[\"example.org\", \"*.example.org\"]";
        path: Kind::Text, path,
            "Only this path. `{name}` captures a segment, and `/*` at the end the rest: \
             `/{lang}/shop/*`. `/api*` is all paths that begin so, also `/apix`.",
            example "\"/favicon.ico\"";
        prefix: Kind::Text, prefix,
            "This path and everything below it: `/api` matches `/api` and `/api/x`, but not \
             `/apix`.",
            example "\"/api\"";
        when: Kind::Text, when,
            "A condition, as in [[rule]]. The route is for requests for which it holds; for others \
             it is as if it were not there.",
            example "\"method in ['GET', 'HEAD']\"";
        upstream: Kind::Text, upstream, "Send the requests to the upstream of this name.",
            example "\"site\"";
        redirect: Kind::Text, redirect,
            "Answer with a redirect to this URL. It may repeat captures: `/{*}?l={lang}`.",
            example "\"https://example.org/\"";
        answer: Kind::Content, answer, "Answer with this plain text.",
            example "\"nothing here\"";
        files: Kind::Path, files,
            "A directory. A GET or HEAD for a path that is a file below it gets the file. All else \
             goes where the route leads, or gets 404 if it leads nowhere. No name leads out of the \
             directory.", example "\"/srv/www\"";
        alias: Kind::Flag, file_settings.alias,
            "Whether the name of a file is the path without the prefix of the route. Otherwise it \
             is the whole path.";
        index: Kind::Texts, file_settings.index,
            "The files that are served for a path with a slash at its end; the first that is \
             there. A path of a directory without the slash is redirected to one with it.";
        try_files: Kind::Texts, file_settings.try_files,
            "Paths of files that are tried, in this order, where the path has no file. They may \
             repeat `{path}`.", example "[\"{path}.html\", \"/index.html\"]";
        dot_files: Kind::Flag, file_settings.dot_files,
            "Whether files and directories are served whose names begin with a dot. \
             `.well-known` always is.";
        symlinks: Kind::Flag, file_settings.symlinks,
            "Whether symbolic links are followed to places below the directory. They never lead \
             out of it.";
        precompressed: Kind::Flag, file_settings.precompressed,
            "Whether a file with the ending .br, .zst or .gz beside a file is sent in its place to \
             clients that accept its coding.";
        cache_control: Kind::Text, file_settings.cache_control,
            "The value of Cache-Control in responses with files. Default: no such field.",
            example "\"max-age=3600\"";
        status: STATUS, status,
            "The status of a redirect (default 308) or of an answer (default 200).",
            example "301";
        with_path: Kind::Flag, with_path,
            "Whether the request's path and query are appended to the redirect's URL.";
        allow_from: Kind::Texts, guard.allow_from,
            "Networks, and names of [[list]]s of networks. Only their clients may use the route; \
             all others get 403, also where the store has the response.",
            example "[\"10.0.0.0/8\", \"office\"]";
        deny_from: Kind::Texts, guard.deny_from,
            "The same of clients that may not use the route, whatever allow_from says. With \
             satisfy = \"any\" they may with a login.",
            example "[\"192.0.2.0/24\"]";
        users: Kind::Path, guard.users,
            "File of names and bcrypt hashes, as written by `htpasswd -B`: the route asks for one \
             of these names and its password (Basic). Read again at each reload.",
            example "\"users\"";
        realm: Kind::Text, guard.realm,
            "With users: the realm, which a browser shows when it asks for the password.";
        satisfy: Kind::Word(&["all", "any"]), guard.satisfy,
            "Whether a client needs both, an allowed network and a login, or one of them.";
        forward_login: Kind::Flag, guard.forward_login,
            "With users: whether the upstream gets the field Authorization.";
        (auth): guard.auth, "A service that is asked whether a request is allowed, before the \
            store answers it.";
        upstream_path: Kind::Text, upstream_path,
            "What the upstream gets in place of the route's `path`, or of its `prefix`: with the \
             prefix `/api` and `/` here, `/api/x` is sent as `/x`. The query stays. The key of the \
             store is the client's URL. A request is refused with 400 if its path has several \
             readings.", example "\"/\"";
        body_bytes_max: Kind::Bytes(0, u64::MAX), body_bytes_max,
            "The same as limits.body_bytes_max, for this route.", example "\"8MiB\"";
        [[error_page]]: error_page, "What clients get in place of an error.";
        (timeouts): timeouts, "Time-outs for the servers, in place of those of the upstream.";
        store: Kind::Flag, store, "Whether the store is used.";
        set_cookie: SET_COOKIE, set_cookie,
            "The same as store.set_cookie, for this route.", example "\"strip\"";
        early_data: Kind::Flag, early_data,
            "Whether safe requests over HTTP/3 may come with the first datagram of a client that \
             was here before (0-RTT). Somebody on the way can send them again, so use it where \
             that does no harm. Early requests to other routes are then answered with 425.";
        finish_abandoned: Kind::Flag, finish_abandoned,
            "Whether a request goes on at the upstream after its client has left or closed its \
             direction. Otherwise it ends at once, unless other clients wait for its response or \
             the response is being stored.";
        compression: Kind::Flag, compression,
            "Whether responses are coded, if [compression] has codings. Turn it off where a page \
             has both a secret and what a client sent (BREACH).";
        compress_passed: Kind::Flag, compress_passed,
            "The same as compression.passed, for this route: whether responses that are not stored \
             are coded while they pass.", example "true";
        query: Kind::Word(&["all", "none", "sort"]), key.query,
            "The query in the cache key: all of it as it came, none of it, or its parameters \
             sorted by name. The upstream gets the same query, in this and the next two keys, \
             unless the store is bypassed.";
        query_drop: Kind::Texts, key.query_drop,
            "Parameters that are dropped from the query: `name`, `start*` or `*end`.",
            example "[\"utm_*\", \"fbclid\", \"gclid\"]";
        query_keep: Kind::Texts, key.query_keep, "All other parameters are dropped.",
            example "[\"page\", \"q\"]";
        key_cookies: Kind::Texts, key.cookies, "Cookies whose values are in the cache key.",
            example "[\"currency\"]";
        cookies_sent: Kind::Word(&["all", "key"]), key.cookies_sent,
            "Which cookies the upstream gets of a request that the store may answer: all, or \
             those of key_cookies.";
        key_fields: Kind::Texts, key.fields,
            "Request fields whose values are in the cache key.", example "[\"X-Country\"]";
        device: Kind::Flag, key.device,
            "Whether the class of the device (mobile, tablet or desktop) is in the cache key, and \
             is sent to the upstream as X-Device-Class.";
        bypass_cookies: Kind::Texts, key.bypass_cookies,
            "A request with one of these cookies is not answered from the store, and its response \
             is not stored.", example "[\"session*\"]";
        negative: WHILE, negative,
            "Lifetime of responses with status 404, 405, 410, 414 and 501, where the origin states \
             none and no [[route.lifetime]] matches.", example "\"10s\"";
        [[lifetime]]: lifetime, "How long some responses are fresh. The first one that matches a \
            response applies.";
        peers: Kind::Flag, peers,
            "Whether peers that answer queries are asked for what is not stored. They get the \
             client's fields, without those that `request` and the upstream add.";
        [[location]]: location, "A change to the URLs in the fields Location and Refresh of the \
            upstream's response. The first that fits applies, before `response`.";
        [[cookie]]: cookie, "A change to the attributes of the cookies that the upstream sets. \
            The first with the cookie's name applies, before `response`.";
        [[request]]: request, "A change to the fields sent to the upstream.";
        [[response]]: response, "A change to the fields of the upstream's response, made before \
            anything else sees them: changed caching fields take effect.";
        {part}: "A route for some of the requests of this route, which it takes by a path, a \
            prefix or a condition. It may have all keys of a route, and it inherits those that it \
            does not write. Where it leads counts as one: a part that writes upstream, redirect, \
            answer or files has nothing of the route's. Its lists of tables are added to those of \
            the route: request and response after them, and all others before them.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.is_part
            && [self.path.is_some(), self.prefix.is_some(), here.has("when")] == [false; 3]
        {
            here.mistake_here("this part is for no requests: write path, prefix or when");
        }
        if self.path.is_some() && self.prefix.is_some() {
            here.mistake_of("prefix", "a route has a path or a prefix, not both");
        }
        let of_files = ["alias", "index", "try_files", "dot_files", "symlinks", "precompressed"];
        let without = of_files.into_iter().chain(["cache_control"]).find(|key| here.has(key));
        match (&self.files, without) {
            (None, Some(key)) => here.mistake_of(key, "this is for files: write files too"),
            (None, None) => {}
            (Some(_), _) => {
                if let Err((key, wrong)) = self.file_settings.check(self.prefix.as_deref()) {
                    here.mistake_of(key, wrong);
                }
            }
        }
        let actions = [&self.upstream, &self.redirect, &self.answer];
        match actions.into_iter().flatten().count() {
            1 => {}
            // A route may be no more than what its parts have in common.
            0 if !self.parts.is_empty() || self.files.is_some() => {}
            0 => here.mistake_here(
                "this route leads nowhere: write upstream, redirect, answer or files",
            ),
            _ => here.mistake_here("a route has one of upstream, redirect and answer"),
        }
        if self.status.is_some() && self.upstream.is_some() {
            here.mistake_of(
                "status",
                "the upstream decides the status: it is for redirect or answer",
            );
        }
        if self.peers && (self.hosts.is_empty() || self.upstream.is_none()) {
            // A client could name any host that a peer has visited.
            here.mistake_of("peers", "peers are asked for hosts that the route names: write hosts");
        }
        if self.peers && self.hosts.iter().any(|host| !matches!(host.value, Host::Exact(_))) {
            here.mistake_of(
                "peers",
                "peers are asked for exact hosts only, without * and captures",
            );
        }
        if self.with_path && self.redirect.is_none() {
            here.mistake_of("with_path", "this is for redirects");
        }
        if let Some(to) = &self.upstream_path {
            let path = self.path.as_ref().map(|path| &path.value);
            if self.upstream.is_none() {
                here.mistake_of("upstream_path", "this is for routes that lead to an upstream");
            } else if !to.starts_with('/')
                || !to.bytes().all(|b| b.is_ascii_graphic())
                || to.contains(['?', '#', '\\', '{'])
                || to.split('/').any(|one| one == "..")
            {
                here.mistake_of("upstream_path", format!("{to:?} is not a path"));
            } else if !matches!(path, None | Some(Path::Exact(_) | Path::Prefix(_))) {
                here.mistake_of(
                    "upstream_path",
                    "this is for a path without captures and *, or for a prefix",
                );
            }
        }
        self.guard.check_keys(here);
        if let Some(auth) = &self.guard.auth {
            for (key, names) in [("auth.fields", &auth.fields), ("auth.copy", &auth.copy)] {
                let wrong = names.iter().map(|name| FieldRule::Remove(name.clone()).check());
                wrong.filter_map(Result::err).for_each(|wrong| here.mistake_of(key, wrong));
            }
            let is_in_key = |name: &&String| {
                self.key.fields.iter().any(|field| field.eq_ignore_ascii_case(name))
            };
            let stores = self.store && self.upstream.is_some();
            if let Some(name) = auth.copy.iter().find(|name| stores && !is_in_key(name)) {
                let text = format!(
                    "responses are stored for all clients, and {name} is of one client: write it \
                     in key_fields, or store = false"
                );
                here.mistake_of("auth.copy", text);
            }
        }
        for (key, is_there) in [
            ("body_bytes_max", here.has("body_bytes_max")),
            ("timeouts", self.timeouts.is_some()),
            ("location", !self.location.is_empty()),
            ("cookie", !self.cookie.is_empty()),
        ] {
            if is_there && self.upstream.is_none() {
                here.mistake_of(key, "this is for routes that lead to an upstream");
            }
        }
        let leads = (self.upstream.is_some(), self.store);
        let adds = self.request.iter().flat_map(|field| field.add.iter().chain(&field.default));
        let used = self.key.check_used(here, leads, self.prefix.as_deref(), adds);
        if let Err((key, wrong)) = self.key.check().and(used) {
            here.mistake_of(key, wrong);
        }
    }
}

/// What of a route says where it leads.
const LEADS: [&str; 4] = ["upstream", "redirect", "answer", "files"];

impl Whole for RouteTable {
    fn begun_part(&self, written: &[&str]) -> RouteTable {
        let whole = RouteTable {
            is_part: true,
            parts: Vec::new(),
            path: None,
            prefix: None,
            ..self.clone()
        };
        if !LEADS.iter().any(|key| written.contains(key)) {
            return whole;
        }
        let whole = RouteTable {
            upstream: None,
            redirect: None,
            answer: None,
            files: None,
            file_settings: Files::default(),
            status: None,
            with_path: false,
            ..whole
        };
        if written.contains(&"upstream") {
            return whole;
        }
        // What is only for responses of upstreams. A rule may lead to one, so what keeps responses
        // out of the store stays, and so does the limit for bodies.
        RouteTable {
            set_cookie: None,
            key: KeySettings::default(),
            lifetime: Vec::new(),
            negative: None,
            peers: false,
            timeouts: None,
            location: Vec::new(),
            cookie: Vec::new(),
            ..whole
        }
    }

    fn add_part(&mut self, mut part: RouteTable) {
        // The first lifetime that matches applies, so those of the part come first.
        let inherited = |of: usize| if part.upstream.is_some() { of } else { 0 };
        let (lifetimes, locations) =
            (inherited(self.lifetime.len()), inherited(self.location.len()));
        let cookies = inherited(self.cookie.len());
        part.lifetime.rotate_left(lifetimes);
        part.location.rotate_left(locations);
        part.cookie.rotate_left(cookies);
        part.error_page.rotate_left(self.error_page.len());
        self.parts.push(part);
    }
}

/// `[[route.request]]` and `[[route.response]]`
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldTable {
    pub(crate) set: Option<String>,
    pub(crate) add: Option<String>,
    pub(crate) default: Option<String>,
    pub(crate) cut: Option<String>,
    pub(crate) remove: Option<String>,
    pub(crate) value: Option<String>,
}

impl FieldTable {
    /// `None` when its keys do not make one.
    pub(crate) fn rule(&self) -> Option<FieldRule> {
        let value = self.value.clone();
        Some(match (&self.set, &self.add, &self.default, &self.cut, &self.remove) {
            (Some(name), ..) => FieldRule::Set(name.clone(), value?),
            (None, Some(name), ..) => FieldRule::Add(name.clone(), value?),
            (None, None, Some(name), ..) => FieldRule::Default(name.clone(), value?),
            (None, None, None, Some(name), _) => FieldRule::Cut(name.clone(), value?),
            (None, None, None, None, Some(name)) => FieldRule::Remove(name.clone()),
            (None, None, None, None, None) => return None,
        })
    }
}

impl Table for FieldTable {
    const KEYS: &'static [Key<FieldTable>] = keys![FieldTable;
        set: Kind::Text, set, "Replace all fields of this name by one with the value.",
            example "\"X-Served-By\"";
        add: Kind::Text, add, "Add a field.", example "\"X-Served-By\"";
        default: Kind::Text, default, "Add a field if there is none of this name.",
            example "\"Cache-Control\"";
        cut: Kind::Text, cut,
            "Take the value off the start of all fields of this name, where they begin with it and \
             a slash follows: of a Location, the URL of an upstream.", example "\"Location\"";
        remove: Kind::Text, remove, "Remove all fields of this name.", example "\"Server\"";
        value: Kind::Text, value,
            "The value, for set, add, default and cut. It may repeat captures of the route.",
            example "\"plimsoll\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        let with_value = [&self.set, &self.add, &self.default, &self.cut];
        let changes = with_value.into_iter().chain([&self.remove]).flatten().count();
        if changes != 1 {
            here.mistake_here("a change is one of set, add, default, cut and remove");
        } else if self.remove.is_some() != self.value.is_none() {
            here.mistake_here("set, add, default and cut need a value, and remove has none");
        }
    }
}
