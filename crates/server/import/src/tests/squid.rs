//! Files of Squid, and what becomes of them. Each imported file is read by the server's own reader.

use crate::tests::{fate, has, lacks, why};
use crate::{Fate, Imported, Options, Source};

fn imported(text: &str, open: bool) -> Imported {
    crate::tests::imported(Source::Squid, "squid.conf", text, open)
}

/// Line, fate, and words of each note that is not `carried`.
fn fates(imported: &Imported) -> Vec<(usize, Fate)> {
    let notes = imported.notes.iter().filter(|note| note.fate != Fate::Carried);
    notes.map(|note| (note.line, note.fate)).collect()
}

const DEBIAN: &str = "\
acl localnet src 0.0.0.1-0.255.255.255
acl localnet src 10.0.0.0/8
acl SSL_ports port 443
acl Safe_ports port 80 # http
acl Safe_ports port 443
acl Safe_ports port 1025-65535
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access allow localhost manager
http_access deny manager
http_access allow localhost
http_access allow localnet
http_access deny all
http_port 3128
coredump_dir /var/spool/squid
refresh_pattern ^ftp: 1440 20% 10080
refresh_pattern -i (/cgi-bin/|\\?) 0 0% 0
refresh_pattern . 0 20% 4320
";

#[test]
fn the_file_of_debian_is_carried() {
    let imported = imported(DEBIAN, false);
    has(&imported, "\"10.0.0.0/8\", \"127.0.0.1/32\", \"::1/128\"]");
    has(&imported, "connect_ports = [\"443\"]");
    has(&imported, "ports = [\"80\", \"443\", \"1025-65535\"]");
    has(&imported, "x_forwarded_for = \"add\"");
    has(&imported, "address = \"[::]:3128\"  # squid.conf:14");
    has(&imported, "[purge]\nfrom = []");
    let nothing = [9, 15, 16].map(|line| (line, Fate::Nothing));
    let different = [14, 18].map(|line| (line, Fate::Different));
    let mut wanted: Vec<_> = nothing.into_iter().chain(different).collect();
    wanted.sort();
    assert_eq!(fates(&imported), wanted);
    assert!(!imported.has_left());
}

#[test]
fn a_denial_that_is_not_carried_closes_the_proxy() {
    let text = "acl night time 20:00-24:00\nhttp_access deny night\nhttp_access allow all\n\
                http_port 127.0.0.1:3128\n";
    let closed = imported(text, false);
    has(&closed, "allow_from = []");
    has(&closed, "# allow_from = [\"0.0.0.0/0\", \"::/0\"]");
    assert_eq!(fates(&closed)[1], (2, Fate::Unprotected));
    assert!(closed.has_left());
    has(&imported(text, true), "allow_from = [\"0.0.0.0/0\", \"::/0\"]");
    for restriction in ["http_reply_access deny all", "adaptation_access s deny all"] {
        let text = format!("{restriction}\nhttp_access allow all\nhttp_port 127.0.0.1:1\n");
        has(&imported(&text, false), "allow_from = []");
    }
}

#[test]
fn a_list_that_is_too_long_closes_the_proxy() {
    let many: String =
        (0..2000).map(|at| format!("acl bad src 10.{}.{}.1\n", at / 256, at % 256)).collect();
    let text =
        format!("{many}http_access deny bad\nhttp_access allow all\nhttp_port 127.0.0.1:3128\n");
    has(&imported(&text, false), "allow_from = []");
    let text = text.replace("deny bad", "deny !bad");
    has(&imported(&text, false), "allow_from = []");
}

#[test]
fn an_unknown_permission_keeps_its_clients_out() {
    let text = "acl a browser Firefox\nhttp_access allow a\nhttp_access deny all\n\
                http_port 127.0.0.1:3128\n";
    let imported = imported(text, false);
    has(&imported, "allow_from = []");
    assert_eq!(fates(&imported)[0], (2, Fate::NotCarried));
}

