//! The results as text and as a figure.

use report::format::thousands;
use report::sheet::{Predicted, Rows, Sheet, Tone, svg_diagonal};

use super::judge::BANDS;
use super::{Band, Outcome, Pairs};
use crate::show::{NONE, fact, number, or_none, range, table};

/// The colours of the bands.
const TONES: [Tone; 3] = [Tone::First, Tone::Second, Tone::Third];

/// The results: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "Capacity predicted from low load, on real servers".to_owned();
    let tables =
        vec![summary(outcome), verdicts(outcome), predictions(outcome), saturations(outcome)];
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: predicted capacity against measured saturation.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
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

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let mut facts = outcome.conditions.facts("");
    let versions = outcome.cases.iter().map(|case| format!("{} {}", case.server, case.version));
    let mut versions: Vec<String> = versions.collect();
    versions.dedup();
    facts.push(fact("Servers", versions.join(", ")));
    let doubtful = outcome.judged.iter().filter(|judged| !judged.doubts.is_empty()).count();
    let repeats: u32 = outcome.cases.iter().map(|case| case.repeats).sum();
    facts.push(fact(
        "Measured",
        format!(
            "{} cases with {} trials; {doubtful} trials are doubtful and do not count; {repeats} \
             cases were repeated because their saturation had moved",
            outcome.cases.len(),
            outcome.judged.len()
        ),
    ));
    facts.extend(
        outcome
            .missing
            .iter()
            .map(|missing| fact("Missing", format!("{}: {}", missing.case, missing.why))),
    );
    facts
}

fn summary(outcome: &Outcome) -> Rows {
    let percent = |value: Option<f64>| value.map_or(NONE.to_owned(), |value| format!("{value:.1}"));
    let coverage = |band: &Band| match band.intervals {
        0 => NONE.to_owned(),
        all => {
            format!("{} of {all} ({:.0} %)", band.inside, 100.0 * band.inside as f64 / all as f64)
        }
    };
    let rows = outcome.bands.iter().map(|band| {
        [
            band.name.to_owned(),
            band.trials.to_string(),
            coverage(band),
            percent(band.width_percent),
            band.unbounded.to_string(),
            band.without.to_string(),
            percent(band.errors.report),
            percent(band.errors.straight),
            percent(band.errors.single),
            percent(band.errors.usl),
        ]
    });
    table(
        "By reach",
        &[
            "<reach",
            "trials",
            "inside",
            "width %",
            "unbounded",
            "none",
            "error %",
            "straight",
            "single",
            "USL",
        ],
        rows,
        "Reach: the highest recorded rate, of the measured saturation. Inside: intervals that \
         contain the measured saturation. Width: mean, of the measured saturation. None: trials \
         without a prediction. Errors: median of the absolute errors of the report's capacity, of \
         the straight line, of the rate over the CPU use at the highest rate, and of the universal \
         scalability law.",
    )
}

fn verdicts(outcome: &Outcome) -> Rows {
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
    table(
        "Verdicts of compare",
        &["<trials", "load", "change %", "pairs", "found", "wrong", "no change", "inconclusive"],
        each.chain(totals.into_iter().flatten()),
        "Pairs of trials with different reach or connections. Change: CPU time of a request at \
         saturation. Found: verdicts in its direction. Wrong: in the other one; for a server that \
         did not change, in any.",
    )
}

fn predictions(outcome: &Outcome) -> Rows {
    let signed = |value: Option<f64>| value.map_or(NONE.to_owned(), |value| format!("{value:+.0}"));
    let rows = outcome.judged.iter().map(|judged| {
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
            signed(judged.error(judged.predicted)),
            remark,
        ]
    });
    table(
        "Predictions",
        &[
            "<server",
            "load",
            "conns",
            "reach %",
            "predicted",
            "<interval",
            "measured",
            "<inside",
            "error %",
            "<remark",
        ],
        rows,
        "Rates in requests a second. The JSON also has the model and the simple predictions.",
    )
}

fn saturations(outcome: &Outcome) -> Rows {
    let rows = outcome.cases.iter().map(|case| {
        let [before, after] = case.saturation;
        [
            case.server.clone(),
            size(case.body_bytes),
            number(case.connections),
            thousands(before.rate),
            thousands(after.rate),
            format!("{:.2} and {:.2}", before.cpus, after.cpus),
            format!("{} and {}", before.established, after.established),
            case.repeats.to_string(),
        ]
    });
    table(
        "Saturation, by wrk",
        &["<server", "load", "conns", "before", "after", "CPUs", "established", "repeats"],
        rows,
        "Before and after the recorded loads: requests a second, CPU time of the server's \
         processes per second, and its established connections.",
    )
}

/// A size as in a header of a table.
fn size(bytes: u64) -> String {
    match bytes % 1024 {
        0 => format!("{} KiB", bytes / 1024),
        _ => format!("{} B", thousands(bytes as f64)),
    }
}
