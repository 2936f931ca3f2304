//! The programs of Debian that make archives and sums, called so that they are reproducible.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Compression;

/// The user and group that own the files of a package.
pub(crate) const ROOT: u32 = 0;

/// Runs a program to its end and returns what it wrote to stdout.
///
/// # Errors
///
/// If it cannot be started, or fails; the error has its name and what it wrote to stderr.
pub fn output(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |what: String| io::Error::other(format!("{name}: {what}"));
    let ran = command.stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
        return Err(failed(format!("{}: {said}", ran.status)));
    }
    String::from_utf8(ran.stdout).map_err(|error| failed(error.to_string()))
}

/// The SHA-256 of a file, in hexadecimal digits.
pub(crate) fn sha256(file: &Path) -> io::Result<String> {
    let line = output(Command::new("sha256sum").arg("--").arg(file))?;
    // A leading backslash marks a name with escapes.
    Ok(line.trim_start_matches('\\').split(' ').next().unwrap_or_default().to_owned())
}

/// Archives `what`, a path below `directory`, with one owner and one time.
pub(crate) fn tar(
    directory: &Path,
    what: &Path,
    owner: u32,
    epoch: u64,
    to: &Path,
) -> io::Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--create", "--format=gnu", "--sort=name", "--numeric-owner"]);
    tar.args([format!("--owner={owner}"), format!("--group={owner}")]);
    tar.arg(format!("--mtime=@{epoch}"));
    tar.arg("--file").arg(to).arg("--directory").arg(directory).arg(what);
    output(&mut tar).map(drop)
}

/// Replaces a file by `FILE.gz`, which has neither a name nor a time in it.
pub(crate) fn gzip(file: &Path, compression: Compression) -> io::Result<PathBuf> {
    let level = if compression == Compression::Best { "-9" } else { "-1" };
    output(Command::new("gzip").args(["--no-name", "--force", level]).arg(file))?;
    let mut name = file.as_os_str().to_owned();
    name.push(OsStr::new(".gz"));
    Ok(PathBuf::from(name))
}

/// A time in the form of RFC 3339.
pub(crate) fn date(epoch: u64) -> io::Result<String> {
    let text = output(Command::new("date").args(["-u", &format!("-d@{epoch}"), "+%FT%TZ"]))?;
    Ok(text.trim_end().to_owned())
}
