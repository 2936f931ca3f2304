//! `root`, `alias`, `index`, `try_files` and `expires`: the files of a directory.

use super::Nginx;
use super::blocks::{Directive, named};
use super::found::{Judges, is_plain};
use super::scope::Scope;
use super::table::time;
use imported::note::Notes;
use imported::route::{Files, Path};
use imported::table::is_one;

/// What comes after the last file of `try_files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last<'d> {
    /// The answer 404.
    Missing,
    /// An answer with this status.
    Status(u64),
    /// The location of this name.
    Named(&'d str),
}

/// How our files differ from nginx's.
const DIFFERENCE: &str = "content types and tags are ours, a directory without its slash is \
                          redirected with 308, methods other than GET and HEAD get 404, and no \
                          link leads out of the directory";

/// The files of a location or of a server with these directives inside, and what comes after them.
/// Writes the notes. The path may become narrower.
///
/// # Errors
/// One line: why the files are not carried.
pub(super) fn of<'d>(
    (server, inner): (&[Directive], &'d [Directive]),
    (path, has_condition): (&mut Path, bool),
    scope: &Scope<'d>,
    nginx: &mut Nginx<'_>,
) -> Result<(Files, Last<'d>), String> {
    if inner.iter().any(|one| one.name.ends_with("_pass")) {
        return Err("this protocol is not spoken with upstreams".to_owned());
    }
    let alias = named(inner, "alias").next();
    let directory = alias.or(scope.get("root")).ok_or("no directory is named")?;
    let text = directory.word(0);
    if !text.starts_with('/') || text.contains('$') {
        return Err("the directory is not a fixed absolute path".to_owned());
    }
    let root = |text: &str| match text.trim_end_matches('/') {
        "" => "/".to_owned(),
        text => text.to_owned(),
    };
    let mut files = Files { root: root(text), ..Files::default() };
    let mut differs = DIFFERENCE.to_owned();
    if alias.is_some() {
        match path.clone() {
            _ if has_condition => return Err("an expression has no alias".to_owned()),
            Path::Prefix(_) if text.ends_with('/') => files.alias = true,
            Path::Start(start) => {
                files.alias = true;
                differs += &format!("; paths that are not below {start}/ are answered with 501");
                *path = Path::Prefix(format!("{start}/"));
            }
            Path::Exact(exact) if text.ends_with(&exact) => {
                files.root = root(&text[..text.len() - exact.len()]);
            }
            Path::Prefix(_) | Path::Exact(_) | Path::Pattern(_) => {
                return Err("this alias does not end where the location ends".to_owned());
            }
        }
    }
    let usual = [String::from("index.html")];
    let index = scope.get("index");
    let names = index.map_or(&usual[..], |index| &index.words);
    if names.iter().any(|word| word.contains(['$', '/'])) {
        return Err("the name of an index is not fixed".to_owned());
    }
    let start = if has_condition { "" } else { path.start() };
    let taken = names.iter().position(|name| nginx.judges(server).take_index(name, inner, start));
    let known = &names[..taken.unwrap_or(names.len())];
    if index.is_some() || taken.is_some() {
        files.index = Some(known.iter().filter(|word| is_plain(word)).cloned().collect());
    }
    match index {
        Some(index) if !known.iter().all(|word| is_plain(word)) => {
            nginx.notes.different(&index.at, "what a program would answer is no index");
        }
        Some(index) => nginx.notes.carried(&index.at),
        None => {}
    }
    if let Some(at) = taken {
        let text = format!("another location or a condition decides about {}", names[at]);
        nginx.notes.left(index.map_or(&directory.at, |index| &index.at), text);
    }
    let last = match named(inner, "try_files").last() {
        Some(tries) => tried(tries, (nginx.judges(server), inner), &mut files)
            .inspect(|_| nginx.notes.carried(&tries.at))?,
        None => Last::Missing,
    };
    files.precompressed = scope.is("gzip_static", "on");
    files.cache_control = cache_control(scope, &mut nginx.notes);
    nginx.notes.different(&directory.at, differs);
    if files.precompressed
        && let Some(one) = scope.get("gzip_static")
    {
        nginx.notes.different(&one.at, "files with the endings .br and .zst are sent, too");
    }
    if scope.is("autoindex", "on")
        && let Some(one) = scope.get("autoindex")
    {
        nginx.notes.left(&one.at, "directories are not listed");
    }
    for one in scope.all("add_header").iter().filter(|one| !is_cache_control(one)) {
        nginx.notes.left(&one.at, "responses with files have no other fields");
    }
    Ok((files, last))
}

