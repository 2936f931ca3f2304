//! Text for a terminal: sentences with their labels in the margin, then tables.
//!
//! Rows of numbers are never wrapped; only columns of remarks are, at the given width. No control
//! character of a trial reaches the terminal.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table as Grid, TableStyle,
};

use crate::table::Table;

/// The least width in columns; a terminal that reports less is treated as this wide.
const WIDTH_MIN: usize = 60;
const MARGIN: usize = 11;

/// Title lines, labelled sentences and tables, `width` columns wide. It ends with a line break.
pub(crate) fn text<'a>(
    titles: &[&str],
    facts: impl IntoIterator<Item = (&'a str, &'a str)>,
    tables: &[Table],
    width: usize,
) -> String {
    let width = width.max(WIDTH_MIN);
    let mut out = String::new();
    for title in titles {
        paragraph(&mut out, "", title, width);
    }
    out.push('\n');
    for (label, text) in facts {
        paragraph(&mut out, label, text, width);
    }
    for table in tables.iter().filter(|table| !table.is_empty()) {
        out.push('\n');
        write_table(&mut out, table, width);
    }
    out.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn write_table(out: &mut String, table: &Table, width: usize) {
    paragraph(out, "", &table.title, width);
    if table.rows.is_empty() {
        paragraph(out, "", &table.note, width);
        return;
    }
    let rule = LineStyle::none().fill('─').junction('─');
    let mut grid = Grid::new();
    grid.load_style(TableStyle::new().header_separator(rule));
    grid.set_header(table.headers().map(|column| column.name));
    // A table without a column that wraps may be wider than the terminal.
    let wraps = table.headers().any(|column| column.wraps);
    let arrangement =
        if wraps { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    grid.set_content_arrangement(arrangement).set_width(u16::try_from(width).unwrap_or(u16::MAX));
    for row in &table.rows {
        // A line break in a trial's text would break the row.
        grid.add_row(row.iter().map(|cell| cell.replace(['\n', '\r', '\t'], " ")));
    }
    for (at, column) in table.headers().enumerate() {
        let Some(cells) = grid.column_mut(at) else { continue };
        let left = if at == 0 { 0 } else { 2 };
        cells.set_padding((left, 0));
        if !column.wraps {
            cells.set_constraint(ColumnConstraint::ContentWidth);
        }
        if column.is_numeric {
            cells.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in grid.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    if !table.note.is_empty() {
        paragraph(out, "", &table.note, width);
    }
}

/// The text, wrapped at words, with a label in the margin if there is one.
fn paragraph(out: &mut String, label: &str, text: &str, width: usize) {
    let margin = if label.is_empty() { 0 } else { MARGIN };
    let mut line = format!("{label:<margin$}");
    let mut filled = false;
    for word in text.split_whitespace() {
        let used = line.chars().count();
        if filled && used + 1 + word.chars().count() > width {
            out.push_str(&line);
            out.push('\n');
            line = " ".repeat(margin);
            filled = false;
        }
        if filled {
            line.push(' ');
        }
        line.push_str(word);
        filled = true;
    }
    out.push_str(&line);
    out.push('\n');
}
