//! The load line of one resource from sums by rate, without the intervals.
//!
//! The lines are the lines of [`mod@crate::load_line`], with the same rules for the headline, for
//! trust, and for how much the rate must have varied ([`crate::variation`]):
//!
//! - **The straight line** is exactly least squares over all intervals, because it needs only sums.
//! - **The line with wakes** is fitted in two stages to the means of the bins, each with the weight
//!   of its intervals. The instruments are the same powers of the rate. Compared with the intervals
//!   themselves, only the variation of the rate within a bin (4 %) is lost.
//! - **The line of a busy CPU** is fitted to the means of the bins, each with the weight of its
//!   intervals. Noise within the bins counts as noise of an interval.
//!
//! **The error** of a line is the largest of three estimates. The first comes from the distances of
//! the bins' means from the line. The second comes from the correlation ρ of neighbouring
//! intervals: `(1 + ρ)/(1 − ρ)` intervals count as one, as in the full method. The third is used
//! from [`WINDOWS_MIN`] windows on, and takes each window as a cluster. Within a window, the rate
//! counts as constant.
//!
//! **Lengths**: an interval has its length as weight, and the lengths decide how many intervals
//! count as independent (Kish). The interval of the capacity is for a future interval of typical
//! length: the length of the interval in which a typical second lies.
//!
//! **What differs from the full method**: no interval is set aside. Intervals in which something
//! else used the resource stay in the fit, pull the line up, and widen its interval. The reach is
//! the highest mean use of a bin near the line, not the highest use of an interval. On 127 trials
//! of 17 set-ups of real servers the capacity differed from the capacity of the full method by 0.2
//! % (median), by less than 2.5 % in 120 trials, and by 28 % once, within both intervals. The
//! measured saturation was inside equally many intervals of both methods. With data below 10 % of
//! the cap, both methods are imprecise: once, at 5 % on a machine that was busy with other work,
//! the capacities differed by a factor of two, within intervals of a factor of ten and more.
//! `tests/saturation.rs` has bounds for simulated servers. Where the difference matters, analyse
//! the trial itself.

use serde::Serialize;

use crate::bins::Bin;
use crate::busy::{BusyFit, Known, fit_busy};
use crate::capacity::{AUTOCORRELATION_MAX, Capacity, EFFECTIVE_DOF_MIN, Question, variance_at};
use crate::curvature::{Curvature, curvature_of};
use crate::dist::t_upper_p;
use crate::interval::{Fieller, Interval, fieller};
use crate::linear::{Design, two_stage};
use crate::load_line::{
    BUSY_BELOW, Checks, INTERVALS_MIN, Needs, SEEN_FOLDS_MAX, SEEN_MIN, Trust, check_terms, trust,
    why_not_wakes,
};
use crate::marginal::Marginal;
use crate::sums::Sums;
use crate::wakes::instruments;
use crate::why::Why;
use crate::{Unfit, variation, wls};

/// Fewest windows for errors of clusters.
pub const WINDOWS_MIN: f64 = 10.0;
/// With a higher reach, the cap is wrong.
const REACH_MAX: f64 = 1.1;
/// Neighbours are as alike as they seem, if at least so many intervals remain independent. With
/// less data their correlation is known too poorly, and is at most [`AUTOCORRELATION_MAX`].
const INDEPENDENT_MIN: f64 = 10.0;
/// A bin's mean that is so many sd of an interval above the line is not due to the rate.
const ABOVE_LINE_SD: f64 = 3.0;

/// The input of a line from sums.
#[derive(Clone, Copy, Debug)]
pub struct BinLineInput<'a> {
    /// The sums by bin, in any order.
    pub bins: &'a [(i32, Bin)],
    /// The use at which the resource counts as exhausted: 1.0 for one CPU.
    pub cap: f64,
    /// Whether the wakes are known in all intervals.
    pub wakes_known: bool,
    /// Whether many processes take turns on the resource.
    pub processes_alternate: bool,
    /// What a request costs at the cap, if turns and busy periods show it.
    pub marginal: Option<Marginal>,
    /// Level of the intervals.
    pub level: f64,
    /// Sd of the level between runs as a share of the cap.
    pub between_run: f64,
}

/// The line that gives a capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// The straight line.
    Straight,
    /// The line with wakes.
    Wakes,
    /// The line of a busy CPU.
    Busy,
}

impl Model {
    /// Its label, as in a report.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Model::Straight => "straight",
            Model::Wakes => "wakes",
            Model::Busy => "busy",
        }
    }
}

/// The load line of one resource from sums.
#[derive(Clone, Debug, Serialize)]
pub struct BinLine {
    /// The capacity, requests/s; `None` if it is not identifiable.
    pub value: Option<f64>,
    /// Lower end of its interval for a future saturated interval; `None` if it is not bounded.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Level of the interval.
    pub level: f64,
    /// Why there is no capacity.
    pub reason: Option<String>,
    /// The line that gives it.
    pub model: Model,
    /// The cap.
    pub cap: f64,
    /// Number of intervals.
    pub n: f64,
    /// Number of windows.
    pub windows: f64,
    /// Highest mean use of a bin as a share of the cap, without bins that something else than the
    /// rate made busy.
    pub reach: f64,
    /// Mean rate of the highest bin.
    pub highest_rate: f64,
    /// Marginal cost by the straight line, microseconds per request.
    pub us_per_request: f64,
    /// Its standard error.
    pub us_per_request_se: f64,
    /// Whether the capacity is reliable.
    pub trusted: Trust,
}

