//! The study alone, without the command around it: `swapin DIRECTORY [OBJECTS]` measures in a
//! directory and leaves text, figures and JSON there. Run it with `--release`.

#![allow(clippy::unwrap_used, reason = "a program that cannot go on says so by panicking")]

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use study::swapin::{self, Plan};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: swapin DIRECTORY [OBJECTS]");
        std::process::exit(2);
    };
    let plan = Plan {
        path: path.clone(),
        objects: arguments.next().map_or(720, |objects| objects.parse().unwrap()),
        rounds: 20,
        time: Duration::from_secs(90),
        seed: 1,
        squid: true,
    };
    let outcome = swapin::run(&plan, &AtomicBool::new(false), &mut |step| eprintln!("{step}"));
    let outcome = outcome.unwrap();
    for (cache, name) in [("warm", "swapin.svg"), ("cold", "swapin-cold.svg")] {
        if let Some(figure) = swapin::figure(&outcome, cache) {
            std::fs::write(path.join(name), figure).unwrap();
        }
    }
    std::fs::write(path.join("swapin.json"), serde_json::to_string(&outcome).unwrap()).unwrap();
    print!("{}", swapin::text(&outcome, 100));
}
