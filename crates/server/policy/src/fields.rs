//! Changes to the fields of messages, as a route and its group configure them.
//!
//! The fields of a request are changed while it is written for the upstream. Those of a response
//! are changed as soon as its head has come, before anything else reads it: the caching rules see
//! the changed fields, and a stored response has them already, so that a hit does no extra work.
//!
//! A server that makes variables of fields, as CGI does, may take `X_A` and `X.A` for `X-A`. So a
//! rule on a request's field concerns every field of which a server may make the same variable.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use http1::{
    Fields, Limits, OwnedResponse, ResponseHead, Scheme, Scratch, Version, accept_response,
    is_one_variable, write,
};

use config::{FieldRule, ForwardedFields, Front};

use crate::rewrites::Rewrites;

/// The changes to one request.
pub struct Edits<'e> {
    rules: Cow<'e, [FieldRule]>,
    forwarded: ForwardedFields,
    peer: SocketAddr,
    chain: Chain<'e>,
    scheme: &'static str,
    authority: &'e [u8],
}

/// What becomes of the fields in which proxies before us have named the client.
#[derive(Clone, Copy, Debug)]
pub enum Chain<'e> {
    /// No proxy is trusted: the client's address is added to the addresses that came.
    Kept,
    /// They came from a trusted proxy and were read: the client's address takes their place.
    Read,
    /// They came from a stranger: they are dropped.
    Dropped(&'e Front),
}

impl Chain<'_> {
    /// Whether a field is passed on that came with the request.
    pub fn keeps(&self, name: &[u8]) -> bool {
        !matches!(self, Chain::Dropped(front) if names_a_client(front, name))
    }
}

