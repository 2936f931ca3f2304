//! Files to lines: plain files are read in pieces by every core, compressed ones are decompressed
//! by one thread and parsed by others.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use super::tally::Tally;
use crate::logs::Format;
use crate::tail::LINE_BYTES_MAX;

/// Bytes of a plain file that a thread takes per step.
const PIECE_BYTES: u64 = 4 << 20;

/// Bytes of decompressed text per block.
const BLOCK_BYTES: usize = 1 << 20;

/// Blocks that may wait between the decompressing thread and the parsing threads.
const BLOCKS_WAITING: usize = 4;

/// Bytes at a file's head that are tried to detect its format.
const HEAD_BYTES: u64 = 256 * 1024;

const _: () = assert!(LINE_BYTES_MAX < BLOCK_BYTES && LINE_BYTES_MAX < PIECE_BYTES as usize);

/// A file's compression, recognised by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Plain,
    Gzip,
    Xz,
    Zstd,
}

impl Compression {
    pub(super) fn name(self) -> &'static str {
        match self {
            Compression::Plain => "plain",
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
        }
    }

    fn of(file: &File) -> io::Result<Compression> {
        let mut first = [0; 6];
        let found = file.read_at(&mut first, 0)?;
        Ok(match &first[..found] {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Compression::Xz,
            // Zstandard, or one of its skippable frames.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            _ => Compression::Plain,
        })
    }

    /// The decompressed text. Several members or frames in a row are one text.
    fn decompress(self, file: File) -> io::Result<Box<dyn Read + Send>> {
        let file = BufReader::with_capacity(256 * 1024, file);
        Ok(match self {
            Compression::Plain => Box::new(file),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
            Compression::Xz => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(file)),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(file)?),
        })
    }
}

/// The result of reading a file.
pub(super) struct FileContent {
    pub(super) packed: Compression,
    pub(super) tally: Tally,
    pub(super) torn: Option<String>,
}

/// The first bytes of a file's text, ending at a line's end if possible.
pub(super) fn head(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut text = Compression::of(&file)?.decompress(file)?.take(HEAD_BYTES);
    let mut head = Vec::new();
    // Damage is reported when the file is read.
    let _ = text.read_to_end(&mut head);
    Ok(head)
}

/// Reads a whole file.
pub(super) fn read(
    path: &Path,
    format: Option<&Format>,
    threads: usize,
) -> io::Result<FileContent> {
    let file = open(path)?;
    let packed = Compression::of(&file)?;
    let (tally, torn) = match packed {
        Compression::Plain => plain(&file, format, threads)?,
        packed => decompressed(packed.decompress(file)?, format, threads.saturating_sub(1).max(1)),
    };
    Ok(FileContent { packed, tally, torn })
}

fn open(path: &Path) -> io::Result<File> {
    // Opening a pipe would block, and its lines could only be read once.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

const CUT: &str = "its last line has no end";

fn plain(
    file: &File,
    format: Option<&Format>,
    threads: usize,
) -> io::Result<(Tally, Option<String>)> {
    let bytes = file.metadata()?.len();
    let pieces = bytes.div_ceil(PIECE_BYTES);
    let threads = threads.min(usize::try_from(pieces).unwrap_or(threads)).max(1);
    let next = AtomicU64::new(0);
    let work = || -> io::Result<Tally> {
        let mut tally = Tally::default();
        let mut buffer = Vec::new();
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return Ok(tally);
            }
            let from = piece * PIECE_BYTES;
            let to = (from + PIECE_BYTES).min(bytes);
            read_piece(file, from, to, bytes, &mut buffer, &mut tally, format)?;
        }
    };
    let mut all = Tally::default();
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        all.add(work()?);
        for other in others {
            all.add(other.join().expect("reading lines never panics")?);
        }
        io::Result::Ok(())
    })?;
    all.text_bytes = bytes;
    let torn = all.cut.then(|| CUT.to_owned());
    Ok((all, torn))
}

