//! Histories of messages, compared with the plain model: `caching` has to decide like the model at
//! each step. The fuzz target runs them over any bytes, the stable tests of `caching` over seeded
//! ones.
//!
//! A history has one stored response; a choice selects among several of one URI.
//!
//! Bytes are read as choices: the message, its fields with values from small vocabularies that
//! matter to the rules, and how much time passes.

use caching::range::{Selection, select_range};
use caching::{Evaluator, Failure, Policy, Precondition, Reuse, StoredMeta, Validators, Vary};

use crate::model::{
    Asked, Conditions, Doing, Entry, Failed, Keeping, Line, Message, chosen, conditions, date,
    may_serve_on_error, offered, range, reuse, selected_by, selects, updated,
};

/// Some day in 2026, in seconds.
const EPOCH: i128 = 1_780_000_000;

/// Bytes as choices; after the last byte, always the first option.
struct Choices<'d> {
    bytes: &'d [u8],
}

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A number of milliseconds: none, less than a second, about a lifetime, days.
    fn span_ms(&mut self) -> i128 {
        let count = i128::from(self.byte());
        match self.below(6) {
            0 => 0,
            1 => count,
            2 => count * 100,
            3 => count * 1000,
            4 => count * 60_000,
            _ => count * 3_600_000,
        }
    }

    /// A time near the given one, as a field's value; sometimes none.
    fn date(&mut self, around_s: i128) -> String {
        let away = self.span_ms() / 1000;
        match self.below(8) {
            0 => self.one(&["0", "-1", "now", "", "Thu, 32 Jan 2026 00:00:00 GMT"]).to_owned(),
            1..=3 => date(around_s + away),
            _ => date(around_s - away),
        }
    }

    /// A field name in random case.
    fn name(&mut self, name: &str) -> String {
        match self.below(4) {
            0 => name.to_ascii_uppercase(),
            1 => name.to_ascii_lowercase(),
            _ => name.to_owned(),
        }
    }
}

const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "5",
    "10",
    "60",
    "007",
    "3600",
    "2147483648",
    "99999999999999999999",
    "-1",
    "1.5",
    "",
    "x",
    "\"10\"",
];
const OF_RESPONSES: [&str; 12] = [
    "max-age",
    "s-maxage",
    "stale-while-revalidate",
    "stale-if-error",
    "no-cache",
    "no-store",
    "private",
    "public",
    "must-revalidate",
    "proxy-revalidate",
    "must-understand",
    "immutable",
];
const OF_REQUESTS: [&str; 8] = [
    "max-age",
    "min-fresh",
    "max-stale",
    "no-cache",
    "no-store",
    "only-if-cached",
    "stale-if-error",
    "no-transform",
];
const FIELD_ARGUMENTS: [&str; 6] =
    ["\"set-cookie\"", "\"X-A, x-b\"", "set-cookie", "\"\"", "\" , \"", "\"x y\""];

/// A value of Cache-Control: directives with and without arguments, some of them odd.
fn cache_control(choices: &mut Choices<'_>, of: &[&str]) -> String {
    let mut members = Vec::new();
    for _ in 0..=choices.below(3) {
        let name = choices.one(of);
        let name = choices.name(name);
        let member = match choices.below(12) {
            0 => name,
            1 => {
                choices.one(&["", "x", "x=\"a, no-store\"", "\"", "x=\"", "=", "a=b=c"]).to_owned()
            }
            2 => format!("{name}={}", choices.one(&FIELD_ARGUMENTS)),
            3 => format!("{name}{}{}", choices.one(&[" = ", "= ", " ="]), choices.one(&NUMBERS)),
            _ if name.to_ascii_lowercase().contains("age") || name.contains("stale") => {
                format!("{name}={}", choices.one(&NUMBERS))
            }
            4 => format!("{name}={}", choices.one(&NUMBERS)),
            _ => name,
        };
        members.push(member);
    }
    members.join(choices.one(&[", ", ",", " ,\t", ",,"]))
}

const TAGS: [&str; 8] = ["\"a\"", "\"b\"", "W/\"a\"", "W/\"b\"", "a", "\"a,b\"", "", "\"a\\\""];

