//! Clients that compare every response, byte for byte, with the response of the origin.
//!
//! A response must have exactly the content of the version that it names, and that version must not
//! be older than the last change of its URI acknowledged before the request. Connections that the
//! end of the server broke do not count.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use runtime::sim::Rng;

use super::origin::{Kind, Object, Origin, TAGS, field};
use crate::support::SOON;

/// The response to a request, possibly incomplete.
pub(super) struct Answer {
    pub(super) status: u16,
    head: Vec<String>,
    pub(super) body: Vec<u8>,
    /// Whether the whole announced body has arrived.
    pub(super) whole: bool,
}

impl Answer {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        field(self.head.iter().map(String::as_str), name)
    }

    /// Whether it came from the cache.
    pub(super) fn is_hit(&self) -> bool {
        self.field("cache-status").is_some_and(|status| status.contains("; hit"))
    }

    fn version(&self) -> Result<u64, String> {
        let version = self.field("x-version").and_then(|version| version.parse().ok());
        version.ok_or_else(|| format!("no version: {:?}", self.head))
    }
}

/// A connection to the proxy.
pub(super) struct Client(BufReader<TcpStream>);

impl Client {
    pub(super) fn new(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.set_nodelay(true)?;
        Ok(Client(BufReader::new(stream)))
    }

    pub(super) fn ask(&mut self, method: &str, path: &str, more: &str) -> std::io::Result<Answer> {
        let body = if method == "GET" { "" } else { "Content-Length: 0\r\n" };
        let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{body}{more}\r\n");
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if line.trim_end().is_empty() {
                break;
            }
            head.push(line.trim_end().to_owned());
        }
        let status = head[0].split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut answer =
            Answer { status: status.unwrap_or(0), head, body: Vec::new(), whole: false };
        let length = answer.field("content-length").and_then(|length| length.parse().ok());
        let length: u64 = length.ok_or_else(|| {
            std::io::Error::other(format!("the body has no length: {:?}", answer.head))
        })?;
        // A truncated response counts too: the part that arrived must be correct.
        let read = self.0.by_ref().take(length).read_to_end(&mut answer.body);
        answer.whole = read.is_ok() && answer.body.len() as u64 == length;
        Ok(answer)
    }
}

/// What the clients do, and their shared knowledge.
pub(super) struct Scene {
    pub(super) origin: Origin,
    pub(super) objects: Vec<Object>,
    /// Whether some requests change their objects.
    pub(super) changes: bool,
    /// Whether a body may be truncated if its remainder cannot be fetched.
    pub(super) cuts: bool,
    /// The address of the proxy and its admin address.
    place: Mutex<Option<(SocketAddr, SocketAddr)>>,
    /// Odd while no server runs.
    life: AtomicU64,
    floors: Mutex<HashMap<String, u64>>,
    stop: AtomicBool,
    pub(super) failures: Mutex<Vec<String>>,
    pub(super) compared: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) broken: AtomicU64,
    pub(super) cut: AtomicU64,
    pub(super) changed: AtomicU64,
}

/// Why a request had no correct response.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server was ended in the meantime.
    Killed,
    /// The connection was reset before the head was read. What breaks off a body may reset the
    /// connection, and the kernel then discards what has arrived, the head included.
    Reset(String),
    Wrong(String),
}

impl Scene {
    pub(super) fn new(objects: Vec<Object>) -> Scene {
        Scene {
            origin: Origin::start(),
            objects,
            changes: false,
            cuts: false,
            place: Mutex::new(None),
            life: AtomicU64::new(1),
            floors: Mutex::default(),
            stop: AtomicBool::new(false),
            failures: Mutex::default(),
            compared: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            changed: AtomicU64::new(0),
        }
    }

    /// Reports that a server runs.
    pub(super) fn begins(&self, address: SocketAddr, admin: SocketAddr) {
        *self.place.lock().unwrap() = Some((address, admin));
        self.life.fetch_add(1, Ordering::SeqCst);
    }

