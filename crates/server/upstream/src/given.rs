//! How much content of a body was given away.
//!
//! Why: a body that breaks off may be continued by another server, from where the first one ended.
//! If that one sends all of it again, the beginning is left out.

use outcome::Fault;

/// See the module's text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Given {
    pub(super) bytes: u64,
    /// Bytes that come next and are left out.
    pub(super) skips: u64,
}

impl Given {
    /// The content of a piece that is given away.
    pub(super) fn piece<'d>(&mut self, mut data: &'d [u8]) -> &'d [u8] {
        if self.skips > 0 {
            let skipped = data.len().min(usize::try_from(self.skips).unwrap_or(usize::MAX));
            self.skips -= skipped as u64;
            data = &data[skipped..];
        }
        self.bytes += data.len() as u64;
        data
    }

    /// At the end of a body: it is not shorter than what was to be left out.
    pub(super) fn end(self) -> Result<(), Fault> {
        if self.skips == 0 { Ok(()) } else { Err(Fault::Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_first_is_left_out_wherever_the_pieces_end() {
        let mut given = Given { bytes: 0, skips: 5 };
        let pieces: [&[u8]; 4] = [b"abc", b"defg", b"", b"h"];
        let rest: Vec<&[u8]> = pieces.iter().map(|piece| given.piece(piece)).collect();
        assert_eq!((rest.concat(), given.bytes), (b"fgh".to_vec(), 3));
        assert_eq!(given.end(), Ok(()));
    }

    #[test]
    fn a_body_that_is_shorter_than_that_is_malformed() {
        let mut given = Given { bytes: 0, skips: 5 };
        assert_eq!(given.piece(b"abcd"), b"");
        assert_eq!((given.bytes, given.end()), (0, Err(Fault::Malformed)));
    }
}
