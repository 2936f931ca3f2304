//! What a location does: an answer, files, or an upstream.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::{Directive, named};
use super::files::{self, Last};
use super::headers::sent;
use super::scope::{Scope, Server};
use super::upstreams::Wanted;
use super::{Nginx, redirects, variables};
use imported::route::{Action, Path};
use imported::table::is_one;

/// What the requests for an upstream need.
pub(super) struct Passed<'d> {
    /// The settings of the location that passes them on.
    pub(super) scope: Scope<'d>,
    /// What is taken off the start of Location.
    pub(super) cut: Option<String>,
    /// What the upstream gets in place of the path, and the URL that the path takes the place
    /// of in Location. A rewrite changes no URL in Location.
    pub(super) upstream_path: Option<(String, Option<String>)>,
}

impl<'d> Passed<'d> {
    pub(super) fn of(scope: &Scope<'d>) -> Passed<'d> {
        Passed { scope: scope.clone(), cut: None, upstream_path: None }
    }
}

/// What passes the requests on to an upstream.
fn pass_of(inner: &[Directive]) -> Option<&Directive> {
    inner.iter().find(|one| matches!(one.name.as_str(), "proxy_pass" | "grpc_pass"))
}

/// What a location does. Writes the notes.
pub(super) fn action<'d>(
    inner: &'d [Directive],
    (path, has_condition): (&mut Path, bool),
    scope: &Scope<'d>,
    server: &Server<'d>,
    nginx: &mut Nginx<'d>,
) -> (Action, Passed<'d>) {
    if named(inner, "internal").next().is_some() {
        let action = Action::Answer { status: 404, body: "404\n".to_owned() };
        return (action, Passed::of(scope));
    }
    let pass = pass_of(inner);
    let answers = || inner.iter().filter(|one| !is_identity(one));
    for one in inner.iter().filter(|one| pass.is_some() && is_identity(one)) {
        let text = "the path is passed on as the client sent it, and not as nginx reads it";
        nginx.notes.different(&one.at, text);
    }
    let first = answers().find(|one| redirects::is_answer(one)).filter(|_| !has_condition);
    if let (Some(pass), Some(rewrite)) = (pass, first)
        && let Some((prefix, to)) = stripped(rewrite, path)
    {
        let text = format!(
            "only what is below {prefix} is passed on, with {to} in its place, also in a path with \
             a line break"
        );
        nginx.notes.different(&rewrite.at, text);
        *path = Path::Prefix(prefix);
        return passed((pass, inner), path, Some(to), scope, nginx);
    }
    let answer = redirects::action(answers(), &server.names(scope), path, &mut nginx.notes);
    if let Some(answer) = answer {
        return (answer, Passed::of(scope));
    }
    if let Some(pass) = pass {
        return passed((pass, inner), path, None, scope, nginx);
    }
    match files::of((server.directive.inner(), inner), (path, has_condition), scope, nginx) {
        Ok((files, last)) => {
            let (action, other) = after_files(files, last, server, nginx);
            (action, other.unwrap_or_else(|| Passed::of(scope)))
        }
        Err(why) => {
            let about = |one: &&Directive| is_one("alias root try_files index", &one.name);
            let text = format!("{why}; this is answered with 501");
            inner.iter().filter(about).for_each(|one| nginx.notes.left(&one.at, text.clone()));
            (Action::NotCarried, Passed::of(scope))
        }
    }
}

/// Files, and what comes after them. Also returns what the requests for an upstream need.
pub(super) fn after_files<'d>(
    files: imported::route::Files,
    last: Last<'d>,
    server: &Server<'d>,
    nginx: &mut Nginx<'d>,
) -> (Action, Option<Passed<'d>>) {
    let (other, needs) = match last {
        Last::Missing => (None, None),
        Last::Status(status) => {
            (Some(Action::Answer { status, body: format!("{status}\n") }), None)
        }
        Last::Named(name) => {
            let is_it = |one: &&Directive| one.word(0) == name;
            let location = named(server.directive.inner(), "location").find(is_it);
            let Some(location) = location else { return (Action::NotCarried, None) };
            let inner = location.inner();
            let mut scope = server.scope.inside(inner, &mut nginx.notes);
            scope.unprotected |= nginx.conditions(inner, &BTreeSet::new());
            nginx.notes.carried(&location.at);
            let names = server.names(&scope);
            let answer =
                redirects::action(inner.iter(), &names, &mut Path::root(), &mut nginx.notes);
            match (answer, pass_of(inner)) {
                (Some(answer), _) => (Some(answer), Some(Passed::of(&scope))),
                (None, Some(pass)) => {
                    let (action, needs) =
                        passed((pass, inner), &mut Path::root(), None, &scope, nginx);
                    (Some(action), Some(needs))
                }
                (None, None) => (Some(Action::NotCarried), Some(Passed::of(&scope))),
            }
        }
    };
    (Action::Files(Box::new(files), other.map(Box::new)), needs)
}