    /// Reports that the server is about to be ended.
    pub(super) fn ends(&self) {
        self.life.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Asserts that everything was correct so far.
    #[track_caller]
    pub(super) fn is_well(&self) {
        let failures = self.failures.lock().unwrap();
        assert!(failures.is_empty(), "{}: {}", failures.len(), failures.join("\n"));
    }

    /// Runs `work` while this many clients send requests.
    pub(super) fn under_load<T>(&self, clients: u64, seed: u64, work: impl FnOnce() -> T) -> T {
        /// Ends the clients, also if the test fails.
        struct Stop<'s>(&'s Scene);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stop();
            }
        }
        self.stop.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for number in 0..clients {
                scope.spawn(move || self.run(number, clients, seed));
            }
            let _stop = Stop(self);
            work()
        })
    }

    /// Runs one client. After each start of the server it first requests its share of all objects,
    /// so that an object that wrongly came back is seen before it is changed again.
    fn run(&self, number: u64, clients: u64, seed: u64) {
        let mut random = Rng::new(seed ^ (number << 32));
        let mut life = 0;
        let mut client = None;
        let mut sweep = Vec::new();
        while !self.stop.load(Ordering::SeqCst) {
            let now = self.life.load(Ordering::SeqCst);
            if now % 2 == 1 {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            if now != life {
                life = now;
                client = None;
                let own = |at: &usize| *at as u64 % clients == number;
                sweep = (0..self.objects.len()).filter(own).collect();
            }
            let result = match sweep.pop() {
                Some(at) => self.get(&mut client, self.objects[at], &mut random),
                None => self.any(&mut client, &mut random),
            };
            let Err(fault) = result else { continue };
            client = None;
            match fault {
                _ if self.life.load(Ordering::SeqCst) != life => {
                    self.broken.fetch_add(1, Ordering::Relaxed);
                }
                Fault::Killed => self.fails("a request was broken off while the server ran".into()),
                Fault::Reset(what) | Fault::Wrong(what) => self.fails(what),
            }
        }
    }

    fn fails(&self, what: String) {
        let mut failures = self.failures.lock().unwrap();
        if failures.len() < 10 {
            failures.push(what);
        }
    }

    fn any(&self, client: &mut Option<Client>, random: &mut Rng) -> Result<(), Fault> {
        let object = self.objects[random.below(self.objects.len() as u64) as usize];
        match random.below(100) {
            0..=4 if self.changes => self.post(client, object),
            5..=7 if self.changes => self.purge(client, object),
            8 if self.changes => self.purge_tag(random.below(TAGS)),
            _ => self.get(client, object, random),
        }
    }

    fn ask(
        &self,
        client: &mut Option<Client>,
        (method, path, more): (&str, &str, &str),
    ) -> Result<Answer, Fault> {
        let address = self.place.lock().unwrap().unwrap().0;
        let asked = match client {
            Some(client) => client.ask(method, path, more),
            None => Client::new(address).and_then(|new| client.insert(new).ask(method, path, more)),
        };
        if asked.as_ref().is_ok_and(|answer| answer.field("connection") == Some("close")) {
            *client = None;
        }
        asked.map_err(|error| {
            let what = format!("{method} {path} {more:?}: {error}");
            let is_reset = error.kind() == std::io::ErrorKind::ConnectionReset;
            if is_reset { Fault::Reset(what) } else { Fault::Wrong(what) }
        })
    }

    /// Requests an object, mostly all of it, and compares.
    fn get(
        &self,
        client: &mut Option<Client>,
        object: Object,
        random: &mut Rng,
    ) -> Result<(), Fault> {
        let variant = match object.kind {
            Kind::Vary => ["a", "b", "c"][random.below(3) as usize],
            _ => "",
        };
        let range = (object.bytes > 1 && random.below(5) == 0).then(|| {
            let first = random.below(object.bytes);
            (first, first + random.below(object.bytes))
        });
        let version = self.origin.version(&object.path());
        let has_changed = || self.origin.version(&object.path()) != version;
        let answer = match self.compared(client, object, variant, range) {
            // As for an answer that was cut short.
            Err(Fault::Reset(_)) if self.cuts && (object.kind == Kind::Bare || has_changed()) => {
                *client = None;
                self.cut.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            answer => answer?,
        };
        self.hits.fetch_add(u64::from(answer.is_hit()), Ordering::Relaxed);
        Ok(())
    }

    /// The same for a range chosen by the caller.
    pub(super) fn compared(
        &self,
        client: &mut Option<Client>,
        object: Object,
        variant: &str,
        range: Option<(u64, u64)>,
    ) -> Result<Answer, Fault> {
        let path = object.path();
        let mut more = String::new();
        if object.kind == Kind::Vary {
            more += &format!("X-Variant: {variant}\r\n");
        }
        if let Some((first, last)) = range {
            more += &format!("Range: bytes={first}-{last}\r\n");
        }
        let floor = self.floors.lock().unwrap().get(&path).copied().unwrap_or(0);
        let answer = self.ask(client, ("GET", &path, &more))?;
        let judged = self.judge(object, variant, range, floor, &answer);
        judged.map_err(|what| {
            let (head, bytes) = (&answer.head, answer.body.len());
            Fault::Wrong(format!("GET {path} {more:?}: {what}; {bytes} bytes came, {head:?}"))
        })?;
        self.compared.fetch_add(1, Ordering::Relaxed);
        if !answer.whole {
            *client = None;
            // The remainder cannot be fetched without a validator, or if the version has changed.
            let changed = answer.version() != Ok(self.origin.version(&path));
            if !(self.cuts && (object.kind == Kind::Bare || changed)) {
                return Err(Fault::Wrong(format!("GET {path} {more:?}: cut short")));
            }
            self.cut.fetch_add(1, Ordering::Relaxed);
        }
        Ok(answer)
    }

    fn judge(
        &self,
        object: Object,
        variant: &str,
        range: Option<(u64, u64)>,
        floor: u64,
        answer: &Answer,
    ) -> Result<(), String> {
        if answer.status != 200 && !(answer.status == 206 && range.is_some()) {
            return Err(format!("status {}", answer.status));
        }
        let version = answer.version()?;
        let now = self.origin.version(&object.path());
        if version < floor {
            return Err(format!("version {version}, but {floor} had been acknowledged"));
        }
        if version > now || answer.field("x-saw") != Some(&format!("{variant}.")) {
            return Err(format!("never sent by the origin, which is at {now}"));
        }
        let body = object.body(variant, version);
        let wanted = match range.filter(|_| answer.status == 206) {
            None => &body[..],
            Some((first, last)) => {
                let last = last.min(body.len() as u64 - 1);
                let range = format!("bytes {first}-{last}/{}", body.len());
                if answer.field("content-range") != Some(&range) {
                    return Err(format!("its range is not {range}"));
                }
                &body[first as usize..=last as usize]
            }
        };
        if answer.field("content-length") != Some(&wanted.len().to_string()) {
            return Err(format!("it has {} bytes", wanted.len()));
        }
        let come = &answer.body[..];
        let same = if answer.whole { come == wanted } else { wanted.starts_with(come) };
        if !same {
            let at = come.iter().zip(wanted).position(|(one, other)| one != other);
            return Err(format!("WRONG BYTES from {at:?} of {}", wanted.len()));
        }
        Ok(())
    }

    /// From now on, an older version is an error.
    fn acknowledged(&self, path: &str, version: u64) {
        let mut floors = self.floors.lock().unwrap();
        let floor = floors.entry(path.to_owned()).or_default();
        *floor = version.max(*floor);
        self.changed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn post(&self, client: &mut Option<Client>, object: Object) -> Result<(), Fault> {
        let path = object.path();
        let answer = self.ask(client, ("POST", &path, ""))?;
        let version = answer.version().ok().filter(|_| answer.status == 200);
        let version =
            version.ok_or_else(|| Fault::Wrong(format!("POST {path}: {:?}", answer.head)))?;
        self.acknowledged(&path, version);
        Ok(())
    }

    pub(super) fn purge(&self, client: &mut Option<Client>, object: Object) -> Result<(), Fault> {
        let path = object.path();
        let version = self.origin.change(&path);
        let answer = self.ask(client, ("PURGE", &path, ""))?;
        let body = String::from_utf8_lossy(&answer.body);
        if answer.status != 200 || !body.contains("\"durable\":true") {
            return Err(Fault::Wrong(format!("PURGE {path}: {:?} {body}", answer.head)));
        }
        self.acknowledged(&path, version);
        Ok(())
    }

    /// Changes all objects with a tag, and purges the tag at the admin address.
    fn purge_tag(&self, tag: u64) -> Result<(), Fault> {
        let has_it = |object: &&Object| object.number % TAGS == tag;
        let changed: Vec<(String, u64)> = self
            .objects
            .iter()
            .filter(has_it)
            .map(|object| (object.path(), self.origin.change(&object.path())))
            .collect();
        let admin = self.place.lock().unwrap().unwrap().1;
        let asked = Client::new(admin)
            .and_then(|mut client| client.ask("POST", &format!("/purge?tag=t{tag}"), ""));
        let answer = asked.map_err(|_| Fault::Killed)?;
        let body = String::from_utf8_lossy(&answer.body);
        if answer.status != 200 || !body.contains("\"durable\":true") {
            return Err(Fault::Wrong(format!("purging t{tag}: {body}")));
        }
        for (path, version) in changed {
            self.acknowledged(&path, version);
        }
        Ok(())
    }

    /// Requests and compares one response. An error fails the test.
    #[track_caller]
    pub(super) fn one(&self, object: Object) -> Answer {
        match self.compared(&mut None, object, "", None) {
            Ok(answer) => answer,
            Err(Fault::Killed) => panic!("the server was ended"),
            Err(Fault::Reset(what) | Fault::Wrong(what)) => panic!("{what}"),
        }
    }

    /// Requests and compares responses on one connection. An error fails the test.
    #[track_caller]
    pub(super) fn all(&self, objects: impl Iterator<Item = Object>) {
        let mut client = None;
        for object in objects {
            if let Err(Fault::Reset(what) | Fault::Wrong(what)) =
                self.compared(&mut client, object, "", None)
            {
                panic!("{what}");
            }
        }
    }

    /// Makes a change that must be acknowledged.
    #[track_caller]
    pub(super) fn change(&self, object: Object) {
        if let Err(Fault::Reset(what) | Fault::Wrong(what)) = self.post(&mut None, object) {
            panic!("{what}");
        }
    }
}
