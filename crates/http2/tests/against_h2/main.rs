//! The same bytes for our server and for the server of the crate `h2`: both must read the same
//! requests from them, or both must refuse them, except for the differences that are listed here.
//!
//! The connections are generated from seeds: requests that are valid or wrong in one way, in frames
//! that are valid, cut or changed in a byte.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod connections;
mod servers;

use std::collections::BTreeMap;

use http2::Reason;

use Difference::{Ends, Milder, NoUri, Other, Stricter};
use connections::Random;
use servers::{Verdict, ours, theirs};

/// Connections that are compared.
const SEEDS: u64 = 10_000;

/// How the verdicts differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// We refuse a request that `h2` takes. All that we take, `h2` takes, and reads the same.
    Stricter,
    /// We end the connection, and `h2` does not.
    Ends,
    /// We refuse a request, and `h2` ends the connection.
    Milder,
    /// We take requests whose target is no URI for `h2`. The parser of HTTP/1 judges them later.
    NoUri,
    /// Any other difference, which is never right.
    Other,
}

impl Difference {
    fn between(ours: &Verdict, theirs: &Verdict) -> Difference {
        let is_theirs = |(stream, request)| theirs.requests.get(stream) == Some(request);
        let is_ours = |(stream, request)| ours.requests.get(stream) == Some(request);
        let mut more = ours.requests.iter().filter(|(id, _)| !theirs.requests.contains_key(id));
        match (ours.is_dead, theirs.is_dead) {
            (false, false) if theirs.requests.iter().all(is_ours) => {
                if more.all(|(_, request)| !request.is_uri()) { NoUri } else { Other }
            }
            _ if ours.reasons.is_empty() => Other,
            (true, false) => Ends,
            (false, true) => Milder,
            _ if ours.requests.iter().all(is_theirs) => Stricter,
            _ => Other,
        }
    }
}

/// The differences that are right, by the rule that we enforce.
const LISTED: &[(Difference, Reason)] = &[
    // `h2` does not check these parts, or accepts more bytes in them: spaces around a value, bytes
    // that are not ASCII in a path, a user in an authority, several Hosts or one that differs.
    (Stricter, Reason::Authority),
    (Stricter, Reason::Path),
    (Stricter, Reason::Scheme),
    (Stricter, Reason::FieldValue),
    // It drops such fields or takes the last, in trailers or everywhere.
    (Stricter, Reason::ConnectionField),
    (Stricter, Reason::FieldName),
    (Stricter, Reason::PseudoRepeated),
    (Stricter, Reason::PseudoUnknown),
    // A request that was complete before the frame that broke a rule is already with its caller.
    (Stricter, Reason::Closed),
    (Stricter, Reason::WindowOverflow),
    // It ignores dependencies and PRIORITY_UPDATE.
    (Ends, Reason::SelfDependency),
    (Ends, Reason::StreamZero),
    // RFC 9113 section 8.1.1 asks for an error of the stream alone. `h2` takes what it cannot
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
];

#[test]
fn requests_are_read_as_h2_reads_them() {
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let (mut same, mut whole) = (0, 0);
    for seed in 0..SEEDS {
        let bytes = connections::generate(&mut Random::new(seed));
        let (ours, theirs) = (ours(&bytes), theirs(&bytes));
        if ours.is_same(&theirs) {
            same += 1;
            whole += u64::from(!ours.requests.is_empty());
            continue;
        }
        let difference = Difference::between(&ours, &theirs);
        let listed = |reason: &Reason| LISTED.contains(&(difference, *reason));
        if difference != NoUri && !ours.reasons.iter().any(listed) {
            let kind = format!("{difference:?} {:?}", ours.reasons);
            kinds.entry(kind).or_insert((0, seed)).0 += 1;
        }
    }
    for (kind, (count, seed)) in &kinds {
        let bytes = connections::generate(&mut Random::new(*seed));
        eprintln!("{count} times {kind}, first with seed {seed}");
        eprintln!("    ours:   {:?}\n    theirs: {:?}", ours(&bytes), theirs(&bytes));
    }
    assert!(kinds.is_empty(), "{} kinds of differences are not listed", kinds.len());
    assert!(same > SEEDS / 2 && whole > SEEDS / 3, "{same}, {whole} of them with requests");
}
