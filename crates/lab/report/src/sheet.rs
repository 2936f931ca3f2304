//! Sheets: labelled sentences and tables of any result that is not a trial, for a terminal or as
//! the chapters of a page.

use askama::Template;

use crate::terminal;

pub use crate::table::Table as Rows;
pub use drawing::{Curve, Panel, Predicted, Stroke, Ticks, Tone};

/// The text of a result.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    /// One line above everything.
    pub title: String,
    /// Sentences, each with a short label.
    pub facts: Vec<(String, String)>,
    /// Tables below them.
    pub tables: Vec<Rows>,
}

/// A chapter of a page.
#[derive(Clone, Debug, Default)]
pub struct Chapter {
    /// Its anchor on the page: letters, digits, hyphens.
    pub name: String,
    /// The question it answers, in one line.
    pub asks: String,
    /// The results.
    pub sheet: Sheet,
    /// Its figures: SVG, such as [`svg_curves`] makes.
    pub figures: Vec<String>,
}

/// The sheet as text for a terminal of `width` columns. It ends with a line break.
#[must_use]
pub fn sheet(sheet: &Sheet, width: usize) -> String {
    let facts = sheet.facts.iter().map(|(label, text)| (label.as_str(), text.as_str()));
    terminal::text(&[&sheet.title], facts, &sheet.tables, width)
}

#[derive(Template)]
#[template(path = "chapters.html")]
struct Chapters<'a> {
    title: &'a str,
    lead: &'a str,
    figure_style: &'static str,
    chapters: &'a [Chapter],
}

/// A page of chapters: one file that opens offline, in light and dark mode, on screen and on paper.
/// All text is escaped except the figures, which escape their own.
#[must_use]
pub fn page(title: &str, lead: &str, chapters: &[Chapter]) -> String {
    let page = Chapters { title, lead, figure_style: drawing::STYLE, chapters };
    page.render().expect("the template writes into a String and calls nothing that fails")
}

#[derive(Template)]
#[template(path = "answer.html")]
struct Answer<'a> {
    answer: &'a str,
    sheet: &'a Sheet,
    figure: &'a str,
    details: &'a Sheet,
    figure_style: &'static str,
}

/// A page that begins with an answer in one sentence. The sheet's facts and tables follow, and a
/// figure between them, if there is one. The details are folded; their title is what the reader
/// clicks. Tables without rows are omitted.
#[must_use]
pub fn answer_page(answer: &str, sheet: Sheet, figure: &str, details: Sheet) -> String {
    let shown = |mut sheet: Sheet| {
        sheet.tables.retain(|table| !table.rows.is_empty());
        sheet
    };
    let (sheet, details) = (&shown(sheet), &shown(details));
    let page = Answer { answer, sheet, figure, details, figure_style: drawing::STYLE };
    page.render().expect("the template writes into a String and calls nothing that fails")
}

/// Panels of curves as one self-contained figure.
#[must_use]
pub fn svg_curves(title: &str, description: &str, panels: &[Panel]) -> String {
    drawing::curves(title, description, panels, drawing::STYLE)
}

/// Predicted values against measured ones, as one self-contained figure. `names` are those of the
/// tones.
#[must_use]
pub fn svg_diagonal(
    title: &str,
    description: &str,
    names: &[(Tone, &str)],
    points: &[Predicted],
) -> String {
    drawing::diagonal(title, description, names, points, drawing::STYLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sheet_shows_its_sentences_and_tables_in_order() {
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
    fn a_page_has_all_chapters_and_escapes_their_text() {
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
