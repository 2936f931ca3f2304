//! `acl`, and the conditions behind `if` and `unless`.
//!
//! A comparison becomes a condition of our file, with bounds where it is known in part
//! ([`Test`]). What an earlier rule changes is not compared again, because our conditions read the
//! request as it came.

use std::collections::{HashMap, HashSet};

use conditions::{Lists, Scope};
use imported::Parsed;
use imported::cel::{self, Cel, PARTS_MAX};
use imported::input::Input;
use imported::limits::LIST_MAX;
use imported::note::Place;
use imported::pattern::escaped;

use crate::bounds::{Is, Test};
use crate::lines::{Line, is_unknown};

/// The lists of one section, and what the rules so far have changed.
#[derive(Default)]
pub(crate) struct Acls<'l> {
    named: HashMap<&'l str, Vec<&'l Line>>,
    /// Conditions of names. It is empty again after a change.
    known: HashMap<String, Test>,
    /// What earlier rules change: fields in lower case, `path`, `query` or `src`.
    changed: HashSet<String>,
    /// Variables, and the fetches that they have the values of. `None`: not known.
    variables: HashMap<String, Option<String>>,
    /// Whether conditions are asked when the response comes: most of the request is not there.
    is_late: bool,
}

/// What is compared.
enum Subject {
    /// A text.
    Text(String),
    /// A field, whose values are between commas.
    Field(String),
    Path,
    Host,
    Client,
    Method,
    Number(String),
    Flag(Is),
    /// It is never there, so no comparison holds.
    Absent,
    /// It is taken to be so, as it is while nothing is overloaded or down.
    Usual(bool),
    Unknown(String),
}

/// Names that HAProxy defines, as a fetch with its values.
const PREDEFINED: &[(&str, &str)] = &[
    ("TRUE", "always_true"),
    ("FALSE", "always_false"),
    ("HTTP", "always_true"),
    ("HTTP_CONTENT", "unknown"),
    ("HTTP_URL_SLASH", "path_beg /"),
    ("LOCALHOST", "src 127.0.0.1/8 ::1"),
    ("METH_CONNECT", "method CONNECT"),
    ("METH_DELETE", "method DELETE"),
    ("METH_GET", "method GET HEAD"),
    ("METH_HEAD", "method HEAD"),
    ("METH_OPTIONS", "method OPTIONS"),
    ("METH_POST", "method POST"),
    ("METH_PUT", "method PUT"),
    ("METH_TRACE", "method TRACE"),
    ("WAIT_END", "always_true"),
];

const CHANGED: &str = "an earlier rule changes what it compares";
const ASSUMED: &str = "what depends on load, rates and the state of servers is left out";

