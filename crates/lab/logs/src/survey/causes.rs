//! What is wrong with a log, in sentences that name the cause and what to do.
//!
//! They come before the figures, because they explain them: a log without a request has no figures,
//! and a log whose stamps are an hour off belongs to no recording.

use super::show::{date, grouped};
use std::path::PathBuf;

use super::{FileSurvey, Survey};
use crate::formats::advice;
use crate::zone;

/// A greater share of lines that are not understood is named.
const BAD_SHARE_MAX: f64 = 0.01;

const NS_PER_S: i64 = 1_000_000_000;

/// Shows a line, redacted or not.
type Sample<'s> = &'s dyn Fn(&[u8]) -> String;

/// The causes, the one that explains most first.
pub(super) fn of(
    survey: &Survey,
    first_bad: Option<&[u8]>,
    first_event: Option<&[u8]>,
    cut_at: Option<(usize, u64)>,
    archives: &[PathBuf],
    sample: Sample<'_>,
) -> Vec<String> {
    let mut causes = Vec::new();
    causes.extend(no_requests(survey, first_bad.or(first_event), sample));
    if survey.requests > 0 && survey.bad as f64 > BAD_SHARE_MAX * survey.lines as f64 {
        causes.extend(bad_lines(survey, first_bad, sample));
    }
    causes.extend(cut_at.map(|(bytes, lines)| {
        format!(
            "{} of the lines that are not understood are {} bytes long: syslog or the server has \
             cut them. Allow longer lines (HAProxy: log ... len 8192; rsyslog: $MaxMessageSize \
             64k)",
            grouped(lines),
            grouped(bytes as u64)
        )
    }));
    causes.extend(archives.iter().map(|path| {
        let file = path.display();
        format!(
            "{file} is a tar archive: read the files in it with tar -xOf FILE | plimsoll logs -"
        )
    }));
    causes.extend(survey.files.iter().filter_map(off_by_a_zone));
    causes
}

/// A log cannot have stamps that are later than its last change. If the difference is one of time
/// zones, that is the cause. If the stamps are earlier, the log may have been quiet.
fn off_by_a_zone(file: &FileSurvey) -> Option<String> {
    let ahead_ns = file.last_ns? - file.changed_ns?;
    (ahead_ns > 0 && zone::is_of_zones(ahead_ns)).then(|| {
        format!(
            "the last stamp of {}, {} UTC, is {} after the file was last changed: its times are in \
             another time zone than they say or, without a zone, than this machine's. Run \
             plimsoll logs with TZ set to the server's zone",
            file.path.display(),
            date(file.last_ns.unwrap_or(0) / NS_PER_S),
            zone::length(ahead_ns)
        )
    })
}

fn no_requests(survey: &Survey, first: Option<&[u8]>, sample: Sample<'_>) -> Option<String> {
    if survey.requests > 0 {
        return None;
    }
    Some(match (survey.lines, first) {
        (0, _) => {
            "the log is empty: nothing was requested, or the server logs elsewhere".to_owned()
        }
        (_, None) => "no line is a request: all are blank or comments. The access log of this \
                      server may be another file"
            .to_owned(),
        (_, Some(line)) => format!("no line is a request. {}", first_line(survey, line, sample)),
    })
}

fn bad_lines(survey: &Survey, first_bad: Option<&[u8]>, sample: Sample<'_>) -> Option<String> {
    let percent = 100.0 * survey.bad as f64 / survey.lines as f64;
    let first = first_line(survey, first_bad?, sample);
    Some(format!(
        "{percent:.1} % of the lines ({} of {}) are not in the format {}, and are missing in all \
         figures. {first}",
        grouped(survey.bad),
        grouped(survey.lines),
        survey.format
    ))
}

/// The first line that was not understood, and what it is.
fn first_line(survey: &Survey, line: &[u8], sample: Sample<'_>) -> String {
    let advice = advice(line);
    let kind = if survey.bad > 0 { "The first that is not understood" } else { "The first event" };
    format!("{kind}: {} - {advice}", sample(line))
}
