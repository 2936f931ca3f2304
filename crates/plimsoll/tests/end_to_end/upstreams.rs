//! Groups of real servers: two nginx servers, one of which is killed and started again under load.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Home, OurServer, Running, SOON, Successor, free_port, get, nginx, plimsoll, program, run,
    wait_for,
};

fn named_nginx(home: &Home, name: &str, port: u16) -> Running {
    let at = home.path().join(name);
    fs::create_dir_all(at.join("www")).unwrap();
    fs::write(at.join("www/index.html"), "x".repeat(1024)).unwrap();
    let root = at.join("www");
    let http = format!(
        "sendfile off; keepalive_requests 1000000;
         server {{
           listen 127.0.0.1:{port}; root {};
           add_header Cache-Control no-store;
           add_header X-Server {name};
         }}",
        root.display()
    );
    nginx(&at, port, &http)
}

/// The servers as reported by the admin address.
fn servers(proxy: &OurServer) -> Vec<Value> {
    let answer = get(proxy.admin(), "/upstreams");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let answer: Value =
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    answer["groups"][0]["servers"].as_array().unwrap().clone()
}

#[test]
fn alone_killing_one_of_two_servers_under_load_fails_no_request() {
    let home = Home::alone();
    let ports = [free_port(), free_port()];
    let [first, second] = ports.map(|port| format!("http://127.0.0.1:{port}"));
    let _first = named_nginx(&home, "a", ports[0]);
    let mut killed = named_nginx(&home, "b", ports[1]);
    let flags = ["--origin", &first, "--origin", &second, "--admin", "127.0.0.1:0"];
    let proxy = OurServer::serve(&flags);
    let url = format!("{}/index.html", proxy.url());
    let load = std::thread::spawn(move || {
        let flags = ["--rate", "400", "--for", "6s", "--connections", "16", "--json"];
        plimsoll(&[&["load", &url], &flags[..]].concat())
    });
    wait_for("both servers' share", SOON, || {
        let requests = |server: &Value| server["requests"].as_u64().unwrap();
        servers(&proxy).iter().all(|server| requests(server) > 100).then_some(())
    });
    killed.signal("KILL");
    killed.ended(SOON);
    wait_for("the failed server to get no requests", SOON, || {
        (servers(&proxy)[1]["state"] == "ejected").then_some(())
    });
    let _again = named_nginx(&home, "b", ports[1]);
    let result = load.join().unwrap().succeeded().json();
    for (kind, count) in result["errors"].as_object().unwrap() {
        assert_eq!(count, 0, "{kind}: {result}");
    }
    assert!(result["completed"].as_u64().unwrap() > 1000, "{result}");
    // The restarted server gets its share again.
    let before = servers(&proxy)[1]["requests"].as_u64().unwrap();
    wait_for("the restarted server to get requests", Duration::from_secs(60), || {
        get(proxy.address(), "/index.html").contains("X-Server: b").then_some(())
    });
    let now = &servers(&proxy)[1];
    assert!(now["requests"].as_u64().unwrap() > before, "{now}");
    assert_eq!(now["state"], "up");
    assert_eq!(proxy.stopped().0, Some(0));
}

