//! Where the access log goes.

use std::sync::{Arc, Mutex};

use access_log::{LogWriter, Sink};

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
    pub(crate) fn sink(&self) -> Sink {
        match self {
            LogTo::Off => Sink::Off,
            LogTo::Writer(writer) => writer.sink(),
            LogTo::Memory(memory) => Sink::Memory(Arc::clone(memory)),
        }
    }
}
