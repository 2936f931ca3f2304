//! A recording of our own, in a thread: into a trial that the user named, or into one that is gone
//! with the screen.

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
    /// Dropped last, when nobody writes there any more.
    _home: Option<Scratch>,
}

impl Recording {
    /// Begins what the flags ask for; it ends by itself, or by `stop`.
    pub(super) fn begin(flags: &cli::Top, stop: Arc<AtomicBool>) -> Result<Recording, Failure> {
        let what = &flags.what;
        if what.access_log.is_none() && what.requests_from.is_none() {
            let mend = "say where its requests are told: --access-log FILE or --requests-from URL";
            return Err(misuse(mend));
        }
        let (path, home) = match &flags.output {
            Some(path) => (path.clone(), None),
            None => {
                let home = Scratch::new("top")?;
                (home.path().join("live.trial"), Some(home))
            }
        };
        let mut spec = record::spec(what, &path)?;
        spec.overwrite = flags.force;
        let thread = std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || ::record::record(&spec, &stop, &mut |_| {}))
            .map_err(|error| misuse(format!("no thread for the recorder: {error}")))?;
        Ok(Recording { path, thread, _home: home })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end, which is near: what it came to.
    pub(super) fn end(self) -> Result<Option<Summary>, Failure> {
        let ended = self.thread.join().map_err(|_| misuse("the recorder failed"))?;
        let summary = ended.map_err(record::refused)?;
        if summary.intervals > 0 || summary.ended == Ended::Stopped {
            return Ok(Some(summary));
        }
        Err(misuse("not one interval was recorded: the server ended before the first"))
    }
}
