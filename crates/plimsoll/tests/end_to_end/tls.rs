//! TLS and the PROXY protocol with programs that are not ours: OpenSSL and curl as clients, nginx
//! as an origin, HAProxy in front.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{
    Home, Ours, Running, SOON, Said, am_root, free_port, get, output, plimsoll, program, run,
    wait_for,
};

pub(crate) fn openssl(home: &Home, args: &[&str]) -> Said {
    let mut command = Command::new(program("openssl", "openssl"));
    command.current_dir(home.path()).args(args);
    run(command, SOON)
}

/// A root in `ca.pem`, and what it signs: `NAME.pem` with `NAME.key`.
pub(crate) fn authority(home: &Home) {
    let subject = ["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=root"];
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    openssl(home, &[&subject[..], &key, &["-keyout", "ca.key", "-out", "ca.pem"]].concat()).well();
}

pub(crate) fn issue(home: &Home, name: &str, hosts: &str, rsa: bool) {
    let subject = format!("/CN={name}");
    let hosts = format!("subjectAltName={hosts}");
    let key: &[&str] = match rsa {
        true => &["-newkey", "rsa:2048"],
        false => &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
    };
    let request = ["req", "-x509", "-nodes", "-days", "30", "-CA", "ca.pem", "-CAkey", "ca.key"];
    let more = ["-subj", &subject, "-addext", &hosts, "-addext", "basicConstraints=CA:FALSE"];
    let (key_file, chain) = (format!("{name}.key"), format!("{name}.pem"));
    let files = ["-keyout", &key_file, "-out", &chain];
    openssl(home, &[&request[..], key, &more, &files].concat()).well();
}

fn curl(home: &Home, args: &[&str]) -> Said {
    let mut command = Command::new(program("curl", "curl"));
    command.current_dir(home.path()).args(["--silent", "--show-error", "--max-time", "20"]);
    command.args(args);
    run(command, SOON)
}

/// Our server behind TLS, with a certificate of each kind for `a.test` and one for `*.b.test`.
fn behind_tls(home: &Home, origin: &Ours) -> Ours {
    authority(home);
    issue(home, "a", "DNS:a.test", false);
    issue(home, "a-rsa", "DNS:a.test", true);
    issue(home, "b", "DNS:*.b.test", false);
    let mut text = "[server]\nadmin = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
                    [listen.tls]\n"
        .to_owned();
    for name in ["a", "a-rsa", "b"] {
        text.push_str(&format!(
            "[[listen.tls.certificate]]\nchain = \"{name}.pem\"\nkey = \"{name}.key\"\n"
        ));
    }
    text.push_str(&format!(
        "[[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
        origin.url()
    ));
    Ours::configured(&home.write("plimsoll.toml", text))
}

/// What `openssl s_client` tells of a handshake with these flags.
fn handshake(home: &Home, proxy: &Ours, flags: &[&str]) -> Said {
    let at = proxy.address().to_string();
    openssl(home, &[&["s_client", "-connect", &at, "-CAfile", "ca.pem"][..], flags].concat())
}

