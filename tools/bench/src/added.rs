//! What users add to a plain hit or miss: the text that configurations have in addition, and what
//! shows that a server does what a row says.
//!
//! A file of `peers/added` is cut into pieces. A piece begins with a line of an at sign, the name
//! of a feature and the name of a place, and its text fills the place in the rows of that feature.
//! In all other rows the place has the piece with a star, or nothing. The place `cannot` is the
//! reason why a server has no such rows, and `beside` is a program that runs beside the server and
//! whose CPU time counts as the server's. What never happens: a server that has neither a piece nor
//! a reason for a feature (a test checks this). Pingora needs no reasons, because its row names its
//! scenarios.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::client::{Client, HOST};

/// The limit of quotas, requests per second, which is never reached.
const LIMIT: u32 = 1_000_000;
/// The limit of a server that must refuse some of [`LIMITED_REQUESTS`] requests.
const LIMIT_REACHED: u32 = 2;
const LIMITED_REQUESTS: u32 = 20;
/// Bytes of a datagram of a log, and of those that wait to be read.
const LINE_BYTES_MAX: usize = 4096;
const WAITING_BYTES_MAX: libc::c_int = 16 << 20;

/// The piece of a file for one place.
struct Piece {
    feature: &'static str,
    place: &'static str,
    text: &'static str,
}

/// The pieces of each server that has rows with features, by the name of its peer.
const FILES: &[(&str, &str)] = &[
    ("plimsoll", include_str!("../peers/added/plimsoll")),
    ("haproxy", include_str!("../peers/added/haproxy")),
    ("nginx", include_str!("../peers/added/nginx")),
    ("varnish", include_str!("../peers/added/varnish")),
    ("squid", include_str!("../peers/added/squid")),
    ("pingora", include_str!("../peers/added/pingora")),
];

fn pieces(server: &str) -> impl Iterator<Item = Piece> {
    let file = FILES.iter().find(|(name, _)| *name == server).map_or("", |(_, file)| file);
    file.split("\n@").skip(1).map(|piece| {
        let (head, text) = piece.split_once('\n').unwrap_or((piece, ""));
        let (feature, place) = head.split_once(' ').expect("a piece names its feature and place");
        Piece { feature, place, text: text.trim_end() }
    })
}

/// What a server is started with in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Added {
    /// The name of the feature; empty: nothing.
    pub(crate) feature: &'static str,
    limit: u32,
}

impl Added {
    pub(crate) const NOTHING: Added = Added::feature("");

    pub(crate) const fn feature(feature: &'static str) -> Added {
        Added { feature, limit: LIMIT }
    }

    /// The same with a limit that is soon reached.
    pub(crate) fn limited(self) -> Added {
        Added { limit: LIMIT_REACHED, ..self }
    }

    /// The text of each place of a server's configuration. Texts have places themselves, which
    /// other values fill, so these values come first.
    pub(crate) fn values(self, server: &str) -> Vec<(&'static str, String)> {
        let of_place = |Piece { place, .. }: Piece| {
            let own = text(server, self.feature, place).or_else(|| text(server, "*", place));
            (place, own.unwrap_or_default().to_owned())
        };
        let mut values: Vec<_> = pieces(server).map(of_place).collect();
        values.push(("limit", self.limit.to_string()));
        values
    }
}

/// Whether a server has a row with a feature, or says why it has none.
pub(crate) fn is_known(server: &str, feature: &str) -> bool {
    pieces(server).any(|piece| piece.feature == feature)
}

/// The text that a feature has for one place, such as the reason why a server cannot have it.
pub(crate) fn text(server: &str, feature: &str, place: &str) -> Option<&'static str> {
    let mut all = pieces(server);
    all.find(|piece| piece.feature == feature && piece.place == place).map(|piece| piece.text)
}

/// What shows that a server does what a row says, besides the counters of the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Nothing more.
    Origin,
    /// The access log has a line for each request.
    Logged,
    /// Bodies have less than half of the bytes that the origin sends.
    Coded,
    /// Before the visits, each of these requests gets this status; empty: no 200.
    Refused { requests: &'static [(&'static str, &'static str)], status: &'static str },
    /// The same server with a limit of two requests per second refuses some of twenty.
    Limited,
}

/// Requests that a row's rules refuse, one for each rule: the method and the path, and a field.
pub(crate) const BY_RULES: Check = Check::Refused {
    requests: &[
        ("GET /admin/x", "Accept: */*"),
        ("GET /private/x", "Accept: */*"),
        ("GET /.git/config", "Accept: */*"),
        ("GET /wp-admin/x", "Accept: */*"),
        ("GET /cgi-bin/x", "Accept: */*"),
        ("GET /obj/x.php", "Accept: */*"),
        ("GET /obj/x.sql", "Accept: */*"),
        ("GET /user/7/edit", "Accept: */*"),
        ("GET /de/internal/x", "Accept: */*"),
        ("GET /obj/1", "User-Agent: sqlmap/1.0"),
        ("GET /obj/1", "User-Agent: a masscan b"),
        ("GET /obj/1", "Referer: http://www.spam.example/"),
        ("GET /obj/1", "X-Debug: 1"),
        ("GET /obj/1", "Cookie: a=b; beta=1"),
        ("GET /obj/1", "Authorization: Negotiate abc"),
        ("DELETE /obj/1", "Accept: */*"),
        ("GET /obj/1", "Host: old.example.org"),
        ("GET /obj/1", "Host: a.test.example.org"),
        ("GET /obj/1?debug=1", "Accept: */*"),
        ("GET /obj/1?a=b&preview=1", "Accept: */*"),
    ],
    status: "403",
};

