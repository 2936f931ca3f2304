//! The file that `plimsoll init` writes: a short configuration with a comment for each line.
//!
//! The keys come from the same list as those of an imported file. What never happens:
//!
//! - The server refuses the file.
//! - A forward listener is open to public clients.

use std::net::SocketAddr;

use imported::tree::{Section, Tree, Value};

/// What the file is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A cache in front of these servers (URLs).
    Reverse {
        /// At least one.
        origins: Vec<String>,
    },
    /// A proxy that clients are configured to use, for all public servers.
    Forward,
    /// A proxy for mirrors of packages only. Clients can also use it as their registry.
    Packages {
        /// Domains, each with its subdomains.
        mirrors: Vec<String>,
        /// Where clients of a registry (npm, or pip with relative links) connect, and its URL.
        registry: Option<(SocketAddr, String)>,
    },
}

/// The settings of such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starter {
    /// What it is for.
    pub purpose: Purpose,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// The admin address.
    pub admin: SocketAddr,
    /// Forward: networks whose clients may use it; if empty, the default.
    pub allow_from: Vec<String>,
    /// The directory of a store on disk, and its bytes.
    pub disk: Option<(String, u64)>,
}

impl Starter {
    /// The file. Its comments name it by `file`.
    #[must_use]
    pub fn text(&self, file: &str) -> String {
        let mut tree = Tree::default();
        let server = tree.section("server");
        server.comment("The process. Without `workers` it has one thread for each CPU.");
        server.set(
            "admin",
            self.admin.to_string(),
            "metrics, dashboard, purges; it has no authentication, so keep it on loopback",
        );
        match &self.purpose {
            Purpose::Reverse { origins } => self.reverse(origins, &mut tree),
            Purpose::Forward => self.forward(&[], &mut tree),
            Purpose::Packages { mirrors, registry } => {
                self.forward(mirrors, &mut tree);
                if let Some((address, url)) = registry {
                    registry_section(*address, url, &mut tree);
                }
            }
        }
        if let Some((directory, bytes)) = &self.disk {
            let store = tree.section("store");
            store.comment("Where responses are stored. Without `path` they are in memory only.");
            store.set("path", directory.clone(), "a directory, created if it does not exist");
            store.set("bytes", Value::Bytes(*bytes), "taken at once, when it starts");
        }
        let plain: String = file.chars().filter(|c| !c.is_control()).collect();
        let mut text = tree.text(&HEAD.replace("FILE", &plain));
        text.push_str(LATER);
        if matches!(self.purpose, Purpose::Reverse { .. }) {
            text.push_str(LATER_REVERSE);
        }
        text
    }

    fn reverse(&self, origins: &[String], tree: &mut Tree) {
        let mut listen = listener(self.listen, "reverse");
        listen.comment("Where clients connect. A port below 1024 needs root, or the capability");
        listen.comment("CAP_NET_BIND_SERVICE.");
        tree.add(listen);
        let mut upstream = Section::new("upstream");
        upstream.comment("The servers behind it. Several share the requests.");
        upstream.set("name", "site", "its name in routes, logs and metrics");
        for url in origins {
            let server = upstream.below("upstream.server");
            server.set("url", url.clone(), "http:// or https://, a host, perhaps a port");
        }
        tree.add(upstream);
    }

    fn forward(&self, domains: &[String], tree: &mut Tree) {
        let mut listen = listener(self.listen, "forward");
        listen.comment("Where clients that are configured to use this proxy connect. By default");
        listen.comment("it serves clients of this machine and of private networks, and reaches");
        listen.comment("public servers only. The keys of [forward] change that.");
        tree.add(listen);
        let forward = tree.section("forward");
        if !self.allow_from.is_empty() {
            forward.set("allow_from", self.allow_from.clone(), "networks of clients");
        }
        if !domains.is_empty() {
            let reason = "only these, with their subdomains";
            forward.set("allow_domains", domains.to_vec(), reason);
        }
    }
}

const HEAD: &str = "\
# Written by `plimsoll init`.
#
#   plimsoll check FILE       says whether it is valid, and what it would do
#   plimsoll serve -c FILE    serves with it
#
# `plimsoll reference --example` prints every key with its meaning and its default.
";

/// Settings in comments. Each line after the first two is a line of TOML behind `# `.
const LATER: &str = "
# What many add later. Remove the `# ` before the lines of a section, and restart:
# plimsoll restart --admin ADDR

# [log]
# path = \"access.log\"  # a line for each request, which `plimsoll record` can read
";

const LATER_REVERSE: &str = "
# [compression]
# codings = [\"zstd\", \"br\", \"gzip\"]  # made once for each stored response

