//! Proxies in front of a listener, whose fields name the client.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::value::understood;

/// The proxies in front of a listener that are trusted to name the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// Their networks.
    pub networks: Vec<IpNet>,
    /// The field in which they name it.
    pub field: FrontField,
    /// Whether the host that they name is the host of the request.
    pub host: bool,
}

impl Front {
    /// Whether an address is one of these proxies.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// Whether an address that a field names is one of these proxies. A client without an address
    /// is not, even if proxies at a Unix socket are trusted.
    pub fn trusts_named(&self, address: IpAddr) -> bool {
        !address.is_unspecified() && self.trusts(address)
    }
}

/// The field in which a proxy names the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FrontField {
    /// `X-Forwarded-For`: a list, to which each proxy adds the address that it was asked from.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239): the same with parameters.
    Forwarded,
    /// A field of this name with one address, such as `X-Real-IP`.
    Address(String),
}

impl FrontField {
    /// The name of the field.
    pub fn name(&self) -> &str {
        match self {
            FrontField::XForwardedFor => "X-Forwarded-For",
            FrontField::Forwarded => "Forwarded",
            FrontField::Address(name) => name,
        }
    }
}

impl FromStr for FrontField {
    type Err = String;

    fn from_str(text: &str) -> Result<FrontField, String> {
        let lists = [FrontField::XForwardedFor, FrontField::Forwarded];
        if let Some(list) = lists.into_iter().find(|one| one.name().eq_ignore_ascii_case(text)) {
            return Ok(list);
        }
        match !text.is_empty() && http1::is_plain(text.as_bytes()) {
            true => Ok(FrontField::Address(text.to_owned())),
            false => Err(format!("{text:?} is not the name of a field, such as X-Real-IP")),
        }
    }
}

impl std::fmt::Display for FrontField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

understood!(FrontField);
