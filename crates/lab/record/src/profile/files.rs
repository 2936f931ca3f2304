//! The files that contain code, and the names of their procedures.
//!
//! A file is opened once, when something in it is first looked up, through the process that maps
//! it: by `/proc/PID/map_files`, which leads to the exact file even if it was deleted or is in a
//! container, otherwise by `/proc/PID/root`. Names come from its symbol table; from the table of
//! its debug file (by build id or debug link) if it was stripped; otherwise from its dynamic
//! symbols. A program in Go has its own table, which stripping leaves.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf as ElfSource, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};

use super::elf::Elf;
use super::go::GoNames;
use super::records::Map;

/// Directory of debug files.
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The code that the kernel maps into every process.
pub(crate) const VDSO: &str = "[vdso]";

/// Largest vdso, bytes.
const VDSO_BYTES_MAX: u64 = 1 << 20;

/// An index into [`Files`].
pub(crate) type FileId = usize;

/// Identifies a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    path: String,
}

/// One file.
#[derive(Debug)]
pub(crate) struct CodeFile {
    /// Its name without its directory, or a word in brackets if it is not a file.
    pub(crate) name: String,
    path: String,
    content: Content,
}

#[derive(Debug)]
enum Content {
    NotYet,
    /// Not an ELF file, or not readable.
    None,
    Elf(Box<Opened>),
}

#[derive(Debug)]
struct Opened {
    elf: Elf,
    go: Option<GoNames>,
    /// Files with names, for the symbolizer to open.
    symbols: Vec<PathBuf>,
    /// Keeps the descriptor open that the paths lead through.
    _file: File,
}

/// All files that were seen.
pub(crate) struct Files {
    symbolizer: Symbolizer,
    files: Vec<CodeFile>,
    known: HashMap<Identity, FileId>,
}

impl Files {
    pub(crate) fn new() -> Files {
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_code_info(false)
            .enable_inlined_fns(false)
            .enable_demangling(true)
            .build();
        Files { symbolizer, files: Vec::new(), known: HashMap::new() }
    }

    /// The symbolizer itself, for code that is in no file.
    pub(crate) fn symbolizer(&self) -> &Symbolizer {
        &self.symbolizer
    }

    /// The file of a mapping; `None` for stacks, heaps, and code made at run time.
    pub(crate) fn of(&mut self, map: &Map) -> Option<FileId> {
        if map.path != VDSO && !map.path.starts_with('/') || map.path.starts_with("//anon") {
            return None;
        }
        let path = map.path.clone();
        let identity = Identity { device: map.device, inode: map.inode, path };
        if let Some(&id) = self.known.get(&identity) {
            return Some(id);
        }
        let name = map.file_name().to_owned();
        self.files.push(CodeFile { name, path: map.path.clone(), content: Content::NotYet });
        let id = self.files.len() - 1;
        self.known.insert(identity, id);
        Some(id)
    }

    /// Its name.
    pub(crate) fn name(&self, id: FileId) -> &str {
        &self.files[id].name
    }

    /// The parsed ELF file, read at the first call.
    pub(crate) fn elf(&mut self, id: FileId, map: &Map) -> Option<&Elf> {
        let file = &mut self.files[id];
        if matches!(file.content, Content::NotYet) {
            file.content = match open(map, &file.path) {
                Some(opened) => Content::Elf(Box::new(opened)),
                None => Content::None,
            };
        }
        match &file.content {
            Content::Elf(opened) => Some(&opened.elf),
            _ => None,
        }
    }

    /// The procedure at an address as stated by the file. Call [`Files::elf`] first.
    pub(crate) fn symbol(&self, id: FileId, address: u64) -> Option<String> {
        let Content::Elf(opened) = &self.files[id].content else { return None };
        if let Some(name) = opened.go.as_ref().and_then(|names| names.at(address)) {
            return Some(name);
        }
        opened.symbols.iter().find_map(|path| {
            let mut source = ElfSource::new(path);
            source.debug_syms = false;
            name_at(&self.symbolizer, &Source::Elf(source), Input::VirtOffset(address))
        })
    }
}

/// The name of the procedure at an address of a source.
pub(crate) fn name_at(
    symbolizer: &Symbolizer,
    source: &Source<'_>,
    address: Input<u64>,
) -> Option<String> {
    match symbolizer.symbolize_single(source, address).ok()? {
        Symbolized::Sym(symbol) => Some(symbol.name.into_owned()),
        Symbolized::Unknown(_) => None,
    }
}

