//! The page: one file that opens offline, in light and in dark, on screen and on paper.
//!
//! The template escapes every value; the figures, which are markup, escape their own texts. The
//! page has no script, and loads nothing.

use askama::Template;

use crate::analysis::Analysis;
use crate::classes;
use crate::figure;
use crate::format::{instant, thousands};
use crate::summary::{self, Fact, Table};
use crate::tables;

/// The page of an analysis.
pub fn html(analysis: &Analysis) -> String {
    let costs = analysis.costs.as_ref();
    let page = Page {
        title: format!("Load line of {}", analysis.trial.server),
        recorded: instant(analysis.manifest.created_ns),
        extent: summary::extent(analysis),
        facts: summary::facts(analysis),
        figure_style: figure::STYLE,
        load_line: figure::load_line(analysis, ""),
        caption: caption(analysis),
        figures: [Some(summary::capacities(analysis)), Some(summary::modes(analysis))]
            .into_iter()
            .flatten()
            .chain((analysis.resources.len() > 1).then(|| summary::resources(analysis)))
            .filter(|table| !table.rows.is_empty())
            .collect(),
        cost_figure: costs.and_then(|costs| figure::cost(costs, "")).unwrap_or_default(),
        cost_table: costs.map(tables::costs),
        flame: analysis.flame.as_ref().map(|flame| Drawn {
            title: summary::flame_title(flame),
            svg: figure::flame(flame, ""),
            note: sentence(&summary::flame_note(flame)),
        }),
        class_tables: classes::tables(&analysis.classes),
        profile: analysis.profile.as_ref().map(tables::profile),
        latency_figure: figure::latency(analysis, "").unwrap_or_default(),
        latency_table: summary::latencies(analysis),
        sampled: summary::sampled(analysis),
        intervals: summary::intervals(analysis),
        lost: summary::losses(analysis),
        rest: [
            summary::predictions(analysis),
            summary::manifest(analysis),
            summary::capabilities(analysis),
        ]
        .into_iter()
        .filter(|table| !table.rows.is_empty())
        .collect(),
    };
    page.render().expect("the template writes into a String and calls nothing that fails")
}

/// The load line's figure as a file of its own.
pub fn svg_loadline(analysis: &Analysis) -> String {
    figure::load_line(analysis, figure::STYLE)
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    title: String,
    recorded: String,
    extent: String,
    facts: Vec<Fact>,
    figure_style: &'static str,
    load_line: String,
    caption: String,
    figures: Vec<Table>,
    cost_figure: String,
    cost_table: Option<Table>,
    flame: Option<Drawn>,
    class_tables: Vec<Table>,
    profile: Option<Table>,
    latency_figure: String,
    latency_table: Option<Table>,
    sampled: Vec<Table>,
    intervals: Table,
    lost: Table,
    rest: Vec<Table>,
}

/// A figure with what is said above and below it.
struct Drawn {
    title: &'static str,
    svg: String,
    note: String,
}

/// A remark as a sentence of its own.
fn sentence(remark: &str) -> String {
    let mut letters = remark.chars();
    letters
        .next()
        .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

fn caption(analysis: &Analysis) -> String {
    let points = format!(
        "One point an interval and mode (n = {}).",
        thousands(analysis.trial.fitted as f64)
    );
    if !analysis.capacity_straight.identifiable {
        return points;
    }
    let mut text = format!(
        "{points} Solid lines: least squares over the data; dashed: beyond them, to the cap. \
         Shaded: where {:.0} % of intervals lie about the idle line.",
        100.0 * analysis.capacity.level
    );
    if analysis.wakes_drawn().is_some() {
        text.push_str(
            " Dotted: the idle time of a server that is never put to sleep, from the line with \
             wakes.",
        );
    }
    if analysis.saturation.is_some() {
        text.push_str(" Filled points were saturated: measured, not fitted.");
    }
    let every = figure::every(analysis.intervals.len());
    if every > 1 {
        text.push_str(&format!(" One of {every} intervals is drawn."));
    }
    text
}
