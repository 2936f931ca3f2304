//! `plimsoll explain`: why a request is or is not answered from the cache, and what hit ratios
//! other cache sizes would give.

use std::fmt::Write;

use command::failure::{Failure, misuse};
use command::output;
use server::WhatIfReport;
use server::explain::{Answer, Condition, Explained, Freshness, Range, Request, Response, Term};

use crate::admin;
use crate::cli;

/// Asks a running server and formats its answer.
pub(crate) fn explain(flags: &cli::Explain) -> Result<(), Failure> {
    let Some(url) = &flags.url else {
        let answer = admin::call(flags.call.admin, "GET", "/what-if", &[])?;
        if flags.call.json {
            return output::print_json(&answer);
        }
        return output::print(sizes(&serde_json::from_value(answer).map_err(misuse)?));
    };
    let from = flags.from.map(|from| from.to_string());
    let listener = flags.listener.map(|listener| listener.to_string());
    let mut query = vec![("url", url.as_str())];
    query.extend(flags.method.iter().map(|method| ("method", method.as_str())));
    query.extend(flags.header.iter().map(|header| ("header", header.as_str())));
    query.extend(from.iter().map(|from| ("from", from.as_str())));
    query.extend(listener.iter().map(|listener| ("listener", listener.as_str())));
    query.extend(flags.role.iter().map(|role| ("role", role.as_str())));
    let answer = admin::call(flags.call.admin, "GET", "/explain", &query)?;
    if flags.call.json {
        return output::print_json(&answer);
    }
    output::print(layout(&serde_json::from_value(answer).map_err(misuse)?))
}

/// Width of the row names.
const NAME: usize = 13;

fn layout(explained: &Explained) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} {}", explained.method, explained.url);
    summary(&mut out, explained);
    if let Some(selected) = &explained.selected {
        out.push_str("\nThe stored response\n");
        stored(&mut out, selected, explained.now_ms);
        out.push_str("\nIts freshness (RFC 9111, 4.2)\n");
        arithmetic(&mut out, &selected.freshness, explained.now_ms);
    }
    if let Some(request) = &explained.request {
        asked(&mut out, request);
    }
    if let Some(fallback) = &explained.on_failure {
        out.push_str("\nIf the origin fails\n");
        prose(&mut out, "then", &fallback.text);
        row(&mut out, "rule", &format!("{}{}", fallback.rule, clause(&fallback.clause)));
    }
    others(&mut out, explained);
    out
}

fn row(out: &mut String, name: &str, value: &str) {
    let _ = writeln!(out, "  {name:<NAME$} {value}");
}

/// A row with a sentence, which may be wrapped.
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

fn summary(out: &mut String, explained: &Explained) {
    let decision = &explained.decision;
    let does = match decision.does.as_str() {
        "serve" => "served from the cache",
        "serve-stale" => "served stale from the cache",
        "validate" => "revalidated with the origin first",
        "refuse" => "refused",
        "pass" => "passed to the origin; not stored, not collapsed",
        "tunnel" => "a tunnel",
        "purge" => "a purge",
        "answer" => "answered by its route or by a rule",
        _ => "fetched from the origin and stored",
    };
    row(out, "would be", does);
    prose(out, "because", &decision.text);
    row(out, "rule", &format!("{}{}", decision.rule, clause(&decision.clause)));
    answer(out, &explained.answer);
    row(out, "listener", &format!("{} ({})", explained.listener, explained.role));
    if let Some(key) = &explained.key {
        row(out, "key", key);
    }
    explained.route.iter().for_each(|route| prose(out, "route", route));
    explained.conditions.iter().for_each(|one| condition(out, one));
    for setting in &explained.settings {
        row(out, "setting", &format!("{}: {}", setting.key, setting.effect));
    }
    if !explained.varies_by.is_empty() {
        row(out, "varies by", &explained.varies_by.join(", "));
    }
    for quota in &explained.quotas {
        let wait = quota.wait_ms;
        let text = match (quota.refused, quota.remaining) {
            (true, _) => "exhausted: refused now".to_owned(),
            (false, _) if wait > 0 => format!("exhausted: would wait {wait} ms"),
            (false, Some(remaining)) => format!("{remaining} requests may come now"),
            (false, None) => "applies".to_owned(),
        };
        prose(out, "quota", &format!("{}: {text}", quota.name));
    }
    if explained.shed_ratio > 0.0 {
        let percent = explained.shed_ratio * 100.0;
        let text = format!("{percent:.1} % of requests that need an upstream get a 503 now");
        prose(out, "overload", &text);
    }
}

