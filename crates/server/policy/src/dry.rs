//! What routes and rules say about a request that no client has sent: for `check --request`, and
//! for the expectations of a configuration.
//!
//! The functions are those that serve requests, so what is said here is what happens. A condition
//! that reads `random` gets 0.5, one that reads `tls` gets nothing, and the time is now. A login
//! counts as right, because no password is checked.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use conditions::{Facts, Sent, Term};
use config::{Action, Config, Expect, Listener, Role, Rule};
use http1::{
    Limits, Name, OwnedRequest, OwnedResponse, Scheme, Scratch, accept_response, parse_request,
};
use outcome::Refusal;

use crate::front;
use crate::reading::Reading;
use crate::routes::{Chosen, Routes};
use crate::rules::{RuleSet, response_facts};
use crate::values::Values;

/// A request, and the response that the upstream would give.
#[derive(Debug)]
pub struct Question {
    scheme: Scheme,
    authority: String,
    path: String,
    from: IpAddr,
    head: OwnedRequest,
    response: OwnedResponse,
}

/// A rule or a route with a condition, and what its condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// `rule assets`, or `route 2`. Routes are counted from 1.
    pub name: String,
    /// The condition.
    pub when: String,
    /// Whether it holds; `None`: it is asked when the response comes.
    pub holds: Option<bool>,
    /// Its comparisons, with the values that they compare.
    pub terms: Vec<Term>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It goes to the upstream of this name.
    Upstream(String),
    /// It is answered with this status, and sent to this location.
    Redirect(u16, String),
    /// It is answered with this status.
    Answer(u16),
    /// It is refused.
    Refused(Refusal),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Upstream(name) => write!(f, "it goes to the upstream {name}"),
            Outcome::Redirect(status, to) => write!(f, "it gets a redirect to {to} ({status})"),
            Outcome::Answer(status) => write!(f, "it is answered with {status}"),
            Outcome::Refused(refusal) => {
                write!(f, "it is refused with {} ({})", refusal.status(), refusal.name())
            }
        }
    }
}

/// What the configuration says about a request.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// All conditions, in the order of the configuration, rules first.
    pub judged: Vec<Judged>,
    /// The names of the rules that apply, in order.
    pub rules: Vec<String>,
    /// The index of the route.
    pub route: Option<usize>,
    /// What becomes of it.
    pub outcome: Outcome,
    /// Whether the store may answer it.
    pub stores: bool,
}

impl Question {
    /// From a method and a URL (`GET https://www.example.org/a`), fields (`Name: value`), the
    /// client's address, and the status and the fields of a response.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn of(expect: &Expect) -> Result<Question, String> {
        let Expect { request, fields, from, status, response, .. } = expect;
        let (method, url) = request.split_once(' ').unwrap_or(("GET", request));
        let (scheme, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (Scheme::Http, rest),
            (_, Some(rest)) => (Scheme::Https, rest),
            _ => {
                return Err(format!(
                    "{request:?} is not a method and a URL: GET https://host/path"
                ));
            }
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = match path {
            "" => "/".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        let lines = |fields: &[String]| {
            fields.iter().map(|field| format!("{field}\r\n")).collect::<String>()
        };
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\n{}\r\n", lines(fields));
        let mut scratch = Scratch::new();
        let parsed = parse_request(head.as_bytes(), &mut scratch, &Limits::DEFAULT);
        let head = match parsed {
            Ok(Some(head)) => head.detach(),
            Ok(None) => return Err(format!("{request:?} is not a whole request")),
            Err(wrong) => return Err(format!("{request:?} with its fields: {wrong}")),
        };
        let status = status.unwrap_or(200);
        let text = format!("HTTP/1.1 {status} X\r\n{}\r\n", lines(response));
        let mut scratch = Scratch::new();
        let parsed = accept_response(text.as_bytes(), &mut scratch, &Limits::DEFAULT);
        let response = match parsed {
            Ok(Some(head)) => head.detach(),
            Ok(None) | Err(_) => {
                return Err(format!("the response {status} with {response:?} is not one"));
            }
        };
        let from = match from {
            Some(from) => {
                from.parse().map_err(|_| format!("{from:?} is not the address of a client"))?
            }
            None => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let authority = authority.to_owned();
        Ok(Question { scheme, authority, path, from, head, response })
    }

    /// The client: the sender, or the one that the sender names if it is a trusted proxy.
    fn client(&self, listener: Option<&Listener>) -> IpAddr {
        let front = listener.and_then(|listener| listener.front.as_deref());
        let client = match front.filter(|front| front.trusts(self.from)) {
            None => self.from,
            Some(front) => {
                front::client(front, &self.head.fields(), SocketAddr::new(self.from, 0)).ip()
            }
        };
        client.to_canonical()
    }

    /// The listener that it would come to: one with the port of its URL, or with its scheme.
    fn listener<'c>(&self, config: &'c Config) -> Option<&'c Listener> {
        let is_https = self.scheme == Scheme::Https;
        let of_scheme = |one: &&Listener| {
            let speaks = one.tls.is_some() == is_https;
            // A trusted proxy may have spoken the other scheme with the client.
            speaks || one.front.as_deref().is_some_and(|front| front.trusts(self.from))
        };
        let port = http1::parse_authority(self.authority.as_bytes()).ok().and_then(|of| of.port);
        let port = port.unwrap_or(self.scheme.port());
        let reverse =
            || config.listeners.iter().filter(|one| one.role == Role::Reverse && !one.cluster);
        let at_port = reverse().filter(of_scheme).find(|one| one.address.port() == port);
        at_port.or_else(|| reverse().find(of_scheme)).or_else(|| reverse().next())
    }
}

