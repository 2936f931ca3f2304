//! What the clients of HTTP/2 and HTTP/3 have in common. The scenarios write requests as the text
//! of HTTP/1: [`RequestText`] reads it, and [`Answers`] gives the responses in the order of the
//! requests.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;

use http2::{RequestFields, ResponseHead};

use crate::common::Response;
use crate::world::Broken;

/// Fields that later versions do not have (RFC 9113 section 8.2.2, RFC 9114 section 4.2), and the
/// one that they have in another place.
const NOT_SENT: [&str; 6] =
    ["connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Text that was not sent: the start of a head, or of a chunk.
#[derive(Debug, Default)]
pub(crate) struct RequestText {
    bytes: Vec<u8>,
    /// What further text is.
    content: Option<Content>,
}

#[derive(Debug)]
enum Content {
    /// Bytes that follow.
    Length(usize),
    Chunked,
}

/// A part of a request.
#[derive(Debug)]
pub(crate) enum Part {
    Head(Head),
    /// Content of the last request, and whether it is all.
    Content(Vec<u8>, bool),
    Trailers(Vec<(String, String)>),
}

#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) method: String,
    scheme: Option<String>,
    authority: String,
    path: String,
    fields: Vec<(String, String)>,
    /// There is no content.
    pub(crate) ends: bool,
}

impl Head {
    /// `scheme`: that of a request in origin-form.
    pub(crate) fn request<'a>(&'a self, scheme: &'a str) -> RequestFields<'a> {
        let is_connect = self.method == "CONNECT";
        let scheme = self.scheme.as_deref().unwrap_or(scheme);
        RequestFields {
            method: self.method.as_bytes(),
            scheme: (!is_connect).then_some(scheme.as_bytes()),
            authority: self.authority.as_bytes(),
            path: (!is_connect).then_some(self.path.as_bytes()),
            protocol: None,
        }
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        bytes_of(&self.fields)
    }
}

pub(crate) fn bytes_of(fields: &[(String, String)]) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

impl RequestText {
    pub(crate) fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
    }

    /// The next part that is complete. A request has to wait unless it `may_begin`.
    pub(crate) fn next(&mut self, may_begin: bool) -> Option<Part> {
        if self.bytes.is_empty() {
            return None;
        }
        let (used, part) = match self.content.take() {
            Some(Content::Length(left)) => self.length(left),
            Some(Content::Chunked) => self.chunk(),
            None if may_begin => self.head(),
            None => None,
        }?;
        self.bytes.drain(..used);
        Some(part)
    }

    fn head(&mut self) -> Option<(usize, Part)> {
        let end = self.bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&self.bytes[..end]).expect("a head is text");
        let mut lines = head.split("\r\n");
        let request_line: Vec<&str> = lines.next().expect("one at least").split(' ').collect();
        let [method, target, "HTTP/1.1" | "HTTP/1.0"] = request_line[..] else {
            panic!("no request over HTTP/2: {head:?}")
        };
        let mut fields: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap_or_else(|| panic!("field {line:?}")))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let field =
            |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, v)| &**v);
        let host = field("host").unwrap_or("");
        let (scheme, (authority, path)) = match target.split_once("://") {
            _ if method == "CONNECT" => (None, (target, "")),
            None => (None, (host, target)),
            Some((scheme, rest)) => {
                (Some(scheme), rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
            }
        };
        let content = match (field("content-length"), field("transfer-encoding")) {
            (Some(length), _) => Content::Length(length.parse().expect("a length")),
            (None, Some(_)) => Content::Chunked,
            (None, None) => Content::Length(0),
        };
        let ends = matches!(content, Content::Length(0)) && method != "CONNECT";
        let head = Head {
            method: method.to_owned(),
            scheme: scheme.map(str::to_owned),
            authority: authority.to_owned(),
            path: if path.is_empty() { "/" } else { path }.to_owned(),
            fields: Vec::new(),
            ends,
        };
        fields.retain(|(name, value)| {
            !NOT_SENT.contains(&name.as_str()) && (name != "te" || value == "trailers")
        });
        self.content = (!ends).then_some(content);
        Some((end + 4, Part::Head(Head { fields, ..head })))
    }

    fn length(&mut self, left: usize) -> Option<(usize, Part)> {
        let used = left.min(self.bytes.len());
        self.content = (used < left).then_some(Content::Length(left - used));
        Some((used, Part::Content(self.bytes[..used].to_vec(), used == left)))
    }

    /// One chunk, or the last one with the trailers.
    fn chunk(&mut self) -> Option<(usize, Part)> {
        self.content = Some(Content::Chunked);
        let line = self.bytes.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(&self.bytes[..line]).expect("a size is text");
        let size = size.split(';').next().expect("one at least").trim();
        let size = usize::from_str_radix(size, 16).expect("a size is hexadecimal");
        let from = line + 2;
        if size > 0 {
            let chunk = self.bytes.get(from..from + size + 2)?;
            return Some((from + size + 2, Part::Content(chunk[..size].to_vec(), false)));
        }
        let rest = &self.bytes[line..];
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n")?;
        let lines = std::str::from_utf8(&rest[..end]).expect("trailers are text");
        let fields = lines.split("\r\n").filter_map(|line| line.split_once(": "));
        let fields: Vec<_> = fields.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        self.content = None;
        let part = match fields.is_empty() {
            true => Part::Content(Vec::new(), true),
            false => Part::Trailers(fields),
        };
        Some((line + end + 4, part))
    }
}