#[test]
fn what_an_expression_denies_is_a_condition() {
    let of = |lists: &str, rule: &str| {
        imported(
            &format!(
                "{lists}\nhttp_access deny {rule}\nhttp_access allow all\nhttp_port 127.0.0.1:1\n"
            ),
            false,
        )
    };
    for (lists, rule, wanted) in [
        ("acl a url_regex -i porn casino", "a", "deny_when = \"url.matches('(?i)porn|casino')\""),
        (r"acl a dstdom_regex -n ^ads\.", "a", r"host.matches(r'^ads\\.')"),
        (r"acl a dstdom_regex \.test$", "!a", r"!host.matches(r'\\.test$')"),
        (
            "acl a urlpath_regex \\.exe$\nacl net src 10.0.0.0/8",
            "net a",
            r"client.within('10.0.0.0/8') && target != '' && target.matches(r'\\.exe$')",
        ),
        ("acl a urlpath_regex ^/a/\nacl get method GET", "get a", "target.startsWith('/a/')"),
        ("acl a urlpath_regex ^$", "!a", "!(target != '' && target.matches('^$'))"),
        ("acl a url_regex ^http://a.test/x", "!a", "!url.matches('^http://a.test/x')"),
        (
            "acl a url_regex ^http://a.test/x\nacl post method POST PUT",
            "post a",
            "method.lowerAscii() in ['post', 'put'] && url.matches('^http://a.test/x')",
        ),
    ] {
        let imported = of(lists, rule);
        has(&imported, "allow_from = [\"0.0.0.0/0\", \"::/0\"]");
        has(&imported, wanted);
        assert!(!imported.has_left(), "{rule}: {:#?}", imported.notes);
    }
    // Less would be denied, or it cannot be said.
    for (lists, rule) in [
        ("acl a url_regex .*", "a"),
        ("acl a browser Wget", "!a"),
        ("acl a browser ^Wget$", "a"),
        ("acl login proxy_auth REQUIRED\nacl a url_regex x", "login a"),
        (r"acl a url_regex \d\d", "a"),
        ("acl a url_regex x\nacl b time 10:00-11:00", "a b"),
        ("acl a dst 8.8.8.0/24", "a"),
    ] {
        has(&of(lists, rule), "allow_from = []");
    }
    // Of several fields, Squid compares the first, and it looks up the name of an address.
    for (lists, wanted) in [
        ("acl a browser Wget", "'user-agent' in fields && fields['user-agent'].matches('Wget')"),
        (r"acl a dstdom_regex ^ads\.", r"host.matches(r'^ads\\.')"),
    ] {
        let imported = of(lists, "a");
        has(&imported, wanted);
        assert_eq!(fates(&imported)[0], (2, Fate::Different), "{lists}");
    }
    // Addresses that are not public are refused without a line.
    let private = of("acl a dst 10.0.0.0/8 fe80::/10", "a");
    assert!(!private.has_left(), "{:#?}", private.notes);
}

#[test]
fn how_long_responses_of_a_pattern_are_fresh_on_a_forward_listener() {
    let text = "refresh_pattern ^ftp: 1440 20% 10080\n\
                refresh_pattern -i \\.(deb|rpm)$ 129600 100% 129600 override-expire\n\
                refresh_pattern Packages 0 20% 4320\n\
                refresh_pattern -i (/cgi-bin/|\\?) 0 0% 0\n\
                refresh_pattern . 60 20% 4320 ignore-private override-lastmod\n\
                refresh_pattern x 1 2% 3\n\
                http_access allow localhost\nhttp_port 127.0.0.1:1\nnegative_ttl 1 minute\n";
    let imported = imported(text, false);
    let lifetimes: Vec<&str> = imported.configuration.split("[[forward.lifetime]]").collect();
    assert_eq!(lifetimes.len(), 5, "{}", imported.configuration);
    for (at, parts) in [
        (1, &[r"(?i)\\.(deb|rpm)$", "ttl = \"2160h\"", "overrule = true"][..]),
        (
            2,
            &[
                r"!url.matches('Packages') && url.matches(r'(?i)(/cgi-bin/|\\?)')",
                "ttl = \"0s\"",
                "grace = \"0s\"",
            ],
        ),
        (3, &["!url.matches('Packages')", "ttl = \"1h\""]),
        (4, &["status = [\"400\"", "ttl = \"1m\""]),
    ] {
        for part in parts {
            assert!(lifetimes[at].contains(part), "{at}: no {part:?} in {}", lifetimes[at]);
        }
    }
    assert!(!lifetimes[3].contains("cgi-bin"), "{}", lifetimes[3]);
    let wanted = [
        (1, Fate::Nothing),
        (2, Fate::Different),
        (3, Fate::Different),
        (5, Fate::Different),
        (6, Fate::Nothing),
    ];
    assert_eq!(fates(&imported)[..5], wanted);
    // Squid does not decode the URL for a pattern.
    let escaped = self::imported(&text.replace("cgi-bin", "cgi%2dbin"), false);
    assert_eq!(fates(&escaped)[3], (4, Fate::Different));
}

#[test]
fn the_first_rule_that_matches_decides() {
    let text = "acl bad src 10.0.0.0/9\nacl net src 10.0.0.0/8\n\
                http_access allow localhost\nhttp_access deny bad\nhttp_access allow net\n\
                http_access deny all\nhttp_access allow all\nhttp_port 127.0.0.1:1\n";
    let imported = imported(text, false);
    has(&imported, "allow_from = [\"10.128.0.0/9\", \"127.0.0.1/32\", \"::1/128\"]");
    assert_eq!(fates(&imported)[0], (7, Fate::Nothing));
}

