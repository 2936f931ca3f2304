//! The fields of a coded form: its entity tag, and the fields that describe other bytes.

use caching::etag::EntityTag;

use crate::Coding;

/// What becomes of a strong entity tag when the coding of a response changes (RFC 9110, 8.8.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagRule {
    /// It becomes weak: `W/"a"`. The forms are equivalent, and no range of one fits another.
    #[default]
    Weak,
    /// It gets a suffix: `"a-gzip"`.
    Suffix,
}

/// The tag of a form that is coded otherwise than the response that the origin sent: in `to`, or
/// without coding. `None` if the tag cannot be changed by the grammar: then the form has none.
#[must_use]
pub fn tag_of_form(tag: &[u8], to: Option<Coding>, rule: TagRule) -> Option<Vec<u8>> {
    if planted::is(planted::Bug::StrongTagOfForm) {
        return Some(tag.to_vec());
    }
    let EntityTag { weak, opaque } = EntityTag::parse(tag)?;
    let inner = opaque.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let suffix = to.map_or("identity", Coding::name).as_bytes();
    Some(match rule {
        // A weak tag may cover all codings already.
        _ if weak => [b"W/", opaque].concat(),
        TagRule::Weak => [b"W/", opaque].concat(),
        TagRule::Suffix => [b"\"", inner, b"-", suffix, b"\""].concat(),
    })
}

/// The tag, made weak.
#[must_use]
pub fn weakened(tag: &[u8]) -> Option<Vec<u8>> {
    tag_of_form(tag, None, TagRule::Weak)
}

/// Whether a field also describes a form with another coding.
///
/// `Repr-Digest` and `Content-Digest` (RFC 9530) and the older `Digest` and `Content-MD5` are over
/// the coded bytes. Ranges are of the form that the origin sent, so other forms do not have
/// `Accept-Ranges`.
/// The caller writes `ETag` and `Content-Encoding`.
#[must_use]
pub fn fits_form(name: &[u8]) -> bool {
    const OF_THE_BYTES: [&str; 8] = [
        "accept-ranges",
        "content-digest",
        "content-encoding",
        "content-length",
        "content-md5",
        "digest",
        "etag",
        "repr-digest",
    ];
    !OF_THE_BYTES.iter().any(|field| name.eq_ignore_ascii_case(field.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_8_8_3_3_no_two_forms_share_a_strong_tag() {
        let of = |tag: &str, to, rule| {
            tag_of_form(tag.as_bytes(), to, rule).map(|tag| String::from_utf8(tag).unwrap())
        };
        let gzip = Some(Coding::Gzip);
        for (tag, to, weak, suffixed) in [
            ("\"a\"", gzip, Some("W/\"a\""), Some("\"a-gzip\"")),
            ("\"a\"", Some(Coding::Brotli), Some("W/\"a\""), Some("\"a-br\"")),
            ("\"a\"", None, Some("W/\"a\""), Some("\"a-identity\"")),
            ("W/\"a\"", gzip, Some("W/\"a\""), Some("W/\"a\"")),
            ("\"\"", gzip, Some("W/\"\""), Some("\"-gzip\"")),
            ("a", gzip, None, None),
            ("\"", gzip, None, None),
            ("", gzip, None, None),
        ] {
            assert_eq!(of(tag, to, TagRule::Weak).as_deref(), weak, "{tag}");
            assert_eq!(of(tag, to, TagRule::Suffix).as_deref(), suffixed, "{tag}");
        }
        assert_eq!(weakened(b"\"a\"").as_deref(), Some(&b"W/\"a\""[..]));
    }

    #[test]
    fn rfc9530_digests_are_over_the_coded_bytes() {
        for name in ["Repr-Digest", "content-digest", "Digest", "Content-MD5", "ETag"] {
            assert!(!fits_form(name.as_bytes()), "{name}");
        }
        for name in ["Content-Type", "Cache-Control", "Last-Modified", "Vary", "Link"] {
            assert!(fits_form(name.as_bytes()), "{name}");
        }
    }
}
