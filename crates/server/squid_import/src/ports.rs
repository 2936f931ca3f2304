//! `http_port` and `https_port`: where clients connect.

use super::Squid;
use super::lines::Line;
use imported::note::Fate;
use imported::table::Becomes::{self, Different, Left, Text};
use imported::table::is_one;
use imported::tree::Section;

/// An address where clients connect.
#[derive(Debug, Default)]
pub(crate) struct Port {
    pub(crate) line: Line,
    address: String,
    /// The port is in front of origin servers.
    pub(crate) accel: bool,
    proxy_header: bool,
    certificate: Option<(String, String)>,
    /// `defaultsite`: the host and port of requests without Host.
    pub(crate) site: Option<String>,
    /// Squid's rules see the site and not Host (`no-vhost`).
    pub(crate) is_fixed: bool,
    /// Squid's rules see another port than that of Host.
    pub(crate) has_own_port: bool,
}

/// What servers at private addresses need.
const PRIVATE: &str = "Squid reaches servers at any address; here those that are not public need \
                       forward.allow_to, and a CONNECT to port 443 must lead to TLS for the \
                       requested host (forward.check_server_name)";

/// What differs in the store of every accelerator.
const STORED: &str = "for some statuses and fields, storing differs (docs/import.md, Lifetimes)";

/// Options that need nothing here.
const OPTIONS: &str = "name act-as-origin connection-auth tcpkeepalive cipher options tls-dh \
    dhparams tls-min-version sslcontext disable-pmtu-discovery ignore-cc allow-direct \
    worker-queues";

pub(crate) fn port(squid: &mut Squid, line: &Line) -> Becomes {
    let Some(address) = address(line.word(0)) else {
        return Left("its address is not an IP address: write that, and import again");
    };
    let mut port = Port { line: line.clone(), address, ..Port::default() };
    let (mut chain, mut key) = (None, None);
    let mut unknown = Vec::new();
    for (option, value) in line.options(1) {
        match option {
            "accel" => port.accel = true,
            "intercept" | "tproxy" | "transparent" | "ssl-bump" => {
                let text = format!("{option} is not supported, so this port is not written");
                return Text(Fate::NotCarried, text);
            }
            "require-proxy-header" => port.proxy_header = true,
            "defaultsite" => port.site = Some(value.to_owned()),
            "vhost" => port.is_fixed = false,
            "no-vhost" => port.is_fixed = true,
            "vport" | "protocol" => port.has_own_port = true,
            "cert" | "tls-cert" => chain = Some(value.to_owned()),
            "key" | "tls-key" => key = Some(value.to_owned()),
            _ if is_one(OPTIONS, option) => {}
            _ => unknown.push(option),
        }
    }
    port.certificate = chain.map(|chain| (chain.clone(), key.unwrap_or(chain)));
    if line.name == "https_port" && port.certificate.is_none() {
        return Left("it names no certificate (tls-cert=), so this port is not written");
    }
    let becomes = Different(if port.accel { STORED } else { PRIVATE });
    if unknown.is_empty() || squid.open {
        squid.ports.push(port);
    }
    if unknown.is_empty() {
        return becomes;
    }
    // An unknown option may require certificates of clients.
    let text = format!("its options {} are not known here", unknown.join(", "));
    Text(Fate::Unprotected, text)
}

/// An address as ours are written. A port alone is all addresses of both families.
fn address(text: &str) -> Option<String> {
    if let Ok(port) = text.parse::<u16>() {
        return Some(format!("[::]:{port}"));
    }
    let text = text.replacen("localhost:", "127.0.0.1:", 1);
    let address: std::net::SocketAddr = text.parse().ok()?;
    Some(address.to_string())
}

impl Port {
    /// `[[listen]]`
    pub(crate) fn section(&self, senders: &[String]) -> Section {
        let mut section = Section::new("listen");
        section.set("address", self.address.clone(), &self.line.at);
        section.set("role", if self.accel { "reverse" } else { "forward" }, &self.line.at);
        if self.proxy_header {
            section.set("proxy_from", senders.to_vec(), "proxy_protocol_access");
        }
        if let Some((chain, key)) = &self.certificate {
            let tls = section.below("listen.tls").below("listen.tls.certificate");
            tls.set("chain", chain.clone(), &self.line.at);
            tls.set("key", key.clone(), &self.line.at);
        }
        section
    }
}
