//! What ports with `accel` store, and for how long. A forward listener has no routes, so nothing of
//! this is carried for it.

use std::time::Duration;

use super::Squid;
use super::access::is_everyone;
use super::acl::Set;
use super::lines::{Line, time};
use crate::note::{Fate, Place};
use crate::pattern::COOKIE_NAMES;
use crate::route::{Keys, Lifetime, add};
use crate::tree::{Section, Value};

/// What the lines have said about the store.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    keys: Keys,
    /// Prefixes of paths that are not stored.
    without: Vec<String>,
    /// A pattern was not carried. It decides before those after it.
    hidden: bool,
    /// A line that keeps responses out of the store.
    denied: Option<Place>,
    /// Lines that only ports with `accel` have, with what becomes of them there.
    lines: Vec<(Line, Fate, &'static str)>,
}

const FORWARD: &str = "a forward listener stores what RFC 9111 allows, for as long as it says; \
                       where a line keeps something out of the store, it stores nothing";

/// The largest share of the memory that a stored body can have, as a divisor.
const OBJECT_SHARE_MAX: u64 = 1 << 20;

/// Statuses that `negative_ttl` is for.
const NEGATIVE: [&str; 9] = ["400", "403", "404", "405", "414", "500", "501", "502", "503"];

pub(crate) fn negative(squid: &mut Squid<'_>, line: &Line) {
    match time(&line.words) {
        Some(ttl) if ttl.is_zero() => squid.notes.nothing(&line.at, "it is so without a line"),
        Some(ttl) => {
            let status = NEGATIVE.map(str::to_owned).to_vec();
            let one = Lifetime { status, ttl: Some(ttl), ..Lifetime::default() };
            squid.stored.keys.lifetimes.push(one);
            squid.stored.lines.push((line.clone(), Fate::Carried, ""));
        }
        None => squid.notes.left(&line.at, "it is not a time"),
    }
}

/// `refresh_pattern [-i] REGEX MIN PERCENT MAX OPTIONS`
pub(crate) fn refresh_pattern(squid: &mut Squid<'_>, line: &Line) {
    let words: Vec<&str> = line.words.iter().map(String::as_str).filter(|w| *w != "-i").collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let without_percent = words.get(2) == Some(&"0%") || number(1) == number(3);
    match (&words[..], number(1)) {
        (["^ftp:" | "^gopher:", ..], _) => {
            squid.notes.nothing(&line.at, "this protocol is not spoken");
        }
        ([r"(/cgi-bin/|\?)", "0", "0%", "0"], _) => {
            squid.stored.hidden = true;
            let text = "a response without a lifetime is fresh for a tenth of its age, also with a \
                        query";
            squid.notes.different(&line.at, text);
        }
        ([".", "0", "20%", "4320"], _) => {
            let text = "a response without a lifetime is fresh for a tenth of its age, at most a \
                        day";
            squid.notes.different(&line.at, text);
        }
        ([".", ..], _) if squid.stored.hidden => {
            squid.notes.left(&line.at, "an earlier pattern that is not carried is asked first");
        }
        ([".", _, _, _, options @ ..], Some(minutes @ 1..=500_000))
            if without_percent && options.iter().all(|one| *one == "override-expire") =>
        {
            let (ttl, overrule) = (Duration::from_secs(minutes * 60), !options.is_empty());
            let one = Lifetime { ttl: Some(ttl), overrule, ..Lifetime::default() };
            squid.stored.keys.lifetimes.push(one);
            let (fate, why) = match overrule {
                true => (Fate::Different, "no-cache and max-age are overruled too"),
                false => (Fate::Carried, ""),
            };
            squid.stored.lines.push((line.clone(), fate, why));
        }
        _ => {
            squid.stored.hidden = true;
            let text = "lifetimes are by status and by content type, and are no share of an age";
            squid.notes.left(&line.at, text);
        }
    }
}

