//! Rules: conditions on requests and responses, and what they do, as configured.

use conditions::{Builder, Checked, Lists, Reads, Scope};

use super::captures::{
    Piece, check_location, check_text, is_capture, is_value, pieces, value_of_one_client,
};
use super::here::Here;
use super::limits::{EXPECTS_MAX, RULES_MAX};
use super::routes::FieldRule;
use super::when::When;
use super::{Action, Config, Lifetime, MAINTENANCE};

/// A condition, and what happens to the requests and responses for which it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name in explanations and in `[[expect]]`.
    pub name: String,
    /// When it applies. A condition that reads the response is asked when the response comes.
    pub when: When,
    /// Where it leads, if it leads anywhere.
    pub action: Option<Action>,
    /// The name of the group that gets a copy of the request. Its response is thrown away.
    pub mirror: Option<String>,
    /// The path that the upstream gets.
    pub rewrite: Option<Rewrite>,
    /// Changes to the fields sent to the upstream.
    pub request: Vec<FieldRule>,
    /// Changes to the fields of the response.
    pub response: Vec<FieldRule>,
    /// Whether the store may be used.
    pub store: bool,
    /// Whether responses may be coded.
    pub compression: bool,
    /// How long the response is fresh.
    pub lifetime: Option<Lifetime>,
}

/// The path that the upstream gets in place of the requested one. The query stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// Without this prefix, which ends at a slash.
    Strip(String),
    /// This path, which may repeat captures.
    To(String),
}

/// A request, and what must become of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// The method and the URL: `GET https://www.example.org/a.css`.
    pub request: String,
    /// Fields: `Name: value`.
    pub fields: Vec<String>,
    /// The client's address.
    pub from: Option<String>,
    /// The response of the upstream: its status.
    pub status: Option<u16>,
    /// Its fields.
    pub response: Vec<String>,
    /// The names of the rules that apply, in order.
    pub rules: Option<Vec<String>>,
    /// The upstream that the request goes to.
    pub upstream: Option<String>,
    /// The location of the redirect that it gets.
    pub redirect: Option<String>,
    /// The status of the answer that it gets without an upstream, also of a refusal.
    pub answer: Option<u16>,
    /// Whether the store may answer it.
    pub store: Option<bool>,
}

/// What differs between requests of one key. Stored responses must not depend on these.
const OF_ONE_REQUEST: [(Reads, &str); 8] = [
    (Reads::METHOD, "method"),
    (Reads::LISTENER, "the listener"),
    (Reads::CLIENT, "client"),
    (Reads::USER, "user"),
    (Reads::TLS, "tls"),
    (Reads::FIELDS, "fields"),
    (Reads::COOKIES, "cookies"),
    (Reads::RANDOM, "random"),
];

/// Why a condition that reads this may not decide about a response that is stored.
fn differs_between_requests(reads: Reads) -> Option<String> {
    let (_, name) = OF_ONE_REQUEST.into_iter().find(|(of, _)| reads.contains(*of))?;
    Some(format!(
        "a response is stored for all clients, and what the condition reads ({name}) differs \
         between requests for it"
    ))
}

impl Rule {
    /// Whether it is asked when the response comes.
    pub fn is_of_response(reads: Reads) -> bool {
        reads.contains(Reads::RESPONSE)
    }

