//! File access time by size: the median delay of the first call and of all calls.

use trial::files::Direction;

use drawing::{Curve, Panel, Stroke, Ticks, Tone, curves};

use crate::analysis::{Files, FilesOfSize};
use crate::format::{fixed, latency_fine, thousands};

/// Larger files are only in the table: on their axis the small ones would collapse into one point.
const DRAWN_BELOW: u64 = 128 << 10;
/// Fewer sizes than this do not make a curve.
const SIZES_DRAWN_MIN: usize = 3;

/// The figure; `None` if there are too few sizes. `style` is empty if the page has it.
pub(crate) fn files(files: &Files, style: &str) -> Option<String> {
    let panels: Vec<Panel> = [(Direction::Read, "read"), (Direction::Written, "written")]
        .into_iter()
        .filter_map(|(direction, name)| panel(files, direction, name))
        .collect();
    let title = "File access time by size";
    let description = "Median time in the first call and in all calls, by size";
    (!panels.is_empty()).then(|| curves(title, description, &panels, style))
}

fn panel(files: &Files, direction: Direction, name: &str) -> Option<Panel> {
    let drawn: Vec<&FilesOfSize> = files
        .sizes
        .iter()
        .filter(|row| row.direction == direction && row.size_from < DRAWN_BELOW)
        .collect();
    if drawn.len() < SIZES_DRAWN_MIN {
        return None;
    }
    let curve = |name: &str, tone: Tone, of: fn(&FilesOfSize) -> Option<f64>| {
        let point = |row: &&FilesOfSize| {
            let us = of(row)?;
            let below = row.size_below.unwrap_or(row.size_from);
            let kib = f64::midpoint(row.size_from as f64, below as f64) / 1024.0;
            let (files, size) = (thousands(row.objects as f64), fixed(kib, 1));
            Some((kib, us, format!("{size} KiB: {}, n = {files} files", latency_fine(us, 1))))
        };
        let points = drawn.iter().filter_map(point).collect();
        Curve { name: name.to_string(), tone, stroke: Stroke::Joined, points }
    };
    Some(Panel {
        title: format!("Files {name}"),
        x: "size, KiB".to_string(),
        ticks: Ticks::Binary,
        y: "median delay, µs".to_string(),
        marks: Vec::new(),
        curves: vec![
            curve("first call", Tone::First, |row| row.first_median_us),
            curve("all calls", Tone::Second, |row| row.total_median_us),
        ],
        note: String::new(),
    })
}
