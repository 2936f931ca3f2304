//! The cases of a cell: the program is run for each result of the conditions that are not known.
//!
//! A condition that our file can express is a question. The first run answers each question with
//! yes; each further run answers the last question that was answered with yes with no. So the runs
//! form a list of decisions: a case applies if all its conditions hold, and no case before it
//! applies. The last case has no condition.

use super::state::{End, PRIVATE, Request, State};
use super::{Cell, Run};
use imported::cel::{self, Cel};
use imported::note::Fate;

/// The most questions of one run. The conditions after them are not known.
pub(super) const QUESTIONS_MAX: usize = 12;

/// The most cases of a request. With more, only [`QUESTIONS_FEW`] are asked.
const CASES_MAX: usize = 24;

/// So many questions have few cases.
const QUESTIONS_FEW: usize = 4;

const _: () = assert!(1 << QUESTIONS_FEW <= CASES_MAX && QUESTIONS_FEW < QUESTIONS_MAX);

/// A question, and how it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    condition: Cel,
    is: bool,
    /// The condition reads what differs between requests for one stored response.
    is_of_client: bool,
    /// The condition that asks, if it is of a statement.
    id: Option<usize>,
}

/// The questions of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Questions {
    /// How the first questions are answered.
    answers: Vec<bool>,
    asked: Vec<Asked>,
    /// What the built-in program asked, and the answer.
    builtin: Option<(Cel, bool)>,
    most: usize,
}

/// A case of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// `None`: all other requests.
    pub(super) when: Option<Cel>,
    pub(super) cell: Cell,
    /// What the built-in program asked, and its answer.
    pub(super) builtin: Option<(Cel, bool)>,
}

impl Run<'_> {
    /// Asks whether a condition holds. `None`: our file cannot ask, or there were too many
    /// questions.
    pub(super) fn ask(
        &self,
        condition: &Cel,
        id: Option<usize>,
        state: &mut State,
    ) -> Option<bool> {
        let all = &mut state.questions;
        let opposite = condition.clone().negated();
        let same = |one: &&Asked| one.condition == *condition || one.condition == opposite;
        if let Some(one) = all.asked.iter().find(same) {
            return Some(one.is == (one.condition == *condition));
        }
        let at = all.asked.len();
        if at >= all.most {
            return None;
        }
        let text = condition.text();
        let checked = self.checked.borrow().get(text).copied();
        let is_of_client = checked.unwrap_or_else(|| {
            let found = cel::check(condition, &self.lists).map(cel::is_of_client);
            self.checked.borrow_mut().insert(text.to_owned(), found);
            found
        })?;
        let is = all.answers.get(at).copied().unwrap_or(true);
        all.asked.push(Asked { condition: condition.clone(), is, is_of_client, id });
        if !is {
            state.absent.extend(condition.fields());
        }
        Some(is)
    }

    /// The built-in program, which is run if `vcl_recv` does not end: it passes requests of a
    /// client that identifies itself.
    pub(super) fn builtin(&self, state: &mut State) -> Option<End> {
        let passes_cookies = state.keys.bypass.iter().any(|name| name == "*");
        let is_absent = |name: &str| state.lacks(name) || name == "cookie" && passes_cookies;
        let names: Vec<&str> = PRIVATE.into_iter().filter(|name| !is_absent(name)).collect();
        let is_own =
            |name: &&str| !state.vague.contains(*name) && !state.request.contains_key(*name);
        if state.in_doubt || !names.iter().all(is_own) {
            return None;
        }
        let condition = Cel::any(names.iter().filter_map(|name| cel::has_field(name)).collect())?;
        let passes = self.ask(&condition, None, state)?;
        state.questions.builtin = Some((condition, passes));
        passes.then_some(End::Pass)
    }

    /// Runs the program for each case of a request.
    pub(super) fn cases(&mut self, request: &Request) -> Vec<Case> {
        let few = self.questions_max.min(QUESTIONS_FEW);
        let (mut all, mut answers, mut most) = (Vec::new(), Vec::new(), self.questions_max);
        loop {
            let questions = Questions { answers, most, ..Questions::default() };
            let mut state = self.run_asking(request.clone(), questions);
            let questions = std::mem::take(&mut state.questions);
            answers = questions.asked.iter().map(|one| one.is).collect();
            all.push(self.case(state, questions));
            while answers.pop_if(|is| !*is).is_some() {}
            match answers.last_mut() {
                Some(_) if all.len() >= CASES_MAX && most > few => {
                    (all, answers, most) = (Vec::new(), Vec::new(), few);
                }
                Some(last) if !self.is_exhausted() => *last = false,
                _ => return all,
            }
        }
    }

    fn case(&mut self, state: State, questions: Questions) -> Case {
        let mut cell = self.outcome(state);
        let holds = || questions.asked.iter().filter(|one| one.is);
        // All requests for a stored response have the route of one of them.
        if cell.store && holds().any(|one| one.is_of_client) {
            cell.store = false;
            for id in holds().filter(|one| one.is_of_client).filter_map(|one| one.id) {
                self.note_id(id, Fate::NotCarried, OF_CLIENT);
            }
        }
        let when = Cel::all(holds().map(|one| one.condition.clone()).collect());
        Case { when, cell, builtin: questions.builtin.clone() }
    }
}

const OF_CLIENT: &str = "requests for which this holds are not answered from the store, and \
                         Varnish stores their responses";

/// The condition by which the built-in program passes requests, if it is the same in all cases
/// that store.
pub(super) fn common<'c>(all: impl Iterator<Item = &'c Case>) -> Option<Cel> {
    let mut found: Option<&Cel> = None;
    for case in all.filter(|case| case.cell.store) {
        match &case.builtin {
            Some((condition, false)) if found.is_none_or(|one| one == condition) => {
                found = Some(condition);
            }
            _ => return None,
        }
    }
    found.cloned()
}

/// The cells of the cases, with their conditions. `rule`: requests for which this holds do not use
/// the store in any case.
pub(super) fn cells(cases: Vec<Case>, rule: Option<&Cel>) -> Vec<(Option<Cel>, Cell)> {
    let mut all: Vec<(Option<Cel>, Cell)> = Vec::new();
    let mut rest = cases.into_iter().peekable();
    while let Some(Case { when, cell, builtin }) = rest.next() {
        let is_passed = matches!(&builtin, Some((one, true)) if Some(one) == rule);
        let is_same = |next: &Case| cell.without_store() == next.cell.without_store();
        if is_passed && rest.peek().is_some_and(is_same) {
            continue;
        }
        all.push((when, cell));
    }
    merged(all)
}

/// Joins cases that follow each other and do the same.
pub(super) fn merged(all: Vec<(Option<Cel>, Cell)>) -> Vec<(Option<Cel>, Cell)> {
    let mut out: Vec<(Option<Cel>, Cell)> = Vec::new();
    for (when, cell) in all {
        match out.last_mut() {
            Some((before, same)) if *same == cell => {
                *before = match (before.take(), when) {
                    (Some(one), Some(other)) => Cel::any(vec![one, other]),
                    _ => None,
                };
            }
            _ => out.push((when, cell)),
        }
    }
    out
}
