//! The readers of 1997: an object a file, read block by block, with the old mistake and without.
//!
//! What: [`Way::Exact`] asks for what there is, as our store does. [`Way::Again`] asks for a whole
//! block, takes the short read for an unfinished one, reads again and is told 0, the end of the
//! file. [`Way::Scheduled`] does the same and waits a turn of the event loop before each further
//! read of a block, as `diskHandleRead` of Squid 1.1.15 did. All three go through the runtime's
//! files, as the store does, so that they differ in nothing else.
//! Why a file each: behind an object in a segment stands the next one and not the end of a file;
//! on our store's files the mistake would read a stranger's bytes and not be told 0.
//! What never happens: any of this in the store or in what serves.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use runtime::fs::File;

use super::sample::{Sample, Took};

/// How an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The cure.
    Exact,
    /// The extra read, at once.
    Again,
    /// The extra read, after a turn of the event loop.
    Scheduled,
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

    /// Writes an object, anew: the first delay is that of making the file and writing its first
    /// block, the total that of all blocks. Each is written at its exact length, into the page
    /// cache.
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

    /// Reads an object of so many bytes, block by block.
    pub(super) async fn read(
        &self,
        object: usize,
        len: usize,
        way: Way,
        buffer: &mut [u8],
    ) -> io::Result<Sample> {
        let path = self.path(object);
        let begun = Instant::now();
        let file = File::open(&path).await?;
        let mut took = Took::default();
        let mut first = None;
        let (mut at, mut ended) = (0, false);
        while !ended && (way != Way::Exact || at < len) {
            let wanted = match way {
                Way::Exact => self.block_bytes.min(len - at),
                Way::Again | Way::Scheduled => self.block_bytes,
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
                if have < wanted && way == Way::Scheduled {
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

    /// Blocks of an object of so many bytes.
    pub(super) fn blocks(&self, len: u64) -> u32 {
        u32::try_from(len.div_ceil(self.block_bytes as u64)).unwrap_or(u32::MAX)
    }
}

/// Takes a file out of the page cache, as far as it is on the disk already.
pub(super) fn forget_cached(path: &Path) -> io::Result<()> {
    let file = fs::File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::Runtime;

    fn took(len: usize, way: Way) -> (u32, u32) {
        let home = tempfile::tempdir().unwrap();
        let files = Files::new(home.path().join("files"), 1000).unwrap();
        files.write(7, &vec![1; len]).unwrap();
        let mut runtime = Runtime::new(runtime::Options::default()).unwrap();
        let mut buffer = vec![0; 1000];
        let sample = runtime.block_on(files.read(7, len, way, &mut buffer)).unwrap();
        (sample.took.reads, sample.took.zero)
    }

    #[test]
    fn the_mistake_is_one_read_more_that_gives_nothing_and_the_cure_has_none() {
        for len in [1_usize, 999, 1000, 1001, 2000, 3500] {
            let blocks = len.div_ceil(1000) as u32;
            assert_eq!(took(len, Way::Exact), (blocks, 0), "{len}");
            for way in [Way::Again, Way::Scheduled] {
                assert_eq!(took(len, way), (blocks + 1, 1), "{len} {way:?}");
            }
        }
    }
}