    /// Checks it. `captures` are what its condition captures.
    fn check(&self, checked: &Checked, groups: &[&str]) -> Result<(), (&'static str, String)> {
        let captures = checked.captures();
        let names: Vec<&str> = captures.iter().map(String::as_str).collect();
        if let Some(name) = names.iter().find(|name| is_value(name) || !is_capture(name)) {
            let text = format!(
                "{name:?} is not a name for a capture: use a to z, 0 to 9 and _, and no name of a \
                 value, such as host"
            );
            return Err(("when", text));
        }
        let (reads, is_late) = (checked.reads(), Rule::is_of_response(checked.reads()));
        let early = [
            ("upstream", matches!(self.action, Some(Action::Group(_)))),
            ("redirect", matches!(self.action, Some(Action::Redirect { .. }))),
            ("answer", matches!(self.action, Some(Action::Answer { .. }))),
            ("mirror", self.mirror.is_some()),
            ("rewrite", matches!(self.rewrite, Some(Rewrite::To(_)))),
            ("strip_prefix", matches!(self.rewrite, Some(Rewrite::Strip(_)))),
            ("request", !self.request.is_empty()),
        ];
        if let Some((key, _)) = early.into_iter().find(|(_, is_there)| *is_there && is_late) {
            let text = "the condition reads the response, and the request was sent before it";
            return Err((key, text.to_owned()));
        }
        let does = self.action.is_some()
            || self.mirror.is_some()
            || self.rewrite.is_some()
            || !self.request.is_empty()
            || !self.response.is_empty()
            || !self.store
            || !self.compression
            || self.lifetime.is_some();
        if !does {
            let text = "this rule does nothing: write upstream, redirect, answer, store = false …";
            return Err(("", text.to_owned()));
        }
        if let Some(name) = self.mirror.as_ref().filter(|name| !groups.contains(&name.as_str())) {
            return Err(("mirror", format!("there is no group with the name {name}")));
        }
        match &self.action {
            Some(Action::Group(name)) if !groups.contains(&name.as_str()) => {
                return Err(("upstream", format!("there is no group with the name {name}")));
            }
            Some(Action::Redirect { location, .. }) => {
                check_location(location, &names, None).map_err(|wrong| ("redirect", wrong))?;
            }
            _ => {}
        }
        if let Some(action) = &self.action {
            let key = if matches!(action, Action::Answer { .. }) { "answer" } else { "redirect" };
            super::routes::check_action(action).map_err(|wrong| (key, wrong))?;
        }
        match &self.rewrite {
            Some(Rewrite::To(path)) => {
                if !path.starts_with('/') || path.contains(['?', '#', ' ']) {
                    return Err(("rewrite", format!("{path:?} is not a path")));
                }
                check_text(path, &names).map_err(|wrong| ("rewrite", wrong))?;
                let only = |piece| match piece {
                    Piece::Capture(name) => names.contains(&name) || name == "path",
                    Piece::Text(_) => true,
                };
                if !pieces(path).all(only) {
                    let text = "a path may repeat captures of the condition and {path} only";
                    return Err(("rewrite", text.to_owned()));
                }
            }
            Some(Rewrite::Strip(prefix)) if !prefix.starts_with('/') || prefix.ends_with('/') => {
                let text = format!("{prefix:?} is not a prefix such as /api");
                return Err(("strip_prefix", text));
            }
            Some(Rewrite::Strip(_)) | None => {}
        }
        let of_request = self.request.iter().map(|rule| ("request", rule));
        for (key, rule) in of_request.chain(self.response.iter().map(|rule| ("response", rule))) {
            rule.check().map_err(|wrong| (key, wrong))?;
            let value = rule.value();
            check_text(value, &names).map_err(|wrong| (key, wrong))?;
            let of_client = value_of_one_client(value);
            if let Some(name) =
                of_client.filter(|_| key == "request" && self.is_stored() && rule.is_login())
            {
                return Err(("request", login_of_one_client(rule.name(), name)));
            }
            if let Some(name) = of_client.filter(|_| key == "response" && self.is_stored()) {
                return Err(("response", changed_for_one_client(name)));
            }
        }
        self.check_for_all(reads)
    }

    /// Whether the responses that it changes may be stored.
    fn is_stored(&self) -> bool {
        self.store && !matches!(self.action, Some(Action::Redirect { .. } | Action::Answer { .. }))
    }

