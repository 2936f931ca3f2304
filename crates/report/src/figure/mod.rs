//! Figures as self-contained SVG: no scripts, and no fonts or images from elsewhere.
//!
//! | file | draws |
//! | --- | --- |
//! | `canvas.rs` | elements, escaped; the markers |
//! | `scale.rs` | from data to pixels, and the positions of ticks |
//! | `load_line.rs` | idle, kernel and user against the rate, and the capacity |
//! | `resources.rs` | the load lines of all resources, small |
//! | `latency.rs` | median, 99th percentile and maximum against the rate |
//! | `change.rs` | a change of the cost of a request, with its interval |
//! | `cost.rs` | the cost of a request, one bar per group |
//! | `flame.rs` | procedures above their callers, as wide as their cost |
//! | `curves.rs` | panels of curves, for results that are not trials |
//! | `diagonal.rs` | predicted values against measured ones |
//!
//! Colours are those of Okabe and Ito, which colour-blind readers can distinguish, and lighter in
//! dark mode. Each series also has its own marker, so that a grey print is readable: circles for
//! idle and squares for kernel, as in the figures of 1998. Colours are CSS variables. A figure
//! includes its style, so that it works as a separate file as well as in a page.

mod canvas;
mod change;
mod cost;
mod curves;
mod diagonal;
mod files;
mod flame;
mod latency;
mod load_line;
mod resources;
mod scale;

use canvas::{Canvas, Marker};
pub(crate) use change::change;
pub(crate) use cost::cost;
pub(crate) use curves::curves;
pub use curves::{Curve, Panel, Stroke, Ticks, Tone};
pub use diagonal::Predicted;
pub(crate) use diagonal::diagonal;
pub(crate) use files::files;
pub(crate) use flame::flame;
pub(crate) use latency::latency;
pub(crate) use load_line::load_line;
pub(crate) use resources::resources;
use scale::Scale;

/// The style of the figures. A page has it once; a separate figure includes it.
pub(crate) const STYLE: &str = include_str!("../../templates/figure.css");

/// More points than this are thinned evenly: a page with ten thousand of them is slow to open and
/// shows nothing more.
const INTERVALS_DRAWN_MAX: usize = 1_200;

/// One of this many intervals is drawn.
pub(crate) fn every(intervals: usize) -> usize {
    intervals.div_ceil(INTERVALS_DRAWN_MAX).max(1)
}

/// Radius of a marker, smaller with more points.
fn point_size(points: usize) -> f64 {
    match points {
        0..150 => 3.2,
        150..500 => 2.5,
        _ => 1.8,
    }
}

/// The ticks of a vertical axis with rules across the figure, and a horizontal axis of rates below.
fn rate_axes(
    canvas: &mut Canvas,
    (x, x_label): (&Scale, fn(f64) -> String),
    (y, y_ticks, y_label): (&Scale, usize, fn(f64) -> String),
) {
    let ((left, right), (bottom, _)) = (x.pixels(), y.pixels());
    for tick in y.ticks(y_ticks) {
        canvas.line("rule", (left, y.at(tick)), (right, y.at(tick)));
        canvas.text("soft", "end", (left - 6.0, y.at(tick) + 4.0), &y_label(tick));
    }
    canvas.line("axis", (left, bottom), (right, bottom));
    // About 90 pixels are enough for the longest label.
    let ticks = ((right - left) / 90.0) as usize;
    for tick in x.ticks(ticks) {
        canvas.line("axis", (x.at(tick), bottom), (x.at(tick), bottom + 4.0));
        canvas.text("soft", "middle", (x.at(tick), bottom + 18.0), &x_label(tick));
    }
    canvas.text("soft", "end", (right, bottom + 34.0), "requests/s");
}

/// How wide a figure is. A page has both, and shows the one that fits the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Wide,
    /// For a telephone.
    Narrow,
}

impl Size {
    fn width(self) -> f64 {
        match self {
            Size::Wide => 780.0,
            Size::Narrow => 372.0,
        }
    }

    /// The height of the plot.
    fn height(self) -> f64 {
        match self {
            Size::Wide => 286.0,
            Size::Narrow => 220.0,
        }
    }

    /// The space to the right of the plot.
    fn beside(self) -> f64 {
        match self {
            Size::Wide => 64.0,
            Size::Narrow => 52.0,
        }
    }
}

/// A figure in both sizes: the page shows the one that fits.
pub(crate) fn sizes(draw: impl Fn(Size) -> String) -> String {
    let of = |size, class| format!("<div class=\"{class}\">\n{}</div>\n", draw(size));
    of(Size::Wide, "at-wide") + &of(Size::Narrow, "at-narrow")
}

/// Height of a row of a legend.
const LEGEND_ROW: f64 = 16.0;

/// A marker or a line sample, and its name.
type Entry<'a> = (String, Option<Marker>, &'a str);

/// Where each entry begins, and in which row. `left` is the begin of each row.
fn legend_places(entries: &[Entry<'_>], left: f64, width: f64) -> Vec<(f64, usize)> {
    // Fonts are not measured: this is a generous letter width of sans-serif faces.
    const LETTER: f64 = 6.6;
    let (mut x, mut row) = (left, 0);
    let mut place = |(_, marker, name): &Entry<'_>| {
        let symbol = if marker.is_some() { 10.0 } else { 26.0 };
        let long = symbol + 5.0 + LETTER * name.chars().count() as f64;
        if x > left && x + long > width {
            (x, row) = (left, row + 1);
        }
        let at = (x, row);
        x += long + 14.0;
        at
    };
    entries.iter().map(&mut place).collect()
}

/// How many rows a legend has.
fn legend_rows(entries: &[Entry<'_>], left: f64, width: f64) -> usize {
    legend_places(entries, left, width).last().map_or(0, |(_, row)| row + 1)
}

/// Markers or line samples with their names, in as many rows as they need.
fn legend(canvas: &mut Canvas, from: (f64, f64), entries: &[Entry<'_>]) {
    let places = legend_places(entries, from.0, canvas.width());
    for ((class, marker, name), (x, row)) in entries.iter().zip(places) {
        let y = from.1 + LEGEND_ROW * row as f64;
        let symbol = match marker {
            Some(marker) => {
                canvas.marker(class, *marker, (x + 5.0, y - 4.0), 4.0, "");
                10.0
            }
            None => {
                canvas.line(class, (x, y - 4.0), (x + 26.0, y - 4.0));
                26.0
            }
        };
        canvas.text("soft", "start", (x + symbol + 5.0, y), name);
    }
}
