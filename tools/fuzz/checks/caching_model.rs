//! The caching rules of RFC 9111, 9110, 9213, 5861 and 8246 once more, as plainly as possible: a
//! cache of one URI that keeps whole messages and computes everything from scratch for each
//! request.
//!
//! Slow on purpose: lists are split by a loop over characters, times are signed seconds and
//! milliseconds that never wrap, ranges are sets of positions. It shares no line with `caching`,
//! whose results `caching_histories` compares with it. If the RFCs leave a choice, the model
//! follows the documentation of the crate.

/// A field line.
pub(crate) type Line = (String, String);

/// A message: a method or a status, and field lines.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) method: &'static str,
    pub(crate) status: u16,
    pub(crate) lines: Vec<Line>,
}

impl Message {
    /// The values of a field, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let named = self.lines.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.values(name).first().copied()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.first(name).is_some()
    }
}

/// Trims spaces and tabs.
fn bare(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// The members of a list (RFC 9110, 5.6.1). A comma within quotes does not split; a quote that is
/// never closed is an ordinary character. `escapes`: a backslash hides what follows it.
fn list(value: &str, escapes: bool) -> Vec<String> {
    let chars: Vec<char> = value.chars().collect();
    let mut members = vec![String::new()];
    let mut at = 0;
    while at < chars.len() {
        if chars[at] == ',' {
            members.push(String::new());
            at += 1;
            continue;
        }
        let mut end = at;
        if chars[at] == '"'
            && let Some(close) = closing(&chars, at, escapes)
        {
            end = close;
        }
        let member = members.last_mut().expect("there is always one");
        member.extend(&chars[at..=end]);
        at = end + 1;
    }
    members.iter().map(|member| bare(member).to_owned()).filter(|m| !m.is_empty()).collect()
}

fn closing(chars: &[char], open: usize, escapes: bool) -> Option<usize> {
    let mut hidden = false;
    for (at, &c) in chars.iter().enumerate().skip(open + 1) {
        if hidden {
            hidden = false;
        } else if c == '\\' && escapes {
            hidden = true;
        } else if c == '"' {
            return Some(at);
        }
    }
    None
}

/// All members of all lines of a field.
fn members(message: &Message, name: &str, escapes: bool) -> Vec<String> {
    message.values(name).iter().flat_map(|value| list(value, escapes)).collect()
}

/// A directive with its argument, without quotes.
type Directive = (String, Option<String>);

/// The directives of a message, in order (RFC 9111, 5.2).
fn directives(message: &Message) -> Vec<Directive> {
    let read = |member: String| match member.split_once('=') {
        None => (member.to_ascii_lowercase(), None),
        Some((name, argument)) => (name.to_ascii_lowercase(), Some(unquoted(argument))),
    };
    members(message, "cache-control", true).into_iter().map(read).collect()
}

fn unquoted(argument: &str) -> String {
    let chars: Vec<char> = argument.chars().collect();
    if chars.first() != Some(&'"') || closing(&chars, 0, true) != Some(chars.len() - 1) {
        return argument.to_owned();
    }
    let mut plain = String::new();
    let mut hidden = false;
    for &c in &chars[1..chars.len() - 1] {
        if c == '\\' && !hidden {
            hidden = true;
        } else {
            hidden = false;
            plain.push(c);
        }
    }
    plain
}

/// `None`: no such directive. `Some(None)`: not a number. The first of several counts (4.2.1).
fn seconds(of: &[Directive], name: &str) -> Option<Option<i128>> {
    let (_, argument) = of.iter().find(|(n, _)| n == name)?;
    Some(argument.as_deref().and_then(number))
}

/// Digits only; a number that is too large is 2^31 (RFC 9111, 1.2.2).
fn number(text: &str) -> Option<i128> {
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    Some(text.parse::<i128>().unwrap_or(i128::MAX).min(1 << 31))
}

fn says(of: &[Directive], name: &str) -> bool {
    of.iter().any(|(n, _)| n == name)
}

/// A directive with field names restricts only those fields; without a valid name, the whole
/// response.
fn says_of_the_whole(of: &[Directive], name: &str) -> bool {
    let named = |argument: &Option<String>| {
        let names = argument.as_deref().map(|text| list(text, true)).unwrap_or_default();
        names.iter().any(|name| is_token(name))
    };
    of.iter().any(|(n, argument)| n == name && !named(argument))
}

/// The field names that it restricts; none if it restricts the whole response.
fn restricted(of: &[Directive], name: &str) -> Vec<String> {
    let mut names = Vec::new();
    if says_of_the_whole(of, name) {
        return names;
    }
    for (_, argument) in of.iter().filter(|(n, argument)| n == name && argument.is_some()) {
        let listed = list(argument.as_deref().unwrap_or_default(), true);
        names.extend(listed.into_iter().filter(|name| is_token(name)));
    }
    names.iter().map(|name| name.to_ascii_lowercase()).collect()
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c))
}

