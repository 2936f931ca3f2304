//! The decoded fields of one message: [`Scratch`], which the caller keeps, and its view
//! [`Fields`].
//!
//! Why positions: they have no lifetime, so that one scratch serves all connections of a core and
//! nothing is allocated per field or per message.
//!
//! Invariants: every span lies within `arena`, its value right after its name. After a block was
//! accepted, names are lower case, and values have no control byte but HTAB.

use crate::error::Reason;
use crate::hpack::{id, name_index};
use crate::limits::{FIELD_OVERHEAD_BYTES, LIST_EXCESS_MAX};

/// The position of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) name_len: u32,
    pub(crate) value_len: u32,
    /// The first index of the name in the static table, or 0.
    pub(crate) id: u8,
}

/// Space for the fields of one message. Make one for each core and use it for every call.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) arena: Vec<u8>,
    pub(crate) spans: Vec<Span>,
    /// The size of the list (RFC 9113 section 6.5.2) and its limits.
    pub(crate) size: usize,
    /// Fields `cookie` after the first. They are joined, so they count as one field together.
    pub(crate) crumbs: usize,
    /// A limit was exceeded: later fields are decoded and not stored.
    pub(crate) overflow: bool,
}

impl Scratch {
    /// An empty scratch; it grows to what the limits of its connections allow.
    pub const fn new() -> Scratch {
        Scratch { arena: Vec::new(), spans: Vec::new(), size: 0, crumbs: 0, overflow: false }
    }

    /// All fields of the block that was decoded last, with pseudo-fields and without any check.
    pub fn fields_of_block(&self) -> Fields<'_> {
        self.fields(0)
    }

    /// Forgets all fields. For another compression that decodes into this scratch (QPACK).
    pub fn clear(&mut self) {
        self.arena.clear();
        self.spans.clear();
        self.size = 0;
        self.crumbs = 0;
        self.overflow = false;
    }

    /// Adds a field: `append` appends its name, then its value, and returns the length of the name.
    /// If the list exceeds `fields_max` or `bytes_max`, the scratch is marked
    /// ([`Scratch::is_overfull`]) and the field is not stored.
    ///
    /// # Errors
    /// That of `append`, or the list is larger than `bytes_max` by
    /// [`LIST_EXCESS_MAX`].
    pub fn push(
        &mut self,
        fields_max: usize,
        bytes_max: usize,
        append: impl FnOnce(&mut Vec<u8>) -> Result<usize, Reason>,
    ) -> Result<(), Reason> {
        let at = self.arena.len();
        let name_len = append(&mut self.arena)?;
        let span = Span {
            at: at as u32,
            name_len: name_len as u32,
            value_len: (self.arena.len() - at - name_len) as u32,
            id: name_index(&self.arena[at..at + name_len]),
        };
        self.keep(span, fields_max, bytes_max)
    }

    /// A limit of the list was exceeded, so that fields are missing.
    pub fn is_overfull(&self) -> bool {
        self.overflow
    }

    /// Adds a field whose text is the end of the arena, within the limits of a list.
    pub(crate) fn keep(
        &mut self,
        span: Span,
        fields_max: usize,
        bytes_max: usize,
    ) -> Result<(), Reason> {
        self.size += (span.name_len + span.value_len) as usize + FIELD_OVERHEAD_BYTES;
        if self.size > bytes_max.saturating_mul(LIST_EXCESS_MAX) {
            return Err(Reason::BlockTooLarge);
        }
        let is_crumb = span.id == id::COOKIE && self.spans.iter().any(|s| s.id == id::COOKIE);
        let counted = self.spans.len() - self.crumbs;
        let is_one_too_many = if is_crumb { false } else { counted == fields_max };
        if self.size > bytes_max || is_one_too_many {
            self.overflow = true;
        }
        if self.overflow {
            self.arena.truncate(span.at as usize);
        } else {
            self.spans.push(span);
            self.crumbs += usize::from(is_crumb);
        }
        debug_assert!(self.spans.len() * FIELD_OVERHEAD_BYTES <= bytes_max, "crumbs have bytes");
        Ok(())
    }

    #[inline]
    pub(crate) fn name(&self, span: &Span) -> &[u8] {
        &self.arena[span.at as usize..][..span.name_len as usize]
    }

    #[inline]
    pub(crate) fn value(&self, span: &Span) -> &[u8] {
        &self.arena[(span.at + span.name_len) as usize..][..span.value_len as usize]
    }

    /// The fields from the one with this number on.
    pub(crate) fn fields(&self, from: usize) -> Fields<'_> {
        Fields { arena: &self.arena, spans: &self.spans[from..] }
    }
}

/// The fields of a message in their order, without pseudo-fields. Names are in lower case. Several
/// `cookie` fields are joined into one (RFC 9113 section 8.2.3).
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    arena: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Fields<'a> {
    /// Names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a> {
        let arena = self.arena;
        self.spans.iter().map(move |span| {
            let (name, rest) = arena[span.at as usize..].split_at(span.name_len as usize);
            (name, &rest[..span.value_len as usize])
        })
    }

    /// The first value of a field. The name is in lower case.
    pub fn get(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

impl std::fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.iter().map(|(n, v)| (n.escape_ascii().to_string(), v.escape_ascii()));
        f.debug_map().entries(text.map(|(n, v)| (n, v.to_string()))).finish()
    }
}
