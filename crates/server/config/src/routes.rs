//! Routes: which requests of reverse listeners go to which group, and how messages are changed.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;
use std::time::Duration;

use hashbrown::HashSet;

use super::captures::{
    PathPattern, Segment, capture, check_location, check_text, value_of_one_client,
};
use super::files::Files;
use super::lifetime::check_lifetimes;
use super::when::When;
use super::{
    Config, CookieRewrite, ErrorPage, Group, Guard, KeySettings, Lifetime, LocationRewrite,
    Timeouts, UpstreamProtocol,
};
use crate::limits::{CAPTURES_MAX, SERVERS_PER_GROUP_MAX, WEIGHT_MAX};

/// Selects requests and decides what happens to them.
///
/// Of all routes that match a request, the one with the most specific host is used, and of these
/// the one with the most specific path: an exact host before a wildcard, a longer wildcard before a
/// shorter one, any host last; an exact path before a prefix or a pattern, and of these the one
/// with more segments.
/// The order of routes does not matter, except between two that are equally specific: then the
/// first is used.
#[derive(Clone, Debug)]
pub struct Route {
    /// Where it is in the file: `route[1]`, or `route[1].part[0]`.
    pub place: String,
    /// Hosts, without ports; empty: any host.
    pub hosts: Vec<Host>,
    /// The path.
    pub path: Path,
    /// The condition without which the route is as if it were not there.
    pub when: Option<When>,
    /// What happens to the requests.
    pub action: Action,
    /// The files that are looked for first.
    pub files: Option<Box<Files>>,
    /// Changes to the fields sent to the upstream.
    pub request: Vec<FieldRule>,
    /// Changes to the fields of the upstream's response, made before anything else sees them: the
    /// changed caching fields count, and the changed response is stored.
    pub response: Vec<FieldRule>,
    /// Who may send requests.
    pub guard: Guard,
    /// What the upstream gets in place of the route's path, or of its prefix.
    pub upstream_path: Option<String>,
    /// Bytes of a request's content. `None`: as in [`crate::limits::Limits`].
    pub body_bytes_max: Option<u64>,
    /// How long the servers may take, in place of the time-outs of the group.
    pub timeouts: Option<Timeouts>,
    /// Changes to where responses lead.
    pub locations: Vec<LocationRewrite>,
    /// Changes to the cookies of responses.
    pub cookies: Vec<CookieRewrite>,
    /// What clients get in place of errors.
    pub error_pages: Vec<ErrorPage>,
    /// Whether the store is used.
    pub store: bool,
    /// What becomes of a response that sets a cookie. `None`: as [`crate::Config::set_cookie`].
    pub set_cookie: Option<caching::SetCookie>,
    /// Whether safe requests may come in early data.
    pub early_data: bool,
    /// Whether a request goes on at the upstream although its client has left.
    pub finish_abandoned: bool,
    /// Whether responses are coded, if anything is.
    pub compression: bool,
    /// Whether responses that are not stored are coded, too. `None`: as [`coding::Rules::passed`].
    pub compress_passed: Option<bool>,
    /// What belongs to the cache key.
    pub key: KeySettings,
    /// How long responses are fresh; the first that matches a response applies.
    pub lifetimes: Vec<Lifetime>,
    /// The same for [`NEGATIVE`] statuses that no other matches.
    pub negative: Option<Duration>,
    /// Whether peers are asked.
    pub peers: bool,
}

/// The statuses that `negative` is for: errors of the request that RFC 9110 (15.1) lets a cache
/// keep.
pub const NEGATIVE: [u16; 5] = [404, 405, 410, 414, 501];

impl Route {
    /// All requests, to a group.
    pub fn to(group: &str) -> Route {
        Route {
            place: "route[0]".to_owned(),
            hosts: Vec::new(),
            path: Path::Prefix("/".to_owned()),
            when: None,
            action: Action::Group(group.to_owned()),
            files: None,
            request: Vec::new(),
            response: Vec::new(),
            guard: Guard::default(),
            upstream_path: None,
            body_bytes_max: None,
            timeouts: None,
            locations: Vec::new(),
            cookies: Vec::new(),
            error_pages: Vec::new(),
            store: true,
            set_cookie: None,
            early_data: false,
            finish_abandoned: false,
            compression: true,
            compress_passed: None,
            key: KeySettings::default(),
            lifetimes: Vec::new(),
            negative: None,
            peers: false,
        }
    }
}

