//! Regular expressions of Squid, which are those of POSIX (extended, with the extensions of glibc),
//! as conditions of our file.
//!
//! `url` and `target` are what Squid compares `url_regex` and `urlpath_regex` with. An expression
//! that our language reads in another way, or that glibc refuses, is not carried. A test compares
//! the two with glibc.

use conditions::limits::PATTERN_BYTES_MAX;
use imported::cel::{Cel, matches};

/// The classes that have a name.
const NAMES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "xdigit",
];

/// An expression of Squid in our language. `None`: it has something that means something else here.
pub(crate) fn posix(text: &str, ignores_case: bool) -> Option<String> {
    let mut ours = String::from(if ignores_case { CASE } else { "" });
    // Whether a quantifier may follow, and the groups that are open.
    let (mut is_atom, mut depth) = (false, 0_usize);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let was_atom = std::mem::replace(&mut is_atom, true);
        match c {
            '\\' => match rest.next()? {
                // An extension that both have.
                c @ ('w' | 'W' | 's' | 'S') => ours.extend(['\\', c]),
                c @ ('b' | 'B' | '<' | '>') => {
                    is_atom = false;
                    ours.push_str(match c {
                        'b' => r"\b",
                        'B' => r"\B",
                        '<' => r"\b{start}",
                        _ => r"\b{end}",
                    });
                }
                '/' => ours.push('/'),
                // The beginning and the end of the text.
                '`' | '\'' => return None,
                c if c.is_ascii_punctuation() => ours.extend(['\\', c]),
                _ => return None,
            },
            '[' => class(&mut rest, &mut ours, ignores_case)?,
            // After anything else, a quantifier is refused by glibc or read in another way here.
            '*' | '+' | '?' | '{' if !was_atom => return None,
            '*' | '+' | '?' | '{' => {
                is_atom = false;
                ours.push(c);
                if c == '{' {
                    bounds(&mut rest, &mut ours)?;
                }
            }
            '^' | '$' | '|' | '(' => {
                is_atom = false;
                depth += usize::from(c == '(');
                ours.push(c);
            }
            ')' => {
                depth = depth.checked_sub(1)?;
                ours.push(c);
            }
            c => ours.push(c),
        }
    }
    (depth == 0).then_some(ours)
}

/// `LEAST}`, `LEAST,}`, `LEAST,MOST}` or `,MOST}`.
fn bounds(rest: &mut std::str::Chars<'_>, ours: &mut String) -> Option<()> {
    let (text, after) = rest.as_str().split_once('}')?;
    let (least, most) = text.split_once(',').unwrap_or((text, "0"));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(least) || !is_number(most) || text.is_empty() || text == "," {
        return None;
    }
    ours.push_str(if least.is_empty() { "0" } else { "" });
    ours.push_str(text);
    ours.push('}');
    *rest = after.chars();
    Some(())
}

/// What stands between brackets. A backslash stands for itself there.
fn class(rest: &mut std::str::Chars<'_>, ours: &mut String, ignores_case: bool) -> Option<()> {
    ours.push('[');
    if let Some(after) = rest.as_str().strip_prefix('^') {
        *rest = after.chars();
        ours.push('^');
    }
    let mut is_first = true;
    loop {
        let c = rest.next()?;
        match (c, rest.as_str().chars().next()) {
            (']', _) if !is_first => break,
            ('[', Some(':')) => {
                let (name, after) = rest.as_str()[1..].split_once(":]")?;
                NAMES.contains(&name).then_some(())?;
                ours.push_str(&format!("[:{name}:]"));
                *rest = after.chars();
            }
            // Characters that have the same place in an alphabet.
            ('[', Some('.' | '=')) => return None,
            // A hyphen is first or last, or makes a range.
            ('-', next) if !is_first && next != Some(']') => return None,
            (first, Some('-')) if !rest.as_str().starts_with("-]") => {
                rest.next();
                let last = rest.next().filter(|last| *last != '[')?;
                is_range(first, last, ignores_case).then_some(())?;
                literal(first, ours);
                ours.push('-');
                literal(last, ours);
            }
            (c, _) => literal(c, ours),
        }
        is_first = false;
    }
    ours.push(']');
    Some(())
}

/// Whether both have the same characters between these. To ignore case, glibc makes the first and
/// the last character lower case, and not the characters between them.
fn is_range(first: char, last: char, ignores_case: bool) -> bool {
    let is_kind = |kind: fn(&char) -> bool| kind(&first) && kind(&last);
    let is_plain = is_kind(char::is_ascii_lowercase)
        || is_kind(char::is_ascii_uppercase)
        || !(first..=last).any(|c| c.is_ascii_alphabetic());
    first.is_ascii() && last.is_ascii() && first <= last && (is_plain || !ignores_case)
}

fn literal(c: char, ours: &mut String) {
    if r"\[]^-&~".contains(c) {
        ours.push('\\');
    }
    ours.push(c);
}

