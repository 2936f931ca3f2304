//! The figures that Banga and Mogul published in 1998, read from `studies/select/facts.toml`, the
//! only place that contains them.

use serde::{Deserialize, Serialize};

const FACTS: &str = include_str!("../../../select/facts.toml");

/// The server with which the studies are compared.
pub(crate) const SQUID: &str = "Squid 1.1.20Mod";
/// The other server.
pub(crate) const NETCACHE: &str = "NetCache 3.1.2c-OSF";

#[derive(Debug, Deserialize)]
pub(crate) struct Facts {
    pub(crate) source: Source,
    trial: Vec<Day>,
    regression: Vec<Regression>,
    x_intercept: Vec<XIntercept>,
    profile: Vec<Profile>,
    pub(crate) netcache_profile: NetcacheProfile,
    pub(crate) synthetic: Synthetic,
    pub(crate) derived: Derived,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Source {
    pub(crate) title: String,
    pub(crate) machine: String,
}

/// Tables 3 and 14.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Day {
    server: String,
    kernel: String,
    pub(crate) requests: Option<f64>,
    pub(crate) descriptors_max: Option<f64>,
    pub(crate) rate_peak: f64,
}

/// Table 15: percent of CPU time per (request per second).
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Regression {
    server: String,
    kernel: String,
    mode: String,
    pub(crate) slope: f64,
    pub(crate) correlation: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct XIntercept {
    server: String,
    kernel: String,
    pub(crate) rate: f64,
    pub(crate) rate_above_20: Option<f64>,
    pub(crate) improvement_percent: Option<f64>,
}

/// A profile table: percent of all CPU time, percent of the time that is not idle, procedure, mode.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Profile {
    server: String,
    kernel: String,
    pub(crate) rate_mean: f64,
    rows: Vec<(f64, f64, String, String)>,
}

/// The parts of tables 6 and 7 that the text gives: percent of the time that is not idle.
#[derive(Debug, Deserialize)]
pub(crate) struct NetcacheProfile {
    /// Given in words.
    pub(crate) select_old_kernel: String,
    pub(crate) select_new_kernel: f64,
    /// How much more often it called the new `select()`.
    pub(crate) select_calls_new_over_old: f64,
}

/// The synthetic experiment, from 0 to 2,000 cold connections.
#[derive(Debug, Deserialize)]
pub(crate) struct Synthetic {
    pub(crate) original_percent: f64,
    pub(crate) new_select_and_ufalloc_percent: f64,
    pub(crate) best_throughput_gain_percent: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Derived {
    pub(crate) what_if: Predicted,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Predicted {
    pub(crate) capacity_if_select_were_new: f64,
}

impl Facts {
    /// Reads all facts.
    pub(crate) fn read() -> Facts {
        toml::from_str(FACTS).expect("the facts are part of the program, and a test reads them")
    }

    /// The day of a server on the `old` or the `new` kernel.
    pub(crate) fn day(&self, server: &str, kernel: &str) -> Option<&Day> {
        self.trial.iter().find(|day| day.server == server && day.kernel == kernel)
    }

    /// The line of a mode.
    pub(crate) fn line(&self, server: &str, kernel: &str, mode: &str) -> Option<&Regression> {
        let wanted = |line: &&Regression| line.server == server && line.kernel == kernel;
        self.regression.iter().filter(wanted).find(|line| line.mode == mode)
    }

    /// Where the idle line meets zero.
    pub(crate) fn x_intercept(&self, server: &str, kernel: &str) -> Option<&XIntercept> {
        self.x_intercept.iter().find(|x| x.server == server && x.kernel == kernel)
    }

    /// The profile of a server.
    pub(crate) fn profile(&self, server: &str, kernel: &str) -> Option<&Profile> {
        self.profile.iter().find(|table| table.server == server && table.kernel == kernel)
    }
}

impl Profile {
    /// Percent of the time that is not idle.
    pub(crate) fn percent_busy(&self, procedure: &str) -> Option<f64> {
        self.rows.iter().find(|row| row.2 == procedure).map(|row| row.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_are_read_whole() {
        let facts = Facts::read();
        let old = facts.day(SQUID, "old").unwrap();
        assert_eq!((old.requests, old.descriptors_max), (Some(2_242_373.0), Some(1581.0)));
        assert_eq!(facts.line(SQUID, "new", "user").unwrap().slope, 0.54);
        assert_eq!(facts.x_intercept(SQUID, "new").unwrap().rate, 83.0);
        assert_eq!(facts.x_intercept(NETCACHE, "old").unwrap().rate_above_20, Some(57.0));
        let walked = facts.profile("Squid 1.1.20", "new").unwrap();
        assert_eq!(walked.percent_busy("comm_select"), Some(30.12));
        assert_eq!(facts.synthetic.original_percent, -44.0);
        assert_eq!(facts.netcache_profile.select_calls_new_over_old, 7.0);
        assert_eq!(facts.derived.what_if.capacity_if_select_were_new, 80.0);
    }
}
