//! The page, and the responses.

use http1::write;

/// The page. Its script and its style carry [`NONCE`].
const PAGE: &str = include_str!("page.html");

/// Stands for the nonce in the page.
const NONCE: &str = "{{nonce}}";

/// The page with this nonce.
fn page(nonce: u128) -> String {
    PAGE.replace(NONCE, &format!("{nonce:032x}"))
}

/// The response with the page. The nonce is a random number that no other response has: the
/// browser runs only the script that carries it, and connects to nothing but this server.
#[must_use]
pub fn page_response(nonce: u128) -> Vec<u8> {
    let page = page(nonce);
    response(200, &page_fields(nonce), Some(&page))
}

/// The head of the response with the events, which end with the connection.
#[must_use]
pub fn events_head() -> Vec<u8> {
    response(200, EVENTS_FIELDS, None)
}

/// The response to a request that is refused, in the form of those of our server's admin address.
#[must_use]
pub fn refusal(status: u16, text: &str) -> Vec<u8> {
    let fields = "Content-Type: application/json\r\n\
                  X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";
    let body = serde_json::json!({ "error": text });
    response(status, fields, Some(&format!("{body}\n")))
}

fn response(status: u16, fields: &str, body: Option<&str>) -> Vec<u8> {
    let mut out = Vec::new();
    write::status_line(&mut out, status);
    out.extend_from_slice(fields.as_bytes());
    if let Some(body) = body {
        write::content_length(&mut out, body.len() as u64);
    }
    out.extend_from_slice(b"Connection: close\r\n");
    write::end(&mut out);
    out.extend_from_slice(body.unwrap_or_default().as_bytes());
    out
}

fn page_fields(nonce: u128) -> String {
    format!(
        "Content-Type: text/html; charset=utf-8\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'nonce-{nonce:032x}'; \
         style-src 'nonce-{nonce:032x}'; img-src data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'\r\n\
         X-Frame-Options: DENY\r\n\
         X-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n\
         Cross-Origin-Opener-Policy: same-origin\r\n\
         Cache-Control: no-store\r\n"
    )
}

const EVENTS_FIELDS: &str = "Content-Type: text/event-stream; charset=utf-8\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Cross-Origin-Resource-Policy: same-origin\r\n\
    X-Accel-Buffering: no\r\n\
    Cache-Control: no-store\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_script_and_the_style_of_the_page_have_its_nonce() {
        let page = page(0xabc);
        let nonce = format!("nonce=\"{:032x}\"", 0xabc);
        assert_eq!(page.matches(&nonce).count(), 2);
        assert!(!page.contains(NONCE));
        assert_eq!(page.matches("<script").count() + page.matches("<style").count(), 2);
        assert_eq!(page_fields(0xabc).matches(&format!("'nonce-{:032x}'", 0xabc)).count(), 2);
    }

    #[test]
    fn the_page_loads_nothing_and_writes_no_markup() {
        let svg = "http://www.w3.org/2000/svg";
        let rest = PAGE.replace(svg, "");
        for word in ["http:", "https:", "//cdn", "@import", "innerHTML", "outerHTML", "eval("] {
            assert!(!rest.contains(word), "{word}");
        }
        for word in [" style=\"", "insertAdjacentHTML", "document.write", " onclick="] {
            assert!(!rest.contains(word), "{word}");
        }
    }
}
