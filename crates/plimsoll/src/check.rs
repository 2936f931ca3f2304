//! `plimsoll check`: checks a configuration file and shows what it would do.

use command::failure::{Failure, misuse};
use command::output;
use serde_json::json;
use server::dry::{Expect, Outcome, Question, Routes, Verdict, unmet, verdict};
use server::explain::Condition;
use server::{Config, Role, Settings, Unusable};

use crate::cli;
use crate::explain::condition;

/// Reads the file and all files that it names. Binds no address.
pub(crate) fn check(flags: &cli::Check) -> Result<(), Failure> {
    match Settings::read(&flags.file) {
        Ok(mut settings) => {
            if flags.request.is_some() {
                return ask(flags, &settings.config);
            }
            met(&settings.config)?;
            let user = identity(&settings)?;
            let without_address = server::look_up_names(&mut settings.config);
            let warnings: Vec<String> =
                settings.config.warnings().into_iter().chain(without_address).collect();
            if flags.json {
                return output::print_json(&effects(flags, &settings, &warnings));
            }
            let mut text = format!("{} is valid\n", flags.file.display());
            for (address, role) in listeners(&settings.config) {
                text.push_str(&format!("it would listen on {address} ({role})\n"));
            }
            if let Some(admin) = settings.process.admin {
                text.push_str(&format!("its admin address would be {admin}\n"));
            }
            text.extend(settings.config.listed_routes());
            for parent in parents(&settings.config) {
                text.push_str(&format!("misses would go to the parent {parent}\n"));
            }
            for peer in asked(&settings.config) {
                text.push_str(&format!("{peer} would be asked what it has stored\n"));
            }
            for (protocol, address) in query_servers(&settings.config) {
                text.push_str(&format!("it would answer queries at {address} ({protocol})\n"));
            }
            if let Some(cluster) = &settings.config.cluster {
                for member in &cluster.members {
                    let own = if cluster.is_own(*member) { ", which is this server" } else { "" };
                    text.push_str(&format!("it would share its store with {member}{own}\n"));
                }
            }
            if let Some(acme) = settings.config.acme.as_ref().filter(|acme| !acme.names.is_empty())
            {
                let (names, by) = (acme.names.join(", "), acme.challenge.name());
                let (at, path) = (&acme.directory, acme.own_path());
                text.push_str(&format!(
                    "{at} would be asked for certificates of {names} ({by}), kept in {}\n",
                    path.display()
                ));
            }
            if let Some((name, uid, gid)) = user {
                text.push_str(&format!("it would run as {name} (user {uid}, group {gid})\n"));
            }
            for warning in warnings {
                text.push_str(&format!("warning: {warning}\n"));
            }
            output::print(text)
        }
        Err(unusable) if flags.json => {
            output::print_json(&mistakes_of(&unusable))?;
            Err(misuse(unusable.in_one_line()))
        }
        Err(unusable) => Err(misuse(unusable)),
    }
}

/// Fails if the configuration does not meet one of its expectations.
fn met(config: &Config) -> Result<(), Failure> {
    match unmet(config) {
        unmet if unmet.is_empty() => Ok(()),
        unmet => Err(Failure::CheckFailed(unmet.join("\n"))),
    }
}

/// Prints what rules and routes say about a request.
fn ask(flags: &cli::Check, config: &Config) -> Result<(), Failure> {
    let asked = Expect {
        request: flags.request.clone().unwrap_or_default(),
        fields: flags.fields.clone(),
        from: flags.from.clone(),
        status: flags.status,
        response: flags.response.clone(),
        ..Expect::default()
    };
    let question = Question::of(&asked).map_err(misuse)?;
    let verdict = verdict(&Routes::of(config), config, &question);
    if flags.json {
        return output::print_json(&verdict_as_json(&asked, &verdict));
    }
    let mut text = format!("{}\n", asked.request);
    verdict.judged.iter().for_each(|one| condition(&mut text, &one.clone().into()));
    let rules = match verdict.rules.is_empty() {
        true => "no rule applies".to_owned(),
        false => format!("these rules apply: {}", verdict.rules.join(", ")),
    };
    let route = verdict.route.map_or("no route".to_owned(), |at| config.route_name(at));
    let store = if verdict.stores { "may" } else { "may not" };
    text +=
        &format!("{rules}\nit takes {route}\n{}\nthe store {store} answer it\n", verdict.outcome);
    output::print(text)
}

