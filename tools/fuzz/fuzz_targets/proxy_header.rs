//! The header of the PROXY protocol: parsing never consumes more than its input, a part of a header
//! is never taken for the whole, and the bytes after it change nothing.
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