#[test]
fn openssl_finds_the_versions_the_names_and_the_sessions_that_it_asks_for() {
    let home = Home::new();
    let origin = Ours::origin();
    let proxy = behind_tls(&home, &origin);
    for (version, told) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let flags = [version, "-alpn", "http/1.1", "-servername", "a.test"];
        let said = handshake(&home, &proxy, &flags).stdout;
        for words in [told, "ALPN protocol: http/1.1", "Verify return code: 0 (ok)", "CN = a\n"] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
    }
    // By name; by the kind of key that a client can use; the first for a name that is nobody's.
    let rsa = ["-servername", "A.TEST", "-sigalgs", "RSA-PSS+SHA256"];
    for (flags, subject) in [
        (&["-servername", "www.b.test"][..], "CN = b\n"),
        (&rsa, "CN = a-rsa\n"),
        (&["-servername", "x.www.b.test"], "CN = a\n"),
        (&["-noservername"], "CN = a\n"),
    ] {
        let said = handshake(&home, &proxy, flags).stdout;
        assert!(said.contains(subject), "{flags:?}: no {subject:?} in {said}");
    }
    for refused in [&["-tls1_1"][..], &["-alpn", "h2"]] {
        assert_ne!(handshake(&home, &proxy, refused).code, Some(0), "{refused:?}");
    }
    let first = ["-tls1_2", "-servername", "a.test", "-sess_out", "session"];
    assert!(handshake(&home, &proxy, &first).stdout.contains("New, TLSv1.2"));
    let second = ["-tls1_2", "-servername", "a.test", "-sess_in", "session"];
    assert!(handshake(&home, &proxy, &second).stdout.contains("Reused, TLSv1.2"));
    let metrics = get(proxy.admin(), "/metrics");
    assert!(metrics.contains("plimsoll_tls_resumptions_total 1\n"), "{metrics}");
    assert!(metrics.contains("plimsoll_tls_failures_protocol_total 2\n"), "{metrics}");
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn curl_gets_what_it_asks_for_over_tls() {
    let home = Home::new();
    let origin = Ours::origin();
    let proxy = behind_tls(&home, &origin);
    let port = proxy.address().port();
    let resolve = format!("a.test:{port}:127.0.0.1");
    let url = format!("https://a.test:{port}/obj/1?size=3000000");
    let flags = ["--cacert", "ca.pem", "--resolve", &resolve];
    for _ in 0..2 {
        let said = curl(&home, &[&flags[..], &[&url, "--output", "got"]].concat());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(fs::metadata(home.path().join("got")).unwrap().len(), 3_000_000);
    }
    assert!(get(proxy.admin(), "/metrics").contains("plimsoll_hits_total 1\n"));
    let admin = proxy.admin().to_string();
    let told = plimsoll(&["explain", &url, "--admin", &admin]).well().stdout;
    assert!(told.contains("served from the cache"), "{told}");
    let clear = url.replace("https:", "http:");
    plimsoll(&["explain", &clear, "--admin", &admin]).refused(&["every listener speaks TLS"]);
    // In the clear it is told what is wrong; a name that no certificate has is its own to refuse.
    let clear = curl(&home, &[&format!("http://127.0.0.1:{port}/")]);
    assert!(clear.stdout.contains("ask with https://"), "{clear:?}");
    let other = curl(&home, &["--cacert", "ca.pem", &format!("https://127.0.0.1:{port}/")]);
    assert_ne!(other.code, Some(0), "{other:?}");
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn the_log_tells_the_tls_of_a_client_and_whom_a_rule_turned_away() {
    let home = Home::new();
    let origin = Ours::origin();
    authority(&home);
    issue(&home, "a", "DNS:a.test", false);
    issue(&home, "person", "DNS:person.test", false);
    let format = "squid:%ssl::>negotiated_version %ssl::>sni %ssl::>cert_subject %>Hs %err_code";
    // One core, so that the lines stand in the order in which they were written.
    let config = format!(
        "[server]\nworkers = 1\n\
         [log]\npath = \"access.log\"\nformat = \"{format}\"\n[[listen]]\n\
         address = \"127.0.0.1:0\"\n[listen.tls]\nclient_ca = \"ca.pem\"\n\
         [[listen.tls.certificate]]\nchain = \"a.pem\"\nkey = \"a.key\"\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
        origin.url()
    );
    let proxy = Ours::configured(&home.write("plimsoll.toml", config));
    let port = proxy.address().port();
    let resolve = format!("a.test:{port}:127.0.0.1");
    let url = format!("https://a.test:{port}/obj/1?size=10");
    let flags = ["--cacert", "ca.pem", "--resolve", &resolve, "--output", "got", &url];
    let known = ["--cert", "person.pem", "--key", "person.key"];
    let said = curl(&home, &[&flags[..], &known].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_ne!(curl(&home, &flags).code, Some(0), "without a certificate");
    curl(&home, &[&format!("http://127.0.0.1:{port}/")]);
    assert_eq!(proxy.stopped().0, Some(0));
    let log = home.read("access.log");
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(
        lines,
        ["TLS/1.3 a.test CN=person 200 -", "- - - 000 client-certificate", "- - - 400 plain-http"]
    );
}

#[test]
fn a_new_certificate_is_used_after_a_reload_and_a_bad_one_is_not() {
    let home = Home::new();
    let origin = Ours::origin();
    let proxy = behind_tls(&home, &origin);
    let subject = || handshake(&home, &proxy, &["-servername", "a.test"]).stdout;
    assert!(subject().contains("CN = a\n"));
    // A key that is another's: the old certificate stays.
    fs::copy(home.path().join("b.key"), home.path().join("a.key")).unwrap();
    proxy.child.signal("HUP");
    issue(&home, "new", "DNS:a.test", false);
    assert!(subject().contains("CN = a\n"));
    for kind in ["pem", "key"] {
        let (new, old) = (format!("new.{kind}"), format!("a.{kind}"));
        fs::rename(home.path().join(new), home.path().join(old)).unwrap();
    }
    proxy.child.signal("HUP");
    wait_for("the new certificate", SOON, || subject().contains("CN = new\n").then_some(()));
    let (code, told) = proxy.stopped();
    assert_eq!(code, Some(0));
    assert!(told.contains("is not that of the first certificate"), "{told}");
}

#[test]
fn an_nginx_that_speaks_tls_is_an_origin_if_its_certificate_is_right() {
    let home = Home::new();
    authority(&home);
    issue(&home, "origin", "DNS:origin.test", false);
    fs::create_dir(home.path().join("www")).unwrap();
    home.write("www/index.html", "over TLS");
    let (at, port) = (home.path().display(), free_port());
    let user = if am_root() { "user root;" } else { "" };
    let conf = home.write(
        "nginx.conf",
        format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log; {user}
             events {{ worker_connections 256; }}
             http {{
               access_log off;
               client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
               uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
               server {{
                 listen 127.0.0.1:{port} ssl; root {at}/www;
                 ssl_certificate {at}/origin.pem; ssl_certificate_key {at}/origin.key;
                 add_header X-Server-Name $ssl_server_name always;
               }}
             }}"
        ),
    );
    let _nginx = Running::start(
        Command::new(program("nginx", "nginx-light"))
            .args(["-e", &home.at("error.log"), "-c", &conf])
            .stdout(Stdio::null())
            .stderr(output(&home, "nginx.err")),
    );
    wait_for("nginx", SOON, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let config = |name: &str, tls: &str| {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"site\"\n\
             [[upstream.server]]\nurl = \"https://127.0.0.1:{port}\"\n[upstream.tls]\n{tls}\n"
        );
        home.write(name, text)
    };
    let right =
        Ours::configured(&config("right.toml", "ca = \"ca.pem\"\nserver_name = \"origin.test\""));
    let told = get(right.address(), "/index.html");
    assert!(told.contains("X-Server-Name: origin.test") && told.ends_with("over TLS"), "{told}");
    for (name, tls, words) in [
        ("name.toml", "ca = \"ca.pem\"", "another name"),
        ("root.toml", "server_name = \"origin.test\"", "not to be trusted"),
    ] {
        let wrong = Ours::configured(&config(name, tls));
        let told = get(wrong.address(), "/index.html");
        assert!(told.starts_with("HTTP/1.1 502 ") && told.contains(words), "{name}: {told}");
    }
    let blind = Ours::configured(&config("blind.toml", "verify = false"));
    assert!(get(blind.address(), "/index.html").ends_with("over TLS"));
    assert!(blind.stopped().1.contains("verify = false"), "it says so when it starts");
}

#[test]
fn haproxy_tells_whose_connection_it_is() {
    let home = Home::new();
    let origin = Ours::origin();
    let config = format!(
        "[log]\npath = \"access.log\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         proxy_from = [\"127.0.0.1\"]\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
        origin.url()
    );
    let proxy = Ours::configured(&home.write("plimsoll.toml", config));
    for (send, source) in [("send-proxy", "127.0.0.7"), ("send-proxy-v2", "127.0.0.8")] {
        let port = free_port();
        let conf = home.write(
            "haproxy.cfg",
            format!(
                "global\n  nbthread 1\ndefaults\n  mode tcp\n  timeout client 20s\n  \
                 timeout server 20s\n  timeout connect 5s\nlisten web\n  bind 127.0.0.1:{port}\n  \
                 server ours {} {send}\n",
                proxy.address()
            ),
        );
        let _haproxy = Running::start(
            Command::new(program("haproxy", "haproxy"))
                .args(["-f", &conf])
                .stdout(Stdio::null())
                .stderr(output(&home, "haproxy.err")),
        );
        wait_for("haproxy", SOON, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        let url = format!("http://127.0.0.1:{port}/obj/1?size=10");
        let said = curl(&home, &["--interface", source, "--fail", "--output", "got", &url]);
        assert_eq!(said.code, Some(0), "{send}: {said:?}");
        wait_for("the line of the log", SOON, || {
            home.read("access.log").contains(&format!(" {source} ")).then_some(())
        });
    }
    // Without the header there is no connection.
    let direct = curl(&home, &[&proxy.url()]);
    assert_ne!(direct.code, Some(0), "{direct:?}");
    assert_eq!(proxy.stopped().0, Some(0));
}

/// What clients show: `NAME.pem` of our root, and one that nobody has signed.
fn client_certificates(home: &Home) {
    issue(home, "known", "DNS:client.test", false);
    let stranger = ["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=stranger"];
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let files = ["-keyout", "stranger.key", "-out", "stranger.pem"];
    openssl(home, &[&stranger[..], &key, &files].concat()).well();
}

#[test]
fn a_server_that_wants_a_certificate_gets_ours_or_refuses_us() {
    let home = Home::new();
    authority(&home);
    issue(&home, "origin", "DNS:origin.test", false);
    client_certificates(&home);
    home.write("page", "HTTP/1.0 200 ok\r\nContent-Length: 8\r\n\r\nsecretly");
    for version in ["-tls1_2", "-tls1_3"] {
        let port = free_port();
        let mut command = Command::new(program("openssl", "openssl"));
        let (at, chain) =
            (format!("127.0.0.1:{port}"), ["-cert", "origin.pem", "-key", "origin.key"]);
        command.current_dir(home.path()).args(["s_server", "-accept", &at, "-HTTP", version]);
        command.args(chain).args(["-CAfile", "ca.pem", "-Verify", "1", "-verify_return_error"]);
        command.stdout(Stdio::null()).stderr(output(&home, "s_server.err"));
        let _server = Running::start(&mut command);
        wait_for("s_server", SOON, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        let config = |name: &str, certificate: &str| {
            let text = format!(
                "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"site\"\n\
                 [[upstream.server]]\nurl = \"https://127.0.0.1:{port}\"\n[upstream.tls]\n\
                 ca = \"ca.pem\"\nserver_name = \"origin.test\"\n{certificate}\
                 [limits]\nconnect_timeout = \"20s\"\n"
            );
            Ours::configured(&home.write(name, text))
        };
        let shown = |name: &str| {
            format!("[upstream.tls.certificate]\nchain = \"{name}.pem\"\nkey = \"{name}.key\"\n")
        };
        let known = config("known.toml", &shown("known"));
        let told = get(known.address(), "/page");
        assert!(
            told.starts_with("HTTP/1.1 200 ") && told.ends_with("secretly"),
            "{version} {told}"
        );
        for (name, certificate) in [("none.toml", String::new()), ("other.toml", shown("stranger"))]
        {
            let refused = config(name, &certificate);
            // A server of TLS 1.2 that gets none has no word for it.
            let words = match (version, name) {
                ("-tls1_2", "none.toml") => "the TLS handshake with the upstream failed",
                _ => "does not accept our certificate",
            };
            // In TLS 1.3 its alert comes when we have asked already, and its close with it; it
            // serves one connection at a time, which may be too slow on a busy machine.
            wait_for(words, SOON, || {
                let told = get(refused.address(), "/page");
                assert!(told.starts_with("HTTP/1.1 50"), "{version} {name}: {told}");
                told.contains(words).then_some(())
            });
        }
    }
}

#[test]
fn a_listener_asks_its_clients_for_certificates() {
    let home = Home::new();
    let origin = Ours::origin();
    authority(&home);
    issue(&home, "site", "IP:127.0.0.1", false);
    client_certificates(&home);
    let listening = |name: &str, more: &str| {
        let text = format!(
            "[server]\nadmin = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
             [listen.tls]\nclient_ca = \"ca.pem\"\n{more}\n[[listen.tls.certificate]]\n\
             chain = \"site.pem\"\nkey = \"site.key\"\n\
             [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
            origin.url()
        );
        Ours::configured(&home.write(name, text))
    };
    let ask = |server: &Ours, shown: &[&str]| {
        let url = format!("https://{}/obj/1?size=10", server.address());
        let said =
            curl(&home, &[&["--cacert", "ca.pem", "--fail", &url, "-o", "got"], shown].concat());
        said.code == Some(0)
    };
    let known = ["--cert", "known.pem", "--key", "known.key"];
    let stranger = ["--cert", "stranger.pem", "--key", "stranger.key"];
    for (more, without) in [("", false), ("client_optional = true", true)] {
        let server = listening("plimsoll.toml", more);
        for version in ["1.2", "1.3"] {
            let with = |shown: &[&str]| {
                ask(&server, &[shown, &["--tls-max", version, "--tlsv1.2"]].concat())
            };
            assert!(with(&known), "{more} {version}");
            assert_eq!(with(&[]), without, "{more} {version}");
            assert!(!with(&stranger), "{more} {version}");
        }
        let refused = if without { 2 } else { 4 };
        let line = format!("plimsoll_tls_failures_client_certificate_total {refused}\n");
        let metrics = get(server.admin(), "/metrics");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
}

/// Between a client and a forward proxy TLS too: its tunnel runs inside.
#[test]
fn curl_speaks_tls_with_the_proxy_and_through_it() {
    let home = Home::new();
    let origin = Ours::origin();
    authority(&home);
    issue(&home, "web", "DNS:localhost", false);
    issue(&home, "proxy", "IP:127.0.0.1", false);
    let certificate = |name: &str| {
        format!("[[listen.tls.certificate]]\nchain = \"{name}.pem\"\nkey = \"{name}.key\"\n")
    };
    let web = Ours::configured(&home.write(
        "web.toml",
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[listen.tls]\n{}\
             [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
            certificate("web"),
            origin.url()
        ),
    ));
    let port = web.address().port();
    let proxy = Ours::configured(&home.write(
        "proxy.toml",
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n[listen.tls]\n{}\
             [log]\npath = \"access.log\"\n[forward]\nallow_to = [\"127.0.0.0/8\"]\n\
             connect_ports = [\"1-65535\"]\ntls_ports = [{port}]\n",
            certificate("proxy")
        ),
    ));
    let at = format!("https://{}", proxy.address());
    let secure = format!("https://localhost:{port}/obj/1?size=300000");
    let plain = format!("{}/obj/2?size=10", origin.url());
    let trusting = ["--cacert", "ca.pem", "--proxy-cacert", "ca.pem", "--fail"];
    for (url, bytes) in [(&secure, 300_000), (&plain, 10)] {
        let flags = ["--proxy", &at, "--proxytunnel", url, "--output", "got"];
        let flags =
            if *url == plain { [&flags[..2], &flags[3..]].concat() } else { flags.to_vec() };
        curl(&home, &[&trusting[..], &flags].concat()).well();
        assert_eq!(fs::metadata(home.path().join("got")).unwrap().len(), bytes);
    }
    // Who does not trust the proxy's certificate tells it nothing.
    let blind =
        curl(&home, &["--cacert", "ca.pem", "--proxy-capath", "nowhere", "--proxy", &at, &secure]);
    assert_ne!(blind.code, Some(0), "{blind:?}");
    assert_eq!(proxy.stopped().0, Some(0));
    let log = home.read("access.log");
    assert_eq!(log.lines().count(), 2, "{log}");
    let tunnel = format!(" CONNECT localhost:{port} ");
    assert!(log.contains(" TCP_TUNNEL/200 ") && log.contains(&tunnel), "{log}");
    assert!(log.contains(" TCP_MISS/200 "), "{log}");
}
