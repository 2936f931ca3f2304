//! The fields of a head: their positions, and an index of the known names.
//!
//! What: [`Scratch`], which the caller keeps and passes to every parse; [`Fields`], the view of it
//! together with the bytes.
//! Why positions: they have no lifetime, so one scratch serves every message, and a head can be
//! moved together with its bytes.
//!
//! Invariants: every span lies within the bytes that it was made from; names are tokens; values
//! contain only HTAB, SP, VCHAR and obs-text (those of a repaired head also other control
//! characters, but no CR, LF or NUL), and no white space at their ends. `first[n]` is valid only if
//! bit `n` of `seen` is set. A field that Connection names is set aside: it is in no list and no
//! index but that of [`Fields::for_this_hop`].

use std::ops::Range;

use crate::Name;
use crate::chars::tokens;
use crate::limits::FIELDS_CEILING;
use crate::name::is_one_variable;

/// The position of a field in the bytes of its head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) name_start: u32,
    pub(crate) value_start: u32,
    pub(crate) value_len: u32,
    pub(crate) name_len: u16,
    pub(crate) name: Name,
}

impl Span {
    /// The line with its CRLF, if it has one space before the value and none after it.
    #[inline]
    pub(crate) fn usual_line(&self, buf: &[u8]) -> Option<Range<usize>> {
        let (start, value) = (self.name_start as usize, self.value_start as usize);
        let end = value + self.value_len as usize;
        let is_usual = value == start + self.name_len as usize + b": ".len()
            && buf[value - 1] == b' '
            && buf.get(end..end + 2) == Some(b"\r\n");
        is_usual.then_some(start..end + 2)
    }
}

/// Which known names occur, and where they occur first.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    seen: u64,
    repeated: u64,
    first: [u8; 64],
}

impl Index {
    pub(crate) const EMPTY: Index = Index { seen: 0, repeated: 0, first: [0; 64] };

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.seen = 0;
        self.repeated = 0;
    }

    #[inline]
    pub(crate) fn has(&self, name: Name) -> bool {
        self.seen & name.bit() != 0
    }

    #[inline]
    pub(crate) fn note(&mut self, name: Name, at: usize) {
        let bit = name.bit();
        if self.seen & bit == 0 {
            self.seen |= bit;
            self.first[name as usize] = at as u8;
        } else {
            self.repeated |= bit;
        }
    }
}

/// Space for the positions of one head's fields. About 2 KiB; make it once and use it for every
/// parse.
pub struct Scratch {
    pub(crate) spans: [Span; FIELDS_CEILING],
    pub(crate) count: usize,
    /// How many fields are set aside. Their spans come after the other `count`.
    pub(crate) aside: usize,
    /// Some name is not plain, and the limits say that such fields are set aside.
    pub(crate) is_odd: bool,
    pub(crate) index: Index,
    /// The last head that was repaired.
    pub(crate) repaired: Vec<u8>,
}

impl Scratch {
    /// Space for [`FIELDS_CEILING`] fields.
    pub const fn new() -> Scratch {
        const NOWHERE: Span =
            Span { name_start: 0, value_start: 0, value_len: 0, name_len: 0, name: Name::Other };
        Scratch {
            spans: [NOWHERE; FIELDS_CEILING],
            count: 0,
            aside: 0,
            is_odd: false,
            index: Index::EMPTY,
            repaired: Vec::new(),
        }
    }

    pub(crate) fn fields<'b>(&'b self, buf: &'b [u8]) -> Fields<'b> {
        let (spans, rest) = self.spans.split_at(self.count);
        Fields { buf, spans, aside: &rest[..self.aside], index: &self.index }
    }
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch::new()
    }
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("count", &self.count).finish_non_exhaustive()
    }
}

/// One field of a parsed head. Its existence proves that its name is a token and that its value can
/// be written as it is: [`write::parsed_field`](crate::write::parsed_field).
///
/// Its bytes are looked up only when they are asked for: most fields are kept or left out by their
/// [`Name`].
#[derive(Clone, Copy)]
pub struct Field<'b> {
    buf: &'b [u8],
    span: &'b Span,
}

impl<'b> Field<'b> {
    /// The name, if it is known.
    #[inline]
    pub fn id(&self) -> Name {
        self.span.name
    }

