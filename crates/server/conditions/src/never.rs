//! Terms that never hold, or always hold, by their constants alone.

use std::ops::Range;

use crate::mistake::Mistake;
use crate::syntax::Order;
use crate::tree::{Number, Text};

/// The message on a term without a variable.
pub(crate) const CONSTANT: &str = "this has the same value for every request";

/// How a string is compared with a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Is,
    Starts,
    Ends,
    Contains,
}

/// Refuses a comparison of a string with a literal if no request can have such a value.
pub(crate) fn string(
    at: &Range<usize>,
    text: &Text,
    how: How,
    literal: &[u8],
) -> Result<(), Mistake> {
    if literal.is_empty() && how != How::Is {
        return Err(Mistake::new(
            at,
            "every string has the empty string in it, so this always holds",
        ));
    }
    let has_upper = literal.iter().any(u8::is_ascii_uppercase);
    let has_lower = literal.iter().any(u8::is_ascii_lowercase);
    let is_beginning = matches!(how, How::Is | How::Starts);
    let why = match text {
        Text::Host if has_upper => "hosts are lower case",
        Text::Host if how == How::Is && has_port(literal) => "a host has no port: compare `port`",
        Text::Method if has_lower => "methods are upper case",
        Text::Path if is_beginning && !literal.starts_with(b"/") => "paths begin with /",
        Text::Scheme if how == How::Is && !matches!(literal, b"http" | b"https") => {
            "a scheme is 'http' or 'https'"
        }
        Text::Lower(_) if has_upper => "`lowerAscii()` makes lower case",
        _ => return Ok(()),
    };
    Err(Mistake::new(at, format!("{why}, so this can never hold")))
}

/// Refuses a glob that no path can match.
pub(crate) fn glob(at: &Range<usize>, text: &Text, glob: &str) -> Result<(), Mistake> {
    let is_never = *text == Text::Path && !glob.starts_with(['/', '*']);
    if is_never {
        return Err(Mistake::new(at, "paths begin with /, so this can never hold"));
    }
    if glob == "**" {
        return Err(Mistake::new(at, "every string matches '**', so this always holds"));
    }
    let literal = glob.split('*').collect::<String>();
    string(at, text, How::Contains, if literal.is_empty() { b"/" } else { literal.as_bytes() })
}

/// Whether a host is compared with a value that has upper case.
pub(crate) fn is_upper(text: &Text, value: &str) -> bool {
    *text == Text::Host && value.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn has_port(host: &[u8]) -> bool {
    !host.starts_with(b"[") && host.contains(&b':')
}

/// The least and the greatest value of a number, and what it is.
fn range(number: &Number) -> Option<(f64, f64, &'static str)> {
    Some(match number {
        Number::Port => (0.0, 65535.0, "a port is 0 to 65535"),
        Number::Hour => (0.0, 23.0, "an hour is 0 to 23"),
        Number::Minute => (0.0, 59.0, "a minute is 0 to 59"),
        Number::Weekday => (0.0, 6.0, "a weekday is 0 (Sunday) to 6"),
        Number::Status => (100.0, 599.0, "a status is 100 to 599"),
        Number::Size => (-1.0, f64::INFINITY, "a size is at least 0, or -1 if it is not known"),
        Number::Random | Number::Share(_) => {
            (0.0, BELOW_ONE, "a share is at least 0 and less than 1")
        }
        Number::Length(_) => (0.0, f64::INFINITY, "a length is at least 0"),
        Number::Int(_) | Number::Double(_) => return None,
    })
}

/// The greatest double below 1.
const BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

/// Refuses a comparison of a number with a literal that holds for no value or for all values.
pub(crate) fn number(
    at: &Range<usize>,
    order: Order,
    one: &Number,
    other: &Number,
) -> Result<(), Mistake> {
    let (Some((least, most, why)), Some(literal)) = (range(one), other.literal()) else {
        return Ok(());
    };
    let is_outside = literal < least || literal > most;
    let is_broken = !one.is_double() && literal.fract() != 0.0;
    let (never, always) = match order {
        Order::Is => (is_outside || is_broken, false),
        Order::IsNot => (false, is_outside || is_broken),
        Order::Less => (literal <= least, literal > most),
        Order::AtMost => (literal < least, literal >= most),
        Order::More => (literal >= most, literal < least),
        Order::AtLeast => (literal > most, literal <= least),
    };
    let why = if is_broken && !is_outside { "this number is an int" } else { why };
    match (never, always) {
        (true, _) => Err(Mistake::new(at, format!("{why}, so this can never hold"))),
        (_, true) => Err(Mistake::new(at, format!("{why}, so this always holds"))),
        (false, false) => Ok(()),
    }
}
