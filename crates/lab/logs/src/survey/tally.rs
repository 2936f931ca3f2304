//! Counts of lines. Adding is cheap; each thread has its own table, and they are merged at the end.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use hdrhistogram::Histogram;

use super::{Bin, ClassCount, Latency, SHOWN_MAX, Survey};
use crate::formats::{Class, Format, Line, Request, Stamps};
use crate::tail::LINE_BYTES_MAX;

/// Most time bins kept. If a log has more, they become coarser. At 16 bytes each, plus the table's
/// free space, about 40 MB per thread.
const BINS_MAX: usize = 1 << 20;

/// Most bins in a survey.
const REPORTED_MAX: i64 = 1500;

/// Widths of bins, s. The last one is enough for any accepted time.
const WIDTHS_S: [i64; 4] = [1, 60, 3600, 86_400];

/// Lengths at which syslog and servers cut lines.
const CUTS: [usize; 6] = [480, 1024, 2048, 4096, 8192, 16_384];

/// Bytes kept of a bad line.
const SHOWN_BYTES_MAX: usize = 512;

const NS_PER_S: i64 = 1_000_000_000;

// 250 years of days fit.
const _: () = assert!(250 * 366 < BINS_MAX);

/// The counts of some lines.
pub(super) struct Tally {
    /// Lines: `lines == requests + bad + blank + events`.
    pub(super) lines: u64,
    requests: u64,
    pub(super) bad: u64,
    blank: u64,
    events: u64,
    /// Bad lines by those lengths at which servers and syslog cut.
    cut_lines: [u64; CUTS.len()],
    pub(super) text_bytes: u64,
    /// Whether the text ended in the middle of a line.
    pub(super) cut: bool,
    /// The first bad lines, with their offsets.
    pub(super) shown: Vec<(u64, Vec<u8>)>,
    /// The first event, with its offset.
    pub(super) event: Option<(u64, Vec<u8>)>,
    first_ns: i64,
    last_ns: i64,
    classes: Box<[(u64, u64)]>,
    bins: Bins,
    latency_us: Histogram<u64>,
    /// The longest and the sum, exactly. The histogram is exact to a thousandth.
    longest_us: u64,
    sum_us: u128,
    /// Whether some latency is no whole number of ms, or of s.
    below_ms: bool,
    below_s: bool,
    stamps: Stamps,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            lines: 0,
            requests: 0,
            bad: 0,
            blank: 0,
            events: 0,
            cut_lines: [0; CUTS.len()],
            text_bytes: 0,
            cut: false,
            shown: Vec::new(),
            event: None,
            first_ns: i64::MAX,
            last_ns: i64::MIN,
            classes: vec![(0, 0); Class::COUNT].into(),
            bins: Bins::default(),
            latency_us: Histogram::new(3).expect("three significant digits are allowed"),
            longest_us: 0,
            sum_us: 0,
            below_ms: false,
            below_s: false,
            stamps: Stamps::default(),
        }
    }
}

impl Tally {
    /// Counts the lines of a text that starts with a line and is at `offset` of the whole.
    pub(super) fn lines_of(&mut self, text: &[u8], offset: u64, format: Option<&Format>) {
        let mut begin = 0;
        for end in memchr::memchr_iter(b'\n', text) {
            self.line(&text[begin..end], offset + begin as u64, format);
            begin = end + 1;
        }
        if begin < text.len() {
            self.cut = true;
            self.line(&text[begin..], offset + begin as u64, format);
        }
    }

    fn line(&mut self, line: &[u8], offset: u64, format: Option<&Format>) {
        self.lines += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let read = match format {
            _ if line.len() > LINE_BYTES_MAX => Line::Bad,
            Some(format) => format.read(line, &mut self.stamps),
            None => Format::read_unknown(line, &mut self.stamps),
        };
        match read {
            Line::Request(request) => self.request(&request),
            Line::Blank => self.blank += 1,
            Line::Event => self.event_line(line, offset),
            Line::Bad => self.bad_line(line, offset),
        }
    }

