//! The figure of 1998, extended: idle, kernel and user time against the rate, their lines and the
//! band of single intervals; and below, on the same axis, the capacity by each line with its
//! interval, and the measured saturation.

use drawing::{Canvas, Entry, LEGEND_ROW, Marker, Scale, legend, legend_rows, rate_axes};

use super::{Size, every, point_size};
use crate::analysis::{Analysis, IntervalRow, MODEL_MEASURED, ModeLine, Standing};
use crate::format::{percent, rate};
use crate::headline::Carried;

const LEFT: f64 = 44.0;
/// Above the plot, below the first row of the legend.
const ABOVE: f64 = 30.0;
/// Between the lower end of the plot and the first row of the strip.
const STRIP_BELOW: f64 = 62.0;
const STRIP_ROW: f64 = 28.0;
/// The axis reaches the upper end of the capacity's interval if that is at most this multiple of
/// the rest. An end beyond is shown at the edge, so that the points keep enough space.
const BEYOND_MAX: f64 = 1.6;
/// The axis reaches at least this far, requests/s, even for a server without requests.
const RATE_END_MIN: f64 = 0.01;
/// Text of the strip may end so far to the right of the axis.
const STRIP_BEYOND: f64 = 16.0;
/// A generous width of a bold letter, because fonts are not measured.
const LETTER_STRONG: f64 = 7.1;
/// With more intervals than this, points would hide the lines.
const CROWD: usize = 300;
const BAND_STEPS: usize = 32;

const MODES: [(&str, &str, Marker); 3] = [
    ("idle", "first", Marker::Circle),
    ("kernel", "second", Marker::Square),
    ("user", "third", Marker::Triangle),
];

/// The figure. `style` is empty if the page has it.
pub(crate) fn load_line(analysis: &Analysis, size: Size, style: &str) -> String {
    let rows = strip_rows(analysis, size);
    let keys = keys(analysis);
    let legend_rows = legend_rows(&keys, LEFT, size.width());
    let top = ABOVE + LEGEND_ROW * legend_rows as f64;
    let (right, bottom) = (size.width() - size.beside(), top + size.height());
    let strip_top = bottom + STRIP_BELOW;
    let height = strip_top + STRIP_ROW * rows.len() as f64 + 6.0;
    let mut canvas = Canvas::new(size.width(), height);
    let x = Scale::linear((0.0, rate_end(analysis)), (LEFT, right));
    let y = Scale::linear((0.0, percent_end(analysis)), (bottom, top));
    axes(&mut canvas, analysis, &x, &y);
    let clip = match size {
        Size::Wide => "load-line",
        Size::Narrow => "load-line-narrow",
    };
    canvas.clip(clip, (LEFT, top - 6.0), (right - LEFT + 6.0, bottom - top + 12.0));
    guides(&mut canvas, analysis, &x, &y);
    let idle = analysis.modes.lines.iter().find(|line| line.mode == "idle");
    if let Some(idle) = idle.filter(|_| analysis.straight_counts()) {
        band(&mut canvas, analysis, idle, &x, &y);
    }
    // A few points are drawn above the lines, many points below them.
    let crowded = analysis.intervals.len() > CROWD;
    if crowded {
        points(&mut canvas, analysis, &x, &y);
    }
    for (mode, class, _) in MODES {
        if let Some(line) = analysis.modes.lines.iter().find(|line| line.mode == mode) {
            mode_line(&mut canvas, analysis, line, class, (&x, &y));
        }
    }
    without_wakes(&mut canvas, analysis, &x, &y);
    busy(&mut canvas, analysis, &x, &y);
    if !crowded {
        points(&mut canvas, analysis, &x, &y);
    }
    canvas.leave_clip();
    labels(&mut canvas, analysis, &x, &y);
    legend(&mut canvas, (LEFT, 14.0), &keys);
    for (at, row) in rows.iter().enumerate() {
        strip(&mut canvas, &x, strip_top + STRIP_ROW * at as f64, row);
    }
    let name = format!("Load line of {}", analysis.trial.server);
    canvas.finish(&name, &description(analysis), style)
}

