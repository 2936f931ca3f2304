//! Certificates that the server obtains: from Pebble, the authority that Let's Encrypt tests with,
//! checked by curl and OpenSSL. Half of the requests to the authority are refused for their nonce.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Home, OurServer, Running, SOON, Successor, free_port, get, output_file, plimsoll, program, run,
    wait_for,
};
use crate::tls::{authority, issue, openssl};

/// Long enough for a few refused attempts to prove a name.
const PATIENCE: Duration = Duration::from_secs(60);

/// An authority, and the name server that it asks. Every name has the address 127.0.0.1.
pub(crate) struct Authority {
    port: u16,
    management: u16,
    _dns: Running,
    _pebble: Running,
}

impl Authority {
    /// It checks names at these ports, and issues certificates for so many seconds. With `slow`, a
    /// check begins after some seconds.
    pub(crate) fn start(home: &Home, ports: [u16; 2], lifetime_s: u32, slow: bool) -> Authority {
        let [port, management, dns, dns_management] = [(); 4].map(|()| free_port());
        Authority::start_at(
            home,
            (port, management),
            (dns, dns_management),
            ports,
            (lifetime_s, slow),
        )
    }

    fn start_at(
        home: &Home,
        (port, management): (u16, u16),
        (dns_port, dns_management): (u16, u16),
        [http, tls]: [u16; 2],
        (lifetime_s, slow): (u32, bool),
    ) -> Authority {
        if !home.has("ca.pem") {
            authority(home);
            issue(home, "pebble", "DNS:localhost,IP:127.0.0.1", false);
        }
        let mut dns = tool("pebble-challtestsrv");
        dns.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""]);
        dns.args(["-dns01", &format!("127.0.0.1:{dns_port}")]);
        dns.args(["-management", &format!("127.0.0.1:{dns_management}")]);
        dns.stdout(output_file(home, "dns.log")).stderr(Stdio::null());
        let dns = Running::start(&mut dns);
        let settings = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": home.at("pebble.pem"),
            "privateKey": home.at("pebble.key"),
            "httpPort": http,
            "tlsPort": tls,
            "domainBlocklist": ["refused.test"],
            "certificateValidityPeriod": lifetime_s,
        } });
        let file = home.write("pebble.json", settings.to_string());
        let mut pebble = tool("pebble");
        pebble.args(["-config", &file, "-dnsserver", &format!("127.0.0.1:{dns_port}")]);
        pebble.env("PEBBLE_WFE_NONCEREJECT", "50").env("PEBBLE_AUTHZREUSE", "0");
        match slow {
            true => pebble.env("PEBBLE_VA_SLEEPTIME", "6"),
            false => pebble.env("PEBBLE_VA_NOSLEEP", "1"),
        };
        pebble.stdout(output_file(home, "pebble.log")).stderr(output_file(home, "pebble.err"));
        let pebble = Running::start(&mut pebble);
        wait_for("pebble", SOON, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        let authority = Authority { port, management, _dns: dns, _pebble: pebble };
        authority.save_root(home);
        authority
    }

    /// The root of its certificates, which is another one after each start.
    fn save_root(&self, home: &Home) {
        let url = format!("https://localhost:{}/roots/0", self.management);
        wait_for("the root", SOON, || {
            let root = home.at("root.pem");
            let mut curl = Command::new(program("curl", "curl"));
            curl.args(["-s", "-f", "--cacert", &home.at("ca.pem"), "-o", &root, &url]);
            run(curl, SOON).code.filter(|code| *code == 0)
        });
    }

    /// The keys of `[acme]` that name it.
    pub(crate) fn keys(&self, home: &Home) -> String {
        let (port, ca) = (self.port, home.at("ca.pem"));
        format!("directory = 'https://localhost:{port}/dir'\nca = '{ca}'\n")
    }

    fn section(&self, home: &Home, challenge: &str) -> String {
        let keys = self.keys(home);
        format!(
            "[acme]\n{keys}path = 'keys'\nterms_accepted = true\n\
             contact = ['mailto:ops@a.test']\nchallenge = '{challenge}'\n"
        )
    }

    /// The directory for what it has issued.
    fn kept(&self, home: &Home) -> std::path::PathBuf {
        home.path().join(format!("keys/localhost-{}-dir", self.port))
    }
}

pub(crate) fn tool(name: &str) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/pebble").join(name);
    assert!(path.exists(), "{} is missing: ./setup.sh test", path.display());
    Command::new(path)
}

