//! Two servers that read a connection from memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use http2::{Connection, Event, Limits, Reason, Scratch};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A request: method, scheme, authority and path, and the other fields, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) pseudo: [String; 4],
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) content: String,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) is_whole: bool,
}

impl Request {
    /// Whether the types of `h2` can hold its target.
    pub(crate) fn is_uri(&self) -> bool {
        let [_, scheme, authority, path] = &self.pseudo;
        let uri = http::Uri::builder().scheme(scheme.as_str()).authority(authority.as_str());
        uri.path_and_query(path.as_str()).build().is_ok()
    }
}

/// What a server has made of a connection.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// By stream; without those that were reset.
    pub(crate) requests: BTreeMap<u32, Request>,
    /// The error codes that were sent, by stream; that of the connection is at 0.
    pub(crate) codes: BTreeMap<u32, u32>,
    /// The rules that were broken, if it is our server.
    pub(crate) reasons: Vec<Reason>,
}

impl Verdict {
    /// A connection error.
    pub(crate) fn is_dead(&self) -> bool {
        self.codes.contains_key(&0)
    }

    /// Requests on a connection that has ended in an error are lost in both.
    pub(crate) fn is_same(&self, other: &Verdict) -> bool {
        self.is_dead() == other.is_dead() && (self.is_dead() || self.requests == other.requests)
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The order of fields with different names is not kept by `h2`, and we join cookies.
pub(crate) fn sorted(fields: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut sorted: Vec<(String, String)> = Vec::new();
    for (name, value) in fields {
        match sorted.iter_mut().find(|(known, _)| name == "cookie" && known == "cookie") {
            Some((_, cookie)) => *cookie = format!("{cookie}; {value}"),
            None => sorted.push((name, value)),
        }
    }
    sorted.sort_by(|one, two| one.0.cmp(&two.0));
    sorted
}

fn escaped<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Vec<(String, String)> {
    sorted(fields.map(|(name, value)| (text(name), text(value))))
}

pub(crate) fn ours(bytes: &[u8]) -> Verdict {
    let (mut out, mut scratch, mut at) = (Vec::new(), Scratch::new(), 0);
    let mut connection = Connection::server(&Limits::DEFAULT, &mut out);
    let mut verdict = Verdict::default();
    loop {
        out.clear();
        let received = match connection.next_event(&bytes[at..], &mut scratch, 0, &mut out) {
            Ok(received) => received,
            Err(error) => {
                verdict.reasons.push(error.0);
                verdict.codes.insert(0, error.0.code().0);
                return verdict;
            }
        };
        at += received.consumed;
        let Some(event) = received.event else { return verdict };
        let requests = &mut verdict.requests;
        match event {
            Event::Request { stream, head, end_stream } => {
                let part = |bytes: Option<&[u8]>| text(bytes.unwrap_or_default());
                let pseudo =
                    [text(head.method), part(head.scheme), text(head.authority), part(head.path)];
                let fields = escaped(head.fields.iter());
                let request =
                    Request { pseudo, fields, is_whole: end_stream, ..Request::default() };
                requests.insert(stream, request);
            }
            Event::Data { stream, bytes, end_stream } => {
                let request = requests.get_mut(&stream).unwrap();
                request.content.push_str(&text(bytes));
                request.is_whole = end_stream;
                connection.release(stream, bytes.len(), &mut out);
            }
            Event::Trailers { stream, fields } => {
                let request = requests.get_mut(&stream).unwrap();
                request.trailers = escaped(fields.iter());
                request.is_whole = true;
            }
            // One that was complete before could have been answered.
            Event::Reset { stream, .. } if !requests[&stream].is_whole => {
                requests.remove(&stream);
            }
            Event::StreamError { stream, reason } => {
                verdict.reasons.push(reason);
                verdict.codes.insert(stream, reason.code().0);
                requests.remove(&stream);
            }
            _ => {}
        }
    }
}

/// Gives all input, and then nothing, without an end.
struct Memory<'b> {
    input: &'b [u8],
    output: Rc<RefCell<Vec<u8>>>,
}

impl AsyncRead for Memory<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            return Poll::Pending;
        }
        let (now, later) = self.input.split_at(self.input.len().min(into.remaining()));
        into.put_slice(now);
        self.input = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Memory<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.output.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

