//! The cost of a request, one bar per group: kernel and user time of one more request, and the
//! interval of their sum.

use drawing::{Canvas, Marker, Scale, legend};

use crate::analysis::{CostRow, CostTable};
use crate::format::{latency, latency_fine, percent};

const WIDTH: f64 = 780.0;
const LEFT: f64 = 214.0;
const RIGHT: f64 = 640.0;
const TOP: f64 = 34.0;
const ROW: f64 = 22.0;
const BAR: f64 = 12.0;
/// Most bars; the smaller groups are only in the table.
const BARS_MAX: usize = 16;
/// A group below this share, percent, has no bar.
const SHARE_MIN: f64 = 0.5;
/// Letters of a group's name that fit.
const NAME_MAX: usize = 32;

struct Bar<'a> {
    row: &'a CostRow,
    /// Kernel and user time; `None` if unknown.
    parts: Option<[f64; 2]>,
}

/// The figure; `None` if no group has a cost. `style` is empty if the page has it.
pub(crate) fn cost(costs: &CostTable, style: &str) -> Option<String> {
    let bars = bars(costs);
    if bars.is_empty() {
        return None;
    }
    let ends = |pick: fn(&CostRow) -> f64, start: f64, better: fn(f64, f64) -> f64| {
        bars.iter().map(|bar| pick(bar.row)).filter(|v| v.is_finite()).fold(start, better)
    };
    // An interval may reach far beyond the bars; it is cut so that they keep enough space.
    let longest = ends(|row| row.us_per_request, 0.0, f64::max);
    let high = ends(|row| row.us_high, 0.0, f64::max).min(1.6 * longest).max(f64::MIN_POSITIVE);
    let low = ends(|row| row.us_low, 0.0, f64::min).max(-0.4 * longest);
    let x = Scale::linear((low, high), (LEFT, RIGHT));
    let height = TOP + ROW * bars.len() as f64 + 30.0;
    let mut canvas = Canvas::new(WIDTH, height);
    let keys = [
        ("point second".to_string(), Some(Marker::Square), "kernel mode"),
        ("point third".to_string(), Some(Marker::Square), "user mode"),
        ("axis".to_string(), None, "interval"),
    ];
    legend(&mut canvas, (LEFT, 16.0), &keys);
    let bottom = TOP + ROW * bars.len() as f64;
    for tick in x.ticks(5) {
        canvas.line("rule", (x.at(tick), TOP - 6.0), (x.at(tick), bottom));
        canvas.text("soft", "middle", (x.at(tick), bottom + 16.0), &latency(tick));
    }
    for (at, bar) in bars.iter().enumerate() {
        draw(&mut canvas, &x, TOP + ROW * at as f64, bar, (low, high));
    }
    canvas.line("axis", (x.at(0.0), TOP - 6.0), (x.at(0.0), bottom));
    let whole = latency(costs.whole.us_per_request);
    let description = format!("CPU time of one more request, {whole} in total, by group");
    Some(canvas.finish("Cost of a request by group", &description, style))
}

fn bars(costs: &CostTable) -> Vec<Bar<'_>> {
    let groups = costs
        .groups
        .iter()
        .map(|group| Bar { row: &group.row, parts: Some([group.us_kernel, group.us_user]) });
    let unsampled = Bar { row: &costs.unsampled, parts: None };
    let shown = groups.chain([unsampled]).filter(|bar| bar.row.share_percent.abs() >= SHARE_MIN);
    shown.take(BARS_MAX).collect()
}

fn draw(canvas: &mut Canvas, x: &Scale, top: f64, bar: &Bar<'_>, (low, high): (f64, f64)) {
    let (row, middle) = (bar.row, top + ROW / 2.0 - 3.0);
    let mut name: String = row.name.chars().take(NAME_MAX).collect();
    if name.len() < row.name.len() {
        name.push('…');
    }
    canvas.text("", "end", (LEFT - 10.0, middle + 4.0), &name);
    let (up, down) = (middle - BAR / 2.0, middle + BAR / 2.0);
    let mut rectangle = |class: &str, from: f64, to: f64| {
        let (from, to) = (x.at(from.clamp(low, high)), x.at(to.clamp(low, high)));
        canvas.polygon(class, &[(from, up), (to, up), (to, down), (from, down)]);
    };
    match bar.parts {
        Some(parts) => {
            let (mut above, mut below) = (0.0, 0.0);
            for (class, part) in ["point second", "point third"].into_iter().zip(parts) {
                let end = if part >= 0.0 { &mut above } else { &mut below };
                rectangle(class, *end, *end + part);
                *end += part;
            }
        }
        None => rectangle("aside first", 0.0, row.us_per_request),
    }
    let (from, to) = (row.us_low.clamp(low, high), row.us_high.clamp(low, high));
    canvas.line("axis", (x.at(from), middle), (x.at(to), middle));
    for (end, cut) in [(from, from > row.us_low), (to, to < row.us_high)] {
        if !cut {
            canvas.line("axis", (x.at(end), middle - 4.0), (x.at(end), middle + 4.0));
        }
    }
    let value =
        format!("{} ({} %)", latency_fine(row.us_per_request, 2), percent(row.share_percent));
    canvas.text("soft", "start", (RIGHT + 10.0, middle + 4.0), &value);
}
