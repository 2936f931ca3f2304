//! Which location nginx finds for the path of a page or of an index: nginx looks for one again, and
//! asks the conditions of the server again.

use super::blocks::{Directive, named};
use super::conditions::{self, Tests};
use super::{rules, table};
use imported::cel::Expressions;
use imported::pattern::starts;

/// Endings of files that no program makes.
const PLAIN: &[&str] = &["html", "htm", "xhtml", "txt", "json", "xml", "svg"];

/// The most directories in which an index is looked for.
const DIRECTORIES_MAX: usize = 1024;

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

/// What is asked again for a file.
#[derive(Clone, Copy)]
pub(super) struct Judges<'d> {
    pub(super) server: &'d [Directive],
    pub(super) tests: &'d Tests,
    pub(super) expressions: &'d Expressions,
    pub(super) places: &'d Places,
}

/// Paths that the locations and the conditions of a server name.
#[derive(Debug, Default)]
pub(super) struct Places {
    texts: Vec<String>,
    /// Directories whose index a location or a condition may take, and others. They are sorted.
    directories: Vec<String>,
}

impl Places {
    pub(super) fn of(server: &[Directive]) -> Places {
        let texts = texts(server);
        let mut directories = vec!["/".to_owned(), "/x/".to_owned()];
        for text in &texts {
            let (directory, _) = text.rsplit_once('/').unwrap_or_default();
            let below = text.trim_end_matches('/');
            directories.extend([
                format!("{directory}/"),
                format!("{below}/"),
                format!("{below}/x/"),
            ]);
        }
        directories.sort_unstable();
        directories.dedup();
        Places { texts, directories }
    }

    /// The directories that begin with this text.
    fn below<'p>(&'p self, start: &'p str) -> impl Iterator<Item = &'p String> {
        let first = self.directories.partition_point(|one| one.as_str() < start);
        self.directories[first..].iter().take_while(move |one| one.starts_with(start))
    }
}

impl<'d> Judges<'d> {
    /// Whether the file of this path is sent as it is by the location that nginx finds for it.
    /// `own`: the location that leads to it.
    pub(super) fn is_sent(&self, path: &str, own: Option<&[Directive]>) -> bool {
        !path.ends_with('/') && is_plain(path) && !self.take(path, own)
    }

    /// Whether another location than `own`, or a condition of the server, may take the index of
    /// this name in a directory of `own`. The paths of `own` begin with `start`.
    pub(super) fn take_index(&self, name: &str, own: &[Directive], start: &str) -> bool {
        let mut directories = self.places.below(start);
        let is_own = |directory: &String| {
            let found = self.locations(directory);
            let is_it = |one: &&Directive| std::ptr::eq(one.inner(), own);
            let finds =
                found.iter().any(is_it) || found.is_empty() && std::ptr::eq(self.server, own);
            finds && !self.server.iter().any(|one| self.holds(one, directory) == Some(true))
        };
        let takes = |one: &String| is_own(one) && self.take(&format!("{one}{name}"), Some(own));
        directories.by_ref().take(DIRECTORIES_MAX).any(takes) || directories.next().is_some()
    }

    /// Whether a file of a path with this ending may be taken.
    pub(super) fn take_ending(&self, ending: &str, own: &[Directive]) -> bool {
        let of_texts = self.places.texts.iter().filter(|text| text.ends_with(ending)).cloned();
        let others = self.places.directories.iter().map(|one| format!("{one}x{ending}"));
        let mut all = of_texts.chain(others);
        let takes = |path: String| self.take(&path, Some(own));
        all.by_ref().take(DIRECTORIES_MAX).any(takes) || all.next().is_some()
    }

    /// Whether another location than `own`, or a condition of the server, may do more with a path.
    fn take(&self, path: &str, own: Option<&[Directive]>) -> bool {
        let is_own = |one: &Directive| own.is_some_and(|own| std::ptr::eq(one.inner(), own));
        // Another directory has another file. A page has the directory of its location.
        let is_elsewhere = |one: &Directive| {
            own.is_some() && one.inner().iter().any(|one| matches!(&*one.name, "root" | "alias"))
        };
        let takes = |one: &&Directive| !is_own(one) && (does_more(one) || is_elsewhere(one));
        let answers = |one: &Directive| self.holds(one, path) != Some(false);
        self.locations(path).iter().any(takes) || self.server.iter().any(answers)
    }

    /// The locations that nginx may find for a path: several, if it is unknown whether an
    /// expression matches.
    fn locations(&self, path: &str) -> Vec<&'d Directive> {
        let mut found = Vec::new();
        let (last, _) = self.found_below(self.server, path, &mut found);
        found.extend(last);
        found
    }

    /// The location of a level, or below it, that nginx finds for a path, and whether nginx
    /// compares no expressions of outer levels. `perhaps`: locations that nginx may find before.
    fn found_below(
        &self,
        level: &'d [Directive],
        path: &str,
        perhaps: &mut Vec<&'d Directive>,
    ) -> (Option<&'d Directive>, bool) {
        let place = location(level, path);
        if place.is_some_and(|one| one.word(0) == "=") {
            return (place, true);
        }
        let below = place.map(|place| self.found_below(place.inner(), path, perhaps));
        let (inside, is_final) = below.unwrap_or_default();
        let inside = inside.or(place);
        if is_final || place.is_some_and(|one| one.word(0) == "^~") {
            return (inside, is_final);
        }
        for one in named(level, "location").filter(|one| one.word(0).starts_with('~')) {
            match conditions::holds(self.expressions, one.word(0), one.word(1), path) {
                Some(true) => {
                    return (self.found_below(one.inner(), path, perhaps).0.or(Some(one)), true);
                }
                Some(false) => {}
                None => perhaps.push(one),
            }
        }
        (inside, false)
    }

    /// Whether a condition or a rewrite of the server answers a request because of this path.
    /// `None`: this is unknown.
    fn holds(&self, block: &Directive, path: &str) -> Option<bool> {
        if block.name == "rewrite" {
            return self.expressions.is_match(block.word(0), path);
        }
        // A condition that is not carried closes the server.
        let answer = rules::answer(block).filter(|_| block.name == "if");
        let found = answer.and_then(|_| conditions::of_if(block, self.tests, None));
        if !found.is_some_and(|(found, _)| found.text().contains("path")) {
            return Some(false);
        }
        let [variable, sign, text] = &block.words[..] else { return None };
        if !matches!(variable.as_str(), "($uri" | "($document_uri") {
            return None;
        }
        let text = text.strip_suffix(')').unwrap_or(text);
        let plain = sign.trim_start_matches('!');
        let holds = conditions::holds(self.expressions, plain, text, path);
        holds.map(|holds| holds != sign.starts_with('!'))
    }
}

/// The texts of paths in locations and conditions, at all levels.
fn texts(all: &[Directive]) -> Vec<String> {
    let mut found = Vec::new();
    for one in all {
        match (one.name.as_str(), &one.words[..]) {
            ("location", [sign, pattern]) if sign.starts_with('~') => {
                found.extend(starts(pattern));
            }
            ("location", [.., path]) => found.push(path.clone()),
            ("if" | "rewrite", words) => {
                let words = words.iter().map(|word| word.trim_end_matches(')'));
                found.extend(words.flat_map(|word| match word.starts_with('/') {
                    true => vec![word.to_owned()],
                    false => starts(word),
                }));
            }
            _ => {}
        }
        if one.name == "location" {
            found.extend(texts(one.inner()));
        }
    }
    found.retain(|text| text.starts_with('/'));
    found
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
