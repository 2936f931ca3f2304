//! The results as text and as a figure.

use harness::rounds::{Figure, digits};
use report::Grade;
use report::format::thousands;
use report::sheet::{Panel, Rows, Sheet, Stroke, Ticks, Tone};

use super::predict::Graded;
use super::{Outcome, Point, Prediction};
use crate::published::{Facts, SQUID};
use crate::show::{NONE, curve, fact, number, or_none, panel, range, table, with_interval};

/// The number of cold connections of the published figures.
const COLD_1998: u32 = 2000;
/// The backends that correspond to the two implementations of 1998.
const OLD_1998: &str = "select";
const NEW_1998: &str = "scalable_select";

/// The results: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "Cold connections: the synthetic experiment of 1998 on this machine".to_owned();
    let mut tables = vec![points(outcome), published(outcome)];
    if let Some(Prediction::Graded(graded)) = &outcome.prediction {
        tables.push(predicted(graded));
    }
    tables.retain(|table| !table.rows.is_empty());
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: CPU time a request and throughput by number of cold connections.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let light = format!("CPU time a request at {} requests/s", digits(outcome.sweep.light_rate));
    let panels = [
        backends(outcome, &light, "µs", |point| &point.light_us),
        backends(outcome, "CPU time a request, saturated", "µs", |point| &point.full_us),
        backends(outcome, "Throughput, saturated", "requests/s", |point| &point.full_rate),
        backends(outcome, "Throughput, relative to no cold ones", "times", |point| &point.kept),
    ];
    let description = "CPU time a request and throughput of a proxy by the number of cold \
                       connections, for each of its backends.";
    let ground = &outcome.conditions.ground;
    crate::show::figure("Cold connections, by backend", ground, description, &panels)
}

fn backends(outcome: &Outcome, title: &str, unit: &str, of: fn(&Point) -> &Figure) -> Panel {
    let looks = [
        ("epoll", "epoll", (Tone::First, Stroke::Joined)),
        ("io_uring", "io_uring (- -)", (Tone::First, Stroke::Dashed)),
        ("scalable_select", "scalable_select", (Tone::Third, Stroke::Joined)),
        ("select", "select", (Tone::Second, Stroke::Joined)),
        ("poll", "poll (- -)", (Tone::Second, Stroke::Dashed)),
    ];
    let curves = looks.into_iter().map(|(backend, name, look)| {
        let points = outcome.sweep.of(backend).map(|point| {
            let figure = of(point);
            let label = format!("{backend}, {} cold: {} {unit}", point.cold, figure.text());
            (f64::from(point.cold), figure.value, label)
        });
        curve(name, look, points)
    });
    panel(title, ("cold connections", Ticks::Decimal), unit, curves)
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let (sweep, bound) = (&outcome.sweep, &outcome.bound);
    let left_out = match bound.left_out.as_slice() {
        [] => String::new(),
        out => format!("; left out: {out:?}; raise ulimit -n for them"),
    };
    let mut facts = outcome.conditions.facts(
        ": because of them the CPU time is shown in addition to the throughput by the clock",
    );
    facts.extend([
        fact(
            "Bound",
            format!(
                "{} descriptors a process: at most {} cold connections{left_out}",
                thousands(bound.descriptors as f64),
                number(bound.cold)
            ),
        ),
        fact(
            "Measured",
            format!(
                "{} rounds over all backends and numbers, in random order; {:.1} s of {} \
                 requests/s, then {:.1} s of more than can be answered; {} connections, cached \
                 objects of 1 KiB; {} requests, {} failed; seed {}",
                sweep.rounds,
                sweep.visit_s,
                digits(sweep.light_rate),
                sweep.visit_s,
                harness::HOT,
                thousands(sweep.requests as f64),
                sweep.errors,
                outcome.conditions.seed
            ),
        ),
    ]);
    for missing in &outcome.missing {
        facts.push(fact(&missing.backend, format!("not supported here: {}", missing.why)));
    }
    facts.extend(headline(outcome).map(|text| fact("Cost", text)));
    match &outcome.prediction {
        Some(Prediction::Graded(graded)) => facts.push(fact("What if", graded_text(graded))),
        Some(Prediction::Inconclusive(why)) => {
            facts.push(fact("What if", format!("no prediction: {why}")));
        }
        None => {}
    }
    facts
}

