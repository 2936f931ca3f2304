//! Profiles, costs by group, what-if and the comparison of trials: the figures of 1998, and known
//! costs of generated trials.

// A test that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

mod flame;
mod made;
mod written;

use made::{groups_1998, hour_of_table_16, known, new_day, old_day};
use report::{
    Analysis, CompareOptions, Error, Grade, Groups, Instead, Options, RowKind, Verdict, analyse,
    compare, html, terminal, terminal_comparison, terminal_what_if, what_if,
};
use trial::Trial;

fn options_1998() -> Options {
    Options { groups: groups_1998(), ..Options::default() }
}

fn analysed(trial: &Trial, options: &Options) -> Analysis {
    analyse(trial, options).unwrap()
}

/// Microseconds of CPU per request, whether in the kernel, fixed percent.
const COSTS: [(&str, bool, f64, f64); 5] = [
    ("tcp_sendmsg", true, 20.0, 0.0),
    ("sock_poll", true, 15.0, 1.5),
    ("malloc", false, 10.0, 0.0),
    ("parse_request", false, 25.0, 0.5),
    ("_raw_spin_lock", true, 5.0, 0.0),
];

#[test]
fn what_if_predicts_80_for_select_replaced_and_106_for_select_free() {
    let (_directory, trial) = old_day().open("old.trial");
    let options = options_1998();
    // 16.02 % of a CPU at 56 requests/s are 2.86 ms per request.
    let new = what_if(&trial, &options, "select", Instead::Cost(0.1602 / 56.0)).unwrap();
    assert_eq!(new.value.round(), 80.0, "{}", new.value);
    assert_eq!(new.name, "what-if select=2.86ms");
    let free = what_if(&trial, &options, "all select functions", Instead::Scale(0.0)).unwrap();
    assert_eq!(free.value.round(), 106.0, "{}", free.value);
    assert_eq!(free.name, "what-if select=0");
    assert_eq!(free.before.round(), 55.0, "{}", free.before);
    assert!((free.group_us - 1e4 * 38.96 / 48.0).abs() < 1.0, "{}", free.group_us);
    assert!(free.group_us_after.abs() < 1e-6 && free.us > free.us_after);
    for found in [&new, &free] {
        let (low, high) = found.low.zip(found.high).unwrap();
        assert!(low < found.value && found.value < high);
        assert!(found.ratio_low.unwrap() < found.ratio && found.ratio < found.ratio_high.unwrap());
        assert!(found.note.starts_with("first-order"));
    }
    let same = what_if(&trial, &options, "select", Instead::Scale(1.0)).unwrap();
    assert!((same.ratio - 1.0).abs() < 1e-12);
    let text = terminal_what_if(&new, 80);
    assert!(text.contains("Predicted  79.9") && text.contains("first-order"), "{text}");
}

#[test]
fn a_what_if_without_an_answer_says_why() {
    let (_directory, trial) = old_day().open("old.trial");
    let ask = |group: &str, instead| what_if(&trial, &options_1998(), group, instead).unwrap_err();
    let error = ask("selekt", Instead::Scale(0.0));
    assert_eq!(
        error.to_string(),
        "old.trial: no group \"selekt\" in the profile; known groups: select, malloc, tcp, \
         data-movement, [kernel], squid"
    );
    assert!(matches!(ask("select", Instead::Scale(-1.0)), Error::Option { .. }));
    assert!(matches!(ask("select", Instead::Cost(f64::NAN)), Error::Option { .. }));
    assert!(matches!(ask("select", Instead::Scale(-0.5)), Error::Option { .. }));
    let mut without = old_day();
    without.samples.clear();
    let (_directory, trial) = without.open("bare.trial");
    let error = what_if(&trial, &options_1998(), "select", Instead::Scale(0.0)).unwrap_err();
    assert_eq!(error.to_string(), "bare.trial: no profile; record again with one");
}