    fn request(&mut self, request: &Request) {
        self.requests += 1;
        self.first_ns = self.first_ns.min(request.stamp_ns);
        self.last_ns = self.last_ns.max(request.stamp_ns);
        let class = &mut self.classes[request.class.index()];
        class.0 += 1;
        class.1 += request.bytes;
        self.bins.count(request.stamp_ns.div_euclid(NS_PER_S));
        if let Some(us) = request.elapsed_us {
            // `saturating_record` would not let it grow.
            self.latency_us.record(us).expect("a histogram grows to any life that is believed");
            self.longest_us = self.longest_us.max(us);
            self.sum_us += u128::from(us);
            self.below_ms |= us % 1000 != 0;
            self.below_s |= us % 1_000_000 != 0;
        }
    }

    #[cold]
    fn bad_line(&mut self, line: &[u8], offset: u64) {
        self.bad += 1;
        // With or without the newline.
        let cut = CUTS.iter().position(|&cut| line.len() == cut || line.len() + 1 == cut);
        if let Some(cut) = cut {
            self.cut_lines[cut] += 1;
        }
        if self.shown.len() < SHOWN_MAX {
            self.shown.push((offset, line[..line.len().min(SHOWN_BYTES_MAX)].to_vec()));
        }
    }

    #[cold]
    fn event_line(&mut self, line: &[u8], offset: u64) {
        self.events += 1;
        if self.event.is_none() {
            self.event = Some((offset, line[..line.len().min(SHOWN_BYTES_MAX)].to_vec()));
        }
    }

    /// The length at which most of the bad lines were cut, and their number.
    pub(super) fn cut_at(&self) -> Option<(usize, u64)> {
        let most = CUTS.into_iter().zip(self.cut_lines).max_by_key(|&(_, lines)| lines);
        most.filter(|&(_, lines)| lines > 0 && 2 * lines >= self.bad)
    }

    pub(super) fn first_ns(&self) -> Option<i64> {
        (self.first_ns <= self.last_ns).then_some(self.first_ns)
    }

    pub(super) fn last_ns(&self) -> Option<i64> {
        (self.first_ns <= self.last_ns).then_some(self.last_ns)
    }

    /// Merges the counts of another thread or another file.
    pub(super) fn add(&mut self, other: Tally) {
        self.lines += other.lines;
        self.requests += other.requests;
        self.bad += other.bad;
        self.blank += other.blank;
        self.events += other.events;
        self.cut_lines.iter_mut().zip(other.cut_lines).for_each(|(mine, more)| *mine += more);
        self.longest_us = self.longest_us.max(other.longest_us);
        self.sum_us += other.sum_us;
        self.below_ms |= other.below_ms;
        self.below_s |= other.below_s;
        self.text_bytes += other.text_bytes;
        self.cut |= other.cut;
        self.shown.extend(other.shown);
        self.shown.sort();
        self.shown.truncate(SHOWN_MAX);
        self.event = self.event.take().into_iter().chain(other.event).min();
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
        for (mine, more) in self.classes.iter_mut().zip(&other.classes) {
            mine.0 += more.0;
            mine.1 += more.1;
        }
        self.bins.add(other.bins);
        self.latency_us.add(&other.latency_us).expect("a histogram grows to another's values");
    }

    /// The latencies. A format in whole milliseconds writes 0 for anything shorter. Whole seconds
    /// are only believed to be the grain if there are some.
    fn latency(&self) -> Option<Latency> {
        let grain_us = match (self.below_ms, self.below_s) {
            (true, _) => 1,
            (false, false) if self.longest_us > 0 => 1_000_000,
            (false, _) => 1000,
        };
        let histogram = &self.latency_us;
        // No percentile is longer than the longest.
        let at = |quantile| histogram.value_at_quantile(quantile).min(self.longest_us);
        (!histogram.is_empty()).then(|| Latency {
            grain_us,
            count: histogram.len(),
            mean_us: self.sum_us as f64 / histogram.len() as f64,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.longest_us,
        })
    }

