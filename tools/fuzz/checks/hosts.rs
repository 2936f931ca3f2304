//! Checks of the rules on hosts of a forward listener, for the fuzz target and for the tests that
//! replay its corpus.
//!
//! The oracle takes a host apart by itself, and lists the addresses of IPv4 that other readers find
//! in it: those of the C library (`inet_aton`), and those of the forms of IPv6 that contain one.

use std::net::Ipv6Addr;
use std::sync::Arc;

use config::Forward;
use dns::{NameServers, Resolver};
use http1::Method;
use outcome::Refusal;
use policy::forward::{Lists, OwnAddresses, Rules};

const DENIED: [&str; 3] = ["blocked.example", "10.0.0.1", "deep.a.example"];
const ALLOWED: [&str; 2] = ["example", "192.0.2.1"];

/// Part of the target `hosts`: a byte of settings, then the host of an authority.
pub(crate) fn forward(data: &[u8]) {
    let Some((settings, authority)) = data.split_first() else { return };
    let Ok(parsed) = http1::parse_authority(authority) else { return };
    let has_allowed = settings & 1 == 1;
    let domains = |list: &[&str]| list.iter().map(|one| one.parse().expect("a domain")).collect();
    let rules = Rules::new(
        &Forward {
            deny_domains: domains(&DENIED),
            allow_domains: if has_allowed { domains(&ALLOWED) } else { Vec::new() },
            allow_to: ["0.0.0.0/0", "::/0"].map(|net| net.parse().expect("a network")).into(),
            ports: vec!["1-65535".parse().expect("all ports")],
            ..Forward::default()
        },
        &Lists::new(),
    );
    let resolver: Arc<Resolver> = Resolver::new(&NameServers::At(Vec::new()));
    let own = OwnAddresses::default();
    let to = (parsed.host, 80);
    let got = rules.admits_by_peer(to, Method::Get, (&resolver, &own)).map_err(|r| r.name());
    let expected = expected(parsed.host, has_allowed).map_err(|refusal| refusal.name());
    assert_eq!(got, expected, "{}", authority.escape_ascii());
    let is_stored = rules.admits_stored(authority, 80, &resolver);
    let is_port = parsed.port != Some(0);
    assert_eq!(
        is_stored,
        expected.is_ok() && is_port,
        "{} from the store",
        authority.escape_ascii()
    );
}

/// What the rules say.
fn expected(host: &[u8], has_allowed: bool) -> Result<(), Refusal> {
    let text = String::from_utf8_lossy(host).to_lowercase();
    let names = match of(&text) {
        None => return Err(Refusal::HostName),
        Some(names) => names,
    };
    if names.iter().any(|name| DENIED.iter().any(|denied| is_below(name, denied))) {
        return Err(Refusal::DomainDenied);
    }
    // An address is allowed by the usual spelling alone.
    if has_allowed && !ALLOWED.iter().any(|allowed| is_below(&names[0], allowed)) {
        return Err(Refusal::DomainNotAllowed);
    }
    Ok(())
}

fn is_below(name: &str, domain: &str) -> bool {
    name == domain || name.strip_suffix(domain).is_some_and(|before| before.ends_with('.'))
}

/// The hosts that some reader may take this host for, the usual reading first. `None`: readers do
/// not agree on whether it is an address, or it cannot be looked up.
fn of(host: &str) -> Option<Vec<String>> {
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(v6) = inner.unwrap_or(host).parse::<Ipv6Addr>() {
        let usual = v6.to_ipv4_mapped().map_or(v6.to_string(), |v4| v4.to_string());
        return Some([vec![usual], embedded(v6)].concat());
    }
    let numbers: Option<Vec<u64>> = host.split('.').map(number).collect();
    let plain = |part: &str| part.len() == 1 || !part.starts_with('0');
    match numbers {
        Some(four) if four.len() == 4 && four.iter().all(|n| *n < 256) => {
            let is_usual =
                host.split('.').all(|p| plain(p) && p.bytes().all(|b| b.is_ascii_digit()));
            return is_usual.then(|| vec![host.to_owned()]);
        }
        Some(_) => return None,
        None => {}
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(is_letter);
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_name = name.len() <= 253 && name.split('.').all(is_label) && number(last).is_none();
    is_name.then(|| vec![name.to_owned()])
}

/// A number as `inet_aton` reads it. `0x` alone is 0 for some readers.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some("") => return Some(0),
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    // What is too long is no address for any reader, but is no name either.
    is_number.then(|| u64::from_str_radix(digits, radix).unwrap_or(u64::MAX))
}

/// The addresses of IPv4 in one of IPv6, by the place of their bytes.
fn embedded(v6: Ipv6Addr) -> Vec<String> {
    let bytes = v6.octets();
    let at = |start: usize| bytes[start..start + 4].iter().map(u8::to_string).collect::<Vec<_>>();
    let is = |prefix: &[u8]| bytes.starts_with(prefix);
    let mut found = Vec::new();
    let isatap = matches!(bytes[8..12], [0 | 2, 0, 0x5e, 0xfe]);
    let in_zeros = is(&[0; 12]) || is(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    let translated = is(&[0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]);
    let nat64 = is(&[0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]);
    if in_zeros || translated || nat64 || is(&[0, 0x64, 0xff, 0x9b, 0, 1]) || isatap {
        found.push(at(12).join("."));
    }
    if is(&[0x20, 0x02]) {
        found = vec![at(2).join(".")];
    }
    found
}