/// The directives that apply to this cache, and whether they are only for it (RFC 9213, 2.1).
fn directives_for_us(response: &Message) -> (Vec<Directive>, bool) {
    let joined = response.values("cdn-cache-control").join(", ");
    match dictionary(&joined) {
        Some(directives) => (directives, true),
        None => (directives(response), false),
    }
}

/// A dictionary of keys, integers, strings without escapes, and tokens; the histories contain
/// nothing else.
fn dictionary(text: &str) -> Option<Vec<Directive>> {
    if text.trim_matches(' ').is_empty() {
        return None;
    }
    let mut read: Vec<(String, String)> = Vec::new();
    for member in text.trim_start_matches(' ').split(',') {
        let (key, value) = bare(member).split_once('=').unwrap_or((bare(member), ""));
        let first_is_well = key.starts_with(|c: char| c.is_ascii_lowercase() || c == '*');
        let rest_is_well =
            key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c));
        if !first_is_well || !rest_is_well || (value.is_empty() && member.contains('=')) {
            return None;
        }
        let is_integer = value.len() <= 15 && value.chars().all(|c| c.is_ascii_digit());
        let starts_as_token = value.starts_with(|c: char| c.is_ascii_alphabetic());
        let is_token = starts_as_token && is_token(value);
        let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let is_string = inner.is_some_and(|inner| !inner.contains(['"', '\\']));
        if !value.is_empty() && !is_integer && !is_token && !is_string {
            return None;
        }
        // Of several, the last applies here (RFC 8941, 4.2.2).
        read.retain(|(known, _)| known != key);
        read.push((key.to_owned(), value.to_owned()));
    }
    let wants_number = ["max-age", "s-maxage", "stale-while-revalidate", "stale-if-error"];
    let usable = |(key, value): &(String, String)| {
        let is_number = value.starts_with(|c: char| c.is_ascii_digit());
        let is_string = value.starts_with('"');
        match wants_number.contains(&key.as_str()) {
            true => is_number,
            false if is_string => key == "no-cache" || key == "private",
            false => value.is_empty(),
        }
    };
    let argument = |value: &str| match value {
        "" => None,
        value => Some(value.trim_matches('"').to_owned()),
    };
    Some(read.iter().filter(|e| usable(e)).map(|(k, v)| (k.clone(), argument(v))).collect())
}

/// Seconds since 1970 of an IMF-fixdate; the histories contain no other form.
pub(crate) fn instant(text: &str) -> Option<i128> {
    let text = bare(text);
    let parts: Vec<&str> = text.split(' ').collect();
    let [weekday, day, month, year, time, "GMT"] = parts[..] else { return None };
    let month = MONTHS.iter().position(|name| *name == month)?;
    let (year, day): (i128, i128) = (year.parse().ok()?, day.parse().ok()?);
    let time: Vec<i128> = time.split(':').filter_map(|part| part.parse().ok()).collect();
    let [hour, minute, second] = time[..] else { return None };
    let is_one = weekday.ends_with(',') && (1..=days_of(year, month)).contains(&day);
    is_one.then(|| seconds_of(year, month, day, hour, minute, second))
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

fn days_of(year: i128, month: usize) -> i128 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month]
}

fn seconds_of(year: i128, month: usize, day: i128, hour: i128, min: i128, sec: i128) -> i128 {
    let mut days = day - 1;
    for earlier in 1970..year {
        days += (0..12).map(|month| days_of(earlier, month)).sum::<i128>();
    }
    days += (0..month).map(|month| days_of(year, month)).sum::<i128>();
    ((days * 24 + hour) * 60 + min) * 60 + sec
}

