//! Panels of curves, such as delays by size: two in a row, each with its own axes that begin at
//! zero, labelled vertical lines, and points joined in order.

use crate::canvas::{Canvas, Marker};
use crate::legend;
use crate::scale::Scale;

const WIDTH: f64 = 960.0;
const PANEL_WIDTH: f64 = 460.0;
const PANEL_HEIGHT: f64 = 286.0;
const HEAD: f64 = 30.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 446.0;
const TOP: f64 = 58.0;
const BOTTOM: f64 = 238.0;
/// Space above the highest point, as a factor.
const HEADROOM: f64 = 1.06;
/// A point this many times as high as nine of ten others would flatten the rest. It is drawn at the
/// edge, with its value.
const FAR: f64 = 4.0;
/// Values at the edge that would overlap are left out.
const FAR_APART: f64 = 52.0;

/// Up to this length of the names, a line of the legend has three of them.
const SHORT_NAME: usize = 16;

/// The colour and marker of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Blue circles.
    First,
    /// Orange squares.
    Second,
    /// Green triangles.
    Third,
    /// Purple diamonds.
    Fourth,
}

/// Whether points are joined and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// Points, joined.
    Joined,
    /// Points, joined by a dashed line, to distinguish curves of the same tone.
    Dashed,
    /// Only points: a scatter plot.
    Points,
    /// A line without points, such as a fitted one.
    Line,
}

/// The positions of the ticks of the x axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticks {
    /// Multiples of a power of two, for sizes.
    Binary,
    /// Steps of 1, 2 or 5.
    Decimal,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend; if empty, the legend omits it.
    pub name: String,
    /// Its colour and marker.
    pub tone: Tone,
    /// How it is drawn.
    pub stroke: Stroke,
    /// x, y and tooltip, in the order in which they are joined. A point that is not finite is left
    /// out.
    pub points: Vec<(f64, f64, String)>,
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Its title.
    pub title: String,
    /// The quantity and unit along the x axis.
    pub x: String,
    /// The positions of its ticks.
    pub ticks: Ticks,
    /// The quantity and unit along the y axis.
    pub y: String,
    /// Vertical lines at these x, with their labels.
    pub marks: Vec<(f64, String)>,
    /// The curves; without curves the panel shows `note`.
    pub curves: Vec<Curve>,
    /// Why there is no curve.
    pub note: String,
}

/// The figure: two panels per row, with `title` above them.
pub fn curves(title: &str, description: &str, panels: &[Panel], style: &str) -> String {
    let rows = panels.len().div_ceil(2);
    let mut canvas = Canvas::new(WIDTH, HEAD + PANEL_HEIGHT * rows as f64);
    canvas.text("strong", "start", (10.0, 20.0), title);
    for (at, panel) in panels.iter().enumerate() {
        let corner = ((at % 2) as f64 * (PANEL_WIDTH + 20.0), (at / 2) as f64 * PANEL_HEIGHT);
        draw(&mut canvas, panel, (corner.0, corner.1 + HEAD));
    }
    canvas.finish(title, description, style)
}

fn draw(canvas: &mut Canvas, panel: &Panel, (dx, dy): (f64, f64)) {
    let (left, right, top, bottom) = (LEFT + dx, RIGHT + dx, TOP + dy, BOTTOM + dy);
    canvas.text("strong", "start", (10.0 + dx, 16.0 + dy), &panel.title);
    let points = || panel.curves.iter().flat_map(finite);
    if points().next().is_none() {
        let middle = (f64::midpoint(left, right), f64::midpoint(top, bottom));
        canvas.text("soft", "middle", middle, &panel.note);
        return;
    }
    let end = points().map(|point| point.0).fold(0.0, f64::max);
    let high = height(points().map(|point| point.1).collect());
    let x = Scale::linear((0.0, end), (left, right));
    let y = Scale::linear((0.0, HEADROOM * high), (bottom, top));
    for tick in y.ticks(5) {
        canvas.line("rule", (left, y.at(tick)), (right, y.at(tick)));
        let text = crate::format::thousands(tick);
        let text = if high < 5.0 { crate::format::fixed(tick, 1) } else { text };
        canvas.text("soft", "end", (left - 6.0, y.at(tick) + 4.0), &text);
    }
    canvas.line("axis", (left, bottom), (right, bottom));
    let ticks = match panel.ticks {
        Ticks::Binary => eights(end),
        Ticks::Decimal => x.ticks(6),
    };
    for tick in ticks {
        canvas.line("axis", (x.at(tick), bottom), (x.at(tick), bottom + 4.0));
        let text = crate::format::thousands(tick);
        canvas.text("soft", "middle", (x.at(tick), bottom + 17.0), &text);
    }
    canvas.text("soft", "end", (right, bottom + 32.0), &panel.x);
    canvas.text("soft", "start", (left, bottom + 32.0), &panel.y);
    for (at, name) in panel.marks.iter().filter(|(at, _)| *at <= end) {
        canvas.line("axis dots", (x.at(*at), top), (x.at(*at), bottom));
        canvas.text("soft halo", "start", (x.at(*at) + 3.0, top + 9.0), name);
    }
    for curve in &panel.curves {
        draw_curve(canvas, curve, (&x, &y), high);
    }
    let entries: Vec<(String, Option<Marker>, &str)> = panel
        .curves
        .iter()
        .filter(|curve| !curve.name.is_empty())
        .map(|curve| {
            let (class, marker) = look(curve.tone);
            (format!("point {class}"), Some(marker), curve.name.as_str())
        })
        .collect();
    let short = entries.iter().all(|(_, _, name)| name.chars().count() <= SHORT_NAME);
    for (row, entries) in entries.chunks(if short { 3 } else { 2 }).enumerate() {
        legend(canvas, (left, 33.0 + 15.0 * row as f64 + dy), entries);
    }
}

