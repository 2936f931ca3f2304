//! WebSocket: an opening handshake, and messages that are echoed.
//!
//! What: the bytes that the generator sends, and the answers of the origin. A message is one binary
//! frame of at most 125 bytes (RFC 6455, 5.2). A client masks its frames. This one does so with a
//! key of zeros, so a payload is the same with and without its mask. The handshake always has the
//! key of the RFC's example, whose answer is a constant. What never happens: a fragment, a frame of
//! text, a frame of control.

/// The longest payload whose length is in the second byte of its frame.
pub(crate) const PAYLOAD_BYTES_MAX: u32 = 125;
/// The origin's answer to the handshake.
pub(crate) const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLBMiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
/// The first byte of a frame: the last one of its message, binary.
const BINARY: u8 = 0x82;
/// In the second byte: the payload is masked.
const MASKED: u8 = 0x80;
const KEY: [u8; 4] = [0; 4];

/// The handshake of a client.
pub(crate) fn handshake(host: &str, path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    .into_bytes()
}

/// A message of a client.
pub(crate) fn message(payload_bytes: u32) -> Vec<u8> {
    assert!(payload_bytes <= PAYLOAD_BYTES_MAX, "a plan is checked");
    let mut frame = vec![BINARY, MASKED | payload_bytes as u8];
    frame.extend_from_slice(&KEY);
    frame.resize(frame.len() + payload_bytes as usize, b'x');
    frame
}

/// Bytes of the frame that answers such a message.
pub(crate) fn answer_bytes(payload_bytes: u32) -> u64 {
    2 + u64::from(payload_bytes)
}

/// Appends the answer to the message at the start of `bytes`, which has the same payload. Returns
/// the bytes of the message; `None` if some are missing.
///
/// # Errors
/// It is no such message.
pub(crate) fn echo(bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, ()> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    let length = second & !MASKED;
    if *first != BINARY || second & MASKED == 0 || u32::from(length) > PAYLOAD_BYTES_MAX {
        return Err(());
    }
    let Some((key, payload)) = rest.split_at_checked(KEY.len()) else { return Ok(None) };
    if key != KEY {
        return Err(());
    }
    let Some(payload) = payload.get(..usize::from(length)) else { return Ok(None) };
    out.extend_from_slice(&[BINARY, length]);
    out.extend_from_slice(payload);
    Ok(Some(2 + KEY.len() + payload.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_answered_with_its_payload() {
        let mut bytes = message(100);
        bytes.push(BINARY);
        for cut in 0..106 {
            assert_eq!(echo(&bytes[..cut], &mut Vec::new()), Ok(None), "cut at {cut}");
        }
        let mut out = Vec::new();
        assert_eq!(echo(&bytes, &mut out), Ok(Some(106)));
        assert_eq!(out.len() as u64, answer_bytes(100));
        assert_eq!(out[2..], [b'x'; 100]);
    }

    #[test]
    fn other_frames_are_refused() {
        for (at, byte) in [(0, 0x81), (0, 0x02), (1, 100), (1, 0xfe), (2, 1)] {
            let mut bytes = message(100);
            bytes[at] = byte;
            assert_eq!(echo(&bytes, &mut Vec::new()), Err(()), "byte {at}: {byte}");
        }
    }
}
