//! The rules of a history. Each is a function of the history alone, which may say less than it
//! could where the history does not show what was stored, but never says what is not so.
//!
//! What is known of the store comes from the clients: when a client has got a whole response that
//! may be stored, it is stored ([`Known`]), until something that the history shows may have removed
//! it. The proxy's own word (`Cache-Status`) is used only for "this came from the store".

use std::fmt::Write;

use super::client::{Kind, What};
use super::{
    Answer, Fault, Fetch, Got, History, Micros, NEVER, OBJECT_BYTES_MAX, Policy, Purge, Ranges,
    Request, SECOND, Validator, WINDOW_BYTES,
};

/// A request is at the proxy, or a fetch at the origin, so long after it was sent at most.
const SKEW: Micros = SECOND / 2;
/// What the network takes, and a processor with nothing to do.
const TRAVEL: Micros = 2 * SECOND;

/// A rule that a history breaks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) rule: &'static str,
    url: usize,
    at: Micros,
    text: String,
}

/// A response that is in the store.
struct Known {
    url: usize,
    variant: u8,
    version: u32,
    /// When the exchange began that brought it.
    asked: Micros,
    /// When the origin was asked for it.
    fetched: Micros,
    /// From when on the history shows it.
    known: Micros,
    /// Until when it is fresh, at least.
    fresh_until: Micros,
}

/// How much of a history is printed before and after a violation.
const BEFORE: Micros = 12 * SECOND;
const AFTER: Micros = 4 * SECOND;

/// All violations, and what happened around the first of each rule; `None` if there are none.
pub(super) fn report(history: &History) -> Option<String> {
    let violations = violations(history);
    let mut text = format!("with a disk: {}\n", history.has_disk);
    for (at, Violation { rule, url, at: when, text: what }) in violations.iter().enumerate() {
        let _ = writeln!(text, "BROKEN: {rule}: /{url} at {}: {what}", seconds(*when));
        if violations[..at].iter().any(|earlier| earlier.rule == *rule) {
            continue;
        }
        let _ = writeln!(text, "    /{url}: {:?}", history.policies[*url]);
        for (began, line) in lines(history, *url) {
            if began + BEFORE > *when && began < *when + AFTER {
                let _ = writeln!(text, "    {line}");
            }
        }
    }
    (!violations.is_empty()).then_some(text)
}

fn seconds(at: Micros) -> String {
    if at == NEVER { "never".to_owned() } else { format!("{:.4}", at as f64 / SECOND as f64) }
}

/// What happened to a URL, in order.
fn lines(history: &History, url: usize) -> Vec<(Micros, String)> {
    let span = |start, end| format!("{:>9} .. {:>9}", seconds(start), seconds(end));
    let mut lines = Vec::new();
    for request in history.requests.iter().filter(|request| request.what.url == url) {
        lines.push((request.start, format!("{} {request}", span(request.start, request.end))));
    }
    for (number, fetch) in history.fetches.iter().enumerate() {
        let Fetch { method, variant, version, status, fault, has_range, .. } = fetch;
        let range = if *has_range { " with Range" } else { "" };
        let line = format!(
            "{}   fetch {number}: {method}{range} variant {variant}, {status}, version {version}, \
             fault {fault:?}, cookie {}",
            span(fetch.start, fetch.end),
            fetch.cookie
        );
        if fetch.url == url {
            lines.push((fetch.start, line));
        }
    }
    for purge in history.purges.iter().filter(|purge| purge.urls.contains(&url)) {
        let how = if purge.soft { "soft" } else { "hard" };
        let line = format!("{} {how} purge {}", span(purge.start, purge.end), purge.by);
        lines.push((purge.start, line));
    }
    lines.sort();
    lines
}

/// All violations of all rules.
pub(super) fn violations(history: &History) -> Vec<Violation> {
    let mut of = Checker { history, known: Vec::new(), found: Vec::new() };
    of.known = of.known();
    of.every_answer_is_whole_and_of_one_version();
    of.no_failure_is_without_a_cause();
    of.no_older_version_follows_a_newer_one();
    of.nothing_outlives_a_change_or_a_purge();
    of.a_usable_copy_hides_the_faults_of_the_origin();
    of.a_fresh_copy_is_used();
    of.a_herd_costs_the_fetches_that_it_needs();
    of.a_slow_client_delays_no_other();
    of.an_answer_for_one_client_is_given_to_one();
    of.what_a_range_or_a_head_drew_is_not_for_others();
    of.an_answer_that_may_not_be_stored_ends_stale_while_revalidate();
    of.found
}