impl<'l> Acls<'l> {
    pub(crate) fn of(lines: impl Iterator<Item = &'l Line>, changed: HashSet<String>) -> Acls<'l> {
        let mut acls = Acls { changed, ..Acls::default() };
        for line in lines.filter(|line| line.word(0) == "acl") {
            acls.named.entry(line.word(1)).or_default().push(line);
        }
        acls
    }

    /// The next conditions are those of responses, or of requests again.
    pub(crate) fn of_responses(&mut self, is_late: bool) {
        self.is_late = is_late;
        self.known.clear();
    }

    /// A rule changes something.
    pub(crate) fn change(&mut self, what: &str) {
        if self.changed.insert(what.to_ascii_lowercase()) {
            self.known.clear();
        }
    }

    pub(crate) fn into_changed(self) -> HashSet<String> {
        self.changed
    }

    pub(crate) fn has_changed(&self, what: &str) -> bool {
        self.changed.contains(what)
    }

    /// `set-var(NAME) FETCH`, or another rule that sets it.
    pub(crate) fn set_variable(&mut self, name: &str, fetch: &str, is_always: bool) {
        let is_first = !self.variables.contains_key(name);
        let fetch = (is_always && is_first && !fetch.contains("var(")).then(|| fetch.to_owned());
        self.variables.insert(name.to_owned(), fetch);
        self.known.clear();
    }

    /// The fetch, or the fetch that a variable stands for.
    pub(crate) fn fetch<'f>(&'f self, text: &'f str) -> Option<&'f str> {
        match text.strip_prefix("var(").and_then(|rest| rest.split_once(')')) {
            Some((name, "")) => self.variables.get(name)?.as_deref(),
            Some(_) => None,
            None => Some(text),
        }
    }

    /// The condition in words that begin with `if` or `unless`. No words: it always holds.
    pub(crate) fn condition(
        &mut self,
        words: &[String],
        context: &mut Context<'_, '_>,
    ) -> Parsed<Test> {
        let Some((first, words)) = words.split_first() else { return Ok(Test::always()) };
        let (mut any, mut all): (Option<Test>, Option<Test>) = (None, None);
        let (mut is_negated, mut rest) = (false, words.iter());
        let unread = || Test::unknown("this condition cannot be read");
        while let Some(word) = rest.next() {
            if matches!(word.as_str(), "or" | "||") {
                let all = all.take().unwrap_or_else(unread);
                any = Some(any.map_or(all.clone(), |any| any.or(all)));
                continue;
            }
            if matches!(word.as_str(), "and" | "&&") {
                continue;
            }
            let bare = word.trim_start_matches('!');
            is_negated ^= (word.len() - bare.len()) % 2 == 1;
            let test = match bare {
                "" => continue,
                "{" => {
                    let inner: Vec<String> =
                        rest.by_ref().take_while(|word| *word != "}").cloned().collect();
                    self.compared(&inner, context)?
                }
                name => self.list(name, context)?,
            };
            let test = if std::mem::take(&mut is_negated) { test.not() } else { test };
            all = Some(all.map_or(test.clone(), |all| all.and(test)));
        }
        let all = all.unwrap_or_else(unread);
        let test = any.map_or(all.clone(), |any| any.or(all));
        Ok(if first == "unless" { test.not() } else { test })
    }

    /// A list by its name: one of its lines holds.
    fn list(&mut self, name: &str, context: &mut Context<'_, '_>) -> Parsed<Test> {
        if let Some(test) = self.known.get(name) {
            return Ok(test.clone());
        }
        let lines = self.named.get(name).cloned().unwrap_or_default();
        let mut test: Option<Test> = None;
        for line in &lines {
            let mut one = self.compared(line.rest(2), context)?;
            if line.may_be_absent {
                one = one.at_most("a line of this list may be absent");
            }
            match &one {
                one if one.is_exact() && one.why.is_empty() => {
                    context.input.notes.carried(&line.at)
                }
                one => context.input.notes.left(&line.at, one.why.clone()),
            }
            test = Some(test.map_or(one.clone(), |test| test.or(one)));
        }
        let predefined = PREDEFINED.iter().find(|(known, _)| *known == name);
        let test = match (test, predefined) {
            (Some(test), _) => test,
            (None, Some((_, text))) => {
                let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
                self.compared(&words, context)?
            }
            (None, None) => Test::unknown(format!("there is no list {name} here")),
        };
        self.known.insert(name.to_owned(), test.clone());
        Ok(test)
    }

    /// A comparison: a fetch, flags, and values.
    fn compared(&mut self, words: &[String], context: &mut Context<'_, '_>) -> Parsed<Test> {
        let Some((fetch, rest)) = words.split_first() else {
            return Ok(Test::unknown("a comparison without words"));
        };
        let (mut values, mut method, mut ignores_case) = (Vec::new(), None, false);
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "-i" if values.is_empty() => ignores_case = true,
                "-n" | "--" if values.is_empty() => {}
                "-m" if values.is_empty() => method = rest.next().map(String::as_str),
                "-f" if values.is_empty() => {
                    let name = rest.next().map_or("", String::as_str);
                    match context.input.files(context.at, name)? {
                        Err(why) => return Ok(Test::unknown(why)),
                        Ok(files) => {
                            let lines = files.iter().flat_map(|file| file.text.lines());
                            let lines = lines.map(str::trim);
                            let is_value = |line: &&str| !line.is_empty() && !line.starts_with('#');
                            values.extend(lines.filter(is_value).map(str::to_owned));
                        }
                    }
                }
                flag if values.is_empty() && flag.len() == 2 && flag.starts_with('-') => {
                    return Ok(Test::unknown(format!("the flag {flag} is not known here")));
                }
                _ => values.push(word.clone()),
            }
        }
        if words.iter().any(|word| is_unknown(word)) {
            return Ok(Test::unknown("the file does not set this environment variable"));
        }
        let (subject, how) = self.subject(fetch);
        let how = method.or(how).unwrap_or("str");
        let test = test(&subject, how, ignores_case, &values, context);
        Ok(match test.most.clone() {
            Is::If(cel) if !context.takes(&cel) => {
                Test::unknown("the server would refuse this condition")
            }
            _ => test,
        })
    }

    /// What a fetch reads, and how it is compared by its name.
    fn subject(&self, fetch: &str) -> (Subject, Option<&'static str>) {
        let Some(fetch) = self.fetch(fetch) else {
            return (Subject::Unknown("this variable is not known here".to_owned()), None);
        };
        let unknown = || Subject::Unknown(format!("our conditions do not read {fetch}"));
        let (name, argument, converters) = parts(fetch);
        let of_request = "path query url base pathq urlp url_param cook cookie hdr_cnt".split(' ');
        let is_of_request = name.starts_with("req.") || of_request.clone().any(|one| one == name);
        let response = (self.is_late && matches!(name, "hdr" | "fhdr")).then_some("res.hdr");
        let name = response.unwrap_or(name.strip_prefix("req.").unwrap_or(name));
        let endings = ["beg", "end", "sub", "reg", "dir", "dom"];
        let ending = endings
            .into_iter()
            .find_map(|how| Some((name.strip_suffix(how)?.strip_suffix('_')?, Some(how))));
        let (name, how) = ending.unwrap_or((name, None));
        let is_of_response = matches!(name, "res.hdr" | "res.fhdr" | "shdr" | "status");
        if self.is_late && (is_of_request || of_request.clone().any(|one| one == name))
            || !self.is_late && (is_of_response || fetch.starts_with("res."))
        {
            return (Subject::Absent, how);
        }
        let is_host = matches!(name, "hdr" | "fhdr") && argument.eq_ignore_ascii_case("host");
        let changes = match name {
            "path" | "query" | "src" | "dst_port" => name.to_owned(),
            "urlp" | "url_param" => "query".to_owned(),
            "cook" | "cookie" => "cookie".to_owned(),
            _ => argument.to_ascii_lowercase(),
        };
        if self.changed.contains(&changes) {
            return (Subject::Unknown(CHANGED.to_owned()), how);
        }
        let of_host = |one: &&str| matches!(*one, "lower" | "host_only" | "field(1,:)");
        let is_plain = match is_host {
            true => converters.iter().all(of_host),
            false => converters.is_empty(),
        };
        let texts = |subject: Option<String>| subject.map_or_else(unknown, Subject::Text);
        let in_table = |table: &str| texts(cel::quoted(argument).map(|q| format!("{table}[{q}]")));
        let subject = match name {
            "rand" if converters.is_empty() => Subject::Number(format!("random/{argument}")),
            "path" if converters == ["lower"] => Subject::Text("path.lowerAscii()".to_owned()),
            _ if !is_plain => unknown(),
            "path" => Subject::Path,
            "query" => Subject::Text("query".to_owned()),
            "hdr" | "fhdr" if is_host => Subject::Host,
            "hdr" => cel::field(argument).map_or_else(unknown, Subject::Field),
            "fhdr" => texts(cel::field(argument)),
            "hdr_cnt" | "fhdr_cnt" => match cel::has_field(argument) {
                Some(cel) => Subject::Flag(Is::If(cel)),
                None => unknown(),
            },
            "res.hdr" | "res.fhdr" | "shdr" => texts(cel::response(argument)),
            "status" => Subject::Number("status".to_owned()),
            "urlp" | "url_param" => in_table("args"),
            "cook" | "cookie" => in_table("cookies"),
            "src" => Subject::Client,
            "method" => Subject::Method,
            "dst_port" => Subject::Number("port".to_owned()),
            "ssl_fc" => Subject::Flag(Is::If(Cel::one("scheme == 'https'"))),
            "ssl_fc_sni" => Subject::Text("tls.sni".to_owned()),
            "always_true" => Subject::Flag(Is::Always),
            "always_false" => Subject::Flag(Is::Never),
            "nbsrv" | "srv_is_up" | "connslots" => Subject::Usual(true),
            "fe_conn" | "be_conn" | "queue" | "avg_queue" | "fe_sess_rate" | "be_sess_rate"
            | "fe_req_rate" => Subject::Usual(false),
            _ if name.starts_with("sc") && name.contains('_') || name.starts_with("src_") => {
                Subject::Usual(false)
            }
            _ => unknown(),
        };
        (subject, how)
    }
}