/// Around the length from which on bodies are not copied, and far beyond it. Bytes that arrived
/// between a splice and the look for urgent data were taken for urgent data, and the rest of the
/// body was copied: beside other load one run in ten failed.
#[test]
fn alone_long_bodies_are_passed_on_as_they_are() {
    let home = Home::new();
    let port = free_port();
    let _origin = named_nginx(&home, "a", port);
    let url = format!("http://127.0.0.1:{port}");
    let proxy = OurServer::serve(&["--origin", &url, "--admin", "127.0.0.1:0"]);
    let lengths = [65_535, 65_536, 65_537, 1 << 20, 50 << 20];
    let mut command = Command::new(program("curl", "curl"));
    command.args(["--silent", "--fail"]);
    let block: Vec<u8> =
        (0..1_000_003_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let bytes = block.repeat(53);
    for length in lengths {
        home.write(&format!("a/www/{length}"), &bytes[..length]);
        command.args(["--output", &home.at(&length.to_string())]);
        command.arg(format!("{}/{length}", proxy.url()));
    }
    run(command, SOON).succeeded();
    for length in lengths {
        let got = fs::read(home.at(&length.to_string())).unwrap();
        assert!(got == bytes[..length], "{length} bytes");
    }
    let metrics = get(proxy.admin(), "/metrics");
    let spliced =
        metrics.lines().find_map(|line| line.strip_prefix("plimsoll_spliced_bytes_total "));
    assert!(spliced.unwrap().parse::<u64>().unwrap() > 50 << 20, "{spliced:?}");
    assert_eq!(proxy.stopped().0, Some(0));
}

/// An application at a Unix socket that appears later, with nginx in front of the same socket.
#[test]
fn an_application_at_a_unix_socket_is_served_as_by_nginx() {
    let home = Home::new();
    let at = home.path().join("app");
    fs::create_dir_all(at.join("www")).unwrap();
    fs::write(at.join("www/big"), "0123456789".repeat(150_000)).unwrap();
    let (port, socket) = (free_port(), at.join("socket").display().to_string());
    let text = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\n\
         name = \"app\"\nserver = [{{ url = \"unix:{socket}\" }}]\n[upstream.health]\n\
         path = \"/big\"\ninterval = \"100ms\"\nrise = 1\nfall = 1\n"
    );
    let proxy = OurServer::configured(&home.write("plimsoll.toml", text));
    let before = get(proxy.address(), "/big");
    assert!(before.starts_with("HTTP/1.1 502") || before.starts_with("HTTP/1.1 503"), "{before}");
    let http = format!(
        "server {{ listen unix:{socket}; root {}; add_header Cache-Control no-store; }}
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://unix:{socket}; }} }}",
        at.join("www").display()
    );
    let _nginx = nginx(&at, port, &http);
    let curl = |url: &str| {
        let mut curl = Command::new(program("curl", "curl"));
        curl.args(["-s", "-w", "%{http_code}", url]);
        run(curl, SOON).succeeded().stdout
    };
    let theirs = curl(&format!("http://127.0.0.1:{port}/big"));
    assert!(theirs.len() > 1_500_000);
    let ours = || curl(&format!("{}/big", proxy.url()));
    wait_for("the socket", SOON, || (ours() == theirs).then_some(()));
    for _ in 0..20 {
        assert!(ours() == theirs, "another response than nginx passes on");
    }
    let servers = servers(&proxy);
    assert_eq!(servers[0]["server"], format!("unix:{socket}"));
}

/// nginx and HAProxy connect to our Unix sockets and name the client. The socket lives through a
/// restart in place, and its file through neither a crash nor the end.
#[test]
fn proxies_name_the_client_at_our_unix_sockets() {
    let home = Home::new();
    let (port, socket) = (free_port(), home.at("ours.sock"));
    let (haproxy_port, proxied) = (free_port(), home.at("proxied.sock"));
    let text = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"unix:{socket}\"\nmode = \"0622\"\n\
         trusted_proxies = [\"unix\"]\n\
         [[listen]]\naddress = \"unix:{proxied}\"\nproxy_from = [\"unix\"]\n\
         [[route]]\nallow_from = [\"192.0.2.7\", \"127.0.0.1\"]\nanswer = \"hello\"\n"
    );
    let file = home.write("plimsoll.toml", text);
    // A process that has crashed left a socket.
    drop(UnixListener::bind(&socket).unwrap());
    let mut proxy = OurServer::configured(&file);
    assert_eq!(proxy.announced["listen"][0], format!("unix:{socket}"));
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o7777, 0o622);
    let pass = format!("proxy_pass http://unix:{socket}");
    let named = |at: u8| format!("proxy_set_header X-Forwarded-For 192.0.2.{at}; {pass};");
    let http = format!(
        "server {{ listen 127.0.0.1:{port}; location /yes {{ {} }} location /no {{ {} }} }}",
        named(7),
        named(8)
    );
    let at = home.path().join("nginx");
    fs::create_dir_all(&at).unwrap();
    let _nginx = nginx(&at, port, &http);
    let conf = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
         listen app\n bind 127.0.0.1:{haproxy_port}\n server a unix@{proxied} send-proxy-v2\n"
    );
    let mut haproxy = Command::new(program("haproxy", "haproxy"));
    let _haproxy = Running::start(haproxy.args(["-f", &home.write("haproxy.cfg", conf)]));
    wait_for("HAProxy", SOON, || std::net::TcpStream::connect(("127.0.0.1", haproxy_port)).ok());
    let curl = |args: &[&str]| {
        let mut curl = Command::new(program("curl", "curl"));
        curl.args(["-s", "-w", " %{http_code} %{http_version}"]).args(args);
        run(curl, SOON).succeeded().stdout
    };
    let by_nginx = |path: &str| curl(&[&format!("http://127.0.0.1:{port}{path}")]);
    let works = || {
        assert_eq!(by_nginx("/yes"), "hello 200 1.1");
        assert!(by_nginx("/no").ends_with(" 403 1.1"));
        // A PROXY header names the client, too.
        let by_haproxy = format!("http://127.0.0.1:{haproxy_port}/");
        assert_eq!(curl(&[&by_haproxy]), "hello 200 1.1");
        let ours = |args: &[&str]| {
            let all = ["--unix-socket", &socket, "http://site/"];
            curl(&[&all[..], args].concat())
        };
        assert!(ours(&[]).ends_with(" 403 1.1"), "a client without an address");
        let field = "X-Forwarded-For: 192.0.2.7";
        assert_eq!(ours(&["--http2-prior-knowledge", "-H", field]), "hello 200 2");
        // The proxy before this one had a client without an address, which is trusted no more.
        assert!(ours(&["-H", "X-Forwarded-For: 192.0.2.7, unix:"]).ends_with(" 403 1.1"));
    };
    works();
    let refused = plimsoll(&["serve", "-c", &file]);
    assert!(refused.stderr.contains(&format!("unix:{socket} is in use")), "{refused:?}");
    works();
    let successor = Successor::restart(proxy.admin());
    works();
    wait_for("the end of the first process", SOON, || proxy.child.has_ended().then_some(()));
    works();
    successor.ends(Some("TERM"));
    assert!(!std::path::Path::new(&socket).exists());
}

