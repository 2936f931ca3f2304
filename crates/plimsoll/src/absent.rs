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
        let cli::Report { flame, collapsed, pprof, firefox, csv, parquet, .. } = flags;
        match [flame, collapsed, pprof, firefox, csv, parquet].iter().any(|file| file.is_some()) {
            true => {
                Err(absent("report --flame, --collapsed, --pprof, --firefox, --csv, --parquet"))
            }
            false => Ok(()),
        }
    }
}
