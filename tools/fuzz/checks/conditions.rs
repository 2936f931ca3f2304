//! Checks of conditions, for the fuzz targets and for the tests that replay their corpora.
//!
//! [`text`] reads any text. [`tree`] makes conditions and a request of bytes, and compares the
//! judgement with the evaluator of the crate `cel`, which shares only its parser with ours. The
//! differences between the two languages are written out in the text for `cel`: an absent value is
//! '', and `client.within` is its result.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use cel::extractors::This;
use cel::{Context, Env, Value, extensions};
use conditions::{Builder, Facts, Lists, ResponseFacts, Scope, Sent, TlsNames, check, hidden_by};
use http1::{Limits, Scratch, parse_request, parse_response};

/// The conditions of one input that are compiled together.
const CONDITIONS_MAX: usize = 8;
/// The terms of one input that are compiled together.
const TERMS_MAX: usize = 40;
/// How deep generated conditions nest.
const DEPTH_MAX: usize = 4;

/// The target `condition_text`: a byte for the scope, then a text.
pub(crate) fn text(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let scope = if first & 1 == 0 { Scope::Request } else { Scope::Response };
    let checked = match check(&text, scope, &LISTS) {
        Ok(checked) => checked,
        Err(mistake) => {
            assert!(text.get(mistake.at.clone()).is_some(), "{mistake:?}");
            assert!(!mistake.why.is_empty());
            return;
        }
    };
    assert!(hidden_by(&checked, &checked), "{text}");
    let mut builder = Builder::new(LISTS.clone());
    let id = builder.add(&text, scope).expect("it has been checked");
    let conditions = builder.build();
    with_facts(&Request::of(&mut Choices { bytes: data }), |facts| {
        let mut judge = conditions.judge(*facts);
        let holds = judge.holds(id);
        assert_eq!(judge.holds(id), holds, "{text}");
        for term in judge.terms(id) {
            assert!(text.contains(&term.text), "{}", term.text);
        }
        for name in checked.captures() {
            assert_eq!(conditions.capture(id, &name, facts).is_some(), holds, "{text}");
        }
    });
}

/// The target `condition_tree`. Returns how many conditions were judged.
pub(crate) fn tree(data: &[u8]) -> usize {
    let mut choices = Choices { bytes: data };
    let request = Request::of(&mut choices);
    let mut builder = Builder::new(LISTS.clone());
    let mut texts = Vec::new();
    // Many terms on one value are tested together, in other ways than few terms.
    let is_table = choices.below(2) == 1;
    let most = if is_table { TERMS_MAX } else { CONDITIONS_MAX };
    while texts.len() < most && !choices.bytes.is_empty() {
        let mut generator = Generator { choices: &mut choices, request: &request };
        let (ours, theirs) =
            if is_table { generator.table_term() } else { generator.tree(DEPTH_MAX) };
        match builder.add(&ours, Scope::Response) {
            Ok(id) => texts.push((id, ours, theirs)),
            Err(mistake) => {
                let is_constant = ["never hold", "always", "same value for every", "has no order"];
                let is_constant = is_constant.iter().any(|why| mistake.why.contains(why));
                assert!(is_constant, "{mistake:?} in {ours}");
            }
        }
    }
    let conditions = builder.build();
    let ids: Vec<_> = texts.iter().map(|(id, ..)| *id).collect();
    with_facts(&request, |facts| {
        let mut judge = conditions.judge(*facts);
        let mut found = vec![false; ids.len()];
        judge.matching(&ids, |at| found[at] = true);
        let context = context(&request);
        for ((id, ours, theirs), found) in texts.iter().zip(found) {
            let program = ENV.compile(theirs).expect("a text that cel reads");
            let expected = program.execute(&context);
            assert_eq!(expected, Ok(Value::Bool(found)), "{ours}\n{theirs}\n{request:#?}");
            assert_eq!(judge.holds(*id), found, "{ours}");
            assert_eq!(conditions.judge(*facts).holds(*id), found, "{ours}");
            let _ = judge.terms(*id);
        }
        let of = |(_, text, _): &(_, String, _)| check(text, Scope::Response, &LISTS);
        let checked: Vec<_> = texts.iter().map(|text| of(text).expect("checked")).collect();
        for later in 0..ids.len() {
            for earlier in 0..later {
                if hidden_by(&checked[earlier], &checked[later]) {
                    let is_hidden = !judge.holds(ids[later]) || judge.holds(ids[earlier]);
                    assert!(is_hidden, "{} hides {}", texts[earlier].1, texts[later].1);
                }
            }
        }
    });
    texts.len()
}

