//! The page of a study: its texts, tables and curves, from `studies/NAME/page.toml`.
//!
//! What: a page is a table of templates over the outcome's JSON. `{path}` is a value, by the keys
//! on its way (`points.0.us`); `{path:format}` is the same as [`formatted`] writes it;
//! `{path?text}` is the text if the value is true. In a row, a path begins in the row, or else in
//! the outcome. Results that need a computation are computed by the study and added to the outcome.
//! What never happens: a value that was not measured is shown as a number. In a table it is a dash,
//! and a fact or a curve's point without its value is left out.

use std::collections::BTreeMap;

use harness::rounds::digits;
use report::format::thousands;
use report::sheet::{Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::show::{NONE, curve, distinct, panel};

/// The machine and what else was running, which every study says first.
const MACHINE: &str = "Linux {ground.kernel}, {ground.processors} x \
    {ground.processor}{ground.checked_build?; a debug build, not --release}";
const OTHERS: &str = "load average {load_average.0:1} at the beginning and {load_average.1:1} at \
    the end";

/// A page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    title: String,
    /// What is added to the load averages. Without it, the machine is not among the facts.
    others: Option<String>,
    fact: Vec<Fact>,
    table: Vec<Table>,
    /// What the figure shows: its title and its description. Its panels are below.
    figure: Option<[String; 2]>,
    #[serde(default)]
    panel: Vec<Curves>,
    #[serde(default)]
    pub(crate) looks: BTreeMap<String, Vec<Look>>,
}

/// A sentence with its label; with `each`, one for each element of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fact {
    label: String,
    text: String,
    each: Option<String>,
}

/// Which rows: those of a list that have these values.
#[derive(Debug, Deserialize)]
struct Which {
    rows: String,
    #[serde(default, rename = "where")]
    only: Map<String, Value>,
}

/// A table without rows is left out.
#[derive(Debug, Deserialize)]
struct Table {
    title: String,
    #[serde(flatten)]
    which: Which,
    /// The header of each column, as in [`Rows::columns`], and its cells.
    columns: Vec<[String; 2]>,
    /// Columns for the elements of a list in each row: the path of the headers in the outcome, that
    /// of the list in a row, and the cells.
    more: Option<[String; 3]>,
    #[serde(default)]
    note: String,
}

/// A panel of curves; with `for`, one for all rows that have the same values of these keys.
#[derive(Debug, Deserialize)]
struct Curves {
    title: String,
    #[serde(default, rename = "for")]
    each: Vec<String>,
    #[serde(flatten)]
    which: Which,
    /// The name of the horizontal axis, the path of its values, and whether its ticks are powers of
    /// two.
    x: (String, String, bool),
    /// The unit of the vertical axis, and the path of its values.
    y: [String; 2],
    /// The text of a point.
    label: String,
    /// The name of its looks.
    looks: String,
}

/// A curve: the values of its rows, its name, the number of its colour, whether it is dashed.
#[derive(Debug, Deserialize)]
pub(crate) struct Look(Map<String, Value>, pub(crate) String, pub(crate) usize, pub(crate) bool);

impl Page {
    /// Reads a page, which is part of the program.
    pub(crate) fn read(text: &str) -> Page {
        toml::from_str(text).expect("the page is part of the program, and a test reads all of them")
    }

    /// The sentences and tables.
    pub(crate) fn sheet(&self, outcome: &Value) -> Sheet {
        let mut facts = Vec::new();
        let mut put = |label: &str, text: &str, scope: &[&Value]| {
            facts.extend(filled(label, scope).zip(filled(text, scope)));
        };
        if let Some(remark) = &self.others {
            put("Environment", MACHINE, &[outcome]);
            put("Others", &format!("{OTHERS}{remark}"), &[outcome]);
        }
        for Fact { label, text, each } in &self.fact {
            match each {
                None => put(label, text, &[outcome]),
                Some(path) => {
                    list(outcome, path).iter().for_each(|one| put(label, text, &[one, outcome]));
                }
            }
        }
        let tables = self.table.iter().map(|table| table.rows(outcome));
        let tables = tables.filter(|table| !table.rows.is_empty()).collect();
        Sheet { title: self.title.clone(), facts, tables }
    }

    /// The figure, if the page has one.
    pub(crate) fn figure(&self, outcome: &Value) -> Option<String> {
        let [title, description] = self.figure.as_ref()?;
        let title = format!("{title}: {{ground.processor}}, Linux {{ground.kernel}}");
        let title = filled(&title, &[outcome]).unwrap_or_default();
        let panels: Vec<Panel> =
            self.panel.iter().flat_map(|panel| panel.panels(&self.looks, outcome)).collect();
        Some(svg_curves(&title, description, &panels))
    }
}

impl Which {
    fn of<'o>(&self, outcome: &'o Value) -> Vec<&'o Value> {
        list(outcome, &self.rows).iter().filter(|row| has(row, &self.only)).collect()
    }
}

