//! The figures of many servers: of a home of trials.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::dashboard::{FleetServer, Snapshot, Source};
use command::failure::{Failure, misuse};
use fleet::capacity::{ServerCapacity, capacity};
use fleet::home::Asked;
use fleet::{Folder, Home};
use regress::Trust;
use regress::load_line::LEVEL_DEFAULT;

use super::Watched;

/// The shortest time between two questions.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// The pause after a question, as a multiple of the time that it took.
const ASK_REST: u32 = 10;

/// Opens a home as it is now. Also returns what is wrong with parts of it.
type Open = Box<dyn Fn() -> Result<(Box<dyn Home>, Vec<String>), fleet::Error>>;

/// A home of trials.
pub(super) struct Many {
    open: Open,
    detail: String,
    next: Instant,
}

impl Many {
    /// A folder of trials.
    pub(super) fn of_folder(path: PathBuf) -> Many {
        let detail = path.display().to_string();
        let open = move || -> Result<(Box<dyn Home>, Vec<String>), fleet::Error> {
            let folder = Folder::open(&path)?;
            let wrong = folder.skipped().iter().map(|of| format!("{}: {}", of.path, of.why));
            let wrong = wrong.collect();
            Ok((Box::new(folder), wrong))
        };
        Many { open: Box::new(open), detail, next: Instant::now() }
    }
}

impl Watched for Many {
    fn look(&mut self, show: &mut dyn FnMut(Snapshot)) -> Result<(), Failure> {
        let begun = Instant::now();
        if begun < self.next {
            return Ok(());
        }
        let (home, notes) = (self.open)().map_err(misuse)?;
        let answer = capacity(&*home, &Asked::default(), LEVEL_DEFAULT).map_err(misuse)?;
        let source = Source {
            kind: "fleet",
            name: "Fleet".to_owned(),
            detail: self.detail.clone(),
            ended: false,
            notes,
        };
        show(Snapshot {
            source: Some(source),
            fleet: Some(answer.servers.iter().map(server).collect()),
            ..Snapshot::default()
        });
        self.next = Instant::now() + ASK_EVERY.max(ASK_REST * begun.elapsed());
        Ok(())
    }
}

fn server(of: &ServerCapacity) -> FleetServer {
    let line = of.line.as_ref();
    let unreliable = line.and_then(|line| match &line.trusted {
        Trust::Yes => None,
        Trust::Unreliable { statistic, why } => Some(format!("unreliable: {statistic}: {why}")),
    });
    FleetServer {
        server: of.server.to_string(),
        peak: of.peak_rate,
        capacity: line.and_then(|line| line.value),
        low: line.and_then(|line| line.low),
        high: line.and_then(|line| line.high),
        resource: of.resource.clone().unwrap_or_default(),
        remark: of.reason.clone().or(unreliable),
    }
}
