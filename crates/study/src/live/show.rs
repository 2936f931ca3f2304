//! The tables of 1998 beside ours, and the scatter.

use report::format::thousands;
use report::sheet::{Curve, Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};

use super::{Lines, Outcome, Sample, Side};
use crate::published::{Facts, NETCACHE, SQUID};
use harness::environment::load_averages;
use harness::rounds::digits;

/// The names of the sides, as in 1998, and how they are drawn.
const KERNELS: [&str; 2] = ["old", "new"];
const TONES: [Tone; 2] = [Tone::Second, Tone::First];
/// A sample with less than this part of its offered rate was starved; a day with more than this
/// part of such samples says so.
const SERVED_MIN: f64 = 0.8;
const STARVED_PART: f64 = 0.1;
const MODES: [&str; 3] = ["idle", "kernel", "user"];

/// What is said of it: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "The live days of 1998 in minutes, on this machine".to_owned();
    let published = Facts::read();
    let tables = vec![
        table_14(outcome, &published),
        table_15(outcome, &published),
        table_5(outcome),
        intercepts(outcome, &published),
    ];
    Sheet { title, facts: facts(outcome, &published), tables }
}

/// The figure: the scatter of 1998 and its lines, and the day.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let ground = &outcome.ground;
    let title = format!(
        "CPU time of a proxy by its rate, {} and {}: {}, Linux {}",
        outcome.sides[0].backend, outcome.sides[1].backend, ground.processor, ground.kernel
    );
    let panels = [
        scatter(outcome, "idle", |sample| sample.idle),
        scatter(outcome, "kernel", |sample| sample.kernel),
        scatter(outcome, "user", |sample| sample.user),
        day(outcome),
    ];
    let description = "Percent of the proxy's thread in each mode by the rate of requests, a point \
                       a sample, with lines by least squares; and the day's rates.";
    svg_curves(&title, description, &panels)
}

fn scatter(outcome: &Outcome, mode: &str, of: fn(&Sample) -> f64) -> Panel {
    let mut curves = Vec::new();
    for ((side, kernel), tone) in outcome.sides.iter().zip(KERNELS).zip(TONES) {
        let point = |sample: &Sample| {
            let said = format!("{}: {:.1} % at {:.0}/s", side.backend, of(sample), sample.rate);
            (sample.rate, of(sample), said)
        };
        curves.push(Curve {
            name: format!("{kernel}: {}", side.backend),
            tone,
            stroke: Stroke::Points,
            points: side.samples.iter().map(point).collect(),
        });
        let Some(line) = side.all.mode(mode) else { continue };
        let highest = side.samples.iter().map(|sample| sample.rate).fold(0.0, f64::max);
        // An idle line is drawn to where it meets zero.
        let end = match side.all.x_intercept {
            Some(x) if mode == "idle" => x.min(2.0 * highest),
            _ => highest,
        };
        let at = |rate: f64| (rate, line.intercept + line.slope * rate, String::new());
        curves.push(Curve {
            name: String::new(),
            tone,
            stroke: Stroke::Line,
            points: vec![at(0.0), at(end)],
        });
    }
    Panel {
        title: format!("{mode}, percent of the thread"),
        x: "requests/s".into(),
        ticks: Ticks::Decimal,
        y: "%".into(),
        marks: Vec::new(),
        curves,
        note: "not measured".into(),
    }
}

fn day(outcome: &Outcome) -> Panel {
    let side = &outcome.sides[0];
    let mut samples: Vec<&Sample> = side.samples.iter().collect();
    samples.sort_by(|one, other| one.hour.total_cmp(&other.hour));
    let curve = |name: &str, tone, stroke, of: fn(&Sample) -> f64| Curve {
        name: name.to_owned(),
        tone,
        stroke,
        points: samples
            .iter()
            .map(|sample| {
                let said = format!("{:.2} h: {} {name}", sample.hour, digits(of(sample)));
                (sample.hour, of(sample), said)
            })
            .collect(),
    };
    Panel {
        title: "The day".into(),
        x: "hour".into(),
        ticks: Ticks::Binary,
        y: "requests/s; connections".into(),
        marks: Vec::new(),
        curves: vec![
            curve("requests/s", Tone::Third, Stroke::Points, |sample| sample.rate),
            curve("cold connections", Tone::Fourth, Stroke::Points, |sample| {
                f64::from(sample.cold)
            }),
        ],
        note: "not measured".into(),
    }
}