const NAMES: &[&str] = &["a.example", "b.example", "xn--e", "/a/b"];
const NETWORKS: &[&str] = &["192.0.2.0/25", "2001:db8::/33", "10.0.0.1"];
const PAIRS: &[(&str, &str)] = &[("a.example", "one"), ("/a", "two"), ("é", "one"), ("GET", "")];

static LISTS: LazyLock<Lists> = LazyLock::new(|| {
    let mut lists = Lists::new();
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    lists.add_list("names", owned(NAMES)).expect("a list");
    lists.add_list("networks", owned(NETWORKS)).expect("a list");
    let pairs = PAIRS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    lists.add_map("teams", pairs.collect()).expect("a map");
    lists
});

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    env.add_extension(extensions::strings).expect("an extension");
    Arc::new(env)
});

/// Bytes as choices. Without bytes, the first choice is taken.
struct Choices<'d> {
    bytes: &'d [u8],
}

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        usize::from(*first) % count
    }

    fn of<'s>(&mut self, values: &[&'s str]) -> &'s str {
        values[self.below(values.len())]
    }
}

const HOSTS: &[&str] = &["a.example", "b.example", "www.a.example", "localhost", ""];
const PATHS: &[&str] = &["/", "/a", "/a/b", "/a/b/c.css", "/é/x.php", "/b//a", "/a\nb/A", "/A/B"];
const WORDS: &[&str] =
    &["", "a", "b", "aa", "Ab", "/a", "A", "one", "two", "GET", "é", "a, b", "a b", "b=1", "x%41"];
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PURGE"];
const FIELD_NAMES: &[&str] = &["accept", "x-a", "user-agent", "x-b"];
const ARG_NAMES: &[&str] = &["a", "b b", "é"];
const COOKIE_NAMES: &[&str] = &["a", "b"];
const CLIENTS: &[&str] =
    &["192.0.2.1", "192.0.2.200", "::ffff:192.0.2.1", "2001:db8::1", "2001:db9::1", "10.0.0.1"];
const PATTERNS: &[&str] = &[
    "^/a",
    "b$",
    "[a-c]+",
    "(?i)A",
    "^/[^/]*$",
    "a|b",
    "^(?P<x>/a)(?P<y>/b)?",
    "a{2}",
    "^$",
    "x.?y",
];
const GLOBS: &[&str] = &["/a/*", "/a/**", "/*/b", "**.css", "/**/*.php", "/a", "*a*", "/a/*/c.*"];

/// What a request is made of.
#[derive(Debug)]
struct Request {
    host: &'static str,
    path: &'static str,
    method: &'static str,
    scheme: &'static str,
    listener: &'static str,
    user: Option<&'static str>,
    port: u16,
    client: IpAddr,
    tls: Option<TlsNames>,
    now_s: u64,
    random: f64,
    fields: Vec<(&'static str, &'static str)>,
    cookies: Vec<(&'static str, &'static str)>,
    args: Vec<(&'static str, &'static str)>,
    query: String,
    status: u16,
    size: Option<u64>,
    response: Vec<(&'static str, &'static str)>,
}

