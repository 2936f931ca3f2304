//! Which backend: its name, the order of preference, and why one cannot be opened here.

use std::fmt;
use std::io;
use std::str::FromStr;

/// The backends by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Kind {
    /// pselect6(2), stateless, over bitmaps as large as needed.
    Select,
    /// The algorithm of 1998: interested, ready and hinted descriptors are remembered.
    ScalableSelect,
    /// ppoll(2), stateless.
    Poll,
    /// epoll(7), level-triggered.
    Epoll,
    /// io_uring(7): one-shot polls, armed together with the wait.
    IoUring,
    /// No kernel: levels set by the program, time moved by it.
    Simulated,
}

impl Kind {
    /// Those for real descriptors, in the order used in tables.
    pub const ALL_REAL: [Kind; 5] =
        [Kind::Select, Kind::ScalableSelect, Kind::Poll, Kind::Epoll, Kind::IoUring];

    /// The order in which [`Choice::Preferred`] tries them. `ScalableSelect` is not in the list:
    /// its hints come from an epoll instance, so where it works epoll works too.
    pub(crate) const PREFERENCE: [Kind; 4] = [Kind::Epoll, Kind::IoUring, Kind::Poll, Kind::Select];

    /// The name on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Select => "select",
            Kind::ScalableSelect => "scalable_select",
            Kind::Poll => "poll",
            Kind::Epoll => "epoll",
            Kind::IoUring => "io_uring",
            Kind::Simulated => "simulated",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = UnknownKind;
    fn from_str(name: &str) -> Result<Kind, UnknownKind> {
        Kind::ALL_REAL
            .into_iter()
            .chain([Kind::Simulated])
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// A name that no backend has: the operator's mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownKind(String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no backend is called {:?}; available: ", self.0)?;
        for (i, kind) in Kind::ALL_REAL.iter().enumerate() {
            write!(f, "{}{kind}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownKind {}

/// What to pass to [`crate::Poller::open`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Choice {
    /// The first in the order of preference (epoll, io_uring, poll, select) whose self-test passes.
    #[default]
    Preferred,
    /// Only this one.
    Named(Kind),
}

/// Why no backend could be opened. Always the system's fault or the operator's choice.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// This system does not provide what the backend needs.
    NotSupported {
        /// Which backend was asked for.
        kind: Kind,
        /// What is missing, for a person to read.
        why: String,
    },
    /// The system provides it but refused it now (no descriptors or memory left).
    System {
        /// Which backend was asked for.
        kind: Kind,
        /// What the system said.
        source: io::Error,
    },
    /// It opened but violated the contract.
    SelfTest {
        /// Which backend was asked for.
        kind: Kind,
        /// What went wrong.
        why: String,
    },
    /// Every backend in the order of preference failed.
    NoneWorks {
        /// In the order in which they were tried.
        tried: Vec<OpenError>,
    },
}

impl OpenError {
    /// Classifies a failed set-up call: not available here (or forbidden), or refused now.
    pub(crate) fn of_call(kind: Kind, call: &str, error: io::Error) -> OpenError {
        match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EOPNOTSUPP | libc::EINVAL) => {
                OpenError::NotSupported { kind, why: format!("{call}: {error}") }
            }
            _ => OpenError::System { kind, source: error },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::NotSupported { kind, why } => {
                write!(f, "{kind} is not supported here: {why}")
            }
            OpenError::System { kind, source } => write!(f, "{kind} could not be opened: {source}"),
            OpenError::SelfTest { kind, why } => write!(f, "{kind} failed its self-test: {why}"),
            OpenError::NoneWorks { tried } => {
                f.write_str("no backend works here")?;
                tried.iter().try_for_each(|error| write!(f, "; {error}"))
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> io::Error {
        let kind = match &error {
            OpenError::System { source, .. } => source.kind(),
            _ => io::ErrorKind::Unsupported,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in Kind::ALL_REAL.into_iter().chain([Kind::Simulated]) {
            assert_eq!(kind.to_string().parse::<Kind>(), Ok(kind));
        }
        let error = "kqueue".parse::<Kind>().expect_err("there is no such backend");
        assert!(error.to_string().contains("\"kqueue\""), "{error}");
        assert!(error.to_string().ends_with("select, scalable_select, poll, epoll, io_uring"));
    }

    #[test]
    fn missing_calls_and_exhaustion_are_distinguished() {
        let of = |code| OpenError::of_call(Kind::IoUring, "x", io::Error::from_raw_os_error(code));
        assert!(matches!(of(libc::ENOSYS), OpenError::NotSupported { .. }));
        assert!(matches!(of(libc::EPERM), OpenError::NotSupported { .. }));
        assert!(matches!(of(libc::EMFILE), OpenError::System { .. }));
        assert_eq!(io::Error::from(of(libc::ENOSYS)).kind(), io::ErrorKind::Unsupported);
    }
}
