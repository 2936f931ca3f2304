//! `delay_pools`, and limits of connections, as quotas.

use std::collections::BTreeMap;

use super::Squid;
use super::acl::{Addresses, Set};
use super::lines::Line;
use crate::limits::{NETWORKS_MAX, QUOTAS_MAX};
use crate::route::quota;
use crate::tree::{Section, Value};

/// A pool: its class, its buckets, and its rules.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    class: u64,
    parameters: Option<Line>,
    rules: Vec<Line>,
    lines: Vec<Line>,
}

/// Pools by number.
pub(crate) type Pools = BTreeMap<u64, Pool>;

/// `delay_class`, `delay_parameters` and `delay_access`, each with the number of its pool.
pub(crate) fn pool(squid: &mut Squid<'_>, line: &Line) {
    let Ok(number) = line.word(0).parse::<u64>() else {
        return squid.notes.left(&line.at, "it does not begin with the number of a pool");
    };
    let pool = squid.pools.entry(number).or_default();
    pool.lines.push(line.clone());
    match line.name.as_str() {
        "delay_class" => pool.class = line.word(1).parse().unwrap_or(0),
        "delay_parameters" => pool.parameters = Some(line.clone()),
        _ => pool.rules.push(line.clone()),
    }
}

/// `client_ip_max_connections`
pub(crate) fn connections_of(squid: &mut Squid<'_>, line: &Line) {
    match line.word(0).parse::<u64>().ok().filter(|count| (1..=1_000_000).contains(count)) {
        Some(count) => {
            let section = connections(count, squid, line);
            squid.tree.add(section);
            squid.notes.carried(&line.at);
        }
        None => squid.notes.nothing(&line.at, "there is no limit"),
    }
}

/// A quota of connections for each client.
pub(crate) fn connections(count: u64, squid: &Squid<'_>, line: &Line) -> Section {
    let mut section = quota(squid.tree, "connections", "network", &line.at.to_string());
    section.set("connections", count, &line.at);
    section
}

/// What a bucket is for, by the class of its pool: how its quota is named, and `by`.
const CLASSES: [&[(&str, &str, Option<u64>)]; 4] = [
    &[("all", "all", None)],
    &[("all", "all", None), ("host", "network", Some(32))],
    &[("all", "all", None), ("network", "network", Some(24)), ("host", "network", Some(32))],
    &[
        ("all", "all", None),
        ("network", "network", Some(24)),
        ("host", "network", Some(32)),
        ("user", "user", None),
    ],
];

impl Squid<'_> {
    /// Writes a quota for each bucket. A request has the first pool that allows it.
    pub(crate) fn shape(&mut self) {
        let mut before = Addresses::default();
        for (number, pool) in std::mem::take(&mut self.pools) {
            let written = self.pool(number, &pool, &before);
            for line in &pool.lines {
                match &written {
                    Ok(_) if line.name == "delay_parameters" => {
                        let text = "a bucket is full at first; responses that are being stored \
                                    are fetched at full speed";
                        self.notes.different(&line.at, text);
                    }
                    Ok(_) => self.notes.carried(&line.at),
                    Err(why) => self.notes.left(&line.at, why.clone()),
                }
            }
            if let Ok((sections, clients)) = written {
                sections.into_iter().for_each(|section| self.tree.add(section));
                before.join(&clients);
            }
        }
    }

    fn pool(
        &self,
        number: u64,
        pool: &Pool,
        before: &Addresses,
    ) -> Result<(Vec<Section>, Addresses), String> {
        let class = usize::try_from(pool.class).unwrap_or(0).checked_sub(1);
        let buckets = class.and_then(|class| CLASSES.get(class));
        let buckets = buckets.ok_or("only pools of the classes 1 to 4 are carried")?;
        let line = pool.parameters.as_ref().ok_or("its pool has no delay_parameters")?;
        let (mut clients, mut denied) = (Addresses::default(), before.clone());
        for rule in &pool.rules {
            let rule = self.read_rule(rule, 1).ok_or("a rule has allow or deny")?;
            let mut these = Addresses::everyone();
            for (negated, set) in &rule.literals {
                let Set::Clients(networks) = set else {
                    return Err("a quota is for networks of clients".to_owned());
                };
                let all = Addresses::of(networks);
                these = if *negated { these.without(&all) } else { these.both(&all) };
            }
            let more = these.without(&denied);
            if rule.allow {
                clients.join(&more);
            }
            denied.join(&these);
        }
        let except = Addresses::everyone().without(&clients).networks(NETWORKS_MAX);
        let except = except.ok_or_else(|| format!("it has more than {NETWORKS_MAX} networks"))?;
        let except: Vec<String> = except.iter().map(ToString::to_string).collect();
        let mut sections = Vec::new();
        if self.tree.all("quota").count() + buckets.len() > QUOTAS_MAX {
            return Err(format!("there are at most {QUOTAS_MAX} quotas"));
        }
        for ((name, by, v4_prefix), text) in buckets.iter().zip(line.rest(1)) {
            let Some((restore, max)) = text.split_once('/') else {
                return Err("a bucket is a rate and a size".to_owned());
            };
            if matches!(restore, "-1" | "none") {
                continue;
            }
            let restore = restore.parse::<u64>().ok().filter(|n| (1..1 << 40).contains(n));
            let (Some(restore), Ok(max)) = (restore, max.parse::<u64>()) else {
                return Err("a bucket has a rate above 0".to_owned());
            };
            if *by == "user" && self.tree.all("forward").all(|one| one.get("users").is_none()) {
                return Err("without passwords there are no users".to_owned());
            }
            let from = line.at.to_string();
            let mut section = quota(self.tree, &format!("pool-{number}-{name}"), by, &from);
            if let Some(bits) = v4_prefix {
                section.set("v4_prefix", *bits, &line.at);
            }
            section.set("bytes", format!("{restore}/s"), &line.at);
            let burst = max.clamp(1 << 10, 1 << 40);
            section.set("bytes_burst", Value::Bytes(burst), &line.at);
            section.set_for("counts", "fetches", "delay pools are for misses");
            if !except.is_empty() {
                section.set_for("except_from", except.clone(), "delay_access");
            }
            sections.push(section);
        }
        Ok((sections, clients))
    }
}