fn draw_curve(canvas: &mut Canvas, curve: &Curve, (x, y): (&Scale, &Scale), high: f64) {
    let (class, marker) = look(curve.tone);
    let places: Vec<_> =
        finite(curve).map(|point| (x.at(point.0), y.at(point.1.min(high)))).collect();
    let line = format!("line thin {class}");
    match curve.stroke {
        Stroke::Joined | Stroke::Line => canvas.polyline(&line, &places),
        Stroke::Dashed => canvas.polyline(&format!("{line} beyond"), &places),
        Stroke::Points => {}
    }
    if curve.stroke == Stroke::Line {
        return;
    }
    let mut labelled = f64::NEG_INFINITY;
    for ((_, value, title), at) in finite(curve).zip(places) {
        canvas.marker(&format!("point {class}"), marker, at, 2.6, title);
        if *value > high && at.0 - labelled >= FAR_APART {
            labelled = at.0;
            let text = format!("{} ↑", crate::format::thousands(*value));
            canvas.text(&format!("halo {class}"), "end", (at.0 - 5.0, at.1 + 4.0), &text);
        }
    }
}

/// The height of the axis.
fn height(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let highest = values.last().copied().unwrap_or(0.0);
    highest.min(FAR * values.get(values.len() * 9 / 10).copied().unwrap_or(highest))
}

/// About eight ticks at multiples of a power of two, for sizes in KiB.
fn eights(end: f64) -> Vec<f64> {
    let step = 2f64.powf((end / 8.0).log2().ceil()).max(1.0);
    (0..=(end / step + 1e-9) as usize).map(|k| k as f64 * step).collect()
}

fn finite(curve: &Curve) -> impl Iterator<Item = &(f64, f64, String)> {
    curve.points.iter().filter(|point| point.0.is_finite() && point.1.is_finite())
}

pub(crate) fn look(tone: Tone) -> (&'static str, Marker) {
    match tone {
        Tone::First => ("first", Marker::Circle),
        Tone::Second => ("second", Marker::Square),
        Tone::Third => ("third", Marker::Triangle),
        Tone::Fourth => ("mark", Marker::Diamond),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(points: Vec<(f64, f64, String)>) -> Panel {
        let tone = Tone::First;
        Panel {
            title: "a < b".into(),
            x: "KiB".into(),
            ticks: Ticks::Binary,
            y: "µs".into(),
            marks: vec![(8.0, "2nd block".into()), (900.0, "far".into())],
            curves: vec![Curve { name: "one".into(), tone, stroke: Stroke::Joined, points }],
            note: "nothing was measured".into(),
        }
    }

    #[test]
    fn each_finite_point_is_drawn() {
        let point = |x: f64, y: f64| (x, y, String::new());
        let points = vec![point(0.5, 10.0), point(1.5, f64::NAN), point(16.0, 20.0)];
        let svg = curves("t", "d", &[panel(points)], "");
        assert_eq!(svg.matches("<circle").count(), 2 + 1, "two points and the legend: {svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.contains("2nd block") && !svg.contains("far"), "{svg}");
        assert!(svg.contains("a &lt; b"));
    }

    #[test]
    fn one_point_far_above_the_others_does_not_flatten_them() {
        assert_eq!(height(vec![3.0; 5]), 3.0);
        assert_eq!(height((0..20).map(f64::from).collect()), 19.0);
        let mut values = vec![10.0; 30];
        values.push(4000.0);
        assert_eq!(height(values.clone()), 40.0);
        let points = values.iter().enumerate().map(|(at, y)| (at as f64, *y, String::new()));
        let svg = curves("t", "d", &[panel(points.collect())], "");
        assert!(svg.contains("4,000 ↑"), "its value is shown: {svg}");
    }

    #[test]
    fn a_panel_without_points_says_why() {
        let svg = curves("t", "d", &[panel(Vec::new())], "");
        assert!(svg.contains("nothing was measured") && !svg.contains("<circle"), "{svg}");
    }

    #[test]
    fn a_scatter_is_not_joined_and_a_fitted_line_has_no_points() {
        let points = vec![(0.0, 1.0, String::new()), (100.0, 9.0, String::new())];
        let drawn = |stroke: Stroke| {
            let mut panel = panel(points.clone());
            panel.ticks = Ticks::Decimal;
            panel.curves[0].stroke = stroke;
            panel.curves[0].name = String::new();
            let svg = curves("t", "d", &[panel], "");
            (svg.matches("<circle").count(), svg.matches("line thin").count())
        };
        assert_eq!(drawn(Stroke::Joined), (2, 1));
        assert_eq!(drawn(Stroke::Dashed), (2, 1));
        assert_eq!(drawn(Stroke::Points), (2, 0));
        assert_eq!(drawn(Stroke::Line), (0, 1));
    }

    #[test]
    fn ticks_of_sizes_are_powers_of_two() {
        assert_eq!(eights(128.0).len(), 9);
        assert_eq!(eights(31.0), [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 24.0, 28.0]);
        assert_eq!(eights(0.7), [0.0]);
    }
}
