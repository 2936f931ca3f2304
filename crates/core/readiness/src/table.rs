//! What a backend knows about each registered descriptor, indexed by its number.
//!
//! The kernel assigns the lowest free number, so the table is dense. It makes misuse the same error
//! on every backend: a second registration is `AlreadyExists`, an unknown one `NotFound`. It never
//! grows for a number that the kernel has not confirmed, because backends ask the kernel first.

use std::io;
use std::os::fd::RawFd;

/// `entries[fd - base]` for every registered `fd`.
pub(crate) struct FdTable<E> {
    entries: Vec<Option<E>>,
    /// The lowest number that can be registered: 0 except for simulated descriptors.
    base: RawFd,
}

impl<E> FdTable<E> {
    pub(crate) fn new() -> FdTable<E> {
        FdTable::from_base(0)
    }

    pub(crate) fn from_base(base: RawFd) -> FdTable<E> {
        FdTable { entries: Vec::new(), base }
    }

    /// Fails if `fd` cannot be registered now: not a descriptor, or registered already.
    pub(crate) fn check_absent(&self, fd: RawFd) -> io::Result<()> {
        if fd < self.base {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        match self.get(fd) {
            None => Ok(()),
            Some(_) => Err(io::Error::from_raw_os_error(libc::EEXIST)),
        }
    }

    /// The caller has called `check_absent`, and the kernel has confirmed the number.
    pub(crate) fn insert(&mut self, fd: RawFd, entry: E) {
        let at = self.index(fd);
        assert!(fd >= self.base, "check_absent comes before insert");
        if at >= self.entries.len() {
            self.entries.resize_with(at + 1, || None);
        }
        debug_assert!(self.entries[at].is_none(), "check_absent comes before insert");
        self.entries[at] = Some(entry);
    }

    #[inline]
    pub(crate) fn get(&self, fd: RawFd) -> Option<&E> {
        self.entries.get(self.index(fd))?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, fd: RawFd) -> Option<&mut E> {
        let at = self.index(fd);
        self.entries.get_mut(at)?.as_mut()
    }

    /// As `get_mut`, with the contract's error for an unknown descriptor.
    pub(crate) fn known(&mut self, fd: RawFd) -> io::Result<&mut E> {
        self.get_mut(fd).ok_or_else(unknown)
    }

    /// Removes the entry.
    pub(crate) fn remove(&mut self, fd: RawFd) -> io::Result<E> {
        let at = self.index(fd);
        self.entries.get_mut(at).and_then(Option::take).ok_or_else(unknown)
    }

    /// Every registered descriptor with its entry, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RawFd, &E)> {
        let base = self.base;
        let slots = self.entries.iter().zip(base..);
        slots.filter_map(|(entry, fd)| entry.as_ref().map(|entry| (fd, entry)))
    }

    /// Numbers below the base wrap to indexes that no table reaches.
    fn index(&self, fd: RawFd) -> usize {
        fd.wrapping_sub(self.base) as u32 as usize
    }
}

fn unknown() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misuse_is_named() {
        let mut table = FdTable::from_base(10);
        let code = |result: io::Result<()>| result.map_err(|e| e.raw_os_error());
        assert_eq!(code(table.check_absent(-1)), Err(Some(libc::EBADF)));
        assert_eq!(code(table.check_absent(9)), Err(Some(libc::EBADF)));
        table.check_absent(12).unwrap();
        table.insert(12, 'a');
        assert_eq!(code(table.check_absent(12)), Err(Some(libc::EEXIST)));
        assert_eq!(code(table.known(11).map(drop)), Err(Some(libc::ENOENT)));
        assert_eq!(code(table.known(-1).map(drop)), Err(Some(libc::ENOENT)));
        assert_eq!(table.iter().collect::<Vec<_>>(), [(12, &'a')]);
        assert_eq!(table.remove(12).unwrap(), 'a');
        assert_eq!(code(table.remove(12).map(drop)), Err(Some(libc::ENOENT)));
    }
}
