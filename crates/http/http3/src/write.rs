//! The bytes to send.

use http2::RequestFields;
use http2::message::may_be_sent;

use crate::limits::Limits;
use crate::{frame, qpack, varint};

/// The type of a control stream (RFC 9114 section 6.2.1).
pub(crate) const CONTROL_STREAM: u64 = 0x0;
pub(crate) const SETTING_TABLE_BYTES: u64 = 0x1;
pub(crate) const SETTING_FIELDS_BYTES: u64 = 0x6;
pub(crate) const SETTING_BLOCKED_STREAMS: u64 = 0x7;
/// RFC 9220 section 5.
pub(crate) const SETTING_EXTENDED_CONNECT: u64 = 0x8;

/// A field section's length is written in four bytes, so that it can be filled in afterwards.
const LENGTH_BYTES: usize = 4;

/// The start of our control stream: its type, and SETTINGS.
pub fn control(limits: &Limits, out: &mut Vec<u8>) {
    let mut settings = Vec::new();
    for (setting, value) in [
        (SETTING_TABLE_BYTES, 0),
        (SETTING_BLOCKED_STREAMS, 0),
        (SETTING_FIELDS_BYTES, u64::from(limits.fields_bytes_max)),
        (SETTING_EXTENDED_CONNECT, u64::from(limits.extended_connect)),
    ] {
        varint::write(&mut settings, setting);
        varint::write(&mut settings, value);
    }
    varint::write(out, CONTROL_STREAM);
    varint::write(out, frame::SETTINGS);
    varint::write(out, settings.len() as u64);
    out.extend_from_slice(&settings);
}

/// GOAWAY, for the control stream: streams from this identifier on are not processed. A later
/// GOAWAY may only have a lower one.
pub fn go_away(id: u64, out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    varint::write(&mut payload, id);
    varint::write(out, frame::GOAWAY);
    varint::write(out, payload.len() as u64);
    out.extend_from_slice(&payload);
}

/// The head of a response. Names are sent in lower case. Fields that are specific to HTTP/1
/// connections and fields with invalid bytes are left out.
pub fn response<'f>(
    status: u16,
    fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
    out: &mut Vec<u8>,
) {
    section(out, |out| {
        let digits = [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
        qpack::encode_field(b":status", &digits, out);
        all(fields, out);
    });
}

/// A head or trailers, from fields that were encoded before with [`qpack::encode_field`].
pub fn encoded(fields: &[u8], out: &mut Vec<u8>) {
    section(out, |out| out.extend_from_slice(fields));
}

/// The head of a request. Fields are treated as by [`response`].
pub fn request<'f>(
    request: &RequestFields<'_>,
    fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
    out: &mut Vec<u8>,
) {
    let RequestFields { method, scheme, authority, path, protocol } = *request;
    section(out, |out| {
        qpack::encode_field(b":method", method, out);
        for (name, value) in
            [(&b":scheme"[..], scheme), (b":authority", Some(authority)), (b":path", path)]
        {
            if let Some(value) = value {
                qpack::encode_field(name, value, out);
            }
        }
        if let Some(protocol) = protocol {
            qpack::encode_field(b":protocol", protocol, out);
        }
        all(fields, out);
    });
}

/// Trailers. Fields are treated as by [`response`].
pub fn trailers<'f>(fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>, out: &mut Vec<u8>) {
    section(out, |out| all(fields, out));
}

/// The header of DATA; the content follows.
pub fn data(length: u64, out: &mut Vec<u8>) {
    varint::write(out, frame::DATA);
    varint::write(out, length);
}

fn all<'f>(fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>, out: &mut Vec<u8>) {
    for (name, value) in fields.into_iter().filter(|(name, value)| may_be_sent(name, value)) {
        qpack::encode_field(name, value, out);
    }
}

/// HEADERS, with what `append` writes behind the prefix of a field section.
fn section(out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>)) {
    varint::write(out, frame::HEADERS);
    let start = out.len() + LENGTH_BYTES;
    out.resize(start, 0);
    out.extend_from_slice(&qpack::PREFIX);
    append(out);
    let length = (out.len() - start) as u32 | 0x8000_0000;
    out[start - LENGTH_BYTES..start].copy_from_slice(&length.to_be_bytes());
}
