//! `limit_req`, `limit_conn` and `limit_rate`, as quotas.
//!
//! A quota is for some hosts, and for a path with everything below it. So a limit is carried if all
//! locations have it, if all locations of a server have it, or if a location and all locations
//! below it have it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::blocks::Directive;
use super::scope::{Scope, Server};
use super::table::size;
use imported::limits::QUOTAS_MAX;
use imported::note::{Notes, Place};
use imported::route::{Path, quota, rate};
use imported::tree::{Section, Tree, Value};

/// A location whose requests can be limited.
pub(crate) struct Limited<'d> {
    /// Its server.
    server: Place,
    hosts: Vec<String>,
    /// The server also answers requests for hosts that no server has.
    default: bool,
    path: Path,
    /// The limits that apply.
    limits: Vec<&'d Directive>,
    after: Option<&'d Directive>,
}

impl<'d> Limited<'d> {
    pub(crate) fn new(server: &Server<'_>, path: &Path, scope: &Scope<'d>) -> Limited<'d> {
        // In a dry run nothing is refused.
        let is_on = |name: &&&str| !scope.is(&format!("{name}_dry_run"), "on");
        let lists = ["limit_req", "limit_conn"];
        let lists = lists.iter().filter(is_on).flat_map(|name| scope.all(name)).copied();
        let rate = scope.get("limit_rate").filter(|rate| size(rate.word(0)) != Some(0));
        Limited {
            server: server.directive.at.clone(),
            hosts: server.hosts.clone(),
            default: server.default,
            path: path.clone(),
            limits: lists.chain(rate).collect(),
            after: scope.get("limit_rate_after"),
        }
    }

    fn has(&self, limit: &Directive) -> bool {
        self.limits.iter().any(|one| one.at.id() == limit.at.id())
    }
}

/// The locations, with indexes by limit, server and zone: no look-up passes over all locations.
struct Locations<'l> {
    all: &'l [Limited<'l>],
    /// The locations that have a limit, by the number of the limit.
    having: HashMap<usize, Vec<&'l Limited<'l>>>,
    /// The locations of a server, by the number of the server, sorted by the start of their paths.
    of_server: HashMap<usize, BTreeMap<(&'l str, usize), &'l Limited<'l>>>,
    /// The limits of each zone.
    in_zone: HashMap<(&'l str, &'l str), HashSet<usize>>,
}

impl<'l> Locations<'l> {
    fn new(all: &'l [Limited<'l>]) -> Locations<'l> {
        let (having, of_server, in_zone) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut made = Locations { all, having, of_server, in_zone };
        for (at, one) in all.iter().enumerate() {
            let server = made.of_server.entry(one.server.id()).or_default();
            server.insert((one.path.start(), at), one);
            for limit in &one.limits {
                made.having.entry(limit.at.id()).or_default().push(one);
                let zone = made.in_zone.entry((&limit.name, zone_of(limit))).or_default();
                zone.insert(limit.at.id());
            }
        }
        made
    }

    fn having(&self, limit: &Directive) -> &[&'l Limited<'l>] {
        self.having.get(&limit.at.id()).map_or(&[], Vec::as_slice)
    }

    /// The servers all of whose locations have a limit.
    fn whole_servers(&self, limit: &Directive) -> HashSet<usize> {
        let mut counts: HashMap<usize, usize> = HashMap::new();
        for one in self.having(limit) {
            *counts.entry(one.server.id()).or_default() += 1;
        }
        let all = |server: &usize| self.of_server.get(server).map_or(0, BTreeMap::len);
        counts.retain(|server, count| *count == all(server));
        counts.into_keys().collect()
    }

    /// Whether a location below this location lacks the limit.
    fn lacks_below(&self, one: &Limited<'_>, limit: &Directive) -> bool {
        let start = one.path.text();
        let inside = self.of_server.get(&one.server.id()).into_iter();
        let inside = inside.flat_map(|all| all.range((start, 0)..));
        inside.take_while(|((path, _), _)| path.starts_with(start)).any(|(_, one)| !one.has(limit))
    }
}

