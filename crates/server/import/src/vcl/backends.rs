//! Backends, probes and directors, as upstreams.

use std::collections::BTreeMap;

use super::lexer::Word;
use super::parser::{Block, Field, Kind, Program};
use crate::note::{Notes, Place};
use crate::tree::{self, Section, Tree, Value, timeout};

/// A group of backends.
struct Director {
    at: Place,
    kind: String,
    backends: Vec<(String, Option<u64>)>,
}

/// Writes an upstream for each backend, and for each director of `vcl_init`. Returns their names,
/// that of the default backend first.
pub(crate) fn upstreams(
    program: &Program,
    forwards: bool,
    tree: &mut Tree,
    notes: &mut Notes,
) -> Vec<String> {
    let mut names = Vec::new();
    for block in &program.blocks {
        match block.kind.as_str() {
            "backend" if block.fields.iter().any(|field| field.name == "host") => {
                names.push(block.name.clone());
                let mut section = Section::new("upstream");
                section.set("name", block.name.clone(), &block.at);
                server(&mut section, block, None, false, notes);
                settings(&mut section, block, program, notes);
                usual(&mut section, forwards);
                tree.add(section);
                notes.carried(&block.at);
            }
            "backend" => notes.left(&block.at, "it has no host and port"),
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
            let found = program.blocks.iter().find(|b| b.kind == "backend" && b.name == *backend);
            let Some(block) = found else { continue };
            first = first.or(Some(block));
            let backup = director.kind == "fallback" && at > 0;
            server(&mut section, block, *weight, backup, notes);
        }
        if let Some(block) = first {
            settings(&mut section, block, program, notes);
            usual(&mut section, forwards);
            tree.add(section);
            names.push(name);
        }
    }
    names
}

/// Varnish sends X-Forwarded-For by its built-in subroutine.
fn usual(section: &mut Section, forwards: bool) {
    if !forwards {
        return;
    }
    section.set_for("forwarded", "x_forwarded", "X-Forwarded-For, as Varnish sends it");
}

fn server(
    section: &mut Section,
    block: &Block,
    weight: Option<u64>,
    backup: bool,
    notes: &mut Notes,
) {
    let value = |name: &str| block.fields.iter().find(|field| field.name == name);
    for field in ["host", "port", "max_connections"].iter().filter_map(|name| value(name)) {
        notes.carried(&field.at);
    }
    let Some(host) = value("host") else { return };
    let port = value("port").map_or("80", |port| port.value.as_str());
    let host =
        if host.value.contains(':') { format!("[{}]", host.value) } else { host.value.clone() };
    let max = value("max_connections").and_then(|field| field.value.parse::<u64>().ok());
    let max = max.filter(|max| (1..=1_000_000).contains(max));
    let numbers = (weight.map(|weight| weight.clamp(1, 1000)), max);
    tree::server(section, format!("http://{host}:{port}"), numbers, backup, &block.at);
}

fn settings(section: &mut Section, block: &Block, program: &Program, notes: &mut Notes) {
    for field in &block.fields {
        match field.name.as_str() {
            "host" | "port" | "max_connections" => {}
            "host_header" => {
                section.set("host", field.value.clone(), &field.at);
                notes.carried(&field.at);
            }
            "connect_timeout" | "first_byte_timeout" | "between_bytes_timeout" => {
                let key = match field.name.as_str() {
                    "connect_timeout" => "connect",
                    "first_byte_timeout" => "first_byte",
                    _ => "idle",
                };
                match timeout(units::duration(&field.value).ok()) {
                    Some(time) => {
                        section.below("upstream.timeouts").set(key, time, &field.at);
                        notes.carried(&field.at);
                    }
                    None => notes.left(&field.at, "it is not a time-out"),
                }
            }
            "probe" => {
                let named = program
                    .blocks
                    .iter()
                    .find(|other| other.kind == "probe" && other.name == field.value);
                let fields = named.map_or(&field.inner, |probe| &probe.fields);
                probe(section, field, fields, notes);
            }
            _ => notes.left(&field.at, "this field is not known here"),
        }
    }
}

/// `[upstream.health]`. A window of probes becomes numbers of consecutive ones.
fn probe(section: &mut Section, at: &Field, fields: &[Field], notes: &mut Notes) {
    let health = section.below("upstream.health");
    let value = |name: &str| fields.iter().find(|field| field.name == name);
    match value("url").filter(|url| url.value.starts_with('/')) {
        Some(url) => health.set("path", url.value.clone(), &url.at),
        None => health.set("path", "/", &at.at),
    }
    for name in ["interval", "timeout"] {
        let key = if name == "interval" { "interval" } else { "timeout" };
        if let Some((time, field)) = value(name)
            .and_then(|field| Some((timeout(units::duration(&field.value).ok())?, field)))
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
    let text = "consecutive checks count, instead of a window; a status from 200 to 399 is well";
    notes.different(&at.at, text);
}

/// The directors that `vcl_init` makes. Its notes are written here.
fn directors(program: &Program) -> BTreeMap<String, Director> {
    let mut found: BTreeMap<String, Director> = BTreeMap::new();
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

fn init(program: &Program) -> impl Iterator<Item = &super::parser::Stmt> {
    program.subs.iter().filter(|(name, _)| name == "vcl_init").flat_map(|(_, body)| body)
}

/// The notes of `vcl_init`.
pub(crate) fn init_notes(program: &Program, names: &[String], notes: &mut Notes) {
    for stmt in init(program) {
        let at = &stmt.at;
        match &stmt.kind {
            Kind::Other(name, words) if name == "new" => match &words[..] {
                [Word::Name(own), _, Word::Name(kind), ..] if names.contains(own) => {
                    match kind.trim_start_matches("directors.") {
                        "round_robin" | "fallback" => notes.carried(at),
                        "random" => notes.different(at, "requests are balanced in turn, by weight"),
                        "hash" | "shard" => {
                            notes.different(at, "requests are balanced by their URL");
                        }
                        _ => {
                            notes.left(at, "requests are balanced in turn");
                        }
                    }
                }
                _ => notes.left(at, "this object is not known here"),
            },
            Kind::Other(name, _) if name.ends_with(".add_backend") => notes.carried(at),
            Kind::Return(_) => notes.carried(at),
            _ => notes.left(at, "this is not known here"),
        }
    }
}
