//! The requests that both files suggest.
//!
//! A base is a place that a request can go to: listener, host, path. Each round sends a kind of
//! request to all bases: first each path twice, then what conditions name (cookies, parameters,
//! fields, clients), then methods, spellings and kinds of responses. The order depends on the files
//! alone, so both servers get the same requests, and so does the next run.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::job::{Job, Place, Request};

/// Where requests can go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) to: SocketAddr,
    pub(crate) tls: bool,
    pub(crate) host: String,
    /// The path, or what precedes the path of an absolute target with it.
    pub(crate) path: String,
    /// Whether all paths below it are of the same location.
    pub(crate) is_prefix: bool,
    /// The lines of the original that it comes from.
    pub(crate) place: Option<Place>,
}

/// What conditions name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    pub(crate) cookies: BTreeSet<String>,
    pub(crate) arguments: BTreeSet<String>,
    pub(crate) fields: BTreeSet<(String, String)>,
    pub(crate) clients: BTreeSet<Ipv4Addr>,
    pub(crate) methods: BTreeSet<String>,
}

/// A sandbox for the original, and the requests for both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) job: Job,
    pub(crate) bases: Vec<Base>,
    pub(crate) named: Named,
    /// Parts of the file that no request is for.
    pub(crate) unasked: Vec<String>,
    /// Whether other spellings of paths and hosts are asked for, too.
    pub(crate) has_spellings: bool,
    /// Whether there are limits for each client. Then each request has its own client, because the
    /// limits of the two servers refuse other requests of a burst.
    pub(crate) has_limits: bool,
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

impl Base {
    /// In a list of what was not asked.
    pub(crate) fn shown(&self) -> String {
        let host = with_port(&self.host, self.to.port(), self.tls);
        let path = if self.path.starts_with('/') { host + &self.path } else { self.path.clone() };
        match &self.place {
            Some((file, line, _)) => format!("{file}:{line}: {path}"),
            None => path,
        }
    }

    fn request(&self, method: &str, target: String, fields: &[(&str, &str)]) -> Request {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Request {
            to: self.to,
            from: LOOPBACK,
            tls: self.tls,
            method: method.to_owned(),
            target,
            host: with_port(&self.host, self.to.port(), self.tls),
            fields: fields.collect(),
            body: String::new(),
            place: self.place.clone(),
        }
    }

    fn get(&self, target: String, fields: &[(&str, &str)]) -> Request {
        self.request("GET", target, fields)
    }

    /// A target of this base that no other round uses. The origin reads the word, which begins with
    /// `try-`.
    fn at(&self, word: &str) -> String {
        match (self.is_prefix, self.path.ends_with('/')) {
            (true, true) => format!("{}{word}", self.path),
            (true, false) => format!("{}/{word}", self.path),
            (false, _) if self.path.contains('?') => format!("{}&{word}=1", self.path),
            (false, _) => format!("{}?{word}=1", self.path),
        }
    }

    fn twice(&self, word: &str, fields: &[(&str, &str)]) -> Vec<Request> {
        vec![self.get(self.at(word), fields), self.get(self.at(word), fields)]
    }
}

/// The host as a client names it.
fn with_port(host: &str, port: u16, is_tls: bool) -> String {
    let usual = if is_tls { 443 } else { 80 };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if port == usual || has_port { host.to_owned() } else { format!("{host}:{port}") }
}

/// A kind of request.
type Round = fn(&Base) -> Vec<Request>;

/// Other spellings.
const SPELLINGS: &[Round] = &[
    // An expression: a line break and a percent sign at its end.
    |base| {
        let Base { path, .. } = base;
        let shorter = path.char_indices().next_back().map_or("", |(at, _)| &path[..at]);
        let all = [format!("{path}%0a"), format!("{path}%25"), format!("{shorter}%25")];
        let others = all.into_iter().filter(|_| !base.is_prefix && !path.contains('?'));
        others.map(|path| base.get(path, &[])).collect()
    },
    // A host: in upper case, with a final dot, and with its port.
    |base| {
        let usual = base.get(base.at("try-host"), &[]);
        let Base { host, to, .. } = base;
        let all = [host.to_ascii_uppercase(), format!("{host}."), format!("{host}:{}", to.port())];
        let others = all.into_iter().filter(|host| base.path == "/" && *host != usual.host);
        others.map(|host| Request { host, ..usual.clone() }).collect()
    },
];

