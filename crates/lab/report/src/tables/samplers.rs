//! Tables of lock waits, of file access, of turns and of waits for other servers.

use trial::files::Direction;
use trial::profile::Owner;
use trial::waits::LockKind;

use crate::analysis::{
    Answers, Counted, Files, FilesOfSize, Stretches, StretchesOfSize, WaitFigures, Waits,
    WaitsAtPlace,
};
use crate::format::{NONE, fixed, latency, latency_fine, or_none, percent, rate, thousands};
use crate::table::{Column, Table};

/// Procedures of a stack that are shown, starting with the one that requested the lock.
const PROCEDURES_SHOWN: usize = 4;

/// Lock waits by kind and by stack. They show waiting, not holding, and say so.
pub(crate) fn lock_waits(waits: &Waits) -> Vec<Table> {
    type Row<'a> = (LockKind, Owner, &'a WaitFigures, String);
    let note = format!(
        "waiting, not holding; n = {} waits in {} s; a wait counts in the interval in which it \
         ends; CPUs spent {} % of their time spinning for kernel locks; a futex wait is for a lock \
         or for work; {}",
        thousands(waits.waits as f64),
        fixed(waits.seconds, 1),
        fixed(waits.spinning_percent, 3),
        waits.lost
    );
    let table = |title: &str, rows: Vec<Row<'_>>, last: &str, note: String| {
        Table::of(
            title,
            rows,
            &[
                ("<lock", &|row| row.0.label().to_string()),
                ("<owner", &|row| row.1.name().to_string()),
                ("waits", &|row| thousands(row.2.waits as f64)),
                ("total", &|row| latency(row.2.total_us)),
                ("mean", &|row| latency(row.2.mean_us)),
                ("max", &|row| latency(row.2.max_us)),
                (last, &|row| row.3.clone()),
            ],
            note,
        )
    };
    let spun = |figures: &WaitFigures| fixed(100.0 * figures.spun_us / figures.total_us, 1);
    let kinds = waits.kinds.iter();
    let kinds = kinds.map(|row| (row.kind, row.owner, &row.figures, spun(&row.figures)));
    let stacks = waits.places.iter().map(|row| (row.kind, row.owner, &row.figures, stack(row)));
    vec![
        table("Lock waits", kinds.collect(), "spun, %", note),
        table("Lock waits by stack", stacks.collect(), "~procedure and its callers", String::new()),
    ]
}

fn stack(row: &WaitsAtPlace) -> String {
    let shown: Vec<&str> = row.place.iter().take(PROCEDURES_SHOWN).map(String::as_str).collect();
    let place = match (shown.is_empty(), row.kind) {
        (false, _) => shown.join(" < "),
        (true, LockKind::Futex) => "unknown".to_string(),
        (true, _) => "other stacks".to_string(),
    };
    match row.word {
        Some(word) => format!("{place}; word {:#x} of process {}", word.address, word.pid),
        None => place,
    }
}

/// Files read and files written, by size.
pub(crate) fn files<'f>(files: &'f Files) -> Vec<Table> {
    let of =
        |direction: Direction| files.sizes.iter().filter(move |row| row.direction == direction);
    let objects = |direction| thousands(of(direction).map(|row| row.objects).sum::<u64>() as f64);
    let what = "calls and bytes are per file; first: median time in the open and the first call; \
                total: median time in all calls, and its 99th percentile; accurate to 6 %; %: the \
                share of needless reads in that time";
    let columns = |calls: &'static str| -> [Column<'f, &'f FilesOfSize>; 7] {
        [
            ("<KiB", &|row| size(row)),
            ("files", &|row| thousands(row.objects as f64)),
            (calls, &|row| fixed(row.calls_per_object, 2)),
            ("bytes", &|row| thousands(row.bytes_per_object)),
            ("first", &|row| or_none(row.first_median_us, fine)),
            ("total", &|row| or_none(row.total_median_us, fine)),
            ("99 %", &|row| or_none(row.total_p99_us, fine)),
        ]
    };
    let needless: [Column<'f, &'f FilesOfSize>; 2] = [
        ("needless", &|row| thousands(row.needless.needless as f64)),
        ("%", &|row| percent(row.needless.needless_percent)),
    ];
    let (read, written) = (Direction::Read, Direction::Written);
    let mut tables = vec![
        Table::of(
            "Files read, by size",
            of(read),
            &[&columns("reads")[..], &needless].concat(),
            format!("{what}; n = {} files; {}", objects(read), files.lost),
        ),
        Table::of(
            "Files written, by size",
            of(written),
            &columns("writes"),
            format!("{what}; n = {} files", objects(written)),
        ),
    ];
    // A direction without files is left out; if there are none at all, a note says that the
    // sampler ran.
    tables.retain(|table| !table.rows.is_empty());
    if tables.is_empty() {
        let none = format!("no file was followed from open to close; {}", files.lost);
        tables.push(Table::new("Files", &[], none));
    }
    tables
}

