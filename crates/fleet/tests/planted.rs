//! What is planted in a made-up fleet is found, and little else.

use std::collections::BTreeMap;

use fleet::compare::{Terms, compare};
use fleet::example::{Fleet, Plan};
use fleet::flame::flame;
use fleet::forecast::{Outlook, ServerCapacity, forecast};
use fleet::home::{Asked, Home, ServerId};
use fleet::outliers::outliers;
use report::Verdict;

/// What the questions said about one fleet.
#[derive(Debug)]
struct Found {
    /// Expensive servers that are outliers.
    expensive: usize,
    /// Healthy servers, and how many of them are outliers.
    healthy: (usize, usize),
    /// The verdict on the release.
    release: Verdict,
    /// Servers with the release, and how many of them changed.
    changed: (usize, usize),
    /// The interval of the release has the true ratio.
    covered: bool,
    /// The procedure that changed, and no other, has a change.
    procedures: bool,
}

impl Found {
    /// Everything planted was found, with at most one false alarm in 100 healthy servers.
    fn is_right(&self) -> bool {
        self.expensive == 3
            && self.release == Verdict::Regression
            && self.healthy.1 <= self.healthy.0.div_ceil(100)
    }

    /// No more false alarms than that in a fleet in which nothing is planted.
    fn is_quiet(&self) -> bool {
        let changed = matches!(self.release, Verdict::Regression | Verdict::Improvement);
        !changed && self.healthy.1 + self.changed.1 <= self.healthy.0.div_ceil(100)
    }
}

fn ask(seed: u64, plan: &Plan) -> Found {
    let fleet = Fleet::new(seed, plan.clone());
    let expensive = fleet.expensive();
    let answer = outliers(&fleet, &Asked::default()).unwrap();
    let members = || answer.groups.iter().flat_map(|group| &group.servers);
    let differ: Vec<&ServerId> = members().filter(|m| m.outlier).map(|m| &m.server).collect();
    let right = differ.iter().filter(|server| expensive.contains(server)).count();
    let compared = compare(&fleet, &Asked::default(), &Terms::default()).unwrap();
    let changed = |v: Verdict| matches!(v, Verdict::Regression | Verdict::Improvement);
    let truth = plan.release.1;
    let named: Vec<&str> = compared
        .procedures
        .iter()
        .filter(|one| one.q <= 0.05)
        .map(|one| one.procedure.as_str())
        .collect();
    Found {
        expensive: right,
        healthy: (members().count() - expensive.len(), differ.len() - right),
        release: compared.verdict,
        changed: (
            compared.servers.len(),
            compared.servers.iter().filter(|one| changed(one.verdict)).count(),
        ),
        covered: compared.ratio.is_some_and(|r| (r.low..=r.high).contains(&truth)),
        procedures: if truth > 1.0 { named == ["parse_headers"] } else { named.is_empty() },
    }
}

/// The answers for these seeds, on two threads.
fn ask_all(seeds: u64, plan: &Plan) -> Vec<Found> {
    std::thread::scope(|scope| {
        let half = |odd: u64| (0..seeds).filter(move |seed| seed % 2 == odd);
        let other = scope.spawn(move || half(1).map(|seed| ask(seed, plan)).collect::<Vec<_>>());
        let mut found: Vec<Found> = half(0).map(|seed| ask(seed, plan)).collect();
        found.extend(other.join().unwrap());
        found
    })
}

#[test]
fn what_is_planted_is_found_in_nineteen_of_twenty_fleets() {
    let found = ask_all(20, &Plan::planted());
    let right = found.iter().filter(|found| found.is_right()).count();
    assert!(right >= 19, "{right}: {found:#?}");
}

#[test]
fn nothing_is_found_in_healthy_fleets() {
    let found = ask_all(6, &Plan::healthy());
    let quiet = found.iter().filter(|found| found.is_quiet()).count();
    assert!(quiet >= 5, "{quiet}: {found:#?}");
}