#[test]
fn without_a_last_rule_squid_does_the_opposite() {
    let text = "acl bad dstdomain www.example.com \"/domains\"\nhttp_access deny bad\n\
                http_port 127.0.0.1:1\n";
    let imported = imported(text, false);
    has(&imported, "allow_from = [\"0.0.0.0/0\", \"::/0\"]");
    has(&imported, "deny_domains = [\"example.net\", \"www.example.com\"]");
    assert_eq!(fates(&imported)[0], (2, Fate::Different));
    has(&self::imported("http_port 127.0.0.1:1\n", false), "allow_from = []");
}

#[test]
fn domains_that_are_allowed_are_never_more() {
    let text = "acl ok dstdomain .example.org www.example.com\nacl net src 10.0.0.0/8\n\
                http_access allow net ok\nhttp_access allow localhost\nhttp_access deny all\n\
                http_port 127.0.0.1:1\n";
    let imported = imported(text, false);
    has(&imported, "allow_domains = [\"example.org\"]");
    // The second line allows any domain: its clients stay out.
    has(&imported, "allow_from = [\"10.0.0.0/8\"]");
    assert_eq!(fates(&imported)[..2], [(3, Fate::Different), (4, Fate::NotCarried)]);
}

#[test]
fn passwords() {
    let text = "auth_param basic program /usr/lib/squid/basic_ncsa_auth users\n\
                auth_param basic realm the office\nacl known proxy_auth REQUIRED\n\
                http_access deny !known\nhttp_access allow all\nhttp_port 127.0.0.1:1\n";
    let with = imported(text, false);
    has(&with, "users = \"users\"");
    has(&with, "realm = \"the office\"");
    let without = text.replace("auth_param basic program", "auth_param digest program");
    has(&imported(&without, false), "allow_from = []");
    let optional = text.replace("deny !known", "deny manager");
    assert!(!imported(&optional, false).configuration.contains("users ="));
}

#[test]
fn purges_and_settings() {
    let text = "acl purge method PURGE\nacl adm src 192.0.2.7\n\
                http_access allow purge adm\nhttp_access deny purge\nhttp_access allow localhost\n\
                http_access deny all\nhttp_port 127.0.0.1:1\ncache_mem 64 MB\n\
                maximum_object_size_in_memory 1 MB\nconnect_timeout 2 seconds\nvia off\n\
                forwarded_for delete\ndns_nameservers 192.0.2.53\nvisible_hostname cache.example\n\
                logformat mine %ts %>a\naccess_log stdio:/var/log/a.log mine\n\
                cache_dir rock /var/spool/squid 100\nnegative_ttl 1 minute\n";
    let imported = imported(text, false);
    for line in [
        "[purge]\nfrom = [\"192.0.2.7/32\"]",
        "memory = \"64MiB\"",
        "connect_timeout = \"2s\"",
        "requests = false",
        "x_forwarded_for = \"delete\"",
        "servers = [\"192.0.2.53:53\"]",
        "name = \"cache.example\"",
        "format = \"squid:%ts %>a\"",
        "path = \"/var/spool/squid/plimsoll\"",
        "bytes = \"100MiB\"",
    ] {
        has(&imported, line);
    }
    has(&imported, "[[forward.lifetime]]\nstatus = [\"400\"");
    assert!(!imported.has_left(), "{:#?}", imported.notes);
}

#[test]
fn an_accelerator_is_upstreams_and_routes() {
    let text = "http_port 127.0.0.1:80 accel defaultsite=www.example.org\n\
                cache_peer 127.0.0.1 parent 8001 0 no-query originserver name=app\n\
                cache_peer 127.0.0.1 parent 8002 0 no-query originserver name=files\n\
                acl site dstdomain www.example.org\nacl static urlpath_regex ^/static/\n\
                http_access allow site\nhttp_access deny all\n\
                cache_peer_access files allow static\ncache_peer_access files deny all\n\
                cache_peer_access app allow site\ncache_peer_access app deny all\n";
    let imported = imported(text, false);
    assert!(!imported.has_left(), "{:#?}", imported.notes);
    for part in [
        "hosts = [\"www.example.org\"]  # squid.conf:8\nprefix = \"/static/\"",
        "prefix = \"/\"  # squid.conf:10\nupstream = \"app\"",
        "status = 403  # http_access allows no other host",
        "forwarded = \"x_forwarded_for\"",
    ] {
        has(&imported, part);
    }
    for (word, change) in [
        ("delete", "remove = \"X-Forwarded-For\""),
        ("truncate", "set = \"X-Forwarded-For\"  # forwarded_for\nvalue = \"{client}\""),
    ] {
        // A client's own field was passed on.
        let own = self::imported(&format!("forwarded_for {word}\n{text}"), false);
        has(&own, change);
        lacks(&own, "forwarded = \"x_forwarded_for\"");
    }
    let guarded = text.replace("allow site\nhttp", "deny localhost\nhttp_access allow site\nhttp");
    let closed = self::imported(&guarded, false);
    has(&closed, "# upstream = \"app\"");
    assert!(!closed.configuration.contains("\nupstream = "), "{}", closed.configuration);
}

