//! Who may read the events: programs of this machine, or callers with the token.
//!
//! On a loopback address no token is needed, but a page of another site in a browser on this
//! machine could reach that address too, under a name that its owner resolves to 127.0.0.1 (DNS
//! rebinding). Such a request carries that name in `Host`, so only names of this machine are
//! accepted there. For other calls to that address any IP address will do, because no one can make
//! it lead elsewhere.

use std::net::IpAddr;

use http1::RequestHead;

/// The shortest token of a file, bytes.
pub const TOKEN_BYTES_MIN: usize = 16;

/// A secret that the page sends with each request for events.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// From the text of a file.
    ///
    /// # Errors
    /// It is too short, or has characters that a URL or a field of HTTP would change.
    pub fn of_text(text: &str) -> Result<Token, String> {
        let text = text.trim();
        if text.len() < TOKEN_BYTES_MIN {
            return Err(format!("a token has at least {TOKEN_BYTES_MIN} characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)) {
            return Err("a token has only letters, digits and -._~".to_owned());
        }
        Ok(Token(text.to_owned()))
    }

    /// From random bytes.
    #[must_use]
    pub fn of_random(bytes: &[u8; 20]) -> Token {
        Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The part of a URL that gives it to the page. Browsers do not send it.
    #[must_use]
    pub fn fragment(&self) -> String {
        format!("#token={}", self.0)
    }

    /// Compares in a time that depends only on the lengths.
    fn is(&self, given: &[u8]) -> bool {
        let differing = self.0.bytes().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
        self.0.len() == given.len() && std::hint::black_box(differing) == 0
    }
}

/// Who may read.
#[derive(Clone, Debug)]
pub enum Access {
    /// Callers who name this machine, on a loopback address.
    Local,
    /// Callers with this token.
    Token(Token),
    /// No caller: the address is not a loopback address, and there is no token.
    Closed,
}

/// The fields of a request that matter here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// `Host`.
    pub host: Option<&'a [u8]>,
    /// `Authorization`.
    pub authorization: Option<&'a [u8]>,
    /// `Sec-Fetch-Site`, which browsers send.
    pub site: Option<&'a [u8]>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The status of the response.
    pub status: u16,
    /// What is wrong and how to fix it.
    pub text: &'static str,
}

impl<'a> Asked<'a> {
    /// Of a request.
    #[must_use]
    pub fn of(head: &RequestHead<'a>) -> Asked<'a> {
        let field = |wanted: &[u8]| {
            let found = head.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value)
        };
        Asked {
            host: head.host(),
            authorization: field(b"authorization"),
            site: field(b"sec-fetch-site"),
        }
    }
}

impl Access {
    /// Whether the request may have the page.
    ///
    /// # Errors
    /// The reason why not.
    pub fn admits_to_page(&self, asked: &Asked<'_>) -> Result<(), Refused> {
        match self {
            Access::Local if !asked.host.is_some_and(is_this_machine) => Err(Refused {
                status: 403,
                text: "use the address 127.0.0.1, [::1] or the name localhost for this page",
            }),
            Access::Closed => Err(Refused {
                status: 403,
                text: "the page is served on a loopback address only; use ssh -L, or set a token",
            }),
            Access::Local | Access::Token(_) => Ok(()),
        }
    }

    /// Whether the request may have the events.
    ///
    /// # Errors
    /// The reason why not.
    pub fn admits_to_events(&self, asked: &Asked<'_>) -> Result<(), Refused> {
        self.admits_to_page(asked)?;
        if asked.site.is_some_and(|site| site != b"same-origin" && site != b"none") {
            return Err(Refused { status: 403, text: "events are for this server's page only" });
        }
        if matches!(self, Access::Token(_)) && !self.has_token(asked) {
            return Err(Refused {
                status: 401,
                text: "the token is missing or wrong: open the page with #token=TOKEN",
            });
        }
        Ok(())
    }

    /// Whether a request to a loopback address may have anything else. `own_name` is the name of
    /// this machine.
    ///
    /// # Errors
    /// The reason why not.
    pub fn admits_to_call(&self, asked: &Asked<'_>, own_name: &str) -> Result<(), Refused> {
        let is_ours = |host: &[u8]| {
            name_of(host).is_some_and(|name| {
                name.eq_ignore_ascii_case("localhost")
                    || name.eq_ignore_ascii_case(own_name)
                    || name.parse::<IpAddr>().is_ok()
            })
        };
        if asked.host.is_none_or(is_ours) || self.has_token(asked) {
            return Ok(());
        }
        Err(Refused {
            status: 403,
            text: "use an IP address, localhost or the name of this machine for this address",
        })
    }

    fn has_token(&self, asked: &Asked<'_>) -> bool {
        let given = asked.authorization.and_then(|field| field.strip_prefix(b"Bearer "));
        matches!((self, given), (Access::Token(token), Some(given)) if token.is(given))
    }
}

/// Whether `Host` names this machine: `localhost` or a loopback address, with or without a port.
fn is_this_machine(host: &[u8]) -> bool {
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name_of(host).is_some_and(|name| {
        name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
    })
}

/// The name or address of a `Host`, without its port.
fn name_of(host: &[u8]) -> Option<&str> {
    let host = std::str::from_utf8(host).ok()?;
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    Some(name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str) -> Asked<'_> {
        Asked { host: Some(host.as_bytes()), ..Asked::default() }
    }

    #[test]
    fn a_loopback_address_is_not_read_under_a_foreign_name() {
        for host in [
            "127.0.0.1:9000",
            "localhost",
            "LOCALHOST:1",
            "[::1]:80",
            "127.8.0.1",
            "[::1]",
            "[::ffff:127.0.0.1]:80",
        ] {
            assert_eq!(Access::Local.admits_to_events(&asked(host)), Ok(()), "{host}");
        }
        for host in ["evil.example:9000", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1.a"] {
            assert!(Access::Local.admits_to_page(&asked(host)).is_err(), "{host}");
        }
        assert!(Access::Local.admits_to_page(&Asked::default()).is_err());
        let foreign = Asked { site: Some(b"cross-site"), ..asked("localhost") };
        assert!(Access::Local.admits_to_events(&foreign).is_err());
        let ours = Asked { site: Some(b"same-origin"), ..asked("localhost") };
        assert!(Access::Local.admits_to_events(&ours).is_ok());
    }

    #[test]
    fn no_call_of_a_loopback_address_is_made_under_a_foreign_name() {
        let token = Token::of_text("0123456789abcdef").expect("it is long enough");
        for access in [Access::Local, Access::Token(token)] {
            for host in ["10.0.0.1:9", "[fe80::1]:9", "localhost:9", "web1:9", "WEB1"] {
                assert_eq!(access.admits_to_call(&asked(host), "web1"), Ok(()), "{host}");
            }
            for host in ["evil.example:9", "web1.evil.example", "10.0.0.1.evil.example", ""] {
                assert!(access.admits_to_call(&asked(host), "web1").is_err(), "{host}");
            }
            let bearer = Some(&b"Bearer 0123456789abcdef"[..]);
            let with_token = Asked { authorization: bearer, ..asked("proxy.example") };
            let admitted = access.admits_to_call(&with_token, "web1").is_ok();
            assert_eq!(admitted, matches!(access, Access::Token(_)));
        }
    }

    #[test]
    fn elsewhere_events_need_the_token_and_the_page_does_not() {
        let token = Token::of_text(" 0123456789abcdef\n").expect("it is long enough");
        assert_eq!(token.fragment(), "#token=0123456789abcdef");
        let access = Access::Token(token);
        let with = |value: &'static str| Asked {
            authorization: Some(value.as_bytes()),
            ..asked("any.example")
        };
        assert_eq!(access.admits_to_events(&with("Bearer 0123456789abcdef")), Ok(()));
        let wrong = ["Bearer 0123456789abcdeX", "Bearer 0123456789abcdef0", "0123456789abcdef", ""];
        for value in wrong {
            let refused = access.admits_to_events(&with(value)).map_err(|why| why.status);
            assert_eq!(refused, Err(401), "{value}");
        }
        assert_eq!(access.admits_to_page(&asked("any.example")), Ok(()));
        assert!(Access::Closed.admits_to_page(&asked("localhost")).is_err());
        for text in ["short", "0123456789abcdef/", "0123456789 abcdef"] {
            assert!(Token::of_text(text).is_err(), "{text}");
        }
    }
}
