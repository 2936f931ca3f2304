//! The address of a database, and how to log in: `http://user:password@host:8123/database`.

use std::fmt;
use std::path::PathBuf;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ureq::http::Uri;

/// The database, if the address names none.
const DATABASE: &str = "default";

/// Where a database is, and how to log in.
#[derive(Clone)]
pub struct Address {
    /// Scheme, host and port: `http://host:8123`.
    pub(super) server: String,
    /// Its name.
    pub(super) database: String,
    user: Option<String>,
    password: Option<String>,
    /// A file with the certificates to trust, instead of the system's.
    pub(super) ca: Option<PathBuf>,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// A text that says what is wrong with it, without its password.
    pub fn of(url: &str) -> Result<Address, String> {
        let wrong = |what: &str| format!("{what}: an address is http://HOST:8123/DATABASE");
        // The rest would be a fragment, and the password would end there.
        if url.contains('#') {
            return Err(wrong("write # as %23"));
        }
        let bad = |what: &str| format!("a bad %XX in the {what}: % itself is written %25");
        let uri: Uri = url.parse().map_err(|_| wrong("not an address of a database"))?;
        let scheme = match uri.scheme_str() {
            Some(scheme @ ("http" | "https")) => scheme,
            _ => return Err(wrong("it must begin with http:// or https://")),
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => {
                (user, Some(decoded(password).ok_or_else(|| bad("password"))?))
            }
            None => (login, None),
        };
        let user = decoded(user).ok_or_else(|| bad("user"))?;
        let database = uri.path().trim_matches('/');
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if uri.query().is_some() || !database.chars().all(named) {
            return Err(wrong("the name of the database may have letters, digits and _"));
        }
        Ok(Address {
            server: format!("{scheme}://{host}"),
            database: if database.is_empty() { DATABASE } else { database }.to_owned(),
            user: (!user.is_empty()).then_some(user),
            password,
            ca: None,
        })
    }

    /// Adds a user and a password where the address has none.
    #[must_use]
    pub fn with_login(mut self, user: Option<String>, password: Option<String>) -> Address {
        self.user = self.user.or(user);
        self.password = self.password.or(password);
        self
    }

    /// Trusts the certificates of this file, instead of the system's.
    #[must_use]
    pub fn with_ca(self, ca: Option<PathBuf>) -> Address {
        Address { ca, ..self }
    }

    /// The value of the header `Authorization`, if there is a user or a password.
    pub(super) fn authorization(&self) -> Option<String> {
        if self.user.is_none() && self.password.is_none() {
            return None;
        }
        let user = self.user.as_deref().unwrap_or("default");
        let login = format!("{user}:{}", self.password.as_deref().unwrap_or_default());
        Some(format!("Basic {}", BASE64_STANDARD.encode(login)))
    }
}

/// Without user and password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.server, self.database)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text in which %XX stands for a byte.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address = Address::of("http://ann:s%40cret@[::1]:8123/perf/").unwrap();
        assert_eq!(address.to_string(), "http://[::1]:8123/perf");
        assert_eq!(format!("{address:?}"), "http://[::1]:8123/perf");
        let login = format!("Basic {}", BASE64_STANDARD.encode("ann:s@cret"));
        assert_eq!(address.authorization(), Some(login));
        let plain = Address::of("https://db").unwrap();
        assert_eq!(
            (plain.to_string().as_str(), plain.authorization()),
            ("https://db/default", None)
        );
        let login = plain.with_login(None, Some("x".into())).authorization().unwrap();
        assert_eq!(login, format!("Basic {}", BASE64_STANDARD.encode("default:x")));
    }

    #[test]
    fn an_address_that_is_none_is_refused_without_its_password() {
        for url in [
            "db:8123",
            "ftp://u:pass@db/x",
            "http://u:pass@/x",
            "http://u:pass@h/a;b",
            "http://u:pass%zz@h/a",
            "http://u:pass#more@h/a",
            "http://u:pass@h/a?b=c",
            "",
        ] {
            let why = Address::of(url).unwrap_err();
            assert!(!why.contains("pass") || why.contains("in the password:"), "{why}");
            assert!(!why.contains("pass%zz") && !why.contains("more"), "{why}");
        }
    }
}
