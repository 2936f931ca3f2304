//! Valid and invalid files, and a check that every key can be written.

use std::time::Duration;

use super::*;
use crate::keys::Root;
use crate::limits::Limits;
use crate::table::{Row, RowKind, rows};
use crate::{
    Ejection, Forward, HealthCheck, ProxyHeader, PurgeRules, Queue, Retries, Role, Timeouts,
};

fn parse(text: &str) -> Result<Settings, Vec<Problem>> {
    Settings::parse(text, Path::new("/etc/plimsoll"))
}

/// Line, column and message of each mistake.
fn mistakes(text: &str) -> Vec<(usize, usize, String)> {
    let problems = parse(text).expect_err("it has mistakes");
    problems.into_iter().map(|one| (one.line, one.column, one.message)).collect()
}

const SMALL: &str = "[[listen]]\naddress = '127.0.0.1:80'\n\
    [[upstream]]\nname = 'site'\nserver = [{ url = 'http://127.0.0.1:8000' }]\n";

#[test]
fn a_small_file_is_enough() {
    let settings = parse(SMALL).unwrap();
    let listener = &settings.config.listeners[0];
    assert_eq!((listener.address.port(), listener.role), (80, Role::Reverse));
    assert!(listener.http2);
    assert_eq!(settings.config.groups[0].servers[0].origin.authority, "127.0.0.1:8000");
    assert_eq!(settings.config.memory_bytes, 256 << 20);
    assert!(settings.access_log.is_none());
}

#[test]
fn all_kinds_of_values_are_read() {
    let settings = parse(
        "[server]\nworkers = 3\nbackend = 'poll'\nadmin = '[::1]:9'\nuser = 'www-data'\n\
         [[listen]]\naddress = '[::]:3128'\nrole = 'forward'\nhttp2 = false\n\
         [[upstream]]\nname = 'a'\nbalance = 'hash'\nload_percent_max = 150\nslow_start = '1m'\n\
         server = [{ url = 'http://127.0.0.1', weight = 7, backup = true }]\n\
         timeouts.total = '90s'\nejection.statuses = [502, 503]\nproxy_header = 'v2'\n\
         [upstream.health]\npath = '/up'\nstatus_max = 299\n\
         [[route]]\nhosts = ['*.example.org']\nprefix = '/a'\nupstream = 'a'\nstore = false\n\
         response = [{ set = 'X-A', value = 'b' }, { remove = 'X-B' }]\n\
         [[route]]\npath = '/old'\nredirect = '/new'\nstatus = 301\n\
         [store]\nmemory = '1.5GiB'\n\
         [purge]\nfrom = ['10.0.0.0/8', '::1']\n\
         [via]\nresponses = false\nname = 'cache-1.example'\n\
         [log]\npath = 'access.log'\nformat = 'combined'\n\
         [limits]\nhead_bytes_max = 16384\ndrain_timeout = '0s'\n",
    )
    .unwrap();
    let process = &settings.process;
    assert_eq!((process.workers, process.backend), (Some(3), Some(readiness::Kind::Poll)));
    assert_eq!(settings.access_log.as_deref(), Some(Path::new("/etc/plimsoll/access.log")));
    let config = &settings.config;
    assert!(!config.listeners[0].http2);
    assert_eq!(config.memory_bytes, 3 << 29);
    let group = &config.groups[0];
    assert_eq!(group.balance, Balance::Hash { load_percent_max: 150 });
    assert_eq!((group.servers[0].weight, group.servers[0].backup), (7, true));
    assert_eq!(group.health.as_ref().unwrap().status, (200, 299));
    assert_eq!(group.ejection.statuses, [502, 503]);
    assert_eq!(group.proxy_header, ProxyHeader::V2);
    assert_eq!((config.via.requests, config.via.responses), (true, false));
    assert_eq!(config.via.name.as_ref().unwrap().as_str(), "cache-1.example");
    assert_eq!(config.routes[0].response[1], FieldRule::Remove("X-B".into()));
    assert!(matches!(config.routes[1].action, Action::Redirect { status: 301, .. }));
    assert_eq!(config.limits.head_bytes_max, 16384);
    assert!(config.limits.drain_timeout.is_zero());
    assert_eq!(config.purge.from[1].prefix_len(), 128);
}

