//! What the page shows in addition to the rows: verdicts, predictions with remarks, and the figure.

use report::format::thousands;
use report::sheet::{Predicted, Tone, svg_diagonal};
use serde_json::{Value, json};

use super::judge::BANDS;
use super::{Band, Judged, Outcome, Pairs};
use crate::found::row_with;
use crate::show::{NONE, number, or_none, range};

/// The colours of the bands.
const TONES: [Tone; 3] = [Tone::First, Tone::Second, Tone::Third];

/// Results for the page.
pub(crate) fn for_page(outcome: &Outcome) -> Value {
    let versions = outcome.cases.iter().map(|case| format!("{} {}", case.server, case.version));
    let mut versions: Vec<String> = versions.collect();
    versions.dedup();
    let coverage = |band: &Band| match band.intervals {
        0 => NONE.to_owned(),
        all => {
            format!("{} of {all} ({:.0} %)", band.inside, 100.0 * band.inside as f64 / all as f64)
        }
    };
    let bands = outcome.bands.iter().map(|band| row_with(band, [("cover", coverage(band).into())]));
    let cases =
        outcome.cases.iter().map(|one| row_with(one, [("size", size(one.body_bytes).into())]));
    json!({
        "versions": versions.join(", "),
        "trials": outcome.judged.len(),
        "doubtful": outcome.judged.iter().filter(|judged| !judged.doubts.is_empty()).count(),
        "repeats": outcome.cases.iter().map(|case| case.repeats).sum::<u32>(),
        "bands": bands.collect::<Vec<_>>(),
        "count": outcome.cases.len(),
        "cases": cases.collect::<Vec<_>>(),
        "verdicts": verdicts(outcome),
        "predictions": outcome.judged.iter().map(prediction).collect::<Vec<_>>(),
    })
}

/// The figure: predicted capacity against measured saturation.
#[must_use]
pub(crate) fn figure(outcome: &Outcome) -> String {
    let counting = outcome.judged.iter().filter(|judged| judged.doubts.is_empty());
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
                    "{}, {} bytes, {} connections, {} %: {} predicted, {} measured",
                    judged.server,
                    judged.body_bytes,
                    judged.connections,
                    judged.reach,
                    thousands(value),
                    thousands(judged.measured)
                ),
            })
        })
        .collect();
    let names: Vec<(Tone, &str)> = TONES.into_iter().zip(BANDS).collect();
    let ground = &outcome.conditions.ground;
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
fn verdicts(outcome: &Outcome) -> Vec<[String; 8]> {
    let row = |name: String, size: String, change: String, all: &[&Pairs]| {
        let sum = |of: fn(&Pairs) -> usize| {
            let count: usize = all.iter().map(|pairs| of(pairs)).sum();
            count.to_string()
        };
        let [count, found] = [sum(|pairs| pairs.pairs), sum(|pairs| pairs.found)];
        let [no_change, inconclusive] = [sum(|p| p.no_change), sum(|p| p.inconclusive)];
        [name, size, change, count, found, sum(|p| p.wrong), no_change, inconclusive]
    };
    let total = |name: &str, which: fn(&Pairs) -> bool| {
        let all: Vec<&Pairs> = outcome.pairs.iter().filter(|pairs| which(pairs)).collect();
        let name = name.to_owned();
        (!all.is_empty()).then(|| row(name, NONE.to_owned(), NONE.to_owned(), &all))
    };
    let totals = [
        total("unchanged, all", Pairs::unchanged),
        total("10 % and more, all", Pairs::to_be_found),
    ];
    let each = outcome.pairs.iter().map(|pairs| {
        let (name, change) = match pairs.unchanged() {
            true => (pairs.server.clone(), NONE.to_owned()),
            false => (
                format!("{} after {}", pairs.server, pairs.with),
                format!("{:+.0}", pairs.change_percent),
            ),
        };
        row(name, size(pairs.body_bytes), change, &[pairs])
    });
    each.chain(totals.into_iter().flatten()).collect()
}

/// A prediction with its remark.
fn prediction(judged: &Judged) -> [String; 10] {
    let ends = match (judged.low, judged.high) {
        (None, None) => NONE.to_owned(),
        ends => range(ends, thousands),
    };
    let inside = match judged.inside {
        Some(true) => "yes",
        Some(false) => "NO",
        None => NONE,
    };
    let remark = match (&judged.why, judged.doubts.is_empty()) {
        (_, false) => format!("does not count: {}", judged.doubts.join("; ")),
        (Some(why), true) => why.clone(),
        (None, true) if !judged.trusted => "marked unreliable".to_owned(),
        (None, true) => String::new(),
    };
    [
        judged.server.clone(),
        size(judged.body_bytes),
        number(judged.connections),
        judged.reach.to_string(),
        or_none(judged.predicted),
        ends,
        thousands(judged.measured),
        inside.to_owned(),
        judged.error(judged.predicted).map_or(NONE.to_owned(), |error| format!("{error:+.0}")),
        remark,
    ]
}

/// A size as in a header of a table.
fn size(bytes: u64) -> String {
    match bytes % 1024 {
        0 => format!("{} KiB", bytes / 1024),
        _ => format!("{} B", thousands(bytes as f64)),
    }
}
