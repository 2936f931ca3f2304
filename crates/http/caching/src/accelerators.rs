//! What an origin says to the cache in front of it in fields that nginx and Varnish read.
//!
//! An application that was written for one of them marks the pages of one user with
//! `X-Accel-Expires: 0` or `Surrogate-Control: no-store`, and may say nothing in `Cache-Control`.
//! These fields are honoured as far as less is stored, or for a shorter time: they never permit
//! storing.

use crate::fields::FieldSource;

/// What the fields say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing.
    Nothing,
    /// The response is fresh for this time at most.
    FreshMax { ms: u64 },
    /// The response is not stored.
    NotStored,
}

/// Reads the fields of a response.
pub(crate) fn said<F: FieldSource + ?Sized>(fields: &F) -> Said {
    let mut said = Said::Nothing;
    for (name, value) in fields.fields() {
        // Nearly all names have another length or another first letter.
        if !(15..=17).contains(&name.len()) || !matches!(name[0] | 0x20, b's' | b'x') {
            continue;
        }
        said = match (said, by(name, value)) {
            (Said::NotStored, _) | (_, Said::NotStored) => return Said::NotStored,
            (Said::FreshMax { ms }, Said::FreshMax { ms: other }) => {
                Said::FreshMax { ms: ms.min(other) }
            }
            (before, Said::Nothing) => before,
            (Said::Nothing, now) => now,
        };
    }
    said
}

fn by(name: &[u8], value: &[u8]) -> Said {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    let value = value.trim_ascii();
    let forbids = match () {
        () if is(b"x-accel-expires") => return expires(value),
        () if is(b"x-accel-buffering") => value.eq_ignore_ascii_case(b"no"),
        // The page is another one, which the origin names.
        () if is(b"x-accel-redirect") => true,
        () if is(b"surrogate-control") => {
            value.windows(8).any(|part| part.eq_ignore_ascii_case(b"no-store"))
        }
        () => false,
    };
    if forbids { Said::NotStored } else { Said::Nothing }
}

/// Seconds, or a time after `@`. The time is not known here, so the response counts as
/// expired.
fn expires(value: &[u8]) -> Said {
    let digits = value.strip_prefix(b"@").unwrap_or(value);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Said::Nothing;
    }
    let seconds = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<u32>().ok());
    match seconds {
        Some(0) => Said::NotStored,
        _ if digits.len() < value.len() => Said::NotStored,
        Some(seconds) => Said::FreshMax { ms: u64::from(seconds) * 1000 },
        None => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_for_accelerators_only_restrict() {
        let fresh = |seconds: u64| Said::FreshMax { ms: seconds * 1000 };
        for (fields, wanted) in [
            (&[("X-Accel-Expires", "0")][..], Said::NotStored),
            (&[("x-accel-expires", " 00 ")], Said::NotStored),
            (&[("X-Accel-Expires", "@1700000000")], Said::NotStored),
            (&[("X-Accel-Expires", "9"), ("X-Accel-Expires", "7")], fresh(7)),
            (&[("X-Accel-Expires", "7"), ("X-Accel-Buffering", "No")], Said::NotStored),
            (&[("X-Accel-Expires", "soon")], Said::Nothing),
            (&[("X-Accel-Expires", "-1")], Said::Nothing),
            (&[("X-Accel-Expires", "99999999999")], Said::Nothing),
            (&[("X-Accel-Buffering", "yes"), ("", "x")], Said::Nothing),
            (&[("X-Accel-Redirect", "/files/1")], Said::NotStored),
            (&[("Surrogate-Control", "content=ESI, No-Store")], Said::NotStored),
            (&[("Surrogate-Control", "max-age=9")], Said::Nothing),
            (&[("Cache-Control", "no-store")], Said::Nothing),
        ] {
            assert_eq!(said(fields), wanted, "{fields:?}");
        }
    }
}
