//! Attacks by a client.
//!
//! In the tables of fields, each row is inserted into the same request. Its body, `⟦…⟧`, looks like
//! the end of a chunked body followed by another request.

use super::Attack;
use super::Fate::{Broken, Declined, Passed, Refused};

const OUTER: &[&str] = &["outer"];
const BOTH: &[&str] = &["outer", "next"];
const NONE: &[&str] = &[];

/// All cases.
pub(crate) fn all() -> Vec<Attack> {
    [
        LENGTH_AND_ENCODING,
        ENCODINGS,
        LENGTHS,
        LINES,
        NAMES,
        CHUNK_SIZES,
        CHUNK_ENDS,
        CHUNK_EXTENSIONS,
        TRAILERS,
        EXPECT,
        HOSTS,
        HOP_BY_HOP,
        METHODS,
        PIPELINES,
        REQUEST_LINES,
        ENCODED,
    ]
    .concat()
}

/// The head is refused. The control is one request, which passes.
const fn refused(
    class: &'static str,
    name: &'static str,
    attack: &'static str,
    control: &'static str,
) -> Attack {
    let fate = Refused(NONE);
    Attack { class, name, attack, fate, control, passes: OUTER, reverse_only: false }
}

/// The body is refused. The control is one request, which passes.
const fn broken(
    class: &'static str,
    name: &'static str,
    attack: &'static str,
    control: &'static str,
) -> Attack {
    Attack { fate: Broken("outer"), ..refused(class, name, attack, control) }
}

/// Bytes that look like two requests are one, for us and for the origin.
const fn one(
    class: &'static str,
    name: &'static str,
    attack: &'static str,
    control: &'static str,
) -> Attack {
    Attack { fate: Passed(OUTER), ..refused(class, name, attack, control) }
}

const fn declined(
    class: &'static str,
    name: &'static str,
    attack: &'static str,
    control: &'static str,
) -> Attack {
    Attack { fate: Declined, ..refused(class, name, attack, control) }
}

/// A request with these fields. Its body is the end of a chunked body and a request.
macro_rules! ends_early {
    ($fields:literal) => {
        concat!(
            "POST §/outer HTTP/1.1⏎Host: ¤⏎",
            $fields,
            "⏎⏎⟦0⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧"
        )
    };
}

/// A request with these fields. Its body is a chunk that contains a request.
macro_rules! chunk {
    ($fields:literal) => {
        concat!(
            "POST §/outer HTTP/1.1⏎Host: ¤⏎",
            $fields,
            "⏎⏎{hex}⏎⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧⏎0⏎⏎"
        )
    };
}

/// A request with these fields and no body.
macro_rules! fields {
    ($fields:literal) => {
        concat!("GET §/outer HTTP/1.1⏎Host: ¤⏎", $fields, "⏎⏎")
    };
}

/// A chunked request with this body and the bytes after it.
macro_rules! chunked {
    ($body:literal) => {
        concat!("POST §/outer HTTP/1.1⏎Host: ¤⏎Transfer-Encoding: chunked⏎⏎", $body)
    };
}

/// A smuggled request.
macro_rules! smuggled {
    () => {
        "GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎"
    };
}

const LENGTH: &str = ends_early!("Content-Length: {len}");
const CHUNKED: &str = chunk!("Transfer-Encoding: chunked");

const LENGTH_AND_ENCODING: &[Attack] = &[
    refused(
        "CL.TE",
        "length before encoding",
        ends_early!("Content-Length: {len}⏎Transfer-Encoding: chunked"),
        LENGTH,
    ),
    refused(
        "CL.TE",
        "encoding before length",
        ends_early!("Transfer-Encoding: chunked⏎Content-Length: {len}"),
        LENGTH,
    ),
    refused(
        "CL.TE",
        "in lower case",
        ends_early!("content-length: {len}⏎transfer-encoding: chunked"),
        ends_early!("content-length: {len}"),
    ),
    refused(
        "CL.TE",
        "on a method without content",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: {len}⏎Transfer-Encoding: chunked⏎⏎\
         ⟦0⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: {len}⏎⏎\
         ⟦0⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
    ),
    refused(
        "TE.CL",
        "a length within the first chunk's line",
        chunk!("Content-Length: 4⏎Transfer-Encoding: chunked"),
        CHUNKED,
    ),
    refused(
        "TE.CL",
        "a length of 0",
        chunk!("Transfer-Encoding: chunked⏎Content-Length: 0"),
        CHUNKED,
    ),
    refused(
        "TE.CL",
        "an empty length",
        chunk!("Transfer-Encoding: chunked⏎Content-Length:"),
        CHUNKED,
    ),
    refused(
        "TE.CL",
        "a length that is none",
        chunk!("Transfer-Encoding: chunked⏎Content-Length: x"),
        CHUNKED,
    ),
    refused(
        "TE in HTTP/1.0",
        "chunked alone",
        "POST §/outer HTTP/1.0⏎Host: ¤⏎Transfer-Encoding: chunked⏎⏎0⏎⏎",
        "POST §/outer HTTP/1.0⏎Host: ¤⏎Content-Length: {len}⏎⏎⟦0⏎⏎⟧",
    ),
    refused(
        "TE in HTTP/1.0",
        "with keep-alive, and a request behind it",
        concat!(
            "POST §/outer HTTP/1.0⏎Host: ¤⏎Connection: keep-alive⏎Transfer-Encoding: chunked⏎⏎",
            "0⏎⏎",
            smuggled!()
        ),
        "POST §/outer HTTP/1.0⏎Host: ¤⏎Connection: keep-alive⏎Content-Length: {len}⏎⏎⟦0⏎⏎⟧",
    ),
    refused(
        "TE in HTTP/1.0",
        "with a length",
        "POST §/outer HTTP/1.0⏎Host: ¤⏎Content-Length: {len}⏎Transfer-Encoding: chunked⏎⏎\
         ⟦0⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        "POST §/outer HTTP/1.0⏎Host: ¤⏎Content-Length: {len}⏎⏎\
         ⟦0⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
    ),
];

