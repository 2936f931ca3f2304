//! What the page shows in addition to the sides: the tables of 1998 next to ours, and the scatter
//! plots.

use harness::rounds::digits;
use report::format::thousands;
use report::sheet::{Panel, Stroke, Ticks, Tone};
use serde_json::{Value, json};

use super::{Lines, Outcome, Sample, Side};
use crate::published::{Facts, NETCACHE, SQUID};
use crate::show::{NONE, curve, or_none, panel, range};

/// The names of the sides, as in 1998, and their colours.
const KERNELS: [&str; 2] = ["old", "new"];
const TONES: [Tone; 2] = [Tone::Second, Tone::First];
/// A sample with less than this part of its offered rate was starved. If more than this part of the
/// samples was starved, the facts say so.
const SERVED_MIN: f64 = 0.8;
const STARVED_PART: f64 = 0.1;
const MODES: [&str; 3] = ["idle", "kernel", "user"];

/// Results for the page.
pub(crate) fn for_page(outcome: &Outcome) -> Value {
    let published = Facts::read();
    let compared = match (&outcome.comparison, &outcome.comparison_why) {
        (Some(comparison), _) => Some(compared(comparison)),
        (None, why) => why.as_ref().map(|why| format!("not possible: {why}")),
    };
    let doubts = outcome.sides.iter().zip(KERNELS).filter_map(|(side, kernel)| {
        let why = side.all.distrust.as_ref()?;
        let text = format!("{}: the straight line is in doubt: {why}", side.backend);
        Some(json!({"kernel": kernel, "text": text}))
    });
    let above = outcome
        .sides
        .each_ref()
        .map(|side| side.above.as_ref().map_or("too few".to_owned(), |lines| lines.n.to_string()));
    json!({
        "source": format!("{}; {}", published.source.title, published.source.machine),
        "swing_percent": 100.0 * outcome.shape.swing,
        "highest_1998": outcome.shape.highest_1998(),
        "hits": outcome.sides.iter().map(|side| side.hits).sum::<u64>(),
        "starved": starved(outcome),
        "compared": compared,
        "doubts": doubts.collect::<Vec<_>>(),
        "above": above,
        "table_14": table_14(outcome, &published),
        "table_15": table_15(outcome, &published),
        "table_5": MODES.map(|mode| {
            [&[mode.to_owned()][..], &ours(outcome, mode, |side| side.above.as_ref())].concat()
        }),
        "intercepts": intercepts(outcome, &published),
    })
}

/// The figure: the scatter plots of 1998 with their lines, and the day.
#[must_use]
pub(crate) fn figure(outcome: &Outcome) -> String {
    let [old, new] = &outcome.sides;
    let title = format!("CPU time of a proxy by its rate, {} and {}", old.backend, new.backend);
    let panels = [
        scatter(outcome, "idle", |sample| sample.idle),
        scatter(outcome, "kernel", |sample| sample.kernel),
        scatter(outcome, "user", |sample| sample.user),
        day(outcome),
    ];
    let description = "Percent of the proxy's thread in each mode by the rate of requests, a point \
                       for each sample, with lines by least squares; and the day's rates.";
    crate::show::figure(&title, &outcome.conditions.ground, description, &panels)
}

fn scatter(outcome: &Outcome, mode: &str, of: fn(&Sample) -> f64) -> Panel {
    let mut curves = Vec::new();
    for ((side, kernel), tone) in outcome.sides.iter().zip(KERNELS).zip(TONES) {
        let points = side.samples.iter().map(|sample| {
            let label = format!("{}: {:.1} % at {:.0}/s", side.backend, of(sample), sample.rate);
            (sample.rate, of(sample), label)
        });
        curves.push(curve(&format!("{kernel}: {}", side.backend), (tone, Stroke::Points), points));
        let Some(line) = side.all.mode(mode) else { continue };
        let highest = side.samples.iter().map(|sample| sample.rate).fold(0.0, f64::max);
        // An idle line is drawn to where it meets zero.
        let end = match side.all.x_intercept {
            Some(x) if mode == "idle" => x.min(2.0 * highest),
            _ => highest,
        };
        let at = |rate: f64| (rate, line.intercept + line.slope * rate, String::new());
        curves.push(curve("", (tone, Stroke::Line), [at(0.0), at(end)]));
    }
    let title = format!("{mode}, percent of the thread");
    panel(title, ("requests/s", Ticks::Decimal), "%", curves)
}

