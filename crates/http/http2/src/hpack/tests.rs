//! The examples of RFC 7541 appendix C, and properties of encoder and decoder together.

use super::*;
use crate::error::Reason;
use crate::limits::FIELD_OVERHEAD_BYTES;
use crate::scratch::Scratch;
use proptest::prelude::*;

type List = Vec<(Vec<u8>, Vec<u8>)>;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn list(text: &str) -> List {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (name, value) = line.split_at(line[1..].find(": ").unwrap() + 1);
            (name.as_bytes().to_vec(), value.as_bytes()[2..].to_vec())
        })
        .collect()
}

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<List, Reason> {
    let mut scratch = Scratch::new();
    decoder.decode(block, &mut scratch, 100, 100_000)?;
    Ok(scratch.fields(0).iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect())
}

fn check(decoder: &mut Decoder, block: &str, fields: &str, table_size: usize) {
    assert_eq!(decoded(decoder, &bytes(block)), Ok(list(fields)));
    assert_eq!(decoder.table().size(), table_size);
}

#[test]
fn rfc7541_c_2_literals_and_indices() {
    let mut decoder = Decoder::new(4096);
    let block = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    check(&mut decoder, block, "custom-key: custom-header", 55);
    let mut decoder = Decoder::new(4096);
    check(&mut decoder, "040c 2f73 616d 706c 652f 7061 7468", ":path: /sample/path", 0);
    check(&mut decoder, "1008 7061 7373 776f 7264 0673 6563 7265 74", "password: secret", 0);
    check(&mut decoder, "82", ":method: GET", 0);
}

const REQUESTS: [(&str, usize); 3] = [
    (":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com", 57),
    (
        ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n\
         cache-control: no-cache",
        110,
    ),
    (
        ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
         custom-key: custom-value",
        164,
    ),
];

#[test]
fn rfc7541_c_3_and_c_4_requests() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let huffman = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::new(4096);
        for (block, (fields, table_size)) in blocks.iter().zip(REQUESTS) {
            check(&mut decoder, block, fields, table_size);
        }
    }
}

#[test]
fn rfc7541_c_5_and_c_6_responses_with_eviction() {
    let fields = |status: u32, second: u32, more: &str| {
        format!(
            ":status: {status}\ncache-control: private\n\
             date: Mon, 21 Oct 2013 20:13:{second} GMT\n\
             location: https://www.example.com\n{more}"
        )
    };
    let more = "content-encoding: gzip\n\
                set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a
         3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04
         677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49
         553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ];
    let huffman = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed
         4ee5 b106 3d50 07",
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::new(256);
        check(&mut decoder, blocks[0], &fields(302, 21, ""), 222);
        check(&mut decoder, blocks[1], &fields(307, 21, ""), 222);
        check(&mut decoder, blocks[2], &fields(200, 22, more), 215);
    }
}

#[test]
fn rfc7541_4_2_size_updates() {
    let mut decoder = Decoder::new(100);
    assert_eq!(decoded(&mut decoder, &[0x3f, 69]), Ok(vec![]), "100 is allowed");
    assert_eq!(decoded(&mut decoder, &[0x3f, 70]), Err(Reason::HpackSizeUpdate), "101 is not");
    assert_eq!(decoded(&mut decoder, &[0x82, 0x20]), Err(Reason::HpackSizeUpdate), "misplaced");
    decoder.allow(50);
    assert_eq!(decoded(&mut decoder, &[0x82]), Err(Reason::HpackSizeUpdate), "missing");
    assert_eq!(decoded(&mut decoder, &[0x20, 0x3f, 19, 0x82]).map(|list| list.len()), Ok(1));
    assert_eq!(decoded(&mut decoder, &[0x82]).map(|list| list.len()), Ok(1));
}

