//! A trial as a file again, from its rows in the database.
//!
//! Rows are read in spans of time, so that memory does not grow with the length of the trial.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use trial::classes::ClassRow;
use trial::files::{Delays, Direction, FileRow};
use trial::stretches::{StretchKind, StretchRow, TurnRow};
use trial::{Interval, Manifest, Modes, ProcessTimes, ThreadTimes, Writer};

use super::binary::Reader;
use super::client::Client;
use super::query::literal;
use crate::Error;
use crate::home::{Run, WINDOW_S};

/// About this many intervals are read and written at once.
const SPAN_INTERVALS: u64 = 3_600;

/// What the database does not have, or not by interval.
const NOT_THERE: &str = "from ClickHouse: no profile, hardware counters, lock waits, latencies, \
                         times of files, single CPUs, devices, losses and predictions";

/// A sampler whose rows are not fetched.
const LOCKS: &str = "locks";

impl Client {
    /// Writes a trial into a new file.
    pub(super) fn fetch_trial(&self, run: &Run, into: &Path) -> Result<(), Error> {
        let (host, server) = (literal(&run.server.host), literal(&run.server.server));
        let rows = format!("host = {host} AND server = {server} AND trial = {}", run.trial);
        let manifest = self.manifest(run, &rows)?;
        let writer =
            Writer::create(into, &manifest).map_err(|error| Error::written(into, error))?;
        self.fill(writer, &rows, into).inspect_err(|_| {
            // The file is new, and only a part of the trial. Only the first error is reported.
            let _ = fs::remove_file(into);
        })
    }

    fn manifest(&self, run: &Run, rows: &str) -> Result<Manifest, Error> {
        let sql = format!("SELECT manifest, complete FROM runs FINAL WHERE {rows}");
        let found = self.rows(&sql, |row| Some((row.text()?, row.truth()?)))?;
        let found = found.into_iter().next();
        let (text, complete) = found.ok_or_else(|| run.missing())?;
        let mut manifest: Manifest =
            serde_json::from_str(&text).map_err(|error| Error::Database {
                url: self.address().to_string(),
                what: format!("the manifest of a trial of {} is damaged: {error}", run.server),
            })?;
        manifest.notes.push(NOT_THERE.to_owned());
        if !complete {
            manifest.notes.push("from ClickHouse: the recording was not finished".to_owned());
        }
        for sampler in manifest.capabilities.iter_mut().filter(|one| one.name == LOCKS) {
            sampler.supported = false;
            "not fetched from ClickHouse".clone_into(&mut sampler.reason);
        }
        Ok(manifest)
    }

    fn fill(&self, mut writer: Writer, rows: &str, into: &Path) -> Result<(), Error> {
        let written = |error| Error::written(into, error);
        for (from, up_to) in self.spans(rows)? {
            let span = format!(
                "FINAL WHERE {rows} AND time >= toDateTime({from}) AND time < toDateTime({up_to}) \
                 ORDER BY interval_number"
            );
            let of = |columns: &str, table: &str| format!("SELECT {columns} FROM {table} {span}");
            let mut threads: HashMap<u64, Vec<ThreadTimes>> = HashMap::new();
            for (interval, one) in self.rows(&of(THREAD, "threads"), thread)? {
                threads.entry(interval).or_default().push(one);
            }
            let mut intervals = self.rows(&of(INTERVAL, "intervals"), interval)?;
            for interval in &mut intervals {
                interval.threads = threads.remove(&interval.index).unwrap_or_default();
            }
            let classes = self.rows(&of(CLASS, "classes"), class)?;
            writer.classes(&classes).map_err(written)?;
            let stretches = self.rows(&of(STRETCH, "stretches"), stretch)?;
            for turns in self.rows(&of(TURN, "turns"), turn)? {
                let of_interval = stretches.chunk_by(|a, b| a.interval == b.interval);
                let rows = of_interval.into_iter().find(|rows| rows[0].interval == turns.interval);
                writer.stretches(turns, rows.unwrap_or_default());
            }
            writer.append_many(&intervals).map_err(written)?;
        }
        let files = self.rows(&format!("SELECT {FILE} FROM files FINAL WHERE {rows}"), file)?;
        writer.files(files);
        writer.finish().map(drop).map_err(written)
    }

    /// Spans of time with intervals: from, up to, seconds since the Unix epoch.
    fn spans(&self, rows: &str) -> Result<Vec<(i64, i64)>, Error> {
        let sql = format!(
            "SELECT toInt64(intDiv(toUnixTimestamp(time), {WINDOW_S}) * {WINDOW_S}) AS start, \
             toUInt64(count()) FROM intervals WHERE {rows} GROUP BY start ORDER BY start"
        );
        let mut spans: Vec<(i64, i64, u64)> = Vec::new();
        for (start, n) in self.rows(&sql, |row| Some((row.signed()?, row.unsigned()?)))? {
            match spans.last_mut() {
                Some((_, end, sum)) if *sum + n <= SPAN_INTERVALS => {
                    (*end, *sum) = (start + WINDOW_S, *sum + n);
                }
                _ => spans.push((start, start + WINDOW_S, n)),
            }
        }
        Ok(spans.into_iter().map(|(from, up_to, _)| (from, up_to)).collect())
    }
}

/// A whole number that is not part of the key. Unknown is 0.
fn whole<T: TryFrom<i64>>(row: &mut Reader<'_>) -> Option<T> {
    T::try_from(row.nullable(Reader::signed)?.unwrap_or_default()).ok()
}

