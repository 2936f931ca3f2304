//! What was found, as text and as a figure.

use report::Grade;
use report::format::thousands;
use report::sheet::{Curve, Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};

use super::foretell::Graded;
use super::{Foretelling, Outcome, Point};
use crate::published::{Facts, SQUID};
use harness::environment::load_averages;
use harness::rounds::{Figure, digits};

/// The number of cold connections that the published figures are for.
const COLD_1998: u32 = 2000;
/// The backend that is what each of 1998 was.
const OLD_1998: &str = "select";
const NEW_1998: &str = "scalable_select";

/// What is said of it: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "Cold connections: the synthetic experiment of 1998 on this machine".to_owned();
    let mut tables = vec![points(outcome), published(outcome)];
    if let Some(Foretelling::Graded(graded)) = &outcome.foretelling {
        tables.push(foretold(graded));
    }
    tables.retain(|table| !table.rows.is_empty());
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: CPU time a request and throughput by number of cold connections.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let ground = &outcome.ground;
    let title =
        format!("Cold connections, by backend: {}, Linux {}", ground.processor, ground.kernel);
    let light = format!("CPU time a request at {} requests/s", digits(outcome.sweep.light_rate));
    let panels = [
        panel(outcome, &light, "µs", |point| &point.light_us),
        panel(outcome, "CPU time a request, saturated", "µs", |point| &point.full_us),
        panel(outcome, "Throughput, saturated", "requests/s", |point| &point.full_rate),
        panel(outcome, "Throughput, to that without cold ones", "times", |point| &point.kept),
    ];
    let description = "CPU time a request and throughput of a proxy by the number of cold \
                       connections, for each of its backends.";
    svg_curves(&title, description, &panels)
}

fn panel(outcome: &Outcome, title: &str, unit: &str, of: fn(&Point) -> &Figure) -> Panel {
    let looks = [
        ("epoll", "epoll", Tone::First, Stroke::Joined),
        ("io_uring", "io_uring (- -)", Tone::First, Stroke::Dashed),
        ("scalable_select", "scalable_select", Tone::Third, Stroke::Joined),
        ("select", "select", Tone::Second, Stroke::Joined),
        ("poll", "poll (- -)", Tone::Second, Stroke::Dashed),
    ];
    let curves = looks.into_iter().map(|(backend, name, tone, stroke)| Curve {
        name: name.to_owned(),
        tone,
        stroke,
        points: outcome
            .sweep
            .of(backend)
            .map(|point| {
                let figure = of(point);
                let said = format!("{backend}, {} cold: {} {unit}", point.cold, figure.text());
                (f64::from(point.cold), figure.value, said)
            })
            .collect(),
    });
    Panel {
        title: title.to_owned(),
        x: "cold connections".into(),
        ticks: Ticks::Decimal,
        y: unit.to_owned(),
        marks: Vec::new(),
        curves: curves.filter(|curve| !curve.points.is_empty()).collect(),
        note: "not measured".into(),
    }
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let (sweep, bound) = (&outcome.sweep, &outcome.bound);
    let mut facts = vec![
        fact("Environment", outcome.ground.machine()),
        fact(
            "Others",
            format!(
                "{}: CPU time stands beside the clock's throughput for that",
                load_averages(outcome.load_average)
            ),
        ),
        fact(
            "Bound",
            format!(
                "{} descriptors a process: at most {} cold connections{}",
                thousands(bound.descriptors as f64),
                thousands(f64::from(bound.cold)),
                match bound.left_out.as_slice() {
                    [] => String::new(),
                    out => format!("; left out: {out:?}; raise ulimit -n for them"),
                }
            ),
        ),
        fact(
            "Measured",
            format!(
                "{} rounds over all backends and numbers, orders drawn anew; {:.1} s of {} \
                 requests/s, then {:.1} s of more than can be answered; {} connections, cached \
                 objects of 1 KiB; {} requests, {} failed; seed {}",
                sweep.rounds,
                sweep.visit_s,
                digits(sweep.light_rate),
                sweep.visit_s,
                harness::HOT,
                thousands(sweep.requests as f64),
                sweep.errors,
                outcome.seed
            ),
        ),
    ];
    for missing in &outcome.missing {
        facts.push(fact(&missing.backend, format!("not supported here: {}", missing.why)));
    }
    facts.extend(headline(outcome).map(|text| fact("Cost", text)));
    match &outcome.foretelling {
        Some(Foretelling::Graded(graded)) => facts.push(fact("What if", graded_text(graded))),
        Some(Foretelling::NotTold(why)) => {
            facts.push(fact("What if", format!("nothing foretold: {why}")));
        }
        None => {}
    }
    facts
}

/// What the most cold connections do to each backend.
fn headline(outcome: &Outcome) -> Option<String> {
    let most = outcome.sweep.points.iter().map(|point| point.cold).max()?;
    let each: Vec<String> = outcome
        .sweep
        .points
        .iter()
        .filter(|point| point.cold == most)
        .map(|point| format!("{} {}", point.backend, digits(point.light_ratio.value)))
        .collect();
    Some(format!(
        "with {} cold connections a request of the light load costs, in times of epoll without \
         any: {}",
        thousands(f64::from(most)),
        each.join(", ")
    ))
}

