//! The blocks and words of an nginx file, as far as they suggest requests. The importer has already
//! refused a file with a wrong form, so this reader accepts everything.

use std::collections::HashMap;

use import::Included;

/// A directive, with its block if it has one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directive {
    pub(crate) words: Vec<String>,
    pub(crate) below: Vec<Directive>,
    pub(crate) file: String,
    pub(crate) line: usize,
    /// The last line of its block.
    pub(crate) last: usize,
}

impl Directive {
    pub(crate) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The first word behind the name.
    pub(crate) fn value(&self) -> &str {
        self.words.get(1).map_or("", String::as_str)
    }

    /// It and all directives below it.
    pub(crate) fn all(&self) -> Vec<&Directive> {
        let mut all = vec![self];
        let mut next = 0;
        while next < all.len() {
            let directive: &Directive = all[next];
            all.extend(&directive.below);
            next += 1;
        }
        all
    }
}

/// The files that a name in an include stands for.
pub(crate) type Files = HashMap<String, Vec<Included>>;

/// Files that include each other, one inside the other, at most.
const DEPTH_MAX: usize = 8;

/// Reads a file with its included files.
pub(crate) fn read(file: &str, text: &str, files: &Files) -> Directive {
    let mut root = Directive { file: file.to_owned(), ..Directive::default() };
    into(&mut root, file, text, files, 0);
    root
}

fn into(root: &mut Directive, file: &str, text: &str, files: &Files, depth: usize) {
    let mut open = vec![std::mem::take(root)];
    let mut words: Vec<String> = Vec::new();
    let mut line = 1;
    let mut started = 1;
    for token in tokens(text) {
        match token {
            Token::Line => line += 1,
            Token::Word(word) => {
                if words.is_empty() {
                    started = line;
                }
                words.push(word);
            }
            Token::End => {
                let words = std::mem::take(&mut words);
                let place = open.last_mut().expect("the root is never closed");
                let (first, second) = (words.first().cloned(), words.get(1).cloned());
                if let (Some("include"), Some(pattern)) = (first.as_deref(), second)
                    && let Some(found) = files.get(&pattern)
                    && depth < DEPTH_MAX
                {
                    for one in found {
                        into(place, &one.name, &one.text, files, depth + 1);
                    }
                }
                let file = file.to_owned();
                place.below.push(Directive {
                    words,
                    below: Vec::new(),
                    file,
                    line: started,
                    last: line,
                });
            }
            Token::Open => open.push(Directive {
                words: std::mem::take(&mut words),
                file: file.to_owned(),
                line: started,
                ..Directive::default()
            }),
            Token::Close if open.len() > 1 => {
                let mut block = open.pop().expect("there are two at least");
                block.last = line;
                open.last_mut().expect("the root is never closed").below.push(block);
            }
            Token::Close => {}
        }
    }
    *root = open.swap_remove(0);
}

enum Token {
    Word(String),
    /// A semicolon.
    End,
    Open,
    Close,
    /// The end of a line.
    Line,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(first) = chars.next() {
        match first {
            '\n' => tokens.push(Token::Line),
            ';' => tokens.push(Token::End),
            '{' => tokens.push(Token::Open),
            '}' => tokens.push(Token::Close),
            '#' => while chars.next_if(|next| *next != '\n').is_some() {},
            _ if first.is_whitespace() => {}
            _ => {
                let quote = Some(first).filter(|first| matches!(first, '"' | '\''));
                let mut word = String::new();
                let mut lines = 0;
                if quote.is_none() {
                    word.push(first);
                }
                while let Some(&next) = chars.peek() {
                    let ends = match quote {
                        Some(quote) => next == quote,
                        None if next == '{' => !word.ends_with('$'),
                        None => next == ';' || next.is_whitespace(),
                    };
                    if ends {
                        break;
                    }
                    lines += usize::from(next == '\n');
                    chars.next();
                    word.push(next);
                    // A quoted or escaped character does not end the word.
                    if next == '\\'
                        && let Some(escaped) = chars.next()
                    {
                        word.push(escaped);
                    }
                }
                if quote.is_some() {
                    chars.next();
                }
                tokens.push(Token::Word(word));
                tokens.extend((0..lines).map(|_| Token::Line));
            }
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lines_and_included_files_are_read() {
        let included = Included { name: "b".to_owned(), text: "listen 80;\n".to_owned() };
        let files = Files::from([("b*".to_owned(), vec![included])]);
        let text = "http { # } no\n server {\n  include b*;\n  location ~ \"a{2};\" {\n }\n } }";
        let root = read("a", text, &files);
        let server = &root.below[0].below[0];
        let words: Vec<String> = server.below.iter().map(|one| one.words.join(" ")).collect();
        assert_eq!(words, ["listen 80", "include b*", "location ~ a{2};"]);
        assert_eq!((server.line, server.last, server.below[0].file.as_str()), (2, 6, "b"));
        // Whatever the form is, it ends.
        for text in ["}}}", "a {", "\"", "a \\", "${", "location ~ ^/(a|"] {
            read("a", text, &files);
        }
    }
}