    /// Whether a stored response depends on it.
    fn decides_about_stored(&self) -> bool {
        let changes = !self.response.is_empty()
            || !self.request.is_empty()
            || self.rewrite.is_some()
            || self.lifetime.is_some()
            || matches!(self.action, Some(Action::Group(_)));
        self.is_stored() && changes
    }

    /// Whether a changed field of the response has the query of one request.
    fn repeats_query(&self) -> bool {
        let of_query = |piece| matches!(piece, Piece::Capture("query" | "uri"));
        self.response.iter().any(|rule| pieces(rule.value()).any(of_query))
    }

    /// A response is changed once, when it comes, and stored for all clients.
    fn check_for_all(&self, reads: Reads) -> Result<(), (&'static str, String)> {
        let is_late = Rule::is_of_response(reads);
        if !(self.decides_about_stored() || is_late) {
            return Ok(());
        }
        match differs_between_requests(reads) {
            Some(why) if is_late => Err(("when", why)),
            Some(why) => Err(("when", format!("{why}: write store = false too"))),
            None => Ok(()),
        }
    }
}

fn changed_for_one_client(name: &str) -> String {
    format!(
        "a response is stored with its changed fields for all clients, and {{{name}}} is of one \
         client: write store = false too"
    )
}

/// A login that is of one client must not draw a response that is stored for all.
fn login_of_one_client(field: &str, value: &str) -> String {
    format!(
        "what the upstream answers to a login may be stored for all clients, and {{{value}}} in \
         {field} is of one client: write store = false too"
    )
}

impl Config {
    /// The lists and maps for its conditions, which were checked when its file was read.
    pub fn condition_lists(&self) -> Lists {
        self.lists_or(|key, why| debug_assert!(false, "{key} was not checked: {why}"))
    }

    /// The same. `wrong` gets the key of one that is not a list or a map, and why.
    fn lists_or(&self, mut wrong: impl FnMut(&str, String)) -> Lists {
        let mut lists = Lists::new();
        for (at, (name, values)) in self.lists.iter().enumerate() {
            let added = lists.add_list(name, values.clone());
            added.unwrap_or_else(|why| wrong(&format!("list[{at}].name"), why));
        }
        for (at, (name, pairs)) in self.maps.iter().enumerate() {
            let added = lists.add_map(name, pairs.clone());
            added.unwrap_or_else(|why| wrong(&format!("map[{at}].name"), why));
        }
        lists
    }

