//! What is planted in a made-up fleet is found, and little else.

mod asked;

use asked::{ask_all, dated, forecasts};
use fleet::answer::LEVEL;
use fleet::capacity::capacity;
use fleet::example::{Fleet, Plan};
use fleet::flame::flame;
use fleet::forecast::Outlook;
use fleet::home::{Asked, Home};
use fleet::outliers::outliers;

/// In 20 fleets if `PLIMSOLL_ALL_SEEDS` is set, as by `make nightly`; otherwise in 7.
#[test]
fn what_is_planted_is_found_in_nineteen_of_twenty_fleets() {
    let all = std::env::var_os("PLIMSOLL_ALL_SEEDS").is_some();
    let (fleets, right_min, some_min) = if all { (20, 19, 17) } else { (7, 6, 5) };
    let found = ask_all(fleets, &Plan::planted());
    let right = found.iter().filter(|found| found.is_right()).count();
    assert!(right >= right_min, "{right}: {found:#?}");
    assert!(found.iter().filter(|found| found.covered).count() >= some_min, "{found:#?}");
    assert!(found.iter().filter(|found| found.procedures).count() >= some_min, "{found:#?}");
}

#[test]
fn nothing_is_found_in_healthy_fleets() {
    let found = ask_all(6, &Plan::healthy());
    let quiet = found.iter().filter(|found| found.is_quiet()).count();
    assert!(quiet >= 5, "{quiet}: {found:#?}");
}

#[test]
fn a_group_that_runs_out_in_thirty_days_is_found_and_no_other() {
    for seed in 0..2 {
        let fleet = Fleet::new(seed, Plan { servers: 20, days: 28, ..Plan::planted() });
        for (name, outlook) in forecasts(&fleet, Some("group")) {
            match name == Fleet::growing() {
                true => {
                    let (held, off) = dated(&outlook, fleet.runs_out_day_s().unwrap()).unwrap();
                    assert!(held && off.abs() <= 15, "{seed}: {outlook:?}");
                }
                false => assert!(!matches!(outlook, Outlook::RunsOut { .. }), "{outlook:?}"),
            }
        }
    }
}

#[test]
fn three_days_are_no_forecast() {
    let fleet = Fleet::new(1, Plan { servers: 4, ..Plan::planted() });
    let found = forecasts(&fleet, None);
    assert!(found.len() == 4, "{found:?}");
    assert!(found.values().all(|o| matches!(o, Outlook::CannotBeSaid { .. })), "{found:?}");
}

#[test]
fn a_small_group_has_no_outliers() {
    let fleet = Fleet::new(1, Plan { servers: 30, days: 1, ..Plan::planted() });
    let answer = outliers(&fleet, &Asked::default()).unwrap();
    let small = answer.groups.iter().find(|group| group.name == "varnishd").unwrap();
    assert!(small.cannot_be_said.is_some() && small.servers.is_empty(), "{small:?}");
}

#[test]
fn the_flame_graph_shows_the_procedure_that_changed() {
    let fleet = Fleet::new(2, Plan { servers: 10, days: 2, ..Plan::planted() });
    let answer = flame(&fleet, &Asked::default(), [None, None]).unwrap();
    assert_eq!(answer.between, ["41", "42"]);
    let share = |name: &str, side: usize| {
        let found = answer.procedures.iter().find(|one| one.procedure == name).unwrap();
        let all: f64 = answer.procedures.iter().map(|one| one.itself[side]).sum();
        assert!((found.with_called[side] - found.itself[side]).abs() < 1e-6);
        found.itself[side] / all
    };
    let main = answer.procedures.iter().find(|one| one.procedure == "main").unwrap();
    let per_request = 1e9 * answer.cpu_s[1] / answer.requests[1];
    assert!(main.itself == [0.0; 2] && (main.with_called[1] - per_request).abs() < 1e-3);
    assert!(share("parse_headers", 1) > 1.3 * share("parse_headers", 0));
    assert!(share("lookup", 1) < share("lookup", 0));
    #[cfg(feature = "export")]
    {
        let svg = fleet::flame::svg(&answer).unwrap();
        assert!(svg.contains("parse_headers") && svg.contains("</svg>"));
    }
    let none = flame(&fleet, &Asked::default(), [None, Some(&"43".into())]);
    assert!(none.unwrap_err().to_string().contains("release=43"));
}

#[test]
fn a_folder_of_trials_has_the_servers_runs_and_samples() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::new(3, Plan { servers: 2, days: 4, ..Plan::planted() });
    assert_eq!(fleet.write(folder.path(), &|_, _| ()).unwrap(), 3);
    let runs = fleet.runs(&Asked::default()).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let trial = trial::Trial::open(entry.unwrap().path()).unwrap();
        let manifest = trial.manifest();
        let labels = manifest.labels.iter();
        let labels: Vec<(&str, &str)> = labels.map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let of_run = runs.iter().find(|run| {
            run.server.host == manifest.host.hostname
                && (run.created_ns..run.end_ns).contains(&manifest.created_ns)
        });
        let of_run = of_run.unwrap();
        let expected = of_run.labels.iter();
        let expected: Vec<(&str, &str)> =
            expected.map(|label| (label.name.as_str(), label.value.as_str())).collect();
        assert_eq!(labels, expected);
        let days = (of_run.end_ns - of_run.created_ns) / 86_400_000_000_000;
        assert_eq!(trial.intervals().len(), if days == 4 { 1680 } else { 840 });
        let busy: i64 = trial.intervals().iter().map(|one| one.threads[0].total_ns).sum();
        let sampled: i64 = trial.samples().iter().map(|row| row.ns).sum();
        assert!((sampled as f64 / busy as f64 - 1.0).abs() < 0.05, "{sampled} {busy}");
    }
    let home = fleet::Folder::open(folder.path()).unwrap();
    let asked = Asked { by: Some("release".into()), ..Asked::default() };
    let (ours, theirs) = (fleet.costs(&asked).unwrap(), home.costs(&asked).unwrap());
    let groups = |all: &[fleet::home::ServerCosts]| -> Vec<_> {
        all.iter().map(|one| (one.server.clone(), one.group.clone())).collect()
    };
    assert_eq!(groups(&theirs), groups(&ours));
    let capacities = capacity(&home, &Asked::default(), LEVEL).unwrap();
    for (server, truth) in fleet.capacities() {
        let found = capacities.servers.iter().find(|one| one.server == server).unwrap();
        let line = found.line.as_ref().unwrap();
        assert!(line.low.unwrap() < truth && truth < line.high.unwrap(), "{truth}: {line:?}");
    }
    assert!(fleet.write(folder.path(), &|_, _| ()).unwrap_err().to_string().contains(".trial"));
}