/// Forecasts of a fleet by group, and of each server alone.
fn forecasts(fleet: &Fleet, by: Option<&str>) -> BTreeMap<String, Outlook> {
    let known =
        |(server, value)| ServerCapacity { server, value, low: 0.9 * value, high: value / 0.9 };
    let capacities: Vec<ServerCapacity> = fleet.capacities().into_iter().map(known).collect();
    let asked = Asked { by: by.map(Into::into), ..Asked::default() };
    let answer = forecast(fleet, &asked, &capacities).unwrap();
    answer.groups.into_iter().map(|group| (group.name, group.outlook)).collect()
}

/// Whether the interval has the day, and the days by which the median is off.
fn dated(outlook: &Outlook, truth_s: i64) -> Option<(bool, i64)> {
    let Outlook::RunsOut { day_s, low_s, high_s } = *outlook else { return None };
    let held = low_s <= truth_s && high_s.is_none_or(|high_s| truth_s <= high_s);
    Some((held, (day_s - truth_s) / 86_400))
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
    assert_eq!(fleet.write(folder.path()).unwrap(), 4);
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
        let expected = of_run.unwrap().labels.iter();
        let expected: Vec<(&str, &str)> =
            expected.map(|label| (label.name.as_str(), label.value.as_str())).collect();
        assert_eq!(labels, expected);
        assert_eq!(trial.intervals().len(), 840);
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
    assert!(fleet.write(folder.path()).unwrap_err().to_string().contains(".trial"));
}

fn seeds() -> u64 {
    std::env::var("SEEDS").map_or(40, |n| n.parse().expect("SEEDS is a number"))
}

/// Run by hand: `SEEDS=200 cargo test -p fleet --test planted -- --ignored --nocapture`.
#[test]
#[ignore = "a study over many fleets, which takes minutes"]
fn rates_of_alarms() {
    let plans: [(&str, fn(Plan) -> Plan); 13] = [
        ("as planned", |plan| plan),
        ("30 servers", |plan| Plan { servers: 30, ..plan }),
        ("300 servers", |plan| Plan { servers: 300, ..plan }),
        ("28 days", |plan| Plan { days: 28, ..plan }),
        ("1 day", |plan| Plan { days: 1, ..plan }),
        ("spread 1 %", |plan| Plan { spread_sd: 0.01, ..plan }),
        ("spread 3 %", |plan| Plan { spread_sd: 0.03, ..plan }),
        ("spread 6 %", |plan| Plan { spread_sd: 0.06, ..plan }),
        ("runs 0.5 %", |plan| Plan { run_sd: 0.005, ..plan }),
        ("runs 4 %", |plan| Plan { run_sd: 0.04, ..plan }),
        ("heavy tails (t3)", |plan| Plan { heavy_tails: true, ..plan }),
        ("windows 10 %, 0.98", |plan| Plan { window: (0.1, 0.98), ..plan }),
        ("intervals 10 %", |plan| Plan { interval_sd: 0.1, ..plan }),
    ];
    println!("planted: all found, servers found, false outliers %, release found, its interval");
    println!("holds, procedures right | healthy: quiet, false outliers %, false changes %,");
    println!("release quiet, procedures right");
    let only = std::env::var("ONLY").unwrap_or_default();
    for (name, change) in plans.into_iter().filter(|plan| plan.0.contains(&only)) {
        let seeds = if name.contains("28") || name.contains("300") { seeds() / 4 } else { seeds() };
        let planted = ask_all(seeds, &change(Plan::planted()));
        let healthy = ask_all(seeds, &change(Plan::healthy()));
        let share = |all: &[Found], of: &dyn Fn(&Found) -> bool| {
            all.iter().filter(|found| of(found)).count() as f64 / all.len() as f64
        };
        let percent = |all: &[Found], of: &dyn Fn(&Found) -> (usize, usize)| {
            let sum = all.iter().map(of).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            100.0 * sum.1 as f64 / sum.0 as f64
        };
        println!(
            "{name:20} {:.3} {:.3} {:.2}% {:.2} {:.2} {:.2} | {:.2} {:.2}% {:.2}% {:.2} {:.2}",
            share(&planted, &Found::is_right),
            percent(&planted, &|found| (3, found.expensive)) / 100.0,
            percent(&planted, &|found| found.healthy),
            share(&planted, &|found| found.release == Verdict::Regression),
            share(&planted, &|found| found.covered),
            share(&planted, &|found| found.procedures),
            share(&healthy, &Found::is_quiet),
            percent(&healthy, &|found| found.healthy),
            percent(&healthy, &|found| found.changed),
            share(&healthy, &|found| {
                !matches!(found.release, Verdict::Regression | Verdict::Improvement)
            }),
            share(&healthy, &|found| found.procedures),
        );
    }
}