/// `try_files FILE … LAST`
fn tried<'d>(
    tries: &'d Directive,
    (judges, inner): (Judges<'_>, &[Directive]),
    files: &mut Files,
) -> Result<Last<'d>, String> {
    let Some((last, words)) = tries.words.split_last() else {
        return Err("try_files has no file".to_owned());
    };
    let is_fixed = |text: &str| !text.contains(['$', '?', '{', '}']) && is_plain(text);
    if words.first().is_none_or(|word| word != "$uri") {
        return Err("the file of the path itself is always tried first".to_owned());
    }
    if !words.iter().any(|word| is_one("$uri/ /$uri/", word)) {
        files.index = Some(Vec::new());
    }
    // `/$uri` is the same file.
    for word in words.iter().filter(|word| !is_one("$uri $uri/ /$uri /$uri/", word)) {
        let rest = word.strip_prefix("$uri").filter(|rest| is_fixed(rest));
        match rest.map(|rest| format!("{{path}}{rest}")) {
            Some(text) => files.tries.push(text),
            None if word.starts_with('/') && is_fixed(word) => files.tries.push(word.clone()),
            None => return Err("a path of try_files is $uri with an ending, or fixed".to_owned()),
        }
    }
    if let Some(status) = last.strip_prefix('=') {
        return match status.parse() {
            Ok(404) => Ok(Last::Missing),
            Ok(status @ 400..=599) => Ok(Last::Status(status)),
            _ => Err("the last word of try_files is no status of an error".to_owned()),
        };
    }
    if last.starts_with('@') {
        return Ok(Last::Named(last));
    }
    // A file does not depend on the query.
    let queries = ["$is_args$args", "?$args", "?$query_string", "$is_args$query_string"];
    let bare = queries.iter().find_map(|query| last.strip_suffix(query)).unwrap_or(last);
    match (bare.strip_prefix("$uri"), bare.starts_with('/') && is_fixed(bare)) {
        (Some(ending), _) if is_fixed(ending) && !judges.take_ending(ending, inner) => {
            files.tries.push(format!("{{path}}{ending}"));
        }
        (_, true) if judges.is_sent(bare, Some(inner)) => files.tries.push(bare.to_owned()),
        (Some(_), _) | (_, true) => {
            return Err("another location would be asked for its last path".to_owned());
        }
        _ => return Err("the last path of try_files is not that of a file".to_owned()),
    }
    Ok(Last::Missing)
}

fn is_cache_control(one: &Directive) -> bool {
    one.word(0).eq_ignore_ascii_case("cache-control")
}

/// The value of Cache-Control by `expires` and `add_header`.
fn cache_control(scope: &Scope<'_>, notes: &mut Notes) -> Option<String> {
    let mut values = Vec::new();
    if let Some(expires) = scope.on("expires") {
        let value = match expires.word(0) {
            "max" => Some("max-age=315360000".to_owned()),
            "epoch" => Some("no-cache".to_owned()),
            word if word.starts_with('-') => Some("no-cache".to_owned()),
            word => time(word).map(|time| format!("max-age={}", time.as_secs())),
        };
        match value {
            Some(_) => notes.different(&expires.at, "Cache-Control is sent without Expires"),
            None => notes.left(&expires.at, "the time is not fixed"),
        }
        values.extend(value);
    }
    for one in scope.all("add_header").iter().filter(|one| is_cache_control(one)) {
        match one.word(1).contains('$') {
            true => notes.left(&one.at, "the value is not fixed"),
            false => values.push(one.word(1).to_owned()),
        }
    }
    (!values.is_empty()).then(|| values.join(", "))
}
