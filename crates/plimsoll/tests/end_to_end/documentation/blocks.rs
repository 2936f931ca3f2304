//! The blocks of code in a document, and the commands in them.
//!
//! The unit tests of the flags include this file too. A block of commands has the language `sh`.
//! The line above it can be a comment, which a reader does not see:
//!
//! - `<!-- run -->`: the end-to-end test runs it as printed, except for ports, paths and times;
//! - `<!-- run with a proxy -->`, `<!-- run with trials -->`: with that around it;
//! - `<!-- not run: REASON -->`;
//! - `<!-- NAME: cargo xtask map -->` and `<!-- end -->`: between them is a picture of the code;
//! - `<!-- prints -->`, above a block of text: the commands before it print these lines.
//!
//! A block without a comment may contain only commands that are checked without running them.

use std::path::{Path, PathBuf};

/// What is to become of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is checked, not run.
    None,
    /// It is run, with this around it.
    Run(Around),
    /// It is not run, for a reason.
    NotRun,
    /// It is the output of the commands before it.
    Prints,
}

/// What a block needs around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Around {
    Nothing,
    /// Our server and its origin, with an admin address.
    Proxy,
    /// `monday.trial` and `tuesday.trial`.
    Trials,
}

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    /// The line of the fence, from 1.
    pub(crate) line: usize,
    pub(crate) language: String,
    pub(crate) mark: Mark,
    pub(crate) text: String,
}

/// The documents of the repository whose blocks are checked: path and text.
pub(crate) fn documents() -> Vec<(String, String)> {
    // Two packages include this file, at different depths.
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = folders.find(|folder| folder.join("Cargo.lock").exists()).unwrap();
    let mut open = vec![PathBuf::from("docs"), PathBuf::from("studies")];
    let mut paths = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]
        .map(PathBuf::from)
        .to_vec();
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(root.join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    let text = |path: &PathBuf| std::fs::read_to_string(root.join(path)).unwrap();
    paths.iter().map(|path| (path.display().to_string(), text(path))).collect()
}

/// The fenced blocks of a document.
///
/// # Errors
/// A comment is none of those above, or a block is indented instead of fenced.
pub(crate) fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let mut found: Vec<Block> = Vec::new();
    let (mut mark, mut inside, mut blank) = (Mark::None, false, true);
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        match line.strip_prefix("```") {
            Some(_) if inside => (inside, mark) = (false, Mark::None),
            Some(language) => {
                inside = true;
                let (language, mark) = (language.to_owned(), mark.clone());
                found.push(Block { line: number, language, mark, text: String::new() });
            }
            None if inside => {
                let block = found.last_mut().expect("a fence began it");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {
                if blank && line.starts_with("    ") {
                    return Err(format!("{number}: an indented block; put it between fences"));
                }
                mark = mark_of(line).map_err(|why| format!("{number}: {why}"))?;
            }
        }
        blank = line.trim().is_empty();
    }
    Ok(found)
}

fn mark_of(line: &str) -> Result<Mark, String> {
    let Some(comment) = line.strip_prefix("<!--") else { return Ok(Mark::None) };
    match comment.trim_end().trim_end_matches("-->").trim() {
        "run" => Ok(Mark::Run(Around::Nothing)),
        "run with a proxy" => Ok(Mark::Run(Around::Proxy)),
        "run with trials" => Ok(Mark::Run(Around::Trials)),
        "prints" => Ok(Mark::Prints),
        "houses: cargo xtask map" | "ways: cargo xtask map" | "end" => Ok(Mark::None),
        other => match other.strip_prefix("not run: ") {
            Some(reason) if reason.len() > 5 => Ok(Mark::NotRun),
            _ => Err(format!("the comment {other:?} is none that the tests know")),
        },
    }
}

/// The lines of a block as a shell takes them: continued lines and here-documents are one.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text.lines();
    while let Some(line) = rest.next() {
        let mut whole = line.to_owned();
        while whole.ends_with('\\') {
            whole.push('\n');
            whole.push_str(rest.next().unwrap_or_default());
        }
        if let Some((_, word)) = line.split_once("<<") {
            let end = word.trim_matches('\'');
            for line in rest.by_ref() {
                whole.push('\n');
                whole.push_str(line);
                if line == end {
                    break;
                }
            }
        }
        if !whole.trim().is_empty() {
            found.push(whole);
        }
    }
    found
}

/// The simple commands of a line, each as words, without comments, redirections and assignments.
pub(crate) fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split("<<").next().unwrap_or(line);
    let mut commands = vec![Vec::new()];
    let mut chars = line.chars().peekable();
    let mut word: Option<String> = None;
    let mut redirected = false;
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let text: String = chars.by_ref().take_while(|end| *end != c).collect();
                word.get_or_insert_default().push_str(&text);
            }
            '$' if chars.peek() == Some(&'(') => {
                // A number, whatever the command prints.
                chars.by_ref().find(|c| *c == ')');
                word.get_or_insert_default().push('1');
            }
            '\\' if chars.peek() == Some(&'\n') => drop(chars.next()),
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '#' if word.is_none() => break,
            '>' | '<' => {
                // The descriptor before it is no word.
                let before = word.take().filter(|word| word != "2");
                push(before, &mut redirected, &mut commands);
                redirected = true;
            }
            '|' | '&' | ';' => {
                push(word.take(), &mut redirected, &mut commands);
                commands.push(Vec::new());
            }
            c if c.is_whitespace() => push(word.take(), &mut redirected, &mut commands),
            c => word.get_or_insert_default().push(c),
        }
    }
    push(word, &mut redirected, &mut commands);
    commands.retain(|command| !command.is_empty());
    commands
}

/// Adds a word, unless it is the file of a redirection, or an assignment before the command.
fn push(word: Option<String>, redirected: &mut bool, commands: &mut [Vec<String>]) {
    let (Some(word), Some(command)) = (word, commands.last_mut()) else { return };
    let name = word.split('=').next().unwrap_or_default();
    let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let is_assignment = command.is_empty() && word.contains('=') && is_name;
    if !std::mem::take(redirected) && !is_assignment {
        command.push(word);
    }
}
