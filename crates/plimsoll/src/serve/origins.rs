//! A hint at the start: which origins of the command line accept no connection.
//!
//! The server starts all the same, because an origin may start later. The attempt is made on a
//! thread beside the cores, once, and sends nothing.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use server::Origin;

/// How long an origin may take to accept.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tries each origin and prints a line for each that does not accept. The process never waits for
/// this.
pub(super) fn try_in_background(origins: Vec<String>) {
    let hints =
        move || origins.iter().filter_map(|url| hint(url)).for_each(|hint| eprintln!("{hint}"));
    // Without a thread there is no hint.
    let _ = std::thread::Builder::new().name("origins".into()).spawn(hints);
}

fn hint(url: &str) -> Option<String> {
    let origin = Origin::from_url(url).ok().filter(Origin::is_host)?;
    let mut last = None;
    for address in origin.host_and_port(origin.default_port()).to_socket_addrs().ok()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => return None,
            Err(error) => last = Some(error),
        }
    }
    let error = last?;
    Some(format!(
        "plimsoll: {url} accepts no connection ({error}), so requests get 502; start it, and try \
         it with: curl -i {url}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_origin_that_accepts_nothing_gets_a_hint() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        assert_eq!(hint(&url), None);
        assert_eq!((hint("unix:/none"), hint("srv:_http._tcp.none")), (None, None));
        drop(listener);
        let hint = hint(&url).unwrap();
        assert!(hint.contains("refused") && hint.contains(&format!("curl -i {url}")), "{hint}");
    }
}
