//! The published figures of 1998, from samples constructed to have exactly those lines and
//! correlations: the results must equal the printed values within their rounding.

mod facts;

use facts::{Day, IMPROVEMENTS, SAMPLES, SELECT_NEW, SELECT_OLD, SQUID_NEW, SQUID_OLD};
use regress::compare::interaction;
use regress::{
    Change, Design, Group, LoadLineInput, ModesFit, Rng, closure, costs, difference, fieller,
    load_line, mm, modes_fit_weighted, ols, predict, what_if,
};

/// A day's samples: user + kernel + idle = 100 in every one.
struct Sample {
    rate: Vec<f64>,
    user: Vec<f64>,
    kernel: Vec<f64>,
    idle: Vec<f64>,
}

/// A day whose three lines have the slopes and correlations of the table. Each mode is its line
/// plus a residual orthogonal to the rate, with the length that its correlation requires: `|e|² =
/// b²·Sxx·(1/r² − 1)`. The angle between the residuals of user and kernel is such that their sum
/// has the length that idle requires.
fn construct(day: &Day) -> Sample {
    let mut rng = Rng::new(1998);
    let rate: Vec<f64> = (0..SAMPLES)
        .map(|i| {
            let hour = i as f64 / SAMPLES as f64 * std::f64::consts::TAU;
            let shape = 0.5 - 0.5 * hour.cos();
            day.rate_peak * (0.03 + 0.5 * shape * (0.6 + 0.4 * rng.uniform()))
        })
        .collect();
    let centred = orthogonal(&rate, &[vec![1.0; SAMPLES]]);
    let sxx: f64 = centred.iter().map(|v| v * v).sum();
    let length = |(slope, r): (f64, f64)| slope * slope * sxx * (1.0 / (r * r) - 1.0);
    let (kernel_slope, user_slope) = day.unrounded;
    let idle_slope = -(kernel_slope + user_slope);
    let kernel2 = length((kernel_slope, day.kernel.1));
    let user2 = length((user_slope, day.user.1));
    let cosine =
        (length((idle_slope, day.idle.1)) - kernel2 - user2) / 2.0 / (kernel2 * user2).sqrt();
    assert!(cosine.abs() < 1.0, "the table contradicts itself");

    let noise = |rng: &mut Rng| (0..SAMPLES).map(|_| rng.normal()).collect::<Vec<f64>>();
    let ones = vec![1.0; SAMPLES];
    let first = unit(orthogonal(&noise(&mut rng), &[ones.clone(), centred.clone()]));
    let second = unit(orthogonal(&noise(&mut rng), &[ones, centred, first.clone()]));
    let sine = (1.0 - cosine * cosine).sqrt();
    let line = |i: usize, fixed: f64, slope: f64| fixed + slope * rate[i];
    let idle_fixed = -idle_slope * day.x_intercept;
    let (kernel_fixed, user_fixed) = (60.0 - 0.6 * idle_fixed, 40.0 - 0.4 * idle_fixed);
    let kernel: Vec<f64> = (0..SAMPLES)
        .map(|i| line(i, kernel_fixed, kernel_slope) + kernel2.sqrt() * first[i])
        .collect();
    let user: Vec<f64> = (0..SAMPLES)
        .map(|i| {
            let residual = cosine * first[i] + sine * second[i];
            line(i, user_fixed, user_slope) + user2.sqrt() * residual
        })
        .collect();
    let idle = user.iter().zip(&kernel).map(|(u, k)| 100.0 - u - k).collect();
    Sample { rate, user, kernel, idle }
}

/// The component of `v` orthogonal to these vectors, computed twice because of rounding.
fn orthogonal(v: &[f64], to: &[Vec<f64>]) -> Vec<f64> {
    let mut rest = v.to_vec();
    for _ in 0..2 {
        for axis in to {
            let along: f64 = rest.iter().zip(axis).map(|(a, b)| a * b).sum::<f64>()
                / axis.iter().map(|b| b * b).sum::<f64>();
            rest.iter_mut().zip(axis).for_each(|(r, b)| *r -= along * b);
        }
    }
    rest
}

