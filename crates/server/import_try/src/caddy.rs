//! What a Caddyfile suggests: its addresses, its paths and its upstreams.
//!
//! Both servers are asked in the clear, because no authority issues a certificate in a sandbox. So
//! the file is changed before both of them get it: nothing is obtained, and nothing is redirected
//! to https. A site with a name is then on port 443, without TLS.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use import::{Imported, Options, Source};
use toml::{Table, Value};

use crate::Failed;
use crate::inputs::{Original, Paths, Upstreams};
use crate::plan::{Base, Plan};

/// Places that are asked, at most.
const BASES_MAX: usize = 60;

/// The global options of both servers.
const OPTIONS: [&str; 3] = ["admin off", "auto_https off", "https_port 1"];
/// Lines that a sandbox has no use for.
const DROPPED: [&str; 13] = [
    "https_port",
    "admin",
    "auto_https",
    "acme_dns",
    "acme_ca",
    "acme_ca_root",
    "email",
    "local_certs",
    "skip_install_trust",
    "on_demand_tls",
    "tls",
    "storage",
    "debug",
];

/// The file without TLS, and what is imported from it. Both keep the numbers of the lines.
///
/// # Errors
/// The changed file cannot be read.
pub(crate) fn plain(original: &Original, options: Options) -> Result<(Original, Imported), Failed> {
    let (text, added) = changed(&original.text);
    let mut changed_ = Original { text, ..original.clone() };
    for file in changed_.files.values_mut().flatten() {
        file.text = dropped(&file.text);
    }
    let mut read = |name: &str| match changed_.files.get(name) {
        Some(files) => Ok(files.clone()),
        None => Err("it was not read before".to_owned()),
    };
    let name = &original.name;
    let imported = import::import(Source::Caddy, name, &changed_.text, options, &mut read);
    let mut imported = imported.map_err(|error| Failed::Server(error.to_string()))?;
    for note in imported.notes.iter_mut().filter(|note| note.file == *name) {
        note.line = note.line.saturating_sub(added).max(1);
    }
    Ok((changed_, imported))
}

/// A text with the global options, and how many lines were added at its start.
fn changed(text: &str) -> (String, usize) {
    let text = dropped(text);
    let is_blank = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let first = text.lines().find(|line| !is_blank(line)).map(str::trim);
    let options = OPTIONS.map(|one| format!("{one}\n")).concat();
    match first {
        Some("{") => {
            let at = text.find('{').map_or(0, |at| at + 1);
            let (before, after) = text.split_at(at);
            (
                format!("{before}\n{options}{}", after.strip_prefix('\n').unwrap_or(after)),
                OPTIONS.len(),
            )
        }
        _ => (format!("{{\n{options}}}\n{text}"), OPTIONS.len() + 2),
    }
}

/// A text whose lines for TLS are empty, with their blocks.
fn dropped(text: &str) -> String {
    let (mut out, mut depth) = (String::new(), 0_usize);
    let (mut level, mut continued, mut first) = (0_usize, false, true);
    for line in text.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        let opens = line.trim_end().ends_with(" {");
        if depth > 0 {
            depth = (depth + usize::from(opens)).saturating_sub(usize::from(word == "}"));
        } else if DROPPED.contains(&word) {
            depth = usize::from(opens);
        } else if level == 0 && (opens || continued || first) && is_address(word) {
            let words: Vec<String> = line.split_whitespace().map(in_the_clear).collect();
            out.push_str(&words.join(" "));
            (continued, first) = (line.trim_end().ends_with(','), false);
            // A file with one site can have no braces around it.
            level += usize::from(opens || !continued);
        } else {
            out.push_str(line);
            level = (level + usize::from(opens || line.trim() == "{"))
                .saturating_sub(usize::from(word == "}"));
        }
        out.push('\n');
    }
    out
}

/// Whether a line outside all blocks has the addresses of a site.
fn is_address(word: &str) -> bool {
    !word.is_empty() && !word.starts_with(['(', '{', '}', '#', '&', '@']) && word != "import"
}

