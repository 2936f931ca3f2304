//! The order of crates: houses, and floors inside them.
//!
//! A house is a folder of crates. Its code uses crates of the same house and of houses below it,
//! so a reader of one house needs none above. Tests may use what they like, except that the server
//! and the laboratory stand side by side: each builds and passes its tests without the other's
//! folder.

use super::Finding;
use super::house::{dependencies, manifests_of, package_name};
use crate::tree::{Tree, joined};

/// The houses, from the ground up. Houses of one row stand side by side.
pub(crate) const HOUSES: &[&[&str]] = &[
    &["crates/core/"],
    &["crates/http/"],
    &["crates/line/"],
    &["crates/server/", "crates/lab/"],
    &["studies/crates/"],
    &["crates/plimsoll/"],
    &["tools/"],
];

/// The floors, from the ground up. A crate may use only crates on lower floors.
pub(crate) const FLOORS: &[&[&str]] = &[
    &["planted"],
    &["readiness", "http1", "http2", "caching", "regress", "trial", "units", "peering", "packages"],
    &["runtime", "coding", "command", "http3", "dashboard", "groups", "drawing"],
    &["store", "dns", "transport", "logs", "report"],
    &["outcome", "conditions", "export"],
    &["metrics", "access_log"],
    &["config"],
    &["imported"],
    &["caddy_import", "haproxy_import", "squid_import", "vcl_import"],
    &["core_io", "acme", "files"],
    &["import"],
    &["upstream", "cache", "import_try"],
    &["policy"],
    &["seam"],
    &["exchange"],
    &["proxy"],
    &["server", "load", "record", "interpose"],
    &["harness", "fleet", "keep"],
    &["runqueue"],
    &["study"],
    &["plimsoll", "studies"],
    &["bench", "xtask"],
];

fn floor_of(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

pub(super) fn floors(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in manifests_of(tree) {
        let name = package_name(text);
        let Some(own) = floor_of(name) else {
            let what = format!("the crate {name} has no floor");
            findings.push(Finding::whole(path, what, "give it a floor in xtask, FLOORS"));
            continue;
        };
        for (number, dependency) in dependencies(text) {
            if floor_of(dependency).is_some_and(|other| other >= own) {
                let what = format!("{name} uses {dependency}, which is not below it");
                findings.push(Finding::at(path, number, what, "move what it needs down"));
            }
        }
    }
}

/// The folders of the crates in a house.
pub(crate) fn crates_in<'t>(tree: &'t Tree, house: &str) -> Vec<&'t str> {
    let inside = manifests_of(tree).filter(|(path, _)| path.starts_with(house));
    inside.map(|(path, _)| path.trim_end_matches("Cargo.toml")).collect()
}

/// The row of a path's house, and the place in the row.
fn house_of(path: &str) -> Option<(usize, usize)> {
    HOUSES.iter().enumerate().find_map(|(row, houses)| {
        houses.iter().position(|house| path.starts_with(house)).map(|place| (row, place))
    })
}

/// Whether the two stand side by side.
fn are_side_by_side(one: (usize, usize), other: (usize, usize)) -> bool {
    one.0 == other.0 && one.1 != other.1
}

pub(super) fn houses(tree: &Tree, findings: &mut Vec<Finding>) {
    let folder_of = |crate_name: &str| {
        let mut manifests = manifests_of(tree);
        manifests.find(|(_, text)| package_name(text) == crate_name).map(|(path, _)| path)
    };
    for (path, text) in manifests_of(tree) {
        let Some(own) = house_of(path) else {
            let fix = "put it into a folder of HOUSES in xtask";
            findings.push(Finding::whole(path, "the crate is in no house", fix));
            continue;
        };
        for (number, dependency) in dependencies(text) {
            let Some(other) = folder_of(dependency).and_then(house_of) else { continue };
            let is_above = other.0 > own.0 && !is_for_tests(text, number);
            if is_above || are_side_by_side(own, other) {
                let what = format!("{} uses {dependency}, of another house", package_name(text));
                let fix = "use crates of this house or of houses below, or move what it needs down";
                findings.push(Finding::at(path, number, what, fix));
            }
        }
    }
}

/// Whether this line of a manifest is a dependency of tests alone.
fn is_for_tests(manifest: &str, line: usize) -> bool {
    let before: Vec<&str> = manifest.lines().take(line + 1).collect();
    let section = before.iter().rev().find(|line| line.starts_with('['));
    section.is_some_and(|section| section.contains("dev-dependencies"))
}

