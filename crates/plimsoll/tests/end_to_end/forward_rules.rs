//! Rules of forward listeners by the client's network and by users, lifetimes by pattern, the
//! script for browsers, and quotas on tunnels, with curl, and with Squid beside us where it has the
//! same.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::hierarchy::Squid;
use crate::support::{
    Accepting, CommandOutput, Home, OurServer, SOON, am_root, output_file, plimsoll, program, run,
};

/// What curl gets from this address by a proxy: the status, and the body.
fn curl(proxy: SocketAddr, from: &str, url: &str, flags: &[&str]) -> (u16, String) {
    let mut curl = Command::new(program("curl", "curl"));
    curl.args(["-s", "-w", "\n%{http_code}", "--interface", from, "--noproxy", ""]);
    curl.args(["--proxy", &format!("http://{proxy}")]).args(flags).arg(url);
    let CommandOutput { stdout, .. } = run(curl, SOON);
    let (body, status) = stdout.rsplit_once('\n').unwrap_or_else(|| panic!("{stdout}"));
    (status.parse().unwrap(), body.to_owned())
}

/// The cost of a hash is low, so that tests are quick.
fn users(home: &Home) {
    let mut htpasswd = Command::new(program("htpasswd", "apache2-utils"));
    htpasswd.args(["-bcB", "-C", "4", &home.at("users"), "ann", "secret"]);
    run(htpasswd, SOON).succeeded();
}

fn ours(home: &Home, forward: &str) -> OurServer {
    let text = format!(
        "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"0.0.0.0:0\"\nrole = \"forward\"\n\
         [forward]\nallow_to = [\"127.0.0.0/8\"]\nports = [\"1-65535\"]\n\
         connect_ports = [\"1-65535\"]\ntls_ports = []\n{forward}\n"
    );
    OurServer::configured(&home.write("forward.toml", text))
}

fn at_loopback(server: &OurServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.address().port()))
}

const ANN: [&str; 2] = ["--proxy-user", "ann:secret"];
const WRONG: [&str; 2] = ["--proxy-user", "ann:wrong"];

/// `http_access allow office`, `allow auth` and `allow kiosks auth`, as Squid has them.
#[test]
fn networks_and_logins_are_judged_as_squid_judges_them() {
    let home = Home::new();
    users(&home);
    let origin = OurServer::origin();
    let url = format!("{}/obj/1?size=10&cc=no-store", origin.url());
    let helper = "/usr/lib/squid/basic_ncsa_auth";
    let squid_users = home.at("users");
    if am_root() {
        // Squid's program for passwords runs as another user.
        let mut chmod = Command::new("chmod");
        chmod.args(["-R", "a+rX", &home.at("")]);
        run(chmod, SOON).succeeded();
    }
    let auth = format!(
        "auth_param basic program {helper} {squid_users}\n\
         auth_param basic realm plimsoll\nacl auth proxy_auth REQUIRED\n\
         acl office src 127.0.1.0/24\nacl kiosks src 127.0.2.0/24\nacl bad src 127.0.3.0/24\n"
    );
    let deny = "http_access deny all\n";
    let any = format!("{auth}http_access allow office !bad\nhttp_access allow auth\n{deny}");
    let all = format!(
        "{auth}http_access deny bad\nhttp_access allow office\n\
         http_access allow kiosks auth\n{deny}"
    );
    let our_any = "users = \"users\"\nallow_from = [\"127.0.1.0/24\"]\n\
                   deny_from = [\"127.0.3.0/24\"]\nsatisfy = \"any\"";
    let our_all = "users = \"users\"\nallow_from = [\"127.0.0.0/16\"]\n\
                   deny_from = [\"127.0.3.0/24\", \"127.0.4.0/24\"]\n\
                   no_login_from = [\"127.0.1.0/24\"]";
    for (name, rules, forward) in [("any", any, our_any), ("all", all, our_all)] {
        let squid = Squid::with_access(&home, name, &rules);
        let server = ours(&home, forward);
        for from in ["127.0.1.1", "127.0.2.1", "127.0.3.1", "127.0.4.1"] {
            for login in [&[][..], &ANN, &WRONG] {
                let our = curl(at_loopback(&server), from, &url, login);
                let their = curl(squid.http, from, &url, login);
                assert_eq!(our.0, their.0, "{name} {from} {login:?}");
            }
        }
        let connect = ["-p", ANN[0], ANN[1]];
        assert_eq!(curl(at_loopback(&server), "127.0.2.1", &url, &connect).0, 200, "{name}");
        assert_eq!(curl(at_loopback(&server), "127.0.2.1", &url, &["-p"]).0, 0, "{name}");
    }
}