fn facts(outcome: &Outcome, published: &Facts) -> Vec<(String, String)> {
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let shape = &outcome.shape;
    let mut facts = vec![
        fact("1998", format!("{}; {}", published.source.title, published.source.machine)),
        fact("Environment", outcome.ground.machine()),
        fact(
            "Others",
            format!(
                "{}; the two took turns sample by sample, and modes are CPU time of the proxy's \
                 own thread",
                load_averages(outcome.load_average)
            ),
        ),
        fact(
            "Day",
            format!(
                "{} hours, a sample a quarter: {:.2} s here for each of the two, gathered from \
                 intervals of {:.2} s; a wave about the mean of {:.1} requests/s by {:.0} %, from \
                 the day's requests and the rate of one hour as published",
                outcome.hours,
                outcome.sample_s,
                outcome.interval_s,
                shape.mean_1998,
                100.0 * shape.swing
            ),
        ),
        fact(
            "Load",
            format!(
                "up to {} requests/s and {} cold connections, both by the day's shape (in 1998 {} \
                 requests/s by this shape); caching off: {} answers came from what was stored; \
                 seed {}",
                thousands(outcome.rate_top),
                thousands(f64::from(outcome.cold_top)),
                digits(shape.highest_1998()),
                outcome.sides.iter().map(|side| side.hits).sum::<u64>(),
                outcome.seed
            ),
        ),
    ];
    facts.extend(starved(outcome).map(|text| fact("Starved", text)));
    match (&outcome.comparison, &outcome.comparison_why) {
        (Some(comparison), _) => facts.push(fact("Compared", compared(comparison))),
        (None, Some(why)) => facts.push(fact("Compared", format!("nothing told: {why}"))),
        (None, None) => {}
    }
    for (side, kernel) in outcome.sides.iter().zip(KERNELS) {
        if let Some(why) = &side.all.distrust {
            let text = format!("{}: the straight line is in doubt: {why}", side.backend);
            facts.push(fact(kernel, text));
        }
    }
    facts
}

/// Whether the load came through: where other work has the CPU, it does not.
fn starved(outcome: &Outcome) -> Option<String> {
    let samples = || outcome.sides.iter().flat_map(|side| &side.samples);
    let short = samples().filter(|sample| sample.rate < SERVED_MIN * sample.offered).count();
    let all = samples().count();
    (short as f64 > STARVED_PART * all as f64).then(|| {
        format!(
            "in {short} of {all} samples less than {:.0} % of the offered rate was answered: other \
             work has the CPU; the lines reach less far than the day does",
            100.0 * SERVED_MIN
        )
    })
}

