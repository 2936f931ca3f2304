//! pprof: profile.proto, gzipped, as `go tool pprof` and others read it.
//!
//! A sample has two or three values: the number of samples, the CPU time that they represent and,
//! if a line gives it, the cost per request. The cost is that of a million requests in
//! microseconds, so that it fits a whole number, and a tool that shows seconds shows microseconds
//! of one request. Negative costs are included, and so is the time that is not in the profile. Each
//! sample has a label `owner`: `server`, `recorder` or `others`.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use trial::Trial;
use trial::profile::{FrameMode, Owner};

use crate::{no_profile, server_name};
use report::Error;
use report::{Analysis, FlameUnit, frame_label};

/// Number of requests whose cost is the last value of a sample.
const REQUESTS: f64 = 1e6;

/// The profile of a trial.
///
/// # Errors
/// [`Error::NoProfile`].
pub fn pprof(trial: &Trial, analysis: &Analysis) -> Result<Vec<u8>, Error> {
    let message = profile(trial, analysis)?.encode_to_vec();
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    let written = packed.write_all(&message).and_then(|()| packed.finish());
    Ok(written.expect("a Vec takes everything"))
}

/// The message.
///
/// # Errors
/// [`Error::NoProfile`].
pub(super) fn profile(trial: &Trial, analysis: &Analysis) -> Result<Profile, Error> {
    match rows(trial, analysis) {
        rows if rows.is_empty() => Err(no_profile(analysis)),
        rows => Ok(Builder::default().profile(trial, analysis, &rows)),
    }
}

/// The values of one stack; without a stack, of the time that is not in the profile.
struct Row {
    owner: Owner,
    stack: Option<u32>,
    samples: i64,
    ns: i64,
    cost: f64,
}

fn costs(analysis: &Analysis) -> Option<&report::Flame> {
    analysis.flame.as_ref().filter(|flame| flame.unit == FlameUnit::UsPerRequest)
}

fn rows(trial: &Trial, analysis: &Analysis) -> Vec<Row> {
    let flame = costs(analysis);
    let cost: HashMap<(Owner, u32), f64> = flame.map_or_else(HashMap::new, |flame| {
        flame.by_stack.iter().map(|stack| ((stack.owner, stack.stack), stack.value)).collect()
    });
    let mut rows: Vec<Row> = crate::by_stack(trial)
        .into_iter()
        .map(|((owner, stack), (samples, ns))| {
            let cost = cost.get(&(owner, stack)).copied().unwrap_or(0.0);
            Row { owner, stack: Some(stack), samples: samples.cast_signed(), ns, cost }
        })
        .collect();
    if let (Some(flame), false) = (flame, rows.is_empty()) {
        let owner = Owner::Server;
        rows.push(Row { owner, stack: None, samples: 0, ns: 0, cost: flame.unsampled });
    }
    rows
}

#[derive(Default)]
struct Builder {
    strings: Vec<String>,
    numbers: HashMap<String, i64>,
    mappings: HashMap<String, u64>,
    profile: Profile,
}

impl Builder {
    fn profile(mut self, trial: &Trial, analysis: &Analysis, rows: &[Row]) -> Profile {
        self.string("");
        let has_costs = costs(analysis).is_some();
        let mut types = vec![("samples", "count"), ("cpu", "nanoseconds")];
        types.extend(has_costs.then_some(("cpu_of_a_million_requests", "microseconds")));
        self.profile.sample_type =
            types.iter().map(|(name, unit)| self.typed(name, unit)).collect();
        let frames = self.locations(trial);
        let unsampled = self.location("not in the profile", "", 0);
        let key = self.string("owner");
        for row in rows {
            let location_id = match row.stack.and_then(|stack| trial.stacks().get(stack as usize)) {
                Some(stack) => stack.frames.iter().map(|&frame| frames[frame as usize]).collect(),
                None => vec![unsampled],
            };
            let mut value = vec![row.samples, row.ns];
            value.extend(has_costs.then_some((row.cost * REQUESTS).round() as i64));
            let label = vec![Label { key, str: self.string(row.owner.name()) }];
            self.profile.sample.push(Sample { location_id, value, label });
        }
        self.head(trial);
        self.profile.string_table = self.strings;
        self.profile
    }

    fn head(&mut self, trial: &Trial) {
        let intervals = trial.intervals();
        let info = trial.profile_info();
        let hz = info.map_or(0, |info| i64::from(info.hz)).max(1);
        self.profile.period = 1_000_000_000 / hz;
        self.profile.period_type = Some(self.typed("cpu", "nanoseconds"));
        self.profile.time_nanos = intervals.first().map_or(0, |first| first.start_ns);
        self.profile.duration_nanos = intervals.iter().map(|interval| interval.length_ns).sum();
        self.profile.default_sample_type = self.string("cpu");
        let lost = info.map_or(0, |info| info.lost);
        let comment = format!("{}; {lost} samples lost", server_name(trial));
        self.profile.comment = vec![self.string(&comment)];
    }

    /// A location for each frame of the trial. Tools treat the first mapping as the program, so the
    /// server's own comes first.
    fn locations(&mut self, trial: &Trial) -> Vec<u64> {
        let server = server_name(trial);
        if trial.frames().iter().any(|frame| frame.module == server) {
            self.mapping(server, FrameMode::User);
        }
        let frames = trial.frames().iter();
        frames
            .map(|frame| {
                let mapping = self.mapping(&frame.module, frame.mode);
                self.location(&frame_label(frame), &frame.module, mapping)
            })
            .collect()
    }

    fn location(&mut self, name: &str, module: &str, mapping_id: u64) -> u64 {
        let id = self.profile.location.len() as u64 + 1;
        let (name, filename) = (self.string(name), self.string(module));
        self.profile.function.push(Function { id, name, system_name: name, filename });
        self.profile.location.push(Location {
            id,
            mapping_id,
            line: vec![Line { function_id: id }],
        });
        id
    }

    fn mapping(&mut self, module: &str, mode: FrameMode) -> u64 {
        if let Some(&id) = self.mappings.get(module) {
            return id;
        }
        let id = self.profile.mapping.len() as u64 + 1;
        let name = match mode {
            FrameMode::Kernel => "[kernel.kallsyms]",
            FrameMode::User => module,
        };
        let filename = self.string(name);
        self.profile.mapping.push(Mapping { id, filename, has_functions: true });
        self.mappings.insert(module.to_string(), id);
        id
    }

    fn typed(&mut self, name: &str, unit: &str) -> ValueType {
        ValueType { r#type: self.string(name), unit: self.string(unit) }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = i64::try_from(self.strings.len()).unwrap_or(0);
        self.strings.push(text.to_string());
        self.numbers.insert(text.to_string(), number);
        number
    }
}

/// The messages of profile.proto, with the fields that are used here. Texts are indices of strings.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(super) mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub(super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(super) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(super) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(super) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(super) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(super) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(super) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(super) comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub(super) default_sample_type: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(super) r#type: i64,
    #[prost(int64, tag = "2")]
    pub(super) unit: i64,
}

/// Locations are in order from the innermost outwards.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub(super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(super) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(super) label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(int64, tag = "1")]
    pub(super) key: i64,
    #[prost(int64, tag = "2")]
    pub(super) str: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "5")]
    pub(super) filename: i64,
    #[prost(bool, tag = "7")]
    pub(super) has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(uint64, tag = "2")]
    pub(super) mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    pub(super) line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(super) function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(int64, tag = "2")]
    pub(super) name: i64,
    #[prost(int64, tag = "3")]
    pub(super) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(super) filename: i64,
}
