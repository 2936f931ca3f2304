//! Encoders for bodies that arrive in pieces and are sent on at once.
//!
//! What: [`Stream`] codes what it is fed, and gives out all of it at each flush, so that a client
//! never waits for a piece that has come. Who owns: the response that is being sent.
//!
//! What never happens: a stream that is dropped before [`Stream::finish`] looks complete to a
//! decoder; an encoder needs more memory than its window, its level and [`crate::limits`] allow.

use crate::limits::STREAM_LEVELS_MAX;
use crate::{Failed, Level};

/// An encoder of one body.
pub struct Stream {
    #[cfg(feature = "codecs")]
    encoder: with_codecs::Encoder,
}

impl Stream {
    /// An encoder at this level, or at the highest level for streams.
    ///
    /// # Errors
    /// This build has no codecs, or there is no memory for the encoder.
    pub fn new(level: Level) -> Result<Stream, Failed> {
        let most = STREAM_LEVELS_MAX[level.coding.index()];
        let level = Level { level: level.level.min(most), ..level };
        #[cfg(feature = "codecs")]
        return Ok(Stream { encoder: with_codecs::Encoder::new(level)? });
        #[cfg(not(feature = "codecs"))]
        {
            let _ = level;
            Err(Failed::Unavailable)
        }
    }

    /// Codes these bytes, and appends what is ready. With `flush`, that is all that was fed.
    ///
    /// # Errors
    /// The encoder has failed. Then the body cannot go on.
    pub fn feed(&mut self, data: &[u8], flush: bool, out: &mut Vec<u8>) -> Result<(), Failed> {
        #[cfg(feature = "codecs")]
        return self.encoder.feed(data, flush, out).map_err(|_| Failed::Malformed);
        #[cfg(not(feature = "codecs"))]
        {
            let _ = (data, flush, out);
            Err(Failed::Unavailable)
        }
    }

    /// Appends the end of the body.
    ///
    /// # Errors
    /// The encoder has failed.
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), Failed> {
        #[cfg(feature = "codecs")]
        return self.encoder.finish(out).map_err(|_| Failed::Malformed);
        #[cfg(not(feature = "codecs"))]
        {
            let _ = out;
            Err(Failed::Unavailable)
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

#[cfg(feature = "codecs")]
mod with_codecs {
    use std::io::{self, Write};

    use crate::limits::{PIECE_BYTES, STREAM_WINDOW_LOG};
    use crate::{Coding, Failed, Level};

    pub(super) enum Encoder {
        Gzip(flate2::write::GzEncoder<Vec<u8>>),
        Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
        Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    }

    impl Encoder {
        pub(super) fn new(Level { coding, level }: Level) -> Result<Encoder, Failed> {
            Ok(match coding {
                Coding::Gzip => {
                    let level = flate2::Compression::new(u32::from(level));
                    Encoder::Gzip(flate2::write::GzEncoder::new(Vec::new(), level))
                }
                Coding::Brotli => Encoder::Brotli(Box::new(brotli::CompressorWriter::new(
                    Vec::new(),
                    PIECE_BYTES,
                    u32::from(level),
                    STREAM_WINDOW_LOG,
                ))),
                Coding::Zstd => {
                    let encoder =
                        zstd::stream::write::Encoder::new(Vec::new(), i32::from(level.max(1)));
                    let mut encoder = encoder.map_err(|_| Failed::Unavailable)?;
                    encoder.window_log(STREAM_WINDOW_LOG).map_err(|_| Failed::Unavailable)?;
                    Encoder::Zstd(encoder)
                }
            })
        }

        pub(super) fn feed(
            &mut self,
            data: &[u8],
            flush: bool,
            out: &mut Vec<u8>,
        ) -> io::Result<()> {
            fn write(to: &mut impl Write, data: &[u8], flush: bool) -> io::Result<()> {
                to.write_all(data)?;
                if flush { to.flush() } else { Ok(()) }
            }
            match self {
                Encoder::Gzip(encoder) => {
                    write(encoder, data, flush)?;
                    out.append(encoder.get_mut());
                }
                Encoder::Brotli(encoder) => {
                    write(encoder, data, flush)?;
                    out.append(encoder.get_mut());
                }
                Encoder::Zstd(encoder) => {
                    write(encoder, data, flush)?;
                    out.append(encoder.get_mut());
                }
            }
            Ok(())
        }

        pub(super) fn finish(self, out: &mut Vec<u8>) -> io::Result<()> {
            let mut end = match self {
                Encoder::Gzip(encoder) => encoder.finish()?,
                // The end is written here; the output is a vector, so no write fails.
                Encoder::Brotli(encoder) => encoder.into_inner(),
                Encoder::Zstd(encoder) => encoder.finish()?,
            };
            out.append(&mut end);
            Ok(())
        }
    }
}

#[cfg(all(test, feature = "codecs"))]
mod tests {
    use super::*;
    use crate::{Coding, decode};

    fn text(bytes: usize) -> Vec<u8> {
        let words = ["cache ", "proxy ", "stream ", "the ", "of ", "a\n", "response "];
        let mut at = 7_usize;
        let mut text = Vec::new();
        while text.len() < bytes {
            at = at.wrapping_mul(1_103_515_245).wrapping_add(12345);
            text.extend_from_slice(words[(at >> 16) % words.len()].as_bytes());
        }
        text.truncate(bytes);
        text
    }

    #[test]
    fn what_is_fed_comes_out_at_each_flush() {
        for coding in Coding::ALL {
            for level in [1, 3, 11, 19] {
                let mut stream = Stream::new(Level { coding, level }).unwrap();
                let (mut out, mut fed) = (Vec::new(), Vec::new());
                for piece in text(200_000).chunks(30_000) {
                    let before = out.len();
                    stream.feed(piece, true, &mut out).unwrap();
                    fed.extend_from_slice(piece);
                    assert!(out.len() > before, "{coding:?}: a flush gives something out");
                    // All of it can be read by now, although the end has not come.
                    assert_eq!(begun(coding, &out), fed, "{coding:?}");
                    assert!(decode(coding, &[&out], 1 << 20).is_err(), "{coding:?}: no end yet");
                }
                stream.finish(&mut out).unwrap();
                assert_eq!(decode(coding, &[&out], 1 << 20).unwrap(), fed, "{coding:?}");
                assert!(out.len() < fed.len() / 2, "{coding:?} {level}: {} bytes", out.len());
            }
        }
    }

    #[test]
    fn an_empty_body_is_one_of_its_coding() {
        for coding in Coding::ALL {
            let stream = Stream::new(Level { coding, level: 1 }).unwrap();
            let mut out = Vec::new();
            stream.finish(&mut out).unwrap();
            assert_eq!(decode(coding, &[&out], 1 << 20).unwrap(), b"", "{coding:?}");
        }
    }

    /// What a decoder gives out of the beginning of a body.
    fn begun(coding: Coding, data: &[u8]) -> Vec<u8> {
        use std::io::Read;
        let mut decoder: Box<dyn Read> = match coding {
            Coding::Gzip => Box::new(flate2::read::GzDecoder::new(data)),
            Coding::Brotli => Box::new(brotli::Decompressor::new(data, 4096)),
            Coding::Zstd => Box::new(zstd::stream::read::Decoder::new(data).expect("memory")),
        };
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(bytes @ 1..) = decoder.read(&mut piece) {
            all.extend_from_slice(&piece[..bytes]);
        }
        all
    }
}