#[test]
fn the_comparison_of_1998() {
    let mut old = old_day();
    let (_kept, trial) = old.open("old.trial");
    let predicted =
        what_if(&trial, &options_1998(), "select", Instead::Cost(0.1602 / 56.0)).unwrap();
    let free = what_if(&trial, &options_1998(), "select", Instead::Scale(0.0)).unwrap();
    old.predictions = vec![predicted.prediction(1), free.prediction(2)];
    let (_old, before) = old.open("old.trial");
    let (_new, after) = new_day().open("new.trial");
    let options = CompareOptions { analysis: options_1998(), ..CompareOptions::default() };
    let found = compare(&before, &after, &options).unwrap();
    let capacity = found.capacity.as_ref().unwrap();
    // Report and compare have one capacity, so that they cannot contradict each other.
    let reported = [&before, &after].map(|trial| analysed(trial, &options_1998()).capacity.value);
    assert_eq!(reported, [found.before.capacity.value, found.after.capacity.value]);
    assert_eq!(capacity.value, reported[1].unwrap() / reported[0].unwrap());
    assert_eq!(found.verdict, Verdict::Improvement, "{}", found.why);
    let user = found.modes.iter().find(|mode| mode.mode == "user").unwrap();
    assert!(!user.significant, "{user:?}");
    let kernel = found.modes.iter().find(|mode| mode.mode == "kernel").unwrap();
    assert!(kernel.significant && kernel.p < 0.001, "{kernel:?}");
    assert!(found.before.physical && !found.after.physical);
    let idle = found.after.idle_at_zero.unwrap();
    assert!((idle - 104.6).abs() < 0.05, "{idle}");
    // The select procedures of the old kernel are gone, and those of the new one are present.
    assert_eq!(found.groups[0].name, "all select functions");
    assert!(found.groups[0].significant && found.groups[0].us_change < -5_000.0);
    assert!(found.procedures.iter().any(|p| p.name == "soo_select" && p.us_after == 0.0));
    assert_eq!(found.graded[0].grade, Grade::Held, "{:?}", found.graded[0]);
    assert!(found.graded[1].ratio.unwrap() < 0.9, "select did not become free");

    let text = terminal_comparison(&found, 100);
    assert!(text.contains("improvement: a request costs 41 % less at the same load"), "{text}");
    assert!(text.contains("+59 %"), "{text}");
    assert!(text.contains("new.trial: not physical: 104.6 % idle at zero load"), "{text}");
    insta::assert_snapshot!(text);

    let back = compare(&after, &before, &options).unwrap();
    assert_eq!(back.verdict, Verdict::Regression);
    assert!(back.graded.is_empty());
}

#[test]
fn a_trial_compared_with_itself_is_no_change_if_the_margin_covers_the_sd_between_runs() {
    let made = known(&COSTS, 5);
    let (_directory, trial) = made.open("known.trial");
    let options = CompareOptions::default();
    let same = compare(&trial, &trial, &options).unwrap();
    assert_eq!(same.verdict, Verdict::NoChange, "{} {:?}", same.why, same.cost);
    assert!(same.groups.iter().chain(&same.procedures).all(|part| !part.significant));
    let strict = CompareOptions { margin: 0.02, ..options };
    let same = compare(&trial, &trial, &strict).unwrap();
    assert_eq!(same.verdict, Verdict::Inconclusive, "two runs differ by more than that");
}

#[test]
fn a_more_expensive_request_is_a_regression_and_its_procedure_is_named() {
    let mut changed = COSTS;
    changed[3].2 = 45.0;
    let (_a, before) = known(&COSTS, 5).open("a.trial");
    let (_b, after) = known(&changed, 6).open("b.trial");
    let found = compare(&before, &after, &CompareOptions::default()).unwrap();
    assert_eq!(found.verdict, Verdict::Regression, "{:?}", found.cost);
    assert_eq!(found.procedures[0].name, "parse_request");
    assert!(found.procedures[0].significant);
    assert!((found.procedures[0].us_change - 20.0).abs() < 2.0, "{:?}", found.procedures[0]);
    assert!(found.procedures[1..].iter().all(|part| !part.significant), "{:?}", found.procedures);
}

#[test]
fn table_16_is_read_back() {
    let (_directory, trial) = hour_of_table_16().open("hour.trial");
    let profile = analysed(&trial, &options_1998()).profile.unwrap();
    let row = |name: &str| profile.rows.iter().find(|row| row.name == name).unwrap();
    for (percent, non_idle, name, mode) in [
        (89.27, Some(100.00), "all non-idle time", "both"),
        (10.73, None, "all idle time", ""),
        (38.96, Some(43.64), "all select functions", "kernel"),
        (13.83, Some(15.50), "soo_select", "kernel"), // 15.49 by division; printed 15.50
        (12.33, Some(13.81), "selscan", "kernel"),
        (10.11, Some(11.32), "undo_scan", "kernel"), // 11.33 by division
        (2.51, Some(2.81), "select", "kernel"),
        (5.87, Some(6.57), "malloc-related #1", "user"), // 6.58 by division
        (3.48, Some(3.89), "pmap_zero_page", "kernel"),  // 3.90 by division
        (1.46, Some(1.64), "all TCP functions", "kernel"),
    ] {
        let row = row(name);
        assert!((row.percent - percent).abs() < 0.005, "{row:?}");
        match (row.percent_non_idle, non_idle) {
            (Some(ours), Some(theirs)) => assert!((ours - theirs).abs() < 0.015, "{row:?}"),
            (ours, theirs) => assert_eq!(ours.is_some(), theirs.is_some(), "{row:?}"),
        }
        assert_eq!(row.mode, mode, "{row:?}");
    }
    assert!((profile.rate_mean - 48.0).abs() < 1e-9);
    assert!((profile.rate_peak - 58.0).abs() < 1e-9);
    // Groups always have a row; procedures below 1 % of the non-idle time have none.
    assert_eq!(row("recorder").percent, 0.0);
    assert!(profile.rows.iter().all(|row| row.name != "comm_select"));
    // The largest group comes first, with its procedures below it.
    assert_eq!(profile.rows[2].kind, RowKind::Group);
    assert_eq!(profile.rows[3].name, "soo_select");
}