impl Route {
    /// Its name in messages, as the route at this index: `route 2`, or the place of a part.
    pub fn name(&self, at: usize) -> String {
        let is_part = self.place.contains(".part");
        if is_part { self.place.clone() } else { format!("route {}", at + 1) }
    }

    /// All that it says, in one line: its own keys and those of the route that it is a part of.
    pub fn summary(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        let hosts = if hosts.is_empty() { "any host".to_owned() } else { hosts.join(" ") };
        let mut text = format!("{hosts}, {}", self.path);
        let mut add = |is_there: bool, what: String| {
            if is_there {
                text += &format!(", {what}");
            }
        };
        let files = self.files.as_ref().map(|files| files.root.display().to_string());
        add(files.is_some(), format!("the files of {}, or else", files.unwrap_or_default()));
        add(
            true,
            match &self.action {
                Action::Group(name) => format!("to the upstream {name}"),
                Action::Redirect { status, location, .. } => format!("{status} to {location}"),
                Action::Answer { status, .. } => format!("answered with {status}"),
            },
        );
        let path = self.upstream_path.as_deref();
        add(path.is_some(), format!("where the path is {}", path.unwrap_or_default()));
        let when = self.when.as_ref().map_or("", When::as_str);
        add(!when.is_empty(), format!("when {when}"));
        add(self.guard.has_networks(), "for some networks".to_owned());
        add(self.guard.users.is_some(), "with a login".to_owned());
        let auth = self.guard.auth.as_ref();
        add(auth.is_some(), format!("asks {}", auth.map_or("", |auth| &auth.upstream)));
        let body = self.body_bytes_max;
        add(body.is_some(), format!("body_bytes_max = {}", body.unwrap_or_default()));
        add(self.timeouts.is_some(), "time-outs".to_owned());
        add(!self.locations.is_empty(), "changes URLs of the response".to_owned());
        add(!self.cookies.is_empty(), "changes cookies".to_owned());
        add(!self.error_pages.is_empty(), format!("{} error pages", self.error_pages.len()));
        add(!self.store, "store = false".to_owned());
        add(!self.compression, "compression = false".to_owned());
        let passed = self.compress_passed;
        add(passed.is_some(), format!("compress_passed = {}", passed.unwrap_or_default()));
        add(self.early_data, "early_data = true".to_owned());
        add(self.finish_abandoned, "finish_abandoned = true".to_owned());
        add(self.peers, "peers = true".to_owned());
        add(self.set_cookie.is_some(), "set_cookie".to_owned());
        add(self.key != KeySettings::default(), "settings for keys".to_owned());
        let changes = self.request.iter().map(|rule| ("request", rule));
        for (of, rule) in changes.chain(self.response.iter().map(|rule| ("response", rule))) {
            add(true, format!("changes {} of the {of}", rule.name()));
        }
        add(!self.lifetimes.is_empty(), format!("{} lifetimes", self.lifetimes.len()));
        text
    }

    /// The names of its captures: that of the host, then those of the path.
    pub fn captures(&self) -> Vec<&str> {
        let of_path: Vec<&str> = match &self.path {
            Path::Exact(_) | Path::Prefix(_) | Path::Start(_) => Vec::new(),
            Path::Pattern(pattern) => {
                let names = pattern.segments.iter().filter_map(|segment| match segment {
                    Segment::Capture(name) => Some(name.as_str()),
                    Segment::Literal(_) => None,
                });
                names.chain(pattern.rest.then_some("*")).collect()
            }
        };
        self.host_capture().into_iter().chain(of_path).collect()
    }

    /// The name of the capture in its hosts.
    pub fn host_capture(&self) -> Option<&str> {
        self.hosts.iter().find_map(|host| match host {
            Host::Captured { name, .. } => Some(name.as_str()),
            Host::Exact(_) | Host::Below(_) => None,
        })
    }
}

