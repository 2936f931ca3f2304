//! The tables of costs by class of request, for the terminal and the page alike.

use crate::analysis::ClassTable;
use crate::format::{percent, thousands, three};
use crate::summary::Table;

/// One table a word of the class.
pub(crate) fn tables(classes: &[ClassTable]) -> Vec<Table> {
    classes.iter().map(table).collect()
}

fn table(classes: &ClassTable) -> Table {
    let title = format!(
        "Cost of a request by {} (n = {}, {:.0} %)",
        if classes.by == "tls" { "TLS" } else { classes.by },
        thousands(classes.n as f64),
        100.0 * classes.level
    );
    let mut note = format!(
        "By one fit of all classes, none of them below zero; a request costs {} µs in the mean. A \
         class has the cost of whatever goes along with it",
        three(classes.mean_us)
    );
    for merged in &classes.merged {
        note.push_str("; ");
        note.push_str(merged);
    }
    let columns = ["<class", "% of requests", "µs/request", "low", "high"];
    let mut table = Table::new(&title, &columns, &note);
    for row in &classes.rows {
        let us = |value: f64| if value <= 0.0 { "0".to_owned() } else { three(value) };
        table.rows.push(vec![
            row.name.clone(),
            percent(row.share_percent),
            us(row.us_per_request),
            us(row.us_low),
            us(row.us_high),
        ]);
    }
    table
}
