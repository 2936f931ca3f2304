//! How long responses are fresh, as a route configures it.
//!
//! A lifetime is chosen by the head of a response as soon as it has come, and the caching rules
//! apply it (`caching::Configured`). A stored response contains the result, so hits pay nothing,
//! and a changed configuration applies when a response is fetched or confirmed again.

use std::time::Duration;

use caching::Configured;
use conditions::{Builder, Id, Lists, Reads, ResponseFacts, Scope};
use config::{Lifetime, NEGATIVE, StatusPattern};
use http1::Name;

use crate::rules::CHECKED;

/// The lifetimes of a route. The first that matches applies.
#[derive(Debug)]
pub struct Lifetimes {
    listed: Box<[Lifetime]>,
    /// The conditions of those.
    conditions: Box<[Option<Id>]>,
    /// Whether those name statuses.
    name_status: Box<[bool]>,
    /// It is asked last.
    negative: Option<Lifetime>,
}

impl Lifetimes {
    /// Those of a route.
    pub(crate) fn new(
        route: &config::Route,
        (conditions, lists): (&mut Builder, &Lists),
    ) -> Lifetimes {
        let negative = route.negative.map(|ttl| Lifetime {
            status: NEGATIVE.map(StatusPattern::One).into(),
            ttl: Some(ttl),
            ..Lifetime::default()
        });
        let condition = |one: &Lifetime| {
            let when = one.when.as_ref()?;
            Some(conditions.add(when.as_str(), Scope::Response).expect(CHECKED))
        };
        let ids: Box<[Option<Id>]> = route.lifetimes.iter().map(condition).collect();
        let names_status = |one: &Lifetime| {
            let checked = one.when.as_ref().map(|when| {
                conditions::check(when.as_str(), Scope::Response, lists).map(|it| it.reads())
            });
            checked.is_some_and(|reads| reads.is_ok_and(|reads| reads.contains(Reads::STATUS)))
        };
        let name_status = route.lifetimes.iter().map(names_status).collect();
        let listed = route.lifetimes.clone().into();
        Lifetimes { listed, conditions: ids, name_status, negative }
    }

    /// Whether there are none.
    pub(crate) fn are_none(&self) -> bool {
        self.listed.is_empty() && self.negative.is_none()
    }

    /// Their conditions.
    pub(crate) fn conditions(&self) -> impl Iterator<Item = &Id> {
        self.conditions.iter().flatten()
    }

    /// Whether some have conditions.
    pub(crate) fn has_conditions(&self) -> bool {
        self.conditions.iter().any(Option::is_some)
    }

    /// The lifetime of a response of this route; `holds` judges a condition.
    pub(crate) fn of(
        &self,
        route: usize,
        response: &ResponseFacts<'_>,
        mut holds: impl FnMut(Id) -> bool,
    ) -> Option<Configured> {
        let status = response.status;
        let content_type = response.fields.get(Name::ContentType).unwrap_or_default();
        // A part is stored, and lives, as the whole does.
        let status = if status == 206 { 200 } else { status };
        let is_of_client = StatusPattern::is_of_one_client(status);
        let matches = |one: &Lifetime, is_named: bool| {
            // No lifetime at all is for each status of a class.
            let is_none = one.ttl == Some(Duration::ZERO);
            let of_status = match &one.status[..] {
                [] if is_named => !is_of_client,
                [] => is_usual(status),
                named if is_none => named.iter().any(|of| of.covers(status)),
                named => named.iter().any(|of| of.matches(status)),
            };
            let types = &one.content_type;
            of_status && (types.is_empty() || types.iter().any(|of| of.matches(content_type)))
        };
        let at = (0..self.listed.len()).find(|at| {
            matches(&self.listed[*at], self.name_status[*at])
                && self.conditions[*at].is_none_or(&mut holds)
        });
        let one = match at {
            Some(at) => &self.listed[at],
            None => self.negative.as_ref().filter(|negative| matches(negative, false))?,
        };
        let route = u16::try_from(route).unwrap_or(OF_FORWARD - 1);
        let number = at.map(|at| u16::try_from(at).unwrap_or(u16::MAX));
        Some(Configured { route, number, ..configured(one) })
    }
}

/// In place of the number of a route: the lifetime is that of a rule.
pub const OF_RULES: u16 = u16::MAX;

/// In place of the number of a route: the lifetime is one of forward listeners.
pub const OF_FORWARD: u16 = OF_RULES - 1;

/// The lifetime of a rule.
pub(crate) fn of_rule(rule: usize, lifetime: &Lifetime) -> Configured {
    let number = u16::try_from(rule).unwrap_or(u16::MAX);
    Configured { route: OF_RULES, number: Some(number), ..configured(lifetime) }
}

