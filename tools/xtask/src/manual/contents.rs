//! The contents: every page, in the order of docs/README.md.
//!
//! That page sorts the others twice: its first table by kind (tutorial, reference, explanation),
//! and its sections by goal. A page that is in the table comes under its kind, otherwise under its
//! first section. Tidy reports a page that is in neither.

use crate::tree::{Tree, joined};

const INDEX: &str = "docs/README.md";
const STUDIES: &str = "studies/README.md";
/// Rows of the table whose pages have a section each. The first comes before all other sections.
const KINDS: [&str; 3] = ["Tutorial", "Reference", "Explanation"];

/// A title, and the paths of its pages.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) pages: Vec<String>,
}

/// All sections. Each page is in one of them, once.
pub(crate) fn contents(tree: &Tree) -> Vec<Section> {
    let text = tree.get(INDEX).unwrap_or_default();
    let mut taken = vec!["README.md".to_owned(), INDEX.to_owned()];
    let start = Section { title: "Start".to_owned(), pages: taken.clone() };
    let [tutorials, references, explanations] = KINDS.map(|kind| {
        let row = text.lines().find(|line| line.starts_with(&format!("| **{kind}**")));
        // A page above docs has a section elsewhere.
        let pages = pages(tree, INDEX, row.unwrap_or_default(), &mut taken, "docs/");
        Section { title: kind.to_owned(), pages }
    });
    let mut sections = vec![start, tutorials];
    for part in text.split("\n## ").skip(1) {
        let (title, body) = part.split_once('\n').unwrap_or((part, ""));
        let pages = pages(tree, INDEX, body, &mut taken, "");
        sections.push(Section { title: title.trim().to_owned(), pages });
    }
    let work = sections.pop();
    sections.extend([references, explanations]);
    sections.extend(work);
    sections.retain(|section| !section.pages.is_empty());
    sections
}

/// The pages that a text links to and that are not taken yet, below a directory.
fn pages(tree: &Tree, from: &str, text: &str, taken: &mut Vec<String>, below: &str) -> Vec<String> {
    let mut found = Vec::new();
    for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
        let path = joined(from, target).unwrap_or_default();
        let is_page = path.ends_with(".md") && path.starts_with(below) && tree.get(&path).is_some();
        if !is_page || taken.contains(&path) {
            continue;
        }
        taken.push(path.clone());
        found.push(path.clone());
        if path == STUDIES {
            // The page of the studies links to each of them.
            let text = tree.get(STUDIES).unwrap_or_default();
            found.extend(pages(tree, STUDIES, text, taken, "studies/"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_listed_once_by_kind_or_by_goal() {
        let index = "# D\n\n| | a |\n| **Tutorial**: x | [t](t.md) |\n\
                     | **Reference** | [r](r.md#x) |\n\
                     \n## Run\n\n[r](r.md) [a](a.md) [b](b.md)\n\n## Papers\n\n\
                     [a](a.md) [s](../studies/README.md)\n\n## Work\n\n[w](../W.md) [no](no.md)\n";
        let tree = Tree::of(&[
            (INDEX, index),
            ("README.md", ""),
            ("docs/t.md", ""),
            ("docs/r.md", ""),
            ("docs/a.md", ""),
            ("docs/b.md", ""),
            ("W.md", ""),
            (STUDIES, "[x](x/README.md) [d](../docs/a.md)"),
            ("studies/x/README.md", ""),
        ]);
        let found = contents(&tree);
        let found: Vec<(&str, String)> =
            found.iter().map(|s| (s.title.as_str(), s.pages.join(" "))).collect();
        let expected = [
            ("Start", "README.md docs/README.md"),
            ("Tutorial", "docs/t.md"),
            ("Run", "docs/a.md docs/b.md"),
            ("Papers", "studies/README.md studies/x/README.md"),
            ("Reference", "docs/r.md"),
            ("Work", "W.md"),
        ];
        assert_eq!(found, expected.map(|(title, pages)| (title, pages.to_owned())));
    }
}