/// A field that one reader may take for `Transfer-Encoding: chunked` and another may not, together
/// with a length. Fields that no reader takes for Transfer-Encoding pass.
const ENCODINGS: &[Attack] = &[
    refused("TE.TE", "xchunked", ends_early!("Transfer-Encoding: xchunked"), LENGTH),
    refused(
        "TE.TE",
        "xchunked beside a length",
        ends_early!("Content-Length: {len}⏎Transfer-Encoding: xchunked"),
        LENGTH,
    ),
    refused(
        "TE.TE",
        "a space before the colon",
        ends_early!("Content-Length: {len}⏎Transfer-Encoding : chunked"),
        LENGTH,
    ),
    refused(
        "TE.TE",
        "a tab before the colon",
        ends_early!("Content-Length: {len}⏎Transfer-Encoding\t: chunked"),
        LENGTH,
    ),
    refused(
        "TE.TE",
        "a tab before the value",
        ends_early!("Content-Length: {len}⏎Transfer-Encoding:\tchunked"),
        chunk!("Transfer-Encoding:\tchunked"),
    ),
    refused(
        "TE.TE",
        "a vertical tab before the value",
        ends_early!("Content-Length: {len}⏎Transfer-Encoding: \x0bchunked"),
        LENGTH,
    ),
    refused(
        "TE.TE",
        "a form feed behind the value",
        ends_early!("Content-Length: {len}⏎Transfer-Encoding: chunked\x0c"),
        LENGTH,
    ),
    refused(
        "TE.TE",
        "a no-break space before the value",
        ends_early!("Transfer-Encoding: \u{a0}chunked"),
        LENGTH,
    ),
    refused(
        "TE.TE",
        "a space before the name",
        ends_early!("Content-Length: {len}⏎ Transfer-Encoding: chunked"),
        LENGTH,
    ),
    refused(
        "TE.TE",
        "folded",
        ends_early!("Content-Length: {len}⏎Transfer-Encoding:⏎ chunked"),
        LENGTH,
    ),
    refused(
        "TE.TE",
        "hidden behind a line feed",
        ends_early!("Content-Length: {len}⏎X: x␊Transfer-Encoding: chunked"),
        ends_early!("Content-Length: {len}⏎X: x Transfer-Encoding: chunked"),
    ),
    refused(
        "TE.TE",
        "hidden behind a carriage return",
        ends_early!("Content-Length: {len}⏎X: x␍Transfer-Encoding: chunked"),
        ends_early!("Content-Length: {len}⏎X: x Transfer-Encoding: chunked"),
    ),
    refused(
        "TE.TE",
        "chunked, identity",
        ends_early!("Transfer-Encoding: chunked, identity"),
        CHUNKED,
    ),
    refused("TE.TE", "identity", ends_early!("Transfer-Encoding: identity"), CHUNKED),
    refused("TE.TE", "identity, chunked", chunk!("Transfer-Encoding: identity, chunked"), CHUNKED),
    refused(
        "TE.TE",
        "identity beside a length",
        ends_early!("Content-Length: {len}⏎Transfer-Encoding: identity"),
        LENGTH,
    ),
    refused("TE.TE", "chunked, chunked", chunk!("Transfer-Encoding: chunked, chunked"), CHUNKED),
    refused(
        "TE.TE",
        "chunked on two lines",
        chunk!("Transfer-Encoding: chunked⏎Transfer-Encoding: chunked"),
        CHUNKED,
    ),
    refused(
        "TE.TE",
        "chunked, and another on a second line",
        ends_early!("Transfer-Encoding: chunked⏎Transfer-Encoding: cow"),
        CHUNKED,
    ),
    refused(
        "TE.TE",
        "another, and chunked on a second line",
        chunk!("Transfer-Encoding: cow⏎Transfer-Encoding: chunked"),
        CHUNKED,
    ),
    refused("TE.TE", "an empty member", chunk!("Transfer-Encoding: , chunked"), CHUNKED),
    refused("TE.TE", "a member of nothing", chunk!("Transfer-Encoding: chunked,"), CHUNKED),
    refused("TE.TE", "a parameter", chunk!("Transfer-Encoding: chunked;q=1"), CHUNKED),
    refused("TE.TE", "in quotes", chunk!("Transfer-Encoding: \"chunked\""), CHUNKED),
    refused("TE.TE", "nothing", ends_early!("Transfer-Encoding:"), CHUNKED),
    refused(
        "TE.TE",
        "a zero byte in the value",
        ends_early!("Transfer-Encoding: chunked␀"),
        CHUNKED,
    ),
    refused(
        "TE.TE",
        "a zero byte in the name",
        ends_early!("Content-Length: {len}⏎Transfer␀-Encoding: chunked"),
        LENGTH,
    ),
    one(
        "TE.TE",
        "an underscore in the name",
        ends_early!("Content-Length: {len}⏎Transfer_Encoding: chunked"),
        LENGTH,
    ),
    one(
        "TE.TE",
        "a longer name",
        ends_early!("Content-Length: {len}⏎X-Transfer-Encoding: chunked"),
        LENGTH,
    ),
    one(
        "TE.TE",
        "chunked as the content's coding",
        ends_early!("Content-Length: {len}⏎Content-Encoding: chunked"),
        LENGTH,
    ),
    one("TE.TE", "TE instead", ends_early!("Content-Length: {len}⏎TE: chunked"), LENGTH),
    one("TE.TE", "in capitals", chunk!("TRANSFER-ENCODING: CHUNKED"), CHUNKED),
];