/// Fits the line of one resource to sums.
///
/// # Errors
/// Fewer than [`INTERVALS_MIN`] intervals, sums that are not finite, a rate that did not vary, a
/// cap, level or between-run sd out of range.
pub fn line_of(input: &BinLineInput<'_>) -> Result<BinLine, Unfit> {
    let BinLineInput { cap, level, between_run, .. } = *input;
    let question = Question { cap, level, between_run, seed: 0 };
    let data = Data::of(input)?;
    let straight = data.straight()?;
    let clusters = data.clusters(&straight);
    let at = straight.reaches(cap);
    let plain = variance_at(&straight.plain(), at);
    let by_windows = clusters.map_or(1.0, |clusters| variance_at(&clusters, at) / plain);
    let mut capacity = data.capacity(&straight, by_windows, question);
    let (mut model, mut fit) = (Model::Straight, &straight);
    let with_wakes = data.with_wakes(input, by_windows, question);
    if let Some((wakes, of_wakes)) = &with_wakes {
        (model, fit, capacity) = (Model::Wakes, wakes, of_wakes.clone());
    }
    let reach = data.reach(&straight) / cap;
    let needs = Needs::of(&capacity.identifiable, input.marginal.is_some());
    let asked = reach < BUSY_BELOW && needs == Needs::Nothing;
    if let Some(busy) = asked.then(|| data.busy(input, reach * cap, question)).flatten() {
        (model, capacity) = (Model::Busy, busy);
    }
    let of_clusters = clusters.map_or(0.0, |clusters| clusters[1][1]);
    let factor = straight.by_bins().max(data.neighbours(&straight).per_one);
    let se_slope = (factor * straight.plain()[1][1]).max(of_clusters).sqrt();
    let is_busy = model == Model::Busy;
    let curvature = if is_busy { None } else { data.curvature(fit, cap) };
    let mut trusted = trust(&Checks {
        capacity: &capacity,
        slope_t: straight.b / se_slope,
        reach,
        is_busy,
        has_marginal: input.marginal.is_some(),
        set_aside: (0, 0),
        curvature: curvature.as_ref(),
        folds: variation::folds_of(&data.rates()),
    });
    let highest_rate = data.rows.last().map_or(0.0, |row| row.x);
    if reach < SEEN_MIN || capacity.value > SEEN_FOLDS_MAX * highest_rate {
        capacity.refuse(Why::TooQuiet { reach });
    }
    if matches!(trusted, Trust::Yes) && reach > REACH_MAX {
        let statistic = format!("reach = {:.0} % of the cap", 100.0 * reach);
        trusted = Trust::Unreliable { statistic, why: "the cap is below the measured use".into() };
    }
    let (low, high) = capacity.interval.bounds().unzip();
    Ok(BinLine {
        value: capacity.identifiable.is_ok().then_some(capacity.value),
        low,
        high,
        level,
        reason: capacity.identifiable.err().map(|why| why.to_string()),
        model,
        cap,
        n: data.all.n,
        windows: data.all.windows,
        reach,
        highest_rate,
        us_per_request: 1e6 * straight.b,
        us_per_request_se: 1e6 * se_slope,
        trusted,
    })
}

/// The intervals of one bin.
struct Row {
    /// Their weight, see [`Data`].
    n: f64,
    /// Means of the rate, the cost and the wakes.
    x: f64,
    c: f64,
    w: f64,
    /// Sums of squares and products about the means. Only these fields are set.
    about: Bin,
}

impl Row {
    fn of(bin: &Bin) -> Row {
        let Bin { s: n, x, c, w, xx, xc, cc, xw, cw, ww, .. } = *bin;
        let about = Bin {
            xx: (xx - x * x / n).max(0.0),
            xc: xc - x * c / n,
            cc: (cc - c * c / n).max(0.0),
            xw: xw - x * w / n,
            cw: cw - c * w / n,
            ww: (ww - w * w / n).max(0.0),
            ..Bin::default()
        };
        Row { n, x: x / n, c: c / n, w: w / n, about }
    }

    /// The sum of squares of the residuals about their mean.
    fn within(&self, b: f64, w: f64) -> f64 {
        let Bin { xx, xc, cc, xw, cw, ww, .. } = self.about;
        let of_line = b * (b * xx - 2.0 * xc) + w * (w * ww - 2.0 * cw) + 2.0 * b * w * xw;
        (cc + of_line).max(0.0)
    }
}

/// How alike neighbouring intervals are.
struct Neighbours {
    /// The lag-one correlation of the residuals.
    rho: f64,
    /// So many intervals count as one.
    per_one: f64,
}

