//! The change of a request's cost, with its interval, beside the margin within which a change
//! counts as none.

use drawing::{Canvas, Marker, Scale};

use super::Size;
use crate::format::fixed;

const LEFT: f64 = 16.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 66.0;
const HEIGHT: f64 = 106.0;
/// The axis reaches so far beyond what is drawn.
const BEYOND: f64 = 1.15;
/// Changes beyond this, percent, are at the edge.
const PERCENT_MAX: f64 = 400.0;

/// A change in percent with the ends of its interval, and the margin in percent.
pub(crate) fn change(value: f64, ends: Option<(f64, f64)>, margin: f64, size: Size) -> String {
    let (low, high) = ends.unwrap_or((-PERCENT_MAX, PERCENT_MAX));
    let farthest = [low, high, value, margin].into_iter().map(f64::abs).fold(0.0, f64::max);
    let end = (BEYOND * farthest).min(PERCENT_MAX);
    let (width, right) = (size.width(), size.width() - LEFT);
    let mut canvas = Canvas::new(width, HEIGHT);
    let x = Scale::linear((-end, end), (LEFT, right));
    let inside = |value: f64| x.at(value.clamp(-end, end));
    let (from, to) = (inside(-margin), inside(margin));
    canvas.block("band third", (from, TOP), (to - from, BOTTOM - TOP), "");
    canvas.line("axis", (LEFT, BOTTOM), (right, BOTTOM));
    canvas.line("axis", (x.at(0.0), TOP), (x.at(0.0), BOTTOM));
    for tick in x.ticks(((right - LEFT) / 70.0) as usize) {
        canvas.line("axis", (x.at(tick), BOTTOM), (x.at(tick), BOTTOM + 4.0));
        let sign = if tick > 0.0 { "+" } else { "" };
        let text = format!("{sign}{} %", fixed(tick, usize::from(end < 5.0)));
        canvas.text("soft", "middle", (x.at(tick), BOTTOM + 18.0), &text);
    }
    canvas.text("soft", "start", (LEFT, BOTTOM + 34.0), "a request costs less");
    canvas.text("soft", "end", (right, BOTTOM + 34.0), "a request costs more");
    canvas.text("soft", "middle", (x.at(0.0), TOP - 8.0), &format!("no change, within {margin} %"));
    let middle = 0.5 * (TOP + BOTTOM);
    canvas.line("line bold first", (inside(low), middle), (inside(high), middle));
    let title = format!("{} % ({} to {})", fixed(value, 1), fixed(low, 1), fixed(high, 1));
    canvas.marker("solid first", Marker::Diamond, (inside(value), middle), 6.0, &title);
    let about = format!("The cost of a request changed by {title}.");
    canvas.finish("Change of the cost of a request", &about, "")
}
