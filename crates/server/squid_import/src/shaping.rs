//! `delay_pools`, and limits of connections, as quotas.

use std::collections::BTreeMap;

use super::Squid;
use super::access::Rule;
use super::acl::Addresses;
use super::lines::Line;
use imported::limits::{NETWORKS_MAX, QUOTAS_MAX};
use imported::note::Fate;
use imported::route::quota;
use imported::table::Becomes::{self, Carried, Different, Elsewhere, Left, Nothing, Text};
use imported::tree::{Section, Value};

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
pub(crate) fn pool(squid: &mut Squid, line: &Line) -> Becomes {
    let Ok(number) = line.word(0).parse::<u64>() else {
        return Left("it does not begin with the number of a pool");
    };
    let pool = squid.pools.entry(number).or_default();
    pool.lines.push(line.clone());
    match line.name.as_str() {
        "delay_class" => pool.class = line.word(1).parse().unwrap_or(0),
        "delay_parameters" => pool.parameters = Some(line.clone()),
        _ => pool.rules.push(line.clone()),
    }
    Elsewhere
}

/// `client_ip_max_connections`
pub(crate) fn connections_of(squid: &mut Squid, line: &Line) -> Becomes {
    match line.word(0).parse::<u64>() {
        Ok(count @ 1..=1_000_000) => connections(count, squid, line),
        _ => Nothing("there is no limit"),
    }
}

/// Writes a quota of connections for each client.
pub(crate) fn connections(count: u64, squid: &mut Squid, line: &Line) -> Becomes {
    let mut section = quota(&squid.tree, "connections", "network", &line.at);
    section.set("connections", count, &line.at);
    squid.tree.add(section);
    Carried
}

/// The buckets of a pool, by its class.
const CLASSES: [&[Bucket]; 4] =
    [&[ALL], &[ALL, HOST], &[ALL, NETWORK, HOST], &[ALL, NETWORK, HOST, USER]];

/// The name of a bucket's quota, its `by`, and its `v4_prefix`.
type Bucket = (&'static str, &'static str, Option<u64>);
const ALL: Bucket = ("all", "all", None);
const NETWORK: Bucket = ("network", "network", Some(24));
const HOST: Bucket = ("host", "network", Some(32));
const USER: Bucket = ("user", "user", None);

impl Squid {
    /// Writes a quota for each bucket. A request has the first pool that allows it.
    pub(crate) fn shape(&mut self) {
        let mut before = Addresses::default();
        for (number, pool) in std::mem::take(&mut self.pools) {
            let written = self.pool(number, &pool, &before);
            for line in &pool.lines {
                let becomes = match &written {
                    Ok(_) if line.name == "delay_parameters" => Different(
                        "a bucket is full at first; responses that are being stored are fetched \
                         at full speed",
                    ),
                    Ok(_) => Carried,
                    Err(why) => Text(Fate::NotCarried, why.clone()),
                };
                self.notes.became(&line.at, &becomes);
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
            let these = Rule::clients(rule.literals.iter());
            let these = these.ok_or("a quota is for networks of clients")?;
            let more = these.without(&denied);
            if rule.allow {
                clients.join(&more);
            }
            denied.join(&these);
        }
        let except = Addresses::everyone().without(&clients).networks(NETWORKS_MAX);
        let except = except.ok_or_else(|| format!("it has more than {NETWORKS_MAX} networks"))?;
        let except = super::texts_of(&except);
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
            let mut section = quota(&self.tree, &format!("pool-{number}-{name}"), by, &line.at);
            section.set_some("v4_prefix", *v4_prefix, &line.at);
            section.set("bytes", format!("{restore}/s"), &line.at);
            let burst = max.clamp(1 << 10, 1 << 40);
            section.set("bytes_burst", Value::Bytes(burst), &line.at);
            section.set("counts", "fetches", "delay pools are for misses");
            section.set_list("except_from", &except, "delay_access");
            sections.push(section);
        }
        Ok((sections, clients))
    }
}
