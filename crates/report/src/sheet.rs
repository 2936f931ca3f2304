//! A sheet: sentences with labels, then tables, of whatever was measured; for results that are no
//! trial. On a terminal, or as the chapters of a page.

use askama::Template;

use crate::summary::Table;
use crate::{figure, terminal};

pub use crate::figure::{Curve, Panel, Stroke, Ticks, Tone};

/// What is said of a result.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    /// One line above everything.
    pub title: String,
    /// Sentences, each with a short label.
    pub facts: Vec<(String, String)>,
    /// Tables below them.
    pub tables: Vec<Rows>,
}

/// A table of text.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The line above it.
    pub title: String,
    /// Names of the columns: one that begins with `<` is of words, with `~` of words that may be
    /// wrapped, any other of numbers.
    pub columns: Vec<String>,
    /// As many cells as columns in each.
    pub rows: Vec<Vec<String>>,
    /// What must be known to read it; may be empty.
    pub note: String,
}

/// A chapter of a page.
#[derive(Clone, Debug, Default)]
pub struct Chapter {
    /// What it is called where one looks it up: letters, digits, hyphens.
    pub name: String,
    /// What it asks, in a line.
    pub asks: String,
    /// What was found.
    pub sheet: Sheet,
    /// Its figures: SVG, as [`svg_curves`] and the like make it.
    pub figures: Vec<String>,
}

/// The sheet for a terminal of so many columns. It ends with a line break.
#[must_use]
pub fn sheet(sheet: &Sheet, width: usize) -> String {
    terminal::sheet(&sheet.title, &sheet.facts, &written(sheet), width)
}

fn written(sheet: &Sheet) -> Vec<Table> {
    let table = |rows: &Rows| {
        let columns: Vec<&str> = rows.columns.iter().map(String::as_str).collect();
        let mut written = Table::new(&rows.title, &columns, &rows.note);
        written.rows.clone_from(&rows.rows);
        written
    };
    sheet.tables.iter().map(table).collect()
}

#[derive(Template)]
#[template(path = "chapters.html")]
struct Chapters<'a> {
    title: &'a str,
    lead: &'a str,
    figure_style: &'static str,
    chapters: Vec<Written<'a>>,
}

struct Written<'a> {
    name: &'a str,
    asks: &'a str,
    title: &'a str,
    facts: &'a [(String, String)],
    figures: &'a [String],
    tables: Vec<Table>,
}

/// A page with a chapter each: one file that opens offline, in light and in dark, on screen and on
/// paper. Every text is escaped but the figures, which escape their own.
#[must_use]
pub fn page(title: &str, lead: &str, chapters: &[Chapter]) -> String {
    let chapters = chapters.iter().map(|chapter| Written {
        name: &chapter.name,
        asks: &chapter.asks,
        title: &chapter.sheet.title,
        facts: &chapter.sheet.facts,
        figures: &chapter.figures,
        tables: written(&chapter.sheet),
    });
    let chapters = chapters.collect();
    let page = Chapters { title, lead, figure_style: figure::STYLE, chapters };
    page.render().expect("the template writes into a String and calls nothing that fails")
}

/// Panels of curves as one figure that stands alone.
#[must_use]
pub fn svg_curves(title: &str, description: &str, panels: &[Panel]) -> String {
    figure::curves(title, description, panels, figure::STYLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_has_its_sentences_and_tables_in_order() {
        let text = sheet(
            &Sheet {
                title: "Title".into(),
                facts: vec![("Label".into(), "a sentence\u{7}".into())],
                tables: vec![Rows {
                    title: "Table".into(),
                    columns: vec!["<what".into(), "n".into()],
                    rows: vec![vec!["rows".into(), "12".into()]],
                    note: "note".into(),
                }],
            },
            80,
        );
        let at = |word: &str| text.find(word).unwrap_or_else(|| panic!("no {word} in {text}"));
        assert!(at("Title") < at("Label") && at("Label") < at("Table") && at("12") < at("note"));
        assert!(!text.contains('\u{7}'), "no control character reaches a terminal");
    }

    #[test]
    fn a_page_has_a_chapter_each_and_takes_no_text_for_markup() {
        let chapter = |name: &str| Chapter {
            name: name.into(),
            asks: "what it <asks>".into(),
            sheet: Sheet {
                title: format!("Title of {name}"),
                facts: vec![("Label".into(), "a & b".into())],
                tables: vec![Rows {
                    title: "Table".into(),
                    columns: vec!["<what".into(), "n".into()],
                    rows: vec![vec!["<script>".into(), "12".into()]],
                    note: String::new(),
                }],
            },
            figures: vec!["<svg></svg>".into()],
        };
        let page = page("All", "a lead", &[chapter("one"), chapter("two")]);
        assert_eq!(page.matches("<section id=").count(), 2);
        assert_eq!(page.matches("<svg></svg>").count(), 2);
        assert!(page.contains("href=\"#two\"") && page.contains("a &#38; b"), "{page}");
        assert!(!page.contains("<script>"));
    }
}
