//! Debian's Squid, as a proxy of an office.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use super::{Allowed, Answer, Pair, REQUESTS, Request, origin, pushing};
use crate::hierarchy::Squid;
use crate::support::{
    Home, OurServer, Running, SOON, am_root, free_port, id, output_file, program, wait_for,
};

/// The rules of the file that Debian installs, with what an office adds.
const RULES: &str = "\
acl localnet src 10.0.0.0/8
acl localnet src 192.168.0.0/16
acl SSL_ports port 443
acl Safe_ports port 80
acl Safe_ports port 443
acl Safe_ports port 1025-65535
acl ads dstdomain .ads.example
acl purge method PURGE
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access allow localhost manager
http_access deny manager
http_access allow purge localhost
http_access deny purge
http_access deny ads
http_access allow localnet
http_access allow localhost
http_access deny all
cache_mem 64 MB
maximum_object_size_in_memory 4 MB
connect_timeout 5 seconds
read_timeout 1 minute
forwarded_for on
visible_hostname cache.example
shutdown_lifetime 0 seconds
pinger_enable off
refresh_pattern ^ftp: 1440 20% 10080
refresh_pattern . 0 20% 4320
";

fn hit(answer: &Answer) -> bool {
    answer.field("x-cache").contains("HIT")
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        why: "Squid answers a PURGE of what is not stored with 404; ours purges without a look",
        applies: |request, theirs, ours| {
            request.method == "PURGE" && theirs.status == 404 && ours.status == 200
        },
    },
    Allowed {
        why: "Squid's answer to a PURGE is empty; ours is JSON that has the URL",
        applies: |request, theirs, ours| {
            let same = theirs.status == 200 && ours.status == 200 && theirs.body.is_empty();
            request.method == "PURGE" && same
        },
    },
    Allowed {
        why: "Squid sends the whole of a stored response whose tag matches If-None-Match; ours \
              is 304, as RFC 9110 says",
        applies: |request, theirs, ours| {
            let conditional = request.fields.starts_with("If-None-Match");
            conditional && theirs.status == 200 && ours.status == 304 && super::is_hit(ours)
        },
    },
    Allowed {
        why: "If no tag matches, Squid asks the origin; ours sends the fresh stored response",
        applies: |request, theirs, ours| {
            let conditional = request.fields.starts_with("If-None-Match");
            conditional && theirs.body == ours.body && !hit(theirs) && super::is_hit(ours)
        },
    },
    Allowed {
        why: "Squid stores no 404 without negative_ttl; ours stores one that has a lifetime",
        applies: |request, theirs, ours| {
            let missing = request.target.contains("/missing/");
            missing && theirs.status == 404 && ours.status == 404 && super::is_hit(ours)
        },
    },
    Allowed {
        why: "with nothing stored, Squid passes on the whole that an origin sends for a range; \
              ours sends the range of it",
        applies: |request, theirs, ours| {
            let ranged = request.fields.starts_with("Range") && !hit(theirs);
            ranged && theirs.status == 200 && ours.status == 206
        },
    },
];

/// Our own files, and servers on this machine, which Squid reaches without a word.
const OWN: &[(&str, &str)] = &[
    ("/squid/access.log", "/ours.log"),
    ("user = \"proxy\"", "user = \"root\""),
    ("[forward]\n", "[forward]\nallow_to = [\"127.0.0.0/8\", \"::1\"]\n"),
];

#[test]
fn squid_and_its_imported_file_answer_alike() {
    let home = Home::new();
    let origin = origin("one");
    let theirs = free_port();
    let text = format!("http_port 127.0.0.1:{theirs}\n{RULES}");
    let _server = squid(&home, theirs, &text);
    let pair = Pair {
        fields: &["x-seen-host", "x-seen-for", "cache-control"],
        allowed: ALLOWED,
        ..Pair::start(&home, ("squid.conf", theirs), Some(&[]), OWN, hit)
    };
    pair.compare(&requests(origin.address.port()));
}