#[test]
fn settings_for_keys_and_lifetimes_are_read() {
    let settings = parse(&format!(
        "{SMALL}[[route]]\nhosts = ['{{t}}.example.org']\npath = '/{{lang}}/*'\n\
         upstream = 'site'\nquery = 'sort'\nquery_drop = ['utm_*', 'fbclid']\n\
         key_cookies = ['lang']\nkey_fields = ['X-A']\ndevice = true\n\
         bypass_cookies = ['session*']\ncookies_sent = 'key'\nnegative = '10s'\n\
         lifetime = [{{ status = ['2xx', 404], content_type = ['image/*'], ttl = '1h', \
         overrule = true, grace = '1m', error_grace = '1d' }}]\n\
         request = [{{ set = 'X-L', value = '{{lang}} {{t}}' }}]\n"
    ))
    .unwrap();
    let route = &settings.config.routes[0];
    assert_eq!(route.captures(), ["t", "lang", "*"]);
    assert_eq!((route.key.query, route.key.query_drop.len()), (crate::Query::Sort, 2));
    assert!(route.key.device && route.negative == Some(Duration::from_secs(10)));
    let lifetime = &route.lifetimes[0];
    assert!(lifetime.overrule && lifetime.ttl == Some(Duration::from_secs(3600)));
    assert_eq!(lifetime.status[1], crate::StatusPattern::One(404));
}

#[test]
fn a_mistake_in_a_setting_is_shown_where_it_is() {
    let route = "[[route]]\nhosts = ['{t}.example.org']\npath = '/{lang}/*'\n";
    for (lines, column, what) in [
        ("upstream = 'site'\nquery_drop = ['a*b']\n", 15, "not a pattern for names"),
        ("upstream = 'site'\nlifetime = [{ status = ['9xx'], ttl = '1s' }]\n", 25, "a status"),
        ("upstream = 'site'\nlifetime = [{ overrule = true }]\n", 13, "sets nothing"),
        ("upstream = 'site'\nkey_fields = ['Cookie']\n", 14, "key_cookies"),
        ("upstream = 'site'\nrequest = [{ set = 'X', value = '{x}' }]\n", 11, "captures {x}"),
        ("status = 301\nredirect = 'https://{lang}.org/'\n", 12, "in the host of a URL"),
    ] {
        let found = mistakes(&format!("{SMALL}{route}{lines}"));
        assert_eq!((found[0].0, found[0].1), (10, column), "{lines}{found:?}");
        assert!(found[0].2.contains(what), "{what}: {}", found[0].2);
    }
    let found = mistakes(&format!("{SMALL}[[route]]\npath = '/a{{b}}'\nupstream = 'site'\n"));
    assert_eq!((found[0].0, found[0].1), (7, 8), "{found:?}");
}

#[test]
fn a_setting_without_effect_is_a_mistake() {
    for (lines, at, what) in [
        ("answer = 'x'\nquery = 'sort'\n", (8, 9), "routes to an upstream"),
        ("redirect = '/x'\nnegative = '1s'\n", (8, 12), "routes to an upstream"),
        ("answer = 'x'\ndevice = true\n", (8, 10), "routes to an upstream"),
        ("upstream = 'site'\nstore = false\nbypass_cookies = ['a']\n", (9, 18), "no effect"),
        ("upstream = 'site'\nstore = false\nlifetime = [{ttl='1s'}]\n", (9, 12), "no effect"),
        ("upstream = 'site'\nquery_keep = []\n", (8, 14), "query = \"none\""),
        ("upstream = 'site'\nkey_fields = ['X-A', 'x-a']\n", (8, 14), "twice"),
        ("upstream = 'site'\nkey_fields = ['TE']\n", (8, 14), "one connection"),
        ("upstream = 'site'\nprefix = '/{lang}'\n", (8, 10), "captures nothing"),
        ("path = '/x'\nredirect = '/y/{lang}'\n", (8, 12), "captures {lang}"),
        (
            "upstream = 'site'\ndevice = true\n\
             request = [{ default = 'x-device-class', value = 'a' }]\n",
            (8, 10),
            "itself",
        ),
    ] {
        let found = mistakes(&format!("{SMALL}[[route]]\n{lines}"));
        assert_eq!((found[0].0, found[0].1), at, "{lines}{found:?}");
        assert!(found[0].2.contains(what), "{what}: {}", found[0].2);
    }
    // It is sent to the upstream also without a store.
    let device = "[[route]]\nupstream = 'site'\nstore = false\ndevice = true\n";
    assert!(parse(&format!("{SMALL}{device}")).is_ok());
}