/// What `refresh_pattern` and `[[forward.lifetime]]` do with responses of which one is stale by
/// itself, and another says nothing.
#[test]
fn lifetimes_by_pattern_are_those_of_squid() {
    let home = Home::new();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&asked);
    let origin = Accepting::start(move |mut stream| {
        let mut request = [0; 4096];
        let Ok(bytes @ 1..) = stream.read(&mut request) else { return };
        let text = String::from_utf8_lossy(&request[..bytes]).into_owned();
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let own = if path.ends_with(".deb") { "Cache-Control: max-age=0\r\n" } else { "" };
        seen.lock().unwrap().push(path);
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{own}\
             Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nConnection: close\r\n\r\nhello"
        );
        let _ = stream.write_all(answer.as_bytes());
    });
    let squid = Squid::start(
        &home,
        "patterns",
        "refresh_pattern \\.deb$ 60 100% 60 override-expire\nrefresh_pattern \\.html$ 0 0% 0\n\
         refresh_pattern . 1 100% 1",
    );
    let server = ours(
        &home,
        "[[forward.lifetime]]\nwhen = \"path.endsWith('.deb')\"\nttl = \"1h\"\noverrule = true\n\
         [[forward.lifetime]]\nwhen = \"path.endsWith('.html')\"\nttl = \"0s\"\n\
         [[forward.lifetime]]\nttl = \"1m\"",
    );
    for (name, proxy) in [("ours", at_loopback(&server)), ("Squid", squid.http)] {
        for (path, fetches) in [("a.deb", 1), ("b.html", 3), ("c.txt", 1)] {
            let url = format!("http://{}/{name}/{path}", origin.address);
            for _ in 0..3 {
                assert_eq!(curl(proxy, "127.0.0.1", &url, &[]), (200, "hello".to_owned()), "{url}");
            }
            let of_path = |one: &&String| one.ends_with(&format!("/{name}/{path}"));
            let count = asked.lock().unwrap().iter().filter(of_path).count();
            assert_eq!(count, fetches, "{name} {path}");
        }
    }
    let url = format!("http://{}/ours/a.deb", origin.address);
    let admin = server.admin().to_string();
    let explained = plimsoll(&["explain", &url, "--admin", &admin]).succeeded().stdout;
    assert!(explained.contains("served from the cache"), "{explained}");
}

#[test]
fn browsers_get_the_script_without_a_password() {
    let home = Home::new();
    users(&home);
    let script = "function FindProxyForURL(url, host) { return \"PROXY proxy.test:3128\"; }\n";
    home.write("proxy.pac", script);
    let server =
        ours(&home, "users = \"users\"\nallow_from = [\"127.0.0.1/32\"]\npac_file = \"proxy.pac\"");
    let direct = |from: &str, path: &str| {
        let mut curl = Command::new(program("curl", "curl"));
        let at = format!("http://{}{path}", at_loopback(&server));
        curl.args(["-s", "-w", "\n%{http_code} %{content_type}", "--interface", from, &at]);
        run(curl, SOON).stdout
    };
    for path in ["/proxy.pac", "/wpad.dat"] {
        let expected = format!("{script}\n200 application/x-ns-proxy-autoconfig");
        assert_eq!(direct("127.0.0.1", path), expected, "{path}");
        assert!(direct("127.0.0.2", path).contains("\n403 "), "{path}");
    }
    assert!(
        direct("127.0.0.1", "/other.pac").contains("\n407 ") || {
            direct("127.0.0.1", "/other.pac").contains("\n400 ")
        }
    );
    home.write("proxy.pac", script.replace("3128", "8080"));
    server.child.signal("HUP");
    crate::support::wait_for("the new script", SOON, || {
        direct("127.0.0.1", "/proxy.pac").contains(":8080").then_some(())
    });
}

