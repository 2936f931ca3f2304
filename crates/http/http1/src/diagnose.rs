//! Finds the rule that a block of field lines breaks. Runs once, after the block has been refused.

use crate::RejectReason;
use crate::chars::{self, TOKEN, VALUE};
use crate::limits::FIELDS_CEILING;

/// The first broken rule in `block`, which begins at the first field line. The rule is `otherwise`
/// if none of the rules here is broken within these bytes.
#[cold]
#[inline(never)]
pub(crate) fn fields(block: &[u8], otherwise: RejectReason) -> RejectReason {
    // The first byte of one line too many is an error: the result must not depend on how many of
    // the following bytes have arrived.
    let too_many = otherwise == RejectReason::TooManyFields;
    let lines_max = if too_many { FIELDS_CEILING } else { usize::MAX };
    let (mut at, mut lines) = (0, 0);
    while at < block.len() && lines < lines_max {
        match line(&block[at..], at == 0) {
            Ok(0) => break,
            Ok(len) => at += len,
            Err(reason) => return reason,
        }
        lines += 1;
    }
    otherwise
}

/// The length of the line with its CRLF; 0 if it is not complete or ends the block.
fn line(bytes: &[u8], is_first: bool) -> Result<usize, RejectReason> {
    match bytes[0] {
        b'\r' | b'\n' => return line_end(bytes, 0).map(|_| 0),
        b' ' | b'\t' if is_first => return Err(RejectReason::SpaceBeforeFields),
        b' ' | b'\t' => return Err(RejectReason::ObsFold),
        b':' => return Err(RejectReason::EmptyFieldName),
        _ => {}
    }
    let name_len = bytes.iter().take_while(|&&b| chars::is(b, TOKEN)).count();
    match bytes.get(name_len) {
        None => return Ok(0),
        Some(b':') => {}
        Some(b' ' | b'\t') => return Err(RejectReason::SpaceBeforeColon),
        Some(0) => return Err(RejectReason::Nul),
        // The result must not wait for the byte after the carriage return.
        Some(b'\r') => return Err(RejectReason::MissingColon),
        Some(b'\n') => return Err(RejectReason::BareLf),
        Some(_) => return Err(RejectReason::InvalidFieldName),
    }
    let value = name_len + 1;
    let value_len = bytes[value..].iter().take_while(|&&b| chars::is(b, VALUE)).count();
    match bytes.get(value + value_len) {
        None => Ok(0),
        Some(0) => Err(RejectReason::Nul),
        Some(b'\r' | b'\n') => line_end(bytes, value + value_len),
        Some(_) => Err(RejectReason::InvalidFieldValue),
    }
}

fn line_end(bytes: &[u8], at: usize) -> Result<usize, RejectReason> {
    match (bytes[at], bytes.get(at + 1)) {
        (b'\r', Some(b'\n')) => Ok(at + 2),
        (b'\r', Some(_)) => Err(RejectReason::BareCr),
        (b'\r', None) => Ok(0),
        _ => Err(RejectReason::BareLf),
    }
}