/// Hosts of requests, regardless of case and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// This host.
    Exact(String),
    /// All hosts below this one, at any depth: `example.org` means `*.example.org`.
    Below(String),
    /// All hosts with one label before this one, which is captured: `{name}.example.org`.
    Captured {
        /// The name of the capture.
        name: String,
        /// What follows it.
        below: String,
    },
}

impl Host {
    /// Parses `example.org` or `*.example.org`.
    ///
    /// # Errors
    /// One line: what is wrong.
    pub fn parse(text: &str) -> Result<Host, String> {
        if let Some((first, below)) = text.split_once('.')
            && let Some(name) = capture(first)?
        {
            return match Host::parse(below)? {
                Host::Exact(below) if !below.starts_with('[') => {
                    Ok(Host::Captured { name: name.to_owned(), below })
                }
                _ => Err(format!("{text:?}: a capture comes before a host such as example.org")),
            };
        }
        let (below, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = name.trim_end_matches('.');
        let inner = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let bracketed = !below && inner.is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok());
        let is_name = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
        if name.is_empty() || !(bracketed || name.bytes().all(is_name)) {
            return Err(format!(
                "{text:?} is not a host such as example.org or *.example.org (without a port)"
            ));
        }
        let name = name.to_ascii_lowercase();
        Ok(if below { Host::Below(name) } else { Host::Exact(name) })
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        Host::parse(text)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Exact(name) => f.write_str(name),
            Host::Below(name) => write!(f, "*.{name}"),
            Host::Captured { name, below } => write!(f, "{{{name}}}.{below}"),
        }
    }
}

/// Paths of requests, without queries. They are compared after normalisation: `%61` is `a`, `//` is
/// `/`, and `/a/../b` is `/b`. Every other reading that an origin may have is compared too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// This path.
    Exact(String),
    /// This path and everything below it: `/api` matches `/api` and `/api/x`, but not `/apix`.
    Prefix(String),
    /// All paths that begin with this text: `/api` matches `/api`, `/apix` and `/api/x`.
    Start(String),
    /// Paths with captured segments.
    Pattern(PathPattern),
}

impl Path {
    /// What follows this path, or this prefix, in a path of the route. `None`: the path is none of
    /// the route, or the route has captures.
    pub fn after<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        match self {
            Path::Exact(text) => path.strip_prefix(text.as_bytes()),
            Path::Prefix(text) => path.strip_prefix(text.trim_end_matches('/').as_bytes()),
            Path::Start(_) | Path::Pattern(_) => None,
        }
    }

    /// Parses the path of a route: a pattern if it has a capture, or ends with `/*`; the start of
    /// paths if it ends with another `*`.
    ///
    /// # Errors
    /// One line: what is wrong.
    pub fn parse(text: &str) -> Result<Path, String> {
        let (fixed, rest) = match text.strip_suffix("/*") {
            Some(fixed) => (fixed, true),
            None => (text, false),
        };
        if !rest && !fixed.contains('{') {
            return match text.strip_suffix('*') {
                Some(start) => Path::start(start),
                None => Ok(Path::Exact(text.to_owned())),
            };
        }
        let Some(segments) = fixed.strip_prefix('/').or((fixed.is_empty()).then_some("")) else {
            return Err(format!("the path {text:?} does not begin with /"));
        };
        let segment = |segment: &str| match capture(segment)? {
            Some(name) => Ok(Segment::Capture(name.to_owned())),
            None if !is_literal(segment) => Err(format!(
                "{segment:?} is not a segment of a path: write a text, or {{name}} as a whole \
                 segment, and * only at the end"
            )),
            None => Ok(Segment::Literal(segment.to_owned())),
        };
        let segments = match segments {
            "" => Vec::new(),
            segments => segments.split('/').map(segment).collect::<Result<_, _>>()?,
        };
        Ok(Path::Pattern(PathPattern { segments, rest }))
    }

    /// The start of paths, in the middle of a segment.
    fn start(text: &str) -> Result<Path, String> {
        // A dot could be the first of two, which name another segment.
        let last = text.rsplit('/').next().unwrap_or_default();
        match text.starts_with('/') && is_literal(last) && !text.contains('*') {
            true => Ok(Path::Start(text.to_owned())),
            false => Err(format!("{text:?} is not the start of a path: write a text before *")),
        }
    }
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Path, String> {
        Path::parse(text)
    }
}