impl Table {
    fn rows(&self, outcome: &Value) -> Rows {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        let mut columns: Vec<String> = self.columns.iter().map(|[name, _]| name.clone()).collect();
        if let Some([names, ..]) = &self.more {
            columns.extend(list(outcome, names).iter().map(|name| or_none(formatted(name, ""))));
        }
        let row = |row: &Value| {
            let cell = |template: &String| or_none(filled(template, &[row, outcome]));
            let mut cells: Vec<String> = self.columns.iter().map(|[_, one]| cell(one)).collect();
            if let Some([_, of_row, template]) = &self.more {
                let all = list(row, of_row).iter();
                cells.extend(all.map(|one| or_none(filled(template, &[one]))));
            }
            cells
        };
        let title = filled(&self.title, &[outcome]).unwrap_or_else(|| self.title.clone());
        let note = filled(&self.note, &[outcome]).unwrap_or_else(|| self.note.clone());
        let rows = self.which.of(outcome).into_iter().map(row).collect();
        Rows { title, columns, rows, note }
    }
}

impl Curves {
    fn panels(&self, looks: &BTreeMap<String, Vec<Look>>, outcome: &Value) -> Vec<Panel> {
        let rows = self.which.of(outcome);
        let of = |rows: Vec<&Value>| self.panel(&looks[&self.looks], &rows, outcome);
        if self.each.is_empty() {
            return vec![of(rows)];
        }
        let key =
            |row: &Value| self.each.iter().map(|key| row.get(key).cloned()).collect::<Vec<_>>();
        let keys = distinct(rows.iter().map(|row| key(row)));
        let rows = |wanted| rows.iter().copied().filter(|row| key(row) == wanted).collect();
        keys.into_iter().map(|key| of(rows(key))).collect()
    }

    fn panel(&self, looks: &[Look], rows: &[&Value], outcome: &Value) -> Panel {
        let tones = [Tone::First, Tone::Second, Tone::Third, Tone::Fourth];
        let (axis, x, binary) = &self.x;
        let [unit, y] = &self.y;
        let curves = looks.iter().map(|Look(only, name, tone, dashed)| {
            let point = |row: &&Value| {
                let of = |path: &str| resolve(&[row], path)?.as_f64();
                let (x, y) = (of(x)?, of(y)?);
                Some((x, y, filled(&self.label, &[row, outcome])?))
            };
            let points = rows.iter().filter(|row| has(row, only)).filter_map(point);
            let stroke = if *dashed { Stroke::Dashed } else { Stroke::Joined };
            curve(name, (tones[*tone], stroke), points)
        });
        let ticks = if *binary { Ticks::Binary } else { Ticks::Decimal };
        let first = rows.first().copied().unwrap_or(&Value::Null);
        let title = filled(&self.title, &[first, outcome]).unwrap_or_else(|| self.title.clone());
        panel(title, (axis, ticks), unit, curves)
    }
}

/// Whether a row has these values.
fn has(row: &Value, only: &Map<String, Value>) -> bool {
    only.iter().all(|(key, value)| row.get(key) == Some(value))
}

/// The value at a path, `None` if it is null or within null. An error if a key does not exist.
fn at<'v>(mut value: &'v Value, path: &str) -> Result<Option<&'v Value>, ()> {
    for key in path.split('.').filter(|key| !key.is_empty()) {
        value = match value {
            Value::Null => return Ok(None),
            Value::Array(all) => key.parse().ok().and_then(|at: usize| all.get(at)).ok_or(())?,
            other => other.get(key).ok_or(())?,
        };
    }
    Ok(Some(value).filter(|value| !value.is_null()))
}

/// The value at a path that begins in one of these.
fn resolve<'v>(scope: &[&'v Value], path: &str) -> Option<&'v Value> {
    let found = scope.iter().find_map(|value| at(value, path).ok());
    found.unwrap_or_else(|| panic!("a page names {path:?}, which is not in the outcome"))
}

fn list<'v>(value: &'v Value, path: &str) -> &'v [Value] {
    resolve(&[value], path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A template filled in; `None` if one of its values does not exist.
fn filled(template: &str, scope: &[&Value]) -> Option<String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (place, after) = after.split_once('}')?;
        text.push_str(before);
        let of = |path: &str| resolve(scope, path);
        match place.split_once('?') {
            Some((path, words)) if of(path)?.as_bool()? => text.push_str(words),
            Some(_) => {}
            None => {
                let (path, format) = place.split_once(':').unwrap_or((place, ""));
                text.push_str(&formatted(of(path)?, format)?);
            }
        }
        rest = after;
    }
    Some(text + rest)
}

