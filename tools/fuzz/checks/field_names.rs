//! Checks of which fields of a request there are, and of rules on fields, for the fuzz target and
//! for the tests that replay its corpus.
//!
//! The oracle reads the head a second time, line by line, and makes variables of names as CGI does.

use std::borrow::Cow;

use config::{FieldRule, ForwardedFields};
use http1::{FieldNames, Limits, Scheme, Scratch};
use policy::fields::{Chain, Edits};

/// Part of the target `field_names`: a byte of settings, then the field lines of a head.
pub(crate) fn fields(data: &[u8]) {
    let Some((settings, lines)) = data.split_first() else { return };
    let names = if settings & 1 == 0 { FieldNames::Plain } else { FieldNames::Any };
    let forwarded = match settings >> 1 & 3 {
        0 => ForwardedFields::None,
        1 => ForwardedFields::Forwarded,
        _ => ForwardedFields::XForwarded,
    };
    let bytes = [b"GET / HTTP/1.1\r\nHost: h\r\n", lines, b"\r\n\r\n"].concat();
    let (mut scratch, mut limits) = (Scratch::new(), Limits::DEFAULT);
    limits.names = names;
    let Ok(Some(head)) = http1::parse_request(&bytes, &mut scratch, &limits) else { return };
    let bytes = &bytes[..head.head_bytes];
    let lines = lines_of(bytes);
    let expected: Vec<&Line> = lines.iter().filter(|line| is_there(line, &lines, names)).collect();
    let got: Vec<(&[u8], &[u8])> = head.fields.iter().collect();
    let shown = bytes.escape_ascii();
    let same = expected.iter().map(|(name, value)| (&name[..], &value[..]));
    assert!(got.iter().copied().eq(same), "{got:?} of {shown}");

    let rules = vec![
        FieldRule::Set("X-Remote-User".into(), "proxy".into()),
        FieldRule::Remove("X-Secret".into()),
        FieldRule::Default("X-Kind".into(), "usual".into()),
    ];
    let client = (([192, 0, 2, 1], 1).into(), Chain::Kept);
    let edits = Edits::new((Cow::Owned(rules), forwarded), client, (Scheme::Http, b"h"));
    let mut sent: Vec<Line> = Vec::new();
    for field in head.fields.end_to_end().filter(|field| edits.keeps(field.name())) {
        sent.push((field.name().to_vec(), field.value().to_vec()));
    }
    let mut added = Vec::new();
    edits.append(&mut added, &head.fields);
    sent.extend(lines_of(&[b"\r\n", &added[..]].concat()));
    let of = |variable: &str| -> Vec<&[u8]> {
        let is_it = |line: &&Line| variable_of(&line.0) == variable;
        sent.iter().filter(is_it).map(|(_, value)| &value[..]).collect()
    };
    assert_eq!(of("HTTP_X_REMOTE_USER"), [b"proxy"], "{shown}");
    assert_eq!(of("HTTP_X_SECRET"), [b""; 0], "{shown}");
    assert!(!of("HTTP_X_KIND").is_empty(), "{shown}");
    if forwarded == ForwardedFields::XForwarded {
        let got = of("HTTP_X_FORWARDED_FOR");
        assert!(matches!(got[..], [one] if one.ends_with(b"192.0.2.1")), "{got:?} of {shown}");
        assert_eq!(of("HTTP_X_FORWARDED_PROTO"), [b"http"], "{shown}");
    }
}

/// A name and a value.
type Line = (Vec<u8>, Vec<u8>);

/// The field lines of a head without faults. The first line is left out.
fn lines_of(head: &[u8]) -> Vec<Line> {
    let text = head.strip_suffix(b"\r\n").unwrap_or(head);
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let field = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((line[..colon].to_vec(), trimmed(&line[colon + 1..])))
    };
    lines.filter_map(field).collect()
}

fn trimmed(value: &[u8]) -> Vec<u8> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().take_while(|byte| is_blank(byte)).count();
    let end = value.iter().rev().take_while(|byte| is_blank(byte)).count();
    value[start..value.len().max(start + end) - end].to_vec()
}

/// Names that Connection cannot set aside: they belong to the connection, or the message has
/// another meaning without them.
const KEPT: [&str; 18] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "content-range",
    "cache-control",
    "vary",
    "via",
];

fn is_there((name, _): &Line, all: &[Line], names: FieldNames) -> bool {
    let name = String::from_utf8_lossy(name).to_lowercase();
    let is_odd = name.chars().any(|c| !c.is_ascii_alphanumeric() && c != '-');
    let connections = all.iter().filter(|(other, _)| other.eq_ignore_ascii_case(b"connection"));
    let is_named = connections
        .flat_map(|(_, value)| value.split(|byte| *byte == b','))
        .any(|member| String::from_utf8_lossy(&trimmed(member)).to_lowercase() == name);
    !(is_odd && names == FieldNames::Plain) && (!is_named || KEPT.contains(&&*name))
}

/// The variable that a server of CGI makes of a name (RFC 3875, 4.1.18), where each byte that no
/// variable may have becomes `_`.
fn variable_of(name: &[u8]) -> String {
    let letter = |byte: &u8| match byte {
        b'a'..=b'z' => char::from(byte - b'a' + b'A'),
        b'A'..=b'Z' | b'0'..=b'9' => char::from(*byte),
        _ => '_',
    };
    format!("HTTP_{}", name.iter().map(letter).collect::<String>())
}
