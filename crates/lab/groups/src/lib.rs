//! Procedure groups: which samples of a profile are shown as one row.
//!
//! The rules are in a file (`default.toml`, which explains the format, or the user's file). They
//! classify the samples of the server. All other samples have only their innermost procedure, and
//! are classified by their owner: the recorder, the kernel on behalf of others (including
//! interrupts on an idle CPU), and other processes. Idle samples are in no group.
//!
//! The first matching rule wins, so that every sample is in exactly one group, and costs of groups
//! add up. Only the innermost procedure is matched unless a rule says `anywhere`: a copy on behalf
//! of a read is data movement, as in the tables of 1998, but everything inside select() belongs to
//! select.

#![forbid(unsafe_code)]

use std::ops::Range;

use regex::Regex;
use serde::Deserialize;
use toml::Spanned;
use trial::profile::{Frame, FrameMode, Owner, Stack};

const DEFAULT: &str = include_str!("default.toml");
/// Most groups in a user's file.
const GROUPS_MAX: usize = 200;
const NAME_BYTES_MAX: usize = 64;

/// A file of procedure groups is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {what}")]
pub struct Error {
    /// Its name.
    pub file: String,
    /// The line.
    pub line: usize,
    /// What is wrong, and how to fix it.
    pub what: String,
}

/// The rules, compiled.
#[derive(Clone, Debug)]
pub struct Groups {
    groups: Vec<Group>,
    interrupts: Option<Regex>,
}

/// A group of the file.
#[derive(Clone, Debug)]
struct Group {
    name: String,
    title: String,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    symbol: Option<Regex>,
    module: Option<Regex>,
    mode: Option<FrameMode>,
    anywhere: bool,
}

/// The place of a sample: its group, or its owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The group with this number.
    Group(usize),
    /// The rest of this module, which matches no group.
    Rest(String),
    /// The recorder.
    Recorder,
    /// The kernel outside the server: for other processes, and on idle CPUs.
    Elsewhere,
    /// Other processes in user mode.
    Others,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    interrupts: Option<Spanned<String>>,
    #[serde(default)]
    group: Vec<GroupTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
    name: Spanned<String>,
    title: Option<String>,
    #[serde(default)]
    rule: Vec<Spanned<RuleTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleTable {
    symbol: Option<Spanned<String>>,
    module: Option<Spanned<String>>,
    mode: Option<Spanned<String>>,
    #[serde(default)]
    anywhere: bool,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups::read(DEFAULT, "the default rules").expect("the default rules are tested")
    }
}

