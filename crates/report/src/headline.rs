//! The answer of a report in one sentence, for a reader who knows no statistics.

use crate::analysis::{Analysis, CapacityFigure, MODEL_MEASURED, ResourceKind};
use crate::format::three;

/// The answer: "This nginx carries about 68,000 requests/s on one CPU (52,000 to 84,000); it is at
/// 18 % now." Without a capacity, it says why there is none, and what to do.
pub(crate) fn sentence(analysis: &Analysis) -> String {
    let capacity = &analysis.capacity;
    let server = &analysis.trial.server;
    let this = server.trim_start_matches("the ");
    let Some(value) = capacity.value else {
        let why = capacity.reason.as_deref().unwrap_or("the data do not show it");
        let why = why.strip_prefix("not identifiable: ").unwrap_or(why);
        return format!("How much this {this} carries is not known: {why}.");
    };
    let range = match capacity.low.zip(capacity.high) {
        Some((low, high)) => format!(" ({} to {})", about(low), about(high)),
        None => " (how exactly is not known)".to_string(),
    };
    let resource = on(capacity);
    let state = state(analysis, value);
    let doubt = if capacity.trusted { "" } else { " This is uncertain: see the warning." };
    format!(
        "This {this} carries about {} requests/s {resource}{range}; {state}.{doubt}",
        about(value)
    )
}

/// How near the server is to its capacity.
fn state(analysis: &Analysis, capacity: f64) -> String {
    if analysis.capacity.model == MODEL_MEASURED {
        return "it was that busy in this recording".to_string();
    }
    let mut known = analysis.intervals.iter().rev().filter(|row| row.standing.is_fitted());
    let of_capacity = |rate: f64| format!("{:.0} %", 100.0 * rate / capacity);
    match known.next() {
        Some(now) if !analysis.trial.complete => format!("it is at {} now", of_capacity(now.rate)),
        _ => format!(
            "in this recording it was at {} of that at most",
            of_capacity(analysis.capacity.highest_rate)
        ),
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
        _ => format!("until its {} is full", capacity.resource_name),
    }
}

/// Two significant digits, because no capacity is known better.
pub(crate) fn about(value: f64) -> String {
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
    use super::about;

    #[test]
    fn two_digits_are_kept() {
        assert_eq!(
            [68_040.0, 995.0, 83.4, 1.26, 0.0].map(about),
            ["68,000", "1,000", "83", "1.3", "0"]
        );
    }
}