/// The IMF-fixdate of a time from 1970 on.
pub(crate) fn date(seconds: i128) -> String {
    let (mut days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let weekday = WEEKDAYS[usize::try_from(days.rem_euclid(7)).expect("less than seven")];
    let (mut year, mut month) = (1970, 0);
    while days >= days_of(year, month) {
        days -= days_of(year, month);
        month += 1;
        if month == 12 {
            (year, month) = (year + 1, 0);
        }
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let name = MONTHS[month];
    format!("{weekday}, {:02} {name} {year} {hour:02}:{minute:02}:{second:02} GMT", days + 1)
}

/// A request, its response, and their times (Unix milliseconds).
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) request: Message,
    pub(crate) response: Message,
    pub(crate) asked_ms: i128,
    pub(crate) came_ms: i128,
}

/// Whether a received response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    Forbidden,
    /// Allowed but useless: never fresh, and without a validator.
    Useless,
    Kept,
}

const HEURISTIC: [u16; 12] = [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501];

/// RFC 9110, 15: the status codes that it defines.
fn understood(status: u16) -> bool {
    let defined = [200..=206, 300..=304, 307..=308, 400..=417, 421..=422, 426..=426, 500..=505];
    defined.iter().any(|range| range.contains(&status))
}

impl Entry {
    /// RFC 9111, 3, for a shared cache.
    pub(crate) fn keeping(&self) -> Keeping {
        let (control, _) = directives_for_us(&self.response);
        let status = self.response.status;
        let mut allowed = self.request.method == "GET";
        allowed &= status >= 200;
        // A part needs a complete Content-Range, which nothing here has.
        allowed &= ![206, 304, 412, 416].contains(&status);
        allowed &= !says(&directives(&self.request), "no-store");
        if says(&control, "must-understand") {
            allowed &= understood(status);
        } else {
            allowed &= !says(&control, "no-store");
        }
        allowed &= !says_of_the_whole(&control, "private");
        if self.request.has("authorization") {
            allowed &= ["public", "must-revalidate", "s-maxage"].iter().any(|d| says(&control, d));
        }
        let explicit = self.explicit_lifetime_ms().is_some();
        allowed &= explicit || says(&control, "public") || HEURISTIC.contains(&status);
        allowed &= !matches!(vary(&self.response), Varies::Always);
        if !allowed {
            return Keeping::Forbidden;
        }
        let kept_away = |name| restricted(&control, name).contains(&"set-cookie".to_owned());
        let cookie = self.response.has("set-cookie")
            && !["private", "no-cache"].map(kept_away).contains(&true);
        let never_without_asking = says_of_the_whole(&control, "no-cache");
        let ever_fresh = self.lifetime_ms() > 0 && !never_without_asking;
        let beyond = ["stale-while-revalidate", "stale-if-error"];
        let ever_stale = !never_without_asking
            && !self.forbids_stale()
            && beyond.iter().any(|name| matches!(seconds(&control, name), Some(Some(_))));
        let to_validate = [self.etag(), self.modified()].iter().any(Option::is_some);
        match (ever_fresh || ever_stale || to_validate, cookie) {
            (false, _) => Keeping::Useless,
            (true, true) => Keeping::Forbidden,
            (true, false) => Keeping::Kept,
        }
    }

    fn etag(&self) -> Option<&str> {
        self.response.first("etag").map(bare).filter(|tag| !tag.is_empty())
    }

    fn modified(&self) -> Option<&str> {
        self.response.first("last-modified").map(bare).filter(|date| !date.is_empty())
    }

    fn date_ms(&self) -> i128 {
        let date = self.response.first("date").and_then(instant);
        date.map_or(self.came_ms, |seconds| seconds * 1000)
    }

    /// The explicit lifetime (4.2.1); an invalid value is 0.
    fn explicit_lifetime_ms(&self) -> Option<i128> {
        let (control, for_us_alone) = directives_for_us(&self.response);
        for name in ["s-maxage", "max-age"] {
            if let Some(stated) = seconds(&control, name) {
                return Some(stated.unwrap_or(0) * 1000);
            }
        }
        let expires: Vec<&str> = self.response.values("expires").into_iter().map(bare).collect();
        if for_us_alone || expires.is_empty() {
            return None;
        }
        let one = expires.iter().all(|other| *other == expires[0]);
        let until = if one { instant(expires[0]) } else { None };
        Some(until.map_or(0, |seconds| (seconds * 1000 - self.date_ms()).max(0)))
    }

