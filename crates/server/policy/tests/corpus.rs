//! The corpora of the fuzz targets `readings`, `hosts` and `field_names`, replayed, and generated
//! inputs: rules on paths, hosts and fields against slow second implementations.

#[path = "../../../../tools/fuzz/checks/readings.rs"]
mod checks;
#[path = "../../../../tools/fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../../tools/fuzz/checks/field_names.rs"]
mod field_names;
#[path = "../../../../tools/fuzz/checks/hosts.rs"]
mod hosts;

use proptest::prelude::*;

#[test]
fn readings_of_the_corpus() {
    corpus::replay("readings", checks::routes);
}

#[test]
fn hosts_of_the_corpus() {
    corpus::replay("hosts", hosts::forward);
}

#[test]
fn field_names_of_the_corpus() {
    corpus::replay("field_names", field_names::fields);
}

#[rustfmt::skip]
const HOST_PIECES: &[&str] = &[
    "blocked.example", "deep.a.example", "example", "a", ".", ".", "..", "10.0.0.1", "10", "0",
    "1", "0x", "0a", "[::ffff:", "[64:ff9b::", "[64:ff9b:1::", "[2002:a00:1::", "[fe80::5efe:",
    "[::", "[::ffff:0:", "a00:1]", "10.0.0.1]", "a00:2]", "]", "%2e", "_", "-",
];

#[rustfmt::skip]
const FIELD_PIECES: &[&str] = &[
    "Connection: X-Secret, Origin\r\n", "Connection: x-kind,,close\r\n",
    "connection: \tTE ,vary\r\n", "Origin: a\r\n",
    "X-Secret: a\r\n", "X_Secret: a\r\n", "X-Kind: \tb \r\n", "x.kind: b\r\n",
    "X-Remote-User: a\r\n", "x_remote_user: a\r\n", "X.Remote.User:\r\n", "Vary: a\r\n",
    "TE: a\r\n",
    "X-Forwarded-For: 10.0.0.1\r\n", "X_Forwarded-For: 10.0.0.1\r\n", "X-Forwarded-Proto: a\r\n",
    "Connection: ", "X-Secret", "Origin", ": ", ", ", "\r\n", "\n", " ",
];

#[rustfmt::skip]
const PIECES: &[&str] = &[
    "/", "/", "//", "%2F", "%2f", "%5C", "\\", ";", "%3B", ".", "..", "%2e", "%00", "%25", "%",
    "a", "b", "s", "u", "k", "admin", "%61dmin", "moved", "h", "=1", "\u{e9}",
];

fn pieces(of: &'static [&str], max: usize) -> impl Strategy<Value = String> {
    let pieces = proptest::collection::vec(proptest::sample::select(of), 0..max);
    pieces.prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn routes_judge_as_a_slow_implementation_does(host: u8, path in pieces(PIECES, 10)) {
        checks::routes(&[&[host], path.as_bytes()].concat());
    }

    #[test]
    fn rules_on_hosts_judge_as_a_slow_implementation_does(
        settings: u8, host in pieces(HOST_PIECES, 5),
    ) {
        hosts::forward(&[&[settings], host.as_bytes()].concat());
    }

    #[test]
    fn fields_are_those_of_a_slow_implementation(
        settings: u8, lines in pieces(FIELD_PIECES, 8),
    ) {
        field_names::fields(&[&[settings], lines.as_bytes()].concat());
    }
}
