//! Links between documents: each link in a `.md` file to a file of the repository resolves, also to
//! a heading in it, and each document can be found from docs/README.md.

use super::Finding;
use crate::manual::{anchors, contents};
use crate::tree::{Tree, joined};

pub(super) fn resolve(tree: &Tree, findings: &mut Vec<Finding>) {
    for (path, text) in tree.with_suffix(".md") {
        let mut in_code = false;
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_code = !in_code;
            }
            if in_code {
                continue;
            }
            for target in targets(line) {
                if let Some(fault) = fault(tree, path, target) {
                    let what = format!("a link to {target}, which {fault}");
                    findings.push(Finding::at(path, number, what, "correct the link"));
                }
            }
        }
    }
}

/// What the line links to: `](target)` and `src="target"`.
fn targets(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (open, close) in [("](", ')'), ("src=\"", '"'), ("srcset=\"", '"')] {
        for (at, _) in line.match_indices(open) {
            let rest = &line[at + open.len()..];
            if let Some(end) = rest.find(close) {
                found.push(&rest[..end]);
            }
        }
    }
    found
}

/// What is wrong with a link; `None` if it leads to a file of the repository, and if that is a
/// document, to a heading in it.
fn fault(tree: &Tree, from: &str, target: &str) -> Option<&'static str> {
    let target = target.split(' ').next().unwrap_or("");
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, part) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { Some(from.to_owned()) } else { joined(from, file) };
    let Some(path) = path.filter(|path| tree.exists(path)) else { return Some("is not there") };
    let text = tree.get(&path).filter(|_| !part.is_empty() && path.ends_with(".md"));
    let has_part = text.is_none_or(|text| anchors(text).contains(part));
    (!has_part).then_some("has no such heading")
}

/// Each document is in the contents of the site, so that a reader finds it.
pub(super) fn listed(tree: &Tree, findings: &mut Vec<Finding>) {
    let sections = contents(tree);
    let listed: Vec<&String> = sections.iter().flat_map(|section| &section.pages).collect();
    for (path, _) in tree.with_suffix(".md") {
        let is_page =
            !path.contains('/') || ["docs/", "studies/"].iter().any(|d| path.starts_with(d));
        if is_page && !listed.iter().any(|page| *page == path) {
            let fix = "link to it in docs/README.md, or in studies/README.md if it is a study";
            findings.push(Finding::whole(path, "the contents of the site lack this page", fix));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_link_to_nothing_is_found() {
        let files = [
            ("docs/a.md", "[b](b.md) [c](../c.md#part) [d](d.md)\n<img src=\"img/x.svg\">\n"),
            ("docs/b.md", "```\n[x](nowhere.md)\n```\n[up](../../out.md)\n"),
            ("c.md", "[site](https://example.org/x) [here](#part) [dir](docs/)\n# Part\n"),
        ];
        assert_eq!(found(resolve, &files), ["docs/a.md:1", "docs/a.md:2", "docs/b.md:4"]);
    }

    #[test]
    fn a_link_to_no_heading_is_found() {
        let files = [
            ("a.md", "[here](#no)\n[there](b.md#two-words)\n[there](b.md#two)\n"),
            ("b.md", "# B\n\n## Two `words`\n\n## Two `words`\n"),
        ];
        assert_eq!(found(resolve, &files), ["a.md:1", "a.md:3"]);
    }

    #[test]
    fn a_document_that_no_reader_finds_is_found() {
        let files = [
            ("README.md", ""),
            ("docs/README.md", "# D\n\n## A\n\n[x](x.md)\n"),
            ("docs/x.md", ""),
            ("docs/y.md", ""),
            ("crates/z.md", ""),
        ];
        assert_eq!(found(listed, &files), ["docs/y.md:0"]);
    }
}
