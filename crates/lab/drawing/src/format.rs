//! How numbers are written: one function for each quantity, so that a rate looks the same in a
//! table, on an axis and in a sentence.
//!
//! Numbers have at most four significant digits. Values that are not finite are a dash, never
//! "NaN".

/// Written in place of a missing value.
pub const NONE: &str = "-";

/// Requests per second: `0.83`, `56.3`, `831`, `92,140`; the last of five digits is rounding.
pub fn rate(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_string();
    }
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        size => {
            let unit = 10f64.powi((size.log10().floor() as i32 - 3).max(0));
            thousands((value / unit).round() * unit)
        }
    }
}

/// A whole number with thousands separators.
pub fn thousands(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_string();
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 + 1);
    if value < 0.0 && digits != "0" {
        out.push('-');
    }
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Percent without its sign: `9.8`, `100.0`.
pub fn percent(value: f64) -> String {
    fixed(value, 1)
}

/// A ratio as a change in percent, with its sign: `+51`, `-3.2`.
pub fn change(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    if !percent.is_finite() {
        return NONE.to_string();
    }
    let text = if percent.abs() < 9.95 { fixed(percent, 1) } else { fixed(percent, 0) };
    if percent > 0.0 { format!("+{text}") } else { text }
}

/// A fixed number of decimals; a zero has no sign.
pub fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return NONE.to_string();
    }
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_string(),
        _ => text,
    }
}

/// Three significant digits: `0.0123`, `1.69`, `831`.
pub fn three(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_string();
    }
    if value == 0.0 {
        return "0".to_string();
    }
    // The exponent of the rounded value: 0.9996 becomes 1.00, not 1.000.
    let rounded: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let exponent = rounded.abs().log10().floor() as i32;
    if !(-4..6).contains(&exponent) {
        return format!("{value:.2e}");
    }
    if exponent >= 3 {
        return thousands(value);
    }
    fixed(value, (2 - exponent).max(0) as usize)
}

/// A latency in microseconds with its unit: `87 µs`, `1.20 ms`, `3.40 s`.
pub fn latency(us: f64) -> String {
    if !us.is_finite() {
        return NONE.to_string();
    }
    match us.abs() {
        size if size < 999.5 => format!("{us:.0} µs"),
        size if size < 999_500.0 => format!("{} ms", three(us / 1e3)),
        _ => format!("{} s", three(us / 1e6)),
    }
}

/// A latency of which fractions of a microsecond matter: `4.25 µs`, with this many decimals below
/// 100 µs.
pub fn latency_fine(us: f64, decimals: usize) -> String {
    if us.abs() < 99.95 { format!("{} µs", fixed(us, decimals)) } else { latency(us) }
}

/// A value, or a dash.
pub fn or_none(value: Option<f64>, write: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.to_string(), write)
}

/// The ends of an interval, to be written after the value: ` (12.3 to 45.6)`.
pub fn ends(low: Option<f64>, high: Option<f64>, write: impl Fn(f64) -> String) -> String {
    match low.zip(high) {
        Some((low, high)) => format!(" ({} to {})", write(low), write(high)),
        None => ", unbounded".to_string(),
    }
}

/// The level of an interval, or another share: `95 %`.
pub fn level(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// A duration in seconds for a sentence: `0.25 s`, `60 s`, `15 min`, `24 h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return NONE.to_string();
    }
    let whole = |value: f64, unit: &str| {
        let decimals = usize::from((value - value.round()).abs() > 0.05);
        format!("{} {unit}", fixed(value, decimals))
    };
    match seconds {
        s if s < 10.0 => format!("{} s", three(s)),
        s if s < 600.0 => whole(s, "s"),
        s if s < 36_000.0 => whole(s / 60.0, "min"),
        s => whole(s / 3600.0, "h"),
    }
}

/// Bytes: `512 B`, `7.8 GiB`.
pub fn bytes(value: u64) -> String {
    let mut size = value as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "B" { format!("{value} B") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

/// An instant in UTC: `2026-01-31 17:05:09`.
pub fn instant(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(1_000_000_000);
    let (year, month, day) = units::civil::date(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_keep_at_most_four_digits() {
        let written = [0.0, 0.834, 9.996, 56.34, 99.96, 830.6, 92_144.4].map(rate);
        assert_eq!(written, ["0.00", "0.83", "10.0", "56.3", "100", "831", "92,140"]);
        assert_eq!(rate(f64::NAN), "-");
        assert_eq!(rate(-1234.0), "-1,234");
    }

    #[test]
    fn a_zero_has_no_sign() {
        assert_eq!([fixed(-0.01, 1), fixed(-0.06, 1)], ["0.0", "-0.1"]);
        assert_eq!(thousands(-0.3), "0");
    }

    #[test]
    fn three_digits() {
        let written = [0.001_234, 0.0, 0.9996, -16.97, 831.4, 12_345.0, 1.0e-7].map(three);
        assert_eq!(written, ["0.00123", "0", "1.00", "-17.0", "831", "12,345", "1.00e-7"]);
    }

    #[test]
    fn units_follow_the_size() {
        let written = [87.4, 999.4, 1_200.0, 43_210.0, 3.4e6].map(latency);
        assert_eq!(written, ["87 µs", "999 µs", "1.20 ms", "43.2 ms", "3.40 s"]);
        let written = [0.25, 1.0, 60.0, 900.0, 86_400.0].map(duration);
        assert_eq!(written, ["0.250 s", "1.00 s", "60 s", "15 min", "24 h"]);
        assert_eq!([bytes(512), bytes(8_350_000_000)], ["512 B", "7.8 GiB"]);
    }

    #[test]
    fn instants_follow_the_civil_calendar() {
        assert_eq!(instant(0), "1970-01-01 00:00:00");
        assert_eq!(instant(951_782_400_000_000_000), "2000-02-29 00:00:00");
        assert_eq!(instant(1_767_225_599_500_000_000), "2025-12-31 23:59:59");
        assert_eq!(instant(-1), "1969-12-31 23:59:59");
    }
}