const LENGTHS: &[Attack] = &[
    refused(
        "CL.CL",
        "two that differ",
        ends_early!("Content-Length: 0⏎Content-Length: {len}"),
        LENGTH,
    ),
    refused(
        "CL.CL",
        "two that differ, the longer first",
        ends_early!("Content-Length: {len}⏎Content-Length: 0"),
        LENGTH,
    ),
    refused(
        "CL.CL",
        "two that are equal",
        ends_early!("Content-Length: {len}⏎Content-Length: {len}"),
        LENGTH,
    ),
    refused("CL.CL", "a list", ends_early!("Content-Length: {len}, {len}"), LENGTH),
    refused("CL.CL", "a list that differs", ends_early!("Content-Length: 0, {len}"), LENGTH),
    refused("CL.CL", "a list with an empty member", ends_early!("Content-Length: {len},"), LENGTH),
    refused("CL value", "a plus", ends_early!("Content-Length: +{len}"), LENGTH),
    refused("CL value", "a minus", ends_early!("Content-Length: -{len}"), LENGTH),
    refused("CL value", "a minus and nothing", ends_early!("Content-Length: -0"), LENGTH),
    refused("CL value", "a space within", ends_early!("Content-Length: 1 0"), LENGTH),
    refused("CL value", "hexadecimal", ends_early!("Content-Length: 0x{hex}"), LENGTH),
    refused("CL value", "hexadecimal digits", ends_early!("Content-Length: 3a"), LENGTH),
    refused("CL value", "a fraction", ends_early!("Content-Length: {len}.0"), LENGTH),
    refused("CL value", "an exponent", ends_early!("Content-Length: 1e1"), LENGTH),
    refused("CL value", "an underscore", ends_early!("Content-Length: 1_0"), LENGTH),
    refused("CL value", "in quotes", ends_early!("Content-Length: \"{len}\""), LENGTH),
    refused("CL value", "empty", ends_early!("Content-Length:"), LENGTH),
    refused(
        "CL value",
        "beyond 64 bits by one",
        ends_early!("Content-Length: 18446744073709551616"),
        LENGTH,
    ),
    refused(
        "CL value",
        "0 when wrapped at 64 bits twice",
        ends_early!("Content-Length: 36893488147419103232"),
        LENGTH,
    ),
    refused("CL value", "a zero byte behind it", ends_early!("Content-Length: {len}␀"), LENGTH),
    refused("CL value", "digits of another script", ends_early!("Content-Length: ３"), LENGTH),
    one("CL value", "zeros before it", ends_early!("Content-Length: 000{len}"), LENGTH),
    refused("CL name", "a space before the colon", ends_early!("Content-Length : {len}"), LENGTH),
    refused(
        "CL name",
        "a space before the colon of a second",
        ends_early!("Content-Length: {len}⏎Content-Length : 0"),
        LENGTH,
    ),
    one(
        "CL name",
        "an underscore in a second",
        ends_early!("Content-Length: {len}⏎Content_Length: 0"),
        LENGTH,
    ),
    Attack {
        fate: Passed(BOTH),
        ..one(
            "CL.0",
            "a length of 0, and a request behind it",
            "POST §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: 0⏎⏎GET §/next HTTP/1.1⏎Host: ¤⏎⏎",
            LENGTH,
        )
    },
    one(
        "CL.0",
        "on POST",
        "POST §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: {len}⏎⏎\
        ⟦GET §/smuggled HTTP/1.1⏎X: x⟧",
        LENGTH,
    ),
    one(
        "CL.0",
        "on GET",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: {len}⏎⏎\
        ⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        fields!("Content-Length: 0"),
    ),
    one(
        "CL.0",
        "on GET, with Connection: keep-alive",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎\
        Connection: keep-alive⏎Content-Length: {len}⏎⏎⟦GET §/smuggled HTTP/1.1⏎X: x⟧",
        fields!("Content-Length: 0"),
    ),
    one(
        "0.CL",
        "the body comes after the answer may have",
        "POST §/outer HTTP/1.1⏎Host: ¤⏎\
        Content-Length: {len}⏎⏎⏸⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        LENGTH,
    ),
    one(
        "0.CL",
        "of GET",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎\
        Content-Length: {len}⏎⏎⏸⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        fields!("X: x"),
    ),
    one(
        "0.CL",
        "in two parts",
        "POST §/outer HTTP/1.1⏎Host: ¤⏎\
        Content-Length: {len}⏎⏎⟦x=⏸GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        LENGTH,
    ),
    broken(
        "short body",
        "fewer bytes than announced",
        "POST §/outer HTTP/1.1⏎Host: ¤⏎\
        Content-Length: 1000⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎",
        LENGTH,
    ),
];