/// A download goes on while its server is drained; HAProxy beside it, with `set server`.
#[test]
fn a_server_is_drained_at_run_time_as_by_haproxy() {
    let home = Home::new();
    let ports = [free_port(), free_port()];
    let _a = named_nginx(&home, "a", ports[0]);
    let _b = named_nginx(&home, "b", ports[1]);
    home.write("a/www/big", "x".repeat(8 << 20));
    let text = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nserver = [{{ url = \"http://127.0.0.1:{}\" }}, \
         {{ url = \"http://127.0.0.1:{}\" }}]\n",
        ports[0], ports[1]
    );
    let proxy = OurServer::configured(&home.write("plimsoll.toml", text));
    let (port, control) = (free_port(), home.at("haproxy.sock"));
    let conf = format!(
        "global\n stats socket {control} mode 600 level admin\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
         listen app\n bind 127.0.0.1:{port}\n server a 127.0.0.1:{}\n server b 127.0.0.1:{}\n",
        ports[0], ports[1]
    );
    let mut haproxy = Command::new(program("haproxy", "haproxy"));
    let _haproxy = Running::start(haproxy.args(["-f", &home.write("haproxy.cfg", conf)]));
    let theirs = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    wait_for("HAProxy", SOON, || std::net::TcpStream::connect(theirs).ok());

    let curl = |args: &[&str]| {
        let mut curl = Command::new(program("curl", "curl"));
        curl.arg("-s").args(args);
        run(curl, SOON).succeeded().stdout
    };
    let at_admin = format!("http://{}", proxy.admin());
    let order = |order: &str| {
        let url = format!("{at_admin}/upstreams?server=127.0.0.1:{}&{order}", ports[0]);
        serde_json::from_str::<Value>(&curl(&["-X", "POST", &url])).unwrap()
    };
    let set = |order: &str| {
        let mut stream = UnixStream::connect(&control).unwrap();
        stream.write_all(format!("set server app/a {order}\n").as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said.trim(), "");
    };
    // How many of some requests go to the first server.
    let of_a = |at: std::net::SocketAddr| {
        let answers = (0..12).map(|_| get(at, "/index.html"));
        answers.filter(|answer| answer.to_lowercase().contains("x-server: a")).count()
    };
    let both = || (of_a(proxy.address()), of_a(theirs));
    assert_eq!(both(), (6, 6));

    // The next request goes to our first server, or the one after it does.
    let url = format!("{}/big", proxy.url());
    let download = std::thread::spawn(move || {
        loop {
            let mut curl = Command::new(program("curl", "curl"));
            curl.args(["-s", "--limit-rate", "2M", "-o", "/dev/null"]);
            curl.args(["-w", "%{http_code} %{size_download}", &url]);
            let got = run(curl, SOON).succeeded().stdout;
            if got.starts_with("200") {
                return got;
            }
        }
    });
    wait_for("the download", SOON, || (servers(&proxy)[0]["outstanding"] == 1).then_some(()));
    assert_eq!(order("state=drain")["server"]["state"], "draining");
    set("state drain");
    assert_eq!(both(), (0, 0));
    let shown = &servers(&proxy)[0];
    assert_eq!((&shown["up"], &shown["drained"]), (&1.into(), &1.into()));
    assert_eq!(download.join().unwrap(), format!("200 {}", 8 << 20));

    order("state=disabled&keep=on");
    set("state maint");
    assert_eq!(both(), (0, 0));
    let reload = || plimsoll(&["reload", "--admin", &proxy.admin().to_string()]).succeeded();
    reload();
    assert_eq!(servers(&proxy)[0]["state"], "disabled", "kept");
    order("state=ready&weight=3&keep=off");
    set("state ready");
    set("weight 3");
    let (ours, theirs) = both();
    assert!(ours == 9 && (8..=10).contains(&theirs), "{ours}, {theirs}");
    reload();
    assert_eq!(of_a(proxy.address()), 6);
    let wrong = curl(&["-X", "POST", &format!("{at_admin}/upstreams?server=x&state=drain")]);
    assert!(wrong.contains("no upstream has the server"), "{wrong}");
}

/// A browser (curl with a jar of cookies) stays at its server, and moves when the server has gone;
/// HAProxy beside it.
#[test]
fn a_session_stays_at_its_server_as_with_haproxy() {
    let home = Home::new();
    let ports = [free_port(), free_port()];
    let _a = named_nginx(&home, "a", ports[0]);
    let mut b = named_nginx(&home, "b", ports[1]);
    let text = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"app\"\n\
         server = [{{ url = \"http://127.0.0.1:{}\", id = \"a\" }}, \
         {{ url = \"http://127.0.0.1:{}\", id = \"b\" }}]\n\
         [upstream.sticky]\ncookie = \"where\"\n",
        ports[0], ports[1]
    );
    let proxy = OurServer::configured(&home.write("plimsoll.toml", text));
    let port = free_port();
    let conf = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
         \x20option redispatch\n retries 3\n\
         listen app\n bind 127.0.0.1:{port}\n cookie where insert nocache\n\
         \x20server a 127.0.0.1:{} cookie x\n server b 127.0.0.1:{} cookie y\n",
        ports[0], ports[1]
    );
    let mut haproxy = Command::new(program("haproxy", "haproxy"));
    let _haproxy = Running::start(haproxy.args(["-f", &home.write("haproxy.cfg", conf)]));
    let theirs = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    wait_for("HAProxy", SOON, || std::net::TcpStream::connect(theirs).ok());
    // The server that has answered a browser, and the cookie that came with the answer.
    let ask = |at: std::net::SocketAddr, browser: &str| {
        let jar = home.at(browser);
        let mut curl = Command::new(program("curl", "curl"));
        curl.args(["-s", "-i", "-b", &jar, "-c", &jar, &format!("http://{at}/index.html")]);
        let answer = run(curl, SOON).succeeded().stdout;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let field = |name: &str| {
            let mut lines = answer.lines().filter_map(|line| line.split_once(": "));
            let found = lines.find(|(field, _)| field.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim().to_owned())
        };
        (field("x-server").unwrap(), field("set-cookie"))
    };
    for at in [proxy.address(), theirs] {
        let mut sessions = Vec::new();
        for browser in ["one", "two"] {
            let browser = format!("{browser}-{}", at.port());
            let (server, cookie) = ask(at, &browser);
            let cookie = cookie.unwrap();
            assert!(cookie.starts_with("where=") && !cookie.contains("127.0.0.1"), "{cookie}");
            for _ in 0..6 {
                assert_eq!(ask(at, &browser), (server.clone(), None));
            }
            sessions.push((browser, server));
        }
        assert_ne!(sessions[0].1, sessions[1].1, "new browsers are shared out");
    }
    let explained = |cookie: &str| {
        let (url, admin) = (format!("{}/x", proxy.url()), proxy.admin().to_string());
        let flags = ["explain", "--admin", &admin, "--header", cookie, &url];
        plimsoll(&flags).succeeded().stdout
    };
    let of_b = format!("127.0.0.1:{}, by its session", ports[1]);
    assert!(explained("Cookie: where=b").contains(&of_b), "{}", explained("Cookie: where=b"));
    assert!(!explained("Cookie: where=c").contains("by its session"));
    b.signal("KILL");
    b.ended(SOON);
    for at in [proxy.address(), theirs] {
        for browser in ["one", "two"] {
            let browser = format!("{browser}-{}", at.port());
            assert_eq!(ask(at, &browser).0, "a");
            assert_eq!(ask(at, &browser), ("a".to_owned(), None), "the cookie was renewed");
        }
    }
}