/// Writes a quota for each limit, and the notes. `http` has the zones.
pub(crate) fn quotas<'h>(
    all: &[Limited<'_>],
    http: &'h [Directive],
    tree: &mut Tree,
    notes: &mut Notes,
) {
    let is_zone =
        |one: &&Directive| matches!(one.name.as_str(), "limit_req_zone" | "limit_conn_zone");
    let named = |one: &'h Directive| (one.option("zone").split(':').next().unwrap_or(""), one);
    let zones: BTreeMap<&str, &Directive> = http.iter().filter(is_zone).map(named).collect();
    let locations = Locations::new(all);
    let mut done: HashSet<usize> = HashSet::new();
    for limit in all.iter().flat_map(|one| &one.limits) {
        if !done.insert(limit.at.id()) {
            continue;
        }
        let after = locations.having(limit).first().and_then(|one| one.after);
        let written = limit_of(limit, after, &zones, tree).and_then(|(section, why)| {
            let places = places(limit, &locations)?;
            let by_all = section.get("by") == Some(&Value::from("all"));
            if tree.all("quota").count() + places.len() > QUOTAS_MAX {
                return Err(format!("there are at most {QUOTAS_MAX} quotas"));
            }
            let is_several = locations.of_server.len() > 1;
            match by_all && is_several && places.iter().any(|(hosts, _)| hosts.is_empty()) {
                true => Err("each server has its own, and this is for several".to_owned()),
                false => Ok((section, why, places)),
            }
        });
        let (section, why, places) = match written {
            Ok(written) => written,
            Err(why) => {
                notes.left(&limit.at, why);
                continue;
            }
        };
        for (at, (hosts, prefix)) in places.iter().enumerate() {
            let mut section = section.clone();
            if let Some(name) = section.text("name").filter(|_| at > 0) {
                let name = format!("{name}.{at}");
                section.set("name", name, &limit.at);
            }
            section.set_list("hosts", hosts, &limit.at);
            section.set_some("prefix", Some(prefix.clone()).filter(|one| one != "/"), &limit.at);
            tree.add(section);
        }
        let zone = locations.in_zone.get(&(limit.name.as_str(), zone_of(limit)));
        let is_shared = zone.is_some_and(|limits| limits.len() > 1);
        let is_several = places.len() > 1 || is_shared && limit.name != "limit_rate";
        let several = if is_several { "; each place counts by itself" } else { "" };
        let hosts = match places.iter().any(|(hosts, _)| !hosts.is_empty()) {
            true if locations.having(limit).iter().any(|one| one.default) => {
                "; requests for hosts of no server have no limit"
            }
            _ => "",
        };
        notes.different(&limit.at, format!("{why}{several}{hosts}"));
        let zone = zones.get(zone_of(limit));
        zone.into_iter().copied().chain(after).for_each(|one| notes.carried(&one.at));
    }
}

/// nginx's own limit on bodies.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// No limit on bodies, where a route has no such limit and others have one.
const NO_LIMIT: u64 = 1 << 50;

/// The limit on bodies. The size 0 means no limit.
pub(crate) fn body(scope: &Scope<'_>) -> u64 {
    let Some(one) = scope.get("client_max_body_size") else { return BODY_BYTES_MAX };
    size(one.word(0)).filter(|bytes| *bytes > 0).unwrap_or(NO_LIMIT)
}

/// Writes the limit on bodies of the locations that have no other.
pub(crate) fn bodies(http: &Scope<'_>, tree: &mut Tree) {
    let from = http.get("client_max_body_size").map(|one| one.at.to_string());
    let from = from.unwrap_or_else(|| "nginx's own limit".to_owned());
    if body(http) < NO_LIMIT {
        tree.section("limits").set("body_bytes_max", Value::Bytes(body(http)), from);
    }
}

/// Writes the limit on bodies of a location, if it is not that of all.
pub(crate) fn own_body(section: &mut Section, scope: &Scope<'_>, own: u64, http: u64) {
    if own != http {
        let from = scope.get("client_max_body_size").map(|one| one.at.to_string());
        let from = from.unwrap_or_else(|| "see the notes of the import".to_owned());
        section.set("body_bytes_max", Value::Bytes(own), from);
    }
}

fn zone_of(limit: &Directive) -> &str {
    if limit.name == "limit_req" { limit.option("zone") } else { limit.word(0) }
}

