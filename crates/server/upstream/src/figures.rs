//! The figures of groups and servers for `/metrics` and `/upstreams`: one list for both.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use runtime::net::shown;
use runtime::time::{self, Instant};
use serde_json::{Map, Value, json};

use super::group::{Group, Member};
use super::orders::Order;
use super::peers::Peer;
use config::PeerKind;
use metrics::{self, Described, Shape};

/// A figure: its documentation, its key in JSON, and how it is read.
struct Figure<T> {
    described: Described,
    key: &'static str,
    read: fn(&T) -> u64,
}

macro_rules! figures {
    (
        $list:ident, $described:ident: $of:ty, $labels:expr;
        $($key:ident = $name:literal, $shape:ident, $help:literal, $read:expr;)*
    ) => {
        const $list: &[Figure<$of>] = &[$(Figure {
            described: Described { name: $name, help: $help, shape: Shape::$shape.by($labels) },
            key: stringify!($key),
            read: $read,
        },)*];

        /// In the order of the documentation.
        const $described: &[Described] = &[
            $(Described { name: $name, help: $help, shape: Shape::$shape.by($labels) },)*
        ];
    };
}

figures! { GROUP, GROUP_FIGURES: Group, &["group"];
    queue_length = "upstream_queue_length", Gauge,
        "Requests that wait for a server of the group",
        |group| group.shared.queue.len() as u64;
    queue_waits = "upstream_queue_waits", Counter,
        "Requests that had to wait for a server of the group",
        |group| group.shared.figures.waits.load(Relaxed);
    queue_wait_ns = "upstream_queue_wait_seconds", Counter,
        "Total time that requests waited for a server of the group",
        |group| group.shared.figures.wait_us.load(Relaxed).saturating_mul(1000);
    queue_full = "upstream_queue_full", Counter,
        "Requests refused because too many waited already",
        |group| group.shared.figures.queue_full.load(Relaxed);
    queue_timeouts = "upstream_queue_timeouts", Counter,
        "Requests refused because they had waited for too long",
        |group| group.shared.figures.queue_timeouts.load(Relaxed);
    none_usable = "upstream_none_usable", Counter,
        "Requests that came while every server of the group was down",
        |group| group.shared.figures.none_usable.load(Relaxed);
    retries = "upstream_group_retries", Counter,
        "Requests retried on another server of the group",
        |group| group.shared.figures.retries.load(Relaxed);
    retries_denied = "upstream_group_retries_denied", Counter,
        "Retries that the exhausted budget of retries prevented",
        |group| group.shared.figures.retries_denied.load(Relaxed);
}

figures! { SERVER, SERVER_FIGURES: Member, &["group", "server"];
    up = "upstream_server_up", Gauge,
        "1 if the server is usable, 0 if it is down or ejected",
        |member| u64::from(health(member, time::now()) == "up");
    drained = "upstream_server_drained", Gauge,
        "1 if an operator has ordered that the server gets no new requests",
        |member| u64::from(member.state.orders.order() != Order::Ready);
    weight = "upstream_server_weight", Gauge,
        "Weight of the server, as configured or as an operator has ordered",
        |member| member.weight_of_file_or_order();
    outstanding = "upstream_server_outstanding", Gauge,
        "Requests in flight at the server",
        |member| member.state.outstanding().into();
    requests = "upstream_server_requests", Counter,
        "Requests given to the server",
        |member| member.state.figures.requests.load(Relaxed);
    connects = "upstream_server_connects", Counter,
        "Connections made to the server",
        |member| member.state.figures.connects.load(Relaxed);
    reuses = "upstream_server_reuses", Counter,
        "Requests sent to the server on a reused connection",
        |member| member.state.figures.reuses.load(Relaxed);
    failures = "upstream_server_failures", Counter,
        "Requests that failed because of the server",
        |member| member.state.figures.failures.load(Relaxed);
    ejections = "upstream_server_ejections", Counter,
        "Times that the server was ejected because of failures",
        |member| member.state.figures.ejections.load(Relaxed);
    checks_failed = "upstream_server_checks_failed", Counter,
        "Health checks that the server did not pass",
        |member| member.state.figures.checks_failed.load(Relaxed);
}

