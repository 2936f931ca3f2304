//! What the texts and figures of the studies have in common.

use harness::Environment;
use harness::rounds::Figure;
use report::format::thousands;
use report::sheet::{Curve, Panel, Stroke, Ticks, Tone, svg_curves};

/// A point of a curve: x, y, and the text shown when the reader points at it.
pub(crate) type Point = (f64, f64, String);

/// The cell of a table for a value that does not exist.
pub(crate) const NONE: &str = "-";

/// A curve.
pub(crate) fn curve(
    name: &str,
    (tone, stroke): (Tone, Stroke),
    points: impl IntoIterator<Item = Point>,
) -> Curve {
    Curve { name: name.to_owned(), tone, stroke, points: points.into_iter().collect() }
}

/// A panel. Curves without a point are left out.
pub(crate) fn panel(
    title: impl Into<String>,
    (x, ticks): (&str, Ticks),
    y: &str,
    curves: impl IntoIterator<Item = Curve>,
) -> Panel {
    Panel {
        title: title.into(),
        x: x.to_owned(),
        ticks,
        y: y.to_owned(),
        marks: Vec::new(),
        curves: curves.into_iter().filter(|curve| !curve.points.is_empty()).collect(),
        note: "not measured".into(),
    }
}

/// A figure whose title ends with the machine.
pub(crate) fn figure(
    title: &str,
    ground: &Environment,
    description: &str,
    panels: &[Panel],
) -> String {
    let title = format!("{title}: {}, Linux {}", ground.processor, ground.kernel);
    svg_curves(&title, description, panels)
}

/// A number with thousands separated.
pub(crate) fn number(value: u32) -> String {
    thousands(f64::from(value))
}

/// A number, or [`NONE`].
pub(crate) fn or_none(value: Option<f64>) -> String {
    value.map_or(NONE.to_owned(), thousands)
}

/// `12.5 (11.9 to 13.2)`, each value shown by `one`, or [`NONE`] if nothing was measured.
pub(crate) fn with_interval(figure: &Figure, one: impl Fn(f64) -> String) -> String {
    match figure.interval {
        _ if !figure.value.is_finite() => NONE.to_owned(),
        Some((low, high)) => format!("{} ({} to {})", one(figure.value), one(low), one(high)),
        None => one(figure.value),
    }
}

/// `10 to 20`, with `no bound` for an end that does not exist.
pub(crate) fn range(
    (low, high): (Option<f64>, Option<f64>),
    one: impl Fn(f64) -> String,
) -> String {
    let end = |end: Option<f64>| end.map_or("no bound".to_owned(), &one);
    format!("{} to {}", end(low), end(high))
}

/// The different values in the order in which they first occur.
pub(crate) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}
