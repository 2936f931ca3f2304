//! The dashboard in a browser, which chromedriver drives; and who may read its events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::PLIMSOLL;
use crate::lab::made;
use crate::support::{
    Home, OurServer, Running, SOON, Successor, free_port, get, output_file, plimsoll, program,
    wait_for,
};
use crate::verbs::a_server;

/// A browser without a screen, by the WebDriver protocol.
struct Browser {
    driver: SocketAddr,
    session: String,
    _child: Running,
}

impl Browser {
    fn start(home: &Home) -> Browser {
        let port = free_port();
        let mut command = Command::new(program("chromedriver", "chromium-driver"));
        let errors = output_file(home, "chromedriver.err");
        command.env("HOME", home.path()).arg(format!("--port={port}"));
        let child = Running::start(command.stdout(Stdio::null()).stderr(errors));
        let driver = SocketAddr::from(([127, 0, 0, 1], port));
        wait_for("chromedriver", SOON, || TcpStream::connect(driver).ok());
        let args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": args },
        }}});
        let mut browser = Browser { driver, session: String::new(), _child: child };
        let started = browser.call("POST", "/session", &wanted);
        browser.session = format!("/session/{}", started["sessionId"].as_str().unwrap());
        browser
    }

    /// Its pages are so many pixels wide.
    fn set_width(&self, width: u32) {
        let params = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500,
        });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": params });
        self.call("POST", "/goog/cdp/execute", &command);
    }

    fn open(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until an element's text contains these words.
    #[track_caller]
    fn shows(&self, element: &str, words: &str) {
        let script = format!("return document.querySelector('{element}').textContent");
        let mut last = Value::Null;
        let patience = std::time::Instant::now() + 2 * SOON;
        while std::time::Instant::now() < patience {
            last = self.run(&script);
            if last.as_str().unwrap_or_default().contains(words) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("no {words:?} in {element}: {last}");
    }

    /// What the page wrote to its console, and every error of a script.
    fn console(&self) -> Vec<Value> {
        let all = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        let of_page = |entry: &&Value| entry["source"] != "network";
        all.as_array().unwrap().iter().filter(of_page).cloned().collect()
    }

    #[track_caller]
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let (body, at) = (body.to_string(), self.driver);
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(2 * SOON)).unwrap();
        let head = format!(
            "{method} {}{path} HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.session,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        // It does not close the connection.
        let mut answer = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while answer.read_line(&mut line).unwrap() > 2 {
            head.push_str(&std::mem::take(&mut line).to_lowercase());
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let mut body = vec![0; length.unwrap().trim().parse().unwrap()];
        answer.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(head.starts_with("http/1.1 200 "), "{method} {path}: {body}");
        let mut value: Value = serde_json::from_str(&body).unwrap();
        value["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of chromedriver alone would leave the browser running. The test may have failed
        // already, so nothing is asserted here.
        let Ok(mut stream) = TcpStream::connect(self.driver) else { return };
        let _ = stream.set_read_timeout(Some(SOON));
        let head = format!("DELETE {} HTTP/1.1\r\nHost: {}\r\n\r\n", self.session, self.driver);
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.read_exact(&mut [0]));
    }
}

#[test]
fn the_page_of_a_server_lives_through_a_restart() {
    let home = Home::new();
    let (server, _origin) = a_server(&home, &["--admin", "127.0.0.1:0"]);
    let admin = server.admin();
    assert_eq!(events(&admin.to_string(), "Host: evil.example\r\n").0, "403");
    for (host, status) in [("evil.example", 403), ("localhost", 200), (&*admin.to_string(), 200)] {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = answer(&admin.to_string(), &request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
    }
    let browser = Browser::start(&home);
    browser.set_width(400);
    browser.open(&format!("http://{admin}/"));
    browser.shows("#state", "live");
    browser.shows("#detail", &server.child.pid());
    browser.shows("#headline", "How much this server can carry is not known yet.");
    // A core begins to sample up to a tick after the page was opened.
    let mut number = 0;
    wait_for("the URL", 2 * SOON, || {
        number += 1;
        get(server.address(), &format!("/obj/{number}?size=10&cc=no-store"));
        let urls = browser.run("return document.querySelector('#urls').textContent");
        urls.as_str()?.contains("?size=10&cc=no-store").then_some(())
    });
    browser.shows("#urls", "the response was not stored (no-store)");
    browser.shows("#upstreams", "✓ up");
    // It is drawn, and drawn again.
    let drawn = "return [document.querySelectorAll('#rate path').length, \
                 Number(document.documentElement.dataset.events)]";
    let before = wait_for("the chart of the rate", SOON, || {
        let drawn = browser.run(drawn);
        (drawn[0].as_u64() > Some(0)).then(|| drawn[1].as_u64().unwrap())
    });
    wait_for("further events", SOON, || {
        (browser.run(drawn)[1].as_u64() > Some(before)).then_some(())
    });
    let widths = browser.run("return [document.documentElement.scrollWidth, innerWidth]");
    assert_eq!(widths, json!([400, 400]), "the page is wider than the screen");
    // The keyboard reads a chart.
    browser.run(
        "const plot = document.querySelector('#rate .plot'); plot.focus(); \
         plot.dispatchEvent(new KeyboardEvent('keydown', { key: 'End' }))",
    );
    browser.shows("#rate .readout", "/s");
    let successor = Successor::restart(admin);
    browser.shows("#detail", &successor.0.to_string());
    browser.shows("#state", "live");
    assert_eq!(browser.console(), Vec::<Value>::new());
    successor.ends(Some("TERM"));
    browser.shows("#state", "connection lost, trying again");
    assert_eq!(browser.console(), Vec::<Value>::new());
}

/// A page server of this program, and the address that it printed.
pub(crate) fn dashboard(flags: &[&str]) -> (Running, String) {
    let mut command = Command::new(PLIMSOLL);
    command.args(["dashboard", "--json", "--listen", "127.0.0.1:0"]).args(flags);
    let mut child = Running::start(command.stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(child.stdout()).read_line(&mut line).unwrap();
    let printed: Value = serde_json::from_str(&line).unwrap();
    (child, printed["url"].as_str().unwrap().to_owned())
}

/// The status of a request for the events, and the first event.
pub(crate) fn events(address: &str, fields: &str) -> (String, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(format!("GET /events HTTP/1.1\r\n{fields}\r\n").as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let status = lines.next().unwrap();
    let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    let event = data.map_or(Value::Null, |data| serde_json::from_str(&data).unwrap());
    (status.split(' ').nth(1).unwrap().to_owned(), event)
}

/// Everything that comes back.
fn answer(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_trial_and_a_folder_are_shown_to_those_who_may_see_them() {
    let home = Home::new();
    let trial = made(&home, "made.trial", 20.0, 40.0);
    let (page, url) = dashboard(&[&trial]);
    let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let of_report = plimsoll(&["report", &trial, "--json"]).succeeded().json();
    let whole = wait_for("the line", SOON, || {
        let (status, event) = events(address, &format!("Host: {address}\r\n"));
        assert_eq!(status, "200");
        (!event["line"].is_null()).then_some(event)
    });
    assert_eq!(whole["capacity"]["value"], of_report["capacity"]["value"]);
    assert_eq!((&whole["source"]["ended"], &whole["whole"]), (&true.into(), &true.into()));
    assert_eq!(whole["costs"]["unit"], "µs");
    assert_eq!(whole["samples"].as_array().unwrap().len(), 60);
    let refused = answer(address, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert!(refused.ends_with("for this page\"}\n"), "the page shows why: {refused}");
    assert_eq!(events(address, "Host: evil.example\r\n").0, "403");
    let foreign = format!("Host: {address}\r\nSec-Fetch-Site: cross-site\r\n");
    assert_eq!(events(address, &foreign).0, "403");
    assert_eq!(events(address, "").0, "400", "a request without Host is malformed");
    // A source that has gone is not shown as up to date, and is again when it is back.
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut stale = |is_stale: bool| {
        let source = lines.find_map(|line| {
            let event: Value = serde_json::from_str(line.strip_prefix("data: ")?).unwrap();
            let source = event["source"].clone();
            (source.is_object() && source["stale"].is_object() == is_stale).then_some(source)
        });
        assert!(source.is_some(), "stale: {is_stale}");
    };
    stale(false);
    std::fs::rename(&trial, format!("{trial}.away")).unwrap();
    stale(true);
    std::fs::rename(format!("{trial}.away"), &trial).unwrap();
    stale(false);
    drop(page);
    let token = home.write("token", "0123456789abcdef\n");
    let folder = home.path().display().to_string();
    let (_page, url) = dashboard(&["--token-file", &token, &folder]);
    let (address, fragment) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    assert_eq!(fragment, "#token=0123456789abcdef");
    let host = format!("Host: {address}\r\n");
    assert_eq!(events(address, &host).0, "401");
    let wrong = format!("{host}Authorization: Bearer 0123456789abcdeF\r\n");
    assert_eq!(events(address, &wrong).0, "401");
    let right = format!("{host}Authorization: Bearer 0123456789abcdef\r\n");
    let (status, event) = events(address, &right);
    assert_eq!(status, "200");
    // From sums by rate, so not exactly that of the report.
    let ratio = event["fleet"][0]["capacity"].as_f64().unwrap()
        / of_report["capacity"]["value"].as_f64().unwrap();
    assert!((0.95..1.05).contains(&ratio), "{event}");
    // The admin address of a server with a token asks for it too.
    let config = home.write(
        "serve.toml",
        "[server]\nadmin = \"127.0.0.1:0\"\ndashboard_token = \"token\"\n\
         [[listen]]\naddress = \"127.0.0.1:0\"\nrole = \"forward\"\n",
    );
    let server = OurServer::configured(&config);
    let admin = server.admin().to_string();
    assert_eq!(events(&admin, &host).0, "401");
    assert_eq!(events(&admin, &right).0, "200");
}