/// A value as text. Text is shown as it is. Of a figure, the value is shown, except by the last
/// three formats.
///
/// - `n`: with thousands separated; `d`: with three digits or more; `2`: with two decimals, and
///   `+2` with a sign, too;
/// - `%`: a share in percent; `p`: percent in which a small value is not shown as zero;
/// - `i`: with its interval; `%i`: a share with its interval; `o`: a ratio as the difference from
///   one, with its interval.
fn formatted(value: &Value, format: &str) -> Option<String> {
    if let Value::String(text) = value {
        return Some(text.clone());
    }
    let number = || value.get("value").unwrap_or(value).as_f64();
    Some(match format {
        "" => value.to_string(),
        "n" => thousands(number()?),
        "d" => digits(number()?),
        "%" => format!("{:.2} %", 100.0 * number()?),
        "p" => match number()? {
            small if small > 0.0 && small < 0.05 => "<0.1 %".to_owned(),
            percent => format!("{percent:.1} %"),
        },
        "i" => with_interval(value, "", digits)?,
        "%i" => with_interval(value, "", |share| format!("{:.2} %", 100.0 * share))?,
        "o" => with_interval(value, " %", |ratio| format!("{:+.1}", 100.0 * (ratio - 1.0)))?,
        decimals => match decimals.strip_prefix('+') {
            Some(decimals) => format!("{:+.*}", decimals.parse().ok()?, number()?),
            None => format!("{:.*}", decimals.parse().ok()?, number()?),
        },
    })
}

/// `7.12 (6.90 to 7.35)`
fn with_interval(figure: &Value, unit: &str, one: impl Fn(f64) -> String) -> Option<String> {
    let value = one(figure.get("value")?.as_f64()?);
    let end = |end| resolve(&[figure], end).and_then(Value::as_f64).map(&one);
    Some(match (end("interval.0"), end("interval.1")) {
        (Some(low), Some(high)) => format!("{value}{unit} ({low} to {high})"),
        _ => format!("{value}{unit} (one round)"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_page_is_valid_and_has_the_looks_that_its_panels_name() {
        for text in crate::PAGES {
            let page = Page::read(text);
            assert_eq!(page.figure.is_some(), !page.panel.is_empty(), "{}", page.title);
            for panel in &page.panel {
                assert!(page.looks.contains_key(&panel.looks), "{}", panel.looks);
            }
        }
    }

    #[test]
    fn a_template_is_filled_in_from_the_row_or_the_outcome() {
        let row = json!({
            "server": "ours", "boosted": true, "none": null,
            "share": 0.281, "zero": 0.0, "small": 0.01,
            "us": {"value": 4.93, "interval": [4.5, 5.25], "rounds": 3},
            "once": {"value": 1234.75, "interval": null, "rounds": 1},
        });
        let outcome = json!({"server": "another", "list": [1.25, {"n": 12345}]});
        let of = |template: &str| filled(template, &[&row, &outcome]);
        assert_eq!(
            of("{server}{boosted?, boosted}: {list.1.n:n}").unwrap(),
            "ours, boosted: 12,345"
        );
        assert_eq!(
            of("{us:i} {us:1} {us:d} {list.0:+1}").unwrap(),
            "4.93 (4.50 to 5.25) 4.9 4.93 +1.2"
        );
        assert_eq!(of("{once:i} {share:%}").unwrap(), "1,235 (one round) 28.10 %");
        assert_eq!((of("{none}"), of("{none.deeper:n}"), of("{us")), (None, None, None));
        let percents =
            ["{zero:p}", "{small:p}", "{us:p}", "{server:p}"].map(|text| of(text).unwrap());
        assert_eq!(percents, ["0.0 %", "<0.1 %", "4.9 %", "ours"]);
        assert_eq!(of("{us:o}").unwrap(), "+393.0 % (+350.0 to +425.0)");
    }

    #[test]
    #[should_panic(expected = "a page names \"sever\"")]
    fn a_key_that_does_not_exist_is_a_broken_page() {
        filled("{sever}", &[&json!({"server": "ours"})]);
    }

    #[test]
    fn a_page_has_tables_of_chosen_rows_with_columns_for_lists_and_a_figure() {
        let page = Page::read(
            r#"
title = "Title"
fact = [{ label = "{name}", text = "{why}", each = "missing" }, { label = "No", text = "{none}" }]
table = [
    { title = "Table of {n}", rows = "rows", where = { kind = "a" }, columns = [["<x", "{x}"]],
      more = ["names", "cells", "{y:1}"] },
    { title = "Empty", rows = "missing.0.list", columns = [] },
]
figure = ["Figure", "description"]
panel = [{ for = ["kind"], title = "Panel {kind}", rows = "rows", x = ["x", "x", false],
           y = ["y", "x"], label = "{x}", looks = "all" }]
looks = { all = [[{}, "one", 0, false]] }
"#,
        );
        let outcome = json!({
            "n": 2, "none": null, "names": ["first", "second"],
            "missing": [{"name": "haproxy", "why": "not installed", "list": []}],
            "rows": [
                {"kind": "a", "x": 1, "cells": [{"y": 2.0}, null]},
                {"kind": "b", "x": 2, "cells": []},
            ],
            "ground": {"processor": "Xeon", "kernel": "6"},
        });
        let sheet = page.sheet(&outcome);
        assert_eq!(sheet.facts, [("haproxy".to_owned(), "not installed".to_owned())]);
        let [table] = &sheet.tables[..] else { panic!("{:?}", sheet.tables) };
        assert_eq!((table.title.as_str(), table.columns.len()), ("Table of 2", 3));
        assert_eq!(table.rows, [["1", "2.0", "-"]]);
        let svg = page.figure(&outcome).unwrap();
        assert!(svg.contains("Figure: Xeon, Linux 6") && svg.contains("Panel b"), "{svg}");
    }
}
