//! Captures: parts of a request's host and path that a redirect or a field may repeat.
//!
//! `{name}` is one label of the host, the first one, or one segment of the path; `*` at the end of
//! a path is the rest, `{*}` where it is repeated. In a route with captures, `{name}` in a text is
//! replaced by what was captured. In all other routes it is text.

use super::FieldRule;
use super::routes::{Action, Host, Path, Route};
use crate::limits::CAPTURES_MAX;

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

impl Path {
    /// The path of a route: a pattern if it has a capture, or ends with `/*`.
    ///
    /// # Errors
    /// One line: what is wrong.
    pub fn parse(text: &str) -> Result<Path, String> {
        let (fixed, rest) = match text.strip_suffix("/*") {
            Some(fixed) => (fixed, true),
            None => (text, false),
        };
        if !rest && !fixed.contains('{') {
            return Ok(Path::Exact(text.to_owned()));
        }
        let Some(segments) = fixed.strip_prefix('/').or((fixed.is_empty()).then_some("")) else {
            return Err(format!("the path {text:?} does not begin with /"));
        };
        let segment = |segment: &str| match capture(segment)? {
            Some(name) => Ok(Segment::Capture(name.to_owned())),
            None if segment.is_empty() || segment.contains(['{', '}', '*']) => Err(format!(
                "{segment:?} is not a segment of a path: write a text, or {{name}} as a whole \
                 segment, and * only at the end"
            )),
            None => Ok(Segment::Literal(segment.to_owned())),
        };
        let segments = match segments {
            "" => Vec::new(),
            segments => segments.split('/').map(segment).collect::<Result<_, _>>()?,
        };
        Ok(Path::Pattern(PathPattern { segments, rest }))
    }
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
            (is_name(name) || name == "*").then_some(name)
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

impl Route {
    /// The names of its captures: that of the host, then those of the path.
    pub fn captures(&self) -> Vec<&str> {
        let of_path: Vec<&str> = match &self.path {
            Path::Exact(_) | Path::Prefix(_) => Vec::new(),
            Path::Pattern(pattern) => {
                let names = pattern.segments.iter().filter_map(|segment| match segment {
                    Segment::Capture(name) => Some(name.as_str()),
                    Segment::Literal(_) => None,
                });
                names.chain(pattern.rest.then_some("*")).collect()
            }
        };
        self.host_capture().into_iter().chain(of_path).collect()
    }

    /// The name of the capture in its hosts.
    pub fn host_capture(&self) -> Option<&str> {
        self.hosts.iter().find_map(|host| match host {
            Host::Captured { name, .. } => Some(name.as_str()),
            Host::Exact(_) | Host::Below(_) => None,
        })
    }
}

/// Checks the captures of a route and the texts that repeat them.
///
/// # Errors
/// The key of the route that is wrong, and one line: what is wrong.
pub(crate) fn check(route: &Route) -> Result<(), (&'static str, String)> {
    let names = route.captures();
    if names.is_empty() {
        return Ok(());
    }
    if names.len() > CAPTURES_MAX {
        return Err(("path", format!("a route has at most {CAPTURES_MAX} captures")));
    }
    if let Some(at) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
        return Err(("path", format!("there are two captures with the name {}", names[at])));
    }
    let host = route.host_capture();
    let has_same = |other: &Host| match other {
        Host::Captured { name, .. } => Some(name.as_str()) == host,
        Host::Exact(_) | Host::Below(_) => false,
    };
    if host.is_some() && !route.hosts.iter().all(has_same) {
        return Err(("hosts", "if one host of a route has a capture, all have the same".into()));
    }
    let of_request = route.request.iter().map(|rule| ("request", rule));
    for (key, rule) in of_request.chain(route.response.iter().map(|rule| ("response", rule))) {
        if let FieldRule::Set(_, value) | FieldRule::Add(_, value) | FieldRule::Default(_, value) =
            rule
        {
            check_text(value, &names).map_err(|wrong| (key, wrong))?;
        }
    }
    match &route.action {
        Action::Redirect { location, .. } => {
            check_location(location, &names, host).map_err(|wrong| ("redirect", wrong))
        }
        Action::Group(_) | Action::Answer { .. } => Ok(()),
    }
}

fn check_text(text: &str, names: &[&str]) -> Result<(), String> {
    for piece in pieces(text) {
        match piece {
            Piece::Capture(name) if !names.contains(&name) => {
                return Err(format!("{text:?}: neither the host nor the path captures {{{name}}}"));
            }
            Piece::Capture(_) | Piece::Text(_) => {}
        }
    }
    Ok(())
}

/// No client may choose where a redirect leads: what it wrote into a path is not part of the host
/// there.
fn check_location(location: &str, names: &[&str], host: Option<&str>) -> Result<(), String> {
    check_text(location, names)?;
    let authority = match location.split_once("//") {
        Some((scheme, rest)) if scheme.is_empty() || scheme.ends_with(':') => {
            &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())]
        }
        _ => "",
    };
    let is_of_path = |piece: Piece<'_>| match piece {
        Piece::Capture(name) => Some(name) != host,
        Piece::Text(_) => false,
    };
    if pieces(authority).any(is_of_path) {
        return Err(format!("{location:?}: what a path captures cannot be in the host of a URL"));
    }
    // A host that ends with a capture could become any other one.
    if authority.ends_with('}') || location.starts_with('{') {
        return Err(format!(
            "{location:?}: a capture can neither begin a location nor end its host"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_captures_as_whole_segments() {
        let parsed = Path::parse("/{lang}/shop/*");
        let segments = vec![Segment::Capture("lang".into()), Segment::Literal("shop".into())];
        assert_eq!(parsed, Ok(Path::Pattern(PathPattern { segments, rest: true })));
        assert_eq!(Path::parse("/a"), Ok(Path::Exact("/a".into())));
        let all = PathPattern { segments: Vec::new(), rest: true };
        assert_eq!(Path::parse("/*"), Ok(Path::Pattern(all)));
        for wrong in ["/a{b}", "/{}", "/{A}", "/a/*/{b}", "{a}", "/{a}//b", "/{a}/", "x/*"] {
            assert!(Path::parse(wrong).is_err(), "{wrong}");
        }
    }

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

    #[test]
    fn a_client_cannot_choose_where_a_redirect_leads() {
        let route = |location: &str| Route {
            hosts: vec![Host::parse("{tenant}.example.org").unwrap()],
            path: Path::parse("/{lang}/*").unwrap(),
            action: Action::Redirect {
                status: 308,
                location: location.to_owned(),
                with_path: false,
            },
            ..Route::to("")
        };
        for good in [
            "/x/{lang}/{*}",
            "https://{tenant}.example.net/{lang}",
            "https://example.net/?t={tenant}",
        ] {
            assert_eq!(check(&route(good)), Ok(()), "{good}");
        }
        for wrong in [
            "https://{lang}.example.net/",
            "https://example.{tenant}",
            "//{*}",
            "{*}",
            "https://a.{lang}/",
            "/{other}",
        ] {
            assert!(check(&route(wrong)).is_err(), "{wrong}");
        }
        let twice = Route { path: Path::parse("/{tenant}/x").unwrap(), ..route("/") };
        assert!(check(&twice).unwrap_err().1.contains("two captures"));
        let mixed = Route {
            hosts: ["{a}.example.org", "example.org"].map(|h| Host::parse(h).unwrap()).into(),
            ..Route::to("g")
        };
        assert!(check(&mixed).unwrap_err().1.contains("all have the same"));
    }
}
