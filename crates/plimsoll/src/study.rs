//! `plimsoll study`: runs `plimsoll-study`, which is a package of its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use command::failure::{Failure, misuse};

const PROGRAM: &str = "plimsoll-study";

/// Replaces this process by the program of the studies; returns only if there is none.
pub(crate) fn study(arguments: &[OsString]) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(misuse)?;
    let beside = ["", "../lib/plimsoll"].map(|to| own.with_file_name(to).join(PROGRAM));
    let Some(program) = beside.iter().find(|path| path.is_file()) else {
        return Err(misuse(format!(
            "{PROGRAM} is not installed: it is not beside {}, nor in ../lib/plimsoll from there; \
             build it with make studies, or cargo build --release -p studies",
            own.display()
        )));
    };
    let error = Command::new(program).args(arguments).exec();
    Err(misuse(format!("{}: {error}", program.display())))
}
