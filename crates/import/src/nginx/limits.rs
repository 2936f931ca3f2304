//! `limit_req`, `limit_conn` and `limit_rate`, as quotas.
//!
//! A quota is for some hosts, and for a path with everything below it. So a limit is carried if it
//! is that of all locations, of all of a server, or of one that has no other below it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::blocks::Directive;
use super::routes::Server;
use super::scope::Scope;
use super::table::size;
use crate::limits::QUOTAS_MAX;
use crate::note::{Notes, Place};
use crate::route::{Path, quota, rate};
use crate::tree::{Section, Tree, Value};

/// A location whose requests can be limited.
pub(crate) struct Limited {
    /// Its server.
    server: Place,
    hosts: Vec<String>,
    /// Its server also has the requests for other hosts.
    default: bool,
    path: Path,
    /// The limits that apply.
    limits: Vec<Directive>,
    after: Option<Directive>,
}

impl Limited {
    pub(crate) fn new(server: &Server<'_>, path: &Path, scope: &Scope<'_>) -> Limited {
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
            limits: lists.chain(rate).cloned().collect(),
            after: scope.get("limit_rate_after").cloned(),
        }
    }

    fn has(&self, limit: &Directive) -> bool {
        self.limits.iter().any(|one| one.at == limit.at)
    }
}

/// Writes a quota for each limit, and the notes. `http` has the zones.
pub(crate) fn quotas(all: &[Limited], http: &[Directive], tree: &mut Tree, notes: &mut Notes) {
    let is_zone =
        |one: &&Directive| matches!(one.name.as_str(), "limit_req_zone" | "limit_conn_zone");
    let name = |one: &Directive| option(one, "zone").split(':').next().map(str::to_owned);
    let zones = http.iter().filter(is_zone);
    let zones: BTreeMap<String, &Directive> =
        zones.filter_map(|one| Some((name(one)?, one))).collect();
    let mut done: Vec<&Directive> = Vec::new();
    for limit in all.iter().flat_map(|one| &one.limits) {
        if done.iter().any(|other| other.at == limit.at) {
            continue;
        }
        done.push(limit);
        let after = all.iter().find(|one| one.has(limit)).and_then(|one| one.after.as_ref());
        let written = limit_of(limit, after, &zones, tree).and_then(|(section, why)| {
            let places = places(limit, all)?;
            let by_all = section.get("by") == Some(&Value::from("all"));
            if tree.all("quota").count() + places.len() > QUOTAS_MAX {
                return Err(format!("there are at most {QUOTAS_MAX} quotas"));
            }
            let is_several = all.iter().any(|one| one.server != all[0].server);
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
            if let Some(Value::Text(name)) = section.get("name").filter(|_| at > 0).cloned() {
                section.set("name", format!("{name}.{at}"), &limit.at);
            }
            if !hosts.is_empty() {
                section.set("hosts", hosts.clone(), &limit.at);
            }
            if prefix != "/" {
                section.set("prefix", prefix.clone(), &limit.at);
            }
            tree.add(section);
        }
        let shares = |other: &Directive| {
            other.name == limit.name && other.at != limit.at && zone_of(other) == zone_of(limit)
        };
        let is_shared = all.iter().flat_map(|one| &one.limits).any(shares);
        let is_several = places.len() > 1 || is_shared && limit.name != "limit_rate";
        let several = if is_several { "; each place counts by itself" } else { "" };
        let is_default = |one: &Limited| one.default && one.has(limit);
        let hosts = match places.iter().any(|(hosts, _)| !hosts.is_empty()) {
            true if all.iter().any(is_default) => "; requests for hosts of no server have no limit",
            _ => "",
        };
        notes.different(&limit.at, format!("{why}{several}{hosts}"));
        let zone = zones.get(&zone_of(limit));
        zone.into_iter().copied().chain(after).for_each(|one| notes.carried(&one.at));
    }
}

/// The value of `name=value`.
fn option<'d>(directive: &'d Directive, name: &str) -> &'d str {
    let value = |word: &'d String| word.strip_prefix(name)?.strip_prefix('=');
    directive.words.iter().find_map(value).unwrap_or_default()
}