#[test]
fn a_mistake_at_a_unix_socket_is_shown_where_it_is() {
    let upstream = "[[upstream]]\nname = 's'\nserver = [{ url = 'http://127.0.0.1:1' }]\n";
    let listen = |lines: &str| mistakes(&format!("[[listen]]\n{lines}{upstream}"));
    for (lines, at, what) in [
        ("address = 'unix:x'\n", (2, 11), "absolute path"),
        ("address = '127.0.0.1:0'\nmode = '0600'\n", (3, 8), "only a Unix socket"),
        ("address = '127.0.0.1:0'\ntrusted_proxies = ['unix']\n", (3, 19), "only a Unix socket"),
        ("address = '127.0.0.1:0'\nproxy_from = ['unix']\n", (3, 14), "only a Unix socket"),
        ("address = 'unix:/x'\ntrusted_proxies = ['::/0']\n", (3, 19), "\"unix\" is all"),
        ("address = 'unix:/x'\nproxy_from = ['unix', '::1']\n", (3, 14), "\"unix\" is all"),
        ("address = 'unix:/x'\ntrusted_proxies = ['unix:/y']\n", (3, 20), "or \"unix\""),
        ("address = 'unix:/x'\nmode = '999'\n", (3, 8), "octal"),
        ("address = 'unix:/x'\nowner = 'no-such-user'\n", (3, 9), "no user"),
        ("address = 'unix:/x'\ngroup = 'no-such-group'\n", (3, 9), "no group"),
        ("address = 'unix:/x'\ncongestion_control = 'bbr'\n", (3, 22), "is lost"),
        ("address = '127.0.0.1:0'\ncongestion_control = 'b r'\n", (3, 22), "the name of one"),
        ("address = 'unix:/x'\nrole = 'forward'\n", (2, 11), "by their addresses"),
        ("address = 'unix:/x'\n[[listen]]\naddress = 'unix:/x'\n", (4, 11), "another listener"),
    ] {
        let found = listen(lines);
        assert_eq!((found[0].0, found[0].1), at, "{lines}{found:?}");
        assert!(found[0].2.contains(what), "{what}: {}", found[0].2);
    }
    let well = "address = 'unix:/x'\nmode = '0666'\nowner = 'root'\ntrusted_proxies = ['unix']\n";
    let config = parse(&format!("[[listen]]\n{well}{upstream}")).unwrap().config;
    let listener = &config.listeners[0];
    assert_eq!((listener.rights.mode, listener.rights.uid), (0o666, Some(0)));
    let front = listener.front.as_ref().unwrap();
    let unknown = "0.0.0.0".parse().unwrap();
    assert!(front.trusts(unknown) && !front.trusts_named(unknown));
    let others: [std::net::IpAddr; 3] =
        ["127.0.0.1", "::", "0.0.0.1"].map(|ip| ip.parse().unwrap());
    assert!(!others.into_iter().any(|other| front.trusts(other)), "they have an address");
}

#[test]
fn a_mistake_in_a_session_or_in_several_servers_is_shown_where_it_is() {
    let name = "url = 'http://a.example', addresses = 'all'";
    let names = vec![format!("{{ {name} }}"); 5].join(", ");
    for (lines, line, what) in [
        ("server = [{ url = 'http://127.0.0.1:1', id = 'a' }]\n", 5, "[upstream.sticky]"),
        ("server = [{ url = 'http://127.0.0.1:1', id = 'a b' }]\nsticky = {}\n", 5, "separators"),
        (
            "server = [{ url = 'http://127.0.0.1:1', id = 'a' }, { url = 'http://h', id = 'a' }]\n\
             sticky = {}\n",
            5,
            "two servers would be `a`",
        ),
        ("server = [{ url = 'http://127.0.0.1:1', addresses = 'all' }]\n", 5, "several addresses"),
        ("server = [{ url = 'srv:_http._tcp.a.example', id = 'a' }]\n", 5, "leave out id"),
        ("server = [{ url = 'srv:10.0.0.1' }]\n", 5, "_http._tcp"),
        (&format!("server = [{names}]\n"), 5, "at most 128 servers"),
        ("server = [{ url = 'http://h' }]\nhash_by = 'client'\n", 6, "balance = \"hash\""),
        ("server = [{ url = 'http://h' }]\nsticky = { cookie = 'a b' }\n", 6, "of a cookie"),
        ("server = [{ url = 'http://h' }]\nsticky = { path = 'a' }\n", 6, "a slash"),
        (
            "server = [{ url = 'http://h' }]\nsticky = { same_site = 'none', secure = false }\n",
            6,
            "SameSite=None",
        ),
    ] {
        let listen = "[[listen]]\naddress = '127.0.0.1:0'\n";
        let found = mistakes(&format!("{listen}[[upstream]]\nname = 's'\n{lines}"));
        assert_eq!(found[0].0, line, "{lines}{found:?}");
        assert!(found[0].2.contains(what), "{what}: {}", found[0].2);
    }
}

#[test]
fn an_unknown_key_is_shown_with_the_nearest_one() {
    let text = format!("{SMALL}[limits]\nidle_keepalive = '1s'\nhead_tmeout = '1s'\nnothing = 1\n");
    let found = mistakes(&text);
    assert_eq!((found[0].0, found[0].1), (7, 1));
    assert_eq!(
        found[0].2,
        "there is no key `idle_keepalive` in [limits]; did you mean `idle_keep_alive`?"
    );
    assert!(found[1].2.contains("did you mean `head_timeout`?"), "{}", found[1].2);
    assert!(found[2].2.contains("the known keys are `head_bytes_max`, "), "{}", found[2].2);
    let found = mistakes(&format!("{SMALL}[limit]\n"));
    assert!(found[0].2.contains("did you mean `limits`?"), "{}", found[0].2);
}

