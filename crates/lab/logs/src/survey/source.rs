//! Files to lines: plain files are read in pieces by every core, compressed ones are decompressed
//! by one thread and parsed by others. Pipes and the standard input are read once, as they come,
//! and may be compressed too.

use std::fs::{File, FileType};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use super::HEAD_LINES_MAX;
use super::tally::Tally;
use super::zip::{self, Zip};
use crate::formats::Format;
use crate::parts::{self, Joiner};
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

/// First bytes by which a compression is recognised.
const MAGIC_BYTES: usize = 6;

/// The name of the standard input.
const STDIN: &str = "-";

/// A file's compression, recognised by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Plain,
    Gzip,
    Bzip2,
    Xz,
    Zstd,
    Lz4,
    Zip,
}

/// Bytes from anywhere.
type Bytes = Box<dyn Read + Send>;

impl Compression {
    pub(super) fn name(self) -> &'static str {
        match self {
            Compression::Plain => "plain",
            Compression::Gzip => "gzip",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
            Compression::Zip => "zip",
        }
    }

    fn of(first: &[u8]) -> Compression {
        match first {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31 | 0x17, ..] => Compression::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', 0] => Compression::Xz,
            // Zstandard, or one of its skippable frames.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            // Also the older frames of lz4 -l.
            [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => Compression::Lz4,
            first if first.starts_with(&zip::MAGIC) => Compression::Zip,
            _ => Compression::Plain,
        }
    }

    /// The decompressed text. Several members or frames in a row are one text.
    fn decompress(self, bytes: Bytes) -> io::Result<Bytes> {
        let bytes = BufReader::with_capacity(256 * 1024, bytes);
        Ok(match self {
            Compression::Plain => Box::new(bytes),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(bytes)),
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(bytes)),
            Compression::Xz => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(bytes)),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(bytes)?),
            Compression::Lz4 => Box::new(Lz4(lz4_flex::frame::FrameDecoder::new(bytes))),
            Compression::Zip => Box::new(Zip::new(bytes)),
        })
    }
}

/// Frames of lz4. At the end of a frame, its decoder reads nothing once, and then the next frame.
struct Lz4<R: Read>(lz4_flex::frame::FrameDecoder<R>);

impl<R: Read> Read for Lz4<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => self.0.read(buffer),
            read => Ok(read),
        }
    }
}

/// The result of reading a file.
pub(super) struct FileContent {
    pub(super) packed: Compression,
    pub(super) tally: Tally,
    pub(super) torn: Option<String>,
}

/// A file or a pipe whose head was read.
pub(super) struct Source {
    pub(super) path: PathBuf,
    /// The first bytes of its text.
    pub(super) head: Vec<u8>,
    /// When the file was last changed, ns since the epoch.
    pub(super) changed_ns: Option<i64>,
    packed: Compression,
    /// The text after the head, and the error at its end. A file is opened again instead, so that
    /// many files can be given.
    rest: Option<(Bytes, Option<io::Error>)>,
}

impl Source {
    /// Opens it and reads its head.
    pub(super) fn open(path: &Path) -> io::Result<Source> {
        let (bytes, changed_ns): (Bytes, _) = if path == Path::new(STDIN) {
            (Box::new(io::stdin()), None)
        } else {
            let metadata = std::fs::metadata(path)?;
            let is_file = metadata.is_file();
            if !is_file && !is_stream(metadata.file_type()) {
                let what = "not a file or a pipe; name the files in it";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            let changed_ns = metadata.mtime().checked_mul(1_000_000_000);
            (Box::new(File::open(path)?), changed_ns.filter(|_| is_file))
        };
        let (packed, mut text) = unpacked(bytes)?;
        let mut head = Vec::new();
        // Damage is reported when the file is read.
        let damage = text.by_ref().take(HEAD_BYTES).read_to_end(&mut head).err();
        let rest = changed_ns.is_none().then_some((text, damage));
        Ok(Source { path: path.to_owned(), head, changed_ns, packed, rest })
    }

    /// Reads all of it.
    pub(super) fn read(self, format: Option<&Format>, threads: usize) -> io::Result<FileContent> {
        let joiner = self.may_be_split().then(Joiner::default);
        let Source { path, head, packed, rest, .. } = self;
        let parsers = threads.saturating_sub(1).max(1);
        let (tally, torn) = match (rest, packed) {
            (Some((rest, damage)), _) => {
                let rest = Failing { rest, damage };
                let text = Box::new(io::Cursor::new(head).chain(rest));
                decompressed(text, joiner, format, parsers)
            }
            (None, Compression::Plain) if joiner.is_none() => {
                plain(&File::open(path)?, format, threads)?
            }
            (None, packed) => {
                let text = packed.decompress(Box::new(File::open(path)?))?;
                decompressed(text, joiner, format, parsers)
            }
        };
        Ok(FileContent { packed, tally, torn })
    }

    /// Whether it is a log of containers. Their lines are joined by one thread.
    fn may_be_split(&self) -> bool {
        self.head.split(|&byte| byte == b'\n').take(HEAD_LINES_MAX).any(parts::may_be_split)
    }
}

/// What can be read only once: a pipe, a terminal, a socket.
fn is_stream(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_char_device() || kind.is_socket()
}

/// A text, and the error that has already been met in it.
struct Failing {
    rest: Bytes,
    damage: Option<io::Error>,
}

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.damage.take().map_or_else(|| self.rest.read(buffer), Err)
    }
}

/// The compression, and the text.
fn unpacked(mut bytes: Bytes) -> io::Result<(Compression, Bytes)> {
    let mut first = Vec::with_capacity(MAGIC_BYTES);
    bytes.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut first)?;
    let packed = Compression::of(&first);
    let whole = Box::new(io::Cursor::new(first).chain(bytes));
    Ok((packed, packed.decompress(whole)?))
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
    mut text: Bytes,
    joiner: Option<Joiner>,
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
        let read = blocks(&mut *text, joiner, &sender);
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
fn blocks(
    text: &mut dyn Read,
    mut joiner: Option<Joiner>,
    to: &mpsc::SyncSender<Block>,
) -> (u64, Option<String>) {
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
            let block = cutter.cut(last);
            let block = match &mut joiner {
                Some(joiner) => joined(block, joiner, last),
                None => block,
            };
            block.into_iter().for_each(|block| drop(to.send(block)));
        }
        if last {
            return (cutter.offset, torn);
        }
    }
}

/// A block in which each line is whole. If it is the last, lines that have no end come last.
fn joined(block: Option<Block>, joiner: &mut Joiner, last: bool) -> Option<Block> {
    let (offset, text) = block.unwrap_or_default();
    let mut whole = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let end = line.strip_suffix(b"\n").unwrap_or(line);
        if let Some(joined) = joiner.push(end) {
            whole.extend_from_slice(joined);
            whole.extend_from_slice(&line[end.len()..]);
        }
    }
    if last {
        for begun in joiner.unfinished() {
            if whole.last().is_some_and(|&byte| byte != b'\n') {
                whole.push(b'\n');
            }
            whole.extend_from_slice(&begun);
        }
    }
    (!whole.is_empty()).then_some((offset, whole))
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
        io::ErrorKind::Unsupported => format!("{error}"),
        io::ErrorKind::UnexpectedEof => {
            "the compressed data is truncated; everything before that was read".to_owned()
        }
        _ => format!("the compressed data is damaged ({error}); everything before that was read"),
    }
}
