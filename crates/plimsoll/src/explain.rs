//! `plimsoll explain`: why a request is or is not answered from store, and what another size of the
//! store would give.

use std::fmt::Write;

use command::failure::{Failure, misuse};
use command::output;
use server::WhatIfReport;
use server::explain::{Answer, Explained, Freshness, Range, Request, Response};

use crate::admin;
use crate::cli;

/// Asks a running server, and lays out what it says.
pub(crate) fn explain(flags: &cli::Explain) -> Result<(), Failure> {
    let Some(url) = &flags.url else {
        let answer = admin::call(flags.admin, "GET", "/what-if", &[])?;
        if flags.json {
            return output::print_json(&answer);
        }
        let told: WhatIfReport = serde_json::from_value(answer).map_err(misuse)?;
        return output::print(sizes(&told));
    };
    let from = flags.from.map(|from| from.to_string());
    let listener = flags.listener.map(|listener| listener.to_string());
    let mut query = vec![("url", url.as_str())];
    query.extend(flags.method.iter().map(|method| ("method", method.as_str())));
    query.extend(flags.header.iter().map(|header| ("header", header.as_str())));
    query.extend(from.iter().map(|from| ("from", from.as_str())));
    query.extend(listener.iter().map(|listener| ("listener", listener.as_str())));
    query.extend(flags.role.iter().map(|role| ("role", role.as_str())));
    let answer = admin::call(flags.admin, "GET", "/explain", &query)?;
    if flags.json {
        return output::print_json(&answer);
    }
    let explained: Explained = serde_json::from_value(answer).map_err(misuse)?;
    output::print(layout(&explained))
}

/// Wide enough for the longest name of a row.
const NAME: usize = 13;

fn layout(told: &Explained) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} {}", told.method, told.url);
    summary(&mut out, told);
    if let Some(selected) = &told.selected {
        out.push_str("\nThe stored response\n");
        stored(&mut out, selected, told.now_ms);
        out.push_str("\nIts freshness (RFC 9111, 4.2)\n");
        arithmetic(&mut out, &selected.freshness, told.now_ms);
    }
    if let Some(request) = &told.request {
        asked(&mut out, request);
    }
    if let Some(stand_in) = &told.on_failure {
        out.push_str("\nIf the origin fails\n");
        prose(&mut out, "then", &stand_in.text);
        row(&mut out, "rule", &format!("{}{}", stand_in.rule, clause(&stand_in.clause)));
    }
    others(&mut out, told);
    out
}

fn row(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "  {name:<NAME$} {value}");
}

/// The same for a sentence, which may be long.
fn prose(out: &mut String, name: &str, text: &str) {
    let mut name = name;
    for line in output::wrapped(text, 80 - NAME - 3) {
        row(out, name, &line);
        name = "";
    }
}

fn clause(clause: &str) -> String {
    if clause.is_empty() { String::new() } else { format!(" [{clause}]") }
}

fn summary(out: &mut String, told: &Explained) {
    let decision = &told.decision;
    let does = match decision.does.as_str() {
        "serve" => "served from store",
        "serve-stale" => "served from store, stale",
        "validate" => "validated with the origin first",
        "refuse" => "refused",
        "pass" => "passed to the origin; nothing is stored, nobody waits for it",
        "tunnel" => "a tunnel",
        "purge" => "a purge",
        "answer" => "answered by its route",
        _ => "fetched from the origin, for the store",
    };
    row(out, "would be", does);
    prose(out, "because", &decision.text);
    row(out, "rule", &format!("{}{}", decision.rule, clause(&decision.clause)));
    answer(out, &told.answer);
    row(out, "listener", &format!("{} ({})", told.listener, told.role));
    if let Some(key) = &told.key {
        row(out, "key", key);
    }
    if !told.varies_by.is_empty() {
        row(out, "varies by", &told.varies_by.join(", "));
    }
    if told.shed_ratio > 0.0 {
        let percent = told.shed_ratio * 100.0;
        let text = format!("{percent:.1} % of what needs an upstream is answered 503 now");
        prose(out, "overload", &text);
    }
}

fn answer(out: &mut String, answer: &Answer) {
    if let Some(status) = answer.status {
        let age = answer.age_seconds.map_or_else(String::new, |age| format!(", Age: {age}"));
        row(out, "status", &format!("{status}{age}"));
    }
    if !answer.ranges.is_empty() {
        row(out, "with bytes", &ranges(&answer.ranges));
    }
    if let Some(why) = &answer.why_whole {
        prose(out, "whole because", why);
    }
    if let Some(value) = &answer.proxy_status {
        row(out, "Proxy-Status", value);
    }
    if let Some(value) = &answer.cache_status {
        let more = if answer.exact { "" } else { "; ... (as the origin answers)" };
        row(out, "Cache-Status", &format!("{value}{more}"));
    }
}

