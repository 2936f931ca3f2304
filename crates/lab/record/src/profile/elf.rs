//! What the profile needs from an ELF file: where its segments are, how to unwind it, where its
//! symbols may be. Only little-endian 64-bit files, which the unwinder supports.
//!
//! Files are not trusted: every number in them is checked before it is used, and inconsistent data
//! is `None`, never a panic.

use std::ops::Range;
use std::sync::Arc;

/// Most bytes read of one section.
const SECTION_BYTES_MAX: u64 = 64 << 20;

/// Most headers of a kind.
const HEADERS_MAX: usize = 4096;

const PT_LOAD: u32 = 1;
const PF_X: u64 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_NOBITS: u32 = 8;
const NT_GNU_BUILD_ID: u32 = 3;

/// Reads bytes at an offset; `None` if there are not that many.
pub(crate) type Bytes<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u8>>;

/// A section's address and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) addresses: Range<u64>,
    pub(crate) bytes: Arc<[u8]>,
}

/// The contents of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Elf {
    loads: Vec<Load>,
    pub(crate) text: Option<Range<u64>>,
    pub(crate) eh_frame: Option<Section>,
    pub(crate) eh_frame_hdr: Option<Section>,
    /// The table of procedures of a program in Go.
    pub(crate) go_table: Option<Section>,
    /// Whether it has its full symbol table.
    pub(crate) symbols: bool,
    pub(crate) build_id: Option<Vec<u8>>,
    /// The name of the file with the stripped symbols.
    pub(crate) debug_link: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Load {
    offset: u64,
    bytes: u64,
    address: u64,
    code: bool,
}

impl Elf {
    /// Reads a file's headers and the sections that matter here.
    pub(crate) fn read(bytes: Bytes<'_>) -> Option<Elf> {
        let head = bytes(0, 64)?;
        // The magic, 64 bits, little-endian.
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let mut elf = Elf::default();
        let table = (number(&head, 32, 8)?, number(&head, 54, 2)?, number(&head, 56, 2)?);
        for header in headers(bytes, table, 56)? {
            if number(&header, 0, 4)? == u64::from(PT_LOAD) {
                elf.loads.push(Load {
                    offset: number(&header, 8, 8)?,
                    address: number(&header, 16, 8)?,
                    bytes: number(&header, 32, 8)?,
                    code: number(&header, 4, 4)? & PF_X != 0,
                });
            }
        }
        // A file without section headers still says where its code is.
        let table = (number(&head, 40, 8)?, number(&head, 58, 2)?, number(&head, 60, 2)?);
        let sections = headers(bytes, table, 64).unwrap_or_default();
        let names = usize::try_from(number(&head, 62, 2)?).ok()?;
        if let Some(names) = sections.get(names).and_then(|header| content(bytes, header)) {
            for header in &sections {
                elf.section(bytes, header, &names);
            }
        }
        Some(elf)
    }

    /// The address, as stated by the file, of an offset in its code.
    ///
    /// Files are mapped in whole pages: a mapping of code begins at the page that contains the
    /// segment's start, and the first part of that page may belong to the previous segment.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        let page = !(crate::clock::page_bytes() - 1);
        let load = self.loads.iter().find(|load| {
            load.code
                && offset >= load.offset & page
                && offset.checked_sub(load.offset).is_none_or(|within| within < load.bytes)
        })?;
        Some(load.address.wrapping_sub(load.offset).wrapping_add(offset))
    }

    /// The lowest address stated by the file, rounded down to a page.
    pub(crate) fn base(&self) -> u64 {
        self.loads.iter().map(|load| load.address & !0xfff).min().unwrap_or(0)
    }

    fn section(&mut self, bytes: Bytes<'_>, header: &[u8], names: &[u8]) -> Option<()> {
        let name = usize::try_from(number(header, 0, 4)?).ok()?;
        let name = names.get(name..)?.split(|&byte| byte == 0).next()?;
        let start = number(header, 16, 8)?;
        let addresses = start..start.checked_add(number(header, 32, 8)?)?;
        let section = || {
            let bytes = content(bytes, header)?.into();
            Some(Section { addresses: addresses.clone(), bytes })
        };
        match name {
            b".text" => self.text = Some(addresses),
            b".eh_frame" => self.eh_frame = section(),
            b".eh_frame_hdr" => self.eh_frame_hdr = section(),
            // The second name is that of position-independent programs.
            b".gopclntab" | b".data.rel.ro.gopclntab" => self.go_table = section(),
            b".note.gnu.build-id" => self.build_id = build_id(&content(bytes, header)?),
            b".gnu_debuglink" => {
                let link = content(bytes, header)?;
                let name = link.split(|&byte| byte == 0).next()?;
                // A name, not a path: it is only looked up in known places.
                let name = String::from_utf8(name.to_vec()).ok()?;
                self.debug_link = Some(name).filter(|name| !name.contains('/') && !name.is_empty());
            }
            _ if number(header, 4, 4)? == u64::from(SHT_SYMTAB) => self.symbols = true,
            _ => {}
        }
        Some(())
    }
}