/// A whole number that may be unknown.
fn known(row: &mut Reader<'_>) -> Option<Option<u64>> {
    row.nullable(Reader::signed)?.map_or(Some(None), |value| u64::try_from(value).ok().map(Some))
}

/// A whole number that is part of the key.
fn key<T: TryFrom<i64>>(row: &mut Reader<'_>) -> Option<T> {
    T::try_from(row.signed()?).ok()
}

fn number(row: &mut Reader<'_>) -> Option<f64> {
    row.nullable(Reader::number).map(Option::unwrap_or_default)
}

const INTERVAL: &str = "interval_number, start_unix_ns, length_ns, requests, requests_ended, \
    rate_valid, phase, machine_user_ns, machine_nice_ns, machine_system_ns, machine_irq_ns, \
    machine_softirq_ns, machine_idle_ns, machine_iowait_ns, machine_steal_ns, machine_guest_ns, \
    recorder_ns, isNotNull(server_total_ns), server_user_ns, server_kernel_ns, server_total_ns, \
    server_processes, server_threads, server_voluntary_switches, server_involuntary_switches, \
    server_rss_bytes, server_descriptors";

fn interval(row: &mut Reader<'_>) -> Option<Interval> {
    let mut interval = Interval {
        index: key(row)?,
        start_ns: whole(row)?,
        length_ns: whole(row)?,
        requests: number(row)?,
        requests_ended: whole(row)?,
        rate_valid: row.truth()?,
        phase: Some(row.text()?).filter(|phase| !phase.is_empty()),
        machine: Modes {
            user_ns: whole(row)?,
            nice_ns: whole(row)?,
            system_ns: whole(row)?,
            irq_ns: whole(row)?,
            softirq_ns: whole(row)?,
            idle_ns: whole(row)?,
            iowait_ns: whole(row)?,
            steal_ns: whole(row)?,
            guest_ns: whole(row)?,
        },
        recorder_ns: whole(row)?,
        ..Interval::default()
    };
    let observed = row.truth()?;
    let server = ProcessTimes {
        user_ns: whole(row)?,
        kernel_ns: whole(row)?,
        total_ns: whole(row)?,
        processes: whole(row)?,
        threads: whole(row)?,
        voluntary_switches: whole(row)?,
        involuntary_switches: whole(row)?,
        rss_bytes: whole(row)?,
        descriptors: known(row)?,
    };
    interval.server = observed.then_some(server);
    Some(interval)
}

const THREAD: &str = "interval_number, pid, tid, name, total_ns, user_ns, kernel_ns, wakes";

fn thread(row: &mut Reader<'_>) -> Option<(u64, ThreadTimes)> {
    let interval = key(row)?;
    let thread = ThreadTimes {
        pid: key(row)?,
        tid: key(row)?,
        name: row.text()?,
        total_ns: whole(row)?,
        user_ns: whole(row)?,
        kernel_ns: whole(row)?,
        wakes: whole(row)?,
    };
    Some((interval, thread))
}

const CLASS: &str = "interval_number, class, requests, requests_ended, bytes";

fn class(row: &mut Reader<'_>) -> Option<ClassRow> {
    Some(ClassRow {
        interval: key(row)?,
        class: row.text()?,
        requests: number(row)?,
        ended: whole(row)?,
        bytes: number(row)?,
    })
}

const TURN: &str = "interval_number, sampled_ns, turns, clients, upstreams";

fn turn(row: &mut Reader<'_>) -> Option<TurnRow> {
    Some(TurnRow {
        interval: key(row)?,
        sampled_ns: whole(row)?,
        turns: whole(row)?,
        clients: whole(row)?,
        upstreams: whole(row)?,
    })
}

const STRETCH: &str = "interval_number, kind, held, served, receives_from, stretches, turns, \
    clients, upstreams, cpu_ns";

fn stretch(row: &mut Reader<'_>) -> Option<StretchRow> {
    Some(StretchRow {
        interval: key(row)?,
        kind: StretchKind::named(&row.text()?)?,
        held: row.truth()?,
        served: row.truth()?,
        size: key(row)?,
        stretches: whole(row)?,
        turns: whole(row)?,
        clients: whole(row)?,
        upstreams: whole(row)?,
        cpu_ns: whole(row)?,
    })
}

const FILE: &str = "direction, size_from_bytes, size_below_bytes, objects, calls, bytes, open_ns, \
    first_ns, rest_ns, close_ns, elapsed_ns, needless, needless_after_short, needless_objects, \
    needless_ns";

fn file(row: &mut Reader<'_>) -> Option<FileRow> {
    Some(FileRow {
        direction: match &*row.text()? {
            "read" => Direction::Read,
            "written" => Direction::Written,
            _ => return None,
        },
        size_from: key(row)?,
        size_below: known(row)?,
        objects: whole(row)?,
        calls: whole(row)?,
        bytes: whole(row)?,
        open_ns: whole(row)?,
        first_ns: whole(row)?,
        rest_ns: whole(row)?,
        close_ns: whole(row)?,
        elapsed_ns: whole(row)?,
        needless: whole(row)?,
        after_short: whole(row)?,
        needless_objects: whole(row)?,
        needless_ns: whole(row)?,
        first: Delays::default(),
        total: Delays::default(),
    })
}
