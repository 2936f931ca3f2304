//! The flame graph as a file of its own, by inferno: it can be zoomed and searched in a browser,
//! and so holds every call, however deep or narrow.

use inferno::flamegraph::color::{BackgroundColor, MultiPalette, Palette};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};
use trial::Trial;

use super::collapsed::{of_flame, server, written};
use crate::Error;
use crate::analysis::{Analysis, FlameUnit};
use crate::summary;

/// Inferno counts in whole numbers: a thousandth of the unit that is shown.
const PARTS: f64 = 1e3;

/// The flame graph of an analysis, interactive; the page has the same, still.
///
/// # Errors
/// [`Error::NoProfile`]; [`Error::Figure`] if it cannot be drawn.
pub fn svg_flame(trial: &Trial, analysis: &Analysis) -> Result<String, Error> {
    let named = || analysis.trial.name.clone();
    let flame = analysis.flame.as_ref().ok_or_else(|| Error::NoProfile { trial: named() })?;
    // A width is shown in nanoseconds of a request, or in microseconds of what was sampled.
    let lines = written(&of_flame(flame, server(trial), 1e3 * PARTS));
    let mut options = Options::default();
    options.title = format!("{} ({})", summary::flame_title(flame), analysis.trial.server);
    // A subtitle is one line: what else must be known is a comment in the file, and in the report.
    options.subtitle = Some(summary::flame_width(flame));
    options.notes = summary::flame_note(flame);
    options.count_name = match flame.unit {
        FlameUnit::UsPerRequest => "ns of one more request".to_string(),
        FlameUnit::SampledMs => "µs sampled".to_string(),
    };
    options.factor = 1.0 / PARTS;
    // Kernel and user mode apart; a name has always the same colour.
    options.colors = Palette::Multi(MultiPalette::Java);
    options.bgcolors = Some(BackgroundColor::Flat((255, 255, 255).into()));
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    let mut svg = Vec::new();
    from_lines(&mut options, lines.lines(), &mut svg)
        .map_err(|error| Error::Figure { trial: named(), what: error.to_string() })?;
    String::from_utf8(svg)
        .map_err(|error| Error::Figure { trial: named(), what: error.to_string() })
}
