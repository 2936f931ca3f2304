//! How long the question `capacity` takes over 1,000 servers that were recorded for a day, with one
//! interval a second: 86.4 million rows in `intervals`. ClickHouse makes the rows and the windows
//! itself, with one thread and one process per server.
//!
//! `cargo run --release -p fleet --features clickhouse --example at_scale -- URL [make]`
//!
//! `make` fills the database first (5 GB, some minutes). The tables are made by `fleet init`.

use std::time::Instant;

use fleet::capacity::capacity;
use fleet::clickhouse::{Address, Client};
use fleet::home::Asked;

const SERVERS: u32 = 1_000;
/// Servers of one statement.
const AT_ONCE: u32 = 50;
const START_S: u32 = 1_769_904_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, rest @ ..] = &arguments[..] else {
        return Err("usage: at_scale URL [make]".into());
    };
    let client = Client::new(Address::of(url)?)?;
    if rest.first().is_some_and(|word| word == "make") {
        for first in (0..SERVERS).step_by(AT_ONCE as usize) {
            client.run(&intervals(first))?;
            client.run(&windows(first))?;
            client.run(&rates(first))?;
            client.run(&runs(first))?;
            eprintln!("{} servers", first + AT_ONCE);
        }
    }
    for _ in 0..3 {
        let begun = Instant::now();
        let found = capacity(&client, &Asked::default(), 0.95)?;
        let known = found.servers.iter().filter(|server| server.headroom.is_some()).count();
        println!("{:.2} s: {known} of {} servers", begun.elapsed().as_secs_f64(), SERVERS);
    }
    Ok(())
}

/// The trials.
fn runs(first: u32) -> String {
    let end_s = START_S + 86_400;
    format!(
        "INSERT INTO runs (host, server, server_version, labels, trial, time, version, created_ns,
            end_ns, intervals)
        SELECT concat('host', toString(s)), 'nginx', '1.26',
            [concat('group=', toString(s % 10)), 'release=42'], 1000000 + s,
            toDateTime({START_S}), 1, {START_S}000000000, {end_s}000000000, 86400
        FROM (SELECT {first} + number AS s FROM numbers({AT_ONCE}))"
    )
}

/// A day of a load that rises and falls, with a noise of a few percent.
fn intervals(first: u32) -> String {
    let rows = u64::from(AT_ONCE) * 86_400;
    format!(
        "INSERT INTO intervals (host, server, server_version, labels, trial, time, version,
            interval_number, start_unix_ns, length_ns, requests, requests_ended, requests_per_s,
            rate_valid, machine_user_ns, machine_system_ns, machine_idle_ns, server_user_ns,
            server_kernel_ns, server_total_ns, server_processes, server_threads,
            server_voluntary_switches)
        SELECT concat('host', toString(s)), 'nginx', '1.26',
            [concat('group=', toString(s % 10)), 'release=42'], 1000000 + s,
            toDateTime({START_S} + t), 1, t, ({START_S} + t) * 1000000000, 1000000000, rate,
            toUInt64(rate), rate, t > 0, toInt64(total * 0.4) + 50000000, toInt64(total * 0.6),
            4000000000 - total - 50000000, toInt64(total * 0.4), total - toInt64(total * 0.4),
            total, 1, 1, toUInt64(wakes)
        FROM (SELECT *, 1000 * toInt64(1e6 * (0.002 + rate * cost + wakes * 10e-6)
                * (0.97 + 0.06 * (intHash32(number + 7) % 1000) / 1000)) AS total
            FROM (SELECT *, floor(1.2 * rate * pow(1 - rate * cost, 1.5)) AS wakes
                FROM (SELECT number, {first} + intDiv(number, 86400) AS s, number % 86400 AS t,
                    30e-6 * (1 + 0.2 * (s % 333 = 0)) AS cost,
                    floor((8000 + s % 100 * 40)
                        * (0.55 - 0.45 * cos(t * 6.283185307179586 / 86400))
                        * (0.9 + 0.2 * (intHash32(number) % 1000) / 1000)) AS rate
                    FROM numbers({rows}))))"
    )
}

