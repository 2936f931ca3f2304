//! Where the access log goes.

use std::path::Path;
use std::sync::{Arc, Mutex};

use access_log::{LogWriter, Sink, SyslogTo};

/// Where the access log goes.
#[derive(Debug, Default)]
pub enum LogTo {
    /// Nowhere.
    #[default]
    Off,
    /// To a file.
    Writer(LogWriter),
    /// Into memory, for tests.
    Memory(Arc<Mutex<Vec<u8>>>),
}

impl LogTo {
    /// To a file, or to syslog in the facility with this code.
    ///
    /// # Errors
    /// One line: it cannot be written.
    pub fn open(path: Option<&Path>, syslog: Option<&(SyslogTo, usize)>) -> Result<LogTo, String> {
        let (opened, name) = match (path, syslog) {
            (_, Some((to, facility))) => (LogWriter::syslog(to, *facility), to.to_string()),
            (Some(path), None) => (LogWriter::open(path), path.display().to_string()),
            (None, None) => return Ok(LogTo::Off),
        };
        let wrong = |error| format!("cannot write the access log {name}: {error}");
        opened.map(LogTo::Writer).map_err(wrong)
    }

    pub(crate) fn sink(&self) -> Sink {
        match self {
            LogTo::Off => Sink::Off,
            LogTo::Writer(writer) => writer.sink(),
            LogTo::Memory(memory) => Sink::Memory(Arc::clone(memory)),
        }
    }
}