# [[rule]]
# name = \"https\"  # from http to https, if another listener has TLS
# when = \"scheme == 'http' && !path.startsWith('/.well-known/')\"
# redirect = \"https://{host}\"
# with_path = true

# [[expect]]
# request = \"GET http://www.example.org/a?b\"  # `plimsoll check` tests it
# redirect = \"https://www.example.org/a?b\"

# [[rule]]
# name = \"session\"  # requests with this cookie do not use the store
# when = \"'session' in cookies\"
# store = false

# [[expect]]
# request = \"GET http://www.example.org/.well-known/x\"
# fields = [\"Cookie: session=1\"]
# store = false
";

fn listener(address: SocketAddr, role: &str) -> Section {
    let mut listen = Section::new("listen");
    listen.set("address", address.to_string(), "0.0.0.0:PORT is every IPv4 address");
    listen.set("role", role, "reverse: for our servers; forward: for our clients");
    listen
}

fn registry_section(address: SocketAddr, url: &str, tree: &mut Tree) {
    let mut listen = listener(address, "reverse");
    listen.comment("Where clients of the registry connect: they name this address as their own");
    listen.comment("registry, for example with `npm config set registry`.");
    tree.add(listen);
    let mut upstream = Section::new("upstream");
    upstream.comment("The registry. It expects its name as Host.");
    upstream.set("name", "registry", "its name in routes, logs and metrics");
    let host = url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/');
    upstream.set("host", host, "sent as Host, in place of what the client sent");
    upstream.below("upstream.server").set("url", url, "http:// or https://, a host");
    tree.add(upstream);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starter(purpose: Purpose) -> Starter {
        let (listen, admin) = ("127.0.0.1:3128".parse(), "[::1]:3129".parse());
        let disk = Some(("the \"store\"".to_owned(), 64 << 20));
        Starter {
            purpose,
            listen: listen.unwrap(),
            admin: admin.unwrap(),
            allow_from: Vec::new(),
            disk,
        }
    }

    fn purposes() -> [Purpose; 4] {
        let mirrors = || vec!["deb.debian.org".to_owned(), "example.net".to_owned()];
        let registry = Some(("127.0.0.1:3130".parse().unwrap(), "http://127.0.0.1:4873/".into()));
        [
            Purpose::Reverse {
                origins: vec!["http://127.0.0.1:1".into(), "http://[::1]:2".into()],
            },
            Purpose::Forward,
            Purpose::Packages { mirrors: mirrors(), registry: None },
            Purpose::Packages { mirrors: mirrors(), registry },
        ]
    }

    fn settings(text: &str) -> config::Settings {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plimsoll.toml");
        std::fs::write(&file, text).unwrap();
        config::Settings::read(&file).unwrap_or_else(|unusable| panic!("{unusable}\n{text}"))
    }

    #[test]
    fn each_file_is_accepted_also_with_what_is_added_later() {
        for purpose in purposes() {
            let text = starter(purpose.clone()).text("a\nb.toml");
            let read = settings(&text);
            assert_eq!(read.process.admin, Some("[::1]:3129".parse().unwrap()));
            assert_eq!(read.access_log, None);
            let (before, later) = text.split_once("# plimsoll restart --admin ADDR\n").unwrap();
            let later: Vec<&str> =
                later.lines().map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
            let read = settings(&format!("{before}\n{}\n", later.join("\n")));
            assert!(read.access_log.is_some());
            let is_reverse = matches!(purpose, Purpose::Reverse { .. });
            assert_eq!(read.config.compression.is_some(), is_reverse);
            assert_eq!(
                (read.config.rules.len(), read.config.expects.len() == 2),
                if is_reverse { (2, true) } else { (0, false) }
            );
        }
    }

    #[test]
    fn a_forward_listener_is_for_private_clients_unless_others_are_named() {
        let mut forward = starter(Purpose::Forward);
        let public = |starter: &Starter| {
            let client = "203.0.113.9".parse::<std::net::IpAddr>().unwrap();
            let forward = settings(&starter.text("x")).config.forward;
            forward.allow_from.iter().any(|network| network.contains(&client))
        };
        assert!(!public(&forward));
        forward.allow_from = vec!["203.0.113.0/24".to_owned()];
        assert!(public(&forward));
    }

    #[test]
    fn packages_come_from_the_mirrors_only() {
        let [.., packages] = purposes();
        let read = settings(&starter(packages).text("x")).config;
        assert_eq!(read.forward.allow_domains.len(), 2);
        assert_eq!(read.groups.len(), 1);
        assert_eq!(read.groups[0].servers[0].origin.authority, "127.0.0.1:4873");
    }
}
