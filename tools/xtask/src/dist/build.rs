//! Builds programs that contain no path of this machine.
//!
//! rustc and the C compilers write the names of source files into debug lines, and into the
//! messages of assertions. Here each such name begins with a word instead of a directory:
//! `plimsoll` for the repository, `crates` for those of others, `target` for what build scripts
//! generate.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packs the table of relocations, 0.8 MB of a server. The packages need glibc 2.36 anyway, which
/// is the first that reads it.
const SMALL_RELOCATIONS: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";

/// What to build: `plimsoll` with these features, and other packages.
pub(super) struct Build<'a> {
    pub(super) profile: &'a str,
    pub(super) features: &'a str,
    pub(super) others: &'a [&'a str],
}

/// Builds it in the directory `target`. Returns the directory with the programs.
pub(super) fn built(
    build: &Build<'_>,
    root: &Path,
    target: &Path,
    epoch: u64,
) -> io::Result<PathBuf> {
    let names = names(root, target)?;
    let mut cargo = crate::cargo();
    cargo.current_dir(root).args(["build", "--locked", "--package", "plimsoll"]);
    cargo.args(["--profile", build.profile]);
    cargo.args(["--no-default-features", "--features", &qualified(build.features)]);
    cargo.args(build.others.iter().flat_map(|package| ["--package", package]));
    // A cargo that runs this program may have set its own.
    cargo.env_remove("RUSTC_WORKSPACE_WRAPPER").env("CARGO_TARGET_DIR", target);
    let of_rustc = flags("--remap-path-prefix=", &names, "\u{1f}");
    cargo.env("CARGO_ENCODED_RUSTFLAGS", of_rustc + "\u{1f}" + SMALL_RELOCATIONS);
    for compiler in ["CFLAGS", "CXXFLAGS"] {
        cargo.env(compiler, flags("-ffile-prefix-map=", &names, " "));
    }
    cargo.env("SOURCE_DATE_EPOCH", epoch.to_string());
    if !cargo.status()?.success() {
        return Err(io::Error::other("it was not built: see above"));
    }
    let directory = target.join(build.profile);
    let program = directory.join("plimsoll");
    match found(&fs::read(&program)?, &names) {
        Some(path) => Err(io::Error::other(format!(
            "{} contains {}, a path of this machine; to fix this: find the compiler that wrote it \
             (`strings -a` shows what is around it), and map the names of its sources",
            program.display(),
            path.display()
        ))),
        None => Ok(directory),
    }
}

/// The first of these directories whose name is in the program.
fn found<'n>(program: &[u8], names: &'n [(PathBuf, &str)]) -> Option<&'n Path> {
    let mut paths = names.iter().map(|(path, _)| path.as_path());
    paths.find(|path| memchr::memmem::find(program, path.as_os_str().as_encoded_bytes()).is_some())
}

/// With several packages, cargo wants to know whose features they are.
fn qualified(features: &str) -> String {
    features.split(',').map(|one| format!("plimsoll/{one}")).collect::<Vec<_>>().join(",")
}

/// Directories of this machine, and the word for each. If several match, compilers take the last.
fn names(root: &Path, target: &Path) -> io::Result<Vec<(PathBuf, &'static str)>> {
    let mut names = vec![(root.to_owned(), "plimsoll"), (target.to_owned(), "target")];
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let registry = home.unwrap_or_default().join("registry/src");
    // Without a registry, all crates are in the repository, as in the archive of sources.
    for index in fs::read_dir(registry).into_iter().flatten() {
        names.push((index?.path(), "crates"));
    }
    Ok(names)
}

fn flags(flag: &str, names: &[(PathBuf, &str)], between: &str) -> String {
    let flags = names.iter().map(|(path, name)| format!("{flag}{}={name}", path.display()));
    flags.collect::<Vec<_>>().join(between)
}

/// A copy of a library without the lines of its source.
pub(super) fn without_lines(library: &Path, work: &Path) -> io::Result<PathBuf> {
    let to = work.join(library.file_name().unwrap_or_default());
    packages::output(Command::new("objcopy").arg("--strip-debug").arg(library).arg(&to))?;
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the sources of the BPF programs were in the program.
    #[test]
    fn a_path_of_this_machine_in_a_program_is_found() {
        let names = [(PathBuf::from("/home/me/plimsoll"), "plimsoll"), ("/other".into(), "crates")];
        assert_eq!(found(b"\0plimsoll/src/main.rs\0crates/x", &names), None);
        let program = b"\0/home/me/plimsoll/src/bpf/locks.bpf.c\0";
        assert_eq!(found(program, &names), Some(Path::new("/home/me/plimsoll")));
    }
}
