//! What clients send, from seeds.

use http2::hpack::encode_without_table;

/// Numbers that depend on the seed alone (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    fn is_one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 32;

type Field = (&'static str, &'static str);

/// A request that is right.
const RIGHT: [Field; 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "a.test"), (":path", "/x?y=1")];

/// Fields that a request may have.
const VALID: &[Field] = &[
    ("accept", "*/*"),
    ("user-agent", "one two"),
    ("cookie", "a=b"),
    ("te", "trailers"),
    ("x-empty", ""),
    ("x-tab", "a\tb"),
    ("x-latin", "caf\u{e9}"),
    ("accept-encoding", "gzip, deflate"),
    ("host", "a.test"),
];

/// Fields that it may not have, or not everywhere.
const WRONG: &[Field] = &[
    ("connection", "close"),
    ("keep-alive", "1"),
    ("proxy-connection", "close"),
    ("transfer-encoding", "chunked"),
    ("upgrade", "h2c"),
    ("te", "gzip"),
    ("Accept", "x"),
    ("x y", "z"),
    ("", "z"),
    ("x:y", "z"),
    ("x-lf", "a\nb"),
    ("x-cr", "a\rb"),
    ("x-nul", "a\0b"),
    ("x-space", " a"),
    ("x-space", "a "),
    ("host", "b.test"),
    (":unknown", "x"),
    (":status", "200"),
    (":method", "POST"),
    (":path", "/other"),
    (":protocol", "websocket"),
    ("content-length", "x"),
    ("content-length", "-1"),
    ("content-length", "99999999999999999999999"),
];

/// Values in the place of right ones.
const OTHER: &[Field] = &[
    (":method", "OPTIONS"),
    (":method", "PURGE"),
    (":method", "CONNECT"),
    (":method", "G T"),
    (":method", ""),
    (":scheme", "https"),
    (":scheme", "1x"),
    (":scheme", ""),
    (":authority", ""),
    (":authority", "a.test:8080"),
    (":authority", "user@a.test"),
    (":authority", "a test"),
    (":authority", "[::1]:80"),
    (":path", ""),
    (":path", "*"),
    (":path", "x"),
    (":path", "/a b"),
    (":path", "/a#b"),
    (":path", "/%7e\"<>"),
    (":path", "/\u{e9}"),
];

struct Client<'r> {
    random: &'r mut Random,
    out: Vec<u8>,
    /// Where frames begin.
    frames: Vec<usize>,
    /// Something is still to be wrong: a connection has one thing that is, or none.
    goes_wrong: bool,
    /// What the dynamic table contains, the latest first.
    table: Vec<Field>,
    table_bytes_max: usize,
}

/// The bytes of a connection.
pub(crate) fn generate(random: &mut Random) -> Vec<u8> {
    let out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let goes_wrong = !random.is_one_in(4);
    let (frames, table) = (Vec::new(), Vec::new());
    let mut client = Client { random, out, frames, goes_wrong, table, table_bytes_max: 4096 };
    client.frame(SETTINGS, 0, 0, &[]);
    let from = client.out.len();
    let mut stream = 1;
    for _ in 0..1 + client.random.below(4) {
        client.between(stream);
        client.request(stream);
        stream += if client.is_wrong(20) { client.random.below(4) as u32 } else { 2 };
    }
    client.between(stream);
    // After a field block without an end, any server refuses it.
    client.frame(PING, 0, 0, b"the last");
    let Client { random, mut out, frames, goes_wrong, .. } = client;
    let at = from + random.below(out.len() - from);
    // With another length, the frames that follow would be no frames.
    let is_length = frames.iter().any(|start| (*start..start + 3).contains(&at));
    if goes_wrong && !is_length {
        match random.below(2) {
            0 => out[at] ^= 1 << random.below(8),
            _ => out[at] = random.of(&[0, 1, 2, 0x3f, 0x40, 0x7f, 0x80, 0x82, 0xbe, 0xff]),
        }
    }
    out
}

