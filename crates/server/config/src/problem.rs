//! Mistakes in a configuration file: what is wrong, where, and how to fix it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// What is wrong and how to fix it.
    pub message: String,
    /// The whole line of the file, and the length of the marked part in characters.
    source: (String, usize),
}

impl Problem {
    /// The mistake at these bytes of the text.
    pub(crate) fn at(text: &str, span: Range<usize>, message: String) -> Problem {
        let start = floor_boundary(text, span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_text = text[line_start..].lines().next().unwrap_or_default();
        let line_end = line_start + line_text.len();
        let end = floor_boundary(text, span.end.clamp(start, line_end.max(start)));
        Problem {
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            message,
            source: (line_text.to_owned(), text[start..end].chars().count().max(1)),
        }
    }
}

/// The nearest start of a character at or before this byte.
fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// All mistakes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The file, as named.
    pub file: PathBuf,
    /// The mistakes, in the order of the file; empty if it cannot be read.
    pub problems: Vec<Problem>,
    /// Why it cannot be read.
    pub unreadable: Option<String>,
}

impl Unusable {
    pub(crate) fn unreadable(file: &Path, why: &impl ToString) -> Unusable {
        let unreadable = Some(why.to_string());
        Unusable { file: file.to_path_buf(), problems: Vec::new(), unreadable }
    }

    /// One line for a log: the first mistake, and the number of others.
    pub fn in_one_line(&self) -> String {
        let file = self.file.display();
        match (&self.unreadable, self.problems.as_slice()) {
            (Some(why), _) => format!("{file} cannot be read: {why}"),
            (None, []) => format!("{file} cannot be used"),
            (None, [first, rest @ ..]) => {
                let more = match rest.len() {
                    0 => String::new(),
                    count => format!(" (and {count} more; plimsoll check {file} shows all)"),
                };
                format!("{file}:{}:{}: {}{more}", first.line, first.column, first.message)
            }
        }
    }
}

/// Each mistake with its line and a caret below the marked part.
impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        if let Some(why) = &self.unreadable {
            return write!(f, "{file} cannot be read: {why}");
        }
        let count = self.problems.len();
        let noun = if count == 1 { "mistake" } else { "mistakes" };
        write!(f, "{file} has {count} {noun}")?;
        for problem in &self.problems {
            let (line, number) = (&problem.source.0, problem.line.to_string());
            let gutter = " ".repeat(number.len());
            // Tabs are kept, so that the caret is below the marked part.
            let before = line.chars().take(problem.column - 1);
            let indent: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            let carets = "^".repeat(problem.source.1);
            let (column, message) = (problem.column, &problem.message);
            write!(f, "\n\n{file}:{number}:{column}: {message}")?;
            write!(f, "\n  {number} | {line}\n  {gutter} | {indent}{carets}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Unusable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_marks_the_mistake() {
        let text = "[limits]\n\thead = \"8é\"\n";
        let at = text.find("\"8é\"").unwrap();
        let problem = Problem::at(text, at..at + 5, "no".to_owned());
        let all = Unusable { file: "a.toml".into(), problems: vec![problem], unreadable: None };
        let shown =
            "a.toml has 1 mistake\n\na.toml:2:9: no\n  2 | \thead = \"8é\"\n    | \t       ^^^^";
        assert_eq!(all.to_string(), shown);
        assert_eq!(all.in_one_line(), "a.toml:2:9: no");
    }

    #[test]
    fn a_place_beyond_the_text_becomes_its_end() {
        for (text, span) in [("", 0..9), ("a\n", 2..2), ("é", 1..1), ("a = 1", 3..900)] {
            let problem = Problem::at(text, span, String::new());
            assert!(problem.line >= 1 && problem.column >= 1 && problem.source.1 >= 1);
        }
    }
}
