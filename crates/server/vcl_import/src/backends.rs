//! Backends, probes and directors, as upstreams.

use std::collections::BTreeMap;

use super::lexer::Word;
use super::parser::{Block, Field, Kind, Program};
use imported::note::{Notes, Place};
use imported::table::Becomes::{self, Carried, Different, Left};
use imported::tree::{self, Section, Tree, Value, authority, timeout};

/// A group of backends.
struct Director {
    at: Place,
    kind: String,
    backends: Vec<(String, Option<u64>)>,
}

/// Varnish sends it by its built-in subroutine.
const FORWARDED: &str = "X-Forwarded-For, as Varnish sends it";

/// Writes an upstream for each backend, then for each director of `vcl_init`. Returns their names.
pub(crate) fn upstreams(
    program: &Program,
    forwards: bool,
    tree: &mut Tree,
    notes: &mut Notes,
) -> Vec<String> {
    let mut names = Vec::new();
    let forwarded = forwards.then_some("x_forwarded_for");
    for block in &program.blocks {
        match block.kind.as_str() {
            "backend" if block.fields.iter().any(|field| field.name == "host") => {
                names.push(block.name.clone());
                let mut section = Section::new("upstream");
                section.set("name", block.name.clone(), &block.at);
                server(&mut section, block, None, false, notes);
                settings(&mut section, block, program, notes);
                section.set_some("forwarded", forwarded, FORWARDED);
                tree.add(section);
                notes.carried(&block.at);
            }
            "backend" => notes.left(&block.at, "it has no host and port"),
            "director" => {
                let kind = block.fields.first().map_or("", |kind| kind.value.as_str());
                notes.became(&block.at, &balanced(kind));
                let inner = block.fields.iter().flat_map(|member| &member.inner);
                inner.for_each(|field| match field.name.as_str() {
                    "backend" if field.inner.is_empty() => notes.carried(&field.at),
                    "backend" => notes.left(&field.at, "a backend of a director needs a name"),
                    "weight" => notes.carried(&field.at),
                    _ => notes.left(&field.at, "a member has a backend and a weight"),
                });
            }
            _ => notes.carried(&block.at),
        }
    }
    for (name, director) in directors(program) {
        let mut section = Section::new("upstream");
        section.set("name", name.clone(), &director.at);
        let balance = match director.kind.as_str() {
            "hash" | "shard" => "hash",
            _ => "round_robin",
        };
        section.set("balance", balance, &director.at);
        let mut first = None;
        for (at, (backend, weight)) in director.backends.iter().enumerate() {
            let Some(block) = program.block("backend", backend) else { continue };
            first = first.or(Some(block));
            let backup = director.kind == "fallback" && at > 0;
            server(&mut section, block, *weight, backup, notes);
        }
        if let Some(block) = first {
            settings(&mut section, block, program, notes);
            section.set_some("forwarded", forwarded, FORWARDED);
            tree.add(section);
            names.push(name);
        }
    }
    names
}

fn server(
    section: &mut Section,
    block: &Block,
    weight: Option<u64>,
    backup: bool,
    notes: &mut Notes,
) {
    let value = |name: &str| block.fields.iter().find(|field| field.name == name);
    for field in ["host", "port", "max_connections"].into_iter().filter_map(value) {
        notes.carried(&field.at);
    }
    let Some(host) = value("host") else { return };
    let (mut host, mut port) = (host.value.as_str(), "80");
    match value("port") {
        Some(given) => port = given.value.as_str(),
        // Varnish takes a port behind the host, too.
        None => match host.rsplit_once(':') {
            Some((name, number)) if !name.contains(':') => (host, port) = (name, number),
            Some((name, number)) if name.ends_with(']') => (host, port) = (name, number),
            _ => {}
        },
    }
    let host = authority(host);
    let max = value("max_connections").and_then(|field| field.value.parse::<u64>().ok());
    let max = max.filter(|max| (1..=1_000_000).contains(max));
    let numbers = (weight.map(|weight| weight.clamp(1, 1000)), max);
    tree::server(section, format!("http://{host}:{port}"), numbers, backup, &block.at);
}

fn settings(section: &mut Section, block: &Block, program: &Program, notes: &mut Notes) {
    for field in &block.fields {
        let becomes = match field.name.as_str() {
            // They belong to the server.
            "host" | "port" | "max_connections" => continue,
            "host_header" => {
                section.set("host", field.value.clone(), &field.at);
                Carried
            }
            "connect_timeout" => time_out(section, "connect", field),
            "first_byte_timeout" => time_out(section, "first_byte", field),
            "between_bytes_timeout" => time_out(section, "idle", field),
            "probe" => {
                let named = program.block("probe", &field.value);
                let fields = named.map_or(&field.inner, |probe| &probe.fields);
                probe(section, field, fields, notes)
            }
            _ => Left("this field is not known here"),
        };
        notes.became(&field.at, &becomes);
    }
}