/// What a configuration says about a request.
pub fn verdict(routes: &Routes, config: &Config, question: &Question) -> Verdict {
    let reading = Reading::of(question.authority.as_bytes(), question.path.as_bytes());
    let listener = question.listener(config);
    let name =
        listener.map(|one| one.name.clone().unwrap_or_else(|| runtime::net::shown(one.address)));
    let name = name.unwrap_or_default();
    let query = question.path.split_once('?').map_or("", |(_, query)| query);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let facts = Facts {
        host: b"",
        path: b"",
        query: query.as_bytes(),
        sent: Sent {
            authority: question.authority.as_bytes(),
            path_and_query: question.path.as_bytes(),
            tunnel_port: None,
        },
        method: question.head.method_bytes(),
        scheme: question.scheme.name(),
        listener: &name,
        port: listener.map_or(question.scheme.port(), |one| one.address.port()),
        client: question.client(listener),
        fields: question.head.fields(),
        now_s: now.map_or(0, |now| now.as_secs()),
        user: None,
        tls: None,
        random: 0.5,
        response: None,
    };
    let response = question.response.head();
    let response = response_facts(response.status, response.fields);
    let found = routes.find(reading, Some(&facts));
    let late = routes.late(reading, &facts, response);
    let judged = judged(routes, reading, &Facts { response: Some(response), ..facts });
    let chosen = match found {
        Ok(chosen) => chosen,
        Err(refusal) => {
            let outcome = Outcome::Refused(refusal);
            return Verdict { judged, rules: Vec::new(), route: None, outcome, stores: false };
        }
    };
    let outcome = match guarded(routes, &chosen, reading, &facts) {
        Ok(()) => outcome(routes, config, &chosen, reading, &facts),
        Err(refusal) => Outcome::Refused(refusal),
    };
    // No response comes to a request that is answered here.
    let is_sent = matches!(outcome, Outcome::Upstream(_));
    let late = if is_sent { late } else { RuleSet::default() };
    let applied = chosen.rules.with(&late);
    let rules = routes.rules().of(&applied).map(|rule| rule.config.name.clone());
    let rules: Vec<String> = rules.collect();
    let route = chosen.at.and_then(|at| routes.get(at));
    let key = route.and_then(|route| route.key.as_ref());
    let bypassed = key.is_some_and(|key| key.bypassed(facts.fields).is_some());
    let stores = chosen.is_sole
        && routes.stores(&chosen)
        && !bypassed
        && routes.rules().of(&late).all(|rule| rule.config.store);
    Verdict { judged, rules, route: chosen.at, outcome, stores }
}

/// What the guards say of the client's address, and whether there is a login where one is asked
/// for. The password is not checked, and no service is asked.
fn guarded(
    routes: &Routes,
    chosen: &Chosen,
    reading: Reading<'_>,
    facts: &Facts<'_>,
) -> Result<(), Refusal> {
    let guarding = routes.guarding((reading, chosen, Some(facts)), facts.user.is_some())?;
    for guard in routes.guards(&guarding.unwrap_or_default()) {
        if guard.asks_login(facts.client)? && facts.fields.get(Name::Authorization).is_none() {
            return Err(Refusal::LoginMissing);
        }
    }
    Ok(())
}

