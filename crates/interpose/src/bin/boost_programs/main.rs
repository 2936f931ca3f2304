//! The programs of the differential test: what it runs with the library preloaded and without.
//!
//! ```text
//! boost_programs random FIRST COUNT   a line for each seed: the seed, a digest of all results
//! boost_programs show FIRST SEED      runs FIRST to SEED, and prints the results of the last one
//! boost_programs scene NAME           one of the scenes, and its results
//! ```
//!
//! The programs of one run share the process, so that what the library remembers of one meets the
//! next. They do not race: one thread acts at a time, and whatever the kernel does later
//! (terminals) is waited for by raw system calls that nobody can interpose.

mod calls;
mod programs;
mod scenes;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["random", first, count] if number(first).is_some() && number(count).is_some() => {
            let first = number(first).unwrap_or(0);
            for seed in first..first + number(count).unwrap_or(0) {
                println!("{seed} {:016x}", digest(&programs::run(seed)));
            }
        }
        ["show", first, seed] if number(first).is_some() && number(seed).is_some() => {
            let last = number(seed).unwrap_or(0);
            for seed in number(first).unwrap_or(0)..last {
                programs::run(seed);
            }
            print!("{}", programs::run(last));
        }
        ["scene", name] => match scenes::SCENES.iter().find(|scene| scene.0 == name) {
            Some((_, scene)) => print!("{}", scene()),
            None => return misuse(),
        },
        ["scenes"] => scenes::SCENES.iter().for_each(|scene| println!("{}", scene.0)),
        _ => return misuse(),
    }
    ExitCode::SUCCESS
}

fn misuse() -> ExitCode {
    eprintln!("usage: boost_programs random FIRST COUNT | show FIRST SEED | scene NAME | scenes");
    ExitCode::from(2)
}

/// FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
