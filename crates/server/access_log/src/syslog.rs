//! Log lines as messages of syslog (RFC 5424), by datagrams: to a server over UDP, or to a socket
//! of the system such as `/dev/log`.
//!
//! What never happens: the thread waits for the receiver. A datagram that cannot be sent at once is
//! lost, and its line is counted.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use super::text::Civil;

/// Where messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogTo {
    /// A server, over UDP.
    Udp(SocketAddr),
    /// A Unix socket for datagrams.
    Unix(PathBuf),
}

impl FromStr for SyslogTo {
    type Err = String;

    fn from_str(text: &str) -> Result<SyslogTo, String> {
        let wrong = || {
            format!("{text:?} is not where syslog is: write udp://192.0.2.1:514 or unix:/dev/log")
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.starts_with('/') {
                true => Ok(SyslogTo::Unix(path.into())),
                false => Err(wrong()),
            };
        }
        let address = text.strip_prefix("udp://").ok_or_else(wrong)?;
        address.parse().map(SyslogTo::Udp).map_err(|_| wrong())
    }
}

impl fmt::Display for SyslogTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyslogTo::Udp(address) => write!(f, "udp://{address}"),
            SyslogTo::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The facilities, by name, with their codes.
pub const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// The severity of an access: informational.
const SEVERITY: usize = 6;

/// A sender of messages.
#[derive(Debug)]
pub(crate) struct Syslog {
    to: SyslogTo,
    socket: Option<Socket>,
    priority: usize,
    host: String,
    message: Vec<u8>,
}

#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl Syslog {
    /// A sender to this place, in this facility.
    pub(crate) fn new(to: SyslogTo, facility: usize) -> Syslog {
        debug_assert!(facility < FACILITIES.len());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().chars().filter(char::is_ascii_graphic).take(255).collect::<String>();
        let host = if host.is_empty() { "-".to_owned() } else { host };
        let priority = facility * 8 + SEVERITY;
        Syslog { to, socket: None, priority, host, message: Vec::new() }
    }

    /// Opens the socket again before the next message.
    pub(crate) fn reopen(&mut self) {
        self.socket = None;
    }

    /// Sends each line as a message. Returns the number of lines that were lost, and why.
    pub(crate) fn send(&mut self, lines: &[u8]) -> (u64, Option<io::Error>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let mut head = format!("<{}>1 ", self.priority).into_bytes();
        Civil::of(now_ms).iso_ms(&mut head, now_ms);
        let process = std::process::id();
        head.extend_from_slice(format!(" {} plimsoll {process} access - ", self.host).as_bytes());
        let (mut lost, mut why) = (0, None);
        for line in lines.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            self.message.clear();
            self.message.extend_from_slice(&head);
            self.message.extend_from_slice(line);
            if let Err(error) = self.send_one() {
                lost += 1;
                why = Some(error);
            }
        }
        (lost, why)
    }

    fn send_one(&mut self) -> io::Result<()> {
        let is_new = self.socket.is_none();
        match self.try_send() {
            Err(error) if !is_new && error.kind() != io::ErrorKind::WouldBlock => {
                // The receiver has started again.
                self.socket = None;
                self.try_send()
            }
            result => result,
        }
    }

    fn try_send(&mut self) -> io::Result<()> {
        if self.socket.is_none() {
            self.socket = Some(Socket::to(&self.to)?);
        }
        let sent = match self.socket.as_ref() {
            Some(Socket::Udp(socket)) => socket.send(&self.message),
            Some(Socket::Unix(socket)) => socket.send(&self.message),
            None => unreachable!("it was opened"),
        };
        sent.map(drop)
    }
}

impl Socket {
    fn to(to: &SyslogTo) -> io::Result<Socket> {
        match to {
            SyslogTo::Udp(address) => {
                let any = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
                let socket = UdpSocket::bind(any)?;
                socket.connect(address)?;
                socket.set_nonblocking(true)?;
                Ok(Socket::Udp(socket))
            }
            SyslogTo::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(Socket::Unix(socket))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_message_and_a_receiver_that_starts_again_gets_the_next() {
        let dir = std::env::temp_dir().join(format!("plimsoll-syslog-{}", std::process::id()));
        let receiver = UnixDatagram::bind(&dir).unwrap();
        let mut syslog = Syslog::new(format!("unix:{}", dir.display()).parse().unwrap(), 16);
        assert!(matches!(syslog.send(b"one\ntwo\n"), (0, None)));
        let mut buffer = [0; 1024];
        for line in ["one", "two"] {
            let bytes = receiver.recv(&mut buffer).unwrap();
            let message = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
            assert!(message.starts_with("<134>1 2") && message.contains(" plimsoll "), "{message}");
            assert!(message.ends_with(&format!(" access - {line}")), "{message}");
        }
        drop(receiver);
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(syslog.send(b"lost\nlost\n").0, 2);
        let receiver = UnixDatagram::bind(&dir).unwrap();
        assert_eq!(syslog.send(b"three\n").0, 0);
        assert!(receiver.recv(&mut buffer).is_ok());
        // A full socket loses lines and does not wait.
        let (lost, why) = syslog.send("four\n".repeat(5000).as_bytes());
        assert!(lost > 0 && why.is_some_and(|why| why.kind() == io::ErrorKind::WouldBlock));
        std::fs::remove_file(&dir).unwrap();
    }

    #[test]
    fn places_are_read_as_they_are_shown() {
        for text in ["udp://192.0.2.1:514", "udp://[2001:db8::1]:514", "unix:/dev/log"] {
            assert_eq!(text.parse::<SyslogTo>().unwrap().to_string(), text);
        }
        for text in ["", "udp://logs:514", "unix:dev/log", "/dev/log", "tcp://192.0.2.1:514"] {
            assert!(text.parse::<SyslogTo>().is_err(), "{text}");
        }
    }
}
