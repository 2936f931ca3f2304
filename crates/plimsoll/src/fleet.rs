//! `plimsoll fleet`: questions about many servers, to a directory of trials or to ClickHouse.

use ::fleet::capacity::{self, Capacities};
use ::fleet::example::{Fleet as Example, Plan};
use ::fleet::forecast::{Outlook, ServerCapacity};
use ::fleet::home::{Asked, Label, Run};
use ::fleet::{Folder, Home, compare, flame, forecast, list, outliers};
use ::report::Verdict;
use ::report::sheet::{self, Sheet};
use command::failure::{Failure, misuse};
use command::output;
use command::scratch::Scratch;
use indicatif::ProgressBar;
use regress::load_line::LEVEL_DEFAULT;
use serde::Serialize;

use crate::cli::Login;
use crate::cli::fleet::{self as flags, Fleet, Shown, Trials};
use crate::{progress, ship};

/// Servers with details.
const DETAILS: usize = 3;

/// The longest name of a host and a server in a file's name. A name may have 255 bytes.
const FILE_NAME_CHARS_MAX: usize = 50;

/// The label of the sentence that answers a question. It is the heading of the page.
const ANSWER: &str = "Answer";

/// The labels of sentences that say how an answer is known. A page has them in its details.
const OF_THE_METHOD: [&str; 2] = ["Data", "Saturated"];

/// Answers a question.
pub(crate) fn fleet(verb: &Fleet) -> Result<(), Failure> {
    match verb {
        Fleet::List(flags) => {
            let question = Question::of(&flags.trials, None)?;
            let answer = list::list(&*question.home, &question.asked).map_err(misuse)?;
            question.show(&flags.shown, &answer, list::sheet)
        }
        Fleet::Capacity(flags) => {
            let question = Question::of(&flags.trials, flags.by.clone())?;
            let mut answer = question.capacities(&question.asked)?;
            let (details, intervals_max) = match flags.details {
                Some(details) => (details, capacity::DETAIL_INTERVALS_MAX),
                None => (DETAILS, capacity::DETAIL_INTERVALS),
            };
            let (home, asked) = (&*question.home, &question.asked);
            let scratch = Scratch::new("fleet")?;
            capacity::details(home, asked, &mut answer, details, intervals_max, scratch.path())
                .map_err(misuse)?;
            question.show(&flags.shown, &answer, capacity::sheet)
        }
        Fleet::Compare(flags) => compared(flags),
        Fleet::Outliers(flags) => outlying(flags),
        Fleet::Forecast(flags) => forecasted(flags),
        Fleet::Flame(flags) => flames(flags),
        Fleet::Fetch(flags) => fetch(flags),
        Fleet::Example(flags) => example(flags),
        Fleet::Init(flags) => ship::init(flags),
    }
}

/// A home of trials.
pub(crate) struct Opened {
    pub(crate) home: Box<dyn Home>,
    /// Its path, or its address without the password.
    pub(crate) name: String,
    /// Files that are not part of any answer, with the reasons.
    pub(crate) skipped: Vec<String>,
}

/// Opens a home: a directory, or a database.
pub(crate) fn open(home: &str, login: &Login) -> Result<Opened, Failure> {
    if is_database(home) {
        let client = ship::client(home, login)?;
        let name = client.address().to_string();
        return Ok(Opened { home: Box::new(client), name, skipped: Vec::new() });
    }
    let folder = Folder::open(home).map_err(misuse)?;
    let skipped = folder.skipped().iter().map(|one| format!("{}: {}", one.path, one.why));
    let skipped = skipped.collect();
    Ok(Opened { home: Box::new(folder), name: home.to_owned(), skipped })
}

/// Whether the trials of a home are in a database, and not in a directory.
pub(crate) fn is_database(home: &str) -> bool {
    home.starts_with("http://") || home.starts_with("https://")
}

/// A question to a home.
struct Question {
    home: Box<dyn Home>,
    asked: Asked,
    /// Files that are not part of the answer.
    skipped: Vec<String>,
}

