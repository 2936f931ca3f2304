//! A ClientHello: the verdict does not depend on how the bytes are split, nor on the bytes after
//! the message, and every received byte is passed on.
#![no_main]

use policy::client_hello::{ClientHello, Verdict};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut at_once = ClientHello::default();
    let whole = at_once.push(data);
    assert_eq!(at_once.into_bytes(), data, "not a byte is changed");
    let mut by_bytes = ClientHello::default();
    let mut verdict = Verdict::More;
    for (at, byte) in data.iter().enumerate() {
        verdict = by_bytes.push(&[*byte]);
        if verdict != Verdict::More {
            let after = ClientHello::default().push(&data[..=at]);
            assert_eq!(verdict, after, "as far as byte {at}");
            break;
        }
    }
    // More bytes may be invalid after a valid message, but never the other way round.
    match (&verdict, &whole) {
        (Verdict::Whole { .. }, Verdict::Never(_)) => {}
        _ => assert_eq!(verdict, whole),
    }
});