#[test]
fn all_mistakes_are_reported_in_order() {
    let found = mistakes(
        "[limits]\nhead_timeout = 30\nfields_max = 5000\nbody_timeout = 'soon'\n\
         [[listen]]\nrole = 'revers'\n[store]\nmemory = '1QB'\n[server]\nworkers = 'two'\n",
    );
    let lines: Vec<usize> = found.iter().map(|(line, ..)| *line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 6, 8, 10], "{found:#?}");
    for (at, what) in [
        (0, "needs a unit"),
        (1, "out of bounds: from 8 to 128"),
        (2, "not a length of time"),
        (3, "`address` is missing in [[listen]]"),
        (4, "must be one of `reverse` and `forward`"),
        (5, "not a unit of bytes"),
        (6, "expected a whole number, found a string"),
    ] {
        assert!(found[at].2.contains(what), "{what}: {}", found[at].2);
    }
}

#[test]
fn contradictions_are_reported_at_their_place() {
    let route = |keys: &str| format!("{SMALL}[[route]]\n{keys}\n");
    for (text, line, what) in [
        (route("upstream = 'sight'"), 7, "no group with the name sight"),
        (route("path = '/a'"), 6, "leads nowhere"),
        (route("upstream = 'site'\nanswer = 'a'"), 6, "one of upstream"),
        (route("upstream = 'site'\npath = '/a'\nprefix = '/b'"), 9, "not both"),
        (route("upstream = 'site'\nrequest = [{ set = 'Host', value = 'a' }]"), 6, "Host"),
        (route("upstream = 'site'\nrequest = [{ set = 'X-A' }]"), 8, "need a value"),
        (format!("{SMALL}{SMALL}"), 7, "used by another listener already"),
        (SMALL.replace("[[upstream]]", "[[route]]"), 3, "leads nowhere"),
        ("[[listen]]\naddress = '127.0.0.1:80'\n".to_owned(), 1, "write [[upstream]]"),
        (String::new(), 1, "write [[listen]]"),
        (format!("{SMALL}[server]\ngroup = 'x'\n"), 7, "a group needs a user"),
        (SMALL.replace("http://127.0.0.1:8000", "ftp://a"), 5, "ftp://a"),
    ] {
        let found = mistakes(&text);
        assert!(found[0].2.contains(what), "{text}: {found:?}");
        assert_eq!(found[0].0, line, "{text}: {found:?}");
    }
}

/// A quota that limits no request must not look valid.
#[test]
fn a_quota_without_an_effect_is_a_mistake() {
    let quota = |keys: &str| format!("{SMALL}[[quota]]\nname = 'q'\nrequests = '9/s'\n{keys}\n");
    let connections = |keys: &str| quota(keys).replace("requests = '9/s'", "connections = 9");
    for (text, what) in [
        (connections("burst = 5"), "without `requests`"),
        (quota("bytes_burst = '1MiB'"), "without `bytes`"),
        (quota("delay_max = '1s'"), "without over = \"delay\""),
        (quota("waiting_max = 5"), "without over = \"delay\""),
        (connections("over = 'delay'"), "without `requests`"),
        (connections("counts = 'fetches'"), "or `concurrency`"),
        (connections("fields = true"), "or `concurrency`"),
        (connections("memory = '1MiB'"), "or `bytes`"),
        (quota("by = 'all'\nv4_prefix = 24"), "without by = \"network\""),
        (quota("by = 'all'\nv6_prefix = 48"), "without by = \"network\""),
        (quota("by = 'user'"), "only a forward listener has users"),
        (quota("role = 'forward'"), "no listener has this role"),
        (quota("by = 'user'").replace("[[upstream]]", "role = 'forward'\n[[upstream]]"), "users"),
        (quota("by = 'route'").replace("[[upstream]]", "role = 'forward'\n[[upstream]]"), "routes"),
        (quota("").replace("name = 'q'", "name = ''"), "the text is empty"),
    ] {
        let found = mistakes(&text);
        assert!(found.len() == 1 && found[0].2.contains(what), "{text}: {found:?}");
    }
    for good in ["burst = 5", "over = 'delay'\ndelay_max = '1s'", "v4_prefix = 24\nfields = true"] {
        assert!(parse(&quota(good)).is_ok(), "{good}");
    }
    assert!(parse(&quota("by = 'route'\ncounts = 'fetches'")).is_ok());
}

