//! The figures of a trial. Elements, axes and style are those of [`drawing`].
//!
//! | file | draws |
//! | --- | --- |
//! | `load_line.rs` | idle, kernel and user against the rate, and the capacity |
//! | `resources.rs` | the load lines of all resources, small |
//! | `latency.rs` | median, 99th percentile and maximum against the rate |
//! | `change.rs` | a change of the cost of a request, with its interval |
//! | `cost.rs` | the cost of a request, one bar per group |
//! | `flame.rs` | procedures above their callers, as wide as their cost |

mod change;
mod cost;
mod files;
mod flame;
mod latency;
mod load_line;
mod resources;

pub(crate) use change::change;
pub(crate) use cost::cost;
pub(crate) use files::files;
pub(crate) use flame::flame;
pub(crate) use latency::latency;
pub(crate) use load_line::load_line;
pub(crate) use resources::resources;

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