/// A line `C = a + b·x + w·wakes`, with its residuals.
struct Fit {
    a: f64,
    b: f64,
    w: f64,
    /// `(X'WX)^-1` of the first two coefficients.
    bread: [[f64; 2]; 2],
    /// Number of coefficients.
    p: f64,
    /// Weight of all intervals minus coefficients.
    dof: f64,
    /// Variance of an interval's residual.
    variance: f64,
    /// The same, if the means of the bins are as far from the line as they are by chance.
    variance_by_bins: f64,
    /// The projected regressors and the measured ones, by bin.
    designs: (Design, Design),
}

impl Fit {
    fn at(&self, row: &Row) -> f64 {
        self.a + self.b * row.x + self.w * row.w
    }

    fn reaches(&self, cap: f64) -> f64 {
        (cap - self.a) / self.b
    }

    /// The covariance of (a, b) if the intervals were independent.
    fn plain(&self) -> [[f64; 2]; 2] {
        self.bread.map(|row| row.map(|value| value * self.variance))
    }

    /// The factor of the variance that covers the distance of the bins from the line.
    fn by_bins(&self) -> f64 {
        let factor = self.variance_by_bins / self.variance;
        if factor > 1.0 { factor } else { 1.0 }
    }
}

/// The sums in the unit in which the weights of the intervals, which are their lengths, add up to
/// the number of intervals that count as independent (Kish). If all have the same length, the unit
/// is this length, and each has the weight one.
struct Data {
    bins: Vec<Bin>,
    all: Bin,
    /// Bins with intervals, by rate.
    rows: Vec<Row>,
    /// Their columns, and their weights.
    x: Vec<f64>,
    c: Vec<f64>,
    w: Vec<f64>,
    n: Vec<f64>,
}

impl Data {
    fn of(input: &BinLineInput<'_>) -> Result<Data, Unfit> {
        let BinLineInput { bins, cap, level, between_run, .. } = *input;
        let sum = bins.iter().fold(Bin::default(), |all, (_, bin)| all + *bin);
        let unit = sum.ss / sum.s;
        let bins: Vec<Bin> = bins.iter().map(|(_, bin)| bin.times(1.0 / unit)).collect();
        let all = bins.iter().fold(Bin::default(), |all, bin| all + *bin);
        let found = if sum.n > 0.0 { sum.n.min(all.s.round()) } else { 0.0 };
        if found < INTERVALS_MIN as f64 {
            return Err(Unfit::TooFew { needed: INTERVALS_MIN, found: found.max(0.0) as usize });
        }
        check_terms(cap, level, between_run)?;
        if all.values().iter().any(|sum| !sum.is_finite()) {
            return Err(Unfit::NotFinite);
        }
        let mut rows: Vec<Row> = bins.iter().filter(|bin| bin.s > 0.0).map(Row::of).collect();
        rows.sort_by(|a, b| a.x.total_cmp(&b.x));
        let column = |of: fn(&Row) -> f64| rows.iter().map(of).collect::<Vec<f64>>();
        let (x, c) = (column(|row| row.x), column(|row| row.c));
        let (w, n) = (column(|row| row.w), column(|row| row.n));
        Ok(Data { bins, all, rows, x, c, w, n })
    }

    /// The mean rate of each bin with its intervals, the lowest first.
    fn rates(&self) -> Vec<(f64, f64)> {
        self.rows.iter().map(|row| (row.x, row.n)).collect()
    }

    fn straight(&self) -> Result<Fit, Unfit> {
        let Bin { s: n, x, c, xx, xc, cc, .. } = self.all;
        let sums = Sums { n, x, y: c, xx, xy: xc, yy: cc };
        let line = sums.line().ok_or(Unfit::Singular)?;
        let Row { x, about, .. } = Row::of(&self.all);
        let cross = -x / about.xx;
        let bread = [[1.0 / n - x * cross, cross], [cross, 1.0 / about.xx]];
        let design = Design::new(&[&self.x])?;
        let line = [line.intercept, line.slope, 0.0];
        Ok(self.fit(line, bread, 2.0, (design.clone(), design)))
    }

    fn fit(
        &self,
        [a, b, w]: [f64; 3],
        bread: [[f64; 2]; 2],
        p: f64,
        designs: (Design, Design),
    ) -> Fit {
        let dof = self.all.s - p;
        let mut fit = Fit { a, b, w, bread, p, dof, variance: 0.0, variance_by_bins: 0.0, designs };
        let within: f64 = self.rows.iter().map(|row| row.within(b, w)).sum();
        let between: f64 = self.rows.iter().map(|row| row.n * (row.c - fit.at(row)).powi(2)).sum();
        fit.variance = (within + between) / dof;
        let spare = self.rows.len() as f64 - p;
        fit.variance_by_bins = if spare > 0.0 { between / spare } else { 0.0 };
        fit
    }

    /// How alike neighbouring intervals are, by the residuals' squares of differences.
    fn neighbours(&self, line: &Fit) -> Neighbours {
        let Bin { s: n, pairs, dxx, dxc, dcc, dxw, dcw, dww, .. } = self.all;
        let Fit { b, w, p, .. } = *line;
        let of_line = b * (b * dxx - 2.0 * dxc) + w * (w * dww - 2.0 * dcw) + 2.0 * b * w * dxw;
        let raw = 1.0 - (dcc + of_line) / (2.0 * pairs * line.variance * line.dof / n);
        let raw = if raw.is_finite() { raw } else { 0.0 };
        // Kendall's correction, as in the full method.
        let rho = (raw + (p + (p + 2.0) * raw) / n).clamp(0.0, 1.0);
        let of = |rho: f64| (1.0 + rho) / (1.0 - rho);
        Neighbours { rho, per_one: of(rho).min(of(AUTOCORRELATION_MAX).max(n / INDEPENDENT_MIN)) }
    }

