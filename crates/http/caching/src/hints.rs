//! Which fields relevant to a cache a request has.

use crate::fields::FieldSource;

/// The set of fields relevant to a cache that a request has, gathered in one walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHints(u16);

impl RequestHints {
    /// `Cache-Control` or `Pragma`.
    pub const DIRECTIVES: RequestHints = RequestHints(1);
    /// `If-None-Match`.
    pub const IF_NONE_MATCH: RequestHints = RequestHints(1 << 1);
    /// `If-Modified-Since`.
    pub const IF_MODIFIED_SINCE: RequestHints = RequestHints(1 << 2);
    /// `If-Match`.
    pub const IF_MATCH: RequestHints = RequestHints(1 << 3);
    /// `If-Unmodified-Since`.
    pub const IF_UNMODIFIED_SINCE: RequestHints = RequestHints(1 << 4);
    /// `Range`.
    pub const RANGE: RequestHints = RequestHints(1 << 5);
    /// `If-Range`.
    pub const IF_RANGE: RequestHints = RequestHints(1 << 6);
    /// `Authorization`.
    pub const AUTHORIZATION: RequestHints = RequestHints(1 << 7);

    const CONDITIONS: RequestHints = RequestHints(0b1_1110);

    /// The hints of a whole request.
    pub fn of<F: FieldSource + ?Sized>(fields: &F) -> RequestHints {
        let mut hints = RequestHints::default();
        for (name, _) in fields.fields() {
            hints.note(name);
        }
        hints
    }

    /// Notes a field name. For most the length alone decides.
    #[inline]
    pub fn note(&mut self, name: &[u8]) {
        let (known, hint): (&[u8], RequestHints) = match name.len() {
            5 => (b"range", Self::RANGE),
            6 => (b"pragma", Self::DIRECTIVES),
            8 if name[3] | 0x20 == b'm' => (b"if-match", Self::IF_MATCH),
            8 => (b"if-range", Self::IF_RANGE),
            13 if name[0] | 0x20 == b'c' => (b"cache-control", Self::DIRECTIVES),
            13 if name[0] | 0x20 == b'i' => (b"if-none-match", Self::IF_NONE_MATCH),
            13 => (b"authorization", Self::AUTHORIZATION),
            17 => (b"if-modified-since", Self::IF_MODIFIED_SINCE),
            19 => (b"if-unmodified-since", Self::IF_UNMODIFIED_SINCE),
            _ => return,
        };
        if name.eq_ignore_ascii_case(known) {
            self.0 |= hint.0;
        }
    }

    /// Adds hints gathered elsewhere.
    pub fn add(&mut self, other: RequestHints) {
        self.0 |= other.0;
    }

    /// Whether any of these fields is present.
    #[must_use]
    pub const fn any(self, of: RequestHints) -> bool {
        self.0 & of.0 != 0
    }

    /// Whether nothing relevant is present, except perhaps `Authorization`, which only matters for
    /// storing. Then [`crate::StoredMeta::is_fresh`] decides, and the answer is the whole response.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.0 & !Self::AUTHORIZATION.0 == 0
    }

    /// Whether there is any condition (`If-…`, except `If-Range`).
    #[must_use]
    pub const fn has_conditions(self) -> bool {
        self.any(Self::CONDITIONS)
    }
}
