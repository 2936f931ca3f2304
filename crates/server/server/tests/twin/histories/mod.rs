//! Whole histories of overlapping requests, and the rules that each history must keep.
//!
//! A simulated origin answers with versions that grow with time ([`origin`]). Clients of all
//! versions of HTTP, on both cores, send herds, reloads, ranges, conditions, changes and purges at
//! times drawn from a seed ([`client`]). Both sides write what they saw into one [`History`], and
//! the checker ([`checker`]) looks at nothing else. Where a scenario of another module asks whether
//! one answer is right, these tests ask whether any two answers contradict each other.
//!
//! A failure prints its seed, the rule, and the part of the history about the URL.

mod checker;
mod client;
mod origin;
mod wrong;

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim;
use runtime::time::sleep;
use server::{Config, Origin as OriginUrl};
use store::disk::Geometry;

use crate::some;
use crate::storm::Draw;
use crate::world::{self, PROXY, PROXY_TOO, Version, World, address};
use client::{Asker, By, Kind, What, Wish};
use origin::Versions;

/// Microseconds of virtual time since the scenario began.
type Micros = u64;

const SECOND: Micros = 1_000_000;
/// The end of what has not ended.
const NEVER: Micros = Micros::MAX;

const URLS: u64 = 6;
const WANDERERS: u64 = 6;
const WANDERINGS: u64 = 12;
const HERDS: usize = 6;
const TRAINS: u64 = 5;
const OVERTAKERS: u64 = 5;
const PURGES: u64 = 3;
const SLOW_READERS: u64 = 3;
const INTERRUPTERS: u64 = 2;
const SOFTENERS: u64 = 2;
/// The URL whose stored response may be used when it is stale, and continued: see
/// [`Policy::refreshed`].
const REFRESHED: usize = 0;
/// The URL of the largest body.
const LARGE: usize = 4;
/// When the last of the wanderers starts.
const STORM_MS: u64 = 20_000;
const WINDOW_BYTES: usize = 64 << 10;
/// Enough for everything: nothing is removed for want of room.
const MEMORY_BYTES: u64 = 128 << 20;
/// The same for the disk.
const DISK_SEGMENTS: u32 = 1024;
/// A larger body is only stored on a disk.
const OBJECT_BYTES_MAX: u64 = 128 << 10;
/// How long a piece of data travels at most on the rough networks here.
const DELAY_MAX: Duration = Duration::from_millis(4);

/// How the origin answers requests for one URL.
#[derive(Debug, Clone, Default)]
struct Policy {
    /// 0: `no-cache`.
    lifetime_s: u64,
    while_revalidate_s: u64,
    if_error_s: u64,
    must_revalidate: bool,
    validator: Validator,
    varies: bool,
    dated: bool,
    framing: Framing,
    size: usize,
    /// Until the head, of all answers or of about every second.
    head_ms: u64,
    always_late: bool,
    /// From the head to the end, of about every second.
    body_ms: u64,
    interim: bool,
    /// A new version so often.
    changes_ms: u64,
    /// What goes wrong with so many of a hundred answers.
    faults: Vec<Fault>,
    faults_percent: u64,
    /// The answer to a client that wishes for an odd one.
    odd: Fault,
    ranges: Ranges,
    /// A client without a cookie is given one.
    cookies: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Validator {
    #[default]
    None,
    Strong,
    Weak,
    Modified,
    /// No two answers have the same.
    Changing,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Framing {
    #[default]
    Length,
    Chunks,
    Close,
}

/// An answer that is not the usual one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    Private,
    NoStore,
    /// Without a lifetime.
    Status(u16),
    /// The body breaks off.
    Cut,
    /// The connection is closed without an answer.
    Gone,
    /// No answer within the proxy's patience.
    Stall,
}

/// What the origin makes of `Range`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Ranges {
    #[default]
    Ignored,
    Parts,
    /// An error with a lifetime.
    Error(u16),
}