fn open(map: &Map, path: &str) -> Option<Opened> {
    let file = if path == VDSO { in_memory(&vdso()?)? } else { open_mapped(map)? };
    let mut elf = elf_of(&file)?;
    let mut symbols = Vec::new();
    if !elf.symbols {
        symbols.extend(debug_file(&elf, Path::new(path)));
    }
    // The path may lead to another file later; the descriptor does not.
    symbols.push(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
    let text = elf.text.as_ref().map(|text| text.start);
    let go = elf.go_table.take().zip(text).and_then(|(table, text)| GoNames::read(&table, text));
    Some(Opened { elf, go, symbols, _file: file })
}

fn elf_of(file: &File) -> Option<Elf> {
    let length = file.metadata().ok()?.len();
    Elf::read(&|offset, count| {
        // Nothing is allocated for bytes that do not exist.
        if offset.checked_add(count as u64)? > length {
            return None;
        }
        let mut bytes = vec![0; count];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    })
}

/// The build id of a program, in hexadecimal digits; `None` if it has none. `/proc/PID/exe` leads
/// to the program that runs, also if another file has its name now.
pub fn build_id(program: &Path) -> Option<String> {
    let file = File::open(program).ok().filter(is_regular)?;
    let id = elf_of(&file)?.build_id?;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The file that a process maps, also if another one has its name now or none has.
pub(crate) fn open_mapped(map: &Map) -> Option<File> {
    let Map { pid, start, end, path, .. } = map;
    let exact = format!("/proc/{pid}/map_files/{start:x}-{end:x}");
    if let Some(file) = File::open(exact).ok().filter(is_regular) {
        return Some(file);
    }
    let inside = format!("/proc/{pid}/root{path}");
    let mut named = [inside.as_str(), path].into_iter().filter_map(|path| File::open(path).ok());
    named.find(is_regular)
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|file| file.is_file())
}

/// The file with the symbols stripped from this one, if it is installed (GDB's manual, "Separate
/// Debug Files").
fn debug_file(elf: &Elf, path: &Path) -> Option<PathBuf> {
    let mut candidates = Vec::new();
    if let Some((first, rest)) = elf.build_id.as_deref().and_then(<[u8]>::split_first) {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        candidates.push(format!("{DEBUG_ROOT}/.build-id/{first:02x}/{rest}.debug").into());
    }
    if let (Some(link), Some(home)) = (&elf.debug_link, path.parent()) {
        candidates.push(home.join(link));
        candidates.push(home.join(".debug").join(link));
        if let Ok(home) = home.strip_prefix("/") {
            candidates.push(Path::new(DEBUG_ROOT).join(home).join(link));
        }
    }
    candidates.into_iter().find(|candidate| candidate != path && candidate.is_file())
}

/// This process's vdso. It is the same for all 64-bit processes of a boot.
pub(crate) fn vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with(VDSO))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let length = u64::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    let mut bytes = vec![0; usize::try_from(length.min(VDSO_BYTES_MAX)).ok()?];
    File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// An anonymous file, for APIs that only take files.
fn in_memory(bytes: &[u8]) -> Option<File> {
    // SAFETY: the name is a string that ends with a zero.
    let descriptor = unsafe { libc::memfd_create(c"vdso".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return None;
    }
    // SAFETY: a new descriptor without another owner.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    file.write_all(bytes).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_map(of: &str) -> Map {
        let pid = std::process::id();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        super::super::maps::parse(pid, &maps)
            .into_iter()
            .find(|map| map.path.ends_with(of))
            .unwrap_or_else(|| panic!("{of} is mapped"))
    }

    #[test]
    fn a_procedure_of_this_program_and_of_its_library_have_their_names() {
        let mut files = Files::new();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let at = debug_file as *const () as u64;
        let map = own_map(exe.file_name().unwrap().to_str().unwrap());
        let id = files.of(&map).unwrap();
        assert_eq!(files.of(&map), Some(id));
        let pid = std::process::id();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let maps = super::super::maps::parse(pid, &maps);
        let code = maps.iter().find(|map| (map.start..map.end).contains(&at)).unwrap();
        let address = files.elf(id, code).unwrap().address_of(at - code.start + code.offset);
        let name = files.symbol(id, address.unwrap()).unwrap();
        assert!(name.ends_with("debug_file"), "{name}");

        let at = libc::getpid as *const () as u64;
        let code = maps.iter().find(|map| (map.start..map.end).contains(&at)).unwrap();
        let id = files.of(code).unwrap();
        assert!(files.name(id).starts_with("libc"), "{}", files.name(id));
        let address = files.elf(id, code).unwrap().address_of(at - code.start + code.offset);
        let name = files.symbol(id, address.unwrap()).unwrap();
        assert!(name.contains("getpid"), "{name}");
    }

    #[test]
    fn the_vdso_is_unwound_and_named_like_a_file() {
        let mut files = Files::new();
        let map = own_map(VDSO);
        let id = files.of(&map).unwrap();
        let elf = files.elf(id, &map).unwrap();
        assert!(elf.eh_frame.is_some());
        let text = elf.text.clone().unwrap();
        assert!(text.clone().step_by(16).any(|address| files.symbol(id, address).is_some()));
    }

    #[test]
    fn mappings_without_a_file_have_none() {
        let mut files = Files::new();
        for path in ["", "//anon", "[heap]", "[stack]", "anon_inode:[perf_event]"] {
            assert_eq!(files.of(&Map { path: path.to_owned(), ..Map::default() }), None, "{path}");
        }
        let gone = Map { path: "/no/such/library.so (deleted)".to_owned(), ..Map::default() };
        let id = files.of(&gone).unwrap();
        assert_eq!(files.name(id), "library.so");
        assert!(files.elf(id, &gone).is_none());
        assert_eq!(files.symbol(id, 0x1000), None);
    }
}
