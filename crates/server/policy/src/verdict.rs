//! The strictest of the routes that the readings of a request lead to.
//!
//! A reading that leads to no route, or to one that answers with an error, denies the request.
//! Next comes a route that gives another answer itself. If all readings are passed on, they must be
//! passed on alike: to the same upstream, with the same changes to fields. Otherwise none is
//! stricter than the other, and the request is refused. What else such routes permit (the store,
//! early data, codings, peers) is permitted only if they agree on all of it.

use config::Action;
use outcome::Refusal;

use crate::captures::Captured;
use crate::routes::Route;

/// The route for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its index.
    pub at: usize,
    /// Whether all readings have the settings of this route. Otherwise the request is passed on by
    /// its action and its fields, and nothing that the route permits beyond that applies: the
    /// store, early data, codings and peers.
    pub is_sole: bool,
}

/// Where one reading of a request leads.
#[derive(Debug)]
pub(crate) struct Landed {
    /// The index of the route; `None`: no route is for it.
    pub(crate) at: Option<usize>,
    /// It may deny, but refuses no request for leading to another upstream.
    pub(crate) is_weak: bool,
    /// What is captured and sent to the upstream.
    pub(crate) captured: Option<Captured>,
}

/// How strict it is where a reading leads. The order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strictness {
    PassedOn,
    Answered,
    Denied,
}

/// The strictest of these, which begin with that of the most usual reading.
///
/// # Errors
/// See [`crate::routes::Routes::find`].
pub(crate) fn strictest(routes: &[Route], landed: &[Landed]) -> Result<Chosen, Refusal> {
    let strictness = |one: &Landed| one.at.map_or(Strictness::Denied, |at| of_route(&routes[at]));
    let most = landed.iter().map(strictness).max().ok_or(Refusal::NoRoute)?;
    let first = landed.iter().find(|one| strictness(one) == most).ok_or(Refusal::NoRoute)?;
    let at = first.at.ok_or(Refusal::NoRoute)?;
    if most != Strictness::PassedOn {
        return Ok(Chosen { at, is_sole: true });
    }
    let mut is_sole = true;
    for other in landed {
        let route = &routes[other.at.expect("a reading without a route denies")];
        let is_alike = passes_alike(&routes[at], route) && captures_alike(first, other);
        if !is_alike && !other.is_weak {
            return Err(Refusal::Ambiguous);
        }
        is_sole &= is_alike && permits_alike(&routes[at], route);
    }
    Ok(Chosen { at, is_sole })
}

fn of_route(route: &Route) -> Strictness {
    match &route.config.action {
        Action::Group(_) => Strictness::PassedOn,
        Action::Answer { status: 400.., .. } => Strictness::Denied,
        Action::Answer { .. } | Action::Redirect { .. } => Strictness::Answered,
    }
}

fn passes_alike(one: &Route, other: &Route) -> bool {
    let (one, other) = (&one.config, &other.config);
    one.action == other.action && one.request == other.request && one.response == other.response
}

fn captures_alike(one: &Landed, other: &Landed) -> bool {
    match (&one.captured, &other.captured) {
        (Some(one), Some(other)) => one.is_same(other),
        (None, None) => true,
        _ => false,
    }
}

fn permits_alike(one: &Route, other: &Route) -> bool {
    let permits = |route: &Route| {
        let config = &route.config;
        (config.store, config.early_data, config.compression, config.peers)
    };
    let (one_config, other_config) = (&one.config, &other.config);
    permits(one) == permits(other)
        && one_config.set_cookie == other_config.set_cookie
        && one_config.key == other_config.key
        && one_config.lifetimes == other_config.lifetimes
        && one_config.negative == other_config.negative
}