#[test]
fn limits_are_kept() {
    let mut read = |_: &str| {
        Ok(vec![crate::Included { name: "again".into(), text: "include again\n".into() }])
    };
    let error = crate::import(Source::Squid, "f", "include again\n", Options::default(), &mut read);
    assert!(error.unwrap_err().to_string().contains("levels deep"));
    let many = "cache_mem 1 MB\n".repeat(imported::limits::DIRECTIVES_MAX + 1);
    let error = crate::import(Source::Squid, "f", &many, Options::default(), &mut read);
    assert!(error.unwrap_err().to_string().contains("more than 100000"));
}

/// A file of the fuzz target's corpus.
macro_rules! corpus {
    ($name:literal) => {
        include_str!(concat!("../../../../../tools/fuzz/corpus/import_squid/", $name))
    };
}

#[test]
fn a_purge_needs_more_than_a_network() {
    for text in
        [corpus!("purge_behind_time"), corpus!("purge_behind_password"), corpus!("denied_hosts")]
    {
        let text = text.replace("/etc/squid/pw", "users");
        for open in [false, true] {
            let imported = imported(&text, open);
            has(&imported, "[purge]\nfrom = []");
            assert_eq!(fate(&imported, "http_access allow PURGE localnet"), Fate::NotCarried);
        }
    }
    // A denied network is cut out, for ports of both kinds.
    let rules = "acl p method PURGE\nacl net src 10.0.0.0/8\nacl bad src 10.0.0.0/9\n\
                 http_access deny bad\nhttp_access allow p net\nhttp_access deny p\n\
                 http_access allow all\n";
    let peer = "cache_peer 127.0.0.1 parent 8001 0 originserver\n";
    for port in ["http_port 127.0.0.1:1\n", "http_port 127.0.0.1:1 accel\n"] {
        has(&imported(&format!("{rules}{peer}{port}"), false), "from = [\"10.128.0.0/9\"]");
    }
}

#[test]
fn what_keeps_requests_out_closes_the_proxy() {
    let all = &corpus!("restrictions").replace("parent.example", "192.0.2.1");
    let rules = "acl localnet src 10.0.0.0/8\nacl ok src 10.0.0.1\nacl lb src 10.0.0.2\n\
                 http_port 3128\nhttp_access allow localnet\nhttp_access deny all\n";
    for line in [
        "http_reply_access allow ok",
        "miss_access allow localnet",
        "adapted_http_access allow localnet",
        "follow_x_forwarded_for allow lb",
        "url_rewrite_program /usr/bin/squidGuard",
        "redirect_program /usr/bin/squidGuard",
        "icap_enable on",
        "icap_service s reqmod_precache icap://127.0.0.1/",
        "never_direct allow all",
        "no_such_thing on",
    ] {
        let text = format!("{rules}{line}\n");
        let closed = imported(&text, false);
        has(&closed, "allow_from = []");
        assert_eq!(closed.notes.last().map(|note| note.fate), Some(Fate::Unprotected), "{line}");
        has(&imported(&text, true), "allow_from = [\"10.0.0.0/8\"]");
    }
    for line in ["miss_access allow all", "icap_enable off", "never_direct deny all", "umask 027"] {
        has(&imported(&format!("{rules}{line}\n"), false), "allow_from = [\"10.0.0.0/8\"]");
    }
    // Certificates of clients, and a sender that is denied before all are allowed.
    let closed = imported(all, false);
    lacks(&closed, ":3129");
    assert_eq!(fate(&closed, "https_port"), Fate::Unprotected);
    lacks(&closed, "proxy_from = [\"0.0.0.0/0\"");
    let senders = closed.configuration.split("proxy_from = ").nth(1).unwrap().lines().next();
    assert!(!senders.unwrap().contains("\"192.0.2."), "{senders:?}");
    assert!(senders.unwrap().contains("\"192.0.0.0/23\""), "{senders:?}");
    has(&imported(corpus!("reply_access"), false), "allow_from = []");
}

