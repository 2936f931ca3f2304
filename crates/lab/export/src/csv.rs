//! CSV by RFC 4180: one file per table, a header with the names of the columns, lines that end in
//! CRLF. Unknown values are empty; booleans are `true` and `false`.

use trial::Trial;

use crate::Exported;
use crate::tables::{Table, Values, tables};
use report::Analysis;

/// The tables of a trial.
pub fn csv(trial: &Trial, analysis: &Analysis) -> Vec<Exported> {
    let tables = tables(trial, analysis);
    let file = |table: &Table| Exported {
        name: format!("{}.csv", table.name),
        bytes: written(table).into_bytes(),
    };
    tables.iter().map(file).collect()
}

fn written(table: &Table) -> String {
    let names: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    let mut text = names.join(",") + "\r\n";
    for row in 0..table.rows {
        for (at, column) in table.columns.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&cell(&column.values, row));
        }
        text.push_str("\r\n");
    }
    text
}

/// Numbers are written so that they round-trip.
fn cell(values: &Values, row: usize) -> String {
    match values {
        Values::Whole(values) => values[row].map_or_else(String::new, |value| value.to_string()),
        Values::Number(values) => values[row].map_or_else(String::new, |value| value.to_string()),
        Values::Text(values) => values[row].as_deref().map_or_else(String::new, quoted),
        Values::Truth(values) => values[row].to_string(),
    }
}

fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\r', '\n']) || text.is_empty() {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}
