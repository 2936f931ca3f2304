//! How intervals are written and read, with their CPUs and threads.

use rusqlite::{Connection, Row, Statement, ToSql, params};

use crate::model::{CpuModes, Interval, Modes, ProcessTimes, ThreadTimes};
use crate::table::{self, Span, Table};

/// Columns of the modes, in the order of [`values`].
const MODES: &str =
    "user_ns, nice_ns, system_ns, irq_ns, softirq_ns, idle_ns, iowait_ns, steal_ns, guest_ns";

/// Writes an interval.
pub(crate) fn insert(connection: &Connection, interval: &Interval) -> rusqlite::Result<()> {
    table::insert(std::slice::from_ref(interval), connection)?;
    insert_cpus(connection, interval)?;
    insert_threads(connection, interval)
}

/// Reads the intervals of a span.
pub(crate) fn read(connection: &Connection, span: &Span) -> rusqlite::Result<Vec<Interval>> {
    let mut intervals = read_with_threads(connection, span)?;
    let cpus =
        format!("SELECT idx, cpu, {MODES} FROM cpu WHERE idx >= ? AND idx < ? ORDER BY idx, cpu");
    let cpus = parts(connection, &cpus, span, |row| {
        Ok(CpuModes { cpu: row.get(1)?, modes: read_modes(row, 2)? })
    })?;
    attach(&mut intervals, cpus, |interval| &mut interval.cpus)?;
    Ok(intervals)
}

/// The same without the CPUs.
pub(crate) fn read_with_threads(
    connection: &Connection,
    span: &Span,
) -> rusqlite::Result<Vec<Interval>> {
    let mut select = connection.prepare(&Interval::select_sql())?;
    let mut intervals: Vec<Interval> = select
        .query_map([span.start, span.end], Interval::read)?
        .collect::<rusqlite::Result<_>>()?;
    let threads = parts(connection, THREADS, span, |row| {
        Ok(ThreadTimes {
            pid: row.get(1)?,
            tid: row.get(2)?,
            name: row.get(3)?,
            total_ns: row.get(4)?,
            user_ns: row.get(5)?,
            kernel_ns: row.get(6)?,
            wakes: row.get(7)?,
        })
    })?;
    attach(&mut intervals, threads, |interval| &mut interval.threads)?;
    Ok(intervals)
}

const THREADS: &str = "
SELECT thread.idx, pid, tid, name.name, total_ns, user_ns, kernel_ns, wakes
FROM thread JOIN name ON name.id = thread.name WHERE thread.idx >= ? AND thread.idx < ?
ORDER BY thread.idx, seq";

impl Table for Interval {
    const NAME: &'static str = "interval";
    const COLUMNS: &'static str = "
        idx, start_ns, length_ns, user_ns, nice_ns, system_ns, irq_ns, softirq_ns, idle_ns,
        iowait_ns, steal_ns, guest_ns, requests, requests_ended, rate_valid, phase, recorder_ns,
        server_user_ns, server_kernel_ns, server_total_ns, processes, threads,
        voluntary_switches, involuntary_switches, rss_bytes, descriptors";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx";

