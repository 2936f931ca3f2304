//! Makes packages of files: a Debian package with its debug file, a tarball, an OCI image, a list
//! of the crates inside (SBOM), and checksums.
//!
//! It compiles nothing: programs and libraries are its input. So `cargo xtask dist` packs a release
//! build, and the tests pack the program that they have built already, with the same functions.
//!
//! The same input and the same [`Stamp`] give the same bytes: names are sorted, owners, modes and
//! times are fixed, and no name of a directory of this machine is written. The archives are made by
//! Debian's `tar`, `gzip`, `dpkg-deb` and `objcopy`, so this holds for one version of these tools.
//!
//! This crate uses no other one, so that xtask is built in a second.
//!
//! # What it promises
//!
//! (`tools/packages`, `packaging`, `tools/xtask/src/dist`). It compiles nothing: a program and
//! files are its input. So the tests pack the program that they have built, install, upgrade and
//! remove it in a copy of the root directory, and run the image; `cargo xtask dist` packs a release
//! build with the same functions. The same input gives the same bytes, wherever it is.
//!
//! - Packages of Debian are made by `dpkg-deb` from a tree that we lay out. cargo-deb would be
//!   one more program to install in a known version, would build by itself, and could not pack a
//!   program that is there.
//! - The image is written by us, because a daemon, or a tool for it, would be the larger part: a
//!   layout of OCI is archives, their digests and three files of JSON. It holds a program that is
//!   linked dynamically, with glibc, whose allocator has an arena for each core. musl's has one
//!   lock.
//! - The list of crates is read from `cargo tree` and `Cargo.lock`, which have all that CycloneDX
//!   asks for.
//! - xtask and `packages` use no other crate, so `cargo xtask` stays a matter of a second.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on panics"))]

mod deb;
mod files;
mod image;
mod json;
mod program;
mod sbom;
mod tools;

use std::io;
use std::path::{Path, PathBuf};

pub use deb::{deb, debug_deb, installed};
pub use files::Files;
pub use image::{IMAGE_USER, image};
pub use program::Program;
pub use sbom::{arguments as sbom_arguments, sbom};
pub use tools::output;

/// What all packages of one release have in common.
#[derive(Debug, Clone)]
pub struct Stamp {
    /// Such as `0.1.0`.
    pub version: String,
    /// The time of every file, in seconds since 1970: that of the commit.
    pub epoch: u64,
    /// How packages are compressed.
    pub compression: Compression,
}

/// How packages are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// As small as it gets, for a release.
    Best,
    /// As fast as it gets, for tests.
    Fast,
}

/// Writes `NAME.tar.gz`, whose files are below the directory `NAME`. Returns its path.
///
/// # Errors
///
/// If `tar` or `gzip` fail, or `out` cannot be written.
pub fn tarball(name: &str, files: &Files, stamp: &Stamp, out: &Path) -> io::Result<PathBuf> {
    let stage = out.join(format!("{name}.stage"));
    files.write_to(&stage.join(name), stamp.epoch)?;
    let tar = out.join(format!("{name}.tar"));
    tools::tar(&stage, Path::new(name), tools::ROOT, stamp.epoch, &tar)?;
    std::fs::remove_dir_all(&stage)?;
    tools::gzip(&tar, stamp.compression)
}

/// Writes `SHA256SUMS` for the files in `out`, sorted by name, as `sha256sum --check` reads it.
///
/// # Errors
///
/// If a file cannot be read, or the list not be written.
pub fn sums(out: &Path) -> io::Result<PathBuf> {
    let list = out.join("SHA256SUMS");
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(out)? {
        let path = entry?.path();
        if path.is_file() && path != list {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            lines.push((name, tools::sha256(&path)?));
        }
    }
    lines.sort();
    let text: String = lines.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect();
    std::fs::write(&list, text)?;
    Ok(list)
}