/// What the crates' tests share with the fuzz targets, which both halves have.
const SHARED: &str = "tools/fuzz/";

/// The row of the halves of the product.
pub(crate) fn halves() -> usize {
    HOUSES.iter().position(|row| row.len() > 1).expect("two houses stand side by side")
}

/// Whether the first house must do without the second: each half, and all below the halves, is
/// built without the other half and without all that is above.
fn must_do_without(own: (usize, usize), other: (usize, usize)) -> bool {
    are_side_by_side(own, other) || (own.0 <= halves() && other.0 > own.0)
}

/// A file that is included from the house next door, or from a house above.
pub(super) fn files_next_door(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.with_suffix(".rs") {
        let Some(own) = house_of(path) else { continue };
        for (number, line) in text.lines().enumerate() {
            for literal in line.split('"').skip(1).step_by(2).filter(|text| text.contains("../")) {
                let target = joined(path, literal);
                let target = target.filter(|path| !path.starts_with(SHARED));
                let other = target.as_deref().and_then(house_of);
                if other.is_some_and(|other| must_do_without(own, other)) {
                    let fix = "move what both need into a house below";
                    let what = format!("{literal} is in a house next door or above");
                    findings.push(Finding::at(path, number, what, fix));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_crate_that_points_up_is_found() {
        let up = "[package]\nname = \"store\"\n[dependencies]\n\
                  libc.workspace = true\nproxy.workspace = true\n";
        assert_eq!(
            found(floors, &[("crates/server/store/Cargo.toml", up)]),
            ["crates/server/store/Cargo.toml:5"]
        );
        let beside = "[package]\nname = \"load\"\n[dev-dependencies]\nrecord = { path = \"x\" }\n";
        assert_eq!(
            found(floors, &[("crates/lab/load/Cargo.toml", beside)]),
            ["crates/lab/load/Cargo.toml:4"]
        );
        let down = "[package]\nname = \"proxy\"\n[dependencies.store]\nworkspace = true\n";
        assert_eq!(found(floors, &[("crates/server/proxy/Cargo.toml", down)]), [""; 0]);
        let nowhere = "[package]\nname = \"attic\"\n";
        assert_eq!(found(floors, &[("attic/Cargo.toml", nowhere)]), ["attic/Cargo.toml:0"]);
    }

    #[test]
    fn a_crate_that_uses_a_house_above_or_beside_it_is_found() {
        let manifest = |name: &str, section: &str, used: &str| {
            format!("[package]\nname = \"{name}\"\n[{section}]\n{used}.workspace = true\n")
        };
        let store = "[package]\nname = \"store\"\n";
        let uses = |path: &str, section: &str| {
            let text = manifest("user", section, "store");
            let files = [("crates/server/store/Cargo.toml", store), (path, text.as_str())];
            found(houses, &files).len()
        };
        assert_eq!(uses("crates/core/user/Cargo.toml", "dependencies"), 1, "above");
        assert_eq!(uses("crates/core/user/Cargo.toml", "dev-dependencies"), 0, "in tests");
        assert_eq!(uses("crates/lab/user/Cargo.toml", "dependencies"), 1, "beside");
        assert_eq!(uses("crates/lab/user/Cargo.toml", "dev-dependencies"), 1, "beside, in tests");
        assert_eq!(uses("crates/server/user/Cargo.toml", "dependencies"), 0, "in one house");
        assert_eq!(uses("crates/plimsoll/Cargo.toml", "dependencies"), 0, "below");
        assert_eq!(uses("crates/attic/Cargo.toml", "dependencies"), 1, "in no house");
    }

    #[test]
    fn a_file_of_the_house_next_door_is_found() {
        let of = |path: &str| {
            let text = format!("//! x\nconst X: &str = include_str!(\"{path}\");\n");
            found(files_next_door, &[("crates/lab/a/src/x.rs", &text)])
        };
        assert_eq!(of("../../../server/b/src/y.log"), ["crates/lab/a/src/x.rs:2"]);
        assert_eq!(of("../../b/src/y.log"), [""; 0]);
        assert_eq!(of("../../../http/b/src/y.log"), [""; 0]);
        assert_eq!(of("../../../plimsoll/tests/y.rs"), ["crates/lab/a/src/x.rs:2"]);
        assert_eq!(of("../../../../tools/fuzz/corpus/y.log"), [""; 0]);
    }
}
