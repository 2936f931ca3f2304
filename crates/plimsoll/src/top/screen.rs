//! Turns a model and a view into lines, for a terminal, for text and for the tests. No I/O.
//!
//! In each line of the head the least important items come last. On a narrow terminal whole items
//! are omitted. Control characters from a trial never reach the terminal.

use ::report::format::{duration, fixed, latency, percent, rate, thousands};
use ::report::{Carried, about};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::tables::{self, Grid, us};
use super::view::{KEYS, Part, View};
use crate::watch::model::Model;

/// Width of the labels.
const MARGIN: usize = 10;
/// From this width on, groups and procedures are shown side by side.
const WIDE: u16 = 132;
/// Rows of each table in the text output. The screen shows the others.
const TEXT_ROWS: usize = 12;
/// Without anything new for this many intervals and seconds, the recording may have died.
const SILENT_INTERVALS: f64 = 5.0;
const SILENT_S: f64 = 10.0;
/// A loss with a longer name is shown in the part for losses only.
const LOSS_CHARS: usize = 36;
/// The smallest usable terminal.
const ROWS_MIN: u16 = 10;
const COLUMNS_MIN: u16 = 40;

/// How text is styled: with colours or without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    pub(super) colours: bool,
}

#[derive(Clone, Copy)]
enum Paint {
    Plain,
    Strong,
    Dim,
    Label,
    Spark,
    Chosen,
    Warning,
}

impl Theme {
    fn style(self, paint: Paint) -> Style {
        let style = Style::new();
        let coloured = |colour| if self.colours { style.fg(colour) } else { style };
        match paint {
            Paint::Plain => style,
            Paint::Strong => style.add_modifier(Modifier::BOLD),
            Paint::Dim => style.add_modifier(Modifier::DIM),
            Paint::Label => coloured(Color::Cyan),
            Paint::Spark => coloured(Color::Green),
            Paint::Chosen => style.add_modifier(Modifier::REVERSED),
            Paint::Warning => coloured(Color::Yellow).add_modifier(Modifier::BOLD),
        }
    }

    fn span(self, text: impl Into<String>, paint: Paint) -> Span<'static> {
        let text: String = text.into();
        let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        Span::styled(text.chars().map(printable).collect::<String>(), self.style(paint))
    }
}

/// Draws the screen.
pub(super) fn draw(
    model: Option<&Model>,
    view: &mut View,
    now_ns: i64,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let text = format!("terminal too small: {COLUMNS_MIN} x {ROWS_MIN} or more");
        write(&[theme.span(text, Paint::Plain).into()], area, buffer);
        return;
    }
    let width = usize::from(area.width);
    let Some(model) = model else {
        let text = "waiting for the first interval; press q to quit";
        write(&[theme.span(text, Paint::Dim).into()], area, buffer);
        return;
    };
    let mut lines = head(model, view.paused, now_ns, theme, width);
    lines.push(tabs(model, view, theme));
    let top = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(area.height);
    write(&lines, area, buffer);
    let body = Rect { y: area.y + top, height: area.height - top - 1, ..area };
    if view.help {
        write(&help(theme), body, buffer);
    } else if view.part == Part::Groups && area.width >= WIDE {
        // Groups have one more column.
        let middle = area.width * 14 / 25;
        let left = Rect { width: middle - 1, ..body };
        let right = Rect { x: area.x + middle + 1, width: area.width - middle - 1, ..body };
        part(Part::Groups, model, view, theme, left, buffer);
        part(Part::Procedures, model, view, theme, right, buffer);
    } else {
        part(view.part, model, view, theme, body, buffer);
    }
    let foot = Rect { y: area.y + area.height - 1, height: 1, ..area };
    write(&[keys(view, theme, width)], foot, buffer);
}

