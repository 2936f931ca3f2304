//! Values: how each kind is written in a file, read, checked and shown.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::here::{Here, a_type, listed};

/// Type, unit and bounds of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// true or false.
    Flag,
    /// A whole number, within bounds.
    Count(u64, u64),
    /// A number of bytes, within bounds.
    Bytes(u64, u64),
    /// A length of time in milliseconds, within bounds.
    Time(u64, u64),
    /// Any text that is not empty.
    Text,
    /// Any text.
    Content,
    /// A file name, relative to the directory of the configuration.
    Path,
    /// An IP address and a port.
    Address,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// A list of addresses.
    Addresses,
    /// A list of networks (`10.0.0.0/8`) and single addresses.
    Networks,
    /// A list of whole numbers within bounds.
    Counts(u64, u64),
}

const SECOND: u64 = 1_000;
/// A time-out: from a millisecond, below which it would always fire, to a day.
pub(crate) const TIMEOUT: Kind = Kind::Time(1, 24 * 3600 * SECOND);
/// How often all that is stored is visited: from a minute to a day.
pub(crate) const PERIOD: Kind = Kind::Time(60 * SECOND, 24 * 3600 * SECOND);
/// A length of time that may be zero.
pub(crate) const WHILE: Kind = Kind::Time(0, 366 * 24 * 3600 * SECOND);

impl Kind {
    /// Type, unit and bounds in words.
    pub(crate) fn words(&self) -> String {
        let between = |from: String, to: String| format!("{from} to {to}");
        match self {
            Kind::Flag => "true or false".to_owned(),
            Kind::Count(from, to) => format!("number, {}", bounds(*from, *to)),
            Kind::Bytes(from, to) if *to == u64::MAX => {
                format!("bytes, from {}", units::show_bytes(*from))
            }
            Kind::Bytes(from, to) => {
                format!("bytes, {}", between(units::show_bytes(*from), units::show_bytes(*to)))
            }
            Kind::Time(from, to) => format!("time, {}", between(show_ms(*from), show_ms(*to))),
            Kind::Text => "text".to_owned(),
            Kind::Content => "text, which may be empty".to_owned(),
            Kind::Path => "file".to_owned(),
            Kind::Address => "address and port".to_owned(),
            Kind::Word(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                quoted.join(", ")
            }
            Kind::Texts => "list of texts".to_owned(),
            Kind::Addresses => "list of addresses with ports".to_owned(),
            Kind::Networks => "list of networks or addresses".to_owned(),
            Kind::Counts(from, to) => format!("list of numbers, {}", bounds(*from, *to)),
        }
    }
}

fn bounds(from: u64, to: u64) -> String {
    if to == u64::MAX { format!("from {from}") } else { format!("{from} to {to}") }
}

fn show_ms(ms: u64) -> String {
    units::show_duration(Duration::from_millis(ms))
}

/// A type that a key may have.
pub(crate) trait Setting: Sized {
    /// Reads it. Mistakes are reported.
    fn read(value: &Spanned<DeValue<'_>>, kind: &Kind, here: &mut Here<'_, '_>) -> Option<Self>;

    /// As a file writes it; `None` if it is absent.
    fn show(&self, kind: &Kind) -> Option<String>;
}

/// As TOML writes a text.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn wrong(value: &Spanned<DeValue<'_>>, wanted: &str, here: &mut Here<'_, '_>) {
    let got = a_type(value.get_ref().type_str());
    here.mistake(value.span(), format!("expected {wanted}, found {got}"));
}

fn text<'v>(
    value: &'v Spanned<DeValue<'_>>,
    wanted: &str,
    here: &mut Here<'_, '_>,
) -> Option<&'v str> {
    let text = value.get_ref().as_str();
    if text.is_none() {
        wrong(value, wanted, here);
    }
    text
}

/// Reads a text and parses it.
fn parsed<T>(
    value: &Spanned<DeValue<'_>>,
    wanted: &str,
    here: &mut Here<'_, '_>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let text = text(value, wanted, here)?;
    parse(text).map_err(|why| here.mistake(value.span(), why)).ok()
}

fn within(
    value: &Spanned<DeValue<'_>>,
    number: u64,
    (from, to): (u64, u64),
    show: impl Fn(u64) -> String,
    here: &mut Here<'_, '_>,
) -> Option<u64> {
    if (from..=to).contains(&number) {
        return Some(number);
    }
    let (number, from) = (show(number), show(from));
    here.mistake(
        value.span(),
        match to {
            u64::MAX => format!("{number} is too small: the minimum is {from}"),
            _ => format!("{number} is out of bounds: from {from} to {}", show(to)),
        },
    );
    None
}

