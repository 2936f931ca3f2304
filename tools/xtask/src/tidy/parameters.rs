//! The rule on parameters: what belongs together is one object.

use super::Finding;
use crate::rust::{line_of, masked, test_lines};
use crate::tree::Tree;

/// The most parameters of a function, besides `self`.
const PARAMETERS_MAX: usize = 5;

/// Crates whose functions are steps of one request, which took what belongs together one by one.
const CRATES: &[&str] = &["/exchange/src/", "/cache/src/", "/upstream/src/"];

pub(super) fn parameters(tree: &Tree, findings: &mut Vec<Finding>) {
    let concerned = |path: &str| CRATES.iter().any(|folder| path.contains(folder));
    for (path, text) in tree.with_suffix(".rs").filter(|(path, _)| concerned(path)) {
        let masked = masked(text);
        let is_test = test_lines(&masked);
        for (at, _) in masked.match_indices("fn ") {
            let line = line_of(&masked, at);
            let Some((name, list)) = head_of(&masked[at + "fn ".len()..]) else { continue };
            let count = count(list);
            if count > PARAMETERS_MAX && !is_test[line] {
                let what = format!("{name} has {count} parameters; at most {PARAMETERS_MAX}");
                let fix = "make one object of those that belong together";
                findings.push(Finding::at(path, line, what, fix));
            }
        }
    }
}

/// The name of a function and what is between its parentheses.
fn head_of(text: &str) -> Option<(&str, &str)> {
    let name = text.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let mut generic = 0;
    let mut before = ' ';
    let mut opened = None;
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' => generic += 1,
            '>' if before != '-' => generic -= 1,
            '(' if opened.is_none() && generic == 0 => opened = Some(at + 1),
            '(' if opened.is_some() => depth += 1,
            ')' if opened.is_some() && depth == 0 => return Some((name, &text[opened?..at])),
            ')' if opened.is_some() => depth -= 1,
            '{' | ';' if opened.is_none() => return None,
            _ => {}
        }
        before = c;
    }
    None
}

/// The number of parameters in a list, without `self`.
fn count(list: &str) -> usize {
    let (mut depth, mut before, mut parts) = (0, ' ', vec![String::new()]);
    for c in list.chars() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if before != '-' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        before = c;
        parts.last_mut().expect("there is one at least").push(c);
    }
    let is_self = |part: &str| part.split(':').next().unwrap_or("").trim_end().ends_with("self");
    parts.iter().filter(|part| !part.trim().is_empty() && !is_self(part)).count()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn parameters_are_counted_without_self_and_inside_types() {
        let count = |text: &str| head_of(text).map(|(name, list)| (name.to_owned(), count(list)));
        let five = "f<T: Fn(u8) -> u8>(a: u8, b: HashMap<u8, u8>, (c, d): (u8, u8), e: [u8; 2],)";
        assert_eq!(count(five), Some(("f".into(), 4)));
        assert_eq!(count("g(&mut self, a: fn(u8, u8) -> u8)"), Some(("g".into(), 1)));
        assert_eq!(count("h(self: &Rc<Self>)"), Some(("h".into(), 0)));
    }

    #[test]
    fn a_function_with_too_many_is_found() {
        let of = |list: &str| {
            let text = format!("//! x\n\nfn f({list}) {{}}\n");
            found(parameters, &[("crates/server/exchange/src/x.rs", &text)])
        };
        assert_eq!(of("&self, a: u8, b: u8, c: u8, d: u8, e: u8"), [""; 0]);
        assert_eq!(
            of("a: u8, b: u8, c: u8, d: u8, e: u8, f: u8"),
            ["crates/server/exchange/src/x.rs:3"]
        );
    }
}
