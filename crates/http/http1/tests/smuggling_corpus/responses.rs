//! Attacks by an origin.
//!
//! `✂` at the end: the origin closes the connection there. Bytes that a client must never receive
//! are called `poison`.

/// What the client gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// 502, or a response that is visibly truncated.
    Bad,
    /// Exactly this status and body, and nothing after it.
    Whole(u16, &'static str),
}

/// An attack by an origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    /// The method of the request.
    pub(crate) method: &'static str,
    pub(crate) attack: &'static str,
    pub(crate) got: Got,
    /// 200 with the body `ok`, or without a body if the method has none.
    pub(crate) control: &'static str,
}

const fn bad(
    class: &'static str,
    name: &'static str,
    attack: &'static str,
    control: &'static str,
) -> Answer {
    Answer { class, name, method: "GET", attack, got: Got::Bad, control }
}

/// There is only one interpretation, which gives `ok`.
const fn fine(
    class: &'static str,
    name: &'static str,
    attack: &'static str,
    control: &'static str,
) -> Answer {
    Answer { got: Got::Whole(200, "ok"), ..bad(class, name, attack, control) }
}

const PLAIN: &str = "HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok";
const CHUNKED: &str = "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎2⏎ok⏎0⏎⏎";
const STORED: &str = "HTTP/1.1 200 OK⏎Cache-Control: max-age=60⏎Content-Length: 2⏎⏎ok";

/// An unsolicited response.
macro_rules! poison {
    () => {
        "HTTP/1.1 200 OK⏎Content-Length: 6⏎⏎poison"
    };
}

/// A response with these fields and the body `ok`.
macro_rules! fields {
    ($fields:literal) => {
        concat!("HTTP/1.1 200 OK⏎", $fields, "⏎Content-Length: 2⏎⏎ok")
    };
}

/// A chunked response with this body.
macro_rules! chunked {
    ($body:literal) => {
        concat!("HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎", $body)
    };
}

/// All cases.
pub(crate) fn all() -> Vec<Answer> {
    [FRAMING, SPLITTING, STATUS_LINES, CHUNKS, INTERIM, BODILESS, EXTRA, ENDS, HOP_BY_HOP].concat()
}

const FRAMING: &[Answer] = &[
    fine(
        "two framings",
        "length and chunks",
        "HTTP/1.1 200 OK⏎Content-Length: 2⏎Transfer-Encoding: chunked⏎⏎2⏎ok⏎0⏎⏎",
        CHUNKED,
    ),
    fine(
        "two framings",
        "chunks and length",
        "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎Content-Length: 2⏎⏎2⏎ok⏎0⏎⏎",
        CHUNKED,
    ),
    bad(
        "two framings",
        "two lengths that differ",
        concat!("HTTP/1.1 200 OK⏎Content-Length: 2⏎Content-Length: 43⏎⏎ok", poison!()),
        PLAIN,
    ),
    fine(
        "two framings",
        "two lengths that are equal",
        "HTTP/1.1 200 OK⏎Content-Length: 2⏎Content-Length: 2⏎⏎ok",
        PLAIN,
    ),
    fine("CL value", "a list", "HTTP/1.1 200 OK⏎Content-Length: 2, 2⏎⏎ok", PLAIN),
    bad("CL value", "a plus", "HTTP/1.1 200 OK⏎Content-Length: +2⏎⏎ok", PLAIN),
    bad("CL value", "a minus", "HTTP/1.1 200 OK⏎Content-Length: -2⏎⏎ok", PLAIN),
    bad("CL value", "empty", "HTTP/1.1 200 OK⏎Content-Length:⏎⏎ok", PLAIN),
    bad("CL value", "hexadecimal", "HTTP/1.1 200 OK⏎Content-Length: 0x2⏎⏎ok", PLAIN),
    bad(
        "CL value",
        "beyond 64 bits",
        "HTTP/1.1 200 OK⏎Content-Length: 18446744073709551618⏎⏎ok",
        PLAIN,
    ),
    bad("TE.TE", "xchunked", "HTTP/1.1 200 OK⏎Transfer-Encoding: xchunked⏎⏎2⏎ok⏎0⏎⏎✂", CHUNKED),
    bad(
        "TE.TE",
        "chunked, identity",
        "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked, identity⏎⏎2⏎ok⏎0⏎⏎✂",
        CHUNKED,
    ),
    bad(
        "TE.TE",
        "a space before the colon",
        "HTTP/1.1 200 OK⏎Content-Length: 12⏎Transfer-Encoding : chunked⏎⏎2⏎ok⏎0⏎⏎",
        CHUNKED,
    ),
    bad(
        "two framings",
        "a length and no coding",
        "HTTP/1.1 200 OK⏎Transfer-Encoding: identity⏎Content-Length: 2⏎⏎ok✂",
        PLAIN,
    ),
    bad(
        "TE.TE",
        "folded",
        "HTTP/1.1 200 OK⏎Content-Length: 12⏎Transfer-Encoding:⏎ chunked⏎⏎2⏎ok⏎0⏎⏎",
        CHUNKED,
    ),
    bad("TE.TE", "in HTTP/1.0", "HTTP/1.0 200 OK⏎Transfer-Encoding: chunked⏎⏎2⏎ok⏎0⏎⏎✂", CHUNKED),
];

