//! Latency against the rate: median, 99th percentile and maximum, one point per interval, on a
//! logarithmic axis, because relative differences matter. A dashed line is the predicted 99th
//! percentile at rates that were not reached, and a band is its interval.

use drawing::{Canvas, Marker, Scale, legend, rate_axes};
use regress::PredictedLatency;

use super::{Size, every, point_size};
use crate::analysis::{Analysis, Latency, LatencyPoint};
use crate::format;

const LEFT: f64 = 62.0;
const TOP: f64 = 44.0;
/// Height of the plot.
const HIGH: f64 = 248.0;
const BOTTOM: f64 = TOP + HIGH;
/// The axis below the plot.
const BELOW: f64 = 48.0;

type Quantile = (&'static str, &'static str, Marker, fn(&LatencyPoint) -> f64);

const QUANTILES: [Quantile; 3] = [
    ("median", "first", Marker::Circle, |point| point.median_us),
    ("99 %", "second", Marker::Square, |point| point.p99_us),
    ("max", "third", Marker::Triangle, |point| point.max_us),
];

/// The figure, if there is a point to draw.
pub(crate) fn latency(analysis: &Analysis, size: Size, style: &str) -> Option<String> {
    let latency = analysis.latency.as_ref().filter(|latency| !latency.points.is_empty())?;
    let points = &latency.points;
    let low = points.iter().map(|point| point.median_us).fold(f64::INFINITY, f64::min).max(1.0);
    let bound_us = latency.objective.as_ref().map_or(0.0, |objective| objective.ms * 1e3);
    let high = points.iter().map(|point| point.max_us).fold(bound_us, f64::max);
    let highest = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let end = latency.to_come.rates.last().map_or(highest, |last| last.rate.max(highest));
    let right = size.width() - size.beside();
    let x = Scale::linear((0.0, 1.04 * end), (LEFT, right));
    let y = Scale::logarithmic((low, high), (BOTTOM, TOP));
    let mut canvas = Canvas::new(size.width(), BOTTOM + BELOW);
    axes(&mut canvas, &x, &y);
    objective(&mut canvas, latency, &x, &y);
    to_come(&mut canvas, latency, (highest, end), (&x, &y));
    for point in points.iter().step_by(every(points.len())) {
        for (name, class, marker, of) in QUANTILES {
            let style = if point.saturated { "solid" } else { "point" };
            let title = format!(
                "interval {}: {} requests/s, {name} {} of {}",
                point.interval,
                format::rate(point.rate),
                format::latency(of(point)),
                format::thousands(point.count as f64)
            );
            let at = (x.at(point.rate), y.at(of(point).max(low)));
            let radius = point_size(points.len());
            canvas.marker(&format!("{style} {class}"), marker, at, radius, &title);
        }
    }
    keys(&mut canvas, latency);
    let description = format!("Latency of {} intervals against requests per second.", points.len());
    Some(canvas.finish("Latency against the rate", &description, style))
}

fn axes(canvas: &mut Canvas, x: &Scale, y: &Scale) {
    rate_axes(canvas, (x, format::thousands), (y, 0, axis_latency));
    canvas.text("soft", "start", (4.0, TOP - 14.0), "latency");
}

fn axis_latency(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.0} µs"),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.0} s", us / 1e6),
    }
}

fn objective(canvas: &mut Canvas, latency: &Latency, x: &Scale, y: &Scale) {
    let Some(objective) = &latency.objective else { return };
    let height = y.at(objective.ms * 1e3);
    let (left, right) = x.pixels();
    canvas.line("line thin mark", (left, height), (right, height));
    let text = format!("objective: {} % within {} ms", 100.0 * objective.quantile, objective.ms);
    canvas.text("strong halo mark", "start", (LEFT + 6.0, height - 5.0), &text);
    if let Some(regress::AtObjective::Met { rate, .. }) = &objective.at {
        let at = x.at(*rate);
        canvas.line("line thin mark", (at, height), (at, BOTTOM));
        canvas.text("strong halo mark", "middle", (at, BOTTOM - 6.0), &format::rate(*rate));
    }
}

/// The predicted 99th percentile from the highest recorded rate to the end of the axis.
fn to_come(
    canvas: &mut Canvas,
    latency: &Latency,
    (from, end): (f64, f64),
    (x, y): (&Scale, &Scale),
) {
    const STEPS: u32 = 32;
    if from >= end {
        return;
    }
    let rates = (0..=STEPS).map(|step| from + (end - from) * f64::from(step) / f64::from(STEPS));
    let predicted = rates.filter_map(|rate| Some((x.at(rate), latency.to_come.p99_at(rate)?)));
    let predicted: Vec<(f64, PredictedLatency)> = predicted.collect();
    // Latencies beyond the axis, and infinite ones, are drawn at its edge.
    let height = |us: f64| y.at(us).clamp(TOP, BOTTOM);
    let low = predicted.iter().map(|(at, us)| (*at, height(us.low_us)));
    let high = predicted.iter().rev().map(|(at, us)| (*at, height(us.high_us)));
    canvas.polygon("band second", &low.chain(high).collect::<Vec<_>>());
    let line: Vec<_> = predicted.iter().map(|(at, us)| (*at, height(us.us))).collect();
    canvas.polyline("line beyond second", &line);
}

fn keys(canvas: &mut Canvas, latency: &Latency) {
    let mut entries: Vec<(String, Option<Marker>, &str)> = QUANTILES
        .iter()
        .map(|(name, class, marker, _)| (format!("point {class}"), Some(*marker), *name))
        .collect();
    if latency.points.iter().any(|point| point.saturated) {
        entries.push(("solid first".to_string(), Some(Marker::Circle), "saturated"));
    }
    if !latency.to_come.rates.is_empty() {
        entries.push(("line beyond second".to_string(), None, "99 %, predicted"));
    }
    legend(canvas, (LEFT, 14.0), &entries);
}
