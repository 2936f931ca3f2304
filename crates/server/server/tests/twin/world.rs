//! One run: the proxy's own code between a simulated origin and simulated clients, and the checks
//! that must hold at the end of every run.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runtime::net::{DatagramSocket, ListenOptions, TcpListener, TcpStream};
use runtime::stop::StopSource;
use runtime::time::{sleep, timeout};
use runtime::{JoinHandle, Runtime, sim};
use server::{
    Config, Core, DiskConfig, Listener, LogFormat, LogTo, NameServers, Origin as OriginUrl, Role,
};
use store::disk::{DiskStore, Geometry, Verify};
use transport::tls::Issued;

use crate::common::{Response, read_log_line, read_metrics, read_response};
use crate::http2_client::Http2;
use crate::http3_client::Http3;
use crate::origin::Origin;
use crate::tls_client::SIGNED_HTTP3;

pub(crate) const PROXY: &str = "10.0.0.1:80";
/// The address of the second core, which shares the store and the fetches.
pub(crate) const PROXY_TOO: &str = "10.0.0.1:81";
pub(crate) const ORIGIN: &str = "10.0.0.2:80";
pub(crate) const ADMIN: &str = "10.0.0.1:9090";

/// Virtual time that a scenario may take.
const SCENARIO_MAX: Duration = Duration::from_secs(3600);

pub(crate) fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Reverse mode in front of the simulated origin.
pub(crate) fn reverse() -> Config {
    let origin =
        OriginUrl { authority: "origin".into(), addresses: vec![address(ORIGIN)], tls: None };
    let mut config = Config::reverse([origin], &[address(PROXY), address(PROXY_TOO)]);
    config.name_servers = NameServers::At(Vec::new());
    config.hash_seed = Some([1, 2]);
    config.memory_bytes = 8 << 20;
    config
}

/// Forward mode.
pub(crate) fn forward() -> Config {
    let mut config = Config { groups: Vec::new(), ..reverse() };
    config.listeners.iter_mut().for_each(|listener| listener.role = Role::Forward);
    config.forward.allow_to = vec!["10.0.0.0/8".parse().unwrap()];
    config
}

/// A configuration with a change.
pub(crate) fn with(
    config: impl Fn() -> Config,
    change: impl Fn(&mut Config),
) -> impl Fn() -> Config {
    move || {
        let mut config = config();
        change(&mut config);
        config
    }
}

/// What the clients of a scenario speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
    Http3,
}

thread_local! {
    static VERSION: Cell<Version> = const { Cell::new(Version::Http1) };
}

/// The scheme of what the clients ask for: HTTP/3 is always encrypted.
pub(crate) fn scheme() -> &'static str {
    if VERSION.get() == Version::Http3 { "https" } else { "http" }
}

/// Runs a part of a test with clients of this version.
pub(crate) fn over<R>(version: Version, part: impl FnOnce() -> R) -> R {
    VERSION.set(version);
    eprintln!("over {version:?}");
    let result = part();
    VERSION.set(Version::Http1);
    result
}

/// A running scenario.
pub(crate) struct World {
    pub(crate) origin: Rc<Origin>,
    pub(crate) stop: StopSource,
    pub(crate) log: Arc<Mutex<Vec<u8>>>,
    cores: Vec<Core>,
    running: RefCell<Vec<JoinHandle<()>>>,
    /// The network may lose data, so that fewer checks hold.
    pub(crate) storm: bool,
    /// The drain's time was too short for the requests in flight.
    pub(crate) cut: Cell<bool>,
}

/// Runs a scenario on the twin.
pub(crate) fn run(options: sim::Options, config: Config, scenario: impl AsyncFnOnce(Rc<World>)) {
    let mut runtime = Runtime::simulated(options.clone());
    runtime.block_on(async {
        let world = World::start(config, &options).await;
        // The core ticks forever, so a scenario that hangs would not end by itself.
        let ended = timeout(SCENARIO_MAX, scenario(Rc::clone(&world))).await;
        ended.expect("a scenario that hangs says so");
        world.end().await;
    });
}