fn zone_of(limit: &Directive) -> String {
    match limit.name.as_str() {
        "limit_req" => option(limit, "zone").to_owned(),
        _ => limit.word(0).to_owned(),
    }
}

/// The hosts and the prefixes that have a limit. No host: all requests.
fn places(limit: &Directive, all: &[Limited]) -> Result<Vec<(Vec<String>, String)>, String> {
    if all.iter().all(|one| one.has(limit)) {
        return Ok(vec![(Vec::new(), "/".to_owned())]);
    }
    let mut places = Vec::new();
    for one in all.iter().filter(|one| one.has(limit)) {
        // Of one server alone, the host does not matter.
        let is_any = one.default && all.iter().all(|other| other.server == one.server);
        let hosts = if is_any { Vec::new() } else { one.hosts.clone() };
        if !is_any && (hosts.is_empty() || hosts.iter().any(|host| host.contains('{'))) {
            return Err("a quota is for hosts that are named".to_owned());
        }
        let mut same = all.iter().filter(|other| other.server == one.server);
        if same.clone().all(|other| other.has(limit)) {
            if !places.contains(&(hosts.clone(), "/".to_owned())) {
                places.push((hosts, "/".to_owned()));
            }
            continue;
        }
        let inside = |other: &Limited| other.path.start().starts_with(one.path.text());
        let (Path::Prefix(prefix) | Path::Start(prefix)) = &one.path else {
            return Err("a quota is for a path with everything below it".to_owned());
        };
        if same.any(|other| inside(other) && !other.has(limit)) {
            let text = format!(
                "a quota for {prefix} is one for all below it, and another location \
                                there has not this limit"
            );
            return Err(text);
        }
        places.push((hosts, prefix.clone()));
    }
    Ok(places)
}

/// A quota without its place, and how it differs.
fn limit_of(
    limit: &Directive,
    after: Option<&Directive>,
    zones: &BTreeMap<String, &Directive>,
    tree: &Tree,
) -> Result<(Section, &'static str), String> {
    let at = &limit.at;
    if limit.name == "limit_rate" {
        let bytes = size(limit.word(0)).ok_or("it is not a number of bytes")?;
        let mut section = quota(tree, "limit_rate", "network", &at.to_string());
        section.set("bytes", format!("{bytes}/s"), at);
        if let Some((bytes, at)) = after.and_then(|one| Some((size(one.word(0))?, &one.at))) {
            section.set("bytes_burst", Value::Bytes(bytes.clamp(1 << 10, 1 << 40)), at);
        }
        return Ok((section, "it limits each client, and not each response"));
    }
    let name = zone_of(limit);
    let zone = zones.get(&name).ok_or("there is no such zone")?;
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
    let mut section = quota(tree, &name, &by, &zone.at.to_string());
    if limit.name == "limit_conn" {
        let count =
            limit.word(1).parse::<u64>().ok().filter(|count| (1..=1_000_000).contains(count));
        section.set("concurrency", count.ok_or("it is not a number")?, at);
        return Ok((section, STATUS));
    }
    let text = option(zone, "rate");
    let (number, seconds) = match (text.strip_suffix("r/s"), text.strip_suffix("r/m")) {
        (Some(number), _) => (number, 1),
        (None, Some(number)) => (number, 60),
        _ => ("", 1),
    };
    let number = number.parse::<u64>().ok().filter(|number| (1..1 << 20).contains(number));
    let number = number.ok_or("its zone has no rate")?;
    let burst = option(limit, "burst").parse::<u64>().unwrap_or(0).min(1 << 20);
    let at_once = match limit.words.iter().any(|word| word == "nodelay") {
        true => burst,
        false => option(limit, "delay").parse::<u64>().unwrap_or(0).min(burst),
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
