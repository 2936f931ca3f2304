//! TLS and the PROXY protocol with other programs: OpenSSL and curl as clients, nginx as an origin,
//! HAProxy in front.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{
    CommandOutput, Home, OurServer, Running, SOON, Successor, free_port, get, nginx, output_file,
    plimsoll, program, run, wait_for,
};

pub(crate) fn openssl(home: &Home, args: &[&str]) -> CommandOutput {
    let mut command = Command::new(program("openssl", "openssl"));
    command.current_dir(home.path()).args(args);
    run(command, SOON)
}

/// A root certificate in `ca.pem`, and certificates that it signed: `NAME.pem` with `NAME.key`.
pub(crate) fn authority(home: &Home) {
    let subject = ["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=root"];
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    openssl(home, &[&subject[..], &key, &["-keyout", "ca.key", "-out", "ca.pem"]].concat())
        .succeeded();
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
    openssl(home, &[&request[..], key, &more, &files].concat()).succeeded();
}

fn curl(home: &Home, args: &[&str]) -> CommandOutput {
    let mut command = Command::new(program("curl", "curl"));
    command.current_dir(home.path()).args(["--silent", "--show-error", "--max-time", "20"]);
    command.args(args);
    run(command, SOON)
}

/// Our server behind TLS, with a certificate of each kind for `a.test` and one for `*.b.test`.
fn behind_tls(home: &Home, origin: &OurServer) -> OurServer {
    authority(home);
    issue(home, "a", "DNS:a.test", false);
    issue(home, "a-rsa", "DNS:a.test", true);
    issue(home, "b", "DNS:*.b.test", false);
    let listener = listener(&["a", "a-rsa", "b"]);
    OurServer::configured(&home.write("plimsoll.toml", configuration(&[listener], origin)))
}

fn listener(certificates: &[&str]) -> String {
    let mut text = "[[listen]]\naddress = \"127.0.0.1:0\"\n[listen.tls]\n".to_owned();
    for name in certificates {
        text.push_str(&format!(
            "[[listen.tls.certificate]]\nchain = \"{name}.pem\"\nkey = \"{name}.key\"\n"
        ));
    }
    text
}

fn configuration(listeners: &[String], origin: &OurServer) -> String {
    let listeners = listeners.concat();
    let url = origin.url();
    format!(
        "[server]\nadmin = \"127.0.0.1:0\"\nworkers = 2\n{listeners}\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{url}\"\n"
    )
}

/// The output of `openssl s_client` for a handshake with these flags.
fn handshake(home: &Home, proxy: &OurServer, flags: &[&str]) -> CommandOutput {
    let at = proxy.address().to_string();
    openssl(home, &[&["s_client", "-connect", &at, "-CAfile", "ca.pem"][..], flags].concat())
}

