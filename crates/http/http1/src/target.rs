//! The request-target and its four forms (RFC 9112 section 3.2).

use std::ops::Range;

use crate::chars::{self, SCHEME};
use crate::{Method, RejectReason, parse_authority};

/// The request-target, in the form in which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// `/path?query`: any method but CONNECT.
    Origin {
        /// Begins with `/`.
        path_and_query: &'b [u8],
    },
    /// `http://host:port/path?query`: any method but CONNECT.
    Absolute {
        /// As sent; compare without regard to case.
        scheme: &'b [u8],
        /// `host[:port]`, checked; wins over Host.
        authority: &'b [u8],
        /// May be empty, or begin with `?`: see
        /// [`write::origin_form`](crate::write::origin_form).
        path_and_query: &'b [u8],
    },
    /// `host:port`: CONNECT only.
    Authority {
        /// Not empty; an IPv6 address keeps its brackets.
        host: &'b [u8],
        /// The port, which is required.
        port: u16,
    },
    /// `*`: OPTIONS only.
    Asterisk,
}

/// A target as positions within its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Origin,
    Absolute { scheme_len: u32, path_start: u32 },
    Authority { host_len: u32, port: u16 },
    Asterisk,
}

/// Finds the form of a target and refuses one that the method does not allow. Every byte of
/// `target` is of class `TARGET`; `is_checked` says whether one of them is of class `CHECKED`.
#[inline]
pub(crate) fn form(method: Method, target: &[u8], is_checked: bool) -> Result<Form, RejectReason> {
    let form = match (method, target) {
        (Method::Connect, _) => return authority_form(target),
        (_, [b'/', ..]) => Form::Origin,
        (Method::Options, b"*") => Form::Asterisk,
        (_, b"*") => return Err(RejectReason::TargetForm),
        _ => absolute_form(target)?,
    };
    if is_checked {
        check_path(&target[path_range(form, target.len())])?;
    }
    Ok(form)
}

/// Checks only the path: a browser sends a query as it was typed, possibly with a lone `%` or a
/// backslash, and no intermediary decodes a query. In a path, some take a backslash for a slash.
#[inline(never)]
fn check_path(path_and_query: &[u8]) -> Result<(), RejectReason> {
    let path = path_and_query.split(|&b| b == b'?').next().unwrap_or(&[]);
    if path.contains(&b'\\') {
        return Err(RejectReason::InvalidTarget);
    }
    if chars::percent_is_well_formed(path) {
        Ok(())
    } else {
        Err(RejectReason::InvalidPercentEncoding)
    }
}

fn path_range(form: Form, len: usize) -> Range<usize> {
    match form {
        Form::Absolute { path_start, .. } => path_start as usize..len,
        _ => 0..len,
    }
}

#[inline(never)]
fn authority_form(target: &[u8]) -> Result<Form, RejectReason> {
    if matches!(target, [b'/', ..] | b"*") || memchr::memmem::find(target, b"://").is_some() {
        return Err(RejectReason::TargetForm);
    }
    let authority = parse_authority(target)?;
    // RFC 9110 9.3.6: a CONNECT without a port is refused; there is no default.
    let port = authority.port.filter(|&port| port != 0).ok_or(RejectReason::InvalidAuthority)?;
    Ok(Form::Authority { host_len: authority.host.len() as u32, port })
}

#[inline(never)]
fn absolute_form(target: &[u8]) -> Result<Form, RejectReason> {
    let scheme_len = target.iter().take_while(|&&b| chars::is(b, SCHEME)).count();
    let starts_well = target.first().is_some_and(u8::is_ascii_alphabetic);
    let rest = &target[scheme_len..];
    if !starts_well || !rest.starts_with(b"://") {
        return Err(RejectReason::TargetForm);
    }
    let authority_start = scheme_len + 3;
    let authority_len = rest[3..].iter().take_while(|&&b| b != b'/' && b != b'?').count();
    let path_start = authority_start + authority_len;
    parse_authority(&target[authority_start..path_start])?;
    Ok(Form::Absolute { scheme_len: scheme_len as u32, path_start: path_start as u32 })
}

impl Form {
    #[inline]
    pub(crate) fn view(self, target: &[u8]) -> Target<'_> {
        match self {
            Form::Origin => Target::Origin { path_and_query: target },
            Form::Absolute { scheme_len, path_start } => {
                let (scheme, path) = (scheme_len as usize, path_start as usize);
                Target::Absolute {
                    scheme: &target[..scheme],
                    authority: &target[scheme + 3..path],
                    path_and_query: &target[path..],
                }
            }
            Form::Authority { host_len, port } => {
                Target::Authority { host: &target[..host_len as usize], port }
            }
            Form::Asterisk => Target::Asterisk,
        }
    }
}
