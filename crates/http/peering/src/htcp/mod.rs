//! The Hyper Text Caching Protocol, version 0 (RFC 2756).
//!
//! A TST asks whether a cache has a response to a whole request, with its fields, so unlike ICP it
//! can respect Vary. A CLR asks a cache to forget what it has for a URL. NOP is a ping. MON and SET
//! are not supported.
//!
//! ```text
//! HEADER  length of the message (2 bytes), major version, minor version
//! DATA    length of the section (2 bytes)
//!         opcode (4 bits), response code (4 bits)
//!         reserved (6 bits), F1, RR (1: a response)
//!         transaction id (4 bytes)
//!         what the opcode needs
//! AUTH    length of the section (2 bytes): 2 if there is no signature
//! ```
//!
//! F1 of a request means that a response is wanted. F1 of a response means that its code is about
//! the whole message and is not the opcode's. Texts have two bytes of length. Sections can end with
//! padding.
//!
//! What differs between the RFC and Squid 5.7:
//!
//! - Squid says 0.1 in the layout of the RFC, which says 0.0. Older Squids (and `htcp=oldsquid`)
//!   say 0.0, and swap the halves of the byte with the opcode and the bits of the byte with the
//!   flags. Both layouts of 0.0 are read: the reserved bits show which one it is. The answer has
//!   the version and layout of the request.
//! - In the swapped layout, Squid sends 0 for each transaction id.
//! - The response to a TST without a stored response has one text in the RFC and three in Squid.
//!   Squid drops a response with fewer. We write two empty texts as padding.
//! - Squid sends no request fields in a TST, so it gets the answer for a request without them.
//! - Squid sends its CLR after PURGE with the method PURGE, and as a receiver looks for a stored
//!   response of the CLR's method. So a CLR to Squid must say GET, and the method of a CLR from
//!   Squid must be ignored.
//! - Squid does not answer NOP, MON and SET. It does not answer a client without access either.
//! - Squid ignores AUTH. We read it, and refuse a message that has a signature.

use crate::bytes::{Malformed, Problem, Reader, malformed};
use crate::limits::HTCP_BYTES_MAX;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The version and layout.
    pub version: Version,
    /// The transaction id, which a response repeats.
    pub id: u32,
    /// What is asked or answered.
    pub body: Body<'a>,
    /// The signature. It cannot be verified: see [`Message::refused`].
    pub auth: Option<Auth<'a>>,
}

/// The version and layout of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 0.0 as in the RFC.
    Zero,
    /// 0.0 as in old Squids.
    ZeroSwapped,
    /// 0.1: what Squid sends, and what we send unless asked otherwise. Later versions are read as
    /// this one.
    One,
}

/// What a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A request.
    Request {
        /// What is asked.
        request: Request<'a>,
        /// A response is wanted.
        respond: bool,
    },
    /// A response.
    Response(Response<'a>),
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Are you there?
    Nop,
    /// Have you got a response to this request?
    Test(Specifier<'a>),
    /// Forget the response to this request.
    Clear {
        /// 4 bits. 1: the origin server says that there is no such entity; 0: another reason. Squid
        /// sends 1 after an unsafe method.
        reason: u8,
        /// The request. Its method has no meaning: see the module.
        specifier: Specifier<'a>,
    },
    /// MON, SET, or an unknown opcode.
    Unsupported {
        /// 2, 3, or from 5 to 15.
        opcode: u8,
    },
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// To a NOP.
    Nop,
    /// To a TST: there is a stored response.
    Present(Detail<'a>),
    /// To a TST: there is none.
    Absent {
        /// Fields about the cache, for example Cache-Location.
        cache_fields: &'a [u8],
    },
    /// To a CLR.
    Cleared(Cleared),
    /// The request was not processed.
    Refused {
        /// The opcode of the request.
        opcode: u8,
        /// Why.
        refusal: Refusal,
    },
}

/// What a CLR did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// The response was there and is gone.
    Gone,
    /// It is there and stays.
    Kept,
    /// There was none.
    Absent,
}

/// Why a request was not processed, by its response code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no signature, and one is required.
    AuthenticationRequired = 0,
    /// The signature is not accepted.
    AuthenticationFailed = 1,
    /// The opcode is not implemented.
    NotImplemented = 2,
    /// The major version is not supported.
    MajorVersion = 3,
    /// The minor version is not supported.
    MinorVersion = 4,
    /// The opcode is not allowed here.
    Disallowed = 5,
}

