//! The keys of a configuration file that concern forward mode, upgrades and `Via`.

use std::path::PathBuf;

use toml::Spanned;
use toml::de::DeValue;

use super::here::Here;
use super::table::{Key, Table, keys};
use super::value::{Kind, Setting, quoted, understood, words};
use super::{
    ClientField, Domain, Forward, PasswordRealm, Ports, Protocol, Satisfy, Users, Via, ViaName,
};

understood!(Domain PasswordRealm Ports Protocol ViaName);

words!(ClientField:
    "off" => ClientField::Off,
    "add" => ClientField::Add,
    "replace" => ClientField::Replace,
    "delete" => ClientField::Delete,
);
const CLIENT_FIELD: Kind = Kind::Word(&["off", "add", "replace", "delete"]);

/// The file of users is read with the configuration, so that a bad file changes nothing.
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
        deny_from: Kind::Networks, deny_from,
            "Networks whose clients may not use the proxy, whatever allow_from says. With \
             satisfy = \"any\" they may with a login.",
            example "[\"10.9.0.0/16\"]";
        satisfy: Kind::Word(&["all", "any"]), satisfy,
            "With users: whether a client needs both, an allowed network and a login, or one of \
             them. With `any`, clients of allow_from need no password, and all others need one.";
        allow_to: Kind::Networks, allow_to,
            "Networks that may be reached although they are not public: an intranet, a test's \
             loopback. An address that the proxy itself listens on may be reached only if exactly \
             that address is listed.";
        ports: Kind::Texts, ports, "Ports, and ranges of ports, allowed in requests.";
        connect_ports: Kind::Texts, connect_ports, "The same for CONNECT.";
        allow_domains: Kind::Texts, allow_domains,
            "Domains, each with all its subdomains. If not empty, only these may be reached.",
            example "[\"example.com\"]";
        deny_domains: Kind::Texts, deny_domains,
            "Domains, each with all its subdomains, that may not be reached.",
            example "[\"example.net\"]";
        deny_when: Kind::Text, deny_when,
            "A condition (docs/conditions.md). Requests for which it holds are refused: \
             `path.endsWith('.exe') && !client.within(office)`. It is asked for each reading of \
             the path, and for each name that a host may be completed to. A CONNECT has the path \
             `/`.", example "\"hour < 6 && user != 'backup'\"";
        check_server_name: Kind::Flag, check_server_name,
            "Whether a CONNECT to one of `tls_ports` must be followed by a TLS ClientHello with \
             the requested host as its server name.";
        tls_ports: Kind::Texts, tls_ports, "Ports at which CONNECT must lead to TLS.";
        users: Kind::Path, users,
            "File of names and bcrypt hashes, as written by `htpasswd -B`: only these users may \
             use the proxy. Read again at each reload. Default: no authentication.",
            example "\"users\"";
        no_login_from: Kind::Networks, no_login_from,
            "Networks of allow_from whose clients need no password.",
            example "[\"10.1.0.0/16\"]";
        [[lifetime]]: lifetimes, "How long some responses are fresh, as in [[route.lifetime]]. The \
            first one that matches a response applies.";
        pac_file: Kind::Path, pac_file,
            "A script by which browsers find the proxy (PAC), at most 1 MiB. Forward listeners \
             answer `GET /proxy.pac` and `GET /wpad.dat` with it, without a password. The file is \
             read again at a reload.", example "\"proxy.pac\"";
        realm: Kind::Text, realm, "The realm, which a browser shows when it asks for the \
            password.";
        x_forwarded_for: CLIENT_FIELD, x_forwarded_for,
            "The treatment of X-Forwarded-For: forwarded unchanged, the client's address \
             appended, replaced by the client's address, or removed.";
        forwarded: CLIENT_FIELD, forwarded, "The same for Forwarded (RFC 7239).";
        finish_abandoned: Kind::Flag, finish_abandoned,
            "The same as route.finish_abandoned, for forward listeners.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        let has_login = self.users.is_some();
        if !has_login && here.has("satisfy") {
            here.mistake_of("satisfy", "it has no effect without users");
        }
        if has_login && self.satisfy == Satisfy::Any && here.has("no_login_from") {
            here.mistake_of(
                "no_login_from",
                "with satisfy = \"any\" no client of allow_from needs a password: write these \
                 networks in allow_from",
            );
        }
    }
}

/// `[upgrade]`
#[derive(Debug)]
pub(crate) struct UpgradeSection {
    pub(crate) protocols: Vec<Protocol>,
}

impl Default for UpgradeSection {
    fn default() -> UpgradeSection {
        UpgradeSection { protocols: Protocol::usual() }
    }
}

impl Table for UpgradeSection {
    const KEYS: &'static [Key<UpgradeSection>] = keys![UpgradeSection;
        protocols: Kind::Texts, protocols,
            "Protocols that requests may name in Upgrade, in either mode. HTTP/2 is never \
             allowed.";
    ];
}

/// `[via]`
impl Table for Via {
    const KEYS: &'static [Key<Via>] = keys![Via;
        requests: Kind::Flag, requests,
            "Whether requests forwarded to a server have Via, as RFC 9110 requires. Without it a \
             request loop is not detected.";
        responses: Kind::Flag, responses,
            "Whether responses have it. Stored responses keep the Via they were stored with.";
        name: Kind::Text, name,
            "The name. Default: `plimsoll` in responses, and in requests `plimsoll-` with a \
             number unique to this process. A request that arrives with this name in its Via is \
             refused as a loop, so chained proxies must have different names.",
            example "\"cache-1.example\"";
    ];
}