impl Policy {
    fn drawn(draw: &mut Draw) -> Policy {
        use Fault::{Cut, Gone, NoStore, Private, Stall, Status};
        let fails = [Cut, Cut, Gone, Stall, Status(500), Status(503), Status(502), Status(504)];
        let refuses = [Status(429), Status(403), Status(404), Private];
        let odd = [Private, NoStore, Status(401), Status(404), Status(429), Status(302)];
        let validators = [Validator::Strong, Validator::Weak, Validator::Modified];
        let rare = [Validator::None, Validator::Changing, Validator::Strong];
        let error = Ranges::Error(draw.of(&[400, 404, 500, 501]));
        Policy {
            lifetime_s: draw.of(&[0, 1, 1, 2, 2, 5, 5, 30, 30]),
            while_revalidate_s: draw.of(&[0, 0, 600]),
            if_error_s: draw.of(&[0, 600, 600]),
            must_revalidate: draw.below(10) == 0,
            validator: if draw.below(3) == 0 { draw.of(&rare) } else { draw.of(&validators) },
            varies: draw.below(4) == 0,
            dated: draw.below(5) != 0,
            framing: draw.of(&[Framing::Length, Framing::Length, Framing::Chunks, Framing::Close]),
            size: draw.of(&[50, 2000, 2000, 20_000, 200_000]),
            head_ms: draw.of(&[0, 20, 300, 1200]),
            always_late: draw.below(2) == 0,
            body_ms: draw.of(&[0, 0, 300, 2000]),
            interim: draw.below(4) == 0,
            changes_ms: draw.of(&[700, 700, 3000, 100_000]),
            faults: vec![draw.of(&fails), draw.of(&fails), draw.of(&refuses)],
            faults_percent: draw.of(&[0, 0, 20, 50]),
            odd: draw.of(&odd),
            ranges: draw.of(&[Ranges::Ignored, Ranges::Parts, Ranges::Parts, error]),
            cookies: draw.below(6) == 0,
        }
    }
}

impl Policy {
    /// Of a response that is often refreshed, and may be used when that fails. The first half of
    /// its body may be stored as a part.
    fn refreshed(draw: &mut Draw) -> Policy {
        Policy {
            lifetime_s: draw.of(&[1, 2]),
            while_revalidate_s: draw.of(&[0, 600, 600]),
            if_error_s: 600,
            must_revalidate: false,
            validator: Validator::Strong,
            dated: true,
            framing: Framing::Length,
            size: draw.of(&[2000, 20_000]),
            changes_ms: 700,
            ..Policy::drawn(draw)
        }
    }
}

impl Policy {
    /// Of a body that is only stored on a disk, by fetches that do not fail.
    fn large(draw: &mut Draw) -> Policy {
        let drawn = Policy::drawn(draw);
        Policy { lifetime_s: 1, size: 200_000, faults_percent: 0, cookies: false, ..drawn }
    }
}

/// What happened, as the clients and the origin saw it.
#[derive(Debug, Default)]
struct History {
    policies: Vec<Policy>,
    has_disk: bool,
    requests: Vec<Request>,
    /// By number.
    fetches: Vec<Fetch>,
    purges: Vec<Purge>,
}

/// A client's request.
#[derive(Debug, Clone)]
struct Request {
    what: What,
    start: Micros,
    end: Micros,
    got: Got,
}

#[derive(Debug, Clone, PartialEq)]
enum Got {
    /// Nothing yet.
    Waits,
    Whole(Answer),
    /// The response broke off, or the connection ended without one.
    Broken,
    /// The client has left before the end.
    Left,
}

/// A whole response.
#[derive(Debug, Clone, Default, PartialEq)]
struct Answer {
    status: u16,
    /// The number of the fetch that brought or confirmed it.
    fetch: Option<usize>,
    version: Option<u32>,
    /// What is wrong with the body: the versions of which it has pieces.
    wrong: Option<Vec<u32>>,
    bytes: usize,
    cache_status: String,
    cookie: Option<String>,
}

/// A request that came to the origin.
#[derive(Debug, Clone, Default)]
struct Fetch {
    url: usize,
    variant: u8,
    method: String,
    has_range: bool,
    /// When it came.
    start: Micros,
    /// The instant of `Date`.
    dated: Micros,
    /// When the last byte was sent.
    end: Micros,
    /// From the start to the end, if the proxy reads as fast as the origin sends.
    needs: Micros,
    version: u32,
    status: u16,
    fault: Option<Fault>,
    cookie: bool,
}

impl Fetch {
    /// Whether the answer is only for the client that drew it.
    fn is_for_one(&self) -> bool {
        let fault = match self.fault {
            Some(Fault::Private | Fault::NoStore) => true,
            Some(Fault::Status(status)) => status < 500,
            _ => false,
        };
        fault || self.cookie
    }