    /// The covariance of (a, b) with windows as clusters. The products of each window are in the
    /// bin of its mean rate.
    fn clusters(&self, line: &Fit) -> Option<[[f64; 2]; 2]> {
        let Bin { windows, xx, .. } = self.all;
        if windows < WINDOWS_MIN {
            return None;
        }
        let Fit { a, b, .. } = *line;
        let mut meat = [[0.0; 2]; 2];
        let mut between = 0.0;
        for sums in self.bins.iter().filter(|sums| sums.window_ss > 0.0) {
            let Bin { window_s, window_ss, window_sx, window_sc, .. } = *sums;
            let Bin { window_xx, window_xc, window_cc, .. } = *sums;
            let rate = window_sx / window_ss;
            // The sum of squares of the windows' residuals.
            let of_line = a * (a * window_ss - 2.0 * window_sc) + 2.0 * a * b * window_sx;
            let squares = window_cc + of_line + b * (b * window_xx - 2.0 * window_xc);
            let squares = squares.max(0.0);
            meat[0][0] += squares;
            meat[0][1] += squares * rate;
            meat[1][1] += squares * rate * rate;
            between += window_s * rate * rate;
        }
        // The variation of the rate within windows.
        meat[1][1] += line.variance * self.neighbours(line).per_one * (xx - between).max(0.0);
        meat[1][0] = meat[0][1];
        let correction = windows / (windows - 2.0);
        let product = |a: [[f64; 2]; 2], b: [[f64; 2]; 2]| {
            [0, 1].map(|i| [0, 1].map(|j: usize| a[i][0] * b[0][j] + a[i][1] * b[1][j]))
        };
        let found = product(product(line.bread, meat), line.bread);
        Some(found.map(|row| row.map(|value| value * correction)))
    }

    /// The line with wakes, if it is the headline.
    fn with_wakes(
        &self,
        input: &BinLineInput<'_>,
        by_windows: f64,
        question: Question,
    ) -> Option<(Fit, Capacity)> {
        if !input.wakes_known {
            return None;
        }
        let weights = Some(self.n.as_slice());
        let measured = Design::new(&[&self.x, &self.w]).ok()?;
        let fit = two_stage(&instruments(&self.x).ok()?, &measured, &self.c, weights).ok()?;
        let vif = 1.0 / (1.0 - wls(&self.x, fit.projected.column(2), &self.n).ok()?.r_squared);
        let [a, b, w] = [0, 1, 2].map(|j| fit.coefficients[j]);
        let cov = &fit.unscaled_cov;
        let bread = [[cov[0][0], cov[0][1]], [cov[1][0], cov[1][1]]];
        let line = self.fit([a, b, w], bread, 3.0, (fit.projected, measured));
        let factor = self.factor(&line, by_windows);
        let se = (line.variance * factor * cov[2][2]).sqrt();
        let (t, capacity) = (w / se, self.capacity(&line, by_windows, question));
        let p = t_upper_p(t, self.dof(&line, by_windows));
        why_not_wakes(vif, t, p, &capacity).is_none().then_some((line, capacity))
    }

    /// By how much the variance of a line is larger than if the intervals were independent.
    /// `by_windows` is this factor for the straight line by its clusters.
    fn factor(&self, line: &Fit, by_windows: f64) -> f64 {
        line.by_bins().max(self.neighbours(line).per_one).max(by_windows)
    }

    /// The degrees of freedom of that variance.
    fn dof(&self, line: &Fit, by_windows: f64) -> f64 {
        let factor = self.factor(line, by_windows);
        let dof = self.all.s / factor - line.p;
        let dof = if by_windows < factor { dof } else { dof.min(self.all.windows - 2.0) };
        dof.max(EFFECTIVE_DOF_MIN)
    }