/// Run by hand, as above.
#[test]
#[ignore = "a study over many fleets, which takes minutes"]
fn rates_of_forecasts() {
    println!("growth and days: dated, interval holds, median of days off, largest; other groups");
    println!("dated; other servers dated");
    for (growth, days) in [(0.012, 14), (0.012, 21), (0.012, 28), (0.004, 28), (0.012, 90)] {
        let (mut held, mut off, mut others, mut servers) = (0, Vec::new(), (0, 0), (0, 0));
        let count = |all: &mut (usize, usize), outlook: &Outlook| {
            let alarm = matches!(outlook, Outlook::RunsOut { .. } | Outlook::RanOut { .. });
            *all = (all.0 + usize::from(alarm), all.1 + 1);
        };
        for seed in 0..seeds() {
            let plan = Plan { servers: 30, days, growth: Some(growth), ..Plan::planted() };
            let fleet = Fleet::new(seed, plan);
            for (name, outlook) in forecasts(&fleet, Some("group")) {
                if name != Fleet::growing() {
                    count(&mut others, &outlook);
                } else if let Some((holds, days)) =
                    fleet.runs_out_day_s().and_then(|day_s| dated(&outlook, day_s))
                {
                    held += usize::from(holds);
                    off.push(days);
                }
            }
            for (_, outlook) in forecasts(&fleet, None).iter().filter(|o| !o.0.contains("varnish"))
            {
                count(&mut servers, outlook);
            }
        }
        off.sort_unstable();
        println!(
            "{growth} {days}: {} of {}, {held}, {:?}, {:?}; {others:?}; {servers:?}",
            off.len(),
            seeds(),
            off.get(off.len() / 2),
            off.iter().map(|days| days.abs()).max(),
        );
    }
}

/// Run by hand: writes a folder to `DIR`, and prints every answer.
#[test]
#[ignore = "prints the answers of a folder of trials"]
fn answers_of_a_folder() {
    let folder = std::path::PathBuf::from(std::env::var("DIR").expect("DIR is a folder"));
    let start = std::time::Instant::now();
    let fleet = Fleet::new(1, Plan::folder());
    if !folder.exists() {
        std::fs::create_dir(&folder).unwrap();
        println!("{} trials in {:?}", fleet.write(&folder).unwrap(), start.elapsed());
    }
    let home = fleet::Folder::open(&folder).unwrap();
    let print = |sheet| println!("{}", report::sheet::sheet(&sheet, 120));
    let all = Asked::default();
    println!("{:?}", fleet.expensive());
    print(fleet::outliers::sheet(&outliers(&home, &all).unwrap()));
    print(fleet::compare::sheet(&compare(&home, &all, &Terms::default()).unwrap()));
    let answer = flame(&home, &all, [None, None]).unwrap();
    print(fleet::flame::sheet(&answer));
    #[cfg(feature = "export")]
    std::fs::write(folder.join("flame.svg"), fleet::flame::svg(&answer).unwrap()).unwrap();
    let known =
        |(server, value)| ServerCapacity { server, value, low: 0.9 * value, high: value / 0.9 };
    let capacities: Vec<ServerCapacity> = fleet.capacities().into_iter().map(known).collect();
    let by = Asked { by: Some("group".into()), ..Asked::default() };
    print(fleet::forecast::sheet(&forecast(&home, &by, &capacities).unwrap()));
    println!(
        "runs out on {:?}",
        fleet.runs_out_day_s().map(|s| report::format::instant(s * 1_000_000_000))
    );
}
