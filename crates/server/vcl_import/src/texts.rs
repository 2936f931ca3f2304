//! Values that are known for a cell: fixed texts, and parts of its host and its path.

use super::lexer::Word;
use super::state::Request;
use imported::pattern::path_of;
use imported::route::{Path, has_value};

/// The address of the client, as our file writes it.
pub(crate) const CLIENT: &str = "{client}";

/// The text of a value in the form of our file, and whether the URL of the request follows it.
pub(crate) fn text_of(value: &[Word], request: &Request) -> Option<(String, bool)> {
    let (mut out, mut rest) = (String::new(), value);
    let host = request.host.as_deref();
    let captures =
        host.is_some_and(|host| host.contains('{')) || matches!(&request.path, Path::Pattern(_));
    loop {
        rest = match rest {
            [Word::Text(text), rest @ ..]
                if !(has_value(text) || captures && text.contains('{')) =>
            {
                out.push_str(text);
                rest
            }
            [Word::Name(name), Word::Sign("("), Word::Name(of), Word::Sign(","), rest @ ..]
                if matches!(name.as_str(), "regsub" | "regsuball") =>
            {
                let [Word::Text(from), Word::Sign(","), Word::Text(to), rest @ ..] = rest else {
                    return None;
                };
                let [Word::Sign(")"), rest @ ..] = rest else { return None };
                match of.to_ascii_lowercase().as_str() {
                    "req.http.host" | "bereq.http.host" => {
                        out.push_str(&host_part(host?, from, to)?)
                    }
                    "req.url" | "bereq.url" => out.push_str(&path_part(&request.path, from, to)?),
                    _ => return None,
                }
                rest
            }
            [Word::Name(name), rest @ ..] if name.eq_ignore_ascii_case("req.http.host") => {
                out.push_str(host.unwrap_or("{host}"));
                rest
            }
            [Word::Name(name)] if name == "req.url" => return Some((out, true)),
            [Word::Name(name), rest @ ..] if name == "client.ip" => {
                out.push_str(CLIENT);
                rest
            }
            _ => return None,
        };
        rest = match rest {
            [] => return Some((out, false)),
            [Word::Sign("+"), rest @ ..] => rest,
            // Texts can follow each other without a sign.
            [Word::Text(_), ..] => rest,
            _ => return None,
        };
    }
}

/// The first label, or the host without its start.
fn host_part(host: &str, from: &str, to: &str) -> Option<String> {
    let (label, _) = host.split_once('.')?;
    let is_first = matches!((from, to), (r"\..*" | r"\..*$", ""))
        || matches!((from, to), (r"^([^.]+)\..*" | r"^([^.]+)\..*$", r"\1"));
    if is_first {
        return Some(label.to_owned());
    }
    let start = from.strip_prefix('^')?.replace(r"\.", ".");
    let plain = start.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    (plain && to.is_empty()).then(|| host.strip_prefix(&start).unwrap_or(host).to_owned())
}

/// A part of a path: one segment (`\1`), or the rest after the named segments.
fn path_part(path: &Path, from: &str, to: &str) -> Option<String> {
    let Path::Pattern(own) = path else { return None };
    let (Path::Pattern(other) | Path::Prefix(other), found) = path_of(from)? else { return None };
    let is_whole = [".*", ".*$", "(.*)", "(.*)$"].iter().any(|end| from.ends_with(end));
    let (own, mut other): (Vec<&str>, Vec<&str>) =
        (own.split('/').collect(), other.split('/').collect());
    if other.last() == Some(&"") {
        other.pop();
        other.push("*");
    }
    let fits = |(own, other): (&&str, &&str)| own == other || other.starts_with('{');
    let named = other.len() - 1;
    if other.last() != Some(&"*")
        || own.len() < other.len()
        || !own.iter().zip(&other[..named]).all(fits)
    {
        return None;
    }
    let is_rest = own.len() == other.len() && own.last() == Some(&"*");
    if to.is_empty() {
        return (!is_whole && is_rest).then(|| "{*}".to_owned());
    }
    let number = to.strip_prefix('\\').filter(|_| is_whole)?;
    let (_, repeated) = found.groups.iter().find(|(name, _)| name == number)?;
    match repeated.as_str() {
        "{*}" => is_rest.then(|| "{*}".to_owned()),
        name => {
            let at = other.iter().position(|part| *part == name)?;
            Some(own[at].to_owned()).filter(|part| part.starts_with('{'))
        }
    }
}
