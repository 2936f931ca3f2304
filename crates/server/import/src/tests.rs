//! What the tests of all languages use.

mod caddy;
mod everyday_vcl;
mod haproxy;
mod squid;
mod vcl;

use crate::{Fate, Imported, Note, Options, Source};

/// Imports a text. The imported file is read by the server's own reader.
pub(crate) fn imported(source: Source, name: &str, text: &str, open: bool) -> Imported {
    let options = Options { open };
    let file = |name: &str, text: &str| {
        Ok(vec![crate::Included { name: name.to_owned(), text: text.to_owned() }])
    };
    let mut read = |name: &str| match name {
        "/domains" => file(name, "# ours\n.example.net\n"),
        "/page.html" | "/users" => file(name, ""),
        _ => Err(format!("{name} cannot be read")),
    };
    let imported = crate::import(source, name, text, options, &mut read);
    let imported = imported.unwrap_or_else(|error| panic!("{error}"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plimsoll.toml");
    let here = imported.configuration.replace("\"/users\"", "\"users\"");
    std::fs::write(&file, here.replace("file = \"/page.html\"", "file = \"page\"")).unwrap();
    std::fs::write(dir.path().join("page"), "sorry").unwrap();
    let hash = "$2y$04$Eoj8yU1OeQpN5XYtx0VtNeKMZ9tpE7bXu38BZbhPEMxcosd6e2VAS";
    std::fs::write(dir.path().join("users"), format!("jo:{hash}\n")).unwrap();
    std::fs::write(dir.path().join("a.login"), "jo:secret\n").unwrap();
    if let Err(unusable) = config::Settings::read(&file) {
        panic!("{unusable}\n{}", imported.configuration);
    }
    imported
}

pub(crate) fn has(imported: &Imported, line: &str) {
    assert!(imported.configuration.contains(line), "no {line} in {}", imported.configuration);
}

pub(crate) fn lacks(imported: &Imported, line: &str) {
    assert!(!imported.configuration.contains(line), "{line} in {}", imported.configuration);
}

/// The fate of the directive whose note begins like this.
pub(crate) fn fate(imported: &Imported, directive: &str) -> Fate {
    note(imported, directive).fate
}

/// The reason of its note.
pub(crate) fn why<'i>(imported: &'i Imported, directive: &str) -> &'i str {
    &note(imported, directive).why
}

fn note<'i>(imported: &'i Imported, directive: &str) -> &'i Note {
    let found = imported.notes.iter().find(|note| note.directive.starts_with(directive));
    found.unwrap_or_else(|| panic!("no note of {directive}: {:#?}", imported.notes))
}

/// Routes beyond the limit were left out, and requests for a closed location found another one.
#[test]
fn more_routes_than_fit_close_all() {
    let file = |locations: usize| {
        let inner: String =
            (0..locations).map(|at| format!("location /{at}/ {{ deny all; }}\n")).collect();
        format!(
            "http {{ server {{ listen 127.0.0.1:80; location / {{ proxy_pass http://b; }}\n{inner} }} }}"
        )
    };
    let upstream = "\nupstream = ";
    has(&imported(Source::Nginx, "f", &file(9), false), upstream);
    let full = imported(Source::Nginx, "f", &file(imported::limits::ROUTES_MAX), false);
    lacks(&full, upstream);
    let last = format!("location /{}/", imported::limits::ROUTES_MAX - 1);
    assert_eq!(fate(&full, &last), Fate::Unprotected);
}