/// Runs a scenario once with clients of each version.
pub(crate) fn each_version(
    options: &sim::Options,
    config: &Config,
    scenario: impl AsyncFn(Rc<World>),
) {
    for version in [Version::Http1, Version::Http2, Version::Http3] {
        over(version, || run(options.clone(), config.clone(), &scenario));
    }
}

/// Runs a scenario on a smooth network and on rough ones, with different delays and splits, and
/// with clients of all versions.
pub(crate) fn each_way(config: impl Fn() -> Config, scenario: impl AsyncFn(Rc<World>)) {
    each_way_tcp(&config, &scenario);
    let rough = |seed| sim::Options::rough(seed).with_bad_datagrams();
    let on_disk = |seed| run(rough(seed), on_disk(config()), &scenario);
    over(Version::Http3, || sim::check(14..15, on_disk));
}

/// The same with clients of TCP alone.
pub(crate) fn each_way_tcp(config: impl Fn() -> Config, scenario: impl AsyncFn(Rc<World>)) {
    over_streams(&config, &scenario);
    // With a store on disk nothing that a client can see changes.
    let rough = |seed| run(sim::Options::rough(seed), on_disk(config()), &scenario);
    over(Version::Http1, || sim::check(7..8, rough));
    over(Version::Http2, || sim::check(8..9, rough));
}

/// The same in memory alone.
pub(crate) fn in_memory(config: impl Fn() -> Config, scenario: impl AsyncFn(Rc<World>)) {
    over_streams(&config, &scenario);
    let bad = |seed| sim::Options::new(seed).with_bad_datagrams();
    over(Version::Http3, || sim::check(2..3, |seed| run(bad(seed), config(), &scenario)));
}

fn over_streams(config: impl Fn() -> Config, scenario: impl AsyncFn(Rc<World>)) {
    over(Version::Http1, || networks([0..1, 2..4, 6..7], &config, &scenario));
    over(Version::Http2, || networks([1..2, 4..6, 6..7], &config, &scenario));
}

/// The same for a scenario that is about the text of HTTP/1.
pub(crate) fn each_way_http1(config: impl Fn() -> Config, scenario: impl AsyncFn(Rc<World>)) {
    networks([0..2, 2..6, 6..7], &config, &scenario);
    sim::check(7..9, |seed| run(sim::Options::rough(seed), on_disk(config()), &scenario));
}

fn networks(
    [smooth, rough, bytewise]: [Range<u64>; 3],
    config: impl Fn() -> Config,
    scenario: impl AsyncFn(Rc<World>),
) {
    let of_bytes = |seed| sim::Options::new(seed).with_split(1.0).with_buffer_bytes(600);
    sim::check(smooth, |seed| run(sim::Options::new(seed), config(), &scenario));
    sim::check(rough, |seed| run(sim::Options::rough(seed), config(), &scenario));
    sim::check(bytewise, |seed| run(of_bytes(seed), config(), &scenario));
}

/// The same with a store on disk.
pub(crate) fn on_disk(config: Config) -> Config {
    let disk =
        DiskConfig { path: "/store".into(), geometry: Geometry::tiny(48), verify: Verify::Always };
    Config { disk: Some(disk), ..config }
}

impl World {
    async fn start(config: Config, options: &sim::Options) -> Rc<World> {
        let origin = Origin::start(address(ORIGIN));
        let log = Arc::new(Mutex::new(Vec::new()));
        let to = LogTo::Memory(Arc::clone(&log));
        let listeners = config.listeners.clone();
        let disk = match &config.disk {
            Some(disk) => Some(open(disk).await),
            None => None,
        };
        let cores = Core::with_disk(config, 2, &to, disk);
        let stop = StopSource::new();
        let bind = |at| TcpListener::bind(at, &ListenOptions::default()).unwrap();
        let mut running = Vec::new();
        for (at, (core, listener)) in cores.iter().zip(listeners).enumerate() {
            let admin = (at == 0).then(|| bind(address(ADMIN)));
            let datagrams = http3(&listener).into_iter().collect();
            let sockets = vec![(bind(listener.address), listener)];
            let serving = core.clone().run(sockets, datagrams, admin, stop.token());
            running.push(runtime::spawn(serving));
        }
        let running = RefCell::new(running);
        let storm = options.reset > 0.0 || options.refuse > 0.0;
        Rc::new(World { origin, stop, log, cores, running, storm, cut: Cell::new(false) })
    }

