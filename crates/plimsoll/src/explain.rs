//! `plimsoll explain`: why a request is or is not answered from store, and what another size of the
//! store would give.

use std::fmt::Write;

use proxy::WhatIfReport;
use proxy::explain::{Explained, Freshness, Response};

use crate::admin;
use crate::cli;
use crate::failure::{Failure, misuse};
use crate::output;

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
    let mut query = vec![("url", url.as_str())];
    query.extend(flags.header.iter().map(|header| ("header", header.as_str())));
    let answer = admin::call(flags.admin, "GET", "/explain", &query)?;
    if flags.json {
        return output::print_json(&answer);
    }
    let explained: Explained = serde_json::from_value(answer).map_err(misuse)?;
    output::print(layout(&explained))
}

fn layout(explained: &Explained) -> String {
    let Explained { url, role, key, decision, selected, varies_by, variants, conditions, now_ms } =
        explained;
    let mut out = String::new();
    let does = match decision.does.as_str() {
        "serve" => "served from store",
        "serve-stale" => "served from store, stale",
        "validate" => "validated with the origin first",
        "refuse" => "refused: 504",
        "pass" => "passed to the origin; not stored, nobody waits for it",
        _ => "fetched from the origin",
    };
    let _ = writeln!(out, "GET {url}");
    let _ = writeln!(out, "  would be {does}");
    let _ = writeln!(out, "  because  {} [{}, {}]", decision.text, decision.rule, decision.clause);
    let _ = writeln!(out, "  key      {key} ({role})");
    if !varies_by.is_empty() {
        let _ = writeln!(out, "  varies   by {}", varies_by.join(", "));
    }
    if let Some(selected) = selected {
        out.push_str("\nThe stored response\n");
        stored(&mut out, selected, *now_ms);
        out.push_str("\nIts freshness (RFC 9111, 4.2)\n");
        arithmetic(&mut out, &selected.freshness, *now_ms);
    }
    if !conditions.is_empty() {
        out.push_str("\nThe origin would be asked with\n");
        for (name, value) in conditions {
            let _ = writeln!(out, "  {name}: {value}");
        }
    }
    let others = |one: &&Response| selected.as_ref().is_none_or(|it| it.key != one.key);
    let others: Vec<_> = variants.iter().filter(others).collect();
    if !others.is_empty() {
        let _ = writeln!(out, "\nOther responses stored for this URL: {}", others.len());
        for one in others {
            let state = state(one);
            let variant = one.variant.as_deref().unwrap_or("-");
            let _ = writeln!(
                out,
                "  {} {} {:>9} bytes  {state:<12} {variant}",
                &one.key[..8.min(one.key.len())],
                one.status,
                one.body_bytes
            );
        }
    }
    out
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
    let mut row = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<14} {value}");
    };
    row("status", response.status.to_string());
    row("stored", format!("{} s ago, under {}", seconds(ago), response.key));
    row(
        "size",
        format!(
            "{} bytes of body; {} bytes of the store",
            response.body_bytes, response.stored_bytes
        ),
    );
    for (name, value) in [
        ("ETag", &response.etag),
        ("Last-Modified", &response.last_modified),
        ("variant", &response.variant),
    ] {
        if let Some(value) = value {
            row(name, value.clone());
        }
    }
    if !response.tags.is_empty() {
        row("tags", response.tags.join(" "));
    }
    for purge in &response.purges {
        let how = if purge.soft { "softly, " } else { "" };
        let ago = seconds(now_ms.saturating_sub(purge.at_ms));
        row("purged", format!("{how}{ago} s ago by {} {}", purge.by, purge.of));
    }
}

fn arithmetic(out: &mut String, freshness: &Freshness, now_ms: u64) {
    let mut row = |name: &str, ms: u64, note: &str| {
        let _ = writeln!(out, "  {name:<24} {:>14} s   {note}", seconds(ms));
    };
    let made = freshness.response_ms.saturating_sub(freshness.date_ms);
    row("Date before arrival", made, "date_value");
    row("age on arrival", freshness.corrected_initial_age_ms, "corrected_initial_age");
    row("in the store since", freshness.resident_ms, "+ resident_time");
    row("current age", freshness.current_age_ms, "= current_age");
    let from =
        format!("freshness_lifetime: {} [{}]", freshness.lifetime_from, freshness.lifetime_clause);
    row("lifetime", freshness.lifetime_ms, &from);
    if let Some(at_ms) = freshness.softly_purged_ms {
        row("softly purged", now_ms.saturating_sub(at_ms), "ago, which ended its lifetime");
    }
    let _ = match freshness.fresh {
        true => writeln!(out, "  fresh for another {} s", freshness.ttl_seconds),
        false => writeln!(out, "  stale since {} s", -freshness.ttl_seconds),
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
        "\nfrom {:.0} accesses (older ones count for less), one key in {:.0} simulated: {} objects",
        told.accesses, told.keys_per_sampled, told.sampled_objects
    );
    if told.sizes.iter().any(|size| size.hit_ratio.is_none()) {
        out.push_str("too few objects are sampled to tell more: ask again when more is stored\n");
    }
    out
}