    /// The survey, without the parts that depend on the files.
    pub(super) fn survey(self, grain_ns: i64) -> Survey {
        let (first_ns, last_ns) = (self.first_ns(), self.last_ns());
        let requests = self.requests;
        assert_eq!(self.lines, requests + self.bad + self.blank + self.events, "each line is one");
        let span_ns = first_ns.zip(last_ns).map(|(first, last)| last - first + grain_ns);
        // Within a second there is no rate: it would be that of the clock's grain.
        let span_ns = span_ns.map(|ns| ns.max(NS_PER_S));
        let mut classes: Vec<_> =
            self.classes.iter().enumerate().filter(|(_, c)| c.0 > 0).collect();
        classes.sort_by_key(|&(index, &(requests, _))| (std::cmp::Reverse(requests), index));
        let bytes = classes.iter().map(|(_, class)| class.1).sum();
        let (peak, peak_width_s) = (self.bins.peak(), self.bins.width_s());
        let latency = self.latency();
        let (bins, bin_width_s) = self.bins.reported();
        Survey {
            lines: self.lines,
            requests,
            bad: self.bad,
            blank: self.blank,
            events: self.events,
            first_ns,
            last_ns,
            mean_rate: span_ns.map(|ns| requests as f64 / (ns as f64 / 1e9)),
            peak,
            peak_width_s,
            bins,
            bin_width_s,
            bytes,
            latency,
            classes: classes.into_iter().map(|(index, counts)| class(index, *counts)).collect(),
            text_bytes: self.text_bytes,
            ..Survey::default()
        }
    }
}

fn class(index: usize, (requests, bytes): (u64, u64)) -> ClassCount {
    let class = Class::of_index(index);
    ClassCount {
        outcome: class.outcome(),
        method: class.method(),
        size: class.size(),
        tls: class.tls(),
        requests,
        bytes,
    }
}

/// Requests by time, in bins that become coarser when there are too many.
///
/// Lines are almost in order, so the last used bin is kept outside the table.
#[derive(Default)]
struct Bins {
    /// An index into [`WIDTHS_S`].
    width: usize,
    last: (i64, u64),
    table: HashMap<i64, u64, BuildHasherDefault<Mix>>,
}

impl Bins {
    fn width_s(&self) -> i64 {
        WIDTHS_S[self.width]
    }

    fn count(&mut self, second: i64) {
        let bin = if self.width == 0 { second } else { second.div_euclid(self.width_s()) };
        if bin == self.last.0 {
            self.last.1 += 1;
        } else {
            self.flush();
            // With the current width, which may have changed.
            self.last = (second.div_euclid(self.width_s()), 1);
        }
    }

    /// Moves the last used bin into the table.
    fn flush(&mut self) {
        let last = std::mem::take(&mut self.last);
        self.put(last);
    }

    fn put(&mut self, (bin, requests): (i64, u64)) {
        if requests == 0 {
            return;
        }
        *self.table.entry(bin).or_default() += requests;
        if self.table.len() > BINS_MAX && self.width + 1 < WIDTHS_S.len() {
            self.coarsen(self.width + 1);
        }
    }

    /// Makes bins coarser. The last used bin must be in the table.
    fn coarsen(&mut self, width: usize) {
        let factor = WIDTHS_S[width] / self.width_s();
        self.width = width;
        for (bin, requests) in std::mem::take(&mut self.table) {
            *self.table.entry(bin.div_euclid(factor)).or_default() += requests;
        }
    }

    fn add(&mut self, mut other: Bins) {
        other.flush();
        self.flush();
        let width = self.width.max(other.width);
        for bins in [&mut *self, &mut other] {
            if bins.width < width {
                bins.coarsen(width);
            }
        }
        for bin in other.table {
            // `self` may become coarser during the loop.
            let factor = self.width_s() / WIDTHS_S[width];
            self.put((bin.0.div_euclid(factor), bin.1));
        }
    }

