//! `plimsoll reload` and `plimsoll restart`: one request to the admin address of a running server.

use std::net::SocketAddr;

use command::failure::{Failure, misuse};
use command::output;

use crate::admin;

/// Posts to a path and prints the answer. A refusal by the server is a failed check.
pub(crate) fn ask(admin: SocketAddr, path: &str) -> Result<(), Failure> {
    let answer = admin::exchange(admin, "POST", path)
        .map_err(|error| misuse(format!("no answer from the admin address {admin}: {error}")))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => output::print(text),
        Some("409") => Err(Failure::CheckFailed(text.trim_end().to_owned())),
        _ => {
            let line = head.lines().next().unwrap_or_default();
            Err(misuse(format!("{admin} is not a plimsoll admin address: it answered {line:?}")))
        }
    }
}
