//! The sources of a release: the files of the commit, and the crates of others that it needs, so
//! that it builds without a registry.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use packages::Files;

const CARGO: &str = ".cargo/config.toml";
const VENDOR: &str = "vendor";

pub(super) fn files(root: &Path, work: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    let listed = packages::output(Command::new("git").current_dir(root).args(["ls-files", "-z"]))?;
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        add(&mut files, path, &root.join(path))?;
    }
    let vendor = work.join(VENDOR);
    let mut cargo = crate::cargo();
    cargo.current_dir(root).args(["vendor", "--locked", "--versioned-dirs", "--quiet"]);
    packages::output(cargo.arg(&vendor))?;
    add_below(&mut files, VENDOR, &vendor)?;
    let config = fs::read_to_string(root.join(CARGO))?;
    files.text(
        CARGO,
        format!(
            "{config}\n[source.crates-io]\nreplace-with = \"{VENDOR}\"\n\n\
             [source.{VENDOR}]\ndirectory = \"{VENDOR}\"\n"
        ),
    );
    Ok(files)
}

fn add(files: &mut Files, path: &str, of: &Path) -> io::Result<()> {
    let mode = fs::metadata(of)?.permissions().mode();
    files.copy(path, if mode & 0o100 == 0 { 0o644 } else { 0o755 }, of);
    Ok(())
}

fn add_below(files: &mut Files, path: &str, directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let below = format!("{path}/{}", entry.file_name().to_string_lossy());
        match entry.file_type()?.is_dir() {
            true => add_below(files, &below, &entry.path())?,
            false => add(files, &below, &entry.path())?,
        }
    }
    Ok(())
}
