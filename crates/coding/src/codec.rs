//! The encoders and decoders: whole bodies in pieces, bounded output.
//!
//! Encoders write into a buffer with a bound, and decoders are read by one loop of `bounded` that
//! enforces the limits. The same bytes, coding and level give the same output, as long as the
//! library has the same version.

use std::fmt;

use crate::Coding;

/// Why there is no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The output would be longer than the caller allows.
    TooLong,
    /// The output would be more than [`DECODED_RATIO_MAX`](crate::limits::DECODED_RATIO_MAX) times
    /// as long as the input.
    Bomb,
    /// There is no memory for the output now.
    NoRoom,
    /// The input is not of this coding, or is truncated.
    Malformed,
    /// This build has no codecs.
    Unavailable,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failed::TooLong => "the output exceeds its limit",
            Failed::NoRoom => "there is no room for the output",
            Failed::Bomb => "the output is out of proportion to the input",
            Failed::Malformed => "the input is malformed or truncated",
            Failed::Unavailable => "this build has no codecs",
        })
    }
}

/// How long an output may be, and the memory for it. A number is the first alone.
pub trait Bound {
    /// The most bytes of the output.
    fn bytes_max(&self) -> u64;

    /// Whether there is memory for so many more bytes. If there is, they have been taken.
    fn takes(&mut self, bytes: u64) -> bool;
}

impl Bound for u64 {
    fn bytes_max(&self) -> u64 {
        *self
    }

    fn takes(&mut self, _: u64) -> bool {
        true
    }
}

impl<B: Bound> Bound for &mut B {
    fn bytes_max(&self) -> u64 {
        (**self).bytes_max()
    }

    fn takes(&mut self, bytes: u64) -> bool {
        (**self).takes(bytes)
    }
}

/// Codes a body.
///
/// # Errors
/// The output is longer than its bound, or there is no memory for it.
pub fn encode<P: AsRef<[u8]>>(
    coding: Coding,
    level: u8,
    pieces: &[P],
    bound: impl Bound,
) -> Result<Vec<u8>, Failed> {
    #[cfg(feature = "codecs")]
    return with_codecs::encode(coding, level, pieces, bound);
    #[cfg(not(feature = "codecs"))]
    {
        let _ = (coding, level, pieces, bound.bytes_max());
        Err(Failed::Unavailable)
    }
}

/// Decodes a body.
///
/// # Errors
/// The input is malformed, the output is longer than its bound or out of proportion, or there is no
/// memory for it.
pub fn decode<P: AsRef<[u8]>>(
    coding: Coding,
    pieces: &[P],
    bound: impl Bound,
) -> Result<Vec<u8>, Failed> {
    #[cfg(feature = "codecs")]
    return with_codecs::decode(coding, pieces, bound);
    #[cfg(not(feature = "codecs"))]
    {
        let _ = (coding, pieces, bound.bytes_max());
        Err(Failed::Unavailable)
    }
}

#[cfg(feature = "codecs")]
mod with_codecs {
    use std::io::Write;

    use super::{Bound, Failed};
    use crate::Coding;
    use crate::bounded::{Bounded, Input, read_all};
    use crate::limits::{BROTLI_WINDOW_LOG, PIECE_BYTES, ZSTD_LEVEL_MAX, ZSTD_WINDOW_LOG_MAX};

    pub(super) fn encode<P: AsRef<[u8]>>(
        coding: Coding,
        level: u8,
        pieces: &[P],
        bound: impl Bound,
    ) -> Result<Vec<u8>, Failed> {
        let mut output = Bounded::new(bound);
        let out = &mut output;
        let encoded = match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(u32::from(level.min(9)));
                let mut encoder = flate2::write::GzEncoder::new(out, level);
                write_all(&mut encoder, pieces).and_then(|()| encoder.finish()).map(|_| ())
            }
            Coding::Brotli => {
                let level = u32::from(level.min(11));
                let mut encoder =
                    brotli::CompressorWriter::new(out, PIECE_BYTES, level, BROTLI_WINDOW_LOG);
                let written = write_all(&mut encoder, pieces).and_then(|()| encoder.flush());
                // The end is written here; a write that fails shows as an overrun.
                written.map(|()| encoder.into_inner()).map(|_| ())
            }
            Coding::Zstd => {
                let level = i32::from(level.clamp(1, ZSTD_LEVEL_MAX));
                let total = pieces.iter().map(|piece| piece.as_ref().len() as u64).sum();
                zstd::stream::write::Encoder::new(out, level).and_then(|mut encoder| {
                    encoder.set_pledged_src_size(Some(total))?;
                    write_all(&mut encoder, pieces)?;
                    encoder.finish().map(|_| ())
                })
            }
        };
        // A writer in memory fails only at its bound, which it knows.
        let body = output.finish()?;
        encoded.map_or(Err(Failed::TooLong), |()| Ok(body))
    }

    fn write_all<P: AsRef<[u8]>>(to: &mut impl Write, pieces: &[P]) -> std::io::Result<()> {
        pieces.iter().try_for_each(|piece| to.write_all(piece.as_ref()))
    }

    pub(super) fn decode<P: AsRef<[u8]>>(
        coding: Coding,
        pieces: &[P],
        bound: impl Bound,
    ) -> Result<Vec<u8>, Failed> {
        let input = Input::new(pieces);
        let coded_bytes = input.bytes();
        match coding {
            Coding::Gzip => {
                let mut decoder = flate2::bufread::MultiGzDecoder::new(input);
                read_all(&mut decoder, coded_bytes, bound)
            }
            Coding::Brotli => {
                let mut decoder = brotli::Decompressor::new(input, PIECE_BYTES);
                read_all(&mut decoder, coded_bytes, bound)
            }
            Coding::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(input);
                let mut decoder = decoder.map_err(|_| Failed::Malformed)?;
                let bounded = decoder.window_log_max(ZSTD_WINDOW_LOG_MAX);
                bounded.map_err(|_| Failed::Malformed)?;
                read_all(&mut decoder, coded_bytes, bound)
            }
        }
    }
}

#[cfg(all(test, feature = "codecs"))]
mod tests;
