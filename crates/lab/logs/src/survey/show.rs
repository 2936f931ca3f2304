//! A survey as text: what the log is, rates, latencies, classes, time, files, bad lines.

use std::collections::BTreeMap;
use std::fmt;

use super::{Bin, ClassCount, Latency, Survey};

/// Most rows of requests by time.
const ROWS_MAX: usize = 24;

/// Width of a bar, columns.
const BAR_COLUMNS: f64 = 40.0;

impl fmt::Display for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for cause in &self.causes {
            writeln!(f, "problem  {cause}")?;
        }
        let files = self.files.len();
        let others = [(self.blank, "blank or comments"), (self.events, "events, not requests")];
        let others = others.into_iter().filter(|(lines, _)| *lines > 0);
        writeln!(
            f,
            "{} requests in {} lines ({} not understood{}) of {files} file{}",
            grouped(self.requests),
            grouped(self.lines),
            grouped(self.bad),
            others.map(|(n, what)| format!(", {} {what}", grouped(n))).collect::<String>(),
            if files == 1 { "" } else { "s" }
        )?;
        writeln!(f, "format   {}: {}", self.format, self.declares)?;
        if let (Some(first), Some(last)) = (self.first_ns, self.last_ns) {
            writeln!(f, "time     {} to {} UTC", date(first / NS_PER_S), date(last / NS_PER_S))?;
        }
        self.rates(f)?;
        if self.bytes > 0 {
            let each = self.bytes as f64 / self.requests.max(1) as f64;
            writeln!(f, "bytes    {}, {} a request", size(self.bytes as f64), size(each))?;
        }
        match &self.latency {
            Some(l) => writeln!(
                f,
                "latency  p50 {}  p90 {}  p99 {}  p99.9 {}  max {}  mean {}  ({} known)",
                l.shown(l.p50_us),
                l.shown(l.p90_us),
                l.shown(l.p99_us),
                l.shown(l.p999_us),
                l.shown(l.max_us),
                if l.mean_us > 0.0 { duration(l.mean_us) } else { l.shown(0) },
                grouped(l.count)
            )?,
            None if self.requests == 0 => {}
            None if self.declares.contains("with elapsed") => {
                writeln!(f, "latency  unknown for every request")?
            }
            None => match &self.hint {
                Some(hint) => writeln!(f, "latency  {hint}")?,
                None => writeln!(f, "latency  not in this format")?,
            },
        }
        self.by_class(f)?;
        self.by_time(f)?;
        self.by_file(f)?;
        for line in &self.bad_lines {
            writeln!(f, "bad      {} at byte {}: {}", line.path.display(), line.offset, line.text)?;
        }
        let rate = self.text_bytes as f64 / self.took_s.max(1e-9);
        write!(
            f,
            "read     {} in {:.2} s, {}/s",
            size(self.text_bytes as f64),
            self.took_s,
            size(rate)
        )
    }
}

/// Selects one word of a class.
type Word = fn(&ClassCount) -> &'static str;

impl Latency {
    /// A latency of zero is below the grain of the log.
    fn shown(&self, us: u64) -> String {
        match (us, self.grain_us) {
            (0, 1_000_000..) => "<1 s".to_owned(),
            (0, 1000..) => "<1 ms".to_owned(),
            (0, _) => "<1 us".to_owned(),
            (us, _) => duration(us as f64),
        }
    }
}