fn integer(value: &Spanned<DeValue<'_>>, here: &mut Here<'_, '_>) -> Option<u64> {
    let Some(integer) = value.get_ref().as_integer() else {
        wrong(value, "a whole number", here);
        return None;
    };
    let digits = integer.as_str().replace('_', "");
    let read = u64::from_str_radix(digits.trim_start_matches('+'), integer.radix());
    read.map_err(|_| here.mistake(value.span(), format!("{digits} is not a number of at least 0")))
        .ok()
}

/// Reads a number of this kind: a count, or bytes with a unit.
fn number(value: &Spanned<DeValue<'_>>, kind: &Kind, here: &mut Here<'_, '_>) -> Option<u64> {
    match *kind {
        Kind::Bytes(from, to) => {
            let bytes = if value.get_ref().is_integer() {
                integer(value, here)?
            } else {
                parsed(value, "a number of bytes, such as \"64KiB\"", here, units::bytes)?
            };
            within(value, bytes, (from, to), units::show_bytes, here)
        }
        Kind::Count(from, to) | Kind::Counts(from, to) => {
            let count = integer(value, here)?;
            within(value, count, (from, to), |count| count.to_string(), here)
        }
        _ => unreachable!("a number is a count or bytes"),
    }
}

macro_rules! numbers {
    ($($number:ty)+) => { $(
        impl Setting for $number {
            fn read(
                value: &Spanned<DeValue<'_>>,
                kind: &Kind,
                here: &mut Here<'_, '_>,
            ) -> Option<$number> {
                let read = number(value, kind, here)?;
                let fits = <$number>::try_from(read);
                fits.map_err(|_| here.mistake(value.span(), format!("{read} is too large"))).ok()
            }

            fn show(&self, kind: &Kind) -> Option<String> {
                match kind {
                    Kind::Bytes(..) => {
                        let shown = units::show_bytes(*self as u64);
                        Some(if shown.ends_with('B') { quoted(&shown) } else { shown })
                    }
                    _ => Some(self.to_string()),
                }
            }
        }
    )+ };
}
numbers!(u8 u16 u32 u64 usize);

impl Setting for bool {
    fn read(value: &Spanned<DeValue<'_>>, _: &Kind, here: &mut Here<'_, '_>) -> Option<bool> {
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            wrong(value, "true or false", here);
        }
        flag
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(self.to_string())
    }
}

impl Setting for Duration {
    fn read(
        value: &Spanned<DeValue<'_>>,
        kind: &Kind,
        here: &mut Here<'_, '_>,
    ) -> Option<Duration> {
        let &Kind::Time(from, to) = kind else { unreachable!("a time is a time") };
        if value.get_ref().is_integer() || value.get_ref().is_float() {
            here.mistake(value.span(), "a time needs a unit: \"250ms\", \"30s\", \"5m\" or \"2h\"");
            return None;
        }
        let time = parsed(value, "a time, such as \"30s\"", here, units::duration)?;
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        within(value, ms, (from, to), show_ms, here).map(|_| time)
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(&units::show_duration(*self)))
    }
}

impl Setting for String {
    fn read(value: &Spanned<DeValue<'_>>, kind: &Kind, here: &mut Here<'_, '_>) -> Option<String> {
        let words = if let Kind::Word(words) = kind { *words } else { &[] };
        parsed(value, "a text", here, |text| match text {
            "" if !matches!(kind, Kind::Content) => Err("the text is empty".to_owned()),
            _ if !words.is_empty() && !words.contains(&text) => {
                Err(format!("`{text}` is not valid: it must be one of {}", listed(words)))
            }
            _ => Ok(text.to_owned()),
        })
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(self))
    }
}

impl Setting for PathBuf {
    fn read(value: &Spanned<DeValue<'_>>, _: &Kind, here: &mut Here<'_, '_>) -> Option<PathBuf> {
        let base = here.reader.base();
        parsed(value, "the name of a file", here, |text| match text {
            "" => Err("the name of the file is empty".to_owned()),
            _ => Ok(base.join(text)),
        })
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(&self.display().to_string()))
    }
}

