//! The results as text and as a figure.

use report::format::thousands;
use report::sheet::{Curve, Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};

use crate::drivers::{ROOM_TASKS, TASKS_A_USER, USERS};
use crate::facts::Facts;
use crate::simulate::{BOUND_COLOURS, L2_KIB};
use crate::{Counters, Driver, Gain, Given, Held, Layout, Missed, Outcome, Physical};
use harness::environment::load_averages;
use harness::rounds::{Figure, digits};

/// The most processors in the paper.
const PUBLISHED_CPUS: u32 = 8;
const COLOURS: Layout = Layout::Colours(32);
const NOT_SUPPORTED: &str = "not supported here";

/// The results as facts and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "The run queue of Linux 2.4.4, and colours (2002), on this machine".to_owned();
    let tables = vec![
        walks(outcome),
        bound(outcome),
        gains("Table 4: throughput over vanilla, WebBench-like", &outcome.table4),
        gains("The same, Chat-like", &outcome.chat_gains),
        misses("Table 5: misses in the walk, WebBench-like", &outcome.table5),
        locks("Table 6: the run queue's lock, WebBench-like", &outcome.table6),
        misses("Table 7: misses in the walk, Chat-like", &outcome.table7),
        locks("Table 8: the run queue's lock, Chat-like", &outcome.table8),
    ];
    let tables = tables.into_iter().chain(counted(outcome)).collect();
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: misses by cache size, lock holds, throughput and contention.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let ground = &outcome.ground;
    let title = format!("The run queue and colours: {}, Linux {}", ground.processor, ground.kernel);
    let description = "Misses in the walk by size of the cache; how long the run queue's lock is \
                       held by number of tasks; throughput to vanilla and contention by number of \
                       processors, published and here.";
    let panels = [misses_panel(outcome), holds_panel(outcome)];
    let panels: Vec<Panel> =
        panels.into_iter().chain([gains_panel(outcome), contention_panel(outcome)]).collect();
    svg_curves(&title, description, &panels)
}

fn percent(value: f64) -> String {
    match value {
        v if !v.is_finite() => "-".to_owned(),
        v if v > 0.0 && v < 0.05 => "<0.1 %".to_owned(),
        v => format!("{v:.1} %"),
    }
}

fn published(value: Option<f64>) -> String {
    value.map_or_else(String::new, percent)
}

