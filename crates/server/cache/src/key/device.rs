//! The class of a client's device, by a small rule on two fields.
//!
//! 1. `Sec-CH-UA-Mobile: ?1` is a mobile.
//! 2. A `User-Agent` with `iPad` or `Tablet`, or with `Android` and without `Mobi`, is a tablet.
//! 3. One with `Mobi` is a mobile.
//! 4. Everything else is a desktop, also a client without `User-Agent`.
//!
//! New iPads ask as a desktop does, by the choice of their maker.

use http1::{Fields, Name};

/// A class of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A telephone.
    Mobile,
    /// A tablet.
    Tablet,
    /// Everything else.
    Desktop,
}

impl Class {
    /// The class of the client that sent these fields.
    #[inline]
    pub fn of(fields: Fields<'_>) -> Class {
        if fields.values(b"sec-ch-ua-mobile").next() == Some(b"?1") {
            return Class::Mobile;
        }
        fields.get(Name::UserAgent).map_or(Class::Desktop, Class::of_agent)
    }

    fn of_agent(agent: &[u8]) -> Class {
        let (mut android, mut mobile) = (false, false);
        // Most agents have few of these letters.
        for at in memchr::memchr2_iter(b'b', b'd', agent) {
            let (before, here) = agent.split_at(at);
            if here[0] == b'b' {
                mobile |= before.ends_with(b"Mo") && here.starts_with(b"bi");
                if before.ends_with(b"Ta") && here.starts_with(b"blet") {
                    return Class::Tablet;
                }
            } else {
                android |= before.ends_with(b"An") && here.starts_with(b"droid");
                if before.ends_with(b"iPa") {
                    return Class::Tablet;
                }
            }
        }
        match (android, mobile) {
            (true, false) => Class::Tablet,
            (_, true) => Class::Mobile,
            (false, false) => Class::Desktop,
        }
    }

    /// Its name, in keys and for the upstream.
    #[inline]
    pub fn name(self) -> &'static str {
        match self {
            Class::Mobile => "mobile",
            Class::Tablet => "tablet",
            Class::Desktop => "desktop",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_have_a_class() {
        let windows = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like \
                       Gecko) Chrome/126.0.0.0 Safari/537.36";
        let mac = "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 (KHTML, like \
                   Gecko) Version/17.5 Safari/605.1.15";
        let iphone = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 \
                      (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1";
        let ipad = "Mozilla/5.0 (iPad; CPU OS 12_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, \
                    like Gecko) Version/12.1 Mobile/15E148 Safari/604.1";
        let pixel = "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like \
                     Gecko) Chrome/126.0.0.0 Mobile Safari/537.36";
        let galaxy_tab = "Mozilla/5.0 (Linux; Android 14; SM-X710) AppleWebKit/537.36 (KHTML, \
                          like Gecko) Chrome/126.0.0.0 Safari/537.36";
        let firefox_tablet = "Mozilla/5.0 (Android 14; Tablet; rv:127.0) Gecko/127.0 Firefox/127.0";
        for (agent, class) in [
            (windows, Class::Desktop),
            (mac, Class::Desktop),
            ("curl/8.8.0", Class::Desktop),
            ("", Class::Desktop),
            (iphone, Class::Mobile),
            (pixel, Class::Mobile),
            (ipad, Class::Tablet),
            (galaxy_tab, Class::Tablet),
            (firefox_tablet, Class::Tablet),
        ] {
            assert_eq!(Class::of_agent(agent.as_bytes()), class, "{agent}");
        }
    }
}