#[test]
fn costs_add_up_to_the_line_and_their_intervals_contain_the_true_values() {
    let made = known(&COSTS, 11);
    let (_directory, trial) = made.open("known.trial");
    let costs = analysed(&trial, &Options::default()).costs.unwrap();
    assert!(costs.closure_us.abs() < 1e-9 && costs.closure_fixed_percent.abs() < 1e-9);
    let sum: f64 = costs.groups.iter().map(|group| group.row.us_per_request).sum();
    let whole = costs.whole.us_per_request;
    assert!((sum + costs.unsampled.us_per_request - whole).abs() < 1e-9);
    let modes: f64 = costs.modes.iter().map(|row| row.us_per_request).sum();
    assert!((modes - whole).abs() < 0.001, "{modes} and {whole}");
    for (group, us, fixed) in [
        ("tcp", 20.0, 0.0),
        ("select", 15.0, 1.5),
        ("malloc", 10.0, 0.0),
        ("squid", 25.0, 0.5),
        ("locks", 5.0, 0.0),
    ] {
        let found = costs.groups.iter().find(|found| found.row.group == group).unwrap();
        let row = &found.row;
        assert!(row.us_low <= us && us <= row.us_high, "{row:?}");
        assert!(row.fixed_low <= fixed && fixed <= row.fixed_high, "{row:?}");
        assert!((found.us_user + found.us_kernel - row.us_per_request).abs() < 1e-9);
        let inside: f64 = found.procedures.iter().map(|row| row.us_per_request).sum();
        assert!((inside - row.us_per_request).abs() < 1e-9, "{found:?}");
    }
    assert!(costs.unsampled.us_low < 0.5 && costs.unsampled.us_high > -0.5);
    assert_eq!(costs.outside[0].group, "recorder");
    let free = what_if(&trial, &Options::default(), "tcp", Instead::Scale(0.0)).unwrap();
    let truth = (1.0 - 0.02) / (55.0 * 1e-6);
    assert!(free.low.unwrap() < truth && truth < free.high.unwrap(), "{free:?}");
    assert!((free.value / truth - 1.0).abs() < 0.05, "{} and {truth}", free.value);
}

/// A what-if began at the capacity of the straight line, and was graded by it. That is not the
/// capacity of the report if the data end early.
#[test]
fn a_what_if_begins_at_the_capacity_of_the_report() {
    // The server of these trials never sleeps. An event loop does, less often as it gets busier.
    let sleeping = |costs, seed| {
        let mut made = known(costs, seed);
        for interval in &mut made.intervals {
            let idle = 1.0 - interval.server.unwrap().total_ns as f64 / interval.length_ns as f64;
            interval.threads[0].wakes = (0.5 * interval.requests * idle) as u64;
        }
        made
    };
    let mut made = sleeping(&COSTS, 3);
    let options = Options::default();
    let (_directory, trial) = made.open("known.trial");
    let now = analysed(&trial, &options).capacity;
    let free = what_if(&trial, &options, "tcp", Instead::Scale(0.0)).unwrap();
    assert_eq!((now.model, free.model), ("busy", "busy"));
    assert_eq!(now.value, Some(free.before));
    assert!((free.value / free.before / free.ratio - 1.0).abs() < 1e-12);
    // Neither the capacity nor the ratio is known exactly, so their product is known less well.
    let upwards = [
        free.high.unwrap() / free.value,
        now.high.unwrap() / free.before,
        free.ratio_high.unwrap() / free.ratio,
    ];
    assert!(upwards[0] > upwards[1] && upwards[0] > upwards[2], "{upwards:?}");
    let downwards = [
        free.value / free.low.unwrap(),
        free.before / now.low.unwrap(),
        free.ratio / free.ratio_low.unwrap(),
    ];
    assert!(downwards[0] > downwards[1] && downwards[0] > downwards[2], "{downwards:?}");

    made.predictions = vec![free.prediction(1)];
    let (_before, before) = made.open("before.trial");
    let (_after, after) = sleeping(&COSTS[1..], 4).open("after.trial");
    let found = compare(&before, &after, &CompareOptions::default()).unwrap();
    assert_eq!(found.graded[0].came, analysed(&after, &options).capacity.value);
    assert_eq!(found.graded[0].grade, Grade::Held, "{:?}", found.graded[0]);
}

