//! Numbers the events, and leaves out of each what has not changed.

use serde::Serialize;

use crate::snapshot::Snapshot;

/// Samples that a page shows, and that a new page gets.
pub const SAMPLES_MAX: usize = 600;

/// A comment that shows that the connection lives.
pub const HEARTBEAT: &str = ": alive\n\n";

/// The first line of a connection: when to connect again if it breaks, milliseconds.
pub const RETRY: &str = "retry: 1000\n\n";

/// The newest snapshot, and its difference to the one before.
#[derive(Debug, Default)]
pub struct Feed {
    number: u64,
    newest: Snapshot,
    change: String,
}

#[derive(Serialize)]
struct Whole<'s> {
    whole: bool,
    #[serde(flatten)]
    snapshot: &'s Snapshot,
}

impl Feed {
    /// The number of the newest snapshot; 0 before the first one.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The newest snapshot, with all its samples.
    #[must_use]
    pub fn newest(&self) -> &Snapshot {
        &self.newest
    }

    /// Adds a snapshot. Of its samples, those that are newer than all before are added to them. If
    /// the clock was set back, the samples before that are dropped.
    pub fn push(&mut self, mut next: Snapshot) {
        let mut change = Snapshot::default();
        if let Some(at) = next.samples.windows(2).rposition(|pair| pair[1].t < pair[0].t) {
            next.samples.drain(..=at);
        }
        let mut last = self.newest.samples.last().map_or(f64::NEG_INFINITY, |sample| sample.t);
        let is_back = next.samples.last().is_some_and(|sample| sample.t < last);
        if is_back {
            self.newest.samples.clear();
            last = f64::NEG_INFINITY;
        }
        change.samples = next.samples.into_iter().filter(|sample| sample.t > last).collect();
        self.newest.samples.extend_from_slice(&change.samples);
        let surplus = self.newest.samples.len().saturating_sub(SAMPLES_MAX);
        self.newest.samples.drain(..surplus);
        macro_rules! part {
            ($($part:ident)*) => {
                $(if next.$part.is_some() && next.$part != self.newest.$part {
                    change.$part.clone_from(&next.$part);
                    self.newest.$part = next.$part;
                })*
            };
        }
        part! { source now capacity line memory costs urls upstreams fleet }
        self.number += 1;
        self.change = match is_back {
            true => self.event(true, &self.newest),
            false => self.event(false, &change),
        };
    }

    /// The event for a page that has seen this number last; `None` if there is nothing new.
    #[must_use]
    pub fn event_after(&self, seen: Option<u64>) -> Option<String> {
        match seen {
            Some(seen) if seen == self.number => None,
            Some(seen) if seen + 1 == self.number => Some(self.change.clone()),
            _ => (self.number > 0).then(|| self.event(true, &self.newest)),
        }
    }

    fn event(&self, whole: bool, snapshot: &Snapshot) -> String {
        // This fails only for maps whose keys are no strings, and there is none.
        let data = serde_json::to_string(&Whole { whole, snapshot }).unwrap_or_default();
        format!("id: {}\nevent: snapshot\ndata: {data}\n\n", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Now, Sample, Source, Url, Urls};

    fn at(t: f64, rate: f64) -> Snapshot {
        let sample = Sample { t, rate: Some(rate), ..Sample::default() };
        let now = Now { rate: Some(rate), seconds: 1.0 };
        let source = Source { kind: "server", name: "s".to_owned(), ..Source::default() };
        Snapshot {
            now: Some(now),
            samples: vec![sample],
            source: Some(source),
            ..Default::default()
        }
    }

    fn data(event: &str) -> serde_json::Value {
        let data = event.lines().find_map(|line| line.strip_prefix("data: ")).expect("has data");
        serde_json::from_str(data).expect("is JSON")
    }

    #[test]
    fn an_event_has_what_is_new_to_its_reader() {
        let mut feed = Feed::default();
        assert_eq!(feed.event_after(None), None);
        feed.push(at(1.0, 10.0));
        feed.push(at(2.0, 20.0));
        assert_eq!(feed.event_after(Some(2)), None);
        let change = feed.event_after(Some(1)).expect("it is behind");
        assert!(change.starts_with("id: 2\nevent: snapshot\ndata: {\"whole\":false,"), "{change}");
        assert!(change.ends_with("}\n\n"));
        let change = data(&change);
        assert_eq!(
            (&change["source"], &change["now"]["rate"]),
            (&serde_json::Value::Null, &20.0.into())
        );
        assert_eq!(change["samples"].as_array().map(Vec::len), Some(1));
        // A page that is new, one that is far behind, and one of another process.
        for seen in [None, Some(0), Some(77)] {
            let whole = data(&feed.event_after(seen).expect("there are events"));
            assert_eq!((&whole["whole"], &whole["source"]["name"]), (&true.into(), &"s".into()));
            assert_eq!(whole["samples"].as_array().map(Vec::len), Some(2));
        }
    }

    #[test]
    fn samples_are_bounded_and_never_repeated() {
        let mut feed = Feed::default();
        for t in 0..2 * SAMPLES_MAX {
            feed.push(at(t as f64, 1.0));
            feed.push(at(t as f64, 1.0));
        }
        let times: Vec<f64> = feed.newest().samples.iter().map(|sample| sample.t).collect();
        assert_eq!(times, (SAMPLES_MAX..2 * SAMPLES_MAX).map(|t| t as f64).collect::<Vec<_>>());
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_freeze_the_charts() {
        let mut feed = Feed::default();
        for t in [8.0, 9.0] {
            feed.push(at(t, 1.0));
        }
        let samples = [8.0, 9.0, 2.0].map(|t| Sample { t, ..Sample::default() });
        feed.push(Snapshot { samples: samples.to_vec(), ..at(0.0, 1.0) });
        let times = |feed: &Feed| feed.newest().samples.iter().map(|s| s.t).collect::<Vec<_>>();
        assert_eq!(times(&feed), [2.0]);
        assert_eq!(data(&feed.event_after(Some(2)).expect("it is behind"))["whole"], true);
        feed.push(at(3.0, 1.0));
        assert_eq!(times(&feed), [2.0, 3.0]);
        assert_eq!(data(&feed.event_after(Some(3)).expect("it is behind"))["whole"], false);
    }

    #[test]
    fn text_of_clients_does_not_break_an_event() {
        let mut feed = Feed::default();
        let url = Url { url: "/a\n\ndata: {}\r\u{2028}</script>".to_owned(), ..Url::default() };
        let urls = Urls { top: vec![url.clone()], ..Urls::default() };
        feed.push(Snapshot { urls: Some(urls), ..Snapshot::default() });
        let event = feed.event_after(None).expect("there is one");
        assert_eq!(event.lines().count(), 4, "{event}");
        assert_eq!(data(&event)["urls"]["top"][0]["url"], url.url);
    }
}