    fn capacity(&self, line: &Fit, by_windows: f64, question: Question) -> Capacity {
        let Question { cap, level, between_run, .. } = question;
        let factor = self.factor(line, by_windows);
        let n = self.all.s;
        let free = (n - line.p * factor).max(EFFECTIVE_DOF_MIN * factor).min(line.dof) / n;
        let residual_sd = self.residual_sd_at(line, cap, free);
        let base = Fieller {
            cap,
            intercept: line.a,
            slope: line.b,
            cov: line.plain().map(|row| row.map(|value| value * factor)),
            extra_variance: 0.0,
            dof: self.dof(line, by_windows),
            level,
        };
        let line_interval = fieller(&base);
        let rho = self.neighbours(line).rho;
        let extra_variance = residual_sd.powi(2) + (between_run * cap).powi(2);
        let interval = fieller(&Fieller { extra_variance, ..base });
        let identifiable = if let Err(why) = variation::check_groups(&self.rates()) {
            Err(why)
        } else if line.b.is_nan() || line.b <= 0.0 {
            Err(Why::CostDoesNotRise)
        } else if line.a >= cap {
            Err(Why::NoRoomUnderCap)
        } else if line_interval.bounds().is_none() {
            let if_independent = fieller(&Fieller { cov: line.plain(), dof: line.dof, ..base });
            match if_independent.bounds() {
                Some(_) if rho > 0.0 => Err(Why::NeighboursAlike { rho, effective_n: n / factor }),
                _ => Err(Why::RateDidNotVary),
            }
        } else {
            Ok(())
        };
        let unbounded = |reason: &str| Interval::Unbounded { reason: reason.to_owned() };
        let if_identifiable = |interval: Interval| match &identifiable {
            Ok(()) => interval,
            Err(why) => unbounded(&why.to_string()),
        };
        Capacity {
            value: line.reaches(cap),
            interval: if_identifiable(interval),
            line_interval: if_identifiable(line_interval),
            bootstrap: unbounded("sums are not resampled"),
            block_length: 1,
            level,
            residual_sd,
            between_run_sd: between_run * cap,
            autocorrelation: rho,
            effective_n: n / factor,
            identifiable,
        }
    }