/// A name server with two hosts of one service at 127.0.0.1, and a name with two addresses. It
/// answers every question for SRV and A, as `host -t` would show, and has no AAAA.
fn name_server(ports: [u16; 2]) -> u16 {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((read, from)) = socket.recv_from(&mut bytes) {
            let end = 12 + bytes[12..read].iter().position(|byte| *byte == 0).unwrap() + 5;
            let kind = bytes[end - 3];
            let record = |data: &[u8]| {
                // The name is that of the question; class IN, TTL 1 s.
                let head = [0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 1, 0, data.len() as u8];
                [&head[..], data].concat()
            };
            let records: Vec<Vec<u8>> = match kind {
                1 if bytes[12..].starts_with(b"\x03all") => {
                    vec![record(&[127, 0, 0, 1]), record(&[127, 0, 0, 2])]
                }
                1 => vec![record(&[127, 0, 0, 1])],
                33 => {
                    let srv = |at: usize| {
                        let [high, low] = ports[at].to_be_bytes();
                        record(&[&[0, 1, 0, 1, high, low], &b"\x01h\x07example\0"[..]].concat())
                    };
                    vec![srv(0), srv(1)]
                }
                _ => Vec::new(),
            };
            let mut reply = bytes[..end].to_vec();
            reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
            reply.extend(records.concat());
            let _ = socket.send_to(&reply, from);
        }
    });
    port
}