    /// One of the proxy's counters, all cores together.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let of = |core: &Core| {
            let counters = core.counters();
            counters.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no {name}")).1
        };
        self.cores.iter().map(of).sum()
    }

    /// The certificates that come while the proxy runs.
    pub(crate) fn issued(&self) -> &Arc<Issued> {
        self.cores[0].issued()
    }

    /// Stops the proxy and waits until it has stopped.
    pub(crate) async fn stopped(&self) {
        self.stop.stop();
        let running = self.running.take();
        for core in running {
            core.await;
        }
    }

    /// `/metrics`, as a scraper sees it.
    pub(crate) async fn metrics(&self) -> Vec<(String, u64)> {
        let mut scraper = Client::to(ADMIN).await.unwrap();
        scraper.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let response = scraper.response().await.unwrap();
        assert_eq!(response.status, 200);
        read_metrics(&String::from_utf8(response.body).unwrap())
    }

    /// The access log so far, or, after the stop, all of it.
    pub(crate) fn log_lines(&self) -> Vec<(u16, String)> {
        let log = String::from_utf8(self.log.lock().unwrap().clone()).unwrap();
        assert!(log.is_empty() || log.ends_with('\n'));
        log.lines().map(read_log_line).collect()
    }

    async fn end(&self) {
        if !self.storm && !self.stop.token().is_stopped() {
            // Fetches end with their readers or with the upstream's timeout.
            sleep(Duration::from_secs(70)).await;
            let in_flight = "plimsoll_fetches_in_flight";
            let metrics = self.metrics().await;
            assert_eq!(metrics.iter().find(|(name, _)| name == in_flight).unwrap().1, 0);
        }
        self.stopped().await;
        if self.cut.get() {
            // What was in flight may end after the log has.
            return;
        }
        assert_eq!(self.counter("connections_open"), 0);
        let lines = self.log_lines().len() as u64;
        let denied = self.counter("connections_denied");
        assert_eq!(self.counter("requests") + denied, lines, "one line a request");
        assert_eq!(self.counter("log_lines"), lines);
    }
}

/// The socket for HTTP/3 beside a listener, which may be without TLS here.
pub(crate) fn http3(listener: &Listener) -> Option<(DatagramSocket, Listener)> {
    let tls = Some(Arc::clone(&SIGNED_HTTP3));
    let socket = DatagramSocket::bind(listener.address).unwrap();
    // Neither TLS nor HTTP/3 has a PROXY header.
    let is_possible = listener.tls.is_none() && listener.proxies.is_none();
    is_possible.then(|| (socket, Listener { tls, http3: true, ..listener.clone() }))
}

async fn open(disk: &DiskConfig) -> DiskStore {
    let options = store::disk::Options { seeds: Some([1, 2, 3]), ..disk.options() };
    DiskStore::open(options).await.unwrap().0
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The connection ended before the first byte.
    Ended,
    /// It ended, or was reset, within the response.
    Within,
    /// It was reset before the first byte.
    Reset,
}

/// A simulated client's connection.
#[derive(Debug)]
pub(crate) struct Client {
    wire: Wire,
    buf: Vec<u8>,
    ended: bool,
    /// The interim responses received.
    pub(crate) interim: Vec<u16>,
}

#[derive(Debug, Clone)]
enum Wire {
    Http1(Rc<TcpStream>),
    Http2(Rc<TcpStream>, Rc<RefCell<Http2>>),
    Http3(Rc<Http3>),
}

impl Client {
    pub(crate) async fn new() -> Client {
        Client::to(PROXY).await.unwrap()
    }

    /// A client of HTTP/1, whatever the others of the scenario speak.
    pub(crate) async fn http1() -> Client {
        Client::over(Version::Http1, PROXY).await.unwrap()
    }

