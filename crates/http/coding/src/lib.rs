//! Content codings (RFC 9110, 8.4): which ones a client accepts, which responses are worth coding,
//! what becomes of their validators and fields, and the encoders and decoders.
//!
//! What: pure functions, no I/O and no clock. [`accept`] reads `Accept-Encoding`, [`rules`] decides
//! by the configuration, [`fields`] changes validators, [`codec`] has one function for each
//! direction, and [`stream`] codes bodies while they arrive. Why apart: a cache decides when and
//! where to code, and this crate how.
//!
//! What never happens: output beyond a limit of the caller or of [`limits`]; a coding that the
//! client refuses is chosen; a strong validator of one form appears on another.
#![forbid(unsafe_code)]

pub mod accept;
#[cfg(feature = "codecs")]
mod bounded;
pub mod codec;
pub mod fields;
pub mod limits;
pub mod rules;
pub mod stream;

pub use accept::Accept;
pub use codec::{decode, decoded_bytes_max, encode};
pub use fields::TagRule;
pub use rules::{Level, Rules, Types};
pub use stream::Stream;

use std::fmt;

/// A content coding that this crate reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 7932.
    Brotli,
    /// RFC 8878, with windows of at most 8 MiB (RFC 9659).
    Zstd,
}

impl Coding {
    /// All of them, in the order of [`Coding::index`].
    pub const ALL: [Coding; 3] = [Coding::Gzip, Coding::Brotli, Coding::Zstd];

    /// Its name in fields.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
        }
    }

    /// Its place in [`Coding::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The coding of this name, in any case. `x-gzip` is gzip (RFC 9110, 8.4.1.3).
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Coding> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Coding::Gzip);
        }
        Coding::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// Why there is no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The output would be longer than the caller allows.
    TooLong,
    /// The output would be more than [`limits::DECODED_RATIO_MAX`] times as long as the input.
    Bomb,
    /// The input is not of this coding, or is truncated.
    Malformed,
    /// This build has no codecs.
    Unavailable,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failed::TooLong => "the output exceeds its limit",
            Failed::Bomb => "the output is out of proportion to the input",
            Failed::Malformed => "the input is malformed or truncated",
            Failed::Unavailable => "this build has no codecs",
        })
    }
}

/// Whether this build has the encoders and decoders.
#[must_use]
pub const fn is_available() -> bool {
    cfg!(feature = "codecs")
}