    /// `freshness_lifetime` (4.2.1, 4.2.2).
    pub(crate) fn lifetime_ms(&self) -> i128 {
        if let Some(stated) = self.explicit_lifetime_ms() {
            return stated;
        }
        let (control, _) = directives_for_us(&self.response);
        if !HEURISTIC.contains(&self.response.status) && !says(&control, "public") {
            return 0;
        }
        let Some(modified) = self.response.first("last-modified").and_then(instant) else {
            return 0;
        };
        let a_tenth = (self.date_ms() - modified * 1000).max(0) / 10;
        a_tenth.min(24 * 3600 * 1000)
    }

    /// `current_age` (4.2.3). Date is in whole seconds, so it is compared with whole seconds.
    pub(crate) fn age_ms(&self, now_ms: i128) -> i128 {
        let age_value = self
            .response
            .first("age")
            .and_then(|value| list(value, true).first().and_then(|member| number(member)))
            .unwrap_or(0);
        let date = self.response.first("date").and_then(instant);
        let apparent_age =
            date.map_or(0, |seconds| (self.came_ms / 1000 * 1000 - seconds * 1000).max(0));
        let response_delay = self.came_ms - self.asked_ms;
        let corrected_age_value = age_value * 1000 + response_delay;
        let corrected_initial_age = apparent_age.max(corrected_age_value);
        corrected_initial_age + (now_ms - self.came_ms).max(0)
    }

    /// 4.2.4, 5.2.2.2, 5.2.2.8, 5.2.2.10.
    fn forbids_stale(&self) -> bool {
        let (control, _) = directives_for_us(&self.response);
        ["must-revalidate", "proxy-revalidate", "s-maxage"].iter().any(|name| says(&control, name))
    }
}

/// The fields by which a response varies.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Varies {
    By(Vec<String>),
    Always,
}

fn vary(response: &Message) -> Varies {
    let mut names = Vec::new();
    for name in members(response, "vary", true) {
        if name == "*" || !is_token(&name) {
            return Varies::Always;
        }
        names.push(name.to_ascii_lowercase());
    }
    Varies::By(names)
}

/// Does a request select the response to another request (RFC 9111, 4.1)?
pub(crate) fn selects(entry: &Entry, request: &Message) -> bool {
    match vary(&entry.response) {
        Varies::Always => false,
        Varies::By(names) => {
            names.iter().all(|name| selecting(&entry.request, name) == selecting(request, name))
        }
    }
}

/// Of several stored responses that a request selects, the one to use (RFC 9111, 4): a fresh one
/// before a stale one, then the one with the latest date, then the one received last.
pub(crate) fn chosen(entries: &[Entry], request: &Message, now_ms: i128) -> Option<usize> {
    let plain = Message { method: "GET", status: 0, lines: Vec::new() };
    let mut best = None;
    for (at, entry) in entries.iter().enumerate() {
        if !selects(entry, request) {
            continue;
        }
        let fresh = reuse(entry, &plain, now_ms) == Doing::Serve;
        let rank = (fresh, entry.date_ms(), entry.came_ms);
        if best.is_none_or(|(_, best)| rank > best) {
            best = Some((at, rank));
        }
    }
    best.map(|(at, _)| at)
}

/// The tag by which a response that was not selected is offered (4.3.1): a strong one, of a 200 in
/// codings that the client accepts.
pub(crate) fn offered<'e>(entry: &'e Entry, request: &Message) -> Option<&'e str> {
    let readable = |coding: &String| {
        members(request, "accept-encoding", true).iter().any(|member| {
            let parts: Vec<&str> = member.split(';').map(bare).collect();
            parts[0].eq_ignore_ascii_case(coding) && !parts[1..].iter().any(|part| refuses(part))
        })
    };
    let codings = members(&entry.response, "content-encoding", true);
    let tag = entry.etag().filter(|_| entry.response.status == 200)?;
    let inner = tag.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let strong = inner.is_some_and(|inner| !inner.contains('"'));
    (strong && codings.iter().all(readable)).then_some(tag)
}

