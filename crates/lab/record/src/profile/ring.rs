//! The ring into which the kernel writes the records of one CPU, and how to read it.
//!
//! The kernel owns `data_head`, we own `data_tail`; both only grow. Between them are complete
//! records that the kernel does not touch until `data_tail` has passed them (perf_event_open(2),
//! "MMAP layout"): loading the head acquires what was written before it, storing the tail releases
//! what was read.
//!
//! Nothing in a ring is trusted: an invalid record ends the reading of the current contents, and is
//! counted.

use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, mem, ptr, slice};

use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::records;

/// A mapped ring.
#[derive(Debug)]
pub(crate) struct Ring {
    page: *mut perf_event_mmap_page,
    data: *const u8,
    /// Bytes of data, a power of two.
    bytes: usize,
    /// Size of the mapping to unmap; zero if the memory is not ours.
    mapped: usize,
    /// A buffer for a record that wraps around the ring's end.
    joined: Vec<u8>,
    /// The head at the last [`Ring::load_head`].
    head: u64,
    tail: u64,
}

impl Ring {
    /// Maps the ring of an event. `bytes` of data must be a power of two, and whole pages.
    pub(crate) fn map(event: BorrowedFd<'_>, bytes: usize) -> io::Result<Ring> {
        let page_bytes = usize::try_from(crate::clock::page_bytes()).map_err(io::Error::other)?;
        assert!(bytes.is_power_of_two() && bytes.is_multiple_of(page_bytes), "whole pages");
        let mapped = page_bytes + bytes;
        // SAFETY: a new mapping of an open descriptor, at an address chosen by the kernel.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is one page longer than the data, and lives as long as the ring.
        Ok(unsafe { Ring::over(base.cast(), base.cast::<u8>().add(page_bytes), bytes, mapped) })
    }

    /// A ring over memory.
    ///
    /// # Safety
    /// `page` is valid, and `data` is valid for `bytes`, for as long as the ring lives. Any other
    /// writer follows the kernel's rules during a read. If `mapped` is not zero, `page` is the
    /// beginning of a mapping of that size, which the ring then owns.
    unsafe fn over(
        page: *mut perf_event_mmap_page,
        data: *const u8,
        bytes: usize,
        mapped: usize,
    ) -> Ring {
        let mut ring = Ring { page, data, bytes, mapped, joined: Vec::new(), head: 0, tail: 0 };
        ring.tail = ring.data_tail().load(Ordering::Relaxed);
        ring.head = ring.tail;
        ring
    }

    /// Loads the head: subsequent reads go up to it.
    pub(crate) fn load_head(&mut self) {
        self.head = self.data_head().load(Ordering::Acquire);
    }

    /// Shows the current records without consuming them. False if something was not a record.
    pub(crate) fn peek(&mut self, show: &mut dyn FnMut(&[u8])) -> bool {
        let mut at = self.tail;
        loop {
            match self.record(at) {
                Ok(None) => return true,
                Ok(Some(record)) => {
                    at += record.len() as u64;
                    show(record);
                }
                Err(()) => return false,
            }
        }
    }

    /// Shows and consumes the current records. False as above; then everything up to the head is
    /// discarded.
    pub(crate) fn take(&mut self, show: &mut dyn FnMut(&[u8])) -> bool {
        let valid = self.peek(show);
        self.tail = self.head;
        self.data_tail().store(self.tail, Ordering::Release);
        valid
    }

    /// The record at a position; `None` at the head.
    fn record(&mut self, at: u64) -> Result<Option<&[u8]>, ()> {
        let available = self.head.wrapping_sub(at);
        if available == 0 {
            return Ok(None);
        }
        if available > self.bytes as u64 || !at.is_multiple_of(8) {
            return Err(());
        }
        let available = available as usize;
        let start = (at % self.bytes as u64) as usize;
        // SAFETY: `data` is valid for `bytes`; nothing writes between tail and head.
        let data = unsafe { slice::from_raw_parts(self.data, self.bytes) };
        // Records are multiples of eight bytes, like the ring, so a header never wraps.
        let header = data.get(start..start + records::HEADER_BYTES).ok_or(())?;
        let (_, size) = records::header(header).ok_or(())?;
        if size > available {
            return Err(());
        }
        if start + size <= self.bytes {
            return Ok(Some(&data[start..start + size]));
        }
        let first = self.bytes - start;
        self.joined.clear();
        self.joined.extend_from_slice(&data[start..]);
        self.joined.extend_from_slice(&data[..size - first]);
        Ok(Some(&self.joined))
    }

    fn data_head(&self) -> &AtomicU64 {
        // SAFETY: the page is valid while the ring lives; the field is aligned, and the kernel only
        // writes it as a whole.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page).data_head) }
    }

    fn data_tail(&self) -> &AtomicU64 {
        // SAFETY: as above; only this ring writes it.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page).data_tail) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.mapped > 0 {
            // SAFETY: the mapping is ours, and nothing borrows from it any more.
            unsafe { libc::munmap(self.page.cast(), self.mapped) };
        }
    }
}