#[test]
fn invalid_toml_is_reported_at_its_place() {
    let found = mistakes("[limits]\nhead_timeout = \n[[listen]\n");
    assert_eq!(found[0].0, 2, "{found:?}");
    assert!(found.iter().all(|(_, _, message)| !message.contains("missing")), "{found:?}");
}

#[test]
fn a_change_that_needs_a_restart_is_named() {
    let now = parse(SMALL).unwrap();
    let then =
        parse(&format!("{SMALL}[server]\nworkers = 9\n[limits]\nfields_max = 9\nobject_share = 9"));
    assert_eq!(now.only_at_restart(&then.unwrap()), ["server.workers", "limits.object_share"]);
    assert!(now.only_at_restart(&now).is_empty());
}

/// Each key by itself, in its table with the required keys.
#[test]
fn every_key_that_is_documented_is_read() {
    fn walk(rows: &[Row], open: &str, path: &str, seen: &mut usize) {
        let required: String = rows
            .iter()
            .filter(|row| row.required)
            .map(|row| format!("{} = {}\n", row.name, row.example.expect("it has an example")))
            .collect();
        for row in rows {
            match &row.kind {
                RowKind::Value(_, default) => {
                    let value = row.example.map(str::to_owned).or_else(|| default.clone());
                    let value =
                        value.unwrap_or_else(|| panic!("{path}{} has no example", row.name));
                    let own = if row.required { "" } else { &format!("{} = {value}\n", row.name) };
                    let text = format!("{open}{required}{own}");
                    let found = parse(&text).err().unwrap_or_default();
                    for one in &found {
                        let bad = ["no key", "expected", "out of bounds", "is not", "no unit"];
                        let bad = bad.iter().any(|word| one.message.contains(word));
                        assert!(!bad || one.message.contains("no group"), "{text}: {found:?}");
                    }
                    *seen += 1;
                }
                RowKind::Tables { many, rows } => {
                    let path = format!("{path}{}", row.name);
                    let title = if *many { format!("[[{path}]]") } else { format!("[{path}]") };
                    let open = format!("{open}{required}{title}\n");
                    walk(rows, &open, &format!("{path}."), seen);
                }
            }
        }
    }
    let mut seen = 0;
    walk(&rows::<Root>(), "", "", &mut seen);
    assert!(seen > 70, "{seen}");
}

/// A field without a key would be a setting that no file can change.
#[test]
fn every_field_of_a_section_has_a_key() {
    fn hold<T: crate::table::Table + std::fmt::Debug>(apart: usize) {
        let shown = format!("{:#?}", T::default());
        let is_field = |line: &&str| line.starts_with("    ") && !line.starts_with("     ");
        let fields = shown.lines().filter(is_field).filter(|line| line.contains(": ")).count();
        assert_eq!(T::KEYS.len(), fields + apart, "{shown}");
    }
    hold::<Limits>(0);
    hold::<Timeouts>(0);
    hold::<Retries>(0);
    hold::<Queue>(0);
    hold::<Ejection>(0);
    hold::<PurgeRules>(0);
    hold::<Forward>(0);
    hold::<crate::ListenerTls>(0);
    hold::<crate::UpstreamTls>(0);
    hold::<crate::CertificateFiles>(0);
    // The two bounds of a good status are one field.
    hold::<HealthCheck>(1);
}

#[test]
fn the_version_of_http_fits_the_urls() {
    let of = |protocol: &str, schemes: &[&str]| {
        let server = |(at, scheme): (usize, &&str)| {
            format!("[[upstream.server]]\nurl = \"{scheme}://127.0.0.1:{at}\"\n")
        };
        let servers: String = schemes.iter().enumerate().map(server).collect();
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"a\"\n\
             protocol = \"{protocol}\"\n{servers}"
        )
    };
    for (protocol, schemes) in
        [("h2", "http"), ("h2", "https http"), ("h2c", "http https"), ("auto", "http")]
    {
        let schemes: Vec<_> = schemes.split(' ').collect();
        let found = mistakes(&of(protocol, &schemes));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].2.contains(&format!("protocol = \"{protocol}\"")), "{found:?}");
    }
    assert!(parse(&of("h2c", &["http", "http"])).is_ok());
    assert!(parse(&of("http1", &["http"])).is_ok());
    assert_eq!(mistakes(&of("h3", &["http"])).len(), 1);
}

#[test]
fn no_mistake_makes_it_panic() {
    for text in [
        "listen = 1",
        "listen = [1]",
        "[[listen]]\naddress = 1",
        "[limits]\nfields_max = -1",
        "[limits]\nfields_max = 99999999999999999999999",
        "[limits]\nfields_max = 0xZZ",
        "[limits]\nhead_timeout = ''",
        "server = 'x'",
        "[[upstream]]\nserver = 3",
        "[[upstream]]\n[[upstream.server]]\n[upstream.health]\npath = ''",
        "[purge]\nfrom = 'x'",
        "[purge]\nfrom = ['x', 1, '10.0.0.0/33']",
        "\u{feff}[limits]",
        "a.b.c = { d = [ { e = 1 } ] }",
        "\"\" = 1",
    ] {
        assert!(!mistakes(text).is_empty(), "{text}");
    }
}