const SPLITTING: &[Answer] = &[
    bad("splitting", "LF in a value", fields!("X: a␊Set-Cookie: poison"), fields!("X: a")),
    bad("splitting", "CR in a value", fields!("X: a␍Set-Cookie: poison"), fields!("X: a")),
    bad(
        "splitting",
        "CR CR in a value",
        fields!("X: a␍␍HTTP/1.1 200 OK"),
        fields!("X: aHTTP/1.1 200 OK"),
    ),
    bad("splitting", "NUL in a value", fields!("X: a␀b"), fields!("X: ab")),
    fine("splitting", "a folded value", fields!("X: a⏎ Set-Cookie: poison"), fields!("X: a")),
    fine("splitting", "a space before the colon", fields!("X : a"), fields!("X: a")),
    bad("splitting", "a space before the first field", fields!(" X: a"), fields!("X: a")),
    bad("splitting", "no colon", fields!("HTTP/1.1 200 OK"), fields!("X: HTTP/1.1 200 OK")),
    fine("splitting", "a control in a value", fields!("X: a\x0bY: b"), fields!("X: aY: b")),
    bad("splitting", "CR in the reason", "HTTP/1.1 200 OK␍X: a⏎Content-Length: 2⏎⏎ok", PLAIN),
    bad(
        "splitting",
        "the head ends in a field",
        concat!("HTTP/1.1 200 OK⏎X: ⏎⏎", poison!(), "✂"),
        fields!("X:"),
    )
    .is_the_body_then(),
    fine(
        "splitting",
        "encoded line ends in Location",
        fields!("Location: /%0d%0a%0d%0aHTTP/1.1%20200%20OK"),
        fields!("Location: /"),
    ),
    fine(
        "splitting",
        "letters that end in CR and LF when cut to a byte",
        fields!("X: a嘍嘊嘍嘊HTTP/1.1 200 OK"),
        fields!("X: a"),
    ),
];