    /// Whether a whole response, or a confirmation of one, may be stored.
    fn is_storable(&self, policy: &Policy) -> bool {
        let is_usual = self.fault.is_none() && matches!(self.status, 200 | 304);
        is_usual && self.method == "GET" && !self.cookie && policy.lifetime_s > 0
    }
}

/// A purge by the admin address.
#[derive(Debug, Clone)]
struct Purge {
    by: String,
    urls: Vec<usize>,
    soft: bool,
    start: Micros,
    end: Micros,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What { kind, url, variant, at, over, .. } = &self.what;
        write!(f, "client {kind:?} /{url} variant {variant} at {at} {over:?}")?;
        let flags = [
            (self.what.reload.is_some(), " reload"),
            (self.what.max_stale, " max-stale"),
            (self.what.known, " with a cookie"),
            (self.what.slow, " slow"),
            (self.what.herd.is_some(), " in a herd"),
        ];
        flags.iter().filter(|(is, _)| *is).try_for_each(|(_, name)| f.write_str(name))?;
        let wish = client::WISHES.iter().find(|(wish, _)| *wish == self.what.wish);
        wish.iter().try_for_each(|(_, word)| write!(f, " that wishes {word}"))?;
        let Got::Whole(answer) = &self.got else { return write!(f, ": {:?}", self.got) };
        let Answer { status, bytes, cache_status, .. } = answer;
        write!(f, ": {status}, {bytes} bytes, {cache_status}")?;
        if let (Some(version), Some(fetch)) = (answer.version, answer.fetch) {
            write!(f, ", version {version} of fetch {fetch}")?;
        }
        answer.cookie.iter().try_for_each(|cookie| write!(f, ", cookie {cookie}"))?;
        answer.wrong.iter().try_for_each(|wrong| write!(f, ", WRONG, with pieces of {wrong:?}"))
    }
}

/// The proxy in front of the origin with versions.
fn config() -> Config {
    let addresses = vec![address(origin::ADDRESS)];
    let origin = OriginUrl { authority: "origin".into(), addresses, tls: None };
    let mut config = Config {
        memory_bytes: MEMORY_BYTES,
        ..Config::reverse([origin], &[address(PROXY), address(PROXY_TOO)])
    };
    config.name_servers = world::reverse().name_servers;
    config.hash_seed = Some([1, 2]);
    config.limits.stream_window_bytes = WINDOW_BYTES;
    config.limits.object_share = (MEMORY_BYTES / OBJECT_BYTES_MAX) as usize;
    config.limits.upstream_timeout = Duration::from_secs(4);
    config
}

/// A network and a store for this seed.
fn world_of(seed: u64) -> (sim::Options, Config) {
    let mut draw = Draw::new(seed ^ 0x0077_6f72_6c64);
    let rough = sim::Options::new(seed)
        .with_split(draw.of(&[0.0, 0.001, 0.01]))
        .with_buffer_bytes(draw.of(&[4096, 16 << 10, 64 << 10]))
        .with_delay(Duration::ZERO..DELAY_MAX);
    let options = if draw.below(2) == 0 { rough } else { sim::Options::new(seed) };
    let is_on_disk = draw.below(2) == 0;
    if !is_on_disk {
        return (options, config());
    }
    let mut config = world::on_disk(config());
    let disk = config.disk.as_mut().expect("it is on a disk");
    disk.geometry = Geometry::tiny(DISK_SEGMENTS);
    (options, config)
}

/// A client's way to a URL, drawn. HTTP/3 is always https, for which other URLs are stored, so each
/// URL is requested over HTTP/3 by all clients or by none.
fn way_to(draw: &mut Draw, url: usize) -> (&'static str, Version) {
    let over = draw.of(&[Version::Http1, Version::Http2]);
    (draw.of(&[PROXY, PROXY_TOO]), if url % 3 == 2 { Version::Http3 } else { over })
}

/// A client that asks now and then, in all ways.
async fn wander(origin: Rc<Versions>, mut draw: Draw) {
    let mut asker = Asker::new(origin);
    for _ in 0..WANDERINGS {
        sleep(Duration::from_millis(draw.below(2 * STORM_MS / WANDERINGS))).await;
        let what = What::drawn(&mut draw, way_to);
        asker.ask(what).await;
    }
}