fn verdict_as_json(asked: &Expect, verdict: &Verdict) -> serde_json::Value {
    let judged: Vec<Condition> = verdict.judged.iter().cloned().map(Condition::from).collect();
    let (upstream, redirect, status) = match &verdict.outcome {
        Outcome::Upstream(name) => (Some(name), None, None),
        Outcome::Redirect(status, to) => (None, Some(to), Some(*status)),
        Outcome::Answer(status) => (None, None, Some(*status)),
        Outcome::Refused(refusal) => (None, None, Some(refusal.status())),
    };
    json!({
        "request": asked.request,
        "conditions": judged,
        "rules": verdict.rules,
        "route": verdict.route.map(|at| at + 1),
        "upstream": upstream,
        "redirect": redirect,
        "status": status,
        "store": verdict.stores,
    })
}

/// The user that the server would run as.
fn identity(settings: &Settings) -> Result<Option<(String, u32, u32)>, Failure> {
    let Some(user) = &settings.process.user else { return Ok(None) };
    let found = runtime::process::Identity::find(user, settings.process.group.as_deref());
    let found = found.map_err(misuse)?;
    Ok(Some((user.clone(), found.uid(), found.gid())))
}

fn listeners(config: &Config) -> impl Iterator<Item = (String, &'static str)> {
    config.listeners.iter().map(|listener| {
        let role = match listener.role {
            Role::Reverse => "reverse",
            Role::Forward => "forward",
        };
        (listener.address.to_string(), role)
    })
}

/// The hosts and ports of the parents.
fn parents(config: &Config) -> impl Iterator<Item = &str> {
    let parents = config.hierarchy.iter().flat_map(|hierarchy| &hierarchy.parents);
    parents.flat_map(|group| &group.servers).map(|server| server.origin.authority.as_str())
}

/// The hosts and ports of the peers that are asked.
fn asked(config: &Config) -> impl Iterator<Item = &str> {
    let asked = config.hierarchy.iter().flat_map(|hierarchy| &hierarchy.asked);
    asked.map(|peer| peer.group.name.as_str())
}

/// The members of the cluster.
fn cluster(config: &Config) -> Option<serde_json::Value> {
    let cluster = config.cluster.as_ref()?;
    let own = cluster.members.iter().find(|member| cluster.is_own(**member));
    Some(json!({ "listen": cluster.listen, "members": cluster.members, "self": own }))
}

/// Where queries of other caches are answered.
fn query_servers(config: &Config) -> impl Iterator<Item = (&'static str, String)> {
    let servers = [("icp", &config.icp), ("htcp", &config.htcp)].into_iter();
    servers.filter_map(|(name, server)| Some((name, server.as_ref()?.listen.to_string())))
}

fn effects(flags: &cli::Check, settings: &Settings, warnings: &[String]) -> serde_json::Value {
    let listen: Vec<_> = listeners(&settings.config)
        .map(|(address, role)| json!({ "address": address, "role": role }))
        .collect();
    json!({
        "file": flags.file,
        "ok": true,
        "listen": listen,
        "admin": settings.process.admin,
        "upstreams": settings.config.groups.iter().map(|group| &group.name).collect::<Vec<_>>(),
        "parents": parents(&settings.config).collect::<Vec<_>>(),
        "peers_asked": asked(&settings.config).collect::<Vec<_>>(),
        "cluster": cluster(&settings.config),
        "queries": query_servers(&settings.config)
            .map(|(protocol, address)| json!({ "protocol": protocol, "address": address }))
            .collect::<Vec<_>>(),
        "mistakes": [],
        "warnings": warnings,
    })
}

fn mistakes_of(unusable: &Unusable) -> serde_json::Value {
    let mistakes: Vec<_> = unusable
        .problems
        .iter()
        .map(|one| json!({ "line": one.line, "column": one.column, "message": one.message }))
        .collect();
    json!({
        "file": unusable.file,
        "ok": false,
        "unreadable": unusable.unreadable,
        "mistakes": mistakes,
    })
}
