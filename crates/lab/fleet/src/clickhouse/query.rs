//! The questions as SQL. Each has one row for each server (and resource), whatever the number of
//! intervals is.

use std::path::Path;

use regress::Marginal;
use regress::bins::Bin;

use super::binary::Reader;
use super::client::{Client, not_clickhouse};
use super::tables::bin_sums;
use crate::home::{
    Asked, Error, GroupStacks, Home, Hour, Label, ProcedureSums, ResourceCosts, Run, ServerCosts,
    ServerHours, ServerId, ServerProcedures, WINDOW_S,
};
use crate::sums::{self, OneCap};
use crate::windows::{KIND_RATE, PEAK_MIN_S};

impl Home for Client {
    fn costs(&self, asked: &Asked) -> Result<Vec<ServerCosts>, Error> {
        let rows = self.rows(&costs_sql(asked), |row| {
            let (server, group) = (server(row)?, group(row, asked)?);
            let (kind, cap) = (row.text()?, row.number()?);
            let (trials, peak_rate, latest) = (row.unsigned()?, row.number()?, row.unsigned()?);
            let (may_limit, wakes_known, processes_alternate) =
                (row.truth()?, row.truth()?, row.truth()?);
            let (at_cap, sd, held) = (row.number()?, row.number()?, row.truth()?);
            // Which part of it is chance is not kept.
            let marginal = Marginal { at_cap, sd, by_chance: sd, held };
            let marginal = Some(marginal).filter(|_| at_cap > 0.0);
            let keys = row.list(Reader::small)?;
            let sums: Vec<Vec<f64>> =
                bin_sums().map(|_| row.list(Reader::number)).collect::<Option<_>>()?;
            let [.., saturated_n, saturated_x] = &sums[..] else { return None };
            let costs = ResourceCosts {
                kind,
                cap,
                may_limit,
                wakes_known,
                processes_alternate,
                marginal,
                saturated_n: saturated_n.iter().sum(),
                saturated_x: saturated_x.iter().sum(),
                bins: bins(&keys, &sums)?,
            };
            let latest = (i64::from((latest >> 32) as u32), i64::from(latest as u32));
            let server = ServerCosts { server, group, trials, peak_rate, resources: Vec::new() };
            Some((server, OneCap { latest, costs }))
        })?;
        let mut servers: Vec<(ServerCosts, Vec<OneCap>)> = Vec::new();
        for (row, one) in rows {
            let new = servers
                .last()
                .is_none_or(|(last, _)| (&last.server, &last.group) != (&row.server, &row.group));
            if new {
                servers.push((ServerCosts { peak_rate: 0.0, ..row.clone() }, Vec::new()));
            }
            let (server, caps) = servers.last_mut().expect("there is one");
            server.trials = server.trials.max(row.trials);
            // The kind "rate" has the rates of windows, and nothing else.
            if one.costs.kind == KIND_RATE {
                server.peak_rate = row.peak_rate;
            } else {
                caps.push(one);
            }
        }
        let whole = |(server, caps)| ServerCosts { resources: sums::resources(caps), ..server };
        Ok(servers.into_iter().map(whole).collect())
    }

    fn hours(&self, asked: &Asked) -> Result<Vec<ServerHours>, Error> {
        let from = source("windows", asked, &format!("kind = {}", literal(KIND_RATE)));
        let rows = self.rows(
            &format!(
                "SELECT host, server, grp, toInt64(intDiv(toUnixTimestamp(time), 3600) * 3600) AS \
                 hour, {}, sum(x[1]) / sum(s[1]) FROM {from} \
                 GROUP BY host, server, grp, hour ORDER BY host, server, grp, hour",
                peak(),
            ),
            |row| {
                let (server, group) = (server(row)?, group(row, asked)?);
                let (start_s, peak_rate, mean_rate) = (row.signed()?, row.number()?, row.number()?);
                let hours = vec![Hour { start_s, peak_rate, mean_rate }];
                Some(ServerHours { server, group, hours })
            },
        )?;
        let mut servers: Vec<ServerHours> = Vec::new();
        for mut row in rows {
            match servers.last_mut() {
                Some(last) if (&last.server, &last.group) == (&row.server, &row.group) => {
                    last.hours.append(&mut row.hours);
                }
                _ => servers.push(row),
            }
        }
        Ok(servers)
    }

