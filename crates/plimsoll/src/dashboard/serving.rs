//! The connections: a thread for each, one request on each.
//!
//! What never happens: more than [`CONNECTIONS_MAX`] threads; a head above [`HEAD_BYTES_MAX`]; a
//! client that sends or reads too slowly keeps a thread.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::dashboard::{
    Access, Asked, Feed, HEARTBEAT, HEARTBEAT_S, RETRY, Refused, Snapshot, events_head,
    page_response, refusal,
};
use command::failure::{Failure, misuse};
use http1::{Limits, Method, Scratch, parse_request};

const CONNECTIONS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long a client may take to send its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to accept an event.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The newest figures, and how many pages watch them.
#[derive(Default)]
pub(super) struct Board {
    state: Mutex<State>,
    /// There is a new event, or a page was opened.
    changed: Condvar,
    connections: AtomicUsize,
}

#[derive(Default)]
struct State {
    feed: Feed,
    pages: usize,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends new figures to all pages.
    pub(super) fn show(&self, snapshot: Snapshot) {
        self.state().feed.push(snapshot);
        self.changed.notify_all();
    }

    /// Adds a remark to the figures shown.
    pub(super) fn note(&self, text: &str) {
        let mut source = self.state().feed.newest().source.clone().unwrap_or_default();
        source.notes = vec![text.to_owned()];
        self.show(Snapshot { source: Some(source), ..Snapshot::default() });
    }

    /// Whether a page is open. If none is, waits for one, but not for longer than `patience`.
    pub(super) fn is_watched(&self, patience: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.state(), patience, |at| at.pages == 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.pages > 0
    }

    /// The next event for a page that has seen this number last; `None`: there was none for the
    /// time of a heartbeat.
    fn next(&self, seen: Option<u64>) -> Option<(u64, String)> {
        let patience = Duration::from_secs(HEARTBEAT_S);
        let nothing_new = |state: &mut State| match seen {
            Some(seen) => state.feed.number() == seen,
            None => state.feed.number() == 0,
        };
        let waited = self.changed.wait_timeout_while(self.state(), patience, nothing_new);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        Some((state.feed.number(), state.feed.event_after(seen)?))
    }
}

/// An open page.
struct Page<'b>(&'b Board);

impl<'b> Page<'b> {
    fn open(board: &'b Board) -> Page<'b> {
        board.state().pages += 1;
        board.changed.notify_all();
        Page(board)
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        self.0.state().pages -= 1;
    }
}

/// An open connection.
struct Connection(Arc<Board>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts connections, in a thread that ends with the process.
pub(super) fn start(
    listener: TcpListener,
    access: Access,
    board: Arc<Board>,
) -> Result<(), Failure> {
    let access = Arc::new(access);
    let accept = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            let open = board.connections.fetch_add(1, Ordering::Relaxed);
            let connection = Connection(Arc::clone(&board));
            if open >= CONNECTIONS_MAX {
                continue;
            }
            let access = Arc::clone(&access);
            // If no thread can be started, the connection closes.
            let _ = std::thread::Builder::new()
                .name("page".into())
                .spawn(move || serve(stream, &access, &connection.0));
        }
    };
    std::thread::Builder::new().name("accept".into()).spawn(accept).map_err(misuse)?;
    Ok(())
}

/// A client that goes away is no failure, so errors end the connection and nothing else.
fn serve(mut stream: TcpStream, access: &Access, board: &Board) {
    let served = stream.set_write_timeout(Some(WRITE_TIMEOUT)).and_then(|()| {
        match read_request(&mut stream, access)? {
            Wanted::Answer(bytes) => stream.write_all(&bytes),
            Wanted::Events => send_events(&mut stream, board),
        }
    });
    drop(served);
}

enum Wanted {
    Answer(Vec<u8>),
    Events,
}

fn read_request(stream: &mut TcpStream, access: &Access) -> io::Result<Wanted> {
    let deadline = Instant::now() + HEAD_TIMEOUT;
    let (mut got, mut scratch) = (Vec::new(), Box::new(Scratch::new()));
    let mut limits = Limits::default();
    limits.head_bytes_max = HEAD_BYTES_MAX;
    loop {
        match parse_request(&got, &mut scratch, &limits) {
            Ok(None) => {}
            Ok(Some(head)) => {
                let path = head.target_bytes.split(|byte| *byte == b'?').next();
                return wanted(head.method, path.unwrap_or_default(), access, &Asked::of(&head));
            }
            Err(why) => return Ok(Wanted::Answer(refusal(why.status, why.reason.text()))),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => got.extend_from_slice(&buffer[..n]),
        }
    }
}

fn wanted(method: Method, path: &[u8], access: &Access, asked: &Asked<'_>) -> io::Result<Wanted> {
    let refused = |Refused { status, text }| Ok(Wanted::Answer(refusal(status, text)));
    match path {
        _ if method != Method::Get => refused(Refused { status: 405, text: "only GET is served" }),
        b"/" | b"/dashboard" => match access.admits_to_page(asked) {
            Ok(()) => {
                let nonce = super::random().map_err(|error| io::Error::other(error.to_string()))?;
                Ok(Wanted::Answer(page_response(u128::from_ne_bytes(nonce))))
            }
            Err(why) => refused(why),
        },
        b"/events" => match access.admits_to_events(asked) {
            Ok(()) => Ok(Wanted::Events),
            Err(why) => refused(why),
        },
        _ => refused(Refused { status: 404, text: "there are / and /events" }),
    }
}

fn send_events(stream: &mut TcpStream, board: &Board) -> io::Result<()> {
    let _page = Page::open(board);
    stream.write_all(&events_head())?;
    stream.write_all(RETRY.as_bytes())?;
    let mut seen = None;
    loop {
        match board.next(seen) {
            Some((number, event)) => {
                stream.write_all(event.as_bytes())?;
                seen = Some(number);
            }
            None => stream.write_all(HEARTBEAT.as_bytes())?,
        }
    }
}
