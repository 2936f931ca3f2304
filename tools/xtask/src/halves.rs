//! `cargo xtask halves`: the server builds and passes its tests without the laboratory's folder,
//! and the laboratory without the server's. Tidy only checks the manifests; this command builds and
//! tests.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use crate::tidy::houses::{HOUSES, halves};
use crate::tree::listed_by_git;

/// A half: its house.
struct Half(&'static str);

/// The house of the tools. Most of them need neither half, so the copy has them.
const TOOLS: &str = "tools/";
/// The tool that needs both halves.
const TOOL_OF_BOTH: &str = "tools/bench/";

pub(crate) fn run(root: &Path) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for house in HOUSES[halves()] {
        match Half(house).tested(root) {
            Ok(true) => println!("halves: {house} stands alone"),
            Ok(false) => {
                println!("halves: {house} does not stand alone: see above");
                code = ExitCode::FAILURE;
            }
            Err(error) => {
                eprintln!("halves: {error}");
                return ExitCode::from(2);
            }
        }
    }
    code
}

impl Half {
    /// Builds and tests a copy of the repository that has this half alone.
    fn tested(&self, root: &Path) -> io::Result<bool> {
        let copy = self.copied(root)?;
        let mut cargo = super::cargo();
        cargo.current_dir(&copy).args(["test", "--workspace", "--quiet"]);
        cargo.args(["--exclude", "xtask", "--exclude", "packages"]);
        Ok(cargo.status()?.success())
    }

    /// Where the copy is. What cargo built there before stays.
    fn copied(&self, root: &Path) -> io::Result<PathBuf> {
        let name = self.0.trim_end_matches('/').rsplit('/').next().unwrap_or(self.0);
        let copy = root.join("target/halves").join(name);
        for folder in ["crates", "studies", "tools", "docs", "packaging"] {
            match fs::remove_dir_all(copy.join(folder)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let paths = listed_by_git(root).ok_or_else(|| io::Error::other("this needs git"))?;
        for path in paths.iter().filter(|path| self.has(path)) {
            let (from, to) = (root.join(path), copy.join(path));
            // A file that git still lists and the user has just removed is not an error.
            if from.exists() {
                fs::create_dir_all(to.parent().expect("a file is in a folder"))?;
                fs::copy(from, to)?;
            }
        }
        let manifest = copy.join("Cargo.toml");
        fs::write(&manifest, self.members(&fs::read_to_string(&manifest)?))?;
        Ok(copy)
    }

    /// Whether a path is in the copy: all but the other half, the houses above the halves, and the
    /// tool that needs both halves.
    fn has(&self, path: &str) -> bool {
        let other_halves = HOUSES[halves()].iter().filter(|house| **house != self.0);
        let above = HOUSES[halves() + 1..].iter().copied().flatten();
        let mut without = other_halves.chain(above.filter(|house| **house != TOOLS));
        !path.starts_with(TOOL_OF_BOTH) && !without.any(|house| path.starts_with(house))
    }

    /// The manifest of the workspace without the members that are not there.
    fn members(&self, manifest: &str) -> String {
        let is_there = |line: &&str| {
            let member = line.trim_start().strip_prefix('"');
            member.is_none_or(|member| self.has(&member.replace('"', "/").replace('*', "")))
        };
        manifest.lines().filter(is_there).map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_has_no_folder_of_the_other_and_none_that_needs_both() {
        let [server, lab] = ["crates/server/", "crates/lab/"].map(Half);
        assert!(server.has("crates/server/store/Cargo.toml") && !lab.has("crates/server/x.rs"));
        assert!(!server.has("crates/lab/load/src/lib.rs") && lab.has("crates/lab/load/src/lib.rs"));
        let manifest = "members = [\n    \"crates/core/*\",\n    \"crates/lab/*\",\n    \
                        \"crates/plimsoll\",\n]\nserde = \"1\"\n";
        let left = "members = [\n    \"crates/core/*\",\n]\nserde = \"1\"\n";
        assert_eq!(server.members(manifest), left);
    }
}
