//! The files of a store as bytes, and the edits of an input.
//!
//! ```text
//! edit:  operation 1 (low four bits: which; the rest: a file or a record) | its arguments
//! text:  length 2 | that many bytes, or the remainder
//! ```
//!
//! Plain edits leave checksums as they were. Forging edits write a good checksum over the changed
//! bytes; they represent anything a checksum does not detect. Bytes that a plain edit writes to
//! the segments are mixed with a hash of the whole input. So a fuzzer that watches comparisons
//! cannot find a checksum step by step and pass it off as bit rot.

use std::ops::Range;
use std::path::Path;

use runtime::sim::Disk;

use super::super::Inner;
use super::super::bytes::Take;
use super::super::checksum::{Spot, Sums};
use super::super::geometry::Geometry;
use super::super::index::Place;
use super::super::journal::{Change, Tail};
use super::super::record::SUM_BYTES;
use super::super::saved_index::{
    COPY_BYTES, HEAD_AT, PREAMBLE_BYTES, Preamble, SLICE_HEADER_BYTES, slice_header,
};
use super::super::superblock::{self, Read, Superblock};
use super::SEGMENTS;

/// Edits refer to them by index.
pub(super) const FILES: [&str; 6] =
    ["superblock", "journal-0", "journal-1", "index-0", "index-1", "segments"];
const SUPERBLOCK: usize = 0;
const JOURNALS: usize = 1;
const INDEXES: usize = 3;
const SEGMENTS_FILE: usize = 5;

const GEOMETRY: Geometry = Geometry::tiny(SEGMENTS);

/// The place of a record of the base.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    spot: Spot,
    len: u32,
}

impl Record {
    /// All records of a store, in the order of their places.
    pub(super) fn all_of(inner: &Inner) -> Vec<Record> {
        let mut all = Vec::new();
        for segment in 0..inner.options.geometry.segments as u16 {
            let mut here = inner.index.in_segment(segment);
            here.sort_unstable_by_key(|candidate| candidate.offset);
            for candidate in here {
                let Some(found) = inner.index.look_up(candidate.print, false) else { continue };
                let Place { segment, offset } = found.place;
                let spot = Spot { segment, offset, life: found.life, print: found.print };
                all.push(Record { spot, len: found.len });
            }
        }
        all
    }

    fn range(&self) -> Range<usize> {
        let segment = usize::from(self.spot.segment) * GEOMETRY.segment_bytes as usize;
        let start = segment + self.spot.offset as usize;
        start..start + self.len as usize
    }
}

/// The files of a store.
#[derive(Clone)]
pub(super) struct Image {
    files: [Vec<u8>; FILES.len()],
    /// Of the base, in case the superblock is damaged.
    sums: Sums,
    preamble: Preamble,
    records: Vec<Record>,
    /// A checksum was repaired.
    pub(super) forged: bool,
}

impl Image {
    /// From a valid store that was closed.
    pub(super) fn new(mut files: [Vec<u8>; FILES.len()], records: Vec<Record>) -> Image {
        let Read::Good(block) = Superblock::decode(&files[SUPERBLOCK]) else {
            unreachable!("it was just written")
        };
        let sums = Sums::new(block.secret);
        let preamble = last_preamble(&files, &sums).expect("a store has a saved index");
        assert!(
            preamble.slices > 0 && records.len() > 12,
            "the base has everything that can be decoded"
        );
        // Reserved space that was never written need not be copied for each input.
        let used = files[SEGMENTS_FILE].iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        files[SEGMENTS_FILE].truncate(used);
        Image { files, sums, preamble, records, forged: false }
    }

    /// Writes the files to a disk.
    pub(super) fn put(self, disk: &Disk, directory: &Path) {
        for (name, bytes) in FILES.iter().zip(self.files) {
            disk.put(directory.join(name), bytes);
        }
    }

