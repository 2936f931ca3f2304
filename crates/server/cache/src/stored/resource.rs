//! The data by which purges match a stored response: its URL and its tags.

use serde::{Deserialize, Serialize};
use store::{Generation, Known};

use crate::key::StoredUri;
use crate::limits::TAGS_MAX;

/// The data by which purges match a response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Authority as in keys, then path and query.
    url: Box<[u8]>,
    /// Its tags, separated by single spaces.
    tags: Tags,
    /// The purge generation at which its fetch began.
    began: Generation,
}

impl Resource {
    /// For a response with these fields to a request that began at `began`.
    pub fn new<'f>(
        uri: StoredUri<'_>,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        began: Generation,
    ) -> Resource {
        let tags = tags(fields).unwrap_or_default();
        Resource { url: uri.url().into(), tags, began }
    }

    /// After an update by a request that began at `began`, which may name other tags.
    pub fn updated<'f>(
        &self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
        began: Generation,
    ) -> Resource {
        let tags = tags(fields).unwrap_or_else(|| self.tags.clone());
        Resource { url: self.url.clone(), tags, began }
    }

    /// This resource with unknown tags: every purge by tag removes the response.
    pub fn with_unknown_tags(mut self) -> Resource {
        self.tags.more = true;
        self
    }

    /// The purge generation at which its fetch began.
    pub fn began(&self) -> Generation {
        self.began
    }

    /// The data that purge records are compared with.
    pub fn known(&self) -> Known<'_> {
        Known { url: &self.url, tags: &self.tags.kept, more_tags: self.tags.more }
    }

    /// Its size in bytes.
    pub fn bytes_held(&self) -> usize {
        self.url.len() + self.tags.kept.len()
    }
}

/// Whether this field carries tags.
pub fn is_tag_field(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"surrogate-key") || name.eq_ignore_ascii_case(b"cache-tag")
}

/// The tags of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Tags {
    /// Separated by single spaces.
    kept: Box<[u8]>,
    /// There are further tags: more than [`TAGS_MAX`], or unknown tags.
    more: bool,
}

/// The tags in some fields, or `None` if no field carries any.
fn tags<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Option<Tags> {
    let mut found: Option<Vec<&[u8]>> = None;
    for (_, value) in fields.filter(|(name, _)| is_tag_field(name)) {
        found.get_or_insert_default().extend(split_tags(value));
    }
    let mut found = found?;
    found.sort_unstable();
    found.dedup();
    let more = found.len() > TAGS_MAX;
    found.truncate(TAGS_MAX);
    Some(Tags { kept: found.join(&b' ').into(), more })
}

/// Spaces separate tags in `Surrogate-Key`, commas in `Cache-Tag`; both fields may use both
/// separators.
fn split_tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b' ' | b'\t' | b',')).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags_of(fields: &[(&str, &str)]) -> Option<String> {
        let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        tags(fields).map(|tags| String::from_utf8(tags.kept.to_vec()).unwrap())
    }

    #[test]
    fn tags_are_read_from_both_fields_without_duplicates() {
        assert_eq!(tags_of(&[("Date", "x")]), None);
        assert_eq!(tags_of(&[("Surrogate-Key", "")]).as_deref(), Some(""));
        let both = [("surrogate-key", "b a  b"), ("Cache-Tag", "c,a, d e ,,")];
        assert_eq!(tags_of(&both).as_deref(), Some("a b c d e"));
        assert_eq!(tags_of(&[("Surrogate-Key", "a,b c")]).as_deref(), Some("a b c"));
        let many: Vec<String> = (0..=TAGS_MAX).map(|n| format!("t{n}")).collect();
        let many = many.join(" ");
        let found = tags([(&b"Surrogate-Key"[..], many.as_bytes())].into_iter()).unwrap();
        assert!(found.more && found.kept.len() < many.len());
    }

    /// A head is written without looking at the spelling of known names.
    #[test]
    fn no_known_name_is_that_of_tags() {
        let known = http1::Name::known();
        assert!(!known.iter().any(|name| is_tag_field(name.as_str().as_bytes())));
    }
}
