//! A hundred clients of two cores at once, of all versions, on networks that delay, split, reset,
//! refuse and lose.
//!
//! Every whole response must be exactly what the origin has for that target; a broken one must be
//! seen to be broken; no two may be mixed. On a network that loses nothing none may be broken.

use std::rc::Rc;
use std::time::Duration;

use runtime::sim::{self, Rng};
use runtime::time::sleep;
use server::Config;

use crate::common::Response;
use crate::leaving::finishing;
use crate::origin::{asks, expected};
use crate::world::{Client, PROXY, PROXY_TOO, Version, World, reverse, run};

const CLIENTS: u64 = 100;
const REQUESTS: u64 = 4;

/// What clients choose, which hangs on the seed alone.
pub(crate) struct Draw(Rng);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(Rng::new(seed))
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0.next() % n
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

struct Asked {
    method: &'static str,
    target: String,
    language: Option<&'static str>,
    body: Vec<u8>,
    wire: Vec<u8>,
}

fn ask(draw: &mut Draw, old: bool) -> Asked {
    let size = draw.of(&[0, 1, 50, 100, 100, 300, 2500]);
    let cc = draw.of(&["max-age=60", "max-age=60", "max-age=1", "no-store", "private", "no-cache"]);
    let frame = draw.of(&["length", "length", "chunked", "close"]);
    let more = draw.of(&["", "", "&etag=e", "&vary=accept-language", "&pause=20", "&drop=1"]);
    let mut target = format!("/{}?size={size}&cc={cc}&frame={frame}{more}", draw.below(3));
    let mut method = draw.of(&["GET", "GET", "GET", "GET", "HEAD", "POST"]);
    if draw.below(20) == 0 {
        (method, target) = ("GET", format!("/bad?size=800&cc={cc}&frame=chunked&reset=400"));
    }
    let language = draw.of(&[None, Some("de"), Some("en")]);
    let version = if old { "1.0" } else { "1.1" };
    let mut wire = format!("{method} {target} HTTP/{version}\r\nHost: site\r\n").into_bytes();
    if let Some(language) = language {
        wire.extend(format!("Accept-Language: {language}\r\n").into_bytes());
    }
    let mut body = Vec::new();
    if method == "POST" {
        body = crate::common::content(&target, size);
        if draw.below(2) == 0 && !old {
            wire.extend(b"Transfer-Encoding: chunked\r\n\r\n");
            for chunk in body.chunks(97) {
                wire.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                wire.extend_from_slice(chunk);
                wire.extend(b"\r\n");
            }
            wire.extend(b"0\r\n\r\n");
        } else {
            wire.extend(format!("Content-Length: {size}\r\n\r\n").into_bytes());
            wire.extend_from_slice(&body);
        }
    } else {
        wire.extend(b"\r\n");
    }
    Asked { method, target, language, body, wire }
}

fn check(asked: &Asked, got: &Response, storm: bool) {
    let Asked { method, target, .. } = asked;
    if matches!(got.status, 408 | 502..=504) {
        assert!(storm, "{got:?} for {target}");
        return;
    }
    assert_eq!((got.status, got.field("x-target")), (200, Some(&target[..])), "{method}");
    let right = match (*method, asks(target, "vary")) {
        ("HEAD", _) => Vec::new(),
        ("POST", _) => asked.body.clone(),
        (_, Some(_)) => expected(target, asked.language.or(Some("none"))),
        (_, None) => expected(target, None),
    };
    assert!(
        got.body == right,
        "{} bytes, not {}, for {target}: {:?}",
        got.body.len(),
        right.len(),
        got.fields
    );
}

