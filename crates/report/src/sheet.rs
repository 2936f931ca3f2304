//! A sheet: sentences with labels, then tables, of whatever was measured; for results that are no
//! trial.

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

/// The sheet for a terminal of so many columns. It ends with a line break.
#[must_use]
pub fn sheet(sheet: &Sheet, width: usize) -> String {
    let tables: Vec<Table> = sheet
        .tables
        .iter()
        .map(|table| {
            let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
            let mut written = Table::new(&table.title, &columns, &table.note);
            written.rows.clone_from(&table.rows);
            written
        })
        .collect();
    terminal::sheet(&sheet.title, &sheet.facts, &tables, width)
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
}
