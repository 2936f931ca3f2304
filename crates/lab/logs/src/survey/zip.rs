//! The texts in a ZIP archive, one after the other, read without seeking.
//!
//! ```text
//! [header, name, extra] [data] [descriptor, if the header has no sizes] ... [directory]
//! ```
//!
//! Entries that are deflated or stored are read (APPNOTE.TXT 6.3, sections 4.3 and 4.4). An entry
//! that is encrypted or in another method ends the text with an error that says what to type. The
//! text of an entry ends with a newline, so that no line is joined with the next entry's.

use std::io::{self, BufRead, Read, Take};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

/// What an archive begins with.
pub(super) const MAGIC: [u8; 4] = *b"PK\x03\x04";

const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// Flags of an entry.
const ENCRYPTED: u16 = 1;
const SIZES_FOLLOW: u16 = 1 << 3;

/// The entries' texts.
pub(super) struct Zip<R> {
    state: State<R>,
    /// The sum of the entry's text so far, and the sum in its header.
    crc: Crc,
    entry: Entry,
    /// The last byte of the entry's text.
    last: u8,
}

enum State<R> {
    /// Before a header, or at the end of the entries.
    Between(R),
    Inflating(DeflateDecoder<R>),
    Copying(Take<R>),
    /// After an error or the last entry.
    Ended,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    crc: u32,
    sizes_follow: bool,
    /// Whether its sizes have 64 bits.
    long: bool,
}

impl<R: BufRead> Zip<R> {
    pub(super) fn new(archive: R) -> Zip<R> {
        Zip {
            state: State::Between(archive),
            crc: Crc::new(),
            entry: Entry::default(),
            last: b'\n',
        }
    }

    /// Reads a header and begins its entry.
    fn begin(&mut self, mut archive: R) -> io::Result<()> {
        let mut header = [0; 30];
        archive.read_exact(&mut header[..4])?;
        if header[..4] != MAGIC {
            // The directory: there are no more entries.
            return Ok(());
        }
        archive.read_exact(&mut header[4..])?;
        let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let long = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (flags, method) = (short(6), short(8));
        let mut name_and_extra = vec![0; usize::from(short(26)) + usize::from(short(28))];
        archive.read_exact(&mut name_and_extra)?;
        let sizes = sizes_of_64_bits(&name_and_extra[usize::from(short(26))..]);
        let packed_bytes = match (long(18), sizes) {
            (u32::MAX, Some(packed_bytes)) => packed_bytes,
            (packed_bytes, _) => u64::from(packed_bytes),
        };
        let sizes_follow = flags & SIZES_FOLLOW != 0;
        self.entry = Entry { crc: long(14), sizes_follow, long: sizes.is_some() };
        self.crc.reset();
        self.last = b'\n';
        self.state = match method {
            _ if flags & ENCRYPTED != 0 => return Err(unsupported("is encrypted")),
            DEFLATED => State::Inflating(DeflateDecoder::new(archive)),
            STORED if !sizes_follow => State::Copying(archive.take(packed_bytes)),
            _ => return Err(unsupported("is compressed in another way than by deflate")),
        };
        Ok(())
    }

    /// Ends an entry: compares its sum.
    fn end(&mut self, mut archive: R) -> io::Result<()> {
        if self.entry.sizes_follow {
            let mut first = [0; 4];
            archive.read_exact(&mut first)?;
            if first == DESCRIPTOR {
                archive.read_exact(&mut first)?;
            }
            self.entry.crc = u32::from_le_bytes(first);
            let sizes = if self.entry.long { 16 } else { 8 };
            archive.read_exact(&mut [0; 16][..sizes])?;
        }
        if self.entry.crc != self.crc.sum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an entry has a wrong sum"));
        }
        self.state = State::Between(archive);
        Ok(())
    }
}

/// The packed size in the extra field of ZIP64, or 0 if that follows the data.
fn sizes_of_64_bits(mut extra: &[u8]) -> Option<u64> {
    while let [a, b, c, d, rest @ ..] = extra {
        let (kind, bytes) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
        let field = rest.get(..usize::from(bytes))?;
        if kind == 1 {
            return Some(field.get(8..16).map_or(0, |size| {
                u64::from_le_bytes(size.try_into().expect("a slice of eight bytes"))
            }));
        }
        extra = &rest[field.len()..];
    }
    None
}

fn unsupported(what: &str) -> io::Error {
    let fix = "unpack it first: unzip -p FILE | plimsoll logs -";
    io::Error::new(io::ErrorKind::Unsupported, format!("an entry of the archive {what}; {fix}"))
}

/// Checks that whatever an archive contains, its text ends, with an error or without. For the fuzz
/// target.
#[cfg(any(test, fuzzing))]
pub(crate) fn check(archive: &[u8]) {
    const TEXT_BYTES_MAX: u64 = 1 << 20;
    let mut text = Zip::new(archive).take(TEXT_BYTES_MAX);
    let _ = io::copy(&mut text, &mut io::sink());
}

impl<R: BufRead> Read for Zip<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let read = match &mut self.state {
                State::Inflating(text) => text.read(buffer)?,
                State::Copying(text) => text.read(buffer)?,
                State::Between(_) | State::Ended => 0,
            };
            if read > 0 {
                self.crc.update(&buffer[..read]);
                self.last = buffer[read - 1];
                return Ok(read);
            }
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Ok(0),
                State::Between(archive) => self.begin(archive)?,
                State::Inflating(text) => self.end(text.into_inner())?,
                State::Copying(text) if text.limit() > 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                State::Copying(text) => self.end(text.into_inner())?,
            }
            if self.last != b'\n' {
                self.last = b'\n';
                buffer[0] = b'\n';
                return Ok(1);
            }
        }
    }
}
