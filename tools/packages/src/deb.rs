//! Packages of Debian: `plimsoll`, and `plimsoll-dbgsym` with the lines of its source.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::output;
use crate::{Compression, Files, Program, Stamp};

const MAINTAINER: &str = "The Plimsoll contributors <packages@plimsoll.invalid>";
/// Below the repository: what packages contain that is not built.
const PACKAGING: &str = "packaging";
/// What the maintainer scripts need: they make the user of the service. systemd itself provides the
/// second; where it is not installed, the first is far smaller.
const SYSUSERS: &str = "systemd-standalone-sysusers | systemd-sysusers";
/// Files of the repository, and where the package has them.
const COPIES: &[(&str, &str)] = &[
    ("packaging/plimsoll.service", "usr/lib/systemd/system/plimsoll.service"),
    ("packaging/plimsoll-record@.service", "usr/lib/systemd/system/plimsoll-record@.service"),
    ("packaging/plimsoll.sysusers", "usr/lib/sysusers.d/plimsoll.conf"),
    ("packaging/plimsoll.logrotate", "etc/logrotate.d/plimsoll"),
    ("packaging/plimsoll.toml", "etc/plimsoll/plimsoll.toml"),
    ("packaging/debian/copyright", "usr/share/doc/plimsoll/copyright"),
    ("docs/example.toml", "usr/share/doc/plimsoll/example.toml"),
];
const LIBRARY: &str = "usr/lib/plimsoll/libplimsoll_boost.so";
const DEBUG: &str = "usr/lib/debug/usr/bin/plimsoll.debug";

/// The files of the package, in the order of their paths. `boost` is the preloaded library, without
/// the lines of its source.
///
/// # Errors
///
/// If a file of the repository is missing.
pub fn installed(root: &Path, program: &Program, boost: Option<&Path>) -> io::Result<Files> {
    let mut files = program.files();
    for (from, to) in COPIES {
        let text = fs::read(root.join(from))
            .map_err(|error| io::Error::other(format!("{from}: {error}")))?;
        files.text(to, text);
    }
    if let Some(boost) = boost {
        files.copy(LIBRARY, 0o644, boost);
    }
    Ok(files)
}

/// Makes `plimsoll_VERSION_ARCHITECTURE.deb` in `out` and returns its path. `depends` is what the
/// program needs: see [`Program::debian_dependencies`].
///
/// # Errors
///
/// If a file is missing, or `dpkg-deb` fails.
pub fn deb(
    root: &Path,
    program: &Program,
    boost: Option<&Path>,
    depends: &str,
    stamp: &Stamp,
    out: &Path,
) -> io::Result<PathBuf> {
    let mut files = installed(root, program, boost)?;
    let fields = [
        ("Depends", format!("{depends}, {SYSUSERS}")),
        ("Recommends", "ca-certificates, logrotate".to_owned()),
        ("Section", "web".to_owned()),
        (
            "Description",
            "caching HTTP proxy that knows its capacity, and a laboratory\n \
             A caching proxy, reverse and forward, for HTTP/1, HTTP/2 and HTTP/3. Its laboratory\n \
             records any live server and reports how many requests it can carry, what limits it,\n \
             and what each request costs."
                .to_owned(),
        ),
    ];
    let configuration: String =
        files.paths().filter(|path| path.starts_with("etc/")).map(|p| format!("/{p}\n")).collect();
    files.text("DEBIAN/conffiles", configuration);
    for script in ["postinst", "prerm", "postrm"] {
        let text = fs::read(root.join(PACKAGING).join("debian").join(script))?;
        files.script(&format!("DEBIAN/{script}"), text);
    }
    built("plimsoll", files, &fields, stamp, out)
}

/// Makes `plimsoll-dbgsym_VERSION_ARCHITECTURE.deb` in `out` and returns its path. Debuggers find
/// the file by the link in the program.
///
/// # Errors
///
/// If `dpkg-deb` fails.
pub fn debug_deb(program: &Program, stamp: &Stamp, out: &Path) -> io::Result<PathBuf> {
    let mut files = Files::new();
    files.copy(DEBUG, 0o644, program.debug());
    let fields = [
        ("Depends", format!("plimsoll (= {})", stamp.version)),
        ("Section", "debug".to_owned()),
        ("Description", "debug symbols for plimsoll".to_owned()),
    ];
    built("plimsoll-dbgsym", files, &fields, stamp, out)
}

fn built(
    name: &str,
    mut files: Files,
    fields: &[(&str, String)],
    stamp: &Stamp,
    out: &Path,
) -> io::Result<PathBuf> {
    let architecture = output(Command::new("dpkg").arg("--print-architecture"))?;
    let (architecture, version) = (architecture.trim_end(), &stamp.version);
    let kib = files.bytes()?.div_ceil(1024);
    let mut control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: {MAINTAINER}\nInstalled-Size: {kib}\nPriority: optional\n"
    );
    for (field, value) in fields {
        control += &format!("{field}: {value}\n");
    }
    files.text("DEBIAN/control", control);
    let stage = out.join(format!("{name}.stage"));
    files.write_to(&stage, stamp.epoch)?;
    let sums = checksums(&stage, &files)?;
    let mut list = Files::new();
    list.text("DEBIAN/md5sums", sums).write_to(&stage, stamp.epoch)?;
    let to = out.join(format!("{name}_{version}_{architecture}.deb"));
    let mut build = Command::new("dpkg-deb");
    // Several threads cut the input into blocks, which changes the bytes.
    build.args(["--root-owner-group", "--threads-max=1"]);
    build.args(match stamp.compression {
        Compression::Best => &["-Zxz", "-z9"][..],
        Compression::Fast => &["-Znone"],
    });
    build.arg("--build").arg(&stage).arg(&to).env("SOURCE_DATE_EPOCH", stamp.epoch.to_string());
    output(&mut build)?;
    fs::remove_dir_all(&stage)?;
    Ok(to)
}

/// The list that `dpkg --verify` compares the installed files with.
fn checksums(stage: &Path, files: &Files) -> io::Result<String> {
    let packed = files.paths().filter(|path| !path.starts_with("DEBIAN/"));
    output(Command::new("md5sum").arg("--").args(packed).current_dir(stage))
}