/// What a request costs, by the number of receives in a row.
pub(crate) fn stretches(found: &Stretches) -> Table {
    let receives = |row: &StretchesOfSize| match row.receives_to {
        Some(to) if to == row.receives_from => to.to_string(),
        Some(to) => format!("{}-{to}", row.receives_from),
        None => format!("from {}", row.receives_from),
    };
    let per_request = found.receives_per_request.unwrap_or(1.0);
    let cost = |of: Counted| match of.receive_us {
        Some(us) => latency_fine(per_request * us, 1),
        None => NONE.to_string(),
    };
    let count = |of: Counted| thousands(of.count as f64);
    let of_request = match found.receives_per_request {
        Some(each) => format!("{} receives a request", fixed(each, 2)),
        None => "requests are not known, each receive counts as one".to_string(),
    };
    let mut table = Table::of(
        "CPU time of a request, by how many receives the server works off in a row",
        &found.by_size,
        &[
            ("<receives", &|row| receives(row)),
            ("turns", &|row| count(row.turns)),
            ("CPU", &|row| cost(row.turns)),
            ("busy periods", &|row| count(row.periods)),
            ("CPU", &|row| cost(row.periods)),
            ("after holds", &|row| count(row.held)),
            ("CPU", &|row| cost(row.held)),
        ],
        format!(
            "in {} s: {} turns/s (a turn ends when epoll_wait, poll, select or io_uring_enter \
             returns again; those after a sleep are not in the column), {} receives from clients, \
             {} from others, {of_request}; a busy period is from wake to sleep; {}",
            fixed(found.seconds, 1),
            rate(found.turns_per_s),
            thousands(found.clients as f64),
            thousands(found.upstreams as f64),
            found.lost
        ),
    );
    if found.by_size.iter().all(|row| row.held.count == 0) {
        table.columns.truncate(5);
        table.rows.iter_mut().for_each(|row| row.truncate(5));
    }
    table
}

/// What requests wait for.
pub(crate) fn upstreams(found: &Answers) -> Table {
    let (occupied, late) = (latency(found.occupied_us), percent(found.late_percent));
    let late = format!("{late} % of the requests had come while their thread was occupied");
    let threads = match found.threads {
        None if !found.is_enough => "too few requests were answered to know its threads".to_owned(),
        None => "its threads take several requests at a time".to_owned(),
        Some(1) => format!("at most one thread was occupied at once, for {occupied}; {late}"),
        Some(most) => format!(
            "at most {most} threads were occupied at once, each for {occupied} a request; {late}"
        ),
    };
    Table::of(
        "Waits of a request for other servers",
        &found.upstreams,
        &[
            ("<server", &|row| row.peer.clone()),
            ("waits", &|row| fixed(row.waits, 2)),
            ("time", &|row| latency(row.us_per_request)),
        ],
        format!("from a send on a connection to the next receive; {threads}"),
    )
}

fn fine(us: f64) -> String {
    latency_fine(us, 1)
}

fn size(row: &FilesOfSize) -> String {
    let kib = |bytes: u64| thousands((bytes >> 10) as f64);
    match row.size_below {
        Some(below) => format!("{}-{}", kib(row.size_from), kib(below)),
        None => format!("from {}", kib(row.size_from)),
    }
}
