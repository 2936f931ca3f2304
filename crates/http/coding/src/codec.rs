//! The encoders and decoders: whole bodies in pieces, bounded output.
//!
//! Encoders write into a buffer with a bound, and decoders are read by one loop of `bounded` that
//! enforces the limits. The same bytes, coding and level give the same output, as long as the
//! library has the same version.

use crate::limits::{DECODED_FREE_BYTES, DECODED_RATIO_MAX};
use crate::{Coding, Failed};

/// Codes a body.
///
/// # Errors
/// The output is longer than `bytes_max`.
pub fn encode<P: AsRef<[u8]>>(
    coding: Coding,
    level: u8,
    pieces: &[P],
    bytes_max: u64,
) -> Result<Vec<u8>, Failed> {
    #[cfg(feature = "codecs")]
    return with_codecs::encode(coding, level, pieces, bytes_max);
    #[cfg(not(feature = "codecs"))]
    {
        let _ = (coding, level, pieces, bytes_max);
        Err(Failed::Unavailable)
    }
}

/// Decodes a body.
///
/// # Errors
/// The input is malformed, or the output is longer than `bytes_max` or out of proportion.
pub fn decode<P: AsRef<[u8]>>(
    coding: Coding,
    pieces: &[P],
    bytes_max: u64,
) -> Result<Vec<u8>, Failed> {
    #[cfg(feature = "codecs")]
    return with_codecs::decode(coding, pieces, bytes_max);
    #[cfg(not(feature = "codecs"))]
    {
        let _ = (coding, pieces, bytes_max);
        Err(Failed::Unavailable)
    }
}

/// The most bytes that a body of this length is decoded to.
#[must_use]
pub fn decoded_bytes_max(coded_bytes: u64) -> u64 {
    coded_bytes.saturating_mul(DECODED_RATIO_MAX).max(DECODED_FREE_BYTES)
}

#[cfg(feature = "codecs")]
mod with_codecs {
    use std::io::Write;

    use super::decoded_bytes_max;
    use crate::bounded::{Bounded, Input, read_all};
    use crate::limits::{BROTLI_WINDOW_LOG, PIECE_BYTES, ZSTD_LEVEL_MAX, ZSTD_WINDOW_LOG_MAX};
    use crate::{Coding, Failed};

    pub(super) fn encode<P: AsRef<[u8]>>(
        coding: Coding,
        level: u8,
        pieces: &[P],
        bytes_max: u64,
    ) -> Result<Vec<u8>, Failed> {
        let out = Bounded::new(bytes_max);
        // A writer in memory fails only at its bound.
        let encoded = match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(u32::from(level.min(9)));
                let mut encoder = flate2::write::GzEncoder::new(out, level);
                write_all(&mut encoder, pieces).and_then(|()| encoder.finish())
            }
            Coding::Brotli => {
                let level = u32::from(level.min(11));
                let mut encoder =
                    brotli::CompressorWriter::new(out, PIECE_BYTES, level, BROTLI_WINDOW_LOG);
                let written = write_all(&mut encoder, pieces).and_then(|()| encoder.flush());
                // The end is written here; a write that fails shows as an overrun.
                written.map(|()| encoder.into_inner())
            }
            Coding::Zstd => {
                let level = i32::from(level.clamp(1, ZSTD_LEVEL_MAX));
                let total = pieces.iter().map(|piece| piece.as_ref().len() as u64).sum();
                zstd::stream::write::Encoder::new(out, level).and_then(|mut encoder| {
                    encoder.set_pledged_src_size(Some(total))?;
                    write_all(&mut encoder, pieces)?;
                    encoder.finish()
                })
            }
        };
        encoded.map_err(|_| Failed::TooLong)?.finish()
    }

    fn write_all<P: AsRef<[u8]>>(to: &mut impl Write, pieces: &[P]) -> std::io::Result<()> {
        pieces.iter().try_for_each(|piece| to.write_all(piece.as_ref()))
    }

    pub(super) fn decode<P: AsRef<[u8]>>(
        coding: Coding,
        pieces: &[P],
        bytes_max: u64,
    ) -> Result<Vec<u8>, Failed> {
        let input = Input::new(pieces);
        let in_proportion = decoded_bytes_max(input.bytes());
        match coding {
            Coding::Gzip => {
                let mut decoder = flate2::bufread::MultiGzDecoder::new(input);
                read_all(&mut decoder, in_proportion, bytes_max)
            }
            Coding::Brotli => {
                let mut decoder = brotli::Decompressor::new(input, PIECE_BYTES);
                read_all(&mut decoder, in_proportion, bytes_max)
            }
            Coding::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(input);
                let mut decoder = decoder.map_err(|_| Failed::Malformed)?;
                let bounded = decoder.window_log_max(ZSTD_WINDOW_LOG_MAX);
                bounded.map_err(|_| Failed::Malformed)?;
                read_all(&mut decoder, in_proportion, bytes_max)
            }
        }
    }
}

#[cfg(all(test, feature = "codecs"))]
mod tests;