/// Whether a rewrite changes no path: `rewrite ^(/a.*) $1 break`.
fn is_identity(one: &Directive) -> bool {
    let whole = one.word(0).strip_suffix('$').unwrap_or(one.word(0));
    let whole = whole.strip_prefix("^(").and_then(|rest| rest.strip_suffix(".*)"));
    let is_whole = whole.is_some_and(is_plain);
    one.name == "rewrite" && is_whole && one.word(1) == "$1" && one.word(2) == "break"
}

/// Whether a text has only letters, digits and signs that stand for themselves in an expression.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-_".contains(&b))
}

/// The prefix of `rewrite ^PREFIX(.*)$ TO$1 break` if it is that of the location, and what takes
/// its place. Both end with a slash.
fn stripped(rewrite: &Directive, path: &Path) -> Option<(String, String)> {
    let pattern = rewrite.word(0);
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let pattern = pattern.strip_suffix('$').unwrap_or(pattern);
    let (pattern, to) = (pattern.replace("(/.*)", "(.*)"), rewrite.word(1));
    let (prefix, to) = (pattern.strip_suffix("(.*)")?, to.strip_suffix("$1")?);
    let bare = |text: &str| text.trim_end_matches('/').to_owned();
    let is_plain = |text: &str| !text.contains("//") && is_plain(text);
    let is_place = matches!(path, Path::Prefix(_) | Path::Start(_));
    // The location is below the prefix that is taken off.
    if let (Path::Prefix(own), "break") = (path, rewrite.word(2))
        && let Some(rest) = own.strip_prefix(prefix).filter(|rest| !rest.is_empty())
        && prefix.ends_with('/')
        && is_plain(own)
        && is_plain(to)
        && to.starts_with('/')
        && to.ends_with('/')
        && rewrite.name == "rewrite"
    {
        return Some((own.clone(), format!("{to}{rest}")));
    }
    let is_own = is_place
        && bare(prefix) == bare(path.text())
        && prefix.starts_with('/')
        && bare(prefix).len() + 1 >= prefix.len();
    let fits = rewrite.name == "rewrite" && rewrite.word(2) == "break" && is_own;
    let both = is_plain(prefix) && is_plain(to) && (to.is_empty() || to.starts_with('/'));
    // `^/api(.*)` and `$1` keep the slash, and `^/api/(.*)` and `/$1` write it.
    let same = !prefix.ends_with('/') || to.ends_with('/');
    (fits && both && same).then(|| (bare(prefix) + "/", bare(to) + "/"))
}

