//! When servers run out: the day on which their daily peak reaches their capacity.
//!
//! A group's peak is the largest sum of its servers' peaks in the same hour, and its capacity is
//! the sum of theirs, because a load balancer can move load between them. The trend, the season of
//! the week and the interval are those of [`regress::runs_out`], with the uncertainty of the
//! capacity. Errors of the servers' capacities are taken as common to them: they come from one
//! model.
//!
//! A date is only given if nearly all simulated futures reach the capacity ([`NEVER_MAX`]), because
//! a tenth of the groups that do not grow would seem to otherwise.

use std::collections::BTreeMap;

use regress::runs_out::{DAYS_MIN, Day, HORIZON_DAYS, RunsOut, RunsOutTerms, runs_out};
use report::format::{fixed, instant, percent, rate};
use report::sheet::{Rows, Sheet};
use serde::Serialize;

use crate::answer::{LEVEL, LeftOut, fact, left_out};
use crate::home::{Asked, Error, Home, Hour, ServerHours, ServerId};

/// A date is given only if at most this share of the futures does not reach the capacity.
pub const NEVER_MAX: f64 = 0.005;
/// A day counts if it has at least this part of the hours of the typical day, over all servers.
pub const DAY_PART_MIN: f64 = 0.75;
/// Simulated futures of a group, and of each server in it.
const FUTURES: [usize; 2] = [600, 200];
const DAY_S: i64 = 86_400;
const SEED: u64 = 1998;

/// The capacity of a server, requests/s, with its interval at [`LEVEL`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerCapacity {
    /// The server.
    pub server: ServerId,
    /// Its capacity.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl ServerCapacity {
    /// The sd of the logarithm; `None` if it is not known well enough for a forecast.
    fn sd(&self) -> Option<f64> {
        let width = (self.high / self.low).ln() / (2.0 * 1.96);
        let bounded = self.low > 0.0 && self.value > 0.0 && width.is_finite() && width >= 0.0;
        bounded.then_some(width)
    }
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Forecast {
    /// The groups, the first to run out first.
    pub groups: Vec<GroupForecast>,
    /// Servers without a known capacity.
    pub left_out: Vec<LeftOut>,
    /// Level of the intervals.
    pub level: f64,
}

/// A group of servers.
#[derive(Clone, Debug, Serialize)]
pub struct GroupForecast {
    /// Value of the label, or the server.
    pub name: String,
    /// Number of servers.
    pub servers: usize,
    /// Their capacity together, requests/s.
    pub capacity: f64,
    /// What is expected.
    pub outlook: Outlook,
    /// Days with a peak.
    pub days: usize,
    /// Days that have too few hours, and were left out.
    pub days_left_out: usize,
    /// The last day, seconds since the Unix epoch.
    pub last_day_s: i64,
    /// The fit and the simulation.
    pub fit: Option<RunsOut>,
    /// The server of the group that runs out first, if the load stays where it is.
    pub first_server: Option<FirstServer>,
}

/// What is expected of a group. Days begin at midnight UTC, in seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outlook {
    /// The peak was above the capacity on one of the last seven days.
    RanOut {
        /// The latest such day.
        day_s: i64,
    },
    /// The peak reaches the capacity.
    RunsOut {
        /// The day: the median.
        day_s: i64,
        /// Lower end of its interval.
        low_s: i64,
        /// Upper end; `None` is later than can be predicted.
        high_s: Option<i64>,
    },
    /// It does not, within so many days.
    Not {
        /// The number of days, which is a year if there are enough data.
        within_days: i64,
    },
    /// It cannot be said.
    CannotBeSaid {
        /// The reason.
        why: String,
        /// The day before which it is not expected.
        not_before_s: Option<i64>,
    },
}

/// A server of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstServer {
    /// The server.
    pub server: ServerId,
    /// The day (median), seconds since the Unix epoch.
    pub day_s: i64,
}

/// Predicts when servers run out. Groups are those of `asked.by`; without it each server is alone.
///
/// # Errors
/// Those of the home.
pub fn forecast(
    home: &dyn Home,
    asked: &Asked,
    capacities: &[ServerCapacity],
) -> Result<Forecast, Error> {
    let by_server: BTreeMap<&ServerId, &ServerCapacity> =
        capacities.iter().map(|known| (&known.server, known)).collect();
    let mut groups: BTreeMap<String, Vec<Member>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for of_server in home.hours(asked)? {
        let ServerHours { server, group, hours } = of_server;
        let Some((capacity, sd)) =
            by_server.get(&server).and_then(|known| Some((known.value, known.sd()?)))
        else {
            left_out.push(LeftOut { server, why: "its capacity is not known".to_owned() });
            continue;
        };
        let name = group.unwrap_or_else(|| server.to_string());
        groups.entry(name).or_default().push(Member { server, hours, capacity, sd });
    }
    let mut groups: Vec<GroupForecast> =
        groups.into_iter().map(|(name, members)| of_group(name, &members)).collect();
    groups.sort_by_key(|group| match &group.outlook {
        Outlook::RanOut { day_s } | Outlook::RunsOut { day_s, .. } => (0, *day_s),
        Outlook::CannotBeSaid { not_before_s, .. } => (1, not_before_s.unwrap_or(i64::MAX)),
        Outlook::Not { .. } => (2, 0),
    });
    Ok(Forecast { groups, left_out, level: LEVEL })
}