/// An address with its port, and without TLS.
fn in_the_clear(word: &str) -> String {
    let (key, end) = word.split_at(word.trim_end_matches(',').len());
    if matches!(key, "{" | "") || key.starts_with("http://") {
        return word.to_owned();
    }
    let key = key.strip_prefix("https://").unwrap_or(key);
    let (host, path) = key.split_at(key.find('/').unwrap_or(key.len()));
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let port = if has_port { "" } else { ":443" };
    format!("http://{host}{port}{path}{end}")
}

/// The plan for a Caddyfile.
pub(crate) fn plan(original: &Original, toml: &Table, program: &Path) -> (Plan, Upstreams, Paths) {
    let (mut plan, mut upstreams, mut paths): (Plan, Upstreams, Paths) = Default::default();
    // The listeners of our file are in the clear, or are not asked.
    let tables = |name: &str| toml.get(name).and_then(Value::as_array).into_iter().flatten();
    let address = |table: &Value| table.get("address")?.as_str()?.rsplit_once(':')?.1.parse().ok();
    let ports: BTreeSet<u16> =
        tables("listen").filter(|table| table.get("tls").is_none()).filter_map(address).collect();
    let included = original.files.values().flatten();
    let included = included.map(|file| (file.name.clone(), file.text.clone()));
    let all = [(original.name.clone(), original.text.clone())].into_iter().chain(included);
    let mut bases: Vec<Base> = Vec::new();
    for (name, text) in all {
        let added = if name == original.name { changed_by(&text) } else { 0 };
        let (mut depth, mut sites): (usize, Vec<(u16, String)>) = (0, Vec::new());
        for (line, text) in (1..).zip(text.lines()) {
            let words: Vec<&str> =
                text.split_whitespace().take_while(|w| !w.starts_with('#')).collect();
            let place =
                Some((name.clone(), line - added.min(line - 1), line - added.min(line - 1)));
            let is_site = depth == 0 && !words.first().is_none_or(|word| word.starts_with('('));
            if is_site && words != ["{"] {
                let found: Vec<(u16, String)> =
                    words.iter().filter_map(|word| site(word.trim_end_matches(','))).collect();
                if !found.is_empty() {
                    sites = found;
                }
                for (port, host) in sites.iter().filter(|(port, _)| ports.contains(port)) {
                    bases.push(base(*port, host, "/", place.clone()));
                }
            }
            by_line(&words, &mut upstreams, &mut paths);
            for path in words.iter().skip(1).filter(|word| is_path(word, words[0])) {
                let path = path.replace('*', "try");
                for (port, host) in sites.iter().filter(|(port, _)| ports.contains(port)).take(1) {
                    bases.push(base(*port, host, &path, place.clone()));
                }
            }
            depth += usize::from(words.last() == Some(&"{"));
            depth = depth.saturating_sub(usize::from(words.first() == Some(&"}")));
        }
    }
    for port in &ports {
        bases.push(base(*port, "other.example", "/", None));
    }
    bases.dedup_by(|one, other| {
        one.host == other.host && one.path == other.path && one.to == other.to
    });
    plan.unasked = bases.split_off(bases.len().min(BASES_MAX)).iter().map(Base::shown).collect();
    plan.unasked.push("certificates, and redirects to https".to_owned());
    plan.job.listens = bases.iter().map(|base| base.to).collect();
    plan.job.listens.dedup();
    plan.bases = bases;
    plan.job.files.push((original.path.clone(), original.text.clone().into_bytes()));
    let file = original.path.display().to_string();
    let home = ["HOME=/try", "XDG_DATA_HOME=/try", "XDG_CONFIG_HOME=/try"];
    let program = program.display().to_string();
    let arguments = [&program, "run", "--adapter", "caddyfile", "--config", &file];
    plan.job.program = Some(PathBuf::from("/usr/bin/env"));
    plan.job.arguments = home.into_iter().chain(arguments).map(str::to_owned).collect();
    paths.prefix = PathBuf::from("/try");
    (plan, upstreams, paths)
}

/// The lines that were added to a text.
fn changed_by(text: &str) -> usize {
    let is_first = text.starts_with(&format!("{{\n{}", OPTIONS[0]));
    let whole = OPTIONS.map(|one| format!("{one}\n")).concat();
    let is_alone = is_first && text.starts_with(&format!("{{\n{whole}}}\n"));
    OPTIONS.len() + if is_alone { 2 } else { 0 }
}