/// Whether a text is one segment of a path, and no dots that name another.
fn is_literal(segment: &str) -> bool {
    let dots = segment.to_ascii_lowercase().replace("%2e", ".");
    !segment.is_empty()
        && !segment.contains(['{', '}', '*', '?', '#', ' '])
        && !matches!(&*dots, "." | "..")
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Exact(path) => f.write_str(path),
            Path::Prefix(text) | Path::Start(text) => write!(f, "{text}*"),
            Path::Pattern(PathPattern { segments, rest }) => {
                for segment in segments {
                    match segment {
                        Segment::Literal(text) => write!(f, "/{text}")?,
                        Segment::Capture(name) => write!(f, "/{{{name}}}")?,
                    }
                }
                f.write_str(if *rest { "/*" } else { "" })
            }
        }
    }
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes to a group of upstream servers.
    Group(String),
    /// It is answered with a redirect.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        /// The target.
        location: String,
        /// Whether the request's path and query are appended to it.
        with_path: bool,
    },
    /// It is answered directly.
    Answer {
        /// The status.
        status: u16,
        /// Plain text.
        body: String,
    },
}

/// A change to the fields of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldRule {
    /// Replaces all fields of this name by one with this value.
    Set(String, String),
    /// Adds a field.
    Add(String, String),
    /// Adds a field if there is none of this name.
    Default(String, String),
    /// Takes this text off the start of all fields of this name, where a slash follows it.
    Cut(String, String),
    /// Removes all fields of this name.
    Remove(String),
}

impl FieldRule {
    /// The name of the field.
    pub fn name(&self) -> &str {
        match self {
            FieldRule::Set(name, _)
            | FieldRule::Add(name, _)
            | FieldRule::Default(name, _)
            | FieldRule::Cut(name, _)
            | FieldRule::Remove(name) => name,
        }
    }

    /// Whether its value differs between requests for one stored response.
    pub fn is_of_one_client(&self) -> bool {
        value_of_one_client(self.value()).is_some()
    }

    /// Whether it says to the upstream who the user is.
    pub(crate) fn is_login(&self) -> bool {
        ["authorization", "cookie"].iter().any(|name| self.name().eq_ignore_ascii_case(name))
    }

    /// The value, empty for [`FieldRule::Remove`].
    pub fn value(&self) -> &str {
        match self {
            FieldRule::Set(_, value)
            | FieldRule::Add(_, value)
            | FieldRule::Default(_, value)
            | FieldRule::Cut(_, value) => value,
            FieldRule::Remove(_) => "",
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let name = self.name();
        if UNTOUCHABLE.iter().any(|one| one.eq_ignore_ascii_case(name)) {
            return Err(format!("the field {name} cannot be changed: messages are framed by it"));
        }
        self.check_written()
    }

    /// Whether it can be written.
    pub(crate) fn check_written(&self) -> Result<(), String> {
        let name = self.name();
        let mut probe = Vec::new();
        let value = self.value();
        http1::write::field(&mut probe, name.as_bytes(), value.as_bytes())
            .map_err(|_| format!("{name}: {value} is not a field that can be sent"))
    }
}

/// Fields that frame messages or belong to one connection, and `Host`, which has a separate
/// setting.
const UNTOUCHABLE: &[&str] = &[
    "Host",
    "Content-Length",
    "Transfer-Encoding",
    "Connection",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Upgrade",
    "Via",
];

impl Config {
    /// The name of the route at an index, in messages. Without routes there is one for all
    /// requests.
    pub fn route_name(&self, at: usize) -> String {
        self.routes.get(at).map_or_else(|| format!("route {}", at + 1), |route| route.name(at))
    }

    /// A line for each route, with all that it says; none if no route has parts.
    pub fn listed_routes(&self) -> Vec<String> {
        let has_parts = self.routes.iter().any(|route| route.place.contains(".part"));
        let routes = self.routes.iter().filter(|_| has_parts);
        routes.map(|route| format!("{}: {}\n", route.place, route.summary())).collect()
    }

