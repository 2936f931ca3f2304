//! `http_port` and `https_port`: where clients connect.

use ipnet::IpNet;

use super::Squid;
use super::lines::Line;
use crate::tree::Section;

/// An address where clients connect.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) line: Line,
    address: String,
    /// In front of origin servers.
    pub(crate) accel: bool,
    proxy_header: bool,
    certificate: Option<(String, String)>,
    /// With `no-vhost`: the host that servers see.
    pub(crate) host: Option<String>,
}

/// What private addresses need.
const PRIVATE: &str = "Squid reaches servers at any address; here those that are not public need \
                       forward.allow_to, and a CONNECT to port 443 must lead to TLS for the \
                       requested host (forward.check_server_name)";

pub(crate) fn port(squid: &mut Squid<'_>, line: &Line) {
    let secure = line.name == "https_port";
    let Some(address) = address(line.word(0)) else {
        let text = "its address is not an IP address: write that, and import again";
        return squid.notes.left(&line.at, text);
    };
    let (mut accel, mut proxy_header, mut vhost) = (false, false, true);
    let (mut site, mut chain, mut key) = (None, None, None);
    let mut unknown = Vec::new();
    for word in line.rest(1) {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        match option {
            "accel" => accel = true,
            "intercept" | "tproxy" | "transparent" | "ssl-bump" => {
                let text = format!("{option} is not supported, so this port is not written");
                return squid.notes.left(&line.at, text);
            }
            "require-proxy-header" => proxy_header = true,
            "defaultsite" => site = Some(value.to_owned()),
            "vhost" => vhost = true,
            "no-vhost" => vhost = false,
            "cert" | "tls-cert" => chain = Some(value.to_owned()),
            "key" | "tls-key" => key = Some(value.to_owned()),
            "name"
            | "act-as-origin"
            | "connection-auth"
            | "tcpkeepalive"
            | "cipher"
            | "options"
            | "tls-dh"
            | "dhparams"
            | "tls-min-version"
            | "sslcontext"
            | "disable-pmtu-discovery"
            | "ignore-cc"
            | "allow-direct"
            | "protocol"
            | "vport"
            | "worker-queues" => {}
            _ => unknown.push(option.to_owned()),
        }
    }
    let certificate = chain.map(|chain| (chain.clone(), key.unwrap_or(chain)));
    if secure && certificate.is_none() {
        let text = "it names no certificate (tls-cert=), so this port is not written";
        return squid.notes.left(&line.at, text);
    }
    if !unknown.is_empty() {
        // One of them may ask for certificates of clients.
        let text = format!("its options {} are not known here", unknown.join(", "));
        squid.notes.unprotected(&line.at, text);
        if !squid.options.open {
            return;
        }
    } else if accel {
        squid.notes.carried(&line.at);
    } else {
        squid.notes.different(&line.at, PRIVATE);
    }
    let host = site.filter(|_| !vhost);
    let line = line.clone();
    squid.ports.push(Port { line, address, accel, proxy_header, certificate, host });
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
    pub(crate) fn section(&self, senders: &[IpNet]) -> Section {
        let mut section = Section::new("listen");
        section.set("address", self.address.clone(), &self.line.at);
        section.set("role", if self.accel { "reverse" } else { "forward" }, &self.line.at);
        if self.proxy_header {
            let senders: Vec<String> = senders.iter().map(ToString::to_string).collect();
            section.set_for("proxy_from", senders, "proxy_protocol_access");
        }
        if let Some((chain, key)) = &self.certificate {
            let tls = section.below("listen.tls").below("listen.tls.certificate");
            tls.set("chain", chain.clone(), &self.line.at);
            tls.set("key", key.clone(), &self.line.at);
        }
        section
    }
}
