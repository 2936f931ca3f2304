//! Which location nginx finds for the path of a page or of an index: nginx looks for one again.

use super::blocks::{Directive, named};
use super::table;

/// Endings of files that no program makes.
const PLAIN: &[&str] = &["html", "htm", "xhtml", "txt", "json", "xml", "svg"];

/// Whether a file of this name is sent as it is, and is no program.
pub(super) fn is_plain(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, ending)| PLAIN.contains(&ending))
}

/// Whether a location does more with a request than to send a file.
fn does_more(location: &Directive) -> bool {
    let does = |one: &Directive| {
        one.name.ends_with("_pass")
            || matches!(
                one.name.as_str(),
                "return" | "rewrite" | "auth_basic" | "auth_request" | "allow" | "if"
            )
            || one.name == "try_files" && one.word(0) != "$uri"
            || table::restricts(one) && one.name != "internal"
    };
    location.inner().iter().any(does)
}

/// Whether an expression of the server may take a file of this name and does more with it. Paths
/// that an expression takes by their beginning are taken before an index is looked for.
pub(super) fn may_be_taken(server: &[Directive], name: &str) -> bool {
    let ending = name.rsplit('.').next().unwrap_or_default();
    named(server, "location").any(|location| {
        let pattern = location.word(1);
        let may_match =
            !pattern.starts_with('^') && (pattern.contains(ending) || !pattern.contains("\\."));
        location.word(0).starts_with('~') && may_match && does_more(location)
    })
}

/// Whether the file of this path is sent as it is by the location that nginx finds for it.
/// `own`: the location that leads to it, which is not asked again.
pub(super) fn is_sent(server: &[Directive], path: &str, own: Option<&[Directive]>) -> bool {
    if path.ends_with('/') || !is_plain(path) {
        return false;
    }
    let is_own = |one: &Directive| own.is_some_and(|own| std::ptr::eq(one.inner(), own));
    let location = location(server, path);
    let is_fine = location.is_none_or(|one| is_own(one) || !does_more(one));
    // An exact path comes before all expressions.
    let is_exact = location.is_some_and(|one| one.word(0) == "=");
    is_fine && (is_exact || !may_be_taken(server, path))
}

/// The location that nginx finds for a path, if no expression takes the path: the one with exactly
/// this path, or the one with the longest beginning.
pub(super) fn location<'d>(server: &'d [Directive], path: &str) -> Option<&'d Directive> {
    let exact = named(server, "location").find(|one| one.word(0) == "=" && one.word(1) == path);
    let prefix = |one: &&Directive| match &one.words[..] {
        [prefix] => path.starts_with(prefix.as_str()).then_some(prefix.len()),
        [sign, prefix] if sign == "^~" => path.starts_with(prefix.as_str()).then_some(prefix.len()),
        _ => None,
    };
    let longest = || named(server, "location").filter(|one| prefix(one).is_some());
    exact.or_else(|| longest().max_by_key(prefix))
}