struct Member {
    server: ServerId,
    hours: Vec<Hour>,
    capacity: f64,
    sd: f64,
}

fn of_group(name: String, members: &[Member]) -> GroupForecast {
    let all: Vec<&Member> = members.iter().collect();
    let (days, days_left_out) = peaks(&all);
    let capacity: f64 = members.iter().map(|member| member.capacity).sum();
    let fit = predict(&days, &all, FUTURES[0]);
    let last_day_s = days.last().map_or(0, |day| day.day * DAY_S);
    let first_server = match members {
        [_] => None,
        _ => members
            .iter()
            .filter_map(|member| {
                let (days, _) = peaks(&[member]);
                let first = predict(&days, &[member], FUTURES[1])?.first[1]?;
                let day_s = (days.last()?.day + first) * DAY_S;
                Some(FirstServer { server: member.server.clone(), day_s })
            })
            .min_by_key(|first| first.day_s),
    };
    GroupForecast {
        name,
        servers: members.len(),
        capacity,
        outlook: outlook(&days, capacity, fit.as_ref()),
        days: days.len(),
        days_left_out,
        last_day_s,
        fit,
        first_server,
    }
}

/// The peak of each day over all of these servers, and how many days were left out.
fn peaks(members: &[&Member]) -> (Vec<Day>, usize) {
    let mut hours: BTreeMap<i64, f64> = BTreeMap::new();
    let mut days: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    for hour in members.iter().flat_map(|member| &member.hours) {
        *hours.entry(hour.start_s).or_default() += hour.peak_rate;
        days.entry(hour.start_s.div_euclid(DAY_S)).or_default().1 += 1.0;
    }
    for (start_s, sum) in hours {
        let peak = &mut days.entry(start_s.div_euclid(DAY_S)).or_default().0;
        *peak = peak.max(sum);
    }
    let typical = regress::median(&mut days.values().map(|(_, n)| *n).collect::<Vec<f64>>());
    let number = days.len();
    let whole: Vec<Day> = days
        .into_iter()
        .filter(|(_, (_, n))| *n >= DAY_PART_MIN * typical)
        .map(|(day, (peak, _))| Day { day, peak })
        .collect();
    let left_out = number - whole.len();
    (whole, left_out)
}

fn predict(days: &[Day], members: &[&Member], futures: usize) -> Option<RunsOut> {
    let capacity: f64 = members.iter().map(|member| member.capacity).sum();
    let sd = members.iter().map(|member| member.capacity * member.sd).sum::<f64>() / capacity;
    runs_out(days, &RunsOutTerms { capacity, capacity_sd: sd, level: LEVEL, futures, seed: SEED })
}

fn outlook(days: &[Day], capacity: f64, fit: Option<&RunsOut>) -> Outlook {
    let day_s = |day: i64| day * DAY_S;
    let cannot = |why: String, not_before_s| Outlook::CannotBeSaid { why, not_before_s };
    let (Some(last), Some(fit)) = (days.last(), fit) else {
        let n = days.len();
        return match n < DAYS_MIN {
            true => cannot(format!("{n} days of data, and {DAYS_MIN} are needed"), None),
            false => cannot("no two days are whole weeks apart".to_owned(), None),
        };
    };
    let above = |day: &&Day| day.peak >= capacity && day.day > last.day - 7;
    if let Some(day) = days.iter().rfind(above) {
        return Outlook::RanOut { day_s: day_s(day.day) };
    }
    let [low, middle, high] = fit.first.map(|ahead| ahead.map(|ahead| day_s(last.day + ahead)));
    match (low, middle) {
        (Some(low_s), Some(day_s)) if fit.never <= NEVER_MAX => {
            Outlook::RunsOut { day_s, low_s, high_s: high }
        }
        (None, _) => Outlook::Not { within_days: fit.horizon },
        (Some(_), _) if fit.growth[0] <= 0.0 && fit.growth[2] >= 0.0 => {
            cannot("the peaks do not clearly grow".to_owned(), low)
        }
        (Some(_), _) => {
            let reached = percent(100.0 * (1.0 - fit.never));
            let within = within(fit.horizon);
            cannot(format!("{reached} % of the simulated futures run out {within}"), low)
        }
    }
}

fn within(days: i64) -> String {
    if days >= HORIZON_DAYS { "within a year".to_owned() } else { format!("within {days} days") }
}