/// A condition, and its comparisons with their values.
pub(crate) fn condition(out: &mut String, condition: &Condition) {
    let holds = match condition.holds {
        Some(true) => "holds",
        Some(false) => "does not hold",
        None => "is asked when the response comes",
    };
    prose(out, &condition.of, &format!("{holds}: {}", condition.when));
    for Term { text, value, holds } in &condition.terms {
        let is = if *holds { "yes" } else { "no" };
        prose(out, "", &format!("{is:<3} {text}: it is {value}"));
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
    if let Some(form) = &answer.form {
        prose(out, "form", form);
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
    out.push_str(match (request.background, request.in_flight, request.lines.is_empty()) {
        (true, true, _) => "\nA background revalidation is in flight\n",
        (true, false, _) => "\nA background revalidation would be sent\n",
        (_, true, _) => "\nA fetch is in flight, and the request would wait for it\n",
        (_, _, true) => "\nThe connection would go to\n",
        _ => "\nA request would be sent to the origin\n",
    });
    if !request.asks.is_empty() {
        row(out, "asks first", &request.asks.join(", "));
    }
    if let Some(peer) = &request.digest {
        row(out, "digest of", peer);
    }
    if let Some(owner) = &request.owner {
        row(out, "owner", owner);
    }
    if let Some(rule) = &request.hierarchy {
        row(out, "hierarchy", rule);
    }
    if let Some(group) = &request.group {
        row(out, "group", group);
    }
    if let Some(fault) = &request.fault {
        row(out, "but", fault);
    }
    let tls = if request.tls { " by TLS" } else { "" };
    let session = if request.session { ", by its session" } else { "" };
    let at = request.addresses.join(", ");
    match &request.server {
        Some(server) => row(out, "server", &format!("{server} at {at}{tls}{session}")),
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

fn others(out: &mut String, explained: &Explained) {
    let selected = |one: &&Response| explained.selected.as_ref().is_none_or(|it| it.key != one.key);
    let others: Vec<_> = explained.variants.iter().filter(selected).collect();
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

/// The state of a response in a word or two.
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
        None => row(out, "size", &format!("{body} bytes of body, {store} bytes in the cache")),
        Some(all) => {
            row(out, "size", &format!("{body} of {all} bytes of body, {store} bytes in the cache"));
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
    line("apparent_age", of.apparent_age_ms, "from Date to arrival, in whole seconds");
    line("age_value", of.age_value_ms, "the Age field of the response");
    line("response_delay", of.response_delay_ms, "+ from the request to the arrival");
    line("corrected_age_value", of.corrected_age_value_ms, "= the sum");
    line("corrected_initial_age", of.corrected_initial_age_ms, "or the apparent age, if larger");
    line("resident_time", of.resident_ms, "+ time in the cache");
    line("current_age", of.current_age_ms, "= the sum");
    let from = format!("{}{}", of.lifetime_from, clause(&of.lifetime_clause));
    line("freshness_lifetime", of.lifetime_ms, &from);
    if let Some(at_ms) = of.softly_purged_ms {
        line("softly purged", now_ms.saturating_sub(at_ms), "ago, which ended the lifetime");
    }
    let _ = match of.fresh {
        true => writeln!(out, "  fresh for another {} s", of.ttl_seconds),
        false => writeln!(out, "  stale for {} s", -of.ttl_seconds),
    };
}

/// Seconds with three decimals.
fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn sizes(report: &WhatIfReport) -> String {
    let percent = |ratio: Option<f64>| {
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
    };
    let mut out = String::from("memory              hits by requests   by bytes\n");
    for size in report.sizes.iter().chain([&report.real]) {
        let real = std::ptr::eq(size, &report.real);
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
        "\nbased on {:.0} accesses, weighted towards recent ones;\n\
         one key in {:.0} is simulated: {} objects",
        report.accesses, report.keys_per_sampled, report.sampled_objects
    );
    if report.sizes.iter().any(|size| size.hit_ratio.is_none()) {
        out.push_str("too few sampled objects for more: try again when more is stored\n");
    }
    out
}