pub(crate) fn h2(bytes: &[u8]) -> Verdict {
    let output = Rc::new(RefCell::new(Vec::new()));
    let memory = Memory { input: bytes, output: Rc::clone(&output) };
    let limits = Limits::DEFAULT;
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(limits.stream_window_bytes)
        .initial_connection_window_size(limits.connection_window_bytes)
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.fields_bytes_max);
    let mut context = Context::from_waker(Waker::noop());
    let mut verdict = Verdict::default();
    let handshake = pin!(builder.handshake::<_, &'static [u8]>(memory));
    let mut connection = match handshake.poll(&mut context) {
        Poll::Ready(Ok(connection)) => connection,
        Poll::Ready(Err(_)) => return dead(&output.borrow()),
        Poll::Pending => return verdict,
    };
    // Dropping what answers a request would reset its stream.
    let mut accepted = Vec::new();
    loop {
        match connection.poll_accept(&mut context) {
            Poll::Ready(Some(Ok((request, respond)))) => accepted.push((request, respond)),
            Poll::Ready(Some(Err(_))) => return dead(&output.borrow()),
            Poll::Ready(None) | Poll::Pending => break,
        }
    }
    verdict.codes = codes(&output.borrow());
    for (request, respond) in &mut accepted {
        if let Some(seen) = seen(request, &mut context) {
            verdict.requests.insert(respond.stream_id().as_u32(), seen);
        }
    }
    verdict
}

/// After an error that it reports to its caller, whether it has sent a GOAWAY or not.
fn dead(frames: &[u8]) -> Verdict {
    let mut codes = codes(frames);
    codes.entry(0).or_insert(u32::MAX);
    Verdict { codes, ..Verdict::default() }
}

/// The request, if its stream was not reset.
fn seen(request: &mut http::Request<h2::RecvStream>, cx: &mut Context<'_>) -> Option<Request> {
    let uri = request.uri();
    let of = |part: Option<&str>| text(part.unwrap_or_default().as_bytes());
    let mut pseudo = [
        text(request.method().as_str().as_bytes()),
        of(uri.scheme_str()),
        of(uri.authority().map(|authority| authority.as_str())),
        of(uri.path_and_query().map(|path| path.as_str())),
    ];
    if uri.authority().is_none()
        && let Some(host) = request.headers().get("host")
    {
        // We take the Host field then. Its type for a URI has no scheme without an authority.
        [pseudo[1], pseudo[2]] = ["http".to_owned(), text(host.as_bytes())];
    }
    let fields = of_map(request.headers());
    let body = request.body_mut();
    let mut content = String::new();
    let mut trailers = Vec::new();
    let is_whole = loop {
        match body.poll_data(cx) {
            Poll::Ready(Some(Ok(piece))) => content.push_str(&text(&piece)),
            Poll::Ready(Some(Err(_))) => return None,
            Poll::Pending => break false,
            Poll::Ready(None) => match body.poll_trailers(cx) {
                Poll::Ready(Ok(found)) => {
                    trailers = found.as_ref().map(of_map).unwrap_or_default();
                    break true;
                }
                Poll::Ready(Err(_)) => return None,
                Poll::Pending => break false,
            },
        }
    };
    Some(Request { pseudo, fields, content, trailers, is_whole })
}

fn of_map(fields: &http::HeaderMap) -> Vec<(String, String)> {
    escaped(fields.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())))
}

/// The error codes in frames, as in [`Verdict`].
pub(crate) fn codes(mut frames: &[u8]) -> BTreeMap<u32, u32> {
    const RST_STREAM: u8 = 3;
    const GOAWAY: u8 = 7;
    let mut codes = BTreeMap::new();
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    while let [a, b, c, kind, _, rest @ ..] = frames {
        let (payload, after) = rest[4..].split_at(number(&[*a, *b, *c]) as usize);
        match *kind {
            RST_STREAM => drop(codes.insert(number(&rest[..4]), number(payload))),
            GOAWAY if payload[4..8] != [0; 4] => drop(codes.insert(0, number(&payload[4..8]))),
            _ => {}
        }
        frames = after;
    }
    codes
}
