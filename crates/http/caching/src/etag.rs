//! Entity tags (RFC 9110, 8.8.3): comparison, and parsing of lists.
//!
//! Some origins send tags without quotes, and clients send them back unchanged. Such a tag is
//! compared byte by byte and counts as strong.

use crate::fields::{Escapes, members, trim};

/// An entity tag, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// Marked `W/`.
    pub weak: bool,
    /// The bytes to compare, including the quotes.
    pub opaque: &'a [u8],
}

impl<'a> EntityTag<'a> {
    /// Parses a field value; `None` if it is empty.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<EntityTag<'a>> {
        let value = trim(value);
        let (weak, opaque) = match value.strip_prefix(b"W/") {
            Some(opaque) => (true, opaque),
            None => (false, value),
        };
        (!opaque.is_empty()).then_some(EntityTag { weak, opaque })
    }

    /// Weak comparison: the same tag, weak or not.
    #[must_use]
    pub fn weak_eq(&self, other: &EntityTag<'_>) -> bool {
        self.opaque == other.opaque
    }

    /// Strong comparison: the same tag, and neither is weak.
    #[must_use]
    pub fn strong_eq(&self, other: &EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }
}

/// The tags of one line of `If-Match` or `If-None-Match`.
pub fn list(value: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    members(value, Escapes::Literal).filter_map(EntityTag::parse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_8_8_3_2_comparison() {
        for (a, b, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            let (a, b) = (tag(a), tag(b));
            assert_eq!((a.strong_eq(&b), a.weak_eq(&b)), (strong, weak), "{a:?} {b:?}");
        }
    }

    #[test]
    fn rfc9110_8_8_3_lists_keep_commas_and_backslashes_inside_tags() {
        let tags: Vec<_> = list(b"\"a,b\" , W/\"c\\\", \"d\",, plain").collect();
        assert_eq!(tags, [tag("\"a,b\""), tag("W/\"c\\\""), tag("\"d\""), tag("plain")]);
    }

    fn tag(text: &str) -> EntityTag<'_> {
        EntityTag::parse(text.as_bytes()).expect("a tag")
    }
}