/// Many clients that ask for the same at the same instant.
async fn herd(origin: Rc<Versions>, mut draw: Draw, number: usize) {
    sleep(Duration::from_millis(draw.below(STORM_MS))).await;
    let (url, variant) = (draw.below(URLS) as usize, draw.below(2) as u8);
    let known = draw.below(2) == 0;
    let members = (0..5 + draw.below(6)).map(|_| {
        let what =
            What { known, herd: Some(number), ..What::get(url, variant, way_to(&mut draw, url)) };
        let mut asker = Asker::new(Rc::clone(&origin));
        runtime::spawn(async move { asker.ask(what).await })
    });
    for member in members.collect::<Vec<_>>() {
        member.await;
    }
}

/// A client that is given its own answer, and others that come after it, one by one.
async fn train(origin: Rc<Versions>, mut draw: Draw) {
    sleep(Duration::from_millis(draw.below(STORM_MS))).await;
    let mut asker = Asker::new(origin);
    let url = draw.below(URLS) as usize;
    let get = What::get(url, draw.below(2) as u8, way_to(&mut draw, url));
    let reload = draw.of(&[None, Some("no-cache")]);
    let kind = draw.of(&[Kind::Get, Kind::Get, Kind::Range]);
    let wish = if kind == Kind::Get { Wish::Odd } else { Wish::Usual };
    asker.ask(What { wish, kind, reload, ..get }).await;
    for _ in 0..4 {
        let (at, over) = way_to(&mut draw, url);
        asker.ask(What { at, over, known: true, ..get }).await;
        sleep(Duration::from_millis(draw.of(&[0, 10, 600]))).await;
    }
}

/// A fetch that a reload, a purge or a change overtakes, and clients that come after it.
async fn overtake(origin: Rc<Versions>, mut draw: Draw) {
    sleep(Duration::from_millis(draw.below(STORM_MS))).await;
    let url = draw.below(URLS) as usize;
    let get = What { known: true, ..What::get(url, draw.below(2) as u8, way_to(&mut draw, url)) };
    let mut first = Asker::new(Rc::clone(&origin));
    let first = runtime::spawn(async move { first.ask(get).await });
    sleep(Duration::from_millis(draw.below(1500))).await;
    let mut asker = Asker::new(Rc::clone(&origin));
    match draw.below(4) {
        0 | 1 => asker.ask(What { reload: Some("no-cache"), ..get }).await,
        2 => client::purge(&origin, By::Url, url, draw.below(3) != 0).await,
        _ => asker.ask(What { kind: Kind::Change("PUT"), ..get }).await,
    }
    for _ in 0..4 {
        let (at, over) = way_to(&mut draw, url);
        asker.ask(What { at, over, ..get }).await;
        sleep(Duration::from_millis(draw.below(1200))).await;
    }
    first.await;
}

async fn purge(origin: Rc<Versions>, mut draw: Draw) {
    sleep(Duration::from_millis(draw.below(STORM_MS))).await;
    let (by, url) = (draw.of(&[By::Url, By::Prefix, By::Tag]), draw.below(URLS) as usize);
    client::purge(&origin, by, url, draw.below(2) == 0).await;
}

/// A stored response whose refreshes break off or get no answer.
async fn interrupt(origin: Rc<Versions>, mut draw: Draw) {
    sleep(Duration::from_millis(draw.below(STORM_MS))).await;
    let mut asker = Asker::new(origin);
    let get = What::get(REFRESHED, draw.below(2) as u8, way_to(&mut draw, REFRESHED));
    let get = What { known: true, ..get };
    asker.ask(get).await;
    sleep(Duration::from_millis(3000)).await;
    for wish in [Wish::Cut, Wish::Gone, Wish::Cut, Wish::Gone] {
        let (at, over) = way_to(&mut draw, REFRESHED);
        asker.ask(What { wish, at, over, ..get }).await;
        sleep(Duration::from_millis(draw.below(600))).await;
    }
}

/// A late answer that a soft purge overtakes, and clients that come after the purge.
async fn soften(origin: Rc<Versions>, mut draw: Draw) {
    sleep(Duration::from_millis(draw.below(STORM_MS))).await;
    let get = What::get(REFRESHED, draw.below(2) as u8, way_to(&mut draw, REFRESHED));
    let get = What { known: true, ..get };
    let mut asker = Asker::new(Rc::clone(&origin));
    let late = What { wish: Wish::Late, reload: Some("no-cache"), ..get };
    let first = runtime::spawn(async move { asker.ask(late).await });
    sleep(Duration::from_millis(200 + draw.below(300))).await;
    client::purge(&origin, draw.of(&[By::Url, By::Prefix, By::Tag]), REFRESHED, true).await;
    let mut asker = Asker::new(origin);
    for _ in 0..8 {
        let (at, over) = way_to(&mut draw, REFRESHED);
        asker.ask(What { at, over, ..get }).await;
        sleep(Duration::from_millis(draw.below(800))).await;
    }
    first.await;
}