/// The fields of content negotiation, and another one.
const SELECTING: [&str; 4] = ["Accept-Encoding", "Accept-Language", "X-A", "Cookie"];
const SELECTED: [&str; 10] = [
    "gzip, br",
    "br, gzip",
    "GZIP;q=1.0,br",
    "gzip ; q=1, br",
    "gzip",
    "",
    "gzip;q=0.5, br",
    "br,gzip;q=1",
    "gzip,\"br, x\"",
    "gzip;q=1.0000",
];

fn request(choices: &mut Choices<'_>, now_s: i128) -> Message {
    let method = choices.one(&["GET", "GET", "GET", "GET", "GET", "HEAD", "POST"]);
    let mut lines: Vec<Line> = Vec::new();
    for _ in 0..choices.below(5) {
        let (name, value) = match choices.below(16) {
            0..=3 => ("Cache-Control", cache_control(choices, &OF_REQUESTS)),
            4 => ("Pragma", choices.one(&["no-cache", "No-Cache, x", "x", ""]).to_owned()),
            5 => ("Authorization", "Basic eDp5".to_owned()),
            6 => ("If-None-Match", tags(choices)),
            7 => ("If-Modified-Since", choices.date(now_s)),
            8 => ("If-Match", tags(choices)),
            9 => ("If-Unmodified-Since", choices.date(now_s)),
            10 => (
                "If-Range",
                match choices.below(2) {
                    0 => choices.one(&TAGS).to_owned(),
                    _ => choices.date(now_s),
                },
            ),
            11 | 12 => ("Range", range_value(choices)),
            _ => (choices.one(&SELECTING), choices.one(&SELECTED).to_owned()),
        };
        lines.push((choices.name(name), value));
    }
    Message { method, status: 0, lines }
}

fn tags(choices: &mut Choices<'_>) -> String {
    if choices.below(6) == 0 {
        return "*".to_owned();
    }
    let count = choices.below(3) + 1;
    let tags: Vec<&str> = (0..count).map(|_| choices.one(&TAGS)).collect();
    tags.join(choices.one(&[", ", ",", " , ,"]))
}

fn range_value(choices: &mut Choices<'_>) -> String {
    let unit = choices.one(&["bytes=", "Bytes=", "bytes=", "lines=", "bytes", "bytes= "]);
    let count = choices.below(4) + 1;
    let mut specs = Vec::new();
    for _ in 0..count {
        let (first, last) = (u64::from(choices.byte()) * 4, u64::from(choices.byte()) * 4);
        specs.push(match choices.below(8) {
            0 => format!("{first}-"),
            1 => format!("-{last}"),
            2 => {
                choices.one(&["", "-", "x", "1", "-0", "5-1", "0-99999999999999999999"]).to_owned()
            }
            _ => format!("{first}-{}", first + last),
        });
    }
    unit.to_owned() + &specs.join(choices.one(&[",", ", ", " ,"]))
}

fn response(choices: &mut Choices<'_>, now_s: i128, status: u16) -> Message {
    let mut lines: Vec<Line> = Vec::new();
    if choices.below(4) > 0 {
        lines.push(("Date".to_owned(), date(now_s)));
    }
    for _ in 0..choices.below(7) {
        let (name, value) = match choices.below(20) {
            0..=6 => ("Cache-Control", cache_control(choices, &OF_RESPONSES)),
            7 => ("Expires", choices.date(now_s)),
            8 => ("Expires", date(now_s + choices.span_ms() / 1000)),
            9 | 10 => ("Last-Modified", choices.date(now_s)),
            11 | 12 => ("ETag", choices.one(&TAGS).to_owned()),
            13 => {
                ("Age", choices.one(&["0", "3", "600", "5, 10", "-1", "x", "", "\"3\""]).to_owned())
            }
            14 | 15 => ("Vary", vary(choices)),
            16 => ("CDN-Cache-Control", targeted(choices)),
            17 => ("Date", choices.date(now_s)),
            18 => ("Connection", choices.one(&["x-a", "ETag, close", "cache-control"]).to_owned()),
            _ => (choices.one(&["X-A", "Set-Cookie", "Content-Type"]), "v".to_owned()),
        };
        lines.push((choices.name(name), value));
    }
    Message { method: "", status, lines }
}

