//! Making the tables, and changing those of an older version.
//!
//! The database has a table `schema` with a row for each version that it was brought to. Every step
//! may be repeated, so an `init` that was interrupted is run again.

use std::fmt::Write as _;

use super::address::Address;
use super::binary::Reader;
use super::client::{Client, Failed, not_clickhouse};
use super::tables::{self, Table};
use crate::Error;

/// The first version of ClickHouse whose tables have a time to live: 19.6.
const TTL_SINCE: (u64, u64) = (19, 6);

/// How the tables are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Rows are deleted this many days after their time.
    pub ttl_days: Option<u32>,
    /// The tables are replicated, with their state below this path in Keeper or ZooKeeper.
    /// `{shard}` and `{replica}` are the server's macros.
    pub replicated: Option<String>,
    /// The tables are distributed over this cluster of the server's configuration: a server's rows
    /// are on one shard.
    pub cluster: Option<String>,
}

/// What [`Client::init`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Made {
    /// The database.
    pub database: String,
    /// Version of ClickHouse.
    pub clickhouse: String,
    /// Version of the tables before; 0 without tables.
    pub before: u32,
    /// Version of the tables now.
    pub version: u32,
    /// What could not be done, and why.
    pub notes: Vec<String>,
}

/// What leads from one version of the tables to the next one.
pub(super) enum Step {
    /// Makes the tables that are missing.
    Tables,
    /// Adds a column: table, column, type. Rows that are there get the type's default.
    Column(&'static str, &'static str, &'static str),
}

/// `STEPS[n]` leads from version `n` to version `n + 1`.
const STEPS: [&[Step]; 3] = [
    &[Step::Tables],
    // And the table `stretches`. Tables of the first version keep `episodes`, which is not used.
    &[
        Step::Column("turns", "clients", "Nullable(Int64)"),
        Step::Column("turns", "upstreams", "Nullable(Int64)"),
        Step::Column("windows", "marginal_at_cap", "Float64"),
        Step::Column("windows", "marginal_sd", "Float64"),
        Step::Column("windows", "marginal_held", "UInt8"),
    ],
    &[Step::Column("stretches", "turns", "Nullable(Int64)")],
];

impl Layout {
    /// # Errors
    /// A text that says which value cannot be used.
    fn check(&self) -> Result<(), String> {
        let plain = |text: &str, also: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
        };
        if self.cluster.as_deref().is_some_and(|name| !plain(name, "_-.")) {
            return Err("--cluster: not a name of a cluster".to_owned());
        }
        let Some(path) = self.replicated.as_deref() else { return Ok(()) };
        // A macro is a name in braces.
        let closed = path.split('{').skip(1).all(|name| name.find('}').is_some_and(|at| at > 0));
        let opened = path.split('}').rev().skip(1).all(|before| before.contains('{'));
        if !plain(path, "/_-.{}") || !closed || !opened {
            return Err("--replicated: not a path such as '/clickhouse/{shard}'".to_owned());
        }
        if self.cluster.is_some() && !path.contains("{shard}") {
            return Err("--replicated: with --cluster, the path must contain {shard}, or all \
                        shards would have the same rows"
                .to_owned());
        }
        Ok(())
    }

    /// The name of the table that has the rows of `name`.
    fn local(&self, name: &str) -> String {
        if self.cluster.is_some() { format!("{name}_local") } else { name.to_owned() }
    }

    fn engine(&self, table: &str) -> String {
        match &self.replicated {
            None => "ReplacingMergeTree(version)".to_owned(),
            Some(path) => {
                let path = path.trim_end_matches('/');
                format!("ReplicatedReplacingMergeTree('{path}/{table}', '{{replica}}', version)")
            }
        }
    }

    /// What each table's engine must be: table and name of the engine.
    fn engines(&self) -> Vec<(String, &'static str)> {
        let local = match self.replicated {
            None => "ReplacingMergeTree",
            Some(_) => "ReplicatedReplacingMergeTree",
        };
        let of = |table: Table| {
            let distributed = self.cluster.as_ref().map(|_| (table.name.to_owned(), "Distributed"));
            [Some((self.local(table.name), local)), distributed].into_iter().flatten()
        };
        tables::all().into_iter().flat_map(of).collect()
    }

