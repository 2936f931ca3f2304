//! The same bytes for our server and for two others, the crate `h2` and the library nghttp2: all
//! must read the same requests from them, or all must refuse them with the same error code, except
//! for the differences that are listed here.
//!
//! The connections are generated from seeds: requests that are valid or wrong in one way, in frames
//! that are valid, cut or changed in a byte.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod connections;
mod nghttp2;
mod servers;

use std::collections::BTreeMap;
use std::ops::Range;

use http2::Reason;

use Difference::{Code, Ends, Milder, Other, Stricter, Takes};
use connections::Random;
use nghttp2::nghttp2;
use servers::{Request, Verdict, h2, ours};

/// The connections that are compared. `PLIMSOLL_SEEDS=42` or `PLIMSOLL_SEEDS=0..100000` selects
/// others.
const SEEDS: Range<u64> = 0..10_000;

/// How the verdicts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// We refuse a request that the other takes. All that we take, it takes, and reads the same.
    Stricter,
    /// We end the connection, and the other does not.
    Ends,
    /// We refuse a request, and the other ends the connection.
    Milder,
    /// We take requests that the other refuses, for the reason in [`Listed::takes`].
    Takes,
    /// The same is refused, with another error code.
    Code,
    /// Any other difference, which is never right.
    Other,
}

/// Differences from a server that are right.
struct Listed {
    /// By the rule that we enforce.
    reasons: &'static [(Difference, Reason)],
    /// Whether we may take a request that the other refuses.
    takes: fn(&Request) -> bool,
}

impl Listed {
    /// How the verdicts differ, if that is not listed.
    fn difference(&self, ours: &Verdict, theirs: &Verdict) -> Option<Difference> {
        let differs = |(at, code)| theirs.codes.get(at).is_some_and(|their| their != code);
        let difference = match ours.is_same(theirs) {
            false => self.between(ours, theirs),
            true if ours.codes.iter().any(differs) => Code,
            true => return None,
        };
        let is_listed = |reason: &Reason| self.reasons.contains(&(difference, *reason));
        let is_right = difference == Takes || ours.reasons.iter().any(is_listed);
        (!is_right).then_some(difference)
    }

    fn between(&self, ours: &Verdict, theirs: &Verdict) -> Difference {
        let is_theirs = |(stream, request)| theirs.requests.get(stream) == Some(request);
        let is_ours = |(stream, request)| ours.requests.get(stream) == Some(request);
        let mut more = ours.requests.iter().filter(|(id, _)| !theirs.requests.contains_key(id));
        match (ours.is_dead(), theirs.is_dead()) {
            (false, false) if theirs.requests.iter().all(is_ours) => {
                if more.all(|(_, request)| (self.takes)(request)) { Takes } else { Other }
            }
            _ if ours.reasons.is_empty() => Other,
            (true, false) => Ends,
            (false, true) => Milder,
            _ if ours.requests.iter().all(is_theirs) => Stricter,
            _ => Other,
        }
    }

    /// Compares all connections with the verdicts of the other server on them.
    fn compare(&self, theirs: impl Iterator<Item = Verdict>) {
        let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let (mut all, mut same, mut whole) = (0, 0, 0);
        for ((seed, bytes), theirs) in generated().zip(theirs) {
            let ours = ours(&bytes);
            all += 1;
            if ours.is_same(&theirs) {
                same += 1;
                whole += u64::from(!ours.requests.is_empty());
            }
            let Some(difference) = self.difference(&ours, &theirs) else { continue };
            let kind = format!("{difference:?} {:?}", ours.reasons);
            let (count, _) = kinds.entry(kind.clone()).or_insert((0, seed));
            *count += 1;
            if *count == 1 {
                eprintln!("{kind}, seed {seed}: {}", bytes.escape_ascii());
                eprintln!("    ours:   {ours:?}\n    theirs: {theirs:?}");
            }
        }
        for (kind, (count, seed)) in &kinds {
            eprintln!("{count} times {kind}, first with seed {seed}");
        }
        assert!(kinds.is_empty(), "{} kinds of differences are not listed", kinds.len());
        let is_usual = same > all / 2 && whole > all / 3;
        assert!(is_usual || all < 1000, "{same} of {all}, {whole} of them with requests");
    }
}

fn generated() -> impl Iterator<Item = (u64, Vec<u8>)> {
    let seeds = std::env::var("PLIMSOLL_SEEDS").map_or(SEEDS, |text| {
        let (first, end) = text.split_once("..").unwrap_or((&text, ""));
        let first = first.parse().expect("a number or a range 0..1000");
        first..end.parse().unwrap_or(first + 1)
    });
    seeds.map(|seed| (seed, connections::generate(&mut Random::new(seed))))
}