    fn procedures(&self, asked: &Asked) -> Result<Vec<ServerProcedures>, Error> {
        let from = source("procedures", asked, "1");
        let mut servers = self.rows(
            &format!(
                "SELECT host, server, grp, toFloat64(count()), sum(each), sum(each * each) FROM \
                 (SELECT host, server, grp, trial, time, max(requests) AS each FROM {from} \
                 GROUP BY host, server, grp, trial, time) \
                 GROUP BY host, server, grp ORDER BY host, server, grp",
            ),
            |row| {
                Some(ServerProcedures {
                    server: server(row)?,
                    group: group(row, asked)?,
                    windows: row.number()?,
                    requests: row.number()?,
                    requests_squared: row.number()?,
                    procedures: Vec::new(),
                })
            },
        )?;
        let rows = self.rows(
            &format!(
                "SELECT host, server, grp, procedure, sum(cpu_s), sum(cpu_s * cpu_s), \
                 sum(cpu_s * requests) FROM {from} GROUP BY host, server, grp, procedure \
                 ORDER BY host, server, grp, procedure",
            ),
            |row| {
                let key = (server(row)?, group(row, asked)?);
                let sums = ProcedureSums {
                    procedure: row.text()?,
                    cpu_s: row.number()?,
                    cpu_s_squared: row.number()?,
                    cpu_s_requests: row.number()?,
                };
                Some((key, sums))
            },
        )?;
        // Both are in the same order. Rows that came between the queries have no server yet.
        let mut rows = rows.into_iter().peekable();
        for one in &mut servers {
            let key = (one.server.clone(), one.group.clone());
            while rows.next_if(|(other, _)| *other < key).is_some() {}
            while let Some((_, sums)) = rows.next_if(|(other, _)| *other == key) {
                one.procedures.push(sums);
            }
        }
        Ok(servers)
    }

    fn stacks(&self, asked: &Asked) -> Result<Vec<GroupStacks>, Error> {
        let from = source("profile", asked, "1");
        let mut groups = self.rows(
            &format!(
                "SELECT grp, sum(each) FROM (SELECT grp, host, server, trial, time, \
                 max(requests) AS each FROM {from} GROUP BY grp, host, server, trial, time) \
                 GROUP BY grp ORDER BY grp",
            ),
            |row| {
                let (group, requests) = (group(row, asked)?, row.number()?);
                Some(GroupStacks { group, requests, stacks: Vec::new() })
            },
        )?;
        let stacks = self.rows(
            &format!(
                "SELECT grp, names, cpu FROM (SELECT grp, stack, sum(cpu_s) AS cpu FROM {from} \
                 GROUP BY grp, stack) AS spent ALL INNER JOIN \
                 (SELECT stack, any(names) AS names FROM frames \
                 WHERE stack GLOBAL IN (SELECT stack FROM {from}) GROUP BY stack) AS named \
                 USING stack \
                 ORDER BY grp, names",
            ),
            |row| {
                let group = group(row, asked)?;
                Some((group, (row.list(Reader::text)?, row.number()?)))
            },
        )?;
        for (group, stack) in stacks {
            if let Some(found) = groups.iter_mut().find(|found| found.group == group) {
                found.stacks.push(stack);
            }
        }
        Ok(groups)
    }

    fn runs(&self, asked: &Asked) -> Result<Vec<Run>, Error> {
        let mut filters = filters(asked);
        if let Some((from, up_to)) = asked.span {
            let window = |ns: &str| format!("intDiv({ns}, {WINDOW_S}000000000) * {WINDOW_S}");
            let (first, last) = (window("created_ns"), window("end_ns"));
            filters.push(format!("{first} < {up_to} AND {last} >= {from}"));
        }
        let sql = format!(
            "SELECT host, server, server_version, labels, trial, created_ns, end_ns, intervals \
             FROM runs FINAL WHERE {} ORDER BY host, server, created_ns, trial",
            filters.join(" AND ")
        );
        self.rows(&sql, |row| {
            let server = server(row)?;
            let version = Some(row.text()?).filter(|version| !version.is_empty());
            let label = |text: String| {
                let (name, value) = text.split_once('=')?;
                Some(Label { name: name.to_owned(), value: value.to_owned() })
            };
            let labels = row.list(Reader::text)?.into_iter().filter_map(label).collect();
            Some(Run {
                server,
                version,
                labels,
                trial: row.unsigned()?,
                created_ns: row.signed()?,
                end_ns: row.signed()?,
                intervals: row.unsigned()?,
            })
        })
    }