struct Checker<'h> {
    history: &'h History,
    known: Vec<Known>,
    found: Vec<Violation>,
}

impl<'h> Checker<'h> {
    fn broken(&mut self, rule: &'static str, request: &Request, text: impl Into<String>) {
        let text = format!("{}\n    {request}", text.into());
        self.found.push(Violation { rule, url: request.what.url, at: request.start, text });
    }

    fn policy(&self, url: usize) -> &'h Policy {
        &self.history.policies[url]
    }

    fn variant(&self, what: &What) -> u8 {
        if self.policy(what.url).varies { what.variant } else { 0 }
    }

    /// All whole answers, with their requests and the fetches that brought them.
    fn answers(
        &self,
    ) -> impl Iterator<Item = (&'h Request, &'h Answer, Option<&'h Fetch>)> + use<'h> {
        let history = self.history;
        history.requests.iter().filter_map(|request| match &request.got {
            Got::Whole(answer) => {
                Some((request, answer, answer.fetch.map(|number| &history.fetches[number])))
            }
            _ => None,
        })
    }

    /// What is in the store, as the clients know it.
    fn known(&self) -> Vec<Known> {
        let mut copies: Vec<Known> = Vec::new();
        for (request, answer, fetch) in self.answers() {
            let (Some(fetch), Some(version)) = (fetch, answer.version) else { continue };
            let policy = self.policy(fetch.url);
            let is_whole = request.what.kind == Kind::Get && answer.status == 200;
            // Another response of the URL was stored meanwhile, and this one may be the older.
            let is_older = answer.cache_status.ends_with("detail=older");
            if !is_whole || is_older || !self.is_stored(fetch) || self.is_after_a_part(fetch) {
                continue;
            }
            // `Date` has no fractions of a second.
            let fresh_until = fetch.start + (policy.lifetime_s - 1) * SECOND;
            let (url, variant, fetched) = (fetch.url, fetch.variant, fetch.start);
            let (asked, known) = (self.asked(fetch), request.end);
            copies.push(Known { url, variant, version, asked, fetched, known, fresh_until });
        }
        copies
    }

    /// When the exchange of a fetch began. A fetch that begins where another has broken off may
    /// repeat that one for the same request, and then counts as old as that one for purges.
    fn asked(&self, fetch: &Fetch) -> Micros {
        let is_repeated = |other: &&Fetch| {
            let of = other.url == fetch.url && other.variant == fetch.variant;
            let until = other.end.saturating_add(SKEW);
            let is_before =
                other.start < fetch.start && other.end <= fetch.start && fetch.start <= until;
            let breaks = matches!(other.fault, Some(Fault::Cut | Fault::Gone | Fault::Stall));
            let is_within = |request: &Request| {
                let is_one = request.start <= other.start && fetch.start <= request.end;
                request.what.url == fetch.url && is_one
            };
            of && is_before && breaks && self.history.requests.iter().any(is_within)
        };
        let before = self.history.fetches.iter().filter(is_repeated);
        before.map(|other| self.asked(other)).min().unwrap_or(fetch.start)
    }

    /// Whether the answer of a fetch was stored in the end, if its request was for all of it.
    fn is_stored(&self, fetch: &Fetch) -> bool {
        let policy = self.policy(fetch.url);
        let fits = self.history.has_disk || policy.size as u64 <= OBJECT_BYTES_MAX;
        fetch.is_storable(policy) && fits
    }

    /// Whether a part of a later response may have been stored while a fetch was in flight. An
    /// older response does not replace it, unless it is of the same version.
    fn is_after_a_part(&self, fetch: &Fetch) -> bool {
        self.history.fetches.iter().any(|other| {
            let is_part = other.status == 206 || other.fault == Some(Fault::Cut);
            let of = other.url == fetch.url && other.variant == fetch.variant;
            let is_later = other.start >= fetch.start || other.dated >= fetch.dated;
            let is_strong = self.policy(fetch.url).validator == Validator::Strong;
            let is_same = is_strong && other.version == fetch.version;
            of && is_part
                && is_later
                && !is_same
                && other.start <= fetch.end
                && other.end >= fetch.start
        })
    }

    /// Whether something may have removed a copy before `until`.
    fn is_disturbed(&self, copy: &Known, until: Micros) -> bool {
        let overlaps = |start, end| end >= copy.fetched && start <= until;
        let changed = self.history.requests.iter().any(|request| {
            let is_change = matches!(request.what.kind, Kind::Change(_));
            is_change && request.what.url == copy.url && overlaps(request.start, request.end)
        });
        let purged = self.history.purges.iter().any(|purge| {
            let is_later = purge.end >= copy.asked && purge.start <= until;
            !purge.soft && purge.urls.contains(&copy.url) && is_later
        });
        // The answer to a HEAD may say that there is another version.
        let headed = self.history.fetches.iter().any(|fetch| {
            fetch.method == "HEAD" && fetch.url == copy.url && overlaps(fetch.start, fetch.end)
        });
        changed || purged || headed
    }

    /// When the first soft purge of a copy began.
    fn softened(&self, copy: &Known) -> Option<Micros> {
        let purges = self.history.purges.iter();
        let of = purges.filter(|purge| purge.soft && purge.urls.contains(&copy.url));
        of.filter(|purge| purge.end >= copy.fetched).map(|purge| purge.start).min()
    }

    /// The copies that a request could have been served, whatever else happened.
    fn copies_for(&self, request: &Request) -> impl Iterator<Item = &Known> {
        let (url, variant) = (request.what.url, self.variant(&request.what));
        let (start, end) = (request.start, request.end);
        let of = move |copy: &&Known| copy.url == url && copy.variant == variant;
        self.known
            .iter()
            .filter(of)
            .filter(move |copy| copy.known < start && !self.is_disturbed(copy, end))
    }

    fn every_answer_is_whole_and_of_one_version(&mut self) {
        let rule = "no body is wrong or of two versions";
        for (request, answer, _) in self.answers() {
            if let Some(versions) = &answer.wrong {
                self.broken(rule, request, format!("pieces of the versions {versions:?}"));
            }
        }
    }

    fn no_failure_is_without_a_cause(&mut self) {
        let rule = "no failure is without a cause";
        for request in &self.history.requests {
            let is_failure = match &request.got {
                Got::Whole(answer) => answer.fetch.is_none() && answer.status >= 500,
                Got::Broken | Got::Waits => true,
                Got::Left => false,
            };
            let is_cause = |fetch: &Fetch| {
                let fails = matches!(fetch.fault, Some(Fault::Cut | Fault::Gone | Fault::Stall));
                let overlaps =
                    fetch.start <= request.end && fetch.end.saturating_add(SECOND) >= request.start;
                fetch.url == request.what.url && fails && overlaps
            };
            // Who is left behind is continued by a range, if the origin sends it and still has the
            // version.
            let policy = self.policy(request.what.url);
            let has_parts =
                policy.ranges == Ranges::Parts && policy.validator != Validator::Changing;
            let is_left = !self.history.has_disk && policy.size as u64 > OBJECT_BYTES_MAX;
            let may_be_cut = is_left && (!has_parts || self.changes_during(request));
            if may_be_cut && request.got == Got::Broken {
                continue;
            }
            let never_ends = request.got == Got::Waits;
            if is_failure && (never_ends || !self.history.fetches.iter().any(is_cause)) {
                self.broken(rule, request, "the origin did nothing wrong");
            }
        }
    }

    /// Whether a range was asked for while a request was answered, and the origin had another
    /// version by then than before.
    fn changes_during(&self, request: &Request) -> bool {
        let during = || {
            self.history.fetches.iter().filter(|fetch| {
                let overlaps = fetch.start <= request.end && fetch.end >= request.start;
                fetch.url == request.what.url && overlaps
            })
        };
        during().filter(|fetch| fetch.has_range).any(|range| {
            during().any(|other| other.start < range.start && other.version != range.version)
        })
    }

    fn no_older_version_follows_a_newer_one(&mut self) {
        let rule = "no older version follows a newer one from the store";
        for (later, answer, fetch) in self.answers() {
            let Some(version) = answer.version else { continue };
            let own = fetch.is_some_and(|fetch| fetch.start >= later.start);
            if later.what.max_stale || own {
                continue;
            }
            let variant = self.variant(&later.what);
            let newer = self.answers().find(|(earlier, answer, newer)| {
                // An answer that came after another one was stored is for one client.
                let is_older = answer.cache_status.ends_with("; detail=older");
                let is_stored = answer.cache_status.starts_with("plimsoll; hit")
                    || newer.is_some_and(|newer| self.is_stored(newer) && !is_older)
                        && earlier.what.kind == Kind::Get
                        && answer.status == 200;
                let is_same =
                    earlier.what.url == later.what.url && self.variant(&earlier.what) == variant;
                let is_newer = answer.version.is_some_and(|newer| newer > version)
                    && newer.is_some_and(|newer| self.is_newer(newer, fetch));
                is_same && is_stored && is_newer && earlier.end < later.start
            });
            if let Some((earlier, ..)) = newer {
                self.broken(rule, later, format!("older than what came before:\n    {earlier}"));
            }
        }
    }

    /// Whether a response is newer than another one that its fetch may overlap: a purge came
    /// between their requests, or its request and its `Date` are later.
    fn is_newer(&self, fetch: &Fetch, than: Option<&Fetch>) -> bool {
        let Some(than) = than else { return fetch.start > SKEW };
        let purges = || self.history.purges.iter().filter(|one| one.urls.contains(&fetch.url));
        // Of several soft purges of one target, the cache knows the last one alone.
        let is_last = |purge: &Purge| {
            !purges().any(|one| one.soft && one.start > purge.start && one.start < than.end)
        };
        let is_between = |purge: &Purge| {
            let is_one = purge.start > than.start && purge.end + SKEW < fetch.start;
            is_one && (!purge.soft || is_last(purge))
        };
        let is_after = than.end.saturating_add(SKEW) < fetch.start;
        let is_later = fetch.dated >= than.dated && fetch.start > than.start + SKEW;
        is_after || is_later || purges().any(is_between)
    }

    fn nothing_outlives_a_change_or_a_purge(&mut self) {
        let rule = "nothing outlives a change or a purge";
        for (request, answer, fetch) in self.answers() {
            let Some(fetch) = fetch else { continue };
            let url = request.what.url;
            let is_fresh = answer.cache_status == "plimsoll; hit"
                || answer.cache_status.ends_with("collapsed");
            for purge in self.history.purges.iter().filter(|purge| purge.urls.contains(&url)) {
                let is_after = purge.end < request.start && fetch.start < purge.start;
                if is_after && (!purge.soft || is_fresh) {
                    let how = if purge.soft { "softly purged" } else { "purged" };
                    self.broken(rule, request, format!("{how} at {}", seconds(purge.start)));
                }
            }
            for (change, its_answer, its_fetch) in self.answers() {
                let is_change = matches!(change.what.kind, Kind::Change(_));
                let answered = its_fetch.map_or(0, |fetch| fetch.start);
                let is_after = change.end < request.start && fetch.start < answered;
                if is_change && change.what.url == url && its_answer.status < 400 && is_after {
                    self.broken(rule, request, format!("changed by\n    {change}"));
                }
            }
        }
    }

    fn a_usable_copy_hides_the_faults_of_the_origin(&mut self) {
        let rule = "a usable copy hides the faults of the origin";
        for request in &self.history.requests {
            let policy = self.policy(request.what.url);
            let is_failure = match &request.got {
                Got::Whole(answer) => {
                    matches!(answer.status, 500 | 502..=504) && !self.is_of_range(answer)
                }
                Got::Broken => policy.size <= WINDOW_BYTES && !self.may_be_for_it_alone(request),
                Got::Waits | Got::Left => false,
            };
            let takes_stale = request.what.reload.is_none()
                && !matches!(request.what.kind, Kind::Change(_) | Kind::Head);
            if !is_failure || !takes_stale || policy.must_revalidate {
                continue;
            }
            let usable = self.copies_for(request).find(|copy| {
                let refused = self.refusal_since(copy.url, copy.variant, copy.fetched).is_some();
                let while_s = if refused { 0 } else { policy.while_revalidate_s };
                let window = policy.if_error_s.max(while_s) * SECOND;
                let stale_from = self.softened(copy).unwrap_or(NEVER).min(copy.fresh_until);
                stale_from.saturating_add(window) > request.end
            });
            if let Some(copy) = usable {
                let (version, known) = (copy.version, seconds(copy.known));
                self.broken(rule, request, format!("version {version} is stored since {known}"));
            }
        }
    }

    /// Whether what broke off may be a response for this client alone: it is passed on as it
    /// comes, because its body may last as long as the client stays.
    fn may_be_for_it_alone(&self, request: &Request) -> bool {
        self.history.fetches.iter().any(|fetch| {
            let overlaps = fetch.start <= request.end && fetch.end >= request.start;
            fetch.url == request.what.url && overlaps && fetch.cookie && fetch.fault.is_some()
        })
    }

    fn is_of_range(&self, answer: &Answer) -> bool {
        answer.fetch.is_some_and(|number| self.history.fetches[number].has_range)
    }

    fn a_fresh_copy_is_used(&mut self) {
        let rule = "a fresh copy is used";
        for (request, answer, _) in self.answers() {
            let What { kind, reload, .. } = request.what;
            if kind != Kind::Get
                || reload.is_some()
                || answer.cache_status.starts_with("plimsoll; hit")
            {
                continue;
            }
            let fresh = self.copies_for(request).find(|copy| {
                let until = self.softened(copy).unwrap_or(NEVER).min(copy.fresh_until);
                until > request.start + SKEW
            });
            if let Some(copy) = fresh {
                let (version, known) = (copy.version, seconds(copy.known));
                self.broken(rule, request, format!("version {version} is fresh since {known}"));
            }
        }
    }

    fn a_herd_costs_the_fetches_that_it_needs(&mut self) {
        let rule = "a herd costs the fetches that it needs";
        let history = self.history;
        let herds = history.requests.iter().filter_map(|request| request.what.herd).max();
        for herd in 0..=herds.unwrap_or(0) {
            let members = history.requests.iter().filter(|r| r.what.herd == Some(herd));
            let members: Vec<&Request> = members.collect();
            let Some(first) = members.first() else { continue };
            let (url, variant) = (first.what.url, self.variant(&first.what));
            let start = members.iter().map(|member| member.start).min().unwrap_or(0);
            let end = members.iter().map(|member| member.end).max().unwrap_or(NEVER);
            let of = |fetch: &&Fetch| fetch.url == url && fetch.variant == variant;
            let within = |fetch: &&Fetch| fetch.start >= start && fetch.start <= end;
            let overlaps = |fetch: &&Fetch| fetch.start <= end && fetch.end >= start;
            let policy = self.policy(url);
            let is_usual = |fetch: &Fetch| fetch.method != "GET" || fetch.is_storable(policy);
            let all_usual = history.fetches.iter().filter(of).filter(overlaps).all(is_usual);
            // Requests do not wait for each other after an answer that may not be stored, even one
            // of another variant if no stored response says that the URL varies.
            let is_before = |fetch: &&Fetch| {
                let is_plain = fetch.method == "GET" && !fetch.has_range;
                fetch.url == url && is_plain && fetch.end < start
            };
            let before = || history.fetches.iter().filter(is_before);
            let varies = before().any(|fetch| fetch.is_storable(policy));
            let last = before().filter(|f| !varies || of(f)).max_by_key(|fetch| fetch.end);
            let is_shared = last.is_none_or(|fetch| fetch.is_storable(policy));
            let all_usual = all_usual && is_shared;
            let is_large = policy.size > WINDOW_BYTES && !history.has_disk;
            if policy.lifetime_s == 0 || !all_usual || is_large {
                continue;
            }
            let fetches = history.fetches.iter().filter(of).filter(within).count();
            let others = history.requests.iter().filter(|request| {
                let is_member = request.what.herd == Some(herd);
                let overlaps = request.start <= end && request.end.saturating_add(SKEW) >= start;
                !is_member && request.what.url == url && overlaps
            });
            let concerns = |purge: &Purge| purge.urls.contains(&url);
            let purges = history
                .purges
                .iter()
                .filter(|purge| concerns(purge) && purge.start <= end && purge.end >= start);
            // The first answer of a URL says by what it varies.
            let most = 1 + usize::from(policy.varies) + others.count() + purges.count();
            if fetches > most {
                let text = format!("{} members, {fetches} fetches, not {most}", members.len());
                self.broken(rule, first, text);
            }
        }
    }

    fn a_slow_client_delays_no_other(&mut self) {
        let rule = "a slow client delays no other";
        for (request, _, fetch) in self.answers() {
            let Some(fetch) = fetch else { continue };
            if !self.history.has_disk && self.policy(fetch.url).size as u64 > OBJECT_BYTES_MAX {
                // A fetch whose body goes nowhere waits a while for slow readers.
                continue;
            }
            // It may have waited for a fetch in flight whose response was already out of date then.
            let awaited = self.history.fetches.iter().filter(|other| {
                other.url == fetch.url && other.start <= request.start && other.end > request.start
            });
            let awaited = awaited.map(|other| other.start + other.needs).max();
            let own = request.start.max(fetch.start + fetch.needs);
            let needed = own.max(awaited.unwrap_or_default());
            // Another fetch before it may have failed.
            let fails = self.history.fetches.iter().any(|other| {
                let overlaps = other.start <= request.end && other.end >= request.start;
                other.url == fetch.url && other.fault.is_some() && overlaps
            });
            if !fails && request.end > needed + TRAVEL {
                let text = format!("the origin needed until {}", seconds(needed));
                self.broken(rule, request, text);
            }
        }
    }

    fn an_answer_for_one_client_is_given_to_one(&mut self) {
        let rule = "an answer for one client is given to one";
        for (number, fetch) in self.history.fetches.iter().enumerate() {
            let cookie = format!("id={number}");
            let got = self.answers().filter(|(_, answer, _)| match fetch.cookie {
                true => answer.cookie.as_ref() == Some(&cookie),
                false => answer.fetch == Some(number),
            });
            let got: Vec<&Request> = got.map(|(request, ..)| request).collect();
            if fetch.is_for_one() && got.len() > 1 {
                self.broken(
                    rule,
                    got[1],
                    format!("fetch {number} was already given to\n    {}", got[0]),
                );
            }
        }
    }

    fn what_a_range_or_a_head_drew_is_not_for_others(&mut self) {
        let rule = "an error that a range or a HEAD drew is not for others";
        for (request, answer, fetch) in self.answers() {
            let is_drawn = |fetch: &&Fetch| fetch.status >= 400 && fetch.fault.is_none();
            let Some(fetch) = fetch.filter(is_drawn) else { continue };
            let is_of_range = fetch.has_range && request.what.kind != Kind::Range;
            let is_of_head = fetch.method == "HEAD" && request.what.kind != Kind::Head;
            if is_of_range || is_of_head {
                let text = format!("{} of fetch {:?}", answer.status, answer.fetch);
                self.broken(rule, request, text);
            }
        }
    }

    /// The first plain fetch of a URL since then whose answer may not be stored and is no error of
    /// the origin.
    fn refusal_since(&self, url: usize, variant: u8, since: Micros) -> Option<&'h Fetch> {
        self.history.fetches.iter().find(|fetch| {
            let is_refusal = match fetch.fault {
                Some(Fault::Private | Fault::NoStore) => true,
                Some(Fault::Status(status)) => status < 500 && status != 429,
                Some(Fault::Gone | Fault::Stall) => false,
                _ => fetch.cookie,
            };
            let is_plain = fetch.method == "GET" && !fetch.has_range;
            let of = fetch.url == url && fetch.variant == variant;
            of && is_plain && is_refusal && fetch.start >= since
        })
    }

    fn an_answer_that_may_not_be_stored_ends_stale_while_revalidate(&mut self) {
        let rule = "an answer that may not be stored ends stale-while-revalidate";
        for (request, answer, fetch) in self.answers() {
            let Some(fetch) = fetch else { continue };
            // A whole that cannot be stored is passed through and says nothing about stored parts.
            let is_passed =
                !self.history.has_disk && self.policy(fetch.url).size as u64 > OBJECT_BYTES_MAX;
            if is_passed || !answer.cache_status.ends_with("stale-while-revalidate") {
                continue;
            }
            // A refusal of a fetch that the stored one overlaps says nothing about it.
            let since = fetch.end.saturating_add(SKEW);
            let refusal = self.refusal_since(fetch.url, fetch.variant, since);
            if let Some(refusal) = refusal.filter(|r| r.end.saturating_add(SKEW) < request.start) {
                let text = format!("refused at {}", seconds(refusal.start));
                self.broken(rule, request, text);
            }
        }
    }
}