impl Answer {
    /// The body is everything after the head, up to the close.
    const fn is_the_body_then(self) -> Answer {
        Answer {
            got: Got::Whole(200, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"),
            ..self
        }
    }
}

const STATUS_LINES: &[Answer] = &[
    bad("status line", "HTTP/0.9", "poison✂", PLAIN),
    bad("status line", "version 2.0", "HTTP/2.0 200 OK⏎Content-Length: 2⏎⏎ok", PLAIN),
    bad("status line", "http in lower case", "http/1.1 200 OK⏎Content-Length: 2⏎⏎ok", PLAIN),
    bad("status line", "four digits", "HTTP/1.1 2000 OK⏎Content-Length: 2⏎⏎ok", PLAIN),
    bad("status line", "two digits", "HTTP/1.1 20 OK⏎Content-Length: 2⏎⏎ok", PLAIN),
    Answer {
        got: Got::Whole(999, "ok"),
        ..fine("status line", "999", "HTTP/1.1 999 OK⏎Content-Length: 2⏎⏎ok", PLAIN)
    },
    fine("status line", "LF behind all lines", "HTTP/1.1 200 OK␊Content-Length: 2␊␊ok", PLAIN),
    bad(
        "status line",
        "LF behind the first line",
        "HTTP/1.1 200 OK␊A: b⏎Content-Length: 2⏎⏎",
        PLAIN,
    ),
    bad("status line", "three digits below 100", "HTTP/1.1 099 OK⏎Content-Length: 2⏎⏎ok", PLAIN),
    fine("status line", "two spaces", "HTTP/1.1  200 OK⏎Content-Length: 2⏎⏎ok", PLAIN),
    bad("status line", "a tab", "HTTP/1.1\t200 OK⏎Content-Length: 2⏎⏎ok", PLAIN),
    bad("status line", "LF behind it", "HTTP/1.1 200 OK␊Content-Length: 2⏎⏎ok", PLAIN),
    bad("status line", "an empty line before it", "⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok", PLAIN),
    bad("status line", "a request", "GET / HTTP/1.1⏎Content-Length: 2⏎⏎ok", PLAIN),
];

const CHUNKS: &[Answer] = &[
    bad("chunks", "0x", chunked!("0x2⏎ok⏎0⏎⏎"), CHUNKED),
    fine("chunks", "a space behind the size", chunked!("2 ⏎ok⏎0⏎⏎"), CHUNKED),
    bad("chunks", "no CRLF behind the data", chunked!("2⏎ok0⏎⏎"), CHUNKED),
    bad("chunks", "LF behind the data", chunked!("2⏎ok␊0⏎⏎"), CHUNKED),
    bad("chunks", "LF behind the size", chunked!("2␊ok⏎0⏎⏎"), CHUNKED),
    bad("chunks", "LF in an extension", chunked!("2;x␊ok⏎0⏎⏎"), chunked!("2;x⏎ok⏎0⏎⏎")),
    bad(
        "chunks",
        "a size that is 0 when wrapped",
        concat!(chunked!("10000000000000000⏎⏎"), poison!()),
        CHUNKED,
    ),
    bad("chunks", "a minus", chunked!("-2⏎ok⏎0⏎⏎"), CHUNKED),
    bad("chunks", "LF for the last empty line", chunked!("2⏎ok⏎0⏎␊"), CHUNKED),
    bad("chunks", "LF ends a trailer", chunked!("2⏎ok⏎0⏎X: a␊⏎"), chunked!("2⏎ok⏎0⏎X: a⏎⏎")),
    fine(
        "chunks",
        "trailers that frame",
        chunked!("2⏎ok⏎0⏎Content-Length: 6⏎Transfer-Encoding: x⏎⏎"),
        CHUNKED,
    ),
];

const INTERIM: &[Answer] = &[
    bad(
        "1xx",
        "101 without an Upgrade request",
        concat!("HTTP/1.1 101 Switching Protocols⏎Connection: Upgrade⏎Upgrade: x⏎⏎", poison!()),
        PLAIN,
    ),
    bad(
        "1xx",
        "with a body",
        concat!("HTTP/1.1 103 Early Hints⏎Content-Length: 6⏎⏎poison", poison!()),
        "HTTP/1.1 103 Early Hints⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
    ),
    fine(
        "1xx",
        "with a length",
        "HTTP/1.1 103 Early Hints⏎Content-Length: 45⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
        "HTTP/1.1 103 Early Hints⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
    ),
    Answer {
        // A method that is passed through, for which interim responses are passed on.
        method: "DELETE",
        ..fine(
            "1xx",
            "with a length, passed on",
            "HTTP/1.1 103 Early Hints⏎Content-Length: 45⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
            "HTTP/1.1 103 Early Hints⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
        )
    },
    Answer {
        method: "DELETE",
        ..bad(
            "1xx",
            "with chunks, passed on",
            "HTTP/1.1 103 Early Hints⏎Transfer-Encoding: chunked⏎⏎6⏎poison⏎0⏎⏎\
             HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
            "HTTP/1.1 103 Early Hints⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
        )
    },
    Answer {
        method: "DELETE",
        ..fine(
            "1xx",
            "that closes, passed on",
            "HTTP/1.1 103 Early Hints⏎Connection: close⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
            PLAIN,
        )
    },
    fine(
        "1xx",
        "100 without an Expect request",
        "HTTP/1.1 100 Continue⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
        PLAIN,
    ),
    bad(
        "1xx",
        "a status below 100",
        concat!("HTTP/1.1 099 X⏎⏎", poison!()),
        "HTTP/1.1 199 X⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok",
    ),
    fine(
        "1xx",
        "behind the final response",
        "HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎okHTTP/1.1 100 Continue⏎⏎",
        PLAIN,
    ),
];

const BODILESS: &[Answer] = &[
    Answer {
        got: Got::Whole(204, ""),
        ..bad("no body", "204 with one", "HTTP/1.1 204 No Content⏎Content-Length: 6⏎⏎poison", PLAIN)
    },
    Answer {
        got: Got::Whole(204, ""),
        ..bad(
            "no body",
            "204 with a response",
            concat!("HTTP/1.1 204 No Content⏎⏎", poison!()),
            PLAIN,
        )
    },
    Answer {
        got: Got::Whole(204, ""),
        ..bad(
            "no body",
            "204 with chunks",
            "HTTP/1.1 204 No Content⏎Transfer-Encoding: chunked⏎⏎6⏎poison⏎0⏎⏎",
            PLAIN,
        )
    },
    Answer {
        got: Got::Whole(304, ""),
        ..bad(
            "no body",
            "304 with one",
            "HTTP/1.1 304 Not Modified⏎Content-Length: 6⏎⏎poison",
            PLAIN,
        )
    },
    Answer {
        method: "HEAD",
        got: Got::Whole(200, ""),
        ..bad("no body", "HEAD with one", poison!(), "HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎")
    },
    Answer {
        method: "HEAD",
        got: Got::Whole(200, ""),
        ..bad(
            "no body",
            "HEAD with chunks",
            chunked!("6⏎poison⏎0⏎⏎"),
            "HTTP/1.1 200 OK⏎Transfer-Encoding: chunked⏎⏎",
        )
    },
    Answer {
        method: "HEAD",
        got: Got::Whole(200, ""),
        ..bad("no body", "HEAD up to the close", "HTTP/1.1 200 OK⏎⏎poison✂", "HTTP/1.1 200 OK⏎⏎✂")
    },
    Answer {
        method: "HEAD",
        got: Got::Whole(200, ""),
        ..bad(
            "no body",
            "HEAD, and its body later",
            "HTTP/1.1 200 OK⏎Content-Length: 6⏎⏎⏸poison",
            "HTTP/1.1 200 OK⏎Content-Length: 6⏎⏎",
        )
    },
];

/// Response queue poisoning: these would answer the next request on the pooled connection.
const EXTRA: &[Answer] = &[
    fine(
        "extra bytes",
        "a response behind a length",
        concat!("HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok", poison!()),
        PLAIN,
    ),
    fine(
        "extra bytes",
        "a response behind a length, later",
        concat!("HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok⏸", poison!()),
        PLAIN,
    ),
    fine(
        "extra bytes",
        "a response behind chunks",
        concat!(chunked!("2⏎ok⏎0⏎⏎"), poison!()),
        CHUNKED,
    ),
    fine(
        "extra bytes",
        "a response behind chunks, later",
        concat!(chunked!("2⏎ok⏎0⏎⏎⏸"), poison!()),
        CHUNKED,
    ),
    fine(
        "extra bytes",
        "a response behind one that is stored",
        concat!("HTTP/1.1 200 OK⏎Cache-Control: max-age=60⏎Content-Length: 2⏎⏎ok", poison!()),
        STORED,
    ),
    fine(
        "extra bytes",
        "a response behind one that is stored, later",
        concat!("HTTP/1.1 200 OK⏎Cache-Control: max-age=60⏎Content-Length: 2⏎⏎ok⏸", poison!()),
        STORED,
    ),
    fine(
        "extra bytes",
        "more than announced",
        "HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎okpoison",
        PLAIN,
    ),
    fine("extra bytes", "a line end", "HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok⏎", PLAIN),
    fine(
        "extra bytes",
        "half a head",
        "HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎okHTTP/1.1 200 OK⏎X: poison",
        PLAIN,
    ),
    fine(
        "extra bytes",
        "behind a length of 0 of another",
        concat!("HTTP/1.1 103 X⏎⏎HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok", poison!()),
        PLAIN,
    ),
    Answer {
        method: "DELETE",
        ..fine(
            "extra bytes",
            "a response, passed on",
            concat!("HTTP/1.1 200 OK⏎Content-Length: 2⏎⏎ok", poison!()),
            PLAIN,
        )
    },
    Answer {
        got: Got::Whole(404, "ok"),
        ..fine(
            "extra bytes",
            "a response behind an error",
            concat!("HTTP/1.1 404 X⏎Content-Length: 2⏎⏎ok", poison!()),
            PLAIN,
        )
    },
];

const ENDS: &[Answer] = &[
    bad("short", "fewer bytes than announced", "HTTP/1.1 200 OK⏎Content-Length: 9⏎⏎ok✂", PLAIN),
    bad("short", "no last chunk", chunked!("2⏎ok⏎✂"), CHUNKED),
    bad("short", "a chunk cut", chunked!("9⏎ok✂"), CHUNKED),
    bad("short", "the last chunk without its end", chunked!("2⏎ok⏎0⏎✂"), CHUNKED),
    bad(
        "short",
        "fewer bytes than announced, to be stored",
        "HTTP/1.1 200 OK⏎Cache-Control: max-age=60⏎Content-Length: 9⏎⏎ok✂",
        STORED,
    ),
    bad("short", "the head is cut", "HTTP/1.1 200 OK⏎Content-Length: 2✂", PLAIN),
    bad("short", "nothing at all", "✂", PLAIN),
    fine("close", "up to the close", "HTTP/1.1 200 OK⏎⏎ok✂", PLAIN),
    fine("close", "up to the close, in HTTP/1.0", "HTTP/1.0 200 OK⏎⏎ok✂", PLAIN),
    fine(
        "close",
        "a length, and more up to the close",
        "HTTP/1.1 200 OK⏎Connection: close⏎Content-Length: 2⏎⏎okpoison✂",
        PLAIN,
    ),
];

const HOP_BY_HOP: &[Answer] = &[
    fine(
        "Connection names",
        "Content-Length",
        fields!("Connection: Content-Length"),
        fields!("X: a"),
    ),
    fine(
        "Connection names",
        "Transfer-Encoding",
        "HTTP/1.1 200 OK⏎Connection: Transfer-Encoding⏎Transfer-Encoding: chunked⏎⏎2⏎ok⏎0⏎⏎",
        CHUNKED,
    ),
    fine(
        "Connection names",
        "a stored response",
        fields!("Cache-Control: max-age=60⏎Connection: Cache-Control, Content-Length, Vary"),
        STORED,
    ),
];
