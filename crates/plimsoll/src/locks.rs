//! `plimsoll locks`: contention of the locks that the cores of a server share.

use ::report::sheet::{Rows, Sheet, sheet};
use command::failure::Failure;
use command::output;
use serde_json::Value;

use crate::{admin, cli};

/// Makes a running server count, and shows the counts.
pub(crate) fn locks(flags: &cli::Locks) -> Result<(), Failure> {
    let seconds = flags.duration.as_secs().max(1).to_string();
    let answer = admin::call(flags.call.admin, "POST", "/locks", &[("seconds", &seconds)])?;
    output::show(flags.call.json, &answer, |answer| text(answer, output::width()))
}

fn text(answer: &Value, width: usize) -> String {
    let seconds = answer["seconds"].as_f64().unwrap_or(f64::NAN);
    let locks = answer["locks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_used = |lock: &&Value| lock["attempts"].as_u64().unwrap_or(0) > 0;
    let (used, unused): (Vec<&Value>, Vec<&Value>) = locks.iter().partition(is_used);
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
        "Contention: attempts that found the lock held. Wait: mean over these attempts. Not \
         counted: readers-writer locks, and the locks on which the file reader pool and sleeping \
         cores wait.",
    );
    if !unused.is_empty() {
        let unused: Vec<String> = unused.into_iter().map(name).collect();
        note += &format!(" Not used: {}.", unused.join(", "));
    }
    let columns = ["<lock", "attempts/s", "contention %", "wait us", "hold us", "longest us"];
    let table = Rows {
        title: String::new(),
        columns: columns.map(String::from).to_vec(),
        rows: used.iter().map(row).collect(),
        note,
    };
    let title = format!("Locks shared by the cores, counted for {seconds:.1} s");
    sheet(&Sheet { title, facts: Vec::new(), tables: vec![table] }, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_locks_are_named_below_the_table() {
        let lock = |name: &str, attempts: u64| {
            serde_json::json!({
                "lock": name, "attempts": attempts, "contended": 1, "contention_percent": 0.25,
                "wait_mean_us": 3.0, "hold_mean_us": 0.4, "hold_max_us": 21.0,
            })
        };
        let answer = serde_json::json!({
            "seconds": 2.0, "locks": [lock("store: shard", 800), lock("inbox", 0)],
        });
        let text = text(&answer, 80);
        let line = text.lines().find(|line| line.contains("store: shard")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[2..], ["400", "0.25", "3.0", "0.40", "21.0"], "{text}");
        assert!(text.contains("Not used: inbox."), "{text}");
    }
}
