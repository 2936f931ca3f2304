//! What the page shows in addition to the rows: the published shares next to ours, and ratios of
//! misses.

use runqueue::cache::Machine;
use serde_json::{Value, json};

use super::{Outcome, Simulated, Strategy};
use crate::found::row_with;
use crate::published::{Facts, SQUID};
use crate::show::{NONE, number, with_interval};

/// The procedure in the papers.
const PROCEDURE: &str = "comm_select";
/// The server before the fix.
const UNFIXED: &str = "Squid 1.1.20";

/// Results for the page.
pub(crate) fn for_page(outcome: &Outcome) -> Value {
    let timed = outcome.timed.iter().map(|row| {
        let panel = format!("{} descriptors, {}", number(row.descriptors), row.backend);
        let us = row.dispatch_us.value + row.wait_us.value + row.rest_us.value;
        let name = row.strategy.label();
        row_with(row, [("name", name.into()), ("panel", panel.into()), ("us", us.into())])
    });
    let simulated = outcome.simulated.iter().map(|row| {
        let panel = format!("{} descriptors, {}", number(row.descriptors), row.machine);
        let [dispatch, rest] = row.per_request();
        let ratio = to_tokens(outcome, row);
        let more = [
            ("name", row.strategy.label().into()),
            ("panel", panel.into()),
            ("each", json!([dispatch, rest, ratio])),
        ];
        row_with(row, more)
    });
    json!({
        "timed": timed.collect::<Vec<_>>(),
        "simulated": simulated.collect::<Vec<_>>(),
        "caches": outcome.machines.iter().map(Machine::text).collect::<Vec<_>>(),
        "shares": shares(outcome),
    })
}

/// Misses of everything but the dispatch, relative to those with tokens, by level.
fn to_tokens(outcome: &Outcome, found: &Simulated) -> (f64, f64) {
    let same = |other: &&Simulated| {
        other.strategy == Strategy::Tokens
            && (&other.machine, other.descriptors, other.ready)
                == (&found.machine, found.descriptors, found.ready)
    };
    let [_, rest] = found.per_request();
    outcome.simulated.iter().find(same).map_or((f64::NAN, f64::NAN), |tokens| {
        let [_, base] = tokens.per_request();
        (rest.0 / base.0, rest.1 / base.1)
    })
}

/// The procedure's part of the CPU time: published, and here.
fn shares(outcome: &Outcome) -> Vec<[String; 4]> {
    let facts = Facts::read();
    let published = [
        ("Squid 1.1.20, new kernel", UNFIXED, "new", Strategy::Walk),
        ("1.1.20Mod, new kernel", SQUID, "new", Strategy::Bitmaps),
        ("1.1.20Mod, old kernel", SQUID, "old", Strategy::Bitmaps),
    ];
    let published = published.into_iter().filter_map(|(name, server, kernel, strategy)| {
        let profile = facts.profile(server, kernel)?;
        let (rate, part) = (profile.rate_mean, profile.percent_busy(PROCEDURE)?);
        let text = format!("{part:.2} % at {rate:.0} requests/s");
        Some([strategy.label().to_owned(), name.to_owned(), NONE.to_owned(), text])
    });
    let here = outcome.timed.iter().map(|timed| {
        [
            timed.strategy.label().to_owned(),
            format!("here, {}, {} open", timed.backend, number(timed.descriptors)),
            timed.ready.to_string(),
            with_interval(&timed.share, |part| format!("{:.2} %", 100.0 * part)),
        ]
    });
    published.chain(here).collect()
}
