//! Parsers for flag values.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Parses a duration such as `500ms`, `1s`, `2m` or `1h`; a bare number is in seconds.
///
/// # Errors
/// The text is not a duration, or it is zero.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let has_unit = !text.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    let duration =
        if has_unit { units::duration(text) } else { units::duration(&format!("{text}s")) };
    match duration? {
        Duration::ZERO => Err(format!("{text:?} is not a duration above zero")),
        duration => Ok(duration),
    }
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

/// Parses an IP address with a port.
///
/// # Errors
/// It is not one. The text has the nearest address that is.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let try_this = match (host, port.parse::<u16>()) {
            ("localhost", Ok(port)) => format!("127.0.0.1:{port}"),
            ("", Ok(port)) => format!("0.0.0.0:{port}, or 127.0.0.1:{port} for this machine only"),
            _ => "127.0.0.1:3128 or [::1]:3128".to_owned(),
        };
        format!("expected an IP address and a port: try {try_this}")
    })
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
        for wrong in ["", "0s", "s", "5w", "-1s", "1e999s", "99999999999999999999h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(units::bytes("64K"), Ok(65536));
        assert_eq!(units::bytes("2G"), Ok(2 << 30));
        for wrong in ["", "K", "1P", "-1", "99999999999G", "18446744073709551616"] {
            assert!(units::bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_address_that_is_not_one_gets_a_suggestion() {
        assert_eq!(parse_address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        for (text, suggested) in [
            (":80", "try 0.0.0.0:80,"),
            ("8080", "try 0.0.0.0:8080,"),
            ("localhost:81", "try 127.0.0.1:81"),
            ("127.0.0.1", "try 127.0.0.1:3128"),
            ("example.org:70000", "try 127.0.0.1:3128"),
        ] {
            let error = parse_address(text).unwrap_err();
            assert!(error.contains(suggested), "{text}: {error}");
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
