//! Figures as SVG, written by us: no script, no font and no picture from elsewhere.
//!
//! | file | draws |
//! | --- | --- |
//! | `canvas.rs` | elements, escaped; the markers |
//! | `scale.rs` | from data to pixels, and where the ticks stand |
//! | `load_line.rs` | idle, kernel and user against the rate, and where the idle line meets zero |
//! | `resources.rs` | the load lines of all resources, small |
//! | `latency.rs` | median, 99th percentile and maximum against the rate |
//! | `cost.rs` | what a request costs, a bar a group |
//! | `flame.rs` | procedures upon their callers, as wide as they cost |
//! | `curves.rs` | panels of curves, for results that are no trial |
//!
//! Colours are those of Okabe and Ito (told apart by the colour-blind), lighter ones in the dark;
//! each series has a marker of its own as well, so that a print in grey can be read: circles for
//! idle and squares for kernel, as in the figures of 1998. Colours are CSS variables; a figure
//! carries its own style, so that it stands alone as well as in a page.

mod canvas;
mod cost;
mod curves;
mod flame;
mod latency;
mod load_line;
mod resources;
mod scale;

use canvas::{Canvas, Marker};
pub(crate) use cost::cost;
pub(crate) use curves::curves;
pub use curves::{Curve, Panel, Stroke, Ticks, Tone};
pub(crate) use flame::flame;
pub(crate) use latency::latency;
pub(crate) use load_line::load_line;
pub(crate) use resources::resources;

/// The style of the figures. In a page it stands once; a figure on its own carries it inside.
pub(crate) const STYLE: &str = include_str!("../../templates/figure.css");

/// More points than this are thinned out evenly: a page with ten thousand of them is slow to open
/// and shows nothing more.
const INTERVALS_DRAWN_MAX: usize = 1_200;

/// Every how many intervals one is drawn.
pub(crate) fn every(intervals: usize) -> usize {
    intervals.div_ceil(INTERVALS_DRAWN_MAX).max(1)
}

/// Radius of a marker: the more points, the smaller.
fn point_size(points: usize) -> f64 {
    match points {
        0..150 => 3.2,
        150..500 => 2.5,
        _ => 1.8,
    }
}

/// Markers, or pieces of line, with their names, in one row.
fn legend(canvas: &mut Canvas, from: (f64, f64), entries: &[(String, Option<Marker>, &str)]) {
    // No font is measured: this is the width of a letter of the sans-serif faces, rather too wide.
    const LETTER: f64 = 6.6;
    let (mut x, y) = from;
    for (class, marker, name) in entries {
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
        x += symbol + 5.0 + LETTER * name.chars().count() as f64 + 14.0;
    }
}