#[test]
fn the_documents_are_what_the_list_of_keys_says() {
    for (file, text) in
        [("docs/configuration.md", crate::markdown()), ("docs/example.toml", crate::example())]
    {
        let path = format!("{}/../../../{file}", env!("CARGO_MANIFEST_DIR"));
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == text,
            "{file} is not up to date: cargo run -p plimsoll -- reference --configuration > \
             docs/configuration.md; the same with --example > docs/example.toml"
        );
    }
    assert!(parse(&crate::example()).is_ok(), "{:?}", parse(&crate::example()).err());
}

#[test]
fn a_sibling_has_a_digest_and_little_time() {
    let text = "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n\
         [[peer]]\nurl = \"http://127.0.0.1:1\"\nkind = \"sibling\"\ndigest = true\n\
         [[peer]]\nurl = \"http://127.0.0.2:1\"\nicp = 3130\n\
         [hierarchy.timeouts]\nfirst_byte = \"90s\"\nconnect = \"1s\"\n\
         [hierarchy]\nhit_timeout = \"3s\"\n\
         [digest]\nallow_from = [\"10.0.0.0/8\"]\n";
    let config = Settings::parse(text, Path::new("")).unwrap().config;
    let asked = config.hierarchy.unwrap().asked;
    let seconds = |n| Some(Duration::from_secs(n));
    let of = |at: usize| {
        let timeouts = asked[at].group.timeouts;
        (asked[at].digest, asked[at].queries.is_some(), timeouts.connect, timeouts.first_byte)
    };
    assert_eq!(of(0), (true, false, seconds(1), seconds(3)));
    assert_eq!(of(1), (false, true, seconds(1), seconds(90)), "a parent may fetch");
    let digest = config.digest.unwrap();
    assert_eq!(digest.interval, Duration::from_secs(3600));
    let allows = |from: &str| digest.allows(from.parse().unwrap());
    assert!(allows("10.1.2.3") && allows("::ffff:10.1.2.3") && !allows("192.0.2.1"));
}

#[test]
fn a_digest_is_for_someone_and_made_at_most_each_minute() {
    let mistakes = |section: &str| {
        let text = format!("[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n{section}");
        Settings::parse(&text, Path::new("")).err().map(|error| format!("{error:?}"))
    };
    let allowed = "[digest]\nallow_from = [\"10.0.0.0/8\"]\n";
    assert_eq!(mistakes(allowed), None);
    assert_eq!(mistakes(&format!("{allowed}interval = \"1m\"\n")), None);
    let said = mistakes("[digest]\n").expect("a mistake");
    assert!(said.contains("`allow_from` is missing"), "{said}");
    let said = mistakes("[digest]\nallow_from = []\n").expect("a mistake");
    assert!(said.contains("write who may"), "{said}");
    let said = mistakes(&format!("{allowed}interval = \"59s\"\n")).expect("a mistake");
    assert!(said.contains("interval"), "{said}");
}

#[test]
fn a_peer_without_tls_is_no_place_for_https() {
    let warns = |more: &str| {
        let text = format!("[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n{more}");
        let config = Settings::parse(&text, Path::new("")).unwrap().config;
        config.warnings().iter().filter(|text| text.contains("in the clear")).count()
    };
    let sibling = "kind = \"sibling\"\nicp = 1\n";
    assert_eq!(warns("[[peer]]\nurl = \"http://192.0.2.1:3128\"\n"), 1);
    assert_eq!(warns(&format!("[[peer]]\nurl = \"http://192.0.2.1:3128\"\n{sibling}")), 1);
    assert_eq!(warns("[[peer]]\nurl = \"http://127.0.0.1:3128\"\n"), 0, "on this machine");
    assert_eq!(warns(""), 0);
}