fn time_out(section: &mut Section, key: &'static str, field: &Field) -> Becomes {
    let Some(time) = timeout(units::duration(&field.value).ok()) else {
        return Left("it is not a time-out");
    };
    section.below("upstream.timeouts").set(key, time, &field.at);
    Carried
}

/// `[upstream.health]`. A window of probes becomes numbers of consecutive checks.
fn probe(section: &mut Section, at: &Field, fields: &[Field], notes: &mut Notes) -> Becomes {
    let health = section.below("upstream.health");
    let value = |name: &str| fields.iter().find(|field| field.name == name);
    match value("url").filter(|url| url.value.starts_with('/')) {
        Some(url) => health.set("path", url.value.clone(), &url.at),
        None => health.set("path", "/", &at.at),
    }
    for key in ["interval", "timeout"] {
        if let Some(field) = value(key)
            && let Some(time) = timeout(units::duration(&field.value).ok())
        {
            health.set(key, time, &field.at);
        }
    }
    let count = |name: &str| value(name).and_then(|field| field.value.parse::<u64>().ok());
    if let (Some(window), Some(threshold)) = (count("window"), count("threshold")) {
        let fall = window.saturating_sub(threshold) + 1;
        health.set("rise", Value::Count(threshold.clamp(1, 1000)), &at.at);
        health.set("fall", Value::Count(fall.clamp(1, 1000)), &at.at);
    }
    for field in fields {
        match field.name.as_str() {
            "url" | "interval" | "timeout" | "window" | "threshold" => notes.carried(&field.at),
            _ => notes.left(&field.at, "a check is a GET of a path"),
        }
    }
    Different("consecutive checks count, instead of a window; a status from 200 to 399 is well")
}

/// The directors that `vcl_init` makes. Its notes are written here.
fn directors(program: &Program) -> BTreeMap<String, Director> {
    let mut found: BTreeMap<String, Director> = BTreeMap::new();
    for block in program.blocks.iter().filter(|block| block.kind == "director") {
        let value = |member: &Field, name: &str| {
            let of_name = |field: &&Field| field.name == name && field.inner.is_empty();
            member.inner.iter().find(of_name).map(|field| field.value.clone())
        };
        let weight = |member: &Field| value(member, "weight")?.parse().ok();
        let backends =
            block.fields.iter().filter_map(|one| Some((value(one, "backend")?, weight(one))));
        let kind = block.fields.first().map_or("", |kind| kind.value.as_str());
        let kind = kind.replace('-', "_");
        let director = Director { at: block.at.clone(), kind, backends: backends.collect() };
        found.insert(block.name.clone(), director);
    }
    for stmt in init(program) {
        let Kind::Other(name, words) = &stmt.kind else { continue };
        match (name.as_str(), &words[..]) {
            ("new", [Word::Name(own), Word::Sign("="), Word::Name(kind), ..]) => {
                let kind = kind.trim_start_matches("directors.").to_owned();
                let director = Director { at: stmt.at.clone(), kind, backends: Vec::new() };
                found.insert(own.clone(), director);
            }
            (name, [Word::Sign("("), Word::Name(backend), more @ ..]) => {
                let Some(own) = name.strip_suffix(".add_backend") else { continue };
                let weight = more.iter().find_map(|word| match word {
                    Word::Name(number) => number.parse::<f64>().ok(),
                    _ => None,
                });
                let weight = weight.map(|weight| weight.round().max(1.0) as u64);
                if let Some(director) = found.get_mut(own)
                    && !director.backends.iter().any(|(there, _)| there == backend)
                {
                    director.backends.push((backend.clone(), weight));
                }
            }
            _ => {}
        }
    }
    found
}

fn init(program: &Program) -> &[super::parser::Stmt] {
    program.sub("vcl_init").unwrap_or_default()
}

/// What becomes of a kind of balancing.
fn balanced(kind: &str) -> Becomes {
    match kind {
        "round_robin" | "round-robin" | "fallback" => Carried,
        "random" => Different("requests are balanced in turn, by weight"),
        "hash" | "shard" => Different("requests are balanced by their URL"),
        _ => Left("requests are balanced in turn"),
    }
}

/// The notes of `vcl_init`.
pub(crate) fn init_notes(program: &Program, names: &[String], notes: &mut Notes) {
    for stmt in init(program) {
        let becomes = match &stmt.kind {
            Kind::Other(name, words) if name == "new" => match &words[..] {
                [Word::Name(own), _, Word::Name(kind), ..] if names.contains(own) => {
                    balanced(kind.trim_start_matches("directors."))
                }
                _ => Left("this object is not known here"),
            },
            Kind::Other(name, _) if name.ends_with(".add_backend") => Carried,
            Kind::Return(_) => Carried,
            _ => Left("this is not known here"),
        };
        notes.became(&stmt.at, &becomes);
    }
}
