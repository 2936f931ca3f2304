//! The documentation as a site: `cargo xtask site` writes `target/site/index.html`.
//!
//! The pages are the Markdown files of the repository as they are, so that they can be read on a
//! forge too. [`contents`] takes their order from docs/README.md, [`page`] makes HTML of one, and
//! [`frame`] puts it into a page with the contents beside it. Each page is where its source is,
//! so relative links stay as they are, except for the end of the file name.
//!
//! What never happens: a page loads something from elsewhere, or runs a script; a link of a page
//! leads to something that is not in the site.

mod contents;
mod frame;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use contents::{Section, contents};
pub(crate) use page::anchors;

use crate::tree::{Tree, joined};
use page::Page;

/// Files that a browser shows, and that are copied if a page links to them.
const COPIED: &[&str] = &[".svg", ".json", ".toml", ".txt", "LICENSE-APACHE", "LICENSE-MIT"];

const STYLE: &str = include_str!("style.css");

/// The site: the HTML by path, and the files that are copied.
struct Built {
    pages: BTreeMap<String, String>,
    copied: BTreeSet<String>,
}

/// Writes the site below `root`/target. Links to the sources of the program lead below `source`, a
/// URL; without it, they are plain text.
pub(crate) fn run(root: &Path, source: Option<&str>) -> ExitCode {
    let out = root.join("target/site");
    match Tree::read(root).and_then(|tree| write(&Built::of(&tree, source), root, &out)) {
        Ok(count) => {
            println!("site: {count} pages in target/site/index.html");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("site: {error}");
            ExitCode::from(2)
        }
    }
}

fn write(site: &Built, root: &Path, out: &Path) -> io::Result<usize> {
    let place = |path: &str| {
        let to = out.join(path);
        to.parent().map_or(Ok(()), std::fs::create_dir_all).map(|()| to)
    };
    match std::fs::remove_dir_all(out) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    for (path, html) in &site.pages {
        std::fs::write(place(path)?, html)?;
    }
    for path in &site.copied {
        std::fs::copy(root.join(path), place(path)?)?;
    }
    std::fs::write(place("style.css")?, STYLE)?;
    Ok(site.pages.len())
}

impl Built {
    fn of(tree: &Tree, source: Option<&str>) -> Built {
        let sections = contents(tree);
        let listed: Vec<&str> =
            sections.iter().flat_map(|section| &section.pages).map(String::as_str).collect();
        let mut copied = BTreeSet::new();
        let mut rendered: BTreeMap<&str, Page> = BTreeMap::new();
        for path in &listed {
            let mut link = |target: &str| {
                let link = Link::of(tree, &listed, path, target);
                if let Link::Copied(file) = &link {
                    copied.insert(file.clone());
                }
                link.written(target, source)
            };
            let text = tree.get(path).unwrap_or_default();
            rendered.insert(path, Page::of(text, &mut link));
        }
        let pages = listed.iter().enumerate().map(|(at, path)| {
            let before = at.checked_sub(1).map(|before| listed[before]);
            let around = (before, listed.get(at + 1).copied());
            let html = frame::html(&sections, path, &rendered, around);
            (html_path(path), html)
        });
        Built { pages: pages.collect(), copied }
    }
}

/// Where a page of the repository is in the site.
fn html_path(path: &str) -> String {
    match path.strip_suffix("README.md") {
        Some(directory) => format!("{directory}index.html"),
        None => format!("{}.html", path.trim_end_matches(".md")),
    }
}

/// What a link leads to.
enum Link {
    /// Elsewhere, or another place of the same page.
    Kept,
    Page,
    Copied(String),
    /// Source code, or a directory.
    Source(String),
}

impl Link {
    fn of(tree: &Tree, listed: &[&str], from: &str, target: &str) -> Link {
        if target.contains("://") || target.starts_with(['#', '?']) || target.contains("mailto:") {
            return Link::Kept;
        }
        let file = target.split('#').next().unwrap_or_default();
        let path = joined(from, file).unwrap_or_default();
        if listed.contains(&path.as_str()) {
            Link::Page
        } else if COPIED.iter().any(|end| path.ends_with(end)) && tree.get(&path).is_some() {
            Link::Copied(path)
        } else {
            Link::Source(path)
        }
    }

    /// The target in the site; `None` if there is none.
    fn written(self, target: &str, source: Option<&str>) -> Option<String> {
        match self {
            Link::Kept | Link::Copied(_) => Some(target.to_owned()),
            Link::Page => {
                let (file, part) = target.split_once('#').unwrap_or((target, ""));
                let hash = if part.is_empty() { "" } else { "#" };
                Some(format!("{}{hash}{part}", html_path(file)))
            }
            Link::Source(path) => source.map(|url| format!("{}/{path}", url.trim_end_matches('/'))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// The values of an attribute in a page.
    fn values<'p>(html: &'p str, attribute: &str) -> Vec<&'p str> {
        let open = format!(" {attribute}=\"");
        html.split(&open).skip(1).filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn every_link_of_the_site_leads_to_a_page_and_a_place_in_it() {
        let tree = Tree::read(&root()).unwrap();
        let site = Built::of(&tree, None);
        assert!(site.pages.len() > 40 && site.pages.contains_key("index.html"));
        let mut checked = 0;
        for (path, html) in &site.pages {
            for target in values(html, "href").into_iter().chain(values(html, "src")) {
                if target.contains("://") {
                    continue;
                }
                let (file, part) = target.split_once('#').unwrap_or((target, ""));
                let there = joined(path, file).filter(|_| !file.is_empty());
                let there = there.unwrap_or_else(|| path.clone());
                let page = site.pages.get(&there);
                let is_file = site.copied.contains(&there) || there == "style.css";
                assert!(page.is_some() || is_file, "{path}: {target}");
                let found = page.is_some_and(|html| values(html, "id").contains(&part));
                assert!(part.is_empty() || found, "{path}: no place {target}");
                checked += 1;
            }
        }
        assert!(checked > 1000, "{checked}");
    }

    #[test]
    fn no_page_loads_anything_from_elsewhere() {
        for (path, html) in Built::of(&Tree::read(&root()).unwrap(), None).pages {
            for fetch in
                ["<script", " src=\"http", " src=\"//", "<link rel=\"stylesheet\" href=\"h"]
            {
                assert!(!html.contains(fetch), "{path}: {fetch}");
            }
            assert!(!html.contains("<!-- "), "{path}: a comment for the tests is in the page");
        }
    }

    #[test]
    fn links_are_rewritten_by_what_they_lead_to() {
        let files = [
            ("docs/README.md", "# D\n\n## Run\n\n[s](serve.md)\n"),
            ("docs/serve.md", "# Serve\n\n[up](../README.md#a) [code](../src/x.rs) [f](a.toml)\n"),
            ("docs/a.toml", "a"),
            ("src/x.rs", "x"),
            ("README.md", "# A\n"),
        ];
        let tree = Tree::of(&files);
        let serve = |source| Built::of(&tree, source).pages.remove("docs/serve.html").unwrap();
        let html = serve(None);
        assert!(html.contains("<a href=\"../index.html#a\">up</a> code <a href=\"a.toml\">f</a>"));
        assert!(
            serve(Some("https://x.test/")).contains("<a href=\"https://x.test/src/x.rs\">code")
        );
        assert_eq!(Built::of(&tree, None).copied.iter().collect::<Vec<_>>(), ["docs/a.toml"]);
    }
}