/// All addresses of a name, and the hosts of a service; HAProxy beside it, with `server-template`.
#[test]
fn a_name_stands_for_several_servers_as_with_haproxy() {
    let home = Home::new();
    let ports = [free_port(), free_port()];
    let _a = named_nginx(&home, "a", ports[0]);
    let _b = named_nginx(&home, "b", ports[1]);
    let names = name_server(ports);
    let text = format!(
        "[server]\nadmin = \"127.0.0.1:0\"\n[dns]\nservers = [\"127.0.0.1:{names}\"]\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"app\"\nserver = [{{ url = \"srv:_http._tcp.app.example\" }}]\n\
         [[upstream]]\nname = \"all\"\n\
         server = [{{ url = \"http://all.example:{}\", addresses = \"all\" }}]\n\
         [[route]]\nupstream = \"app\"\n",
        ports[0]
    );
    let proxy = OurServer::configured(&home.write("plimsoll.toml", text));
    let port = free_port();
    let conf = format!(
        "resolvers names\n nameserver one 127.0.0.1:{names}\n accepted_payload_size 512\n\
         \x20hold valid 1s\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
         listen app\n bind 127.0.0.1:{port}\n\
         \x20server-template s 2 _http._tcp.app.example resolvers names \
         resolve-opts allow-dup-ip check inter 200ms\n"
    );
    let mut haproxy = Command::new(program("haproxy", "haproxy"));
    let _haproxy = Running::start(haproxy.args(["-f", &home.write("haproxy.cfg", conf)]));
    let theirs = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    let of = |at: std::net::SocketAddr| -> Vec<String> {
        let answers = (0..8).map(|_| get(at, "/index.html").to_lowercase());
        let server = |answer: String| {
            let line = answer.lines().find_map(|line| line.strip_prefix("x-server: "));
            line.map(str::to_owned)
        };
        let mut servers: Vec<String> = answers.filter_map(server).collect();
        servers.sort();
        servers
    };
    let both = ["a", "a", "a", "a", "b", "b", "b", "b"];
    wait_for("our servers", SOON, || (of(proxy.address()) == both).then_some(()));
    wait_for("HAProxy's servers", SOON, || {
        std::net::TcpStream::connect(theirs).ok()?;
        (of(theirs) == both).then_some(())
    });
    let shown = get(proxy.admin(), "/upstreams");
    for at in ports.map(|port| format!("\"server\":\"127.0.0.1:{port}\"")) {
        assert!(shown.contains(&at), "{shown}");
    }
    for last in [1, 2] {
        let server = format!("\"server\":\"127.0.0.{last}:{}\"", ports[0]);
        assert!(shown.contains(&server), "{shown}");
    }
}