/// The effect of the most cold connections on each backend.
fn headline(outcome: &Outcome) -> Option<String> {
    let points = || outcome.sweep.points.iter();
    let most = points().map(|point| point.cold).max()?;
    let each: Vec<String> = points()
        .filter(|point| point.cold == most)
        .map(|point| format!("{} {}", point.backend, digits(point.light_ratio.value)))
        .collect();
    Some(format!(
        "with {} cold connections a request of the light load costs, relative to epoll without \
         any: {}",
        number(most),
        each.join(", ")
    ))
}

fn points(outcome: &Outcome) -> Rows {
    let rows = outcome.sweep.points.iter().map(|point| {
        [
            point.backend.clone(),
            number(point.cold),
            digits(point.light_us.value),
            point.light_ratio.text(),
            thousands(point.full_rate.value),
            digits(point.full_us.value),
            point.full_ratio.text(),
        ]
    });
    let to_epoll = "<to epoll at 0";
    table(
        "CPU time a request and throughput, by number of cold connections",
        &["<backend", "cold", "light, µs", to_epoll, "full, /s", "full, µs", to_epoll],
        rows,
        "Light: a few requests, each wait reports one. Full: more than can be answered, a wait \
         reports many. In brackets 95 % intervals by Student's t over rounds; ratios are taken \
         within a round. The intervals of the rest are in the JSON.",
    )
}

/// The published results for 2,000 cold connections, next to ours.
fn published(outcome: &Outcome) -> Rows {
    let synthetic = Facts::read().synthetic;
    let change = |kept: &Figure| with_interval(kept, |k| format!("{:+.0} %", 100.0 * (k - 1.0)));
    let rows = [
        ("old select()", Some(synthetic.original_percent), OLD_1998),
        ("new select() and ufalloc()", Some(synthetic.new_select_and_ufalloc_percent), NEW_1998),
        (NONE, None, "poll"),
        (NONE, None, "epoll"),
        (NONE, None, "io_uring"),
    ];
    let rows = rows.into_iter().filter_map(|(name, percent, backend)| {
        let point = outcome.sweep.of(backend).find(|point| point.cold == COLD_1998)?;
        Some([
            name.to_owned(),
            percent.map_or(NONE.to_owned(), |percent| format!("{percent:+.0} %")),
            backend.to_owned(),
            change(&point.kept),
            change(&point.kept_by_cpu),
        ])
    });
    table(
        "Throughput with 2,000 cold connections, relative to none",
        &["<1998, Squid", "published", "<here", "<measured", "<by CPU time"],
        rows,
        format!(
            "Published: throughput; the best gain of the new one over the old was {:.0} %. By CPU \
             time: the cost of a request without cold connections divided by its cost with them, \
             which other work on the machine does not change.",
            synthetic.best_throughput_gain_percent
        ),
    )
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

fn predicted(graded: &Graded) -> Rows {
    let predicted = &graded.predicted;
    let after = &graded.comparison.after.capacity;
    let us = |us: f64| if us.is_finite() { format!("{us:.2}") } else { NONE.to_owned() };
    let row = |what: &str, [poll, predicted, result]: [String; 3]| {
        [what.to_owned(), poll, predicted, result]
    };
    let with_range =
        |value, low, high| format!("{} ({})", thousands(value), range((low, high), thousands));
    let rows = [
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
    ];
    let facts = Facts::read();
    let predicted_1998 = facts.derived.what_if.capacity_if_select_were_new;
    let measured_1998 = facts.x_intercept(SQUID, "new").map_or(f64::NAN, |x| x.rate);
    table(
        format!("From poll to epoll with {} cold connections", graded.cold),
        &["<what", "<on poll", "<predicted for epoll", "<on epoll"],
        rows,
        format!(
            "One wait for each request replaces poll's select functions; first-order. From the \
             figures of 1998 the same arithmetic predicts {predicted_1998:.0} requests/s, and \
             {measured_1998:.0} were measured."
        ),
    )
}
