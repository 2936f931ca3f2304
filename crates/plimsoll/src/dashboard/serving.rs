//! The connections: a thread for each, one request on each.
//!
//! What never happens: more than [`HEADS_MAX`] and [`PAGES_MAX`] threads; a head above
//! [`HEAD_BYTES_MAX`]; a client that sends or reads too slowly keeps a thread; clients that have
//! not shown that they may read take the place of those that have.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::dashboard::{
    Access, Asked, Feed, HEARTBEAT, HEARTBEAT_S, RETRY, Refused, Snapshot, Source, Stale,
    events_head, page_response, refusal,
};
use command::failure::{Failure, misuse};
use http1::{Limits, Method, Scratch, parse_request};

/// Connections that have not asked for events yet, or may not have them.
const HEADS_MAX: usize = 64;
/// Those of one address.
const HEADS_OF_ADDRESS_MAX: usize = 8;
/// Connections that get events.
const PAGES_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// How long a client may take to send its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
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
    /// The addresses of connections that have not asked for events yet.
    heads: Mutex<Vec<IpAddr>>,
}

#[derive(Default)]
struct State {
    feed: Feed,
    pages: usize,
    /// While the source cannot be read: its description before, and the one shown.
    failed: Option<(Source, Source)>,
}

impl Board {
    fn heads(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends new figures to all pages.
    pub(super) fn show(&self, snapshot: Snapshot) {
        self.state().feed.push(snapshot);
        self.changed.notify_all();
    }

    /// Says that the figures are out of date, and why.
    pub(super) fn fail(&self, why: &str, now_s: f64) {
        let mut state = self.state();
        let source = state.feed.newest().source.clone().unwrap_or_default();
        if state.failed.as_ref().is_none_or(|(_, shown)| *shown != source) {
            let since_s = source.stale.as_ref().map_or(now_s, |stale| stale.since_s);
            let stale = Some(Stale { since_s, why: why.to_owned() });
            let shown = Source { stale, ..source.clone() };
            state.failed = Some((source, shown.clone()));
            drop(state);
            self.show(Snapshot { source: Some(shown), ..Snapshot::default() });
        }
    }

    /// Says that the source can be read again.
    pub(super) fn recover(&self) {
        let mut state = self.state();
        if let Some((before, shown)) = state.failed.take()
            && state.feed.newest().source.as_ref() == Some(&shown)
        {
            drop(state);
            self.show(Snapshot { source: Some(before), ..Snapshot::default() });
        }
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
    /// `None` if too many are open.
    fn open(board: &'b Board) -> Option<Page<'b>> {
        let mut state = board.state();
        if state.pages >= PAGES_MAX {
            return None;
        }
        state.pages += 1;
        board.changed.notify_all();
        Some(Page(board))
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        self.0.state().pages -= 1;
    }
}

/// A connection that has not asked for events yet.
struct Head {
    board: Arc<Board>,
    address: IpAddr,
}

impl Head {
    /// `None` if there are too many, of this address or in all.
    fn open(board: &Arc<Board>, address: IpAddr) -> Option<Head> {
        let address = match address.to_canonical() {
            // A client has all addresses of such a network.
            IpAddr::V6(of) => IpAddr::V6((of.to_bits() & !u128::from(u64::MAX)).into()),
            of => of,
        };
        let mut heads = board.heads();
        let same = heads.iter().filter(|of| **of == address).count();
        if same >= HEADS_OF_ADDRESS_MAX || heads.len() >= HEADS_MAX {
            return None;
        }
        heads.push(address);
        Some(Head { board: Arc::clone(board), address })
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        let mut heads = self.board.heads();
        if let Some(at) = heads.iter().position(|of| *of == self.address) {
            heads.swap_remove(at);
        }
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
        loop {
            let stream = listener.accept();
            let Ok((mut stream, client)) = stream else {
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            let Some(head) = Head::open(&board, client.ip()) else {
                // This goes into the empty buffer of a new connection, or nowhere.
                let _ = stream
                    .set_nonblocking(true)
                    .and_then(|()| stream.write_all(&full("too many connections are open")));
                continue;
            };
            let access = Arc::clone(&access);
            // If no thread can be started, the connection closes.
            let _ = std::thread::Builder::new()
                .name("page".into())
                .spawn(move || serve(stream, &access, head));
        }
    };
    std::thread::Builder::new().name("accept".into()).spawn(accept).map_err(misuse)?;
    Ok(())
}

/// A client that goes away is no failure, so errors end the connection and nothing else.
fn serve(mut stream: TcpStream, access: &Access, head: Head) {
    let served = stream.set_write_timeout(Some(WRITE_TIMEOUT)).and_then(|()| {
        match read_request(&mut stream, access)? {
            Wanted::Answer(bytes) => stream.write_all(&bytes),
            Wanted::Events => {
                let board = Arc::clone(&head.board);
                let Some(_page) = Page::open(&board) else {
                    return stream.write_all(&full("too many pages are open; close one"));
                };
                drop(head);
                send_events(&mut stream, &board)
            }
        }
    });
    drop(served);
}

fn full(text: &str) -> Vec<u8> {
    refusal(503, text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_connections_of_one_address_leave_room_for_others() {
        let board = Arc::new(Board::default());
        let address = |text: &str| text.parse::<IpAddr>().expect("it is an address");
        let one = || Head::open(&board, address("192.0.2.1"));
        let mut silent: Vec<_> = std::iter::from_fn(one).collect();
        assert_eq!(silent.len(), HEADS_OF_ADDRESS_MAX);
        assert!(Head::open(&board, address("::ffff:192.0.2.1")).is_none());
        assert!(Head::open(&board, address("192.0.2.2")).is_some());
        silent.pop();
        assert!(one().is_some());
        let k = std::cell::Cell::new(0);
        let network = || {
            k.set(k.get() + 1);
            Head::open(&board, address(&format!("2001:db8::{}", k.get())))
        };
        let of_network: Vec<_> = std::iter::from_fn(network).collect();
        assert_eq!(of_network.len(), HEADS_OF_ADDRESS_MAX);
        drop((silent, of_network));
        assert!(board.heads().is_empty());
        let pages: Vec<_> = std::iter::from_fn(|| Page::open(&board)).collect();
        assert_eq!(pages.len(), PAGES_MAX);
        assert!(one().is_some(), "pages take no place of heads");
    }

    #[test]
    fn an_error_is_gone_after_the_next_successful_look() {
        let board = Board::default();
        let source = Source { name: "s".to_owned(), ..Source::default() };
        board.show(Snapshot { source: Some(source.clone()), ..Snapshot::default() });
        let shown = || board.state().feed.newest().source.clone().unwrap_or_default();
        for now_s in [5.0, 6.0] {
            board.fail("no such file", now_s);
            let stale = shown().stale.expect("it is out of date");
            assert_eq!((stale.since_s, &*stale.why), (5.0, "no such file"));
        }
        board.recover();
        assert_eq!(shown(), source);
        board.fail("no such file", 7.0);
        let newer = Source { detail: "newer".to_owned(), ..source };
        board.show(Snapshot { source: Some(newer.clone()), ..Snapshot::default() });
        board.recover();
        assert_eq!(shown(), newer);
    }
}