    /// Names are quoted: `interval` is a word of SQL.
    fn create(&self, database: &str, table: &Table, ttl: bool) -> Vec<String> {
        let local = self.local(table.name);
        let columns: Vec<String> =
            table.columns.iter().map(|(name, kind)| format!("    `{name}` {kind}")).collect();
        let columns = columns.join(",\n");
        let mut key = vec!["host", "server", "time", "trial"];
        key.extend(table.key);
        let mut sql = format!(
            "CREATE TABLE IF NOT EXISTS `{database}`.{local} (\n{columns}\n) ENGINE = {}\n\
             PARTITION BY toYYYYMMDD(time)\nORDER BY ({})",
            self.engine(table.name),
            key.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
        );
        if let Some((days, time)) = self.ttl_days.filter(|_| ttl).zip(time_of(table.name)) {
            let _ = write!(sql, "\nTTL {time} + INTERVAL {days} DAY");
        }
        let mut statements = vec![sql];
        if let Some(cluster) = &self.cluster {
            statements.push(format!(
                "CREATE TABLE IF NOT EXISTS `{database}`.{} AS `{database}`.{local}\n\
                 ENGINE = Distributed('{cluster}', '{database}', '{local}', \
                 sipHash64(host, server))",
                table.name
            ));
        }
        statements
    }

    /// Statements that bring tables from version 0 to the newest one, for a ClickHouse of today.
    ///
    /// # Errors
    /// Like [`Client::init`], for values that cannot be used.
    pub fn statements(&self, address: &Address) -> Result<Vec<String>, String> {
        self.check()?;
        let database = &address.database;
        let mut statements = basic(database);
        for table in tables::all() {
            statements.extend(self.create(database, &table, true));
        }
        statements.push(applied(database, STEPS.len()));
        Ok(statements)
    }
}

/// The database, and the table of versions. That one is never replicated: a replica would see the
/// version of another node, and not make its own tables.
fn basic(database: &str) -> Vec<String> {
    vec![
        format!("CREATE DATABASE IF NOT EXISTS `{database}`"),
        format!(
            "CREATE TABLE IF NOT EXISTS `{database}`.schema (\n    version UInt32,\n    \
             made DateTime('UTC')\n) ENGINE = ReplacingMergeTree()\nORDER BY version"
        ),
    ]
}

/// The time from which the time to live of a row counts. A trial counts from its end. Stacks have
/// none: a long recording uses them after the day of its start, and there are few.
fn time_of(table: &str) -> Option<&'static str> {
    match table {
        "frames" => None,
        "runs" => Some("toDateTime(intDiv(end_ns, 1000000000))"),
        _ => Some("time"),
    }
}

fn applied(database: &str, version: usize) -> String {
    format!("INSERT INTO `{database}`.schema (version, made) SELECT {version}, now()")
}

impl Client {
    /// Makes the database and the tables that are missing, and brings older tables to the newest
    /// version. The time to live can change.
    ///
    /// # Errors
    /// [`Error::Database`], also if the tables have a newer version or another layout, or a value
    /// of the layout cannot be used.
    pub fn init(&self, layout: &Layout) -> Result<Made, Error> {
        let wrong = |what| Failed { what, passing: false };
        layout.check().map_err(|what| self.error(wrong(what)))?;
        self.upgrade(layout, &STEPS).map_err(|failed| self.error(failed))
    }

    /// Takes the steps that the tables have not taken yet.
    pub(super) fn upgrade(&self, layout: &Layout, steps: &[&[Step]]) -> Result<Made, Failed> {
        let database = self.address().database.clone();
        let clickhouse = self.version()?;
        let numbers: Vec<u64> = clickhouse.split('.').map_while(|part| part.parse().ok()).collect();
        let old = numbers.get(..2).is_some_and(|n| (n[0], n[1]) < TTL_SINCE);
        for statement in basic(&database) {
            self.query_server(&statement)?;
        }
        let before =
            self.number(&format!("SELECT toUInt64(max(version)) FROM `{database}`.schema"))?;
        let before = usize::try_from(before).unwrap_or(usize::MAX);
        let Some(missing) = steps.get(before..) else {
            let what = format!(
                "the tables have version {before}, this plimsoll knows {}; use a newer plimsoll",
                steps.len()
            );
            return Err(Failed { what, passing: false });
        };
        let mut notes = Vec::new();
        if old && layout.ttl_days.is_some() {
            notes.push(format!(
                "no time to live: ClickHouse {clickhouse} does not support it, 19.6 does; \
                 delete old days by ALTER TABLE ... DROP PARTITION"
            ));
        }
        self.check_engines(layout, &database)?;
        // Tables that are missing get today's columns.
        self.take(&Step::Tables, layout, &database, !old)?;
        for (at, steps) in missing.iter().enumerate() {
            for step in *steps {
                self.take(step, layout, &database, !old)?;
            }
            self.query_server(&applied(&database, before + at + 1))?;
        }
        if let Some(days) = layout.ttl_days.filter(|_| !old && before > 0) {
            self.set_ttl(layout, &database, days)?;
        }
        let (before, version) = (before as u32, steps.len() as u32);
        Ok(Made { database, clickhouse, before, version, notes })
    }

