//! Our results compared with those of statsmodels, scipy, arch and numpy (`fixtures/make.py`).

use regress::linear::{hac_cov, two_stage};
use regress::robust::m_bisquare;
use regress::{
    Design, Fieller, block_bootstrap, block_length, curvature, fieller, isotonic, least_squares,
    mm, ols, student_t_quantile, student_t_two_sided_p, theil_sen, wls,
};
use serde_json::Value;

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the fixture is checked in");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("an array").iter().map(number).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn matrix(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().expect("rows").iter().map(numbers).collect()
}

#[track_caller]
fn close(ours: f64, theirs: f64, relative: f64) {
    let gap = (ours - theirs).abs();
    assert!(gap <= relative * theirs.abs() + 1e-300, "ours {ours:e}, theirs {theirs:e}");
}

#[track_caller]
fn all_close(ours: &[f64], theirs: &[f64], relative: f64) {
    assert_eq!(ours.len(), theirs.len());
    for (o, t) in ours.iter().zip(theirs) {
        close(*o, *t, relative);
    }
}

#[track_caller]
fn matrices_close(ours: &[Vec<f64>], theirs: &[Vec<f64>], relative: f64) {
    for (o, t) in ours.iter().zip(theirs) {
        all_close(o, t, relative);
    }
}

#[test]
fn least_squares_as_statsmodels_ols_and_wls() {
    let f = fixture("least_squares");
    let (rate, cost) = (numbers(&f["rate"]), numbers(&f["cost"]));
    let (wakes, weights) = (numbers(&f["wakes"]), numbers(&f["weights"]));
    let line = ols(&rate, &cost).unwrap();
    let theirs = &f["line"];
    all_close(&[line.intercept, line.slope], &numbers(&theirs["params"]), 1e-10);
    let cov: Vec<Vec<f64>> = line.cov.iter().map(|row| row.to_vec()).collect();
    matrices_close(&cov, &matrix(&theirs["cov"]), 1e-9);
    close(line.residual_sd, number(&theirs["residual_sd"]), 1e-10);
    close(line.r_squared, number(&theirs["r_squared"]), 1e-10);
    close(line.correlation, number(&theirs["correlation"]), 1e-10);
    let at = number(&f["band_at"]);
    let (low, high) = line.band(at, 0.95);
    all_close(&[low, high], &numbers(&f["band"]), 1e-9);
    let (low, high) = line.prediction_band(at, 0.95);
    all_close(&[low, high], &numbers(&f["prediction_band"]), 1e-9);

    let weighted = wls(&rate, &cost, &weights).unwrap();
    all_close(&[weighted.intercept, weighted.slope], &numbers(&f["weighted"]["params"]), 1e-10);
    close(weighted.residual_sd, number(&f["weighted"]["residual_sd"]), 1e-10);
    close(weighted.r_squared, number(&f["weighted"]["r_squared"]), 1e-10);

    let design = Design::new(&[&rate, &wakes]).unwrap();
    let wide = least_squares(&design, &cost, None).unwrap();
    all_close(&wide.coefficients, &numbers(&f["wide"]["params"]), 1e-9);
    matrices_close(&wide.cov, &matrix(&f["wide"]["cov"]), 1e-8);
    close(design.condition_number(), number(&f["condition_number"]), 1e-9);

    let [z1, z2, z3] = [1, 2, 3].map(|k| rate.iter().map(|x| (x / 1e5).powi(k)).collect());
    let columns: [&Vec<f64>; 3] = [&z1, &z2, &z3];
    let instruments = Design::new(&columns.map(Vec::as_slice)).unwrap();
    let ours = two_stage(&instruments, &design, &cost, Some(&weights)).unwrap();
    all_close(&ours.coefficients, &numbers(&f["two_stage"]["params"]), 1e-7);
    matrices_close(&ours.unscaled_cov, &matrix(&f["two_stage"]["unscaled_cov"]), 1e-6);

    let vif = 1.0 / (1.0 - ols(&rate, &wakes).unwrap().r_squared);
    close(vif, number(&f["vif"]), 1e-9);
}

#[test]
fn autocorrelation_robust_errors_as_statsmodels_hac() {
    let f = fixture("least_squares");
    let (rate, wakes) = (numbers(&f["rate"]), numbers(&f["wakes"]));
    let cost = numbers(&f["cost"]);
    let lags = f["hac_lags"].as_u64().unwrap() as usize;
    let design = Design::new(&[&rate, &wakes]).unwrap();
    let fit = least_squares(&design, &cost, None).unwrap();
    let cov = hac_cov(&design, &fit.residuals, &fit.unscaled_cov, lags);
    matrices_close(&cov, &matrix(&f["wide_hac_cov"]), 1e-8);

    // The curvature test is such a t, but it chooses its own lags, so theirs is compared through
    // the same covariance.
    let squares: Vec<f64> = rate.iter().map(|x| x * x).collect();
    let wider = Design::new(&[&rate, &squares]).unwrap();
    let fit = least_squares(&wider, &cost, None).unwrap();
    let cov = hac_cov(&wider, &fit.residuals, &fit.unscaled_cov, lags);
    let t = fit.coefficients[2] / cov[2][2].sqrt();
    close(t, number(&f["curved_scaled_rate_t"]), 1e-7);
    let ours = curvature(&Design::new(&[&rate]).unwrap(), &cost, None, 1.0).unwrap();
    let cov = hac_cov(&wider, &fit.residuals, &fit.unscaled_cov, ours.lags);
    close(ours.newey_west_t, fit.coefficients[2] / cov[2][2].sqrt(), 1e-9);
    assert!(ours.test.statistic.abs() <= ours.newey_west_t.abs());
}