    /// Checks that groups and routes fit together.
    ///
    /// # Errors
    /// One line: what is wrong, and where.
    pub fn check_routes(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        for group in &self.groups {
            if !names.insert(group.name.as_str()) {
                return Err(format!("there are two groups with the name {}", group.name));
            }
            check_group(group).map_err(|wrong| format!("group {}: {wrong}", group.name))?;
        }
        for (at, route) in self.routes.iter().enumerate() {
            check_route(route, &names).map_err(|wrong| format!("route {}: {wrong}", at + 1))?;
        }
        Ok(())
    }
}

pub(super) fn check_group(group: &Group) -> Result<(), String> {
    let mut authorities = HashSet::new();
    let mut urls = group.servers.iter().map(|server| server.origin.scheme());
    match group.protocol {
        UpstreamProtocol::H2 if urls.any(|scheme| scheme == "http") => {
            return Err("protocol = \"h2\" needs https URLs; without TLS write \"h2c\"".to_owned());
        }
        UpstreamProtocol::H2c if urls.any(|scheme| scheme == "https") => {
            return Err("protocol = \"h2c\" needs http URLs; with TLS write \"h2\"".to_owned());
        }
        UpstreamProtocol::Auto if urls.all(|scheme| scheme == "http") => {
            return Err("protocol = \"auto\" needs an https URL: in the clear no server says \
                        what it speaks; write \"h2c\" or \"http1\""
                .to_owned());
        }
        _ => {}
    }
    if group.servers.is_empty() || group.servers.len() > SERVERS_PER_GROUP_MAX {
        return Err(format!("it needs 1 to {SERVERS_PER_GROUP_MAX} servers"));
    }
    for server in &group.servers {
        let authority = &server.origin.authority;
        if !authorities.insert(authority.to_ascii_lowercase()) {
            return Err(format!(
                "the server {authority} is listed twice; give it a weight instead"
            ));
        }
        if !(1..=WEIGHT_MAX).contains(&server.weight) {
            return Err(format!("the weight of {authority} is not from 1 to {WEIGHT_MAX}"));
        }
        if server.outstanding_max == Some(0) {
            return Err(format!("{authority} could never get a request"));
        }
    }
    Ok(())
}

pub(super) fn check_route(route: &Route, groups: &HashSet<&str>) -> Result<(), String> {
    check_captures(route).map_err(|(_, wrong)| wrong)?;
    let path = match &route.path {
        Path::Exact(path) | Path::Prefix(path) | Path::Start(path) => path,
        Path::Pattern(_) => "/",
    };
    if !path.starts_with('/') || path.contains(['?', '#', ' ']) {
        return Err(format!("the path {path:?} does not begin with / or has more than a path"));
    }
    if route.peers && route.key != KeySettings::default() {
        return Err("peers = true: a peer has no part of a key but the URL; ask peers on a route \
                    without query, key_*, device, cookies_sent and bypass_cookies"
            .to_owned());
    }
    if let Some(auth) = &route.guard.auth
        && !groups.contains(auth.upstream.as_str())
    {
        return Err(format!("auth: there is no group with the name {}", auth.upstream));
    }
    if let Action::Group(name) = &route.action
        && !groups.contains(name.as_str())
    {
        return Err(format!("there is no group with the name {name}"));
    }
    check_action(&route.action)?;
    check_lifetimes(&route.lifetimes)?;
    route.request.iter().chain(&route.response).try_for_each(FieldRule::check)
}

/// Checks where a route or a rule leads, apart from the names of groups.
pub(crate) fn check_action(action: &Action) -> Result<(), String> {
    match action {
        Action::Redirect { status, .. } if !matches!(status, 301 | 302 | 303 | 307 | 308) => {
            Err(format!("{status} is not the status of a redirect"))
        }
        Action::Redirect { location, .. } => {
            FieldRule::Set("Location".to_owned(), location.clone()).check()
        }
        Action::Answer { status, .. } if !(200..=599).contains(status) => {
            Err(format!("{status} is not the status of an answer"))
        }
        Action::Answer { status: 204 | 304, body } if !body.is_empty() => {
            Err("an answer with this status has no body".to_owned())
        }
        Action::Group(_) | Action::Answer { .. } => Ok(()),
    }
}

/// What of a route may surprise: a path with several readings, and a host that no request has.
pub(crate) fn warnings(route: &Route) -> impl Iterator<Item = String> {
    let path = route.path.to_string();
    let odd = ["%2F", "%5C", "%3B", "%00", ";", "\\", "/./", "/../"];
    let is_odd = odd.iter().any(|odd| path.to_ascii_uppercase().contains(odd));
    let of_path = is_odd.then(|| {
        format!(
            "path: {path} has several readings: a request for it is refused where the routes of \
             the others are stricter or lead elsewhere"
        )
    });
    let of_hosts = route.hosts.iter().filter_map(|host| {
        let text = host.to_string();
        let is_never = text.trim_start_matches("*.").starts_with('.') || text.contains("..");
        is_never.then(|| format!("hosts: no request has the host {text}, with an empty label"))
    });
    let of_files = route.files.as_ref().and_then(|files| files.warning());
    of_path.into_iter().chain(of_hosts.collect::<Vec<_>>()).chain(of_files)
}

/// Checks the captures of a route and the texts that repeat them.
///
/// # Errors
/// The key of the route that is wrong, and one line: what is wrong.
pub(crate) fn check_captures(route: &Route) -> Result<(), (&'static str, String)> {
    let names = route.captures();
    if names.is_empty() {
        // Elsewhere braces may be text, such as JSON. A location with them is not meant.
        return match &route.action {
            Action::Redirect { location, .. } => {
                check_text(location, &names).map_err(|wrong| ("redirect", wrong))
            }
            Action::Group(_) | Action::Answer { .. } => Ok(()),
        };
    }
    if names.len() > CAPTURES_MAX {
        return Err(("path", format!("a route has at most {CAPTURES_MAX} captures")));
    }
    if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        return Err(("path", format!("there are two captures with the name {}", names[at])));
    }
    let host = route.host_capture();
    let has_same = |other: &Host| match other {
        Host::Captured { name, .. } => Some(name.as_str()) == host,
        Host::Exact(_) | Host::Below(_) => false,
    };
    if host.is_some() && !route.hosts.iter().all(has_same) {
        return Err(("hosts", "if one host of a route has a capture, all have the same".into()));
    }
    let of_request = route.request.iter().map(|rule| ("request", rule));
    for (key, rule) in of_request.chain(route.response.iter().map(|rule| ("response", rule))) {
        if let FieldRule::Set(_, value) | FieldRule::Add(_, value) | FieldRule::Default(_, value) =
            rule
        {
            check_text(value, &names).map_err(|wrong| (key, wrong))?;
        }
    }
    match &route.action {
        Action::Redirect { location, .. } => {
            check_location(location, &names, host).map_err(|wrong| ("redirect", wrong))
        }
        Action::Group(_) | Action::Answer { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    #[test]
    fn hosts_are_names_or_all_below_one() {
        assert_eq!(Host::parse("Example.org"), Ok(Host::Exact("example.org".into())));
        assert_eq!(Host::parse("*.example.org."), Ok(Host::Below("example.org".into())));
        assert_eq!(Host::parse("[::1]"), Ok(Host::Exact("[::1]".into())));
        for wrong in ["", "*.", ".", "*..", "a:80", "*", "a b", "http://a", "*.*.a", "[a]", "[]"] {
            assert!(Host::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn groups_and_routes_must_fit_together() {
        let origin = |at: &str| Origin::at(at.parse().unwrap());
        let group = || Group::of("g", [origin("10.0.0.1:80"), origin("10.0.0.2:80")]);
        let with = |groups, routes| Config { groups, routes, ..Config::forward(&[]) };
        let fails = |config: Config, what: &str| {
            let wrong = config.check_routes().unwrap_err();
            assert!(wrong.contains(what), "{wrong}");
        };
        assert_eq!(with(vec![group()], vec![Route::to("g")]).check_routes(), Ok(()));
        fails(with(vec![group()], vec![Route::to("h")]), "route 1: there is no group");
        fails(with(vec![group(), group()], vec![]), "two groups");
        let twice = Group::of("g", [origin("10.0.0.1:80"), origin("10.0.0.1:80")]);
        fails(with(vec![twice], vec![]), "twice");
        let mut route = Route::to("g");
        route.path = Path::Prefix("api".into());
        fails(with(vec![group()], vec![route]), "does not begin");
        for rule in [
            FieldRule::Set("content-length".into(), "1".into()),
            FieldRule::Remove("Connection".into()),
            FieldRule::Add("X-A".into(), "b\r\nc: d".into()),
            FieldRule::Add("X A".into(), "b".into()),
        ] {
            let mut route = Route::to("g");
            route.response = vec![rule];
            fails(with(vec![group()], vec![route]), "route 1: ");
        }
    }

    #[test]
    fn a_route_that_may_surprise_is_warned_of() {
        let warned = |host: &str, path: &str| {
            let hosts = vec![Host::parse(host).unwrap()];
            let route = Route { hosts, path: Path::parse(path).unwrap(), ..Route::to("g") };
            warnings(&route).collect::<Vec<_>>().len()
        };
        assert_eq!(warned("a.example", "/a/{b}/*"), 0);
        for path in ["/a%2fb", "/{a}/b%5C", "/a;v=1", "/a/../b"] {
            assert_eq!(warned("*.a.example.", path), 1, "{path}");
        }
        assert_eq!(warned("a..example", "/a"), 1);
    }

    #[test]
    fn paths_have_captures_as_whole_segments() {
        let parsed = Path::parse("/{lang}/shop/*");
        let segments = vec![Segment::Capture("lang".into()), Segment::Literal("shop".into())];
        assert_eq!(parsed, Ok(Path::Pattern(PathPattern { segments, rest: true })));
        assert_eq!(Path::parse("/a"), Ok(Path::Exact("/a".into())));
        assert_eq!(Path::parse("/a/b*"), Ok(Path::Start("/a/b".into())));
        let all = PathPattern { segments: Vec::new(), rest: true };
        assert_eq!(Path::parse("/*"), Ok(Path::Pattern(all)));
        for wrong in ["*", "a*", "/a/..*", "/.*", "/a**", "/a?*", "/%2e*"] {
            assert!(Path::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["/{l}/a?b", "/{l}/a#b", "/{l}/a b", "/{l}/../x", "/./*", "/{l}/%2E%2e/x"] {
            assert!(Path::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["/a{b}", "/{}", "/{A}", "/a/*/{b}", "{a}", "/{a}//b", "/{a}/", "x/*"] {
            assert!(Path::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_client_cannot_choose_where_a_redirect_leads() {
        let route = |location: &str| Route {
            hosts: vec![Host::parse("{tenant}.example.org").unwrap()],
            path: Path::parse("/{lang}/*").unwrap(),
            action: Action::Redirect {
                status: 308,
                location: location.to_owned(),
                with_path: false,
            },
            ..Route::to("")
        };
        for good in [
            "/x/{lang}/{*}",
            "https://{tenant}.example.net/{lang}",
            "https://example.net/?t={tenant}",
            "https://{tenant}.example.net:8443/{lang}",
            "//{tenant}.example.net/{*}",
            "/go?to=https://example.net/{*}",
        ] {
            assert_eq!(check_captures(&route(good)), Ok(()), "{good}");
        }
        for wrong in [
            "https://{lang}.example.net/",
            "https://example.{tenant}",
            "//{*}",
            "{*}",
            "https://a.{lang}/",
            "/{other}",
            "https://{tenant}:8443/",
            "https://example.{tenant}:443/",
            "https://example.{tenant}./",
            "https://example.{tenant}:/",
            "https:/{*}",
            "https:///{*}",
            "https:{*}",
            "///{*}",
            "/\\{*}",
        ] {
            assert!(check_captures(&route(wrong)).is_err(), "{wrong}");
        }
        let twice = Route { path: Path::parse("/{tenant}/x").unwrap(), ..route("/") };
        assert!(check_captures(&twice).unwrap_err().1.contains("two captures"));
        let mixed = Route {
            hosts: ["{a}.example.org", "example.org"].map(|h| Host::parse(h).unwrap()).into(),
            ..Route::to("g")
        };
        assert!(check_captures(&mixed).unwrap_err().1.contains("all have the same"));
    }
}
