//! The load lines of all resources in small panels: the use of each against the rate, and its line.
//! All panels have the same rate axis, so that the resource that is exhausted first reaches the top
//! first.

use drawing::{Canvas, Marker, Scale};

use crate::analysis::{Analysis, Resource};
use crate::format::{ends, rate, thousands};

const WIDTH: f64 = 780.0;
const COLUMNS: usize = 3;
const PANEL_WIDTH: f64 = 260.0;
const PANEL_HEIGHT: f64 = 132.0;
/// Most panels; the table has all resources.
const PANELS_MAX: usize = 9;
const LEFT: f64 = 30.0;
const RIGHT: f64 = 248.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 112.0;
/// The axis ends at most at this multiple of the highest measured rate.
const BEYOND_MAX: f64 = 2.0;
/// More points than this would show nothing more in so small a panel.
const POINTS_MAX: usize = 240;
/// Letters of a resource's name that fit.
const NAME_MAX: usize = 36;

/// The figure; `None` if there are fewer than two lines. `style` is empty if the page has it.
pub(crate) fn resources(analysis: &Analysis, style: &str) -> Option<String> {
    let with_line = |resource: &&Resource| resource.line.is_some() && !resource.points.is_empty();
    let drawn: Vec<&Resource> =
        analysis.resources.iter().filter(with_line).take(PANELS_MAX).collect();
    if drawn.len() < 2 {
        return None;
    }
    let rates = drawn.iter().flat_map(|resource| &resource.points).map(|point| point.0);
    let measured = rates.fold(0.0, f64::max);
    let capacity = analysis.capacity.value.unwrap_or(0.0);
    let end = 1.04 * measured.max(capacity.min(BEYOND_MAX * measured));
    let rows = drawn.len().div_ceil(COLUMNS);
    let mut canvas = Canvas::new(WIDTH, PANEL_HEIGHT * rows as f64 + 4.0);
    for (at, resource) in drawn.iter().enumerate() {
        let corner = ((at % COLUMNS) as f64 * PANEL_WIDTH, (at / COLUMNS) as f64 * PANEL_HEIGHT);
        panel(&mut canvas, resource, at, end, corner);
    }
    let description = format!("Use of {} resources against requests per second.", drawn.len());
    Some(canvas.finish("Load lines by resource", &description, style))
}

fn panel(canvas: &mut Canvas, resource: &Resource, at: usize, end: f64, (dx, dy): (f64, f64)) {
    let (left, right, top, bottom) = (LEFT + dx, RIGHT + dx, TOP + dy, BOTTOM + dy);
    let x = Scale::linear((0.0, end), (left, right));
    let y = Scale::linear((0.0, 100.0), (bottom, top));
    canvas.text("strong", "start", (left - 24.0, dy + 12.0), &shortened(&resource.name));
    canvas.text("soft", "start", (left - 24.0, dy + 26.0), &capacity(resource));
    for tick in [0.0, 50.0, 100.0] {
        canvas.line("rule", (left, y.at(tick)), (right, y.at(tick)));
        canvas.text("soft small", "end", (left - 4.0, y.at(tick) + 3.5), &format!("{tick:.0}"));
    }
    canvas.line("axis", (left, bottom), (right, bottom));
    for tick in x.ticks(3).into_iter().filter(|tick| *tick > 0.0) {
        canvas.line("axis", (x.at(tick), bottom), (x.at(tick), bottom + 3.0));
        canvas.text("soft small", "middle", (x.at(tick), bottom + 13.0), &thousands(tick));
    }
    let id = format!("resource-{at}");
    canvas.clip(&id, (left, top - 2.0), (right - left, bottom - top + 4.0));
    let stride = resource.points.len().div_ceil(POINTS_MAX);
    for (rate, percent) in resource.points.iter().step_by(stride.max(1)) {
        canvas.marker("point first", Marker::Circle, (x.at(*rate), y.at(*percent)), 1.6, "");
    }
    if let Some(line) = &resource.line {
        let (a, b) = (line.straight.line.intercept, line.straight.line.slope);
        let percent = |rate: f64| y.at(100.0 * (a + b * rate) / resource.cap);
        let rates = || resource.points.iter().map(|point| point.0);
        let (first, last) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        canvas.line("line thin first", (x.at(first), percent(first)), (x.at(last), percent(last)));
        if line.capacity().identifiable.is_ok() {
            let (from, to) = ((x.at(last), percent(last)), (x.at(end), percent(end)));
            canvas.line("line thin beyond first", from, to);
        }
    }
    canvas.leave_clip();
}

fn capacity(resource: &Resource) -> String {
    let capacity = resource.line.as_ref().map(regress::LoadLine::capacity);
    match capacity.filter(|capacity| capacity.identifiable.is_ok()) {
        None => "capacity not identifiable".to_string(),
        Some(capacity) => {
            let (low, high) = capacity.interval.bounds().unzip();
            format!("{}/s{}", rate(capacity.value), ends(low, high, rate))
        }
    }
}

fn shortened(name: &str) -> String {
    let mut text: String = name.chars().take(NAME_MAX).collect();
    if text.len() < name.len() {
        text.push('…');
    }
    text
}