/// The date of an instant.
fn date(s: i64) -> String {
    instant(s.saturating_mul(1_000_000_000)).chars().take(10).collect()
}

/// The answer as text.
#[must_use]
pub fn sheet(answer: &Forecast) -> Sheet {
    let mut facts = sentences(&answer.groups);
    if answer.groups.is_empty() {
        facts.push(fact("Forecast", "cannot be said: no server has hours and a known capacity"));
    }
    facts.extend(left_out(&answer.left_out));
    let dates = |group: &GroupForecast| match &group.outlook {
        Outlook::RanOut { day_s } => [date(*day_s), "-".to_owned(), "-".to_owned()],
        Outlook::RunsOut { day_s, low_s, high_s } => {
            [date(*day_s), date(*low_s), high_s.map_or("later".to_owned(), date)]
        }
        Outlook::Not { .. } => ["no", "-", "-"].map(str::to_owned),
        Outlook::CannotBeSaid { not_before_s, .. } => {
            ["?".to_owned(), not_before_s.map_or("-".to_owned(), date), "-".to_owned()]
        }
    };
    let of_fit = |group: &GroupForecast, of: &dyn Fn(&RunsOut) -> String| {
        group.fit.as_ref().map_or("-".to_owned(), of)
    };
    let table = Rows::of(
        "Days on which the peak reaches the capacity",
        &answer.groups,
        &[
            ("<group", &|group: &&GroupForecast| group.name.clone()),
            ("<runs out", &|group| dates(group)[0].clone()),
            ("<earliest", &|group| dates(group)[1].clone()),
            ("<latest", &|group| dates(group)[2].clone()),
            ("peak/s", &|group| of_fit(group, &|fit| rate(fit.peak))),
            ("capacity/s", &|group| rate(group.capacity)),
            ("% a week", &|group| {
                of_fit(group, &|fit| fixed(100.0 * ((1.0 + fit.growth[1]).powi(7) - 1.0), 1))
            }),
            ("days", &|group| match group.days_left_out {
                0 => group.days.to_string(),
                more => format!("{} (-{more})", group.days),
            }),
        ],
        "Peak: expected on the busiest day of the last week. A date is the first day on which the \
         peak is above the capacity, if growth goes on as it did. Earliest and latest are the 95 % \
         interval from the trend, the noise and the capacity. Days in brackets have too few hours, \
         and were left out.",
    );
    let first = Rows::of(
        "The first server of each group",
        answer.groups.iter().filter_map(|group| Some((group, group.first_server.as_ref()?))),
        &[
            ("<group", &|(group, _): &(&GroupForecast, &FirstServer)| group.name.clone()),
            ("servers", &|(group, _)| group.servers.to_string()),
            ("<first", &|(_, first)| first.server.to_string()),
            ("<runs out", &|(_, first)| date(first.day_s)),
        ],
        "It runs out alone on that day, if its load is not moved to the others.",
    );
    let tables = [table, first].into_iter().filter(|table| !table.rows.is_empty()).collect();
    Sheet { title: "When servers run out".to_owned(), facts, tables }
}

/// The outlooks as sentences, those that run out first. Groups with the same outlook are together.
fn sentences(groups: &[GroupForecast]) -> Vec<(String, String)> {
    const NAMES: usize = 5;
    let mut found: Vec<((String, String), Vec<&str>)> = Vec::new();
    let mut dated = 0;
    for group in groups {
        let (label, text) = match &group.outlook {
            Outlook::RanOut { day_s } => {
                ("Ran out", format!("above the capacity on {}", date(*day_s)))
            }
            Outlook::RunsOut { day_s, low_s, high_s } => {
                let high = high_s.map_or("later".to_owned(), date);
                ("Runs out", format!("about {} ({} to {high})", date(*day_s), date(*low_s)))
            }
            Outlook::Not { within_days } => ("Does not", format!("not {}", within(*within_days))),
            Outlook::CannotBeSaid { why, .. } => ("Unknown", why.clone()),
        };
        if matches!(group.outlook, Outlook::RanOut { .. } | Outlook::RunsOut { .. }) {
            dated += 1;
            if dated > NAMES {
                continue;
            }
        }
        let what = fact(label, text);
        match found.iter_mut().find(|(other, _)| *other == what) {
            Some((_, names)) => names.push(&group.name),
            None => found.push((what, vec![&group.name])),
        }
    }
    let more = dated.saturating_sub(NAMES);
    let mut facts: Vec<(String, String)> = found
        .into_iter()
        .map(|((label, text), names)| {
            let others = if names.len() > NAMES { ", …" } else { "" };
            (label, format!("{}{others}: {text}", names[..names.len().min(NAMES)].join(", ")))
        })
        .collect();
    if more > 0 {
        facts.push(fact("Run out", format!("{more} more, in the table")));
    }
    facts
}
