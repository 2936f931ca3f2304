//! Every limit of this crate by name, and how the limits relate.
//!
//! A text that exceeds a limit is a [`Mistake`](crate::Mistake) when it is checked. No request can
//! exceed a limit: what a request can cost is bounded by the limits on the text.

/// The longest text of a condition.
pub const TEXT_BYTES_MAX: usize = 4096;

/// The most tokens of a condition. A node of the syntax tree has at least one token.
pub const TOKENS_MAX: usize = 1024;

/// How deep brackets and `? :` may nest. The parser, the checks and the judgement recurse once for
/// each level.
pub const DEPTH_MAX: usize = 32;

/// The most comparison operators, members, calls and indexes in one term. The parser recurses once
/// for each of them.
pub const LINKS_MAX: usize = 16;

/// The longest regular expression or glob.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// How deep groups of a regular expression may nest.
pub const PATTERN_DEPTH_MAX: u32 = 32;

/// The most bytes of a compiled regular expression. A repetition multiplies them: `(a{100}){100}`.
pub const PATTERN_PROGRAM_BYTES_MAX: usize = 1 << 18;

/// The most bytes of the automaton of one pattern. A larger pattern is searched without it.
pub(crate) const MACHINE_BYTES_MAX: usize = 1 << 16;

/// The most bytes of the automaton of several patterns.
pub(crate) const JOINT_MACHINE_BYTES_MAX: usize = 1 << 19;

/// Making an automaton takes at most so many times its bytes.
pub(crate) const MACHINE_WORK_FACTOR: usize = 4;

/// The most named groups of all regular expressions that one condition captures.
pub const CAPTURES_MAX: usize = 16;

/// The most groups of a regular expression with a named group, with the whole match.
pub const GROUPS_MAX: usize = 32;

/// The most conditions of a configuration.
pub const CONDITIONS_MAX: usize = 512;

/// The most different terms of a configuration.
pub const TERMS_MAX: usize = 8192;

/// The most different values that terms read, other than the variables without a name.
pub const SLOTS_MAX: usize = 1024;

/// The fewest terms that are tested together.
pub(crate) const INDEX_TERMS_MIN: usize = 4;

/// The most indexes. Terms without an index are tested one by one.
pub(crate) const INDEXES_MAX: usize = 64;

/// The most terms whose results are remembered. Other terms are tested again if conditions share
/// them.
pub(crate) const BITS_MAX: usize = 1024;

/// The most slots whose values are remembered where they are. The values of other slots are copied.
pub(crate) const SLOTS_IN_PLACE_MAX: usize = 16;

/// The most parts of two conditions that [`hidden_by`](crate::hidden_by) compares.
pub(crate) const HIDING_STEPS_MAX: usize = 1000;

/// The most named lists and maps.
pub const LISTS_MAX: usize = 256;

/// The most values of a named list, and pairs of a named map.
pub const LIST_VALUES_MAX: usize = 1 << 20;

/// The longest name of a list or a map.
pub const LIST_NAME_BYTES_MAX: usize = 64;

const _: () = {
    assert!(TEXT_BYTES_MAX < u32::MAX as usize, "positions of the parser are 32 bits");
    assert!(PATTERN_BYTES_MAX <= TEXT_BYTES_MAX);
    assert!(DEPTH_MAX < TOKENS_MAX && LINKS_MAX < TOKENS_MAX && TOKENS_MAX <= TEXT_BYTES_MAX);
    assert!(CONDITIONS_MAX <= u16::MAX as usize, "an Id has 16 bits");
    assert!(SLOTS_MAX <= TERMS_MAX && TERMS_MAX <= u16::MAX as usize);
    assert!(INDEXES_MAX <= 64 && BITS_MAX.is_multiple_of(64), "sets of them are words of 64 bits");
    assert!(SLOTS_IN_PLACE_MAX <= SLOTS_MAX && BITS_MAX <= TERMS_MAX);
    assert!(CAPTURES_MAX < GROUPS_MAX);
};