/// The end of the rate axis, which includes everything that should be visible.
fn rate_end(analysis: &Analysis) -> f64 {
    let measured = analysis.intervals.iter().map(|row| row.rate).fold(RATE_END_MIN, f64::max);
    let end = analysis.capacity.value.map_or(measured, |value| value.max(measured));
    let high = analysis.capacity.high.filter(|high| *high < BEYOND_MAX * end);
    1.04 * high.map_or(end, |high| high.max(end))
}

fn percent_end(analysis: &Analysis) -> f64 {
    let drawn = analysis.capacity_straight.identifiable;
    let intercepts = analysis.modes.lines.iter().map(|line| line.intercept).filter(|_| drawn);
    let points = analysis.intervals.iter().flat_map(|row| [row.idle, row.kernel, row.user]);
    let highest = intercepts.chain(points.flatten()).fold(100.0, f64::max);
    if highest > 100.5 { highest.min(130.0) } else { 100.0 }
}

fn axes(canvas: &mut Canvas, analysis: &Analysis, x: &Scale, y: &Scale) {
    rate_axes(canvas, (x, axis_rate), (y, 5, |tick| format!("{tick:.0}")));
    let of = format!("percent of {}", analysis.modes.percent_of);
    let ((left, right), (_, top)) = (x.pixels(), y.pixels());
    canvas.text("soft", "start", (4.0, top - 14.0), &of);
    let idle_at_cap = analysis.modes.idle_at_cap;
    if idle_at_cap > 0.0 {
        canvas.line("axis", (left, y.at(idle_at_cap)), (right, y.at(idle_at_cap)));
        canvas.text(
            "soft halo",
            "start",
            (left + 6.0, y.at(idle_at_cap) - 4.0),
            "the requested cap",
        );
    }
}

fn axis_rate(value: f64) -> String {
    if value != 0.0 && value < 1.0 { rate(value) } else { crate::format::thousands(value) }
}

/// Vertical lines through the plot: the reported capacity and the measured saturation.
fn guides(canvas: &mut Canvas, analysis: &Analysis, x: &Scale, y: &Scale) {
    let (bottom, top) = y.pixels();
    if let Some(value) = analysis.capacity.value {
        canvas.line("line thin dots first", (x.at(value), top), (x.at(value), bottom));
    }
    if let Some(measured) = analysis.saturation_measured {
        canvas.line("line thin mark", (x.at(measured), top), (x.at(measured), bottom));
    }
}

/// The band of single intervals around the idle line, over the data and beyond.
fn band(canvas: &mut Canvas, analysis: &Analysis, idle: &ModeLine, x: &Scale, y: &Scale) {
    let end = idle.x_intercept.unwrap_or(f64::INFINITY).min(rate_end(analysis));
    let level = analysis.capacity.level;
    let step = |k: usize| end * k as f64 / BAND_STEPS as f64;
    let upper = (0..=BAND_STEPS).map(|k| (step(k), idle.line.prediction_band(step(k), level).1));
    let lower = (0..=BAND_STEPS).map(|k| (step(k), idle.line.prediction_band(step(k), level).0));
    let outline: Vec<(f64, f64)> =
        upper.chain(lower.rev()).map(|(at, value)| (x.at(at), y.at(value))).collect();
    if outline.iter().all(|(a, b)| a.is_finite() && b.is_finite()) {
        canvas.polygon("band first", &outline);
    }
}

fn points(canvas: &mut Canvas, analysis: &Analysis, x: &Scale, y: &Scale) {
    let stride = every(analysis.intervals.len());
    let size = point_size(analysis.intervals.len());
    for row in analysis.intervals.iter().step_by(stride) {
        let (style, radius) = match row.standing {
            Standing::Fit => ("point", size),
            Standing::SetAside
            | Standing::TooQuiet
            | Standing::NotSaturated
            | Standing::Disturbed => ("aside", size),
            Standing::Saturation => ("solid", 0.9 * size),
            Standing::WarmUp | Standing::RateInvalid | Standing::NotSeen => continue,
        };
        for (mode, class, marker) in MODES {
            if let Some(value) = of_mode(row, mode) {
                let class = format!("{style} {class}");
                let title = format!(
                    "interval {}: {} requests/s, {mode} {} % ({})",
                    row.index,
                    rate(row.rate),
                    percent(value),
                    row.standing.label()
                );
                canvas.marker(&class, marker, (x.at(row.rate), y.at(value)), radius, &title);
            }
        }
    }
}