    fn fetch(&self, run: &Run, into: &Path) -> Result<(), Error> {
        self.fetch_trial(run, into)
    }
}

impl Client {
    /// The rows of an answer.
    pub(super) fn rows<T>(
        &self,
        sql: &str,
        row: impl Fn(&mut Reader<'_>) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let answer = self.query(&format!("{sql} FORMAT RowBinary"));
        let answer = answer.map_err(|failed| self.error(failed))?;
        let mut reader = Reader(&answer);
        let mut rows = Vec::new();
        while !reader.is_empty() {
            rows.push(row(&mut reader).ok_or_else(|| self.error(not_clickhouse()))?);
        }
        Ok(rows)
    }
}

/// The highest mean rate of a window that is long enough, or of any if none is.
fn peak() -> String {
    let rate = "if(s[1] > 0, x[1] / s[1], 0)";
    let long = format!("maxIf({rate}, s[1] >= {PEAK_MIN_S:?})");
    format!("if({long} > 0, {long}, maxIf({rate}, s[1] < {PEAK_MIN_S:?}))")
}

fn costs_sql(asked: &Asked) -> String {
    // The newest window of the newest trial.
    let newest = "toUInt64(created_s) * 4294967296 + toUnixTimestamp(time)";
    format!(
        "SELECT host, server, grp, kind, cap, toUInt64(uniqExact(trial)), {}, max({newest}), \
         argMax(may_limit, {newest}), min(wakes_known), argMax(processes_alternate, {newest}), \
         argMax(marginal_at_cap, {newest}), argMax(marginal_sd, {newest}), \
         argMax(marginal_held, {newest}), \
         sumMap(bins, {}) FROM {} GROUP BY host, server, grp, kind, cap \
         ORDER BY host, server, grp, kind, cap",
        peak(),
        bin_sums().collect::<Vec<_>>().join(", "),
        source("windows", asked, "notEmpty(bins)")
    )
}

fn bins(keys: &[i32], sums: &[Vec<f64>]) -> Option<Vec<(i32, Bin)>> {
    let mut bins = Vec::with_capacity(keys.len());
    for (at, key) in keys.iter().enumerate() {
        let mut values = [0.0; Bin::NAMES.len()];
        for (value, sums) in values.iter_mut().zip(sums) {
            *value = *sums.get(at)?;
        }
        bins.push((*key, Bin::from(values)));
    }
    // Others have saturated intervals only.
    bins.retain(|(_, bin)| *bin != Bin::default());
    Some(bins)
}

/// The newest version of the rows of a table that are asked for, with the group as `grp`.
fn source(table: &str, asked: &Asked, also: &str) -> String {
    let mut filters = filters(asked);
    filters.push(also.to_owned());
    if let Some((from, up_to)) = asked.span {
        let time = |second: i64| second.clamp(0, u32::MAX.into());
        filters.push(format!(
            "time >= toDateTime({}) AND time < toDateTime({})",
            time(from),
            time(up_to)
        ));
    }
    let group = match &asked.by {
        None => "''".to_owned(),
        Some(name) => {
            let prefix = format!("{name}=");
            format!(
                "substring(arrayFirst(l -> startsWith(l, {}), labels), {})",
                literal(&prefix),
                prefix.len() + 1
            )
        }
    };
    format!("(SELECT *, {group} AS grp FROM {table} FINAL WHERE {})", filters.join(" AND "))
}

fn filters(asked: &Asked) -> Vec<String> {
    let mut filters = vec!["1".to_owned()];
    for Label { name, value } in &asked.labels {
        filters.push(format!("has(labels, {})", literal(&format!("{name}={value}"))));
    }
    if let Some(text) = &asked.server {
        filters.push(format!("position(concat(host, '/', server), {}) > 0", literal(text)));
    }
    if let Some(name) = &asked.by {
        let prefix = literal(&format!("{name}="));
        filters.push(format!("arrayExists(l -> startsWith(l, {prefix}), labels)"));
    }
    filters
}

/// A text as a literal of SQL.
pub(super) fn literal(text: &str) -> String {
    let mut literal = String::from("'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => literal.extend(['\\', c]),
            '\0' => literal.push_str("\\0"),
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}

fn server(row: &mut Reader<'_>) -> Option<ServerId> {
    Some(ServerId { host: row.text()?, server: row.text()? })
}

fn group(row: &mut Reader<'_>, asked: &Asked) -> Option<Option<String>> {
    let value = row.text()?;
    Some(asked.by.is_some().then_some(value))
}
