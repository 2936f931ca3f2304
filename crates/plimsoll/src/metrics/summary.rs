//! What `plimsoll metrics` shows first: how much the server can carry, and the few numbers that an
//! operator wants.
//!
//! The load line comes from the server itself, through the events that feed its page, so that both
//! say the same. The server fits it only while somebody watches, which takes it two seconds.

use std::net::SocketAddr;
use std::time::Duration;

use ::report::Carried;
use ::report::format::{bytes, duration, percent, rate, thousands};
use serde_json::Value;

use super::Sample;
use crate::admin;

/// The server has fitted its line by then, if it has been up for long enough.
const PATIENCE: Duration = Duration::from_millis(2_500);
/// From this use on, a core is nearly full.
const BUSY: f64 = 0.9;
/// So many descriptors of those that the process may have are nearly all.
const DESCRIPTORS: f64 = 0.9;

/// What the server says of its load line; both parts are null if it says nothing.
#[derive(Default)]
pub(super) struct LoadLine {
    now: Value,
    capacity: Value,
}

impl LoadLine {
    /// Asks the server. It may refuse (its page may need a token): then nothing is known.
    pub(super) fn ask(admin: SocketAddr) -> LoadLine {
        let mut found = LoadLine::default();
        admin::events(admin, PATIENCE, |mut event| {
            for (part, name) in [(&mut found.now, "now"), (&mut found.capacity, "capacity")] {
                if let Some(value) = event.get_mut(name).filter(|value| !value.is_null()) {
                    *part = value.take();
                }
            }
            found.capacity["fitted"].as_u64() == Some(0)
        });
        found
    }

    /// The load line in a sentence.
    fn sentence(&self) -> String {
        let number = |name| self.capacity.get(name).and_then(Value::as_f64);
        let text = |name| self.capacity.get(name).and_then(Value::as_str);
        let now = self.now.get("rate").and_then(Value::as_f64);
        let has_now = now.map_or_else(String::new, |now| format!(" It has {}/s now.", rate(now)));
        let Some(value) = number("value") else {
            let why = text("plain")
                .or(text("remark"))
                .unwrap_or("its page (/dashboard) knows the load line, and may not be read.");
            let why = why.trim_end_matches('.');
            return format!("How much this server can carry is not known: {why}.{has_now}");
        };
        let (low, high) = (number("low"), number("high"));
        let at_least = number("at_least");
        let carries = Carried { value, low, high, seen: at_least.unwrap_or(0.0) }.text("");
        if at_least.is_some() {
            return format!(
                "This server carries {carries}.{has_now} How much more it can carry becomes known \
                 when the load rises."
            );
        }
        let state = match now {
            Some(now) => format!("; it is at {:.0} % now ({}/s)", 100.0 * now / value, rate(now)),
            None => String::new(),
        };
        let doubt = match text("plain").is_some() {
            true => " This is uncertain: the true capacity may lie outside this range.",
            false => "",
        };
        format!("This server carries {carries}{state}.{doubt}")
    }
}

/// The summary: a sentence, and labelled lines.
pub(super) fn lines(
    line: &LoadLine,
    samples: &[Sample],
    now_s: f64,
) -> Vec<(&'static str, String)> {
    let all = Values(samples);
    vec![
        ("", line.sentence()),
        ("Limit", all.limits()),
        ("Requests", all.requests(now_s)),
        ("Errors", all.errors()),
        ("Store", all.store()),
        ("Clients", all.clients()),
    ]
}

struct Values<'s>(&'s [Sample]);

