//! The flags of `plimsoll study NAME`, each declared once with its help.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use command::flags::{duration_within, number_within, parse_backend, parse_duration};

/// The length of a visit: it has to be longer than its beginning, which does not count.
const VISIT: RangeInclusive<Duration> = Duration::from_millis(250)..=Duration::from_secs(600);
/// How long an hour takes: each quarter has to contain at least one interval of the recorder.
const HOUR: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// The lowest rate of the light load, in requests a second.
const RATE_MIN: f64 = 0.001;

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
    #[command(flatten)]
    Study(Studies),
    #[command(hide = true)]
    TruthServer(TruthServer),
    #[command(hide = true)]
    RunqueueWalker(RunqueueWalker),
    /// Print the reference of flags as Markdown
    #[command(hide = true)]
    Reference,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Studies {
    /// All of them, and one page with a chapter each
    All(AllStudies),
    /// Programs on poll() and select(), plain and boosted, and the same programs on epoll
    Boost(BoostStudy),
    /// The table walk of comm_select (1998): its CPU time, and the cache misses it causes elsewhere
    Dispatch(DispatchStudy),
    /// Workers that share descriptors: which ones wake, how often in vain, and what a call costs
    Herd(HerdStudy),
    /// The live days of 1998 in minutes: the load lines of an old and a new event notification
    Live(LiveStudy),
    /// Capacity predicted from low load on real servers, compared with their saturation
    Predict(PredictStudy),
    /// Colours in the run queue (2002): misses in the scheduler's walk, its lock, throughput
    Runqueue(RunqueueStudy),
    /// Cold connections (1998): what up to 10,000 cost on each backend, and a prediction
    Select(SelectStudy),
    /// The swap-in bug of 1997: delays and reads by object size, of our store and of a real Squid
    Swapin(Swapin),
    /// Records a server of known costs: how often the truth lies within the intervals
    Truth(Truth),
    /// A static tree of files under a closed loop: our server and its peers, by clients and workers
    Webbench(WebbenchStudy),
}

/// The flags of every study.
#[derive(Debug, Args)]
pub(crate) struct Given {
    /// Write the result (NAME.json), its figures (SVG) and its trials to this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Seed of everything that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// How often a study measures everything.
#[derive(Debug, Args)]
pub(crate) struct Rounds {
    /// Rounds, each over all combinations
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// No round begins after this time, even if more were requested
    #[arg(long = "for", value_name = "TIME", default_value = "3m", value_parser = parse_duration)]
    pub(crate) duration: Duration,
}

impl Studies {
    /// The name of a study and its common flags. `all` has a directory for each study instead.
    pub(crate) fn given(&self) -> (&'static str, &Given) {
        const NONE: &Given = &Given { out: None, json: false, seed: 1 };
        match self {
            Studies::All(_) => ("all", NONE),
            Studies::Boost(flags) => ("boost", &flags.given),
            Studies::Dispatch(flags) => ("dispatch", &flags.given),
            Studies::Herd(flags) => ("herd", &flags.given),
            Studies::Live(flags) => ("live", &flags.given),
            Studies::Predict(flags) => ("predict", &flags.given),
            Studies::Runqueue(flags) => ("runqueue", &flags.given),
            Studies::Select(flags) => ("select", &flags.given),
            Studies::Swapin(flags) => ("swapin", &flags.given),
            Studies::Truth(flags) => ("truth", &flags.given),
            Studies::Webbench(flags) => ("webbench", &flags.given),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AllStudies {
    /// About two minutes instead of half an hour: checks that they run, gives no results
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(
            study::STUDIES.iter().map(|(name, _)| *name)))]
    pub(crate) only: Vec<String>,
    /// Write index.html, and a directory for each study, to this directory
    #[arg(long, value_name = "DIR", default_value = "plimsoll-studies")]
    pub(crate) out: PathBuf,
}

#[derive(Debug, Args)]
#[command(mut_arg("duration", |arg| arg.default_value("5m")))]
pub(crate) struct BoostStudy {
    /// Numbers of cold connections [default: 0,1000,8000]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub(crate) cold: Vec<u32>,
    #[command(flatten)]
    pub(crate) repeat: Rounds,
    /// Length of a visit: one server with one number of cold connections
    #[arg(long, value_name = "TIME", default_value = "700ms",
        value_parser = duration_within(VISIT))]
    pub(crate) visit: Duration,
    /// Under a minute: one round, short visits, 0 and 1000 cold connections unless others are named
    #[arg(long, conflicts_with_all = ["rounds", "duration", "visit"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

#[derive(Debug, Args)]
pub(crate) struct Truth {
    /// Runs, each with its own costs; one takes slightly longer than two recordings
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Length of a recording; a run has two
    #[arg(long = "for", value_name = "TIME", default_value = "18s", value_parser = parse_duration)]
    pub(crate) duration: Duration,
    /// Length of an interval
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_duration)]
    pub(crate) interval: Duration,
    #[command(flatten)]
    pub(crate) given: Given,
}

