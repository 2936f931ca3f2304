//! `plimsoll locks`: how the locks that a server's cores share are used.

use ::report::sheet::{Rows, Sheet, sheet};
use command::failure::Failure;
use command::output::width;
use serde_json::Value;

use crate::{admin, cli, output};

/// Has a running server count, and shows what it counted.
pub(crate) fn locks(flags: &cli::Locks) -> Result<(), Failure> {
    let seconds = flags.duration.as_secs().max(1).to_string();
    let told = admin::call(flags.admin, "POST", "/locks", &[("seconds", &seconds)])?;
    if flags.json { output::print_json(&told) } else { output::print(text(&told, width())) }
}

fn text(told: &Value, width: usize) -> String {
    let seconds = told["seconds"].as_f64().unwrap_or(f64::NAN);
    let locks = told["locks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let asked = |lock: &&Value| lock["attempts"].as_u64().unwrap_or(0) > 0;
    let (used, unused): (Vec<&Value>, Vec<&Value>) = locks.iter().partition(asked);
    let name = |lock: &Value| lock["lock"].as_str().unwrap_or("?").to_owned();
    let row = |lock: &&Value| {
        let figure = |key: &str| lock[key].as_f64().unwrap_or(f64::NAN);
        vec![
            name(lock),
            format!("{:.0}", figure("attempts") / seconds),
            format!("{:.2}", figure("contention_percent")),
            format!("{:.1}", figure("wait_mean_us")),
            format!("{:.2}", figure("hold_mean_us")),
            format!("{:.1}", figure("hold_max_us")),
        ]
    };
    let mut note = String::from(
        "Contention: attempts at which somebody else held the lock. Wait: of such attempts. A lock \
         that may be shared for reading, and those behind which the pool of file readers and \
         sleeping cores wait, are not counted.",
    );
    if !unused.is_empty() {
        let unused: Vec<String> = unused.into_iter().map(name).collect();
        note += &format!(" Not asked for: {}.", unused.join(", "));
    }
    let columns = ["<lock", "asked for /s", "contention %", "wait us", "hold us", "longest us"];
    let table = Rows {
        title: String::new(),
        columns: columns.map(String::from).to_vec(),
        rows: used.iter().map(row).collect(),
        note,
    };
    let title = format!("Locks that the cores share, counted for {seconds:.1} s");
    sheet(&Sheet { title, facts: Vec::new(), tables: vec![table] }, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_that_nobody_asked_for_are_named_below_the_table() {
        let lock = |name: &str, attempts: u64| {
            serde_json::json!({
                "lock": name, "attempts": attempts, "contended": 1, "contention_percent": 0.25,
                "wait_mean_us": 3.0, "hold_mean_us": 0.4, "hold_max_us": 21.0,
            })
        };
        let told = serde_json::json!({
            "seconds": 2.0, "locks": [lock("store: shard", 800), lock("inbox", 0)],
        });
        let text = text(&told, 80);
        let line = text.lines().find(|line| line.contains("store: shard")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[2..], ["400", "0.25", "3.0", "0.40", "21.0"], "{text}");
        assert!(text.contains("Not asked for: inbox."), "{text}");
    }
}
