//! The header of the PROXY protocol: it never takes more than it was given, what has come of one is
//! never taken for the whole, and what is behind it changes nothing.
#![no_main]

use transport::proxy_protocol::parse_header;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(Some(header)) = parse_header(data) else { return };
    assert!(header.bytes <= data.len());
    assert_eq!(parse_header(&data[..header.bytes]), Ok(Some(header)));
    for cut in 0..header.bytes {
        assert_eq!(parse_header(&data[..cut]), Ok(None), "cut at {cut}");
    }
});
