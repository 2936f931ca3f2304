//! Predicted values against measured ones: on the diagonal both are equal. Both axes are
//! logarithmic, so that an error of so many percent is as far from the diagonal everywhere.

use crate::canvas::{Canvas, Marker};
use crate::curves::{Tone, look};
use crate::format::thousands;
use crate::scale::Scale;
use crate::{legend, rate_axes};

const SIDE: f64 = 650.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 600.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 586.0;

/// A prediction and what was measured, both positive.
#[derive(Clone, Debug)]
pub struct Predicted {
    /// The measured value.
    pub measured: f64,
    /// The predicted value.
    pub value: f64,
    /// The interval; an end that does not exist lies at the edge.
    pub ends: (Option<f64>, Option<f64>),
    /// Colour and marker.
    pub tone: Tone,
    /// The marker is filled, for emphasis.
    pub filled: bool,
    /// Its tooltip.
    pub label: String,
}

/// The figure. A point that is not positive and finite is left out.
pub fn diagonal(
    title: &str,
    description: &str,
    names: &[(Tone, &str)],
    points: &[Predicted],
    style: &str,
) -> String {
    let mut canvas = Canvas::new(SIDE, SIDE);
    canvas.text("strong", "start", (10.0, 20.0), title);
    let valid = |value: f64| value.is_finite() && value > 0.0;
    let drawn: Vec<&Predicted> =
        points.iter().filter(|point| valid(point.measured) && valid(point.value)).collect();
    if drawn.is_empty() {
        canvas.text("soft", "middle", (SIDE / 2.0, SIDE / 2.0), "nothing was predicted");
        return canvas.finish(title, description, style);
    }
    let values = || drawn.iter().flat_map(|point| [point.measured, point.value]);
    let range = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
    let x = Scale::logarithmic(range, (LEFT, RIGHT));
    let y = Scale::logarithmic(range, (BOTTOM, TOP));
    rate_axes(&mut canvas, (&x, thousands), (&y, 0, thousands));
    let axes = "across: measured; upwards: predicted, with its interval";
    canvas.text("soft", "start", (LEFT, BOTTOM + 34.0), axes);
    let reading = "on the line both are equal; filled: the interval misses the measured value";
    canvas.text("soft", "start", (LEFT, BOTTOM + 50.0), reading);
    canvas.line("axis", (LEFT, BOTTOM), (RIGHT, TOP));
    for point in drawn {
        draw(&mut canvas, point, (&x, &y));
    }
    let entries: Vec<(String, Option<Marker>, &str)> = names
        .iter()
        .map(|(tone, name)| {
            let (class, marker) = look(*tone);
            (format!("point {class}"), Some(marker), *name)
        })
        .collect();
    legend(&mut canvas, (LEFT, 44.0), &entries);
    canvas.finish(title, description, style)
}

fn draw(canvas: &mut Canvas, point: &Predicted, (x, y): (&Scale, &Scale)) {
    let (class, marker) = look(point.tone);
    let at = x.at(point.measured);
    let height = |value: f64| y.at(value).clamp(TOP, BOTTOM);
    if point.ends != (None, None) {
        let low = point.ends.0.map_or(BOTTOM, height);
        let high = point.ends.1.map_or(TOP, height);
        canvas.line(&format!("line thin {class}"), (at, low), (at, high));
    }
    let style = if point.filled { "solid" } else { "point" };
    canvas.marker(&format!("{style} {class}"), marker, (at, y.at(point.value)), 3.4, &point.label);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(measured: f64, value: f64, ends: (Option<f64>, Option<f64>)) -> Predicted {
        let label = "a < b".to_owned();
        Predicted { measured, value, ends, tone: Tone::First, filled: false, label }
    }

    #[test]
    fn a_point_on_the_diagonal_is_drawn_on_it_with_its_interval() {
        let points = [
            point(2_000.0, 2_000.0, (Some(1_500.0), None)),
            point(50_000.0, 40_000.0, (None, None)),
            point(f64::NAN, 1.0, (None, None)),
            point(10.0, 0.0, (None, None)),
        ];
        let svg = diagonal("t", "d", &[(Tone::First, "near")], &points, "");
        assert_eq!(svg.matches("<circle").count(), 2 + 1, "two points and the legend: {svg}");
        assert_eq!(svg.matches("line thin first").count(), 1, "one interval: {svg}");
        assert!(!svg.contains("NaN") && svg.contains("a &lt; b"), "{svg}");
        // The axes span 2,000 to 50,000, so the first point is in a corner.
        assert!(svg.contains(&format!("cx=\"{LEFT:.1}\" cy=\"{BOTTOM:.1}\"")), "{svg}");
    }

    #[test]
    fn without_points_the_figure_says_so() {
        let svg = diagonal("t", "d", &[], &[], "");
        assert!(svg.contains("nothing was predicted"), "{svg}");
    }
}