/// Conditions for a value that one of these expressions matches. Expressions are joined, because a
/// condition has a limited number of terms.
pub(crate) fn matching(value: &str, expressions: &[String]) -> Option<Vec<Cel>> {
    let mut joined: Vec<String> = Vec::new();
    for one in expressions {
        let bare = one.strip_prefix(CASE);
        let text = bare.unwrap_or(one);
        let fits = |last: &&mut String| {
            last.starts_with(CASE) == bare.is_some() && last.len() + text.len() < PATTERN_BYTES_MAX
        };
        match joined.last_mut().filter(fits) {
            Some(last) => last.extend(["|", text]),
            None => joined.push(one.clone()),
        }
    }
    joined.iter().map(|text| matches(value, text)).collect()
}

/// A condition for URLs with one of these ports. Without a port, it is that of the scheme.
pub(crate) fn has_port(ports: &[(u16, u16)]) -> Option<Cel> {
    let numbers: Vec<String> =
        ports.iter().flat_map(|(first, last)| numbers(*first, *last)).collect();
    let mut all = vec![format!("[a-z]+://[^/]*:({})", numbers.join("|"))];
    for (scheme, port) in [("http", 80), ("https", 443)] {
        if ports.iter().any(|(first, last)| (*first..=*last).contains(&port)) {
            all.push(format!(r"{scheme}://([^/:]*|\[[^/]*\])"));
        }
    }
    matches("url", &format!("^({})/", all.join("|")))
}

/// Expressions for the numbers from the first to the last, without zero.
fn numbers(first: u16, last: u16) -> Vec<String> {
    let (mut next, last) = (u32::from(first.max(1)), u32::from(last));
    let mut all = Vec::new();
    while next <= last {
        // The numbers that begin like this one, and have any digits for its zeros.
        let fits = |zeros: &u32| {
            let block = 10_u32.pow(*zeros);
            next % block == 0 && next + block - 1 <= last
        };
        let zeros = (0..5).rev().find(fits).expect("a block of one number fits");
        let block = 10_u32.pow(zeros);
        let (above, digit) = (next / block / 10, next / block % 10);
        let more = ((last + 1 - next) / block).min(10 - digit);
        let above = if above == 0 { String::new() } else { above.to_string() };
        let digits = match more {
            1 => digit.to_string(),
            _ => format!("[{digit}-{}]", digit + more - 1),
        };
        all.push(format!("{above}{digits}{}", "[0-9]".repeat(zeros as usize)));
        next += more * block;
    }
    all
}

/// The beginning of an expression that ignores case.
const CASE: &str = "(?i)";

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use conditions::{Builder, Facts, Lists, Scope, Sent};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    #[test]
    fn a_backslash_in_a_class_is_a_backslash() {
        for (text, wanted) in [
            (r"[\.]a", r"[\\.]a"),
            ("[]a]", r"[\]a]"),
            ("[^]a[:alpha:]&&b]", r"[^\]a[:alpha:]\&\&b]"),
            ("[-a-f0-]", r"[\-a-f0\-]"),
            (r"\<ad\>", r"\b{start}ad\b{end}"),
            (r"\/x\.", r"/x\."),
            ("a{,3}b{2}c{1,}", "a{0,3}b{2}c{1,}"),
            ("(a|b)+.?", "(a|b)+.?"),
        ] {
            assert_eq!(posix(text, false).as_deref(), Some(wanted), "{text}");
            let lists = Lists::default();
            assert!(imported::cel::check(&matches("url", wanted).unwrap(), &lists).is_some());
        }
    }

    #[test]
    fn an_expression_that_means_something_else_is_not_carried() {
        for text in [
            "[a", "a\\", r"\1", r"\d", r"\`a", r"a\'", "[[=a=]]", "[[.a.]]", "[[:x:]]", "[a-c-e]",
            "[b-a]", "a+?", "a{2}?", "a*+", "a**", "^*", "(*a)", "a|*b", "*a", "(?:a)", r"\b*",
            "{1}", "a{", "a{x}", "a{,}", "(a", "a)", "a)|(b",
        ] {
            assert_eq!(posix(text, false), None, "{text}");
        }
        for text in ["[A-z]", "[!-~]", "[0-Z]"] {
            assert!(posix(text, false).is_some() && posix(text, true).is_none(), "{text}");
        }
    }

    #[test]
    fn expressions_are_joined() {
        let of = |all: &[&str]| -> Vec<String> {
            let all: Vec<String> = all.iter().map(|text| (*text).to_owned()).collect();
            matching("url", &all).unwrap().iter().map(|one| one.text().to_owned()).collect()
        };
        assert_eq!(
            of(&["a", "(?i)b", "(?i)c|d"]),
            ["url.matches('a')", "url.matches('(?i)b|c|d')"]
        );
        let long = "x".repeat(600);
        assert_eq!(of(&[&long, &long, "y"]).len(), 2);
    }

    /// Whether glibc finds each expression in each text; `-`: the expression has a mistake.
    const GLIBC: &str = r#"
