//! The report of a trial, as text for a terminal and as a page.
//!
//! The page is one file that opens offline, in light and dark mode, on screen and on paper. It has
//! no script and loads nothing. The template escapes every value; the figures, which are markup,
//! escape their own text.

use askama::Template;

use crate::analysis::{Analysis, MODEL_MEASURED};
use crate::figure::{self, Size};
use crate::format::{instant, thousands};
use crate::table::{Fact, Table};
use crate::{facts, headline, tables};

/// The report as text for a terminal of `width` columns. It ends with a line break.
pub fn terminal(analysis: &Analysis, width: usize) -> String {
    let title = format!("Load line of {} ({})", analysis.trial.server, analysis.trial.name);
    let answer = headline::sentence(analysis);
    let facts = facts::facts(analysis);
    let mut listed = tables::first(analysis);
    listed.extend(tables::latencies(analysis));
    listed.extend(tables::latencies_to_come(analysis));
    listed.extend(upstreams(analysis));
    listed.extend(analysis.stretches.as_ref().map(tables::stretches));
    listed.extend(analysis.waits.iter().flat_map(tables::lock_waits));
    listed.extend(analysis.files.iter().flat_map(tables::files));
    listed.push(tables::losses(analysis));
    listed.push(tables::predictions(analysis));
    let facts = facts.iter().map(|fact| (fact.label, fact.text.as_str()));
    let mut text = crate::terminal::text(
        &[&answer, "", &title, &facts::extent(analysis)],
        facts,
        &listed,
        width,
    );
    // The last lines are those that a small terminal still shows.
    text.push_str(&crate::terminal::text(&[], [("Answer", answer.as_str())], &[], width));
    text
}

/// The sentences of a report that matter first, as text for a terminal: the capacity, what limits,
/// and what a request costs. It begins and ends with a line break.
pub fn brief(analysis: &Analysis, width: usize) -> String {
    let first = ["Warning", "Limit", "Cost"];
    let facts: Vec<Fact> =
        facts::facts(analysis).into_iter().filter(|fact| first.contains(&fact.label)).collect();
    let facts = facts.iter().map(|fact| (fact.label, fact.text.as_str()));
    crate::terminal::text(&["", &headline::sentence(analysis)], facts, &[], width) + "\n"
}

/// The report as a page.
pub fn html(analysis: &Analysis) -> String {
    let (first_facts, mut other_facts) = facts::facts_in_parts(analysis);
    other_facts.insert(0, Fact::new("Data", facts::extent(analysis)));
    let page = Page {
        title: format!("Capacity of {}", analysis.trial.server),
        answer: headline::sentence(analysis),
        is_known: analysis.capacity.value.is_some(),
        recorded: instant(analysis.manifest.created_ns),
        extent: facts::short_extent(analysis),
        first_facts,
        figure_style: drawing::STYLE,
        load_line: figure::sizes(|size| figure::load_line(analysis, size, "")),
        caption: caption(analysis),
        resource_lines: figure::resources(analysis, ""),
        other_facts,
        cost_figure: analysis.costs.as_ref().and_then(|costs| figure::cost(costs, "")),
        flame: analysis.flame.as_ref().map(|flame| Drawn {
            title: flame.title(),
            svg: figure::flame(flame, ""),
            note: capitalised(&flame.note()),
        }),
        tables: non_empty(tables::first(analysis)),
        latency_figure: figure::latency(analysis, Size::Wide, "")
            .map(|_| figure::sizes(|size| figure::latency(analysis, size, "").unwrap_or_default())),
        latency_table: tables::latencies(analysis),
        to_come_table: tables::latencies_to_come(analysis),
        files_figure: analysis.files.as_ref().and_then(|files| figure::files(files, "")),
        sampled: analysis
            .files
            .iter()
            .flat_map(tables::files)
            .chain(analysis.waits.iter().flat_map(tables::lock_waits))
            .chain(upstreams(analysis))
            .chain(analysis.stretches.as_ref().map(tables::stretches))
            .collect(),
        intervals: tables::intervals(analysis),
        losses: tables::losses(analysis),
        rest: non_empty(vec![
            tables::predictions(analysis),
            tables::manifest(analysis),
            tables::capabilities(analysis),
        ]),
    };
    page.render().expect("the template writes into a String and calls nothing that fails")
}

/// The load line's figure as a file.
pub fn svg_loadline(analysis: &Analysis) -> String {
    figure::load_line(analysis, Size::Wide, drawing::STYLE)
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    title: String,
    answer: String,
    is_known: bool,
    recorded: String,
    extent: String,
    first_facts: Vec<Fact>,
    figure_style: &'static str,
    load_line: String,
    caption: String,
    resource_lines: Option<String>,
    other_facts: Vec<Fact>,
    cost_figure: Option<String>,
    flame: Option<Drawn>,
    tables: Vec<Table>,
    latency_figure: Option<String>,
    latency_table: Option<Table>,
    to_come_table: Option<Table>,
    files_figure: Option<String>,
    sampled: Vec<Table>,
    intervals: Table,
    losses: Table,
    rest: Vec<Table>,
}

fn non_empty(mut tables: Vec<Table>) -> Vec<Table> {
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// A figure with its heading and its caption.
struct Drawn {
    title: &'static str,
    svg: String,
    note: String,
}

/// A note as a full sentence.
fn capitalised(note: &str) -> String {
    let mut letters = note.chars();
    letters
        .next()
        .map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

fn caption(analysis: &Analysis) -> String {
    let fitted = thousands(analysis.trial.fitted as f64);
    let mut text = format!("One point per interval and kind of CPU time (n = {fitted}).");
    if !analysis.cpu_limits() {
        let name = &analysis.capacity.resource_name;
        text.push_str(&format!(" Something else is full first: the line of {name} is in Details."));
        return text;
    }
    text.push_str(" The server is full where the idle time ends.");
    if analysis.capacity.value.is_some() && analysis.capacity.model != MODEL_MEASURED {
        text.push_str(" The bold line leads there; dashes are beyond the data.");
    }
    if analysis.saturation.is_some() {
        text.push_str(" Filled points: saturated intervals, which are measured and not fitted.");
    }
    let every = figure::every(analysis.intervals.len());
    if every > 1 {
        text.push_str(&format!(" One of every {every} intervals is drawn."));
    }
    text
}

/// Waits for other servers, if there are any.
fn upstreams(analysis: &Analysis) -> Option<Table> {
    let answers = analysis.answers.as_ref().filter(|answers| !answers.upstreams.is_empty());
    answers.map(tables::upstreams)
}
