//! The pictures of ARCHITECTURE.md: the houses with their crates, and the ways of a request. Both
//! pictures are made from the code, so that they are true. `cargo xtask map` writes the pictures,
//! and tidy compares them with the code.

use std::path::Path;
use std::process::ExitCode;

use crate::tidy::houses::{FLOORS, HOUSES, crates_in};
use crate::tidy::size::code_lines_in;
use crate::tree::Tree;

pub(crate) const DOCUMENT: &str = "ARCHITECTURE.md";

/// The functions that a request meets, in their order, by file below `crates/`.
struct Course {
    name: &'static str,
    steps: &'static [(&'static str, &'static str)],
}

/// What every request over HTTP/1 meets first.
const ARRIVAL: &[(&str, &str)] = &[
    ("server/server/src/listening.rs", "accept_all"),
    ("server/proxy/src/serve.rs", "serve"),
    ("server/proxy/src/h1/connection.rs", "readable"),
    ("server/proxy/src/h1/connection.rs", "turn"),
    ("http/http1/src/request.rs", "parse_request"),
    ("server/proxy/src/h1/connection.rs", "answer_at_once"),
    ("server/exchange/src/hit.rs", "fresh_hit"),
    ("server/cache/src/lookup.rs", "look_by_parts"),
];

const WAYS: &[Course] = &[
    Course {
        name: "A hit",
        steps: &[
            ("http/caching/src/reuse.rs", "decide_reuse_plain"),
            ("server/proxy/src/h1/connection.rs", "hit"),
            ("server/exchange/src/logged.rs", "log"),
        ],
    },
    Course {
        name: "A miss that is stored",
        steps: &[
            ("server/proxy/src/h1/connection.rs", "exchange"),
            ("server/exchange/src/run.rs", "serve_request"),
            ("server/exchange/src/routing.rs", "admitted"),
            ("server/exchange/src/routing.rs", "route"),
            ("server/exchange/src/plan.rs", "plan"),
            ("server/exchange/src/fetch/flight.rs", "fetch_together"),
            ("server/cache/src/flight.rs", "join"),
            ("server/exchange/src/fetch/flight.rs", "lead"),
            ("server/upstream/src/lib.rs", "exchange"),
            ("server/upstream/src/h1.rs", "answer"),
            ("server/exchange/src/fetch/response.rs", "handle"),
            ("http/caching/src/storing.rs", "may_store"),
            ("server/exchange/src/fetch/response.rs", "store"),
            ("server/exchange/src/fetch/fill.rs", "start"),
            ("server/exchange/src/serve.rs", "stream"),
            ("server/cache/src/insert.rs", "insert"),
            ("http/caching/src/replacing.rs", "may_replace"),
        ],
    },
    Course {
        name: "A revalidation that the origin answers with 304",
        steps: &[
            ("server/exchange/src/plan.rs", "plan"),
            ("server/exchange/src/fetch/flight.rs", "lead"),
            ("server/exchange/src/fetch/response.rs", "handle"),
            ("server/exchange/src/fetch/response.rs", "confirmed"),
            ("http/caching/src/update.rs", "updated"),
            ("server/cache/src/insert.rs", "insert_confirmed"),
            ("server/exchange/src/serve.rs", "serve"),
        ],
    },
    Course {
        name: "A 304 for the client",
        steps: &[
            ("server/exchange/src/plan.rs", "is_not_modified"),
            ("server/exchange/src/serve.rs", "serve"),
            ("server/exchange/src/serve.rs", "send_not_modified"),
        ],
    },
];

