//! `plimsoll purge`

use command::failure::Failure;
use command::output;

use crate::admin;
use crate::cli;

/// Has a running server purge, and says what it did.
pub(crate) fn purge(flags: &cli::Purge) -> Result<(), Failure> {
    let mut query = Vec::new();
    for (name, value) in [("url", &flags.url), ("prefix", &flags.prefix), ("tag", &flags.tag)] {
        if let Some(value) = value {
            query.push((name, value.as_str()));
        }
    }
    if flags.all {
        query.push(("all", "true"));
    }
    if flags.soft {
        query.push(("soft", "true"));
    }
    let answer = admin::call(flags.admin, "POST", "/purge", &query)?;
    if flags.json {
        return output::print_json(&answer);
    }
    let what = match &answer["purged"] {
        serde_json::Value::Object(purged) => {
            let of = purged.iter().map(|(by, of)| match of {
                serde_json::Value::Array(all) => {
                    let all: Vec<_> = all.iter().filter_map(|one| one.as_str()).collect();
                    format!("{by} {}", all.join(" "))
                }
                one => format!("{by} {}", one.as_str().unwrap_or_default()),
            });
            of.collect::<Vec<_>>().join(", ")
        }
        _ => "everything".to_owned(),
    };
    let how = if flags.soft { "marked stale" } else { "purged" };
    output::print(format!("{how}: {what}\n"))
}