    fn write(&self, insert: &mut Statement<'_>) -> rusqlite::Result<usize> {
        let modes = values(&self.machine);
        let mut columns: Vec<&dyn ToSql> = vec![&self.index, &self.start_ns, &self.length_ns];
        columns.extend(modes.iter().map(|ns| ns as &dyn ToSql));
        columns.extend_from_slice(params![
            self.requests,
            self.requests_ended,
            self.rate_valid,
            self.phase,
            self.recorder_ns
        ]);
        match &self.server {
            Some(server) => columns.extend_from_slice(params![
                server.user_ns,
                server.kernel_ns,
                server.total_ns,
                server.processes,
                server.threads,
                server.voluntary_switches,
                server.involuntary_switches,
                server.rss_bytes,
                server.descriptors
            ]),
            None => columns.extend([&None::<i64> as &dyn ToSql; 9]),
        }
        insert.execute(&columns[..])
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Interval> {
        let server = match row.get::<_, Option<i64>>(17)? {
            None => None,
            Some(user_ns) => Some(ProcessTimes {
                user_ns,
                kernel_ns: row.get(18)?,
                total_ns: row.get(19)?,
                processes: row.get(20)?,
                threads: row.get(21)?,
                voluntary_switches: row.get(22)?,
                involuntary_switches: row.get(23)?,
                rss_bytes: row.get(24)?,
                descriptors: row.get(25)?,
            }),
        };
        Ok(Interval {
            index: row.get(0)?,
            start_ns: row.get(1)?,
            length_ns: row.get(2)?,
            machine: read_modes(row, 3)?,
            requests: row.get(12)?,
            requests_ended: row.get(13)?,
            rate_valid: row.get(14)?,
            phase: row.get(15)?,
            recorder_ns: row.get(16)?,
            server,
            cpus: Vec::new(),
            threads: Vec::new(),
        })
    }
}

fn insert_cpus(connection: &Connection, interval: &Interval) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(&format!(
        "INSERT INTO cpu (idx, cpu, {MODES}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ))?;
    for CpuModes { cpu, modes } in &interval.cpus {
        let modes = values(modes);
        let mut columns: Vec<&dyn ToSql> = vec![&interval.index, cpu];
        columns.extend(modes.iter().map(|ns| ns as &dyn ToSql));
        insert.execute(&columns[..])?;
    }
    Ok(())
}

fn insert_threads(connection: &Connection, interval: &Interval) -> rusqlite::Result<()> {
    let mut intern = connection.prepare_cached("INSERT OR IGNORE INTO name (name) VALUES (?)")?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO thread (idx, seq, pid, tid, name, total_ns, user_ns, kernel_ns, wakes)
         VALUES (?, ?, ?, ?, (SELECT id FROM name WHERE name = ?), ?, ?, ?, ?)",
    )?;
    for (seq, thread) in interval.threads.iter().enumerate() {
        intern.execute([&thread.name])?;
        insert.execute(params![
            interval.index,
            seq,
            thread.pid,
            thread.tid,
            thread.name,
            thread.total_ns,
            thread.user_ns,
            thread.kernel_ns,
            thread.wakes
        ])?;
    }
    Ok(())
}

fn values(m: &Modes) -> [i64; 9] {
    [
        m.user_ns,
        m.nice_ns,
        m.system_ns,
        m.irq_ns,
        m.softirq_ns,
        m.idle_ns,
        m.iowait_ns,
        m.steal_ns,
        m.guest_ns,
    ]
}

fn read_modes(row: &Row<'_>, at: usize) -> rusqlite::Result<Modes> {
    Ok(Modes {
        user_ns: row.get(at)?,
        nice_ns: row.get(at + 1)?,
        system_ns: row.get(at + 2)?,
        irq_ns: row.get(at + 3)?,
        softirq_ns: row.get(at + 4)?,
        idle_ns: row.get(at + 5)?,
        iowait_ns: row.get(at + 6)?,
        steal_ns: row.get(at + 7)?,
        guest_ns: row.get(at + 8)?,
    })
}

/// Rows with the interval that each belongs to.
fn parts<T>(
    connection: &Connection,
    query: &str,
    span: &Span,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<(u64, T)>> {
    let mut select = connection.prepare(query)?;
    select.query_map([span.start, span.end], |row| Ok((row.get(0)?, read(row)?)))?.collect()
}

/// Moves parts, which are ordered by interval, into their intervals. A part without its interval is
/// damage, because both are written in one transaction.
fn attach<T>(
    intervals: &mut [Interval],
    parts: Vec<(u64, T)>,
    list: impl Fn(&mut Interval) -> &mut Vec<T>,
) -> rusqlite::Result<()> {
    let mut at = 0;
    for (index, part) in parts {
        while intervals.get(at).is_some_and(|interval| interval.index < index) {
            at += 1;
        }
        match intervals.get_mut(at) {
            Some(interval) if interval.index == index => list(interval).push(part),
            _ => return Err(rusqlite::Error::QueryReturnedNoRows),
        }
    }
    Ok(())
}
