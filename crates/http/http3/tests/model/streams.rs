//! Random streams: nothing panics, and how they are cut changes nothing.

use http3::{Limits, MessageStream, RequestFields, write};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::checks;

/// A frame that is valid somewhere, or nearly.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let request = RequestFields {
        method: b"POST",
        scheme: Some(b"https"),
        authority: b"h",
        path: Some(b"/"),
        protocol: None,
    };
    let (mut head, mut length, mut response, mut interim, mut trailers) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    write::request(&request, [], &mut head);
    write::request(&request, [(&b"content-length"[..], &b"5"[..])], &mut length);
    write::response(200, [(&b"server"[..], &b"x"[..])], &mut response);
    write::response(103, [], &mut interim);
    write::trailers([(&b"x-sum"[..], &b"1"[..])], &mut trailers);
    prop_oneof![
        4 => Just(head),
        2 => Just(length),
        2 => Just(response),
        1 => Just(interim),
        2 => Just(trailers),
        4 => vec(any::<u8>(), 0..10).prop_map(|content| {
            let mut out = Vec::new();
            write::data(content.len() as u64, &mut out);
            out.extend_from_slice(&content);
            out
        }),
        1 => Just(vec![0x21, 3, 0, 0, 0]),
        1 => vec(any::<u8>(), 1..6),
    ]
}

proptest! {
    #[test]
    fn cuts_change_nothing(
        flags in 0..4u8,
        split in any::<u8>(),
        frames in vec(frame(), 0..6),
        dropped in 0..4usize,
    ) {
        let mut data = vec![flags, split];
        data.extend(frames.concat());
        data.truncate(data.len().saturating_sub(dropped).max(2));
        checks::messages(&data);
    }

    #[test]
    fn any_bytes_may_come(data in vec(any::<u8>(), 0..200)) {
        checks::messages(&data);
        checks::control(&data);
    }

    /// Cut in two at every place.
    #[test]
    fn one_cut_changes_nothing(frames in vec(frame(), 1..4)) {
        let sent = frames.concat();
        let whole = checks::message(MessageStream::request(), [&sent[..]].into_iter());
        for at in 0..=sent.len() {
            let (first, second) = sent.split_at(at);
            let cut = checks::message(MessageStream::request(), [first, second].into_iter());
            prop_assert_eq!(&whole, &cut, "cut at {}", at);
        }
    }
}

#[test]
fn what_we_write_on_the_control_stream_is_read() {
    checks::control_is_read(&Limits::DEFAULT);
}
