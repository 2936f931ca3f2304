//! Checks of the crate http3, for the fuzz targets and for the tests that replay their corpora:
//! what must hold whatever the peer sends.

use http3::{
    Connection, Control, Event, Limits, MessageStream, Reason, Scratch, UniStream, qpack, write,
};

/// The first byte of an input of [`messages`].
const RESPONSE: u8 = 1;
const TO_HEAD: u8 = 2;

/// What a stream reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// Events in words, with the pieces of content joined.
    pub(crate) events: Vec<String>,
    pub(crate) error: Option<Reason>,
}

/// Target `http3_messages`: the first byte selects the kind of message, the second how the input
/// is split, and the others are the stream.
pub(crate) fn messages(data: &[u8]) {
    let [flags, split, sent @ ..] = data else { return };
    let run = |length: usize| {
        message(
            match flags & RESPONSE != 0 {
                true => MessageStream::response(flags & TO_HEAD != 0),
                false => MessageStream::request(),
            },
            sent.chunks(length.max(1)),
        )
    };
    let whole = run(sent.len());
    for length in [1, usize::from(*split).max(2)] {
        assert_eq!(whole, run(length), "split at each {length} bytes");
    }
}

/// Reads one stream to its end.
pub(crate) fn message<'b>(
    mut stream: MessageStream,
    pieces: impl Iterator<Item = &'b [u8]>,
) -> Log {
    let (limits, mut scratch, mut log) = (Limits::DEFAULT, Scratch::new(), Log::default());
    let mut content = Vec::new();
    for (piece, is_end) in pieces.map(|piece| (piece, false)).chain([(&[][..], true)]) {
        let mut at = 0;
        loop {
            let rest = &piece[at..];
            let received = match stream.next_event(rest, is_end, &mut scratch, &limits) {
                Ok(received) => received,
                Err(error) => {
                    log.error = Some(error.0);
                    return log;
                }
            };
            assert!(received.consumed <= rest.len());
            at += received.consumed;
            match received.event {
                None => break,
                Some(Event::Data(bytes)) => {
                    assert!(!bytes.is_empty());
                    content.extend_from_slice(bytes);
                }
                Some(event) => {
                    if !content.is_empty() {
                        log.events.push(format!("content: {}", content.escape_ascii()));
                        content.clear();
                    }
                    log.events.push(format!("{event:?}"));
                    encodes_again(&event);
                }
            }
        }
        assert_eq!(at, piece.len(), "without an event all is consumed");
    }
    log
}

/// What was decoded is encoded and decoded again.
fn encodes_again(event: &Event<'_>) {
    let fields = match event {
        Event::Request(head) => head.fields,
        Event::Response(head) => head.fields,
        Event::Trailers(fields) => *fields,
        Event::Data(_) | Event::End => return,
    };
    let mut section = qpack::PREFIX.to_vec();
    for (name, value) in fields.iter() {
        qpack::encode_field(name, value, &mut section);
    }
    let mut again = Scratch::new();
    qpack::decode(&section, &mut again, &Limits::DEFAULT).expect("a section that we wrote");
    assert!(fields.iter().eq(again.fields_of_block().iter()));
}

/// Target `http3_control`: the first byte selects the role, the second how the input is split. The
/// others are unidirectional streams, each behind a byte that says how long it is.
pub(crate) fn control(data: &[u8]) {
    let [flags, split, sent @ ..] = data else { return };
    let run = |length| control_log(flags & RESPONSE != 0, sent, length);
    let whole = run(sent.len());
    for length in [1, usize::from(*split).max(2)] {
        assert_eq!(whole, run(length), "split at each {length} bytes");
    }
}

fn control_log(is_client: bool, sent: &[u8], length: usize) -> (Vec<Control>, Option<Reason>) {
    let mut connection = match is_client {
        true => Connection::client(&Limits::DEFAULT),
        false => Connection::server(&Limits::DEFAULT),
    };
    let (mut events, mut rest) = (Vec::new(), sent);
    while let Some((&len, after)) = rest.split_first() {
        let (bytes, after) = after.split_at(after.len().min(len as usize));
        rest = after;
        let mut stream = UniStream::default();
        for piece in bytes.chunks(length.max(1)) {
            let mut at = 0;
            loop {
                match connection.next_event(&mut stream, &piece[at..], false, 0) {
                    Ok((used, event)) => {
                        at += used;
                        assert!(at <= piece.len());
                        match event {
                            Some(event) => events.push(event),
                            None => break,
                        }
                    }
                    Err(error) => return (events, Some(error.0)),
                }
            }
            assert_eq!(at, piece.len(), "without an event all is consumed");
        }
    }
    (events, None)
}

/// What we write is read as it was meant. For the tests that use no corpus.
pub(crate) fn control_is_read(limits: &Limits) {
    let mut out = Vec::new();
    write::control(limits, &mut out);
    write::go_away(8, &mut out);
    let mut data = vec![RESPONSE, 3, out.len() as u8];
    data.extend_from_slice(&out);
    control(&data);
    let log = control_log(true, &data[2..], out.len());
    assert_eq!(log, (vec![Control::Settings, Control::GoAway(8)], None));
}
