//! The files that are read, within the limits, and the notes of their directives.

use std::rc::Rc;

use crate::limits::{DIRECTIVES_MAX, FILES_MAX, INCLUDE_DEPTH_MAX, INPUT_BYTES_MAX};
use crate::note::{Notes, Place};
use crate::{Included, Parsed, SyntaxError};

/// Reads included files through the caller's function, and counts them and their directives.
pub struct Input<'r> {
    read: Read<'r>,
    files: usize,
    bytes: usize,
    depth: usize,
    directives: usize,
    /// The notes so far.
    pub notes: Notes,
    /// Keep open what was protected by a rule that was not carried.
    pub open: bool,
}

/// The caller's function: the files that a name stands for, or why it cannot read them.
pub type Read<'r> = &'r mut dyn FnMut(&str) -> Result<Vec<Included>, String>;

impl<'r> Input<'r> {
    /// An input without a file.
    pub fn new(read: Read<'r>, open: bool) -> Input<'r> {
        let (files, bytes, depth, directives, notes) = (0, 0, 0, 0, Notes::default());
        Input { read, files, bytes, depth, directives, notes, open }
    }

    /// Counts a file.
    ///
    /// # Errors
    /// There are too many files, or the files are too large.
    pub fn count_file(&mut self, at: &Place, text: &str) -> Parsed<()> {
        self.files += 1;
        self.bytes += text.len();
        let many = format!("more than {FILES_MAX} files are included");
        check(self.files <= FILES_MAX, at, many)?;
        let large = format!("the files are larger than {INPUT_BYTES_MAX} bytes together");
        check(self.bytes <= INPUT_BYTES_MAX, at, large)
    }

    /// Counts a directive.
    ///
    /// # Errors
    /// There are too many directives.
    pub fn count_directive(&mut self, at: &Place) -> Parsed<()> {
        self.directives += 1;
        if self.directives > DIRECTIVES_MAX {
            return Err(SyntaxError::at(at, format!("more than {DIRECTIVES_MAX} directives")));
        }
        Ok(())
    }

    /// The files that a name or a pattern stands for. If the caller cannot read them, the inner
    /// result says why.
    ///
    /// # Errors
    /// There are too many files, or the files are too large.
    pub fn files(&mut self, at: &Place, name: &str) -> Parsed<Result<Vec<Included>, String>> {
        let included = (self.read)(name);
        for file in included.iter().flatten() {
            self.count_file(at, &file.text)?;
        }
        Ok(included)
    }

    /// Parses the files of an include, one level down. Writes the note of the directive. Returns
    /// whether the caller can read the files. If not, they may have had rules that keep requests
    /// out.
    ///
    /// # Errors
    /// A limit is exceeded, or an error of `parse`.
    pub fn include(
        &mut self,
        at: &Place,
        name: &str,
        mut parse: impl FnMut(&Rc<str>, &str, &mut Self) -> Parsed<()>,
    ) -> Parsed<bool> {
        let files = match self.files(at, name)? {
            Ok(files) => files,
            Err(why) => {
                self.notes.unprotected(at, why);
                return Ok(false);
            }
        };
        self.notes.carried(at);
        for Included { name, text } in files {
            let deep =
                format!("files include each other more than {INCLUDE_DEPTH_MAX} levels deep");
            check(self.depth < INCLUDE_DEPTH_MAX, at, deep)?;
            self.depth += 1;
            parse(&Rc::from(name), &text, self)?;
            self.depth -= 1;
        }
        Ok(true)
    }
}

fn check(holds: bool, at: &Place, otherwise: String) -> Parsed<()> {
    if holds { Ok(()) } else { Err(SyntaxError::at(at, otherwise)) }
}
