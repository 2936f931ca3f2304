//! `plimsoll purge`: removes stored responses from a running server.

use command::failure::Failure;
use command::output;
use serde_json::Value;

use crate::admin;
use crate::cli;

/// Asks a running server to purge, and prints what it did.
pub(crate) fn purge(flags: &cli::Purge) -> Result<(), Failure> {
    let mut query = Vec::new();
    for (name, value) in [("url", &flags.url), ("prefix", &flags.prefix), ("tag", &flags.tag)] {
        query.extend(value.iter().map(|value| (name, value.as_str())));
    }
    for (name, given) in [("all", flags.all), ("soft", flags.soft)] {
        query.extend(given.then_some((name, "true")));
    }
    let answer = admin::call(flags.call.admin, "POST", "/purge", &query)?;
    output::show(flags.call.json, &answer, |answer| {
        let done = if flags.soft { "marked stale" } else { "purged" };
        format!("{done}: {}{}\n", purged(&answer["purged"]), responses(answer))
    })?;
    match waiting(&answer)[..] {
        [] => Ok(()),
        ref members => Err(Failure::CheckFailed(format!(
            "not acknowledged by {}: it is sent there again until it is, unless this server is \
             restarted",
            members.join(", ")
        ))),
    }
}

/// How many responses the purge concerned, in words.
fn responses(answer: &Value) -> String {
    let Some(count) = answer["responses"].as_u64() else {
        return " (too many responses to count)".to_owned();
    };
    let noun = if count == 1 { "response" } else { "responses" };
    let by_member = answer["cluster"]["responses"].as_object();
    let of_member = |(name, count): (&String, &Value)| format!(", {count} by {name}");
    let others: String = by_member.into_iter().flatten().map(of_member).collect();
    format!(" ({count} {noun}{others})")
}

/// The members of a cluster that have not purged.
fn waiting(answer: &Value) -> Vec<&str> {
    let members = answer["cluster"]["waiting"].as_array();
    members.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What was purged, in words.
fn purged(purged: &Value) -> String {
    let Value::Object(purged) = purged else { return "everything".to_owned() };
    let each = purged.iter().map(|(by, value)| match value {
        Value::Array(all) => {
            let all: Vec<_> = all.iter().filter_map(Value::as_str).collect();
            format!("{by} {}", all.join(" "))
        }
        one => format!("{by} {}", one.as_str().unwrap_or_default()),
    });
    each.collect::<Vec<_>>().join(", ")
}