    pub(crate) async fn to(at: &str) -> std::io::Result<Client> {
        let version = if at == ADMIN { Version::Http1 } else { VERSION.get() };
        Client::over(version, at).await
    }

    pub(crate) async fn over(version: Version, at: &str) -> std::io::Result<Client> {
        let stream = async || TcpStream::connect(address(at)).await.map(Rc::new);
        let wire = match version {
            Version::Http1 => Wire::Http1(stream().await?),
            Version::Http2 => Wire::Http2(stream().await?, Rc::new(RefCell::new(Http2::new()))),
            Version::Http3 => Wire::Http3(Rc::new(Http3::connect(at).await?)),
        };
        Ok(Client { wire, buf: Vec::new(), ended: false, interim: Vec::new() })
    }

    pub(crate) fn is_http1(&self) -> bool {
        matches!(self.wire, Wire::Http1(_))
    }

    pub(crate) fn is_http3(&self) -> bool {
        matches!(self.wire, Wire::Http3(_))
    }

    /// The connection, which is one of TCP.
    pub(crate) fn stream(&self) -> &Rc<TcpStream> {
        match &self.wire {
            Wire::Http1(stream) | Wire::Http2(stream, _) => stream,
            Wire::Http3(_) => panic!("HTTP/3 is not over TCP"),
        }
    }

    /// The connection, which is one of QUIC.
    pub(crate) fn http3(&self) -> &Http3 {
        match &self.wire {
            Wire::Http3(http3) => http3,
            _ => panic!("a connection of TCP"),
        }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        match &self.wire {
            Wire::Http3(http3) => http3.local_addr(),
            _ => self.stream().local_addr().unwrap(),
        }
    }

    /// Ends at once, without what TCP does for bytes in flight.
    pub(crate) fn abort(self) {
        if let Wire::Http1(stream) | Wire::Http2(stream, _) = &self.wire {
            stream.set_linger0().unwrap();
        }
    }