impl Question {
    fn of(trials: &Trials, by: Option<String>) -> Result<Question, Failure> {
        let Opened { home, name, skipped } = open(&trials.home, &trials.login)?;
        let label =
            |(name, value): &(String, String)| Label { name: name.clone(), value: value.clone() };
        let span = trials.last.map(|last| {
            let now_s = ::load::sys::wall_ns() / 1_000_000_000;
            (now_s - i64::try_from(last.as_secs()).unwrap_or(now_s), now_s)
        });
        let asked = Asked {
            span,
            labels: trials.labels.iter().map(label).collect(),
            server: trials.server.clone(),
            by,
        };
        let question = Question { home, asked, skipped };
        if question.home.runs(&question.asked).map_err(misuse)?.is_empty() {
            let what = question.skipped.first().map_or(String::new(), |first| format!("; {first}"));
            return Err(misuse(format!(
                "{name} has no trial that the flags ask for{what}; record some with plimsoll \
                 record, or try plimsoll fleet example DIR"
            )));
        }
        Ok(question)
    }

    fn capacities(&self, asked: &Asked) -> Result<Capacities, Failure> {
        capacity::capacity(&*self.home, asked, LEVEL_DEFAULT).map_err(misuse)
    }

    /// Prints an answer, and writes its page.
    fn show<T: Serialize>(
        &self,
        shown: &Shown,
        answer: &T,
        text: impl Fn(&T) -> Sheet,
    ) -> Result<(), Failure> {
        let mut sheet = text(answer);
        let skipped = self.skipped.iter().map(|why| ("Skipped".to_owned(), why.clone()));
        sheet.facts.extend(skipped);
        if let Some(path) = &shown.html {
            let is_answer = |(label, _): &(String, String)| label == ANSWER;
            let heading = sheet.facts.iter().find(|fact| is_answer(fact));
            let heading = heading.map_or(sheet.title.clone(), |(_, text)| text.clone());
            let mut first = sheet.clone();
            let all = std::mem::take(&mut first.facts).into_iter().filter(|fact| !is_answer(fact));
            let (facts, warnings): (Vec<_>, Vec<_>) =
                all.partition(|(label, _)| OF_THE_METHOD.contains(&label.as_str()));
            first.facts = warnings;
            let tables = first.tables.split_off(first.tables.len().min(1));
            let title = "Details: how it is known".to_owned();
            let details = Sheet { title, facts, tables };
            output::write(path, &sheet::answer_page(&heading, first, "", details))?;
        }
        output::show(shown.json, answer, |_| sheet::sheet(&sheet, output::width()))
    }
}

fn compared(flags: &flags::Compare) -> Result<(), Failure> {
    let question = Question::of(&flags.trials, Some(flags.by.clone()))?;
    let terms = compare::Terms {
        before: flags.before.clone(),
        after: flags.after.clone(),
        margin: flags.margin / 100.0,
    };
    let answer = compare::compare(&*question.home, &question.asked, &terms).map_err(misuse)?;
    question.show(&flags.shown, &answer, compare::sheet)?;
    let regressed = answer.servers.iter().filter(|one| one.verdict == Verdict::Regression).count();
    match answer.verdict {
        Verdict::Regression => {
            let compare::Compared { label, after, .. } = &answer;
            Err(Failure::CheckFailed(format!("a request costs more with {label}={after}")))
        }
        _ if regressed > 0 => {
            Err(Failure::CheckFailed(format!("a request costs more on {regressed} servers")))
        }
        Verdict::Inconclusive if answer.ratio.is_none() => {
            Err(misuse(format!("inconclusive: {}", compare::why_not(&answer))))
        }
        Verdict::Inconclusive => Err(misuse(
            "inconclusive: the interval is not within the margin; record for longer, or more \
             servers",
        )),
        Verdict::Improvement | Verdict::NoChange => Ok(()),
    }
}

fn outlying(flags: &flags::Outliers) -> Result<(), Failure> {
    let question = Question::of(&flags.trials, flags.by.clone())?;
    let answer = outliers::outliers(&*question.home, &question.asked).map_err(misuse)?;
    question.show(&flags.shown, &answer, outliers::sheet)?;
    let members = answer.groups.iter().flat_map(|group| &group.servers);
    let found = members.filter(|member| member.outlier).count();
    if found > 0 {
        return Err(Failure::CheckFailed(format!("{found} servers differ from their group")));
    }
    match answer.groups.iter().all(|group| group.cannot_be_said.is_some()) {
        true => Err(misuse("inconclusive: no group has enough servers to compare them")),
        false => Ok(()),
    }
}

