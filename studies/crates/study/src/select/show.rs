//! What the page shows in addition to the points: the published results next to ours, and the
//! prediction.

use harness::rounds::{Figure, digits};
use readiness::Kind;
use report::Grade;
use report::format::thousands;
use serde_json::{Value, json};

use super::predict::{Graded, Prediction};
use super::sweep::Sweep;
use crate::published::{Facts, SQUID};
use crate::show::{NONE, number, or_none, range, with_interval};

/// The number of cold connections of the published figures.
const COLD_1998: u32 = 2000;

/// Results for the page.
pub(super) fn for_page(sweep: &Sweep, left_out: &[u32], found: Option<&Prediction>) -> Value {
    let facts = Facts::read();
    let left_out = match left_out {
        [] => String::new(),
        out => format!("; left out: {out:?}; raise ulimit -n for them"),
    };
    let (graded, what_if) = match found {
        Some(Prediction::Graded(graded)) => (Some(graded), Some(graded_text(graded))),
        Some(Prediction::Inconclusive(why)) => (None, Some(format!("no prediction: {why}"))),
        None => (None, None),
    };
    json!({
        "hot": harness::HOT,
        "left_out": left_out,
        "cost": headline(sweep),
        "what_if": what_if,
        "published": published(sweep, &facts),
        "gain_1998": facts.synthetic.best_throughput_gain_percent,
        "predicted": graded.map(|graded| predicted(graded)),
        "predicted_cold": graded.map(|graded| graded.cold),
        "predicted_1998": facts.derived.what_if.capacity_if_select_were_new,
        "measured_1998": facts.x_intercept(SQUID, "new").map(|x| x.rate),
    })
}

/// The effect of the most cold connections on each backend.
fn headline(sweep: &Sweep) -> Option<String> {
    let most = *sweep.cold.last()?;
    let each = sweep
        .kinds
        .iter()
        .enumerate()
        .map(|(at, kind)| format!("{kind} {}", digits(sweep.light_ratio((at, most)).value)));
    Some(format!(
        "with {} cold connections a request of the light load costs, relative to epoll without \
         any: {}",
        number(most),
        each.collect::<Vec<_>>().join(", ")
    ))
}

/// The published results for 2,000 cold connections, next to ours.
fn published(sweep: &Sweep, facts: &Facts) -> Vec<[String; 5]> {
    let synthetic = &facts.synthetic;
    let change = |kept: &Figure| with_interval(kept, |k| format!("{:+.0} %", 100.0 * (k - 1.0)));
    let rows = [
        ("old select()", Some(synthetic.original_percent), Kind::Select),
        (
            "new select() and ufalloc()",
            Some(synthetic.new_select_and_ufalloc_percent),
            Kind::ScalableSelect,
        ),
        (NONE, None, Kind::Poll),
        (NONE, None, Kind::Epoll),
        (NONE, None, Kind::IoUring),
    ];
    let rows = rows.into_iter().filter(|_| sweep.cold.contains(&COLD_1998));
    let rows = rows.filter_map(|(name, percent, backend)| {
        let cell = (sweep.kinds.iter().position(|kind| *kind == backend)?, COLD_1998);
        Some([
            name.to_owned(),
            percent.map_or(NONE.to_owned(), |percent| format!("{percent:+.0} %")),
            backend.to_string(),
            change(&sweep.kept(cell)),
            change(&sweep.kept_by_cpu(cell)),
        ])
    });
    rows.collect()
}

fn graded_text(graded: &Graded) -> String {
    let grade = match graded.grade {
        Grade::Held => "held",
        Grade::Missed => "missed",
        Grade::Inconclusive => "inconclusive",
    };
    let predicted = &graded.predicted;
    format!(
        "with {} cold connections poll's capacity is {} requests/s; with epoll's waits {} were \
         predicted ({}), and the result was {} ({}): {grade}",
        number(graded.cold),
        thousands(predicted.before),
        thousands(predicted.value),
        range((predicted.low, predicted.high), thousands),
        or_none(graded.came),
        if graded.measured { "measured" } else { "by its own line" },
    )
}

fn predicted(graded: &Graded) -> [[String; 4]; 5] {
    let predicted = &graded.predicted;
    let after = &graded.comparison.after.capacity;
    let us = |us: f64| if us.is_finite() { format!("{us:.2}") } else { NONE.to_owned() };
    let row = |what: &str, [poll, predicted, result]: [String; 3]| {
        [what.to_owned(), poll, predicted, result]
    };
    let with_range =
        |value, low, high| format!("{} ({})", thousands(value), range((low, high), thousands));
    [
        row(
            "capacity, requests/s",
            [
                thousands(predicted.before),
                with_range(predicted.value, predicted.low, predicted.high),
                or_none(graded.came),
            ],
        ),
        row(
            "capacity by the line, requests/s",
            [
                thousands(predicted.before),
                thousands(predicted.value),
                after.value.map_or(NONE.to_owned(), |v| with_range(v, after.low, after.high)),
            ],
        ),
        row(
            "one more request, µs",
            [graded.us.0, graded.us.0 + predicted.us_after - predicted.us, graded.us.1].map(us),
        ),
        row(
            "in select functions, µs",
            [graded.group_us.0, predicted.group_us_after, graded.group_us.1].map(us),
        ),
        row("one wait alone, µs", [graded.poll_wait_us, graded.epoll_wait_us, f64::NAN].map(us)),
    ]
}