/// A request without the PROXY header.
pub(crate) const WITHOUT_HEADER: Check =
    Check::Refused { requests: &[("GET /obj/1?size=1024", "Accept: */*")], status: "" };

impl Check {
    /// Checks a server that has just started.
    ///
    /// # Errors
    /// What the server does instead; one line.
    pub(crate) fn started(self, addr: SocketAddr) -> Result<(), String> {
        let Check::Refused { requests, status } = self else { return Ok(()) };
        requests.iter().try_for_each(|(line, field)| {
            let got = answer(addr, line, field);
            match got.contains(&format!(" {status}")) && !got.contains(" 200") {
                true => Ok(()),
                false => Err(format!("{line}, {field}: not refused, but {got}")),
            }
        })
    }
}

/// Checks that a server with a limit of two requests per second refuses some of many.
///
/// # Errors
/// It refuses none, or all; one line.
pub(crate) fn is_limited(addr: SocketAddr) -> Result<(), String> {
    let one = |_: &u32| answer(addr, "GET /obj/1?size=1024", "Accept: */*").contains(" 429");
    let refused = (0..LIMITED_REQUESTS).filter(one).count();
    match refused > 0 && refused < LIMITED_REQUESTS as usize {
        true => Ok(()),
        false => Err(format!("of {LIMITED_REQUESTS} requests above the limit, {refused} refused")),
    }
}

/// The status line of the answer to a request, or the error.
fn answer(addr: SocketAddr, line: &str, field: &str) -> String {
    let mut request = format!("{line} HTTP/1.1\r\n{field}\r\n");
    if !field.starts_with("Host: ") {
        request.push_str(&format!("Host: {HOST}\r\n"));
    }
    request.push_str("\r\n");
    match Client::new(addr).converse(request.as_bytes(), |_| ()) {
        Ok(head) => head.lines().next().unwrap_or_default().to_owned(),
        Err(error) => format!("error: {error}"),
    }
}

/// The number of lines in a log, which is emptied. A line that is written between the two is lost.
pub(crate) fn take_lines(log: &Path) -> Result<u64, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", log.display());
    let text = std::fs::read(log).map_err(failed)?;
    let file = OpenOptions::new().write(true).open(log).map_err(failed)?;
    file.set_len(0).map_err(failed)?;
    Ok(memchr::memchr_iter(b'\n', &text).count() as u64)
}

/// Writes each datagram to a file as a line until it is killed. This is the least that a receiver
/// of logs does.
///
/// # Errors
/// It cannot listen or write; one line.
pub(crate) fn syslog(listen: SocketAddr, log: &Path) -> Result<(), String> {
    let socket = UdpSocket::bind(listen).map_err(|e| format!("{listen}: {e}"))?;
    let size = WAITING_BYTES_MAX;
    // SAFETY: the option is an int, which is valid for reads of its size. Without privileges the
    // call fails, and the socket keeps its smaller buffer.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const size).cast(),
            size_of_val(&size) as libc::socklen_t,
        )
    };
    let file = OpenOptions::new().create(true).append(true).open(log);
    let failed = |error: std::io::Error| format!("{}: {error}", log.display());
    let mut file = BufWriter::with_capacity(64 * 1024, file.map_err(failed)?);
    let mut line = [0; LINE_BYTES_MAX];
    loop {
        let count = socket.recv(&mut line).map_err(|e| e.to_string())?;
        let text = line[..count].trim_ascii_end();
        file.write_all(text).and_then(|()| file.write_all(b"\n")).map_err(failed)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::SCENARIOS;

    #[test]
    fn each_server_has_each_feature_or_a_reason() {
        let features = SCENARIOS.iter().map(|scenario| scenario.added);
        for feature in features.filter(|feature| !feature.is_empty()) {
            for (server, _) in FILES.iter().filter(|(server, _)| *server != "pingora") {
                assert!(is_known(server, feature), "{server}: {feature}");
            }
        }
        for (server, _) in FILES {
            for Piece { feature, .. } in pieces(server).filter(|piece| piece.feature != "*") {
                let is_used = SCENARIOS.iter().any(|scenario| scenario.added == feature);
                assert!(is_used, "{server}: {feature}");
            }
        }
    }

    #[test]
    fn a_place_has_the_text_of_its_feature_or_that_of_all_others() {
        let of = |feature, place: &str| {
            let values = Added::feature(feature).values("nginx");
            values.into_iter().find(|(name, _)| *name == place).unwrap().1
        };
        assert_eq!((of("", "access_log").as_str(), of("", "scheme").as_str()), ("off", "http"));
        assert_eq!(of("", "location"), "");
        assert!(of("log", "access_log").contains("access.log combined"));
        assert_eq!(of("tls", "scheme"), "https");
        assert_eq!(of("quota", "limit"), LIMIT.to_string());
        assert_eq!(text("varnish", "tls", "cannot"), Some("has no TLS to the origin"));
    }

    #[test]
    fn the_lines_of_a_log_are_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("access.log");
        std::fs::write(&log, "a\nb\n").unwrap();
        assert_eq!((take_lines(&log), take_lines(&log)), (Ok(2), Ok(0)));
        assert!(take_lines(&dir.path().join("none")).is_err());
    }
}