/// Debian's Squid on this file, with its own files in a directory of the test.
fn squid(home: &Home, port: u16, text: &str) -> Running {
    let squid = program("squid", "squid");
    let own = home.path().join("squid");
    std::fs::create_dir(&own).unwrap();
    let mut user = "";
    if am_root() {
        let number = |flag| id(flag, Some("proxy")).parse().ok();
        std::os::unix::fs::chown(&own, number("-u"), number("-g")).unwrap();
        user = "cache_effective_user proxy\n";
    }
    let at = home.path().display();
    let text = format!(
        "{text}{user}access_log stdio:{at}/squid/access.log squid\n\
         cache_log {at}/squid/cache.log\npid_filename {at}/squid/squid.pid\n\
         coredump_dir {at}/squid\n"
    );
    let conf = home.write("squid.conf", text);
    let mut server = Running::start(
        Command::new(squid)
            .args(home.squid("squid", &conf))
            .stdout(Stdio::null())
            .stderr(output_file(home, "squid.err")),
    );
    wait_for("squid", SOON, || {
        assert!(!server.has_ended(), "{}", home.read("squid.err"));
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    server
}

/// A parent that gets everything but one host, and a limit of connections.
#[test]
fn squid_and_its_imported_file_have_the_same_parent() {
    let home = Home::new();
    let (direct, parent) = (origin("direct"), origin("parent"));
    let theirs = free_port();
    let text = format!(
        "http_port 127.0.0.1:{theirs}
{}acl here dstdomain localhost
cache_peer 127.0.0.1 parent {} 0 no-query default name=up
always_direct allow here
never_direct allow all
",
        RULES.replace(
            "http_access deny ads\n",
            "acl many maxconn 1000\nhttp_access deny many\nhttp_access deny ads\n"
        ),
        parent.address.port()
    );
    let _server = squid(&home, theirs, &text);
    let pair = Pair {
        fields: &["x-seen-host", "x-seen-for", "x-origin"],
        allowed: &ALLOWED[..0],
        ..Pair::start(&home, ("squid.conf", theirs), Some(&[]), OWN, hit)
    };
    let port = direct.address.port();
    let mut all = Vec::new();
    for at in 0..REQUESTS {
        let few = at / 8 % 7;
        all.push(match at % 8 {
            0..3 => Request::get(format!("http://up.example/fresh/{few}"), "up.example"),
            3 => Request::get(
                format!("http://localhost:{port}/fresh/{few}"),
                format!("localhost:{port}"),
            ),
            4 => Request::get(format!("http://up.example/none/{few}"), "up.example"),
            5 => Request::get("http://www.ads.example/x", "www.ads.example"),
            6 => Request::get(format!("http://up.example/form/{at}"), "up.example")
                .method("POST", "name=value"),
            _ => Request::get(
                format!("http://localhost:{port}/private/{few}"),
                format!("localhost:{port}"),
            ),
        });
    }
    pair.compare(&all);
}

/// What a sibling has comes from it, by a query.
#[test]
fn squid_and_its_imported_file_ask_the_same_sibling() {
    let home = Home::new();
    let one = OurServer::origin();
    let sibling = Squid::start(&home, "sibling", "");
    let (theirs, queries) = (free_port(), free_port());
    // Squid asks no peer about origins that are near.
    let text = format!(
        "http_port 127.0.0.1:{theirs}
{RULES}cache_peer 127.0.0.2 sibling {} {} no-digest
icp_port {queries}
udp_incoming_address 127.0.0.1
icp_access deny all
icp_query_timeout 2000
minimum_direct_hops 0
minimum_direct_rtt 0
",
        sibling.http.port(),
        sibling.icp
    );
    let line = |word: &str| 1 + text.lines().position(|line| line.starts_with(word)).unwrap();
    let left = ["icp_query_timeout", "minimum_direct_hops", "minimum_direct_rtt"].map(line);
    let _server = squid(&home, theirs, &text);
    let (from, to) = (format!("127.0.0.1:{queries}"), format!("127.0.0.1:{}", free_port()));
    let replaced: Vec<(&str, &str)> =
        OWN.iter().copied().chain([(from.as_str(), to.as_str())]).collect();
    let pair = Pair::start(&home, ("squid.conf", theirs), Some(&left), &replaced, hit);
    let to = |at| Request::get(format!("{}/obj/{at}", one.url()), "127.0.0.1");
    // It adds itself to Via.
    let is_from_sibling = |address, at| {
        let answer = super::ask(address, &to(at));
        assert_eq!(answer.status, 200);
        answer.field("via").contains("sibling.test")
    };
    // Squid waits for the answers of a peer only after it has seen that one answers.
    let mut warm = 1000;
    wait_for("Squid's trust in its sibling", SOON, || {
        warm += 1;
        super::ask(sibling.http, &to(warm));
        is_from_sibling(pair.theirs, warm).then_some(())
    });
    (0..10).for_each(|at| assert!(is_from_sibling(sibling.http, at)));
    for at in 0..20 {
        for address in [pair.theirs, pair.ours] {
            assert_eq!(is_from_sibling(address, at), at < 10, "{address} {at}");
        }
    }
}

/// Rules that are not carried. Where they are, ours is closed.
#[test]
fn what_squid_keeps_is_kept() {
    let home = Home::new();
    let app = origin("app");
    let theirs = free_port();
    let text = format!(
        "http_port 127.0.0.1:{theirs} accel vhost
acl PURGE method PURGE
acl here src 127.0.0.0/8
acl internal dstdomain .internal.example
acl admin dstdomain admin.internal.example
acl sites dstdomain .example
http_access deny PURGE
http_access allow PURGE here
http_access deny internal
http_access allow sites
http_access deny all
acl internal dstdomain .late.example
cache_peer 127.0.0.1 parent {} 0 no-query originserver name=app
cache_peer_access app allow admin
cache_peer_access app allow all
negative_ttl 1 minute
visible_hostname cache.example
shutdown_lifetime 0 seconds
pinger_enable off
",
        app.address.port()
    );
    let _server = squid(&home, theirs, &text);
    let pair = Pair::start(&home, ("squid.conf", theirs), None, OWN, hit);
    let hosts =
        ["www.example", "admin.internal.example", "internal.example", "late.example", "other.test"];
    let mut requests = pushing(&hosts, &["/none/1", "/fresh/1", "/private/1", "/files/1"]);
    requests.truncate(REQUESTS);
    pair.is_no_opener(&requests);
}

fn requests(port: u16) -> Vec<Request> {
    let to = |path: String| {
        Request::get(format!("http://127.0.0.1:{port}{path}"), format!("127.0.0.1:{port}"))
    };
    let mut all: Vec<Request> = (0..30).map(|at| to(format!("/fresh/{at}"))).collect();
    for at in 0.. {
        let stored = to(format!("/fresh/{}", at % 30));
        all.push(match at % 17 {
            0..4 => stored,
            4 => stored.with("Range: bytes=5-20\r\n"),
            5 => stored.with("If-None-Match: \"8\"\r\n"),
            6 => stored.with("Cache-Control: no-cache\r\n"),
            7 => to(format!("/private/{}", at % 3)),
            8 => to(format!("/none/{}", at % 3)),
            9 => to(format!("/missing/{}", at % 3)),
            10 => to(format!("/form/{at}")).method("POST", "name=value"),
            11 => stored.method("HEAD", ""),
            12 => Request::get("http://www.ads.example/x", "www.ads.example"),
            13 => Request::get("http://127.0.0.1:22/", "127.0.0.1:22"),
            14 => Request::get("127.0.0.1:22", "127.0.0.1:22").method("CONNECT", ""),
            15 => Request::get(
                format!("http://localhost:{port}/fresh/{}", at % 4),
                format!("localhost:{port}"),
            ),
            _ => to(format!("/fresh/{}", at % 60)).method("PURGE", ""),
        });
        if all.len() == REQUESTS {
            break;
        }
    }
    all
}
