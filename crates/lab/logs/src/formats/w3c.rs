//! The extended log format of the W3C, as IIS and CloudFront write it: lines of columns that a
//! `#Fields:` line names, separated by spaces or by tabs.
//!
//! ```text
//! #Fields: date time cs-method cs-uri-stem sc-status sc-bytes time-taken
//! 2026-11-28 10:00:00 GET /a 200 1024 15
//! ```
//!
//! Dates and times are in UTC and stamp the end, and for Kestrel the start. `time-taken` is in
//! milliseconds for IIS and for Kestrel, which writes a point. Otherwise it is in seconds if it
//! has a point (Tomcat, WebLogic) or the log is CloudFront's. Columns that do not matter are
//! skipped. If the columns change within a log, the new `#Fields` line counts as a bad line, and so
//! do the lines of another number of columns.

use super::pattern::elapsed_us;
use super::{Declared, Facts, FormatError, Instant, NS_PER_S, Request, Stamps};

/// Most columns of a line. CloudFront has 33.
const COLUMNS_MAX: usize = 128;

/// The line that names the columns.
const FIELDS: &[u8] = b"#Fields:";

/// The meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Column {
    Skipped,
    Date,
    Time,
    Status,
    Bytes,
    Method,
    Elapsed,
    Outcome,
    Protocol,
}

/// The columns of a log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Columns {
    columns: Box<[Column]>,
    /// Whether an elapsed time with a point is in seconds, and one without.
    seconds: [bool; 2],
    pub(super) declared: Declared,
}

impl Columns {
    /// The columns that a `#Fields:` line names.
    pub(super) fn of_line(line: &[u8]) -> Option<Columns> {
        let names = std::str::from_utf8(line.strip_prefix(FIELDS)?).ok()?;
        Columns::compile(names.trim()).ok()
    }

    /// Whether a line names other columns.
    pub(super) fn are_changed_by(&self, line: &[u8]) -> bool {
        line.starts_with(FIELDS)
            && Columns::of_line(line).is_none_or(|columns| columns.columns != self.columns)
    }

    /// Parses `date time cs-method sc-status`.
    pub(super) fn compile(names: &str) -> Result<Columns, FormatError> {
        let columns: Vec<Column> = names.split_ascii_whitespace().map(column).collect();
        let error = |what: &str, fix: &str| FormatError {
            dialect: "w3c",
            column: 1,
            found: String::new(),
            what: what.to_owned(),
            fix: fix.to_owned(),
        };
        if columns.len() > COLUMNS_MAX {
            return Err(error("too many columns", "give the names of the #Fields line"));
        }
        let has = |column| columns.contains(&column);
        if !(has(Column::Date) && has(Column::Time)) {
            let fix = "the columns date and time are needed, in the server's configuration too";
            return Err(error("it has no date or no time", fix));
        }
        if !(has(Column::Status) || has(Column::Method)) {
            let fix = "the column sc-status or cs-method is needed";
            return Err(error("its lines are no requests", fix));
        }
        // Only Microsoft's servers have these columns.
        let milliseconds = names.contains("s-computername") || names.contains("s-port");
        // Kestrel's client comes before the method, that of IIS after it.
        let client_first = names.find("c-ip") < names.find("cs-method") && names.contains("c-ip");
        let instant = match milliseconds && client_first {
            true => Instant::Start,
            false => Instant::End,
        };
        let declared = Declared {
            instant,
            grain_ns: NS_PER_S,
            elapsed: has(Column::Elapsed),
            text: format!("w3c:{names}"),
        };
        let seconds = [!milliseconds, names.contains("x-edge-")];
        Ok(Columns { columns: columns.into(), seconds, declared })
    }

    pub(super) fn parse(&self, line: &[u8], stamps: &mut Stamps) -> Option<Request> {
        // CloudFront separates by tabs, and its values have no spaces either.
        let mut values = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|v| !v.is_empty());
        let (mut date, mut time) = (&b""[..], &b""[..]);
        let (mut facts, mut elapsed) = (Facts::default(), None);
        for column in &self.columns {
            let value = values.next()?;
            match column {
                Column::Skipped => {}
                Column::Date => date = value,
                Column::Time => time = value,
                Column::Status => facts.take_status(value)?,
                Column::Bytes => facts.take_bytes(value)?,
                Column::Method => facts.take_method(value),
                Column::Outcome => facts.take_outcome(value),
                Column::Protocol => facts.take_tls(value),
                Column::Elapsed => {
                    let seconds = self.seconds[usize::from(!value.contains(&b'.'))];
                    elapsed = elapsed_us(value, if seconds { 1_000_000 } else { 1000 })?;
                }
            }
        }
        if values.next().is_some() {
            return None;
        }
        let stamp = stamps.utc(date, time)?;
        let instant = self.declared.instant;
        Some(Request::lived(stamp.ns, stamp.grain_ns, instant, elapsed, facts))
    }
}

fn column(name: &str) -> Column {
    match name {
        "date" => Column::Date,
        "time" => Column::Time,
        "sc-status" => Column::Status,
        "sc-bytes" => Column::Bytes,
        "cs-method" => Column::Method,
        "time-taken" => Column::Elapsed,
        "x-edge-result-type" => Column::Outcome,
        "cs-protocol" => Column::Protocol,
        _ => Column::Skipped,
    }
}