const H2: Listed = Listed {
    reasons: &[
        // It does not check these parts, or accepts more bytes in them: spaces around a value,
        // bytes that are not ASCII in a path, a user in an authority, several Hosts or one that
        // differs.
        (Stricter, Reason::Authority),
        (Stricter, Reason::Path),
        (Stricter, Reason::Scheme),
        (Stricter, Reason::FieldValue),
        // It drops such fields or takes the last, in trailers or everywhere.
        (Stricter, Reason::ConnectionField),
        (Stricter, Reason::FieldName),
        (Stricter, Reason::PseudoRepeated),
        (Stricter, Reason::PseudoUnknown),
        // Before CONTINUATION, it may pass over a pseudo-field after a field.
        (Stricter, Reason::PseudoOrder),
        // A request that was complete before the frame that broke a rule is already with its
        // caller.
        (Stricter, Reason::Closed),
        (Stricter, Reason::WindowOverflow),
        // It answers these with PROTOCOL_ERROR.
        (Code, Reason::Closed),
        (Code, Reason::FrameLength),
        (Code, Reason::HpackHuffman),
        (Code, Reason::HpackIndex),
        (Code, Reason::HpackInteger),
        (Code, Reason::HpackSizeUpdate),
        (Code, Reason::HpackTruncated),
        (Code, Reason::WindowSetting),
        // It ignores dependencies and PRIORITY_UPDATE.
        (Ends, Reason::SelfDependency),
        (Ends, Reason::StreamZero),
        // RFC 9113 section 8.1.1 asks for an error of the stream alone. It takes what it cannot
        // represent for a failure of HPACK, and some other errors of a stream for those of the
        // connection, which section 5.4.2 allows.
        (Milder, Reason::Authority),
        (Milder, Reason::Closed),
        (Milder, Reason::ConnectionField),
        (Milder, Reason::ContentLength),
        (Milder, Reason::FieldName),
        (Milder, Reason::FieldValue),
        (Milder, Reason::Method),
        (Milder, Reason::Path),
        (Milder, Reason::PseudoOrder),
        (Milder, Reason::PseudoRepeated),
        (Milder, Reason::PseudoUnknown),
        (Milder, Reason::Scheme),
        (Milder, Reason::WindowIncrement),
    ],
    // It cannot represent a target that is no URI. Our parser of HTTP/1 judges it later. And it
    // refuses `te: Trailers`, although strings of a grammar match in any case.
    takes: |request| {
        let is_te = |(name, value): &(String, String)| name == "te" && value != "trailers";
        !request.is_uri() || request.fields.iter().any(is_te)
    },
};

const NGHTTP2: Listed = Listed {
    reasons: &[
        // It accepts bytes that are not ASCII in a path, and a user in an authority.
        (Stricter, Reason::Authority),
        (Stricter, Reason::Path),
        // RFC 9113 section 5.1 asks for an error of the stream alone, after END_STREAM, and so
        // does section 6.9 if an increment is 0. Section 5.4.2 allows that of the connection.
        (Milder, Reason::Closed),
        (Milder, Reason::WindowIncrement),
        // A request that is refused at its END_STREAM. We have reset the stream, and ignore what
        // follows on it.
        (Milder, Reason::ContentLength),
        (Milder, Reason::PseudoMissing),
        // RFC 9113 section 5.1.1 asks for a connection error if HEADERS are for a stream that was
        // skipped. It ignores them.
        (Ends, Reason::Closed),
        // It ignores dependencies, and PRIORITY_UPDATE.
        (Ends, Reason::SelfDependency),
        (Ends, Reason::StreamZero),
        // A padded frame that is empty (RFC 9113 section 4.2). It answers with PROTOCOL_ERROR.
        (Code, Reason::FrameLength),
        // A frame that breaks two rules, or the first of two wrong frames.
        (Code, Reason::Closed),
        (Code, Reason::Interleaved),
        (Code, Reason::Padding),
        (Code, Reason::SelfDependency),
        (Code, Reason::StreamZero),
    ],
    // It refuses some trailers that may not be merged (RFC 9110 section 6.5.1). We drop them when
    // we pass trailers on. Our parser of HTTP/1 refuses a `|` in an authority.
    takes: |request| {
        let is_ignored = |name: &str| ["content-length", "host"].contains(&name);
        !request.is_uri() || request.trailers.iter().any(|(name, _)| is_ignored(name))
    },
};

#[test]
fn requests_are_read_as_h2_reads_them() {
    H2.compare(generated().map(|(_, bytes)| h2(&bytes)));
}

#[test]
fn requests_are_read_as_nghttp2_reads_them() {
    let connections: Vec<Vec<u8>> = generated().map(|(_, bytes)| bytes).collect();
    NGHTTP2.compare(nghttp2(&connections).into_iter());
}