#[test]
fn openssl_negotiates_versions_names_and_sessions() {
    let home = Home::new();
    let origin = OurServer::origin();
    let proxy = behind_tls(&home, &origin);
    for (version, answer) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let flags = [version, "-alpn", "http/1.1", "-servername", "a.test"];
        let output = handshake(&home, &proxy, &flags).stdout;
        for words in [answer, "ALPN protocol: http/1.1", "Verify return code: 0 (ok)", "CN = a\n"] {
            assert!(output.contains(words), "no {words:?} in {output}");
        }
    }
    for offered in ["h2", "http/1.1,h2"] {
        let output = handshake(&home, &proxy, &["-alpn", offered]).stdout;
        assert!(output.contains("ALPN protocol: h2"), "{offered}: {output}");
    }
    // Certificates are chosen by name and by supported key type; an unknown name gets the first.
    let rsa = ["-servername", "A.TEST", "-sigalgs", "RSA-PSS+SHA256"];
    for (flags, subject) in [
        (&["-servername", "www.b.test"][..], "CN = b\n"),
        (&rsa, "CN = a-rsa\n"),
        (&["-servername", "x.www.b.test"], "CN = a\n"),
        (&["-noservername"], "CN = a\n"),
    ] {
        let output = handshake(&home, &proxy, flags).stdout;
        assert!(output.contains(subject), "{flags:?}: no {subject:?} in {output}");
    }
    for refused in [&["-tls1_1"][..], &["-alpn", "h3"]] {
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
fn a_session_outlives_a_reload_and_a_restart_but_not_its_certificate() {
    let home = Home::new();
    let origin = OurServer::origin();
    authority(&home);
    issue(&home, "a", "DNS:a.test", false);
    issue(&home, "new", "DNS:a.test", false);
    let listeners = [listener(&["a"]), listener(&["a"])];
    let mut proxy =
        OurServer::configured(&home.write("plimsoll.toml", configuration(&listeners, &origin)));
    let admin = proxy.admin().to_string();
    let takes_up = |at: usize| {
        let address = proxy.announced["listen"][at].as_str().unwrap();
        let flags = ["-tls1_2", "-servername", "a.test", "-CAfile", "ca.pem", "-connect", address];
        let session: &[&str] = match home.path().join("session").exists() {
            true => &["-sess_in", "session"],
            false => &["-sess_out", "session"],
        };
        let output = openssl(&home, &[&["s_client"][..], &flags, session].concat()).stdout;
        let reused = output.contains("Reused, TLSv1.2");
        assert!(reused || output.contains("New, TLSv1.2"), "{output}");
        reused
    };
    assert!(!takes_up(0));
    // On both cores.
    for _ in 0..8 {
        assert!(takes_up(0));
    }
    assert!(!takes_up(1), "it is another listener");
    plimsoll(&["reload", "--admin", &admin]).succeeded();
    assert!(takes_up(0));
    let first = Successor::restart(proxy.admin());
    assert!(takes_up(0));
    assert!(!takes_up(1));
    assert_eq!(proxy.child.ended(SOON).code(), Some(0));
    let successor = Successor::restart(proxy.admin());
    first.ends(None);
    assert!(takes_up(0));
    let listeners = [listener(&["new"]), listener(&["new"])];
    home.write("plimsoll.toml", configuration(&listeners, &origin));
    plimsoll(&["reload", "--admin", &admin]).succeeded();
    assert!(!takes_up(0));
    successor.ends(Some("TERM"));
}

#[test]
fn curl_gets_responses_over_tls() {
    let home = Home::new();
    let origin = OurServer::origin();
    let proxy = behind_tls(&home, &origin);
    let port = proxy.address().port();
    let resolve = format!("a.test:{port}:127.0.0.1");
    let url = format!("https://a.test:{port}/obj/1?size=3000000");
    let flags = ["--cacert", "ca.pem", "--resolve", &resolve];
    for _ in 0..2 {
        let output = curl(&home, &[&flags[..], &[&url, "--output", "got"]].concat());
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(fs::metadata(home.path().join("got")).unwrap().len(), 3_000_000);
    }
    assert!(get(proxy.admin(), "/metrics").contains("plimsoll_hits_total 1\n"));
    let admin = proxy.admin().to_string();
    let answer = plimsoll(&["explain", &url, "--admin", &admin]).succeeded().stdout;
    assert!(answer.contains("served from the cache"), "{answer}");
    let clear = url.replace("https:", "http:");
    plimsoll(&["explain", &clear, "--admin", &admin]).refused(&["every listener speaks TLS"]);
    // A plain-text request gets an explanation. A client itself refuses a certificate without its
    // name.
    let clear = curl(&home, &[&format!("http://127.0.0.1:{port}/")]);
    assert!(clear.stdout.contains("ask with https://"), "{clear:?}");
    let other = curl(&home, &["--cacert", "ca.pem", &format!("https://127.0.0.1:{port}/")]);
    assert_ne!(other.code, Some(0), "{other:?}");
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn the_log_has_the_tls_version_of_a_client_and_requests_refused_by_a_rule() {
    let home = Home::new();
    let origin = OurServer::origin();
    authority(&home);
    issue(&home, "a", "DNS:a.test", false);
    issue(&home, "person", "DNS:person.test", false);
    let format = "squid:%ssl::>negotiated_version %ssl::>sni %ssl::>cert_subject %>Hs %err_code";
    // One core, so that the lines are in the order of the requests.
    let config = format!(
        "[server]\nworkers = 1\n\
         [log]\npath = \"access.log\"\nformat = \"{format}\"\n[[listen]]\n\
         address = \"127.0.0.1:0\"\n[listen.tls]\nclient_ca = \"ca.pem\"\n\
         [[listen.tls.certificate]]\nchain = \"a.pem\"\nkey = \"a.key\"\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
        origin.url()
    );
    let proxy = OurServer::configured(&home.write("plimsoll.toml", config));
    let port = proxy.address().port();
    let resolve = format!("a.test:{port}:127.0.0.1");
    let url = format!("https://a.test:{port}/obj/1?size=10");
    let flags = ["--cacert", "ca.pem", "--resolve", &resolve, "--output", "got", &url];
    let known = ["--cert", "person.pem", "--key", "person.key"];
    let output = curl(&home, &[&flags[..], &known].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
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
    let origin = OurServer::origin();
    let proxy = behind_tls(&home, &origin);
    let subject = || handshake(&home, &proxy, &["-servername", "a.test"]).stdout;
    assert!(subject().contains("CN = a\n"));
    // The key does not match: the old certificate stays.
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
    let (code, answer) = proxy.stopped();
    assert_eq!(code, Some(0));
    assert!(answer.contains("is not that of the first certificate"), "{answer}");
}

#[test]
fn nginx_with_tls_is_an_origin_if_its_certificate_is_valid() {
    let home = Home::new();
    authority(&home);
    issue(&home, "origin", "DNS:origin.test", false);
    fs::create_dir(home.path().join("www")).unwrap();
    home.write("www/index.html", "over TLS");
    let (at, port) = (home.path().display(), free_port());
    let http = format!(
        "server {{
           listen 127.0.0.1:{port} ssl; root {at}/www;
           ssl_certificate {at}/origin.pem; ssl_certificate_key {at}/origin.key;
           add_header X-Server-Name $ssl_server_name always;
         }}"
    );
    let _nginx = nginx(home.path(), port, &http);
    let config = |name: &str, tls: &str| {
        let text = format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"site\"\n\
             [[upstream.server]]\nurl = \"https://127.0.0.1:{port}\"\n[upstream.tls]\n{tls}\n"
        );
        home.write(name, text)
    };
    let right = OurServer::configured(&config(
        "right.toml",
        "ca = \"ca.pem\"\nserver_name = \"origin.test\"",
    ));
    let answer = get(right.address(), "/index.html");
    assert!(
        answer.contains("X-Server-Name: origin.test") && answer.ends_with("over TLS"),
        "{answer}"
    );
    for (name, tls, words) in [
        ("name.toml", "ca = \"ca.pem\"", "another name"),
        ("root.toml", "server_name = \"origin.test\"", "not trusted"),
    ] {
        let wrong = OurServer::configured(&config(name, tls));
        let answer = get(wrong.address(), "/index.html");
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains(words), "{name}: {answer}");
    }
    let blind = OurServer::configured(&config("blind.toml", "verify = false"));
    assert!(get(blind.address(), "/index.html").ends_with("over TLS"));
    assert!(blind.stopped().1.contains("verify = false"), "it warns at startup");
}

