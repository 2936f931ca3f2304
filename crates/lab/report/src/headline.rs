//! The answer of a report in one sentence, for a reader who knows no statistics.

use crate::analysis::{Analysis, CapacityFigure, KIND_GENERATOR, MODEL_MEASURED, ResourceKind};
use crate::format::three;

/// The answer: "This nginx carries about 68,000 requests/s on one CPU (52,000 to 84,000); it is at
/// 18 % now." Without a capacity, it says why there is none, and what to do.
pub(crate) fn sentence(analysis: &Analysis) -> String {
    let capacity = &analysis.capacity;
    let this = analysis.trial.server.trim_start_matches("the ");
    let Some(value) = capacity.value else {
        let why = capacity.plain.or(capacity.reason.as_deref());
        let why = why.unwrap_or("the data do not show it").trim_end_matches('.');
        return format!("How much this {this} carries is not known: {why}.");
    };
    let carried =
        Carried { value, low: capacity.low, high: capacity.high, seen: capacity.highest_rate };
    let text = carried.text(&on(capacity));
    let why = match (&analysis.answers, capacity.resource) {
        (Some(answers), ResourceKind::Answering) => {
            format!(" The CPU is not the limit: {}.", answers.why())
        }
        _ => match analysis.resources.first().and_then(|limit| limit.takes_turns) {
            Some(language) => format!(
                " Its threads take turns: {language} runs the code of a process on one CPU at a \
                 time."
            ),
            None => String::new(),
        },
    };
    if capacity.model == MODEL_MEASURED {
        return format!("This {this} was saturated: it carries {text}.{why}");
    }
    let state = state(analysis, &carried);
    let limit = match analysis.causes.iter().any(|cause| cause.kind == KIND_GENERATOR) {
        true => ", because the load generator was full, and not the server",
        false => "",
    };
    let doubt = match (capacity.trusted, carried.at_least().is_some()) {
        (_, true) => " How much more it can carry is not known yet.",
        (true, false) => "",
        (false, false) => " This is uncertain: see the warning.",
    };
    format!("This {this} carries {text}; {state}{limit}.{doubt}{why}")
}

/// A capacity with its interval, as every verb says it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// Requests per second.
    pub value: f64,
    /// Lower end of the interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The highest rate that was seen. It was carried.
    pub seen: f64,
}

impl Carried {
    /// What it carries at least, if no more is known.
    #[must_use]
    pub fn at_least(&self) -> Option<f64> {
        regress::capacity::at_least(self.low, self.high, self.seen)
    }

    /// "about 68,000 requests/s on one CPU (52,000 to 84,000)", or if no more is known, "at least
    /// 12,000 requests/s on one CPU". `on` may be empty.
    #[must_use]
    pub fn text(&self, on: &str) -> String {
        let on = if on.is_empty() { String::new() } else { format!(" {on}") };
        match (self.at_least(), self.low.zip(self.high)) {
            (None, Some((low, high))) => {
                let [value, low, high] = [self.value, low, high].map(about);
                format!("about {value} requests/s{on} ({low} to {high})")
            }
            (least, _) => {
                format!("at least {} requests/s{on}", about(least.unwrap_or(self.seen)))
            }
        }
    }
}

/// How near the server is to its capacity.
fn state(analysis: &Analysis, carried: &Carried) -> String {
    let mut known = analysis.intervals.iter().rev().filter(|row| row.standing.is_fitted());
    let highest = analysis.capacity.highest_rate;
    if carried.at_least().is_some() {
        return format!("its highest rate in this recording was {}/s", about(highest));
    }
    let of_capacity = |rate: f64| format!("{:.0} %", 100.0 * rate / carried.value);
    match known.next() {
        Some(now) if !analysis.trial.complete => format!("it is at {} now", of_capacity(now.rate)),
        _ => format!("in this recording it was at {} of that at most", of_capacity(highest)),
    }
}

/// What is full at the capacity.
fn on(capacity: &CapacityFigure) -> String {
    match capacity.resource {
        ResourceKind::HottestThread | ResourceKind::Server if capacity.cap == 1.0 => {
            "on one CPU".to_string()
        }
        ResourceKind::HottestThread | ResourceKind::Server => {
            format!("on {} CPUs", three(capacity.cap))
        }
        ResourceKind::Machine => "on this machine".to_string(),
        ResourceKind::Answering => "until all of its threads are occupied".to_string(),
        _ => format!("until its {} is full", capacity.resource_name),
    }
}

/// Two significant digits, because no capacity is known better.
#[must_use]
pub fn about(value: f64) -> String {
    if value <= 0.0 || !value.is_finite() {
        return three(value);
    }
    let unit = 10_f64.powf(value.log10().floor() - 1.0);
    let rounded = (value / unit).round() * unit;
    if rounded < 10.0 {
        crate::format::fixed(rounded, 1)
    } else {
        crate::format::thousands(rounded)
    }
}

#[cfg(test)]
mod tests {
    use super::{Carried, about};

    #[test]
    fn a_wide_interval_is_no_capacity_but_a_bound() {
        let carried = Carried { value: 27e3, low: Some(8.8e3), high: Some(85e3), seen: 400.0 };
        assert_eq!(carried.text("on one CPU"), "at least 8,800 requests/s on one CPU");
        let narrow = Carried { low: Some(21e3), high: Some(33e3), ..carried };
        assert_eq!(narrow.text(""), "about 27,000 requests/s (21,000 to 33,000)");
        let unbounded = Carried { high: None, seen: 12e3, ..carried };
        assert_eq!(unbounded.text(""), "at least 12,000 requests/s");
    }

    #[test]
    fn two_digits_are_kept() {
        assert_eq!(
            [68_040.0, 995.0, 83.4, 1.26, 0.0].map(about),
            ["68,000", "1,000", "83", "1.3", "0"]
        );
    }
}