fn day(outcome: &Outcome) -> Panel {
    let mut samples: Vec<&Sample> = outcome.sides[0].samples.iter().collect();
    samples.sort_by(|one, other| one.hour.total_cmp(&other.hour));
    let by_hour = |name: &str, tone, of: fn(&Sample) -> f64| {
        let points = samples.iter().map(|sample| {
            let label = format!("{:.2} h: {} {name}", sample.hour, digits(of(sample)));
            (sample.hour, of(sample), label)
        });
        curve(name, (tone, Stroke::Points), points)
    };
    let curves = [
        by_hour("requests/s", Tone::Third, |sample| sample.rate),
        by_hour("cold connections", Tone::Fourth, |sample| f64::from(sample.cold)),
    ];
    panel("The day", ("hour", Ticks::Binary), "requests/s; connections", curves)
}

/// A sentence if many samples were starved, because other work had the CPU.
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
    let digits = |value: f64| format!("{value:.2}");
    let ratio = |what: &str, ratio: &report::Ratio| {
        format!("{what} {:.2} times ({})", ratio.value, range((ratio.low, ratio.high), digits))
    };
    let cost = match &comparison.cost {
        Some(cost) => ratio("cost of a request at the same load", &cost.ratio),
        None => comparison.why.clone(),
    };
    let user = comparison.modes.iter().find(|mode| mode.mode == "user").map_or("?", |mode| {
        if mode.significant { "differ" } else { "do not differ beyond chance" }
    });
    let capacity = match &comparison.capacity {
        Some(capacity) => ratio("capacity", capacity),
        None => "capacity not known".to_owned(),
    };
    format!("{capacity}, {cost}; the slopes of user mode {user}")
}

fn table_14(outcome: &Outcome, published: &Facts) -> Vec<[String; 5]> {
    let days = KERNELS.into_iter().filter_map(|kernel| {
        let day = published.day(SQUID, kernel)?;
        Some([
            format!("1998, {kernel} kernel"),
            or_none(day.requests),
            or_none(day.descriptors_max),
            thousands(day.rate_peak),
            NONE.into(),
        ])
    });
    let here = outcome.sides.iter().zip(KERNELS).map(|(side, kernel)| {
        [
            format!("here, {kernel}: {}", side.backend),
            thousands(side.requests as f64),
            or_none(side.descriptors_max.map(|most| most as f64)),
            thousands(side.rate_peak),
            side.errors.to_string(),
        ]
    });
    days.chain(here).collect()
}

fn table_15(outcome: &Outcome, published: &Facts) -> [Vec<String>; 3] {
    MODES.map(|mode| {
        let mut row = vec![mode.to_owned()];
        let lines = KERNELS.map(|kernel| published.line(SQUID, kernel, mode));
        for line in lines {
            row.push(line.map_or(NONE.into(), |line| {
                format!("{:+.2} ({:+.2})", line.slope, line.correlation)
            }));
        }
        row.push(ratio(lines[0].zip(lines[1]).map(|(old, new)| new.slope / old.slope)));
        row.extend(ours(outcome, mode, |side| Some(&side.all)));
        row
    })
}

/// Our cells of a mode: old, new, their ratio.
fn ours(outcome: &Outcome, mode: &str, of: fn(&Side) -> Option<&Lines>) -> [String; 3] {
    let lines = outcome.sides.each_ref().map(|side| of(side)?.mode(mode));
    let cells = lines.map(|line| {
        line.map_or(NONE.to_owned(), |line| format!("{:+.1} ({:+.2})", line.us, line.correlation))
    });
    let [old, new] = cells;
    [old, new, ratio(lines[0].zip(lines[1]).map(|(old, new)| new.us / old.us))]
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.filter(|ratio| ratio.is_finite()).map_or(NONE.into(), |ratio| format!("{ratio:.2}"))
}

fn intercepts(outcome: &Outcome, published: &Facts) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for server in [SQUID, NETCACHE] {
        let known = KERNELS.map(|kernel| published.x_intercept(server, kernel));
        let rates = known.map(|x| x.map(|x| x.rate));
        let gain = known[1].and_then(|x| x.improvement_percent);
        rows.push(intercept_row(format!("1998, {server}, all"), rates, gain));
        let above = known.map(|x| x.and_then(|x| x.rate_above_20));
        if above[0].is_some() {
            rows.push(intercept_row(format!("1998, {server}, above 20/s"), above, None));
        }
    }
    let sides = &outcome.sides;
    let all = sides.each_ref().map(|side| Some(&side.all));
    rows.push(our_row("here, all".into(), all));
    let above = sides.each_ref().map(|side| side.above.as_ref());
    rows.push(our_row(format!("here, above {}/s", thousands(outcome.rate_above)), above));
    rows
}

fn intercept_row(name: String, rates: [Option<f64>; 2], gain: Option<f64>) -> Vec<String> {
    let computed = rates[0].zip(rates[1]).map(|(old, new)| 100.0 * (new / old - 1.0));
    let gain = gain.or(computed).map_or(NONE.to_owned(), |gain| format!("{gain:+.0} %"));
    vec![name, or_none(rates[0]), or_none(rates[1]), gain]
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
