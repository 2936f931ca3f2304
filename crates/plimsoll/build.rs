//! Records what the program is built from: the commit, the compiler and the target.
//!
//! The commit is `PLIMSOLL_COMMIT` if that is set, as for a build from an archive. Otherwise a
//! release build asks git. A development build does not, because then every commit would compile
//! this crate again. The same sources, compiler and variable always give the same values.

use std::path::Path;
use std::process::Command;

/// Where this package is in the repository.
const PLACE: &str = "crates/plimsoll/";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PLIMSOLL_COMMIT");
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_release = variable("PROFILE").as_deref() == Some("release");
    let from_git = || if is_release { commit() } else { None };
    let commit = variable("PLIMSOLL_COMMIT").or_else(from_git);
    let compiler = variable("RUSTC").and_then(|rustc| output(&rustc, &["--version"]));
    for (name, value) in
        [("COMMIT", commit), ("COMPILER", compiler), ("TARGET", variable("TARGET"))]
    {
        println!("cargo:rustc-env=BUILT_{name}={}", value.as_deref().unwrap_or("unknown"));
    }
}

/// The commit that is checked out. `None` in an archive, also in one that was unpacked inside
/// another repository.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| output("git", arguments);
    if git(&["rev-parse", "--show-prefix"])? != PLACE {
        return None;
    }
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"])?;
    // A file that does not exist would make cargo run this every time.
    for name in ["HEAD", "logs/HEAD", "packed-refs", &branch] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "HEAD"])
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.trim().to_owned())
}