fn vary(choices: &mut Choices<'_>) -> String {
    match choices.below(10) {
        0 => choices.one(&["*", "x-a, *", "a b", "", "\"x-a\""]).to_owned(),
        _ => {
            let (one, other) = (choices.one(&SELECTING), choices.one(&SELECTING));
            let one = choices.name(one);
            if choices.below(2) == 0 { one } else { format!("{one}, {other}") }
        }
    }
}

/// A dictionary, or almost one.
fn targeted(choices: &mut Choices<'_>) -> String {
    let mut members = Vec::new();
    for _ in 0..=choices.below(2) {
        let name = choices.one(&OF_RESPONSES);
        members.push(match choices.below(10) {
            0 => choices.one(&["", "Max-Age=1", "max-age=1x", "x=y", "max-age=", "1=1"]).to_owned(),
            1 => format!("{name}=\"set-cookie\""),
            2 => format!("{name}=token"),
            3..=6 => format!("max-age={}", choices.one(&["0", "10", "007", "3600", "99999999999"])),
            7 => format!("{name}={}", choices.one(&["5", "60"])),
            _ => name.to_owned(),
        });
    }
    members.join(choices.one(&[", ", ",", " , "]))
}

const STATUSES: [u16; 15] =
    [200, 200, 200, 200, 200, 204, 206, 301, 302, 404, 412, 416, 499, 503, 103];

fn ms(instant: i128) -> u64 {
    u64::try_from(instant).expect("after 1970")
}

fn exchange(entry: &Entry) -> caching::Exchange {
    caching::Exchange { request_ms: ms(entry.asked_ms), response_ms: ms(entry.came_ms) }
}

fn asked(message: &Message) -> caching::Request<'_, Vec<Line>> {
    caching::Request { method: message.method.as_bytes(), fields: &message.lines }
}

fn came(message: &Message) -> caching::Response<'_, Vec<Line>> {
    caching::Response { status: message.status, fields: &message.lines }
}

/// The history of one response.
pub(crate) fn caching_history(data: &[u8]) {
    let mut choices = Choices { bytes: data };
    let asked_ms = EPOCH * 1000 + i128::from(choices.byte()) * 7;
    let came_ms = asked_ms + choices.span_ms().min(60_000);
    let request = request(&mut choices, EPOCH);
    let status = choices.one(&STATUSES);
    let response = response(&mut choices, came_ms / 1000, status);
    let mut entry = Entry { request, response, asked_ms, came_ms };

    let stored = caching::may_store(
        &asked(&entry.request),
        &came(&entry.response),
        exchange(&entry),
        &Policy::SHARED,
    );
    let keeping = match &stored {
        Ok(_) => Keeping::Kept,
        Err(caching::NotStored::NothingGained) => Keeping::Useless,
        Err(_) => Keeping::Forbidden,
    };
    assert_eq!(keeping, entry.keeping(), "{stored:?} {entry:#?}");
    let Ok(stored) = stored else { return };
    assert_eq!(stored.vary, caching::vary(&entry.response.lines));
    let mut meta = stored.meta;
    let mut now_ms = came_ms;
    for _ in 0..4 {
        now_ms += choices.span_ms();
        let later = self::request(&mut choices, now_ms / 1000);
        the_numbers_are_the_models(&meta, &entry, now_ms);
        vary_is_the_models(&caching::vary(&entry.response.lines), &entry, &later);
        reuse_is_the_models(&meta, &entry, &later, now_ms);
        conditions_are_the_models(&meta.validators, &entry, &later);
        range_is_the_models(&meta.validators, &entry, &later, choices.below(3) * 300);
        if choices.below(3) == 0 {
            let asked_ms = now_ms;
            now_ms += choices.span_ms().min(5_000);
            let validation = self::response(&mut choices, now_ms / 1000, 304);
            (entry, meta) = update(entry, &meta, &validation, asked_ms, now_ms);
        }
    }
}

const CODINGS: [&str; 4] = ["gzip", "GZIP", "br", "gzip, br"];
const ACCEPTED: [&str; 6] = ["gzip", "br;q=0, GZIP", "gzip;q=0.0", "br , gzip;q=0.1", "*", "q=1"];