#[test]
fn a_denied_host_has_no_route() {
    let text = corpus!("denied_hosts").replace("cache_peer_access app deny priv\n", "");
    let imported = imported(&text, false);
    lacks(&imported, "\"admin.internal.example.com\"");
    has(&imported, "\nupstream = \"app\"");
    // The same name in both.
    let same = text.replace("src 10.0.0.0/8", "src 10.0.0.0/9").replace(".internal", "admin");
    lacks(&self::imported(&same, false), "hosts = [\"adminadmin\"]");
    // A rule of the peer that denies and is not carried closes.
    let closed = self::imported(corpus!("denied_hosts"), false);
    lacks(&closed, "\nupstream = ");
    assert_eq!(fate(&closed, "cache_peer_access app deny priv"), Fate::Unprotected);
}

#[test]
fn each_line_has_its_own_note() {
    let of = |text: &str| imported(text, false);
    let mut read = |_: &str| Err(String::new());
    let (text, options) = (corpus!("intercept"), Options::default());
    let none = crate::import(Source::Squid, "f", text, options, &mut read).unwrap();
    assert_eq!(fate(&none, "http_access allow"), Fate::NotCarried);
    assert_eq!(fate(&of(corpus!("unused_peer")), "cache_peer"), Fate::NotCarried);
    let dead = corpus!("dead_rules").replace("dstdomain", "dstdomain -n");
    assert_eq!(fate(&of(&dead), "http_access deny b"), Fate::Carried);
    assert_eq!(of(&dead).notes.iter().filter(|n| n.line == 8).count(), 1);
}

#[test]
fn long_lists_are_read_in_one_pass() {
    let denied: String =
        (0..1000).map(|at| format!("acl bad{} src 2001:db8:{at:x}::1\n", at / 900)).collect();
    let allowed: String = (0..200)
        .map(|at| format!("acl a{at} src 10.{at}.0.0/16\nhttp_access allow a{at}\n"))
        .collect();
    let text = format!(
        "{denied}http_access deny bad0\nhttp_access deny bad1\n{allowed}http_access deny all\n\
         http_port 127.0.0.1:1\n"
    );
    has(
        &imported(&text, false),
        "allow_from = [\"10.0.0.0/9\", \"10.128.0.0/10\", \"10.192.0.0/13\"]",
    );
    // All addresses without these have more networks than a list may have: no client is let in.
    let everyone = text.replace("http_access allow a0\n", "http_access allow all\n");
    let closed = imported(&everyone, false);
    has(&closed, "allow_from = []");
    assert_eq!(fate(&closed, "http_access allow all"), Fate::Unprotected);
}

#[test]
fn other_caches_and_who_may_ask() {
    let text = format!(
        "{DEBIAN}cache_peer 10.0.0.1 parent 3128 3130 weight=2 login=jo:secret name=a\n\
         cache_peer 10.0.0.2 parent 3128 0 no-query round-robin\n\
         cache_peer 10.0.0.3 sibling 3128 4827 htcp proxy-only\n\
         acl corp dstdomain .corp.example\nalways_direct allow corp\nnever_direct allow all\n\
         icp_port 3130\nicp_access allow localnet\nhtcp_port 4827\nhtcp_clr_access deny all\n"
    );
    let imported = imported(&text, false);
    for part in [
        "url = \"http://10.0.0.1:3128\"",
        "icp = 3130",
        "login = \"a.login\"",
        "kind = \"sibling\"",
        "htcp = 4827",
        "balance = \"round_robin\"",
        "always_direct = [\"corp.example\"]",
        "never_direct = [\"*\"]",
        "[icp]\nlisten = \"[::]:3130\"",
        "[htcp]\nlisten = \"[::]:4827\"",
        "clear_from = []",
    ] {
        has(&imported, part);
    }
    assert!(!imported.has_left(), "{:#?}", imported.notes);
    // A parent with rules is not written, and then nothing can go to it alone.
    let rules = text.replace("icp_port", "cache_peer_access a deny corp\nicp_port");
    let rules = rules.replace("round-robin", "multicast-responder");
    let closed = self::imported(&rules, false);
    assert_eq!(fate(&closed, "never_direct"), Fate::Unprotected);
    has(&closed, "allow_from = []");
    // Without never_direct, other methods than GET go to no parent.
    let usual = self::imported(&text.replace("never_direct allow all\n", ""), false);
    has(&usual, "always_direct_methods = [\"POST\"");
}