    /// Checks all conditions and rules.
    pub(crate) fn check_conditions(&self, here: &mut Here<'_, '_>) {
        let lists = self.lists_or(|key, why| here.mistake_of(key, why));
        // All conditions are compiled together, so their number has limits.
        let mut builder = Builder::new(lists.clone());
        let mut check = |key: &str, when: &When, scope, here: &mut Here<'_, '_>| {
            conditions::check(when.as_str(), scope, &lists)
                .and_then(|checked| builder.add(when.as_str(), scope).map(|_| checked))
                .map_err(|mistake| {
                    let part = when.as_str().get(mistake.at.clone()).unwrap_or_default();
                    let place = match part {
                        "" => String::new(),
                        part if part == when.as_str() => String::new(),
                        part => format!(" (at `{part}`, column {})", mistake.at.start + 1),
                    };
                    here.mistake_of(key, format!("{}{place}", mistake.why));
                })
                .ok()
        };
        for route in &self.routes {
            let at = &route.place;
            let allowed = route.guard.allow_from.as_ref();
            let of_guard = allowed.map(|texts| ("allow_from", texts));
            for (key, texts) in of_guard.into_iter().chain([("deny_from", &route.guard.deny_from)])
            {
                if let Err(wrong) = lists.networks(texts) {
                    here.mistake_of(&format!("{at}.{key}"), wrong);
                }
            }
            let leads = |rule: &Rule| rule.store && matches!(rule.action, Some(Action::Group(_)));
            let is_led = !matches!(route.action, Action::Group(_)) && self.rules.iter().any(leads);
            let is_sent_on = is_led || matches!(route.action, Action::Group(_));
            let auth = route.guard.auth.as_ref().filter(|_| is_led && route.store);
            if let Some(name) = auth.and_then(|auth| auth.copy.first()) {
                let text = format!(
                    "a rule may lead requests for this route to an upstream, whose responses are \
                     stored for all clients, and {name} is of one client: write store = false"
                );
                here.mistake_of(&format!("{at}.auth.copy"), text);
            }
            for (key, rules) in [("request", &route.request), ("response", &route.response)] {
                let is_stored = route.store && is_sent_on;
                let of_client = rules.iter().filter(|_| is_stored).find_map(|rule| {
                    let name = value_of_one_client(rule.value())?;
                    Some((rule, name)).filter(|_| key == "response" || rule.is_login())
                });
                if let Some((rule, name)) = of_client {
                    let text = match key {
                        "request" => login_of_one_client(rule.name(), name),
                        _ => changed_for_one_client(name),
                    };
                    here.mistake_of(&format!("{at}.{key}"), text);
                }
            }
            if let Some(when) = &route.when {
                let key = format!("{at}.when");
                let checked = check(&key, when, Scope::Request, here);
                let reads = checked.map_or(Reads::NONE, |checked| checked.reads());
                // A route that only answers changes nothing that is stored.
                let changes = !route.request.is_empty() || !route.response.is_empty();
                let is_led = is_led && changes;
                let is_sent_on = is_led || matches!(route.action, Action::Group(_));
                let is_stored = route.store && is_sent_on;
                let why = differs_between_requests(reads).filter(|_| is_stored);
                if let Some(why) = why {
                    here.mistake_of(&key, format!("{why}: write store = false too"));
                }
                let of_connection = Reads::LISTENER | Reads::TLS;
                if self.cluster.is_some() && reads.intersects(of_connection) {
                    let text = "the members of a cluster send each other requests, and only the \
                                first member knows the listener and its TLS: write a [[rule]]";
                    here.mistake_of(&key, text);
                }
            }
            for (nth, lifetime) in route.lifetimes.iter().enumerate() {
                if let Some(when) = &lifetime.when {
                    let key = format!("{at}.lifetime[{nth}].when");
                    let checked = check(&key, when, Scope::Response, here);
                    let reads = checked.map_or(Reads::NONE, |checked| checked.reads());
                    if let Some(why) = differs_between_requests(reads) {
                        here.mistake_of(&key, why);
                    }
                }
            }
        }
        if let Some(maintenance) = &self.maintenance {
            let when = &maintenance.rule.when;
            check("maintenance.when", when, Scope::Request, here);
            if self.rules.iter().any(|rule| rule.name == MAINTENANCE) {
                let text = "[maintenance] is a rule of this name: give the other rule another one";
                here.mistake_of("maintenance", text);
            }
        }
        for (at, quota) in self.quotas.iter().enumerate() {
            if let Some(when) = &quota.when {
                let key = format!("quota[{at}].when");
                let checked = check(&key, when, Scope::Request, here);
                let reads = checked.map_or(Reads::NONE, |checked| checked.reads());
                let unknown =
                    [(Reads::TLS, "tls"), (Reads::RANDOM, "random"), (Reads::USER, "user")];
                let is_known = |of| of == Reads::USER && quota.by == super::By::User;
                let mut unknown = unknown.into_iter().filter(|(of, _)| !is_known(*of));
                if let Some((_, name)) = unknown.find(|(of, _)| reads.contains(*of)) {
                    let text = format!("a quota judges a request before {name} is known");
                    here.mistake_of(&key, text);
                }
            }
        }
        if let Some(when) = &self.forward.deny_when {
            let checked = check("forward.deny_when", when, Scope::Request, here);
            let reads = checked.map_or(Reads::NONE, |checked| checked.reads());
            if reads.intersects(Reads::TLS | Reads::RANDOM) {
                let text = "requests are refused by what they are, not by tls or random";
                here.mistake_of("forward.deny_when", text);
            }
        }
        for (nth, lifetime) in self.forward.lifetimes.iter().enumerate() {
            if let Some(when) = &lifetime.when {
                let key = format!("forward.lifetime[{nth}].when");
                let checked = check(&key, when, Scope::Response, here);
                let reads = checked.map_or(Reads::NONE, |checked| checked.reads());
                if let Some(why) = differs_between_requests(reads) {
                    here.mistake_of(&key, why);
                }
            }
        }
        if let Err(wrong) = super::lifetime::check_lifetimes(&self.forward.lifetimes) {
            here.mistake_of("forward.lifetime", wrong);
        }
        if self.rules.len() + usize::from(self.maintenance.is_some()) > RULES_MAX {
            here.mistake_of("rule", format!("there are at most {RULES_MAX} rules"));
        }
        if self.expects.len() > EXPECTS_MAX {
            here.mistake_of("expect", format!("there are at most {EXPECTS_MAX} expectations"));
        }
        let groups: Vec<&str> = self.groups.iter().map(|group| group.name.as_str()).collect();
        let drops = |key: &super::KeySettings| {
            key.query != super::Query::All
                || !key.query_drop.is_empty()
                || !key.query_keep.is_empty()
        };
        let drops_query = self.routes.iter().any(|route| route.store && drops(&route.key));
        let mut before: Vec<(usize, Checked)> = Vec::new();
        for (at, rule) in self.rules.iter().enumerate() {
            if self.rules[..at].iter().any(|other| other.name == rule.name) {
                let text = format!("there are two rules with the name `{}`", rule.name);
                here.mistake_of(&format!("rule[{at}].name"), text);
            }
            let key = format!("rule[{at}].when");
            let Some(checked) = check(&key, &rule.when, Scope::Response, here) else { continue };
            if let Err((key, wrong)) = rule.check(&checked, &groups) {
                here.mistake_of(&format!("rule[{at}].{key}"), wrong);
            } else if drops_query && rule.decides_about_stored() {
                let reads_query = checked.reads().intersects(Reads::QUERY | Reads::ARGS);
                let is_late = Rule::is_of_response(checked.reads());
                if reads_query && !is_late || rule.repeats_query() {
                    let text = "a route leaves parameters out of the key, so requests for one \
                                stored response differ in their query: write store = false too";
                    here.mistake_of(&key, text);
                }
            }
            // A rule that does no more than lead somewhere is never reached behind one that leads
            // elsewhere.
            let leads = rule.action.is_some();
            let hides = before.iter().find(|(_, one)| conditions::hidden_by(one, &checked));
            if let Some((first, _)) = hides.filter(|_| leads) {
                let text = format!(
                    "this rule never decides: whenever it matches, rule `{}` before it does, too",
                    self.rules[*first].name
                );
                here.mistake_of(&key, text);
            }
            if leads {
                before.push((at, checked));
            }
        }
        self.check_hidden_routes(here);
    }

    /// A route behind one without a condition, for the same hosts and path, is never taken.
    fn check_hidden_routes(&self, here: &mut Here<'_, '_>) {
        for (at, route) in self.routes.iter().enumerate().filter(|(_, one)| one.when.is_some()) {
            let place = &route.place;
            let hides = self.routes[..at].iter().position(|other| {
                let same = other.hosts == route.hosts && other.path == route.path;
                same && (other.when.is_none() || other.when == route.when)
            });
            if let Some(first) = hides {
                let text = format!(
                    "this route is never taken: {} has the same hosts and path and comes before \
                     it; move the one with a condition up",
                    self.routes[first].name(first)
                );
                here.mistake_of(&format!("{place}.when"), text);
            }
        }
    }
}

#[cfg(test)]
mod tests;
