//! User stacks without frame pointers, unwound by the `.eh_frame` of the mapped files from
//! registers and a copy of the stack.
//!
//! Most distributions build without frame pointers, but every binary has the tables for unwinding
//! exceptions. An unwinder is made when the first stack of a space is sampled, and is shared with
//! forks of the process.

use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};

use super::files::{FileId, Files};
use super::records::{Map, User};

/// The unwinder of one space.
#[derive(Clone)]
pub(crate) struct Unwinder(UnwinderX86_64<Arc<[u8]>>);

/// Cached rules, for all spaces.
pub(crate) type Rules = CacheX86_64;

impl Unwinder {
    /// Reads the tables of all files that are mapped in a space.
    pub(crate) fn of<'m>(
        mapped: impl Iterator<Item = (FileId, &'m Map)>,
        files: &mut Files,
    ) -> Unwinder {
        let mut unwinder = UnwinderX86_64::new();
        for (id, map) in mapped {
            let Some(elf) = files.elf(id, map) else { continue };
            let Some(stated) = elf.address_of(map.offset) else { continue };
            let Some(eh_frame) = &elf.eh_frame else { continue };
            let base = elf.base();
            let sections = ExplicitModuleSectionInfo {
                base_svma: base,
                text_svma: elf.text.clone(),
                eh_frame_svma: Some(eh_frame.addresses.clone()),
                eh_frame: Some(Arc::clone(&eh_frame.bytes)),
                eh_frame_hdr_svma: elf.eh_frame_hdr.as_ref().map(|s| s.addresses.clone()),
                eh_frame_hdr: elf.eh_frame_hdr.as_ref().map(|s| Arc::clone(&s.bytes)),
                ..ExplicitModuleSectionInfo::default()
            };
            let loaded_at = map.start.wrapping_sub(stated).wrapping_add(base);
            let range = map.start..map.end;
            unwinder.add_module(Module::new(String::new(), range, loaded_at, sections));
        }
        Unwinder(unwinder)
    }

    /// Appends the instruction pointers of a thread, innermost first, up to `most` of them. They
    /// are addresses to look up: a return address minus one. Returns whether the outermost frame
    /// was reached.
    pub(crate) fn unwind(
        &self,
        user: &User<'_>,
        rules: &mut Rules,
        most: usize,
        addresses: &mut Vec<u64>,
    ) -> bool {
        let mut word = |address: u64| {
            let at =
                address.checked_sub(user.sp).and_then(|at| usize::try_from(at).ok()).ok_or(())?;
            let end = at.checked_add(8).ok_or(())?;
            let bytes = user.stack.get(at..end).ok_or(())?;
            bytes.try_into().map(u64::from_le_bytes).map_err(drop)
        };
        let registers = UnwindRegsX86_64::new(user.ip, user.sp, user.bp);
        let mut frames = self.0.iter_frames(user.ip, registers, rules, &mut word);
        let mut found = 0;
        loop {
            match frames.next() {
                Ok(Some(_)) if found == most => return false,
                Ok(Some(frame)) => {
                    found += 1;
                    addresses.push(lookup(frame));
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }
}

fn lookup(frame: FrameAddress) -> u64 {
    frame.address_for_lookup()
}
