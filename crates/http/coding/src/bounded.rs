//! Input in pieces and output with a bound, for all encoders and decoders.

use std::io::{self, BufRead, Read, Write};

use crate::Failed;
use crate::limits::PIECE_BYTES;

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
        assert!(self.out.len() as u64 <= self.bytes_max, "output ends at its bound");
        if self.overrun { Err(Failed::TooLong) } else { Ok(self.out) }
    }

    fn append(&mut self, data: &[u8]) -> Result<(), Failed> {
        let (total, before) = (self.out.len() + data.len(), self.out.capacity());
        let most = usize::try_from(self.bytes_max).unwrap_or(usize::MAX);
        if total > most {
            self.overrun = true;
            return Err(Failed::TooLong);
        }
        if total > before {
            // Twice as much, as vectors do, but never more than the caller has memory for.
            let after = before.saturating_mul(2).max(PIECE_BYTES).min(most).max(total);
            assert!(total <= after && after <= most, "there is room, and no more than the bound");
            self.out.reserve_exact(after - self.out.len());
        }
        self.out.extend_from_slice(data);
        Ok(())
    }
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.append(data).map_err(|why| io::Error::other(why.to_string()))?;
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
        debug_assert!(self.at <= self.pieces.first().map_or(0, |first| first.as_ref().len()));
    }
}

impl<P: AsRef<[u8]>> Read for Input<'_, P> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.fill_buf()?.read(into)?;
        self.consume(bytes);
        Ok(bytes)
    }
}

/// Reads a decoder to its end. Beyond `in_proportion` bytes the input is a bomb.
pub(crate) fn read_all(
    decoder: &mut impl Read,
    in_proportion: u64,
    bytes_max: u64,
) -> Result<Vec<u8>, Failed> {
    let most = in_proportion.min(bytes_max);
    let mut output = Bounded::new(most);
    let mut piece = [0; PIECE_BYTES];
    loop {
        let bytes = match decoder.read(&mut piece) {
            Ok(0) => return output.finish(),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(Failed::Malformed),
        };
        let total = (output.out.len() + bytes) as u64;
        if total > most && total <= bytes_max {
            return Err(Failed::Bomb);
        }
        output.append(&piece[..bytes])?;
    }
}