/// A client that reads slower than the origin sends, and leaves; and others of the same response.
async fn dawdle(origin: Rc<Versions>, mut draw: Draw) {
    sleep(Duration::from_millis(draw.below(STORM_MS))).await;
    let get = What::get(LARGE, 0, way_to(&mut draw, LARGE));
    let get = What { known: true, wish: Wish::Long, ..get };
    let mut asker = Asker::new(Rc::clone(&origin));
    let slow = What { slow: true, reload: draw.of(&[None, Some("no-cache")]), ..get };
    let slow = runtime::spawn(async move { asker.ask(slow).await });
    let mut asker = Asker::new(origin);
    for _ in 0..3 {
        sleep(Duration::from_millis(draw.below(700))).await;
        let (at, over) = way_to(&mut draw, LARGE);
        asker.ask(What { at, over, ..get }).await;
    }
    slow.await;
}

/// Everything at once.
async fn storm(origin: &Rc<Versions>, seed: u64) {
    let mut draws = Draw::new(seed ^ 0x6869_7374_6f72);
    let mut running = Vec::new();
    let mut next = || (Rc::clone(origin), Draw::new(draws.below(u64::MAX)));
    for _ in 0..WANDERERS {
        let (origin, draw) = next();
        running.push(runtime::spawn(wander(origin, draw)));
    }
    for number in 0..HERDS {
        let (origin, draw) = next();
        running.push(runtime::spawn(herd(origin, draw, number)));
    }
    for _ in 0..TRAINS {
        let (origin, draw) = next();
        running.push(runtime::spawn(train(origin, draw)));
    }
    for _ in 0..OVERTAKERS {
        let (origin, draw) = next();
        running.push(runtime::spawn(overtake(origin, draw)));
    }
    for _ in 0..PURGES {
        let (origin, draw) = next();
        running.push(runtime::spawn(purge(origin, draw)));
    }
    for _ in 0..SLOW_READERS {
        let (origin, draw) = next();
        running.push(runtime::spawn(dawdle(origin, draw)));
    }
    for _ in 0..INTERRUPTERS {
        let (origin, draw) = next();
        running.push(runtime::spawn(interrupt(origin, draw)));
    }
    for _ in 0..SOFTENERS {
        let (origin, draw) = next();
        running.push(runtime::spawn(soften(origin, draw)));
    }
    for one in running {
        one.await;
    }
}

/// Runs one history and gives it to the checker.
fn keeps_the_rules(seed: u64) {
    let (options, config) = world_of(seed);
    let has_disk = config.disk.is_some();
    world::run(options, config, async |_world: Rc<World>| {
        let mut draw = Draw::new(seed);
        let policy = |url| match url as usize {
            REFRESHED => Policy::refreshed(&mut draw),
            LARGE => Policy::large(&mut draw),
            _ => Policy::drawn(&mut draw),
        };
        let policies = (0..URLS).map(policy).collect();
        let history = History { policies, has_disk, ..History::default() };
        let origin = Versions::start(history, draw);
        storm(&origin, seed).await;
        // Fetches in the background end, and the records of purges are dropped meanwhile.
        sleep(Duration::from_secs(30)).await;
        let asked = [1, 2].map(|at| wander(Rc::clone(&origin), Draw::new(seed ^ at)));
        for asked in asked.map(runtime::spawn) {
            asked.await;
        }
        sleep(Duration::from_secs(30)).await;
        let history = origin.history.take();
        if let Some(report) = checker::report(&history) {
            panic!("{report}");
        }
    });
}

/// Seeds that find the planted bugs. `PLIMSOLL_SEEDS` tries others.
#[test]
fn no_history_breaks_a_rule() {
    const FOUND_A_BUG: [u64; 10] = [1, 3, 4, 5, 7, 8, 23, 25, 27, 55];
    let seeds = some(0..FOUND_A_BUG.len() as u64);
    sim::check(seeds.map(|at| FOUND_A_BUG[at as usize]), keeps_the_rules);
}
