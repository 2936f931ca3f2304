//! What the page shows in addition to the rows: the published results next to ours, and the calls
//! with the most workers.

use harness::rounds::digits;
use serde_json::{Value, json};

use super::judge::Part;
use super::{Load, Outcome, Row, Sharing};
use crate::found::{row_with, value};
use crate::published::{Facts, NETCACHE, SQUID};
use crate::show::NONE;

/// The group of procedures in the papers.
const SELECT: &str = "all select functions";

/// Results for the page.
pub(crate) fn for_page(outcome: &Outcome) -> Value {
    let facts = Facts::read();
    let most = outcome.rows.iter().map(|row| row.workers).max();
    let measuring = outcome.rows.iter().map(|row| row.measuring).fold(0.0, f64::max);
    let named = |row: &Row| {
        // A call that was not made has no cost.
        let call = |one: &super::CallCost| value(&(one.per_event > 0.0).then_some(one));
        let calls: Vec<Value> = row.calls.iter().map(call).collect();
        let costs = [&calls[..], &[json!({"us": row.rest_us})]].concat();
        let words = [
            ("shared", row.sharing.label().into()),
            ("short", row.load.short().into()),
            ("vain_percent", spread(&row.vain).into()),
            ("vain_share", (100.0 * row.vain.mean).into()),
        ];
        row_with(&row_with(row, words), [("calls", calls.into()), ("costs", costs.into())])
    };
    let of_most = outcome.rows.iter().filter(|row| Some(row.workers) == most);
    let calls = ["wait", "epoll_ctl", "accept", "read", "write", "the rest"];
    json!({
        "rows": outcome.rows.iter().map(named).collect::<Vec<_>>(),
        "most": of_most.map(named).collect::<Vec<_>>(),
        "most_workers": most,
        "measuring_percent": 100.0 * measuring,
        "call_names": calls[..5],
        "cost_names": calls,
        "times_as_often": called_more(outcome, &facts),
        "wait_parts": wait_parts(outcome, &facts, most),
    })
}

fn spread(part: &Part) -> String {
    format!("{:.1} ({:.1} to {:.1})", 100.0 * part.mean, 100.0 * part.least, 100.0 * part.most)
}

/// How much more often a fast wait is called than a slow one, published and here.
fn called_more(outcome: &Outcome, facts: &Facts) -> Vec<[String; 7]> {
    let published = facts.netcache_profile.select_calls_new_over_old;
    let mut rows = vec![[(); 7].map(|()| NONE.to_owned())];
    rows[0][0] = format!("{NETCACHE} (1998)");
    rows[0][2] = format!("about {published:.0}");
    rows.extend(outcome.called_more.iter().map(|more| {
        [
            more.load.label().to_owned(),
            more.workers.to_string(),
            more.ratio.text(),
            digits(more.wait_us.0),
            digits(more.wait_us.1),
            digits(more.reported.0.value),
            digits(more.reported.1.value),
        ]
    }));
    rows
}

/// The part of the CPU time that waits take, published and here.
fn wait_parts(outcome: &Outcome, facts: &Facts, most: Option<u32>) -> Vec<Vec<String>> {
    let netcache = &facts.netcache_profile;
    let squid = |kernel: &str| {
        let part = facts.profile(SQUID, kernel).and_then(|profile| profile.percent_busy(SELECT));
        part.map_or(NONE.to_owned(), |part| format!("{part:.2} %"))
    };
    let row = |server: &str, select: &str, part: String| {
        vec![format!("{server}, {select} select()"), NONE.to_owned(), part]
    };
    let (one_process, threads) = (format!("{SQUID}, one process"), format!("{NETCACHE}, threads"));
    let mut rows = vec![
        row(&one_process, "old", squid("old")),
        row(&one_process, "new", squid("new")),
        row(&threads, "old", format!("{} %", netcache.select_old_kernel)),
        row(&threads, "new", format!("{} %", netcache.select_new_kernel)),
    ];
    let ends = [outcome.rows.iter().map(|row| row.workers).min(), most];
    for sharing in Sharing::ALL {
        let wanted = |row: &&Row| {
            row.sharing == sharing && row.load == Load::Kept && ends.contains(&Some(row.workers))
        };
        rows.extend(outcome.rows.iter().filter(wanted).map(|row| {
            let text = format!("{} %", spread(&row.wait_part));
            vec![format!("here, {}", sharing.label()), row.workers.to_string(), text]
        }));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Page;

    #[test]
    fn all_ways_of_sharing_look_different_and_their_names_fit_the_legend() {
        let page = Page::read(page!(herd));
        for (at, one) in Sharing::ALL.iter().enumerate() {
            for other in &Sharing::ALL[at + 1..] {
                assert_ne!(one.label(), other.label());
            }
        }
        for looks in page.looks.values() {
            assert_eq!(looks.len(), Sharing::ALL.len() - 1);
            for (at, one) in looks.iter().enumerate() {
                assert!(one.1.chars().count() <= 16, "{one:?}");
                for other in &looks[at + 1..] {
                    assert_ne!((one.2, one.3), (other.2, other.3), "{one:?} {other:?}");
                }
            }
        }
    }

    #[test]
    fn a_part_is_shown_with_its_least_and_most() {
        let part = Part { mean: 0.5, least: 0.0, most: 1.0 };
        assert_eq!(spread(&part), "50.0 (0.0 to 100.0)");
    }
}
