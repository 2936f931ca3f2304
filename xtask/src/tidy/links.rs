//! Links between documents: each link in a `.md` file to a file of the repository resolves.

use super::Finding;
use crate::tree::Tree;

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
                if !resolves(tree, path, target) {
                    let what = format!("a link to {target}, which is not there");
                    findings.push(Finding::at(path, number, what, "correct the path"));
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

fn resolves(tree: &Tree, from: &str, target: &str) -> bool {
    let target = target.split(['#', ' ']).next().unwrap_or("");
    if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." if parts.pop().is_none() => return false,
            ".." => {}
            name => parts.push(name),
        }
    }
    tree.exists(&parts.join("/"))
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
            ("c.md", "[site](https://example.org/x) [here](#part) [dir](docs/)\n"),
        ];
        assert_eq!(found(resolve, &files), ["docs/a.md:1", "docs/a.md:2", "docs/b.md:4"]);
    }
}