#[test]
fn haproxy_sends_the_client_address() {
    let home = Home::new();
    let origin = OurServer::origin();
    let config = format!(
        "[log]\npath = \"access.log\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         proxy_from = [\"127.0.0.1\"]\n\
         [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
        origin.url()
    );
    let proxy = OurServer::configured(&home.write("plimsoll.toml", config));
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
                .stderr(output_file(&home, "haproxy.err")),
        );
        wait_for("haproxy", SOON, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        let url = format!("http://127.0.0.1:{port}/obj/1?size=10");
        let output = curl(&home, &["--interface", source, "--fail", "--output", "got", &url]);
        assert_eq!(output.code, Some(0), "{send}: {output:?}");
        wait_for("the line of the log", SOON, || {
            home.read("access.log").contains(&format!(" {source} ")).then_some(())
        });
    }
    // A connection without the header is refused.
    let direct = curl(&home, &[&proxy.url()]);
    assert_ne!(direct.code, Some(0), "{direct:?}");
    assert_eq!(proxy.stopped().0, Some(0));
}

/// Client certificates: `NAME.pem`, signed by our root, and a self-signed one.
fn client_certificates(home: &Home) {
    issue(home, "known", "DNS:client.test", false);
    let stranger = ["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=stranger"];
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let files = ["-keyout", "stranger.key", "-out", "stranger.pem"];
    openssl(home, &[&stranger[..], &key, &files].concat()).succeeded();
}

