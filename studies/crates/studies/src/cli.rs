//! The flags of `plimsoll study` that are not those of a study, each declared once with its help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use study::Study;

/// Repeat an experiment of the papers on this machine; without a name, list them.
#[derive(Debug, Parser)]
#[command(name = "plimsoll study", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// The study
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// All of them, and one page with a chapter each
    All(AllStudies),
    #[command(flatten)]
    Study(Study),
    #[command(hide = true)]
    TruthServer(TruthServer),
    /// Print the reference of flags as Markdown
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Args)]
pub(crate) struct AllStudies {
    /// About two minutes instead of half an hour: checks that they run, gives no results
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(
            study::STUDIES.iter().map(|about| about.name)))]
    pub(crate) only: Vec<String>,
    /// Write index.html, and a directory for each study, to this directory
    #[arg(long, value_name = "DIR", default_value = "plimsoll-studies")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct TruthServer {
    /// Seed of its costs
    #[arg(long)]
    pub(crate) seed: u64,
    /// The file of its access log
    #[arg(long)]
    pub(crate) log: PathBuf,
    /// Walk no table: the predicted change
    #[arg(long)]
    pub(crate) no_table: bool,
    /// Run on this CPU
    #[arg(long)]
    pub(crate) cpu: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_have_bounds() {
        let parsed = |study: &str, flag: &str, value: &str| {
            Cli::try_parse_from(["plimsoll study", study, &format!("{flag}={value}")]).is_ok()
        };
        for (study, flag, right, wrong) in [
            ("live", "--compressed", "1m", &["900ms", "61m", "x"][..]),
            ("runqueue", "--seconds", "0.3", &["0", "-1", "61", "NaN", "1s", ""]),
            ("boost", "--visit", "250ms", &["249ms", "11m", "x"]),
            ("select", "--light", "0.5", &["0", "-1", "NaN", "inf", "x", ""]),
        ] {
            assert!(parsed(study, flag, right), "{flag} {right}");
            for wrong in wrong {
                assert!(!parsed(study, flag, wrong), "{flag} {wrong:?}");
            }
        }
    }
}
