//! The state that all cores of the process share, and the orders to it.

use std::sync::Arc;

use access_log::{Queue, Sink};
use cache::Cache;
use config::{Acme, Config};
use exchange::Shared;
use metrics::Described;
use store::disk::DiskStore;

use crate::certificates::Obtaining;
use crate::control::Control;
use crate::log_to::LogTo;
use crate::metrics_text::{LOG_LINES_LOST, SharedFigures};

/// One server.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) shared: Arc<Shared>,
    pub(crate) control: Control,
    pub(crate) obtaining: Obtaining,
    /// What the dashboard's page asks for.
    pub(crate) dashboard_token: Option<dashboard::Token>,
}

/// From now on, a panic of any thread ends the process (see [`core_io::panics`]). Lines of this log
/// that the cores have handed over are written before.
pub fn end_process_at_panic(log: &LogTo) {
    let sink = log.sink();
    core_io::panics::end_process(move || {
        if let Sink::Thread(queue) = &sink {
            queue.wait_until_written();
        }
    });
}

/// A user of the disk, which stays open for it. Reports its end to the disk, however it ends.
pub(crate) struct DiskUser(pub(crate) Arc<Cache>);

impl Drop for DiskUser {
    fn drop(&mut self) {
        if let Some(disk) = &self.0.disk {
            disk.core_ended();
        }
    }
}

impl Process {
    pub(crate) fn new(
        config: &Config,
        workers: usize,
        log: Sink,
        disk: Option<DiskStore>,
    ) -> Process {
        let shared = Arc::new(Shared::new(config, workers, log, disk));
        let dashboard_token = config.dashboard_token.clone();
        Process {
            shared,
            control: Control::default(),
            obtaining: Obtaining::default(),
            dashboard_token,
        }
    }
}

impl Process {
    /// Obtains the certificates of this configuration from now on.
    pub(crate) fn obtain(&self, settings: Option<&Acme>) {
        self.obtaining.change(settings, &self.shared.issued);
    }
}

impl SharedFigures for Process {
    fn figures(&self) -> Vec<(Described, u64)> {
        let lost = match &self.shared.log {
            Sink::Thread(queue) => Queue::lines_lost(queue),
            Sink::Off | Sink::Memory(_) => 0,
        };
        let figures = self.shared.cache.figures().chain([(LOG_LINES_LOST, lost)]);
        let figures = figures.chain(self.control.figures()).chain(self.shared.cache.disk_figures());
        figures.chain(self.shared.cache.form_figures()).collect()
    }

    fn forecasts(&self) -> [Vec<(&'static str, f64)>; 2] {
        self.shared.cache.forecasts()
    }

    fn refusals(&self) -> Vec<(&'static str, u64)> {
        self.shared.refusals.all()
    }
}
