//! The PROXY protocol towards other servers: HAProxy and nginx report the client addresses that
//! they received.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{
    Home, OurServer, Running, SOON, am_root, free_port, get, output_file, program, wait_for,
};
use crate::tls::{authority, issue};

/// A server that expects the header and answers with its content: both ends of the client's
/// connection, and whether TLS follows.
struct Server {
    plain: u16,
    tls: u16,
    _process: Running,
}

impl Server {
    fn started(mut command: Command, home: &Home, name: &str, plain: u16, tls: u16) -> Server {
        command.stdout(Stdio::null()).stderr(output_file(home, &format!("{name}.err")));
        let process = Running::start(&mut command);
        for port in [plain, tls] {
            wait_for(name, SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
        }
        Server { plain, tls, _process: process }
    }

    fn haproxy(home: &Home) -> Server {
        let (plain, tls) = (free_port(), free_port());
        let both = home.read("server.pem") + &home.read("server.key");
        let pem = home.write("both.pem", both);
        let conf = home.write(
            "haproxy.cfg",
            format!(
                "global\n  nbthread 1\ndefaults\n  mode http\n  timeout client 20s\n  \
                 timeout server 20s\n  timeout connect 5s\nfrontend web\n  \
                 bind 127.0.0.1:{plain} accept-proxy\n  \
                 bind 127.0.0.1:{tls} accept-proxy ssl crt {pem}\n  \
                 http-request return status 200 content-type text/plain \
                 hdr Cache-Control no-store \
                 lf-string \"%[src] %[src_port] %[dst] %[dst_port] %[ssl_fc,iif(https,http)]\"\n"
            ),
        );
        let mut command = Command::new(program("haproxy", "haproxy"));
        command.args(["-f", &conf]);
        Server::started(command, home, "haproxy", plain, tls)
    }

    fn nginx(home: &Home) -> Server {
        fs::create_dir(home.path().join("nginx")).unwrap();
        let (at, plain, tls) = (home.path().display(), free_port(), free_port());
        let user = if am_root() { "user root;" } else { "" };
        let conf = home.write(
            "nginx.conf",
            format!(
                "daemon off; master_process off; pid {at}/nginx/pid; {user}
                 error_log {at}/nginx/error.log;
                 events {{ worker_connections 256; }}
                 http {{
                   log_format answer '$request_uri \"$proxy_protocol_addr\" $http_user_agent';
                   access_log {at}/nginx.log answer;
                   client_body_temp_path {at}/nginx/b; proxy_temp_path {at}/nginx/p;
                   fastcgi_temp_path {at}/nginx/f; uwsgi_temp_path {at}/nginx/u;
                   scgi_temp_path {at}/nginx/s;
                   server {{
                     listen 127.0.0.1:{plain} proxy_protocol;
                     listen 127.0.0.1:{tls} ssl proxy_protocol;
                     ssl_certificate {at}/server.pem; ssl_certificate_key {at}/server.key;
                     add_header Cache-Control no-store always;
                     set $client '$proxy_protocol_addr $proxy_protocol_port';
                     set $here '$proxy_protocol_server_addr $proxy_protocol_server_port';
                     location / {{ return 200 '$client $here $scheme'; }}
                   }}
                 }}"
            ),
        );
        let mut command = Command::new(program("nginx", "nginx-light"));
        command.args(["-e", &home.at("nginx/error.log"), "-c", &conf]);
        Server::started(command, home, "nginx", plain, tls)
    }
}

/// Our proxy in front of a server. Its first listener serves clients, the second expects a header.
fn before(home: &Home, url: &str, version: &str, more: &str) -> OurServer {
    let tls = match url.starts_with("https") {
        true => "tls = { ca = 'ca.pem', server_name = 'server.test' }\n",
        false => "",
    };
    let text = format!(
        "[server]\nadmin = '127.0.0.1:0'\n[[listen]]\naddress = '127.0.0.1:0'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nproxy_from = ['127.0.0.1']\n\
         [[upstream]]\nname = 'site'\nproxy_header = '{version}'\n\
         server = [{{ url = '{url}' }}]\n{tls}{more}"
    );
    OurServer::configured(&home.write("plimsoll.toml", text))
}

/// Sends two requests on one connection that begins with these bytes, and returns what the server
/// received each time.
fn ask(at: SocketAddr, begins: &str) -> (SocketAddr, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let request = |more: &str| format!("GET /answer HTTP/1.1\r\nHost: site\r\n{more}\r\n");
    let all = format!("{begins}{}{}", request(""), request("Connection: close\r\n"));
    stream.write_all(all.as_bytes()).unwrap();
    let mut answers = Vec::new();
    stream.read_to_end(&mut answers).unwrap();
    let answers = String::from_utf8(answers).unwrap();
    let bodies: Vec<&str> = answers
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answers}")).1)
        .collect();
    assert_eq!(bodies.len(), 2, "{answers}");
    assert_eq!(bodies[0], bodies[1]);
    (stream.local_addr().unwrap(), bodies[0].to_owned())
}

fn receives_client_addresses(home: &Home, server: &Server) {
    for version in ["v1", "v2"] {
        for (scheme, port) in [("http", server.plain), ("https", server.tls)] {
            let url = format!("{scheme}://127.0.0.1:{port}");
            let proxy = before(home, &url, version, "");
            let (client, answer) = ask(proxy.address(), "");
            let here = proxy.address();
            let ends = format!("{} {} {} {}", client.ip(), client.port(), here.ip(), here.port());
            assert_eq!(answer, format!("{ends} {scheme}"), "{version}");
            // An address that we received is passed on, of either family.
            let behind: SocketAddr =
                proxy.announced["listen"][1].as_str().unwrap().parse().unwrap();
            for (family, ends, expected) in [
                ("TCP4", "192.0.2.7 198.51.100.1 4711 443", "192.0.2.7 4711 198.51.100.1 443"),
                ("TCP6", "2001:db8::7 2001:db8::1 4711 443", "2001:db8::7 4711 2001:db8::1 443"),
            ] {
                let (_, answer) = ask(behind, &format!("PROXY {family} {ends}\r\n"));
                assert_eq!(answer, format!("{expected} {scheme}"), "{version}");
            }
            assert_eq!(proxy.stopped().0, Some(0));
        }
    }
}

#[test]
fn haproxy_receives_the_client_addresses() {
    let home = Home::new();
    authority(&home);
    issue(&home, "server", "DNS:server.test", false);
    let server = Server::haproxy(&home);
    receives_client_addresses(&home, &server);
}

#[test]
fn nginx_receives_the_client_addresses_and_none_from_health_checks() {
    let home = Home::new();
    authority(&home);
    issue(&home, "server", "DNS:server.test", false);
    let server = Server::nginx(&home);
    receives_client_addresses(&home, &server);
    for version in ["v1", "v2"] {
        let url = format!("http://127.0.0.1:{}", server.plain);
        let check =
            format!("[upstream.health]\npath = '/{version}'\ninterval = '100ms'\nfall = 1\n");
        let proxy = before(&home, &url, version, &check);
        let line = format!("/{version} \"-\" plimsoll-health-check\n");
        wait_for("three checks", SOON, || {
            (home.read("nginx.log").matches(&line).count() >= 3).then_some(())
        });
        let answer = get(proxy.admin(), "/upstreams");
        let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let server = &answer["groups"][0]["servers"][0];
        assert_eq!(
            (&server["state"], &server["checks_failed"]),
            (&"up".into(), &0.into()),
            "{answer}"
        );
        assert_eq!(proxy.stopped().0, Some(0));
    }
}
