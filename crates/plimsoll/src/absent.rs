//! Replaces what the feature `extras` adds in a build without it: each fails and says so.

use command::failure::{Failure, misuse};

fn absent(what: &str) -> Failure {
    misuse(format!("this build has no `{what}`; to fix this: make build"))
}

pub(crate) mod top {
    use super::{Failure, absent};
    use crate::cli;

    pub(crate) fn top(_flags: &cli::Top) -> Result<(), Failure> {
        Err(absent("top"))
    }
}

pub(crate) mod logs {
    use super::{Failure, absent};
    use crate::cli;

    pub(crate) fn logs(_flags: &cli::Logs) -> Result<(), Failure> {
        Err(absent("logs"))
    }
}

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
