//! The chores: `cargo xtask tidy` checks what rustc, rustfmt and clippy do not, and
//! `cargo xtask planted` whether the tests find the bugs that are planted on purpose.
//!
//! It uses no other crate, so that it builds in a second and runs before anything else does. It
//! never changes a file: each finding says what is wrong and the mend.

#![forbid(unsafe_code)]

mod planted;
mod rust;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy | cargo xtask planted [BUG...]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        ["planted", bugs @ ..] => planted::run(&root(), bugs),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// xtask stands directly under it; the manifest's directory is known when it is built.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn run_tidy() -> ExitCode {
    let tree = match tree::Tree::read(&root()) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: the repository cannot be read: {error}");
            return ExitCode::from(2);
        }
    };
    let findings = tidy::check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to mend", tree.len());
        ExitCode::SUCCESS
    } else {
        println!("tidy: {} to mend", findings.len());
        ExitCode::FAILURE
    }
}
