//! The bytes of a request, prepared once and filled in per object.
//!
//! What: a template split at `{n}`, `{size}` and `{new}`. Why: a request then costs a copy of a
//! hundred bytes, or nothing at all if the path names no object. What never happens: an allocation
//! per request.

use std::io::Write;

use crate::plan::{Opening, Plan};
use crate::websocket;

/// A placeholder between two constant pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    Number,
    Size,
    /// The number of requests before this one.
    New,
}

const PLACEHOLDERS: [(&str, Placeholder); 3] =
    [("{n}", Placeholder::Number), ("{size}", Placeholder::Size), ("{new}", Placeholder::New)];

/// The request template of a plan.
#[derive(Debug)]
pub(crate) struct Template {
    first: Vec<u8>,
    /// Each placeholder and the constant bytes after it.
    rest: Vec<(Placeholder, Vec<u8>)>,
    filled: Vec<u8>,
    requests: u64,
}

impl Template {
    pub(crate) fn new(plan: &Plan) -> Template {
        if plan.opening == Opening::WebSocket {
            let message = websocket::message(plan.body_bytes);
            return Template { first: message.clone(), rest: vec![], filled: message, requests: 0 };
        }
        let target = &plan.target;
        let origin =
            if target.absolute { format!("http://{}", target.authority) } else { String::new() };
        let method = if plan.body_bytes > 0 { "POST" } else { "GET" };
        let mut text =
            format!("{method} {origin}{} HTTP/1.1\r\nHost: {}\r\n", target.path, plan.host());
        for (name, value) in plan.other_fields() {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !plan.keep_alive {
            text.push_str("Connection: close\r\n");
        }
        if plan.body_bytes > 0 {
            text.push_str(&format!("Content-Length: {}\r\n", plan.body_bytes));
        }
        text.push_str("\r\n");
        text.push_str(&"x".repeat(plan.body_bytes as usize));
        // Placeholders are only recognised in the first line.
        let line_end = text.find("\r\n").expect("the first line was written above");
        let mut pieces = cut(&text[..line_end]);
        let last = pieces.rest.last_mut().map_or(&mut pieces.first, |(_, bytes)| bytes);
        last.extend_from_slice(&text.as_bytes()[line_end..]);
        pieces.filled.clone_from(&pieces.first);
        pieces
    }

    /// Only the path, for HTTP/2.
    pub(crate) fn of_path(plan: &Plan) -> Template {
        let mut pieces = cut(&plan.target.path);
        pieces.filled.clone_from(&pieces.first);
        pieces
    }

    /// Whether the request names the response's size.
    pub(crate) fn has_size(&self) -> bool {
        self.rest.iter().any(|(placeholder, _)| *placeholder == Placeholder::Size)
    }

    /// The request for one object.
    #[inline]
    pub(crate) fn fill(&mut self, object: u32, size: u64) -> &[u8] {
        if !self.rest.is_empty() {
            self.filled.truncate(self.first.len());
            for (placeholder, after) in &self.rest {
                let number = match placeholder {
                    Placeholder::Number => u64::from(object),
                    Placeholder::Size => size,
                    Placeholder::New => self.requests,
                };
                write!(self.filled, "{number}").expect("a vector takes all bytes");
                self.filled.extend_from_slice(after);
            }
            self.requests += 1;
        }
        &self.filled
    }
}

fn cut(line: &str) -> Template {
    let (first, rest, filled) = (Vec::new(), Vec::new(), Vec::new());
    let mut template = Template { first, rest, filled, requests: 0 };
    let mut left = line;
    loop {
        let next = PLACEHOLDERS
            .into_iter()
            .filter_map(|(mark, placeholder)| {
                left.find(mark).map(|at| (at, mark.len(), placeholder))
            })
            .min_by_key(|(at, ..)| *at);
        let piece = &left[..next.map_or(left.len(), |(at, ..)| at)];
        let last = template.rest.last_mut().map_or(&mut template.first, |(_, bytes)| bytes);
        last.extend_from_slice(piece.as_bytes());
        let Some((at, mark, placeholder)) = next else { return template };
        template.rest.push((placeholder, Vec::new()));
        left = &left[at + mark..];
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::schedule::Schedule;

    fn template(path: &str, change: fn(&mut Plan)) -> Template {
        let target = format!("http://127.0.0.1:1{path}").parse().unwrap();
        let mut plan = Plan::new(target, Schedule::ClosedLoop, Duration::from_secs(1));
        change(&mut plan);
        Template::new(&plan)
    }

    fn text(template: &mut Template, object: u32, size: u64) -> String {
        String::from_utf8(template.fill(object, size).to_vec()).unwrap()
    }

    #[test]
    fn a_plain_path_is_sent_as_it_is() {
        let mut plain = template("/a", |_| ());
        assert!(!plain.has_size());
        let expected = "GET /a HTTP/1.1\r\nHost: 127.0.0.1:1\r\nUser-Agent: plimsoll\r\n\r\n";
        assert_eq!(text(&mut plain, 7, 8), expected);
        assert_eq!(text(&mut plain, 7, 8), expected);
    }

    #[test]
    fn placeholders_are_filled_each_time() {
        let mut placeholders = template("/{n}/{size}?{n}x", |_| ());
        assert!(placeholders.has_size());
        assert!(
            text(&mut placeholders, 4_000_000_000, 0)
                .starts_with("GET /4000000000/0?4000000000x HTTP")
        );
        assert!(text(&mut placeholders, 1, 22).starts_with("GET /1/22?1x HTTP/1.1\r\nHost: "));
        assert!(text(&mut placeholders, 1, 22).ends_with("\r\n\r\n"));
    }

    #[test]
    fn each_request_can_have_a_new_number() {
        let mut numbers = template("/{new}?{n}", |_| ());
        for request in 0..3 {
            assert!(text(&mut numbers, 9, 0).starts_with(&format!("GET /{request}?9 HTTP/1.1")));
        }
    }

    #[test]
    fn a_body_makes_it_a_post() {
        let post = text(&mut template("/{n}", |plan| plan.body_bytes = 3), 5, 0);
        assert!(post.starts_with("POST /5 HTTP/1.1\r\n"), "{post}");
        assert!(post.ends_with("\r\nContent-Length: 3\r\n\r\nxxx"), "{post}");
    }

    #[test]
    fn host_and_user_agent_are_replaced_and_all_other_fields_added() {
        let mut given = template("/", |plan| {
            let fields =
                [("Cookie", "a=1"), ("host", "b.example"), ("Cookie", "c"), ("user-Agent", "d")];
            plan.fields = fields.map(|(name, value)| (name.into(), value.into())).to_vec();
        });
        let expected = "GET / HTTP/1.1\r\nHost: b.example\r\nCookie: a=1\r\nCookie: c\r\n\
                        user-Agent: d\r\n\r\n";
        assert_eq!(text(&mut given, 0, 0), expected);
    }

    #[test]
    fn fields_close_and_absolute_form() {
        let mut whole = template("/{n}", |plan| {
            plan.keep_alive = false;
            plan.fields.push(("X-A".into(), "{n}".into()));
            plan.target.absolute = true;
        });
        let request = text(&mut whole, 5, 0);
        assert!(request.starts_with("GET http://127.0.0.1:1/5 HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("\r\nX-A: {n}\r\nConnection: close\r\n\r\n"), "{request}");
    }
}
