//! The names of instructions of the program: the procedure, the line of its source, and the text of
//! this line, which names the field.

use std::env;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

/// Parts of the paths of libraries, whose callers are more interesting: Rust's own, and those of
/// others.
const LIBRARIES: [&str; 2] = ["library/", "/registry/src/"];

/// Names instructions of one process.
pub(super) struct Places {
    symbolizer: Symbolizer,
    program: PathBuf,
    /// Where the program is in memory, with all gaps.
    memory: Range<u64>,
}

impl Places {
    /// # Errors
    /// The process has ended, or the program is not mapped.
    pub(super) fn of(process: u32, program: &Path) -> Result<Places, String> {
        let program =
            fs::canonicalize(program).map_err(|e| format!("{}: {e}", program.display()))?;
        let file = format!("/proc/{process}/maps");
        let text = fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
        let missing = || format!("{} is not mapped", program.display());
        let memory = memory_of(&text, &program).ok_or_else(missing)?;
        let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
        Ok(Places { symbolizer, program, memory })
    }

    pub(super) fn memory(&self) -> Range<u64> {
        self.memory.clone()
    }

    /// The first instructions of the procedures to which the instructions belong, if a procedure or
    /// one that is inlined in it has a name with all of the words.
    pub(super) fn procedures(
        &self,
        instructions: impl IntoIterator<Item = u64>,
        words: &[&str],
    ) -> Vec<u64> {
        let is_wanted = |name: &str| words.iter().all(|word| name.contains(word));
        let first = |address| {
            let symbol = self.symbol(address)?;
            let mut names = symbol.inlined.iter().map(|of| &of.name).chain([&symbol.name]);
            names.any(|name| is_wanted(name)).then_some(self.memory.start + symbol.addr)
        };
        let mut found: Vec<u64> = instructions.into_iter().filter_map(first).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The innermost procedure that is of no library, and the procedure into which it was inlined.
    pub(super) fn name(&self, address: u64) -> String {
        let Some(symbol) = self.symbol(address) else { return format!("unknown, at {address:x}") };
        // From the outermost to the innermost, each with its line.
        let outer = (&symbol.name, symbol.code_info.as_deref());
        let inlined = symbol.inlined.iter().map(|of| (&of.name, of.code_info.as_ref()));
        let all: Vec<_> = [outer].into_iter().chain(inlined).collect();
        let is_ours = |(_, line): &&(_, Option<&CodeInfo<'_>>)| {
            let path = line.map(|line| line.to_path().to_string_lossy().into_owned());
            path.is_some_and(|path| !LIBRARIES.iter().any(|part| path.contains(part)))
        };
        let (name, line) = all.iter().rfind(is_ours).unwrap_or(&all[0]);
        let line = line.map_or_else(String::new, |of| line_of(&of.to_path(), of.line));
        match *name == outer.0 {
            true => format!("{name}{line}"),
            false => format!("{name}{line} in {}", outer.0),
        }
    }

    fn symbol(&self, address: u64) -> Option<Sym<'_>> {
        let offset = address.checked_sub(self.memory.start)?;
        let source = Source::Elf(Elf::new(&self.program));
        match self.symbolizer.symbolize_single(&source, Input::VirtOffset(offset)).ok()? {
            Symbolized::Sym(symbol) => Some(symbol),
            Symbolized::Unknown(_) => None,
        }
    }
}

/// The file and the number of a line, and its text if the source is here. Derived code has no
/// number.
fn line_of(path: &Path, number: Option<u32>) -> String {
    let here = env::current_dir().unwrap_or_default();
    let shown = path.strip_prefix(here).unwrap_or(path).display();
    let Some(number) = number else { return format!(" ({shown})") };
    let source = fs::read_to_string(path).unwrap_or_default();
    match source.lines().nth((number as usize).saturating_sub(1)) {
        Some(text) => format!(" ({shown}:{number}: `{}`)", text.trim()),
        None => format!(" ({shown}:{number})"),
    }
}

/// From the first byte of a file in memory to its last, by the text of `/proc/PID/maps`.
fn memory_of(maps: &str, file: &Path) -> Option<Range<u64>> {
    let is_of_file =
        |line: &&str| line.find('/').is_some_and(|path| Path::new(&line[path..]) == file);
    let bounds = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
    };
    let parts = maps.lines().filter(is_of_file).filter_map(bounds);
    parts.reduce(|all, part| all.start.min(part.start)..all.end.max(part.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_in_memory_from_its_first_byte_to_its_last() {
        let maps = "00400000-00401000 r--p 00000000 fe:00 12  /bin/a b\n\
                    00401000-00402000 r-xp 00001000 fe:00 12  /bin/a b\n\
                    00500000-00501000 rw-p 00000000 00:00 0 \n\
                    00600000-00601000 rw-p 00000000 00:00 0  [heap]\n\
                    00700000-00701000 r-xp 00001000 fe:00 13  /bin/a\n";
        assert_eq!(memory_of(maps, Path::new("/bin/a b")), Some(0x40_0000..0x40_2000));
        assert_eq!(memory_of(maps, Path::new("/bin/b")), None);
    }

    #[test]
    fn a_line_is_shown_with_its_text() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sharing/places.rs"));
        let text = line_of(path, Some(line!()));
        assert!(text.ends_with(": `let text = line_of(path, Some(line!()));`)"), "{text}");
        assert_eq!(line_of(Path::new("/gone.rs"), Some(7)), " (/gone.rs:7)");
        assert_eq!(line_of(Path::new("/gone.rs"), None), " (/gone.rs)");
    }

    /// Without debug information, as tests are built in some runs, there is no line.
    #[test]
    fn a_procedure_of_this_program_has_its_name() {
        let program = env::current_exe().unwrap();
        let places = Places::of(std::process::id(), &program).unwrap();
        let address = memory_of as *const () as u64;
        assert!(places.memory().contains(&address));
        let name = places.name(address);
        assert!(name.starts_with("bench::sharing::places::memory_of"), "{name}");
        assert_eq!(places.procedures([address + 1], &["memory", "_of"]), [address]);
        assert_eq!(places.procedures([address + 1], &["memory", "other"]), [0; 0]);
        assert_eq!(places.name(0), "unknown, at 0");
    }
}