#[derive(Debug, Args)]
pub(crate) struct DispatchStudy {
    /// Numbers of open descriptors
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1581,10000",
        value_parser = clap::value_parser!(u32).range(64..=100_000))]
    pub(crate) descriptors: Vec<u32>,
    /// Numbers of connections that are ready at a wait
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,4,16",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) ready: Vec<u32>,
    /// Rounds of the timed program
    #[arg(long, value_name = "N", default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Turns of a visit in a round
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) turns: u32,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// Real servers as Debian ships them, each on CPU 0: recorded while the load rises to a part of the
/// saturation that wrk measures, and the capacity that the report predicts from that.
#[derive(Debug, Args)]
#[command(mut_arg("out", |arg| arg.default_value("target/studies/predict")))]
pub(crate) struct PredictStudy {
    /// Only these servers; one that is not installed is skipped and named
    #[arg(long, value_name = "NAME,NAME,...", value_delimiter = ',',
        value_parser = clap::builder::PossibleValuesParser::new(study::predict::SERVERS))]
    pub(crate) servers: Vec<String>,
    /// Sizes of the response's body in bytes [default: 1024,20480]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) bodies: Vec<u64>,
    /// Numbers of connections [default: 16,64,256]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(crate) connections: Vec<u32>,
    /// How far the recorded load rises, percent of the measured saturation [default: 20,30,45,60]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(5..=90))]
    pub(crate) reaches: Vec<u32>,
    /// Seconds of a recorded load, which rises and falls; all cases take 4 hours with the default
    #[arg(long, value_name = "N", default_value_t = 36,
        value_parser = clap::value_parser!(u64).range(4..=3600))]
    pub(crate) seconds: u64,
    /// Keep the cases that are in the directory and measure the others; without it, the earlier
    /// ones are removed
    #[arg(long)]
    pub(crate) resume: bool,
    /// Measure nothing: judge the trials in the directory again, and write the page again
    #[arg(long, conflicts_with_all = ["resume", "quick"])]
    pub(crate) judge_only: bool,
    /// Seconds: our server with 16 connections and one reach, unless others are named
    #[arg(long, conflicts_with_all = ["seconds"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

#[derive(Debug, Args)]
pub(crate) struct RunqueueStudy {
    /// Numbers of processors [default: all, from one to those of this machine]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) cpus: Vec<u32>,
    /// Numbers of runnable tasks
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "256,1024",
        value_parser = clap::value_parser!(u32).range(16..=8192))]
    pub(crate) runnable: Vec<u32>,
    /// Rounds of the timed program
    #[arg(long, value_name = "N", default_value_t = 6,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// Seconds of each cell in a round
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3,
        value_parser = number_within(0.01..=60.0))]
    pub(crate) seconds: f64,
    /// A few seconds: two rounds of short cells
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
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

