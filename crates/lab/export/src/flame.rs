//! The flame graph as a separate file, drawn by inferno. It can be zoomed and searched in a
//! browser, and so has every call, however deep or narrow.

use inferno::flamegraph::color::{BackgroundColor, MultiPalette, Palette};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};
use trial::Trial;

use crate::collapsed::{collapse, of_flame, written};
use crate::{no_profile, server_name};
use report::Error;
use report::{Analysis, FlameUnit};

/// Inferno counts in whole numbers: thousandths of the displayed unit.
const PARTS: f64 = 1e3;

/// The flame graph of an analysis, interactive. The page has the same as a static figure.
///
/// # Errors
/// [`Error::NoProfile`]; [`Error::Figure`] if it cannot be drawn.
pub fn svg_flame(trial: &Trial, analysis: &Analysis) -> Result<String, Error> {
    let flame = analysis.flame.as_ref().ok_or_else(|| no_profile(analysis))?;
    let failed = |what: String| Error::Figure { trial: analysis.trial.name.clone(), what };
    // A width is shown in nanoseconds per request, or in microseconds sampled.
    let lines = written(&of_flame(flame, server_name(trial), 1e3 * PARTS));
    let mut options = Options::default();
    options.title = format!("{} ({})", flame.title(), analysis.trial.server);
    // The subtitle has only one line. The full note is a comment in the file, and in the report.
    options.subtitle = Some(flame.width());
    options.notes = flame.note();
    options.count_name = match flame.unit {
        FlameUnit::UsPerRequest => "ns of one more request".to_string(),
        FlameUnit::SampledMs => "µs sampled".to_string(),
    };
    options.factor = 1.0 / PARTS;
    // Kernel and user mode have different colours, and a name always has the same one.
    options.colors = Palette::Multi(MultiPalette::Java);
    options.bgcolors = Some(BackgroundColor::Flat((255, 255, 255).into()));
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    drawn(&mut options, lines.lines()).map_err(failed)
}

/// A stack, the outermost procedure first, with its CPU time per request before and after, ns.
pub type StackChange = (Vec<String>, [f64; 2]);

/// A differential flame graph, interactive. Widths are the CPU time after; red has grown, and blue
/// has shrunk.
///
/// # Errors
/// [`Error::Figure`] if it cannot be drawn.
pub fn svg_difference(
    title: &str,
    subtitle: &str,
    stacks: &[StackChange],
) -> Result<String, Error> {
    let whole = |value: f64| (value.max(0.0) * PARTS).round() as u64;
    let line = |(stack, [before, after]): &StackChange| {
        format!("{} {} {}", collapse(stack), whole(*before), whole(*after))
    };
    let mut lines: Vec<String> = stacks.iter().map(line).collect();
    lines.sort_unstable();
    let mut options = Options::default();
    options.title = title.to_string();
    options.subtitle = Some(subtitle.to_string());
    options.count_name = "ns per request".to_string();
    options.factor = 1.0 / PARTS;
    options.bgcolors = Some(BackgroundColor::Flat((255, 255, 255).into()));
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    drawn(&mut options, lines.iter().map(String::as_str))
        .map_err(|what| Error::Figure { trial: title.to_string(), what })
}

fn drawn<'a>(
    options: &mut Options<'_>,
    lines: impl Iterator<Item = &'a str>,
) -> Result<String, String> {
    let mut svg = Vec::new();
    from_lines(options, lines, &mut svg).map_err(|error| error.to_string())?;
    String::from_utf8(svg).map_err(|error| error.to_string())
}