fn outcome(
    routes: &Routes,
    config: &Config,
    chosen: &Chosen,
    reading: Reading<'_>,
    facts: &Facts<'_>,
) -> Outcome {
    if let Some(group) = routes.group(chosen) {
        if let Err(refusal) = routes.rewritten(chosen, reading, Some(facts)) {
            return Outcome::Refused(refusal);
        }
        return match config.groups.get(group) {
            Some(group) if chosen.at.is_some() => Outcome::Upstream(group.name.clone()),
            _ => Outcome::Refused(Refusal::NoRoute),
        };
    }
    let values = Values { facts: *facts, reading, upstream: None, id: Some(0), given_id: b"" };
    let Some(action) = routes.expanded_action(chosen, &values) else {
        return Outcome::Refused(Refusal::NoRoute);
    };
    match action {
        Action::Redirect { status, mut location, with_path } => {
            if with_path {
                location.push_str(&String::from_utf8_lossy(&reading.origin_form()));
            }
            Outcome::Redirect(status, location)
        }
        Action::Answer { status, .. } => Outcome::Answer(status),
        Action::Group(_) => Outcome::Refused(Refusal::NoRoute),
    }
}

/// All conditions with what they say of a request in its usual reading.
pub fn judged(routes: &Routes, reading: Reading<'_>, facts: &Facts<'_>) -> Vec<Judged> {
    let (host, path) = reading.usual();
    let facts = Facts { host: &host, path: &path, ..*facts };
    let conditions = routes.conditions();
    let mut judge = conditions.judge(facts);
    let is_known = |id| facts.response.is_some() || !Rule::is_of_response(conditions.reads(id));
    let rules = routes.rules().all().iter().enumerate().map(|(at, rule)| {
        let state = routes.maintenance().filter(|_| routes.rules().is_maintenance(at));
        let state = state.map(|switch| format!(" ({})", switch.text())).unwrap_or_default();
        (format!("rule {}{state}", rule.config.name), rule.id)
    });
    let of_routes = routes.all().iter().enumerate();
    let of_routes =
        of_routes.filter_map(|(at, route)| Some((route.config.name(at), route.condition()?)));
    rules
        .chain(of_routes)
        .map(|(name, id)| Judged {
            name,
            when: conditions.text(id).to_owned(),
            holds: is_known(id).then(|| judge.holds(id)),
            terms: if is_known(id) { judge.terms(id) } else { Vec::new() },
        })
        .collect()
}

/// The expectations of a configuration that it does not meet, each in one line.
pub fn unmet(config: &Config) -> Vec<String> {
    if config.expects.is_empty() {
        return Vec::new();
    }
    let routes = Routes::of(config);
    let one = |(at, expect): (usize, &Expect)| {
        let why = match Question::of(expect) {
            Ok(question) => differs(expect, &verdict(&routes, config, &question))?,
            Err(wrong) => wrong,
        };
        Some(format!("expect[{at}] ({}): {why}", expect.request))
    };
    config.expects.iter().enumerate().filter_map(one).collect()
}

