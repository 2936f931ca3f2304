//! Priorities (RFC 9218): urgency, and whether a response is useful in pieces.

/// The priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 is the most urgent, 7 the least.
    pub urgency: u8,
    /// Responses of one urgency share the connection, instead of one after the other.
    pub incremental: bool,
}

impl Priority {
    /// The priority by a field without members.
    pub const DEFAULT: Priority = Priority { urgency: 3, incremental: false };

    /// The priority of a request without the field. Its client may know nothing of priorities, and
    /// one large response would stop all others, so they share.
    pub const UNSIGNALLED: Priority = Priority { incremental: true, ..Priority::DEFAULT };

    /// Reads the value of the field `priority`. Members that are unknown or have another type are
    /// ignored; a later member replaces an earlier one (RFC 9218 section 4).
    pub fn from_field(value: &[u8]) -> Priority {
        let mut priority = Priority::DEFAULT;
        for member in value.split(|&byte| byte == b',') {
            let member = member.split(|&byte| byte == b';').next().unwrap_or_default();
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }

    /// Streams with a smaller key are served first. `turn` is when an incremental response was
    /// last served (RFC 9218 section 10).
    pub fn key(self, stream: u64, turn: u64) -> (u8, bool, u64, u64) {
        (self.urgency, self.incremental, if self.incremental { turn } else { 0 }, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9218_4_the_field() {
        let read = |text: &str| {
            let priority = Priority::from_field(text.as_bytes());
            (priority.urgency, priority.incremental)
        };
        assert_eq!(read(""), (3, false));
        assert_eq!(read("u=0"), (0, false));
        assert_eq!(read("u=7, i"), (7, true));
        assert_eq!(read("i;x=1,u=5;y, i=?0"), (5, false));
        assert_eq!(read("u=8, i=1, u=-1, u=2.0, z"), (3, false));
        assert_eq!(read("u=1, u=2"), (2, false));
    }
}