    /// The name as sent.
    #[inline]
    pub fn name(&self) -> &'b [u8] {
        let start = self.span.name_start as usize;
        &self.buf[start..start + self.span.name_len as usize]
    }

    /// The value without white space around it.
    #[inline]
    pub fn value(&self) -> &'b [u8] {
        let start = self.span.value_start as usize;
        &self.buf[start..start + self.span.value_len as usize]
    }
}

impl PartialEq for Field<'_> {
    fn eq(&self, other: &Field<'_>) -> bool {
        self.name() == other.name() && self.value() == other.value()
    }
}

impl std::fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name().escape_ascii(), self.value().escape_ascii())
    }
}

/// The fields of a head, in their order, without those that Connection names.
#[derive(Clone, Copy)]
pub struct Fields<'b> {
    pub(crate) buf: &'b [u8],
    pub(crate) spans: &'b [Span],
    aside: &'b [Span],
    pub(crate) index: &'b Index,
}

impl<'b> Fields<'b> {
    /// All fields as (name, value).
    pub fn iter(&self) -> Iter<'b> {
        Iter { fields: *self, next: 0 }
    }

    /// All fields as [`Field`], which [`write`](mod@crate::write) accepts without another check.
    pub fn fields(&self) -> impl ExactSizeIterator<Item = Field<'b>> + use<'b> {
        let fields = *self;
        fields.spans.iter().map(move |span| fields.at(span))
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// No fields at all.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// A field of this name exists. O(1), except for [`Name::Other`], which means any name that is
    /// not in the list.
    #[inline]
    pub fn has(&self, name: Name) -> bool {
        self.index.has(name)
    }

    /// More than one field of this name exists. O(1).
    #[inline]
    pub fn is_repeated(&self, name: Name) -> bool {
        self.index.repeated & name.bit() != 0
    }

    /// The value of the first field of this name. O(1).
    #[inline]
    pub fn get(&self, name: Name) -> Option<&'b [u8]> {
        if !self.has(name) {
            return None;
        }
        let span = &self.spans[self.index.first[name as usize] as usize];
        Some(self.at(span).value())
    }

    /// The values of all fields of this name, in their order. Costs nothing when there is none.
    #[inline]
    pub fn all(&self, name: Name) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let fields = *self;
        let range = if !fields.has(name) {
            0..0
        } else {
            let first = fields.index.first[name as usize] as usize;
            first..if fields.is_repeated(name) { fields.spans.len() } else { first + 1 }
        };
        let spans = &fields.spans[range];
        spans.iter().filter(move |span| span.name == name).map(move |span| fields.at(span).value())
    }

    /// How many fields have this name.
    pub fn count(&self, name: Name) -> usize {
        self.all(name).count()
    }

    /// The values of all fields with this name, known or not, ignoring case. The name is a token.
    #[inline]
    pub fn values<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b, 'n> {
        let fields = *self;
        let id = Name::from_token(name);
        let spans = if fields.has(id) {
            &fields.spans[fields.index.first[id as usize] as usize..]
        } else {
            &[]
        };
        spans
            .iter()
            .filter(move |span| {
                span.name == id
                    && (id != Name::Other || fields.at(span).name().eq_ignore_ascii_case(name))
            })
            .map(move |span| fields.at(span).value())
    }

    /// Some field of this name has this token in its comma-separated list, ignoring case.
    pub fn contains_token(&self, name: Name, token: &[u8]) -> bool {
        self.all(name).flat_map(tokens).any(|t| t.eq_ignore_ascii_case(token))
    }

    /// The values of all fields of which a server may make the same variable: see
    /// [`is_one_variable`].
    pub fn of_variable<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b, 'n> {
        self.iter().filter(move |(other, _)| is_one_variable(name, other)).map(|(_, value)| value)
    }

    /// The values of the fields with this name that Connection names (RFC 9110 section 7.6.1):
    /// they are for the recipient of this head, which must not pass them on.
    pub fn for_this_hop<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b, 'n> {
        let fields = *self;
        let of = fields.aside.iter().map(move |span| fields.at(span));
        of.filter(|field| field.name().eq_ignore_ascii_case(name)).map(|field| field.value())
    }

    #[inline]
    pub(crate) fn at(&self, span: &'b Span) -> Field<'b> {
        Field { buf: self.buf, span }
    }

    #[inline]
    pub(crate) fn mask(&self) -> u64 {
        self.index.seen
    }
}

impl std::fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.fields()).finish()
    }
}

