//! `plimsoll boost -- PROGRAM`: runs the program with the preloaded library, whose `select()` and
//! `poll()` calls cost the same however many idle descriptors there are.
//!
//! The command first checks whether the loader will load the library into the program, and reports
//! the reason if the loader will not. Then the command replaces itself with the program, so that
//! the exit status is the program's.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use command::failure::{Failure, misuse};

use crate::cli;

const LIBRARY: &str = "libplimsoll_boost.so";
/// The setuid and setgid bits.
const SET_ID: u32 = 0o6000;
/// How much of a file is read. The headers that are checked usually end far earlier.
const HEAD_BYTES: u64 = 1 << 16;

/// Runs the program. Returns only if that fails.
pub(crate) fn boost(flags: &cli::Boost) -> Result<(), Failure> {
    let (name, arguments) = flags.program.split_first().ok_or_else(|| misuse("no program"))?;
    let program = find(name)?;
    let library = library(flags.library.as_deref())?;
    check(&program, &library)?;
    let mut command = Command::new(&program);
    command.arg0(name).args(arguments);
    interpose(&mut command, &library)?;
    if let Some(file) = &flags.stats {
        // An unwritable file is reported now, not when the program ends.
        File::create(file).map_err(|error| misuse(format!("{}: {error}", file.display())))?;
        let file = fs::canonicalize(file).map_err(misuse)?;
        command.env("PLIMSOLL_BOOST_STATS", file);
    }
    let error = command.exec();
    Err(misuse(format!("{}: {error}", program.display())))
}

/// Finds the file that a shell would run.
fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let is_program = |path: &Path| {
        fs::metadata(path).is_ok_and(|of| of.is_file() && of.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        if is_program(&path) {
            return Ok(path);
        }
        return Err(misuse(format!("{} is not an executable file", path.display())));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|p| is_program(p))
        .ok_or_else(|| {
            let name = name.display();
            misuse(format!("{name} is not in PATH; try its full path, such as /usr/sbin/{name}"))
        })
}

/// The library given by the flag, or the one installed with this command.
fn library(named: Option<&Path>) -> Result<PathBuf, Failure> {
    let found = match named {
        Some(file) if file.is_file() => Some(file.to_owned()),
        Some(file) => return Err(misuse(format!("{} does not exist", file.display()))),
        None => {
            let own = std::env::current_exe().map_err(misuse)?;
            let places = ["", "deps", "../lib/plimsoll"];
            places.iter().map(|to| own.with_file_name(to).join(LIBRARY)).find(|file| file.is_file())
        }
    };
    let found = found.ok_or_else(|| {
        misuse(format!(
            "{LIBRARY} is neither next to this command nor in ../lib/plimsoll; to fix this: run \
             make build, or give --library FILE"
        ))
    })?;
    fs::canonicalize(&found).map_err(|error| misuse(format!("{}: {error}", found.display())))
}

/// Makes the loader load the library, before any that `LD_PRELOAD` lists already.
fn interpose(command: &mut Command, library: &Path) -> Result<(), Failure> {
    if library.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(misuse(format!(
            "{}: the loader cannot preload a path with a space or a colon; to fix this: copy the \
             library and give its path with --library",
            library.display()
        )));
    }
    let mut all: OsString = library.into();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    command.env("LD_PRELOAD", all);
    Ok(())
}

/// Checks that the loader will load the library into this program.
fn check(program: &Path, library: &Path) -> Result<(), Failure> {
    let of_program = head(program)?;
    let refused = |what: &str| misuse(format!("{} cannot be boosted: {what}", program.display()));
    let mode = fs::metadata(program).map_err(misuse)?.permissions().mode();
    if mode & SET_ID != 0 {
        return Err(refused(
            "it is setuid or setgid, and the loader preloads no library into such a program; try \
             a copy without these bits, run as the target user",
        ));
    }
    if has_capabilities(program) {
        return Err(refused(
            "it has file capabilities, and the loader preloads no library into such a program; \
             try a copy (cp drops the capabilities), run as a user with these rights",
        ));
    }
    if let Some(interpreter) = script_interpreter(&of_program) {
        // The interpreter is what runs, with the same environment.
        return check(&interpreter, library);
    }
    let elf = elf(&of_program).map_err(|what| refused(&what))?;
    let of_library = self::elf(&head(library)?).map_err(|what| {
        misuse(format!("{} is not a library that can be preloaded: {what}", library.display()))
    })?;
    if elf.machine != of_library.machine {
        return Err(refused("it is built for another architecture than the library"));
    }
    match elf.interpreter {
        None => Err(refused("it is statically linked, so no library can intercept its calls")),
        Some(loader) if loader.contains("ld-linux") || loader.contains("ld64.so") => Ok(()),
        Some(loader) => Err(refused(&format!(
            "its loader is {loader}, not glibc's; the library works with glibc only"
        ))),
    }
}

