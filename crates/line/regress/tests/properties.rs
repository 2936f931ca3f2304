//! Properties that hold for any data: no panic, the same results for the same seed, independence of
//! units, outliers that do not move a robust line, and clear messages for missing results.

use proptest::prelude::*;
use regress::{
    AtObjective, Change, Curvature, Design, Interval, LoadLineInput, Rng, TheilSen, Unfit,
    block_bootstrap, block_length, capacity_at_objective, costs, curvature, isotonic, load_line,
    mm, ols, predict, theil_sen, wls,
};

/// A noisy line with steps of the rate, and wakes that are not a linear function of it.
fn synthetic(n: usize, seed: u64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let mut rng = Rng::new(seed);
    let rate: Vec<f64> = (0..n).map(|i| 1_000.0 + 500.0 * (i * 12 / n) as f64).collect();
    let wakes: Vec<f64> =
        rate.iter().map(|x| x * (1.0 - x / 9_000.0) * (1.0 + 0.01 * rng.normal())).collect();
    let cost = rate
        .iter()
        .zip(&wakes)
        .map(|(x, w)| 0.01 + 1e-4 * x + 4e-5 * w + 0.005 * rng.normal())
        .collect();
    (rate, wakes, cost)
}

#[test]
fn a_third_of_outliers_moves_least_squares_but_not_the_robust_line() {
    let mut rng = Rng::new(5);
    let x: Vec<f64> = (0..90).map(f64::from).collect();
    let mut y: Vec<f64> = x.iter().map(|x| 5.0 + 2.0 * x + rng.normal()).collect();
    let wild: Vec<usize> = (0..90).filter(|i| i % 3 == 0).collect();
    for &i in &wild {
        y[i] += 40.0 + 2.0 * x[i];
    }
    let robust = mm(&Design::new(&[&x]).unwrap(), &y, 1).unwrap();
    assert!((robust.coefficients[1] - 2.0).abs() < 0.05, "{:?}", robust.coefficients);
    assert_eq!(robust.set_aside, wild);
    let plain = ols(&x, &y).unwrap();
    assert!((plain.slope - 2.0).abs() > 0.3, "{}", plain.slope);
    // Weighted least squares with the robust weights gives the same line.
    let weighted = wls(&x, &y, &robust.weights).unwrap();
    assert!((weighted.slope - robust.coefficients[1]).abs() < 1e-9);
    // Theil–Sen tolerates a tenth of that well.
    for &i in wild.iter().filter(|&&i| i % 9 != 0) {
        y[i] -= 40.0 + 2.0 * x[i];
    }
    let TheilSen { slope, slope_low, slope_high, .. } = theil_sen(&x, &y, 0.95).unwrap();
    assert!((slope - 2.0).abs() < 0.15 && slope_low < slope && slope < slope_high, "{slope}");
}

#[test]
fn an_exact_line_is_found_exactly_and_outliers_are_set_aside() {
    let x: Vec<f64> = (0..20).map(f64::from).collect();
    let mut y: Vec<f64> = x.iter().map(|x| 3.0 + 0.5 * x).collect();
    let design = Design::new(&[&x]).unwrap();
    assert!(mm(&design, &y, 1).unwrap().set_aside.is_empty());
    y[4] = 50.0;
    y[11] = -9.0;
    let fit = mm(&design, &y, 1).unwrap();
    assert_eq!(fit.set_aside, [4, 11]);
    assert!((fit.coefficients[1] - 0.5).abs() < 1e-12);
    let line = load_line(&LoadLineInput::new(&x, &y, 100.0)).unwrap();
    assert!((line.straight.robust_capacity.value - 194.0).abs() < 1e-6);
}

#[test]
fn columns_that_are_nearly_dependent_are_an_error_and_no_panic() {
    let mut rng = Rng::new(3);
    let x: Vec<f64> = (0..60).map(|i| f64::from(500 + 70 * i)).collect();
    let y: Vec<f64> = x.iter().map(|x| 2.0 * x * (1.0 + 0.01 * rng.normal())).collect();
    for off in [1e-3, 1e-5, 1e-7, 1e-9] {
        let near: Vec<f64> = x.iter().map(|x| 0.8 * x * (1.0 + off * rng.normal())).collect();
        // Either is right, depending on rounding.
        if let Err(unfit) = mm(&Design::new(&[&x, &near]).unwrap(), &y, 1) {
            assert_eq!(unfit, Unfit::Singular, "{off}");
        }
    }
}

