//! Checks of the parsers of caching fields, for any bytes. The fuzz target runs them and, over the
//! checked-in corpus, the stable tests of `caching`.

use caching::etag::{self, EntityTag};
use caching::{CacheControl, date};

/// Parses the bytes as each of the fields and panics if a check fails.
pub(crate) fn caching_fields(data: &[u8]) {
    a_date_survives_being_written(data);
    a_tag_is_part_of_the_value(data);
    directives_of_lines_are_those_of_the_list(data);
}

fn a_date_survives_being_written(data: &[u8]) {
    const NOW_MS: u64 = 1_767_225_600_000;
    if let Some(ms) = date::parse(data, NOW_MS) {
        assert_eq!(ms % 1_000, 0, "a date has no grain below a second");
        assert_eq!(date::parse(&date::format(ms), NOW_MS), Some(ms), "written and read again");
    }
}

fn a_tag_is_part_of_the_value(data: &[u8]) {
    if let Some(tag) = EntityTag::parse(data) {
        assert!(tag.weak_eq(&tag), "a tag equals itself");
        assert_eq!(tag.strong_eq(&tag), !tag.weak, "a weak tag never equals strongly");
    }
    let listed: usize = etag::list(data).map(|tag| tag.opaque.len()).sum();
    assert!(listed <= data.len(), "tags of a list lie in it, apart");
}

/// RFC 9110, section 5.3: lines of one name may be joined by commas. A quoted string must not be
/// split, so only texts without quotes are split.
fn directives_of_lines_are_those_of_the_list(data: &[u8]) {
    let whole = CacheControl::parse(data);
    if data.contains(&b'"') {
        return;
    }
    let mut by_lines = CacheControl::default();
    data.split(|&byte| byte == b',').for_each(|line| by_lines.add_line(line));
    assert_eq!(format!("{whole:?}"), format!("{by_lines:?}"));
}
