//! The programs of the differential test: what it runs with the library preloaded and without.
//!
//! ```text
//! boost_programs random FIRST COUNT   the programs of COUNT seeds, with all results
//! boost_programs scene NAME           one of the scenes, and its results
//! boost_programs scenes               the names of the scenes
//! ```
//!
//! The programs of one run share the process, so that the library's state carries over from one to
//! the next. They do not race: one thread acts at a time, and delayed effects of the kernel
//! (terminals) are waited for by raw system calls that cannot be interposed.

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
                print!("program {seed}\n{}", programs::run(seed));
            }
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
    eprintln!("usage: boost_programs random FIRST COUNT | scene NAME | scenes");
    ExitCode::from(2)
}
