//! Input in pieces and output with a bound, for all encoders and decoders.

use std::io::{self, BufRead, Read, Write};

use crate::codec::Failed;
use crate::limits::{DECODED_FREE_BYTES, DECODED_RATIO_MAX, PIECE_BYTES};

/// Output that ends at a bound.
pub(crate) struct Bounded {
    out: Vec<u8>,
    bytes_max: u64,
    overrun: bool,
}

impl Bounded {
    pub(crate) fn new(bytes_max: u64) -> Bounded {
        Bounded { out: Vec::new(), bytes_max, overrun: false }
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>, Failed> {
        if self.overrun { Err(Failed::TooLong) } else { Ok(self.out) }
    }
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if (self.out.len() + data.len()) as u64 > self.bytes_max {
            self.overrun = true;
            return Err(io::Error::other("beyond the bound"));
        }
        self.out.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The pieces of a body, one after the other.
pub(crate) struct Input<'p, P> {
    pieces: &'p [P],
    /// Where the next byte is in the first of them.
    at: usize,
}

impl<'p, P: AsRef<[u8]>> Input<'p, P> {
    pub(crate) fn new(pieces: &'p [P]) -> Input<'p, P> {
        Input { pieces, at: 0 }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.as_ref().len() as u64).sum()
    }
}

impl<P: AsRef<[u8]>> BufRead for Input<'_, P> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while let [first, rest @ ..] = self.pieces
            && self.at == first.as_ref().len()
        {
            (self.pieces, self.at) = (rest, 0);
        }
        Ok(self.pieces.first().map_or(&[], |first| &first.as_ref()[self.at..]))
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

impl<P: AsRef<[u8]>> Read for Input<'_, P> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(into)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

/// Reads a decoder to its end, within the limits.
pub(crate) fn read_all(
    decoder: &mut impl Read,
    coded_bytes: u64,
    bytes_max: u64,
) -> Result<Vec<u8>, Failed> {
    let in_proportion = coded_bytes.saturating_mul(DECODED_RATIO_MAX).max(DECODED_FREE_BYTES);
    let mut out = Vec::new();
    let mut piece = [0; PIECE_BYTES];
    loop {
        let bytes = match decoder.read(&mut piece) {
            Ok(0) => return Ok(out),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(Failed::Malformed),
        };
        let total = (out.len() + bytes) as u64;
        if total > bytes_max {
            return Err(Failed::TooLong);
        }
        if total > in_proportion {
            return Err(Failed::Bomb);
        }
        out.extend_from_slice(&piece[..bytes]);
    }
}
