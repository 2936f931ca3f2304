//! Changes to where responses of upstreams lead (`Location`, `Refresh`), and to the attributes of
//! the cookies that they set.

use config::{CookieRewrite, Group, LocationRewrite};

/// The number of slashes and backslashes at the beginning of a path. A location has only one of
/// them: a path that begins with two must not become a host.
pub fn slashes(path: &[u8]) -> usize {
    path.iter().take_while(|byte| b"/\\".contains(byte)).count()
}

/// The changes of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrites {
    /// The beginnings of URLs, and what takes their place.
    locations: Vec<(String, String)>,
    cookies: Vec<CookieRewrite>,
}

impl Rewrites {
    /// Those of a route to this group.
    pub(crate) fn new(
        locations: &[LocationRewrite],
        cookies: &[CookieRewrite],
        group: Option<&Group>,
    ) -> Rewrites {
        let of_group = || {
            let origins = group.into_iter().flat_map(|group| &group.servers);
            let origins = origins.map(|server| &server.origin);
            origins.map(|origin| format!("{}://{}", origin.scheme(), origin.authority))
        };
        let one = |rewrite: &LocationRewrite| -> Vec<(String, String)> {
            match &rewrite.from {
                Some(from) => vec![(from.clone(), rewrite.to.clone())],
                None => of_group().map(|from| (from, rewrite.to.clone())).collect(),
            }
        };
        let locations = locations.iter().flat_map(one).collect();
        Rewrites { locations, cookies: cookies.to_vec() }
    }

    /// Whether nothing is changed.
    pub(crate) fn is_none(&self) -> bool {
        self.locations.is_empty() && self.cookies.is_empty()
    }

    /// The changed value of a field of a response; `None`: it stays.
    pub(crate) fn changed(&self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        if name.eq_ignore_ascii_case(b"location") {
            return self.location(value);
        }
        if name.eq_ignore_ascii_case(b"refresh") {
            let at = value.windows(4).position(|part| part.eq_ignore_ascii_case(b"url="))? + 4;
            let (before, quoted) = value.split_at(at);
            let url = quoted.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
            return Some([before, &self.location(url.unwrap_or(quoted))?].concat());
        }
        if name.eq_ignore_ascii_case(b"set-cookie") {
            return self.cookie(value);
        }
        None
    }

    fn location(&self, url: &[u8]) -> Option<Vec<u8>> {
        let rest = |from: &str| {
            let rest = url.strip_prefix(from.as_bytes())?;
            // What follows two slashes is a host.
            let is_host = from == "/" && rest.starts_with(b"/");
            let ends =
                from.ends_with('/') || matches!(rest.first(), None | Some(b'/' | b'?' | b'#'));
            (ends && !is_host).then_some(rest)
        };
        let found = self.locations.iter().find_map(|(from, to)| Some((rest(from)?, to)));
        let (rest, to) = found?;
        let changed = [to.as_bytes(), rest].concat();
        match changed.first() {
            // `http://app//evil` must not become the host `evil`.
            Some(b'/') if to.is_empty() => Some([b"/", &changed[slashes(&changed)..]].concat()),
            Some(b'?' | b'#') | None => Some([b"/", &changed[..]].concat()),
            Some(_) => Some(changed),
        }
    }