fn of_mode(row: &IntervalRow, mode: &str) -> Option<f64> {
    match mode {
        "idle" => row.idle,
        "kernel" => row.kernel,
        _ => row.user,
    }
}

/// Solid over the data, dashed from there to the capacity.
fn mode_line(
    canvas: &mut Canvas,
    analysis: &Analysis,
    mode: &ModeLine,
    class: &str,
    (x, y): (&Scale, &Scale),
) {
    let at = |value: f64| (x.at(value), y.at(mode.line.at(value)));
    let (first, last) = fitted_range(analysis);
    let end = line_end(analysis);
    if analysis.intervals.len() > CROWD {
        canvas.line("under", at(first), at(last.min(end.max(first))));
    }
    // A line that does not give the capacity is drawn only over the data.
    if !analysis.straight_counts() {
        canvas.line(&format!("line thin {class}"), at(first), at(last));
        return;
    }
    let weight = if mode.mode == "idle" { "bold" } else { "thin" };
    canvas.line(&format!("line {weight} beyond {class}"), at(0.0), at(first));
    canvas.line(&format!("line {weight} {class}"), at(first), at(last.min(end.max(first))));
    if end > last {
        canvas.line(&format!("line {weight} beyond {class}"), at(last), at(end));
    }
}

fn fitted_range(analysis: &Analysis) -> (f64, f64) {
    let fitted = analysis.intervals.iter().filter(|row| row.standing.is_fitted());
    fitted.fold((f64::INFINITY, 0.0), |(low, high), row| (low.min(row.rate), high.max(row.rate)))
}

/// Lines end where the straight line meets the cap, or at the edge. If another line gives the
/// capacity, or none does, they end with the data.
fn line_end(analysis: &Analysis) -> f64 {
    if !analysis.straight_counts() {
        return fitted_range(analysis).1;
    }
    let edge = rate_end(analysis);
    analysis.capacity_straight.value.filter(|value| *value > 0.0).unwrap_or(edge).min(edge)
}

/// The line with wakes at zero wakes: the idle time of a server that never sleeps.
fn without_wakes(canvas: &mut Canvas, analysis: &Analysis, x: &Scale, y: &Scale) {
    let Some((wakes, value)) = analysis.wakes_drawn() else { return };
    let from = (x.at(0.0), y.at(100.0 - wakes.fixed_percent));
    let to = (x.at(value), y.at(analysis.modes.idle_at_cap));
    canvas.line("line bold beyond first", from, to);
}

/// The idle time by the line of a busy CPU, if that gives the capacity.
fn busy(canvas: &mut Canvas, analysis: &Analysis, x: &Scale, y: &Scale) {
    let Some(fit) = analysis.busy() else { return };
    let end = fit.capacity.value.min(rate_end(analysis));
    let at = |k: usize| {
        let rate = end * k as f64 / BAND_STEPS as f64;
        (x.at(rate), y.at(100.0 * (1.0 - fit.at(rate) / analysis.capacity_of_cpu.cap)))
    };
    canvas.polyline("line bold beyond first", &(0..=BAND_STEPS).map(at).collect::<Vec<_>>());
}

/// The name of each line at its right end, without overlaps.
fn labels(canvas: &mut Canvas, analysis: &Analysis, x: &Scale, y: &Scale) {
    let end = line_end(analysis);
    let ((_, right), (bottom, top)) = (x.pixels(), y.pixels());
    let mut placed: Vec<(f64, &str, &str)> = MODES
        .iter()
        .filter_map(|(mode, class, _)| {
            let line = analysis.modes.lines.iter().find(|line| line.mode == *mode)?;
            Some((y.at(line.line.at(end)).clamp(top, bottom - 10.0) + 4.0, *mode, *class))
        })
        .collect();
    placed.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut above = f64::INFINITY;
    for (height, mode, class) in placed {
        let height = height.min(above - 14.0);
        above = height;
        let at = (x.at(end).min(right) + 9.0, height);
        canvas.text(&format!("strong halo {class}"), "start", at, mode);
    }
}