fn forecasted(flags: &flags::Forecast) -> Result<(), Failure> {
    let question = Question::of(&flags.trials, flags.by.clone())?;
    // The capacity of a server does not depend on the group that it is in.
    let capacities = question.capacities(&Asked { by: None, ..question.asked.clone() })?;
    let known = capacities.servers.iter().filter_map(|one| {
        let line = one.line.as_ref()?;
        let (value, low, high) = (line.value?, line.low?, line.high?);
        Some(ServerCapacity { server: one.server.clone(), value, low, high })
    });
    let known: Vec<ServerCapacity> = known.collect();
    let answer = forecast::forecast(&*question.home, &question.asked, &known).map_err(misuse)?;
    question.show(&flags.shown, &answer, forecast::sheet)?;
    let ends =
        |outlook: &Outlook| matches!(outlook, Outlook::RanOut { .. } | Outlook::RunsOut { .. });
    let ending = answer.groups.iter().filter(|group| ends(&group.outlook)).count();
    let said = |outlook: &Outlook| !matches!(outlook, Outlook::CannotBeSaid { .. });
    if ending > 0 {
        return Err(Failure::CheckFailed(format!("headroom ends for {ending} of the groups")));
    }
    match answer.groups.iter().any(|group| said(&group.outlook)) {
        true => Ok(()),
        false => Err(misuse("inconclusive: when headroom ends cannot be said of any group")),
    }
}

fn flames(flags: &flags::Flame) -> Result<(), Failure> {
    let question = Question::of(&flags.trials, Some(flags.by.clone()))?;
    let between = [flags.between.first(), flags.between.get(1)];
    let answer = flame::flame(&*question.home, &question.asked, between).map_err(misuse)?;
    output::write(&flags.output, &flame::svg(&answer).map_err(misuse)?)?;
    question.show(&flags.shown, &answer, flame::sheet)?;
    if !flags.shown.json {
        output::print(format!("The flame graph is in {}\n", flags.output.display()))?;
    }
    Ok(())
}

/// A trial that is in the directory.
#[derive(Serialize)]
struct Fetched {
    file: String,
    #[serde(flatten)]
    run: Run,
    /// Whether it was there before.
    kept: bool,
}

fn fetch(flags: &flags::Fetch) -> Result<(), Failure> {
    let question = Question::of(&flags.trials, None)?;
    let runs = question.home.runs(&question.asked).map_err(misuse)?;
    if runs.len() > flags.most {
        return Err(misuse(format!(
            "{} trials, more than {}: ask for fewer with --server, --label and --last, or give \
             --most",
            runs.len(),
            flags.most
        )));
    }
    output::make_directory(&flags.output)?;
    let mut fetched = Vec::new();
    for run in runs {
        let file = flags.output.join(file_name(&run));
        let kept = file.exists();
        if !kept {
            question.home.fetch(&run, &file).map_err(misuse)?;
        }
        fetched.push(Fetched { file: file.display().to_string(), run, kept });
    }
    output::show(flags.json, &fetched, |fetched| {
        let line = |one: &Fetched| {
            let Fetched { file, run, kept } = one;
            let was = if *kept { " (was there)" } else { "" };
            format!("{file}: {}, {} intervals{was}\n", run.server, run.intervals)
        };
        fetched.iter().map(line).collect()
    })
}

/// The name of the file of a trial: it survives another fetch.
fn file_name(run: &Run) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = format!("{}-{}", run.server.host, run.server.server)
        .chars()
        .map(plain)
        .take(FILE_NAME_CHARS_MAX)
        .collect();
    format!("{name}-{:016x}.trial", run.trial)
}

fn example(flags: &flags::Example) -> Result<(), Failure> {
    output::make_directory(&flags.directory)?;
    let fleet = Example::new(flags.seed, Plan::folder());
    let bar = progress::bar(ProgressBar::new(0), "{pos} of {len} trials {wide_bar}", false);
    let shown = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let written = fleet.write(&flags.directory, &shown).map_err(misuse)?;
    bar.finish_and_clear();
    let directory = flags.directory.display();
    output::print(format!(
        "{written} made-up trials written to {directory}\n\nTry:\n  plimsoll fleet capacity \
         {directory}\n  plimsoll fleet compare {directory}\n  plimsoll fleet outliers \
         {directory}\n  plimsoll fleet forecast {directory} --by group\n"
    ))
}