/// The request that a message is about. The parts can be any bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Specifier<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The URI.
    pub uri: &'a [u8],
    /// The version: `HTTP/1.1`, or `1/1` from Squid.
    pub version: &'a [u8],
    /// Lines of fields, each with its end, and no empty line.
    pub fields: &'a [u8],
}

/// Fields of a stored response. Each text is lines with their ends, and no empty line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail<'a> {
    /// Fields of the response, for example Age.
    pub response_fields: &'a [u8],
    /// Fields of its content, for example Expires and Last-Modified.
    pub entity_fields: &'a [u8],
    /// Fields about the cache, for example Cache-Location.
    pub cache_fields: &'a [u8],
}

/// A signature. It is read and not verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    /// When it was made, in seconds since 1970.
    pub time: u32,
    /// Until when it is valid.
    pub expires: u32,
    /// The name of the key.
    pub key_name: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
}

impl<'a> Message<'a> {
    /// A request.
    ///
    /// `id` must be unpredictable, because a sender that knows it can forge the answer.
    pub fn request(id: u32, request: Request<'a>, respond: bool) -> Message<'a> {
        let body = Body::Request { request, respond };
        Message { version: Version::One, id, body, auth: None }
    }

    /// The answer to a request, unless it does not want one or is a response itself.
    ///
    /// [`Response::Present`] can be longer than its request. Send it only to peers that are allowed
    /// to ask.
    pub fn answer<'b>(&self, response: Response<'b>) -> Option<Message<'b>> {
        let Body::Request { respond: true, .. } = self.body else { return None };
        Some(Message {
            version: self.version,
            id: self.id,
            body: Body::Response(response),
            auth: None,
        })
    }

    /// Why this request must be refused, whatever its sender may do: it is signed, or its opcode is
    /// not supported.
    pub fn refused(&self) -> Option<Refusal> {
        let Body::Request { request, .. } = self.body else { return None };
        match request {
            _ if self.auth.is_some() => Some(Refusal::AuthenticationFailed),
            Request::Unsupported { .. } => Some(Refusal::NotImplemented),
            _ => None,
        }
    }

    /// The answer that refuses this request, as [`Message::answer`]. It is not longer than the
    /// request.
    pub fn refuse(&self, refusal: Refusal) -> Option<Message<'static>> {
        let opcode = self.opcode();
        self.answer(Response::Refused { opcode, refusal })
    }

    /// Reads a datagram.
    ///
    /// # Errors
    ///
    /// Names the first field that is wrong. No answer is sent to such a message.
    pub fn read(datagram: &'a [u8]) -> Result<Message<'a>, Malformed> {
        if datagram.len() > HTCP_BYTES_MAX {
            return malformed("LENGTH", Problem::TooLong);
        }
        let mut rest = Reader(datagram);
        if usize::from(rest.u16("LENGTH")?) != datagram.len() {
            return malformed("LENGTH", Problem::Length);
        }
        if rest.u8("MAJOR")? != 0 {
            return malformed("MAJOR", Problem::Unsupported);
        }
        let minor = rest.u8("MINOR")?;
        let mut data = section(&mut rest, "DATA")?;
        let (codes, flags) = (data.u8("OPCODE")?, data.u8("RR")?);
        let version = version_of(minor, codes, flags);
        let (codes, flags) = match version {
            Version::ZeroSwapped => (codes.rotate_left(4), flags.reverse_bits()),
            Version::Zero | Version::One => (codes, flags),
        };
        let (f1, is_response) = (flags & F1 != 0, flags & RR != 0);
        let id = data.u32("TRANS-ID")?;
        let (opcode, code) = (codes >> 4, codes & FOUR_BITS);
        let body = match is_response {
            false => Body::Request { request: Request::read(opcode, &mut data)?, respond: f1 },
            true => Body::Response(Response::read(opcode, code, f1, &mut data)?),
        };
        Ok(Message { version, id, body, auth: Auth::read(&mut rest)? })
    }

    /// Replaces the content of `out` with the message.
    ///
    /// # Errors
    ///
    /// A text or the message is too long, an opcode or a reason has more than its four bits, or the
    /// message is one that is only read: with a signature or with an opcode that is not supported.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        out.clear();
        if self.auth.is_some() {
            return malformed("AUTH", Problem::Unsupported);
        }
        let (code, f1, rr) = match self.body {
            Body::Request { respond, .. } => (0, respond, false),
            Body::Response(response) => (response.code(), response.is_refusal(), true),
        };
        if self.opcode() > FOUR_BITS {
            return malformed("OPCODE", Problem::Value);
        }
        let codes = (self.opcode() << 4) | code;
        let flags = (u8::from(f1) * F1) | (u8::from(rr) * RR);
        let (minor, codes, flags) = match self.version {
            Version::Zero => (0, codes, flags),
            Version::ZeroSwapped => (0, codes.rotate_left(4), flags.reverse_bits()),
            Version::One => (1, codes, flags),
        };
        // The two lengths are filled in at the end.
        out.extend([0, 0, 0, minor, 0, 0, codes, flags]);
        out.extend(self.id.to_be_bytes());
        let written = match self.body {
            Body::Request { request, .. } => request.write(out),
            Body::Response(response) => response.write(out),
        };
        out.extend(NO_AUTH);
        let length = out.len();
        if written.is_ok() && length <= HTCP_BYTES_MAX {
            let data = length - HEADER_BYTES - NO_AUTH.len();
            out[..2].copy_from_slice(&(length as u16).to_be_bytes());
            out[4..6].copy_from_slice(&(data as u16).to_be_bytes());
            return Ok(());
        }
        out.clear();
        written.and(malformed("LENGTH", Problem::TooLong))
    }

    fn opcode(&self) -> u8 {
        match self.body {
            Body::Request { request, .. } => match request {
                Request::Nop => NOP,
                Request::Test(_) => TST,
                Request::Clear { .. } => CLR,
                Request::Unsupported { opcode } => opcode,
            },
            Body::Response(response) => match response {
                Response::Nop => NOP,
                Response::Present(_) | Response::Absent { .. } => TST,
                Response::Cleared(_) => CLR,
                Response::Refused { opcode, .. } => opcode,
            },
        }
    }
}

