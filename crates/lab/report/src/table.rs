//! Labelled sentences and tables of text, written in the same way to a terminal and to a page.

/// A labelled sentence.
pub(crate) struct Fact {
    pub(crate) label: &'static str,
    pub(crate) text: String,
    /// Whether it is a warning, which a page highlights.
    pub(crate) warns: bool,
}

impl Fact {
    pub(crate) fn new(label: &'static str, text: impl Into<String>) -> Fact {
        Fact { label, text: text.into(), warns: false }
    }

    pub(crate) fn warning(label: &'static str, text: impl Into<String>) -> Fact {
        Fact { label, text: text.into(), warns: true }
    }
}

/// A table of text.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The line above it.
    pub title: String,
    /// Names of the columns. A column of numbers is aligned to the right. A name that begins with
    /// `<` marks a column of words, one that begins with `~` a column of words that may be wrapped.
    pub columns: Vec<String>,
    /// Rows with one cell for each column.
    pub rows: Vec<Vec<String>>,
    /// The line below it, which explains how to read it; may be empty.
    pub note: String,
}

/// The header of a column, parsed.
pub(crate) struct Header<'a> {
    pub(crate) name: &'a str,
    pub(crate) is_numeric: bool,
    pub(crate) wraps: bool,
    /// Whether a narrow page omits it.
    pub(crate) is_minor: bool,
}

/// The columns that a narrow page omits: how sure a number is, and how many there were.
const MINOR: [&str; 11] =
    ["low", "high", "line low", "line high", "intervals", "requests", "n", "corr.", "t", "p", "q"];

/// Indentation of a cell, in a terminal and on a page: no-break spaces.
pub(crate) const INDENT: &str = "\u{a0}\u{a0}";

/// A column of a table with a row for each `T`: its name and its cells.
pub(crate) type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

impl Table {
    pub(crate) fn new(
        title: impl Into<String>,
        columns: &[&str],
        note: impl Into<String>,
    ) -> Table {
        Table {
            title: title.into(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
            note: note.into(),
        }
    }

    /// A table with a row for each item.
    pub fn of<T>(
        title: impl Into<String>,
        items: impl IntoIterator<Item = T>,
        columns: &[Column<'_, T>],
        note: impl Into<String>,
    ) -> Table {
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let mut table = Table::new(title, &names, note);
        let row = |item: T| columns.iter().map(|(_, cell)| cell(&item)).collect();
        table.rows = items.into_iter().map(row).collect();
        table
    }

    /// The headers of the columns.
    pub(crate) fn headers(&self) -> impl Iterator<Item = Header<'_>> {
        self.columns.iter().map(|name| Header {
            name: name.trim_start_matches(['<', '~']),
            is_numeric: !name.starts_with(['<', '~']),
            wraps: name.starts_with('~'),
            is_minor: MINOR.contains(&name.as_str()),
        })
    }

    /// Whether a row is indented, because it is part of a row above it.
    pub(crate) fn is_indented(&self, row: &[String]) -> bool {
        row.iter().any(|cell| cell.starts_with(INDENT))
    }

    /// Whether there is nothing to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.note.is_empty()
    }
}