fn keys(analysis: &Analysis) -> Vec<Entry<'static>> {
    let has = |standing| analysis.intervals.iter().any(|row| row.standing == standing);
    let mut entries: Vec<Entry<'_>> = MODES
        .iter()
        .map(|(mode, class, marker)| (format!("point {class}"), Some(*marker), *mode))
        .collect();
    if has(Standing::Saturation) {
        entries.push(("solid first".to_string(), Some(Marker::Circle), "saturated"));
    }
    if has(Standing::SetAside) || has(Standing::Disturbed) {
        entries.push(("aside first".to_string(), Some(Marker::Circle), "set aside"));
    }
    if analysis.straight_counts() || analysis.busy().is_some() || analysis.wakes_drawn().is_some() {
        entries.push(("line bold beyond first".to_string(), None, "idle time, as expected"));
    }
    entries
}

/// One row under the axis: a value with its interval, on the rate axis.
struct StripRow {
    class: &'static str,
    marker: Marker,
    value: f64,
    ends: Option<(f64, f64)>,
    text: String,
}

fn strip_rows(analysis: &Analysis, size: Size) -> Vec<StripRow> {
    let mut rows = Vec::new();
    let figure = &analysis.capacity;
    if let Some(value) = figure.value.filter(|_| figure.model != MODEL_MEASURED) {
        let ends = figure.low.zip(figure.high);
        let (low, high, seen) = (figure.low, figure.high, figure.highest_rate);
        let text = Carried { value, low, high, seen }.text("");
        let text = match size {
            Size::Wide => format!("capacity: {text}"),
            Size::Narrow => text.replace(" requests/s", ""),
        };
        rows.push(StripRow { class: "first", marker: Marker::Diamond, value, ends, text });
    }
    if let Some(measured) = &analysis.saturation {
        rows.push(StripRow {
            class: "mark",
            marker: Marker::Square,
            value: measured.rate,
            ends: Some((measured.rate_min, measured.rate_max)),
            text: format!("saturation, measured: {}", rate(measured.rate)),
        });
    }
    rows
}

fn strip(canvas: &mut Canvas, x: &Scale, height: f64, row: &StripRow) {
    let (left_end, right_end) = x.pixels();
    let inside = |value: f64| x.at(value).clamp(left_end, right_end);
    let (low, high) = row.ends.unwrap_or((row.value, row.value));
    let (from, to) = (inside(low), inside(high));
    let class = row.class;
    canvas.line(&format!("line {class}"), (from, height), (to, height));
    for (value, end) in [(low, from), (high, to)] {
        // An end beyond the axis has no tick: the line runs to the edge.
        if row.ends.is_some() && (x.at(value) - end).abs() < 0.5 {
            canvas.line(&format!("line thin {class}"), (end, height - 5.0), (end, height + 5.0));
        }
    }
    canvas.marker(
        &format!("solid {class}"),
        row.marker,
        (inside(row.value), height),
        4.0,
        &row.text,
    );
    let outside = if x.at(row.value) > right_end + 0.5 { " →" } else { "" };
    let text = format!("{}{outside}", row.text);
    let marker = inside(row.value);
    let wide = LETTER_STRONG * text.chars().count() as f64;
    let (left, right) = (from.min(marker) - 10.0, to.max(marker) + 10.0);
    let baseline = height + 4.0;
    if left - wide > 0.0 {
        canvas.text("strong", "end", (left, baseline), &text);
    } else if right + wide < right_end + STRIP_BEYOND {
        canvas.text("strong", "start", (right, baseline), &text);
    } else {
        // The interval fills the axis, so the text goes above its line.
        let above = height - 7.0;
        if marker + 8.0 + wide < right_end + STRIP_BEYOND {
            canvas.text("strong halo", "start", (marker + 8.0, above), &text);
        } else {
            canvas.text("strong halo", "end", ((marker - 8.0).max(wide), above), &text);
        }
    }
}

fn description(analysis: &Analysis) -> String {
    let capacity = match analysis.capacity.value {
        Some(value) => format!("capacity {} requests/s", rate(value)),
        None => "capacity not identifiable".to_string(),
    };
    format!(
        "Idle, kernel and user time in percent of {} against requests per second in {} intervals; \
         {capacity}.",
        analysis.modes.percent_of, analysis.trial.fitted
    )
}
