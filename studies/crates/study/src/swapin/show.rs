//! What the page shows in addition to the plots: their tables, and the figures.

use harness::Environment;
use report::sheet::{Curve, Panel, Stroke, Ticks, Tone, svg_curves};
use serde_json::{Value, json};

use super::files::Reader;
use super::measure::Set;
use super::patterns::{Pattern, Verdict};
use super::{Bin, Plot, Results};
use crate::found::with;
use crate::show::{NONE, curve, panel};

/// The bins of the table of medians, by their lower ends in KiB.
const SHOWN_KIB: [u64; 11] = [0, 3, 7, 8, 15, 16, 30, 34, 62, 66, 126];

/// Results for the page.
pub(super) fn for_page(results: &Results) -> Value {
    let rounds: Vec<String> = [Set::OURS, Set::OF_1997]
        .iter()
        .filter_map(|set| results.plot(Reader::Exact, "in", "warm", set.block_bytes))
        .map(|plot| format!("{} of {}", plot.rounds, kib(plot.block_bytes)))
        .collect();
    let plots = results.plots.iter().map(|plot| {
        let verdicts: Vec<String> = plot.patterns.iter().map(verdict).collect();
        let (named, block) = (plot.who.named(), kib(plot.block_bytes));
        with(plot, json!({"named": named, "block": block, "verdicts": verdicts}))
    });
    let plots: Vec<Value> = plots.collect();
    let costs = results.costs.iter().map(|cost| {
        let loss = &cost["loss"];
        let [value, low, high] =
            [&loss["value"], &loss["interval"][0], &loss["interval"][1]].map(|end| match end {
                Value::Null => NONE.to_owned(),
                end => format!("{:.1}", end.as_f64().unwrap_or(f64::NAN)),
            });
        let text = format!("the loss is {value} % ({low} to {high})");
        let block = kib(cost["block_bytes"].as_u64().unwrap_or(0));
        with(cost, json!({"block": block, "text": text}))
    });
    let costs: Vec<Value> = costs.collect();
    let mistakes =
        costs.iter().filter(|cost| cost["cache"] == "warm" && cost["who"] == "scheduled");
    let (medians, names) = medians(results);
    let ours = results.plot(Reader::Store, "in", "warm", Set::OURS.block_bytes);
    json!({
        "rounds": rounds.join(", "),
        "was_cold": results.cold.iter().map(was_cold).collect::<Vec<_>>(),
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
fn was_cold(cold: &Value) -> String {
    let mib = |bytes: &Value| bytes.as_f64().map(|bytes| bytes / f64::from(1 << 20));
    let block = kib(cold["block_bytes"].as_u64().unwrap_or(0));
    let asked = mib(&cold["asked_bytes"]).unwrap_or(0.0);
    match mib(&cold["fetched_bytes"]) {
        Some(fetched) if cold["cold"] == true => format!(
            "{block}: {asked:.0} MiB read, {fetched:.0} MiB fetched from the device: it was cold; \
             names and inodes stayed in memory"
        ),
        Some(fetched) => format!(
            "{block}: {asked:.0} MiB read, only {fetched:.0} MiB fetched from a device: not \
             supported here, left out"
        ),
        None => "the kernel does not report what it fetched: left out".to_owned(),
    }
}

/// The figure, warm or cold. `None` if nothing was measured in that state.
pub(super) fn figure(results: &Results, ground: &Environment, cache: &str) -> Option<String> {
    let panels = panels(results, cache);
    let drawn = panels.iter().any(|panel| !panel.curves.is_empty());
    let title = format!(
        "Median delay by object size, page cache {cache}: {} on {}, Linux {}",
        ground.file_system, ground.device, ground.kernel
    );
    let description = "Median delays of the first block and of the whole object, swap-in and \
                       swap-out, by object size, for our store, and for readers of files with the \
                       mistake of 1997 and without.";
    drawn.then(|| svg_curves(&title, description, &panels))
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
fn medians(results: &Results) -> (Vec<Value>, Vec<String>) {
    let (ours, of_1997) = (Set::OURS.block_bytes, Set::OF_1997.block_bytes);
    let shown = [
        (Reader::Store, "in", ours),
        (Reader::Store, "out", ours),
        (Reader::Exact, "in", of_1997),
        (Reader::Scheduled, "in", of_1997),
    ];
    let plots: Vec<&Plot> = shown
        .iter()
        .filter_map(|(who, direction, block)| results.plot(*who, direction, "warm", *block))
        .collect();
    let name = |plot: &&Plot| format!("{}, {}", plot.who.named(), plot.direction);
    let names: Vec<String> = plots.iter().map(name).collect();
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

/// Swap-ins and, from a warm page cache, swap-outs: of our store, and of files.
fn panels(results: &Results, cache: &str) -> Vec<Panel> {
    let of_files = |set: Set| {
        let title = format!("A file for each object, blocks of {}", kib(set.block_bytes));
        (title, &[Reader::Scheduled, Reader::Exact][..], Reader::Exact, set)
    };
    let ours = ("Our store as it is".to_owned(), &[Reader::Store][..], Reader::Store, Set::OURS);
    let mut panels = Vec::new();
    for (title, read, written, set) in [ours, of_files(Set::OURS), of_files(Set::OF_1997)] {
        let mut put = |name: &str, readers: &[Reader], direction: &str| {
            let title = format!("{title}: {name}");
            panels.push(size_panel(results, &title, (readers, direction), cache, set.block_bytes));
        };
        put("swap-in", read, "in");
        if cache == "warm" {
            put("swap-out", &[written], "out");
        }
    }
    panels
}

fn size_panel(
    results: &Results,
    title: &str,
    (readers, direction): (&[Reader], &str),
    cache: &str,
    block_bytes: u64,
) -> Panel {
    let tones = [(Tone::First, Tone::Second), (Tone::Third, Tone::Fourth)];
    let mut curves = Vec::new();
    for (who, (first, total)) in readers.iter().zip(tones) {
        let Some(plot) = results.plot(*who, direction, cache, block_bytes) else { continue };
        let of = match (readers.len(), *who) {
            (1, _) => "",
            (_, Reader::Exact) => ", fixed",
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