fn unit(v: Vec<f64>) -> Vec<f64> {
    let length = v.iter().map(|a| a * a).sum::<f64>().sqrt();
    v.iter().map(|a| a / length).collect()
}

/// Asserts equality to the two printed places.
#[track_caller]
fn printed(ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= 0.005 + 1e-9, "{ours} is printed {theirs}");
}

fn by_least_squares(sample: &Sample) -> ModesFit {
    let Sample { rate, user, kernel, idle } = sample;
    modes_fit_weighted(rate, user, kernel, idle, &[1.0; SAMPLES]).expect("a fit")
}

#[test]
fn table_15_slopes_and_correlations() {
    for day in [SQUID_OLD, SQUID_NEW] {
        let fit = by_least_squares(&construct(&day));
        for (line, (slope, correlation)) in
            [(&fit.idle, day.idle), (&fit.kernel, day.kernel), (&fit.user, day.user)]
        {
            printed(line.slope, slope);
            printed(line.correlation, correlation);
            assert_eq!(line.n, SAMPLES, "{}", day.name);
        }
        assert_eq!(fit.idle.reaches(0.0).round(), day.x_intercept, "{}", day.name);
    }
}

#[test]
fn closure_is_exact_in_a_fit_and_within_rounding_in_print() {
    for day in [SQUID_OLD, SQUID_NEW] {
        let sample = construct(&day);
        let plain = by_least_squares(&sample);
        let Sample { rate, user, kernel, idle } = &sample;
        let busy: Vec<f64> = user.iter().zip(kernel).map(|(user, kernel)| user + kernel).collect();
        let weights = mm(&Design::new(&[rate]).unwrap(), &busy, 7).unwrap().weights;
        let robust = modes_fit_weighted(rate, user, kernel, idle, &weights).unwrap();
        for fit in [plain, robust] {
            assert!(fit.closure.gap.abs() < 1e-13, "{:?}", fit.closure);
            let fixed = fit.user.intercept + fit.kernel.intercept + fit.idle.intercept;
            assert!((fixed - 100.0).abs() < 1e-10, "{fixed}");
        }
        let in_print = closure(day.user.0, day.kernel.0, day.idle.0);
        assert!(in_print.within_rounding(0.01), "{in_print:?}");
        assert!(in_print.gap.abs() < 0.011);
    }
    assert!(!closure(0.54, 0.73, -1.20).within_rounding(0.01));
}

#[test]
fn x_intercepts_are_capacities_within_their_intervals() {
    for day in [SQUID_OLD, SQUID_NEW] {
        let sample = construct(&day);
        let busy: Vec<f64> = sample.idle.iter().map(|idle| 100.0 - idle).collect();
        let line = load_line(&LoadLineInput::new(&sample.rate, &busy, 100.0)).unwrap();
        let capacity = &line.straight.capacity;
        assert_eq!(capacity.value.round(), day.x_intercept);
        printed(line.straight.line.correlation, -day.idle.1);
        assert_eq!(capacity.identifiable, Ok(()));
        for interval in [&capacity.line_interval, &capacity.bootstrap, &capacity.interval] {
            assert!(interval.holds(capacity.value), "{interval:?}");
            assert!(interval.bounds().is_some(), "{interval:?}");
        }
        let width = |i: &regress::Interval| i.bounds().map_or(f64::INFINITY, |(l, h)| h - l);
        assert!(width(&capacity.line_interval) < width(&capacity.interval));
        // Errors are independent here, so the bootstrap must agree with Fieller.
        let ratio = width(&capacity.bootstrap) / width(&capacity.line_interval);
        assert!((0.6..1.4).contains(&ratio), "{ratio}");
        assert!(line.with_wakes.is_none());
    }
    // For NetCache only the intercepts were printed, with and without the quiet samples.
    for x_intercept in [58.0, 57.0, 69.0, 68.0] {
        let fit = by_least_squares(&construct(&Day { x_intercept, ..SQUID_OLD }));
        assert_eq!(fit.idle.reaches(0.0).round(), x_intercept);
    }
    for (old, new, percent) in IMPROVEMENTS {
        let by = (new / old - 1.0) * 100.0;
        assert_eq!(f64::round(by), percent);
    }
}