impl<'e> Edits<'e> {
    /// `rules` are those of the route; `forwarded` is how the group of servers learns of the
    /// client.
    pub fn new(
        (rules, forwarded): (Cow<'e, [FieldRule]>, ForwardedFields),
        (peer, chain): (SocketAddr, Chain<'e>),
        (scheme, authority): (Scheme, &'e [u8]),
    ) -> Edits<'e> {
        Edits { rules, forwarded, peer, chain, scheme: scheme.name(), authority }
    }

    /// Whether a field of the client is passed on.
    #[inline]
    pub fn keeps(&self, name: &[u8]) -> bool {
        self.is_plain() || self.keeps_this(name)
    }

    /// Whether all fields of the client are passed on.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.rules.is_empty()
            && matches!(self.forwarded, ForwardedFields::None | ForwardedFields::Forwarded)
            && matches!(self.chain, Chain::Kept)
    }

    fn keeps_this(&self, name: &[u8]) -> bool {
        let is_it = |one: &[u8]| is_one_variable(name, one);
        let is_x_forwarded = || X_FORWARDED.iter().any(|one| is_it(one));
        let ours = match (self.chain, self.forwarded) {
            (Chain::Dropped(front), _) => names_a_client(front, name),
            (Chain::Kept | Chain::Read, ForwardedFields::XForwarded) => is_x_forwarded(),
            (Chain::Kept | Chain::Read, ForwardedFields::XForwardedFor) => is_it(X_FORWARDED[0]),
            (Chain::Read, ForwardedFields::Forwarded) => is_it(b"Forwarded"),
            (Chain::Kept | Chain::Read, _) => false,
        };
        !ours && !self.rules.iter().any(|rule| replaces(rule, name, is_one_variable))
    }

    /// Appends the new fields.
    pub fn append(&self, out: &mut Vec<u8>, fields: &Fields<'_>) {
        self.append_forwarded(out, fields);
        for rule in &*self.rules {
            let has = |name: &str| fields.of_variable(name.as_bytes()).next().is_some();
            append_rule(out, rule, fields, has);
        }
    }

    fn append_forwarded(&self, out: &mut Vec<u8>, fields: &Fields<'_>) {
        let peer = self.peer.ip().to_canonical();
        match self.forwarded {
            ForwardedFields::None => {}
            ForwardedFields::XForwarded | ForwardedFields::XForwardedFor => {
                out.extend_from_slice(b"X-Forwarded-For: ");
                let is_kept = matches!(self.chain, Chain::Kept);
                for before in fields.values(X_FORWARDED[0]).filter(|_| is_kept) {
                    out.extend_from_slice(before);
                    out.extend_from_slice(b", ");
                }
                out.extend_from_slice(peer.to_string().as_bytes());
                out.extend_from_slice(b"\r\n");
                if self.forwarded == ForwardedFields::XForwardedFor {
                    return;
                }
                out.extend_from_slice(b"X-Forwarded-Proto: ");
                out.extend_from_slice(self.scheme.as_bytes());
                out.extend_from_slice(b"\r\n");
                if !self.authority.is_empty() {
                    out.extend_from_slice(b"X-Forwarded-Host: ");
                    out.extend_from_slice(self.authority);
                    out.extend_from_slice(b"\r\n");
                }
            }
            // A list: the received values stay before ours (RFC 7239, 4).
            ForwardedFields::Forwarded => {
                out.extend_from_slice(b"Forwarded: for=");
                out.extend_from_slice(
                    match peer {
                        IpAddr::V4(ip) => ip.to_string(),
                        IpAddr::V6(ip) => format!("\"[{ip}]\""),
                    }
                    .as_bytes(),
                );
                if !self.authority.is_empty() {
                    // Quoted for its colon; it has neither quotes nor backslashes.
                    out.extend_from_slice(b";host=\"");
                    out.extend_from_slice(self.authority);
                    out.push(b'"');
                }
                out.extend_from_slice(b";proto=");
                out.extend_from_slice(self.scheme.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// Whether this is a field in which proxies name a client, to a listener with trusted proxies.
pub fn names_a_client(front: &Front, name: &[u8]) -> bool {
    let mut names =
        X_FORWARDED.into_iter().chain([&b"Forwarded"[..], front.field.name().as_bytes()]);
    names.any(|one| is_one_variable(name, one))
}

const X_FORWARDED: [&[u8]; 3] = [b"X-Forwarded-For", b"X-Forwarded-Proto", b"X-Forwarded-Host"];

/// Whether received fields of this name are dropped. `is_it` compares it with the name of the rule.
pub(crate) fn replaces(
    rule: &FieldRule,
    name: &[u8],
    is_it: impl Fn(&[u8], &[u8]) -> bool,
) -> bool {
    match rule {
        FieldRule::Set(of, _) | FieldRule::Cut(of, _) | FieldRule::Remove(of) => {
            is_it(name, of.as_bytes())
        }
        FieldRule::Add(..) | FieldRule::Default(..) => false,
    }
}

fn append_rule(
    out: &mut Vec<u8>,
    rule: &FieldRule,
    fields: &Fields<'_>,
    has: impl Fn(&str) -> bool,
) {
    let (name, value) = match rule {
        FieldRule::Remove(_) => return,
        FieldRule::Default(name, _) if has(name) => return,
        FieldRule::Cut(name, start) => {
            for value in fields.values(name.as_bytes()) {
                let rest = value.strip_prefix(start.as_bytes());
                let rest = rest.filter(|rest| rest.starts_with(b"/")).unwrap_or(value);
                let _ = write::field(out, name.as_bytes(), rest);
            }
            return;
        }
        FieldRule::Set(name, value) | FieldRule::Add(name, value) => (name, value),
        FieldRule::Default(name, value) => (name, value),
    };
    // Rules were checked when they were configured.
    let _ = write::field(out, name.as_bytes(), value.as_bytes());
}

/// The changes to the responses of a route.
#[derive(Debug)]
pub struct ResponseRules(Box<[FieldRule]>, Rewrites);

impl ResponseRules {
    /// Rules apply in the order in which they are configured.
    pub fn new(rules: &[FieldRule]) -> ResponseRules {
        ResponseRules(rules.into(), Rewrites::default())
    }

    /// The same after these changes to URLs and cookies.
    #[must_use]
    pub fn after(self, rewrites: &Rewrites) -> ResponseRules {
        ResponseRules(self.0, rewrites.clone())
    }

    /// The changes to URLs and cookies.
    pub fn rewrites(&self) -> &Rewrites {
        &self.1
    }

    /// Whether a trailer is passed on.
    pub fn keeps(&self, name: &[u8]) -> bool {
        !self.0.iter().any(|rule| replaces(rule, name, <[u8]>::eq_ignore_ascii_case))
    }

    /// The changed head; `None` if nothing changes.
    ///
    /// A 304 updates a response that was changed when it was stored: a field that the 304 does not
    /// name is not added again.
    pub fn changed(&self, response: &OwnedResponse) -> Option<OwnedResponse> {
        let ResponseRules(rules, rewrites) = self;
        if rules.is_empty() && rewrites.is_none() {
            return None;
        }
        let head = response.head();
        let mut out = begun(&head);
        for field in head.fields.fields() {
            if self.keeps(field.name()) {
                match rewrites.changed(field.name(), field.value()) {
                    // It was made of a parsed value and of texts that were checked.
                    Some(value) => drop(write::field(&mut out, field.name(), &value)),
                    None => write::parsed_field(&mut out, field),
                }
            }
        }
        let has = |name: &str| head.fields.values(name.as_bytes()).next().is_some();
        for rule in rules {
            let again = match rule {
                FieldRule::Add(name, _) => has(name),
                FieldRule::Default(..) => false,
                FieldRule::Set(..) | FieldRule::Cut(..) | FieldRule::Remove(_) => true,
            };
            if head.status != 304 || again {
                append_rule(&mut out, rule, &head.fields, has);
            }
        }
        write::end(&mut out);
        reparsed(&out, &head)
    }
}

/// The status line of a changed head.
fn begun(head: &ResponseHead<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.head_bytes + 256);
    write::status_line(&mut out, head.status);
    if head.version == Version::Http10 {
        // The received version matters for `Via` and for the connection.
        out[..8].copy_from_slice(b"HTTP/1.0");
    }
    out
}

/// Adds field lines to the head of a response, unless it would be too large. A 304 gets none: it
/// would change the response that a cache has. Fields for caches of a kind (RFC 9213) are left out,
/// because they would overrule an added Cache-Control.
pub fn add_lines(response: &mut OwnedResponse, lines: &[u8]) {
    let head = response.head();
    if head.status == 304 {
        return;
    }
    let mut out = begun(&head);
    for field in head.fields.fields().filter(|field| !caching::is_targeted(field.name())) {
        write::parsed_field(&mut out, field);
    }
    out.extend_from_slice(lines);
    write::end(&mut out);
    if let Some(changed) = reparsed(&out, &head) {
        *response = changed;
    }
}

impl ResponseRules {
    /// The changed field lines of our own answer with this status.
    pub fn changed_lines(&self, status: u16, lines: Vec<u8>) -> Vec<u8> {
        if self.0.is_empty() {
            return lines;
        }
        let mut head = Vec::with_capacity(lines.len() + 64);
        write::status_line(&mut head, status);
        head.extend_from_slice(&lines);
        write::end(&mut head);
        let mut limits = Limits::default();
        limits.head_bytes_max = head.len().max(limits.head_bytes_max);
        let mut scratch = Scratch::new();
        let own = accept_response(&head, &mut scratch, &limits);
        let own = own.ok().flatten().map(|head| head.detach());
        let Some(changed) = own.and_then(|own| self.changed(&own)) else { return lines };
        let mut out = Vec::with_capacity(head.len());
        changed.head().fields.fields().for_each(|field| write::parsed_field(&mut out, field));
        out
    }
}

/// Parses a head that we have written. It has the framing of the received one.
fn reparsed(bytes: &[u8], of: &ResponseHead<'_>) -> Option<OwnedResponse> {
    let mut limits = Limits::default();
    limits.head_bytes_max = bytes.len();
    limits.fields_max = Limits::default().fields_max.max(of.fields.len() * 2);
    let mut scratch = Scratch::new();
    // A repaired head may have what the strict parser refuses.
    match accept_response(bytes, &mut scratch, &limits) {
        Ok(Some(head)) => {
            debug_assert_eq!(head.content_length(), of.content_length());
            Some(head.detach())
        }
        Ok(None) | Err(_) => {
            tracing::warn!("the rules for a response's fields make too many of them");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(rules: &[FieldRule], status: u16, fields: &str) -> Option<String> {
        let bytes = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
        let mut scratch = Scratch::new();
        let head = accept_response(bytes.as_bytes(), &mut scratch, &Limits::default()).unwrap();
        let head = head.unwrap().detach();
        let changed = ResponseRules::new(rules).changed(&head)?;
        let mut out = String::new();
        for field in changed.head().fields.fields() {
            let name = String::from_utf8_lossy(field.name()).into_owned();
            out += &format!("{name}: {}\n", String::from_utf8_lossy(field.value()));
        }
        assert_eq!(changed.head().status, status);
        Some(out)
    }

    #[test]
    fn no_field_for_some_caches_overrules_an_added_cache_control() {
        let fields = "CDN-Cache-Control: max-age=9\r\nEtag: \"a\"\r\nX-Accel-Expires: 9\r\n\
                      edge-CACHE-control: max-age=9\r\nSurrogate-Control: max-age=9\r\n\
                      X-Cache-Controls: 1\r\n";
        let after = |status: u16| {
            let bytes = format!("HTTP/1.1 {status} X\r\n{fields}\r\n");
            let mut scratch = Scratch::new();
            let head = accept_response(bytes.as_bytes(), &mut scratch, &Limits::default());
            let mut head = head.unwrap().unwrap().detach();
            add_lines(&mut head, b"Cache-Control: private\r\n");
            let names = head.head().fields.fields().map(|field| field.name().to_vec());
            names.map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(after(200), ["Etag", "X-Cache-Controls", "Cache-Control"]);
        assert_eq!(after(304).len(), 6, "a 304 is not changed");
        let ours = caching::Policy::SHARED.targeted_fields;
        assert!(!ours.is_empty() && ours.iter().all(|name| caching::is_targeted(name.as_bytes())));
    }

    /// What a CGI script would read of a request after the changes.
    fn variables(rules: &[FieldRule], forwarded: ForwardedFields, fields: &str) -> Vec<String> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut scratch = Scratch::new();
        let head = http1::parse_request(bytes.as_bytes(), &mut scratch, &Limits::default());
        let head = head.unwrap().unwrap();
        let peer = "192.0.2.1:1".parse().unwrap();
        let client = (peer, Chain::Kept);
        let edits = Edits::new((rules.into(), forwarded), client, (Scheme::Http, b"a"));
        let mut out = Vec::new();
        for field in head.fields.fields().filter(|field| edits.keeps(field.name())) {
            write::parsed_field(&mut out, field);
        }
        edits.append(&mut out, &head.fields);
        let text = String::from_utf8(out).unwrap();
        let variable = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
            format!("{}={value}", name.to_ascii_uppercase().replace(|c| letter(c) == '_', "_"))
        };
        let mut all: Vec<String> = text.lines().map(variable).collect();
        all.sort();
        all
    }

    #[test]
    fn a_rule_concerns_each_field_that_cgi_takes_for_its_own() {
        let rules = [
            FieldRule::Remove("X-Admin".into()),
            FieldRule::Set("X-Remote-User".into(), "guest".into()),
            FieldRule::Default("X-Level".into(), "0".into()),
        ];
        let odd = "X_Admin: 1\r\nx.admin: 1\r\nX_Remote_User: root\r\nX-Remote.User: root\r\n\
                   X_LEVEL: 3\r\nX_Forwarded_For: 10.0.0.1\r\nX_Other: 1\r\n";
        let found = variables(&rules, ForwardedFields::XForwarded, odd);
        assert_eq!(
            found,
            [
                "HOST=a",
                "X_FORWARDED_FOR=192.0.2.1",
                "X_FORWARDED_HOST=a",
                "X_FORWARDED_PROTO=http",
                "X_LEVEL=3",
                "X_OTHER=1",
                "X_REMOTE_USER=guest",
            ]
        );
    }

    /// The imported files of nginx sent three fields to upstreams where nginx sends one.
    #[test]
    fn x_forwarded_for_alone_leaves_the_other_fields() {
        let came = "X_Forwarded_For: 10.0.0.1\r\nX-Forwarded-For: 10.0.0.2\r\n\
                    X-Forwarded-Proto: https\r\n";
        let found = variables(&[], ForwardedFields::XForwardedFor, came);
        let expected = ["HOST=a", "X_FORWARDED_FOR=10.0.0.2, 192.0.2.1", "X_FORWARDED_PROTO=https"];
        assert_eq!(found, expected);
        let set = [FieldRule::Set("X-Forwarded-Proto".into(), "http".into())];
        let found = variables(&set, ForwardedFields::XForwardedFor, came);
        assert_eq!(found[2..], ["X_FORWARDED_PROTO=http"]);
    }

    #[test]
    fn the_start_of_a_field_is_cut_off_where_a_slash_follows() {
        let cut = [FieldRule::Cut("Location".into(), "http://app:8080".into())];
        for (location, wanted) in [
            ("http://app:8080/x?y", "/x?y"),
            ("http://app:80801/x", "http://app:80801/x"),
            ("http://app:8080", "http://app:8080"),
            ("http://app:8080@evil/", "http://app:8080@evil/"),
            ("/x", "/x"),
        ] {
            let fields = format!("location: {location}\r\n");
            let wanted = format!("Location: {wanted}\n");
            assert_eq!(changed(&cut, 302, &fields), Some(wanted), "{location}");
        }
        assert_eq!(changed(&cut, 200, "A: b\r\n").as_deref(), Some("A: b\n"));
    }

    #[test]
    fn a_responses_fields_are_set_added_put_in_and_removed() {
        let rule = |kind: fn(String, String) -> FieldRule, name: &str, value: &str| {
            kind(name.to_owned(), value.to_owned())
        };
        let rules = [
            rule(FieldRule::Set, "Cache-Control", "max-age=60"),
            rule(FieldRule::Add, "Vary", "X-Color"),
            rule(FieldRule::Default, "X-Frame-Options", "DENY"),
            FieldRule::Remove("Server".to_owned()),
        ];
        let came = "cache-control: private\r\nCache-Control: no-store\r\nServer: x\r\n\
                    Vary: Accept\r\nContent-Length: 0\r\n";
        let expected = "Vary: Accept\nContent-Length: 0\nCache-Control: max-age=60\n\
                        Vary: X-Color\nX-Frame-Options: DENY\n";
        assert_eq!(changed(&rules, 200, came).unwrap(), expected);
        let framed = "X-Frame-Options: SAMEORIGIN\r\n";
        let expected = "X-Frame-Options: SAMEORIGIN\nCache-Control: max-age=60\nVary: X-Color\n";
        assert_eq!(changed(&rules, 200, framed).unwrap(), expected);
        // The stored response has them.
        assert_eq!(
            changed(&rules, 304, "ETag: \"a\"\r\n").unwrap(),
            "ETag: \"a\"\nCache-Control: max-age=60\n"
        );
        assert_eq!(changed(&[], 200, came), None);
    }
}
