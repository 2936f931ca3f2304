//! Checks of the readers of logs, for the fuzz target and for the tests that replay its corpus.
//!
//! Lines of logs contain what strangers chose, and format strings what operators typed. Whatever
//! they are, nothing panics, and what is parsed makes sense.

use crate::{
    Format, FormatChoice, Joiner, LINE_BYTES_MAX, Line, LogFormat, Request, Stamps, advice,
};

/// Target `record_logs`, with the checks of `record`: the bytes as lines of a log, as a format
/// string followed by lines, and as an archive.
pub fn lines(data: &[u8]) {
    format_strings(data);
    #[cfg(feature = "survey")]
    crate::survey::zip::check(data);
    let (mut stamps, mut joiner) = (Stamps::default(), Joiner::default());
    for line in data.split(|&byte| byte == b'\n') {
        if let Some(whole) = joiner.push(line) {
            assert!(whole.len() <= line.len().max(LINE_BYTES_MAX + 1), "it is bounded");
        }
        let understood: Vec<_> =
            LogFormat::ALL.iter().map(|format| format.parse(line, &mut stamps)).collect();
        for (format, request) in LogFormat::ALL.into_iter().zip(&understood) {
            // The remembered last stamp must not change anything.
            assert_eq!(*request, format.parse(line, &mut Stamps::default()), "{format}");
            if let Some(request) = request {
                check(format, request);
            }
        }
        let of = |wanted| {
            let at = LogFormat::ALL.iter().position(|format| *format == wanted);
            understood[at.expect("each format is in the list")]
        };
        let (combined, common) = (of(LogFormat::Combined), of(LogFormat::Common));
        assert!(combined.is_none() || combined == common, "the longer form is also the shorter");
        let first = LogFormat::ALL.into_iter().zip(&understood).find(|(_, found)| found.is_some());
        let detected = Format::detect(line, &mut stamps);
        if let Some((format, _)) = first.filter(|_| !matches!(line.first(), Some(b'{' | b'#'))) {
            assert_eq!(detected, Some(format.into()));
        }
        whole(line, detected, &mut stamps);
    }
}

/// Parses the first line as a format, as typed (`nginx:$msec ...`) and as a string of each dialect,
/// and the others as lines of it.
fn format_strings(data: &[u8]) {
    let mut lines = data.split(|&byte| byte == b'\n');
    let Some(first) = lines.next().and_then(|first| std::str::from_utf8(first).ok()) else {
        return;
    };
    for prefix in ["", "nginx:", "squid:", "apache:", "json:"] {
        let choice = match format!("{prefix}{first}").parse::<FormatChoice>() {
            Ok(choice) => choice,
            Err(error) => {
                assert!(error.contains(" format"), "it says what is wrong: {error}");
                continue;
            }
        };
        let mut stamps = Stamps::default();
        for line in lines.clone() {
            let Some(format) = choice.detect(line, &mut stamps) else { continue };
            let request = format.parse(line, &mut stamps);
            assert_eq!(request, format.parse(line, &mut Stamps::default()), "{format}");
            if let Some(request) = request {
                forward(&format.to_string(), &request);
            }
        }
    }
}

/// A line with whatever is put before it: what is read does not depend on the lines before, and a
/// line from which a format was detected is a request in it, or names its columns.
fn whole(line: &[u8], detected: Option<Format>, stamps: &mut Stamps) {
    let _ = advice(line);
    let squid = Format::from(LogFormat::Squid);
    let haproxy = Format::from(LogFormat::Haproxy);
    for format in [squid, haproxy].into_iter().chain(detected.clone()) {
        let read = format.read(line, stamps);
        assert_eq!(read, format.read(line, &mut Stamps::default()), "{format}");
        if let Line::Request(request) = read {
            forward(&format.to_string(), &request);
        }
    }
    if let Some(format) = detected {
        let read = format.read(line, stamps);
        let names_columns = matches!(read, Line::Blank) && line.contains(&b'#');
        assert!(names_columns || matches!(read, Line::Request(_)), "{format}: {read:?}");
    }
}

fn forward(format: &str, request: &Request) {
    assert!(request.start_ns <= request.end_ns, "{format}: it ends before it begins");
    assert!((request.start_ns..=request.end_ns).contains(&request.last_ns()), "{format}");
}

fn check(format: LogFormat, request: &Request) {
    forward(format.as_str(), request);
    let life_ns = request.end_ns - request.start_ns;
    let elapsed_ns = request.elapsed_us.map_or(0, |us| us.cast_signed() * 1000);
    // A stamp of whole seconds is anywhere in its second. Some lines of such a format have a
    // fraction.
    let coarse = format.grain_ns() >= 1_000_000_000;
    let slack_ns = if coarse { [0, 1_000_000_000] } else { [0, 0] };
    assert!(slack_ns.contains(&(life_ns - elapsed_ns)), "{format}: {life_ns}, {elapsed_ns}");
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_corpus() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/fuzz/corpus/record_logs");
        let (mut inputs, mut understood, mut by_string) = (0, 0, 0);
        for entry in std::fs::read_dir(corpus).expect("the corpus is checked in") {
            let path = entry.expect("a listed file").path();
            let bytes = std::fs::read(path).expect("a readable file");
            understood += lines_understood(&bytes);
            by_string += lines_by_format_string(&bytes);
            // Every prefix of an input is an input too.
            (0..=bytes.len()).for_each(|end| lines(&bytes[..end]));
            inputs += 1;
        }
        assert!(inputs >= 10 && understood >= 8, "the corpus is gone: {inputs}, {understood}");
        assert!(by_string >= 10, "format strings are gone: {by_string}");
    }

    /// How many of the lines are parsed by the format in the first line.
    fn lines_by_format_string(data: &[u8]) -> usize {
        let mut lines = data.split(|&byte| byte == b'\n');
        let first = lines.next().and_then(|first| std::str::from_utf8(first).ok()).unwrap_or("");
        let Ok(choice) = first.parse::<FormatChoice>() else { return 0 };
        let mut stamps = Stamps::default();
        let format = lines.clone().find_map(|line| choice.detect(line, &mut stamps));
        let Some(format) = format else { return 0 };
        lines.filter(|line| format.parse(line, &mut stamps).is_some()).count()
    }

    /// How many of the lines some format can parse.
    fn lines_understood(data: &[u8]) -> usize {
        let mut stamps = Stamps::default();
        let lines = data.split(|&byte| byte == b'\n');
        lines.filter(|line| Format::detect(line, &mut stamps).is_some()).count()
    }
}