const _: () = assert!(mem::offset_of!(perf_event_mmap_page, data_head) == 1024);
const _: () = assert!(mem::offset_of!(perf_event_mmap_page, data_tail) == 1032);

#[cfg(test)]
mod tests {
    use super::super::records::tests::{lost, record};
    use super::*;
    use proptest::prelude::*;

    /// Memory in place of the kernel's, and a writer that follows the kernel's rules.
    struct Kernel {
        page: Box<perf_event_mmap_page>,
        data: Box<[u64]>,
        dropped: u64,
    }

    impl Kernel {
        fn new(bytes: usize, at: u64) -> Kernel {
            let page = Box::new(perf_event_mmap_page {
                data_head: at,
                data_tail: at,
                ..Default::default()
            });
            Kernel { page, data: vec![0; bytes / 8].into(), dropped: 0 }
        }

        fn ring(&mut self) -> Ring {
            let bytes = self.data.len() * 8;
            // SAFETY: both outlive the ring in every test, and no read runs while the tests write.
            unsafe { Ring::over(&mut *self.page, self.data.as_ptr().cast(), bytes, 0) }
        }

        fn write(&mut self, ring: &Ring, record: &[u8]) {
            let head = ring.data_head().load(Ordering::Relaxed);
            let tail = ring.data_tail().load(Ordering::Acquire);
            let bytes = self.data.len() as u64 * 8;
            if head - tail + record.len() as u64 > bytes {
                self.dropped += 1;
                return;
            }
            for (word, at) in record.chunks_exact(8).zip((head..).step_by(8)) {
                let word = u64::from_ne_bytes(word.try_into().unwrap());
                let at = (at % bytes / 8) as usize;
                // SAFETY: within the data; written through a pointer, as the ring also has one.
                unsafe { self.data.as_mut_ptr().add(at).write(word) };
            }
            ring.data_head().store(head + record.len() as u64, Ordering::Release);
        }
    }

    fn taken(ring: &mut Ring) -> (Vec<Vec<u8>>, bool) {
        let mut all = Vec::new();
        ring.load_head();
        let valid = ring.take(&mut |record| all.push(record.to_vec()));
        (all, valid)
    }

    #[test]
    fn records_that_wrap_are_read_whole_and_dropped_ones_are_missing() {
        let mut kernel = Kernel::new(128, u64::from(u32::MAX) * 8);
        let mut ring = kernel.ring();
        for round in 0..50u64 {
            let first = lost(round);
            let second = record(9, 0, &[round as u8; 40]);
            kernel.write(&ring, &first);
            kernel.write(&ring, &second);
            let before = kernel.dropped;
            kernel.write(&ring, &record(9, 0, &[0; 56]));
            assert_eq!(kernel.dropped, before + 1, "88 of 128 bytes are taken");
            let mut seen = 0;
            ring.load_head();
            assert!(ring.peek(&mut |_| seen += 1));
            assert_eq!(seen, 2);
            assert_eq!(taken(&mut ring), (vec![first, second], true));
        }
        assert_eq!(taken(&mut ring), (vec![], true));
    }

    #[test]
    fn an_invalid_record_ends_the_reading_and_the_ring_continues() {
        let mut kernel = Kernel::new(256, 0);
        let mut ring = kernel.ring();
        kernel.write(&ring, &lost(1));
        kernel.write(&ring, &[0; 16]);
        kernel.write(&ring, &lost(2));
        assert_eq!(taken(&mut ring), (vec![lost(1)], false));
        kernel.write(&ring, &lost(3));
        assert_eq!(taken(&mut ring), (vec![lost(3)], true));
        // A corrupt head.
        ring.data_head().store(1 << 40, Ordering::Release);
        assert_eq!(taken(&mut ring), (vec![], false));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            writes in proptest::collection::vec((0..100usize, any::<u8>(), any::<bool>()), 0..200),
            start in 0..100_000u64,
        ) {
            let mut kernel = Kernel::new(512, start * 8);
            let mut ring = kernel.ring();
            let mut expected = Vec::new();
            for (length, byte, read) in writes {
                let written = record(u32::from(byte), 0, &vec![byte; length]);
                let dropped = kernel.dropped;
                kernel.write(&ring, &written);
                if kernel.dropped == dropped {
                    expected.push(written);
                }
                if read {
                    prop_assert_eq!(taken(&mut ring), (mem::take(&mut expected), true));
                }
            }
            prop_assert_eq!(taken(&mut ring), (expected, true));
        }

        #[test]
        fn garbage_never_panics(
            words in proptest::collection::vec(any::<u64>(), 8), head in any::<u64>(),
        ) {
            let mut kernel = Kernel::new(64, 0);
            kernel.data.copy_from_slice(&words);
            let mut ring = kernel.ring();
            ring.data_head().store(head, Ordering::Release);
            let _ = taken(&mut ring);
            let _ = taken(&mut ring);
        }
    }
}