/// What differs from what is expected.
fn differs(expect: &Expect, verdict: &Verdict) -> Option<String> {
    let (mut upstream, mut redirect, mut answer) = (None, None, None);
    match &verdict.outcome {
        Outcome::Upstream(name) => upstream = Some(name),
        Outcome::Redirect(_, location) => redirect = Some(location),
        Outcome::Answer(status) => answer = Some(*status),
        Outcome::Refused(refusal) => answer = Some(refusal.status()),
    }
    let said = &verdict.outcome;
    if expect.upstream.as_ref().is_some_and(|name| Some(name) != upstream) {
        return Some(format!("{said}, and the upstream {} is expected", expect.upstream.as_ref()?));
    }
    if expect.redirect.as_ref().is_some_and(|to| Some(to) != redirect) {
        return Some(format!(
            "{said}, and a redirect to {} is expected",
            expect.redirect.as_ref()?
        ));
    }
    if expect.answer.is_some() && expect.answer != answer {
        return Some(format!("{said}, and the answer {} is expected", expect.answer?));
    }
    if let Some(rules) = expect.rules.as_ref().filter(|rules| **rules != verdict.rules) {
        return Some(format!("the rules {:?} apply, and {rules:?} is expected", verdict.rules));
    }
    if expect.store.is_some_and(|store| store != verdict.stores) {
        let may = if verdict.stores { "may" } else { "may not" };
        return Some(format!("the store {may} answer it, and the opposite is expected"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{FieldRule, Group};

    fn config() -> Config {
        let rule = |name: &str, when: &str, action: Option<Action>| Rule {
            name: name.to_owned(),
            when: when.parse().unwrap(),
            action,
            mirror: None,
            rewrite: None,
            request: vec![FieldRule::Set("X-Rule".to_owned(), name.to_owned())],
            response: Vec::new(),
            store: name != "no-store",
            compression: true,
            lifetime: None,
        };
        let redirect = Action::Redirect {
            status: 308,
            location: "https://{host}".to_owned(),
            with_path: true,
        };
        let late =
            Rule { request: Vec::new(), store: false, ..rule("errors", "status >= 500", None) };
        Config {
            groups: vec![Group::of("site", []), Group::of("canary", [])],
            rules: vec![
                rule("https", "scheme == 'http'", Some(redirect)),
                rule("no-store", "'session' in cookies", None),
                rule(
                    "canary",
                    "cookies['canary'] == '1'",
                    Some(Action::Group("canary".to_owned())),
                ),
                rule(
                    "admin",
                    "path.startsWith('/admin') && !client.within('10.0.0.0/8')",
                    Some(Action::Answer { status: 403, body: "no".to_owned() }),
                ),
                rule(
                    "sent",
                    "url == 'https://a:8443/./b?c' && target == '/./b?c'",
                    Some(Action::Answer { status: 404, body: "no".to_owned() }),
                ),
                late,
            ],
            ..Config::reverse([], &["127.0.0.1:8080".parse().unwrap()])
        }
    }

    #[test]
    fn a_verdict_is_what_would_happen() {
        let config = config();
        let routes = Routes::of(&config);
        let asked = |request: &str, fields: &[&str], from: &str, status: u16| {
            let expect = Expect {
                request: request.to_owned(),
                fields: fields.iter().map(|field| (*field).to_owned()).collect(),
                from: Some(from.to_owned()),
                status: Some(status),
                ..Expect::default()
            };
            let verdict = verdict(&routes, &config, &Question::of(&expect).unwrap());
            (verdict.outcome, verdict.rules.join(" "), verdict.stores)
        };
        let upstream = |name: &str| Outcome::Upstream(name.to_owned());
        let name = |text: &str| text.to_owned();
        let client = "192.0.2.1";
        assert_eq!(
            asked("GET http://A.example:80/x?y", &[], client, 200),
            (Outcome::Redirect(308, name("https://a.example/x?y")), name("https"), false)
        );
        let plain = asked("GET https://a/x", &[], client, 200);
        assert_eq!(plain, (upstream("site"), name(""), true));
        let with = asked("GET https://a/x", &["Cookie: session=1; canary=1"], client, 200);
        assert_eq!(with, (upstream("canary"), name("no-store canary"), false));
        let failed = asked("GET https://a/x", &[], client, 502);
        assert_eq!(failed, (upstream("site"), name("errors"), false));
        let (outcome, ..) = asked("GET https://A:8443/%2e/b?%63", &[], client, 200);
        assert_eq!(outcome, Outcome::Answer(404));
        for spelled in ["/admin/x", "/%61dmin", "//admin", "/x/../admin", "/x;y/..;/admin"] {
            let (outcome, ..) = asked(&format!("GET https://a{spelled}"), &[], client, 200);
            assert_eq!(outcome, Outcome::Answer(403), "{spelled}");
            let (outcome, ..) = asked(&format!("GET https://a{spelled}"), &[], "10.1.2.3", 200);
            assert_ne!(outcome, Outcome::Answer(403), "{spelled}");
        }
    }

    #[test]
    fn expectations_that_are_not_met_are_named() {
        let mut config = config();
        let expect = |request: &str, upstream: &str| Expect {
            request: request.to_owned(),
            upstream: Some(upstream.to_owned()),
            ..Expect::default()
        };
        config.expects = vec![
            expect("GET https://a/x", "site"),
            expect("GET https://a/x", "canary"),
            expect("https:/a", "site"),
            Expect { answer: Some(403), upstream: None, ..expect("GET https://a/admin/", "") },
            Expect {
                rules: Some(vec!["errors".to_owned()]),
                status: Some(503),
                store: Some(true),
                ..expect("GET https://a/", "site")
            },
        ];
        let unmet = unmet(&config);
        assert_eq!(unmet.len(), 3, "{unmet:?}");
        assert!(unmet[0].starts_with("expect[1] (GET https://a/x): it goes to the upstream site"));
        assert!(unmet[1].contains("is not a method and a URL"), "{}", unmet[1]);
        assert!(unmet[2].contains("the store may not answer it"), "{}", unmet[2]);
    }
}