impl Request {
    fn of(choices: &mut Choices<'_>) -> Request {
        fn pairs(
            choices: &mut Choices<'_>,
            names: &[&'static str],
            is_value: fn(&str) -> bool,
        ) -> Vec<(&'static str, &'static str)> {
            let pairs = (0..choices.below(4)).map(|_| (choices.of(names), choices.of(WORDS)));
            pairs.filter(|(_, value)| is_value(value)).collect()
        }
        let is_any = |_: &str| true;
        let is_cookie = |value: &str| !value.contains([' ', ',']);
        let args = pairs(choices, ARG_NAMES, is_any);
        let query: Vec<String> = args
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(choices, name), encoded(choices, value)))
            .collect();
        Request {
            host: choices.of(HOSTS),
            path: choices.of(PATHS),
            method: choices.of(METHODS),
            scheme: choices.of(&["http", "https"]),
            listener: choices.of(&["main", "admin"]),
            user: [None, Some("a"), Some("é")][choices.below(3)],
            port: [80, 443, 8080][choices.below(3)],
            client: choices.of(CLIENTS).parse().expect("an address"),
            tls: [
                None,
                Some(TlsNames::default()),
                Some(TlsNames {
                    sni: Some("a.example".into()),
                    client_subject: Some("CN=é".into()),
                }),
            ][choices.below(3)]
            .clone(),
            now_s: choices.below(256) as u64 * 5_003_000,
            random: choices.below(256) as f64 / 256.0,
            fields: pairs(choices, FIELD_NAMES, is_any),
            cookies: pairs(choices, COOKIE_NAMES, is_cookie),
            args,
            query: query.join("&"),
            status: [200, 301, 404, 500, 599][choices.below(5)],
            size: [None, Some(0), Some(1000), Some(u64::MAX)][choices.below(4)],
            response: pairs(choices, FIELD_NAMES, is_any),
        }
    }
}