fn refuses(parameter: &str) -> bool {
    let weight = parameter.strip_prefix("q=").or(parameter.strip_prefix("Q="));
    weight.is_some_and(|weight| {
        let zeros = weight.strip_prefix("0.").unwrap_or("x");
        weight == "0" || zeros.chars().all(|c| c == '0')
    })
}

/// Of the offered responses, the one that a 304 selects (4.3.4): the first with its strong tag.
pub(crate) fn selected_by(offered: &[&Entry], validation: &Message) -> Option<usize> {
    let tag = validation.first("etag").map(bare).filter(|tag| !tag.is_empty() && *tag != "W/")?;
    let is_it = |entry: &&Entry| entry.etag() == Some(tag) && !tag.starts_with("W/");
    offered.iter().position(is_it)
}

/// A selecting field: absent, or its members. Those of content negotiation are alternatives: their
/// order, their case and a weight of 1 do not matter.
fn selecting(request: &Message, name: &str) -> Option<Vec<String>> {
    if !request.has(name) {
        return None;
    }
    let mut found = members(request, name, true);
    if ["accept", "accept-charset", "accept-encoding", "accept-language"].contains(&name) {
        for member in &mut found {
            let plain: String = member.chars().filter(|c| !" \t".contains(*c)).collect();
            *member = plain.to_ascii_lowercase();
            for weight in [";q=1", ";q=1.", ";q=1.0", ";q=1.00", ";q=1.000"] {
                if let Some(rest) = member.strip_suffix(weight) {
                    *member = rest.to_owned();
                    break;
                }
            }
        }
        found.sort();
    }
    Some(found)
}

/// What a cache does with a request that selects a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    Serve,
    ServeStale,
    Ask,
    /// Answers with 504.
    Refuse,
}

/// RFC 9111, 4, with the directives of the request (5.2.1).
pub(crate) fn reuse(entry: &Entry, request: &Message, now_ms: i128) -> Doing {
    let doing = reuse_if_asking_is_allowed(entry, request, now_ms);
    let only_stored = says(&directives(request), "only-if-cached");
    if doing == Doing::Ask && only_stored { Doing::Refuse } else { doing }
}

fn reuse_if_asking_is_allowed(entry: &Entry, request: &Message, now_ms: i128) -> Doing {
    let wishes = directives(request);
    let (control, _) = directives_for_us(&entry.response);
    let (age, lifetime) = (entry.age_ms(now_ms), entry.lifetime_ms());
    let fresh = lifetime > age;
    if says_of_the_whole(&control, "no-cache") || is_a_reload(request) {
        return Doing::Ask;
    }
    if let Some(stated) = seconds(&wishes, "max-age") {
        let limit = stated.unwrap_or(0) * 1000;
        // Age is in whole seconds: a response that must not be older than 0 is fetched (5.2.1.1).
        let too_old = age > limit || limit == 0;
        let immutable = limit == 0 && fresh && says(&control, "immutable");
        if too_old && !immutable {
            return Doing::Ask;
        }
    }
    let min_fresh = seconds(&wishes, "min-fresh").flatten().unwrap_or(0) * 1000;
    if fresh {
        return if lifetime - age >= min_fresh { Doing::Serve } else { Doing::Ask };
    }
    if entry.forbids_stale() || min_fresh > 0 {
        return Doing::Ask;
    }
    let staleness = age - lifetime;
    let max_stale = match wishes.iter().find(|(name, argument)| {
        name == "max-stale" && argument.as_deref().is_none_or(|text| number(text).is_some())
    }) {
        None => false,
        Some((_, None)) => true,
        Some((_, Some(text))) => number(text).is_some_and(|limit| is_within(staleness, limit)),
    };
    let while_revalidate = seconds(&control, "stale-while-revalidate").flatten();
    if max_stale || while_revalidate.is_some_and(|limit| is_within(staleness, limit)) {
        return Doing::ServeStale;
    }
    Doing::Ask
}

/// Whether a response may be this stale. Zero seconds are no time.
fn is_within(staleness_ms: i128, limit_s: i128) -> bool {
    limit_s > 0 && staleness_ms <= limit_s * 1000
}