impl Client<'_> {
    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.frames.push(self.out.len());
        self.out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        self.out.extend_from_slice(&[kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        self.out.extend_from_slice(payload);
    }

    /// Whether to do something wrong here, once in so many cases and once in a connection.
    fn is_wrong(&mut self, number: usize) -> bool {
        let is_wrong = self.goes_wrong && self.random.is_one_in(number);
        self.goes_wrong &= !is_wrong;
        is_wrong
    }

    /// Frames that may come between requests, and some that may not.
    fn between(&mut self, next: u32) {
        let before = self.random.below(next as usize) as u32 | 1;
        match self.random.below(12) {
            0 => self.frame(PING, 0, 0, b"12345678"),
            1 => self.frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]),
            2 => self.frame(SETTINGS, 0, 0, &[0xaa, 4, 0, 0, 0, 1]),
            3 => self.frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]),
            4 => self.frame(PRIORITY, 0, before, &[0, 0, 0, 0, 7]),
            5 => self.frame(0xbb, 0xff, before, b"unknown"),
            _ => {}
        }
        if !self.is_wrong(12) {
            return;
        }
        let stream = self.random.below(next as usize + 3) as u32;
        match self.random.below(12) {
            0 => self.frame(PING, 0, 0, b"1234567"),
            1 => self.frame(PING, 0, stream, b"12345678"),
            2 => self.frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0, 0, 9]),
            3 => self.frame(SETTINGS, 0, 0, &[0, 4, 0, 0]),
            4 => self.frame(SETTINGS, 0, stream, &[]),
            5 => self.frame(SETTINGS, 1, 0, &[0, 3, 0, 0, 0, 9]),
            6 => self.frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 0]),
            7 => self.frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff]),
            8 => self.frame(PRIORITY, 0, stream, &[0, 0, 0, stream as u8, 7]),
            9 => self.frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]),
            10 => self.frame(CONTINUATION, END_HEADERS, stream, &[0x82]),
            _ => self.frame(DATA, 0, stream, b"x"),
        }
    }

    fn request(&mut self, stream: u32) {
        let mut fields = RIGHT.to_vec();
        for _ in 0..self.random.below(4) {
            let field = self.random.of(VALID);
            if field.0 != "host" || !fields.contains(&field) {
                fields.push(field);
            }
        }
        let case = if self.is_wrong(2) { self.random.below(6) } else { 6 };
        match case {
            0 | 1 => {
                let at = self.random.below(fields.len() + 1);
                fields.insert(at, self.random.of(WRONG));
            }
            2 | 3 => {
                let other = self.random.of(OTHER);
                fields.iter_mut().filter(|field| field.0 == other.0).for_each(|f| *f = other);
            }
            4 => drop(fields.remove(self.random.below(fields.len()))),
            5 => {
                let (one, two) = (self.random.below(fields.len()), self.random.below(fields.len()));
                fields.swap(one, two);
            }
            _ => {}
        }
        let content = self.random.below(4) * 7;
        if self.random.is_one_in(3) {
            // Sometimes it is another.
            let length = if self.is_wrong(5) { 7 } else { content };
            fields.push(("content-length", ["0", "7", "14", "21"][length / 7]));
        }
        let ends = content == 0 && !self.random.is_one_in(4);
        self.head(stream, &fields, ends);
        if ends {
            return;
        }
        let has_trailers = self.random.is_one_in(4);
        self.content(stream, content, !has_trailers);
        if has_trailers {
            let trailer = if self.is_wrong(4) { self.random.of(WRONG) } else { ("x-sum", "1") };
            let ends = !self.is_wrong(8);
            self.head(stream, &[trailer], ends);
        }
        if self.is_wrong(20) {
            self.content(stream, 3, true);
        }
    }

    fn content(&mut self, stream: u32, mut left: usize, ends: bool) {
        loop {
            let part = 1 + self.random.below(left.max(1));
            let part = part.min(left);
            left -= part;
            let flags = if ends && left == 0 { END_STREAM } else { 0 };
            let content = vec![b'c'; part];
            if self.random.is_one_in(4) {
                let padding = self.random.below(5);
                let padded = [&[padding as u8], &content[..], &vec![0; padding]].concat();
                self.frame(DATA, flags | PADDED, stream, &padded);
            } else {
                self.frame(DATA, flags, stream, &content);
            }
            if left == 0 {
                return;
            }
        }
    }

    fn head(&mut self, stream: u32, fields: &[Field], ends: bool) {
        let mut block = Vec::new();
        if self.random.is_one_in(10) {
            self.resize(&mut block);
        }
        for field in fields {
            self.field(*field, &mut block);
        }
        let mut flags = if ends { END_STREAM } else { 0 };
        let mut payload = Vec::new();
        if self.random.is_one_in(6) {
            flags |= WITH_PRIORITY;
            let parent = if self.is_wrong(8) { stream as u8 } else { 0 };
            payload.extend_from_slice(&[0, 0, 0, parent, 3]);
        }
        let parts = 1 + self.random.below(8) / 6;
        let first = block.len() / parts;
        payload.extend_from_slice(&block[..first]);
        self.frame(HEADERS, flags | if parts == 1 { END_HEADERS } else { 0 }, stream, &payload);
        if parts > 1 {
            self.frame(CONTINUATION, END_HEADERS, stream, &block[first..]);
        }
    }

    /// Changes the size of the dynamic table.
    fn resize(&mut self, block: &mut Vec<u8>) {
        let too_much = if self.is_wrong(5) { 4097 } else { 4096 };
        self.table_bytes_max = self.random.of(&[0, 60, 150, too_much]);
        match self.table_bytes_max.checked_sub(31) {
            None => block.push(0x20),
            Some(more @ ..128) => block.extend_from_slice(&[0x3f, more as u8]),
            Some(more) => block.extend_from_slice(&[0x3f, more as u8 | 0x80, (more >> 7) as u8]),
        }
        self.evict();
    }

    fn evict(&mut self) {
        let mut bytes = 0;
        let mut fits = |(name, value): &Field| {
            bytes += name.len() + value.len() + 32;
            bytes <= self.table_bytes_max
        };
        let kept = self.table.iter().take_while(|field| fits(field)).count();
        self.table.truncate(kept);
    }

    fn field(&mut self, field: Field, block: &mut Vec<u8>) {
        let known = self.table.iter().position(|known| *known == field);
        if let Some(at) = known.filter(|at| *at < 60) {
            return block.push(0x80 + 62 + at as u8);
        }
        let (name, value) = field;
        match self.random.below(4) {
            // With Huffman codes and the static table.
            0 => encode_without_table(name.as_bytes(), value.as_bytes(), block),
            1 => {
                self.table.insert(0, field);
                self.evict();
                literal(0x40, field, block);
            }
            2 => literal(0x10, field, block),
            _ => literal(0, field, block),
        }
    }
}

fn literal(kind: u8, (name, value): Field, block: &mut Vec<u8>) {
    block.push(kind);
    for text in [name, value] {
        block.push(text.len() as u8);
        block.extend_from_slice(text.as_bytes());
    }
}