/// The entries of a header table given as (offset, bytes each, count).
fn headers(
    bytes: Bytes<'_>,
    (offset, each, count): (u64, u64, u64),
    least: usize,
) -> Option<Vec<Vec<u8>>> {
    let (each, count) = (usize::try_from(each).ok()?, usize::try_from(count).ok()?);
    if count == 0 {
        return Some(Vec::new());
    }
    if each < least || count > HEADERS_MAX {
        return None;
    }
    let table = bytes(offset, each * count)?;
    Some(table.chunks_exact(each).map(<[u8]>::to_vec).collect())
}

/// A section's content; `None` if it is not in this file.
fn content(bytes: Bytes<'_>, header: &[u8]) -> Option<Vec<u8>> {
    let size = number(header, 32, 8)?;
    if number(header, 4, 4)? == u64::from(SHT_NOBITS) || size > SECTION_BYTES_MAX {
        return None;
    }
    bytes(number(header, 24, 8)?, usize::try_from(size).ok()?)
}

/// The build id in a note: lengths of owner and value, kind, owner "GNU\0", value.
fn build_id(note: &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(number(note, 4, 4)?).ok()?;
    let kind = number(note, 8, 4)?;
    (kind == u64::from(NT_GNU_BUILD_ID) && note.get(12..16)? == b"GNU\0")
        .then(|| note.get(16..16usize.checked_add(length)?).map(<[u8]>::to_vec))?
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let mut value = [0; 8];
    value.get_mut(..length)?.copy_from_slice(bytes.get(at..at.checked_add(length)?)?);
    Some(u64::from_le_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(file: &[u8]) -> Option<Elf> {
        Elf::read(&|offset, length| {
            let offset = usize::try_from(offset).ok()?;
            file.get(offset..offset.checked_add(length)?).map(<[u8]>::to_vec)
        })
    }

    #[test]
    fn this_very_program_is_read() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let elf = of(&file).unwrap();
        assert!(elf.symbols, "a test is not stripped");
        let eh_frame = elf.eh_frame.as_ref().unwrap();
        assert_eq!(eh_frame.addresses.end - eh_frame.addresses.start, eh_frame.bytes.len() as u64);
        assert!(elf.eh_frame_hdr.is_some());
        let text = elf.text.clone().unwrap();
        assert!(elf.base() < text.start);
        let offset =
            elf.loads.iter().find(|l| l.address <= text.start && text.start < l.address + l.bytes);
        let offset = offset.map(|load| text.start - load.address + load.offset).unwrap();
        assert_eq!(elf.address_of(offset), Some(text.start));
        assert_eq!(elf.address_of(u64::MAX), None);
        assert_eq!(elf.address_of(offset & !0xfff), Some(text.start & !0xfff), "by whole pages");
    }

    #[test]
    fn other_files_are_rejected() {
        assert_eq!(of(b""), None);
        assert_eq!(
            of(b"#!/bin/sh\nexec something that is longer than a header of an ELF file"),
            None
        );
    }

    proptest! {
        #[test]
        fn damage_never_panics(
            hits in proptest::collection::vec((0..4096usize, any::<u8>()), 1..40),
        ) {
            static FILE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
            let file = FILE.get_or_init(|| {
                // A small file with sections: the vdso of this process. Otherwise zeros.
                crate::profile::files::vdso().unwrap_or_else(|| vec![0; 4096])
            });
            let mut file = file.clone();
            for (at, byte) in hits {
                let at = at % file.len();
                file[at] = byte;
            }
            let _ = of(&file);
        }
    }
}