/// The child process that walks while it is recorded.
#[derive(Debug, Args)]
pub(crate) struct RunqueueWalker {
    /// Tasks on the list
    #[arg(long)]
    pub(crate) runnable: u32,
    /// Whether their structures have colours
    #[arg(long)]
    pub(crate) colours: bool,
    /// Seed of the order of the list
    #[arg(long)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
#[command(mut_arg("rounds", |arg| arg.default_value("9")))]
pub(crate) struct HerdStudy {
    /// Numbers of workers
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "1,2,4,8,16",
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) workers: Vec<u32>,
    /// Clients, each with one request in flight
    #[arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) clients: u32,
    /// Connections that stay silent; they make a poll() slow
    #[arg(long, value_name = "N", default_value_t = 500,
        value_parser = clap::value_parser!(u32).range(..=20_000))]
    pub(crate) cold: u32,
    /// Requests of each client in a visit; a quarter of that if each has its own connection
    #[arg(long, value_name = "N", default_value_t = 400,
        value_parser = clap::value_parser!(u32).range(4..=10_000))]
    pub(crate) requests: u32,
    #[command(flatten)]
    pub(crate) repeat: Rounds,
    /// Seconds: two rounds with few requests
    #[arg(long, conflicts_with_all = ["rounds", "requests", "duration"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

#[derive(Debug, Args)]
pub(crate) struct LiveStudy {
    /// Hours of the day, beginning at the quietest one: four samples an hour
    #[arg(long, value_name = "N", default_value_t = 24,
        value_parser = clap::value_parser!(u32).range(1..=24))]
    pub(crate) hours: u32,
    /// How long an hour takes, for each of the two proxies: 24 hours take 48 times as long
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = duration_within(HOUR))]
    pub(crate) compressed: Duration,
    /// The backend that represents the old select()
    #[arg(long, value_name = "NAME", default_value = "select", value_parser = parse_backend)]
    pub(crate) old: readiness::Kind,
    /// The backend that represents the new select()
    #[arg(long, value_name = "NAME", default_value = "scalable_select",
        value_parser = parse_backend)]
    pub(crate) new: readiness::Kind,
    /// Cold connections at the day's highest rate, fewer at lower rates [default: 1581, as in 1998]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub(crate) cold: Option<u32>,
    #[command(flatten)]
    pub(crate) given: Given,
}

#[derive(Debug, Args)]
pub(crate) struct SelectStudy {
    /// Numbers of cold connections [default: 0,500,1000,2000,5000,10000]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub(crate) cold: Vec<u32>,
    #[command(flatten)]
    pub(crate) repeat: Rounds,
    /// Requests a second of the light load
    #[arg(long, value_name = "RATE", default_value_t = 250.0,
        value_parser = number_within(RATE_MIN..=::load::RATE_MAX))]
    pub(crate) light: f64,
    /// Under a minute: two rounds, short loads, 0 and 1000 cold connections unless others are named
    #[arg(long, conflicts_with_all = ["rounds", "duration"])]
    pub(crate) quick: bool,
    /// Leave out the prediction with its recordings on poll and on epoll
    #[arg(long)]
    pub(crate) no_what_if: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

#[derive(Debug, Args)]
#[command(mut_arg("rounds", |arg| arg.default_value("20")))]
#[command(mut_arg("duration", |arg| arg.default_value("90s")))]
pub(crate) struct Swapin {
    /// A directory on the file system to measure; the study removes its files again [default: the
    /// directory for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,
    /// Objects of each of the two sets (blocks of 32 KiB and of 8 KiB)
    #[arg(long, value_name = "N", default_value_t = 720,
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) objects: u32,
    #[command(flatten)]
    pub(crate) repeat: Rounds,
    /// Leave out the real Squid
    #[arg(long)]
    pub(crate) no_squid: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

#[derive(Debug, Args)]
pub(crate) struct WebbenchStudy {
    /// Numbers of workers [default: 1, 2, 4 and so on, up to all CPUs]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Vec<u16>,
    /// Numbers of clients in a closed loop [default: 1,4,16,64,256]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients: Vec<u32>,
    /// Files of the tree
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) files: u32,
    #[command(flatten)]
    pub(crate) repeat: Rounds,
    /// Length of a visit: one server with one number of clients
    #[arg(long, value_name = "TIME", default_value = "500ms",
        value_parser = duration_within(VISIT))]
    pub(crate) visit: Duration,
    /// Seconds: two rounds, short visits, 1 and 32 clients unless others are named
    #[arg(long, conflicts_with_all = ["rounds", "duration", "visit"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
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