/// One client; gives how many whole answers it got.
async fn client(seed: u64, storm: bool) -> u64 {
    let mut draw = Draw::new(seed);
    sleep(Duration::from_millis(draw.below(2000))).await;
    let (mut whole, mut asked) = (0, 0);
    while asked < REQUESTS {
        let version = draw.of(&[Version::Http1, Version::Http2, Version::Http3]);
        let mut client = match Client::over(version, draw.of(&[PROXY, PROXY_TOO])).await {
            Ok(client) => client,
            Err(error) => {
                assert!(storm, "{error}");
                asked += 1;
                continue;
            }
        };
        let old = draw.below(8) == 0;
        // Some requests in one go, some that wait for their answers.
        let batch: Vec<Asked> =
            (0..if old { 1 } else { 1 + draw.below(3) }).map(|_| ask(&mut draw, old)).collect();
        asked += batch.len() as u64;
        let all: Vec<u8> = batch.iter().flat_map(|one| one.wire.clone()).collect();
        let requests = client.sending(&all);
        // A client of HTTP/2 that closes its direction wants no answer.
        let ends = version == Version::Http1 && draw.below(4) == 0;
        let stream = ends.then(|| Rc::clone(client.stream()));
        let sending = async {
            let sent = requests.await;
            if let Some(stream) = stream {
                let _ = stream.shutdown(std::net::Shutdown::Write);
            }
            sent
        };
        let reading = async {
            let mut got = 0;
            for one in &batch {
                let Ok(response) = client.response_to(one.method).await else {
                    let bad = batch.iter().any(|one| one.target.starts_with("/bad"));
                    assert!(storm || bad, "broken: {}", one.target);
                    break;
                };
                check(one, &response, storm || one.target.starts_with("/bad"));
                got += 1;
                if response.field("connection") == Some("close") {
                    break;
                }
            }
            got
        };
        whole += runtime::join(sending, reading).await.1;
        sleep(Duration::from_millis(draw.below(1000))).await;
    }
    whole
}

pub(crate) async fn everybody(world: Rc<World>, seed: u64) -> u64 {
    let clients: Vec<_> = (0..CLIENTS)
        .map(|at| runtime::spawn(client(seed.wrapping_mul(1000) + at, world.storm)))
        .collect();
    let mut whole = 0;
    for one in clients {
        whole += one.await;
    }
    whole
}

/// Seeds that were not tried before.
fn fresh(count: u64) -> impl Iterator<Item = u64> {
    use std::hash::{BuildHasher, RandomState};
    let first = RandomState::new().hash_one(0) >> 16;
    first..first + count
}

#[test]
fn on_a_rough_network_every_request_is_served() {
    sim::check((0..2).chain(fresh(1)), |seed| {
        run(sim::Options::rough(seed), finishing(reverse)(), async |world: Rc<World>| {
            let whole = everybody(world, seed).await;
            assert!(whole >= CLIENTS * REQUESTS * 2 / 3, "{whole}");
        });
    });
}

/// A request whose client has gone may wait for a server for as long as the time-outs allow, also
/// when the proxy stops: a stall may be longer than the usual drain. What takes longer than this
/// one hangs.
fn in_a_storm() -> Config {
    let mut config = reverse();
    config.limits.drain_timeout = Duration::from_secs(600);
    config
}

#[test]
fn in_a_storm_no_client_gets_a_wrong_byte() {
    sim::check((0..3).chain(fresh(1)), |seed| {
        run(sim::Options::stormy(seed), in_a_storm(), async |world: Rc<World>| {
            let whole = everybody(world, seed).await;
            assert!(whole > CLIENTS * REQUESTS / 5, "{whole}");
        });
    });
}

/// The store and the descriptors are scarce.
#[test]
fn in_a_storm_with_little_memory_no_client_gets_a_wrong_byte() {
    sim::check((0..1).chain(fresh(1)), |seed| {
        let mut config = in_a_storm();
        config.memory_bytes = 128 << 10;
        config.limits.stream_window_bytes = 2000;
        config.limits.connections_max = 60;
        let options = sim::Options::stormy(seed).with_descriptors_max(400);
        run(options, config, async |world: Rc<World>| {
            everybody(world, seed).await;
        });
    });
}