/// In at least 18 of 20 runs the interval of each group contains the true value.
#[test]
fn intervals_of_costs_contain_the_true_values_at_their_level() {
    let mut held = [0; 5];
    for seed in 0..20 {
        let (_directory, trial) = known(&COSTS, 100 + seed).open("known.trial");
        let costs = analysed(&trial, &Options::default()).costs.unwrap();
        for (at, (group, us)) in
            [("tcp", 20.0), ("select", 15.0), ("malloc", 10.0), ("squid", 25.0), ("locks", 5.0)]
                .into_iter()
                .enumerate()
        {
            let row = &costs.groups.iter().find(|found| found.row.group == group).unwrap().row;
            held[at] += usize::from(row.us_low <= us && us <= row.us_high);
        }
    }
    assert!(held.iter().all(|&held| held >= 18), "{held:?} of 20");
}

#[test]
fn quiet_intervals_are_excluded_and_both_lines_are_shown() {
    let (_directory, trial) = old_day().open("old.trial");
    let analysis = analysed(&trial, &Options { above: 20.0, ..options_1998() });
    let all = analysis.all_intervals.as_ref().unwrap();
    assert_eq!(all.capacity_straight.n, 96);
    assert!(analysis.capacity_straight.n < 96);
    assert_eq!(all.capacity_straight.value.unwrap().round(), 55.0);
    let text = terminal(&analysis, 80);
    assert!(text.contains("the same, with quiet intervals"), "{text}");
    assert!(text.contains("idle, with quiet"), "{text}");
    assert!(analysed(&trial, &options_1998()).all_intervals.is_none());
}

#[test]
fn the_report_of_1998_shows_costs_and_profile() {
    let (_directory, trial) = old_day().open("old.trial");
    let analysis = analysed(&trial, &options_1998());
    insta::assert_snapshot!(terminal(&analysis, 100));
    let json = serde_json::to_value(&analysis).unwrap();
    for key in [
        "/costs/groups/0/row/us_per_request",
        "/costs/groups/0/row/group",
        "/costs/groups/0/us_kernel",
        "/costs/closure_us",
        "/profile/rows/0/percent",
        "/profile/rate_mean",
    ] {
        assert!(json.pointer(key).is_some_and(|value| !value.is_null()), "{key}");
    }
}

#[test]
fn the_page_shows_them_and_loads_nothing() {
    let mut hostile = known(&COSTS, 3);
    for sample in &mut hostile.samples {
        if sample.2[0].symbol.as_deref() == Some("parse_request") {
            sample.2[0].symbol = Some("<script>alert(1)</script>".to_string());
            sample.2[0].module = "<b>\u{1b}[2J".to_string();
        }
    }
    let (_directory, trial) = hostile.open("hostile.trial");
    let analysis = analysed(&trial, &Options::default());
    let page = html(&analysis);
    assert!(!page.contains("<script") && !page.contains("<b>") && !page.contains("NaN"));
    assert!(page.contains("Cost of a request by group"));
    assert!(terminal(&analysis, 100).chars().all(|c| c == '\n' || !c.is_control()));
    // Copies to view in a browser.
    let directory = env!("CARGO_TARGET_TMPDIR");
    std::fs::write(format!("{directory}/known.html"), &page).unwrap();
    let (_directory, trial) = old_day().open("old.trial");
    let page = html(&analysed(&trial, &options_1998()));
    std::fs::write(format!("{directory}/old_day.html"), &page).unwrap();
    let promised =
        ["Cost of a request by mode, group and procedure", "all select functions", "Profile, 1998"];
    for promised in promised {
        assert!(page.contains(promised), "{promised}");
    }
    assert_eq!(page.matches("<svg").count(), 4, "load line in two sizes, costs, flame graph");
}

#[test]
fn a_trial_without_a_profile_has_neither_costs_nor_table() {
    let mut made = old_day();
    made.samples.clear();
    let (_directory, trial) = made.open("bare.trial");
    let analysis = analysed(&trial, &Options { groups: Groups::default(), ..Options::default() });
    assert!(analysis.costs.is_none() && analysis.profile.is_none());
    assert!(!html(&analysis).contains("Cost of a request by"));
}
