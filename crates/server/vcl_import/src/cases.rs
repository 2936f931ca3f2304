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
pub(super) const QUESTIONS_MAX: usize = 40;

/// The most cases of a request. With more, fewer questions are asked.
const CASES_MAX: usize = 64;

/// So many questions have few cases.
pub(super) const QUESTIONS_FEW: usize = 4;

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
        let held = all.asked.iter().filter(|one| one.is).map(|one| one.condition.text().len());
        if at >= all.most || held.sum::<usize>() + condition.text().len() > CONDITION_BYTES_MAX {
            return None;
        }
        let holds = self.ask_once(condition, id, &mut state.questions)?;
        state.absent.extend(if holds { opposite.fields() } else { condition.fields() });
        Some(holds)
    }

    /// Asks a question that was not asked before in this run.
    fn ask_once(&self, condition: &Cel, id: Option<usize>, all: &mut Questions) -> Option<bool> {
        let at = all.asked.len();
        let text = condition.text();
        let checked = self.checked.borrow().get(text).copied();
        let is_of_client = checked.unwrap_or_else(|| {
            let found = cel::check(condition, &self.lists).map(cel::is_of_client);
            self.checked.borrow_mut().insert(text.to_owned(), found);
            found
        })?;
        let is = all.answers.get(at).copied().unwrap_or(true);
        all.asked.push(Asked { condition: condition.clone(), is, is_of_client, id });
        Some(is)
    }

    /// The built-in program, which is run if `vcl_recv` does not end: it passes requests of a
    /// client that identifies itself.
    pub(super) fn builtin(&self, state: &mut State) -> Option<End> {
        // A substitution leaves the field in the request.
        if state.filter.is_some() && !state.in_doubt && !state.lacks("cookie") {
            return Some(End::Pass);
        }
        let is_reason = |name: &&str| !state.is_no_reason_to_pass(name);
        let names: Vec<&str> = PRIVATE.into_iter().filter(is_reason).collect();
        if state.in_doubt || !names.iter().all(|name| state.is_own(name)) {
            return None;
        }
        let condition = Cel::any(names.iter().filter_map(|name| cel::has_field(name)).collect())?;
        let passes = self.ask(&condition, None, state)?;
        state.questions.builtin = Some((condition, passes));
        passes.then_some(End::Pass)
    }

    /// Runs the program for each case of a request.
    ///
    /// A stored response is for all clients, so a case that stores has no condition on the client.
    pub(super) fn cases(&mut self, request: &Request) -> Vec<Case> {
        let all = self.decided(request);
        let (mut out, mut of_clients) = (Vec::new(), Vec::new());
        flatten(tree(&all, 0), &mut Vec::new(), &mut out, &mut of_clients);
        for id in of_clients.into_iter().flatten() {
            self.note_id(id, Fate::NotCarried, OF_CLIENT);
        }
        out
    }

    /// The results for all answers to the questions, in the order of the answers: yes before no.
    fn decided(&mut self, request: &Request) -> Vec<Decided> {
        let few = self.questions_max.min(QUESTIONS_FEW);
        let (mut all, mut answers, mut most) = (Vec::new(), Vec::new(), self.questions_max);
        loop {
            let questions = Questions { answers, most, ..Questions::default() };
            let mut state = self.run_asking(request.clone(), questions);
            let Questions { asked, builtin, .. } = std::mem::take(&mut state.questions);
            answers = asked.iter().map(|one| one.is).collect();
            all.push(Decided { asked, end: Leaf { cell: self.outcome(state), builtin } });
            while answers.pop_if(|is| !*is).is_some() {}
            match answers.last_mut() {
                Some(_) if all.len() >= CASES_MAX && most > few => {
                    (all, answers) = (Vec::new(), Vec::new());
                    most = fewer(most).max(few);
                }
                Some(last) if !self.is_exhausted() => *last = false,
                _ => return all,
            }
        }
    }
}

/// The result of a run, and the questions with their answers.
struct Decided {
    asked: Vec<Asked>,
    end: Leaf,
}

/// What requests get, and what the built-in program asked.
#[derive(Clone, PartialEq, Eq)]
struct Leaf {
    cell: Cell,
    builtin: Option<(Cel, bool)>,
}

/// The results by the answers to the questions.
enum Tree {
    Leaf(Box<Leaf>),
    Question { asked: Asked, yes: Box<Tree>, no: Box<Tree> },
}

/// The tree of results that have the same answers to the first `depth` questions. A question on
/// which nothing depends is left out.
fn tree(all: &[Decided], depth: usize) -> Tree {
    let asked = match all[0].asked.get(depth) {
        Some(asked) => asked.clone(),
        None => return Tree::Leaf(Box::new(all[0].end.clone())),
    };
    let split = all.iter().position(|one| !one.asked[depth].is).unwrap_or(all.len());
    let (yes, no) = all.split_at(split);
    match (yes.is_empty(), no.is_empty()) {
        (true, _) => tree(no, depth + 1),
        // The runs were stopped.
        (_, true) => tree(yes, depth + 1),
        (false, false) => {
            let (yes, no) = (tree(yes, depth + 1), tree(no, depth + 1));
            joined(asked, yes, no)
        }
    }
}

