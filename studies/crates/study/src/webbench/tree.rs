//! The static tree: files whose names, sizes and bytes are those of the origin's objects.
//!
//! A request is `/obj/N?size=BYTES`. A server of files ignores the query and finds `obj/N`; the
//! origin of the caches generates the same bytes. So all servers answer the same requests with the
//! same bodies, and the generator checks every length.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use load::{Population, Size, content};
use serde::Serialize;

use crate::servers::response;

/// The path of a request.
pub(super) const PATH: &str = "/obj/{n}?size={size}";
/// All files are requested equally often. Otherwise the length of the most popular one would
/// decide the result.
const ZIPF: f64 = 0.0;
/// The longest file.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// Timeout of a response when the caches are filled.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A description of the tree.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Tree {
    /// Number of files.
    pub(super) files: u32,
    /// Size of the median file.
    median_bytes: u64,
    /// Size of the longest file.
    longest_bytes: u64,
    /// Size of all files together.
    bytes: u64,
    #[serde(skip)]
    seed: u64,
}

/// The population of a tree with this many files.
pub(super) fn population(files: u32) -> Population {
    let mut size = Size::web();
    if let Size::LogNormalPareto { bytes_max, .. } = &mut size {
        *bytes_max = FILE_BYTES_MAX;
    }
    Population { objects: files, zipf_s: ZIPF, size }
}

impl Tree {
    /// Describes the tree with this many files.
    pub(super) fn of(files: u32, seed: u64) -> Tree {
        let size = population(files).size;
        let mut sizes: Vec<u64> = (0..files).map(|file| size.of(file, seed)).collect();
        sizes.sort_unstable();
        Tree {
            files,
            median_bytes: sizes.get(sizes.len() / 2).copied().unwrap_or(0),
            longest_bytes: sizes.last().copied().unwrap_or(0),
            bytes: sizes.iter().sum(),
            seed,
        }
    }

    fn size(&self, file: u32) -> u64 {
        population(self.files).size.of(file, self.seed)
    }

    /// Writes the files below `home`.
    pub(super) fn write(&self, home: &Path) -> io::Result<()> {
        let directory = home.join("obj");
        fs::create_dir_all(&directory)?;
        for file in 0..self.files {
            let mut out = BufWriter::new(File::create(directory.join(file.to_string()))?);
            let (mut at, size) = (0, self.size(file));
            while at < size {
                let piece = content::piece(u64::from(file), at, size - at);
                out.write_all(piece)?;
                at += piece.len() as u64;
            }
            out.flush()?;
        }
        Ok(())
    }

    /// Requests every file once from a server and checks every body. After that a cache has stored
    /// all of them, and the page cache has the files.
    pub(super) fn request_all(&self, address: SocketAddr) -> io::Result<()> {
        for file in 0..self.files {
            let size = self.size(file);
            // The Host field is part of the cache key: it must be the one that the generator sends.
            let request = format!(
                "GET /obj/{file}?size={size} HTTP/1.1\r\nHost: {address}\r\n\
                 Connection: close\r\n\r\n"
            );
            let answer = response(address, &request, ANSWER_MAX)?;
            let wrong = |what: &str| {
                io::Error::other(format!("obj/{file} answered with {what} ({size} bytes)"))
            };
            let at = answer.windows(4).position(|part| part == b"\r\n\r\n");
            let body = &answer[at.ok_or_else(|| wrong("no head"))? + 4..];
            if !answer.starts_with(b"HTTP/1.1 200") {
                return Err(wrong("another status than 200"));
            }
            if body.len() as u64 != size || !content::matches(u64::from(file), 0, body) {
                return Err(wrong("other bytes"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use harness::origin::OriginThread;

    use super::*;

    #[test]
    fn the_files_are_the_objects_of_the_origin() {
        let home = tempfile::tempdir().unwrap();
        let tree = Tree::of(50, 7);
        tree.write(home.path()).unwrap();
        let mut bytes = 0;
        for file in 0..50 {
            let written = fs::read(home.path().join(format!("obj/{file}"))).unwrap();
            assert_eq!(written.len() as u64, tree.size(file));
            assert!(content::matches(u64::from(file), 0, &written));
            bytes += written.len() as u64;
        }
        assert_eq!(bytes, tree.bytes);
        assert!(tree.median_bytes < tree.longest_bytes && tree.longest_bytes <= FILE_BYTES_MAX);

        let origin = OriginThread::start(None).unwrap();
        let address = origin.address();
        tree.request_all(address).unwrap();
        assert_eq!(origin.counters().requests.load(Ordering::Relaxed), 50);
        // Another seed requests other lengths and receives them: the bodies are compared with the
        // tree that sends the requests.
        Tree::of(3, 8).request_all(address).unwrap();
        origin.stop().unwrap();
        assert!(tree.request_all(address).is_err(), "the origin has stopped");
    }
}