    /// The expected residual sd at the cap, as in [`crate::capacity`], with the part of the
    /// intervals that are degrees of freedom.
    fn residual_sd_at(&self, line: &Fit, cap: f64, free: f64) -> f64 {
        let mut fitted: Vec<(f64, &Row)> =
            self.rows.iter().map(|row| (line.at(row), row)).collect();
        fitted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut sum, mut n) = (0.0, 0.0);
        for (fitted, row) in fitted.into_iter().filter(|(fitted, _)| *fitted > 0.0) {
            let squares = row.within(line.b, line.w) + row.n * (row.c - fitted).powi(2);
            sum += squares / fitted.powi(2);
            n += row.n;
            if n >= 0.5 * self.all.s {
                break;
            }
        }
        let relative = if n > 0.0 { (sum / n / free).sqrt() } else { 0.0 };
        let pooled = (line.variance * line.dof / self.all.s / free).sqrt();
        pooled.max(relative * cap)
    }

    /// The highest mean use of a bin, without what something else than the rate made busy: a bin
    /// counts only as far as one with a higher rate is used as much, and as far as it is near the
    /// straight line.
    fn reach(&self, line: &Fit) -> f64 {
        let near = |row: &Row| line.at(row) + ABOVE_LINE_SD * line.variance.sqrt();
        let (mut reach, mut above) = (0.0_f64, f64::INFINITY);
        for row in self.rows.iter().rev() {
            let used = row.c.min(near(row));
            reach = reach.max(used.min(above));
            above = if above.is_finite() { above.max(used) } else { used };
        }
        reach
    }

    fn busy(&self, input: &BinLineInput<'_>, reach: f64, question: Question) -> Option<Capacity> {
        // A server that never sleeps spends its CPU time waiting.
        if input.wakes_known && self.all.w <= 0.0 {
            return None;
        }
        let mean_of = |row: &Row| {
            let ratio = if row.x > 0.0 { row.c / row.x } else { 0.0 };
            (row.n, row.within(ratio, 0.0) / row.c.powi(2))
        };
        let means_of: Vec<(f64, f64)> = self.rows.iter().map(mean_of).collect();
        let above = |&bin: &usize| self.c[bin] > reach;
        let set_aside: Vec<usize> = (0..self.c.len()).filter(above).collect();
        let known = Known {
            set_aside: &set_aside,
            wakes: input.wakes_known.then_some(&self.w),
            processes_alternate: input.processes_alternate,
            marginal: input.marginal,
            is_constant: variation::check_groups(&self.rates()).is_err(),
            means_of: Some(&means_of),
            ..Known::default()
        };
        let fit: BusyFit = fit_busy(&self.x, &self.c, known, question).ok()?;
        fit.capacity.identifiable.is_ok().then_some(fit.capacity)
    }

    fn curvature(&self, line: &Fit, cap: f64) -> Option<Curvature> {
        let (projected, measured) = &line.designs;
        curvature_of(projected, measured, &self.c, Some(&self.n), cap).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bins::{bin_of, close_window};
    use crate::{Rng, ols};

    fn input(bins: &[(i32, Bin)]) -> BinLineInput<'_> {
        BinLineInput {
            bins,
            cap: 1.0,
            wakes_known: true,
            processes_alternate: false,
            marginal: None,
            level: 0.95,
            between_run: 0.03,
        }
    }

    /// The sums of rates and costs in windows.
    fn sums(windows: &[Vec<(f64, f64)>]) -> Vec<(i32, Bin)> {
        let mut all: BTreeMap<i32, Bin> = BTreeMap::new();
        for window in windows {
            let mut bins: BTreeMap<i32, Bin> = BTreeMap::new();
            let mut before = None;
            for &(x, c) in window {
                let one = Bin::of(x, c, 0.0);
                let pair = before.map_or(Bin::default(), |before| Bin::pair(&before, &one));
                let bin = bins.entry(bin_of(x)).or_default();
                *bin = *bin + one + pair;
                before = Some(one);
            }
            close_window(&mut bins);
            for (bin, sums) in bins {
                let of = all.entry(bin).or_default();
                *of = *of + sums;
            }
        }
        all.into_iter().collect()
    }

    /// Sixty windows of fifty intervals: each window has a level.
    fn windows(level_sd: f64, a: f64) -> Vec<Vec<(f64, f64)>> {
        let mut rng = Rng::new(5);
        let window = |k: usize| {
            let level = level_sd * rng.normal();
            let rate = 600.0 + 300.0 * (k as f64 / 6.0).sin();
            let mut interval = |_| {
                let x = rate * (1.0 + 0.1 * rng.normal());
                (x, a + 4e-4 * x + level + 0.01 * rng.normal())
            };
            (0..50).map(&mut interval).collect()
        };
        (0..60).map(window).collect()
    }

    /// Liang and Zeger's variance of the slope, from the intervals.
    fn clustered(windows: &[Vec<(f64, f64)>]) -> (f64, f64) {
        let all: Vec<(f64, f64)> = windows.iter().flatten().copied().collect();
        let (x, c): (Vec<f64>, Vec<f64>) = all.iter().copied().unzip();
        let line = ols(&x, &c).unwrap();
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let spread: f64 = x.iter().map(|x| (x - mean).powi(2)).sum();
        let score = |window: &Vec<(f64, f64)>| {
            window.iter().map(|(x, c)| (x - mean) * (c - line.at(*x))).sum::<f64>()
        };
        let meat: f64 = windows.iter().map(|window| score(window).powi(2)).sum();
        (line.slope, (meat * 60.0 / 58.0).sqrt() / spread)
    }

    #[test]
    fn the_slope_is_exact_and_its_error_is_that_of_clusters() {
        for a in [0.0, 0.1] {
            let windows = windows(0.03, a);
            let (slope, se) = clustered(&windows);
            let line = line_of(&input(&sums(&windows))).unwrap();
            assert!((line.us_per_request / slope / 1e6 - 1.0).abs() < 1e-9, "{line:?}");
            let ratio = line.us_per_request_se / se / 1e6;
            assert!((0.9..1.25).contains(&ratio), "{ratio} {line:?}");
            assert_eq!((line.n, line.windows), (3_000.0, 60.0));
        }
        // Without a level of the window, the intervals are independent.
        let line = line_of(&input(&sums(&windows(0.0, 0.1)))).unwrap();
        let (_, se) = clustered(&windows(0.0, 0.1));
        assert!((0.8..1.6).contains(&(line.us_per_request_se / se / 1e6)), "{line:?} {se}");
    }

    /// Liang and Zeger's covariance of (a, b), from the intervals.
    fn exact_clusters(windows: &[Vec<(f64, f64)>]) -> [[f64; 2]; 2] {
        let all: Vec<(f64, f64)> = windows.iter().flatten().copied().collect();
        let (x, c): (Vec<f64>, Vec<f64>) = all.iter().copied().unzip();
        let line = ols(&x, &c).unwrap();
        let n = x.len() as f64;
        let (sum, squares) = (x.iter().sum::<f64>(), x.iter().map(|x| x * x).sum::<f64>());
        let of = 1.0 / (n * squares - sum * sum);
        let bread = [[squares * of, -sum * of], [-sum * of, n * of]];
        let mut found = [[0.0; 2]; 2];
        for window in windows {
            let residual = |(x, c): &(f64, f64)| c - line.at(*x);
            let score = [
                window.iter().map(residual).sum::<f64>(),
                window.iter().map(|one| one.0 * residual(one)).sum::<f64>(),
            ];
            let part = [0, 1].map(|i: usize| bread[i][0] * score[0] + bread[i][1] * score[1]);
            let count = windows.len() as f64;
            for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                found[i][j] += part[i] * part[j] * count / (count - 2.0);
            }
        }
        found
    }

    /// The size of a window came from the centre of its bin, and so a fixed cost became noise: at a
    /// fixed cost of 0.5 the error at the cap was 5.8 times too wide. In the lowest bin, the cost
    /// was not that of the windows, and the squares came out below zero.
    #[test]
    fn a_fixed_cost_is_no_noise_of_windows() {
        let mut rng = Rng::new(8);
        let mut half_idle = |k: i32| {
            let busy = |i: i32| if (k + i) % 2 == 0 || k >= 20 { 400.0 } else { 0.0 };
            let each = |i: i32| (busy(i), 0.1 + 1e-3 * busy(i) + 0.01 * rng.normal());
            let idle = (0..30).map(|i| (0.0, 0.1 + 0.01 * f64::from(i % 3 - 1)));
            if k % 4 == 0 { idle.collect() } else { (0..30).map(each).collect() }
        };
        let idle: Vec<Vec<(f64, f64)>> = (0..40).map(&mut half_idle).collect();
        for windows in [windows(0.02, 0.0), windows(0.02, 0.2), windows(0.02, 0.5), idle] {
            let bins = sums(&windows);
            let data = Data::of(&input(&bins)).unwrap();
            let straight = data.straight().unwrap();
            let at = |cov: &[[f64; 2]; 2]| variance_at(cov, straight.reaches(1.0)).sqrt();
            let ratio = at(&data.clusters(&straight).unwrap()) / at(&exact_clusters(&windows));
            assert!((0.7..1.4).contains(&ratio), "{ratio}");
        }
    }

    /// Costs whose noise has this correlation at lag one, in windows of 300 intervals.
    fn correlated(n: usize, rho: f64, seed: u64) -> Vec<Vec<(f64, f64)>> {
        let mut rng = Rng::new(seed);
        let mut noise = rng.normal();
        let mut interval = |k: usize| {
            noise = rho * noise + (1.0 - rho * rho).sqrt() * rng.normal();
            let x = 600.0 + 300.0 * (k as f64 / 100.0).sin() + 20.0 * rng.normal();
            (x, 0.1 + 5e-4 * x + 0.02 * noise)
        };
        let all: Vec<(f64, f64)> = (0..n).map(&mut interval).collect();
        all.chunks(300).map(<[_]>::to_vec).collect()
    }

    /// With less than ten windows, neighbours counted as independent: at a correlation of 0.99 the
    /// error of the slope covered the truth in 38 of 100 trials.
    #[test]
    fn neighbours_that_are_alike_widen_the_error_of_few_windows() {
        for (n, rho) in [(600, 0.9), (2_600, 0.99), (3_600, 0.99), (3_600, 0.0)] {
            let (mut held, mut error) = (0, 0.0);
            for seed in 0..60 {
                let line = line_of(&input(&sums(&correlated(n, rho, seed)))).unwrap();
                let off = (line.us_per_request - 500.0).abs();
                held += i32::from(off <= 1.96 * line.us_per_request_se);
                error += line.us_per_request_se / 60.0;
            }
            assert!(held >= 53, "{held} of 60 at {n} {rho}");
            assert!(rho > 0.0 || error < 2.0, "{error} if independent");
        }
    }

    /// The wakes of these requests cost nothing, but slow noise made them cost something.
    #[test]
    fn slow_noise_does_not_make_wakes_cost_something() {
        let mut chosen = 0;
        for seed in 0..60 {
            let mut bins: BTreeMap<i32, Bin> = BTreeMap::new();
            let mut before = None;
            for (x, c) in correlated(1_500, 0.97, seed).concat() {
                let one = Bin::of(x, c, x * (1.0 - c));
                let pair = before.map_or(Bin::default(), |before| Bin::pair(&before, &one));
                let bin = bins.entry(bin_of(x)).or_default();
                (*bin, before) = (*bin + one + pair, Some(one));
            }
            let bins: Vec<(i32, Bin)> = bins.into_iter().collect();
            let data = Data::of(&input(&bins)).unwrap();
            let question = Question { cap: 1.0, level: 0.95, between_run: 0.03, seed: 0 };
            chosen += i32::from(data.with_wakes(&input(&bins), 1.0, question).is_some());
        }
        assert!(chosen <= 9, "{chosen} of 60");
    }

    /// An hour of intervals of 100 ms outweighed a day of intervals of 10 s.
    #[test]
    fn every_second_has_the_same_weight() {
        let mut rng = Rng::new(4);
        let mut bins: BTreeMap<i32, Bin> = BTreeMap::new();
        let (mut x, mut c, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for (n, length, us) in [(8_640, 10.0, 400.0), (36_000, 0.1, 800.0)] {
            for k in 0..n {
                let rate = 600.0 + 300.0 * f64::sin(f64::from(k) / 300.0);
                let cost = 0.1 + 1e-6 * us * rate + 0.01 * rng.normal();
                let bin = bins.entry(bin_of(rate)).or_default();
                *bin = *bin + Bin::of(rate, cost, 0.0).times(length);
                x.push(rate);
                c.push(cost);
                lengths.push(length);
            }
        }
        let bins: Vec<(i32, Bin)> = bins.into_iter().collect();
        let line = line_of(&input(&bins)).unwrap();
        let weighted = wls(&x, &c, &lengths).unwrap().slope;
        assert!((line.us_per_request / weighted / 1e6 - 1.0).abs() < 1e-9, "{line:?}");
        // The hour is 4 % of the time.
        assert_eq!((line.n, line.us_per_request.round()), (44_640.0, 413.0));
        // Intervals of equal length are fitted as if each were of one second.
        let lasting = |length: f64| {
            let bins: Vec<(i32, Bin)> = sums(&windows(0.03, 0.1))
                .into_iter()
                .map(|(bin, sums)| (bin, sums.times(length)))
                .collect();
            let line = line_of(&input(&bins)).unwrap();
            [line.value.unwrap(), line.low.unwrap(), line.high.unwrap(), line.us_per_request_se]
        };
        for (one, ten) in lasting(1.0).into_iter().zip(lasting(10.0)) {
            assert!((one / ten - 1.0).abs() < 1e-9, "{one} {ten}");
        }
    }

    /// An event loop of which a request costs 20 us at the cap of 49,900/s, used to 50 %.
    fn event_loop(n: usize, outlier: Option<(f64, f64)>) -> BinLine {
        let mut rng = Rng::new(6);
        let interval = |k: usize| {
            let day = std::f64::consts::TAU * k as f64 / n as f64;
            let rate = 10_000.0 * (1.0 - 0.9 * day.cos());
            let rate = rate * (1.0 + 0.02 * rng.normal());
            let wakes = |used: f64| 1.5 * rate * (1.0 - used).powf(1.5);
            let used = (0..30).fold(0.3, |used, _| 0.002 + rate * 20e-6 + 7e-6 * wakes(used));
            (rate, used * (1.0 + 0.03 * rng.normal()), wakes(used))
        };
        let mut all: Vec<(f64, f64, f64)> = (0..n).map(interval).collect();
        if let Some((rate, cost)) = outlier {
            (all[n / 3].0, all[n / 3].1) = (rate, cost);
        }
        let mut bins: BTreeMap<i32, Bin> = BTreeMap::new();
        for window in all.chunks(300) {
            let mut of_window: BTreeMap<i32, Bin> = BTreeMap::new();
            for &(x, c, w) in window {
                let bin = of_window.entry(bin_of(x)).or_default();
                *bin = *bin + Bin::of(x, c, w);
            }
            close_window(&mut of_window);
            for (bin, sums) in of_window {
                let all = bins.entry(bin).or_default();
                *all = *all + sums;
            }
        }
        line_of(&input(&bins.into_iter().collect::<Vec<_>>())).unwrap()
    }

    /// One of 86,400 intervals, at 40 requests/s, made the server look nearly saturated.
    #[test]
    fn one_interval_does_not_decide_which_line_is_used() {
        for n in [86_400, 3_600] {
            let undisturbed = event_loop(n, None);
            assert_eq!(undisturbed.model, Model::Busy, "{undisturbed:?}");
            for outlier in [(40.0, 0.95), (30_000.0, 0.98)] {
                let disturbed = event_loop(n, Some(outlier));
                let ends = |line: &BinLine| [line.value, line.low, line.high].map(Option::unwrap);
                for (is, was) in ends(&disturbed).into_iter().zip(ends(&undisturbed)) {
                    assert!((is / was - 1.0).abs() < 0.1, "{n} {outlier:?} {disturbed:?}");
                }
            }
        }
    }

    /// With the cap of two workers where eight work, the capacity was a quarter, and trusted.
    #[test]
    fn a_cap_below_the_measured_use_is_not_reliable() {
        let bins = sums(&windows(0.0, 0.0));
        let line = line_of(&BinLineInput { cap: 0.1, ..input(&bins) }).unwrap();
        let Trust::Unreliable { why, .. } = &line.trusted else { panic!("{line:?}") };
        assert!(line.reach > 3.0 && why.contains("below the measured use"), "{line:?}");
    }

    #[test]
    fn the_order_of_the_bins_does_not_matter() {
        let mut bins = sums(&windows(0.03, 0.1));
        let line = format!("{:?}", line_of(&input(&bins)).unwrap());
        bins.reverse();
        let reversed = line_of(&input(&bins)).unwrap();
        let value = reversed.value.unwrap().to_string();
        assert!(line.contains(&value[..8]), "{line} {reversed:?}");
    }

    #[test]
    fn a_rate_that_does_not_vary_has_no_line() {
        let fit = |windows: Vec<Vec<(f64, f64)>>| line_of(&input(&sums(&windows)));
        assert_eq!(fit(vec![vec![(100.0, 0.2); 50]]).unwrap_err(), Unfit::Singular);
        assert_eq!(fit(vec![vec![(0.0, 0.2); 50]]).unwrap_err(), Unfit::Singular);
        let few = fit(vec![vec![(100.0, 0.2); 5]]);
        assert!(matches!(few, Err(Unfit::TooFew { found: 5, .. })), "{few:?}");
        let falls = fit(vec![(0..50).map(|i| (f64::from(i), 0.9 - 0.01 * f64::from(i))).collect()]);
        let falls = falls.unwrap();
        assert!(falls.value.is_none() && falls.reason.is_some(), "{falls:?}");
        assert!(matches!(falls.trusted, Trust::Unreliable { .. }));
        let cap = BinLineInput { cap: f64::NAN, ..input(&[]) };
        assert!(line_of(&cap).is_err());
    }

    /// Sums come from a database, and may be anything.
    #[test]
    fn no_sums_panic() {
        let mut rng = Rng::new(9);
        let values = [0.0, 1.0, -1.0, 1e300, -1e300, 1e-300, f64::NAN, f64::INFINITY, 50.0, 0.3];
        for _ in 0..3_000 {
            let wild = rng.below(3);
            let mut value = || match wild {
                0 => values[rng.below(values.len())],
                1 => rng.uniform() * 100.0,
                _ => rng.normal(),
            };
            let mut bins: Vec<(i32, Bin)> = Vec::new();
            for bin in 0..12 {
                let mut sums = Bin::of(value(), value(), value()).as_window();
                (sums.n, sums.xx, sums.cc) = (value(), value(), value());
                bins.push(((bin - 2) * 40, sums));
            }
            bins.push((i32::MAX, Bin::of(3.0, 0.1, 1.0)));
            bins.push((i32::MIN, Bin::of(9.0, 0.1, 1.0).as_window()));
            let _ = line_of(&input(&bins));
        }
    }
}