/// `no-cache`, or its old form if the new one is absent (5.2.1.4, 5.4).
fn is_a_reload(request: &Message) -> bool {
    let old =
        || members(request, "pragma", true).iter().any(|m| m.eq_ignore_ascii_case("no-cache"));
    says(&directives(request), "no-cache") || (!request.has("cache-control") && old())
}

/// Why a fetch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Unreachable,
    With(u16),
}

/// May the stored response be served if the origin failed (RFC 5861, 4; RFC 9111, 4.2.4)?
pub(crate) fn may_serve_on_error(
    entry: &Entry,
    request: &Message,
    failed: Failed,
    now_ms: i128,
) -> bool {
    if let Failed::With(status) = failed
        && ![500, 502, 503, 504].contains(&status)
    {
        return false;
    }
    if reuse_if_asking_is_allowed(entry, request, now_ms) != Doing::Ask {
        return true;
    }
    let (age, lifetime) = (entry.age_ms(now_ms), entry.lifetime_ms());
    let (control, _) = directives_for_us(&entry.response);
    // It had to be validated for another reason than its age.
    let wishes = directives(request);
    let too_old = seconds(&wishes, "max-age").is_some_and(|limit| {
        let limit = limit.unwrap_or(0) * 1000;
        age > limit || limit == 0
    });
    let to_be_fresh = seconds(&wishes, "min-fresh").flatten().unwrap_or(0) > 0;
    let must_ask = says_of_the_whole(&control, "no-cache") || is_a_reload(request);
    if must_ask || too_old || to_be_fresh || lifetime > age || entry.forbids_stale() {
        return false;
    }
    let allowed = |limit: Option<i128>| limit.is_some_and(|limit| is_within(age - lifetime, limit));
    let of_response = seconds(&control, "stale-if-error").flatten();
    let of_request = seconds(&wishes, "stale-if-error").flatten();
    let cut_off = failed == Failed::Unreachable && of_response.is_none();
    allowed(of_response) || allowed(of_request) || (cut_off && allowed(Some(24 * 3600)))
}

/// RFC 9111, 4.3.4 and 3.2: the entry after a 304, if the 304 matches the stored response.
pub(crate) fn updated(
    entry: &Entry,
    validation: &Message,
    asked_ms: i128,
    came_ms: i128,
) -> Option<Entry> {
    let is_of_it =
        match (entry.etag(), validation.first("etag").map(bare).filter(|t| !t.is_empty())) {
            (Some(ours), Some(theirs)) => opaque(ours) == opaque(theirs),
            (None, Some(_)) => false,
            (_, None) => {
                let theirs = validation.first("last-modified").map(bare).filter(|d| !d.is_empty());
                match (entry.modified(), theirs) {
                    (Some(ours), Some(theirs)) => {
                        ours == theirs
                            || (instant(ours).is_some() && instant(ours) == instant(theirs))
                    }
                    (None, Some(_)) => false,
                    (_, None) => true,
                }
            }
        };
    if !is_of_it {
        return None;
    }
    let governing = if validation.has("cache-control") { validation } else { &entry.response };
    let governing = directives(governing);
    let of_the_connection = [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let of_the_content = ["content-encoding", "content-length", "content-range", "content-type"];
    let hops: Vec<String> =
        validation.values("connection").iter().flat_map(|v| list(v, false)).collect();
    let taken = |name: &str| {
        let name = name.to_ascii_lowercase();
        !of_the_connection.contains(&name.as_str())
            && !of_the_content.contains(&name.as_str())
            && !restricted(&governing, "no-cache").contains(&name)
            && !restricted(&governing, "private").contains(&name)
            && !hops.iter().any(|hop| hop.eq_ignore_ascii_case(&name))
    };
    let replaced = |name: &str| {
        ["age", "date"].contains(&&*name.to_ascii_lowercase())
            || (taken(name) && validation.has(name))
    };
    let mut lines: Vec<Line> = entry.response.lines.clone();
    lines.retain(|(name, _)| !replaced(name));
    lines.extend(validation.lines.iter().filter(|(name, _)| taken(name)).cloned());
    let response = Message { lines, ..entry.response.clone() };
    Some(Entry { response, asked_ms, came_ms, ..entry.clone() })
}

fn opaque(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// The result of the conditions of a request (RFC 9110, 13.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conditions {
    Hold,
    NotModified,
    Fail,
}

/// `as_origin`: the two conditions that a cache leaves to the origin are evaluated too.
pub(crate) fn conditions(entry: &Entry, request: &Message, as_origin: bool) -> Conditions {
    if !(200..300).contains(&entry.response.status) {
        return Conditions::Hold;
    }
    let reads = ["GET", "HEAD"].contains(&request.method);
    let modified = entry.response.first("last-modified").and_then(instant);
    if as_origin && request.has("if-match") {
        let strong = |tag: &str| !tag.starts_with("W/");
        let equal =
            |tag: &str| entry.etag().is_some_and(|ours| strong(ours) && strong(tag) && ours == tag);
        if !any_tag(request, "if-match", equal) {
            return Conditions::Fail;
        }
    } else if as_origin
        && let Some(since) = one_instant(request, "if-unmodified-since")
        && modified.is_some_and(|modified| modified > since)
    {
        return Conditions::Fail;
    }
    if request.has("if-none-match") {
        let equal = |tag: &str| entry.etag().is_some_and(|ours| opaque(ours) == opaque(tag));
        return match any_tag(request, "if-none-match", equal) {
            false => Conditions::Hold,
            true if reads => Conditions::NotModified,
            true => Conditions::Fail,
        };
    }
    if reads && let Some(since) = one_instant(request, "if-modified-since") {
        let modified_ms = modified.map_or(entry.date_ms(), |seconds| seconds * 1000);
        if modified_ms <= since * 1000 {
            return Conditions::NotModified;
        }
    }
    Conditions::Hold
}

fn any_tag(request: &Message, name: &str, equal: impl Fn(&str) -> bool) -> bool {
    request.values(name).iter().any(|value| bare(value) == "*")
        || members(request, name, false).iter().any(|tag| equal(tag))
}

fn one_instant(request: &Message, name: &str) -> Option<i128> {
    match request.values(name)[..] {
        [one] => instant(one),
        _ => None,
    }
}

/// The positions of a representation that a Range requests (RFC 9110, 14.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Everything,
    /// None of them exists.
    Nothing,
    /// In the order of the positions.
    Positions(Vec<bool>),
}

