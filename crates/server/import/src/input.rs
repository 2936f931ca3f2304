//! The files that are read, within the limits, and the notes of their directives.

use std::rc::Rc;

use crate::limits::{DIRECTIVES_MAX, FILES_MAX, INCLUDE_DEPTH_MAX, INPUT_BYTES_MAX};
use crate::note::{Notes, Place};
use crate::{Included, SyntaxError};

/// A file: its name and its text.
pub(crate) type File = (Rc<str>, String);

/// Reads included files through the caller's function, and counts them and their directives.
pub(crate) struct Input<'r> {
    read: &'r mut dyn FnMut(&str) -> Result<Vec<Included>, String>,
    files: usize,
    bytes: usize,
    depth: usize,
    directives: usize,
    pub(crate) notes: Notes,
}

impl<'r> Input<'r> {
    pub(crate) fn new(read: &'r mut dyn FnMut(&str) -> Result<Vec<Included>, String>) -> Input<'r> {
        Input { read, files: 0, bytes: 0, depth: 0, directives: 0, notes: Notes::default() }
    }

    /// Counts a file.
    ///
    /// # Errors
    /// There are too many files, or the files are too large.
    pub(crate) fn count_file(&mut self, at: &Place, text: &str) -> Result<(), SyntaxError> {
        self.files += 1;
        self.bytes += text.len();
        if self.files > FILES_MAX {
            return Err(SyntaxError::at(at, format!("more than {FILES_MAX} files are included")));
        }
        if self.bytes > INPUT_BYTES_MAX {
            let text = format!("the files are larger than {INPUT_BYTES_MAX} bytes together");
            return Err(SyntaxError::at(at, text));
        }
        Ok(())
    }

    /// Counts a directive.
    ///
    /// # Errors
    /// There are too many directives.
    pub(crate) fn count_directive(&mut self, at: &Place) -> Result<(), SyntaxError> {
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
    pub(crate) fn files(
        &mut self,
        at: &Place,
        name: &str,
    ) -> Result<Result<Vec<File>, String>, SyntaxError> {
        let included = match (self.read)(name) {
            Ok(included) => included,
            Err(why) => return Ok(Err(why)),
        };
        let mut files = Vec::new();
        for Included { name, text } in included {
            self.count_file(at, &text)?;
            files.push((Rc::from(name), text));
        }
        Ok(Ok(files))
    }

    /// Parses the files of an include, one level down. Writes the note of the directive. Returns
    /// whether the caller can read the files. If not, they may have had rules that keep requests
    /// out.
    ///
    /// # Errors
    /// A limit is exceeded, or an error of `parse`.
    pub(crate) fn include(
        &mut self,
        at: &Place,
        name: &str,
        mut parse: impl FnMut(&Rc<str>, &str, &mut Self) -> Result<(), SyntaxError>,
    ) -> Result<bool, SyntaxError> {
        let files = match self.files(at, name)? {
            Ok(files) => files,
            Err(why) => {
                self.notes.unprotected(at, why);
                return Ok(false);
            }
        };
        self.notes.carried(at);
        for (file, text) in files {
            if self.depth == INCLUDE_DEPTH_MAX {
                let text = "files include each other more than";
                return Err(SyntaxError::at(at, format!("{text} {INCLUDE_DEPTH_MAX} levels deep")));
            }
            self.depth += 1;
            parse(&file, &text, self)?;
            self.depth -= 1;
        }
        Ok(true)
    }
}