figures! { PEER, PEER_FIGURES: Peer, &["peer"];
    answers = "peer_answers", Gauge,
        "1 if the peer answers queries, 0 if it has left one unanswered since its last answer",
        |peer| u64::from(!peer.is_silent());
    queries = "peer_queries", Counter,
        "Queries sent to the peer",
        |peer| peer.state.figures.queries.load(Relaxed);
    hits = "peer_hits", Counter,
        "Queries that the peer answered with a hit",
        |peer| peer.state.figures.hits.load(Relaxed);
    misses = "peer_misses", Counter,
        "Queries that the peer answered with a miss",
        |peer| peer.state.figures.misses.load(Relaxed);
    refused = "peer_refused", Counter,
        "Queries that the peer refused to answer",
        |peer| peer.state.figures.refused.load(Relaxed);
    unanswered = "peer_unanswered", Counter,
        "Queries that a request waited for and that the peer left unanswered",
        |peer| peer.state.figures.unanswered.load(Relaxed);
    false_hits = "peer_false_hits", Counter,
        "Hits of the peer whose response it did not have after all",
        |peer| peer.state.figures.false_hits.load(Relaxed);
    rests = "peer_rests", Counter,
        "Times that the peer, or its digest, was left alone for a while after false hits",
        |peer| peer.state.figures.rests.load(Relaxed);
    digest_hits = "peer_digest_hits", Counter,
        "Requests that the peer answered because its digest had their URL",
        |peer| peer.state.digest.figures.hits.load(Relaxed);
    digest_false_hits = "peer_digest_false_hits", Counter,
        "Requests sent to the peer because its digest had their URL, which it did not have",
        |peer| peer.state.digest.figures.false_hits.load(Relaxed);
    digest_fetches = "peer_digest_fetches", Counter,
        "Digests of the peer that were fetched or confirmed",
        |peer| peer.state.digest.figures.fetches.load(Relaxed);
    digest_failures = "peer_digest_failures", Counter,
        "Times that the digest of the peer could not be fetched",
        |peer| peer.state.digest.figures.failures.load(Relaxed);
    digest_usable = "peer_digest_usable", Gauge,
        "1 if requests go by the digest of the peer, 0 if there is none, or it is too old or full, \
         or wrong too often",
        |peer| u64::from(peer.digest().is_some());
    digest_age_ns = "peer_digest_age_seconds", Gauge,
        "Time since the digest of the peer was fetched or confirmed",
        |peer| peer.fetched().map_or(0, |of| time::now().since(of.at).as_nanos() as u64);
    digest_bytes = "peer_digest_bytes", Gauge,
        "Size of the digest of the peer",
        |peer| peer.fetched().map_or(0, |of| of.bytes as u64);
    digest_set_ppm = "peer_digest_set_ratio", Gauge,
        "Share of bits that are set in the digest of the peer",
        |peer| peer.fetched().map_or(0, |of| u64::from(of.percent_set) * 10_000);
    clears = "peer_clears", Counter,
        "Purges that the peer was notified of",
        |peer| peer.state.figures.clears.load(Relaxed);
}

/// All figures, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Described> {
    GROUP_FIGURES.iter().chain(SERVER_FIGURES).chain(PEER_FIGURES)
}

/// The name of a server's state.
fn state(member: &Member, now: Instant) -> &'static str {
    match (member.state.orders.order(), health(member, now)) {
        (Order::Disabled, _) => "disabled",
        (Order::Drain, "up" | "ejected") => "draining",
        (_, health) => health,
    }
}

/// The name of a server's health.
fn health(member: &Member, now: Instant) -> &'static str {
    match (member.state.is_down(), member.state.is_ejected(now)) {
        (true, _) => "down",
        (false, true) => "ejected",
        (false, false) => "up",
    }
}

/// A server now, in short.
#[derive(Clone, Debug)]
pub struct ServerNow<'g> {
    /// Its group.
    pub group: &'g str,
    /// Its address.
    pub server: Cow<'g, str>,
    /// `up`, `down`, `ejected`, `draining` or `disabled`.
    pub state: &'static str,
    /// Requests in flight.
    pub outstanding: u64,
    /// Requests so far.
    pub requests: u64,
    /// Requests that failed because of it.
    pub failures: u64,
}