/// The screen as text: the head, and the first rows of each non-empty table.
pub(super) fn text(model: &Model, now_ns: i64, columns: usize) -> String {
    let theme = Theme { colours: false };
    let mut lines = head(model, false, now_ns, theme, columns);
    for part in Part::ALL {
        let grid = tables::grid(part, model, View::default().sort);
        if grid.rows.is_empty() {
            continue;
        }
        lines.push(Line::default());
        lines.push(theme.span(part.name(), Paint::Strong).into());
        lines.extend(table(&grid, theme, columns, 0, TEXT_ROWS));
        let left = grid.rows.len().saturating_sub(TEXT_ROWS);
        if left > 0 {
            lines.push(theme.span(format!("and {left} more"), Paint::Dim).into());
        }
        lines.extend(note(&grid, theme, columns));
    }
    let mut out = String::new();
    for line in lines {
        let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

fn write(lines: &[Line<'static>], area: Rect, buffer: &mut Buffer) {
    for (line, y) in lines.iter().zip(area.y..area.y + area.height) {
        line.render(Rect { y, height: 1, ..area }, buffer);
    }
}

/// A labelled line with the first item, and as many others as fit.
fn items(label: &str, parts: Vec<(String, Paint)>, theme: Theme, width: usize) -> Line<'static> {
    let mut spans = vec![theme.span(format!("{label:<MARGIN$}"), Paint::Label)];
    let mut used = MARGIN;
    for (at, (text, paint)) in parts.into_iter().filter(|(text, _)| !text.is_empty()).enumerate() {
        let between = if at == 0 { "" } else { " · " };
        let long = between.chars().count() + text.chars().count();
        if at > 0 && used + long > width {
            break;
        }
        used += long;
        spans.push(theme.span(between, Paint::Dim));
        spans.push(theme.span(shortened(&text, width - MARGIN.min(width)), paint));
    }
    Line::from(spans)
}

fn head(
    model: &Model,
    paused: bool,
    now_ns: i64,
    theme: Theme,
    width: usize,
) -> Vec<Line<'static>> {
    let line = |label, parts| items(label, parts, theme, width);
    vec![
        line("Capacity", capacity(model)),
        line("Server", server(model, paused, now_ns)),
        rates(model, theme, width),
        line("Request", request(model)),
        line("In use", in_use(model)),
        line("Latency", latencies(model)),
        line("Lost", lost(model)),
    ]
}

fn capacity(model: &Model) -> Vec<(String, Paint)> {
    let fit = &model.fit;
    let Some((line, value)) = fit.line.as_ref().and_then(|line| Some((line, line.capacity.value?)))
    else {
        let why = fit.not_yet.as_deref().unwrap_or("the line is being fitted");
        return vec![(format!("not yet: {why}"), Paint::Strong)];
    };
    let figure = &line.capacity;
    let limit = line.resources.first().map_or(figure.resource.label(), |first| &first.name);
    let limited = (format!("limited by {}", named(limit)), Paint::Plain);
    let (low, high, seen) = (figure.low, figure.high, figure.highest_rate);
    let carried = Carried { value, low, high, seen };
    let bounds = match (carried.at_least(), low.zip(high)) {
        (None, Some((low, high))) => format!("({} to {})", rate(low), rate(high)),
        // Such a value still moves with each interval.
        (least, _) => {
            let least = about(least.unwrap_or(seen));
            return vec![(format!("at least {least}/s so far"), Paint::Warning), limited];
        }
    };
    let (doubt, paint) = match figure.trusted {
        true => ("", Paint::Strong),
        false => ("unreliable ", Paint::Warning),
    };
    let mut parts = vec![(format!("{doubt}{}/s {bounds}", rate(value)), paint), limited];
    if model.recent.rate.known {
        let share = 100.0 * model.recent.rate.now / value;
        parts.push((format!("{share:.0} % of it now"), Paint::Plain));
    }
    if let Some(measured) = line.saturation_measured {
        parts.push((format!("{}/s measured at saturation", rate(measured)), Paint::Plain));
    }
    parts.extend(figure.distrust_statistic.iter().map(|why| (why.clone(), Paint::Dim)));
    parts
}

/// The name of a resource in a sentence: "all threads", "the hottest thread".
fn named(resource: &str) -> String {
    match resource.starts_with("all ") {
        true => resource.to_owned(),
        false => format!("the {resource}"),
    }
}

fn server(model: &Model, paused: bool, now_ns: i64) -> Vec<(String, Paint)> {
    let recent = &model.recent;
    let behind_s = ((now_ns - recent.end_ns) as f64 / 1e9).max(0.0);
    let silent = behind_s > SILENT_S && behind_s > SILENT_INTERVALS * recent.interval_s;
    let state = if paused {
        ("paused, p resumes".to_owned(), Paint::Warning)
    } else if recent.complete {
        ("finished".to_owned(), Paint::Strong)
    } else if silent {
        let text = format!("nothing new for {}: is it still recording?", duration(behind_s));
        (text, Paint::Warning)
    } else {
        (format!("{behind_s:.0} s ago"), Paint::Plain)
    };
    let mut parts = vec![
        (recent.server.clone(), Paint::Strong),
        (format!("interval {}", thousands(recent.interval as f64)), Paint::Plain),
        state,
        (format!("{} each", duration(recent.interval_s)), Paint::Plain),
    ];
    let line = model.fit.line.as_ref().filter(|line| line.capacity.identifiable);
    if let Some((line, to)) = line.zip(model.fit.interval) {
        let text = format!("line of {}, up to no. {to}", thousands(line.fitted as f64));
        parts.push((text, Paint::Dim));
    }
    parts.push((recent.trial.clone(), Paint::Dim));
    parts
}

fn rates(model: &Model, theme: Theme, width: usize) -> Line<'static> {
    let found = &model.recent.rate;
    if !found.known && found.peak == 0.0 {
        let text = "requests are not counted".to_owned();
        return items("Rate", vec![(text, Paint::Dim)], theme, width);
    }
    let now = if found.known {
        (format!("{}/s now", rate(found.now)), Paint::Strong)
    } else {
        ("unknown now".to_owned(), Paint::Warning)
    };
    let parts = vec![
        now,
        (format!("mean {}", rate(found.mean)), Paint::Plain),
        (format!("peak {}", rate(found.peak)), Paint::Plain),
        (format!("last {}", duration(model.recent.seconds)), Paint::Dim),
    ];
    let mut line = items("Rate", parts, theme, width);
    let room = width.saturating_sub(line.width() + 2);
    let from = found.each.len().saturating_sub(room);
    line.push_span(theme.span("  ", Paint::Plain));
    line.push_span(theme.span(spark(&found.each[from..]), Paint::Spark));
    line
}