/// Several responses of one URI, a request, and the 304 of the origin.
pub(crate) fn caching_choice(data: &[u8]) {
    let mut choices = Choices { bytes: data };
    let mut now_ms = EPOCH * 1000;
    let (mut entries, mut metas, mut varies) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let asked_ms = now_ms;
        now_ms += choices.span_ms().min(5_000);
        let request = request(&mut choices, asked_ms / 1000);
        let status = choices.one(&[200, 200, 200, 404]);
        let mut response = response(&mut choices, now_ms / 1000, status);
        if choices.below(3) == 0 {
            response.lines.push(("Content-Encoding".into(), choices.one(&CODINGS).into()));
        }
        let entry = Entry { request, response, asked_ms, came_ms: now_ms };
        let (asked, came) = (asked(&entry.request), came(&entry.response));
        if let Ok(stored) = caching::may_store(&asked, &came, exchange(&entry), &Policy::SHARED) {
            entries.push(entry);
            metas.push(stored.meta);
            varies.push(stored.vary);
        }
        now_ms += choices.span_ms();
    }
    let mut later = request(&mut choices, now_ms / 1000);
    if choices.below(2) == 0 {
        later.lines.push(("Accept-Encoding".into(), choices.one(&ACCEPTED).into()));
    }
    let mut best: Option<usize> = None;
    for (at, vary) in varies.iter().enumerate() {
        let selected = match vary {
            Vary::None => true,
            Vary::Star => false,
            Vary::Names(names) => {
                names.matches(&names.key(&entries[at].request.lines), &later.lines)
            }
        };
        let goes_before = |best: usize| metas[at].goes_before(&metas[best], ms(now_ms));
        if selected && best.is_none_or(goes_before) {
            best = Some(at);
        }
    }
    assert_eq!(best, chosen(&entries, &later, now_ms), "at {now_ms}: {entries:#?} {later:#?}");
    the_304_means_what_the_model_says(&mut choices, &entries, &metas, &later, now_ms);
}

fn the_304_means_what_the_model_says(
    choices: &mut Choices<'_>,
    entries: &[Entry],
    metas: &[StoredMeta],
    later: &Message,
    now_ms: i128,
) {
    let mut offers = Vec::new();
    for (entry, meta) in entries.iter().zip(metas) {
        let (status, lines) = (entry.response.status, &entry.response.lines);
        let tag = caching::offered_tag(&later.lines, status, lines, &meta.validators);
        let expected = offered(entry, later);
        assert_eq!(tag, expected.map(str::as_bytes), "{entry:#?} {later:#?}");
        if tag.is_some() {
            offers.push((entry, &meta.validators));
        }
    }
    let validation = response(choices, now_ms / 1000, 304);
    let update = Validators::of(&validation.lines, ms(now_ms));
    let validators = offers.iter().map(|(_, validators)| *validators);
    let models: Vec<&Entry> = offers.iter().map(|(entry, _)| *entry).collect();
    let found = caching::meant_by_304(validators, &update);
    assert_eq!(found, selected_by(&models, &validation), "{validation:#?} of {models:#?}");
}

fn the_numbers_are_the_models(meta: &StoredMeta, entry: &Entry, now_ms: i128) {
    let at = format_args!("at {now_ms}: {meta:?} {entry:#?}").to_string();
    assert_eq!(i128::from(meta.freshness.lifetime_ms), entry.lifetime_ms(), "lifetime, {at}");
    let age_ms = i128::from(meta.freshness.current_age_ms(ms(now_ms)));
    assert_eq!(age_ms, entry.age_ms(now_ms), "age, {at}");
    let age = i128::from(meta.freshness.age_seconds(ms(now_ms)));
    assert_eq!(age, (entry.age_ms(now_ms) / 1000).min(1 << 31), "Age, {at}");
    // The path of a hit asks only this.
    let plain = Message { method: "GET", status: 0, lines: Vec::new() };
    let served = reuse(entry, &plain, now_ms) == Doing::Serve;
    assert_eq!(meta.is_fresh(ms(now_ms)), served, "fresh, {at}");
}

fn vary_is_the_models(vary: &Vary, entry: &Entry, later: &Message) {
    let selected = match vary {
        Vary::None => true,
        Vary::Star => false,
        Vary::Names(names) => {
            let key = names.key(&entry.request.lines);
            let matches = names.matches(&key, &later.lines);
            assert_eq!(matches, key == names.key(&later.lines), "two ways to compare");
            matches
        }
    };
    assert_eq!(selected, selects(entry, later), "{vary:?} {entry:#?} {later:#?}");
}