/// A question with its results. If one side ends like the other, its own question is a part of
/// this one.
fn joined(asked: Asked, yes: Tree, no: Tree) -> Tree {
    if yes.is_same(&no) {
        return no;
    }
    // A condition has a longest text.
    let is_short =
        |of: &Asked| asked.condition.text().len() + of.condition.text().len() < CONDITION_BYTES_MAX;
    let question = |condition: Option<Cel>, of: &Asked, yes: Box<Tree>, no: Tree| {
        let condition = condition.expect("two conditions are joined");
        let is_of_client = asked.is_of_client || of.is_of_client;
        let asked = Asked { condition, is_of_client, ..asked.clone() };
        Tree::Question { asked, yes, no: Box::new(no) }
    };
    match yes {
        Tree::Question { asked: of, yes: inner, no: rest }
            if is_short(&of) && rest.is_same(&no) =>
        {
            let both = Cel::all(vec![asked.condition.clone(), of.condition.clone()]);
            question(both, &of, inner, no)
        }
        Tree::Question { asked: of, yes: rest, no: inner }
            if is_short(&of) && rest.is_same(&no) =>
        {
            let both = Cel::all(vec![asked.condition.clone(), of.condition.clone().negated()]);
            question(both, &of, inner, no)
        }
        yes => match no {
            Tree::Question { asked: of, yes: inner, no: rest }
                if is_short(&of) && inner.is_same(&yes) =>
            {
                let either = Cel::any(vec![asked.condition.clone(), of.condition.clone()]);
                question(either, &of, inner, *rest)
            }
            no => Tree::Question { asked, yes: Box::new(yes), no: Box::new(no) },
        },
    }
}

impl Tree {
    fn is_same(&self, other: &Tree) -> bool {
        match (self, other) {
            (Tree::Leaf(one), Tree::Leaf(other)) => one == other,
            (Tree::Question { asked, yes, no }, Tree::Question { asked: of, yes: y, no: n }) => {
                asked.condition == of.condition && yes.is_same(y) && no.is_same(n)
            }
            (Tree::Leaf(_), Tree::Question { .. }) | (Tree::Question { .. }, Tree::Leaf(_)) => {
                false
            }
        }
    }

    /// In how many cases something is stored.
    fn stores(&self) -> usize {
        match self {
            Tree::Leaf(leaf) => usize::from(leaf.cell.store),
            Tree::Question { asked, yes, no } => match asked.is_of_client {
                true => yes.stores().max(no.stores()),
                false => yes.stores() + no.stores(),
            },
        }
    }
}

/// Writes the cases of a tree behind others. `holds`: what holds in all of them. Of a question on
/// the client, the answer for which more is stored comes last: the requests that remain.
fn flatten(
    from: Tree,
    holds: &mut Vec<Asked>,
    out: &mut Vec<Case>,
    of_clients: &mut Vec<Option<usize>>,
) {
    match from {
        Tree::Leaf(leaf) => {
            let Leaf { mut cell, builtin } = *leaf;
            // All requests for a stored response have the route of one of them.
            if cell.store && holds.iter().any(|one| one.is_of_client) {
                cell.store = false;
                of_clients.extend(holds.iter().filter(|one| one.is_of_client).map(|one| one.id));
            }
            let when = Cel::all(holds.iter().map(|one| one.condition.clone()).collect());
            // Requests for which a case before it holds do not come here.
            if when.is_none() || !out.iter().any(|case| case.when == when) {
                out.push(Case { when, cell, builtin });
            }
        }
        Tree::Question { mut asked, yes, no } => {
            let (mut first, mut last) = (yes, no);
            if asked.is_of_client && first.stores() > last.stores() {
                asked.condition = asked.condition.negated();
                (first, last) = (last, first);
            }
            holds.push(asked);
            flatten(*first, holds, out, of_clients);
            holds.pop();
            flatten(*last, holds, out, of_clients);
        }
    }
}

/// The number of questions of the next attempt.
fn fewer(questions: usize) -> usize {
    questions * 2 / 3
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

/// The longest condition that is joined from others, in bytes. The server takes a few more.
const CONDITION_BYTES_MAX: usize = 3500;

/// Whether two conditions can be joined.
fn fits(one: Option<&Cel>, other: Option<&Cel>) -> bool {
    let length = |one: Option<&Cel>| one.map_or(0, |one| one.text().len());
    one.is_none() || other.is_none() || length(one) + length(other) < CONDITION_BYTES_MAX
}

/// Joins cases that follow each other and do the same.
pub(super) fn merged(all: Vec<(Option<Cel>, Cell)>) -> Vec<(Option<Cel>, Cell)> {
    let mut out: Vec<(Option<Cel>, Cell)> = Vec::new();
    for (when, cell) in all {
        match out.last_mut() {
            Some((before, same)) if *same == cell && fits(before.as_ref(), when.as_ref()) => {
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
