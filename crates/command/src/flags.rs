//! Parsers for flag values.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Parses a duration such as `500ms`, `1s`, `2m` or `1h`; a bare number is in seconds.
///
/// # Errors
/// The text is not a duration, or it is zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits]
        .parse()
        .map_err(|_| format!("{text:?} is not a duration: write 500ms, 10s, 5m or 1h"))?;
    let unit = match &text[digits..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("unknown unit {unit:?}: use us, ms, s, m or h")),
    };
    Duration::try_from_secs_f64(number * unit)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("{text:?} is not a duration above zero"))
}

/// A parser for durations within bounds.
pub fn duration_within(
    bounds: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let duration = parse_duration(text)?;
        match bounds.contains(&duration) {
            true => Ok(duration),
            false => Err(format!("must be between {:?} and {:?}", bounds.start(), bounds.end())),
        }
    }
}

/// A parser for numbers within bounds, for types that clap has no ranges for.
pub fn number_within<T: FromStr + PartialOrd + Display + Clone>(
    bounds: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| match text.parse() {
        Ok(number) if bounds.contains(&number) => Ok(number),
        _ => Err(format!("must be a number from {} to {}", bounds.start(), bounds.end())),
    }
}

/// Parses a number of bytes such as `1024`, `64K`, `256M` or `2G`; units are powers of 1024.
///
/// # Errors
/// The text is not a number of bytes, or it does not fit into 64 bits.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits]
        .parse()
        .map_err(|_| format!("{text:?} is not a number of bytes: write 65536, 64K, 256M or 2G"))?;
    let shift = match &text[digits..] {
        "" | "B" => 0,
        "K" | "k" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        unit => return Err(format!("unknown unit {unit:?}: use K, M or G")),
    };
    number.checked_shl(shift).filter(|n| n >> shift == number).ok_or(format!("{text} is too large"))
}

/// Parses the name of an event notification backend of this platform.
///
/// # Errors
/// The name is unknown; the text lists the known names.
pub fn parse_backend(name: &str) -> Result<readiness::Kind, String> {
    let known: Vec<String> = readiness::Kind::ALL_REAL.iter().map(ToString::to_string).collect();
    match name.parse() {
        Ok(kind) if readiness::Kind::ALL_REAL.contains(&kind) => Ok(kind),
        _ => Err(format!("unknown backend {name:?}: use one of {}", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_bytes_are_parsed() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "0s", "s", "5d", "-1s", "1e999s", "99999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(parse_bytes("2G"), Ok(2 << 30));
        for wrong in ["", "K", "1T", "-1", "99999999999G", "18446744073709551616"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn bounds_belong_to_the_range() {
        let visit = duration_within(Duration::from_millis(250)..=Duration::from_secs(600));
        assert_eq!(visit("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["249ms", "11m", "x"] {
            assert!(visit(wrong).is_err(), "{wrong:?}");
        }
        let seconds = number_within(0.01..=60.0);
        assert_eq!(seconds("0.3"), Ok(0.3));
        for wrong in ["0", "-1", "61", "NaN", "1s", ""] {
            assert!(seconds(wrong).is_err(), "{wrong:?}");
        }
    }
}
