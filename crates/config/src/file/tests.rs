//! Valid and invalid files, and a check that every key can be written.

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
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
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
