//! The keys of a configuration file that concern forward mode, upgrades and `Via`.

use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeValue;

use super::table::{Here, Key, Table, keys};
use super::value::{Kind, Setting, quoted, understood, words};
use super::{Domain, Forward, PasswordRealm, Ports, Protocol, TellClient, Users, Via, ViaName};

understood!(Domain PasswordRealm Ports Protocol ViaName);

words!(TellClient:
    "off" => TellClient::Off,
    "add" => TellClient::Add,
    "replace" => TellClient::Replace,
    "delete" => TellClient::Delete,
);
const TELL: Kind = Kind::Word(&["off", "add", "replace", "delete"]);

/// A file of users is read with the configuration, so that a bad one changes nothing.
impl Setting for Users {
    fn read(value: &Spanned<DeValue<'_>>, kind: &Kind, here: &mut Here<'_, '_>) -> Option<Users> {
        let path = PathBuf::read(value, kind, here)?;
        Users::read(&path).map_err(|why| here.mistake(value.span(), why)).ok()
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(&self.path().display().to_string()))
    }
}

/// `[forward]`
impl Table for Forward {
    const KEYS: &'static [Key<Forward>] = keys![Forward;
        allow_from: Kind::Networks, allow_from, "Networks whose clients may use the proxy.";
        allow_to: Kind::Networks, allow_to,
            "Networks that are reached although they are not public: an intranet, a test's \
             loopback. An address that the proxy itself listens on is reached only if it is \
             written here alone.";
        ports: Kind::Texts, ports, "Ports, and ranges of ports, that requests may go to.";
        connect_ports: Kind::Texts, connect_ports, "The same for CONNECT.";
        allow_domains: Kind::Texts, allow_domains,
            "Domains, each with all that is under it. If there are any, no others are reached.",
            example "[\"example.com\"]";
        deny_domains: Kind::Texts, deny_domains,
            "Domains, each with all that is under it, that are not reached.",
            example "[\"example.net\"]";
        check_server_name: Kind::Flag, check_server_name,
            "Whether a CONNECT to one of `tls_ports` must be followed by TLS whose ClientHello \
             names the host that was asked for.";
        tls_ports: Kind::Texts, tls_ports, "Ports where TLS is expected behind a CONNECT.";
        users: Kind::Path, users,
            "File of names and bcrypt hashes, as `htpasswd -B` writes it: who is not in it may \
             not use the proxy. Read again at each reload. Without it nobody is asked.",
            example "\"users\"";
        realm: Kind::Text, realm, "What a browser shows when it asks for the password.";
        x_forwarded_for: TELL, x_forwarded_for,
            "What becomes of X-Forwarded-For: it goes on as it came, the client's address is \
             added to it, or replaces it, or it is left out.";
        forwarded: TELL, forwarded, "The same for Forwarded (RFC 7239).";
    ];

    fn blank() -> Forward {
        Forward::default()
    }
}

/// `[upgrade]`
#[derive(Debug)]
pub(crate) struct UpgradeSection {
    pub(crate) protocols: Vec<Protocol>,
}

impl Table for UpgradeSection {
    const KEYS: &'static [Key<UpgradeSection>] = keys![UpgradeSection;
        protocols: Kind::Texts, protocols,
            "Protocols that requests may ask for with Upgrade, in either mode. HTTP/2 is never one \
             of them.";
    ];

    fn blank() -> UpgradeSection {
        UpgradeSection { protocols: Protocol::usual() }
    }
}

/// `[via]`
impl Table for Via {
    const KEYS: &'static [Key<Via>] = keys![Via;
        requests: Kind::Flag, requests,
            "Whether requests that go on to a server name this proxy, as RFC 9110 wants it. \
             Without it a request that goes in a circle is not noticed.";
        responses: Kind::Flag, responses,
            "Whether responses do. What is stored keeps what it was stored with.";
        name: Kind::Text, name,
            "The name. Without it `plimsoll` in responses, and in requests `plimsoll-` with a \
             number that no other process has. A request that comes with this name in its Via is \
             refused as one that goes in a circle, so no two proxies behind one another may share \
             one.",
            example "\"cache-1.example\"";
    ];

    fn blank() -> Via {
        Via::default()
    }
}