/// Reads the lines that begin in a piece.
fn read_piece(
    file: &File,
    from: u64,
    to: u64,
    bytes: u64,
    buffer: &mut Vec<u8>,
    tally: &mut Tally,
    format: Option<&Format>,
) -> io::Result<()> {
    // The byte before the piece shows whether a line begins with the piece.
    let before = from.saturating_sub(1);
    fill(file, before, (to - before) as usize, buffer)?;
    let begin = match from {
        0 => 0,
        _ => match memchr::memchr(b'\n', buffer) {
            Some(at) => at + 1,
            // The whole piece is inside one line.
            None => return Ok(()),
        },
    };
    if begin >= buffer.len() {
        return Ok(());
    }
    // The last line may end in the next piece, or never.
    let mut end = to;
    while buffer.last() != Some(&b'\n') && end < bytes {
        let more = (bytes - end).min(LINE_BYTES_MAX as u64) as usize;
        let had = buffer.len();
        let mut rest = Vec::new();
        fill(file, end, more, &mut rest)?;
        end += rest.len() as u64;
        match memchr::memchr(b'\n', &rest) {
            Some(at) => buffer.extend_from_slice(&rest[..=at]),
            None if rest.is_empty() => break,
            None => {
                buffer.extend_from_slice(&rest);
                // Longer than any accepted line: the rest of it is not needed.
                let line = memchr::memrchr(b'\n', &buffer[..had]).map_or(0, |at| at + 1);
                if buffer.len() - line > 2 * LINE_BYTES_MAX {
                    buffer.push(b'\n');
                }
            }
        }
    }
    tally.lines_of(&buffer[begin..], before + begin as u64, format);
    Ok(())
}

fn fill(file: &File, from: u64, bytes: usize, buffer: &mut Vec<u8>) -> io::Result<()> {
    buffer.resize(bytes, 0);
    let mut filled = 0;
    while filled < bytes {
        match file.read_at(&mut buffer[filled..], from + filled as u64) {
            // The file has been shortened since its length was read.
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(())
}

/// Whole lines, with their offset in the text.
type Block = (u64, Vec<u8>);

fn decompressed(
    mut text: Box<dyn Read + Send>,
    format: Option<&Format>,
    threads: usize,
) -> (Tally, Option<String>) {
    let (sender, receiver) = mpsc::sync_channel::<Block>(BLOCKS_WAITING);
    let receiver = Mutex::new(receiver);
    let work = || {
        let mut tally = Tally::default();
        loop {
            let block = receiver.lock().expect("no thread panics while it holds the lock").recv();
            let Ok((offset, lines)) = block else { return tally };
            tally.lines_of(&lines, offset, format);
        }
    };
    let mut all = Tally::default();
    let (bytes, torn) = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let read = blocks(&mut *text, &sender);
        drop(sender);
        for worker in workers {
            all.add(worker.join().expect("reading lines never panics"));
        }
        read
    });
    all.text_bytes = bytes;
    let torn = torn.or_else(|| all.cut.then(|| CUT.to_owned()));
    (all, torn)
}

/// Decompresses to the end. Returns the number of bytes, and the error that ended it early.
fn blocks(text: &mut dyn Read, to: &mpsc::SyncSender<Block>) -> (u64, Option<String>) {
    let mut cutter = Cutter::default();
    loop {
        let had = cutter.bytes.len();
        cutter.bytes.resize(BLOCK_BYTES, 0);
        let read = text.read(&mut cutter.bytes[had..]);
        cutter.bytes.truncate(had + read.as_ref().copied().unwrap_or(0));
        let torn = match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Some(broken(&error)),
            Ok(_) => None,
        };
        let last = cutter.bytes.len() == had;
        if last || cutter.bytes.len() == BLOCK_BYTES {
            // The receivers end only after this thread.
            cutter.cut(last).into_iter().for_each(|block| drop(to.send(block)));
        }
        if last {
            return (cutter.offset, torn);
        }
    }
}

/// Cuts a text that arrives in pieces into blocks of whole lines.
#[derive(Default)]
struct Cutter {
    /// Text that was not handed over yet, and its offset.
    bytes: Vec<u8>,
    offset: u64,
    /// Inside a line that is longer than a block, whose beginning was handed over.
    skipping: bool,
}

impl Cutter {
    /// The complete lines so far, or everything if this is the last call.
    fn cut(&mut self, last: bool) -> Option<Block> {
        let newline = memchr::memrchr(b'\n', &self.bytes);
        let long = newline.is_none() && !last;
        let end = if last || long { self.bytes.len() } else { newline.map_or(0, |at| at + 1) };
        let begin = match (self.skipping, memchr::memchr(b'\n', &self.bytes)) {
            (false, _) => 0,
            (true, Some(at)) => at + 1,
            (true, None) => end,
        };
        let was_skipping = std::mem::replace(&mut self.skipping, long);
        let mut rest = Vec::with_capacity(BLOCK_BYTES);
        rest.extend_from_slice(&self.bytes[end..]);
        let mut lines = std::mem::replace(&mut self.bytes, rest);
        lines.truncate(end);
        lines.drain(..begin);
        let block = (self.offset + begin as u64, lines);
        self.offset += end as u64;
        if block.1.is_empty() || long && was_skipping {
            return None;
        }
        let (offset, mut lines) = block;
        if long {
            // Reported once, as a line that is too long.
            lines.push(b'\n');
        }
        Some((offset, lines))
    }
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            "the compressed data is truncated; everything before that was read".to_owned()
        }
        _ => format!("the compressed data is damaged ({error}); everything before that was read"),
    }
}