/// What comparisons need besides the lists.
pub(crate) struct Context<'c, 'r> {
    pub(crate) input: &'c mut Input<'r>,
    pub(crate) at: &'c Place,
    /// The lists that are written, with their values.
    pub(crate) lists: &'c mut Lists,
    pub(crate) written: &'c mut Vec<(String, Vec<String>, Place)>,
}

impl Context<'_, '_> {
    fn takes(&self, cel: &Cel) -> bool {
        conditions::check(cel.text(), Scope::Response, self.lists).is_ok()
    }

    /// The name of a list with these values.
    fn list(&mut self, values: Vec<String>) -> Option<String> {
        if let Some((name, ..)) = self.written.iter().find(|(_, there, _)| *there == values) {
            return Some(name.clone());
        }
        let name = format!("acl_{}", self.written.len() + 1);
        self.lists.add_list(&name, values.clone()).ok()?;
        self.written.push((name.clone(), values, self.at.clone()));
        Some(name)
    }
}

/// Name, argument and converters: `hdr(host),lower`.
pub(crate) fn parts(fetch: &str) -> (&str, &str, Vec<&str>) {
    let is_end = |c: char| c == '(' || c == ',';
    let end = fetch.find(is_end).unwrap_or(fetch.len());
    let (name, mut rest) = fetch.split_at(end);
    let mut argument = "";
    if let Some((inner, after)) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        (argument, rest) = (inner, after);
    }
    let (mut all, mut depth, mut from) = (Vec::new(), 0_usize, 0);
    for (at, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                all.push(&rest[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(&rest[from..]);
    all.retain(|one| !one.is_empty());
    (name, argument, all)
}

/// The condition that a subject fits one of the values.
fn test(
    subject: &Subject,
    how: &str,
    ignores_case: bool,
    values: &[String],
    context: &mut Context<'_, '_>,
) -> Test {
    let is_named = how == "found";
    match subject {
        Subject::Unknown(why) => Test::unknown(why.clone()),
        Subject::Flag(is) => flag(is, values),
        Subject::Absent => Test::always().not(),
        Subject::Usual(is) => usual(*is, values),
        Subject::Number(name) => number(name, values),
        Subject::Client => client(values, context),
        Subject::Field(text) if is_named => {
            let name = text.trim_start_matches("fields[").trim_end_matches(']');
            Test::from(Some(Cel::one(format!("{name} in fields"))))
        }
        Subject::Text(text) if is_named && text.ends_with(']') && text.contains('[') => {
            let (table, name) = text.split_once('[').expect("it was looked for");
            match table {
                "response" => Test::from(Some(Cel::one(format!("{text} != ''")))),
                _ => {
                    let name = name.trim_end_matches(']');
                    Test::from(Some(Cel::one(format!("{name} in {table}"))))
                }
            }
        }
        Subject::Text(text) if is_named => Test::from(Some(Cel::one(format!("{text} != ''")))),
        Subject::Path | Subject::Host | Subject::Method if is_named => Test::always(),
        Subject::Method => {
            let is_method = |value: &&str| value.bytes().all(|b| b.is_ascii_uppercase());
            let methods: Vec<&str> = values.iter().map(String::as_str).filter(is_method).collect();
            match methods[..] {
                [] => Test::always().not(),
                [one] => Test::from(cel::is("method", one)),
                _ => Test::from(cel::list(methods).map(|all| Cel::one(format!("method in {all}")))),
            }
        }
        Subject::Host if !ignores_case && how != "reg" && values.iter().any(|v| has_upper(v)) => {
            Test::unknown("hosts are compared without case: write -i")
        }
        // The host has no case and no port.
        Subject::Host if how == "str" && values.len() > 1 && values.iter().all(|v| is_host(v)) => {
            let mut hosts: Vec<String> =
                values.iter().map(|value| value.to_ascii_lowercase()).collect();
            hosts.sort();
            hosts.dedup();
            let inline = cel::list(hosts.iter().map(String::as_str)).filter(|all| all.len() < 500);
            let all = inline.or_else(|| context.list(hosts));
            Test::from(all.map(|all| Cel::one(format!("host in {all}"))))
        }
        _ if values.is_empty() => Test::unknown("it is compared with nothing"),
        _ if values.len() > LIST_MAX => Test::unknown(format!("more than {LIST_MAX} values")),
        _ => {
            let each = |value: &String| of_value(subject, how, ignores_case, value);
            let all = values.iter().map(each);
            all.reduce(Test::or).unwrap_or_else(|| Test::always().not())
        }
    }
}

fn has_upper(value: &str) -> bool {
    value.bytes().any(|b| b.is_ascii_uppercase())
}

fn is_host(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
}

fn of_value(subject: &Subject, how: &str, ignores_case: bool, value: &str) -> Test {
    match subject {
        Subject::Path if value.contains('%') && how != "reg" => {
            Test::unknown("our conditions compare decoded paths")
        }
        // A path begins with a slash.
        Subject::Path if matches!(how, "str" | "beg") && !value.starts_with('/') => {
            if value.is_empty() { Test::known(Is::Always) } else { Test::always().not() }
        }
        Subject::Path => text("path", how, ignores_case, value),
        Subject::Host if value.contains(':') && how != "reg" => {
            text("fields['host']", how, true, value)
        }
        Subject::Host if how == "reg" => text("host", how, true, value),
        Subject::Host => text("host", how, false, &value.to_ascii_lowercase()),
        Subject::Text(name) => text(name, how, ignores_case, value),
        Subject::Field(name) => field(name, how, ignores_case, value),
        _ => Test::unknown("this comparison is not known here"),
    }
}

/// A comparison of a whole text.
fn text(name: &str, how: &str, ignores_case: bool, value: &str) -> Test {
    let lower = ignores_case && value.bytes().any(|b| b.is_ascii_alphabetic());
    let (name, value) = match lower && how != "reg" {
        true => (format!("{name}.lowerAscii()"), value.to_ascii_lowercase()),
        false => (name.to_owned(), value.to_owned()),
    };
    let method = match how {
        "str" => return Test::from(cel::is(&name, &value)),
        _ if value.is_empty() => return Test::always(),
        "beg" => "startsWith",
        "end" => "endsWith",
        "sub" => "contains",
        "reg" => {
            let case = if ignores_case { "(?i)" } else { "" };
            return Test::from(cel::matches(&name, &format!("{case}{value}")));
        }
        // Whole parts between separators.
        "dir" | "dom" => {
            let separators = if how == "dir" { "/" } else { "/?.:" };
            let bare = value.trim_matches(|c| separators.contains(c));
            let expression = format!("(^|[{separators}]){}([{separators}]|$)", escaped(bare));
            return Test::from(cel::matches(&name, &expression));
        }
        _ => return Test::unknown(format!("comparisons by {how} are not known here")),
    };
    Test::from(cel::quoted(&value).map(|quoted| Cel::one(format!("{name}.{method}({quoted})"))))
}

/// A comparison of a field: HAProxy compares each of its values, which are between commas.
fn field(name: &str, how: &str, ignores_case: bool, value: &str) -> Test {
    let (start, end) = ("(^|,)[ \\t]*", "[ \\t]*(,|$)");
    let plain = escaped(value);
    let (expression, is_exact) = match how {
        _ if value.contains(',') => return Test::unknown("it is compared with a comma"),
        "str" => (format!("{start}{plain}{end}"), true),
        "beg" => (format!("{start}{plain}"), true),
        "end" => (format!("{plain}{end}"), true),
        "sub" => (plain, true),
        "reg" => {
            let (head, inner) = match value.strip_prefix('^') {
                Some(rest) => (start, rest),
                None => ("", value),
            };
            let (inner, tail) = match inner.strip_suffix('$') {
                Some(rest) if !rest.ends_with('\\') => (rest, end),
                _ => (inner, ""),
            };
            let is_anchored = !head.is_empty() || !tail.is_empty();
            if inner.contains(['^', '$']) && !inner.contains('[')
                || is_anchored && inner.contains('|') && !inner.contains('(')
            {
                return Test::unknown("the expression has anchors inside");
            }
            // A part of it may match a comma.
            let crosses = inner.replace("\\.", "").contains(['.', '[', '\\']);
            (format!("{head}(?:{inner}){tail}"), !crosses)
        }
        _ => return Test::unknown(format!("comparisons by {how} are not known here")),
    };
    let case = if ignores_case { "(?i)" } else { "" };
    let test = Test::from(cel::matches(name, &format!("{case}{expression}")));
    if is_exact { test } else { test.at_most("the expression is compared with the whole field") }
}

/// A yes or a number: no values, `gt 0`, or `eq 0`.
fn flag(is: &Is, values: &[String]) -> Test {
    let known = Test::known(is.clone());
    match values.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["true" | "1"] | ["gt", "0"] | ["ge" | "eq", "1"] => known,
        ["0" | "false"] | ["eq" | "le", "0"] | ["lt", "1"] => known.not(),
        _ => Test::unknown("it is compared with this number"),
    }
}

/// What holds while all is well.
fn usual(is_high: bool, values: &[String]) -> Test {
    let is_high_wanted = match values.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["gt" | "ge", _] => true,
        ["lt" | "le", _] | ["eq", "0"] | ["0"] => false,
        _ => return Test { why: ASSUMED.to_owned(), ..Test::always().not() },
    };
    let holds = if is_high == is_high_wanted { Test::always() } else { Test::always().not() };
    Test { why: ASSUMED.to_owned(), ..holds }
}

