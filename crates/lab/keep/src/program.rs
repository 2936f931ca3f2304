//! Which program a server is: the version of its package, and its build id.
//!
//! The databases of dpkg and apk are text and are read; rpm's is asked by the command `rpm`. They
//! are those of the file system that the process sees, so that a server in a container is found in
//! the container's database. A program whose file was replaced since it began has no version any
//! more, because the database has the new one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

/// The label that has the version of the program's package.
pub(crate) const LABEL_VERSION: &str = "version";
/// The label that has the build id of the program.
pub(crate) const LABEL_BUILD: &str = "build-id";

/// Digits of a build id that are shown.
const BUILD_ID_SHOWN: usize = 12;

/// The digits of a build id that are shown.
pub(crate) fn short(build_id: &str) -> &str {
    build_id.get(..BUILD_ID_SHOWN).unwrap_or(build_id)
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Its file.
    pub path: String,
    /// The version of its package, if it has one.
    pub version: Option<String>,
    /// Its build id, if it has one.
    pub build_id: Option<String>,
    /// The file itself: device, inode and time of its last change.
    #[serde(skip)]
    pub(crate) file: (u64, u64, i64),
}

impl Program {
    /// The program of a process; `None` if the process has ended.
    #[must_use]
    pub fn of(pid: u32) -> Option<Program> {
        let exe = PathBuf::from(format!("/proc/{pid}/exe"));
        let file = file_of(pid)?;
        let link = fs::read_link(&exe).ok()?.to_string_lossy().into_owned();
        let (path, replaced) = match link.strip_suffix(" (deleted)") {
            Some(path) => (path.to_owned(), true),
            None => (link, false),
        };
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let version = if replaced { None } else { version(&root, &path) };
        Some(Program { path, version, build_id: record::build_id(&exe), file })
    }

    /// How the program is called in a table: its version, or the begin of its build id.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let build = |id: &str| format!("build {}", short(id));
        self.version.clone().or_else(|| self.build_id.as_deref().map(build))
    }

    /// Whether it is the same program. One that was replaced on disk while it runs stays the same.
    pub(crate) fn same(&self, other: &Program) -> bool {
        self.file == other.file || (self.build_id.is_some() && self.build_id == other.build_id)
    }
}

/// The file of a process's program.
pub(crate) fn file_of(pid: u32) -> Option<(u64, u64, i64)> {
    let file = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((file.dev(), file.ino(), file.mtime()))
}

/// The version of the package that has this file, in the file system at `root`.
fn version(root: &Path, path: &str) -> Option<String> {
    dpkg(root, path).or_else(|| apk(root, path)).or_else(|| rpm(root, path))
}

/// Where a package may say that a file is, on a system that has merged /bin into /usr/bin.
fn names(path: &str) -> [&str; 2] {
    [path, path.strip_prefix("/usr").unwrap_or(path)]
}

/// dpkg has a list of files for each package, and the versions in one file of paragraphs.
fn dpkg(root: &Path, path: &str) -> Option<String> {
    let home = root.join("var/lib/dpkg");
    let lists = fs::read_dir(home.join("info")).ok()?.filter_map(Result::ok);
    let package = lists.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let package = name.strip_suffix(".list")?;
        let files = fs::read_to_string(entry.path()).ok()?;
        let has = names(path).iter().any(|path| {
            files.match_indices(path).any(|(at, _)| {
                let after = files.as_bytes().get(at + path.len());
                (at == 0 || files.as_bytes()[at - 1] == b'\n') && after == Some(&b'\n')
            })
        });
        has.then(|| package.split(':').next().unwrap_or(package).to_owned())
    });
    let package = package.min()?;
    let status = fs::read_to_string(home.join("status")).ok()?;
    let wanted = format!("Package: {package}");
    let paragraph =
        status.split("\n\n").find(|paragraph| paragraph.lines().next() == Some(&wanted))?;
    let version = paragraph.lines().find_map(|line| line.strip_prefix("Version: "))?;
    Some(version.trim().to_owned())
}