const LINES: &[Attack] = &[
    refused(
        "bare LF",
        "behind the request line",
        "GET §/outer HTTP/1.1␊Host: ¤⏎⏎",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎⏎",
    ),
    refused("bare LF", "behind a field", "GET §/outer HTTP/1.1⏎Host: ¤␊X: x⏎⏎", fields!("X: x")),
    refused("bare LF", "everywhere", "GET §/outer HTTP/1.1␊Host: ¤␊␊", fields!("X: x")),
    refused("bare LF", "as the empty line", "GET §/outer HTTP/1.1⏎Host: ¤⏎␊", fields!("X: x")),
    refused(
        "bare LF",
        "twice within a value",
        "GET §/outer HTTP/1.1⏎X: x␊␊GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: xGET /smuggled HTTP/1.1"),
    ),
    refused(
        "bare LF",
        "before the request",
        "␊GET §/outer HTTP/1.1⏎Host: ¤⏎⏎",
        "⏎GET §/outer HTTP/1.1⏎Host: ¤⏎⏎",
    ),
    refused(
        "bare CR",
        "behind the request line",
        "GET §/outer HTTP/1.1␍Host: ¤⏎⏎",
        fields!("X: x"),
    ),
    refused("bare CR", "within a value", fields!("X: a␍Y: b"), fields!("X: a Y: b")),
    refused(
        "bare CR",
        "twice within a value",
        fields!("X: a␍␍GET §/smuggled HTTP/1.1"),
        fields!("X: a GET /smuggled HTTP/1.1"),
    ),
    refused("bare CR", "before a name", fields!("␍X: a"), fields!("X: a")),
    refused("bare CR", "within a name", fields!("X␍Y: a"), fields!("XY: a")),
    refused("bare CR", "before CRLF", fields!("X: a␍"), fields!("X: a")),
    refused(
        "bare CR",
        "before the empty line",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎␍␍␊",
        fields!("X: a"),
    ),
    refused("obs-fold", "by a space", fields!("X: a⏎ b"), fields!("X: a b")),
    refused("obs-fold", "by a tab", fields!("X: a⏎\tb"), fields!("X: a\tb")),
    refused(
        "obs-fold",
        "of a framing field",
        fields!("Content-Length: 0⏎ 5"),
        fields!("Content-Length: 0"),
    ),
    refused(
        "obs-fold",
        "of a whole field",
        fields!("X: a⏎ Transfer-Encoding: chunked"),
        fields!("X: a"),
    ),
    refused(
        "obs-fold",
        "of an empty line",
        fields!("X: a⏎ ⏎GET §/smuggled HTTP/1.1"),
        fields!("X: a"),
    ),
    refused("space before fields", "one", "GET §/outer HTTP/1.1⏎ Host: ¤⏎⏎", fields!("X: a")),
    refused("space before fields", "a tab", "GET §/outer HTTP/1.1⏎\tHost: ¤⏎⏎", fields!("X: a")),
    refused(
        "space before fields",
        "a line of it",
        "GET §/outer HTTP/1.1⏎ ⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "empty lines",
        "two before a request",
        "⏎⏎GET §/outer HTTP/1.1⏎Host: ¤⏎⏎",
        "⏎GET §/outer HTTP/1.1⏎Host: ¤⏎⏎",
    ),
];

