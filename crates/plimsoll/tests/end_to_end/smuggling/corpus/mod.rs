//! Attempts to have two readers of the same bytes see different messages, as tables.
//!
//! From RFC 9110 and 9112 and the published classes of attacks. Each case has a control: the
//! nearest well-formed message, which must pass, for a proxy that refuses everything would pass
//! the rest. Run by the tests before real servers, and without them by `http1`'s own tests.
//!
//! How bytes are written:
//!
//! ```text
//!   ⏎ CRLF    ␍ CR    ␊ LF    ␀ NUL    ⏸ a pause in the sending
//!   §/x       a target: its path is tagged, and in forward mode it is absolute
//!   ¤         the host the target is on
//!   ⟦ … ⟧     what {len} (decimal) and {hex} count, in bytes
//! ```

pub(crate) mod requests;
pub(crate) mod responses;

/// What becomes of the bytes of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The head is refused: of the case nothing reaches the origin but these requests before it.
    Refused(&'static [&'static str]),
    /// The head is in order and the body is not: this one request may have begun to reach it.
    Broken(&'static str),
    /// It can be read in one way only, and so it is: exactly these requests reach the origin.
    Passed(&'static [&'static str]),
    /// It can be read in one way only, and the proxy declines it.
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
    /// The requests of the control; all of them reach the origin.
    pub(crate) passes: &'static [&'static str],
    /// Only where requests are in origin-form.
    pub(crate) reverse_only: bool,
}

/// Where the bytes of a case are to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    /// `host:port` of the origin.
    pub(crate) host: &'p str,
    /// Targets are absolute.
    pub(crate) forward: bool,
    /// Stands before each path, so that a line of a log can be told to be of this case.
    pub(crate) tag: &'p str,
}

/// The bytes of a case, in the parts between which there is a pause.
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