import ctypes, sys
libc = ctypes.CDLL(None)
texts = sys.stdin.readline().rstrip("\n").split("\t")
for line in sys.stdin:
    case, text = line.rstrip("\n").split("\t")
    regex = ctypes.create_string_buffer(1024)
    EXTENDED, ICASE, NOSUB = 1, 2, 8
    flags = EXTENDED | NOSUB | (ICASE if case == "i" else 0)
    if libc.regcomp(regex, text.encode(), flags):
        print("-")
        continue
    found = [libc.regexec(regex, one.encode(), 0, None, 0) == 0 for one in texts]
    print("".join("1" if one else "0" for one in found))
    libc.regfree(regex)
"#;

    fn glibc(expressions: &[(bool, String)], texts: &[String]) -> Vec<String> {
        let mut python = Command::new("python3")
            .args(["-c", GLIBC])
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python is installed");
        let line =
            |(case, text): &(bool, String)| format!("{}\t{text}\n", if *case { "i" } else { "" });
        let lines: String = expressions.iter().map(line).collect();
        let input = format!("{}\n{lines}", texts.join("\t"));
        let mut stdin = python.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        let output = python.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Whether the server finds an expression in each text; `None`: it is not carried.
    fn ours((case, text): &(bool, String), texts: &[String]) -> Option<String> {
        let condition = matches("user", &posix(text, *case)?)?;
        let mut builder = Builder::new(Lists::default());
        let id = builder.add(condition.text(), Scope::Request).ok()?;
        let conditions = builder.build();
        let (mut scratch, limits) = (http1::Scratch::new(), http1::Limits::DEFAULT);
        let head =
            http1::parse_request(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut scratch, &limits);
        let fields = head.unwrap().unwrap().fields;
        let found = |text: &String| {
            let facts = Facts {
                host: b"",
                path: b"",
                query: b"",
                sent: Sent::default(),
                method: b"",
                scheme: "http",
                listener: "",
                port: 0,
                client: [127, 0, 0, 1].into(),
                user: Some(text.as_bytes()),
                fields,
                tls: None,
                now_s: 0,
                random: 0.0,
                response: None,
            };
            if conditions.judge(facts).holds(id) { '1' } else { '0' }
        };
        Some(texts.iter().map(found).collect())
    }

    /// Parts of expressions.
    const PARTS: [&str; 56] = [
        "a",
        "b",
        "A",
        "_",
        "-",
        "/",
        "1",
        ".",
        "%",
        ",",
        " ",
        "*",
        "+",
        "?",
        "{",
        "}",
        "{2}",
        "{1,}",
        "{,2}",
        "{0,1}",
        "{0}",
        "(",
        ")",
        "(",
        ")",
        "()",
        "|",
        "^",
        "$",
        "[",
        "]",
        "[^",
        "[]",
        "[a-",
        "[^-",
        "[[:alpha:]",
        "[[:upper:]]",
        "[^[:space:]]",
        "[[:punct:]",
        "[A-Z]",
        "[a-c1-3]",
        "[/-a]",
        r"\.",
        r"\",
        r"\<",
        r"\>",
        r"\b",
        r"\B",
        r"\w",
        r"\W",
        r"\s",
        r"\S",
        r"\/",
        r"\(",
        "[=a=]",
        ":",
    ];

    /// Parts of texts.
    const TEXTS: [&str; 14] =
        ["a", "b", "A", "B", "c", "_", "-", "/", "1", ".", "%", ",", " ", "["];

    fn of_parts(parts: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
        prop::collection::vec(select(parts), 0..most).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn expressions_for_numbers_hold_for_these_numbers(
            one: u16, other: u16, number: u16, least in 0_u16..300,
        ) {
            for first in [one.min(other).max(1), least.min(other).max(1)] {
                let text = format!("^({})$", numbers(first, other).join("|"));
                for number in [number, first, other, first.saturating_sub(1)] {
                    let wanted = if (first..=other).contains(&number) { "1" } else { "0" };
                    let found = ours(&(false, text.clone()), &[number.to_string()]);
                    prop_assert_eq!(found.as_deref(), Some(wanted), "{} in {}", number, text);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1, ..ProptestConfig::default() })]

        #[test]
        fn carried_expressions_find_what_glibc_finds(
            expressions in prop::collection::vec((any::<bool>(), of_parts(&PARTS, 8)), 4000),
            texts in prop::collection::vec(of_parts(&TEXTS, 6), 30),
        ) {
            let theirs = glibc(&expressions, &texts);
            prop_assert_eq!(theirs.len(), expressions.len());
            let mut carried = 0;
            for (expression, theirs) in expressions.iter().zip(theirs) {
                if let Some(ours) = ours(expression, &texts) {
                    carried += 1;
                    prop_assert_eq!(ours, theirs, "{:?} in {:?}", expression, &texts);
                }
            }
            prop_assert!(carried > 200, "{}", carried);
        }
    }
}
