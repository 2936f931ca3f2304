//! What the page shows in addition to the rows: verdicts, predictions with remarks, and the figure.

use harness::Environment;
use report::format::{self, thousands};
use report::sheet::{Predicted, Tone, svg_diagonal};
use serde_json::{Value, json};

use super::collect::Case;
use super::judge::{BANDS, Band, Judged};
use super::to_come::Pair;
use super::verdicts::Pairs;
use crate::found::with;
use crate::show::{NONE, range};

/// The colours of the bands.
const TONES: [Tone; 3] = [Tone::First, Tone::Second, Tone::Third];

/// Results for the page.
pub(super) fn for_page(
    cases: &[Case],
    judged: &[Judged],
    bands: &[Band],
    pairs: &[Pairs],
    to_come: &[Pair],
) -> Value {
    let versions = cases.iter().map(|case| format!("{} {}", case.server, case.version));
    let mut versions: Vec<String> = versions.collect();
    versions.dedup();
    let bands = bands.iter().map(|band| {
        let cover = |inside: usize, intervals: usize| {
            let percent = 100.0 * inside as f64 / intervals as f64;
            (intervals > 0).then(|| format!("{inside} of {intervals} ({percent:.0} %)"))
        };
        let unheld = band.unheld.map(|one| {
            let text = cover(one.inside, one.intervals)?;
            let percent =
                |value: Option<f64>| value.map_or(NONE.to_owned(), |value| format!("{value:.0} %"));
            let (width, error) = (percent(one.width_percent), percent(one.error_percent));
            Some(format!("{text}, width {width}, error {error}"))
        });
        with(
            band,
            json!({"cover": cover(band.inside, band.intervals), "without_holds": unheld.flatten()}),
        )
    });
    let sized = cases.iter().map(|one| with(one, json!({"size": size(one.body_bytes)})));
    json!({
        "versions": versions.join(", "),
        "trials": judged.len(),
        "doubtful": judged.iter().filter(|judged| !judged.doubts.is_empty()).count(),
        "repeats": cases.iter().map(|case| case.repeats).sum::<u32>(),
        "bands": bands.collect::<Vec<_>>(),
        "count": cases.len(),
        "cases": sized.collect::<Vec<_>>(),
        "verdicts": verdicts(pairs),
        "to_come_close": share(to_come, |pair| pair.close),
        "to_come_inside": share(to_come, |pair| pair.inside),
        "to_come": to_come.iter().map(latency).collect::<Vec<_>>(),
        "predictions": judged.iter().map(prediction).collect::<Vec<_>>(),
    })
}

/// The figure: predicted capacity against measured saturation.
pub(super) fn figure(judged: &[Judged], ground: &Environment) -> String {
    let counting = judged.iter().filter(|judged| judged.doubts.is_empty());
    let points: Vec<Predicted> = counting
        .filter_map(|judged| {
            let value = judged.predicted?;
            Some(Predicted {
                measured: judged.measured,
                value,
                ends: (judged.low, judged.high),
                tone: TONES[judged.band()],
                filled: judged.inside == Some(false),
                label: format!(
                    "{}, {} bytes, {} connections, {} %{}: {} predicted, {} measured",
                    judged.server,
                    judged.body_bytes,
                    judged.connections,
                    judged.reach,
                    if judged.neighbour { " beside a neighbour" } else { "" },
                    thousands(value),
                    thousands(judged.measured)
                ),
            })
        })
        .collect();
    let names: Vec<(Tone, &str)> = TONES.into_iter().zip(BANDS).collect();
    let title = format!(
        "Capacity predicted from a part of the load: {}, Linux {}",
        ground.processor, ground.kernel
    );
    let description = "The report's capacity with its interval against the saturation that wrk \
                       measured, by how far the recorded load reached. A filled point's interval \
                       does not contain the measured rate.";
    svg_diagonal(&title, description, &names, &points)
}

/// The verdicts of all pairs, and their sums.
fn verdicts(pairs: &[Pairs]) -> Vec<Value> {
    let row = |name: String, all: &[&Pairs]| {
        let sum = |of: fn(&Pairs) -> usize| all.iter().map(|pairs| of(pairs)).sum::<usize>();
        json!({
            "name": name, "size": null, "change": null,
            "pairs": sum(|pairs| pairs.pairs),
            "found": sum(|pairs| pairs.found),
            "wrong": sum(|pairs| pairs.wrong),
            "no_change": sum(|pairs| pairs.no_change),
            "inconclusive": sum(|pairs| pairs.inconclusive),
        })
    };
    let total = |name: &str, which: fn(&Pairs) -> bool| {
        let all: Vec<&Pairs> = pairs.iter().filter(|pairs| which(pairs)).collect();
        (!all.is_empty()).then(|| row(name.to_owned(), &all))
    };
    let totals = [
        total("unchanged, one beside a neighbour", |pairs| pairs.unchanged() && pairs.mixed),
        total("unchanged, all others", |pairs| pairs.unchanged() && !pairs.mixed),
        total("10 % and more, all", Pairs::to_be_found),
    ];
    let each = pairs.iter().map(|pairs| {
        let (name, change) = match pairs.unchanged() {
            true if pairs.mixed => (format!("{}, one beside a neighbour", pairs.server), None),
            true => (pairs.server.clone(), None),
            false => (format!("{} after {}", pairs.server, pairs.with), Some(pairs.change_percent)),
        };
        with(&row(name, &[pairs]), json!({"size": size(pairs.body_bytes), "change": change}))
    });
    each.chain(totals.into_iter().flatten()).collect()
}

/// A prediction with its remark.
fn prediction(judged: &Judged) -> Value {
    let ends = match (judged.low, judged.high) {
        (None, None) => NONE.to_owned(),
        ends => range(ends, thousands),
    };
    let held = judged.inside.map(|inside| if inside { "yes" } else { "NO" });
    let remark = match (&judged.why, judged.doubts.is_empty()) {
        (_, false) => format!("does not count: {}", judged.doubts.join("; ")),
        (Some(why), true) => why.clone(),
        (None, true) if !judged.trusted => "marked unreliable".to_owned(),
        (None, true) => String::new(),
    };
    let (size, error) = (size(judged.body_bytes), judged.error(judged.predicted));
    let beside = judged.neighbour.then_some("neighbour");
    with(
        judged,
        json!({
            "size": size, "ends": ends, "held": held, "error": error, "remark": remark,
            "beside": beside,
        }),
    )
}

/// How many of the pairs; `None` without any.
fn share(pairs: &[Pair], which: fn(&Pair) -> bool) -> Option<String> {
    let (some, all) = (pairs.iter().filter(|pair| which(pair)).count(), pairs.len());
    (all > 0).then(|| format!("{some} of {all} ({:.0} %)", 100.0 * some as f64 / all as f64))
}

/// A latency to come, as it is written.
fn latency(pair: &Pair) -> Value {
    let written = |us: f64| if us.is_finite() { format::latency(us) } else { NONE.to_owned() };
    with(
        pair,
        json!({
            "size": size(pair.body_bytes),
            "recorded": written(pair.recorded_us),
            "predicted": written(pair.predicted_us),
            "ends": format!("{} to {}", written(pair.low_us), written(pair.high_us)),
            "measured": written(pair.measured_us),
            "times": pair.predicted_us / pair.measured_us,
            "held": if pair.inside { "yes" } else { "NO" },
        }),
    )
}

/// A size as in a header of a table.
fn size(bytes: u64) -> String {
    match bytes % 1024 {
        0 => format!("{} KiB", bytes / 1024),
        _ => format!("{} B", thousands(bytes as f64)),
    }
}
