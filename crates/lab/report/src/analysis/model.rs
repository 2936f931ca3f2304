//! Everything that a report shows, as one plain struct.

use serde::Serialize;
use trial::{Loss, Manifest, Prediction};

use super::answers::Answers;
use super::causes::Cause;
use super::classes::ClassTable;
use super::cost::CostTable;
use super::counters::HardwareCounters;
use super::figures::{
    AllIntervals, CapacityFigure, IntervalRow, MODEL_WAKES, Modes, Resource, Saturation,
    TrialFacts, WakesLine,
};
use super::files::Files;
use super::flame::Flame;
use super::latency::Latency;
use super::profile::Profile;
use super::stretches::Stretches;
use super::waits::Waits;

/// Everything that a report shows.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The trial: its name, its length, how much of it was fitted.
    pub trial: TrialFacts,
    /// What went wrong in the recording, the most important first.
    pub causes: Vec<Cause>,
    /// The capacity: the smallest over the resources, by the better of the two lines.
    pub capacity: CapacityFigure,
    /// The capacity of the CPU time whose modes and procedures are shown: the same figure, unless
    /// a device is exhausted first.
    pub capacity_of_cpu: CapacityFigure,
    /// The same CPU time by the straight line of 1998.
    pub capacity_straight: CapacityFigure,
    /// The same CPU time by the line with wakes, if that could be fitted.
    pub capacity_with_wakes: Option<CapacityFigure>,
    /// The saturation measured in this trial, requests/s: the median of its saturated intervals.
    /// `None` if it has none, or if the load intended to saturate the server did not.
    pub saturation_measured: Option<f64>,
    /// The details of the measured saturation.
    pub saturation: Option<Saturation>,
    /// The lines of idle, kernel and user time of that CPU time, in percent of its cap.
    pub modes: Modes,
    /// The straight line and the modes including quiet intervals, if some were excluded.
    pub all_intervals: Option<AllIntervals>,
    /// The line with wakes, in microseconds.
    pub with_wakes: Option<WakesLine>,
    /// Cost of a request by mode, group and procedure, if there is a profile.
    pub costs: Option<CostTable>,
    /// Call stacks by their cost per request, if there is a profile.
    pub flame: Option<Flame>,
    /// Cost of a request by class, one table for each word of the classes, if the log has them.
    pub classes: Vec<ClassTable>,
    /// The profile table of 1998, if there is a profile.
    pub profile: Option<Profile>,
    /// Instructions, cycles and cache traffic per request, if hardware counters were recorded.
    pub counters: Option<HardwareCounters>,
    /// Turns of the event loop, and busy periods, if they were counted.
    pub stretches: Option<Stretches>,
    /// What keeps threads from answering, if it was seen.
    pub answers: Option<Answers>,
    /// Lock waits, if they were sampled.
    pub waits: Option<Waits>,
    /// File access, if it was sampled.
    pub files: Option<Files>,
    /// Every resource that was fitted, the limiting one first; then those without a line.
    pub resources: Vec<Resource>,
    /// Latency, if it was recorded.
    pub latency: Option<Latency>,
    /// Every interval of the trial.
    pub intervals: Vec<IntervalRow>,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// Predictions stored in the trial.
    pub predictions: Vec<Prediction>,
    /// The machine and the server.
    pub manifest: Manifest,
}

impl Analysis {
    /// The line with wakes and its capacity, if it is the headline. Otherwise its coefficients
    /// cannot be separated, and are only in the JSON.
    pub(crate) fn wakes_drawn(&self) -> Option<(&WakesLine, f64)> {
        let figure = &self.capacity_of_cpu;
        let drawn = figure.model == MODEL_WAKES;
        Some((self.with_wakes.as_ref()?, figure.value?)).filter(|_| drawn)
    }

    /// The line of a busy CPU, if it gives the capacity of the CPU time.
    pub(crate) fn busy(&self) -> Option<&regress::BusyFit> {
        let of_cpu = |one: &&Resource| one.name == self.capacity_of_cpu.resource_name;
        self.resources.iter().find(of_cpu)?.line.as_ref()?.busy.as_ref()
    }

    /// Whether the straight line gives the capacity that is drawn.
    pub(crate) fn straight_counts(&self) -> bool {
        let other = self.busy().is_some() || self.wakes_drawn().is_some();
        self.capacity_straight.identifiable && !other
    }

    /// Whether CPU time is exhausted first, and not a device.
    pub(crate) fn cpu_limits(&self) -> bool {
        self.capacity.resource_name == self.capacity_of_cpu.resource_name
    }
}
