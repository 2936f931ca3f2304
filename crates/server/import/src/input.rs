//! The files that are read: one, and those that it includes, within the limits.

use std::rc::Rc;

use crate::limits::{DIRECTIVES_MAX, FILES_MAX, INCLUDE_DEPTH_MAX, INPUT_BYTES_MAX};
use crate::note::Place;
use crate::{Included, SyntaxError};

/// A file: its name and its text.
pub(crate) type File = (Rc<str>, String);

/// Reads included files through the caller's function, and counts what was read.
pub(crate) struct Input<'r> {
    read: &'r mut dyn FnMut(&str) -> Result<Vec<Included>, String>,
    files: usize,
    bytes: usize,
    depth: usize,
    directives: usize,
}

impl<'r> Input<'r> {
    pub(crate) fn new(read: &'r mut dyn FnMut(&str) -> Result<Vec<Included>, String>) -> Input<'r> {
        Input { read, files: 0, bytes: 0, depth: 0, directives: 0 }
    }

    /// Counts a file.
    ///
    /// # Errors
    /// There are too many, or they are too large.
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
    /// There are too many.
    pub(crate) fn count_directive(&mut self, at: &Place) -> Result<(), SyntaxError> {
        self.directives += 1;
        if self.directives > DIRECTIVES_MAX {
            return Err(SyntaxError::at(at, format!("more than {DIRECTIVES_MAX} directives")));
        }
        Ok(())
    }

    /// The files that a name or a pattern stands for. If the caller cannot read it, the inner
    /// result says why.
    ///
    /// # Errors
    /// There are too many, or they are too large.
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

    /// Goes one level down in included files while `within` runs.
    ///
    /// # Errors
    /// There are too many levels, or what `within` returns.
    pub(crate) fn nested<T>(
        &mut self,
        at: &Place,
        within: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        if self.depth == INCLUDE_DEPTH_MAX {
            let text =
                format!("files include each other more than {INCLUDE_DEPTH_MAX} levels deep");
            return Err(SyntaxError::at(at, text));
        }
        self.depth += 1;
        let done = within(self);
        self.depth -= 1;
        done
    }
}