/// A ratio as the difference from one: `+23.3 % (+20.1 to +26.4)`.
fn over(ratio: &Figure) -> String {
    let one = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
    match ratio.interval {
        _ if !ratio.value.is_finite() => "-".to_owned(),
        Some((low, high)) => format!("{} % ({} to {})", one(ratio.value), one(low), one(high)),
        None => format!("{} % (one round)", one(ratio.value)),
    }
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn number(value: u32) -> String {
    thousands(f64::from(value))
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let known = Facts::read();
    let mut facts = vec![
        fact("Environment", outcome.ground.machine()),
        fact("Others", load_averages(outcome.load_average)),
        fact(
            "Timed",
            format!(
                "{} rounds of {} s a cell, layouts interleaved; seed {}",
                outcome.rounds,
                digits(outcome.visit_s),
                outcome.seed
            ),
        ),
        fact("Published", known.source.title),
        fact("WebBench", format!("published: {}", known.machine.webbench)),
        fact(
            "Chat",
            format!(
                "published: {}. Here rooms of {USERS} users with {TASKS_A_USER} tasks each, one \
                 for {ROOM_TASKS} tasks",
                known.machine.chat
            ),
        ),
    ];
    for machine in &outcome.machines {
        let levels = format!("{}; {}", machine.l1.text(), machine.l2.text());
        facts.push(fact("Cache", format!("{}: {levels}", machine.name)));
    }
    facts.push(match &outcome.physical {
        Physical::Known { together_percent } => fact(
            "Frames",
            format!(
                "reported by the kernel: {} of the blocks' pages are followed by the next page in \
                 physical memory; below a hypervisor the real memory may differ",
                percent(*together_percent)
            ),
        ),
        Physical::Unknown(why) => {
            fact("Frames", format!("the physical addresses of the timed blocks are unknown: {why}"))
        }
    });
    if let Counters::NotSupported(why) = &outcome.counters {
        facts.push(fact("Counters", format!("{NOT_SUPPORTED}: {why}")));
    }
    if !outcome.left_out.is_empty() {
        let numbers: Vec<String> = outcome.left_out.iter().map(|n| number(*n)).collect();
        let text = format!("{NOT_SUPPORTED}: {} of this machine", outcome.ground.processors);
        facts.push(fact("CPUs", format!("{}: {text}", numbers.join(", "))));
    }
    let held = outcome.bound.iter().filter(|cell| cell.holds).count();
    facts.push(fact(
        "Bound",
        format!("c >= 8 p / s holds in {held} of {} cells with dense frames", outcome.bound.len()),
    ));
    facts
}

/// Table 2, for all caches.
fn walks(outcome: &Outcome) -> Rows {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let same = |one: &crate::Walked, other: &crate::Walked| {
        (&one.machine, one.runnable, one.layout) == (&other.machine, other.runnable, other.layout)
    };
    for (at, walked) in outcome.table2.iter().enumerate() {
        if outcome.table2[..at].iter().any(|earlier| same(earlier, walked)) {
            continue;
        }
        let of = |frames: Given| {
            let all = outcome.table2.iter().filter(|other| same(other, walked));
            let found = all.into_iter().find(|other| other.frames == frames);
            found.map_or_else(String::new, |found| percent(found.missed_percent))
        };
        rows.push(vec![
            short(&walked.machine),
            number(walked.runnable),
            walked.layout.to_string(),
            of(Given::Dense),
            of(Given::Random),
            of(Given::Here),
            published(walked.published_percent),
        ]);
    }
    let frames = [Given::Dense, Given::Random, Given::Here].map(Given::label);
    let names = ["~cache", "tasks", "<layout", frames[0], frames[1], frames[2], "published"];
    Rows {
        title: "Table 2: misses in the walk, by size of the cache and by frames".into(),
        columns: columns(&names),
        rows,
        note: "Tasks walked over that were not in the second level. Dense: consecutive blocks. \
               Random: anywhere in 1 GiB. As here: as the kernel has allocated them. By set \
               index: the same colours taken from the wrong address bits."
            .into(),
    }
}

/// Shortens `Pentium III Xeon (2002), 256 KiB` to `2002, 256 KiB`.
fn short(machine: &str) -> String {
    machine.replace("Pentium III Xeon (2002)", "2002")
}

fn bound(outcome: &Outcome) -> Rows {
    let mut rows = Vec::new();
    for l2_kib in L2_KIB {
        let of_size = || outcome.bound.iter().filter(|cell| cell.l2_kib == l2_kib);
        let mut numbers: Vec<u32> = of_size().map(|cell| cell.runnable).collect();
        numbers.dedup();
        for runnable in numbers {
            let needed = (8 * u64::from(runnable)).div_ceil(l2_kib);
            let mut row = vec![l2_kib.to_string(), number(runnable), needed.to_string()];
            for cell in of_size().filter(|cell| cell.runnable == runnable) {
                let mark = if cell.holds { "" } else { " !" };
                let (dense, random) = (cell.dense_percent, cell.random_percent);
                row.push(format!("{dense:.0}/{random:.0}{mark}"));
            }
            rows.push(row);
        }
    }
    let mut names = columns(&["KiB", "tasks", "c needed"]);
    names.extend(BOUND_COLOURS.map(|colours| format!("c={colours}")));
    Rows {
        title: "The bound of colours: misses per 100 tasks walked over, dense/random frames".into(),
        columns: names,
        rows,
        note: "With at least as many colours as needed, a walk over dense frames has no misses; \
               with fewer, it has some. ! marks cells where this is not so."
            .into(),
    }
}

fn gains(title: &str, gains: &[Gain]) -> Rows {
    let rows = gains.iter().filter(|gain| gain.layout != Layout::Vanilla).map(|gain| {
        vec![
            gain.cpus.to_string(),
            number(gain.runnable),
            gain.layout.to_string(),
            over(&gain.by_cpu_time),
            over(&gain.by_clock),
            gain.published_percent.map_or_else(String::new, |p| format!("{p:+.1} %")),
        ]
    });
    Rows {
        title: title.to_owned(),
        columns: columns(&[
            "CPUs",
            "tasks",
            "<layout",
            "~by CPU time",
            "~by the clock",
            "published",
        ]),
        rows: rows.collect(),
        note: "By CPU time: work per second of the threads' CPU time. 95 % intervals over rounds; \
               ratios within a round."
            .into(),
    }
}

fn misses(title: &str, missed: &[Missed]) -> Rows {
    let rows = missed.iter().map(|row| {
        vec![
            short(&row.machine),
            row.cpus.to_string(),
            number(row.runnable),
            row.layout.to_string(),
            digits(row.tasks_a_walk),
            percent(row.missed_percent),
            published(row.published_percent),
        ]
    });
    Rows {
        title: title.to_owned(),
        columns: columns(&["~cache", "CPUs", "tasks", "<layout", "a walk", "missed", "published"]),
        rows: rows.collect(),
        note: "Simulated while the workload runs, with dense frames and one cache per processor, \
               which loses lines that another processor writes. A walk: tasks per walk."
            .into(),
    }
}

fn locks(title: &str, held: &[Held]) -> Rows {
    let published = |held: &Held| {
        held.published.map_or_else(String::new, |published| {
            let max = published.hold_max_us.map_or("-".to_owned(), |max| format!("{max:.0}"));
            let mean = published.hold_mean_us;
            format!("{:.1} %, {mean:.0}, {max}", published.contention_percent)
        })
    };
    let rows = held.iter().map(|row| {
        vec![
            row.cpus.to_string(),
            number(row.runnable),
            row.layout.to_string(),
            percent(contention(row)),
            row.hold_mean_us.text(),
            digits(row.hold_max_us),
            digits(row.tasks_a_walk.value),
            published(row),
        ]
    });
    Rows {
        title: title.to_owned(),
        columns: columns(&[
            "CPUs",
            "tasks",
            "<layout",
            "contention",
            "~hold mean, µs",
            "max, µs",
            "a walk",
            "~published",
        ]),
        rows: rows.collect(),
        note:
            "Published: contention, hold mean and hold max in µs, for 256 httpd or 2400 threads. \
               The longest holds occur when the system preempts a processor that holds the lock."
                .into(),
    }
}

/// Attempts that found the lock held, percent.
fn contention(held: &Held) -> f64 {
    if held.contended == 0 { 0.0 } else { held.contention_percent.value }
}

fn counted(outcome: &Outcome) -> Option<Rows> {
    let Counters::Counted(walks) = &outcome.counters else { return None };
    let number = |count: Option<u64>| count.map_or("-".to_owned(), |count| thousands(count as f64));
    let rows = walks.iter().map(|walk| {
        let each = walk.misses.map(|misses| 100.0 * misses as f64 / walk.tasks.max(1) as f64);
        vec![
            walk.layout.to_string(),
            thousands(walk.tasks as f64),
            number(walk.references),
            number(walk.misses),
            published(each),
        ]
    });
    Some(Rows {
        title: "The processor's own counters over the walk".into(),
        columns: columns(&["<layout", "tasks", "references", "misses", "of the tasks"]),
        rows: rows.collect(),
        note: "Of the last-level cache, for a child that only walks.".into(),
    })
}

/// A curve in the style of a layout. Published ones are dashed.
fn curve(name: &str, layout: Layout, published: bool, points: Points) -> Curve {
    let tone = match layout {
        Layout::Vanilla => Tone::Second,
        Layout::Colours(_) => Tone::First,
        Layout::ColoursBySetIndex(_) => Tone::Fourth,
        Layout::MultiQueue => Tone::Third,
    };
    let stroke = if published { Stroke::Dashed } else { Stroke::Joined };
    Curve { name: name.to_owned(), tone, stroke, points }
}

type Points = Vec<(f64, f64, String)>;

/// The measured and the published curve of each layout.
fn compared(
    layouts: &[Layout],
    measured: impl Fn(Layout) -> Points,
    published: impl Fn(Layout) -> Points,
) -> Vec<Curve> {
    let pair = |&layout: &Layout| {
        let measured = curve(&layout.to_string(), layout, false, measured(layout));
        [measured, curve("", layout, true, published(layout))]
    };
    layouts.iter().flat_map(pair).collect()
}

fn panel(title: String, x: &str, y: &str, curves: Vec<Curve>) -> Panel {
    let ticks = if x == "processors" { Ticks::Decimal } else { Ticks::Binary };
    let curves = curves.into_iter().filter(|curve| !curve.points.is_empty()).collect();
    Panel {
        title,
        x: x.to_owned(),
        ticks,
        y: y.to_owned(),
        marks: Vec::new(),
        curves,
        note: "not measured".into(),
    }
}

fn most(outcome: &Outcome) -> u32 {
    outcome.table6.iter().map(|row| row.runnable).max().unwrap_or(0)
}

fn misses_panel(outcome: &Outcome) -> Panel {
    let facts = Facts::read();
    let runnable = most(outcome);
    let of = |layout: Layout, frames: Given| {
        let wanted =
            |w: &&crate::Walked| w.runnable == runnable && w.layout == layout && w.frames == frames;
        let here = outcome.table2.iter().filter(wanted).filter(|w| w.machine.contains("2002"));
        here.map(|w| (w.l2_kib as f64, w.missed_percent, percent(w.missed_percent))).collect()
    };
    let published = |layout: Layout| {
        let point =
            |kib: u64| facts.by_size(kib, layout).map(|share| (kib as f64, share, percent(share)));
        L2_KIB.into_iter().filter_map(point).collect()
    };
    let by_set = Layout::ColoursBySetIndex(32);
    let curves = vec![
        curve("vanilla", Layout::Vanilla, false, of(Layout::Vanilla, Given::Dense)),
        curve("32 colours, random frames", COLOURS, false, of(COLOURS, Given::Random)),
        curve("32 colours by set index", by_set, false, of(by_set, Given::Dense)),
        curve("32 colours, dense frames", Layout::MultiQueue, false, of(COLOURS, Given::Dense)),
        curve("", COLOURS, true, published(COLOURS)),
    ];
    let title = format!("Misses in a walk over {} (dashed: published)", number(runnable));
    panel(title, "KiB of the second level", "% of the tasks", curves)
}

fn holds_panel(outcome: &Outcome) -> Panel {
    let cpus = outcome.table6.iter().map(|row| row.cpus).max().unwrap_or(1);
    let of = |layout: Layout| {
        let wanted = |held: &&Held| held.cpus == cpus && held.layout == layout;
        let point = |held: &Held| {
            let us = held.hold_mean_us.value;
            (f64::from(held.runnable), us, format!("{} tasks: {us:.2} µs", held.runnable))
        };
        outcome.table6.iter().filter(wanted).map(point).collect()
    };
    let layouts = [Layout::Vanilla, COLOURS, Layout::MultiQueue];
    let curves = layouts.map(|layout| curve(&layout.to_string(), layout, false, of(layout)));
    let title = format!("The lock's mean hold here, WebBench-like, {cpus} processors");
    panel(title, "tasks that want to run", "µs", curves.to_vec())
}

fn gains_panel(outcome: &Outcome) -> Panel {
    let facts = Facts::read();
    let runnable = most(outcome);
    let of = |layout: Layout| {
        let wanted = |gain: &&Gain| gain.runnable == runnable && gain.layout == layout;
        let point = |gain: &Gain| {
            let share = 100.0 * gain.by_cpu_time.value;
            (f64::from(gain.cpus), share, format!("{} processors: {share:.1} %", gain.cpus))
        };
        outcome.table4.iter().filter(wanted).map(point).collect()
    };
    let published = |layout: Layout| {
        let point = |cpus: u32| {
            let share = 100.0 + facts.gain(Driver::WebBench, cpus, layout)?;
            Some((f64::from(cpus), share, format!("{cpus} processors: {share:.1} %")))
        };
        (1..=PUBLISHED_CPUS).filter_map(point).collect()
    };
    let curves = compared(&[COLOURS, Layout::MultiQueue], of, published);
    let title = format!("WebBench-like, {} tasks (dashed: published, 256)", number(runnable));
    panel(title, "processors", "% of vanilla's throughput by CPU time", curves)
}

fn contention_panel(outcome: &Outcome) -> Panel {
    let facts = Facts::read();
    let runnable = most(outcome);
    let of = |layout: Layout| {
        let wanted = |held: &&Held| held.runnable == runnable && held.layout == layout;
        let point = |held: &Held| {
            let share = contention(held);
            (f64::from(held.cpus), share, format!("{} processors: {share:.1} %", held.cpus))
        };
        outcome.table6.iter().filter(wanted).map(point).collect()
    };
    let published = |layout: Layout| {
        let point = |cpus: u32| {
            let share = facts.lock(Driver::WebBench, cpus, layout)?.contention_percent;
            Some((f64::from(cpus), share, format!("{cpus} processors: {share:.1} %")))
        };
        (2..=PUBLISHED_CPUS).filter_map(point).collect()
    };
    let curves = compared(&[Layout::Vanilla, COLOURS, Layout::MultiQueue], of, published);
    let title = format!("The lock, {} tasks (dashed: published, 256)", number(runnable));
    panel(title, "processors", "% of the attempts that found it held", curves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_not_shown_as_zero() {
        assert_eq!([0.0, 0.01, 8.24, f64::NAN].map(percent), ["0.0 %", "<0.1 %", "8.2 %", "-"]);
        let ratio = Figure { value: 1.233, interval: Some((1.2, 0.97)), rounds: 3 };
        assert_eq!(over(&ratio), "+23.3 % (+20.0 to -3.0)");
        assert_eq!(over(&Figure::of([])), "-");
    }
}