impl<'a> Request<'a> {
    fn read(opcode: u8, data: &mut Reader<'a>) -> Result<Request<'a>, Malformed> {
        Ok(match opcode {
            NOP => Request::Nop,
            TST => Request::Test(Specifier::read(data)?),
            CLR => {
                let reason = data.u16("REASON")? as u8 & FOUR_BITS;
                Request::Clear { reason, specifier: Specifier::read(data)? }
            }
            _ => Request::Unsupported { opcode },
        })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Request::Nop => Ok(()),
            Request::Test(specifier) => specifier.write(out),
            Request::Clear { reason, specifier } => {
                if *reason > FOUR_BITS {
                    return malformed("REASON", Problem::Value);
                }
                out.extend([0, *reason]);
                specifier.write(out)
            }
            Request::Unsupported { .. } => malformed("OPCODE", Problem::Unsupported),
        }
    }
}

impl<'a> Response<'a> {
    fn read(
        opcode: u8,
        code: u8,
        about_message: bool,
        data: &mut Reader<'a>,
    ) -> Result<Response<'a>, Malformed> {
        if about_message {
            let refusal = REFUSALS.into_iter().find(|refusal| *refusal as u8 == code);
            let Some(refusal) = refusal else {
                return malformed("RESPONSE", Problem::Value);
            };
            return Ok(Response::Refused { opcode, refusal });
        }
        Ok(match (opcode, code) {
            (NOP, _) => Response::Nop,
            (TST, 0) => Response::Present(Detail::read(data)?),
            (TST, 1) => Response::Absent { cache_fields: text(data, "CACHE-HDRS")? },
            (CLR, 0) => Response::Cleared(Cleared::Gone),
            (CLR, 1) => Response::Cleared(Cleared::Kept),
            (CLR, 2) => Response::Cleared(Cleared::Absent),
            (TST | CLR, _) => return malformed("RESPONSE", Problem::Value),
            _ => return malformed("OPCODE", Problem::Unsupported),
        })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        match self {
            Response::Present(detail) => detail.write(out),
            // Squid wants three texts here, too.
            Response::Absent { cache_fields } => {
                Detail { response_fields: cache_fields, ..Detail::default() }.write(out)
            }
            Response::Nop | Response::Cleared(_) | Response::Refused { .. } => Ok(()),
        }
    }

    fn code(&self) -> u8 {
        match self {
            Response::Nop | Response::Present(_) | Response::Cleared(Cleared::Gone) => 0,
            Response::Absent { .. } | Response::Cleared(Cleared::Kept) => 1,
            Response::Cleared(Cleared::Absent) => 2,
            Response::Refused { refusal, .. } => *refusal as u8,
        }
    }

    fn is_refusal(&self) -> bool {
        matches!(self, Response::Refused { .. })
    }
}

