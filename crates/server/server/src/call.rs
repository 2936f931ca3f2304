//! A call to the admin address, and its reply.

use cache::stored::{Connection, write_date};
use dashboard::Refused;
use http1::{Method, write};
use runtime::time;

/// A complete call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Names and values, decoded.
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// A page of another site made it.
    pub(crate) foreign: bool,
    /// Whether the call may have anything but the dashboard.
    pub(crate) admitted: Result<(), Refused>,
    /// Whether the call may have the dashboard, and its events.
    pub(crate) dashboard: [Result<(), Refused>; 2],
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    /// The methods that the path takes, for 405.
    pub(crate) allow: Option<&'static str>,
}

impl Reply {
    /// A text.
    pub(crate) fn text(kind: &'static str, text: String) -> Reply {
        Reply { status: 200, kind, text, allow: None }
    }

    /// A value in JSON.
    pub(crate) fn json(status: u16, value: &impl serde::Serialize) -> Reply {
        // This fails only for maps whose keys are no strings, and no answer has one.
        let text = serde_json::to_string(value).unwrap_or_else(|error| error.to_string());
        Reply { status, kind: "application/json", text: text + "\n", allow: None }
    }

    /// What is wrong with the call and how to fix it.
    pub(crate) fn error(status: u16, text: impl std::fmt::Display) -> Reply {
        Reply::json(status, &serde_json::json!({ "error": text.to_string() }))
    }

    pub(crate) fn bytes(&self, method: Method) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.text.len());
        write::status_line(&mut out, self.status);
        out.extend_from_slice(b"Content-Type: ");
        out.extend_from_slice(self.kind.as_bytes());
        out.extend_from_slice(b"\r\n");
        write::content_length(&mut out, self.text.len() as u64);
        if let Some(allow) = self.allow {
            out.extend_from_slice(format!("Allow: {allow}\r\n").as_bytes());
        }
        out.extend_from_slice(b"Cache-Control: no-store\r\n");
        write_date(&mut out, time::wall_ms());
        Connection::Close.write(&mut out);
        write::end(&mut out);
        if method != Method::Head {
            out.extend_from_slice(self.text.as_bytes());
        }
        out
    }
}
