//! `cargo xtask dist [DIR]`: builds the release and packs it, by default into `target/dist`.
//!
//! | file | what |
//! | --- | --- |
//! | `plimsoll_V_ARCH.deb` | the whole program, with the library of boost |
//! | `plimsoll-dbgsym_V_ARCH.deb` | the lines of its source, for debuggers |
//! | `plimsoll-V-linux-ARCH.tar.gz` | the server build: features `server` only |
//! | `plimsoll-V-image.tar` | the same as an image of a container (OCI layout) |
//! | `plimsoll-V-source.tar.gz` | the repository, with all crates that it needs |
//! | `plimsoll-V-full.cdx.json`, `…-server.cdx.json` | the crates in the programs (CycloneDX) |
//! | `SHA256SUMS` | |
//!
//! Two runs of one commit give the same bytes, wherever the clone and `DIR` are: the compilers are
//! called so that they write no path of this machine ([`build`]), and `packages` does the rest.
//!
//! It refuses to pack what is not committed, because the time in all files is that of the commit.

mod build;
mod sources;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use packages::{Compression, Program, Stamp};

use self::build::Build;

/// The features of the programs, as `cargo` takes them.
const FULL: &str = "bpf,lab,server";
const SERVER: &str = "server";
const FULL_BUILD: Build<'_> = Build { profile: "release", features: FULL, others: &["interpose"] };
/// Its profile makes it small.
const SERVER_BUILD: Build<'_> = Build { profile: "dist", features: SERVER, others: &[] };

pub(crate) fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    let to = match arguments {
        [] => root.join("target/dist"),
        [to] if !to.starts_with('-') => PathBuf::from(to),
        _ => {
            eprintln!("usage: cargo xtask dist [DIR]");
            return ExitCode::from(2);
        }
    };
    match packed(root, &to) {
        Ok(sums) => {
            print!("{sums}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dist: {error}");
            ExitCode::from(2)
        }
    }
}

/// Builds and packs. Returns the sums of the files.
fn packed(root: &Path, to: &Path) -> io::Result<String> {
    let root = root.canonicalize()?;
    let stamp = stamp(&root)?;
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    std::fs::create_dir_all(to)?;
    let to = to.canonicalize()?;
    let work = to.join("work");
    let version = &stamp.version;

    let target = work.join("build");

    let built = build::built(&SERVER_BUILD, &root, &target, stamp.epoch)?;
    let program = built.join("plimsoll");
    let server = Program::prepared(&program, &program, &work.join("server"))?;
    let files = packages::installed(&root, &server, None)?.for_usr_local();
    let name = format!("plimsoll-{version}-linux-{}", std::env::consts::ARCH);
    packages::tarball(&name, &files, &stamp, &to)?;
    packages::image(&root, &server, &format!("plimsoll-{version}"), &stamp, &to)?;

    let built = build::built(&FULL_BUILD, &root, &target, stamp.epoch)?;
    let boost = build::without_lines(&built.join("libplimsoll_boost.so"), &work)?;
    let program = built.join("plimsoll");
    let full = Program::prepared(&program, &program, &work.join("full"))?;
    let depends = full.debian_dependencies(Some(&boost))?;
    packages::deb(&root, &full, Some(&boost), &depends, &stamp, &to)?;
    packages::debug_deb(&full, &stamp, &to)?;

    let sources = sources::files(&root, &work)?;
    packages::tarball(&format!("plimsoll-{version}-source"), &sources, &stamp, &to)?;
    for (name, features) in [("full", FULL), ("server", SERVER)] {
        let list = sbom(&root, features, &stamp)?;
        std::fs::write(to.join(format!("plimsoll-{version}-{name}.cdx.json")), list)?;
    }
    std::fs::remove_dir_all(&work)?;
    std::fs::read_to_string(packages::sums(&to)?)
}

fn sbom(root: &Path, features: &str, stamp: &Stamp) -> io::Result<String> {
    let mut list = super::cargo();
    list.current_dir(root).args(packages::sbom_arguments(features));
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))?;
    packages::sbom("plimsoll", &lock, &packages::output(&mut list)?, stamp)
}

/// The version of the manifest, and the time of the commit.
fn stamp(root: &Path) -> io::Result<Stamp> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
    let version = version.and_then(|rest| rest.split('"').next());
    let version = version.ok_or_else(|| io::Error::other("Cargo.toml has no version"))?.to_owned();
    let git = |arguments: &[&str]| {
        packages::output(Command::new("git").current_dir(root).args(arguments))
    };
    let changed = git(&["status", "--porcelain"])?;
    if !changed.is_empty() {
        return Err(io::Error::other(format!(
            "these files are not committed; to fix this: commit or remove them\n{changed}"
        )));
    }
    let epoch = git(&["log", "-1", "--format=%ct"])?;
    let epoch = epoch.trim().parse().map_err(io::Error::other)?;
    Ok(Stamp { version, epoch, compression: Compression::Best })
}
