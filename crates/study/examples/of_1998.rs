//! The studies of 1998 alone, without the command around them: `of_1998 STUDY PLIMSOLL DIRECTORY`
//! runs `select`, `live` or `dispatch` with the defaults of the command, on the servers of that
//! program, and leaves text, figure, JSON and trials in the directory. Run it with `--release`.

#![allow(clippy::unwrap_used, reason = "a program that cannot go on says so by panicking")]

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use readiness::Kind;
use serde::Serialize;
use study::{dispatch, live, select};

const COLUMNS: usize = 100;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [study, program, out] = arguments.as_slice() else {
        eprintln!("usage: of_1998 select|live|dispatch PLIMSOLL DIRECTORY");
        std::process::exit(2);
    };
    let (program, out) = (PathBuf::from(program), PathBuf::from(out));
    let stop = AtomicBool::new(false);
    let say = &mut |step: &str| eprintln!("{step}");
    match study.as_str() {
        "select" => {
            let outcome = select::run(&select_plan(program, &out), &stop, say).unwrap();
            leave(&out, study, &outcome, &select::figure(&outcome));
            print!("{}", select::text(&outcome, COLUMNS));
        }
        "live" => {
            let plan = live::Plan {
                program,
                out: Some(out.clone()),
                hours: 24,
                compressed: Duration::from_secs(6),
                old: Kind::Select,
                new: Kind::ScalableSelect,
                cold: None,
                seed: 1,
            };
            let outcome = live::run(&plan, &stop, say).unwrap();
            leave(&out, study, &outcome, &live::figure(&outcome));
            print!("{}", live::text(&outcome, COLUMNS));
        }
        "dispatch" => {
            let (descriptors, ready) = (vec![1581, 10_000], vec![1, 4, 16]);
            let plan = dispatch::Plan { descriptors, ready, rounds: 9, turns: 100, seed: 1 };
            let outcome = dispatch::run(&plan, &stop, say).unwrap();
            leave(&out, study, &outcome, &dispatch::figure(&outcome));
            print!("{}", dispatch::text(&outcome, COLUMNS));
        }
        other => panic!("there is no study {other}"),
    }
}

fn select_plan(program: PathBuf, out: &Path) -> select::Plan {
    select::Plan {
        program,
        out: Some(out.to_owned()),
        cold: vec![0, 500, 1000, 2000, 5000, 10_000],
        rounds: 5,
        time: Duration::from_secs(180),
        visit: Duration::from_millis(500),
        light_rate: 250.0,
        foretell: Some(Duration::from_secs(30)),
        seed: 1,
    }
}

fn leave(out: &Path, study: &str, outcome: &impl Serialize, figure: &str) {
    std::fs::write(out.join(format!("{study}.svg")), figure).unwrap();
    let json = serde_json::to_string(outcome).unwrap();
    std::fs::write(out.join(format!("{study}.json")), json + "\n").unwrap();
}