/// The port and a host of an address of a site, without TLS.
fn site(key: &str) -> Option<(u16, String)> {
    let (scheme, rest) = key.split_once("://").unwrap_or(("", key));
    let rest = rest.split('/').next()?;
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (rest, if scheme == "http" { 80 } else { 443 }),
    };
    let fits = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.*".contains(&b));
    let host = if host.is_empty() { "any.example".to_owned() } else { host.replace('*', "any") };
    (fits && (rest.contains('.') || rest.contains(':') || host == "localhost"))
        .then_some((port, host))
}

fn is_path(word: &str, name: &str) -> bool {
    let others = ["root", "output", "import", "import_try", "hide", "tls", "unix"];
    let is_text = word.bytes().all(|b| b.is_ascii_graphic() && !b"{}\"'`^$()[]?\\".contains(&b));
    (word.starts_with('/') || word.starts_with("*.")) && is_text && !others.contains(&name)
}

fn base(port: u16, host: &str, path: &str, place: Option<crate::job::Place>) -> Base {
    let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let is_prefix = path.ends_with('/');
    Base { to, tls: false, host: host.to_owned(), path, is_prefix, place }
}

fn by_line(words: &[&str], upstreams: &mut Upstreams, paths: &mut Paths) {
    match words {
        ["reverse_proxy" | "forward_auth" | "php_fastcgi" | "to", rest @ ..] => {
            for word in
                rest.iter().filter(|word| **word != "{" && !word.starts_with(['/', '@', '*']))
            {
                match word.strip_prefix("unix/") {
                    Some(path) => upstreams.add_socket(path),
                    None if word.contains("://") => upstreams.add_url(word),
                    None if word.starts_with(':') => {
                        upstreams.add_host(&format!("127.0.0.1{word}"), 80)
                    }
                    None => upstreams.add_host(word, 80),
                }
            }
        }
        ["root", .., path] if path.starts_with('/') => paths.read.push(PathBuf::from(path)),
        ["output", "file", path, ..] => paths.written.push(PathBuf::from(path)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_asked_in_the_clear() {
        let head = "# x\n{\n\temail a@b.example\n\torder a before b\n}\n";
        let block = "a.example {\n\ttls {\n\t\tdns\n\t}\n\treverse_proxy /api/* app:8000\n}\n";
        let text = &format!("{head}{block}");
        let (changed, added) = changed(text);
        assert_eq!(added, 3);
        assert!(changed.contains("{\nadmin off\nauto_https off\nhttps_port 1\n"), "{changed}");
        assert!(!changed.contains("dns") && changed.contains("order a before b"), "{changed}");
        assert_eq!(changed.lines().count(), text.lines().count() + 3);
        let original = Original {
            name: "Caddyfile".to_owned(),
            path: PathBuf::from("/a/Caddyfile"),
            text: text.clone(),
            files: crate::words::Files::new(),
        };
        let (original, imported) = plain(&original, Options::default()).unwrap();
        let toml = imported.configuration.parse().unwrap();
        let (planned, upstreams, _) = plan(&original, &toml, Path::new("/usr/bin/caddy"));
        let of = |base: &Base| format!("{}{}:{}", base.host, base.path, base.to.port());
        let bases: Vec<String> = planned.bases.iter().map(of).collect();
        let wanted = ["a.example/:443", "a.example/api/try:443", "other.example/:443"];
        assert_eq!(bases, wanted);
        assert_eq!(planned.bases[1].place.as_ref().map(|place| place.1), Some(10));
        assert!(upstreams.ports.contains(&8000));
        assert_eq!(site("{$DOMAIN}"), None);
        let dropped = dropped("a.example\nroot * /srv\ntemplates {\n}\n");
        assert_eq!(dropped, "http://a.example:443\nroot * /srv\ntemplates {\n}\n");
        assert_eq!(in_the_clear("https://a.example/b,"), "http://a.example:443/b,");
        assert_eq!(in_the_clear(":8080"), "http://:8080");
    }
}