impl Setting for SocketAddr {
    fn read(value: &Spanned<DeValue<'_>>, _: &Kind, here: &mut Here<'_, '_>) -> Option<SocketAddr> {
        let wanted = "an address with a port, such as \"127.0.0.1:3128\" or \"[::]:80\"";
        parsed(value, wanted, here, |text| {
            text.parse().map_err(|_| format!("\"{text}\" is not {wanted}"))
        })
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl Setting for IpNet {
    fn read(value: &Spanned<DeValue<'_>>, _: &Kind, here: &mut Here<'_, '_>) -> Option<IpNet> {
        let wanted = "a network, such as \"10.0.0.0/8\" or \"fd00::/8\", or an address";
        parsed(value, wanted, here, |text| {
            let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            network.map_err(|_| format!("\"{text}\" is not {wanted}"))
        })
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

/// A text parsed by its type, kept as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parsed<T> {
    written: String,
    pub(crate) value: T,
}

impl<T: FromStr<Err = String>> Parsed<T> {
    /// A default, which must be valid.
    pub(crate) fn of(text: &str) -> Parsed<T> {
        let value = text.parse().expect("a default is valid");
        Parsed { written: text.to_owned(), value }
    }
}

impl<T: FromStr<Err = String>> Setting for Parsed<T> {
    fn read(value: &Spanned<DeValue<'_>>, _: &Kind, here: &mut Here<'_, '_>) -> Option<Parsed<T>> {
        parsed(value, "a text", here, |text| {
            if text.is_empty() {
                return Err("the text is empty".to_owned());
            }
            text.parse().map(|value| Parsed { written: text.to_owned(), value })
        })
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(&self.written))
    }
}

/// Absent is none.
impl<S: Setting> Setting for Option<S> {
    fn read(
        value: &Spanned<DeValue<'_>>,
        kind: &Kind,
        here: &mut Here<'_, '_>,
    ) -> Option<Option<S>> {
        S::read(value, kind, here).map(Some)
    }

    fn show(&self, kind: &Kind) -> Option<String> {
        self.as_ref().and_then(|setting| setting.show(kind))
    }
}

impl<S: Setting> Setting for Vec<S> {
    fn read(value: &Spanned<DeValue<'_>>, kind: &Kind, here: &mut Here<'_, '_>) -> Option<Vec<S>> {
        let Some(items) = value.get_ref().as_array() else {
            wrong(value, &format!("a {}", kind.words()), here);
            return None;
        };
        let read: Vec<Option<S>> = items.iter().map(|item| S::read(item, kind, here)).collect();
        read.into_iter().collect()
    }

    fn show(&self, kind: &Kind) -> Option<String> {
        let shown: Vec<String> = self.iter().filter_map(|item| item.show(kind)).collect();
        Some(format!("[{}]", shown.join(", ")))
    }
}

/// Types written as a text that they parse themselves. A number is read as its digits.
macro_rules! understood {
    ($($type:ty)+) => { $(
        impl $crate::value::Setting for $type {
            fn read(
                value: &toml::Spanned<toml::de::DeValue<'_>>,
                _: &$crate::value::Kind,
                here: &mut $crate::here::Here<'_, '_>,
            ) -> Option<$type> {
                $crate::value::read_understood(value, here)
            }

            fn show(&self, _: &$crate::value::Kind) -> Option<String> {
                Some($crate::value::quoted(&self.to_string()))
            }
        }
    )+ };
}
pub(crate) use understood;

/// See [`understood`].
pub(crate) fn read_understood<T: FromStr<Err = String>>(
    value: &Spanned<DeValue<'_>>,
    here: &mut Here<'_, '_>,
) -> Option<T> {
    if let Some(number) = value.get_ref().as_integer() {
        let read = number.as_str().parse::<T>();
        return read.map_err(|why| here.mistake(value.span(), why)).ok();
    }
    parsed(value, "a text", here, str::parse)
}

/// Types with a fixed set of words: each word with its value.
macro_rules! words {
    ($type:ty: $($word:literal => $value:expr),+ $(,)?) => {
        impl $crate::value::Setting for $type {
            fn read(
                value: &toml::Spanned<toml::de::DeValue<'_>>,
                kind: &$crate::value::Kind,
                here: &mut $crate::here::Here<'_, '_>,
            ) -> Option<$type> {
                match String::read(value, kind, here)?.as_str() {
                    $($word => Some($value),)+
                    _ => unreachable!("its kind lists its words"),
                }
            }

            fn show(&self, _: &$crate::value::Kind) -> Option<String> {
                let words = [$(($word, $value)),+];
                let word = words.iter().find(|(_, value)| value == self);
                word.map(|(word, _)| $crate::value::quoted(word))
            }
        }
    };
}
pub(crate) use words;
