//! The results as text and as a figure.

use report::sheet::{Curve, Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};

use super::measure::Set;
use super::patterns::{Pattern, Verdict, in_us};
use super::squid::PAGE_BYTES;
use super::{Bin, Outcome, Peer, Plot};
use crate::show::{NONE, curve, fact, panel, table};

/// The bins of the table of medians, by their lower ends in KiB.
const SHOWN_KIB: [u64; 11] = [0, 3, 7, 8, 15, 16, 30, 34, 62, 66, 126];

/// The meaning of the columns of the table of verdicts.
const LEGEND: &str = "Steps: the cost of one more block at equal size. Blurred: no such step after \
    the third block. First = total: for objects of one block. Equal first: the first delay beyond \
    one block relative to that of one. Beyond: the same of three blocks and more relative to two. \
    Drop: how much it drops after the end of the first block, which reveals the extra read. ?: \
    inconclusive.";

/// The results: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let mut tables = vec![
        reads(outcome),
        costs(outcome),
        verdicts(outcome, "warm"),
        verdicts(outcome, "cold"),
        medians(outcome),
    ];
    tables.retain(|table| !table.rows.is_empty());
    let title = "The swap-in bug of 1997 on this machine".to_owned();
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure, warm or cold. `None` if nothing was measured in that state.
#[must_use]
pub fn figure(outcome: &Outcome, cache: &str) -> Option<String> {
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

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let ground = &outcome.ground;
    let rounds: Vec<String> = [Set::OURS, Set::OF_1997]
        .iter()
        .filter_map(|set| outcome.plot("exact", "in", "warm", set.block_bytes))
        .map(|plot| format!("{} of {}", plot.rounds, kib(plot.block_bytes)))
        .collect();
    let machine = format!("{} on {}, {}", ground.file_system, ground.device, ground.machine());
    let mut facts = vec![
        fact("Environment", machine),
        fact(
            "Measured",
            format!(
                "{} objects of each set; rounds with blocks {}; seed {}",
                outcome.objects,
                rounds.join(", "),
                outcome.seed
            ),
        ),
    ];
    for cold in &outcome.cold {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (asked, block) = (mib(cold.asked_bytes), kib(cold.block_bytes));
        let text = match (cold.fetched_bytes.map(mib), cold.cold) {
            (Some(fetched), true) => format!(
                "{block}: {asked:.0} MiB read, {fetched:.0} MiB fetched from the device: it was \
                 cold; names and inodes stayed in memory"
            ),
            (Some(fetched), false) => format!(
                "{block}: {asked:.0} MiB read, only {fetched:.0} MiB fetched from a device: not \
                 supported here, left out"
            ),
            (None, _) => "the kernel does not report what it fetched: left out".to_owned(),
        };
        facts.push(fact("Cold", text));
    }
    let squid = match &outcome.squid {
        Peer::Seen(version) => format!(
            "{version}, cache_dir ufs (its own blocking reads), no memory cache, pages of {}: \
             under strace, which slows each call; the counts are exact",
            kib(PAGE_BYTES)
        ),
        Peer::LeftOut => "left out".to_owned(),
        Peer::NotSupported(why) => format!("not supported here: {why}"),
    };
    facts.push(fact("Squid", squid));
    facts.extend(headline(outcome));
    facts
}

/// The answers to the two questions.
fn headline(outcome: &Outcome) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let ours = outcome.plot("store", "in", "warm", Set::OURS.block_bytes);
    if let Some(reads) = ours.and_then(|plot| plot.reads.as_ref()) {
        let text = format!(
            "our store read {} of {} objects by exactly one read a block; {} reads gave nothing",
            reads.exact, reads.objects, reads.zero
        );
        facts.push(fact("Fix", text));
    }
    let costs = outcome.costs.iter().filter(|cost| cost.cache == "warm" && cost.who == "scheduled");
    facts.extend(costs.map(|cost| {
        let text = format!(
            "the extra read of 1997 costs {} an object with blocks of {}; below one block {}",
            in_us(&cost.us),
            kib(cost.block_bytes),
            cost.loss.text
        );
        fact("Mistake", text)
    }));
    facts
}

fn reads(outcome: &Outcome) -> Rows {
    let rows = outcome.plots.iter().filter_map(|plot| {
        let reads = plot.reads.as_ref()?;
        let mut row = vec![named(outcome, plot.who), kib(plot.block_bytes), plot.cache.to_owned()];
        let counts = [
            reads.objects,
            reads.blocks,
            reads.reads,
            reads.zero,
            reads.short,
            reads.exact,
            reads.one_more,
            reads.would_block,
        ];
        row.extend(counts.map(|count| count.to_string()));
        Some(row)
    });
    table(
        "Reads, counted",
        &[
            "<reader", "<block", "<cache", "objects", "blocks", "reads", "gave 0", "short",
            "exact", "one more", "blocked",
        ],
        rows,
        "Short: reads that gave only the part of a block that the page cache had. Exact: objects \
         with one read a block, not counting short ones; one more: with one more read, which gave \
         nothing. Blocked: reads that went to the pool.",
    )
}

fn costs(outcome: &Outcome) -> Rows {
    let rows = outcome.costs.iter().map(|cost| {
        [
            named(outcome, cost.who),
            kib(cost.block_bytes),
            cost.cache.to_owned(),
            in_us(&cost.us),
            cost.loss.text.clone(),
            cost.loss.verdict.label().to_owned(),
        ]
    });
    table(
        "The cost of the old mistake, relative to reading the same files without it",
        &["<reader", "<block", "<cache", "<an object", "<below one block", "<more than 80 %"],
        rows,
        "Medians of differences in the same round, with 95 % intervals over objects.",
    )
}

fn verdicts(outcome: &Outcome, cache: &str) -> Rows {
    let rows = outcome.plots.iter().filter(|plot| plot.cache == cache).map(|plot| {
        let name = format!("{}, {}", named(outcome, plot.who), plot.direction);
        let mut row = vec![name, kib(plot.block_bytes)];
        row.extend(plot.patterns.iter().map(verdict));
        row
    });
    table(
        format!("The patterns of 1997, page cache {cache}"),
        &[
            "<reader",
            "<block",
            "<steps",
            "<blurred after 3",
            "<first = total",
            "<equal first",
            "<beyond",
            "<drop",
        ],
        rows,
        LEGEND,
    )
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

fn medians(outcome: &Outcome) -> Rows {
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
        let mut row = vec![format!("{low}..{high}")];
        row.extend(bins.iter().map(|bin| match bin {
            Some(bin) => format!("{:.1} / {:.1}", bin.first_us, bin.total_us),
            None => NONE.to_owned(),
        }));
        Some(row)
    });
    let mut table = table(
        "Medians in µs, first block / total, page cache warm",
        &["<KiB"],
        rows,
        "Blocks of our store: 32 KiB; of the files: 8 KiB; of Squid: 4 KiB.",
    );
    table.columns.extend(names);
    table
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