const ROUNDS: &[Round] = &[
    |base| base.twice("try-cookies", &[("Cookie", "session=1; other=2")]),
    |base| {
        let form = ("Content-Type", "application/x-www-form-urlencoded");
        let request = base.request("POST", base.at("try-form"), &[form]);
        vec![Request { body: "a=b".to_owned(), ..request }]
    },
    |base| base.twice("try-private", &[]),
    |base| base.twice("try-cookie", &[]),
    |base| base.twice("try-none", &[]),
    |base| vec![base.request("HEAD", base.at("try-head"), &[])],
    // Beside it.
    |base| {
        let path = base.path.trim_end_matches('/');
        let beside = [path.to_owned(), format!("{path}beside"), format!("{path}/")];
        let others = beside.into_iter().filter(|path| path.starts_with('/'));
        others.map(|path| base.get(path, &[])).collect()
    },
    |base| vec![base.get(base.at("try-a.css?v=1"), &[]), base.get(base.at("try-a.php"), &[])],
    |base| base.twice("try-missing", &[]),
    |base| base.twice("try-login", &[("Authorization", "Basic am86c2VjcmV0")]),
    |base| vec![base.get(base.at("try-fails"), &[]), base.get(base.at("try-moved"), &[])],
    |base| {
        let forged: &[(&str, &str)] = &[
            ("X-Forwarded-For", "192.0.2.7"),
            ("X-Forwarded-Proto", "https"),
            ("X-Real-IP", "192.0.2.8"),
        ];
        vec![base.get(base.at("try-forged"), forged)]
    },
    |base| base.twice("try-nostore", &[]),
    |base| {
        let of = |language| base.get(base.at("try-vary"), &[("Accept-Language", language)]);
        vec![of("de"), of("fr"), of("de")]
    },
    |base| base.twice("try-coded.css", &[("Accept-Encoding", "gzip")]),
    |base| {
        let part = base.get(base.at("try-part"), &[("Range", "bytes=0-9")]);
        let known = [("If-None-Match", "\"other\"")];
        vec![part.clone(), part, base.get(base.at("try-known"), &known)]
    },
    |base| {
        let all = ["OPTIONS", "PUT", "DELETE", "PATCH"];
        all.map(|method| base.request(method, base.at("try-method"), &[])).to_vec()
    },
    |base| base.twice("try-query?b=2&a=1&utm_source=x", &[]),
    |base| {
        let agent = [("User-Agent", "Mozilla/5.0 (iPhone) Mobile Googlebot curl")];
        let from = [("Referer", "https://elsewhere.example/")];
        vec![base.get(base.at("try-agent"), &agent), base.get(base.at("try-referer"), &from)]
    },
    |base| {
        let spelled = ["try-%61", "try-a//b", "try-a/../b", "try-%2e%2e%2fb", "try-a%20b"];
        spelled.map(|word| base.get(base.at(word), &[])).to_vec()
    },
    |base| vec![Request { host: "other.example".to_owned(), ..base.get(base.at("try-host"), &[]) }],
    |base| {
        let upgrade = [("X-Requested-With", "XMLHttpRequest"), ("Origin", "https://a.example")];
        vec![base.get(base.at("try-script"), &upgrade)]
    },
];

/// The bases that no request is for if there are only so many: each has two, before all others.
pub(crate) fn beyond(bases: &[Base], most: usize) -> impl Iterator<Item = String> {
    bases.iter().skip(most.div_ceil(2)).map(Base::shown)
}

/// At most `most` requests.
pub(crate) fn requests(plan: &Plan, most: usize) -> Vec<Request> {
    let Plan { bases, has_limits, has_spellings, .. } = plan;
    let mut all: Vec<Request> = Vec::new();
    for base in bases {
        all.extend([base.get(base.path.clone(), &[]), base.get(base.path.clone(), &[])]);
    }
    all.extend(of_names(plan, most));
    let spellings = if *has_spellings { SPELLINGS } else { &[] };
    for round in spellings.iter().chain(ROUNDS) {
        for base in bases {
            all.extend(round(base));
        }
        if all.len() >= most {
            break;
        }
    }
    all.truncate(most);
    let clients = all.iter_mut().zip(1..).filter(|(request, _)| request.from == LOOPBACK);
    for (request, number) in clients.filter(|_| *has_limits) {
        let [high, low] = u16::to_be_bytes(number);
        request.from = Ipv4Addr::new(127, 1, high, low).into();
    }
    all
}

