//! Attempts at request smuggling and response splitting, with real servers.
//!
//! Attacks by a client: the proxy is in front of Debian's nginx or HAProxy, whose logs show what
//! they received. After each case an innocent client sends a request on the upstream connection
//! that the case left open. Attacks by an origin: the origin is a script, and a pipelining client
//! checks that each response belongs to its request.
//!
//! The cases are in [`corpus`]; `http1` replays them without a server.

mod clients;
#[path = "../../../../http/http1/tests/smuggling_corpus/mod.rs"]
mod corpus;
mod origins;

use std::collections::BTreeMap;

use crate::smuggling::clients::{Reading, ask, exchange, status};
use crate::smuggling::corpus::requests::{self};
use crate::smuggling::corpus::responses::{self, Answer, Got};
use crate::smuggling::corpus::{Attack, Fate, Place};
use crate::smuggling::origins::{Judge, Scripted};
use crate::support::{Home, OurServer};

#[test]
fn nginx_receives_what_was_sent() {
    let home = Home::new();
    received(&Judge::nginx(&home), false);
}

#[test]
fn nginx_receives_what_was_sent_through_a_forward_proxy() {
    let home = Home::new();
    received(&Judge::nginx(&home), true);
}

#[test]
fn haproxy_receives_what_was_sent() {
    let home = Home::new();
    received(&Judge::haproxy(&home), false);
}

#[test]
fn haproxy_receives_what_was_sent_through_a_forward_proxy() {
    let home = Home::new();
    received(&Judge::haproxy(&home), true);
}

#[test]
fn each_answer_belongs_to_its_request() {
    let home = Home::new();
    answered(&home, false);
}

#[test]
fn each_answer_belongs_to_its_request_through_a_forward_proxy() {
    let home = Home::new();
    answered(&home, true);
}

/// One worker, so that the next request uses the upstream connection of the previous one. The
/// clients here close their direction before they read.
fn proxy(home: &Home, origin: &str, forward: bool) -> OurServer {
    let way = match forward {
        true => "role = \"forward\"\n[forward]\nallow_to = [\"127.0.0.0/8\"]\n\
             finish_abandoned = true\n"
            .to_owned(),
        false => format!(
            "[[upstream]]\nname = \"o\"\n[[upstream.server]]\nurl = \"http://{origin}\"\n\
             [[route]]\nupstream = \"o\"\nfinish_abandoned = true\n"
        ),
    };
    let text = format!("[server]\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n{way}");
    OurServer::configured(&home.write("proxy.toml", text))
}

/// Compares the requests that an origin received with the whole corpus.
fn received(judge: &Judge<'_>, forward: bool) {
    let host = judge.authority();
    let proxy = proxy(judge.home, &host, forward);
    let cases: Vec<Attack> =
        requests::all().into_iter().filter(|case| !(forward && case.reverse_only)).collect();
    assert!(cases.len() >= 80, "the corpus is empty");
    let mut faults = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        for (kind, text) in [("a", case.attack), ("c", case.control)] {
            let tag = format!("{at:03}{kind}");
            let place = Place { host: &host, forward, tag: &tag };
            let got = exchange(proxy.address(), &corpus::parts(text, place));
            let expected = if kind == "a" { case.fate } else { Fate::Passed(case.passes) };
            if let Err(why) = answered_as(expected, &got) {
                faults.push(format!("{}: {why}", named(case, kind)));
            }
            // The innocent client.
            let path = format!("/{tag}/innocent");
            let target = if forward { format!("http://{host}{path}") } else { path.clone() };
            let got = ask(proxy.address(), &host, &target);
            if got.as_ref().map(|(status, body)| (*status, body.as_str())) != Ok((200, &path)) {
                faults.push(format!("{}: the innocent request got {got:?}", named(case, kind)));
            }
        }
    }
    // Ending the proxy closes its connections, and the origin then logs whatever remains on them.
    assert_eq!(proxy.stopped(), (Some(0), String::new()));
    let mut received = judge.received();
    for (at, case) in cases.iter().enumerate() {
        for kind in ["a", "c"] {
            let mut got = received.remove(&format!("{at:03}{kind}")).unwrap_or_default();
            // A truncated request may be logged later.
            match got.iter().position(|name| name == "innocent") {
                Some(at) => drop(got.remove(at)),
                None => faults.push(format!("{}: the innocent is gone", named(case, kind))),
            }
            let expected = if kind == "a" { case.fate } else { Fate::Passed(case.passes) };
            let well = match expected {
                Fate::Refused(before) | Fate::Passed(before) => got == before,
                Fate::Broken(only) => got.is_empty() || got == [only],
                Fate::Declined => got.is_empty(),
            };
            if !well {
                faults.push(format!("{}: received {got:?}", named(case, kind)));
            }
        }
    }
    if !received.is_empty() {
        faults.push(format!("of no case: {received:?}"));
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn named(case: &Attack, kind: &str) -> String {
    let what = if kind == "a" { "attack" } else { "control" };
    format!("{} [{}, {what}]", case.class, case.name)
}

/// Checks the response that the client received.
fn answered_as(expected: Fate, got: &[u8]) -> Result<(), String> {
    let answer = status(got);
    let well = match expected {
        Fate::Passed(_) => answer == Some(200),
        Fate::Refused([]) | Fate::Declined => answer.is_some_and(|status| status >= 400),
        Fate::Refused(_) => answer == Some(200),
        // The head of a response may have been sent already, or the connection is closed.
        Fate::Broken(_) => true,
    };
    if well { Ok(()) } else { Err(format!("answered {}", got.escape_ascii())) }
}

/// Checks the responses that strict clients receive for the whole corpus.
fn answered(home: &Home, forward: bool) {
    let origin = Scripted::start();
    let host = origin.authority();
    let proxy = proxy(home, &host, forward);
    let cases = responses::all();
    let mut faults = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        for (kind, text) in [("a", case.attack), ("c", case.control)] {
            let tag = format!("{at:03}{kind}");
            let place = Place { host: &host, forward, tag: &tag };
            origin.script(corpus::parts(text.trim_end_matches('✂'), place), text.ends_with('✂'));
            let body = if case.method == "HEAD" { "" } else { "ok" };
            let expected = if kind == "a" { case.got } else { Got::Whole(200, body) };
            let client = Strict { proxy: &proxy, origin: &origin, case, text, place };
            if let Err(why) = client.judge(expected) {
                let what = if kind == "a" { "attack" } else { "control" };
                faults.push(format!("{} [{}, {what}]: {why}", case.class, case.name));
            }
        }
    }
    assert_eq!(proxy.stopped(), (Some(0), String::new()));
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Clients that check everything.
struct Strict<'c> {
    proxy: &'c OurServer,
    origin: &'c Scripted,
    case: &'c Answer,
    text: &'c str,
    place: Place<'c>,
}