#[test]
fn white_noise_has_no_curve_and_a_square_has() {
    let mut rng = Rng::new(9);
    let x: Vec<f64> = (0..80).map(|i| f64::from(i % 20)).collect();
    let straight: Vec<f64> = x.iter().map(|x| 1.0 + 2.0 * x + rng.normal()).collect();
    let design = Design::new(&[&x]).unwrap();
    let of = |y: &[f64]| -> Curvature { curvature(&design, y, None, 100.0).unwrap() };
    assert!(of(&straight).test.p > 0.01);
    let bent: Vec<f64> = straight.iter().zip(&x).map(|(y, x)| y - 0.04 * x * x).collect();
    let found = of(&bent);
    assert!(found.test.p < 1e-4, "{found:?}");
    assert!((found.coefficient + 0.04).abs() < 0.02, "{found:?}");
    // It bends away from the cap before it reaches it.
    assert_eq!(found.capacity, None);
    let two = [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0];
    let two_design = Design::new(&[&two]).unwrap();
    assert_eq!(curvature(&two_design, &straight[..8], None, 1.0).unwrap_err(), Unfit::Singular);
}

#[test]
fn blocks_are_consecutive_rows_on_a_circle() {
    let mut seen = vec![0_usize; 10];
    block_bootstrap(10, 4, 500, 3, |rows| {
        assert_eq!(rows.len(), 10);
        for block in rows.chunks(4) {
            assert!(block.windows(2).all(|w| w[1] == (w[0] + 1) % 10), "{rows:?}");
        }
        rows.iter().for_each(|&row| seen[row] += 1);
        None
    });
    // On a circle the ends are drawn as often as the middle.
    assert!(seen.iter().all(|&count| (400..600).contains(&count)), "{seen:?}");
    let failed = block_bootstrap(10, 4, 100, 3, |_| None);
    assert_eq!(failed.failed, 100);
    assert_eq!(failed.interval(0.95).bounds(), None);
    let whole = block_bootstrap(10, 99, 50, 3, |rows| Some(rows.iter().sum::<usize>() as f64));
    assert_eq!(whole.interval(0.9), Interval::Bounded { low: 45.0, high: 45.0 });
    assert_eq!(block_length(&[1.0; 40]), 1.0);
}

#[test]
fn latency_objectives_report_limits_that_were_not_reached() {
    let rates = [100.0, 200.0, 300.0, 400.0, 200.0];
    let p99 = [1.0, 2.0, 8.0, 30.0, 4.0];
    let at = |objective| capacity_at_objective(&rates, &p99, objective).unwrap();
    assert_eq!(at(10.0), AtObjective::Met { rate: 300.0, missed_at: 400.0 });
    assert_eq!(at(2.5), AtObjective::Met { rate: 100.0, missed_at: 200.0 });
    assert_eq!(at(50.0), AtObjective::NotReached { highest_rate: 400.0, latency: 30.0 });
    assert_eq!(at(0.5), AtObjective::NeverMet { lowest_rate: 100.0, latency: 1.0 });
    assert!(capacity_at_objective(&[], &[], 1.0).is_err());
    assert!(capacity_at_objective(&[1.0], &[f64::NAN], 1.0).is_err());
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let (rate, wakes, cost) = synthetic(60, 2);
    let mut input = LoadLineInput::new(&rate, &cost, 1.0);
    input.wakes = Some(&wakes);
    let page = || serde_json::to_string(&load_line(&input).unwrap()).unwrap();
    assert_eq!(page(), page());
    assert!(page().contains("with_wakes"));
}

#[test]
fn wakes_that_are_linear_in_the_rate_are_not_used_with_a_reason() {
    let (rate, _, cost) = synthetic(60, 2);
    let wakes: Vec<f64> = rate.iter().map(|x| 0.7 * x).collect();
    let mut input = LoadLineInput::new(&rate, &cost, 1.0);
    input.wakes = Some(&wakes);
    let line = load_line(&input).unwrap();
    let regress::Headline::Straight { why } = &line.headline else { panic!("used") };
    assert!(why.contains("wakes"), "{why}");
}