impl<'a> Specifier<'a> {
    fn read(data: &mut Reader<'a>) -> Result<Specifier<'a>, Malformed> {
        let (method, uri) = (text(data, "METHOD")?, text(data, "URI")?);
        let (version, fields) = (text(data, "VERSION")?, text(data, "REQ-HDRS")?);
        Ok(Specifier { method, uri, version, fields })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        write_text(out, "METHOD", self.method)?;
        write_text(out, "URI", self.uri)?;
        write_text(out, "VERSION", self.version)?;
        write_text(out, "REQ-HDRS", self.fields)
    }
}

impl<'a> Detail<'a> {
    fn read(data: &mut Reader<'a>) -> Result<Detail<'a>, Malformed> {
        let response_fields = text(data, "RESP-HDRS")?;
        let entity_fields = text(data, "ENTITY-HDRS")?;
        let cache_fields = text(data, "CACHE-HDRS")?;
        Ok(Detail { response_fields, entity_fields, cache_fields })
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), Malformed> {
        write_text(out, "RESP-HDRS", self.response_fields)?;
        write_text(out, "ENTITY-HDRS", self.entity_fields)?;
        write_text(out, "CACHE-HDRS", self.cache_fields)
    }
}

impl<'a> Auth<'a> {
    fn read(rest: &mut Reader<'a>) -> Result<Option<Auth<'a>>, Malformed> {
        let mut auth = section(rest, "AUTH")?;
        if auth.0.is_empty() {
            return Ok(None);
        }
        let (time, expires) = (auth.u32("SIG-TIME")?, auth.u32("SIG-EXPIRE")?);
        let (key_name, signature) = (text(&mut auth, "KEY-NAME")?, text(&mut auth, "SIGNATURE")?);
        Ok(Some(Auth { time, expires, key_name, signature }))
    }
}

/// The layout of a message. That of 0.0 is the one whose reserved bits are zero. Without any flag
/// it is a request, whose response code is zero.
fn version_of(minor: u8, codes: u8, flags: u8) -> Version {
    let swapped = match flags {
        0 => codes & 0xf0 == 0 && codes != 0,
        _ => flags & 0x3f == 0,
    };
    match minor {
        0 if swapped => Version::ZeroSwapped,
        0 => Version::Zero,
        _ => Version::One,
    }
}

/// A section without its length, which includes itself.
fn section<'a>(rest: &mut Reader<'a>, name: &'static str) -> Result<Reader<'a>, Malformed> {
    let Some(bytes) = usize::from(rest.u16(name)?).checked_sub(2) else {
        return malformed(name, Problem::Length);
    };
    rest.take(bytes, name).map(Reader)
}

/// A text with two bytes of length, which does not include itself.
fn text<'a>(rest: &mut Reader<'a>, field: &'static str) -> Result<&'a [u8], Malformed> {
    let bytes = rest.u16(field)?;
    rest.take(bytes.into(), field)
}

fn write_text(out: &mut Vec<u8>, field: &'static str, text: &[u8]) -> Result<(), Malformed> {
    let Ok(bytes) = u16::try_from(text.len()) else { return malformed(field, Problem::TooLong) };
    out.extend(bytes.to_be_bytes());
    out.extend(text);
    Ok(())
}

const HEADER_BYTES: usize = 4;
/// The section of a message without signature.
const NO_AUTH: [u8; 2] = [0, 2];

/// The largest opcode, response code and reason.
const FOUR_BITS: u8 = 15;

const F1: u8 = 2;
const RR: u8 = 1;

const NOP: u8 = 0;
const TST: u8 = 1;
const CLR: u8 = 4;

const REFUSALS: [Refusal; 6] = [
    Refusal::AuthenticationRequired,
    Refusal::AuthenticationFailed,
    Refusal::NotImplemented,
    Refusal::MajorVersion,
    Refusal::MinorVersion,
    Refusal::Disallowed,
];

#[cfg(test)]
mod tests;