/// The responses to requests, by their streams.
#[derive(Debug)]
pub(crate) struct Answers<Id> {
    /// Requests whose responses the scenario has not read.
    asked: VecDeque<Id>,
    answers: HashMap<Id, Answer>,
}

/// What has come of a response.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    interim: Vec<u16>,
    response: Option<Response>,
    pub(crate) is_whole: bool,
    pub(crate) is_broken: bool,
}

impl Answer {
    pub(crate) fn head(&mut self, head: &ResponseHead<'_>) {
        if head.status < 200 {
            return self.interim.push(head.status);
        }
        let text = |bytes| String::from_utf8(Vec::from(bytes)).expect("text");
        let fields = head.fields.iter().map(|(n, v)| (text(n), text(v))).collect();
        self.response = Some(Response { status: head.status, fields, body: Vec::new() });
    }

    pub(crate) fn content(&mut self, bytes: &[u8]) {
        let response = self.response.as_mut().expect("a head before content");
        response.body.extend_from_slice(bytes);
    }
}

impl<Id: Copy + Debug + Eq + Hash> Answers<Id> {
    pub(crate) fn new() -> Answers<Id> {
        Answers { asked: VecDeque::new(), answers: HashMap::new() }
    }

    /// A request was sent on this stream.
    pub(crate) fn ask(&mut self, stream: Id) {
        self.asked.push_back(stream);
        self.answers.insert(stream, Answer::default());
    }

    /// The answer on this stream, if the scenario has not read it.
    pub(crate) fn get(&mut self, stream: Id) -> Option<&mut Answer> {
        self.answers.get_mut(&stream)
    }

    /// The response to the oldest request, if it is whole or broken. Interim responses are moved to
    /// `interim` as they come.
    pub(crate) fn next(&mut self, interim: &mut Vec<u16>) -> Option<Result<Response, Broken>> {
        let stream = *self.asked.front()?;
        let answer = self.answers.get_mut(&stream).expect("listed with the request");
        interim.append(&mut answer.interim);
        let result = match answer {
            Answer { is_broken: true, response: Some(_), .. } => Err(Broken::Within),
            Answer { is_broken: true, .. } => Err(Broken::Ended),
            Answer { is_whole: true, response, .. } => Ok(response.take().expect("a head")),
            _ => return None,
        };
        self.asked.pop_front();
        self.answers.remove(&stream);
        Some(result)
    }

    /// These streams are not answered any more.
    pub(crate) fn break_if(&mut self, is_gone: impl Fn(Id) -> bool) {
        let gone = self.answers.iter_mut().filter(|(stream, _)| is_gone(**stream));
        gone.for_each(|(_, answer)| answer.is_broken = true);
    }

    /// Whether anything has come for any request.
    pub(crate) fn has_come(&self) -> bool {
        let came = |answer: &Answer| {
            answer.response.is_some() || answer.is_broken || !answer.interim.is_empty()
        };
        self.answers.values().any(came)
    }

    /// Whether a part of the next response has come.
    pub(crate) fn is_within(&self) -> bool {
        let next = self.asked.front().and_then(|stream| self.answers.get(stream));
        next.is_some_and(|answer| answer.response.is_some())
    }
}
