//! `error_page`: what clients get in place of an error.

use super::Nginx;
use super::blocks::{Directive, named};
use super::found::{Judges, location};
use super::scope::{Scope, Server};
use imported::note::Place;
use imported::tree::{Section, Value};

/// The page of some errors.
#[derive(Clone, Debug)]
pub(super) struct Page {
    at: Place,
    statuses: Vec<u64>,
    shown: Shown,
    /// The status that is sent; `None`: that of the error.
    status: Option<u64>,
}

#[derive(Clone, Debug)]
enum Shown {
    File(String),
    Redirect(String),
}

/// The pages of a location. Writes the notes.
pub(super) fn of<'d>(scope: &Scope<'d>, server: &Server<'d>, nginx: &mut Nginx<'d>) -> Vec<Page> {
    let mut pages = Vec::new();
    for one in scope.all("error_page") {
        match page(one, scope, server, nginx.judges(server.directive.inner())) {
            Ok(page) => {
                nginx.notes.different(&one.at, "fields of add_header are not sent with the page");
                if let Shown::File(file) = &page.shown {
                    nginx.pages.push((one.at.clone(), file.clone()));
                }
                pages.push(page);
            }
            Err(why) => nginx.notes.left(&one.at, why),
        }
    }
    pages
}

fn page(
    one: &Directive,
    scope: &Scope<'_>,
    server: &Server<'_>,
    judges: Judges<'_>,
) -> Result<Page, &'static str> {
    let statuses: Vec<u64> = one.words.iter().map_while(|word| word.parse().ok()).collect();
    if statuses.is_empty() || !statuses.iter().all(|status| (400..600).contains(status)) {
        return Err("a page is for statuses from 400 to 599");
    }
    let (status, target) = match &one.words[statuses.len()..] {
        [target] => (None, target),
        [status, target] => {
            let status = status.strip_prefix('=').and_then(|text| text.parse().ok());
            let status = status.filter(|status| (200..600).contains(status));
            (Some(status.ok_or("the status of another location is not sent")?), target)
        }
        _ => return Err("it has no page"),
    };
    if target.contains('$') {
        return Err("the page is not fixed");
    }
    let shown = if target.starts_with("http://") || target.starts_with("https://") {
        Shown::Redirect(target.clone())
    } else if target.starts_with('/') {
        Shown::File(
            file(target, scope, server, judges).ok_or("the page is not the file of a directory")?,
        )
    } else {
        return Err("no other location is asked for the page");
    };
    Ok(Page { at: one.at.clone(), statuses, shown, status })
}

/// The file of a path.
fn file(path: &str, scope: &Scope<'_>, server: &Server<'_>, judges: Judges<'_>) -> Option<String> {
    let all = server.directive.inner();
    if !judges.is_sent(path, None) {
        return None;
    }
    let inner = location(all, path).map_or(&[][..], Directive::inner);
    let of = |name| named(inner, name).last().map(|one| one.word(0));
    let root = || of("root").or_else(|| scope.get("root").map(|one| one.word(0)));
    let file = match of("alias") {
        Some(alias) => alias.to_owned(),
        None => format!("{}{path}", root()?.trim_end_matches('/')),
    };
    (file.starts_with('/') && !file.contains('$')).then_some(file)
}

/// Writes the pages into a route.
pub(super) fn write(pages: &[Page], scope: &Scope<'_>, section: &mut Section) {
    let intercepts = scope.is("proxy_intercept_errors", "on");
    for page in pages {
        let forwards = section.get("upstream").is_some();
        let one = section.below("route.error_page");
        one.set("statuses", Value::Counts(page.statuses.clone()), &page.at);
        match &page.shown {
            Shown::File(file) => one.set("answer_file", file.clone(), &page.at),
            Shown::Redirect(url) => one.set("redirect", url.clone(), &page.at),
        }
        let status = page.status.filter(|_| matches!(page.shown, Shown::File(_)));
        one.set_some("status", status.map(Value::Count), &page.at);
        let intercepts = (intercepts && forwards).then_some(true);
        one.set_some("intercept", intercepts, "proxy_intercept_errors");
    }
}