fn compared(comparison: &report::Comparison) -> String {
    let interval = |low: Option<f64>, high: Option<f64>| {
        let end = |end: Option<f64>| end.map_or("no bound".to_owned(), |end| format!("{end:.2}"));
        format!("{} to {}", end(low), end(high))
    };
    let (capacity, cost) = (&comparison.capacity, &comparison.cost);
    let user = comparison.modes.iter().find(|mode| mode.mode == "user").map_or("?", |mode| {
        if mode.significant { "differ" } else { "do not differ beyond chance" }
    });
    format!(
        "capacity {:.2} times ({}), marginal cost {:.2} times ({}); the slopes of user mode {user}",
        capacity.value,
        interval(capacity.low, capacity.high),
        cost.value,
        interval(cost.low, cost.high)
    )
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn table_14(outcome: &Outcome, published: &Facts) -> Rows {
    let or_none = |value: Option<f64>| value.map_or("-".to_owned(), thousands);
    let mut rows = Vec::new();
    for kernel in KERNELS {
        let Some(day) = published.day(SQUID, kernel) else { continue };
        rows.push(vec![
            format!("1998, {kernel} kernel"),
            or_none(day.requests),
            or_none(day.descriptors_max),
            thousands(day.rate_peak),
            "-".into(),
        ]);
    }
    for (side, kernel) in outcome.sides.iter().zip(KERNELS) {
        rows.push(vec![
            format!("here, {kernel}: {}", side.backend),
            thousands(side.requests as f64),
            or_none(side.descriptors_max.map(|most| most as f64)),
            thousands(side.rate_peak),
            side.errors.to_string(),
        ]);
    }
    Rows {
        title: "Table 14: the days".into(),
        columns: columns(&["<day", "requests", "most descriptors", "peak, /s", "failed"]),
        rows,
        note: format!(
            "Peak: in 1998 of a second; here of an interval of {:.2} s.",
            outcome.interval_s
        ),
    }
}

fn table_15(outcome: &Outcome, published: &Facts) -> Rows {
    let rows = MODES.iter().map(|mode| {
        let mut row = vec![(*mode).to_owned()];
        let lines = KERNELS.map(|kernel| published.line(SQUID, kernel, mode));
        for line in lines {
            row.push(line.map_or("-".into(), |line| {
                format!("{:+.2} ({:+.2})", line.slope, line.correlation)
            }));
        }
        row.push(ratio(lines[0].zip(lines[1]).map(|(old, new)| new.slope / old.slope)));
        row.extend(ours(outcome, mode, |side| Some(&side.all)));
        row
    });
    Rows {
        title: format!(
            "Table 15: lines through all samples (n = {} and {})",
            outcome.sides[0].all.n, outcome.sides[1].all.n
        ),
        columns: columns(&[
            "<mode",
            "<1998: old",
            "<new",
            "new/old",
            "<here: old, µs",
            "<new, µs",
            "new/old",
        ]),
        rows: rows.collect(),
        note:
            "1998: percent of the CPU per (request per second), and the correlation; one percent \
               is 10,000 µs a request. Here: CPU time of one more request in µs, and the \
               correlation."
                .into(),
    }
}

/// Our cells of a mode: old, new, their ratio.
fn ours(outcome: &Outcome, mode: &str, of: fn(&Side) -> Option<&Lines>) -> [String; 3] {
    let lines = outcome.sides.each_ref().map(|side| of(side)?.mode(mode));
    let cells = lines.map(|line| {
        line.map_or("-".to_owned(), |line| format!("{:+.1} ({:+.2})", line.us, line.correlation))
    });
    let [old, new] = cells;
    [old, new, ratio(lines[0].zip(lines[1]).map(|(old, new)| new.us / old.us))]
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.filter(|ratio| ratio.is_finite()).map_or("-".into(), |ratio| format!("{ratio:.2}"))
}

fn table_5(outcome: &Outcome) -> Rows {
    let rows = MODES.iter().map(|mode| {
        let mut row = vec![(*mode).to_owned()];
        row.extend(ours(outcome, mode, |side| side.above.as_ref()));
        row
    });
    let n = |side: &Side| side.above.as_ref().map_or("too few".to_owned(), |l| l.n.to_string());
    Rows {
        title: format!(
            "Table 5: the same above {} requests/s (n = {} and {})",
            thousands(outcome.rate_above),
            n(&outcome.sides[0]),
            n(&outcome.sides[1])
        ),
        columns: columns(&["<mode", "<old, µs", "<new, µs", "new/old"]),
        rows: rows.collect(),
        note: "Without the quiet samples: in 1998 those below 20 requests/s, here below the same \
               part of the highest rate that was served."
            .into(),
    }
}

fn intercepts(outcome: &Outcome, published: &Facts) -> Rows {
    let mut rows = Vec::new();
    for server in [SQUID, NETCACHE] {
        let told = KERNELS.map(|kernel| published.x_intercept(server, kernel));
        let rates = told.map(|x| x.map(|x| x.rate));
        let gain = told[1].and_then(|x| x.improvement_percent);
        rows.push(intercept_row(format!("1998, {server}, all"), rates, gain));
        let above = told.map(|x| x.and_then(|x| x.rate_above_20));
        if above[0].is_some() {
            rows.push(intercept_row(format!("1998, {server}, above 20/s"), above, None));
        }
    }
    let sides = &outcome.sides;
    let all = sides.each_ref().map(|side| Some(&side.all));
    rows.push(our_row("here, all".into(), all));
    let above = sides.each_ref().map(|side| side.above.as_ref());
    rows.push(our_row(format!("here, above {}/s", thousands(outcome.rate_above)), above));
    Rows {
        title: "X-intercepts: where the idle line meets zero, requests/s".into(),
        columns: columns(&["<day", "<old", "<new", "<gain"]),
        rows,
        note: "In brackets Fieller's interval at 95 %, by the robust line; the figure itself is \
               that of least squares, as in 1998."
            .into(),
    }
}

fn intercept_row(name: String, rates: [Option<f64>; 2], gain: Option<f64>) -> Vec<String> {
    let computed = rates[0].zip(rates[1]).map(|(old, new)| 100.0 * (new / old - 1.0));
    let cell = |rate: Option<f64>| rate.map_or("-".to_owned(), thousands);
    let gain = gain.or(computed).map_or("-".to_owned(), |gain| format!("{gain:+.0} %"));
    vec![name, cell(rates[0]), cell(rates[1]), gain]
}

fn our_row(name: String, lines: [Option<&Lines>; 2]) -> Vec<String> {
    let rates = lines.map(|lines| lines.and_then(|lines| lines.x_intercept));
    let mut row = intercept_row(name, rates, None);
    for (cell, lines) in row[1..=2].iter_mut().zip(lines) {
        if let Some((low, high)) = lines.and_then(|lines| lines.x_interval) {
            cell.push_str(&format!(" ({} to {})", thousands(low), thousands(high)));
        }
    }
    row
}