fn points(outcome: &Outcome) -> Rows {
    let rows = outcome.sweep.points.iter().map(|point| {
        vec![
            point.backend.clone(),
            thousands(f64::from(point.cold)),
            digits(point.light_us.value),
            point.light_ratio.text(),
            thousands(point.full_rate.value),
            digits(point.full_us.value),
            point.full_ratio.text(),
        ]
    });
    Rows {
        title: "CPU time a request and throughput, by number of cold connections".into(),
        columns: columns(&[
            "<backend",
            "cold",
            "light, µs",
            "<to epoll at 0",
            "full, /s",
            "full, µs",
            "<to epoll at 0",
        ]),
        rows: rows.collect(),
        note: "Light: a few requests, each wait tells of one. Full: more than can be answered, a \
               wait tells of many. In brackets 95 % intervals by Student's t over rounds; ratios \
               are taken within a round. The intervals of the rest are in the JSON."
            .into(),
    }
}

/// What was published for 2,000 cold connections, beside ours.
fn published(outcome: &Outcome) -> Rows {
    let synthetic = Facts::read().synthetic;
    let found = |backend: &str| {
        outcome.sweep.of(backend).find(|point| point.cold == COLD_1998).map(|point| {
            [&point.kept, &point.kept_by_cpu].map(|kept| {
                let percent = |kept: f64| format!("{:+.0} %", 100.0 * (kept - 1.0));
                match kept.interval {
                    Some((low, high)) => {
                        format!("{} ({} to {})", percent(kept.value), percent(low), percent(high))
                    }
                    None => percent(kept.value),
                }
            })
        })
    };
    let rows = [
        ("old select()", synthetic.original_percent, OLD_1998),
        ("new select() and ufalloc()", synthetic.new_select_and_ufalloc_percent, NEW_1998),
        ("-", f64::NAN, "poll"),
        ("-", f64::NAN, "epoll"),
        ("-", f64::NAN, "io_uring"),
    ];
    let rows = rows.into_iter().filter_map(|(name, percent, backend)| {
        let [by_clock, by_cpu] = found(backend)?;
        let percent = if percent.is_finite() { format!("{percent:+.0} %") } else { "-".to_owned() };
        Some(vec![name.to_owned(), percent, backend.to_owned(), by_clock, by_cpu])
    });
    Rows {
        title: "Throughput with 2,000 cold connections, to that without".into(),
        columns: columns(&["<1998, Squid", "published", "<here", "<measured", "<by CPU time"]),
        rows: rows.collect(),
        note: format!(
            "Published: throughput; the best gain of the new one over the old was {:.0} %. By CPU \
             time: what a request costs without cold connections over what it costs with them, \
             which others at work on the machine do not change.",
            synthetic.best_throughput_gain_percent
        ),
    }
}

fn graded_text(graded: &Graded) -> String {
    let grade = match graded.grade {
        Grade::Held => "held",
        Grade::Missed => "missed",
        Grade::Inconclusive => "cannot be told",
    };
    let came = graded.came.map_or("nothing".to_owned(), thousands);
    format!(
        "with {} cold connections poll's capacity is {} requests/s; with epoll's waits {} were \
         foretold ({}), and {came} came ({}): {grade}",
        thousands(f64::from(graded.cold)),
        thousands(graded.told.before),
        thousands(graded.told.value),
        between(graded.told.low, graded.told.high),
        if graded.measured { "measured" } else { "by its own line" },
    )
}

fn between(low: Option<f64>, high: Option<f64>) -> String {
    let end = |end: Option<f64>| end.map_or("no bound".to_owned(), thousands);
    format!("{} to {}", end(low), end(high))
}

fn foretold(graded: &Graded) -> Rows {
    let told = &graded.told;
    let row = |what: &str, cells: [String; 3]| {
        let mut row = vec![what.to_owned()];
        row.extend(cells);
        row
    };
    let us = |us: f64| if us.is_finite() { format!("{us:.2}") } else { "-".to_owned() };
    let after = &graded.comparison.after.capacity;
    let mut rows = vec![
        row(
            "capacity, requests/s",
            [
                thousands(told.before),
                format!("{} ({})", thousands(told.value), between(told.low, told.high)),
                graded.came.map_or("-".to_owned(), thousands),
            ],
        ),
        row(
            "capacity by the line, requests/s",
            [
                thousands(told.before),
                thousands(told.value),
                match after.value {
                    Some(value) => {
                        format!("{} ({})", thousands(value), between(after.low, after.high))
                    }
                    None => "-".to_owned(),
                },
            ],
        ),
        row(
            "a request more, µs",
            [us(graded.us.0), us(graded.us.0 + told.us_after - told.us), us(graded.us.1)],
        ),
        row(
            "of these, select functions, µs",
            [us(graded.group_us.0), us(told.group_us_after), us(graded.group_us.1)],
        ),
    ];
    rows.push(row(
        "one wait by itself, µs",
        [us(graded.poll_wait_us), us(graded.epoll_wait_us), "-".to_owned()],
    ));
    let facts = Facts::read();
    let foretold_1998 = facts.derived.what_if.capacity_if_select_were_new;
    let came_1998 = facts.x_intercept(SQUID, "new").map_or(f64::NAN, |x| x.rate);
    Rows {
        title: format!("From poll to epoll with {} cold connections", graded.cold),
        columns: columns(&["<what", "<on poll", "<foretold for epoll", "<came"]),
        rows,
        note: format!(
            "One wait a request is put in the place of poll's select functions; first-order. From \
             the figures of 1998 the same arithmetic foretells {foretold_1998:.0} requests/s, and \
             {came_1998:.0} were measured."
        ),
    }
}