#[test]
fn an_origin_that_requires_a_client_certificate_gets_ours_or_refuses() {
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
        command.stdout(Stdio::null()).stderr(output_file(&home, "s_server.err"));
        let _server = Running::start(&mut command);
        wait_for("s_server", SOON, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        let config = |name: &str, certificate: &str| {
            let text = format!(
                "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"site\"\n\
                 [[upstream.server]]\nurl = \"https://127.0.0.1:{port}\"\n[upstream.tls]\n\
                 ca = \"ca.pem\"\nserver_name = \"origin.test\"\n{certificate}\
                 [limits]\nconnect_timeout = \"20s\"\n"
            );
            OurServer::configured(&home.write(name, text))
        };
        let shown = |name: &str| {
            format!("[upstream.tls.certificate]\nchain = \"{name}.pem\"\nkey = \"{name}.key\"\n")
        };
        let known = config("known.toml", &shown("known"));
        let answer = get(known.address(), "/page");
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("secretly"),
            "{version} {answer}"
        );
        for (name, certificate) in [("none.toml", String::new()), ("other.toml", shown("stranger"))]
        {
            let refused = config(name, &certificate);
            // A TLS 1.2 server that gets no certificate has no specific alert.
            let words = match (version, name) {
                ("-tls1_2", "none.toml") => "the TLS handshake with the upstream failed",
                _ => "does not accept our certificate",
            };
            // In TLS 1.3 the alert and the close arrive after the request was sent. The server
            // handles one connection at a time, which may be too slow on a busy machine.
            wait_for(words, SOON, || {
                let answer = get(refused.address(), "/page");
                assert!(answer.starts_with("HTTP/1.1 50"), "{version} {name}: {answer}");
                answer.contains(words).then_some(())
            });
        }
    }
}

#[test]
fn a_listener_requires_client_certificates() {
    let home = Home::new();
    let origin = OurServer::origin();
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
        OurServer::configured(&home.write(name, text))
    };
    let ask = |server: &OurServer, shown: &[&str]| {
        let url = format!("https://{}/obj/1?size=10", server.address());
        let output =
            curl(&home, &[&["--cacert", "ca.pem", "--fail", &url, "-o", "got"], shown].concat());
        output.code == Some(0)
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

/// TLS between a client and a forward proxy, with a tunnel inside.
#[test]
fn curl_speaks_tls_with_the_proxy_and_through_it() {
    let home = Home::new();
    let origin = OurServer::origin();
    authority(&home);
    issue(&home, "web", "DNS:localhost", false);
    issue(&home, "proxy", "IP:127.0.0.1", false);
    let certificate = |name: &str| {
        format!("[[listen.tls.certificate]]\nchain = \"{name}.pem\"\nkey = \"{name}.key\"\n")
    };
    let web = OurServer::configured(&home.write(
        "web.toml",
        format!(
            "[[listen]]\naddress = \"127.0.0.1:0\"\n[listen.tls]\n{}\
             [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{}\"\n",
            certificate("web"),
            origin.url()
        ),
    ));
    let port = web.address().port();
    let proxy = OurServer::configured(&home.write(
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
        curl(&home, &[&trusting[..], &flags].concat()).succeeded();
        assert_eq!(fs::metadata(home.path().join("got")).unwrap().len(), bytes);
    }
    // A client that does not trust the proxy's certificate sends no request.
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