impl<'s> Values<'s> {
    /// The samples of a metric; its name has no prefix.
    fn each(&self, name: &str) -> impl Iterator<Item = &'s Sample> {
        self.0.iter().filter(move |sample| sample.name.strip_prefix("plimsoll_") == Some(name))
    }

    /// Their sum; zero if there is none.
    fn sum(&self, name: &str) -> f64 {
        self.each(name).map(|sample| sample.value).sum()
    }

    fn requests(&self, now_s: f64) -> String {
        let requests = self.sum("requests_total");
        let up = (now_s - self.sum("start_time_seconds")).max(0.0);
        let mut text = format!("{} in {}", thousands(requests), duration(up));
        if requests == 0.0 {
            return text;
        }
        for (name, what) in [
            ("hits_total", "answered from the store"),
            ("misses_total", "fetched"),
            ("passed_total", "passed through"),
        ] {
            let share = percent(100.0 * self.sum(name) / requests);
            text += &format!(", {share} % {what}");
        }
        text
    }

    fn errors(&self) -> String {
        let requests = self.sum("requests_total");
        let counted = |name: &str, what: &str| {
            let count = self.sum(name);
            (count > 0.0).then(|| {
                let share = match requests > 0.0 {
                    true => format!(" ({} %)", percent(100.0 * count / requests)),
                    false => String::new(),
                };
                format!("{}{share} {what}", thousands(count))
            })
        };
        let mut found: Vec<String> = [
            counted("upstream_errors_total", "because of the upstream"),
            counted("client_errors_total", "malformed requests"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let refused = self.each("refusals_total").max_by(|a, b| a.value.total_cmp(&b.value));
        if let Some(most) = refused.filter(|most| most.value > 0.0) {
            let all = thousands(self.sum("refusals_total"));
            found.push(format!("{all} refused in all, most by {}", most.labels));
        }
        let down = self.each("upstream_server_up").filter(|server| server.value == 0.0);
        found.extend(down.map(|server| format!("down: {}", server.labels)));
        joined_or(found, "none")
    }

    /// What is exhausted, or has been.
    fn limits(&self) -> String {
        let cores: Vec<f64> = self.each("core_busy_ratio").map(|core| core.value).collect();
        let busiest = cores.iter().copied().fold(0.0, f64::max);
        let full = cores.iter().filter(|busy| **busy >= BUSY).count();
        let mut found = Vec::new();
        if full > 0 {
            found.push(format!("{full} of {} cores nearly full", cores.len()));
        }
        if self.sum("core_shed_ratio") > 0.0 {
            found.push("requests are answered with 503 because of overload".to_owned());
        }
        let max = self.sum("process_descriptors_max");
        if max > 0.0 && self.sum("process_descriptors") >= DESCRIPTORS * max {
            found.push(format!("nearly all of {} descriptors are open", thousands(max)));
        }
        if self.each("disk_up").any(|disk| disk.value == 0.0) {
            found.push("the disk is off after failures".to_owned());
        }
        for (name, what) in [
            ("connections_refused_total", "connections refused for want of room"),
            ("connections_shed_total", "connections closed because of overload"),
            ("connections_closed_for_room_total", "silent connections closed for want of room"),
            ("upstream_queue_full_total", "requests refused by a full queue for an upstream"),
            ("memory_shrinks_total", "times the store shrank for want of memory"),
            ("log_lines_lost_total", "log lines lost"),
        ] {
            let count = self.sum(name);
            if count > 0.0 {
                found.push(format!("{} {what} so far", thousands(count)));
            }
        }
        let busy = format!("the busiest core is {:.0} % busy", 100.0 * busiest);
        match found.is_empty() {
            true => format!("nothing is exhausted; {busy}"),
            false => format!("{}; {busy}", found.join("; ")),
        }
    }

    fn store(&self) -> String {
        let [used, max] = ["store_bytes", "store_bytes_max"].map(|name| self.sum(name).max(0.0));
        let mut text = format!(
            "objects: {}, {} of {} in memory",
            thousands(self.sum("store_objects")),
            bytes(used as u64),
            bytes(max as u64)
        );
        let on_disk = self.sum("disk_objects");
        if on_disk > 0.0 {
            text += &format!("; {} on the disk", thousands(on_disk));
        }
        text
    }

    fn clients(&self) -> String {
        format!(
            "{} connections open, {} of them busy; {} accepted",
            thousands(self.sum("connections_open")),
            thousands(self.sum("connections_busy")),
            thousands(self.sum("connections_accepted_total"))
        )
    }
}

fn joined_or(parts: Vec<String>, none: &str) -> String {
    if parts.is_empty() { none.to_owned() } else { parts.join("; ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(name: &str, labels: &str, value: f64) -> Sample {
        let name = format!("plimsoll_{name}");
        Sample { name, labels: labels.to_owned(), value, help: "" }
    }

    #[test]
    fn the_sentence_is_the_load_line() {
        let mut line = LoadLine {
            now: json!({"rate": 4_700.0}),
            capacity: json!({"value": 40_000.0, "low": 30_000.0, "high": 50_000.0, "plain": null}),
        };
        assert_eq!(
            line.sentence(),
            "This server carries about 40,000 requests/s (30,000 to 50,000); it is at 12 % now \
             (4,700/s)."
        );
        line.capacity = json!({
            "value": 40_000.0, "low": 9_000.0, "high": 90_000.0, "at_least": 11_000.0,
        });
        assert_eq!(
            line.sentence(),
            "This server carries at least 11,000 requests/s. It has 4,700/s now. How much more it \
             can carry becomes known when the load rises."
        );
        line.capacity = json!({"value": null, "plain": "the load has not varied enough."});
        assert_eq!(
            line.sentence(),
            "How much this server can carry is not known: the load has not varied enough. It has \
             4,700/s now."
        );
        let silent = LoadLine::default().sentence();
        assert!(silent.starts_with("How much this server can carry is not known"), "{silent}");
    }

    #[test]
    fn errors_and_limits_are_named_only_if_there_are_any() {
        let mut samples = vec![
            sample("requests_total", "", 1_000.0),
            sample("hits_total", "", 610.0),
            sample("start_time_seconds", "", 100.0),
            sample("core_busy_ratio", "core=\"0\"", 0.42),
        ];
        let text = |samples: &[Sample], label| {
            let lines = lines(&LoadLine::default(), samples, 160.0);
            lines.into_iter().find(|(name, _)| *name == label).unwrap().1
        };
        assert!(text(&samples, "Requests").starts_with("1,000 in 60 s, 61.0 % answered from"));
        assert_eq!(text(&samples, "Errors"), "none");
        assert_eq!(text(&samples, "Limit"), "nothing is exhausted; the busiest core is 42 % busy");
        samples.extend([
            sample("upstream_errors_total", "", 20.0),
            sample("refusals_total", "rule=\"host\"", 7.0),
            sample("refusals_total", "rule=\"path\"", 2.0),
            sample("upstream_server_up", "group=\"a\",server=\"b\"", 0.0),
            sample("core_busy_ratio", "core=\"1\"", 0.97),
            sample("connections_refused_total", "", 3.0),
        ]);
        let errors = text(&samples, "Errors");
        for part in ["20 (2.0 %) because", "9 refused in all, most by rule=\"host\"", "down: group"]
        {
            assert!(errors.contains(part), "{part}: {errors}");
        }
        let limit = text(&samples, "Limit");
        for part in ["1 of 2 cores nearly full", "3 connections refused", "97 % busy"] {
            assert!(limit.contains(part), "{part}: {limit}");
        }
    }
}