    /// Fails if the tables were made with another layout.
    fn check_engines(&self, layout: &Layout, database: &str) -> Result<(), Failed> {
        for (table, engine) in layout.engines() {
            // ClickHouse Cloud has shared tables instead of both other kinds.
            let others = self.number(&format!(
                "SELECT toUInt64(count()) FROM system.tables WHERE database = '{database}' AND \
                 name = '{table}' AND engine NOT IN ('{engine}', 'SharedReplacingMergeTree')"
            ))?;
            if others > 0 {
                let what = format!(
                    "table {database}.{table} exists, but it is not {engine}: give --cluster and \
                     --replicated as when the tables were made, or another database"
                );
                return Err(Failed { what, passing: false });
            }
        }
        Ok(())
    }

    /// Changes the time to live where it is another one. That rewrites the table's data.
    fn set_ttl(&self, layout: &Layout, database: &str, days: u32) -> Result<(), Failed> {
        for table in tables::all() {
            let Some(time) = time_of(table.name) else { continue };
            let local = layout.local(table.name);
            let same = self.number(&format!(
                "SELECT toUInt64(count()) FROM system.tables WHERE database = '{database}' AND \
                 name = '{local}' AND \
                 position(engine_full, 'TTL {time} + toIntervalDay({days})') > 0"
            ))?;
            if same == 0 {
                self.query_server(&format!(
                    "ALTER TABLE `{database}`.{local} MODIFY TTL {time} + INTERVAL {days} DAY"
                ))?;
            }
        }
        Ok(())
    }

    fn take(&self, step: &Step, layout: &Layout, database: &str, ttl: bool) -> Result<(), Failed> {
        match step {
            Step::Tables => {
                for table in tables::all() {
                    for statement in layout.create(database, &table, ttl) {
                        self.query_server(&statement)?;
                    }
                }
            }
            Step::Column(table, column, kind) => {
                let mut names = vec![layout.local(table)];
                names.extend(layout.cluster.is_some().then(|| (*table).to_owned()));
                for name in names {
                    let found = self.number(&format!(
                        "SELECT toUInt64(count()) FROM system.columns \
                         WHERE database = '{database}' AND table = '{name}' AND name = '{column}'"
                    ))?;
                    if found == 0 {
                        let add =
                            format!("ALTER TABLE `{database}`.{name} ADD COLUMN {column} {kind}");
                        self.query_server(&add)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Version of the server.
    fn version(&self) -> Result<String, Failed> {
        let answer = self.query_server("SELECT version() FORMAT RowBinary")?;
        Reader(&answer).text().ok_or_else(not_clickhouse)
    }

    /// The only value of an answer, a UInt64.
    fn number(&self, sql: &str) -> Result<u64, Failed> {
        let answer = self.query_server(&format!("{sql} FORMAT RowBinary"))?;
        Reader(&answer).unsigned().ok_or_else(not_clickhouse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica whose `init` was interrupted found version 1, and made no tables.
    #[test]
    fn a_replica_has_its_own_version_of_the_tables() {
        let address = Address::of("http://h:1/d").unwrap();
        let layout = Layout { replicated: Some("/x/{shard}/".to_owned()), ..Layout::default() };
        let statements = layout.statements(&address).unwrap();
        assert!(statements[1].contains("ENGINE = ReplacingMergeTree()"), "{}", statements[1]);
        let replicated = "ENGINE = ReplicatedReplacingMergeTree('/x/{shard}/runs', '{replica}', ";
        assert!(statements.iter().any(|sql| sql.contains(replicated)), "{statements:?}");
    }
}