    pub(crate) async fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.sending(bytes).await
    }

    /// Sends bytes of HTTP/1, or what they mean in another version. The client may read at the same
    /// time.
    pub(crate) fn sending<'a>(
        &self,
        bytes: &'a [u8],
    ) -> impl Future<Output = std::io::Result<()>> + use<'a> {
        let wire = self.wire.clone();
        async move {
            let is_taken = match &wire {
                Wire::Http1(stream) => return stream.write_all(bytes).await,
                Wire::Http2(_, http2) => http2.borrow_mut().write(bytes),
                Wire::Http3(http3) => http3.write(bytes),
            };
            match &wire {
                _ if !is_taken => Err(std::io::ErrorKind::BrokenPipe.into()),
                Wire::Http2(stream, http2) => send_frames(stream, http2).await,
                _ => Ok(()),
            }
        }
    }

    /// Sends a GET with more fields (each line with its CRLF) and reads the response.
    pub(crate) async fn get(&mut self, target: &str, fields: &str) -> Response {
        let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n");
        self.ask(request.as_bytes()).await
    }

    /// Sends a HEAD with more fields and reads the response.
    pub(crate) async fn head(&mut self, target: &str, fields: &str) -> Response {
        let request = format!("HEAD {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n");
        self.send(request.as_bytes()).await.unwrap();
        self.response_to("HEAD").await.unwrap()
    }

    /// A client that has sent a GET for this target, so that the response may be stored.
    pub(crate) async fn after_get(target: &str) -> Client {
        let mut client = Client::new().await;
        client.get(target, "").await;
        client
    }

    /// Sends a request and reads the response, which must arrive.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Response {
        self.send(request).await.unwrap();
        self.response().await.unwrap()
    }

    /// Sends requests at once and reads the responses while it sends.
    pub(crate) async fn pipeline(&mut self, requests: &[u8], answers: usize) -> Vec<Response> {
        let sending = self.sending(requests);
        let reading = async {
            let mut got = Vec::new();
            for _ in 0..answers {
                got.push(self.response().await.unwrap());
            }
            got
        };
        let (sent, got) = runtime::join(sending, reading).await;
        sent.unwrap();
        got
    }

    pub(crate) async fn response(&mut self) -> Result<Response, Broken> {
        self.response_to("GET").await
    }

    /// The final response to a request with this method.
    pub(crate) async fn response_to(&mut self, method: &str) -> Result<Response, Broken> {
        // With fewer bytes it is not read again.
        let mut least = 0;
        loop {
            let next = match &self.wire {
                Wire::Http1(_) => None,
                Wire::Http2(_, http2) => http2.borrow_mut().answers.next(&mut self.interim),
                Wire::Http3(http3) => http3.with_answers(|all| all.next(&mut self.interim)),
            };
            if let Some(response) = next {
                return response;
            }
            while self.buf.len() >= least || self.ended {
                match read_response(&self.buf, method == "HEAD", self.ended) {
                    Ok((response, used)) => {
                        self.buf.drain(..used);
                        if response.status >= 200 {
                            return Ok(response);
                        }
                        self.interim.push(response.status);
                        least = 0;
                    }
                    Err(length) => {
                        least = length;
                        break;
                    }
                }
            }
            let is_within = match &self.wire {
                Wire::Http1(_) => !self.buf.is_empty(),
                Wire::Http2(_, http2) => http2.borrow().answers.is_within(),
                Wire::Http3(http3) => http3.with_answers(|all| all.is_within()),
            };
            let within = if is_within { Broken::Within } else { Broken::Ended };
            if self.ended {
                return Err(within);
            }
            match self.read().await {
                Ok(0) => self.ended = true,
                Ok(_) => {}
                Err(_) if within == Broken::Ended => return Err(Broken::Reset),
                Err(_) => return Err(Broken::Within),
            }
        }
    }

    async fn read(&mut self) -> std::io::Result<usize> {
        let mut piece = [0; 16 * 1024];
        let stream = match &self.wire {
            Wire::Http1(stream) => stream,
            Wire::Http2(stream, http2) => {
                // If the server does not read any more, this is seen below.
                let _ = send_frames(stream, http2).await;
                let read = stream.read(&mut piece).await?;
                http2.borrow_mut().receive(&piece[..read]);
                return Ok(read);
            }
            Wire::Http3(http3) => return http3.read(piece.len()).await,
        };
        let read = stream.read(&mut piece).await?;
        self.buf.extend_from_slice(&piece[..read]);
        Ok(read)
    }

    /// Takes at most this many bytes from the connection, whatever they are.
    pub(crate) async fn take(&self, bytes_max: usize) -> std::io::Result<usize> {
        match &self.wire {
            Wire::Http3(http3) => http3.read(bytes_max).await,
            _ => self.stream().read(&mut vec![0; bytes_max]).await,
        }
    }

    /// Waits for the end of the connection: true if nothing more arrived and it was no reset.
    pub(crate) async fn ends(&mut self) -> bool {
        self.response().await.unwrap_err() == Broken::Ended
    }

    /// True if nothing arrives for this long.
    pub(crate) async fn is_silent_for(&mut self, long: Duration) -> bool {
        let spoken = async {
            loop {
                let has_ended = !matches!(self.read().await, Ok(1..));
                // Frames that are about the connection alone say nothing.
                let has_come = match &self.wire {
                    Wire::Http1(_) => true,
                    Wire::Http2(_, http2) => http2.borrow().answers.has_come(),
                    Wire::Http3(http3) => http3.with_answers(|all| all.has_come()),
                };
                if has_ended || has_come {
                    return;
                }
            }
        };
        timeout(long, spoken).await.is_err()
    }
}

/// Sends the frames that wait. If they are being sent already, that goes on.
async fn send_frames(stream: &TcpStream, http2: &RefCell<Http2>) -> std::io::Result<()> {
    loop {
        let frames = http2.borrow_mut().frames();
        if frames.is_empty() {
            return Ok(());
        }
        let sent = stream.write_all(&frames).await;
        http2.borrow_mut().is_sending = false;
        sent?;
    }
}

/// A config with another log format.
pub(crate) fn combined() -> Config {
    Config { log_format: LogFormat::Combined, ..reverse() }
}
