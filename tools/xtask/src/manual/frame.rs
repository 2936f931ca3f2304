//! What surrounds a page: its head, the contents, and links to the pages before and after it.

use std::collections::BTreeMap;

use super::{Page, Section, html_path};

/// Beyond this many parts, the contents list those of the current page.
const PARTS_MIN: usize = 2;

/// The whole page at this path. `around`: the paths of the pages before it and after it.
pub(super) fn html(
    sections: &[Section],
    path: &str,
    pages: &BTreeMap<&str, Page>,
    (before, after): (Option<&str>, Option<&str>),
) -> String {
    let page = &pages[path];
    let name = |to: &str| escaped(&short(&pages[to].title));
    let up = "../".repeat(path.matches('/').count());
    let link = |to: &str| format!("{up}{}", html_path(to));
    let mut contents = String::new();
    for section in sections {
        contents.push_str(&format!("<h2>{}</h2>\n<ul>\n", escaped(&section.title)));
        for to in &section.pages {
            let (here, parts) = match to == path {
                true => (" aria-current=\"page\"", parts(page)),
                false => ("", String::new()),
            };
            let (name, to) = (name(to), link(to));
            contents.push_str(&format!("<li><a href=\"{to}\"{here}>{name}</a>{parts}</li>\n"));
        }
        contents.push_str("</ul>\n");
    }
    let step = |to: Option<&str>, word: &str| {
        to.map_or(String::new(), |to| {
            let (name, to) = (name(to), link(to));
            format!("<a class=\"{word}\" rel=\"{word}\" href=\"{to}\">{name}</a>")
        })
    };
    let title = escaped(&page.title);
    let site = if path == "README.md" { String::new() } else { " · Plimsoll".to_owned() };
    FRAME
        .replace("{up}", &up)
        .replace("{title}", &(title + &site))
        .replace("{contents}", &contents)
        .replace("{before}", &step(before, "prev"))
        .replace("{after}", &step(after, "next"))
        .replace("{page}", &page.html)
}

/// The parts of the current page, below its name.
fn parts(page: &Page) -> String {
    if page.parts.len() <= PARTS_MIN {
        return String::new();
    }
    let items = page
        .parts
        .iter()
        .map(|(id, text)| format!("<li><a href=\"#{id}\">{}</a></li>\n", escaped(text)));
    format!("\n<ul>\n{}</ul>\n", items.collect::<String>())
}

/// A title as the contents show it: the kind of a page is the title of its section.
fn short(title: &str) -> String {
    let title = title.strip_prefix("Tutorial: ").unwrap_or(title);
    let is_command = title.starts_with("plimsoll ");
    match title.chars().next().filter(|_| !is_command) {
        Some(first) => first.to_uppercase().chain(title.chars().skip(1)).collect(),
        None => title.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// On a narrow screen, the contents are behind a button, which needs no script.
const FRAME: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="{up}style.css">
</head>
<body>
<input type="checkbox" id="open" aria-label="Show the contents">
<header>
<label for="open" aria-hidden="true">Contents</label>
<a href="{up}index.html">Plimsoll</a>
</header>
<nav aria-label="Contents">
{contents}</nav>
<main>
{page}<footer>{before}{after}</footer>
</main>
</body>
</html>
"#;
