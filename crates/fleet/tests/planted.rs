//! What is planted in a made-up fleet is found, and little else.

use fleet::compare::{Terms, compare};
use fleet::example::{Fleet, Plan};
use fleet::home::{Asked, ServerId};
use fleet::outliers::outliers;
use report::Verdict;

/// What the questions said about one fleet.
#[derive(Debug, Default)]
struct Found {
    /// Expensive servers that are outliers.
    expensive: usize,
    /// Healthy servers that are.
    outliers: usize,
    release: Option<Verdict>,
    /// Servers of which a changed release, or an unchanged one, was noticed.
    changed: usize,
    /// The release's interval has the true ratio.
    covered: bool,
    /// The first procedure is the one that changed.
    procedure: bool,
    healthy: usize,
}

fn ask(seed: u64, plan: Plan) -> Found {
    let truth = plan.release.1;
    let fleet = Fleet::new(seed, plan);
    let expensive = fleet.expensive();
    let answer = outliers(&fleet, &Asked::default()).unwrap();
    let members = || answer.groups.iter().flat_map(|group| &group.servers);
    let differ: Vec<&ServerId> = members().filter(|m| m.outlier).map(|m| &m.server).collect();
    let right = differ.iter().filter(|server| expensive.contains(server)).count();
    let compared = compare(&fleet, &Asked::default(), &Terms::default()).unwrap();
    let changed = |v: Verdict| matches!(v, Verdict::Regression | Verdict::Improvement);
    Found {
        expensive: right,
        outliers: differ.len() - right,
        release: Some(compared.verdict),
        changed: compared.servers.iter().filter(|s| changed(s.verdict)).count(),
        covered: compared.ratio.is_some_and(|r| (r.low..=r.high).contains(&truth)),
        procedure: compared
            .procedures
            .first()
            .is_some_and(|p| p.procedure == "parse_headers" && p.q < 0.05),
        healthy: members().count() - expensive.len(),
    }
}

/// Run by hand: `cargo test -p fleet --test planted -- --ignored --nocapture`.
#[test]
#[ignore = "a study over many fleets, which takes minutes"]
fn rates_of_alarms() {
    let seeds: u64 = std::env::var("SEEDS").map_or(40, |n| n.parse().unwrap());
    let bases: [(&str, fn(Plan) -> Plan); 9] = [
        ("as planned", |plan| plan),
        ("heavy tails", |plan| Plan { heavy_tails: true, ..plan }),
        ("spread 1 %", |plan| Plan { spread_sd: 0.01, ..plan }),
        ("spread 6 %", |plan| Plan { spread_sd: 0.06, ..plan }),
        ("runs 4 %", |plan| Plan { run_sd: 0.04, ..plan }),
        ("runs 0.5 %", |plan| Plan { run_sd: 0.005, ..plan }),
        ("windows 10 %, 0.98", |plan| Plan { window: (0.1, 0.98), ..plan }),
        ("30 servers", |plan| Plan { servers: 30, ..plan }),
        ("1 day", |plan| Plan { days: 1, ..plan }),
    ];
    println!(
        "{:20} {:>5} {:>5} {:>6} {:>6} {:>6} {:>6} | {:>6} {:>6} {:>6}",
        "fleet", "3of3", "share", "false%", "relse", "cover", "proc", "false%", "relse", "server%"
    );
    for (name, change) in bases {
        let runs = |plan: fn() -> Plan| -> Vec<Found> {
            (0..seeds).map(|seed| ask(seed, change(plan()))).collect()
        };
        let (planted, healthy) = (runs(Plan::planted), runs(Plan::healthy));
        let mean = |all: &[Found], of: &dyn Fn(&Found) -> f64| {
            all.iter().map(of).sum::<f64>() / all.len() as f64
        };
        let false_share = |all: &[Found]| {
            100.0 * mean(all, &|f| f.outliers as f64) / mean(all, &|f| f.healthy as f64)
        };
        println!(
            "{name:20} {:5.2} {:5.2} {:6.2} {:6.2} {:6.2} {:6.2} | {:6.2} {:6.2} {:6.2}",
            mean(&planted, &|f| f64::from(f.expensive == 3)),
            mean(&planted, &|f| f.expensive as f64 / 3.0),
            false_share(&planted),
            mean(&planted, &|f| f64::from(f.release == Some(Verdict::Regression))),
            mean(&planted, &|f| f64::from(f.covered)),
            mean(&planted, &|f| f64::from(f.procedure)),
            false_share(&healthy),
            mean(&healthy, &|f| f64::from(matches!(
                f.release,
                Some(Verdict::Regression | Verdict::Improvement)
            ))),
            mean(&healthy, &|f| f.changed as f64 / 40.0 * 100.0),
        );
    }
}

#[test]
#[ignore = "debug"]
fn debug() {
    for plan in [Plan::healthy(), Plan::planted()] {
        let fleet = Fleet::new(1, plan);
        let answer = outliers(&fleet, &Asked::default()).unwrap();
        println!("{:?}", fleet.expensive());
        println!("{}", report::sheet::sheet(&fleet::outliers::sheet(&answer), 120));
        let compared = compare(&fleet, &Asked::default(), &Terms::default()).unwrap();
        println!("{}", report::sheet::sheet(&fleet::compare::sheet(&compared), 120));
    }
}