    /// Applies the edits of an input.
    pub(super) fn edit_all(&mut self, data: &[u8], edits_max: usize) {
        let mixed = Sums::new(0).chained(0, data);
        let mut take = Take(data);
        for _ in 0..edits_max {
            if self.edit(&mut take, mixed).is_none() {
                return;
            }
        }
    }

    fn edit(&mut self, take: &mut Take<'_>, mixed: u64) -> Option<()> {
        let operation = take.u8()?;
        let which = usize::from(operation >> 4);
        let file = which % FILES.len();
        match operation & 15 {
            0 => self.overwrite_file(file, take, mixed, false),
            1 => self.overwrite_file(file, take, mixed, true),
            2 => {
                let len = take.u32()? as usize % (self.files[file].len() + 1);
                self.files[file].truncate(len);
                Some(())
            }
            3 => {
                let mut bytes = text(take)?.to_vec();
                mix(file, &mut bytes, mixed);
                self.files[file] = bytes;
                Some(())
            }
            4 => self.copy_within(file, take),
            5 => self.forge_superblock(take),
            6 => self.forge_preamble(take),
            7 => self.forge_head(take),
            8 => self.forge_slice(take),
            9 => self.forge_batch(take),
            10 => self.forge_next_journal(take),
            11 => self.forge_record(which, take),
            _ => Some(()),
        }
    }

    /// Overwrites bytes of a file; `both`: in each of two copies.
    fn overwrite_file(
        &mut self,
        file: usize,
        take: &mut Take<'_>,
        mixed: u64,
        both: bool,
    ) -> Option<()> {
        let at = take.u32()? as usize % (self.files[file].len() + 1);
        let mut bytes = text(take)?.to_vec();
        mix(file, &mut bytes, mixed);
        let distance = match file {
            SUPERBLOCK => superblock::COPY_BYTES as usize,
            SEGMENTS_FILE => GEOMETRY.segment_bytes as usize,
            file if file >= INDEXES => COPY_BYTES as usize,
            _ => GEOMETRY.journal_bytes as usize,
        };
        lay(&mut self.files[file], at, &bytes);
        if both {
            lay(&mut self.files[file], at + distance, &bytes);
        }
        Some(())
    }

    /// Copies bytes to another place, like a misdirected write or read.
    fn copy_within(&mut self, file: usize, take: &mut Take<'_>) -> Option<()> {
        let len = self.files[file].len();
        let from = take.u32()? as usize % (len + 1);
        let to = take.u32()? as usize % (len + 1);
        let count = usize::from(take.u16()?).min(len - from);
        let bytes = self.files[file][from..from + count].to_vec();
        lay(&mut self.files[file], to, &bytes);
        Some(())
    }

    /// The checksums of the store as it is now.
    fn sums(&self) -> Sums {
        match Superblock::decode(&self.files[SUPERBLOCK]) {
            Read::Good(block) => Sums::new(block.secret),
            _ => self.sums,
        }
    }

    fn forge_superblock(&mut self, take: &mut Take<'_>) -> Option<()> {
        let at = usize::from(take.u8()?);
        let bytes = text(take)?;
        let mut block = self.files[SUPERBLOCK].get(..superblock::BYTES)?.to_vec();
        lay(&mut block, at, bytes);
        block.truncate(superblock::BYTES - SUM_BYTES);
        let sum = superblock::sum(&block);
        block.extend_from_slice(&sum.to_le_bytes());
        for copy in [0, superblock::COPY_BYTES as usize] {
            lay(&mut self.files[SUPERBLOCK], copy, &block);
        }
        self.forged = true;
        Some(())
    }

    /// The last complete saved index: its file, and its preamble.
    fn saved(&self) -> (usize, Preamble) {
        let preamble = last_preamble(&self.files, &self.sums()).unwrap_or(self.preamble);
        (INDEXES + (preamble.generation & 1) as usize, preamble)
    }

