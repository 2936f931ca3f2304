//! Captures: parts of a request's host and path that a redirect or a field may repeat.
//!
//! `{name}` is one label of the host, the first one, or one segment of the path; `*` at the end of
//! a path is the rest, `{*}` where it is repeated. In a rule, `{name}` is a named group of
//! `path.matches`. `{name}` in a text is replaced by what was captured, or by one of the
//! [`is_value`]s of the request. A route without captures has other braces as text, except in a
//! location, where they are a mistake.

/// A path of which some segments are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathPattern {
    /// Its segments, without `*`.
    pub segments: Vec<Segment>,
    /// It ends with `/*`: any number of segments follow.
    pub rest: bool,
}

/// A segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// This one.
    Literal(String),
    /// Any one that is not empty, captured under this name.
    Capture(String),
}

/// The name in `{name}`, if the text is one as a whole.
pub(crate) fn capture(text: &str) -> Result<Option<&str>, String> {
    match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        None => Ok(None),
        Some(name) if is_name(name) => Ok(Some(name)),
        Some(name) => {
            Err(format!("{name:?} is not a name for a capture: use a to z, 0 to 9 and _"))
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.chars().all(is_of_name)
}

/// Whether this names a value that every request has: who sent it, what it asks for, and where it
/// goes. `cookie.NAME` is the value of a cookie.
pub fn is_value(name: &str) -> bool {
    const VALUES: [&str; 11] = [
        "client",
        "scheme",
        "host",
        "port",
        "path",
        "query",
        "uri",
        "request_id",
        "tls.sni",
        "tls.client_subject",
        "upstream",
    ];
    let is_of_cookie = |c: u8| c.is_ascii_alphanumeric() || b"!#$&'+-.^_`|~".contains(&c);
    match name.strip_prefix("cookie.") {
        Some(cookie) => !cookie.is_empty() && cookie.bytes().all(is_of_cookie),
        None => VALUES.contains(&name),
    }
}

/// The first value in a text that differs between requests for one stored response.
pub(crate) fn value_of_one_client(text: &str) -> Option<&str> {
    pieces(text).find_map(|piece| match piece {
        Piece::Capture(name @ ("client" | "request_id" | "port")) => Some(name),
        Piece::Capture(name) if name.starts_with("tls.") || name.starts_with("cookie.") => {
            Some(name)
        }
        Piece::Capture(_) | Piece::Text(_) => None,
    })
}

/// Whether a text may repeat what is captured under this name.
pub(crate) fn is_capture(name: &str) -> bool {
    is_name(name)
}

/// A piece of a text with captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'t> {
    /// As it is written.
    Text(&'t str),
    /// The capture of this name; `*` is the rest of the path.
    Capture(&'t str),
}

/// The pieces of a text. Braces around anything but a name are text.
pub fn pieces(mut text: &str) -> impl Iterator<Item = Piece<'_>> {
    std::iter::from_fn(move || {
        if text.is_empty() {
            return None;
        }
        let named = |at: usize| {
            let inner = &text[at + 1..];
            let name = &inner[..inner.find('}')?];
            (is_name(name) || name == "*" || is_value(name)).then_some(name)
        };
        let next = text.match_indices('{').find_map(|(at, _)| Some((at, named(at)?)));
        let (piece, rest) = match next {
            Some((0, name)) => (Piece::Capture(name), &text[name.len() + 2..]),
            Some((at, _)) => (Piece::Text(&text[..at]), &text[at..]),
            None => (Piece::Text(text), ""),
        };
        text = rest;
        Some(piece)
    })
}

/// Checks that a text repeats only these captures.
///
/// # Errors
/// One line: what is wrong.
pub(crate) fn check_text(text: &str, names: &[&str]) -> Result<(), String> {
    for piece in pieces(text) {
        match piece {
            Piece::Capture(name) if !names.contains(&name) && !is_value(name) => {
                return Err(format!(
                    "{text:?}: nothing captures {{{name}}}, and no value of a request has this name"
                ));
            }
            Piece::Capture(_) | Piece::Text(_) => {}
        }
    }
    Ok(())
}

/// No client may choose where a redirect leads: what it wrote into a path is not part of the host
/// there. `host` is the capture of the host.
///
/// # Errors
/// One line: what is wrong.
pub(crate) fn check_location(
    location: &str,
    names: &[&str],
    host: Option<&str>,
) -> Result<(), String> {
    check_text(location, names)?;
    if location.starts_with('{') {
        return Err(format!("{location:?}: a capture cannot begin a location"));
    }
    // The host that the client has asked for is not one that it could not reach anyway, and a path
    // begins with a slash.
    let value = |location: String, name: &str, like: &str| match names.contains(&name) {
        true => location,
        false => location.replace(&format!("{{{name}}}"), like),
    };
    let location = value(location.to_owned(), "host", "host.example");
    let location = value(location, "port", "80");
    let location = value(value(location, "path", "/path"), "uri", "/path");
    let location = location.as_str();
    let scheme = match location.find([':', '/', '?', '#']) {
        Some(end) if location[end..].starts_with(':') => &location[..=end],
        _ => "",
    };
    let rest = &location[scheme.len()..];
    let authority = rest.strip_prefix("//").unwrap_or_default();
    let authority = &authority[..authority.find(['/', '?', '#']).unwrap_or(authority.len())];
    // Browsers take what follows for a host.
    let has_place = !scheme.is_empty() || rest.starts_with("//");
    if (has_place && authority.is_empty()) || location.contains('\\') {
        return Err(format!("{location:?} has no host after //"));
    }
    let is_of_path = |piece: Piece<'_>| match piece {
        Piece::Capture(name) => Some(name) != host,
        Piece::Text(_) => false,
    };
    if pieces(authority).any(is_of_path) {
        return Err(format!("{location:?}: what a path captures cannot be in the host of a URL"));
    }
    let port = |c: char| c.is_ascii_digit();
    let host_alone = authority.trim_end_matches(port);
    let host_alone = host_alone.strip_suffix(':').unwrap_or(authority);
    // A host that ends with a capture could become any other one.
    if host_alone.trim_end_matches('.').ends_with('}') {
        return Err(format!("{location:?}: a capture cannot end the host of a location"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_pieces() {
        let read = |text| pieces(text).collect::<Vec<_>>();
        assert_eq!(
            read("/{a}x{*}"),
            [Piece::Text("/"), Piece::Capture("a"), Piece::Text("x"), Piece::Capture("*")]
        );
        let json = "{\"group\": {x";
        assert_eq!(read(json), [Piece::Text(json)]);
        assert_eq!(read("{{a}"), [Piece::Text("{"), Piece::Capture("a")]);
        assert_eq!(read(""), []);
    }
}