/// A server with these names at these ports, in the clear and behind TLS.
fn configuration([http, tls]: [u16; 2], origin: &OurServer, names: &str, section: &str) -> String {
    let url = origin.url();
    format!(
        "[server]\nadmin = '127.0.0.1:0'\nworkers = 1\n\
         [[listen]]\naddress = '127.0.0.1:{tls}'\n[listen.tls]\nacme = [{names}]\n\
         [[listen]]\naddress = '127.0.0.1:{http}'\n\
         [[upstream]]\nname = 'app'\nserver = [{{ url = '{url}' }}]\n\
         [[rule]]\nwhen = 'scheme == \"http\"'\nredirect = 'https://moved.test'\n{section}"
    )
}

/// What curl gets by https from this name, if the certificate is good.
fn fetched(home: &Home, name: &str, port: u16) -> Option<String> {
    let mut curl = Command::new(program("curl", "curl"));
    let resolve = format!("{name}:{port}:127.0.0.1");
    curl.args(["-s", "--max-time", "5", "--cacert", &home.at("root.pem"), "--resolve", &resolve]);
    curl.args(["-o", "/dev/null", "-w", "%{http_code}"]);
    curl.arg(format!("https://{name}:{port}/obj/1?size=10"));
    let output = run(curl, SOON);
    (output.code == Some(0)).then_some(output.stdout)
}

#[track_caller]
fn served(home: &Home, name: &str, port: u16) {
    let answer =
        wait_for(&format!("a certificate for {name}"), PATIENCE, || fetched(home, name, port));
    assert_eq!(answer, "200", "{name}");
}

fn certificates(server: &OurServer) -> Value {
    let answer = get(server.admin(), "/certificates");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

fn expiry(server: &OurServer, name: &str) -> Option<f64> {
    let metrics = get(server.admin(), "/metrics");
    let begin = format!("plimsoll_certificate_expiry_seconds{{name=\"{name}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&begin))?.parse().ok()
}

/// Obtained, renewed, kept while the authority is away, and obtained from an authority that has
/// forgotten everything.
#[test]
fn certificates_are_obtained_and_renewed_by_http_01() {
    let home = Home::new();
    let origin = OurServer::origin();
    let ports = [free_port(), free_port()];
    let (at, dns_at) = ((free_port(), free_port()), (free_port(), free_port()));
    let start = |lifetime_s| Authority::start_at(&home, at, dns_at, ports, (lifetime_s, false));
    let pebble = start(40);
    let section = pebble.section(&home, "http-01");
    let names = "'a.test', 'b.test', 'refused.test'";
    let file = home.write("p.toml", configuration(ports, &origin, names, &section));
    let checked = plimsoll(&["check", &file]).succeeded().stdout;
    let words = format!("https://localhost:{}/dir would be asked for certificates", pebble.port);
    assert!(checked.contains(&words), "{checked}");
    assert!(!home.has("keys"), "a check asks nothing");
    let server = OurServer::configured(&file);
    let fails = fetched(&home, "a.test", ports[1]);
    assert_eq!(fails, None, "there is no certificate yet");
    served(&home, "a.test", ports[1]);
    served(&home, "b.test", ports[1]);
    let kept = pebble.kept(&home);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&kept), 0o700);
    for file in ["account.json", "a.test.pem", "b.test.pem"] {
        assert_eq!(mode(&kept.join(file)), 0o600, "{file}");
    }
    // One name that is refused keeps no other one waiting, and its state says why.
    wait_for("the refusal", PATIENCE, || {
        let shown = certificates(&server);
        let names = shown["acme"]["names"].as_array()?.clone();
        let refused = names.iter().find(|of| of["name"] == "refused.test")?.clone();
        let why = refused["error"].as_str()?.to_owned();
        (refused["failures"] == 1 && why.contains("refused.test")).then_some(())
    });
    // Renewed at two thirds of 40 seconds, without an interruption.
    let first = expiry(&server, "a.test").unwrap();
    wait_for("a renewal", PATIENCE, || {
        assert!(fetched(&home, "b.test", ports[1]).is_some());
        (expiry(&server, "a.test")? > first).then_some(())
    });
    served(&home, "a.test", ports[1]);
    let account = fs::read(kept.join("account.json")).unwrap();
    let log = home.read("pebble.log");
    assert!(log.contains("POST /sign-me-up"), "{log}");
    // Only tokens that we wait for have an answer: the rest is the rule's.
    let other =
        get(format!("127.0.0.1:{}", ports[0]).parse().unwrap(), "/.well-known/acme-challenge/x");
    assert!(other.contains("Location: https://moved.test"), "{other}");
    assert_eq!(server.stopped().0, Some(0));
    drop(pebble);

    // The authority is away: the certificate is served after a start. Then the authority is back,
    // and has forgotten accounts and orders.
    let server = OurServer::configured(&file);
    assert!(expiry(&server, "a.test").is_some());
    wait_for("the failures of the process before", PATIENCE, || {
        let metrics = get(server.admin(), "/metrics");
        metrics.contains("plimsoll_acme_failures{name=\"refused.test\"} 1\n").then_some(())
    });
    let pebble = start(3600);
    let asked = plimsoll_obtain(&server, "a.test");
    assert!(asked.starts_with("HTTP/1.1 200 "), "{asked}");
    served(&home, "a.test", ports[1]);
    assert_ne!(fs::read(kept.join("account.json")).unwrap(), account);
    drop(pebble);
    assert_eq!(server.stopped().0, Some(0));
}