#[test]
fn peers_are_parents_with_their_rules() {
    let login = std::env::temp_dir().join(format!("plimsoll-login-{}", std::process::id()));
    std::fs::write(&login, "jo:secret\n").unwrap();
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n\
         [[peer]]\nurl = \"http://127.0.0.1:3128\"\nweight = 3\nlogin = {login:?}\n\
         [[peer]]\nurl = \"http://127.0.0.2:3128\"\nbackup = true\n\
         [hierarchy]\nbalance = \"carp\"\nalways_direct = [\"in.example\"]\n\
         never_direct = [\"*\"]\nalways_direct_methods = [\"POST\"]\n"
    );
    let settings = Settings::parse(&text, Path::new("")).unwrap();
    std::fs::remove_file(&login).unwrap();
    let hierarchy = settings.config.hierarchy.unwrap();
    let parents = hierarchy.parents.unwrap();
    assert_eq!((parents.name.as_str(), parents.balance), ("parents", Balance::Carp));
    assert_eq!((parents.servers[0].weight, parents.servers[1].backup), (3, true));
    let line = b"Proxy-Authorization: Basic am86c2VjcmV0\r\n";
    assert_eq!(parents.servers[0].login.as_ref().unwrap().line(), line);
    assert_eq!(hierarchy.never_direct, [crate::DirectRule::All]);
    let of = |more: &str| {
        let text = format!("[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n{more}");
        Settings::parse(&text, Path::new("")).map_err(|all| all[0].message.clone())
    };
    for (more, word) in [
        ("[[peer]]\nurl = \"http://127.0.0.1:1\"\nlogin = \"/nowhere\"\n", "login file"),
        ("[[peer]]\nkind = \"parent\"\n", "url"),
        ("[[peer]]\nurl = \"http://127.0.0.1:1\"\nkind = \"sibling\"\n", "icp or htcp"),
        ("[[peer]]\nurl = \"http://127.0.0.1:1\"\nicp = 1\nhtcp = 2\n", "one protocol"),
        (
            "[[peer]]\nurl = \"http://127.0.0.1:1\"\nicp = 1\n\
             [[peer]]\nurl = \"http://127.0.0.1:1\"\n",
            "a peer already",
        ),
        (
            "[[peer]]\nurl = \"http://127.0.0.1:1\"\nkind = \"sibling\"\nicp = 1\nweight = 2\n",
            "for parents",
        ),
        ("[htcp]\nallow_from = []\n", "listen"),
        ("[hierarchy]\nalways_direct_methods = [\"post\"]\n", "post"),
        ("[hierarchy]\nalways_direct_methods = [\"\"]\n", "empty"),
        ("[hierarchy]\nnever_direct = [\"*\"]\n", "without a parent"),
        (
            "[hierarchy]\nnever_direct = [\"*\"]\n\
             [[peer]]\nurl = \"http://127.0.0.1:1\"\nkind = \"sibling\"\nicp = 1\n",
            "without a parent",
        ),
        (
            "[[upstream]]\nname = \"a\"\n[[upstream.server]]\nurl = \"http://127.0.0.1:2\"\n\
          [[route]]\nupstream = \"a\"\npeers = true\n",
            "write hosts",
        ),
        (
            "[[upstream]]\nname = \"a\"\n[[upstream.server]]\nurl = \"http://127.0.0.1:2\"\n\
          [[route]]\nupstream = \"a\"\npeers = true\nhosts = [\"*.example.org\"]\n",
            "exact hosts",
        ),
        (
            "[[upstream]]\nname = \"a\"\n[[upstream.server]]\nurl = \"http://127.0.0.1:2\"\n\
          [[route]]\nupstream = \"a\"\npeers = true\nhosts = [\"h\"]\nquery = \"none\"\n",
            "no part of a key",
        ),
        ("[hierarchy]\nnever_direct = [\"a b\"]\n", "a b"),
        (
            "[[peer]]\nurl = \"http://127.0.0.1:1\"\n[[upstream]]\nname = \"parents\"\n\
             [[upstream.server]]\nurl = \"http://127.0.0.1:2\"\n",
            "group of parents",
        ),
    ] {
        let said = of(more).unwrap_err();
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn a_cluster_has_one_member_that_is_this_server_or_a_name_that_may_have_no_address_yet() {
    let of = |more: &str| {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n\
             [cluster]\nlisten = \"0.0.0.0:7000\"\n{more}\n"
        );
        let parsed = Settings::parse(&text, Path::new(""));
        let cluster = parsed.map(|settings| settings.config.cluster.unwrap());
        cluster.map_err(|all| all[0].message.clone())
    };
    let two = "members = [\"127.0.0.1:7000\", \"127.0.0.2:7000\"]";
    assert!(of(two).unwrap_err().contains("name it in `self`"));
    let named = of(&format!("{two}\nself = \"127.0.0.2:7000\"")).unwrap();
    assert_eq!(named.own_among(&named.members), ["127.0.0.2:7000".parse().unwrap()]);
    let nowhere = of("name = \"nowhere.invalid:7000\"").unwrap();
    assert_eq!((nowhere.members.len(), nowhere.name.unwrap().1), (0, 7000));
    for wrong in ["name = \"nowhere.invalid\"", "name = \"a/b:7000\"", "name = \"127.0.0.1:7\""] {
        assert!(of(wrong).unwrap_err().contains("a host and a port"), "{wrong}");
    }
}

