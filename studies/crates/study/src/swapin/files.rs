//! The readers of 1997: each object is a file, read block by block, with the old mistake or
//! without.
//!
//! What: [`Reader::Exact`] requests the bytes that exist, as our store does. [`Reader::Again`]
//! requests a whole block, takes the short read for an unfinished one, reads again and gets 0, the
//! end of the file. [`Reader::Scheduled`] does the same, but waits for a turn of the event loop
//! before each further read of a block, as `diskHandleRead` of Squid 1.1.15 did. All three use the
//! runtime's files, as the store does, so that they differ in nothing else.
//! Why a file for each object: in a segment of our store the next object follows, not the end of a
//! file. There the mistake would read the bytes of another object instead of getting 0.
//! What never happens: any of this is part of the store or of the code that serves.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use runtime::fs::File;
use serde::Serialize;

use super::sample::{Sample, Took};

/// What reads the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reader {
    /// Our store.
    Store,
    /// A reader of files without the mistake.
    Exact,
    /// A reader with the extra read, made at once.
    Again,
    /// A reader with the extra read, made after a turn of the event loop.
    Scheduled,
}

impl Reader {
    pub(super) const ALL: [Reader; 4] =
        [Reader::Store, Reader::Exact, Reader::Again, Reader::Scheduled];

    /// In a few words.
    pub(super) fn named(self) -> &'static str {
        match self {
            Reader::Store => "our store",
            Reader::Exact => "files, fixed",
            Reader::Again => "files, extra read",
            Reader::Scheduled => "files, as in 1997",
        }
    }

    /// Whether it has the mistake of 1997.
    fn reads_again(self) -> bool {
        matches!(self, Reader::Again | Reader::Scheduled)
    }
}

/// A directory of objects.
pub(super) struct Files {
    directory: PathBuf,
    block_bytes: usize,
}

impl Files {
    pub(super) fn new(directory: PathBuf, block_bytes: usize) -> io::Result<Files> {
        fs::create_dir(&directory)?;
        Ok(Files { directory, block_bytes })
    }

    pub(super) fn path(&self, object: usize) -> PathBuf {
        self.directory.join(format!("{object:06}"))
    }

    /// Writes an object to a new file. The first delay is that of creating the file and writing its
    /// first block; the total is that of all blocks. Each block is written at its exact length,
    /// into the page cache.
    pub(super) fn write(&self, object: usize, body: &[u8]) -> io::Result<Sample> {
        let path = self.path(object);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let begun = Instant::now();
        let mut file = fs::File::create_new(&path)?;
        let mut first = None;
        for block in body.chunks(self.block_bytes) {
            file.write_all(block)?;
            first.get_or_insert_with(|| begun.elapsed());
        }
        let total = begun.elapsed();
        Ok(Sample::new(first.unwrap_or(total), total, Took::default()))
    }

    /// Reads an object of `len` bytes, block by block.
    pub(super) async fn read(
        &self,
        object: usize,
        len: usize,
        reader: Reader,
        buffer: &mut [u8],
    ) -> io::Result<Sample> {
        let path = self.path(object);
        let begun = Instant::now();
        let file = File::open(&path).await?;
        let mut took = Took::default();
        let mut first = None;
        let (mut at, mut ended) = (0, false);
        while !ended && (reader.reads_again() || at < len) {
            let wanted = match reader.reads_again() {
                true => self.block_bytes,
                false => self.block_bytes.min(len - at),
            };
            let mut have = 0;
            while have < wanted {
                let read = file.read_at(&mut buffer[have..wanted], (at + have) as u64).await?;
                took.reads += 1;
                have += read;
                if read == 0 {
                    took.zero += 1;
                    ended = true;
                    break;
                }
                took.short += u32::from(have < wanted && at + have < len);
                if have < wanted && reader == Reader::Scheduled {
                    runtime::yield_now().await;
                }
            }
            at += have;
            first.get_or_insert_with(|| begun.elapsed());
        }
        let total = begun.elapsed();
        if at != len {
            let words = format!("{} has {at} bytes and not {len}", path.display());
            return Err(io::Error::other(words));
        }
        Ok(Sample::new(first.unwrap_or(total), total, took))
    }

    /// Blocks of an object of `len` bytes.
    pub(super) fn blocks(&self, len: u64) -> u32 {
        u32::try_from(len.div_ceil(self.block_bytes as u64)).unwrap_or(u32::MAX)
    }
}

/// Removes the parts of a file from the page cache that are already on the disk.
pub(super) fn forget_cached(path: &Path) -> io::Result<()> {
    let file = fs::File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::Runtime;

    fn took(len: usize, reader: Reader) -> (u32, u32) {
        let home = tempfile::tempdir().unwrap();
        let files = Files::new(home.path().join("files"), 1000).unwrap();
        files.write(7, &vec![1; len]).unwrap();
        let mut runtime = Runtime::new(runtime::Options::default()).unwrap();
        let mut buffer = vec![0; 1000];
        let sample = runtime.block_on(files.read(7, len, reader, &mut buffer)).unwrap();
        (sample.took.reads, sample.took.zero)
    }

    #[test]
    fn the_mistake_is_one_more_read_that_gives_nothing_and_the_fix_has_none() {
        for len in [1_usize, 999, 1000, 1001, 2000, 3500] {
            let blocks = len.div_ceil(1000) as u32;
            assert_eq!(took(len, Reader::Exact), (blocks, 0), "{len}");
            for reader in [Reader::Again, Reader::Scheduled] {
                assert_eq!(took(len, reader), (blocks + 1, 1), "{len} {reader:?}");
            }
        }
    }
}