#[test]
fn pools_and_connections_are_quotas() {
    let text = format!(
        "{}delay_pools 1\ndelay_class 1 2\ndelay_parameters 1 -1/-1 64000/128000\n\
         delay_access 1 allow localnet\ndelay_access 1 deny all\n",
        DEBIAN.replace("http_access deny manager", "acl m maxconn 8\nhttp_access deny m")
    );
    let imported = imported(&text, false);
    for part in [
        "connections = 8",
        "name = \"pool-1-host\"",
        "bytes = \"64000/s\"",
        "bytes_burst = \"125KiB\"",
        "counts = \"fetches\"",
    ] {
        has(&imported, part);
    }
    let except = imported.configuration.split("except_from = ").nth(1).unwrap().lines().next();
    assert!(except.unwrap().contains("\"11.0.0.0/8\"") && !except.unwrap().contains("\"10."));
    assert!(!imported.has_left(), "{:#?}", imported.notes);
    let by_name = text.replace("allow localnet\ndelay", "allow SSL_ports\ndelay");
    assert_eq!(fate(&self::imported(&by_name, false), "delay_access"), Fate::NotCarried);
}

#[test]
fn what_an_accelerator_stores() {
    let text = "http_port 127.0.0.1:80 accel defaultsite=a.example\n\
                cache_peer 127.0.0.1 parent 8001 0 originserver\n\
                acl private urlpath_regex ^/private/\nacl sid req_header Cookie (^|;\\s*)sid=\n\
                cache deny private\ncache deny sid\nnegative_ttl 1 minute\n\
                refresh_pattern . 60 0% 60\nhttp_access allow all\n";
    let imported = imported(text, false);
    for part in [
        "prefix = \"/private/\"  # cache deny\nupstream = \"127.0.0.1\"  # squid.conf:2\n\
         store = false",
        "bypass_cookies = [\"sid\"]",
        "status = [\"400\", \"403\", \"404\"",
        "ttl = \"1h\"",
    ] {
        has(&imported, part);
    }
    assert!(!imported.has_left(), "{:#?}", imported.notes);
    let other = self::imported(&text.replace("cache deny private", "cache deny !private"), false);
    lacks(&other, "bypass_cookies");
    has(&other, "store = false");
}

const ACCEL: &str = "http_port 127.0.0.1:80 accel vhost\n\
                     cache_peer 127.0.0.1 parent 8001 0 originserver name=o\n";

#[test]
fn a_rule_has_what_later_lines_add_to_its_list() {
    let text = "acl bad dstdomain .one.example\nhttp_access deny bad\n\
                acl bad dstdomain .two.example\nhttp_access allow all\n\
                acl off urlpath_regex ^/a/\ncache deny off\nacl off urlpath_regex ^/b/\n";
    let reverse = imported(&format!("{text}{ACCEL}"), false);
    for path in ["/a/", "/b/"] {
        has(&reverse, &format!("prefix = \"{path}\"  # cache deny"));
    }
    has(&reverse, "\"one.example\", \"two.example\"]  # http_access denies");
    let forward = imported(&format!("{text}http_port 127.0.0.1:1\n"), false);
    has(&forward, "deny_domains = [\"one.example\", \"two.example\"]");
    let clients = "acl net src 10.0.0.1\nhttp_access deny net\nacl net src 10.0.0.2\n\
                   acl ok src 10.0.0.0/30\nhttp_access allow ok\nhttp_port 127.0.0.1:1\n";
    has(&imported(clients, false), "allow_from = [\"10.0.0.0/32\", \"10.0.0.3/32\"]");
}

#[test]
fn what_is_asked_first_is_not_overtaken() {
    let text = "acl sec dstdomain .secret.example\ncache_peer 10.0.0.1 parent 3128 0 no-query\n\
                always_direct deny sec\nalways_direct allow all\nnever_direct allow sec\n\
                http_access allow localhost\nhttp_port 127.0.0.1:1\n";
    let direct = imported(text, false);
    lacks(&direct, "always_direct = ");
    has(&direct, "never_direct = [\"secret.example\"]");
    assert_eq!(fate(&direct, "always_direct"), Fate::NotCarried);
    has(&imported(&text.replace("always_direct deny sec\n", ""), false), "always_direct = [\"*\"]");
    // The same of patterns.
    for (first, carried) in [
        (r"^http://[^/]*/\d/ 0 0% 0", false),
        ("a(b 0 0% 0", false),
        (". 0 20% 4320", false),
        (r"(/cgi-bin/|\?) 0 0% 0", true),
        ("^ftp: 1 2% 3", true),
    ] {
        let text = format!(
            "{ACCEL}refresh_pattern {first}\nrefresh_pattern . 60 0% 60\nhttp_access allow all\n"
        );
        let imported = imported(&text, false);
        assert_eq!(imported.configuration.contains("ttl = \"1h\""), carried, "{first}");
    }
}

