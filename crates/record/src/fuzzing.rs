//! What the fuzz target runs, and what the stable tests replay over the checked-in corpus.
//!
//! Lines of logs and files of /proc hold what strangers chose: whatever they are, nothing panics,
//! and what is understood makes sense. Never part of a recording.

use crate::logs::{LogFormat, Request, Stamps};
use crate::procfs;

/// Target `record_logs`: the bytes as lines of a log, and as files of /proc.
pub fn record_logs(data: &[u8]) {
    let mut kept = Stamps::default();
    for line in data.split(|&byte| byte == b'\n') {
        let understood: Vec<_> =
            LogFormat::ALL.iter().map(|format| format.parse(line, &mut kept)).collect();
        for (format, request) in LogFormat::ALL.into_iter().zip(&understood) {
            // What is remembered of the last line changes nothing.
            assert_eq!(*request, format.parse(line, &mut Stamps::default()), "{format}");
            if let Some(request) = request {
                check(format, request);
            }
        }
        let [_, _, combined, common] = understood[..] else { unreachable!("four formats") };
        assert!(combined.is_none() || combined == common, "the longer form is also the shorter");
        let first = LogFormat::ALL.into_iter().zip(&understood).find(|(_, found)| found.is_some());
        assert_eq!(LogFormat::detect(line, &mut kept), first.map(|(format, _)| format));
    }
    if let Some(stat) = procfs::stat(data) {
        assert!(stat.name.len() <= 3 * data.len(), "a name is part of the file");
    }
    let _ = (procfs::schedstat_ns(data), procfs::switches(data));
}

fn check(format: LogFormat, request: &Request) {
    assert!(request.start_ns <= request.end_ns, "{format}: it ends before it begins");
    assert!((request.start_ns..=request.end_ns).contains(&request.last_ns()), "{format}");
    let life_us = u64::try_from((request.end_ns - request.start_ns) / 1000).ok();
    match request.elapsed_us {
        Some(_) => assert_eq!(request.elapsed_us, life_us, "{format}"),
        None if format.has_elapsed() => assert_eq!(life_us, Some(0), "{format}: unknown"),
        None => assert_eq!(request.end_ns - request.start_ns, format.grain_ns(), "{format}"),
    }
}

/// How many of the lines some format understands.
pub fn lines_understood(data: &[u8]) -> usize {
    let mut stamps = Stamps::default();
    let lines = data.split(|&byte| byte == b'\n');
    lines.filter(|line| LogFormat::detect(line, &mut stamps).is_some()).count()
}