/// Has a certificate obtained now.
fn plimsoll_obtain(server: &OurServer, name: &str) -> String {
    let mut curl = Command::new(program("curl", "curl"));
    let url = format!("http://{}/obtain?name={name}", server.admin());
    curl.args(["-s", "-i", "-X", "POST", &url]);
    run(curl, SOON).stdout
}

/// By a handshake, with a restart in place in the middle of an order, and names that come and go.
#[test]
fn certificates_are_obtained_by_tls_alpn_01_and_a_restart_goes_on_with_the_order() {
    let home = Home::new();
    let origin = OurServer::origin();
    let ports = [free_port(), free_port()];
    let pebble = Authority::start(&home, ports, 3600, true);
    let section = pebble.section(&home, "tls-alpn-01");
    let file = home.write("p.toml", configuration(ports, &origin, "'a.test'", &section));
    let server = OurServer::configured(&file);
    let kept = pebble.kept(&home);
    // The check begins after seconds: by then, another process serves.
    wait_for("an answer", PATIENCE, || fs::metadata(kept.join("answer.json")).ok());
    let account = fs::read(kept.join("account.json")).unwrap();
    let successor = Successor::restart(server.admin());
    served(&home, "a.test", ports[1]);
    assert_eq!(fs::read(kept.join("account.json")).unwrap(), account);
    let orders = home.read("pebble.log").matches("Added order").count();
    assert_eq!(orders, 1, "the order was gone on with");
    // No client gets a connection by the protocol of the check.
    let at = format!("127.0.0.1:{}", ports[1]);
    let flags = ["s_client", "-connect", &at, "-servername", "a.test", "-alpn", "acme-tls/1"];
    assert_ne!(openssl(&home, &flags).code, Some(0));
    // A name that is added is obtained, and one that is taken out is not served any more.
    home.write("p.toml", configuration(ports, &origin, "'b.test'", &section));
    plimsoll(&["reload", "--admin", &server.admin().to_string()]).succeeded();
    served(&home, "b.test", ports[1]);
    assert_eq!(fetched(&home, "a.test", ports[1]), None);
    assert!(kept.join("a.test.pem").exists());
    successor.ends(Some("TERM"));
}

/// The check comes to a member that has not asked, and both members serve the certificate.
#[test]
fn one_member_of_a_cluster_asks_and_all_have_the_certificate() {
    let home = Home::new();
    let origin = OurServer::origin();
    let ports: Vec<[u16; 2]> = (0..2).map(|_| [free_port(), free_port()]).collect();
    let members: Vec<u16> = (0..2).map(|_| free_port()).collect();
    let pebble = Authority::start(&home, ports[1], 3600, false);
    let section = pebble.section(&home, "http-01");
    let all = format!("'127.0.0.1:{}', '127.0.0.1:{}'", members[0], members[1]);
    let configured = |at: usize| {
        let own = format!("127.0.0.1:{}", members[at]);
        let cluster = format!("[cluster]\nlisten = '{own}'\nself = '{own}'\nmembers = [{all}]\n");
        let text = configuration(ports[at], &origin, "'a.test'", &format!("{section}{cluster}"));
        OurServer::configured(&home.write(&format!("{at}.toml"), text))
    };
    let first = configured(0);
    wait_for("an owner", SOON, || (certificates(&first)["acme"]["asks"] == true).then_some(()));
    let second = configured(1);
    served(&home, "a.test", ports[0][1]);
    served(&home, "a.test", ports[1][1]);
    assert_eq!(certificates(&second)["acme"]["asks"], false);
    assert_eq!(expiry(&first, "a.test"), expiry(&second, "a.test"));
    // The other one asks when the first one has gone.
    drop(first);
    wait_for("an owner", SOON, || (certificates(&second)["acme"]["asks"] == true).then_some(()));
}