#[test]
fn fieller_solves_its_inequality() {
    let f = fixture("fieller");
    for case in f["cases"].as_array().unwrap() {
        let cov = matrix(&case["cov"]);
        let interval = fieller(&Fieller {
            cap: number(&f["cap"]),
            intercept: number(&case["intercept"]),
            slope: number(&case["slope"]),
            cov: [[cov[0][0], cov[0][1]], [cov[1][0], cov[1][1]]],
            extra_variance: number(&case["extra_variance"]),
            dof: number(&case["dof"]),
            level: number(&case["level"]),
        });
        let (low, high) = interval.bounds().expect("bounded");
        close(low, number(&case["low"]), 1e-9);
        close(high, number(&case["high"]), 1e-9);
    }
}

#[test]
fn theil_sen_as_scipy_theilslopes() {
    let f = fixture("theil_sen");
    for case in f["cases"].as_array().unwrap() {
        let (x, y) = (numbers(&case["x"]), numbers(&case["y"]));
        let ours = theil_sen(&x, &y, number(&f["level"])).unwrap();
        close(ours.slope, number(&case["slope"]), 1e-12);
        close(ours.intercept, number(&case["intercept"]), 1e-10);
        close(ours.slope_low, number(&case["low"]), 1e-12);
        close(ours.slope_high, number(&case["high"]), 1e-12);
    }
}

#[test]
fn mm_as_direct_minimisation_and_statsmodels_rlm() {
    let f = fixture("robust");
    for case in f["cases"].as_array().unwrap() {
        let regressors = matrix(&case["regressors"]);
        let columns: Vec<&[f64]> = regressors.iter().map(Vec::as_slice).collect();
        let design = Design::new(&columns).unwrap();
        let y = numbers(&case["y"]);
        let scale = number(&case["scale"]);

        // The M stage with their start and scale.
        let m = m_bisquare(&design, &y, &numbers(&case["s_params"]), scale).unwrap();
        all_close(&m.coefficients, &numbers(&case["params"]), 1e-7);
        matrices_close(&m.cov, &matrix(&case["cov"]), 1e-6);
        for (ours, theirs) in m.weights.iter().zip(numbers(&case["weights"])) {
            assert!((ours - theirs).abs() < 1e-6, "weights {ours} and {theirs}");
        }

        // Our S stage: at most the scale that direct minimisation found.
        let whole = mm(&design, &y, 7).unwrap();
        assert!(whole.scale <= scale * (1.0 + 1e-9), "{} above {scale}", whole.scale);
        close(whole.scale, scale, 1e-6);
        all_close(&whole.coefficients, &numbers(&case["params"]), 1e-5);
        let wild = case["wild"].as_u64().unwrap() as usize;
        // With two fifths of outliers the line still holds, but its scale is too wide to detect
        // all.
        if wild <= 12 {
            assert!(whole.set_aside.len() >= wild, "{} of {wild} wild", whole.set_aside.len());
        }
    }
}

#[test]
fn block_length_as_arch() {
    let f = fixture("blocks");
    for case in f["lengths"].as_array().unwrap() {
        let theirs = number(&case["circular"]);
        let ours = block_length(&numbers(&case["series"]));
        // Our blocks have at least one row; theirs can have less.
        close(ours, theirs.max(1.0), 1e-9);
    }
}

#[test]
fn circular_block_bootstrap_as_arch_within_sampling_noise() {
    let f = fixture("blocks");
    let (rate, cost) = (numbers(&f["rate"]), numbers(&f["cost"]));
    let length = f["block_length"].as_u64().unwrap() as usize;
    let capacity = |rows: &[usize]| {
        let x: Vec<f64> = rows.iter().map(|&i| rate[i]).collect();
        let y: Vec<f64> = rows.iter().map(|&i| cost[i]).collect();
        Some(ols(&x, &y).ok()?.reaches(1.0))
    };
    let ours = block_bootstrap(rate.len(), length, 4_000, 11, capacity);
    assert_eq!(ours.failed, 0);
    let sd = number(&f["sd"]);
    for (q, theirs) in f["quantiles"].as_object().unwrap() {
        let q: f64 = q.parse().unwrap();
        let position = q * (ours.values.len() - 1) as f64;
        let value = ours.values[position.round() as usize];
        // The sampling sd of a tail quantile at 4,000 draws is about 0.04 sd.
        assert!((value - number(theirs)).abs() < 0.15 * sd, "{q}: {value} and {theirs}, sd {sd}");
    }
}

#[test]
fn distributions_as_scipy() {
    let f = fixture("distributions");
    for case in f["t"].as_array().unwrap() {
        let ours = student_t_quantile(number(&case["p"]), number(&case["dof"]));
        assert!((ours - number(&case["quantile"])).abs() < 1e-9 * (1.0 + ours.abs()), "{case}");
    }
    for case in f["tails"].as_array().unwrap() {
        let ours = student_t_two_sided_p(number(&case["t"]), number(&case["dof"]));
        close(ours, number(&case["two_sided_p"]), 1e-8);
    }
    let case = &f["isotonic"];
    let (places, fit) = isotonic(&numbers(&case["x"]), &numbers(&case["y"])).unwrap();
    all_close(&places, &numbers(&case["places"]), 0.0);
    for (ours, theirs) in fit.iter().zip(numbers(&case["fit"])) {
        assert!((ours - theirs).abs() < 1e-9);
    }
}