/// Bytes of a query for a value.
fn encoded(choices: &mut Choices<'_>, value: &str) -> String {
    let encode = |byte: u8| match byte {
        b' ' if choices.below(2) == 0 => String::from("+"),
        b'a'..=b'z' | b'A'..=b'Z' if choices.below(4) > 0 => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    value.bytes().map(encode).collect()
}

fn with_facts(request: &Request, look: impl FnOnce(&Facts<'_>)) {
    let fields = |pairs: &[(&str, &str)]| -> String {
        pairs.iter().map(|(name, value)| format!("{}: {value}\r\n", name.to_uppercase())).collect()
    };
    let cookies: Vec<String> =
        request.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let cookies = match cookies.as_slice() {
        [] => String::new(),
        // Clients of HTTP/2 send a field for each cookie.
        [first, rest @ ..] => format!("Cookie: {first}\r\nCookie: {}\r\n", rest.join("; ")),
    };
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{}{cookies}\r\n", fields(&request.fields));
    let response = format!("HTTP/1.1 200 OK\r\n{}\r\n", fields(&request.response));
    let mut scratch = (Scratch::new(), Scratch::new());
    let limits = Limits::DEFAULT;
    let head = parse_request(head.as_bytes(), &mut scratch.0, &limits);
    let response = parse_response(response.as_bytes(), &mut scratch.1, &limits);
    let (head, response) = (head.expect("valid").expect("whole"), response.expect("valid"));
    let response = response.expect("whole");
    let target = format!("{}?{}", request.path, request.query);
    look(&Facts {
        host: request.host.as_bytes(),
        path: request.path.as_bytes(),
        query: request.query.as_bytes(),
        sent: Sent {
            authority: request.host.as_bytes(),
            path_and_query: target.as_bytes(),
            tunnel_port: None,
        },
        method: request.method.as_bytes(),
        scheme: request.scheme,
        listener: request.listener,
        port: request.port,
        client: request.client,
        user: request.user.map(str::as_bytes),
        fields: head.fields,
        tls: request.tls.as_ref(),
        now_s: request.now_s,
        random: request.random,
        response: Some(ResponseFacts {
            status: request.status,
            fields: response.fields,
            size: request.size,
        }),
    });
}

/// The same request for `cel`.
fn context(request: &Request) -> Context<'static, 'static> {
    fn joined(pairs: &[(&'static str, &'static str)]) -> HashMap<String, String> {
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        pairs.iter().for_each(|(name, value)| all.entry(name).or_default().push(value));
        let joined = all.into_iter().map(|(name, values)| (name.to_owned(), values.join(", ")));
        joined.collect()
    }
    let mut context = Context::with_env(Arc::clone(&ENV));
    let day = request.now_s / 86_400;
    let int = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let first = |pairs: &[(&'static str, &'static str)]| -> HashMap<String, String> {
        let pairs = pairs.iter().rev();
        pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let tls = request.tls.clone().unwrap_or_default();
    let tls: HashMap<String, String> = HashMap::from([
        ("sni".to_owned(), tls.sni.unwrap_or_default()),
        ("client_subject".to_owned(), tls.client_subject.unwrap_or_default()),
    ]);
    let pairs = PAIRS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let values: [(&str, Value); 23] = [
        ("host", request.host.into()),
        ("path", request.path.into()),
        ("query", request.query.as_str().into()),
        ("method", request.method.into()),
        ("scheme", request.scheme.into()),
        ("listener", request.listener.into()),
        ("user", request.user.unwrap_or_default().into()),
        ("tls", tls.into()),
        ("client", request.client.to_canonical().to_string().into()),
        ("port", int(u64::from(request.port))),
        ("hour", int(request.now_s / 3600 % 24)),
        ("minute", int(request.now_s / 60 % 60)),
        ("weekday", int((day + 4) % 7)),
        ("random", Value::Float(request.random)),
        ("status", int(u64::from(request.status))),
        ("size", request.size.map_or(Value::Int(-1), int)),
        ("fields", joined(&request.fields).into()),
        ("response", joined(&request.response).into()),
        ("args", joined(&request.args).into()),
        ("cookies", first(&request.cookies).into()),
        ("names", NAMES.iter().map(|name| Value::from(*name)).collect::<Vec<_>>().into()),
        ("teams", pairs.collect::<HashMap<String, String>>().into()),
        ("nothing", Value::Null),
    ];
    for (name, value) in values {
        context.add_variable_from_value(name, value);
    }
    let glob = |This(value): This<Arc<String>>, glob: Arc<String>| {
        is_glob(value.as_bytes(), glob.as_bytes())
    };
    context.add_function("glob", glob).expect("a function");
    let share = |value: Arc<String>| {
        (twox_hash::XxHash3_64::oneshot(value.as_bytes()) >> 11) as f64 / (1_u64 << 53) as f64
    };
    context.add_function("share", share).expect("a function");
    context
}

/// A glob without an automaton.
fn is_glob(value: &[u8], glob: &[u8]) -> bool {
    match glob {
        [] => value.is_empty(),
        [b'*', b'*', rest @ ..] => (0..=value.len()).any(|at| is_glob(&value[at..], rest)),
        [b'*', rest @ ..] => {
            let segment = value.iter().take_while(|byte| **byte != b'/').count();
            (0..=segment).any(|at| is_glob(&value[at..], rest))
        }
        [first, rest @ ..] => {
            value.split_first().is_some_and(|(byte, value)| byte == first && is_glob(value, rest))
        }
    }
}

/// Makes conditions, each as our text and as a text for `cel`.
struct Generator<'g, 'd> {
    choices: &'g mut Choices<'d>,
    request: &'g Request,
}

type Texts = (String, String);

fn same(text: String) -> Texts {
    (text.clone(), text)
}

impl Generator<'_, '_> {
    fn tree(&mut self, depth: usize) -> Texts {
        let forms = if depth == 0 || self.choices.bytes.is_empty() { 4 } else { 10 };
        match self.choices.below(forms) {
            0..4 => self.term(),
            4 | 5 => self.joined(depth, "&&"),
            6 | 7 => self.joined(depth, "||"),
            8 => {
                let (ours, theirs) = self.tree(depth - 1);
                (format!("!({ours})"), format!("!({theirs})"))
            }
            _ => {
                let (one, other) = (self.tree(depth - 1), self.tree(depth - 1));
                if self.choices.below(2) == 0 {
                    let sign = self.choices.of(&["==", "!="]);
                    let made = |one: String, other: String| format!("({one}) {sign} ({other})");
                    return (made(one.0, other.0), made(one.1, other.1));
                }
                let last = if self.choices.below(4) == 0 {
                    same(self.choices.of(&["true", "false"]).to_owned())
                } else {
                    self.tree(depth - 1)
                };
                let made = |of: [String; 3]| format!("(({}) ? ({}) : ({}))", of[0], of[1], of[2]);
                (made([one.0, other.0, last.0]), made([one.1, other.1, last.1]))
            }
        }
    }

    fn joined(&mut self, depth: usize, sign: &str) -> Texts {
        let trees: Vec<Texts> =
            (0..2 + self.choices.below(3)).map(|_| self.tree(depth - 1)).collect();
        let (ours, theirs): (Vec<String>, Vec<String>) = trees
            .into_iter()
            .map(|(one, other)| (format!("({one})"), format!("({other})")))
            .unzip();
        let sign = format!(" {sign} ");
        (ours.join(&sign), theirs.join(&sign))
    }

    fn term(&mut self) -> Texts {
        match self.choices.below(9) {
            0..5 => self.text_term(),
            5 | 6 => self.number_term(),
            7 => self.client_term(),
            _ => {
                let (table, names) = self.table();
                let name = self.choices.of(names);
                same(format!("'{name}' in {table}"))
            }
        }
    }

    fn table(&mut self) -> (&'static str, &'static [&'static str]) {
        let all = [
            ("fields", FIELD_NAMES),
            ("cookies", COOKIE_NAMES),
            ("args", ARG_NAMES),
            ("response", FIELD_NAMES),
        ];
        all[self.choices.below(4)]
    }

    /// A string, with literals that it may be equal to.
    fn text(&mut self, depth: usize) -> (Texts, &'static [&'static str]) {
        let variables: [(&str, &[&str]); 9] = [
            ("path", PATHS),
            ("path", PATHS),
            ("host", HOSTS),
            ("method", METHODS),
            ("scheme", &["http", "https"]),
            ("user", &["", "a", "é"]),
            ("query", &["a=a", "", "a=b"]),
            ("tls.sni", &["a.example", ""]),
            ("tls.client_subject", &["CN=é", ""]),
        ];
        match self.choices.below(if depth == 0 { 6 } else { 8 }) {
            0..3 => {
                let (name, literals) = variables[self.choices.below(variables.len())];
                (same(name.to_owned()), literals)
            }
            3..6 => {
                let (table, names) = self.table();
                let name = self.choices.of(names);
                let is_field = names == FIELD_NAMES && self.choices.below(2) == 0;
                let written = if is_field { name.to_uppercase() } else { name.to_owned() };
                let ours = format!("{table}['{written}']");
                ((ours, format!("('{name}' in {table} ? {table}['{name}'] : '')")), WORDS)
            }
            6 => {
                let ((ours, theirs), literals) = self.text(depth - 1);
                let lower = |text: &str| format!("{text}.lowerAscii()");
                ((lower(&ours), lower(&theirs)), literals)
            }
            _ => {
                let ((ours, theirs), _) = self.text(depth - 1);
                let theirs = format!("({theirs} in teams ? teams[{theirs}] : '')");
                ((format!("teams[{ours}]"), theirs), &["one", "two", ""])
            }
        }
    }

    /// A term on one of two values.
    fn table_term(&mut self) -> Texts {
        let ours = ["path", "fields['accept']"][self.choices.below(8) / 7];
        let theirs = match ours {
            "path" => "path",
            _ => "('accept' in fields ? fields['accept'] : '')",
        };
        let literals = if ours == "path" { PATHS } else { WORDS };
        self.term_on((ours.to_owned(), theirs.to_owned()), literals)
    }

    fn text_term(&mut self) -> Texts {
        let (of, literals) = self.text(2);
        self.term_on(of, literals)
    }

    fn term_on(&mut self, (ours, theirs): Texts, literals: &'static [&'static str]) -> Texts {
        let of = |term: String| (format!("{ours}{term}"), format!("{theirs}{term}"));
        let literal = self.choices.of(literals);
        let quoted = format!("'{}'", literal.replace('\n', "\\n"));
        let part: String = literal.chars().take(self.choices.below(4) + 1).collect();
        let part = format!("'{}'", part.replace('\n', "\\n"));
        match self.choices.below(12) {
            0 => of(format!(" == {quoted}")),
            1 => of(format!(" != {quoted}")),
            2 => of(format!(".startsWith({part})")),
            3 => {
                let start = literal.char_indices().rev().nth(self.choices.below(3));
                let end = &literal[start.map_or(0, |(at, _)| at)..];
                of(format!(".endsWith('{}')", end.replace('\n', "\\n")))
            }
            4 => of(format!(".contains({part})")),
            5 | 6 => of(format!(".matches('{}')", self.choices.of(PATTERNS))),
            7 => of(format!(".glob('{}')", self.choices.of(GLOBS))),
            8 => of(format!(" in [{quoted}, '/zz']").replace(", '/zz'", &self.another(literals))),
            9 => of(String::from(" in names")),
            10 => of(String::from(" in teams")),
            _ => {
                let ((other, others), _) = self.text(1);
                match self.choices.below(4) {
                    0 => (format!("{ours} == {other}"), format!("{theirs} == {others}")),
                    1 => (
                        format!("{ours}.contains({other})"),
                        format!("{theirs}.contains({others})"),
                    ),
                    2 => (
                        format!("{ours}.startsWith({other})"),
                        format!("{theirs}.startsWith({others})"),
                    ),
                    _ => (
                        format!("{ours}.endsWith({other})"),
                        format!("{theirs}.endsWith({others})"),
                    ),
                }
            }
        }
    }

    fn another(&mut self, literals: &[&str]) -> String {
        format!(", '{}'", self.choices.of(literals).replace('\n', "\\n"))
    }

    fn number_term(&mut self) -> Texts {
        let (of, literals): (Texts, &[&str]) = match self.choices.below(9) {
            0 => (same("port".into()), &["80", "443", "1000", "80.0"]),
            1 => (same("hour".into()), &["0", "7", "12", "22"]),
            2 => (same("minute".into()), &["0", "30", "50"]),
            3 => (same("weekday".into()), &["0", "3", "6"]),
            4 => (same("status".into()), &["200", "404", "500", "0x194"]),
            5 => (same("size".into()), &["-1", "0", "999", "1000.0"]),
            6 => (same("random".into()), &["0.25", "0.5", "5e-1"]),
            7 => {
                let ((ours, theirs), _) = self.text(1);
                ((format!("share({ours})"), format!("share({theirs})")), &["0.25", "0.5", "0.9"])
            }
            _ => {
                let ((ours, theirs), _) = self.text(1);
                let size = |text: String| format!("{text}.size()");
                ((size(ours), size(theirs)), &["1", "2", "4", "10"])
            }
        };
        let literal = self.choices.of(literals);
        let term = match self.choices.below(8) {
            7 => format!(" in [{literal}, {}]", self.choices.of(literals)),
            at => {
                let sign = ["==", "!=", "<", "<=", ">", ">=", "=="][at];
                if self.choices.below(4) == 0 {
                    return (
                        format!("{literal} {sign} {}", of.0),
                        format!("{literal} {sign} {}", of.1),
                    );
                }
                format!(" {sign} {literal}")
            }
        };
        (format!("{}{term}", of.0), format!("{}{term}", of.1))
    }

    fn client_term(&mut self) -> Texts {
        let client = self.request.client.to_canonical();
        let within = |networks: &[&str]| {
            networks.iter().any(|text| match text.parse::<ipnet::IpNet>() {
                Ok(network) => network.contains(&client),
                Err(_) => text.parse() == Ok(client),
            })
        };
        match self.choices.below(4) {
            0 => {
                let address: IpAddr = self.choices.of(CLIENTS).parse().expect("an address");
                let sign = self.choices.of(&["==", "!="]);
                same(format!("client {sign} '{}'", address.to_canonical()))
            }
            1 => ("client.within(networks)".into(), within(NETWORKS).to_string()),
            _ => {
                let all = ["192.0.2.0/24", "192.0.2.1", "0.0.0.0/0", "::/0", "2001:db8::/32"];
                let networks = [self.choices.of(&all), self.choices.of(&all)];
                let ours = format!("client.within('{}', '{}')", networks[0], networks[1]);
                (ours, within(&networks).to_string())
            }
        }
    }
}