impl Strict<'_> {
    /// The attack with another request pipelined after it, further requests, and the attack again.
    fn judge(&self, expected: Got) -> Result<(), String> {
        for round in 0..2 {
            let later = comes_later(self.text);
            let (evil, behind) = ((self.case.method, "evil"), ("GET", "behind"));
            let first = if later { vec![evil] } else { vec![evil, behind] };
            let mut both = self.connect(&first)?;
            let goes_on = self.is(&mut both, expected)?;
            if later {
                self.origin.has_sent();
                both.send_on(self.requests(&[behind]).as_bytes());
            }
            match both.response("GET")? {
                // The connection may have been closed after an invalid response.
                None if !goes_on => {}
                None => return Err("closed without Connection: close".into()),
                Some(_) if !goes_on => return Err("a response after Connection: close".into()),
                Some(got) => got.is(200, &self.path("behind"))?,
            }
            both.nothing_more()?;
            self.origin.has_sent();
            let mut others = self.connect(&[("GET", "second"), ("GET", "third")])?;
            for name in ["second", "third"] {
                let got = others.response("GET")?.ok_or("closed before an answer")?;
                got.is(200, &self.path(name)).map_err(|why| format!("round {round}: {why}"))?;
            }
            others.nothing_more()?;
        }
        Ok(())
    }

    /// Checks the response. Returns whether the connection stays open.
    fn is(&self, reading: &mut Reading, expected: Got) -> Result<bool, String> {
        let got = reading.response(self.case.method)?;
        match (expected, got) {
            (Got::Bad, None) => Ok(false),
            (Got::Bad, Some(got)) if got.cut => Ok(false),
            (Got::Bad, Some(got)) if got.status == 502 => Ok(!got.closes),
            (Got::Bad, Some(got)) => Err(format!("taken for whole: {got:?}")),
            (Got::Whole(..), None) => Err("no answer".into()),
            (Got::Whole(status, body), Some(got)) => {
                got.is(status, body)?;
                Ok(!got.closes)
            }
        }
    }

    fn path(&self, name: &str) -> String {
        format!("/{}/{name}", self.place.tag)
    }

    fn connect(&self, requests: &[(&str, &str)]) -> Result<Reading, String> {
        Reading::send(self.proxy.address(), self.requests(requests).as_bytes())
    }

    fn requests(&self, requests: &[(&str, &str)]) -> String {
        let Place { host, forward, .. } = self.place;
        let mut bytes = String::new();
        for (method, name) in requests {
            let path = self.path(name);
            let target = if forward { format!("http://{host}{path}") } else { path };
            bytes += &format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        }
        bytes
    }
}

/// Bytes that an origin sends before a request are not a response to it, but later bytes may be
/// one, which no proxy can distinguish. So the next request waits until everything has been sent.
fn comes_later(text: &str) -> bool {
    text.contains('⏸')
}

/// The requests that an origin received, by tag, in order.
type Received = BTreeMap<String, Vec<String>>;
