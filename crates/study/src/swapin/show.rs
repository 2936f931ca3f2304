//! What was found, as text and as a figure.

use report::sheet::{Curve, Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};

use super::measure::Set;
use super::patterns::{Pattern, Verdict, in_us};
use super::squid::PAGE_BYTES;
use super::{Bin, Outcome, Peer, Plot};

/// The bins of the table of medians, by their lower ends in KiB.
const SHOWN_KIB: [u64; 11] = [0, 3, 7, 8, 15, 16, 30, 34, 62, 66, 126];

/// What the columns of the table of verdicts mean.
const STANDS_FOR: &str = "Steps: a further block costs so much at equal size. Blurred: not the one \
    behind the third. First = total: of objects of one block. Equal first: the first delay beyond \
    one block over that of one. Beyond: the same of three blocks and more over two. Drop: it falls \
    so much behind the end of the first block, which betrays the extra read. ?: cannot be told.";

/// What is said of it: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let tables = vec![
        reads(outcome),
        costs(outcome),
        verdicts(outcome, "warm"),
        verdicts(outcome, "cold"),
        medians(outcome),
    ];
    let tables = tables.into_iter().filter(|table| !table.rows.is_empty()).collect();
    let title = "The swap-in bug of 1997 on this machine".to_owned();
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure, warm or cold. `None`: nothing was measured so.
#[must_use]
pub fn figure(outcome: &Outcome, cache: &str) -> Option<String> {
    let panels = match cache {
        "warm" => warm_panels(outcome),
        _ => cold_panels(outcome),
    };
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

/// Who is meant, in a few words.
fn named(outcome: &Outcome, who: &str) -> String {
    match (who, &outcome.squid) {
        ("store", _) => "our store".into(),
        ("exact", _) => "files, cured".into(),
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
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let rounds: Vec<String> = [Set::OURS, Set::OF_1997]
        .iter()
        .filter_map(|set| outcome.plot("exact", "in", "warm", set.block_bytes))
        .map(|plot| format!("{} of {}", plot.rounds, kib(plot.block_bytes)))
        .collect();
    let build = if ground.checked_build { "; a build with checks, not --release" } else { "" };
    let mut facts = vec![
        fact(
            "Environment",
            format!(
                "{} on {}, Linux {}, {} x {}{build}",
                ground.file_system,
                ground.device,
                ground.kernel,
                ground.processors,
                ground.processor
            ),
        ),
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
        let asked = cold.asked_bytes as f64 / f64::from(1 << 20);
        let fetched = cold.fetched_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        let text = match (fetched, cold.cold) {
            (Some(fetched), true) => format!(
                "{}: {asked:.0} MiB read, {fetched:.0} MiB fetched from the device: it was cold; \
                 names and inodes stayed in memory",
                kib(cold.block_bytes)
            ),
            (Some(fetched), false) => format!(
                "{}: {asked:.0} MiB read, only {fetched:.0} MiB fetched from a device: not \
                 supported here, left out",
                kib(cold.block_bytes)
            ),
            (None, _) => "the kernel does not tell what it fetched: left out".to_owned(),
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

/// The answer to the two questions.
fn headline(outcome: &Outcome) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let ours = outcome.plot("store", "in", "warm", Set::OURS.block_bytes);
    if let Some(reads) = ours.and_then(|plot| plot.reads.as_ref()) {
        let text = format!(
            "our store read {} of {} objects by exactly one read a block, and {} times nothing",
            reads.exact, reads.objects, reads.zero
        );
        facts.push(("Cure".to_owned(), text));
    }
    let costs = outcome.costs.iter().filter(|cost| cost.cache == "warm" && cost.who == "scheduled");
    for cost in costs {
        let text = format!(
            "the extra read of 1997 costs {} an object with blocks of {}; below one block {}",
            in_us(&cost.us),
            kib(cost.block_bytes),
            cost.loss.text
        );
        facts.push(("Mistake".to_owned(), text));
    }
    facts
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn reads(outcome: &Outcome) -> Rows {
    let rows = outcome.plots.iter().filter_map(|plot| {
        let reads = plot.reads.as_ref()?;
        Some(vec![
            named(outcome, plot.who),
            kib(plot.block_bytes),
            plot.cache.to_owned(),
            reads.objects.to_string(),
            reads.blocks.to_string(),
            reads.reads.to_string(),
            reads.zero.to_string(),
            reads.short.to_string(),
            reads.exact.to_string(),
            reads.one_more.to_string(),
            reads.would_block.to_string(),
        ])
    });
    Rows {
        title: "Reads, counted".into(),
        columns: columns(&[
            "<who", "<block", "<cache", "objects", "blocks", "reads", "gave 0", "short", "exact",
            "one more", "blocked",
        ]),
        rows: rows.collect(),
        note: "Short: reads that gave the part of a block that the page cache had. Exact: objects \
               with one read a block, short ones not counted; one more: and one that gave nothing. \
               Blocked: reads that went to the pool."
            .into(),
    }
}

fn costs(outcome: &Outcome) -> Rows {
    let rows = outcome.costs.iter().map(|cost| {
        vec![
            named(outcome, cost.who),
            kib(cost.block_bytes),
            cost.cache.to_owned(),
            in_us(&cost.us),
            cost.loss.text.clone(),
            cost.loss.verdict.label().to_owned(),
        ]
    });
    Rows {
        title: "What the old mistake costs, against the same files read well".into(),
        columns: columns(&[
            "<who",
            "<block",
            "<cache",
            "<an object",
            "<below one block",
            "<more than 80 %",
        ]),
        rows: rows.collect(),
        note: "Medians of differences in the same round, with 95 % intervals over objects.".into(),
    }
}

/// The plots that verdicts are tabled for: swap-ins, and the swap-outs of those that write.
fn judged<'o>(outcome: &'o Outcome, cache: &'o str) -> impl Iterator<Item = &'o Plot> {
    outcome.plots.iter().filter(move |plot| plot.cache == cache)
}

fn verdicts(outcome: &Outcome, cache: &str) -> Rows {
    let rows = judged(outcome, cache).map(|plot| {
        let mut row = vec![
            format!("{}, {}", named(outcome, plot.who), plot.direction),
            kib(plot.block_bytes),
        ];
        row.extend(plot.patterns.iter().map(judgement));
        row
    });
    Rows {
        title: format!("The patterns of 1997, page cache {cache}"),
        columns: columns(&[
            "<who",
            "<block",
            "<steps",
            "<blurred after 3",
            "<first = total",
            "<equal first",
            "<beyond",
            "<drop",
        ]),
        rows: rows.collect(),
        note: STANDS_FOR.into(),
    }
}

/// `holds 0.61 µs`
fn judgement(pattern: &Pattern) -> String {
    let verdict = match pattern.verdict {
        Verdict::Holds => "holds",
        Verdict::DoesNot => "no",
        Verdict::CannotTell => "?",
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
    let mut names = vec!["<KiB".to_owned()];
    for plot in &plots {
        names.push(format!("{}, {}", named(outcome, plot.who), plot.direction));
    }
    let rows = SHOWN_KIB.iter().filter_map(|low| {
        let bin = |plot: &Plot| plot.bins.iter().find(|bin| bin.low_kib == *low).cloned();
        let bins: Vec<Option<Bin>> = plots.iter().map(|plot| bin(plot)).collect();
        let high = bins.iter().flatten().next()?.high_kib;
        let mut row = vec![format!("{low}..{high}")];
        row.extend(bins.iter().map(|bin| match bin {
            Some(bin) => format!("{:.1} / {:.1}", bin.first_us, bin.total_us),
            None => "-".to_owned(),
        }));
        Some(row)
    });
    Rows {
        title: "Medians in µs, first block / total, page cache warm".into(),
        rows: rows.collect(),
        columns: names,
        note: "Blocks of our store: 32 KiB; of the files: 8 KiB; of Squid: 4 KiB.".into(),
    }
}

fn warm_panels(outcome: &Outcome) -> Vec<Panel> {
    let mut panels = Vec::new();
    let ours = Set::OURS.block_bytes;
    panels.push(panel(outcome, "Our store as it is: swap-in", &[("store", "in")], "warm", ours));
    panels.push(panel(outcome, "Our store as it is: swap-out", &[("store", "out")], "warm", ours));
    for set in [Set::OURS, Set::OF_1997] {
        let block = set.block_bytes;
        let title = format!("A file an object, blocks of {}: swap-in", kib(block));
        let ways = [("scheduled", "in"), ("exact", "in")];
        panels.push(panel(outcome, &title, &ways, "warm", block));
        let title = format!("A file an object, blocks of {}: swap-out", kib(block));
        panels.push(panel(outcome, &title, &[("exact", "out")], "warm", block));
    }
    let squid = named(outcome, "squid");
    for (direction, name) in [("in", "swap-in"), ("out", "swap-out")] {
        let title = format!("{squid}, ufs, under strace: {name}");
        panels.push(panel(outcome, &title, &[("squid", direction)], "warm", PAGE_BYTES));
    }
    if !matches!(outcome.squid, Peer::Seen(_)) {
        panels.truncate(panels.len() - 2);
    }
    panels
}

fn cold_panels(outcome: &Outcome) -> Vec<Panel> {
    let ours = Set::OURS.block_bytes;
    let mut panels =
        vec![panel(outcome, "Our store as it is: swap-in", &[("store", "in")], "cold", ours)];
    for set in [Set::OURS, Set::OF_1997] {
        let title = format!("A file an object, blocks of {}: swap-in", kib(set.block_bytes));
        let ways = [("scheduled", "in"), ("exact", "in")];
        panels.push(panel(outcome, &title, &ways, "cold", set.block_bytes));
    }
    panels
}

fn panel(
    outcome: &Outcome,
    title: &str,
    ways: &[(&str, &str)],
    cache: &str,
    block_bytes: u64,
) -> Panel {
    let tones = [(Tone::First, Tone::Second), (Tone::Third, Tone::Fourth)];
    let mut curves = Vec::new();
    for ((who, direction), (first, total)) in ways.iter().zip(tones) {
        let Some(plot) = outcome.plot(who, direction, cache, block_bytes) else { continue };
        let of = match (ways.len(), *who) {
            (1, _) => "",
            (_, "exact") => ", cured",
            _ => ", mistake of 1997",
        };
        // The total below the first, which is the same for one block and must be seen.
        curves.push(curve(plot, &format!("total{of}"), total, |bin| bin.total_us));
        curves.push(curve(plot, &format!("first block{of}"), first, |bin| bin.first_us));
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
    Panel {
        title: title.to_owned(),
        x: "object size, KiB".into(),
        ticks: Ticks::Binary,
        y: "median delay, µs".into(),
        marks,
        curves,
        note: "not measured".into(),
    }
}

fn curve(plot: &Plot, name: &str, tone: Tone, of: fn(&Bin) -> f64) -> Curve {
    let points = plot
        .bins
        .iter()
        .map(|bin| {
            let middle = f64::midpoint(bin.low_kib as f64, bin.high_kib as f64);
            let title = format!(
                "{} to {} KiB: {name} {:.1} µs (n = {})",
                bin.low_kib,
                bin.high_kib,
                of(bin),
                bin.n
            );
            (middle, of(bin), title)
        })
        .collect();
    Curve { name: name.to_owned(), tone, stroke: Stroke::Joined, points }
}