#[test]
fn rfc7541_2_3_3_and_5_1_invalid_blocks() {
    for (block, reason) in [
        (&[0x80][..], Reason::HpackIndex),
        (&[0x80 | 62], Reason::HpackIndex),
        (&[0x40], Reason::HpackTruncated),
        (&[0x40, 5, b'a'], Reason::HpackTruncated),
        (&[0x40, 1, b'a', 0x7f], Reason::HpackTruncated),
        (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Reason::HpackInteger),
        (&[0x40, 0x81, 0xff, 0], Reason::HpackHuffman),
    ] {
        assert_eq!(decoded(&mut Decoder::new(4096), block), Err(reason), "{block:x?}");
    }
}

#[test]
fn rfc9113_10_5_1_a_list_above_its_limit_is_not_stored() {
    let mut decoder = Decoder::new(4096);
    let mut scratch = Scratch::new();
    let mut block = vec![0x40, 1, b'a'];
    integer::write(&mut block, 0, 7, 3000);
    block.extend_from_slice(&[b'v'; 3000]);
    block.extend_from_slice(&[0x80 | 62; 9]);
    decoder.decode(&block, &mut scratch, 100, 10_000).unwrap();
    assert!(scratch.overflow && scratch.arena.len() <= 10_000 && scratch.spans.len() == 3);
    decoder.decode(&[0x82; 101], &mut scratch, 100, 10_000).unwrap();
    assert!(scratch.overflow && scratch.spans.len() == 100);
    let result = decoder.decode(&[0x80 | 62; 14], &mut scratch, 100, 10_000);
    assert_eq!(result, Err(Reason::BlockTooLarge), "four times the limit");
}

#[test]
fn a_repeated_field_is_one_byte_from_the_third_time_on() {
    let mut encoder = Encoder::new(512);
    let mut lengths = Vec::new();
    for _ in 0..4 {
        let mut out = Vec::new();
        encoder.field(b"Server", b"plimsoll", &mut out);
        lengths.push(out.len());
    }
    assert_eq!(lengths[2..], [1, 1]);
    let mut out = Vec::new();
    for _ in 0..3 {
        out.clear();
        encoder.field(b"Cookie", b"a=b", &mut out);
    }
    assert_eq!(out[0] & 0xf0, 0x10, "never indexed");
}

fn field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let name = prop_oneof![
        Just("server".to_string()),
        Just("content-type".to_string()),
        Just("x-y".to_string()),
        Just(":path".to_string()),
        Just("cookie".to_string()),
        "[a-z-]{1,80}",
    ];
    let value = prop_oneof![
        Just(b"text/html".to_vec()),
        Just(vec![]),
        prop::collection::vec(any::<u8>(), 0..80),
        prop::collection::vec(b' '..b'~', 0..300),
    ];
    (name.prop_map(String::into_bytes), value)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_the_encoder_writes_is_decoded_to_the_same(
        lists in prop::collection::vec(prop::collection::vec(field(), 0..12), 1..12),
        sizes in prop::collection::vec(0usize..600, 12),
        changes in any::<u16>(),
    ) {
        let mut encoder = Encoder::new(400);
        let mut decoder = Decoder::new(4096);
        for (turn, list) in lists.iter().enumerate() {
            if changes >> turn & 1 == 1 {
                encoder.allow(sizes[turn]);
                decoder.allow(sizes[turn]);
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in list {
                encoder.field(name, value, &mut block);
            }
            prop_assert_eq!(&decoded(&mut decoder, &block), &Ok(list.clone()));
        }
    }

    #[test]
    fn any_bytes_are_decoded_within_the_limits(
        block in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut scratch = Scratch::new();
        let _ = Decoder::new(256).decode(&block, &mut scratch, 4, 300);
        // More than four only if they are crumbs of one `cookie`, and then bounded by the bytes.
        prop_assert!(scratch.spans.len() - scratch.crumbs <= 4);
        prop_assert!(scratch.spans.len() * FIELD_OVERHEAD_BYTES <= 300);
    }
}
