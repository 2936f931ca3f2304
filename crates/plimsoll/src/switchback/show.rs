//! Formats the result of a switchback as text.

use command::output::{Align, aligned};
use regress::{Switchback, SwitchbackVerdict};

use super::{Found, Period};

/// More rounds than this are never recommended: something else is wrong then.
const ROUNDS_MAX: f64 = 500.0;

/// The verdict's reason, in one line.
pub(super) fn why(cost: &Switchback, at_saturation: Option<&Switchback>) -> String {
    match at_saturation {
        Some(found) => {
            format!("at this load, {}; at saturation, {}", of_one(cost), of_one(found))
        }
        None => of_one(cost),
    }
}

fn of_one(cost: &Switchback) -> String {
    let margin = 100.0 * cost.margin;
    let changed = |word: &str| {
        let change = 100.0 * (cost.ratio - 1.0).abs();
        format!("a request costs {change:.1} % {word} CPU time ({})", percents(cost))
    };
    match cost.verdict {
        SwitchbackVerdict::More => changed("more"),
        SwitchbackVerdict::Less => changed("less"),
        SwitchbackVerdict::NoChange => {
            format!("CPU time per request is the same within {margin:.0} % ({})", percents(cost))
        }
        SwitchbackVerdict::Inconclusive => {
            let advice = rounds_needed(cost).map_or_else(
                || "try longer periods".to_owned(),
                |rounds| format!("try about {rounds} rounds"),
            );
            format!(
                "neither a change nor its absence within {margin:.0} % can be shown ({}); {advice}",
                percents(cost)
            )
        }
    }
}

fn percents(found: &Switchback) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    format!("{:+.1} to {:+.1} %", percent(found.low), percent(found.high))
}

/// The rounds after which the interval would be as wide as the margin; `None` if too many.
fn rounds_needed(cost: &Switchback) -> Option<usize> {
    // For that many rounds, the quantile is nearly that of the normal distribution.
    let quantile = regress::student_t_quantile(0.5 + cost.level / 2.0, 1e6);
    let rounds = (quantile * cost.sd_of_round / cost.margin).powi(2).max(cost.rounds as f64 * 2.0);
    (rounds <= ROUNDS_MAX).then(|| (rounds / 2.0).ceil() as usize * 2)
}

/// The whole result.
pub(super) fn text(found: &Found) -> String {
    let driven = found.rounds.iter().all(|round| round.a.median_us.is_some());
    let held = found.at_saturation.is_some();
    let mut rows = vec![head(held, driven)];
    for round in &found.rounds {
        let mut cells = vec![round.number.to_string(), format!("{:?}", round.first)];
        cells.extend(pair(&round.a, &round.b, |period| format!("{:.2}", period.us_per_request)));
        cells.push(format!("{:.3}", round.ratio));
        if held {
            let ratio = round.ratio_at_saturation;
            cells.push(ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")));
        }
        cells.extend(pair(&round.a, &round.b, |period| format!("{:.0}", period.rate)));
        if driven {
            let ms = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{:.3}", us / 1e3));
            cells.extend(pair(&round.a, &round.b, |period| ms(period.median_us)));
            cells.extend(pair(&round.a, &round.b, |period| ms(period.p99_us)));
        }
        rows.push(cells);
    }
    let mut text = format!("A  {}\nB  {}\n\n", line(&found.a), line(&found.b));
    text.push_str(&aligned(&rows, Align::Right));
    text.push('\n');
    let mut sentence = |what: &str, of: &Switchback| {
        text.push_str(&format!(
            "{what:<16}B is {:.3} times A ({:.3} to {:.3}, {} %), p = {:.4} of {} rounds\n",
            of.ratio,
            of.low,
            of.high,
            100.0 * of.level,
            of.p,
            of.rounds
        ));
    };
    sentence("CPU per request", &found.cost);
    for (what, of) in [
        ("at saturation", &found.at_saturation),
        ("median latency", &found.median),
        ("99 % latency", &found.p99),
    ] {
        if let Some(of) = of {
            sentence(what, of);
        }
    }
    let verdict = match found.verdict {
        SwitchbackVerdict::More => "B costs more",
        SwitchbackVerdict::Less => "B costs less",
        SwitchbackVerdict::NoChange => "no change",
        SwitchbackVerdict::Inconclusive => "inconclusive",
    };
    text.push_str(&format!("\n{verdict}: {}\n", found.why));
    for remark in &found.remarks {
        text.push_str(&format!("but: {remark}\n"));
    }
    text
}

fn head(held: bool, driven: bool) -> Vec<String> {
    let mut head = vec!["round", "first", "A, us/request", "B", "B/A"];
    if held {
        head.push("at saturation");
    }
    head.extend(["A, requests/s", "B"]);
    if driven {
        head.extend(["A, median ms", "B", "A, 99 % ms", "B"]);
    }
    head.into_iter().map(str::to_owned).collect()
}

fn pair(a: &Period, b: &Period, cell: impl Fn(&Period) -> String) -> [String; 2] {
    [cell(a), cell(b)]
}

/// The command on one line.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
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
    fn each_verdict_is_explained() {
        let near = [1.0, 1.01, 0.99, 1.0, 1.005, 0.995, 1.0, 1.01];
        let times = |by: f64| near.map(|a| (a, by + (1.0 - a) / 2.0));
        assert!(of_one(&of(&times(1.25))).starts_with("a request costs 24.8 % more"));
        assert!(of_one(&of(&times(1.25))).contains("% more CPU time (+2"));
        assert!(of_one(&of(&times(0.8))).contains("% less CPU time (-2"));
        assert!(of_one(&of(&times(1.0))).contains("the same within 5 % (-"));
        let wild = [0.8, 1.3, 0.9, 1.2, 0.7, 1.25, 1.0, 1.1].map(|a| (a, 1.0));
        let unclear = of_one(&of(&wild));
        assert!(unclear.contains("can be shown") && unclear.contains("try about"), "{unclear}");
    }

    #[test]
    fn both_costs_are_named_if_the_server_was_held() {
        let times = |by: f64| [1.0, 1.01, 0.99, 1.0, 1.005, 0.995, 1.0, 1.01].map(|a| (a, by * a));
        let both = why(&of(&times(1.0)), Some(&of(&times(1.2))));
        assert!(both.starts_with("at this load, CPU time per request is the same"), "{both}");
        assert!(both.contains("; at saturation, a request costs 20.0 % more"), "{both}");
        assert_eq!(why(&of(&times(1.2)), None), of_one(&of(&times(1.2))));
    }

    #[test]
    fn a_command_is_shown_on_one_line() {
        assert_eq!(line("a\nb"), "a b");
    }
}