impl Survey {
    fn rates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(mean), Some(peak)) = (self.mean_rate, self.peak) else { return Ok(()) };
        let width = match self.peak_width_s {
            1 => "second",
            60 => "minute",
            3600 => "hour",
            _ => "day",
        };
        writeln!(
            f,
            "rate     mean {}/s, peak {}/s in the {width} from {}",
            number(mean),
            number(peak.requests as f64 / self.peak_width_s as f64),
            date(peak.start_s)
        )
    }

    fn by_class(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by: [(&str, Word); 4] = [
            ("outcome", |c| c.outcome),
            ("method", |c| c.method),
            ("size", |c| c.size),
            ("tls", |c| c.tls),
        ];
        for (name, of) in by {
            let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
            for class in &self.classes {
                *counts.entry(of(class)).or_default() += class.requests;
            }
            // Not in this format at all.
            if counts.keys().all(|word| *word == "-") {
                continue;
            }
            let mut counts: Vec<_> = counts.into_iter().collect();
            counts.sort_by_key(|&(_, requests)| std::cmp::Reverse(requests));
            let shares = counts.iter().map(|(word, requests)| {
                let word = if *word == "-" { "unknown" } else { word };
                let percent = 100.0 * *requests as f64 / self.requests.max(1) as f64;
                format!("{word} {} ({})", grouped(*requests), percentage(percent))
            });
            writeln!(f, "{name:<9}{}", shares.collect::<Vec<_>>().join("  "))?;
        }
        Ok(())
    }

    /// Merges bins until a screen can show them.
    fn by_time(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(first), Some(last)) = (self.bins.first(), self.bins.last()) else {
            return Ok(());
        };
        let widths = [1, 10, 60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400];
        let fits = |width: &&i64| {
            let rows = last.start_s.div_euclid(**width) - first.start_s.div_euclid(**width) + 1;
            **width >= self.bin_width_s && rows <= ROWS_MAX as i64
        };
        let longest = (last.start_s - first.start_s) / (ROWS_MAX as i64 - 1) + 1;
        let width = widths.iter().find(fits).copied().unwrap_or(longest);
        let mut rows: BTreeMap<i64, u64> = BTreeMap::new();
        for Bin { start_s, requests } in &self.bins {
            *rows.entry(start_s.div_euclid(width)).or_default() += requests;
        }
        let most = rows.values().copied().max().unwrap_or(1) as f64;
        for (row, requests) in rows {
            let bar = (requests as f64 / most * BAR_COLUMNS).round() as usize;
            writeln!(
                f,
                "{}  {:>13}  {:>10}/s  {}",
                date(row * width),
                grouped(requests),
                number(requests as f64 / width as f64),
                "#".repeat(bar)
            )?;
        }
        Ok(())
    }

    fn by_file(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            write!(
                f,
                "file     {} ({}): {} lines",
                file.path.display(),
                file.packed,
                grouped(file.lines)
            )?;
            if file.bad > 0 {
                write!(f, ", {} not understood", grouped(file.bad))?;
            }
            if let (Some(first), Some(last)) = (file.first_ns, file.last_ns) {
                write!(f, ", {} to {}", date(first / NS_PER_S), date(last / NS_PER_S))?;
            }
            if let Some(format) = file.format.as_ref().filter(|format| **format != self.format) {
                write!(f, ", format {format}")?;
            }
            writeln!(f)?;
            if let Some(torn) = &file.torn {
                writeln!(f, "torn     {}: {torn}", file.path.display())?;
            }
        }
        Ok(())
    }
}

const NS_PER_S: i64 = 1_000_000_000;

/// `2015-05-17 10:05:03`, from seconds since the epoch.
pub(crate) fn date(seconds: i64) -> String {
    drawing::format::instant(seconds.saturating_mul(NS_PER_S))
}

/// `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    drawing::format::thousands(number as f64)
}

fn number(value: f64) -> String {
    if value >= 100.0 {
        grouped(value.round() as u64)
    } else if value >= 1.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.3}")
    }
}

fn percentage(percent: f64) -> String {
    if percent > 0.0 && percent < 0.1 { "<0.1 %".to_owned() } else { format!("{percent:.1} %") }
}

fn size(bytes: f64) -> String {
    for (unit, name) in [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")] {
        if bytes >= unit {
            return format!("{:.3} {name}", bytes / unit);
        }
    }
    format!("{bytes:.0} B")
}

fn duration(us: f64) -> String {
    if us >= 1e6 {
        format!("{:.2} s", us / 1e6)
    } else if us >= 1e3 {
        format!("{:.1} ms", us / 1e3)
    } else {
        format!("{us:.0} us")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_and_numbers_are_human_readable() {
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(951_868_799), "2000-02-29 23:59:59");
        assert_eq!(date(1_798_761_600), "2027-01-01 00:00:00");
        assert_eq!(date(-1), "1969-12-31 23:59:59");
        assert_eq!((grouped(1_234_567), grouped(12)), ("1,234,567".to_owned(), "12".to_owned()));
        assert_eq!((size(2.5e9), duration(1500.0)), ("2.500 GB".to_owned(), "1.5 ms".to_owned()));
    }
}
