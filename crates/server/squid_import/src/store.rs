//! Which responses are stored, and for how long. Those that ports with `accel` do not store belong
//! to routes. A forward listener has no routes, so that is not carried for it.

use std::time::Duration;

use super::Squid;
use super::access::NO_RULE;
use super::acl::Set;
use super::lines::{Line, time};
use super::url;
use conditions::Lists;
use imported::cel::{self, Cel, PARTS_MAX, check_response};
use imported::limits::PATTERNS_MAX;
use imported::note::{Fate, Place};
use imported::pattern::COOKIE_NAMES;
use imported::route::{Keys, Lifetime, add};
use imported::table::Becomes::{self, Carried, Different, Elsewhere, Left, Nothing, Text};
use imported::tree::{Section, Value};

/// What the lines have said about the store.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    keys: Keys,
    /// What patterns match that say nothing about a lifetime.
    without_lifetime: Vec<Cel>,
    /// Prefixes of paths that are not stored.
    without: Vec<String>,
    /// A pattern was not carried, so later patterns are not carried either.
    hidden: bool,
    /// A pattern matches everything.
    is_over: bool,
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
    Carried
}

/// The longest lifetime, in minutes.
const MINUTES_MAX: u64 = 8784 * 60;

/// `refresh_pattern [-i] REGEX MIN PERCENT MAX OPTIONS`. The first pattern that matches decides for
/// responses without a stated lifetime: with Last-Modified they are fresh for a percentage of their
/// age, and otherwise for MIN; never for longer than MAX.
pub(crate) fn refresh_pattern(squid: &mut Squid, line: &Line) -> Becomes {
    let ignores_case = line.word(0) == "-i";
    let words: Vec<&str> =
        line.rest(usize::from(ignores_case)).iter().map(String::as_str).collect();
    let [pattern, min, percent, max, options @ ..] = &words[..] else {
        return Left("it lacks numbers");
    };
    let number = |text: &str| text.trim_end_matches('%').parse::<u64>().ok();
    let (Some(min), Some(percent), Some(max)) = (number(min), number(percent), number(max)) else {
        return Left("it has something that is not a number");
    };
    if ["^ftp:", "^gopher:"].contains(pattern) {
        return Nothing("this protocol is not spoken");
    }
    let stored = &mut squid.stored;
    if stored.is_over {
        return Nothing("an earlier pattern matches everything");
    }
    if stored.hidden {
        return Left("an earlier pattern that is not carried is asked first");
    }
    // Those of an earlier pattern without a lifetime have none by this pattern, either.
    let mut parts: Vec<Cel> = stored.without_lifetime.iter().cloned().map(Cel::negated).collect();
    let found = match *pattern {
        "." | ".*" => None,
        text => {
            let ours = url::posix(text, ignores_case);
            match ours.and_then(|text| cel::matches("url", &text)) {
                Some(found) => Some(found),
                None => {
                    stored.hidden = true;
                    return Left("its expression means something else here, or is none");
                }
            }
        }
    };
    parts.extend(found.clone());
    let when = Cel::all(parts).filter(|_| stored.without_lifetime.len() < PARTS_MAX);
    let fits = when.as_ref().is_none_or(|when| check_response(when, &Lists::default()).is_some());
    if !fits || min > MINUTES_MAX || stored.keys.lifetimes.len() >= PATTERNS_MAX {
        stored.hidden = true;
        return Left("it is more than a condition can say");
    }
    let is_never = min == 0 && (percent == 0 || max == 0);
    if min == 0 && !is_never {
        match found {
            Some(found) => stored.without_lifetime.push(found),
            None => stored.is_over = true,
        }
        return Different(SHARE);
    }
    stored.is_over = found.is_none();
    let has = |option: &str| options.contains(&option);
    let one = Lifetime {
        when,
        ttl: Some(Duration::from_secs(min.min(max) * 60)),
        overrule: has("override-expire") && !is_never,
        ..Lifetime::default()
    };
    stored.keys.lifetimes.push(one);
    let is_share = !is_never && !has("override-lastmod");
    let all = [
        (has("override-expire"), OVERRULED),
        (options.iter().any(|one| !KNOWN.contains(one)), OPTIONS),
        (is_share, "a response with Last-Modified is fresh for this time, too"),
        (pattern.contains('%'), "its condition compares the decoded URL"),
        (!is_never, "some responses are fresh that Squid asks for again (docs/import.md)"),
    ];
    let all: Vec<&str> = all.iter().filter(|(is, _)| *is).map(|(_, why)| *why).collect();
    if all.is_empty() { Carried } else { Text(Fate::Different, all.join("; ")) }
}

const OVERRULED: &str = "no-cache, s-maxage=0, a past Expires and a longer max-age are overruled";

/// A pattern without a least time.
const SHARE: &str = "a response without a lifetime is fresh for a tenth of its age, at most a day";
const KNOWN: [&str; 4] = ["override-expire", "override-lastmod", "reload-into-ims", "store-stale"];
const OPTIONS: &str =
    "no-store, private and must-revalidate are respected, and a client may reload";

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

    /// Writes how long the responses of a forward listener are fresh.
    pub(crate) fn apply_forward(&self, forward: &mut Section) {
        self.keys.write_lifetimes(forward, "forward.lifetime", "refresh_pattern, negative_ttl");
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
