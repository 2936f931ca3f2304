//! Our own recording, in a thread: into the trial that the user named, or into a temporary one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use ::record::{Ended, Error, Summary};
use command::failure::{Failure, misuse};
use command::scratch::Scratch;

use crate::{cli, record};

/// The recording.
pub(super) struct Recording {
    path: PathBuf,
    thread: JoinHandle<Result<Summary, Error>>,
    /// The temporary directory. Dropped last, after the recorder has ended.
    _home: Option<Scratch>,
}

impl Recording {
    /// Starts the recording that the flags describe. It ends by itself, or by `stop`.
    pub(super) fn begin(flags: &cli::Top, stop: Arc<AtomicBool>) -> Result<Recording, Failure> {
        let (path, home) = match &flags.output {
            Some(path) => (path.clone(), None),
            None => {
                let home = Scratch::new("top")?;
                (home.path().join("live.trial"), Some(home))
            }
        };
        let mut spec = record::spec(&flags.recording, &path)?;
        spec.overwrite = flags.force;
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || ::record::record(&spec, &stop, &mut |_| {}))
            .map_err(|error| misuse(format!("cannot start the recorder thread: {error}")))?;
        Ok(Recording { path, thread, _home: home })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end, which is near, and returns the summary.
    pub(super) fn end(self) -> Result<Option<Summary>, Failure> {
        let ended = self.thread.join().map_err(|_| misuse("the recorder thread panicked"))?;
        let summary = ended.map_err(record::failure)?;
        if summary.intervals > 0 || summary.ended == Ended::Stopped {
            return Ok(Some(summary));
        }
        Err(misuse(record::NO_INTERVAL))
    }
}