fn ranges(ranges: &[Range]) -> String {
    let one = |range: &Range| format!("{}-{}", range.first, range.last);
    ranges.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn asked(out: &mut String, request: &Request) {
    out.push_str(match (request.behind, request.under_way, request.lines.is_empty()) {
        (true, true, _) => "\nBehind the client's back somebody asks already\n",
        (true, false, _) => "\nBehind the client's back the origin would be asked\n",
        (_, true, _) => "\nSomebody asks already, and it would wait for that answer\n",
        (_, _, true) => "\nIt would lead to\n",
        _ => "\nThe origin would be asked\n",
    });
    if let Some(group) = &request.group {
        row(out, "group", group);
    }
    if let Some(fault) = &request.fault {
        row(out, "but", fault);
    }
    let tls = if request.tls { " by TLS" } else { "" };
    let at = request.addresses.join(", ");
    match &request.server {
        Some(server) => row(out, "server", &format!("{server} at {at}{tls}")),
        None if !at.is_empty() => row(out, "address", &format!("{at}{tls}")),
        None => {}
    }
    if !request.lines.is_empty() {
        out.push('\n');
    }
    for line in &request.lines {
        let _ = writeln!(out, "    {line}");
    }
}

fn others(out: &mut String, told: &Explained) {
    let selected = |one: &&Response| told.selected.as_ref().is_none_or(|it| it.key != one.key);
    let others: Vec<_> = told.variants.iter().filter(selected).collect();
    if others.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nOther responses stored for this URL: {}", others.len());
    let _ = writeln!(out, "  key      status        bytes  state          variant");
    for one in others {
        let variant = one.variant.as_deref().unwrap_or("-");
        let _ = writeln!(
            out,
            "  {} {:>6} {:>12}  {:<14} {variant}",
            &one.key[..8.min(one.key.len())],
            one.status,
            one.body_bytes,
            state(one),
        );
    }
}

/// One word or two on a response.
fn state(response: &Response) -> String {
    if response.purges.iter().any(|purge| !purge.soft) {
        "purged".to_owned()
    } else if !response.purges.is_empty() {
        "stale: purged".to_owned()
    } else if response.freshness.fresh {
        format!("fresh {} s", response.freshness.ttl_seconds)
    } else {
        format!("stale {} s", -response.freshness.ttl_seconds)
    }
}

fn stored(out: &mut String, response: &Response, now_ms: u64) {
    let ago = now_ms.saturating_sub(response.freshness.response_ms);
    row(out, "status", &response.status.to_string());
    row(out, "stored", &format!("{} s ago, under {}", seconds(ago), response.key));
    let (body, store) = (response.body_bytes, response.stored_bytes);
    match response.complete_bytes {
        None => row(out, "size", &format!("{body} bytes of body; {store} bytes of the store")),
        Some(all) => {
            row(out, "size", &format!("{body} of {all} bytes of body; {store} bytes of the store"));
            row(out, "parts", &ranges(&response.parts));
        }
    }
    for (name, value) in [
        ("ETag", &response.etag),
        ("Last-Modified", &response.last_modified),
        ("variant", &response.variant),
    ] {
        if let Some(value) = value {
            row(out, name, value);
        }
    }
    if !response.tags.is_empty() {
        row(out, "tags", &response.tags.join(" "));
    }
    for purge in &response.purges {
        let how = if purge.soft { "softly, " } else { "" };
        let ago = seconds(now_ms.saturating_sub(purge.at_ms));
        row(out, "purged", &format!("{how}{ago} s ago by {} {}", purge.by, purge.of));
    }
}

fn arithmetic(out: &mut String, of: &Freshness, now_ms: u64) {
    let mut line = |name: &str, ms: u64, note: &str| {
        let _ = writeln!(out, "  {name:<22} {:>12} s  {note}", seconds(ms));
    };
    line("apparent_age", of.apparent_age_ms, "from Date to arrival, whole seconds");
    line("age_value", of.age_value_ms, "the Age that it came with");
    line("response_delay", of.response_delay_ms, "+ from the request to the arrival");
    line("corrected_age_value", of.corrected_age_value_ms, "= the sum");
    line("corrected_initial_age", of.corrected_initial_age_ms, "or the apparent age, if larger");
    line("resident_time", of.resident_ms, "+ in the store since");
    line("current_age", of.current_age_ms, "= the sum");
    let from = format!("{}{}", of.lifetime_from, clause(&of.lifetime_clause));
    line("freshness_lifetime", of.lifetime_ms, &from);
    if let Some(at_ms) = of.softly_purged_ms {
        line("softly purged", now_ms.saturating_sub(at_ms), "ago, which ended its lifetime");
    }
    let _ = match of.fresh {
        true => writeln!(out, "  fresh for another {} s", of.ttl_seconds),
        false => writeln!(out, "  stale since {} s", -of.ttl_seconds),
    };
}

/// With three digits of a fraction.
fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn sizes(told: &WhatIfReport) -> String {
    let percent = |ratio: Option<f64>| {
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
    };
    let mut out = String::from("memory              hits by requests   by bytes\n");
    for size in told.sizes.iter().chain([&told.real]) {
        let real = std::ptr::eq(size, &told.real);
        let name = if real { "measured".to_owned() } else { format!("x {}", size.memory) };
        let _ = writeln!(
            out,
            "{name:<9} {:>6} MiB {:>18} {:>10}",
            size.memory_bytes >> 20,
            percent(size.hit_ratio),
            percent(size.byte_hit_ratio)
        );
    }
    let _ = writeln!(
        out,
        "\nfrom {:.0} accesses, of which older ones count for less;\n\
         one key in {:.0} is simulated: {} objects",
        told.accesses, told.keys_per_sampled, told.sampled_objects
    );
    if told.sizes.iter().any(|size| size.hit_ratio.is_none()) {
        out.push_str("too few objects are sampled to tell more: ask again when more is stored\n");
    }
    out
}
