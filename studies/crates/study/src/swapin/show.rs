//! What the page shows in addition to the plots: their tables, and the figures.

use report::sheet::{Curve, Panel, Stroke, Ticks, Tone, svg_curves};
use serde_json::{Value, json};

use super::measure::Set;
use super::patterns::{Pattern, Verdict, in_us};
use super::squid::PAGE_BYTES;
use super::{Bin, Outcome, Peer, Plot};
use crate::found::row_with;
use crate::show::{NONE, curve, panel};

/// The bins of the table of medians, by their lower ends in KiB.
const SHOWN_KIB: [u64; 11] = [0, 3, 7, 8, 15, 16, 30, 34, 62, 66, 126];

/// Results for the page.
pub(crate) fn for_page(outcome: &Outcome) -> Value {
    let rounds: Vec<String> = [Set::OURS, Set::OF_1997]
        .iter()
        .filter_map(|set| outcome.plot("exact", "in", "warm", set.block_bytes))
        .map(|plot| format!("{} of {}", plot.rounds, kib(plot.block_bytes)))
        .collect();
    let plots = outcome.plots.iter().map(|plot| {
        let verdicts: Vec<String> = plot.patterns.iter().map(verdict).collect();
        let named = named(outcome, plot.who);
        let block = kib(plot.block_bytes);
        let more =
            [("named", named.into()), ("block", block.into()), ("verdicts", verdicts.into())];
        row_with(plot, more)
    });
    let plots: Vec<Value> = plots.collect();
    let costs = outcome.costs.iter().map(|cost| {
        let more = [
            ("named", named(outcome, cost.who).into()),
            ("block", kib(cost.block_bytes).into()),
            ("each", in_us(&cost.us).into()),
            ("held", cost.loss.verdict.label().into()),
        ];
        row_with(cost, more)
    });
    let costs: Vec<Value> = costs.collect();
    let mistakes =
        costs.iter().filter(|cost| cost["cache"] == "warm" && cost["who"] == "scheduled");
    let squid = match &outcome.squid {
        Peer::Seen(version) => format!(
            "{version}, cache_dir ufs (its own blocking reads), no memory cache, pages of {}: \
             under strace, which slows each call; the counts are exact",
            kib(PAGE_BYTES)
        ),
        Peer::LeftOut => "left out".to_owned(),
        Peer::NotSupported(why) => format!("not supported here: {why}"),
    };
    let (medians, names) = medians(outcome);
    let ours = outcome.plot("store", "in", "warm", Set::OURS.block_bytes);
    json!({
        "rounds": rounds.join(", "),
        "was_cold": outcome.cold.iter().map(was_cold).collect::<Vec<_>>(),
        "squid": squid,
        "store": ours.map(|plot| &plot.reads),
        "read": plots.iter().filter(|plot| plot["reads"].is_object()).collect::<Vec<_>>(),
        "mistakes": mistakes.collect::<Vec<_>>(),
        "plots": plots,
        "costs": costs,
        "medians": medians,
        "median_names": names,
    })
}

/// Whether the page cache was cold, in words.
fn was_cold(cold: &super::Cold) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (asked, block) = (mib(cold.asked_bytes), kib(cold.block_bytes));
    match (cold.fetched_bytes.map(mib), cold.cold) {
        (Some(fetched), true) => format!(
            "{block}: {asked:.0} MiB read, {fetched:.0} MiB fetched from the device: it was cold; \
             names and inodes stayed in memory"
        ),
        (Some(fetched), false) => format!(
            "{block}: {asked:.0} MiB read, only {fetched:.0} MiB fetched from a device: not \
             supported here, left out"
        ),
        (None, _) => "the kernel does not report what it fetched: left out".to_owned(),
    }
}

/// The figure, warm or cold. `None` if nothing was measured in that state.
#[must_use]
pub(crate) fn figure(outcome: &Outcome, cache: &str) -> Option<String> {
    let panels = panels(outcome, cache);
    let drawn = panels.iter().any(|panel| !panel.curves.is_empty());
    let ground = &outcome.ground;
    let title = format!(
        "Median delay by object size, page cache {cache}: {} on {}, Linux {}",
        ground.file_system, ground.device, ground.kernel
    );
    let description = "Median delays of the first block and of the whole object, swap-in and \
                       swap-out, by object size, for our store, for readers of files with the \
                       mistake of 1997 and without, and for Squid.";
    drawn.then(|| svg_curves(&title, description, &panels))
}

/// The name of a reader in a few words.
fn named(outcome: &Outcome, who: &str) -> String {
    match (who, &outcome.squid) {
        ("store", _) => "our store".into(),
        ("exact", _) => "files, fixed".into(),
        ("again", _) => "files, extra read".into(),
        ("scheduled", _) => "files, as in 1997".into(),
        (_, Peer::Seen(version)) => version.clone(),
        _ => who.into(),
    }
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes / 1024)
}