    fn cookie(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut parts = value.split(|b| *b == b';');
        let pair = parts.next()?;
        let end = memchr::memchr(b'=', pair)?;
        let name = pair[..end].trim_ascii();
        let rule = self.cookies.iter().find(|rule| rule.is_for(name))?;
        let domain = CookieRewrite::value(rule.domain.as_ref());
        let path = CookieRewrite::value(rule.path.as_ref());
        let is_set = |flag: Option<bool>| flag.map(|flag| if flag { "set" } else { "" });
        let same_site = rule.same_site.map(config::SameSite::text);
        let rules: [(&str, Option<&str>, bool); 5] = [
            ("Domain", domain, true),
            ("Path", path, true),
            ("Secure", is_set(rule.secure), false),
            ("HttpOnly", is_set(rule.http_only), false),
            ("SameSite", same_site, true),
        ];
        let mut out = pair.to_vec();
        for part in parts {
            let name = part.split(|b| *b == b'=').next().unwrap_or_default().trim_ascii();
            let is_changed = rules
                .iter()
                .any(|(of, value, _)| value.is_some() && name.eq_ignore_ascii_case(of.as_bytes()));
            if !is_changed {
                out.push(b';');
                out.extend_from_slice(part);
            }
        }
        for (name, value, has_value) in rules {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let text = if has_value { format!("{name}={value}") } else { name.to_owned() };
                out.extend_from_slice(format!("; {text}").as_bytes());
            }
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use config::{Origin, SameSite};

    use super::*;

    fn locations(rewrites: &[(Option<&str>, &str)]) -> Rewrites {
        let group = Group::of("app", [Origin::from_url("http://app.test:8080").unwrap()]);
        let one = |(from, to): &(Option<&str>, &str)| LocationRewrite {
            from: from.map(str::to_owned),
            to: (*to).to_owned(),
        };
        let rewrites: Vec<_> = rewrites.iter().map(one).collect();
        Rewrites::new(&rewrites, &[], Some(&group))
    }

    #[test]
    fn urls_of_the_upstream_become_paths_and_never_hosts() {
        let own = locations(&[(None, "")]);
        for (url, changed) in [
            ("http://app.test:8080/x?y", Some("/x?y")),
            ("http://app.test:8080", Some("/")),
            ("http://app.test:8080?q", Some("/?q")),
            ("http://app.test:8080//evil/x", Some("/evil/x")),
            ("http://app.test:8080/\\evil/x", Some("/evil/x")),
            ("http://app.test:80801/x", None),
            ("http://app.test:8080@evil/x", None),
            ("https://app.test:8080/x", None),
            ("/x", None),
        ] {
            let got = own.changed(b"location", url.as_bytes());
            assert_eq!(got.as_deref(), changed.map(str::as_bytes), "{url}");
        }
        let refresh = own.changed(b"Refresh", b"5; URL=http://app.test:8080/x");
        assert_eq!(refresh.as_deref(), Some(&b"5; URL=/x"[..]));
    }

    #[test]
    fn a_path_gets_a_prefix() {
        let prefixed = locations(&[(Some("/"), "/shop/"), (Some("http://a"), "https://b")]);
        for (url, changed) in [
            ("/x", Some("/shop/x")),
            ("//evil/x", None),
            ("http://a/x", Some("https://b/x")),
            ("http://ab/x", None),
        ] {
            let got = prefixed.changed(b"Location", url.as_bytes());
            assert_eq!(got.as_deref(), changed.map(str::as_bytes), "{url}");
        }
    }

    #[test]
    fn attributes_of_cookies_are_set_and_removed() {
        let rule = CookieRewrite {
            name: Some("s*".to_owned()),
            domain: Some("remove".to_owned()),
            path: Some("/shop".to_owned()),
            secure: Some(true),
            http_only: Some(false),
            same_site: Some(SameSite::Lax),
        };
        let rewrites = Rewrites::new(&[], &[rule], None);
        let changed = |value: &str| {
            let got = rewrites.changed(b"Set-Cookie", value.as_bytes());
            got.map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(
            changed("sid=1; domain=app.test; Path=/; HttpOnly; Max-Age=5; SameSite=None").unwrap(),
            "sid=1; Max-Age=5; Path=/shop; Secure; SameSite=Lax"
        );
        assert_eq!(changed("s=").unwrap(), "s=; Path=/shop; Secure; SameSite=Lax");
        assert_eq!(changed("other=1; Path=/"), None);
        assert_eq!(changed("nonsense"), None);
    }
}
