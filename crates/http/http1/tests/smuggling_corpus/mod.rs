//! Tables of attacks that try to make two readers of the same bytes see different messages.
//!
//! The cases come from RFC 9110 and 9112 and from published classes of attacks. Each case has a
//! control: the nearest well-formed message, which must pass, because a proxy that refuses
//! everything would otherwise pass all cases. The tests here use real servers; the tests of `http1`
//! use none.
//!
//! Notation of bytes:
//!
//! ```text
//!   ⏎ CRLF    ␍ CR    ␊ LF    ␀ NUL    ⏸ a pause while sending
//!   §/x       a target: its path is tagged, and in forward mode it is absolute
//!   ¤         the host of the target
//!   ⟦ … ⟧     what {len} (decimal) and {hex} count, in bytes
//! ```

pub(crate) mod requests;
pub(crate) mod responses;

/// What must happen to the bytes of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The head is refused: only these preceding requests reach the origin.
    Refused(&'static [&'static str]),
    /// The head is valid but the body is not: part of this request may have reached the origin.
    Broken(&'static str),
    /// There is only one interpretation: exactly these requests reach the origin.
    Passed(&'static [&'static str]),
    /// There is only one interpretation, and the proxy refuses it.
    Declined,
}

/// An attack by a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attack {
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    pub(crate) attack: &'static str,
    pub(crate) fate: Fate,
    pub(crate) control: &'static str,
    /// The requests of the control, which all reach the origin.
    pub(crate) passes: &'static [&'static str],
    /// Only for requests in origin-form.
    pub(crate) reverse_only: bool,
}

/// Where the bytes of a case are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    /// `host:port` of the origin.
    pub(crate) host: &'p str,
    /// Targets are absolute.
    pub(crate) forward: bool,
    /// The prefix of each path, which assigns log lines to this case.
    pub(crate) tag: &'p str,
}

/// The bytes of a case, split at the pauses.
pub(crate) fn parts(text: &str, place: Place<'_>) -> Vec<Vec<u8>> {
    let target = match place.forward {
        true => format!("http://{}/{}/", place.host, place.tag),
        false => format!("/{}/", place.tag),
    };
    let text = text.replace("§/", &target).replace('¤', place.host);
    let text = text.replace('⏎', "\r\n").replace('␍', "\r").replace('␊', "\n").replace('␀', "\0");
    let counted = match (text.find('⟦'), text.find('⟧')) {
        (Some(start), Some(end)) => {
            let counted = &text[start + '⟦'.len_utf8()..end];
            counted.len() - counted.matches('⏸').count() * '⏸'.len_utf8()
        }
        _ => 0,
    };
    let text = text.replace(['⟦', '⟧'], "");
    let text =
        text.replace("{len}", &counted.to_string()).replace("{hex}", &format!("{counted:x}"));
    text.split('⏸').map(|part| part.as_bytes().to_vec()).collect()
}