#[test]
fn what_is_not_stored_or_not_answered_is_not_stored() {
    for name in ["cache", "store_miss", "send_hit"] {
        let text = format!(
            "acl off urlpath_regex ^/off/\n{name} deny off\nhttp_access allow all\n{ACCEL}"
        );
        let carried = imported(&text, false);
        assert!(!carried.has_left(), "{:#?}", carried.notes);
        has(&carried, "prefix = \"/off/\"  # cache deny");
        let forward = text.replace("accel vhost", "").replace("originserver", "no-query");
        assert_eq!(fate(&imported(&forward, false), name), Fate::NotCarried);
    }
    let text = format!(
        "acl sid req_header Cookie session=\ncache deny sid\nhttp_access allow all\n{ACCEL}"
    );
    assert_eq!(fate(&imported(&text, false), "cache"), Fate::Different);
    let exact = text.replace("session=", "(^|;\\s*)session=");
    assert_eq!(fate(&imported(&exact, false), "cache"), Fate::Carried);
}

#[test]
fn an_address_without_a_port_opens_nothing() {
    let text = "udp_incoming_address 10.0.0.1\nacl ok src 10.0.0.0/8\nicp_access allow ok\n\
                http_access allow ok\nhttp_port 127.0.0.1:1\n";
    let none = imported(text, false);
    lacks(&none, "[icp]");
    assert_eq!(fate(&none, "udp_incoming_address"), Fate::Nothing);
    for text in [format!("{text}icp_port 3130\n"), format!("icp_port 3130\n{text}")] {
        has(&imported(&text, false), "[icp]\nlisten = \"10.0.0.1:3130\"");
    }
}

#[test]
fn no_note_has_a_password() {
    for login in ["bob:hunter2", "*:hunter2", "hunter2"] {
        let text = format!(
            "cache_peer 10.0.0.1 parent 3128 0 no-query name=a login={login}\n\
             http_access allow localhost\nhttp_port 127.0.0.1:1\n"
        );
        let imported = imported(&text, false);
        assert!(!format!("{imported:?}").contains("hunter2"), "{imported:?}");
        has(&imported, "[forward]");
        let pass = self::imported(&text.replace(login, "PASS"), false);
        assert!(why(&pass, "cache_peer").contains("login=PASS"));
    }
}

/// `http_access allow` without a list let all clients in.
#[test]
fn a_line_without_a_list_is_skipped() {
    let text = "http_port 127.0.0.1:1\nacl lan src 10.0.0.0/8\nhttp_access allow\n\
                http_access allow lan\nhttp_access deny\nhttp_access deny all\n";
    let forward = imported(text, false);
    has(&forward, "allow_from = [\"10.0.0.0/8\"]");
    assert_eq!(fate(&forward, "http_access allow"), Fate::Nothing);
    let reverse = format!(
        "acl a dstdomain a.example\nhttp_access allow\nhttp_access allow a\n\
                           cache deny\nhttp_access deny all\n{ACCEL}"
    );
    has(&imported(&reverse, false), "hosts = [\"a.example\"]");
    lacks(&imported(&reverse, false), "store = false");
    // The opposite of the last line with a list is for all others.
    let last = "http_port 127.0.0.1:1\nacl a src 10.0.0.1\nhttp_access allow a\nhttp_access deny\n";
    has(&imported(last, false), "allow_from = [\"10.0.0.1/32\"]");
}

/// A list had only the lines that wrote its name in the same way.
#[test]
fn names_of_lists_and_servers_have_no_case() {
    let text = "http_port 127.0.0.1:1\nacl Bad dstdomain .one.example\n\
                acl bad dstdomain .two.example\nhttp_access deny BAD\nhttp_access deny connect\n\
                http_access allow ALL\n";
    let forward = imported(text, false);
    has(&forward, "deny_domains = [\"one.example\", \"two.example\"]");
    has(&forward, "connect_ports = []");
    assert!(!forward.has_left(), "{:#?}", forward.notes);
    let peers = format!(
        "acl a dstdomain a.example\n{ACCEL}cache_peer_access O allow a\n\
                         cache_peer_access o deny all\nhttp_access allow all\n"
    );
    has(&imported(&peers, false), "hosts = [\"a.example\"]");
}