#[test]
fn the_new_line_is_not_strictly_physical() {
    let fit = by_least_squares(&construct(&SQUID_NEW));
    assert!(fit.idle.intercept > 100.0, "{}", fit.idle.intercept);
    printed(83.0 * 1.26, 104.58);
}

#[test]
fn what_if_select_were_replaced_or_free() {
    // The idle line as a cost line: 100 − (93 − 1.69·x).
    let intercept = 100.0 - 55.0 * 1.69;
    let group = Group { intercept: 0.0, slope: SELECT_OLD.0 / SELECT_OLD.1 };
    let new = Change::Replace { intercept: 0.0, slope: SELECT_NEW.0 / SELECT_NEW.1 };
    let swapped = what_if(100.0, intercept, 1.69, group, new).unwrap();
    assert_eq!(swapped.before.round(), 55.0);
    assert_eq!(swapped.after.round(), 80.0);
    let free = what_if(100.0, intercept, 1.69, group, Change::Remove { fraction: 1.0 }).unwrap();
    assert_eq!(free.after.round(), 106.0);
    let nothing = what_if(100.0, intercept, 1.69, group, Change::Remove { fraction: 0.0 }).unwrap();
    assert_eq!(nothing.ratio, 1.0);
    let more = Group { slope: 2.0, ..group };
    assert!(what_if(100.0, intercept, 1.69, more, Change::Remove { fraction: 1.0 }).is_err());
}

#[test]
fn old_against_new() {
    let (old, new) = (construct(&SQUID_OLD), construct(&SQUID_NEW));
    let busy = |s: &Sample| -> Vec<f64> { s.idle.iter().map(|idle| 100.0 - idle).collect() };
    let total = interaction((&old.rate, &busy(&old)), (&new.rate, &busy(&new))).unwrap();
    assert!(total.p < 0.001, "{total:?}");
    let user = interaction((&old.rate, &old.user), (&new.rate, &new.user)).unwrap();
    assert!(user.p > 0.05, "{user:?}");
    let same = interaction((&old.rate, &busy(&old)), (&old.rate, &busy(&old))).unwrap();
    assert_eq!(same.statistic, 0.0);
}

/// The what-if on a day's intervals: select's part, which is proportional to the rate as in the
/// published arithmetic, is replaced by the new kernel's or removed.
#[test]
fn what_if_on_the_day_itself() {
    let day = construct(&SQUID_OLD);
    let busy: Vec<f64> = day.idle.iter().map(|idle| 100.0 - idle).collect();
    let select: Vec<f64> = day.rate.iter().map(|x| SELECT_OLD.0 / SELECT_OLD.1 * x).collect();
    let input = LoadLineInput::new(&day.rate, &busy, 100.0);
    let new = Change::Replace { intercept: 0.0, slope: SELECT_NEW.0 / SELECT_NEW.1 };
    for (change, published) in [(new, 80.0), (Change::Remove { fraction: 1.0 }, 106.0)] {
        let predicted = predict(&input, &select, change).unwrap();
        assert!((predicted.before - 55.0).abs() < 0.6, "{}", predicted.before);
        assert!((predicted.after.value - published).abs() < 1.5, "{}", predicted.after.value);
        assert!(
            predicted.after.interval.holds(published)
                && predicted.after.interval.bounds().is_some()
        );
        let (low, high) = predicted.ratio.interval.bounds().unwrap();
        assert!(
            low < predicted.ratio.value && predicted.ratio.value < high,
            "{:?}",
            predicted.ratio
        );
        // Errors common to both lines cancel in the ratio.
        let (after_low, after_high) = predicted.after.interval.bounds().unwrap();
        assert!(high / low < after_high / after_low, "{:?} {:?}", predicted.ratio, predicted.after);
    }
    let nothing = predict(&input, &select, Change::Remove { fraction: 0.0 }).unwrap();
    assert_eq!(nothing.ratio.value, 1.0);
    let too_much = predict(&input, &busy, Change::Remove { fraction: 3.0 });
    assert!(too_much.is_err(), "nothing is left to have a capacity");
}