/// All servers of these groups.
pub fn servers(groups: &[Arc<Group>]) -> impl Iterator<Item = ServerNow<'_>> {
    let now = time::now();
    let members = groups.iter().flat_map(|group| group.servers().map(move |of| (group, of)));
    members.map(move |(group, member)| ServerNow {
        group: &group.config.name,
        server: member.label(),
        state: state(member, now),
        outstanding: member.state.outstanding().into(),
        requests: member.state.figures.requests.load(Relaxed),
        failures: member.state.figures.failures.load(Relaxed),
    })
}

/// All groups, and the peers that are asked, as JSON.
pub fn json(groups: &[Arc<Group>], peers: &[Peer]) -> Value {
    let groups: Vec<Value> = groups.iter().map(|group| of_group(group)).collect();
    let peers: Vec<Value> = peers.iter().map(of_peer).collect();
    json!({ "groups": groups, "peers": peers })
}

fn of_peer(peer: &Peer) -> Value {
    let mut of = Map::new();
    of.insert("peer".to_owned(), json!(peer.name));
    let kind = match peer.kind {
        PeerKind::Parent => "parent",
        PeerKind::Sibling => "sibling",
    };
    of.insert("kind".to_owned(), json!(kind));
    let read = |figure: &Figure<Peer>| (figure.key.to_owned(), json!((figure.read)(peer)));
    of.extend(PEER.iter().map(read));
    Value::Object(of)
}

fn of_group(group: &Group) -> Value {
    let mut of = Map::new();
    of.insert("name".to_owned(), json!(group.config.name));
    let read = |figure: &Figure<Group>| (figure.key.to_owned(), json!((figure.read)(group)));
    of.extend(GROUP.iter().map(read));
    let servers: Vec<Value> = group.servers().map(of_member).collect();
    of.insert("servers".to_owned(), json!(servers));
    Value::Object(of)
}

/// A server, as JSON.
pub(crate) fn of_member(member: &Member) -> Value {
    let mut of = Map::new();
    of.insert("server".to_owned(), json!(member.label()));
    of.insert("name".to_owned(), json!(member.authority));
    let addresses: Vec<String> = member.state.addresses().iter().map(|at| shown(*at)).collect();
    let is_stale = member.state.discovered.is_stale.load(Relaxed);
    of.insert("stale_address".to_owned(), json!(is_stale && !addresses.is_empty()));
    of.insert("addresses".to_owned(), json!(addresses));
    of.insert("state".to_owned(), json!(state(member, time::now())));
    of.insert("order".to_owned(), json!(member.state.orders.order().name()));
    of.insert("kept".to_owned(), json!(member.state.orders.are_kept()));
    of.insert("backup".to_owned(), json!(member.is_backup()));
    let read = |figure: &Figure<Member>| (figure.key.to_owned(), json!((figure.read)(member)));
    of.extend(SERVER.iter().map(read));
    Value::Object(of)
}

/// All groups, and the peers that are asked, as OpenMetrics.
#[derive(Debug)]
pub struct UpstreamFigures(pub Arc<[Arc<Group>]>, pub Arc<[Peer]>);

impl Collector for UpstreamFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for figure in GROUP {
            let of_each = self
                .0
                .iter()
                .map(|group| ([("group", group.config.name.as_str())], (figure.read)(group)));
            encode(&mut encoder, &figure.described, of_each)?;
        }
        for figure in SERVER {
            let members = self.0.iter().flat_map(|group| {
                group.servers().map(|member| (group.config.name.as_str(), member))
            });
            let of_each =
                members.map(|(group, member)| ((group, member.label()), (figure.read)(member)));
            let of_each: Vec<_> = of_each.collect();
            let of_each = of_each.iter().map(|((group, server), value)| {
                ([("group", *group), ("server", &**server)], *value)
            });
            encode(&mut encoder, &figure.described, of_each)?;
        }
        for figure in PEER {
            let peers = self.1.iter();
            let of_each = peers.map(|peer| ([("peer", peer.name.as_str())], (figure.read)(peer)));
            encode(&mut encoder, &figure.described, of_each)?;
        }
        Ok(())
    }
}

fn encode<'l, const LABELS: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    described: &Described,
    of_each: impl Iterator<Item = ([(&'l str, &'l str); LABELS], u64)>,
) -> fmt::Result {
    let mut family = metrics::describe(encoder, described)?;
    for (labels, value) in of_each {
        metrics::encode_value(&mut family.encode_family(&labels)?, described, value)?;
    }
    Ok(())
}