impl<'b> IntoIterator for &Fields<'b> {
    type Item = (&'b [u8], &'b [u8]);
    type IntoIter = Iter<'b>;

    fn into_iter(self) -> Iter<'b> {
        self.iter()
    }
}

/// The fields of a head as (name, value).
#[derive(Clone)]
pub struct Iter<'b> {
    fields: Fields<'b>,
    next: usize,
}

impl<'b> Iterator for Iter<'b> {
    type Item = (&'b [u8], &'b [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let field = self.fields.at(self.fields.spans.get(self.next)?);
        self.next += 1;
        Some((field.name(), field.value()))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.fields.spans.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// The positions of a head's fields, owned; the bytes are kept elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct OwnedFields {
    /// Those that are set aside are the last.
    spans: Vec<Span>,
    count: usize,
    index: Index,
}

impl OwnedFields {
    pub(crate) fn of(fields: &Fields<'_>) -> OwnedFields {
        let mut spans = Vec::with_capacity(fields.spans.len() + fields.aside.len());
        spans.extend_from_slice(fields.spans);
        spans.extend_from_slice(fields.aside);
        OwnedFields { spans, count: fields.spans.len(), index: fields.index.clone() }
    }

    pub(crate) fn set(&mut self, fields: &Fields<'_>) {
        self.spans.clear();
        self.spans.extend_from_slice(fields.spans);
        self.spans.extend_from_slice(fields.aside);
        self.count = fields.spans.len();
        self.index.clone_from(fields.index);
    }

    /// Leaves out the fields for which `keeps` is false, and adds others. False, and nothing is
    /// changed, if there would be too many.
    pub(crate) fn change(
        &mut self,
        buf: &[u8],
        keeps: impl Fn(Field<'_>) -> bool,
        added: &[Span],
    ) -> bool {
        let fields = self.view(buf);
        let kept = |spans: &[Span]| -> Vec<Span> {
            spans.iter().filter(|span| keeps(fields.at(span))).copied().collect()
        };
        let (mut spans, aside) = (kept(fields.spans), kept(fields.aside));
        spans.extend_from_slice(added);
        if spans.len() + aside.len() > FIELDS_CEILING {
            return false;
        }
        self.index.clear();
        for (at, span) in spans.iter().enumerate() {
            self.index.note(span.name, at);
        }
        self.count = spans.len();
        spans.extend(aside);
        self.spans = spans;
        true
    }

    pub(crate) fn bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }

    pub(crate) fn view<'b>(&'b self, buf: &'b [u8]) -> Fields<'b> {
        let (spans, aside) = self.spans.split_at(self.count);
        Fields { buf, spans, aside, index: &self.index }
    }
}

/// Defines a head that owns its bytes, for a head that borrows them and has a `Meta`.
macro_rules! owned_head {
    ($(#[$doc:meta])+ $owned:ident of $head:ident) => {
        $(#[$doc])+
        #[derive(Clone)]
        pub struct $owned {
            bytes: Vec<u8>,
            fields: OwnedFields,
            meta: Meta,
        }

        impl $owned {
            /// The head as it was parsed; copies no bytes.
            #[inline]
            pub fn head(&self) -> $head<'_> {
                self.meta.view(&self.bytes, self.fields.view(&self.bytes))
            }

            /// The fields alone; costs less than the head.
            #[inline]
            pub fn fields(&self) -> Fields<'_> {
                self.fields.view(&self.bytes)
            }

            /// Bytes that it has on the heap.
            pub fn heap_bytes(&self) -> usize {
                self.bytes.capacity() + self.fields.bytes()
            }
        }

        impl std::fmt::Debug for $owned {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.head().fmt(f)
            }
        }

        impl $head<'_> {
            /// A copy of the head that needs neither buffer nor scratch. Allocates.
            pub fn detach(&self) -> $owned {
                $owned {
                    bytes: self.buf[..self.meta.head_bytes].to_vec(),
                    fields: OwnedFields::of(&self.fields),
                    meta: self.meta,
                }
            }

            /// The same in the place and the memory of an earlier head. Allocates only if that is
            /// too small.
            pub fn detach_over(&self, owned: &mut $owned) {
                owned.bytes.clear();
                owned.bytes.extend_from_slice(&self.buf[..self.meta.head_bytes]);
                owned.fields.set(&self.fields);
                owned.meta = self.meta;
            }
        }
    };
}
pub(crate) use owned_head;
