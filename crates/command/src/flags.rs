//! How values of flags are read.

use std::time::Duration;

/// A length of time such as `500ms`, `1s`, `2m` or `1h`; a bare number is seconds.
///
/// # Errors
/// A text that is not one, or zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits]
        .parse()
        .map_err(|_| format!("{text:?} is not a time: write 500ms, 10s, 5m or 1h"))?;
    let unit = match &text[digits..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit {unit:?} of time: us, ms, s, m or h")),
    };
    Duration::try_from_secs_f64(number * unit)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("{text:?} is not a length of time above zero"))
}

/// The name of an event notification backend of this machine.
///
/// # Errors
/// An unknown name, with the known ones.
pub fn parse_backend(name: &str) -> Result<readiness::Kind, String> {
    let known: Vec<String> = readiness::Kind::ALL_REAL.iter().map(ToString::to_string).collect();
    match name.parse() {
        Ok(kind) if readiness::Kind::ALL_REAL.contains(&kind) => Ok(kind),
        _ => Err(format!("unknown backend {name:?}: it is one of {}", known.join(", "))),
    }
}