fn reuse_is_the_models(meta: &StoredMeta, entry: &Entry, later: &Message, now_ms: i128) {
    let decided = caching::decide_reuse(&asked(later), meta, ms(now_ms));
    let doing = match decided {
        Reuse::Fresh { .. } => Doing::Serve,
        Reuse::StaleAllowed { .. } => Doing::ServeStale,
        Reuse::OnlyIfCachedMiss { .. } => Doing::Refuse,
        _ => Doing::Ask,
    };
    let at = format_args!("at {now_ms}: {decided:?} {entry:#?} {later:#?}").to_string();
    assert_eq!(doing, reuse(entry, later, now_ms), "{at}");
    for (failure, failed) in [
        (Failure::Unreachable, Failed::Unreachable),
        (Failure::Status(503), Failed::With(503)),
        (Failure::Status(404), Failed::With(404)),
    ] {
        let (request, policy) = (asked(later), &Policy::SHARED);
        let decided = caching::stale_on_error(&request, meta, failure, ms(now_ms), policy);
        let expected = may_serve_on_error(entry, later, failed, now_ms);
        assert_eq!(decided.is_ok(), expected, "{failure:?} {decided:?} {at}");
    }
}

fn conditions_are_the_models(validators: &Validators, entry: &Entry, later: &Message) {
    for (evaluator, as_origin) in [(Evaluator::Cache, false), (Evaluator::Origin, true)] {
        let status = entry.response.status;
        let decided = caching::conditional(&asked(later), status, validators, evaluator);
        let come_to = match decided {
            Precondition::None => Conditions::Hold,
            Precondition::NotModified(_) => Conditions::NotModified,
            Precondition::Failed(_) => Conditions::Fail,
        };
        let expected = conditions(entry, later, as_origin);
        assert_eq!(come_to, expected, "{decided:?} {entry:#?} {later:#?}");
    }
}

/// Parts may be joined, so they may contain more than the requested bytes, up to the head of a
/// part. They never contain less, and never a byte twice.
fn range_is_the_models(validators: &Validators, entry: &Entry, later: &Message, bytes: usize) {
    let selected = select_range(&asked(later), entry.response.status, validators, bytes as u64);
    let expected = range(entry, later, bytes);
    let context = format!("{selected:?} of {bytes} {entry:#?} {later:#?}");
    match (selected, expected) {
        (Selection::Whole(_), Asked::Everything) | (Selection::Unsatisfiable, Asked::Nothing) => {}
        (Selection::Parts(parts), Asked::Positions(positions)) => {
            let mut sent = vec![0; bytes];
            for part in &parts {
                (part.first..=part.last).for_each(|at| sent[at as usize] += 1);
            }
            assert!(sent.iter().all(|&times| times <= 1), "sent twice: {context}");
            let mut gap = 0;
            for (at, (&sent, &wanted)) in sent.iter().zip(&positions).enumerate() {
                assert!(sent == 1 || !wanted, "{at} is missing: {context}");
                gap = if sent == 1 && !wanted { gap + 1 } else { 0 };
                assert!(gap <= 80, "{at} was not asked for: {context}");
            }
        }
        (_, expected) => panic!("expected {expected:?}: {context}"),
    }
}

/// Both entries after a 304, which has to match the stored response in both.
fn update(
    entry: Entry,
    meta: &StoredMeta,
    validation: &Message,
    asked_ms: i128,
    came_ms: i128,
) -> (Entry, StoredMeta) {
    let theirs = Validators::of(&validation.lines, ms(came_ms));
    let fits = caching::fits_304(&meta.validators, &theirs, true);
    let after = updated(&entry, validation, asked_ms, came_ms);
    assert_eq!(fits, after.is_some(), "{validation:#?} of {entry:#?}");
    let Some(after) = after else { return (entry, meta.clone()) };
    let lines: Vec<Line> = caching::updated(&entry.response.lines, &validation.lines)
        .into_iter()
        .map(|(name, value)| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(name), text(value))
        })
        .collect();
    assert_eq!(lines, after.response.lines, "{validation:#?} on {entry:#?}");
    let exchange = exchange(&after);
    let meta = StoredMeta::of(&came(&after.response), exchange, &Policy::SHARED);
    (after, meta)
}