#[test]
fn a_part_of_a_route_has_what_the_route_has() {
    let text = r#"
        listen = [{ address = "127.0.0.1:0" }]
        upstream = [{ name = "app", server = [{ url = "http://127.0.0.1:1" }] },
                    { name = "other", server = [{ url = "http://127.0.0.1:2" }] }]
        [[route]]
        hosts = ["a.example", "b.example"]
        upstream = "app"
        set_cookie = "strip"
        finish_abandoned = true
        lifetime = [{ ttl = "1m" }]
        response = [{ set = "X-A", value = "1" }]
        part = [
            { prefix = "/api", store = false },
            { prefix = "/old", redirect = "https://c.example/", status = 301 },
            { prefix = "/other", upstream = "other", lifetime = [{ ttl = "2m" }],
              response = [{ set = "X-B", value = "2" }], hosts = ["b.example"] },
        ]
        [[route]]
        part = [{ prefix = "/x", answer = "x" }]
    "#;
    let config = parse(text).unwrap().config;
    let places: Vec<&str> = config.routes.iter().map(|route| route.place.as_str()).collect();
    let parts = ["route[0].part[0]", "route[0].part[1]", "route[0].part[2]"];
    assert_eq!(places, [&parts[..], &["route[0]", "route[1].part[0]"]].concat());
    let [api, old, other, whole, x] = &config.routes[..] else { panic!("five routes") };
    assert_eq!((&api.hosts, &api.action), (&whole.hosts, &whole.action));
    assert!(!api.store && whole.store && api.finish_abandoned);
    assert_eq!((&api.lifetimes, &api.response), (&whole.lifetimes, &whole.response));
    assert!(matches!(&old.action, Action::Redirect { status: 301, .. }));
    assert!(old.lifetimes.is_empty() && old.set_cookie.is_none() && old.response.len() == 1);
    assert_eq!((other.hosts.len(), &other.action), (1, &Action::Group("other".into())));
    let ttls: Vec<_> = other.lifetimes.iter().map(|one| one.ttl.unwrap().as_secs()).collect();
    assert_eq!((ttls, other.response.len()), (vec![120, 60], 2));
    assert!(x.hosts.is_empty());
    assert_eq!(api.name(0), "route[0].part[0]");
    assert_eq!(other.summary().matches("changes").count(), 2);
    let wrong = text.replace("prefix = \"/api\", ", "");
    let found = parse(&wrong).unwrap_err();
    assert!(found[0].message.contains("this part is for no requests"), "{found:?}");
    let wrong = text.replace("upstream = \"other\",", "upstream = \"third\",");
    let found = parse(&wrong).unwrap_err();
    assert_eq!((found.len(), found[0].line), (1, 15), "{found:?}");
}

#[test]
fn no_upstream_is_needed_where_none_is_used() {
    let listen = "listen = [{ address = \"127.0.0.1:0\" }]\n";
    let redirect = format!("{listen}route = [{{ redirect = \"https://a.example\" }}]");
    assert!(parse(&redirect).unwrap().config.groups.is_empty());
    assert!(parse(listen).unwrap_err()[0].message.contains("[[route]]"));
}

/// The service got a stranger's address first; and a response for one user went to all.
#[test]
fn a_service_gets_our_fields_once_and_what_it_writes_is_not_stored_for_all() {
    let of = |fields: &str, action: &str| {
        let text = format!(
            "{SMALL}[[route]]\n{action}\n[route.auth]\nupstream = 'site'\n{fields}\n\
             [[rule]]\nwhen = \"path == '/app'\"\nupstream = 'site'\n"
        );
        parse(&text).map(|_| ()).map_err(|found| found[0].message.clone())
    };
    let redirect = "redirect = 'https://a.example/'";
    assert_eq!(of("fields = ['Cookie', 'X-Real-IP']", redirect), Ok(()));
    for name in ["X-Forwarded-For", "x_forwarded_uri"] {
        let wrong = of(&format!("fields = ['{name}']"), redirect).unwrap_err();
        assert!(wrong.contains("is written by us"), "{wrong}");
    }
    let copy = "copy = ['X-User']";
    let wrong = of(copy, redirect).unwrap_err();
    assert!(wrong.contains("write store = false"), "{wrong}");
    assert_eq!(of(copy, &format!("{redirect}\nstore = false")), Ok(()));
}

/// A rule led requests for the part to an upstream, which stored what the route keeps out.
#[test]
fn a_part_that_answers_keeps_the_store_and_the_limit_of_its_route() {
    let text = format!(
        "{SMALL}[[route]]\nupstream = 'site'\nstore = false\nbody_bytes_max = 9\n\
         part = [{{ prefix = '/old', redirect = 'https://a.example/' }}]\n"
    );
    let config = parse(&text).unwrap().config;
    let part = &config.routes[0];
    assert_eq!((part.store, part.body_bytes_max), (false, Some(9)));
}
