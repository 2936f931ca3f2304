//! Lengths of time and numbers of bytes, as flags and configuration files write them: a number and
//! a unit. [`civil`] has the calendar.

#![forbid(unsafe_code)]

pub mod civil;

use std::time::Duration;

/// Units of time that are accepted, with their seconds.
const TIMES: [(&str, f64); 7] = [
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
];
/// Units of time that are written, the largest first, with their milliseconds. Days read worse than
/// hours.
const TIMES_SHOWN: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Units of bytes, the largest first, with their power of two.
const SIZES: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

/// Parses `250ms`, `30s`, `5m`, `2h` or `1d`, with or without a fraction.
///
/// # Errors
/// One line: why it is not a length of time, and how to write one.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wanted = "write it as \"250ms\", \"30s\", \"5m\", \"2h\" or \"1d\"";
    let (number, unit) = number_and_unit(text);
    let Ok(number) = number.parse::<f64>() else {
        return Err(format!("\"{text}\" is not a length of time: {wanted}"));
    };
    if unit.is_empty() {
        return Err(format!("\"{text}\" has no unit: {wanted}"));
    }
    let Some((_, unit_s)) = TIMES.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("\"{unit}\" is not a unit of time: {wanted}"));
    };
    let seconds = number * unit_s;
    let fits = seconds <= f64::from(u32::MAX);
    let duration = fits.then(|| Duration::try_from_secs_f64(seconds).ok()).flatten();
    duration.ok_or_else(|| format!("\"{text}\" is too long"))
}

/// The shortest way to write a length of time, in whole milliseconds.
#[must_use]
pub fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis() as u64;
    if ms == 0 {
        return "0s".to_owned();
    }
    let fits = TIMES_SHOWN.iter().find(|(_, unit_ms)| ms.is_multiple_of(*unit_ms));
    fits.map_or_else(|| format!("{ms}ms"), |(unit, unit_ms)| format!("{}{unit}", ms / unit_ms))
}

/// Parses `65536`, `64K`, `64KiB`, `256M` or `2GiB`; units are powers of 1024.
///
/// # Errors
/// One line: why it is not a number of bytes, and how to write one.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wanted = "write it as \"64KiB\", \"256MiB\" or \"2GiB\"";
    let (number, unit) = number_and_unit(text);
    let Ok(number) = number.parse::<f64>() else {
        return Err(format!("\"{text}\" is not a number of bytes: {wanted}"));
    };
    let shift = match unit {
        "" | "B" => 0,
        _ => {
            let known = SIZES.iter().find(|(name, _)| {
                unit == *name || (unit.len() == 1 && name[..1].eq_ignore_ascii_case(unit))
            });
            known.ok_or_else(|| format!("\"{unit}\" is not a unit of bytes: {wanted}"))?.1
        }
    };
    let bytes = number * (1u64 << shift) as f64;
    if bytes >= (1u64 << 53) as f64 {
        return Err(format!("\"{text}\" is too large"));
    }
    Ok(bytes.round() as u64)
}

/// The shortest way to write a number of bytes.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    let fits = SIZES.iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    fits.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

fn number_and_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, ms) in
            [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1.5h", 5_400_000), ("0s", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("1min"), duration("60s"));
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        for wrong in ["", "30", "s", "-1s", "3 weeks", "1e9s", "99999999999999d", "1.2.3s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        for text in ["250ms", "30s", "5m", "24h", "0s", "90s", "1500ms"] {
            assert_eq!(show_duration(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn sizes() {
        for (text, count) in [
            ("65536", 65536),
            ("64K", 65536),
            ("64k", 65536),
            ("64KiB", 65536),
            ("256 MiB", 256 << 20),
            ("1.5G", 3 << 29),
            ("7B", 7),
        ] {
            assert_eq!(bytes(text), Ok(count), "{text}");
        }
        for wrong in ["", "K", "-1", "64KB", "1E", "99999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for text in ["64KiB", "256MiB", "1536MiB", "1000", "0"] {
            assert_eq!(show_bytes(bytes(text).unwrap()), text);
        }
    }
}