const NAMES: &[Attack] = &[
    refused("control bytes", "NUL in a name", fields!("X␀: a"), fields!("X: a")),
    refused("control bytes", "NUL in a value", fields!("X: a␀b"), fields!("X: ab")),
    refused(
        "control bytes",
        "NUL in the target",
        "GET §/outer␀ HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "control bytes",
        "NUL in the method",
        "GE␀T §/outer HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused("control bytes", "backspace in a value", fields!("X: a\x08b"), fields!("X: ab")),
    refused("control bytes", "escape in a name", fields!("X\x1b: a"), fields!("X: a")),
    refused("control bytes", "DEL in a value", fields!("X: a\x7f"), fields!("X: a~")),
    refused(
        "control bytes",
        "vertical tab as a line's end",
        fields!("X: a\x0bY: b"),
        fields!("X: aY: b"),
    ),
    refused("space before colon", "of any field", fields!("X : a"), fields!("X: a")),
    refused("space before colon", "of Host", "GET §/outer HTTP/1.1⏎Host : ¤⏎⏎", fields!("X: a")),
    refused("field names", "empty", fields!(": a"), fields!("X: a")),
    refused("field names", "no colon", fields!("X"), fields!("X:")),
    refused("field names", "a space within", fields!("X Y: a"), fields!("XY: a")),
    refused("field names", "beyond ASCII", fields!("Ｘ: a"), fields!("X: Ｘ")),
    refused("field names", "in brackets", fields!("(X): a"), fields!("X: (a)")),
    refused(
        "field names",
        "Transfer-Encoding behind a colon",
        ends_early!("Content-Length: {len}⏎:Transfer-Encoding: chunked"),
        LENGTH,
    ),
    refused(
        "field names",
        "a request line for a field",
        "GET §/outer HTTP/1.1⏎\
        GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
];

const CHUNK_SIZES: &[Attack] = &[
    broken("chunk size", "0x", chunked!("0x1⏎a⏎0⏎⏎"), chunked!("01⏎a⏎0⏎⏎")),
    broken("chunk size", "minus", chunked!("-1⏎a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk size", "plus", chunked!("+1⏎a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk size", "a space first", chunked!(" 1⏎a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk size", "a space behind", chunked!("1 ⏎a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk size", "a tab behind the last", chunked!("1⏎a⏎0\t⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk size", "an underscore", chunked!("1_0⏎a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk size", "no digits", chunked!("⏎a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk size", "a letter behind", chunked!("1g⏎a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk size", "a comma", chunked!("1,2⏎a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk size", "a zero byte", chunked!("1␀⏎a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken(
        "chunk size",
        "beyond 64 bits, 0 when wrapped",
        chunked!("10000000000000000⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎"),
        chunked!("0000000000000000⏎⏎"),
    ),
    broken(
        "chunk size",
        "beyond 32 bits, 0 when cut",
        chunked!("100000000⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎"),
        chunked!("000000000⏎⏎"),
    ),
    broken(
        "chunk size",
        "-1 in two's complement",
        chunked!("ffffffffffffffff⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎"),
        chunked!("1⏎a⏎0⏎⏎"),
    ),
    one("chunk size", "in capitals", chunked!("A⏎0123456789⏎0⏎⏎"), chunked!("a⏎0123456789⏎0⏎⏎")),
    one("chunk size", "a chunk that is a request", CHUNKED, chunked!("1⏎a⏎0⏎⏎")),
];

const CHUNK_ENDS: &[Attack] = &[
    broken("chunk end", "none", chunked!("1⏎a0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk end", "LF alone", chunked!("1⏎a␊0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk end", "CR alone", chunked!("1⏎a␍0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk end", "more data than announced", chunked!("1⏎abc⏎0⏎⏎"), chunked!("3⏎abc⏎0⏎⏎")),
    broken("chunk end", "two bytes instead of CRLF", chunked!("1⏎axx0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken(
        "chunk end",
        "two bytes that hide the rest",
        chunked!("2⏎xx45⏎0⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎"),
        chunked!("2⏎xx⏎0⏎⏎"),
    ),
    broken("chunk end", "LF behind the size", chunked!("1␊a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk end", "CR behind the size", chunked!("1␍a⏎0⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk end", "LF behind the last size", chunked!("1⏎a⏎0␊␊"), chunked!("1⏎a⏎0⏎⏎")),
    broken("chunk end", "the last without its empty line", chunked!("1⏎a⏎0⏎"), chunked!("1⏎a⏎0⏎⏎")),
    broken(
        "chunk end",
        "a request where the empty line should be",
        chunked!("0⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎"),
        chunked!("0⏎Host: ¤⏎⏎"),
    ),
    broken(
        "chunk end",
        "LF for the empty line",
        chunked!("0⏎␊GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎"),
        chunked!("0⏎⏎"),
    ),
];

/// Published as TERM.EXT, EXT.TERM and similar: one reader takes a line feed for the end of the
/// chunk line, the other for a part of the extension.
const CHUNK_EXTENSIONS: &[Attack] = &[
    broken("chunk extension", "LF ends it", chunked!("1;␊a⏎0⏎⏎"), chunked!("1;x⏎a⏎0⏎⏎")),
    broken(
        "chunk extension",
        "LF within",
        chunked!("2;x␊xx⏎45⏎0⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎"),
        chunked!("2;xxx⏎45⏎0⏎⏎"),
    ),
    broken(
        "chunk extension",
        "CR within",
        chunked!("2;x␍xx⏎45⏎0⏎⏎GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎"),
        chunked!("2;xxx⏎45⏎0⏎⏎"),
    ),
    broken("chunk extension", "NUL within", chunked!("1;␀⏎a⏎0⏎⏎"), chunked!("1;x⏎a⏎0⏎⏎")),
    broken(
        "chunk extension",
        "LF in quotes",
        chunked!("1;x=\"␊\"⏎a⏎0⏎⏎"),
        chunked!("1;x=\"y\"⏎a⏎0⏎⏎"),
    ),
    broken(
        "chunk extension",
        "LF in the last",
        chunked!("1⏎a⏎0;␊⏎GET §/smuggled HTTP/1.1⏎⏎"),
        chunked!("1⏎a⏎0;x⏎⏎"),
    ),
    broken("chunk extension", "CR CR LF", chunked!("1;x␍⏎a⏎0⏎⏎"), chunked!("1;x⏎a⏎0⏎⏎")),
    one(
        "chunk extension",
        "with a value in quotes",
        chunked!("1;x=\"⟦a;b⟧\"⏎a⏎0⏎⏎"),
        chunked!("1⏎a⏎0⏎⏎"),
    ),
    one("chunk extension", "that is a size", chunked!("1;45⏎a⏎0;45⏎⏎"), chunked!("1⏎a⏎0⏎⏎")),
];

const TRAILERS: &[Attack] = &[
    one(
        "trailers",
        "Content-Length",
        chunked!("1⏎a⏎0⏎Content-Length: 45⏎⏎"),
        chunked!("1⏎a⏎0⏎X: a⏎⏎"),
    ),
    one(
        "trailers",
        "Transfer-Encoding",
        chunked!("1⏎a⏎0⏎Transfer-Encoding: chunked⏎⏎"),
        chunked!("1⏎a⏎0⏎X: a⏎⏎"),
    ),
    one("trailers", "Host", chunked!("1⏎a⏎0⏎Host: smuggled⏎⏎"), chunked!("1⏎a⏎0⏎X: a⏎⏎")),
    one("trailers", "Connection", chunked!("1⏎a⏎0⏎Connection: close⏎⏎"), chunked!("1⏎a⏎0⏎X: a⏎⏎")),
    broken("trailers", "LF ends one", chunked!("0⏎X: a␊⏎"), chunked!("0⏎X: a⏎⏎")),
    broken(
        "trailers",
        "LF and a request",
        chunked!("0⏎X: a␊␊GET §/smuggled HTTP/1.1⏎⏎"),
        chunked!("0⏎X: a⏎⏎"),
    ),
    broken("trailers", "CR within", chunked!("0⏎X: a␍b⏎⏎"), chunked!("0⏎X: a b⏎⏎")),
    broken("trailers", "NUL within", chunked!("0⏎X: ␀⏎⏎"), chunked!("0⏎X: a⏎⏎")),
    broken("trailers", "folded", chunked!("0⏎X: a⏎ b⏎⏎"), chunked!("0⏎X: a b⏎⏎")),
    broken("trailers", "a space before the colon", chunked!("0⏎X : a⏎⏎"), chunked!("0⏎X: a⏎⏎")),
    broken("trailers", "no colon", chunked!("0⏎X⏎⏎"), chunked!("0⏎X:⏎⏎")),
    broken("trailers", "a space first", chunked!("0⏎ X: a⏎⏎"), chunked!("0⏎X: a⏎⏎")),
];

const EXPECT: &[Attack] = &[
    one(
        "Expect",
        "100-continue, the body comes later",
        "POST §/outer HTTP/1.1⏎Host: ¤⏎\
        Expect: 100-continue⏎Content-Length: {len}⏎⏎⏸⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        LENGTH,
    ),
    one(
        "Expect",
        "100-continue, the body comes at once",
        ends_early!("Expect: 100-continue⏎Content-Length: {len}"),
        LENGTH,
    ),
    one(
        "Expect",
        "100-continue on GET with content",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎\
        Expect: 100-continue⏎Content-Length: {len}⏎⏎⏸⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        fields!("X: a"),
    ),
    Attack {
        fate: Passed(BOTH),
        ..one(
            "Expect",
            "100-continue without content",
            "GET §/outer HTTP/1.1⏎Host: ¤⏎\
            Expect: 100-continue⏎⏎GET §/next HTTP/1.1⏎Host: ¤⏎⏎",
            fields!("X: a"),
        )
    },
    one(
        "Expect",
        "100-continue with a chunked body",
        chunk!("Expect: 100-continue⏎Transfer-Encoding: chunked"),
        CHUNKED,
    ),
    declined(
        "Expect",
        "something before it",
        ends_early!("Expect: y 100-continue⏎Content-Length: {len}"),
        LENGTH,
    ),
    declined(
        "Expect",
        "a list",
        ends_early!("Expect: 100-continue, x⏎Content-Length: {len}"),
        LENGTH,
    ),
    declined("Expect", "something else", ends_early!("Expect: x⏎Content-Length: {len}"), LENGTH),
    refused("Expect", "folded", ends_early!("Expect:⏎ 100-continue⏎Content-Length: {len}"), LENGTH),
];

const HOSTS: &[Attack] = &[
    refused("Host", "two", fields!("Host: smuggled"), fields!("X: a")),
    refused("Host", "two that are equal", fields!("host: ¤"), fields!("X: a")),
    refused("Host", "none", "GET §/outer HTTP/1.1⏎⏎", fields!("X: a")),
    refused("Host", "a list", "GET §/outer HTTP/1.1⏎Host: ¤, smuggled⏎⏎", fields!("X: a")),
    refused("Host", "empty", "GET §/outer HTTP/1.1⏎Host:⏎⏎", fields!("X: a")),
    refused("Host", "a path in it", "GET §/outer HTTP/1.1⏎Host: ¤/smuggled⏎⏎", fields!("X: a")),
    refused("Host", "a space in it", "GET §/outer HTTP/1.1⏎Host: ¤ smuggled⏎⏎", fields!("X: a")),
    refused("Host", "a user in it", "GET §/outer HTTP/1.1⏎Host: ¤@smuggled⏎⏎", fields!("X: a")),
    refused(
        "Host",
        "a port that is none",
        "GET §/outer HTTP/1.1⏎Host: smuggled:x⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "Host",
        "on a second line of HTTP/1.0",
        "GET §/outer HTTP/1.0⏎Host: ¤⏎Host: smuggled⏎⏎",
        "GET §/outer HTTP/1.0⏎Host: ¤⏎⏎",
    ),
    Attack {
        reverse_only: true,
        ..one(
            "absolute-form",
            "Host differs",
            "GET http://¤§/outer HTTP/1.1⏎Host: smuggled⏎⏎",
            "GET http://¤§/outer HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    Attack {
        reverse_only: true,
        ..refused(
            "absolute-form",
            "a user in it",
            "GET http://¤@smuggled§/outer HTTP/1.1⏎\
            Host: ¤⏎⏎",
            "GET http://¤§/outer HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    Attack {
        reverse_only: true,
        ..declined(
            "absolute-form",
            "another scheme",
            "GET https://¤§/outer HTTP/1.1⏎Host: ¤⏎⏎",
            "GET http://¤§/outer HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    Attack {
        reverse_only: true,
        ..refused(
            "absolute-form",
            "two hosts",
            "GET http://¤,smuggled:x§/outer HTTP/1.1⏎\
            Host: ¤⏎⏎",
            "GET http://¤§/outer HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    refused("absolute-form", "no host", "GET http:///outer HTTP/1.1⏎Host: ¤⏎⏎", fields!("X: a")),
    refused(
        "absolute-form",
        "a backslash",
        "GET http://¤\\smuggled/ HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
];

const HOP_BY_HOP: &[Attack] = &[
    one(
        "Connection names",
        "Content-Length",
        ends_early!("Connection: Content-Length⏎Content-Length: {len}"),
        LENGTH,
    ),
    one(
        "Connection names",
        "Content-Length on GET",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎\
        Connection: keep-alive, content-length⏎Content-Length: {len}⏎⏎\
        ⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        fields!("X: a"),
    ),
    one(
        "Connection names",
        "Transfer-Encoding",
        chunk!("Connection: Transfer-Encoding⏎Transfer-Encoding: chunked"),
        CHUNKED,
    ),
    one("Connection names", "Host", fields!("Connection: Host"), fields!("X: a")),
    one(
        "Connection names",
        "everything that frames",
        chunk!(
            "Connection: close, Host, Content-Length, Transfer-Encoding, Expect⏎\
         Transfer-Encoding: chunked"
        ),
        CHUNKED,
    ),
    one("Connection names", "Via", fields!("Connection: Via"), fields!("X: a")),
    declined(
        "Upgrade",
        "CONNECT with content in view",
        "CONNECT ¤ HTTP/1.1⏎Host: ¤⏎⏎\
        GET /smuggled HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    one(
        "Upgrade",
        "h2c",
        fields!(
            "Connection: Upgrade, HTTP2-Settings⏎Upgrade: h2c⏎\
        HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"
        ),
        fields!("X: a"),
    ),
    one(
        "Upgrade",
        "h2c that Connection does not name",
        fields!(
            "Upgrade: h2c⏎\
        HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"
        ),
        fields!("X: a"),
    ),
    one(
        "Upgrade",
        "h2c with content",
        ends_early!(
            "Connection: Upgrade, HTTP2-Settings⏎\
        Upgrade: h2c⏎HTTP2-Settings: AAMAAABk⏎Content-Length: {len}"
        ),
        LENGTH,
    ),
    one(
        "Upgrade",
        "a web socket of no known version, and content",
        ends_early!(
            "Connection: Upgrade⏎Upgrade: websocket⏎Sec-WebSocket-Version: 777⏎\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==⏎Content-Length: {len}"
        ),
        LENGTH,
    ),
    Attack {
        fate: Refused(OUTER),
        ..one(
            "Upgrade",
            "the preface of HTTP/2 after a request",
            "GET §/outer HTTP/1.1⏎Host: ¤⏎⏎PRI * HTTP/2.0⏎⏎SM⏎⏎",
            fields!("X: a"),
        )
    },
];

const METHODS: &[Attack] = &[
    one(
        "method with content",
        "HEAD",
        "HEAD §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: {len}⏎⏎\
        ⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        "HEAD §/outer HTTP/1.1⏎Host: ¤⏎⏎",
    ),
    one(
        "method with content",
        "DELETE",
        "DELETE §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: {len}⏎⏎\
        ⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        "DELETE §/outer HTTP/1.1⏎Host: ¤⏎⏎",
    ),
    one(
        "method with content",
        "OPTIONS",
        "OPTIONS §/outer HTTP/1.1⏎Host: ¤⏎\
        Content-Length: {len}⏎⏎⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        "OPTIONS §/outer HTTP/1.1⏎Host: ¤⏎⏎",
    ),
    one(
        "method with content",
        "GET in chunks",
        "GET §/outer HTTP/1.1⏎Host: ¤⏎\
        Transfer-Encoding: chunked⏎⏎{hex}⏎⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧⏎0⏎⏎",
        fields!("X: a"),
    ),
    one(
        "method with content",
        "HEAD in chunks",
        "HEAD §/outer HTTP/1.1⏎Host: ¤⏎\
        Transfer-Encoding: chunked⏎⏎{hex}⏎⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧⏎0⏎⏎",
        "HEAD §/outer HTTP/1.1⏎Host: ¤⏎⏎",
    ),
    one(
        "method with content",
        "an unknown method",
        "BREW §/outer HTTP/1.1⏎Host: ¤⏎\
        Content-Length: {len}⏎⏎⟦GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎⟧",
        "BREW §/outer HTTP/1.1⏎Host: ¤⏎⏎",
    ),
    one(
        "method with content",
        "an override",
        ends_early!("X-HTTP-Method-Override: GET⏎Content-Length: {len}"),
        LENGTH,
    ),
];

const PIPELINES: &[Attack] = &[
    Attack {
        passes: BOTH,
        ..refused(
            "pipeline",
            "behind a refused head",
            concat!("GET §/outer HTTP/1.1⏎Host: ¤⏎X : a⏎⏎", smuggled!()),
            "GET §/outer HTTP/1.1⏎Host: ¤⏎X: a⏎⏎GET §/next HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    Attack {
        passes: BOTH,
        ..refused(
            "pipeline",
            "behind a refused length",
            concat!("POST §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: 2, 2⏎⏎ab", smuggled!()),
            "POST §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: 2⏎⏎abGET §/next HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    Attack {
        passes: BOTH,
        ..broken(
            "pipeline",
            "behind a broken body",
            concat!(chunked!("1⏎ab⏎0⏎⏎"), smuggled!()),
            chunked!("2⏎ab⏎0⏎⏎GET §/next HTTP/1.1⏎Host: ¤⏎⏎"),
        )
    },
    Attack {
        fate: Refused(OUTER),
        passes: BOTH,
        ..refused(
            "pipeline",
            "a refused head behind a good one",
            concat!(fields!("X: a"), "GET §/smuggled HTTP/1.1⏎Host: ¤⏎X : a⏎⏎"),
            "GET §/outer HTTP/1.1⏎Host: ¤⏎⏎GET §/next HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    Attack {
        passes: BOTH,
        ..declined(
            "pipeline",
            "behind an expectation that is declined",
            concat!(fields!("Expect: x"), smuggled!()),
            "GET §/outer HTTP/1.1⏎Host: ¤⏎⏎GET §/next HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    Attack {
        passes: BOTH,
        ..refused(
            "pipeline",
            "behind a version that is refused",
            concat!("GET §/outer HTTP/3.0⏎Host: ¤⏎⏎", smuggled!()),
            "GET §/outer HTTP/1.1⏎Host: ¤⏎⏎GET §/next HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    one(
        "pipeline",
        "behind Connection: close",
        concat!(fields!("Connection: close"), smuggled!()),
        fields!("Connection: close"),
    ),
    one(
        "pipeline",
        "behind HTTP/1.0",
        concat!("GET §/outer HTTP/1.0⏎Host: ¤⏎⏎", smuggled!()),
        "GET §/outer HTTP/1.0⏎Host: ¤⏎⏎",
    ),
    Attack {
        fate: Refused(OUTER),
        passes: BOTH,
        ..refused(
            "pipeline",
            "content without framing",
            "POST §/outer HTTP/1.1⏎Host: ¤⏎⏎\
            x=GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎",
            "POST §/outer HTTP/1.1⏎Host: ¤⏎⏎GET §/next HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
    Attack {
        fate: Refused(OUTER),
        passes: BOTH,
        ..refused(
            "pipeline",
            "a byte too many",
            "POST §/outer HTTP/1.1⏎Host: ¤⏎\
            Content-Length: 2⏎⏎ab{GET §/smuggled HTTP/1.1⏎Host: ¤⏎⏎",
            "POST §/outer HTTP/1.1⏎Host: ¤⏎Content-Length: 2⏎⏎abGET §/next HTTP/1.1⏎Host: ¤⏎⏎",
        )
    },
];

const REQUEST_LINES: &[Attack] = &[
    refused("request line", "two spaces", "GET  §/outer HTTP/1.1⏎Host: ¤⏎⏎", fields!("X: a")),
    refused(
        "request line",
        "two spaces before the version",
        "GET §/outer  HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused("request line", "a tab", "GET\t§/outer HTTP/1.1⏎Host: ¤⏎⏎", fields!("X: a")),
    refused(
        "request line",
        "a tab before the version",
        "GET §/outer\tHTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused("request line", "a vertical tab", "GET\x0b§/outer HTTP/1.1⏎Host: ¤⏎⏎", fields!("X: a")),
    refused("request line", "a space first", " GET §/outer HTTP/1.1⏎Host: ¤⏎⏎", fields!("X: a")),
    refused("request line", "a space behind", "GET §/outer HTTP/1.1 ⏎Host: ¤⏎⏎", fields!("X: a")),
    refused("request line", "HTTP/0.9", "GET §/outer⏎", "GET §/outer HTTP/1.0⏎Host: ¤⏎⏎"),
    refused(
        "request line",
        "HTTP/0.9, explicit",
        "GET §/outer HTTP/0.9⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "request line",
        "http in lower case",
        "GET §/outer http/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused("request line", "version 2.0", "GET §/outer HTTP/2.0⏎Host: ¤⏎⏎", fields!("X: a")),
    refused("request line", "version 1", "GET §/outer HTTP/1⏎Host: ¤⏎⏎", fields!("X: a")),
    refused("request line", "version 1.10", "GET §/outer HTTP/1.10⏎Host: ¤⏎⏎", fields!("X: a")),
    refused("request line", "version 01.1", "GET §/outer HTTP/01.1⏎Host: ¤⏎⏎", fields!("X: a")),
    one(
        "request line",
        "version 1.2, which is read as 1.1",
        "GET §/outer HTTP/1.2⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "request line",
        "two versions",
        "GET §/outer HTTP/1.1 HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "request line",
        "two targets",
        "GET §/outer §/smuggled HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused("request line", "a fragment", "GET §/outer#x HTTP/1.1⏎Host: ¤⏎⏎", fields!("X: a")),
    refused(
        "request line",
        "a path without a slash",
        "GET outer HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "request line",
        "bytes beyond ASCII",
        "GET §/outér HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "request line",
        "CR within the target",
        "GET §/outer␍X HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "request line",
        "a method that is no token",
        "G{ET §/outer HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused(
        "request line",
        "a colon behind the method",
        "GET: §/outer HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    refused("request line", "a response", "HTTP/1.1 200 OK⏎Host: ¤⏎⏎", fields!("X: a")),
];

/// Encoded characters stay encoded and never become line ends.
const ENCODED: &[Attack] = &[
    one(
        "encoded line ends",
        "in a query",
        "GET §/outer?%0d%0a%0d%0aGET%20/smuggled%20HTTP/1.1 HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
    one(
        "encoded line ends",
        "in a value",
        fields!("X: a%0d%0a%0d%0aGET /smuggled HTTP/1.1%0d%0a"),
        fields!("X: a"),
    ),
    one(
        "encoded line ends",
        "as words in a value",
        fields!(r"X: a\r\n\r\nGET /smuggled HTTP/1.1\r\n"),
        fields!("X: a"),
    ),
    one(
        "encoded line ends",
        "letters that end in CR and LF when cut to a byte",
        fields!("X: a嘍嘊嘍嘊GET /smuggled HTTP/1.1"),
        fields!("X: a"),
    ),
    one(
        "encoded line ends",
        "the line ends of Unicode",
        fields!("X: a\u{85}\u{2028}\u{2029}GET /smuggled HTTP/1.1"),
        fields!("X: a"),
    ),
    one(
        "encoded line ends",
        "an encoded word",
        fields!("X: =?utf-8?q?a=0d=0aTransfer-Encoding:=20chunked?="),
        fields!("X: a"),
    ),
    one(
        "encoded line ends",
        "Content-Length in a query",
        "GET §/outer?x=%0aContent-Length:%2045 HTTP/1.1⏎Host: ¤⏎⏎",
        fields!("X: a"),
    ),
];