    fn forge_preamble(&mut self, take: &mut Take<'_>) -> Option<()> {
        let at = usize::from(take.u8()?);
        let bytes = text(take)?;
        let sums = self.sums();
        let (file, preamble) = self.saved();
        let mut fields = preamble.encode(&sums);
        lay(&mut fields, at, bytes);
        fields.truncate(PREAMBLE_BYTES);
        let generation = u64::from_le_bytes(fields[8..16].try_into().expect("eight bytes"));
        let good = Preamble::sum(&sums, &fields[..PREAMBLE_BYTES - SUM_BYTES]);
        fields[PREAMBLE_BYTES - SUM_BYTES..].copy_from_slice(&good.to_le_bytes());
        // The generation determines the file.
        let belongs = INDEXES + (generation & 1) as usize;
        if belongs != file {
            self.files[belongs] = self.files[file].clone();
            self.files[file].truncate(0);
        }
        for copy in [0, COPY_BYTES as usize] {
            lay(&mut self.files[belongs], copy, &fields);
        }
        self.forged = true;
        Some(())
    }

    /// Overwrites the head from an offset on, and optionally truncates it there.
    fn forge_head(&mut self, take: &mut Take<'_>) -> Option<()> {
        let at = usize::from(take.u16()?);
        let ends = take.u8()? & 1 == 1;
        let bytes = text(take)?;
        let sums = self.sums();
        let (file, preamble) = self.saved();
        let head_at = HEAD_AT as usize;
        let head_end = head_at.checked_add(usize::try_from(preamble.head_len).ok()?)?;
        let mut head = self.files[file].get(head_at..head_end)?.to_vec();
        let slices_at = usize::try_from(preamble.slices_at()).ok()?;
        let slices = self.files[file].get(slices_at..)?.to_vec();
        head.truncate(head.len().saturating_sub(SUM_BYTES));
        let at = at % (head.len() + 1);
        lay(&mut head, at, bytes);
        if ends {
            head.truncate(at + bytes.len());
        }
        let sum = sums.chained(preamble.nonce, &head);
        head.extend_from_slice(&sum.to_le_bytes());
        let preamble = Preamble { head_len: head.len() as u64, ..preamble };
        let out = &mut self.files[file];
        out.truncate(head_at);
        [&head[..], &head, &slices].iter().for_each(|part| out.extend_from_slice(part));
        for copy in [0, COPY_BYTES as usize] {
            lay(out, copy, &preamble.encode(&sums));
        }
        self.forged = true;
        Some(())
    }

    /// Overwrites the entries of the first slice from an offset on.
    fn forge_slice(&mut self, take: &mut Take<'_>) -> Option<()> {
        let at = usize::from(take.u16()?);
        let bytes = text(take)?;
        let sums = self.sums();
        let (file, preamble) = self.saved();
        let slices_at = usize::try_from(preamble.slices_at()).ok()?;
        let entries_at = slices_at.checked_add(SLICE_HEADER_BYTES)?;
        let mut entries = self.files[file].get(entries_at..)?.to_vec();
        let at = at % (entries.len() + 1);
        lay(&mut entries, at, bytes);
        let mut slice = slice_header(&sums, preamble.nonce, &entries);
        slice.extend_from_slice(&entries);
        lay(&mut self.files[file], slices_at, &slice);
        self.forged = true;
        Some(())
    }

    /// Appends a batch to the journal.
    fn forge_batch(&mut self, take: &mut Take<'_>) -> Option<()> {
        let changes = text(take)?;
        let (_, preamble) = self.saved();
        let file = JOURNALS + (preamble.generation & 1) as usize;
        let tail = self.tail(file, Tail::new(preamble.nonce));
        self.write_batch(file, tail, changes);
        self.forged = true;
        Some(())
    }

