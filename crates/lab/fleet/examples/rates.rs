//! How often the questions find what is planted in made-up fleets of many kinds, and how often they
//! are wrong: `cargo run -p fleet --example rates [SEEDS [PART OF THE FLEET'S NAME]]`.

#[path = "../tests/asked/mod.rs"]
mod asked;

use asked::{Found, ask_all, dated, forecasts};
use fleet::example::{Fleet, Plan};
use fleet::forecast::Outlook;
use report::Verdict;

fn main() {
    let mut args = std::env::args().skip(1);
    let seeds = args.next().map_or(40, |text| text.parse().expect("a number of seeds"));
    let only = args.next().unwrap_or_default();
    rates_of_alarms(seeds, &only);
    if only.is_empty() || only == "forecasts" {
        rates_of_forecasts(seeds);
    }
}

fn rates_of_alarms(all_seeds: u64, only: &str) {
    type Change = fn(Plan) -> Plan;
    let plans: [(&str, Change); 13] = [
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
    for (name, change) in plans.into_iter().filter(|plan| plan.0.contains(only)) {
        let many = name.contains("28") || name.contains("300");
        let seeds = if many { all_seeds.div_ceil(4) } else { all_seeds };
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

fn rates_of_forecasts(seeds: u64) {
    println!("growth and days: dated, interval holds, median of days off, largest; other groups");
    println!("dated; other servers dated");
    for (growth, days) in [(0.012, 14), (0.012, 21), (0.012, 28), (0.004, 28), (0.012, 90)] {
        let (mut held, mut off, mut others, mut servers) = (0, Vec::new(), (0, 0), (0, 0));
        let count = |all: &mut (usize, usize), outlook: &Outlook| {
            let alarm = matches!(outlook, Outlook::RunsOut { .. } | Outlook::RanOut { .. });
            *all = (all.0 + usize::from(alarm), all.1 + 1);
        };
        for seed in 0..seeds {
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
            seeds,
            off.get(off.len() / 2),
            off.iter().map(|days| days.abs()).max(),
        );
    }
}