/// `NAME < VALUE`. A name such as `random/100` has a scale.
fn number(name: &str, values: &[String]) -> Test {
    let (name, scale) = name.split_once('/').unwrap_or((name, ""));
    let scale: Option<f64> = scale.parse().ok();
    let shown = |text: &str| {
        let number: u32 = text.parse().ok()?;
        Some(scale.map_or(number.to_string(), |scale| format!("{:?}", f64::from(number) / scale)))
    };
    let compared = |sign: &str, text: &str| {
        Test::from(shown(text).map(|number| Cel::one(format!("{name} {sign} {number}"))))
    };
    let mut words = values.iter().map(String::as_str);
    let signs = [("eq", "=="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")];
    let first = words.clone().next().unwrap_or_default();
    let sign = signs.iter().find(|(word, _)| *word == first).map(|(_, sign)| *sign);
    if sign.is_some() {
        words.next();
    }
    let each = words.map(|value| match value.split_once(':') {
        Some((low, high)) => compared(">=", low).and(compared("<=", high)),
        None => compared(sign.unwrap_or("=="), value),
    });
    if values.len() > PARTS_MAX {
        return Test::unknown("too many numbers");
    }
    each.reduce(Test::or).unwrap_or_else(|| Test::unknown("it is compared with nothing"))
}

/// Networks of clients.
fn client(values: &[String], context: &mut Context<'_, '_>) -> Test {
    let networks: Option<Vec<String>> = values.iter().map(|value| network(value)).collect();
    let Some(mut networks) = networks.filter(|all| !all.is_empty() && all.len() <= LIST_MAX) else {
        return Test::unknown("it is compared with other than up to 1024 networks");
    };
    networks.sort();
    networks.dedup();
    match &networks[..] {
        [one] => Test::from(Some(Cel::one(format!("client.within('{one}')")))),
        _ => {
            let name = context.list(networks);
            Test::from(name.map(|name| Cel::one(format!("client.within({name})"))))
        }
    }
}

/// A network in the form of our file. Bits beyond its length count for nothing.
pub(crate) fn network(text: &str) -> Option<String> {
    let text = match text.split_once('/') {
        Some((address, mask)) if mask.contains('.') => {
            let mask: std::net::Ipv4Addr = mask.parse().ok()?;
            format!("{address}/{}", ipnet::ipv4_mask_to_prefix(mask).ok()?)
        }
        _ => text.to_owned(),
    };
    match text.contains('/') {
        true => Some(text.parse::<ipnet::IpNet>().ok()?.trunc().to_string()),
        false => Some(text.parse::<std::net::IpAddr>().ok()?.to_string()),
    }
}