/// `holds 0.61 µs`
fn verdict(pattern: &Pattern) -> String {
    let verdict = match pattern.verdict {
        Verdict::Holds => "holds",
        Verdict::DoesNot => "no",
        Verdict::Inconclusive => "?",
    };
    format!("{verdict} {}", pattern.short)
}

/// The medians of some bins, and the names of the plots.
fn medians(outcome: &Outcome) -> (Vec<Value>, Vec<String>) {
    let (ours, of_1997) = (Set::OURS.block_bytes, Set::OF_1997.block_bytes);
    let shown = [
        ("store", "in", ours),
        ("store", "out", ours),
        ("exact", "in", of_1997),
        ("scheduled", "in", of_1997),
        ("squid", "in", PAGE_BYTES),
    ];
    let plots: Vec<&Plot> = shown
        .iter()
        .filter_map(|(who, direction, block)| outcome.plot(who, direction, "warm", *block))
        .collect();
    let names: Vec<String> = plots
        .iter()
        .map(|plot| format!("{}, {}", named(outcome, plot.who), plot.direction))
        .collect();
    let rows = SHOWN_KIB.iter().filter_map(|low| {
        let bin = |plot: &&Plot| plot.bins.iter().find(|bin| bin.low_kib == *low).cloned();
        let bins: Vec<Option<Bin>> = plots.iter().map(bin).collect();
        let high = bins.iter().flatten().next()?.high_kib;
        let cells: Vec<String> = bins
            .iter()
            .map(|bin| match bin {
                Some(bin) => format!("{:.1} / {:.1}", bin.first_us, bin.total_us),
                None => NONE.to_owned(),
            })
            .collect();
        Some(json!({"kib": format!("{low}..{high}"), "cells": cells}))
    });
    (rows.collect(), names)
}

/// Swap-ins and, from a warm page cache, swap-outs: of our store, of files, and of Squid.
fn panels(outcome: &Outcome, cache: &str) -> Vec<Panel> {
    let mut panels = Vec::new();
    let mut put = |title: &str, readers: [&[&str]; 2], block_bytes: u64| {
        for ((direction, name), readers) in
            [("in", "swap-in"), ("out", "swap-out")].iter().zip(readers)
        {
            if *direction == "in" || cache == "warm" {
                let title = format!("{title}: {name}");
                panels.push(size_panel(outcome, &title, (readers, direction), cache, block_bytes));
            }
        }
    };
    put("Our store as it is", [&["store"], &["store"]], Set::OURS.block_bytes);
    for set in [Set::OURS, Set::OF_1997] {
        let title = format!("A file for each object, blocks of {}", kib(set.block_bytes));
        put(&title, [&["scheduled", "exact"], &["exact"]], set.block_bytes);
    }
    if let (Peer::Seen(version), "warm") = (&outcome.squid, cache) {
        let title = format!("{version}, ufs, under strace");
        put(&title, [&["squid"], &["squid"]], PAGE_BYTES);
    }
    panels
}

fn size_panel(
    outcome: &Outcome,
    title: &str,
    (readers, direction): (&[&str], &str),
    cache: &str,
    block_bytes: u64,
) -> Panel {
    let tones = [(Tone::First, Tone::Second), (Tone::Third, Tone::Fourth)];
    let mut curves = Vec::new();
    for (who, (first, total)) in readers.iter().zip(tones) {
        let Some(plot) = outcome.plot(who, direction, cache, block_bytes) else { continue };
        let of = match (readers.len(), *who) {
            (1, _) => "",
            (_, "exact") => ", fixed",
            _ => ", mistake of 1997",
        };
        // The total is drawn below the first delay. Both are the same for one block, and the first
        // has to be visible.
        curves.push(by_size(plot, &format!("total{of}"), total, |bin| bin.total_us));
        curves.push(by_size(plot, &format!("first block{of}"), first, |bin| bin.first_us));
    }
    let end = curves.iter().flat_map(|curve| &curve.points).map(|p| p.0).fold(0.0, f64::max);
    let block_kib = block_bytes as f64 / 1024.0;
    let marks = (1..)
        .map(|block| (block_kib * f64::from(block), block + 1))
        .take_while(|(at, _)| *at <= end)
        .map(|(at, blocks)| match blocks {
            2 => (at, "2 blocks".to_owned()),
            _ => (at, blocks.to_string()),
        })
        .collect();
    let axis = ("object size, KiB", Ticks::Binary);
    Panel { marks, ..panel(title, axis, "median delay, µs", curves) }
}

fn by_size(plot: &Plot, name: &str, tone: Tone, of: fn(&Bin) -> f64) -> Curve {
    let points = plot.bins.iter().map(|bin| {
        let Bin { low_kib, high_kib, n, .. } = bin;
        let label = format!("{low_kib} to {high_kib} KiB: {name} {:.1} µs (n = {n})", of(bin));
        (f64::midpoint(*low_kib as f64, *high_kib as f64), of(bin), label)
    });
    curve(name, (tone, Stroke::Joined), points)
}
