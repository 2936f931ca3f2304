//! Figures as self-contained SVG, and how numbers are written. No scripts, and no fonts or images
//! from elsewhere.
//!
//! | module | content |
//! | --- | --- |
//! | `canvas` | elements, escaped; the markers |
//! | `scale` | from data to pixels, and the positions of ticks |
//! | `curves` | panels of curves, for results that are not trials |
//! | `diagonal` | predicted values against measured ones |
//! | [`mod@format`] | how numbers are written |
//!
//! Colours are those of Okabe and Ito, which colour-blind readers can distinguish, and lighter in
//! dark mode. Each series also has its own marker, so that a grey print is readable. Colours are
//! CSS variables. A figure includes its style, so that it works as a separate file as well as in a
//! page.
//!
//! What never happens: text becomes markup; a figure loads anything.

#![forbid(unsafe_code)]

mod canvas;
mod curves;
mod diagonal;
pub mod format;
mod scale;

pub use canvas::{Canvas, Marker};
pub use curves::{Curve, Panel, Stroke, Ticks, Tone, curves};
pub use diagonal::{Predicted, diagonal};
pub use scale::Scale;

/// The style of the figures. A page has it once; a separate figure includes it.
pub const STYLE: &str = include_str!("figure.css");

/// The ticks of a vertical axis with rules across the figure, and a horizontal axis of rates below.
pub fn rate_axes(
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

/// Height of a row of a legend.
pub const LEGEND_ROW: f64 = 16.0;

/// A marker or a line sample, and its name.
pub type Entry<'a> = (String, Option<Marker>, &'a str);

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
#[must_use]
pub fn legend_rows(entries: &[Entry<'_>], left: f64, width: f64) -> usize {
    legend_places(entries, left, width).last().map_or(0, |(_, row)| row + 1)
}

/// Markers or line samples with their names, in as many rows as they need.
pub fn legend(canvas: &mut Canvas, from: (f64, f64), entries: &[Entry<'_>]) {
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
