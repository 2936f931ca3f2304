//! SETTINGS (RFC 9113 section 6.5): what the peer has set, and the frame that we send.

use crate::error::Reason;
use crate::frame::{self, kind};
use crate::limits::{
    FRAME_BYTES, Limits, TABLE_BYTES_INITIAL, WINDOW_BYTES_CEILING, WINDOW_BYTES_INITIAL,
};

mod id {
    pub(super) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(super) const ENABLE_PUSH: u16 = 0x2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(super) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(super) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    pub(super) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
    pub(super) const NO_RFC7540_PRIORITIES: u16 = 0x9;
}

/// The bytes of one setting.
const SETTING_BYTES: usize = 6;

/// What the peer has set, or the initial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerSettings {
    /// The largest table that it decompresses with.
    pub table_bytes: u32,
    /// The streams that it lets us open.
    pub streams_max: u32,
    /// What it lets us send on a new stream.
    pub window_bytes: u32,
    /// The largest frame that it reads.
    pub frame_bytes: u32,
    /// The largest field list that it accepts, if it says so.
    pub fields_bytes_max: u32,
    /// It supports extended CONNECT (RFC 8441).
    pub extended_connect: bool,
}

impl PeerSettings {
    pub(crate) const INITIAL: PeerSettings = PeerSettings {
        table_bytes: TABLE_BYTES_INITIAL as u32,
        streams_max: u32::MAX,
        window_bytes: WINDOW_BYTES_INITIAL,
        frame_bytes: FRAME_BYTES as u32,
        fields_bytes_max: u32::MAX,
        extended_connect: false,
    };

    /// Takes over the payload of a SETTINGS frame.
    pub(crate) fn apply(&mut self, payload: &[u8], is_from_server: bool) -> Result<(), Reason> {
        for setting in payload.chunks_exact(SETTING_BYTES) {
            let name = u16::from_be_bytes([setting[0], setting[1]]);
            let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
            match name {
                id::HEADER_TABLE_SIZE => self.table_bytes = value,
                id::ENABLE_PUSH if value > 1 || (is_from_server && value == 1) => {
                    return Err(Reason::Setting);
                }
                id::MAX_CONCURRENT_STREAMS => self.streams_max = value,
                id::INITIAL_WINDOW_SIZE if value > WINDOW_BYTES_CEILING => {
                    return Err(Reason::WindowSetting);
                }
                id::INITIAL_WINDOW_SIZE => self.window_bytes = value,
                id::MAX_FRAME_SIZE if !(FRAME_BYTES as u32..1 << 24).contains(&value) => {
                    return Err(Reason::Setting);
                }
                id::MAX_FRAME_SIZE => self.frame_bytes = value,
                id::MAX_HEADER_LIST_SIZE => self.fields_bytes_max = value,
                id::ENABLE_CONNECT_PROTOCOL => {
                    // It cannot be taken back (RFC 8441 section 3).
                    if value > 1 || (self.extended_connect && value == 0) {
                        return Err(Reason::Setting);
                    }
                    self.extended_connect = value == 1;
                }
                id::NO_RFC7540_PRIORITIES if value > 1 => return Err(Reason::Setting),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether the length of a SETTINGS payload is valid.
pub(crate) fn is_length(length: usize) -> bool {
    length.is_multiple_of(SETTING_BYTES)
}

/// Writes our SETTINGS frame.
pub(crate) fn write(limits: &Limits, is_server: bool, out: &mut Vec<u8>) {
    let by_role = if is_server {
        [
            (id::NO_RFC7540_PRIORITIES, 1),
            (id::ENABLE_CONNECT_PROTOCOL, u32::from(limits.extended_connect)),
        ]
    } else {
        [(id::NO_RFC7540_PRIORITIES, 1), (id::ENABLE_PUSH, 0)]
    };
    let all = [
        (id::HEADER_TABLE_SIZE, limits.decoder_table_bytes),
        (id::MAX_CONCURRENT_STREAMS, limits.streams_max),
        (id::INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
        (id::MAX_HEADER_LIST_SIZE, limits.fields_bytes_max),
    ];
    let settings = all.into_iter().chain(by_role);
    frame::header(out, settings.clone().count() * SETTING_BYTES, kind::SETTINGS, 0, 0);
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(name: u16, value: u32, is_from_server: bool) -> Result<PeerSettings, Reason> {
        let mut payload = name.to_be_bytes().to_vec();
        payload.extend_from_slice(&value.to_be_bytes());
        let mut settings = PeerSettings::INITIAL;
        settings.apply(&payload, is_from_server).map(|()| settings)
    }

    #[test]
    fn rfc9113_6_5_2_values_out_of_range() {
        assert_eq!(apply(2, 2, false), Err(Reason::Setting));
        assert_eq!(apply(2, 1, true), Err(Reason::Setting));
        assert!(apply(2, 1, false).is_ok());
        assert_eq!(apply(4, 1 << 31, false), Err(Reason::WindowSetting));
        assert_eq!(apply(4, (1 << 31) - 1, false).map(|s| s.window_bytes), Ok((1 << 31) - 1));
        assert_eq!(apply(5, 16_383, false), Err(Reason::Setting));
        assert_eq!(apply(5, 1 << 24, false), Err(Reason::Setting));
        assert_eq!(apply(5, (1 << 24) - 1, false).map(|s| s.frame_bytes), Ok((1 << 24) - 1));
        assert_eq!(apply(0x99, 7, false), Ok(PeerSettings::INITIAL), "unknown");
    }

    #[test]
    fn rfc8441_3_extended_connect_cannot_be_taken_back() {
        let mut settings = apply(8, 1, true).unwrap();
        assert!(settings.extended_connect);
        assert_eq!(settings.apply(&[0, 8, 0, 0, 0, 0], true), Err(Reason::Setting));
        assert_eq!(apply(8, 2, true), Err(Reason::Setting));
    }
}