/// Sends the requests of a level to an upstream. `instead`: a rewrite gives the upstream this path
/// in place of the location's. Writes the notes.
fn passed<'d>(
    (pass, level): (&'d Directive, &[Directive]),
    path: &mut Path,
    instead: Option<String>,
    scope: &Scope<'d>,
    nginx: &mut Nginx<'d>,
) -> (Action, Passed<'d>) {
    let mut needs = Passed::of(scope);
    let (wanted, own_path) = match wanted(pass, path, scope, &nginx.constants.at(level)) {
        Ok(found) => found,
        Err(why) => {
            nginx.notes.left(&pass.at, format!("{why}; this is answered with 501"));
            return (Action::NotCarried, needs);
        }
    };
    let has_path = own_path.is_some() || instead.is_some();
    if let (true, Path::Start(start)) = (has_path, &*path) {
        let text = format!(
            "what is below {start}/ is passed on, with one slash; other paths that begin so are \
             answered with 501"
        );
        nginx.notes.different(&pass.at, text);
        *path = Path::Prefix(format!("{start}/"));
    } else if has_path {
        let text = "a path that can be read in two ways is refused, and the sent path is \
                    percent-encoded";
        nginx.notes.different(&pass.at, text);
    }
    let url = format!("{}://{}", wanted.scheme, wanted.authority);
    // By default, nginx puts the path of the location in place of the URL of the upstream.
    let has_variables = pass.word(0).contains('$');
    let cuts = own_path.is_none() && !has_variables;
    needs.cut = cuts.then(|| url.clone());
    needs.upstream_path = match instead {
        Some(to) => Some((to, own_path.map(|own| url + &own))),
        None => own_path.map(|to| (to.clone(), Some(url + &to))),
    };
    match nginx.upstreams.name(&wanted, &mut nginx.tree, &mut nginx.notes) {
        Some(name) => {
            nginx.notes.carried(&pass.at);
            (Action::Upstream(name), needs)
        }
        None => {
            nginx.notes.left(&pass.at, "no server of it is carried");
            (Action::NotCarried, needs)
        }
    }
}

/// What `proxy_pass` asks of its upstream, and the path that the upstream gets in place of the
/// location's; or why it is not carried.
pub(super) fn wanted<'s>(
    pass: &Directive,
    path: &Path,
    scope: &'s Scope<'_>,
    constants: &BTreeMap<String, String>,
) -> Result<(Wanted<'s>, Option<String>), String> {
    let fixed = "the server is not a fixed host and port";
    // The URI as the client sent it is passed on without these words, too.
    let asked = pass.word(0).strip_suffix("$request_uri").unwrap_or(pass.word(0));
    let has_variables = pass.word(0).contains('$');
    let url = variables::filled(asked, constants).ok_or(fixed)?;
    let (scheme, rest) = url.split_once("://").ok_or("the server is not a URL")?;
    // The path of a socket ends with a colon, if a URI follows.
    let end = match rest.strip_prefix("unix:") {
        Some(socket) => socket.find(':').map(|at| at + "unix:".len()),
        None => rest.find('/'),
    };
    let (authority, uri) = rest.split_at(end.unwrap_or(rest.len()));
    let uri = uri.strip_prefix(':').unwrap_or(uri);
    let is_socket = authority.starts_with("unix:/");
    let known = matches!(scheme, "http" | "https" | "grpc" | "grpcs");
    let is_server = match authority.contains("unix:") {
        true => is_socket && authority.len() > "unix:/".len() && scheme == "http",
        false => !authority.is_empty(),
    };
    if !known || !is_server || url.contains('$') {
        return Err(fixed.to_owned());
    }
    // With a variable, this takes the place of the whole URI.
    if has_variables && !uri.is_empty() {
        return Err(format!("every request would be passed on with the URI {uri}"));
    }
    let own = path.text();
    let is_plain = uri.bytes().all(|b| b.is_ascii_graphic())
        && !uri.contains(['?', '#', '{', '%', '\\', ';'])
        && !uri.contains("//")
        && !uri.split('/').any(|part| matches!(part, "." | ".."));
    let upstream_path = match path {
        _ if uri.is_empty() || uri == own => None,
        // The rest of a path begins with the last slash of the prefix.
        Path::Prefix(_) if uri.ends_with('/') && is_plain => Some(uri.to_owned()),
        Path::Start(_) if uri.ends_with('/') && is_plain => Some(uri.to_owned()),
        Path::Start(_) if is_plain => Some(format!("{uri}/")),
        Path::Exact(_) if is_plain => Some(uri.to_owned()),
        _ => {
            return Err(format!(
                "{own} would be replaced by {uri} in each URL, in the middle of a name"
            ));
        }
    };
    // nginx names such a server so.
    let usual = if scheme.ends_with('s') { ":443" } else { ":80" };
    let named = authority.strip_suffix(usual).unwrap_or(authority);
    let (host, forwarded) = sent(scope, if is_socket { "localhost" } else { named });
    let (scheme, authority) = (scheme.to_owned(), authority.to_owned());
    let wanted = Wanted { at: pass.at.clone(), scheme, authority, host, forwarded, scope };
    Ok((wanted, upstream_path))
}