/// A quota paces the bytes of a tunnel, and counts open tunnels.
#[test]
fn tunnels_have_quotas() {
    let home = Home::new();
    let origin = Accepting::start(|mut stream| {
        let mut first = [0; 1];
        if stream.read_exact(&mut first).is_ok() {
            let _ = stream.write_all(&[b'x'; 600_000]);
            let _ = stream.read(&mut first);
        }
    });
    let server = ours(
        &home,
        "[[quota]]\nname = \"tunnels\"\nbytes = \"200KiB/s\"\nbytes_burst = \"200KiB\"\n\
         tunnels = true\nexcept_from = [\"127.0.0.9/32\"]\n\
         [[quota]]\nname = \"open\"\nconcurrency = 2\nwhen = \"method == 'CONNECT'\"",
    );
    let tunnel = |from: &str| {
        let script = format!(
            "import socket, sys, time\n\
             s = socket.socket(); s.bind(('{from}', 0)); s.settimeout(20)\n\
             s.connect(('127.0.0.1', {}))\n\
             s.sendall(b'CONNECT {at} HTTP/1.1\\r\\nHost: {at}\\r\\n\\r\\n')\n\
             head = b''\n\
             while b'\\r\\n\\r\\n' not in head: head += s.recv(1)\n\
             status = head.split()[1].decode()\n\
             begun = time.monotonic(); got = 0\n\
             if status == '200':\n    s.sendall(b'a')\n    \
             while got < 600000: got += len(s.recv(65536))\n\
             print(status, got, time.monotonic() - begun)\n",
            at_loopback(&server).port(),
            at = origin.address,
        );
        let mut python = Command::new(program("python3", "python3"));
        python.arg(home.write(&format!("tunnel-{from}.py"), script));
        python
    };
    let answer = |from: &str| {
        let stdout = run(tunnel(from), SOON).succeeded().stdout;
        let words: Vec<String> = stdout.split_whitespace().map(str::to_owned).collect();
        (words[0].clone(), words[1].parse::<u64>().unwrap(), words[2].parse::<f64>().unwrap())
    };
    let (status, bytes, seconds) = answer("127.0.0.9");
    assert!((&status[..], bytes) == ("200", 600_000) && seconds < 1.0, "{seconds}");
    let begun = Instant::now();
    let (status, bytes, seconds) = answer("127.0.0.1");
    // 600,000 bytes without the burst, at 204,800 each second.
    assert!((&status[..], bytes) == ("200", 600_000) && (1.2..6.0).contains(&seconds), "{seconds}");
    println!("{bytes} bytes in {seconds} s");
    assert!(begun.elapsed() > Duration::from_secs(1));
    // Two tunnels that go on, and a third one.
    let held: Vec<_> = (0..2)
        .map(|nth| {
            let mut python = tunnel("127.0.0.2");
            python.stdout(output_file(&home, &format!("held-{nth}")));
            let held = crate::support::Running::start(&mut python);
            std::thread::sleep(Duration::from_millis(400));
            held
        })
        .collect();
    assert_eq!(answer("127.0.0.2").0, "429");
    assert_eq!(answer("127.0.0.9").0, "200");
    drop(held);
    let metrics = crate::support::get(server.admin(), "/metrics");
    assert!(metrics.contains("quota_refused_total{quota=\"open\"} 1"), "{metrics}");
}
