//! Replaces the commands of the feature `lab` in a build without this feature. Each replacement
//! fails with a message that names the missing command.

use command::failure::{Failure, misuse};

fn absent(what: &str) -> Failure {
    misuse(format!("this build has no `{what}`; to fix this: make build"))
}

#[cfg(feature = "measure")]
pub(crate) mod top {
    use super::{Failure, absent};
    use crate::cli;

    pub(crate) fn top(_flags: &cli::Top) -> Result<(), Failure> {
        Err(absent("top"))
    }
}

#[cfg(feature = "measure")]
pub(crate) mod dashboard {
    use super::{Failure, absent};
    use crate::cli;

    pub(crate) fn dashboard(_flags: &cli::Dashboard) -> Result<(), Failure> {
        Err(absent("dashboard"))
    }
}

#[cfg(feature = "measure")]
pub(crate) mod fleet {
    use super::{Failure, absent};
    use crate::cli;

    pub(crate) fn fleet(_verb: &cli::Fleet) -> Result<(), Failure> {
        Err(absent("fleet"))
    }
}

#[cfg(feature = "measure")]
pub(crate) mod logs {
    use super::{Failure, absent};
    use crate::cli;

    pub(crate) fn logs(_flags: &cli::Logs) -> Result<(), Failure> {
        Err(absent("logs"))
    }
}

#[cfg(feature = "measure")]
pub(crate) mod ship {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use serde::Serialize;

    use super::{Failure, absent};
    use crate::cli;

    pub(crate) fn ship(_flags: &cli::Ship) -> Result<(), Failure> {
        Err(absent("ship"))
    }

    /// There is none.
    pub(crate) enum Shipping {}

    #[derive(Serialize)]
    pub(crate) enum Ended {}

    impl Shipping {
        pub(crate) fn new(
            flags: &cli::ShipTo,
            _trial: &Path,
            _print: bool,
        ) -> Result<Option<Shipping>, Failure> {
            match flags.ship_to {
                Some(_) => Err(absent("record --ship-to")),
                None => Ok(None),
            }
        }

        pub(crate) fn begin(&mut self) {
            match *self {}
        }

        pub(crate) fn shown(&self) -> String {
            match *self {}
        }

        pub(crate) fn finish(self, _stop: &AtomicBool) -> Ended {
            match self {}
        }
    }
}

#[cfg(feature = "measure")]
pub(crate) mod exports {
    use ::report::Analysis;
    use trial::Trial;

    use super::{Failure, absent};
    use crate::cli;

    pub(crate) fn exports(flags: &cli::Report, _: &Trial, _: &Analysis) -> Result<(), Failure> {
        let cli::Report { flame, collapsed, pprof, firefox, csv, parquet, otlp, .. } = flags;
        let files = [flame, collapsed, pprof, firefox, csv, parquet];
        match otlp.is_some() || files.iter().any(|file| file.is_some()) {
            true => Err(absent(
                "report --flame, --collapsed, --pprof, --firefox, --csv, --parquet, --otlp",
            )),
            false => Ok(()),
        }
    }
}

pub(crate) mod otlp_metrics {
    use super::{Failure, absent};
    use crate::cli;

    pub(crate) fn forward(_flags: &cli::Metrics, _url: &str) -> Result<(), Failure> {
        Err(absent("metrics --otlp"))
    }
}