    fn peak(&self) -> Option<Bin> {
        let last = Some(self.last).filter(|last| last.1 > 0);
        let last = last.map(|(bin, more)| (bin, more + self.table.get(&bin).unwrap_or(&0)));
        let all = self.table.iter().map(|(&bin, &requests)| (bin, requests)).chain(last);
        let (bin, requests) =
            all.max_by_key(|&(bin, requests)| (requests, std::cmp::Reverse(bin)))?;
        Some(Bin { start_s: bin * self.width_s(), requests })
    }

    /// All bins in the finest width that gives few enough. Empty bins are left out.
    fn reported(mut self) -> (Vec<Bin>, i64) {
        self.flush();
        let (Some(&first), Some(&last)) = (self.table.keys().min(), self.table.keys().max()) else {
            return (Vec::new(), self.width_s());
        };
        let span_s = (last - first + 1) * self.width_s();
        let fits = |width: &usize| span_s / WIDTHS_S[*width] <= REPORTED_MAX;
        let width = (self.width..WIDTHS_S.len()).find(fits).unwrap_or(WIDTHS_S.len() - 1);
        if width > self.width {
            self.coarsen(width);
        }
        let width_s = self.width_s();
        let mut bins: Vec<_> = self.table.into_iter().collect();
        bins.sort_unstable();
        let reported = bins.iter().map(|&(bin, requests)| Bin { start_s: bin * width_s, requests });
        (reported.collect(), width_s)
    }
}

/// Hashes a bin by one multiplication: an attacker gains nothing by choosing stamps, and a table
/// has at most [`BINS_MAX`] of them.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The histogram did not grow, so every latency above 1 ms was shown as 1 ms.
    #[test]
    fn latencies_of_any_length_keep_their_value() {
        let format = Format::from(crate::formats::LogFormat::Squid);
        let mut tally = Tally::default();
        let longest_ms = crate::formats::ELAPSED_MS_MAX;
        let lives_ms = [0, 1, 5, 20, 100, 1_000, 60_000, 3_600_000, 86_400_000, longest_ms];
        for (at, ms) in lives_ms.iter().enumerate() {
            // Thread by thread: merging two histograms must not cut either.
            let mut one = Tally::default();
            let text =
                format!("1796000000.00{at} {ms:6} c TCP_MISS/200 5 GET http://a/ - H/- t/h\n");
            one.lines_of(text.as_bytes(), 0, Some(&format));
            tally.add(one);
        }
        let survey = tally.survey(1);
        let latency = survey.latency.expect("every line has one");
        assert_eq!((latency.count, survey.requests, survey.bad), (10, 10, 0));
        for (quantile, us) in [(latency.p50_us, 100_000u64), (latency.p90_us, 86_400_000_000)] {
            assert!(quantile.abs_diff(us) as f64 <= 0.001 * us as f64, "{quantile} for {us}");
        }
        assert_eq!(latency.max_us, longest_ms as u64 * 1000, "exactly");
        assert_eq!(latency.mean_us, lives_ms.iter().sum::<i64>() as f64 * 1000.0 / 10.0);
    }

    #[test]
    fn bins_become_coarser_and_lose_nothing() {
        let mut bins = Bins::default();
        let mut expected = 0;
        for second in 0..(BINS_MAX as i64 + 5000) {
            bins.count(second);
            bins.count(second);
            expected += 2;
        }
        assert_eq!(bins.width_s(), 60);
        let mut other = Bins::default();
        other.count(3);
        expected += 1;
        other.add(bins);
        assert_eq!(other.width_s(), 60);
        assert_eq!(other.peak(), Some(Bin { start_s: 0, requests: 121 }));
        let (reported, width_s) = other.reported();
        assert_eq!(
            (width_s, reported.iter().map(|bin| bin.requests).sum::<u64>()),
            (3600, expected)
        );
        assert!(reported.windows(2).all(|pair| pair[0].start_s < pair[1].start_s));
    }
}