const WINDOW_COLUMNS: &str =
    "host, server, server_version, labels, trial, time, version, kind, cap, may_limit, wakes_known,
    processes_alternate, marginal_at_cap, marginal_sd, marginal_held, created_s, bins, n, s, ss,
    x, c, w, xx, xc, cc, xw, cw, ww, windows, window_s, window_ss, window_sx, window_sc,
    window_xx, window_xc, window_cc, pairs, dxx, dxc, dcc, dxw, dcw, dww, saturated_n, saturated_x";

/// The servers of one statement.
fn among(first: u32) -> String {
    format!("trial >= {} AND trial < {}", 1_000_000 + first, 1_000_000 + first + AT_ONCE)
}

/// The sums of the thread and of the machine, as `fleet::windows` computes them, but without
/// differences of neighbours.
fn windows(first: u32) -> String {
    let bin = "toInt32(greatest(-64, floor(16 * log2(greatest(RATE, 0.0001)))))";
    let sums = ["n", "s", "ss", "x", "c", "w", "xx", "xc", "cc", "xw", "cw", "ww"];
    let each = ["1", "1", "1", "x", "c", "w", "x * x", "x * c", "c * c", "x * w", "c * w", "w * w"];
    let products = ["1", "tn", "tn * tn", "tn * tx", "tn * tc", "tx * tx", "tx * tc", "tc * tc"];
    let products = products.map(|of| format!("arrayMap(k -> (k = m) * toFloat64({of}), bins)"));
    let nothing = ["arrayMap(v -> 0., bins)"; 9];
    let list =
        |of: &dyn Fn(usize) -> String| (0..sums.len()).map(of).collect::<Vec<_>>().join(", ");
    let resized = list(&|at| format!("arrayResize(a{}, length(bins))", sums[at]));
    let grouped = list(&|at| format!("groupArray(s{0}) AS a{0}", sums[at]));
    let summed = list(&|at| format!("sum(toFloat64({})) AS s{}", each[at], sums[at]));
    format!(
        "INSERT INTO windows ({WINDOW_COLUMNS})
        SELECT host, server, server_version, labels, trial, begin, toUInt64(1 + 0 * (tn + tx + tc)),
            if(kind = 0, 'hottest thread', 'machine'), if(kind = 0, 1, 4), kind = 0, 1, 0, 0,
            0, 0, {START_S}, if(has(b, m), b, arrayPushBack(b, m)) AS bins, {resized}, {}, {}
        FROM (SELECT host, server, server_version, labels, trial, begin, kind, sum(sn) AS tn,
                sum(sx) AS tx, sum(sc) AS tc, {} AS m, groupArray(bin) AS b, {grouped}
            FROM (SELECT host, server, any(server_version) AS server_version,
                    any(labels) AS labels, trial, begin, kind, bin, {summed}
                FROM (SELECT host, server, server_version, labels, trial,
                        toDateTime(intDiv(toUnixTimestamp(time), 300) * 300) AS begin,
                        assumeNotNull(requests_per_s) AS x, {} AS bin,
                        arrayJoin([0, 1]) AS kind,
                        if(kind = 0, assumeNotNull(server_total_ns),
                            assumeNotNull(machine_user_ns) + assumeNotNull(machine_system_ns))
                            / assumeNotNull(length_ns) AS c,
                        toFloat64(assumeNotNull(server_voluntary_switches)) AS w
                    FROM intervals WHERE rate_valid AND {})
                GROUP BY host, server, trial, begin, kind, bin)
            GROUP BY host, server, server_version, labels, trial, begin, kind)",
        products.join(", "),
        nothing.join(", "),
        bin.replace("RATE", "tx / tn"),
        bin.replace("RATE", "x"),
        among(first)
    )
}

/// The rates of the windows.
fn rates(first: u32) -> String {
    let zeros = ["[0.]"; 25].join(", ");
    format!(
        "INSERT INTO windows ({WINDOW_COLUMNS})
        SELECT host, server, any(server_version), any(labels), trial,
            toDateTime(intDiv(toUnixTimestamp(time), 300) * 300) AS begin, 1, 'rate', 0, 0, 0, 0,
            0, 0, 0, {START_S}, [0], [toFloat64(count())], [sum(assumeNotNull(length_ns)) / 1e9],
            [0.], [sum(assumeNotNull(requests))], {zeros}
        FROM intervals WHERE rate_valid AND {} GROUP BY host, server, trial, begin",
        among(first)
    )
}
