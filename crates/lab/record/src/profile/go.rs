//! The names of Go's procedures, from the table by which Go's runtime names them. A program that
//! was linked without symbols (`-ldflags=-s`) still has it.
//!
//! The layout is that of Go 1.18 and later (`runtime/symtab.go`, `debug/gosym/pclntab.go`). Tables
//! of earlier versions are not read. What never happens: a number of the file is used unchecked, or
//! a broken table gives a panic.

use std::sync::Arc;

use super::elf::Section;

/// The first word of the table, since Go 1.18 and since Go 1.20.
const MAGIC: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// Bytes of the header: the magic, sizes, and eight numbers.
const HEADER_BYTES: usize = 72;

/// The longest name, bytes.
const NAME_BYTES_MAX: usize = 1024;

/// The table of one file.
#[derive(Clone, Debug)]
pub(crate) struct GoNames {
    bytes: Arc<[u8]>,
    /// The address from which procedures are counted.
    text: u64,
    functions: usize,
    /// Offsets of the names and of the procedures.
    names_at: usize,
    functions_at: usize,
}

impl GoNames {
    /// Reads the header. `text` is where the file's code begins, for tables that leave it to the
    /// loader.
    pub(crate) fn read(table: &Section, text: u64) -> Option<GoNames> {
        let bytes = Arc::clone(&table.bytes);
        let magic = word(&bytes, 0)?;
        let pointer_bytes = *bytes.get(7)?;
        if !MAGIC.contains(&magic) || pointer_bytes != 8 || bytes.len() < HEADER_BYTES {
            return None;
        }
        let number = |at: usize| {
            let eight = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(eight))
        };
        let offset = |at: usize| usize::try_from(number(at)?).ok().filter(|at| *at < bytes.len());
        let start = number(24)?;
        Some(GoNames {
            text: if start == 0 { text } else { start },
            functions: offset(8)?,
            names_at: offset(32)?,
            functions_at: offset(64)?,
            bytes,
        })
    }

    /// The procedure at an address as stated by the file.
    pub(crate) fn at(&self, address: u64) -> Option<String> {
        let within = u32::try_from(address.checked_sub(self.text)?).ok()?;
        // An entry has the begin of a procedure; the last one is the end of all.
        let begin = |index: usize| word(&self.bytes, self.entry(index)?);
        if within >= begin(self.functions)? {
            return None;
        }
        let (mut low, mut high) = (0, self.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            match begin(middle)? <= within {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let entry = self.entry(low.checked_sub(1)?)?;
        let function = self.functions_at.checked_add(word(&self.bytes, entry + 4)? as usize)?;
        let name = word(&self.bytes, function.checked_add(4)?)? as usize;
        let name = self.bytes.get(self.names_at.checked_add(name)?..)?;
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        let length = memchr::memchr(0, name).filter(|length| *length > 0)?;
        Some(String::from_utf8_lossy(&name[..length]).into_owned())
    }

    fn entry(&self, index: usize) -> Option<usize> {
        index.checked_mul(8)?.checked_add(self.functions_at)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(u32::from_le_bytes(four))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table of procedures: where each begins, and its name. The last one is the end.
    fn table(start: u64, procedures: &[(u32, &str)]) -> Vec<u8> {
        let (functions, names_at) = (procedures.len() - 1, HEADER_BYTES);
        let mut names = Vec::new();
        let mut at = Vec::new();
        for (_, name) in procedures {
            at.push(names.len() as u32);
            names.extend_from_slice(name.as_bytes());
            names.push(0);
        }
        let functions_at = names_at + names.len();
        let mut bytes = MAGIC[1].to_le_bytes().to_vec();
        bytes.extend_from_slice(&[0, 0, 1, 8]);
        let numbers = [functions as u64, 0, start, names_at as u64, 0, 0, 0, functions_at as u64];
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend_from_slice(&names);
        let after = 8 * procedures.len();
        for (index, (begin, _)) in procedures.iter().enumerate() {
            bytes.extend_from_slice(&begin.to_le_bytes());
            bytes.extend_from_slice(&((after + 8 * index) as u32).to_le_bytes());
        }
        for ((begin, _), name) in procedures.iter().zip(at) {
            bytes.extend_from_slice(&begin.to_le_bytes());
            bytes.extend_from_slice(&name.to_le_bytes());
        }
        bytes
    }

    fn names(bytes: Vec<u8>) -> Option<GoNames> {
        GoNames::read(&Section { addresses: 0..0, bytes: bytes.into() }, 0x40_1000)
    }

    #[test]
    fn the_procedure_that_contains_an_address_is_named() {
        let procedures =
            [(0, "runtime.text"), (0x20, "main.main"), (0x90, "main.f[...]"), (0xa0, "")];
        for start in [0, 0x40_1000] {
            let names = names(table(start, &procedures)).unwrap();
            let at = |offset: u64| names.at(0x40_1000 + offset);
            assert_eq!(at(0).as_deref(), Some("runtime.text"));
            assert_eq!(at(0x1f).as_deref(), Some("runtime.text"));
            assert_eq!(at(0x20).as_deref(), Some("main.main"));
            assert_eq!(at(0x9f).as_deref(), Some("main.f[...]"));
            assert_eq!((at(0xa0), names.at(0x40_0fff), names.at(u64::MAX)), (None, None, None));
        }
    }

    #[test]
    fn tables_of_other_versions_and_cut_tables_are_not_read() {
        let whole = table(0, &[(0, "a"), (9, "")]);
        let mut old = whole.clone();
        old[..4].copy_from_slice(&0xffff_fffb_u32.to_le_bytes());
        assert!(names(old).is_none());
        for length in 0..whole.len() {
            if let Some(names) = names(whole[..length].to_vec()) {
                let _ = names.at(0x40_1000);
            }
        }
    }

    proptest! {
        #[test]
        fn a_broken_table_never_panics(at in 0usize..140, byte: u8, address: u64) {
            let mut bytes = table(0, &[(0, "a"), (4, "b"), (9, "")]);
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Some(names) = names(bytes) {
                let _ = (names.at(address), names.at(0x40_1000 + address % 16));
            }
        }
    }
}
