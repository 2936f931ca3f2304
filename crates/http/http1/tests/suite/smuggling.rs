//! The smuggling attempts that the end-to-end tests make against real servers, here without
//! servers: what this crate reads in them, and what it refuses.

use http1::{BodyDecoder, BodyKind, Limits, Method, Scratch, accept_response, parse_request};

#[path = "../smuggling_corpus/mod.rs"]
mod corpus;

use corpus::responses::Got;
use corpus::{Fate, Place};

/// The result of a connection.
#[derive(Debug, PartialEq, Eq)]
struct Heard {
    /// The names of the requests whose heads were read.
    requests: Vec<String>,
    end: End,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    /// All bytes were consumed.
    Whole,
    /// A head or a body is incomplete, or bytes follow the last request.
    Open,
    Refused,
}

/// Reads requests one after the other, like a server with persistent connections.
fn listen(mut bytes: &[u8]) -> Heard {
    let mut heard = Heard { requests: Vec::new(), end: End::Whole };
    let mut scratch = Scratch::new();
    while !bytes.is_empty() {
        let (body, head_bytes, last) = match parse_request(bytes, &mut scratch, &Limits::DEFAULT) {
            Ok(Some(head)) => {
                let target = String::from_utf8_lossy(head.target_bytes);
                let path = target.split('?').next().unwrap_or_default();
                heard.requests.push(path.rsplit('/').next().unwrap_or_default().to_owned());
                (head.body(), head.head_bytes, !head.keep_alive())
            }
            Ok(None) => return Heard { end: End::Open, ..heard },
            Err(_) => return Heard { end: End::Refused, ..heard },
        };
        bytes = &bytes[head_bytes..];
        let mut content = Vec::new();
        match read(BodyDecoder::new(body, &Limits::DEFAULT), bytes, &mut content) {
            Ok((used, true)) => bytes = &bytes[used..],
            Ok((_, false)) => return Heard { end: End::Open, ..heard },
            Err(()) => return Heard { end: End::Refused, ..heard },
        }
        if last {
            break;
        }
    }
    heard
}

/// How many bytes belong to a body, and whether its end is among them.
fn read(
    mut decoder: BodyDecoder,
    bytes: &[u8],
    content: &mut Vec<u8>,
) -> Result<(usize, bool), ()> {
    let mut used = 0;
    while !decoder.is_done() && used < bytes.len() {
        let step = decoder.decode(&bytes[used..]).map_err(|_| ())?;
        content.extend_from_slice(&bytes[used..][step.data]);
        used += step.consumed;
    }
    Ok((used, decoder.is_done()))
}

/// Both forms of the target: the result does not depend on the form.
const PLACES: [Place<'_>; 2] = [
    Place { host: "site.example:8080", forward: false, tag: "1" },
    Place { host: "site.example:8080", forward: true, tag: "1" },
];

#[test]
fn requests() {
    let cases = corpus::requests::all();
    assert!(cases.len() >= 80, "the corpus is gone");
    for case in cases {
        for place in PLACES.into_iter().filter(|place| !(place.forward && case.reverse_only)) {
            let what = format!("{} [{}]", case.class, case.name);
            let heard = listen(&corpus::parts(case.attack, place).concat());
            match case.fate {
                Fate::Refused(before) => {
                    assert_eq!(
                        (&heard.requests[..], &heard.end),
                        (&owned(before)[..], &End::Refused),
                        "{what}"
                    );
                }
                Fate::Broken(only) => {
                    assert_eq!(heard.requests, [only], "{what}");
                    assert_ne!(heard.end, End::Whole, "{what}");
                }
                Fate::Passed(all) => {
                    assert_eq!(heard, Heard { requests: owned(all), end: End::Whole }, "{what}");
                }
                // The proxy handles that; here it is a request like any other.
                Fate::Declined => assert!(!heard.requests.is_empty(), "{what}: {heard:?}"),
            }
            let heard = listen(&corpus::parts(case.control, place).concat());
            let expected = Heard { requests: owned(case.passes), end: End::Whole };
            assert_eq!(heard, expected, "{what}, its control");
        }
    }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// What the client would get: status and content of a complete response.
fn heard_by_client(method: &str, text: &str) -> Option<(u16, Vec<u8>)> {
    let closes = text.ends_with('✂');
    let bytes = corpus::parts(text.trim_end_matches('✂'), PLACES[0]).concat();
    let mut bytes = &bytes[..];
    let mut scratch = Scratch::new();
    loop {
        let head = accept_response(bytes, &mut scratch, &Limits::DEFAULT).ok()??;
        bytes = &bytes[head.head_bytes..];
        if head.is_interim() {
            continue;
        }
        // No other protocol was requested.
        let status = Some(head.status).filter(|&status| status != 101)?;
        let kind = head.body(Method::from_bytes(method.as_bytes())).ok()?;
        let mut content = Vec::new();
        let decoder = BodyDecoder::for_response(kind, &Limits::DEFAULT);
        let (_, done) = read(decoder, bytes, &mut content).ok()?;
        let whole = done || (kind == BodyKind::UntilClose && closes);
        return whole.then_some((status, content));
    }
}

#[test]
fn responses() {
    for case in corpus::responses::all() {
        let expected = match case.got {
            Got::Bad => None,
            Got::Whole(status, body) => Some((status, body.as_bytes().to_vec())),
        };
        let what = format!("{} [{}]", case.class, case.name);
        assert_eq!(heard_by_client(case.method, case.attack), expected, "{what}");
        let body = if case.method == "HEAD" { "" } else { "ok" };
        let expected = Some((200, body.as_bytes().to_vec()));
        assert_eq!(heard_by_client(case.method, case.control), expected, "{what}, its control");
    }
}
