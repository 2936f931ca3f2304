//! What the page shows in addition to the sides: the tables of 1998 next to ours, and the scatter
//! plots.

use harness::Environment;
use harness::rounds::digits;
use report::format::thousands;
use report::sheet::{Panel, Stroke, Ticks, Tone};
use serde_json::{Value, json};

use super::Side;
use super::day::Sample;
use super::lines::Lines;
use crate::found::with;
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

/// Results for the page. `above` is the rate below which samples are left out for Table 5.
pub(super) fn for_page(sides: &[Side; 2], above: f64) -> Value {
    let published = Facts::read();
    let doubts = sides.iter().zip(KERNELS).filter_map(|(side, kernel)| {
        let why = side.all.distrust.as_ref()?;
        let text = format!("{}: the straight line is in doubt: {why}", side.backend);
        Some(json!({"kernel": kernel, "text": text}))
    });
    let counts = sides
        .each_ref()
        .map(|side| side.above.as_ref().map_or("too few".to_owned(), |lines| lines.n.to_string()));
    json!({
        "source": format!("{}; {}", published.source.title, published.source.machine),
        "hits": sides.iter().map(|side| side.hits).sum::<u64>(),
        "starved": starved(sides),
        "doubts": doubts.collect::<Vec<_>>(),
        "above": counts,
        "days": days(sides, &published),
        "modes": MODES.map(|mode| lines_of(mode, sides, &published)).to_vec(),
        "intercepts": intercepts(sides, above, &published),
    })
}

/// The days: those of 1998, and ours.
fn days(sides: &[Side; 2], published: &Facts) -> Vec<Value> {
    let of_1998 = KERNELS.into_iter().filter_map(|kernel| {
        let day = published.day(SQUID, kernel)?;
        Some(with(day, json!({"day": format!("1998, {kernel} kernel"), "errors": null})))
    });
    let here = sides.iter().zip(KERNELS).map(|(side, kernel)| {
        with(side, json!({"day": format!("here, {kernel}: {}", side.backend)}))
    });
    of_1998.chain(here).collect()
}

/// The lines of a mode, old and new: published, through all samples, and without the quiet ones.
/// Each has the ratio of the slopes.
fn lines_of(mode: &str, sides: &[Side; 2], published: &Facts) -> Value {
    let of_1998 = KERNELS.map(|kernel| published.line(SQUID, kernel, mode));
    let all = sides.each_ref().map(|side| side.all.mode(mode));
    let above = sides.each_ref().map(|side| side.above.as_ref()?.mode(mode));
    let ratio = |old: f64, new: f64| Some(new / old).filter(|ratio| ratio.is_finite());
    json!({
        "mode": mode,
        "published": of_1998,
        "published_ratio": of_1998[0].zip(of_1998[1]).and_then(|(o, n)| ratio(o.slope, n.slope)),
        "all": all,
        "all_ratio": all[0].zip(all[1]).and_then(|(old, new)| ratio(old.us, new.us)),
        "above": above,
        "above_ratio": above[0].zip(above[1]).and_then(|(old, new)| ratio(old.us, new.us)),
    })
}

/// The figure: the scatter plots of 1998 with their lines, and the day.
pub(super) fn figure(sides: &[Side; 2], ground: &Environment) -> String {
    let [old, new] = sides;
    let title = format!("CPU time of a proxy by its rate, {} and {}", old.backend, new.backend);
    let panels = [
        scatter(sides, "idle", |sample| sample.idle),
        scatter(sides, "kernel", |sample| sample.kernel),
        scatter(sides, "user", |sample| sample.user),
        day(sides),
    ];
    let description = "Percent of the proxy's thread in each mode by the rate of requests, a point \
                       for each sample, with lines by least squares; and the day's rates.";
    crate::show::figure(&title, ground, description, &panels)
}

fn scatter(sides: &[Side; 2], mode: &str, of: fn(&Sample) -> f64) -> Panel {
    let mut curves = Vec::new();
    for ((side, kernel), tone) in sides.iter().zip(KERNELS).zip(TONES) {
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

fn day(sides: &[Side; 2]) -> Panel {
    let mut samples: Vec<&Sample> = sides[0].samples.iter().collect();
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
fn starved(sides: &[Side; 2]) -> Option<String> {
    let samples = || sides.iter().flat_map(|side| &side.samples);
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

/// The comparison of the two trials, in words.
pub(super) fn compared(comparison: &report::Comparison) -> String {
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

fn intercepts(sides: &[Side; 2], above: f64, published: &Facts) -> Vec<Vec<String>> {
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
    let all = sides.each_ref().map(|side| Some(&side.all));
    rows.push(our_row("here, all".into(), all));
    let lines = sides.each_ref().map(|side| side.above.as_ref());
    rows.push(our_row(format!("here, above {}/s", thousands(above)), lines));
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