fn head(file: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error| misuse(format!("{}: {error}", file.display()));
    let mut bytes = Vec::new();
    let read = File::open(file).map_err(failed)?.take(HEAD_BYTES).read_to_end(&mut bytes);
    read.map(|_| bytes).map_err(failed)
}

fn has_capabilities(program: &Path) -> bool {
    let mut value = [0_u8; 64];
    rustix::fs::getxattr(program, "security.capability", &mut value[..]).is_ok_and(|size| size > 0)
}

/// The program named after `#!`.
fn script_interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let word = line.split(|byte| byte.is_ascii_whitespace()).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// The properties of an ELF file that matter here.
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    machine: u16,
    /// The loader it requests; `None` for a static program or a library.
    interpreter: Option<String>,
}

/// Type of the program header that names the loader.
const PT_INTERP: u32 = 3;

fn elf(head: &[u8]) -> Result<Elf, String> {
    let short = || "it is truncated".to_owned();
    if !head.starts_with(b"\x7fELF") {
        return Err("it is not an ELF program".to_owned());
    }
    if head.get(4..6) != Some(&[2, 1]) {
        return Err("it is not a 64-bit little-endian program".to_owned());
    }
    let number = |at: usize, bytes: usize| -> Result<u64, String> {
        let bytes = at.checked_add(bytes).and_then(|end| head.get(at..end)).ok_or_else(short)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    };
    let place = |number: u64| usize::try_from(number).map_err(|_| short());
    let machine = number(18, 2)? as u16;
    let (first, size, count) = (place(number(32, 8)?)?, number(54, 2)?, number(56, 2)?);
    for which in 0..count {
        let at = first.checked_add(place(which * size)?).ok_or_else(short)?;
        if number(at, 4)? != u64::from(PT_INTERP) {
            continue;
        }
        let name = place(number(at.checked_add(8).ok_or_else(short)?, 8)?)?;
        let name = head.get(name..).and_then(|rest| rest.split(|&byte| byte == 0).next());
        let name = String::from_utf8_lossy(name.ok_or_else(short)?).into_owned();
        return Ok(Elf { machine, interpreter: Some(name) });
    }
    Ok(Elf { machine, interpreter: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header, one program header at offset 64, and the name that it points to.
    fn made(kind: u32, name: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 120];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18] = 62;
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        file[64..68].copy_from_slice(&kind.to_le_bytes());
        file[72] = 120;
        file.extend_from_slice(name);
        file
    }

    #[test]
    fn the_loader_is_read_from_the_header() {
        let elf_of = |kind| elf(&made(kind, b"/lib64/ld-linux-x86-64.so.2\0")).unwrap();
        let loader = Some("/lib64/ld-linux-x86-64.so.2".to_owned());
        assert_eq!(elf_of(PT_INTERP), Elf { machine: 62, interpreter: loader });
        assert_eq!(elf_of(1), Elf { machine: 62, interpreter: None });
    }

    #[test]
    fn a_truncated_or_hostile_file_is_refused() {
        let whole = made(PT_INTERP, b"/lib/ld\0");
        for length in 0..120 {
            assert!(elf(&whole[..length]).is_err(), "{length}");
        }
        let mut far = whole.clone();
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(elf(&far).is_err());
        let mut other = whole;
        other[4] = 1;
        assert!(elf(&other).unwrap_err().contains("64-bit"));
        assert!(elf(b"#!/bin/sh\n").unwrap_err().contains("not an ELF"));
    }

    #[test]
    fn the_interpreter_of_a_script_is_found() {
        let of = |text: &str| script_interpreter(text.as_bytes());
        assert_eq!(of("#! /usr/bin/env python3\nx"), Some(PathBuf::from("/usr/bin/env")));
        assert_eq!((of("#!\n"), of("echo")), (None, None));
    }
}