/// Writes the pictures into the document.
pub(crate) fn run(root: &Path) -> ExitCode {
    let written = Tree::read(root).map_err(|error| error.to_string()).and_then(|tree| {
        let text = current(&tree)?;
        std::fs::write(root.join(DOCUMENT), text).map_err(|error| error.to_string())?;
        let folders = HOUSES.concat().into_iter().flat_map(|house| crates_in(&tree, house));
        Ok(folders.map(|folder| code_lines_in(&tree, folder)).sum::<usize>())
    });
    match written {
        Ok(lines) => {
            println!("{lines} lines of code, without tests, comments and blank lines");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("map: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The document with pictures of the code as it is.
///
/// # Errors
/// A function of a way is gone or has no text, or the document has no place for a picture.
pub(crate) fn current(tree: &Tree) -> Result<String, String> {
    let text = tree.get(DOCUMENT).ok_or_else(|| format!("there is no {DOCUMENT}"))?;
    let text = replaced(text, "houses", &houses(tree))?;
    replaced(&text, "ways", &ways(tree)?)
}

/// The text with a new picture between its two marks.
fn replaced(text: &str, name: &str, picture: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {name}: cargo xtask map -->\n"), "<!-- end -->");
    let missing = || format!("{DOCUMENT} has no picture {name}: no line {begin:?} before {end:?}");
    let (before, rest) = text.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}{picture}{end}{after}"))
}

/// The houses, with those on top first, and their crates, with the highest floors first. Houses of
/// one row are drawn side by side.
fn houses(tree: &Tree) -> String {
    let mut lines = Vec::new();
    for row in HOUSES.iter().rev() {
        let width = (WIDTH + 1) / row.len() - 1;
        let columns: Vec<Vec<String>> =
            row.iter().map(|house| column(tree, house, width)).collect();
        let height = columns.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..height {
            let empty = format!("{:width$}", "");
            let parts: Vec<&str> =
                columns.iter().map(|column| column.get(at).unwrap_or(&empty).as_str()).collect();
            let edge = if at == 0 { "+" } else { "|" };
            lines.push(format!("{edge}{}{edge}\n", parts.join(edge)));
        }
    }
    format!("```text\n{}+{:-<WIDTH$}+\n```\n", lines.concat(), "")
}

/// Columns of the picture of the houses, without its edges.
const WIDTH: usize = 79;

/// One house: its name, and a line for each floor.
fn column(tree: &Tree, house: &str, width: usize) -> Vec<String> {
    let crates = crates_in(tree, house);
    let has = |name: &str| crates.iter().any(|folder| folder.ends_with(&format!("/{name}/")));
    let lines: usize = crates.iter().map(|folder| code_lines_in(tree, folder)).sum();
    let title = format!("-- {} ({} lines) ", house.trim_end_matches('/'), rounded(lines));
    let mut column = vec![format!("{title:-<width$}")];
    for floor in FLOORS.iter().rev() {
        let names: Vec<&str> = floor.iter().copied().filter(|name| has(name)).collect();
        if !names.is_empty() {
            column.push(format!("{:width$}", format!("  {}", names.join("  "))));
        }
    }
    column
}

/// A count that does not change with every commit.
fn rounded(lines: usize) -> String {
    match lines {
        0..1_000 => "under 1,000".into(),
        _ => format!("{},000", (lines + 500) / 1_000),
    }
}

fn ways(tree: &Tree) -> Result<String, String> {
    let mut text = String::new();
    let arrival = Course { name: "Every request over HTTP/1", steps: ARRIVAL };
    for way in [&arrival].into_iter().chain(WAYS) {
        text.push_str(&format!(
            "\n**{}**\n\n| file | function | what |\n| --- | --- | --- |\n",
            way.name
        ));
        for (file, function) in way.steps {
            let path = format!("crates/{file}");
            let code = tree.get(&path).ok_or_else(|| format!("there is no {path}"))?;
            let what = sentence_of(code, function)
                .ok_or_else(|| format!("{path} has no function {function} with a text"))?;
            text.push_str(&format!("| [{file}]({path}) | `{function}` | {what} |\n"));
        }
    }
    text.push('\n');
    Ok(text)
}

/// The first sentence of the text before a function.
fn sentence_of(code: &str, function: &str) -> Option<String> {
    let mut docs: Vec<&str> = Vec::new();
    for line in code.lines().map(str::trim_start) {
        let is_head = [format!("fn {function}("), format!("fn {function}<")];
        if let Some(text) = line.strip_prefix("///") {
            docs.push(text.trim());
        } else if is_head.iter().any(|head| line.contains(head.as_str())) {
            let text = docs.split(|line| line.is_empty()).next().unwrap_or(&[]).join(" ");
            let end = text.find(". ").unwrap_or(text.trim_end_matches('.').len());
            let plain = text[..end].replace('|', "\\|").replace(['[', ']'], "");
            return (!plain.is_empty()).then_some(plain);
        } else if !line.starts_with("#[") {
            docs.clear();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_is_taken_from_the_text_before_the_function() {
        let code = "/// One thing. Then more.\n///\n/// # Errors\n#[inline]\n\
                    pub async fn f<T>() {}\n\
                    /// Over\n/// two lines.\nfn g() {}\nfn h() {}\n";
        assert_eq!(sentence_of(code, "f").as_deref(), Some("One thing"));
        assert_eq!(sentence_of(code, "g").as_deref(), Some("Over two lines"));
        assert_eq!(sentence_of(code, "h"), None);
    }

    #[test]
    fn a_picture_takes_the_place_between_its_marks() {
        let text = "a\n<!-- x: cargo xtask map -->\nold\n<!-- end -->\nb\n";
        let new = replaced(text, "x", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- x: cargo xtask map -->\nnew\n<!-- end -->\nb\n");
        assert!(replaced(text, "y", "").unwrap_err().contains("no picture y"));
    }
}
