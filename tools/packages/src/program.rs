//! A built program, made ready for packages: its names and lines in a file apart, and what it needs
//! to run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Files;
use crate::tools::output;

/// Shells, the program's name for each, and where Debian keeps their completions.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions/plimsoll"),
    ("fish", "usr/share/fish/vendor_completions.d/plimsoll.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_plimsoll"),
];

/// A built `plimsoll`, without the lines of its source, which are in a file apart.
///
/// The names of its procedures stay in it, so that a profile of it is readable without the debug
/// file.
#[derive(Debug)]
pub struct Program {
    binary: PathBuf,
    debug: PathBuf,
    /// Manual pages and completions.
    texts: Files,
}

impl Program {
    /// Makes a built program ready, in the directory `work`, which is made. `writer` is the program
    /// that writes its manual pages and completions: the same, if this machine can run it.
    ///
    /// # Errors
    ///
    /// If `objcopy` or the writer fail, or `work` cannot be written.
    pub fn prepared(built: &Path, writer: &Path, work: &Path) -> io::Result<Program> {
        fs::create_dir_all(work)?;
        // The link from one file to the other contains this name.
        let (binary, debug) = (work.join("plimsoll"), work.join("plimsoll.debug"));
        let mut split = Command::new("objcopy");
        output(split.arg("--only-keep-debug").arg(built).arg(&debug))?;
        // It is read and never run.
        fs::set_permissions(&debug, std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        let mut strip = Command::new("objcopy");
        output(strip.args(["--strip-debug"]).arg(built).arg(&binary))?;
        let mut link = Command::new("objcopy");
        let mut flag = std::ffi::OsString::from("--add-gnu-debuglink=");
        flag.push(&debug);
        output(link.arg(flag).arg(&binary))?;
        let texts = texts(writer, &work.join("man"))?;
        Ok(Program { binary, debug, texts })
    }

    /// The program without its lines.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Its names and lines, for a debugger.
    pub fn debug(&self) -> &Path {
        &self.debug
    }

    /// The program, its manual pages and its completions, where Debian has them.
    pub fn files(&self) -> Files {
        let mut files = self.texts.clone();
        files.copy("usr/bin/plimsoll", 0o755, &self.binary);
        files
    }

    /// The libraries that the loader opens for it, with the loader itself, by their absolute paths.
    ///
    /// # Errors
    ///
    /// If `ldd` fails, or a library is missing.
    pub fn libraries(&self) -> io::Result<Vec<PathBuf>> {
        libraries_in(&output(Command::new("ldd").arg(&self.binary))?)
    }

    /// The packages of Debian that the program and this library need, in the form of `Depends`.
    ///
    /// # Errors
    ///
    /// If `dpkg-shlibdeps` fails.
    pub fn debian_dependencies(&self, library: Option<&Path>) -> io::Result<String> {
        let work = self.binary.with_file_name("shlibdeps");
        fs::create_dir_all(work.join("debian"))?;
        // It insists on a source package around it.
        fs::write(work.join("debian/control"), "")?;
        let mut find = Command::new("dpkg-shlibdeps");
        find.current_dir(&work).arg("-O").arg(format!("-e{}", self.binary.display()));
        find.args(library.map(|file| format!("-e{}", file.display())));
        let line = output(&mut find)?;
        let names = line.trim_end().strip_prefix("shlibs:Depends=");
        names.map(str::to_owned).ok_or_else(|| {
            io::Error::other(format!("dpkg-shlibdeps: not a line of dependencies: {line:?}"))
        })
    }
}

/// Manual pages and completions.
fn texts(writer: &Path, pages: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    fs::create_dir_all(pages)?;
    output(Command::new(writer).args(["man", "--out"]).arg(pages))?;
    for page in fs::read_dir(pages)? {
        let page = page?;
        let zipped = Command::new("gzip").args(["-n9c"]).arg(page.path()).output()?;
        if !zipped.status.success() {
            return Err(io::Error::other(format!("gzip: {}", zipped.status)));
        }
        let name = page.file_name().to_string_lossy().into_owned();
        files.text(&format!("usr/share/man/man1/{name}.gz"), zipped.stdout);
    }
    for (shell, path) in COMPLETIONS {
        files.text(path, output(Command::new(writer).args(["completions", shell]))?);
    }
    Ok(files)
}

/// The paths in the output of `ldd`: `libc.so.6 => /lib/libc.so.6 (0x7f)`, or the loader's alone.
fn libraries_in(ldd: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in ldd.lines().map(str::trim).filter(|line| !line.starts_with("linux-vdso")) {
        let path = line.rsplit(" => ").next().and_then(|rest| rest.split(" (").next());
        match path.filter(|path| path.starts_with('/')) {
            Some(path) => found.push(PathBuf::from(path)),
            None => return Err(io::Error::other(format!("ldd: {line}"))),
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x7fd3)\n\tlibm.so.6 => /lib/x/libm.so.6 (0x7f)\n\
                    \tlibc.so.6 => /lib/x/libc.so.6 (0x7f)\n\t/lib64/ld-linux.so.2 (0x7f)\n";
        let found = libraries_in(text).unwrap();
        assert_eq!(
            found,
            ["/lib/x/libc.so.6", "/lib/x/libm.so.6", "/lib64/ld-linux.so.2"].map(PathBuf::from)
        );
        let missing = libraries_in("\tlibelf.so.1 => not found\n").unwrap_err();
        assert!(missing.to_string().contains("libelf.so.1"), "{missing}");
    }
}
