//! The static tree: files whose names, sizes and bytes are those of the origin's objects.
//!
//! A request is `/obj/N?size=BYTES`. A server of files leaves the query out and finds `obj/N`; the
//! origin of the caches makes the same bytes from it. So all servers answer the same requests with
//! the same bodies, and the generator checks every length.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use load::{Population, Size, content};
use serde::Serialize;

/// What is asked for.
pub(super) const PATH: &str = "/obj/{n}?size={size}";
/// All files are asked for alike: else the length of the most popular one would be the result.
const ZIPF: f64 = 0.0;
/// No file is longer.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// An answer of the first asking takes no longer.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The tree.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tree {
    /// Files.
    pub files: u32,
    /// Of the median file.
    pub median_bytes: u64,
    /// Of the longest.
    pub longest_bytes: u64,
    /// Of all.
    pub bytes: u64,
    #[serde(skip)]
    seed: u64,
}

/// The population of so many files.
pub(super) fn population(files: u32) -> Population {
    let size = match Size::web() {
        Size::LogNormalPareto {
            median_bytes,
            sigma,
            tail_part,
            tail_from_bytes,
            tail_alpha,
            ..
        } => Size::LogNormalPareto {
            median_bytes,
            sigma,
            tail_part,
            tail_from_bytes,
            tail_alpha,
            bytes_max: FILE_BYTES_MAX,
        },
        fixed @ Size::Fixed { .. } => fixed,
    };
    Population { objects: files, zipf_s: ZIPF, size }
}

impl Tree {
    /// What a tree of so many files is.
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

    /// Writes it below `home`.
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

    /// Asks a server for every file once, and holds each against what it should be: what a cache
    /// stores is stored then, and what the page cache may hold is there.
    pub(super) fn ask_for_all(&self, address: SocketAddr) -> io::Result<()> {
        for file in 0..self.files {
            let size = self.size(file);
            let answer = ask(address, &format!("/obj/{file}?size={size}"))?;
            let wrong = |what: &str| {
                io::Error::other(format!("obj/{file} was answered with {what} ({size} bytes)"))
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

/// One request on a connection of its own.
fn ask(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    // The Host is part of what a cache stores an answer by: it must be the generator's.
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use load::Origin;

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

        let origin = Origin::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let (address, counters) = (origin.local_addr(), origin.counters());
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let serving = std::thread::spawn(move || origin.run(&of_thread));
        tree.ask_for_all(address).unwrap();
        assert_eq!(counters.requests.load(Ordering::Relaxed), 50);
        // Another seed asks for other lengths, and is answered with them: the bodies are held
        // against the tree that asks.
        Tree::of(3, 8).ask_for_all(address).unwrap();
        stop.store(true, Ordering::Relaxed);
        serving.join().unwrap().unwrap();
        assert!(tree.ask_for_all(address).is_err(), "nobody answers");
    }
}
