//! `plimsoll study`: runs `plimsoll-study`, which is a separate package.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use command::failure::{Failure, misuse};

const PROGRAM: &str = "plimsoll-study";

/// Replaces this process with the studies program. Returns only if that fails.
pub(crate) fn study(arguments: &[OsString]) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(misuse)?;
    let places = ["", "../lib/plimsoll"].map(|to| own.with_file_name(to).join(PROGRAM));
    let Some(program) = places.iter().find(|path| path.is_file()) else {
        return Err(misuse(format!(
            "{PROGRAM} is not installed: not found next to {}, nor in ../lib/plimsoll; to fix \
             this: run make build",
            own.display()
        )));
    };
    let error = Command::new(program).args(arguments).exec();
    Err(misuse(format!("{}: {error}", program.display())))
}
