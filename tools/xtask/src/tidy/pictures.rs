//! The rule on the pictures of ARCHITECTURE.md, which `cargo xtask map` draws.

use super::Finding;
use crate::map;
use crate::tree::Tree;

/// The pictures of ARCHITECTURE.md are those of the code.
pub(super) fn map_is_current(tree: &Tree, findings: &mut Vec<Finding>) {
    if !tree.exists(map::DOCUMENT) {
        return;
    }
    let fix = "cargo xtask map";
    match map::current(tree) {
        Ok(text) if Some(text.as_str()) == tree.get(map::DOCUMENT) => {}
        Ok(_) => findings.push(Finding::whole(map::DOCUMENT, "a picture is old", fix)),
        Err(error) => findings.push(Finding::whole("tools/xtask/src/map.rs", error, fix)),
    }
}
