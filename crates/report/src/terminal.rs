//! The analysis in a terminal: sentences with their labels in the margin, then tables.
//!
//! Tables of figures are never wrapped, so that a row stays a row; only remarks are, at the width
//! given. No control character of a trial reaches the terminal.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table as Grid, TableStyle,
};

use crate::analysis::Analysis;
use crate::summary::{self, Table};

/// Narrower than this nothing is readable; a terminal that claims less is not believed.
const WIDTH_MIN: usize = 60;
const MARGIN: usize = 11;

/// The text of a report, `width` columns wide. It ends with a line break.
pub fn terminal(analysis: &Analysis, width: usize) -> String {
    let width = width.max(WIDTH_MIN);
    let mut out = String::new();
    let title = format!("Load line of {} ({})", analysis.trial.server, analysis.trial.name);
    paragraph(&mut out, "", &title, width);
    paragraph(&mut out, "", &summary::extent(analysis), width);
    out.push('\n');
    for fact in summary::facts(analysis) {
        paragraph(&mut out, fact.label, &fact.text, width);
    }
    let mut listed = summary::first_tables(analysis);
    listed.extend(summary::latencies(analysis));
    listed.extend(summary::waits_tables(analysis));
    listed.extend(summary::files_tables(analysis));
    listed.push(summary::losses(analysis));
    listed.push(summary::predictions(analysis));
    write_tables(&mut out, &listed, width);
    printable(&out)
}

/// The same of any sentences and tables.
pub(crate) fn sheet(
    title: &str,
    facts: &[(String, String)],
    tables: &[Table],
    width: usize,
) -> String {
    let width = width.max(WIDTH_MIN);
    let mut out = String::new();
    paragraph(&mut out, "", title, width);
    out.push('\n');
    for (label, text) in facts {
        paragraph(&mut out, label, text, width);
    }
    write_tables(&mut out, tables, width);
    printable(&out)
}

fn write_tables(out: &mut String, tables: &[Table], width: usize) {
    // A table without rows may still have something to say.
    let says = |table: &&Table| !(table.rows.is_empty() && table.note.is_empty());
    for table in tables.iter().filter(says) {
        out.push('\n');
        write_table(out, table, width);
    }
}

fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
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
    grid.set_header(table.columns.iter().map(|column| column.name.as_str()));
    // A row of figures is wider than the terminal rather than broken; remarks are wrapped.
    let wraps = table.columns.iter().any(|column| column.wraps);
    let arrangement =
        if wraps { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    grid.set_content_arrangement(arrangement).set_width(u16::try_from(width).unwrap_or(u16::MAX));
    for row in &table.rows {
        grid.add_row(row.iter().map(|cell| one_line(cell)));
    }
    for (at, column) in table.columns.iter().enumerate() {
        let Some(cells) = grid.column_mut(at) else { continue };
        let left = if at == 0 { 0 } else { 2 };
        cells.set_padding((left, 0));
        if !column.wraps {
            cells.set_constraint(ColumnConstraint::ContentWidth);
        }
        if column.numeric {
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

/// A line break in a trial's text would break the row.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '\t'], " ")
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