/// `cache`, `store_miss` and `send_hit`: what is denied is not stored.
pub(crate) fn cache(squid: &mut Squid<'_>, line: &Line) {
    let Some(rule) = squid.rule(line, 0) else {
        return squid.notes.left(&line.at, "a rule begins with allow or deny");
    };
    let literals: Vec<_> = rule.literals.iter().filter(|one| !is_everyone(one)).collect();
    let stored = &mut squid.stored;
    if !rule.allow || !literals.is_empty() {
        stored.denied.get_or_insert_with(|| line.at.clone());
    }
    let mut carried = |fate, why| stored.lines.push((line.clone(), fate, why));
    match (rule.allow, &literals[..]) {
        (true, []) => squid.notes.nothing(&line.at, "it is so without a line"),
        (false, []) => {
            carried(Fate::Carried, "");
            add(&mut stored.without, "/");
        }
        (false, [(false, Set::Paths(paths))]) => {
            carried(Fate::Carried, "");
            paths.iter().for_each(|path| add(&mut stored.without, path.as_str()));
        }
        (false, [(false, Set::Cookies(names, exact))]) => {
            match exact {
                true => carried(Fate::Carried, ""),
                false => carried(Fate::Different, COOKIE_NAMES),
            }
            names.iter().for_each(|name| add(&mut stored.keys.bypass, name.as_str()));
        }
        // It would be stored here.
        (false, _) => {
            add(&mut stored.without, "/");
            let text = "only paths and cookies keep a response out; ports with accel store nothing";
            squid.notes.left(&line.at, text);
        }
        (true, _) => {
            add(&mut stored.without, "/");
            squid.notes.left(&line.at, "only what is denied is carried");
        }
    }
}

impl Stored {
    /// Adds this to routes.
    pub(crate) fn apply(&self, routes: Vec<Section>) -> Vec<Section> {
        let mut all = Vec::new();
        for mut route in routes {
            let prefix = match route.get("prefix") {
                Some(Value::Text(prefix)) if route.get("upstream").is_some() => prefix.clone(),
                _ => {
                    all.push(route);
                    continue;
                }
            };
            let off = |route: &mut Section| route.set_for("store", false, "cache deny");
            // What is below it, and is not stored, is another route.
            let below = self.without.iter().filter(|path| path.starts_with(&prefix));
            for path in below.filter(|path| **path != prefix) {
                let mut more = route.clone();
                more.set_for("prefix", path.as_str(), "cache deny");
                off(&mut more);
                all.push(more);
            }
            match self.without.iter().any(|path| prefix.starts_with(path)) {
                true => off(&mut route),
                false => self.keys.write(&mut route, "cache, negative_ttl, refresh_pattern"),
            }
            all.push(route);
        }
        all
    }
}

impl Squid<'_> {
    /// A forward listener has no routes. So where some responses are not stored there, none are
    /// here: the store is made so small that only responses without content fit.
    pub(crate) fn store_nothing(&mut self, forward: bool) {
        let Some(at) = self.stored.denied.clone().filter(|_| forward) else { return };
        let store = self.tree.section("store");
        store.comment("No rule of the original about what is not stored was carried, so the store");
        store.comment("has no room: see the notes of the import. Then remove object_share below.");
        store.set("memory", Value::Bytes(OBJECT_SHARE_MAX), &at);
        let limits = self.tree.section("limits");
        limits.set("object_share", Value::Count(OBJECT_SHARE_MAX), &at);
    }

    /// The notes of what is for ports with `accel` only.
    pub(crate) fn stored_notes(&mut self, reverse: bool) {
        let forward = self.ports.iter().any(|port| !port.accel);
        for (line, fate, why) in std::mem::take(&mut self.stored.lines) {
            match (reverse, forward) {
                (true, false) => self.notes.add(&line.at, fate, why),
                _ => self.notes.left(&line.at, FORWARD),
            }
        }
    }
}
