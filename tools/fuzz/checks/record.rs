//! Checks of the recorder's parsers, for the fuzz target and for the tests that replay its corpus.
//!
//! Pages of metrics and files of /proc contain what strangers chose. Whatever they are, nothing
//! panics, and what is parsed makes sense.

use crate::counter::MetricUrl;
use crate::{procfs, resources};

/// Target `record_logs`, with the checks of `logs`: the bytes as a page of metrics, and as files of
/// /proc.
pub fn files(data: &[u8]) {
    let metric = "http://h/#m_total{a=\"b\"}".parse::<MetricUrl>();
    let series = metric.expect("it is one").read(data);
    assert!(series.values().all(|value| value.is_finite() && *value >= 0.0), "a page of metrics");
    if let Some(stat) = procfs::stat(data) {
        assert!(stat.name.len() <= 3 * data.len(), "a name is part of the file");
    }
    let _ = (procfs::schedstat_ns(data), procfs::switches(data), procfs::only_cpu(data));
    for (kind, _) in resources::SOURCES {
        assert!(resources::counters(kind, data).len() <= data.len(), "each is part of the file");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_corpus() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/fuzz/corpus/record_logs");
        let mut inputs = 0;
        for entry in std::fs::read_dir(corpus).expect("the corpus is checked in") {
            let bytes = std::fs::read(entry.expect("a listed file").path()).expect("readable");
            // Every prefix of an input is an input too.
            (0..=bytes.len()).for_each(|end| files(&bytes[..end]));
            inputs += 1;
        }
        assert!(inputs >= 10, "the corpus is gone: {inputs}");
    }
}
