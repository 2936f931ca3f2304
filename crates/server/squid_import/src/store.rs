//! What ports with `accel` store, and for how long. These settings belong to routes. A forward
//! listener has no routes, so they are not carried for it.

use std::time::Duration;

use super::Squid;
use super::access::NO_RULE;
use super::acl::Set;
use super::lines::{Line, time};
use imported::note::Place;
use imported::pattern::COOKIE_NAMES;
use imported::route::{Keys, Lifetime, add};
use imported::table::Becomes::{self, Carried, Different, Elsewhere, Left, Nothing};
use imported::tree::{Section, Value};

/// What the lines have said about the store.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    keys: Keys,
    /// Prefixes of paths that are not stored.
    without: Vec<String>,
    /// A pattern was not carried, so later patterns are not carried either.
    hidden: bool,
    /// A line that keeps responses out of the store.
    denied: Option<Place>,
    /// Lines that are carried only for ports with `accel`, with what becomes of them there.
    lines: Vec<(Line, Becomes)>,
}

const FORWARD: &str = "a forward listener stores what RFC 9111 allows, for as long as it says; \
                       where a line keeps something out of the store, it stores nothing";

/// The largest share of the memory that a stored body can have, as a divisor.
const OBJECT_SHARE_MAX: u64 = 1 << 20;

/// Statuses that `negative_ttl` is for.
const NEGATIVE: [&str; 9] = ["400", "403", "404", "405", "414", "500", "501", "502", "503"];

pub(crate) fn negative(squid: &mut Squid, line: &Line) -> Becomes {
    let Some(ttl) = time(&line.words) else { return Left("it is not a time") };
    if ttl.is_zero() {
        return USUAL;
    }
    let status = NEGATIVE.map(str::to_owned).to_vec();
    let one = Lifetime { status, ttl: Some(ttl), ..Lifetime::default() };
    squid.stored.keys.lifetimes.push(one);
    squid.stored.with_accel(line, Carried)
}

/// `refresh_pattern [-i] REGEX MIN PERCENT MAX OPTIONS`
pub(crate) fn refresh_pattern(squid: &mut Squid, line: &Line) -> Becomes {
    let stored = &mut squid.stored;
    let words: Vec<&str> = line.words.iter().map(String::as_str).filter(|w| *w != "-i").collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let without_percent = words.get(2) == Some(&"0%") || number(1) == number(3);
    match (&words[..], number(1)) {
        (["^ftp:" | "^gopher:", ..], _) => Nothing("this protocol is not spoken"),
        ([r"(/cgi-bin/|\?)", "0", "0%", "0"], _) => {
            stored.hidden = true;
            Different(
                "a response without a lifetime is fresh for a tenth of its age, also with a query",
            )
        }
        ([".", "0", "20%", "4320"], _) => Different(
            "a response without a lifetime is fresh for a tenth of its age, at most a day",
        ),
        ([".", ..], _) if stored.hidden => {
            Left("an earlier pattern that is not carried is asked first")
        }
        ([".", _, _, _, options @ ..], Some(minutes @ 1..=500_000))
            if without_percent && options.iter().all(|one| *one == "override-expire") =>
        {
            let (ttl, overrule) = (Duration::from_secs(minutes * 60), !options.is_empty());
            let one = Lifetime { ttl: Some(ttl), overrule, ..Lifetime::default() };
            stored.keys.lifetimes.push(one);
            let why = if overrule { "no-cache and max-age are overruled too" } else { "" };
            stored.with_accel(line, Becomes::differs(why))
        }
        _ => {
            stored.hidden = true;
            Left("lifetimes are by status and by content type, and are no share of an age")
        }
    }
}

/// `cache`, `store_miss` and `send_hit`: what is denied is not stored.
pub(crate) fn cache(squid: &mut Squid, line: &Line) -> Becomes {
    let Some(rule) = squid.rule(line, 0) else { return NO_RULE };
    let (parts, stored) = (rule.parts(), &mut squid.stored);
    if !rule.allow || !parts.is_empty() {
        stored.denied.get_or_insert_with(|| line.at.clone());
    }
    match (rule.allow, &parts[..]) {
        (true, []) => USUAL,
        (false, []) => {
            add(&mut stored.without, "/");
            stored.with_accel(line, Carried)
        }
        (false, [(false, Set::Paths(paths))]) => {
            paths.iter().for_each(|path| add(&mut stored.without, path.as_str()));
            stored.with_accel(line, Carried)
        }
        (false, [(false, Set::Cookies(names, exact))]) => {
            names.iter().for_each(|name| add(&mut stored.keys.bypass, name.as_str()));
            let why = if *exact { "" } else { COOKIE_NAMES };
            stored.with_accel(line, Becomes::differs(why))
        }
        // It would be stored here.
        (false, _) => {
            add(&mut stored.without, "/");
            Left("only paths and cookies keep a response out; ports with accel store nothing")
        }
        (true, _) => {
            add(&mut stored.without, "/");
            Left("only what is denied is carried")
        }
    }
}

const USUAL: Becomes = Nothing("it is so without a line");

impl Stored {
    /// A line becomes this if there are only ports with `accel`. The note is written at the end.
    fn with_accel(&mut self, line: &Line, becomes: Becomes) -> Becomes {
        self.lines.push((line.clone(), becomes));
        Elsewhere
    }

    /// Adds this to routes.
    pub(crate) fn apply(&self, routes: Vec<Section>) -> Vec<Section> {
        let mut all = Vec::new();
        for mut route in routes {
            let Some(prefix) = route.text("prefix").filter(|_| route.get("upstream").is_some())
            else {
                all.push(route);
                continue;
            };
            let prefix = prefix.to_owned();
            let off = |route: &mut Section| route.set("store", false, "cache deny");
            // A path below the route that is not stored becomes its own route.
            let below = self.without.iter().filter(|path| path.starts_with(&prefix));
            for path in below.filter(|path| **path != prefix) {
                let mut more = route.clone();
                more.set("prefix", path.as_str(), "cache deny");
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

impl Squid {
    /// A forward listener has no routes. So if the original keeps some responses out of the store,
    /// the store is made so small that only responses without content fit.
    pub(crate) fn store_nothing(&mut self, forward: bool) {
        let Some(at) = self.stored.denied.clone().filter(|_| forward) else { return };
        let store = self.tree.section("store");
        store.comment("No rule of the original about what is not stored was carried, so the store");
        store.comment("has no room: see the notes of the import. Then remove object_share below.");
        store.set("memory", Value::Bytes(OBJECT_SHARE_MAX), &at);
        let limits = self.tree.section("limits");
        limits.set("object_share", Value::Count(OBJECT_SHARE_MAX), &at);
    }

    /// Writes the notes of lines for ports with `accel`.
    pub(crate) fn stored_notes(&mut self, reverse: bool) {
        let is_carried = reverse && !self.has_port(false);
        for (line, becomes) in &self.stored.lines {
            let becomes = if is_carried { becomes } else { &Left(FORWARD) };
            self.notes.became(&line.at, becomes);
        }
    }
}
