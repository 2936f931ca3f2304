//! The lines through the samples, computed by the report's own code.

use std::path::{Path, PathBuf};

use report::{CompareOptions, Comparison, Options, ResourceKind};
use serde::Serialize;
use trial::{Interval, Trial};

use super::Side;
use super::day::{Day, Raw, Sample, gather};
use harness::Error;

/// The line of one mode on the rate.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ModeOf {
    /// `idle`, `kernel` or `user`.
    pub(super) mode: &'static str,
    /// Percent of a CPU per (request per second).
    pub(super) slope: f64,
    /// CPU time of one more request, microseconds; idle is negative.
    pub(super) us: f64,
    /// Percent at no requests.
    pub(super) intercept: f64,
    /// Correlation.
    pub(super) correlation: f64,
}

/// The lines through a set of samples.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Lines {
    /// Samples.
    pub(super) n: usize,
    /// Idle, kernel, user.
    pub(super) modes: Vec<ModeOf>,
    /// Where the idle line meets zero, requests/s.
    pub(super) x_intercept: Option<f64>,
    /// The interval of it (Fieller's, by the robust line).
    pub(super) x_interval: Option<(f64, f64)>,
    /// The reason to doubt the line, if there is one.
    pub(super) distrust: Option<String>,
}

impl Lines {
    /// The line of a mode.
    pub(super) fn mode(&self, mode: &str) -> Option<&ModeOf> {
        self.modes.iter().find(|line| line.mode == mode)
    }
}

/// The serving thread is the resource that saturates; the rest of the machine runs the load.
fn options(above: f64) -> Options {
    Options { above, resource: Some(ResourceKind::HottestThread), ..Options::default() }
}

/// Both days with their lines, the rate below which samples are left out for Table 5, and the paths
/// of their trials of samples. That rate is the same part of the highest rate as 20 requests/s were
/// in 1998.
pub(super) fn sides(day: &Day<'_>, raw: [Raw; 2]) -> Result<([Side; 2], f64, [PathBuf; 2]), Error> {
    let path = |name: &str| day.home.join(format!("{name}.trial"));
    let paths = [path("old"), path("new")];
    let gathered = [gather(&raw[0], &paths[0])?, gather(&raw[1], &paths[1])?];
    let rates = gathered.iter().flatten().map(|(_, interval)| interval.rate());
    let above = day.shape.above_20() * rates.fold(0.0, f64::max);
    let [old, new] = raw;
    let both = [
        side(day, old, &gathered[0], &paths[0], above)?,
        side(day, new, &gathered[1], &paths[1], above)?,
    ];
    Ok((both, above, paths))
}

fn side(
    day: &Day<'_>,
    raw: Raw,
    gathered: &[(usize, Interval)],
    path: &Path,
    above: f64,
) -> Result<Side, Error> {
    let trial = Trial::open(path)?;
    let analysis = report::analyse(&trial, &options(0.0))?;
    let samples = gathered.iter().zip(&analysis.intervals).map(|((at, _), row)| {
        let loaded = &raw.loaded[*at];
        Sample {
            hour: day.shape.hour_of(loaded.sample),
            offered: loaded.offered,
            cold: loaded.cold,
            rate: row.rate,
            idle: row.idle.unwrap_or(f64::NAN),
            kernel: row.kernel.unwrap_or(f64::NAN),
            user: row.user.unwrap_or(f64::NAN),
        }
    });
    let intervals = Trial::open(&raw.trial)?;
    let peak = intervals.intervals().iter().filter(|interval| interval.rate_valid);
    Ok(Side {
        samples: samples.collect(),
        backend: raw.backend,
        requests: raw.requests,
        errors: raw.errors,
        hits: raw.hits,
        descriptors_max: intervals
            .intervals()
            .iter()
            .filter_map(|interval| interval.server.as_ref()?.descriptors)
            .max(),
        rate_peak: peak.map(Interval::rate).fold(0.0, f64::max),
        all: lines(&analysis),
        above: report::analyse(&trial, &options(above)).ok().map(|analysis| lines(&analysis)),
    })
}

fn lines(analysis: &report::Analysis) -> Lines {
    let straight = &analysis.capacity_straight;
    let idle = analysis.modes.lines.iter().find(|line| line.mode == "idle");
    let distrust = straight.distrust_statistic.as_ref().zip(straight.distrust_why.as_ref());
    Lines {
        n: analysis.trial.fitted,
        modes: analysis
            .modes
            .lines
            .iter()
            .map(|line| ModeOf {
                mode: line.mode,
                slope: line.slope,
                us: line.us_per_request,
                intercept: line.intercept,
                correlation: line.correlation,
            })
            .collect(),
        x_intercept: idle.and_then(|line| line.x_intercept),
        x_interval: straight.line_low.zip(straight.line_high),
        distrust: distrust.map(|(statistic, why)| format!("{statistic}: {why}")),
    }
}

/// Compares the new with the old. They took turns, so that there is no difference between runs.
pub(super) fn compared(paths: &[PathBuf; 2]) -> Result<Comparison, Error> {
    let (old, new) = (Trial::open(&paths[0])?, Trial::open(&paths[1])?);
    let terms = CompareOptions {
        analysis: options(0.0),
        between_run: Some(0.0),
        ..CompareOptions::default()
    };
    Ok(report::compare(&old, &new, &terms)?)
}