impl Groups {
    /// Reads rules from the text of a file; `file` is its name, for errors.
    ///
    /// # Errors
    /// [`Error`], with the line and how to fix it.
    pub fn read(text: &str, file: &str) -> Result<Groups, Error> {
        let at = |span: Option<Range<usize>>, what: String| {
            let before = &text.as_bytes()[..span.map_or(0, |span| span.start.min(text.len()))];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            Error { file: file.to_string(), line, what }
        };
        let found: RulesFile =
            toml::from_str(text).map_err(|error| at(error.span(), one_line(error.message())))?;
        let compile = |pattern: &Option<Spanned<String>>, key: &str| match pattern {
            None => Ok(None),
            Some(pattern) => Regex::new(pattern.get_ref()).map(Some).map_err(|error| {
                let why = error.to_string();
                let why =
                    why.lines().last().unwrap_or_default().trim().trim_start_matches("error: ");
                let what = format!("{key} is not a regular expression: {why}");
                at(Some(pattern.span()), what)
            }),
        };
        let mut groups: Vec<Group> = Vec::new();
        for table in &found.group {
            let (name, span) = (table.name.get_ref(), Some(table.name.span()));
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control)
            {
                let what = format!("a name must have 1 to {NAME_BYTES_MAX} printable bytes");
                return Err(at(span, what));
            }
            if let Some(reserved) = RESERVED.iter().find(|reserved| *reserved == name) {
                let what = format!("{reserved:?} is reserved for an owner; choose another name");
                return Err(at(span, what));
            }
            if groups.iter().any(|group| group.name == *name) {
                let what = format!("{name:?} is defined twice; put all its rules into one group");
                return Err(at(span, what));
            }
            if table.rule.is_empty() {
                return Err(at(span, format!("{name:?} has no [[group.rule]]; add one")));
            }
            let mut rules = Vec::with_capacity(table.rule.len());
            for spanned in &table.rule {
                let rule = spanned.get_ref();
                let mode = match rule.mode.as_ref().map(|mode| (mode.get_ref().as_str(), mode)) {
                    None => None,
                    Some(("user", _)) => Some(FrameMode::User),
                    Some(("kernel", _)) => Some(FrameMode::Kernel),
                    Some((other, mode)) => {
                        let what = format!("mode must be \"user\" or \"kernel\", not {other:?}");
                        return Err(at(Some(mode.span()), what));
                    }
                };
                if rule.symbol.is_none() && rule.module.is_none() && mode.is_none() {
                    let what = "a rule without symbol, module or mode matches everything; add one";
                    return Err(at(Some(spanned.span()), what.to_string()));
                }
                rules.push(Rule {
                    symbol: compile(&rule.symbol, "symbol")?,
                    module: compile(&rule.module, "module")?,
                    mode,
                    anywhere: rule.anywhere,
                });
            }
            let title = table.title.clone().unwrap_or_else(|| name.clone());
            groups.push(Group { name: name.clone(), title, rules });
        }
        if groups.len() > GROUPS_MAX {
            let what = format!("{} groups, but at most {GROUPS_MAX} are allowed", groups.len());
            return Err(at(None, what));
        }
        Ok(Groups { groups, interrupts: compile(&found.interrupts, "interrupts")? })
    }

    /// The text of the default rules, as a file to start from.
    #[must_use]
    pub fn default_text() -> &'static str {
        DEFAULT
    }

    /// The places of all groups of the file, in its order.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        (0..self.groups.len()).map(Place::Group)
    }

    /// The name of a place on the command line.
    pub fn name(&self, place: &Place) -> String {
        match place {
            Place::Group(at) => self.groups[*at].name.clone(),
            Place::Rest(module) => module.clone(),
            Place::Recorder => RESERVED[0].to_string(),
            Place::Elsewhere => RESERVED[1].to_string(),
            Place::Others => RESERVED[2].to_string(),
        }
    }

    /// The title of a place in tables.
    pub fn title(&self, place: &Place) -> String {
        match place {
            Place::Group(at) => self.groups[*at].title.clone(),
            Place::Rest(module) if module == "[kernel]" => "rest of the kernel".to_string(),
            Place::Rest(module) => format!("rest of {module}"),
            Place::Recorder => "recorder".to_string(),
            Place::Elsewhere => "kernel, outside the server".to_string(),
            Place::Others => "other processes".to_string(),
        }
    }

    /// Classifies every stack, for each owner that is not idle.
    pub fn sort(&self, frames: &[Frame], stacks: &[Stack]) -> Sorted<'_> {
        let rules: Vec<(usize, &Rule)> = (self.groups.iter().enumerate())
            .flat_map(|(at, group)| group.rules.iter().map(move |rule| (at, rule)))
            .collect();
        let matched = frames
            .iter()
            .map(|frame| rules.iter().map(|(_, rule)| rule.matches(frame)).collect())
            .collect();
        let entries = frames.iter().map(|frame| self.is_interrupt(frame)).collect();
        let mut sorted = Sorted { rules, matched, entries, server: Vec::new(), kernel: Vec::new() };
        for stack in stacks {
            let place = sorted.server_place(stack, frames);
            let leaf = stack.frames.first().map(|&leaf| frames[leaf as usize].mode);
            sorted.server.push(place);
            sorted.kernel.push(leaf == Some(FrameMode::Kernel));
        }
        sorted
    }

    fn is_interrupt(&self, frame: &Frame) -> bool {
        let named = self.interrupts.as_ref().zip(frame.symbol.as_ref());
        frame.mode == FrameMode::Kernel
            && named.is_some_and(|(interrupts, symbol)| interrupts.is_match(symbol))
    }
}

/// Names that are reserved for owners.
const RESERVED: [&str; 3] = ["recorder", "elsewhere", "others"];

impl Rule {
    fn matches(&self, frame: &Frame) -> bool {
        let symbol = match (&self.symbol, &frame.symbol) {
            (Some(pattern), Some(symbol)) => pattern.is_match(symbol),
            (Some(_), None) => false,
            (None, _) => true,
        };
        symbol
            && self.mode.is_none_or(|mode| mode == frame.mode)
            && self.module.as_ref().is_none_or(|pattern| pattern.is_match(&frame.module))
    }
}

/// Classified stacks.
pub struct Sorted<'a> {
    rules: Vec<(usize, &'a Rule)>,
    /// For each frame, the rules that match it.
    matched: Vec<Vec<bool>>,
    /// For each frame, whether it is the entry of an interrupt.
    entries: Vec<bool>,
    /// For each stack, its place if it is the server's.
    server: Vec<Place>,
    /// For each stack, whether it ran in kernel mode.
    kernel: Vec<bool>,
}

impl Sorted<'_> {
    /// The place of a sample; `None` if it is idle. The stack must be one of the classified ones.
    pub fn place(&self, owner: Owner, stack: u32) -> Option<Place> {
        match owner {
            Owner::Server => Some(self.server[stack as usize].clone()),
            Owner::Recorder => Some(Place::Recorder),
            Owner::Other if self.kernel[stack as usize] => Some(Place::Elsewhere),
            Owner::Other => Some(Place::Others),
            Owner::Idle => None,
        }
    }

    fn server_place(&self, stack: &Stack, frames: &[Frame]) -> Place {
        let Some(&leaf) = stack.frames.first() else { return Place::Rest(NO_STACK.to_string()) };
        let entry = stack.frames.iter().position(|&frame| self.entries[frame as usize]);
        let callers = &stack.frames[..entry.map_or(stack.frames.len(), |entry| entry + 1)];
        for (at, (group, rule)) in self.rules.iter().enumerate() {
            let meets = |frame: &u32| self.matched[*frame as usize][at];
            if meets(&leaf) || rule.anywhere && callers.iter().any(meets) {
                return Place::Group(*group);
            }
        }
        Place::Rest(frames[leaf as usize].module.clone())
    }
}

/// The module of samples without a stack.
const NO_STACK: &str = "unknown";

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