pub(crate) fn range(entry: &Entry, request: &Message, bytes: usize) -> Asked {
    let [value] = request.values("range")[..] else { return Asked::Everything };
    if request.method != "GET" || entry.response.status != 200 || !if_range(entry, request) {
        return Asked::Everything;
    }
    let Some((unit, specs)) = bare(value).split_once('=') else { return Asked::Everything };
    if !unit.eq_ignore_ascii_case("bytes") {
        return Asked::Everything;
    }
    let mut positions = vec![false; bytes];
    let specs: Vec<&str> = specs.split(',').map(bare).filter(|spec| !spec.is_empty()).collect();
    if specs.is_empty() {
        return Asked::Everything;
    }
    let digits = |text: &str| -> Option<u128> {
        let well = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        well.then(|| text.parse().unwrap_or(u128::MAX))
    };
    for spec in specs {
        let Some((first, last)) = spec.split_once('-') else { return Asked::Everything };
        let (from, to) = match (digits(first), digits(last)) {
            (Some(from), Some(to)) if from <= to => (from, to),
            (Some(from), None) if last.is_empty() => (from, u128::MAX),
            (None, Some(count)) if first.is_empty() => {
                ((bytes as u128).saturating_sub(count), u128::MAX)
            }
            _ => return Asked::Everything,
        };
        for (at, wanted) in positions.iter_mut().enumerate() {
            *wanted |= (from..=to).contains(&(at as u128));
        }
    }
    if positions.contains(&true) { Asked::Positions(positions) } else { Asked::Nothing }
}

/// RFC 9110, 13.1.5.
fn if_range(entry: &Entry, request: &Message) -> bool {
    match request.values("if-range")[..] {
        [] => true,
        [one] if bare(one).starts_with('"') => entry.etag() == Some(bare(one)),
        [one] if bare(one).starts_with("W/") => false,
        [one] => {
            let modified = entry.response.first("last-modified").and_then(instant);
            let strong = modified.is_some_and(|s| s * 1000 + 1000 <= entry.date_ms());
            strong && instant(one) == modified
        }
        _ => false,
    }
}
