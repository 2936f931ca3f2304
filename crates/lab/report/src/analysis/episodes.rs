//! Turns of the server's event loop, and episodes: what a thread does from a wake to its next
//! sleep.

use regress::{Marginal, Sums};
use serde::Serialize;
use trial::Trial;
use trial::episodes::{CLASS_MAX, EpisodeRow, TurnRow};

use super::waits::lost;

/// The least number of events of each row of the table.
const ROWS_FROM: [u32; 9] = [0, 1, 2, 3, 4, 8, 16, 32, CLASS_MAX];

/// Episodes of intervals in which the server used less than this part of its highest use are cold.
const USE_MIN: f64 = 0.5;
/// Least part of the events in episodes with two and more: threads that block have one at a time.
const TOGETHER_MIN: f64 = 0.3;

/// Turns and episodes.
#[derive(Clone, Debug, Serialize)]
pub struct Episodes {
    /// Time in which they were counted, seconds.
    pub seconds: f64,
    /// Turns in that time, those of unfinished episodes included.
    pub turns: u64,
    /// Turns per second.
    pub turns_per_s: f64,
    /// Events per turn.
    pub events_per_turn: f64,
    /// Whole episodes.
    pub episodes: u64,
    /// Growth of an episode's CPU time with its events, over the episodes with events,
    /// microseconds per event. `None` if all of them have the same number.
    pub event_us: Option<f64>,
    /// Its standard error.
    pub event_us_se: Option<f64>,
    /// By number of events.
    pub by_events: Vec<EpisodesWithEvents>,
    /// What was lost, in one sentence.
    pub lost: String,
}

/// The episodes with a number of events.
#[derive(Clone, Debug, Serialize)]
pub struct EpisodesWithEvents {
    /// The least number of events.
    pub events_from: u32,
    /// The largest number; `None` without a bound.
    pub events_to: Option<u32>,
    /// Number of episodes.
    pub episodes: u64,
    /// Turns per episode.
    pub turns_per_episode: f64,
    /// Mean CPU time, microseconds.
    pub cpu_us: f64,
}

/// The turns and episodes of a trial; `None` if they were not counted.
pub(crate) fn episodes(trial: &Trial) -> Option<Episodes> {
    let sampled = trial.turns();
    if sampled.is_empty() {
        return None;
    }
    let seconds = sampled.iter().map(|row| row.sampled_ns).sum::<i64>() as f64 / 1e9;
    let turns: u64 = sampled.iter().map(|row| row.turns).sum();
    let events: u64 = sampled.iter().map(|row| row.events).sum();
    let with_events = trial.episodes().iter().filter(|row| row.class > 0);
    let line = with_events.map(sums).fold(Sums::default(), |all, sums| all + sums).line();
    let bounds = ROWS_FROM.into_iter().zip(ROWS_FROM.into_iter().skip(1).map(Some).chain([None]));
    let by_events = bounds.filter_map(|(from, below)| {
        let holds =
            |row: &&EpisodeRow| row.class >= from && below.is_none_or(|below| row.class < below);
        let rows: Vec<&EpisodeRow> = trial.episodes().iter().filter(holds).collect();
        let episodes: u64 = rows.iter().map(|row| row.episodes).sum();
        let each = |sum: f64| sum / episodes as f64;
        (episodes > 0).then(|| EpisodesWithEvents {
            events_from: from,
            events_to: below.map(|below| below - 1),
            episodes,
            turns_per_episode: each(rows.iter().map(|row| row.turns as f64).sum()),
            cpu_us: each(rows.iter().map(|row| row.cpu_ns as f64 / 1e3).sum()),
        })
    });
    Some(Episodes {
        seconds,
        turns,
        turns_per_s: turns as f64 / seconds,
        events_per_turn: events as f64 / turns as f64,
        episodes: trial.episodes().iter().map(|row| row.episodes).sum(),
        event_us: line.map(|line| line.slope),
        event_us_se: line.map(|line| line.se_slope),
        by_events: by_events.collect(),
        lost: lost(trial, "episodes: "),
    })
}

/// What one more request in an episode costs the server, CPU seconds, in the busier of these
/// intervals. `None` if episodes were not counted, or if those with several events are too few.
pub(super) fn marginal(trial: &Trial, rows: &[usize]) -> Option<Marginal> {
    let counted = |&row: &usize| {
        let interval = &trial.intervals()[row];
        let at =
            trial.turns().binary_search_by_key(&interval.index, |turns| turns.interval).ok()?;
        let seconds = interval.length_ns as f64 / 1e9;
        let used = interval.server?.total_ns as f64 / 1e9 / seconds;
        (seconds > 0.0).then(|| (trial.turns()[at], used, interval.requests / seconds))
    };
    let counted: Vec<(TurnRow, f64, f64)> = rows.iter().filter_map(counted).collect();
    let highest = counted.iter().map(|(_, used, _)| *used).fold(0.0, f64::max);
    let (mut requests, mut turns, mut events) = (0.0, 0.0, 0.0);
    let (mut xx, mut xy, mut all, mut together) = (0.0, 0.0, 0.0, 0.0);
    for (of_turns, _, rate) in counted.iter().filter(|(_, used, _)| *used >= USE_MIN * highest) {
        requests += rate * of_turns.sampled_ns as f64 / 1e9;
        turns += of_turns.turns as f64;
        events += of_turns.events as f64;
        let mut sums = Sums::default();
        let same = of_interval(trial.episodes(), of_turns.interval);
        for row in same.iter().filter(|row| (1..CLASS_MAX).contains(&row.class)) {
            // A mean over the class. The noise of CPU time grows with the events.
            let each = row.events as f64 / row.episodes as f64;
            let (n, cpu) = (row.episodes as f64 / each, row.cpu_ns as f64 / 1e9 / each);
            sums = sums
                + Sums { n, x: n * each, y: cpu, xx: n * each * each, xy: cpu * each, yy: 0.0 };
            all += row.events as f64;
            together += if row.class > 1 { row.events as f64 } else { 0.0 };
        }
        // Within each interval: a busier one has longer episodes, and a warmer CPU.
        if sums.n > 0.0 {
            xx += sums.xx - sums.x * sums.x / sums.n;
            xy += sums.xy - sums.x * sums.y / sums.n;
        }
    }
    let enough = requests > 0.0 && xx > 0.0 && together >= TOGETHER_MIN * all;
    let request = xy / xx * events / requests;
    (enough && request > 0.0).then_some(Marginal { request, turns: turns / requests })
}

/// The rows of one interval.
fn of_interval(rows: &[EpisodeRow], interval: u64) -> &[EpisodeRow] {
    let from = rows.partition_point(|row| row.interval < interval);
    let to = rows.partition_point(|row| row.interval <= interval);
    &rows[from..to]
}

/// The sums of CPU time, microseconds, on events.
fn sums(row: &EpisodeRow) -> Sums {
    Sums {
        n: row.episodes as f64,
        x: row.events as f64,
        y: row.cpu_ns as f64 / 1e3,
        xx: row.events_events,
        xy: row.events_cpu_ns / 1e3,
        yy: row.cpu_cpu_ns2 / 1e6,
    }
}
