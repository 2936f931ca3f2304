//! What a switchback comes to, as text.

use regress::{Switchback, SwitchbackVerdict};

use super::{Found, Period};

/// No more rounds than this are recommended: beyond, something else is wrong.
const ROUNDS_MAX: f64 = 500.0;

/// The verdict's reason, in one line.
pub(super) fn why(cost: &Switchback) -> String {
    let margin = 100.0 * cost.margin;
    let told = |word: &str| {
        let change = 100.0 * (cost.ratio - 1.0).abs();
        format!("a request costs {change:.1} % {word} CPU time ({})", percents(cost))
    };
    match cost.verdict {
        SwitchbackVerdict::More => told("more"),
        SwitchbackVerdict::Less => told("less"),
        SwitchbackVerdict::NoChange => {
            format!("CPU time a request is the same within {margin:.0} % ({})", percents(cost))
        }
        SwitchbackVerdict::NotTold => {
            let more = rounds_needed(cost).map_or_else(
                || "let periods be longer".to_owned(),
                |rounds| format!("some {rounds} rounds might"),
            );
            format!(
                "neither a change nor its absence within {margin:.0} % can be shown ({}): {more}",
                percents(cost)
            )
        }
    }
}

fn percents(found: &Switchback) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!("{:+.1} to {:+.1} %", percent(found.low), percent(found.high))
}

/// Rounds after which the interval would be as wide as the margin; `None` if they are too many.
fn rounds_needed(cost: &Switchback) -> Option<usize> {
    // Twice the sd is the quantile of so many rounds.
    let rounds = (2.0 * cost.sd_of_round / cost.margin).powi(2).max(cost.rounds as f64 * 2.0);
    (rounds <= ROUNDS_MAX).then(|| (rounds / 2.0).ceil() as usize * 2)
}

/// The whole text.
pub(super) fn text(found: &Found) -> String {
    let driven = found.rounds.iter().all(|round| round.a.median_us.is_some());
    let mut rows = vec![head(driven)];
    for round in &found.rounds {
        let mut cells = vec![round.number.to_string(), format!("{:?}", round.first)];
        cells.extend(pair(&round.a, &round.b, |period| format!("{:.2}", period.us_per_request)));
        cells.push(format!("{:.3}", round.ratio));
        cells.extend(pair(&round.a, &round.b, |period| format!("{:.0}", period.rate)));
        if driven {
            let ms = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{:.3}", us / 1e3));
            cells.extend(pair(&round.a, &round.b, |period| ms(period.median_us)));
            cells.extend(pair(&round.a, &round.b, |period| ms(period.p99_us)));
        }
        rows.push(cells);
    }
    let mut text = format!("A  {}\nB  {}\n\n", line(&found.a), line(&found.b));
    text.push_str(&columns(&rows));
    text.push('\n');
    let mut sentence = |what: &str, of: &Switchback| {
        text.push_str(&format!(
            "{what:<16}B is {:.3} times A ({:.3} to {:.3}, {:.0} %), p = {:.4} of {} rounds\n",
            of.ratio,
            of.low,
            of.high,
            100.0 * of.level,
            of.p,
            of.rounds
        ));
    };
    sentence("CPU a request", &found.cost);
    for (what, of) in [("median latency", &found.median), ("99 % latency", &found.p99)] {
        if let Some(of) = of {
            sentence(what, of);
        }
    }
    let verdict = match found.cost.verdict {
        SwitchbackVerdict::More => "B costs more",
        SwitchbackVerdict::Less => "B costs less",
        SwitchbackVerdict::NoChange => "no change",
        SwitchbackVerdict::NotTold => "cannot tell",
    };
    text.push_str(&format!("\n{verdict}: {}\n", found.why));
    for remark in &found.remarks {
        text.push_str(&format!("but: {remark}\n"));
    }
    text
}

fn head(driven: bool) -> Vec<String> {
    let mut head = vec!["round", "first", "A, us/request", "B", "B/A", "A, requests/s", "B"];
    if driven {
        head.extend(["A, median ms", "B", "A, 99 % ms", "B"]);
    }
    head.into_iter().map(str::to_owned).collect()
}

fn pair(a: &Period, b: &Period, cell: impl Fn(&Period) -> String) -> [String; 2] {
    [cell(a), cell(b)]
}

/// A command on one line.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Columns with their cells to the right.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.first().map_or(0, Vec::len);
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        text.push_str(&cells.collect::<Vec<_>>().join("  "));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use regress::SwitchbackTerms;

    use super::*;

    fn of(rounds: &[(f64, f64)]) -> Switchback {
        let terms = SwitchbackTerms { level: 0.95, margin: 0.05, seed: 1 };
        regress::switchback(rounds, &terms).unwrap()
    }

    #[test]
    fn each_verdict_has_its_words() {
        let near = [1.0, 1.01, 0.99, 1.0, 1.005, 0.995, 1.0, 1.01];
        let times = |by: f64| near.map(|a| (a, by + (1.0 - a) / 2.0));
        assert!(why(&of(&times(1.25))).starts_with("a request costs 24.8 % more"));
        assert!(why(&of(&times(1.25))).contains("% more CPU time (+2"));
        assert!(why(&of(&times(0.8))).contains("% less CPU time (-2"));
        assert!(why(&of(&times(1.0))).contains("the same within 5 % (-"));
        let wild = [0.8, 1.3, 0.9, 1.2, 0.7, 1.25, 1.0, 1.1].map(|a| (a, 1.0));
        let told = why(&of(&wild));
        assert!(told.contains("can be shown") && told.contains("rounds might"), "{told}");
    }

    #[test]
    fn cells_stand_under_their_heads() {
        let rows = [["round", "B"], ["1", "10.25"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(columns(&rows), "round      B\n    1  10.25\n");
        assert_eq!(line("a\nb"), "a b");
    }
}