    /// Closes the journal and starts the next one with these changes.
    fn forge_next_journal(&mut self, take: &mut Take<'_>) -> Option<()> {
        let changes = text(take)?;
        let (_, preamble) = self.saved();
        let generation = preamble.generation.wrapping_add(1);
        let files = [preamble.generation, generation].map(|of| JOURNALS + (of & 1) as usize);
        let mut close = Vec::new();
        Change::Close.encode(&mut close);
        let tail = self.tail(files[0], Tail::new(preamble.nonce));
        let previous = self.write_batch(files[0], tail, &close).sum;
        let mut begin = Vec::new();
        Change::Begin { generation, previous }.encode(&mut begin);
        let next = self.write_batch(files[1], Tail::new(preamble.nonce ^ 1), &begin);
        self.write_batch(files[1], next, changes);
        self.forged = true;
        Some(())
    }

    /// The end of the last good batch of a journal.
    fn tail(&self, file: usize, mut tail: Tail) -> Tail {
        let sums = self.sums();
        while let Some(bytes) = self.files[file].get(tail.offset as usize..)
            && let Some((_, next)) = tail.read(&sums, bytes)
        {
            tail = next;
        }
        tail
    }

    /// Writes a batch to both copies, as far as there is room.
    fn write_batch(&mut self, file: usize, tail: Tail, changes: &[u8]) -> Tail {
        let area = GEOMETRY.journal_bytes as usize;
        let (batch, next) = tail.batch(&self.sums(), changes);
        let room = area.saturating_sub(tail.offset as usize);
        for copy in [0, area] {
            lay(
                &mut self.files[file],
                copy + tail.offset as usize,
                &batch[..room.min(batch.len())],
            );
        }
        next
    }

    /// Overwrites bytes in a record, with good sums for all its blocks.
    fn forge_record(&mut self, which: usize, take: &mut Take<'_>) -> Option<()> {
        let number = which + 16 * usize::from(take.u8()? & 3);
        let at = usize::from(take.u16()?);
        let bytes = text(take)?;
        let sums = self.sums();
        let record = self.records[number % self.records.len()];
        let stored = self.files[SEGMENTS_FILE].get_mut(record.range())?;
        let mut at = at % stored.len();
        let mut bytes = bytes;
        for (block, number) in stored.chunks_mut(GEOMETRY.block_bytes as usize).zip(0..) {
            let Some(payload) = block.len().checked_sub(SUM_BYTES) else { break };
            if at < payload {
                let (now, later) = bytes.split_at(bytes.len().min(payload - at));
                block[at..at + now.len()].copy_from_slice(now);
                bytes = later;
            }
            at = at.saturating_sub(payload);
            let sum = sums.block(&record.spot, number, &block[..payload]);
            block[payload..].copy_from_slice(&sum.to_le_bytes());
        }
        self.forged = true;
        Some(())
    }
}

/// A length, and that many bytes, or as many as remain.
fn text<'b>(take: &mut Take<'b>) -> Option<&'b [u8]> {
    let len = usize::from(take.u16()?).min(take.0.len());
    take.bytes(len)
}

/// Overwrites bytes from an offset on; grows the buffer if needed.
fn lay(over: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if over.len() < end {
        over.resize(end, 0);
    }
    over[at..end].copy_from_slice(bytes);
}

/// Makes the bytes written to the segments depend on the whole input.
fn mix(file: usize, bytes: &mut [u8], mixed: u64) {
    if file == SEGMENTS_FILE {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte ^= (mixed.rotate_left(at as u32 * 7) >> 56) as u8 ^ at as u8;
        }
    }
}

fn last_preamble(files: &[Vec<u8>; FILES.len()], sums: &Sums) -> Option<Preamble> {
    let copies = files[INDEXES..INDEXES + 2]
        .iter()
        .flat_map(|file| [0, COPY_BYTES as usize].map(|at| file.get(at..at + PREAMBLE_BYTES)));
    let good = copies.flatten().filter_map(|copy| Preamble::decode(sums, copy));
    good.max_by_key(|preamble| preamble.generation)
}