#[test]
fn invalid_input_gives_clear_errors() {
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    let y = [1.1, 2.0, 3.2, 3.9, 5.1, 6.0, 7.2, 8.1, 8.8];
    let ask = |rate: &[f64], cost: &[f64], cap: f64| {
        load_line(&LoadLineInput::new(rate, cost, cap)).unwrap_err().to_string()
    };
    assert!(ask(&x[..3], &y[..3], 10.0).contains("too few"));
    assert!(ask(&x, &y[..8], 10.0).contains("length"));
    assert!(ask(&x, &[f64::INFINITY; 9], 10.0).contains("finite"));
    assert!(ask(&[5.0; 9], &y, 10.0).contains("did not vary"));
    assert!(ask(&x, &y, 0.0).contains("cap"));
    assert!(wls(&x, &y, &[-1.0; 9]).is_err());
    assert!(matches!(wls(&x, &y, &[0.0; 9]), Err(Unfit::TooFew { .. })));
    assert!(theil_sen(&[1.0; 5], &[1.0; 5], 0.95).is_err());
    assert!(mm(&Design::new(&[&x[..3]]).unwrap(), &y[..3], 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_data_make_it_panic(
        rows in proptest::collection::vec(
            (-1e6..1e6_f64, prop_oneof![Just(0.0), -10.0..10.0_f64, Just(1e300)], 0.0..1e5_f64),
            0..40,
        ),
        cap in prop_oneof![Just(1.0), Just(-1.0), Just(f64::NAN)],
    ) {
        let rate: Vec<f64> = rows.iter().map(|row| row.0).collect();
        let cost: Vec<f64> = rows.iter().map(|row| row.1).collect();
        let wakes: Vec<f64> = rows.iter().map(|row| row.2).collect();
        let mut input = LoadLineInput::new(&rate, &cost, cap);
        input.wakes = Some(&wakes);
        input.cpu_time = true;
        if let Ok(line) = load_line(&input) {
            serde_json::to_string(&line).expect("a line is JSON");
        }
        let _ = isotonic(&rate, &cost);
        let _ = block_length(&cost);
    }

    /// The line of a busy CPU knows what a request costs in seconds, so that CPU time has no other
    /// unit. But so many CPUs more serve as many requests more.
    #[test]
    fn units_do_not_matter(seed in 0..1_000_u64, kilo in 1e-3..1e3_f64, percent in 1e-2..1e2_f64) {
        let (rate, wakes, cost) = synthetic(48, seed);
        for (cpu_time, kilo) in [(false, kilo), (true, percent)] {
            let ends = |kilo: f64, percent: f64| {
                let times = |values: &[f64], factor: f64| -> Vec<f64> {
                    values.iter().map(|value| value * factor).collect()
                };
                let (rate, cost) = (times(&rate, kilo), times(&cost, percent));
                let wakes = times(&wakes, kilo);
                let mut input = LoadLineInput::new(&rate, &cost, percent);
                input.wakes = Some(&wakes);
                input.cpu_time = cpu_time;
                let line = load_line(&input).unwrap();
                let (low, high) = line.capacity().interval.bounds().expect("bounded");
                [line.capacity().value, low, high].map(|end| end / kilo)
            };
            for (a, b) in ends(1.0, 1.0).iter().zip(ends(kilo, percent)) {
                prop_assert!((a / b - 1.0).abs() < 1e-6, "{a} and {b}");
            }
        }
    }

    /// For any parts, even with very different magnitudes.
    #[test]
    fn costs_of_parts_close_to_rounding(
        seed in 0..1_000_u64,
        parts in 1..9_usize,
        sizes in proptest::collection::vec(-6.0..3.0_f64, 9),
        wild in proptest::collection::vec(0..60_usize, 0..12),
        with_wakes in any::<bool>(),
    ) {
        let (rate, wakes, _) = synthetic(60, seed);
        let mut rng = Rng::new(seed);
        let mut rows: Vec<Vec<f64>> = sizes[..parts]
            .iter()
            .map(|size| {
                let per = 10f64.powf(*size);
                rate.iter().map(|x| per * (1.0 + 1e-3 * x * (1.0 + 0.2 * rng.normal()))).collect()
            })
            .collect();
        for (at, &row) in wild.iter().enumerate() {
            rows[at % parts][row] *= 40.0;
        }
        let whole: Vec<f64> = (0..60).map(|i| rows.iter().map(|part| part[i]).sum()).collect();
        let views: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let columns: &[&[f64]] = if with_wakes { &[&rate, &wakes] } else { &[&rate] };
        let design = Design::new(columns).unwrap();
        let found = costs(&design, &whole, &views, 0.95, seed).unwrap();
        let scale = whole.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
        prop_assert!(found.closure.fixed_gap.abs() <= 1e-11 * scale, "{:?}", found.closure);
        prop_assert!(found.closure.marginal_gap.abs() <= 1e-11 * scale, "{:?}", found.closure);
        let influence = found.influence(&design).unwrap();
        for (cost, series) in found.parts.iter().zip(&views) {
            let summed: f64 = series.iter().zip(&influence).map(|(y, h)| y * h).sum();
            let gap = (summed - cost.marginal().value).abs();
            prop_assert!(gap <= 1e-11 * scale, "{summed} and {cost:?}");
        }
        for cost in found.parts.iter().chain([&found.whole]) {
            for c in &cost.coefficients {
                prop_assert!(c.low <= c.value && c.value <= c.high && c.dof >= 3.0, "{c:?}");
            }
        }
    }

    /// Removing a part equals the formula, for either line.
    #[test]
    fn a_what_if_is_the_capacity_of_what_remains(
        seed in 0..200_u64,
        fraction in 0.0..1.0_f64,
        with_wakes in any::<bool>(),
    ) {
        let (rate, wakes, cost) = synthetic(60, seed);
        let mut input = LoadLineInput::new(&rate, &cost, 1.0);
        input.wakes = with_wakes.then_some(wakes.as_slice());
        // A part proportional to the total: the remainder is proportional too.
        let part: Vec<f64> = cost.iter().map(|c| 0.4 * c).collect();
        let predicted = predict(&input, &part, Change::Remove { fraction }).unwrap();
        let left = 1.0 - 0.4 * fraction;
        let whole = predict(&input, &part, Change::Remove { fraction: 0.0 }).unwrap();
        prop_assert!((predicted.marginal_after / whole.marginal_before - left).abs() < 1e-9);
        let (low, high) = predicted.ratio.interval.bounds().expect("a bounded ratio");
        prop_assert!(low <= predicted.ratio.value * (1.0 + 1e-9));
        prop_assert!(predicted.ratio.value <= high * (1.0 + 1e-9));
    }

    /// Removing select or the scheduler, which get cheaper per request as the rate rises, lowered
    /// the predicted capacity.
    #[test]
    fn removing_a_cost_that_is_not_negative_never_lowers_a_capacity(
        seed in 0..500_u64,
        fraction in 0.0..1.0_f64,
        with_wakes in any::<bool>(),
        // The group's cost at the lowest and at the highest rate.
        ends in (0.0..0.2_f64, 0.0..0.2_f64),
        bend in -1.0..1.0_f64,
    ) {
        let (rate, wakes, mut cost) = synthetic(60, seed);
        let mut rng = Rng::new(seed + 1);
        let part: Vec<f64> = (0..60)
            .map(|i| {
                let at = f64::from(i) / 59.0;
                let bent = bend * 0.1 * at * (1.0 - at) + 0.01 * rng.normal();
                (ends.0 + (ends.1 - ends.0) * at + bent).max(0.0)
            })
            .collect();
        cost.iter_mut().zip(&part).for_each(|(cost, part)| *cost += part);
        let mut input = LoadLineInput::new(&rate, &cost, 1.0);
        input.wakes = with_wakes.then_some(wakes.as_slice());
        // Nothing may be left that costs anything.
        if let Ok(predicted) = predict(&input, &part, Change::Remove { fraction }) {
            prop_assert!(predicted.ratio.value >= 1.0 - 1e-9, "{:?}", predicted.ratio);
            if let Some((low, _)) = predicted.ratio.interval.bounds() {
                prop_assert!(low >= 1.0 - 1e-9, "{:?}", predicted.ratio);
            }
        }
    }

    #[test]
    fn isotonic_is_monotone_and_keeps_the_mean(
        points in proptest::collection::vec((0..20_i32, -5.0..5.0_f64), 1..60),
    ) {
        let x: Vec<f64> = points.iter().map(|p| f64::from(p.0)).collect();
        let y: Vec<f64> = points.iter().map(|p| p.1).collect();
        let (places, fit) = isotonic(&x, &y).unwrap();
        prop_assert!(fit.windows(2).all(|w| w[0] <= w[1] + 1e-12));
        let total: f64 = places
            .iter()
            .zip(&fit)
            .map(|(place, v)| v * x.iter().filter(|other| *other == place).count() as f64)
            .sum();
        prop_assert!((total - y.iter().sum::<f64>()).abs() < 1e-9);
    }
}