fn configured(one: &Lifetime) -> Configured {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Configured {
        lifetime_ms: one.ttl.map(ms),
        overrules: one.overrule,
        stale_while_revalidate_ms: one.grace.map(ms),
        stale_if_error_ms: one.error_grace.map(ms),
        route: 0,
        number: None,
    }
}

/// The statuses of a lifetime that names none. Errors have to be named: they pass, and some are for
/// one client.
pub(crate) fn is_usual(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{Limits, Scratch, accept_response};

    /// The lifetime of a response.
    fn of(
        route: &config::Route,
        nth: usize,
        status: u16,
        content_type: &str,
    ) -> Option<Configured> {
        let text = match content_type {
            "" => format!("HTTP/1.1 {status} X\r\n\r\n"),
            of => format!("HTTP/1.1 {status} X\r\nContent-Type: {of}\r\n\r\n"),
        };
        let mut scratch = Scratch::new();
        let head = accept_response(text.as_bytes(), &mut scratch, &Limits::DEFAULT);
        let head = head.unwrap().unwrap();
        let response = crate::rules::response_facts(status, head.fields);
        let mut conditions = Builder::new(Lists::new());
        Lifetimes::new(route, (&mut conditions, &Lists::new())).of(nth, &response, |_| true)
    }

    #[test]
    fn the_first_lifetime_that_matches_applies() {
        let lifetime = |status: &[&str], types: &[&str], seconds| Lifetime {
            status: status.iter().map(|one| one.parse().unwrap()).collect(),
            content_type: types.iter().map(|one| one.parse().unwrap()).collect(),
            ttl: Some(Duration::from_secs(seconds)),
            ..Lifetime::default()
        };
        let mut route = config::Route::to("g");
        route.lifetimes = vec![
            lifetime(&["200"], &["image/*"], 1),
            lifetime(&["2xx"], &[], 2),
            lifetime(&["404"], &[], 3),
        ];
        route.negative = Some(Duration::from_secs(4));
        let found = |status, content_type: &str| {
            let found = of(&route, 7, status, content_type)?;
            assert_eq!(found.route, 7);
            Some((found.lifetime_ms.unwrap() / 1000, found.number))
        };
        assert_eq!(found(200, "image/png"), Some((1, Some(0))));
        assert_eq!(found(206, "image/png"), Some((1, Some(0))), "a part lives as the whole");
        assert_eq!(found(204, "image/png"), Some((2, Some(1))));
        assert_eq!(found(200, ""), Some((2, Some(1))));
        assert_eq!(found(404, ""), Some((3, Some(2))));
        assert_eq!(found(410, ""), Some((4, None)));
        assert_eq!(found(500, ""), None);
        assert!(of(&config::Route::to("g"), 0, 404, "").is_none());
    }

    #[test]
    fn a_lifetime_without_statuses_is_not_for_errors() {
        let mut route = config::Route::to("g");
        let lifetime = |status: &[&str]| Lifetime {
            status: status.iter().map(|one| one.parse().unwrap()).collect(),
            content_type: vec!["image/*".parse().unwrap()],
            ttl: Some(Duration::from_secs(1)),
            ..Lifetime::default()
        };
        route.lifetimes = vec![lifetime(&[])];
        let applies = |route: &config::Route, status| of(route, 0, status, "image/png").is_some();
        for status in [200, 206, 203, 204, 300, 301, 308] {
            assert!(applies(&route, status), "{status}");
        }
        for status in [302, 307, 400, 401, 403, 404, 407, 410, 500, 502, 503] {
            assert!(!applies(&route, status), "{status}");
        }
        route.lifetimes = vec![lifetime(&["4xx"])];
        assert!(applies(&route, 403) && !applies(&route, 401) && !applies(&route, 407));
    }

    /// `status = ["4xx"]`, `ttl = "0s"`, `overrule = true` left a 400 with `max-age` fresh.
    #[test]
    fn a_class_with_no_lifetime_is_for_all_of_its_statuses() {
        let mut route = config::Route::to("g");
        route.lifetimes = vec![Lifetime {
            status: vec!["4xx".parse().unwrap()],
            ttl: Some(Duration::ZERO),
            overrule: true,
            ..Lifetime::default()
        }];
        for status in [400, 401, 403, 413, 429] {
            let of = of(&route, 0, status, "").unwrap();
            assert_eq!((of.lifetime_ms, of.overrules), (Some(0), true), "{status}");
        }
        assert!(of(&route, 0, 500, "").is_none());
    }
}
