//! Patterns for names of files, as the shell has them: `*`, `?`, `[a-z]`, `[!a-z]`, and a backslash
//! before a character that stands for itself. A pattern is for one name, without slashes.

/// Whether a text has a character that makes it a pattern.
pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Whether a name fits a pattern.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of) = (0, 0);
    // Where the last star was, and the part of the name that follows what it stands for.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&'*') {
            star = Some((at, of));
            at += 1;
            continue;
        }
        let next = match (pattern.get(at..), name.get(of)) {
            (None | Some([]), None) => return true,
            (Some(rest @ [_, ..]), Some(c)) => one(rest, *c),
            _ => None,
        };
        match (next, &mut star) {
            (Some(length), _) => (at, of) = (at + length, of + 1),
            // The star stands for one more character.
            (None, Some((place, from))) if *from < name.len() => {
                *from += 1;
                (at, of) = (*place + 1, *from);
            }
            (None, _) => return false,
        }
    }
}

/// The length of the part of a pattern that stands for one character, if it is this one.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == c).then_some(2),
        ['[', rest @ ..] => match class(rest, c) {
            Some((length, is)) => is.then_some(1 + length),
            // Without its end, a bracket stands for itself.
            None => (c == '[').then_some(1),
        },
        [own, ..] => (*own == c).then_some(1),
        [] => None,
    }
}

/// The length of a class after its bracket, and whether a character is in it.
fn class(rest: &[char], c: char) -> Option<(usize, bool)> {
    let negated = matches!(rest.first(), Some('!' | '^'));
    let first = usize::from(negated);
    // A bracket at the start belongs to the class.
    let end = first + 1 + rest.get(first + 1..)?.iter().position(|one| *one == ']')?;
    let (mut is, mut at) = (false, first);
    while at < end {
        match rest[at..end] {
            [from, '-', to, ..] => {
                is |= (from..=to).contains(&c);
                at += 3;
            }
            _ => {
                is |= rest[at] == c;
                at += 1;
            }
        }
    }
    Some((end + 1, is != negated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, wanted) in [
            ("*.conf", "a.conf", true),
            ("*", "a", true),
            ("a*b*c", "axbxc", true),
            ("a*b*c", "axc", false),
            ("*.conf", "a.conf.bak", false),
            ("ab*b", "ab", false),
            ("rules-?*.inc", "rules-admin.inc", true),
            ("rules-?*.inc", "rules-.inc", false),
            ("[0-9][!0-9].conf", "1a.conf", true),
            ("[0-9][^0-9].conf", "11.conf", false),
            ("[]a].conf", "].conf", true),
            ("[a.conf", "[a.conf", true),
            ("\\*.conf", "*.conf", true),
            ("\\*.conf", "a.conf", false),
            ("a*", "", false),
            ("**", "", true),
        ] {
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }
}