#[test]
fn what_is_not_carried_of_a_forward_listener_stores_or_opens_nothing() {
    let forward = "http_port 127.0.0.1:1\nhttp_access allow localhost\nacl q urlpath_regex /x\n\
                   acl p src 10.0.0.0/8\n";
    for rule in ["cache deny q", "cache deny all", "store_miss deny p", "cache allow p"] {
        let imported = imported(&format!("{forward}cache_mem 1 GB\n{rule}\n"), false);
        has(&imported, "memory = \"1MiB\"");
        has(&imported, "object_share = 1048576");
        assert!(imported.has_left(), "{rule}");
    }
    lacks(&imported(&format!("{forward}cache allow all\n"), false), "object_share");
    for rule in ["ssl_bump terminate p", "request_header_access Cookie deny all"] {
        has(&imported(&format!("{forward}{rule}\n"), false), "allow_from = []");
    }
    lacks(&imported(&format!("{forward}ssl_bump splice all\n"), false), "allow_from = []");
}

/// Squid denies `http://192.0.2.1/` if the name of this address is one of the list. There was no
/// note.
#[test]
fn a_rule_that_denies_domains_says_that_addresses_are_not_looked_up() {
    let of = |list: &str, rule: &str| {
        let text = format!(
            "http_port 127.0.0.1:1\nacl bad dstdomain {list}\n{rule}\n\
             http_access allow localhost\nhttp_access deny all\n"
        );
        imported(&text, false)
    };
    for rule in ["http_access deny bad", "http_access allow localhost !bad"] {
        let notes = of(".evil.example", rule);
        assert_eq!(fate(&notes, rule), Fate::Different, "{rule}");
        assert!(why(&notes, rule).contains("not looked up"), "{rule}");
        let only_names = of("-n .evil.example", rule);
        assert!(!why(&only_names, rule).contains("not looked up"), "{rule}");
    }
    has(&of(".evil.example", "http_access deny bad"), "deny_domains = [\"evil.example\"]");
    // These let in less than Squid does.
    for rule in ["http_access allow bad", "http_access deny !bad"] {
        assert!(!why(&of(".evil.example", rule), rule).contains("not looked up"), "{rule}");
    }
    // One line without the option looks up.
    let two = of("-n .evil.example\nacl bad dstdomain .worse.example", "http_access deny bad");
    assert_eq!(fate(&two, "http_access deny bad"), Fate::Different);
}

/// A port of Host that Squid denies was let in, and so were the pages of managers.
#[test]
fn an_accelerator_refuses_ports_and_internal_pages() {
    let of = |options: &str, rule: &str| {
        let text = format!(
            "http_port 127.0.0.1:1 accel {options}\nacl safe port 80 8000-8123\n\
             acl bad dstdomain -n .bad.test\n{rule}\nhttp_access allow all\n\
             cache_peer 127.0.0.1 parent 8001 0 no-query originserver\n"
        );
        imported(&text, false)
    };
    let rule = "http_access deny !safe";
    let open = of("", rule);
    assert_eq!(fate(&open, rule), Fate::Carried);
    has(&open, "when = \"target.startsWith('/squid-internal-') || url.matches(");
    has(&open, "url.matches(r'^([a-z]+://[^/]*:([1-9]|[1-7][0-9]|8[1-9]|9[0-9]|");
    has(&open, "|https://([^/:]*|");
    lacks(&open, "|http://(");
    lacks(&open, "host == ''");
    // Requests without Host are for the default site.
    has(&of("defaultsite=a.test:22", rule), "host == ''");
    lacks(&of("defaultsite=a.test:80", rule), "host == ''");
    has(&of("defaultsite=www.Bad.test", "http_access deny bad"), "host == ''");
    lacks(&of("defaultsite=a.test", "http_access deny bad"), "host == ''");
    // Squid compares another URL.
    for options in ["vport=22", "protocol=https", "defaultsite=a.test no-vhost"] {
        let closed = of(options, rule);
        assert_eq!(fate(&closed, rule), Fate::Unprotected, "{options}");
        has(&closed, "\n# upstream = ");
    }
    let fixed = of("defaultsite=bad.test no-vhost", "http_access deny bad");
    assert_eq!(fate(&fixed, "http_access deny bad"), Fate::Unprotected);
}

/// Requests for pages of Squid reached servers of their host.
#[test]
fn pages_of_managers_are_denied_where_a_rule_denies_them() {
    for rule in ["deny manager", "deny manager !localhost", "deny manager !to_localhost"] {
        let rule = format!("http_access {rule}");
        let text = format!("http_port 127.0.0.1:1\n{rule}\nhttp_access allow all\n");
        let found = imported(&text, false);
        has(&found, "target.startsWith('/squid-internal-mgr/')");
        has(&found, "allow_from = [\"0.0.0.0/0\", \"::/0\"]");
        assert_eq!(fate(&found, &rule), Fate::Carried);
    }
    let text = "http_port 127.0.0.1:1\nhttp_access deny !manager\nhttp_access allow all\n";
    has(&imported(text, false), "allow_from = []");
}