/// The hosts and the prefixes that have a limit. An empty list of hosts stands for all hosts.
fn places(
    limit: &Directive,
    locations: &Locations<'_>,
) -> Result<Vec<(Vec<String>, String)>, String> {
    let having = locations.having(limit);
    if having.len() == locations.all.len() {
        return Ok(vec![(Vec::new(), "/".to_owned())]);
    }
    let whole = locations.whole_servers(limit);
    let (mut places, mut done) = (Vec::new(), HashSet::new());
    for one in having {
        if whole.contains(&one.server.id()) && !done.insert(one.server.id()) {
            continue;
        }
        // There are too many already.
        if places.len() > QUOTAS_MAX {
            break;
        }
        // Of one server alone, the host does not matter.
        let is_any = one.default && locations.of_server.len() == 1;
        let hosts = if is_any { Vec::new() } else { one.hosts.clone() };
        if !is_any && (hosts.is_empty() || hosts.iter().any(|host| host.contains('{'))) {
            return Err("a quota is for hosts that are named".to_owned());
        }
        if whole.contains(&one.server.id()) {
            places.push((hosts, "/".to_owned()));
            continue;
        }
        let (Path::Prefix(prefix) | Path::Start(prefix)) = &one.path else {
            return Err("a quota is for a path with everything below it".to_owned());
        };
        if locations.lacks_below(one, limit) {
            let text = format!(
                "a quota for {prefix} is one for all below it, and another location there has not \
                 this limit"
            );
            return Err(text);
        }
        places.push((hosts, prefix.clone()));
    }
    Ok(places)
}

/// A quota without its hosts and its prefix, and how it differs.
fn limit_of(
    limit: &Directive,
    after: Option<&Directive>,
    zones: &BTreeMap<&str, &Directive>,
    tree: &Tree,
) -> Result<(Section, &'static str), String> {
    let at = &limit.at;
    if limit.name == "limit_rate" {
        let bytes = size(limit.word(0)).ok_or("it is not a number of bytes")?;
        let mut section = quota(tree, "limit_rate", "network", at);
        section.set("bytes", format!("{bytes}/s"), at);
        if let Some(one) = after {
            let burst = size(one.word(0)).map(|bytes| bytes.clamp(1 << 10, 1 << 40));
            section.set_some("bytes_burst", burst.map(Value::Bytes), &one.at);
        }
        return Ok((section, "it limits each client, and not each response"));
    }
    let name = zone_of(limit);
    let zone = zones.get(name).ok_or("there is no such zone")?;
    let by = match zone.word(0) {
        "$binary_remote_addr" | "$remote_addr" => "network".to_owned(),
        "$server_name" => "all".to_owned(),
        key => match key.strip_prefix("$http_") {
            Some(name) if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                format!("field:{}", name.replace('_', "-"))
            }
            _ => return Err(format!("nothing has a quota by {key}")),
        },
    };
    let mut section = quota(tree, name, &by, &zone.at);
    if limit.name == "limit_conn" {
        let count =
            limit.word(1).parse::<u64>().ok().filter(|count| (1..=1_000_000).contains(count));
        section.set("concurrency", count.ok_or("it is not a number")?, at);
        return Ok((section, STATUS));
    }
    let text = zone.option("rate");
    let (number, seconds) = match text.strip_suffix("r/s") {
        Some(number) => (number, 1),
        None => (text.strip_suffix("r/m").unwrap_or_default(), 60),
    };
    let number = number.parse::<u64>().ok().filter(|number| (1..1 << 20).contains(number));
    let number = number.ok_or("its zone has no rate")?;
    let burst = limit.option("burst").parse::<u64>().unwrap_or(0).min(1 << 20);
    let at_once = match limit.words.iter().any(|word| word == "nodelay") {
        true => burst,
        false => limit.option("delay").parse::<u64>().unwrap_or(0).min(burst),
    };
    section.set("requests", rate(number, seconds).ok_or("its zone has no rate")?, &zone.at);
    section.set("burst", at_once + 1, at);
    if at_once < burst {
        let wait = Duration::from_millis((burst - at_once) * seconds * 1000 / number);
        section.set("over", "delay", at);
        let day = Duration::from_secs(86_400);
        section.set("delay_max", wait.clamp(Duration::from_millis(1), day), at);
    }
    Ok((section, STATUS))
}

const STATUS: &str = "what is above the limit is answered 429";
