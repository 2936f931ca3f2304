//! The decoded fields of one message: [`Scratch`], which the caller keeps, and its view
//! [`Fields`].
//!
//! Why positions: they have no lifetime, so that one scratch serves all connections of a core and
//! nothing is allocated per field or per message.
//!
//! Invariants: every span lies within `arena`, its value right after its name. After a block was
//! accepted, names are lower case, and values have no control byte but HTAB.

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
    /// A limit was exceeded: later fields are decoded and not stored.
    pub(crate) overflow: bool,
}

impl Scratch {
    /// An empty scratch; it grows to what the limits of its connections allow.
    pub const fn new() -> Scratch {
        Scratch { arena: Vec::new(), spans: Vec::new(), size: 0, overflow: false }
    }

    /// All fields of the block that was decoded last, with pseudo-fields and without any check.
    pub fn fields_of_block(&self) -> Fields<'_> {
        self.fields(0)
    }

    pub(crate) fn clear(&mut self) {
        self.arena.clear();
        self.spans.clear();
        self.size = 0;
        self.overflow = false;
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
