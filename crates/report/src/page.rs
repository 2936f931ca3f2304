//! The page: one file that opens offline, in light and in dark, on screen and on paper.
//!
//! The template escapes every value; the figures, which are markup, escape their own texts. The
//! page has no script, and loads nothing.

use askama::Template;

use crate::analysis::Analysis;
use crate::figure;
use crate::files;
use crate::format::{instant, thousands};
use crate::summary::{self, Fact, Table};

/// The page of an analysis.
pub fn html(analysis: &Analysis) -> String {
    let costs = analysis.costs.as_ref();
    let (facts, known_by) = summary::facts_parted(analysis);
    let files = analysis.files.as_ref();
    let page = Page {
        title: format!("Load line of {}", analysis.trial.server),
        recorded: instant(analysis.manifest.created_ns),
        extent: summary::extent(analysis),
        facts,
        figure_style: figure::STYLE,
        load_line: figure::load_line(analysis, ""),
        caption: caption(analysis),
        resource_lines: figure::resources(analysis, "").unwrap_or_default(),
        known_by,
        cost_figure: costs.and_then(|costs| figure::cost(costs, "")).unwrap_or_default(),
        flame: analysis.flame.as_ref().map(|flame| Drawn {
            title: summary::flame_title(flame),
            svg: figure::flame(flame, ""),
            note: sentence(&summary::flame_note(flame)),
        }),
        tables: non_empty(summary::first_tables(analysis)),
        latency_figure: figure::latency(analysis, "").unwrap_or_default(),
        latency_table: summary::latencies(analysis),
        files_figure: files.and_then(|files| files::figure(files, "")).unwrap_or_default(),
        files_tables: summary::files_tables(analysis),
        waits_tables: summary::waits_tables(analysis),
        intervals: summary::intervals(analysis),
        lost: summary::losses(analysis),
        rest: non_empty(vec![
            summary::predictions(analysis),
            summary::manifest(analysis),
            summary::capabilities(analysis),
        ]),
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
    resource_lines: String,
    known_by: Vec<Fact>,
    cost_figure: String,
    flame: Option<Drawn>,
    tables: Vec<Table>,
    latency_figure: String,
    latency_table: Option<Table>,
    files_figure: String,
    files_tables: Vec<Table>,
    waits_tables: Vec<Table>,
    intervals: Table,
    lost: Table,
    rest: Vec<Table>,
}

fn non_empty(mut tables: Vec<Table>) -> Vec<Table> {
    tables.retain(|table| !table.rows.is_empty());
    tables
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