/// Bases that each name is sent to, at least if there are so many.
const BASES_A_NAME: usize = 3;

/// With few names, a quarter of the requests go to more bases: two to each.
fn of_names(plan: &Plan, most: usize) -> Vec<Request> {
    let Plan { bases, named, has_spellings, .. } = plan;
    let Named { cookies, arguments, fields, clients, methods } = named;
    let names = cookies.len() + arguments.len() + fields.len() + clients.len() + methods.len();
    let bases_a_name = (most / 8 / names.max(1)).max(BASES_A_NAME);
    let mut all = Vec::new();
    let mut next = 0;
    let mut each = |make: &dyn Fn(&Base) -> Vec<Request>| {
        for step in 0..bases.len().min(bases_a_name) {
            all.extend(make(&bases[(next + step) % bases.len()]));
        }
        next += 1;
    };
    for name in cookies {
        let cookie = format!("{name}=1");
        each(&|base| base.twice("try-a", &[("Cookie", &cookie)]));
    }
    for name in arguments {
        each(&|base| {
            let target = base.at("try-a");
            let sign = if target.contains('?') { '&' } else { '?' };
            let target = format!("{target}{sign}{name}=1");
            vec![base.get(target.clone(), &[]), base.get(target, &[])]
        });
    }
    for (name, value) in fields {
        each(&|base| base.twice("try-a", &[(name, value)]));
        let upper = value.to_ascii_uppercase();
        if *has_spellings && upper != *value {
            each(&|base| vec![base.get(base.at("try-a"), &[(name, &upper)])]);
        }
    }
    for client in clients {
        each(&|base| vec![Request { from: (*client).into(), ..base.get(base.at("try-a"), &[]) }]);
    }
    for method in methods {
        each(&|base| vec![base.request(method, base.at("try-a"), &[])]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_same_each_time_and_not_too_many() {
        let base = |path: &str, is_prefix| Base {
            to: SocketAddr::from(([127, 0, 0, 1], 80)),
            tls: false,
            host: "a.example".to_owned(),
            path: path.to_owned(),
            is_prefix,
            place: None,
        };
        let bases = [base("/", true), base("/one", false)];
        let named = Named {
            cookies: BTreeSet::from(["sid".to_owned()]),
            fields: BTreeSet::from([("x-a".to_owned(), "bad".to_owned())]),
            ..Named::default()
        };
        let (bases, has_spellings) = (bases.into(), true);
        let mut plan = Plan { bases, named, has_spellings, ..Plan::default() };
        let all = requests(&plan, 200);
        assert_eq!(all, requests(&plan, 200));
        assert!(all.len() > 60, "{}", all.len());
        assert_eq!(requests(&plan, 5), all[..5]);
        let has = |target: &str| all.iter().any(|request| request.target == target);
        assert!(has("/try-private") && has("/one?try-private=1") && has("/onebeside"));
        assert!(all.iter().any(|request| request.fields.iter().any(|(_, v)| v == "sid=1")));
        assert!(all.iter().all(|request| request.from == LOOPBACK));
        assert!(has("/one%0a") && has("/one%25") && has("/on%25") && !has("/%0a"));
        let hosts: Vec<&str> = all.iter().map(|request| request.host.as_str()).collect();
        assert!(hosts.contains(&"A.EXAMPLE") && hosts.contains(&"a.example."), "{hosts:?}");
        assert!(hosts.contains(&"a.example:80"), "{hosts:?}");
        assert!(all.iter().any(|request| request.fields.iter().any(|(_, v)| v == "BAD")));
        plan.has_limits = true;
        let clients: BTreeSet<IpAddr> =
            requests(&plan, 200).iter().map(|request| request.from).collect();
        assert_eq!(clients.len(), all.len());
        assert!(requests(&Plan::default(), 200).is_empty());
    }
}