#[test]
fn a_rate_that_does_not_vary_is_not_identifiable() {
    let mut rng = Rng::new(4);
    let rate: Vec<f64> = (0..SAMPLES).map(|_| 50.0 + 0.01 * rng.normal()).collect();
    let busy: Vec<f64> = rate.iter().map(|x| 7.0 + 1.69 * x + 3.0 * rng.normal()).collect();
    let line = load_line(&LoadLineInput::new(&rate, &busy, 100.0)).unwrap();
    let capacity = line.capacity();
    assert!(matches!(capacity.identifiable, Err(regress::Why::ConstantRate { .. })));
    let words = capacity.interval.to_string();
    assert!(words.starts_with("the rate was nearly constant (1.0-fold)"), "{words}");
    assert!(matches!(line.trusted, regress::Trust::Unreliable { .. }));
    assert_eq!(capacity.bootstrap.bounds(), None);

    let rate: Vec<f64> = (0..SAMPLES).map(|i| i as f64).collect();
    let why = |fixed: f64, marginal: f64| {
        let cost: Vec<f64> = rate.iter().map(|x| fixed + marginal * x + (x * 7.0).sin()).collect();
        let line = load_line(&LoadLineInput::new(&rate, &cost, 100.0)).unwrap();
        assert_eq!(line.capacity().interval.bounds(), None);
        line.capacity().identifiable.clone().unwrap_err()
    };
    assert_eq!(why(90.0, -0.5), regress::Why::CostDoesNotRise);
    assert_eq!(why(110.0, 0.5), regress::Why::NoRoomUnderCap);

    let level = ols(&[50.0; 9], &[80.0; 9]);
    assert_eq!(level.unwrap_err(), regress::Unfit::Singular);
    let unbounded = fieller(&regress::Fieller {
        cap: 100.0,
        intercept: 7.0,
        slope: 1.69,
        cov: [[1.0, 0.0], [0.0, 1.0]],
        extra_variance: 0.0,
        dof: 94.0,
        level: 0.95,
    });
    assert_eq!(unbounded.bounds(), None);
}

/// Costs of procedure groups add up exactly to the total, and have separate intervals.
#[test]
fn costs_of_parts_add_up_to_the_cost_of_the_whole() {
    let Sample { rate, user, kernel, idle } = construct(&SQUID_OLD);
    let busy: Vec<f64> = idle.iter().map(|idle| 100.0 - idle).collect();
    let design = Design::new(&[&rate]).unwrap();
    let found = costs(&design, &busy, &[&user, &kernel], 0.95, 3).unwrap();
    assert!(found.closure.marginal_gap.abs() < 1e-13, "{:?}", found.closure);
    assert!(found.closure.fixed_gap.abs() < 1e-11, "{:?}", found.closure);
    for (part, (published, _)) in found.parts.iter().zip([SQUID_OLD.user, SQUID_OLD.kernel]) {
        let slope = part.marginal();
        assert!(slope.low < published && published < slope.high, "{slope:?}");
        assert!(slope.differs_from(0.0) && !slope.differs_from(published));
    }
    let again = found.of(&design, &[&kernel]).unwrap();
    assert_eq!(again[0].marginal().value, found.parts[1].marginal().value);
    let test = difference(&found.parts[0].marginal(), &found.parts[1].marginal());
    assert!(test.statistic > 0.0 && test.p < 0.01, "the kernel costs more: {test:?}");
}

#[test]
fn a_smooth_ramp_is_distinguished_from_a_constant_rate() {
    let rate: Vec<f64> = (1..=30).map(|k| 400.0 * f64::from(k)).collect();
    let drift = |k: f64| 0.06 * (k / 4.0).sin();
    let busy: Vec<f64> = rate.iter().map(|x| 0.1 + 2e-5 * x + drift(x / 400.0)).collect();
    let line = load_line(&LoadLineInput::new(&rate, &busy, 1.0)).unwrap();
    let identifiable = &line.straight.capacity.identifiable;
    assert!(
        matches!(identifiable, Err(regress::Why::NeighboursAlike { rho, effective_n })
            if *rho > 0.5 && *effective_n < 15.0),
        "{identifiable:?}"
    );
    let words = line.straight.capacity.interval.to_string();
    assert!(words.contains("neighbouring intervals are correlated"), "{words}");
}
