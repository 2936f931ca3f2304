//! What the page shows in addition to the rows: sums, and the bounds with their verdicts.

use harness::rounds::{Figure, digits};
use serde_json::{Value, json};

use super::Outcome;
use super::servers::SERVERS;
use crate::show::number;

/// The bound of a boosted wait relative to epoll with silent connections, and relative to the plain
/// call without them.
const TO_NATIVE_MAX: f64 = 1.25;
const TO_PLAIN_MAX: f64 = 1.05;

/// Results for the page.
pub(crate) fn for_page(outcome: &Outcome) -> Value {
    let mut all = Vec::new();
    for (server, ..) in SERVERS {
        let of_server = ["poll", "select"].map(|wait| bounds(outcome, server, wait));
        let of_server = of_server.into_iter().flatten();
        all.extend(of_server.map(|text| json!({"server": server, "text": text})));
    }
    json!({
        "requests": outcome.rows.iter().map(|row| row.requests).sum::<u64>(),
        "errors": outcome.rows.iter().map(|row| row.errors).sum::<u64>(),
        "differ": outcome.differences.len(),
        "bounds": all,
    })
}

/// The cost of one call of one server with the library, and its bound.
fn bounds(outcome: &Outcome, server: &str, wait: &str) -> Option<String> {
    let of = |boosted: bool| {
        let wanted = (server, wait, boosted);
        outcome.rows.iter().filter(move |row| (row.server, row.wait, row.boosted) == wanted)
    };
    let (first, last, plain) = (of(true).next()?, of(true).next_back()?, of(false).next_back()?);
    let mut text = format!(
        "on {wait} with {} cold {} times epoll's cost, boosted {} (at most {TO_NATIVE_MAX}: {})",
        number(last.cold),
        digits(plain.to_native.value),
        last.to_native.text(),
        verdict(&last.to_native, TO_NATIVE_MAX)
    );
    if let Some(to_plain) = first.to_plain.as_ref().filter(|_| first.cold == 0) {
        text.push_str(&format!(
            "; with none, boosted {} times plain (at most {TO_PLAIN_MAX}: {})",
            to_plain.text(),
            verdict(to_plain, TO_PLAIN_MAX)
        ));
    }
    Some(text)
}

/// Whether a ratio is within its bound. One round is inconclusive, and so is none.
fn verdict(figure: &Figure, most: f64) -> &'static str {
    match figure.interval {
        None => "one round is inconclusive",
        _ if figure.value <= most => "held",
        Some((low, _)) if low <= most => "inconclusive",
        Some(_) => "NOT held",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_held_missed_or_inconclusive() {
        let of = |values: &[f64]| verdict(&Figure::of(values.iter().copied()), TO_NATIVE_MAX);
        assert_eq!(of(&[1.0, 1.1, 1.05]), "held");
        assert_eq!(of(&[1.0, 1.3, 1.9]), "inconclusive");
        assert_eq!(of(&[1.9, 2.0, 2.1]), "NOT held");
        assert_eq!(of(&[0.9]), "one round is inconclusive");
        assert_eq!(of(&[]), "one round is inconclusive");
    }
}