/// apk has a paragraph for each package: `P:` its name, `V:` its version, `F:` a directory, `R:` a
/// file in it.
fn apk(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.join("lib/apk/db/installed"))
        .or_else(|_| fs::read_to_string(root.join("usr/lib/apk/db/installed")))
        .ok()?;
    let has = |paragraph: &&str| {
        let mut directory = "";
        paragraph.lines().any(|line| match line.split_once(':') {
            Some(("F", name)) => {
                directory = name;
                false
            }
            Some(("R", name)) => {
                let file = format!("/{directory}/{name}");
                names(path).contains(&file.as_str())
            }
            _ => false,
        })
    };
    let paragraph = text.split("\n\n").find(has)?;
    paragraph.lines().find_map(|line| line.strip_prefix("V:")).map(str::to_owned)
}

/// The format of rpm's database depends on the version of rpm, so its command reads it.
fn rpm(root: &Path, path: &str) -> Option<String> {
    let places = ["var/lib/rpm", "usr/lib/sysimage/rpm", "usr/share/rpm"];
    places.iter().find(|place| root.join(place).is_dir())?;
    let mut command = Command::new("rpm");
    // As it is: resolved, the root of a process in a container would be that of this machine.
    command.arg("--root").arg(root);
    let asked = command.args(["-qf", "--qf", "%{VERSION}-%{RELEASE}\\n", path]).output().ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    let first = text.lines().next().filter(|line| asked.status.success() && !line.is_empty())?;
    Some(first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn dpkg_knows_the_version_of_a_file() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        write(
            root,
            "var/lib/dpkg/info/nginx-doc.list",
            "/.\n/usr/sbin/nginx-more\n/x/usr/sbin/nginx\n",
        );
        write(root, "var/lib/dpkg/info/nginx:amd64.list", "/.\n/usr\n/usr/sbin\n/usr/sbin/nginx\n");
        write(root, "var/lib/dpkg/info/dash.list", "/.\n/bin/dash\n");
        let status = "Package: nginx-doc\nVersion: 9\n\nPackage: nginx\nStatus: install ok\n\
                      Depends: x\nVersion: 1.22.1-9+deb12u3\nDescription: a\n b\n\n\
                      Package: dash\nVersion: 0.5\n";
        write(root, "var/lib/dpkg/status", status);
        assert_eq!(version(root, "/usr/sbin/nginx").as_deref(), Some("1.22.1-9+deb12u3"));
        assert_eq!(version(root, "/usr/bin/dash").as_deref(), Some("0.5"));
        assert_eq!(version(root, "/usr/sbin/other"), None);
    }

    #[test]
    fn apk_knows_the_version_of_a_file() {
        let home = tempfile::tempdir().unwrap();
        let text = "C:Q1\nP:musl\nV:1.2.5-r0\nF:lib\nR:ld-musl-x86_64.so.1\n\n\
                    P:nginx\nV:1.26.2-r0\nF:etc\nF:usr/sbin\nR:nginx\na:0:0:755\n";
        write(home.path(), "lib/apk/db/installed", text);
        assert_eq!(version(home.path(), "/usr/sbin/nginx").as_deref(), Some("1.26.2-r0"));
        assert_eq!(version(home.path(), "/usr/bin/nginx"), None);
    }

    #[test]
    fn a_process_has_a_program() {
        let own = Program::of(std::process::id()).unwrap();
        assert!(own.path.starts_with('/') && own.version.is_none(), "{own:?}");
        assert!(own.same(&Program::of(std::process::id()).unwrap()));
        assert_eq!(Program::of(u32::MAX), None);
        let of = |version: Option<&str>, build_id: Option<&str>| Program {
            version: version.map(str::to_owned),
            build_id: build_id.map(str::to_owned),
            ..Program::default()
        };
        assert_eq!(of(Some("1.2"), Some("ab")).text().as_deref(), Some("1.2"));
        let text = of(None, Some("0123456789abcdef")).text();
        assert_eq!(text.as_deref(), Some("build 0123456789ab"));
        assert_eq!(of(None, None).text(), None);
    }
}