/// Rates as bars, scaled to the highest.
fn spark(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bar = |value: &f64| BARS[((value / highest * 7.0).round() as usize).min(7)];
    values.iter().map(bar).collect()
}

fn request(model: &Model) -> Vec<(String, Paint)> {
    let Some(cpu) = &model.recent.cpu_per_request else {
        return vec![("no known request rate in these intervals".to_owned(), Paint::Dim)];
    };
    let mut parts = vec![(
        format!(
            "CPU {} (user {}, kernel {})",
            latency_fine(cpu.user_us + cpu.kernel_us),
            us(cpu.user_us),
            us(cpu.kernel_us)
        ),
        Paint::Strong,
    )];
    let line = model.fit.line.as_ref().filter(|line| line.capacity.identifiable);
    if let Some(whole) = line.and_then(|line| line.costs.as_ref()).map(|costs| &costs.whole) {
        let [value, low, high] = [whole.us_per_request, whole.us_low, whole.us_high].map(us);
        parts.push((format!("1 more {value} ({low} to {high})"), Paint::Plain));
    }
    let counters = model.recent.counters.as_ref();
    if let Some(cycles) = counters.and_then(|counters| counters.cycles_per_instruction) {
        parts.push((format!("{} cycles per instruction", fixed(cycles, 2)), Paint::Plain));
    }
    parts
}

/// The CPU time of a request. Below a millisecond, digits after the point matter.
fn latency_fine(value_us: f64) -> String {
    if value_us < 999.5 { format!("{} µs", us(value_us)) } else { latency(value_us) }
}

fn in_use(model: &Model) -> Vec<(String, Paint)> {
    let recent = &model.recent;
    let resource = |used: &::report::RecentUse| {
        let tight = used.now_percent >= 90.0;
        let text = format!("{} {} %", used.name, percent(used.now_percent));
        (text, if tight { Paint::Warning } else { Paint::Plain })
    };
    let mut parts: Vec<(String, Paint)> = recent.resources.iter().map(resource).collect();
    if let Some(modes) = &recent.machine {
        let mut text = format!(
            "mean: user {}, kernel {} (interrupts {})",
            percent(modes.user),
            percent(modes.kernel),
            percent(modes.interrupts)
        );
        if modes.steal >= 0.05 {
            text.push_str(&format!(", steal {}", percent(modes.steal)));
        }
        parts.push((text, Paint::Dim));
    }
    parts
}

fn latencies(model: &Model) -> Vec<(String, Paint)> {
    match &model.recent.latency {
        None => vec![("not recorded".to_owned(), Paint::Dim)],
        Some(bin) => vec![
            (format!("median {}", latency(bin.median_us)), Paint::Strong),
            (format!("99 % {}", latency(bin.p99_us)), Paint::Plain),
            (format!("longest {}", latency(bin.max_us)), Paint::Plain),
            (format!("n = {}", thousands(bin.count as f64)), Paint::Dim),
        ],
    }
}

