//! Random frames: the events do not depend on how they are split, and nothing panics.

use proptest::prelude::*;

use crate::checks;

const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'h'];
const OK: &[u8] = &[0x88];

/// A frame as bytes: mostly of known types, mostly on few streams, mostly with fitting payloads.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![10 => 0u8..11, 1 => Just(16), 1 => any::<u8>()];
    let flags = prop_oneof![Just(0u8), Just(1), Just(4), Just(5), Just(5), Just(8), Just(0x2d)];
    let stream = prop_oneof![4 => 0u32..8, 1 => any::<u32>()];
    let payload = prop_oneof![
        Just(GET.to_vec()),
        Just(OK.to_vec()),
        Just([GET, &[0x0f, 13, 1, b'3']].concat()),
        prop::collection::vec(any::<u8>(), 0..24),
        prop::collection::vec(0u8..4, 4..=4),
        prop::collection::vec(0u8..4, 8..=8),
        prop::collection::vec(0u8..9, 6..=6),
        (0usize..400).prop_map(|length| vec![0; length]),
    ];
    (kind, flags, stream, payload).prop_map(|(kind, flags, stream, payload)| {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend_from_slice(&[kind, flags]);
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(&payload);
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::some(6000),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn events_do_not_depend_on_the_pieces(
        is_client: bool,
        split: u8,
        frames in prop::collection::vec(frame(), 0..12),
    ) {
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let mut data = vec![u8::from(is_client), split];
        data.extend_from_slice(&settings);
        data.extend(frames.into_iter().flatten());
        checks::frames(&data);
    }

    #[test]
    fn any_bytes_are_survived(data in prop::collection::vec(any::<u8>(), 0..80)) {
        checks::frames(&data);
        checks::hpack(&data);
    }
}
