//! The text of `/metrics`: the counters of all cores, and the figures that the cores share.

#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::sync::Arc;

use metrics::{
    CONNECTIONS, COUNTERS, Counters, Described, LATENCY, Latency, OF_CORE, OF_PROCESS, STALLED,
    Shape, describe, encode_value, states,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};

use crate::certificates;
use crate::control::CONTROL_FIGURES;
use crate::descriptors::descriptors;
use cache::disk;
use cache::pressure::{resident_bytes, stalled};

/// The values of [`OF_PROCESS`]; those that the system does not report are left out.
fn of_process() -> impl Iterator<Item = (Described, u64)> {
    // The kernel reports it as the size of the directory, without a walk (since 6.2).
    let open = fs::metadata("/proc/self/fd").ok().map(|fds| fds.len()).filter(|open| *open > 0);
    let values = [open, descriptors().map(|max| max as u64), resident_bytes()];
    OF_PROCESS.iter().copied().zip(values).filter_map(|(of, value)| Some((of, value?)))
}

/// Every metric that `/metrics` serves.
pub(crate) fn all() -> Vec<Described> {
    let of_core = OF_CORE.iter().map(|(described, _)| described);
    COUNTERS
        .iter()
        .chain(cache::FIGURES)
        .chain(cache::coding_jobs::FIGURES)
        .chain([&LOG_LINES_LOST])
        .chain(CONTROL_FIGURES)
        .chain([&CONNECTIONS, &REFUSALS, &LATENCY, &STALLED])
        .chain(&FORECASTS)
        .chain(upstream::figures::all())
        .chain(policy::quota::figures::DESCRIBED)
        .chain(certificates::DESCRIBED)
        .chain(of_core)
        .chain(OF_PROCESS)
        .copied()
        .chain(disk::metrics())
        .collect()
}

/// The counters of all cores, and the figures that they share.
#[derive(Debug)]
pub(crate) struct AllCores {
    cores: Vec<Arc<Counters>>,
    shared: Arc<dyn SharedFigures>,
}

/// Figures that do not belong to one core.
pub(crate) trait SharedFigures: Send + Sync + fmt::Debug {
    /// Name, help, shape and value of each.
    fn figures(&self) -> Vec<(Described, u64)>;

    /// The names of the rules and how many requests each has refused.
    fn refusals(&self) -> Vec<(&'static str, u64)>;

    /// The values of [`FORECASTS`], by size.
    fn forecasts(&self) -> [Vec<(&'static str, f64)>; 2];
}

/// One of [`SharedFigures::figures`].
pub(crate) const LOG_LINES_LOST: Described = Described {
    name: "log_lines_lost",
    help: "Access log lines lost because the log could not keep up or failed",
    shape: Shape::Counter,
};

/// The metrics of [`SharedFigures::forecasts`]; their label is `memory`.
pub(crate) const FORECASTS: [Described; 2] = [
    Described {
        name: "what_if_hit_ratio",
        help: "Predicted share of look-ups that hit with this multiple of the memory",
        shape: Shape::GaugeBy(&["memory"]),
    },
    Described {
        name: "what_if_byte_hit_ratio",
        help: "Predicted share of bytes that hit with this multiple of the memory",
        shape: Shape::GaugeBy(&["memory"]),
    },
];

/// The metric of [`SharedFigures::refusals`]; its label is `rule`.
pub(crate) const REFUSALS: Described = Described {
    name: "refusals",
    help: "Requests refused, by the rule that refused them",
    shape: Shape::CounterBy(&["rule"]),
};

impl AllCores {
    pub(crate) fn new(cores: Vec<Arc<Counters>>, shared: Arc<dyn SharedFigures>) -> AllCores {
        AllCores { cores, shared }
    }

    /// The sums over cores, in the order of [`COUNTERS`], then the shared figures.
    fn sums(&self) -> Vec<(Described, u64)> {
        let mut sums = vec![0u64; COUNTERS.len()];
        for core in &self.cores {
            for (sum, value) in sums.iter_mut().zip(core.values()) {
                *sum = sum.wrapping_add(value);
            }
        }
        let mut all: Vec<_> = COUNTERS.iter().copied().zip(sums).collect();
        all.extend(self.shared.figures());
        all
    }

    /// The OpenMetrics text, with the metrics of other collectors.
    pub(crate) fn text(
        self,
        upstreams: impl Collector,
        quotas: impl Collector,
        certificates: impl Collector,
    ) -> String {
        let mut registry = prometheus_client::registry::Registry::with_prefix("plimsoll");
        registry.register_collector(Box::new(self));
        registry.register_collector(Box::new(upstreams));
        registry.register_collector(Box::new(quotas));
        registry.register_collector(Box::new(certificates));
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &registry) {
            Ok(()) => text,
            Err(error) => format!("# the metrics could not be written: {error}\n"),
        }
    }
}

impl Collector for AllCores {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (described, value) in self.sums().into_iter().chain(of_process()) {
            let mut metric = describe(&mut encoder, &described)?;
            encode_value(&mut metric, &described, value)?;
        }
        let stalls = stalled();
        if !stalls.is_empty() {
            let mut family = describe(&mut encoder, &STALLED)?;
            for (tasks, us) in stalls {
                let label = [("tasks", tasks)];
                encode_value(&mut family.encode_family(&label)?, &STALLED, us * 1000)?;
            }
        }
        let mut family = describe(&mut encoder, &CONNECTIONS)?;
        for at in 0..states(&Counters::default()).len() {
            let of_cores = self.cores.iter().map(|core| states(core)[at]);
            let (state, sum) = of_cores.fold(("", 0), |sum, one| (one.0, sum.1 + one.1));
            let label = [("state", state)];
            encode_value(&mut family.encode_family(&label)?, &CONNECTIONS, sum)?;
        }
        let mut rules = describe(&mut encoder, &REFUSALS)?;
        for (rule, count) in self.shared.refusals() {
            encode_value(&mut rules.encode_family(&[("rule", rule)])?, &REFUSALS, count)?;
        }
        for (described, of) in OF_CORE {
            let mut family = describe(&mut encoder, described)?;
            for (at, core) in self.cores.iter().enumerate() {
                let label = [("core", at.to_string())];
                let value = of(&core.core).get();
                encode_value(&mut family.encode_family(&label)?, described, value)?;
            }
        }
        let mut family = describe(&mut encoder, &LATENCY)?;
        for histogram in Latency::histograms(self.cores.iter().map(|core| &core.latency)) {
            let labels = [("status", histogram.status), ("cache", histogram.cache)];
            let (sum, count) = (histogram.sum_seconds, histogram.count());
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                sum,
                count,
                &histogram.buckets,
                None,
            )?;
        }
        // By reference: if the array is moved into its iterator, LLVM 22 compiles the ends of its
        // vectors to one of two codes by chance, and no build is like another.
        for (described, ratios) in FORECASTS.iter().zip(&self.shared.forecasts()) {
            let mut family = describe(&mut encoder, described)?;
            for (memory, ratio) in ratios {
                family.encode_family(&[("memory", *memory)])?.encode_gauge(ratio)?;
            }
        }
        Ok(())
    }
}
