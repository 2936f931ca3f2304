//! Routes: which requests of reverse listeners go to which group, and how messages are changed.

use std::net::Ipv6Addr;

use hashbrown::HashSet;

use super::{Config, Group, UpstreamProtocol};
use crate::limits::{SERVERS_PER_GROUP_MAX, WEIGHT_MAX};

/// Selects requests and decides what happens to them.
///
/// Of all routes that match a request, the one with the most specific host is used, and of these
/// the one with the most specific path: an exact host before a wildcard, a longer wildcard before a
/// shorter one, any host last; an exact path before a prefix, a longer prefix before a shorter one.
/// The order of routes does not matter, except between two that are equally specific: then the
/// first is used.
#[derive(Clone, Debug)]
pub struct Route {
    /// Hosts, without ports; empty: any host.
    pub hosts: Vec<Host>,
    /// The path.
    pub path: Path,
    /// What happens to the requests.
    pub action: Action,
    /// Changes to the fields sent to the upstream.
    pub request: Vec<FieldRule>,
    /// Changes to the fields of the upstream's response, made before anything else sees them: the
    /// changed caching fields count, and the changed response is stored.
    pub response: Vec<FieldRule>,
    /// Whether the store is used.
    pub store: bool,
    /// Whether safe requests may come in early data.
    pub early_data: bool,
    /// Whether peers are asked.
    pub peers: bool,
}

impl Route {
    /// All requests, to a group.
    pub fn to(group: &str) -> Route {
        Route {
            hosts: Vec::new(),
            path: Path::Prefix("/".to_owned()),
            action: Action::Group(group.to_owned()),
            request: Vec::new(),
            response: Vec::new(),
            store: true,
            early_data: false,
            peers: false,
        }
    }
}

/// Hosts of requests, regardless of case and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// This host.
    Exact(String),
    /// All hosts below this one, at any depth: `example.org` means `*.example.org`.
    Below(String),
}

impl Host {
    /// Parses `example.org` or `*.example.org`.
    ///
    /// # Errors
    /// One line: what is wrong.
    pub fn parse(text: &str) -> Result<Host, String> {
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

/// Paths of requests, without queries. They are compared after normalisation: `%61` is `a`, `//` is
/// `/`, and `/a/../b` is `/b`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// This path.
    Exact(String),
    /// This path and everything below it: `/api` matches `/api` and `/api/x`, but not `/apix`.
    Prefix(String),
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
    /// Removes all fields of this name.
    Remove(String),
}

impl FieldRule {
    /// The name of the field.
    pub fn name(&self) -> &str {
        match self {
            FieldRule::Set(name, _) | FieldRule::Add(name, _) | FieldRule::Default(name, _) => name,
            FieldRule::Remove(name) => name,
        }
    }

    fn check(&self) -> Result<(), String> {
        let name = self.name();
        if UNTOUCHABLE.iter().any(|one| one.eq_ignore_ascii_case(name)) {
            return Err(format!("the field {name} cannot be changed: messages are framed by it"));
        }
        let mut probe = Vec::new();
        let value = match self {
            FieldRule::Set(_, value) | FieldRule::Add(_, value) | FieldRule::Default(_, value) => {
                value
            }
            FieldRule::Remove(_) => "",
        };
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
    let (Path::Exact(path) | Path::Prefix(path)) = &route.path;
    if !path.starts_with('/') || path.contains(['?', '#', ' ']) {
        return Err(format!("the path {path:?} does not begin with / or has more than a path"));
    }
    match &route.action {
        Action::Group(name) if !groups.contains(name.as_str()) => {
            return Err(format!("there is no group with the name {name}"));
        }
        Action::Redirect { status, .. } if !matches!(status, 301 | 302 | 303 | 307 | 308) => {
            return Err(format!("{status} is not the status of a redirect"));
        }
        Action::Redirect { location, .. } => {
            FieldRule::Set("Location".to_owned(), location.clone()).check()?;
        }
        Action::Answer { status, .. } if !(200..=599).contains(status) => {
            return Err(format!("{status} is not the status of an answer"));
        }
        Action::Answer { status: 204 | 304, body } if !body.is_empty() => {
            return Err("an answer with this status has no body".to_owned());
        }
        Action::Group(_) | Action::Answer { .. } => {}
    }
    route.request.iter().chain(&route.response).try_for_each(FieldRule::check)
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
}