fn lost(model: &Model) -> Vec<(String, Paint)> {
    let kinds = model.recent.losses.iter().filter(|loss| loss.count > 0);
    let listed: Vec<String> =
        kinds.map(|loss| format!("{} {}", thousands(loss.count as f64), loss.kind)).collect();
    // The cost of watching is always shown.
    let (text, paint) = match &listed[..] {
        [] => ("nothing".to_owned(), Paint::Plain),
        [one] if one.chars().count() <= LOSS_CHARS => (one.clone(), Paint::Warning),
        [_] => ("1 kind of data (press 6)".to_owned(), Paint::Warning),
        more => (format!("{} kinds of data (press 6)", more.len()), Paint::Warning),
    };
    let cost = format!("recorder {} % of a CPU", fixed(model.recent.recorder_percent, 2));
    let watch = format!("top {} %", fixed(model.watch_percent, 2));
    vec![(text, paint), (cost, Paint::Dim), (watch, Paint::Dim)]
}

fn tabs(model: &Model, view: &View, theme: Theme) -> Line<'static> {
    let mut spans = Vec::new();
    for (part, number) in Part::ALL.into_iter().zip(1..) {
        let chosen = part == view.part && !view.help;
        let paint = match chosen {
            true => Paint::Chosen,
            false if tables::grid(part, model, view.sort).rows.is_empty() => Paint::Dim,
            false => Paint::Plain,
        };
        spans.push(theme.span(format!(" {number} {} ", part.name()), paint));
    }
    Line::from(spans)
}

fn keys(view: &View, theme: Theme, width: usize) -> Line<'static> {
    let sort = format!("s sort: {}", view.sort.label());
    let texts = ["q quit", "Tab next", "? help", &sort, "p pause"];
    let mut text = String::new();
    for part in texts {
        if text.chars().count() + part.chars().count() + 3 <= width {
            text.push_str(if text.is_empty() { "" } else { "   " });
            text.push_str(part);
        }
    }
    theme.span(text, Paint::Dim).into()
}

fn help(theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    for (key, what) in KEYS {
        lines.push(Line::from(vec![
            theme.span(format!("  {key:<26}  "), Paint::Strong),
            theme.span(what, Paint::Plain),
        ]));
    }
    lines
}

/// The visible rows of a part, with its note below. Limits how far the part is scrolled.
fn part(
    which: Part,
    model: &Model,
    view: &mut View,
    theme: Theme,
    area: Rect,
    buffer: &mut Buffer,
) {
    let grid = tables::grid(which, model, view.sort);
    let width = usize::from(area.width);
    let notes = note(&grid, theme, width);
    let room = usize::from(area.height).saturating_sub(1 + notes.len());
    // If two are side by side, the selected one sets the limit.
    if which == view.part {
        view.above = view.above.min(grid.rows.len().saturating_sub(room));
    }
    let above = view.above.min(grid.rows.len().saturating_sub(room));
    let mut lines =
        if grid.rows.is_empty() { Vec::new() } else { table(&grid, theme, width, above, room) };
    lines.extend(notes);
    write(&lines, area, buffer);
}

fn note(grid: &Grid, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let wrapped = command::output::wrapped(&grid.note, width);
    wrapped.into_iter().map(|line| theme.span(line, Paint::Dim).into()).collect()
}

/// The head and some rows of a table. Numbers are right-aligned; the last column gets the remaining
/// width.
fn table(grid: &Grid, theme: Theme, width: usize, above: usize, rows: usize) -> Vec<Line<'static>> {
    let last = grid.columns.len() - 1;
    let mut wide: Vec<usize> = grid.columns.iter().map(|c| c.name.chars().count()).collect();
    for row in &grid.rows {
        for (cell, wide) in row.cells.iter().zip(&mut wide).take(last) {
            *wide = (*wide).max(cell.chars().count());
        }
    }
    let before: usize = wide[..last].iter().map(|wide| wide + 2).sum();
    wide[last] = width.saturating_sub(before).max(1);
    let line = |cells: &[&str], paint: Paint| {
        let mut text = String::new();
        for ((cell, &wide), column) in cells.iter().zip(&wide).zip(&grid.columns) {
            let cell = shortened(cell, wide);
            match column.numeric {
                true => text.push_str(&format!("{cell:>wide$}  ")),
                false => text.push_str(&format!("{cell:<wide$}  ")),
            }
        }
        Line::from(theme.span(text.trim_end(), paint))
    };
    let names: Vec<&str> = grid.columns.iter().map(|column| column.name).collect();
    let mut lines = vec![line(&names, Paint::Label)];
    lines.extend(grid.rows.iter().skip(above).take(rows).map(|row| {
        let cells: Vec<&str> = row.cells.iter().map(String::as_str).collect();
        line(&cells, if row.dim { Paint::Dim } else { Paint::Plain })
    }));
    lines
}

/// Text of at most `most` characters. Longer text is truncated, with an ellipsis.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests;
