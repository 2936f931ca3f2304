//! Parquet: the tables of the CSV with types. Unknown values are null.
//!
//! Each file is in a directory that names its day, host and server, as Hive does. DuckDB, Spark and
//! others read the directories of many trials as one table with the columns `day`, `host` and
//! `server`:
//!
//! ```text
//! intervals/day=2026-11-26/host=web01/server=nginx/0123456789abcdef.parquet
//! ```
//!
//! The name of a file is the trial's identity, so that a trial that is written again replaces its
//! own files and no others. All files of a table have the same schema. The columns `trial`,
//! `version` and `labels` precede those of the CSV.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use trial::Trial;

use crate::tables::{Column, Table, Values, tables};
use crate::{Exported, server_name};
use report::Analysis;
use report::Error;
use report::format;

/// The tables of a trial, one file for each day (UTC) in which it has intervals.
///
/// # Errors
/// [`Error::Table`], if one cannot be written.
pub fn parquet(trial: &Trial, analysis: &Analysis) -> Result<Vec<Exported>, Error> {
    let manifest = trial.manifest();
    let identity = format!("{:016x}", manifest.identity());
    let labels = serde_json::to_string(&manifest.labels).expect("texts can be written as JSON");
    let about = [
        ("trial", Some(identity.clone())),
        ("version", manifest.server.version.clone()),
        ("labels", Some(labels)),
    ];
    let mut days: BTreeMap<i64, String> = BTreeMap::new();
    for interval in trial.intervals() {
        days.insert(interval.index.cast_signed(), day(interval.start_ns));
    }
    let first =
        days.first_key_value().map_or_else(|| day(manifest.created_ns), |(_, day)| day.clone());
    let all: BTreeSet<&String> = days.values().chain([&first]).collect();
    let host = partition("host", manifest.host_name());
    let server = partition("server", server_name(trial));
    let mut files = Vec::new();
    for table in tables(trial, analysis) {
        let day_of = |row: usize| match table.columns.first().map(|column| &column.values) {
            Some(Values::Whole(interval)) => {
                interval[row].and_then(|interval| days.get(&interval)).unwrap_or(&first)
            }
            _ => &first,
        };
        for day in &all {
            let rows: Vec<usize> = (0..table.rows).filter(|&row| day_of(row) == *day).collect();
            let part = part(&table, &about, &rows);
            let bytes = written(&part).map_err(|error| Error::Table {
                trial: analysis.trial.name.clone(),
                table: table.name,
                what: error.to_string(),
            })?;
            let name = format!("{}/day={day}/{host}/{server}/{identity}.parquet", table.name);
            files.push(Exported { name, bytes });
        }
    }
    Ok(files)
}

/// These rows of a table, after columns about the trial.
fn part(table: &Table, about: &[(&str, Option<String>)], rows: &[usize]) -> Table {
    let about = about.iter().map(|(name, value)| Column {
        name: (*name).to_string(),
        values: Values::Text(vec![value.clone(); rows.len()]),
    });
    let columns = table
        .columns
        .iter()
        .map(|column| Column { name: column.name.clone(), values: column.values.pick(rows) });
    Table { name: table.name, columns: about.chain(columns).collect(), rows: rows.len() }
}

/// The day of an instant, `2026-11-26`.
fn day(unix_ns: i64) -> String {
    let mut text = format::instant(unix_ns);
    text.truncate("2026-11-26".len());
    text
}

/// The name of a directory that has the value of a column. Spark and Hive decode the escapes of
/// ASCII characters only, so all others stay as they are.
fn partition(column: &str, value: &str) -> String {
    let mut text = format!("{column}=");
    for c in value.chars() {
        match c.is_ascii_alphanumeric() || "-_.".contains(c) || !c.is_ascii() {
            true => text.push(c),
            false => text += &format!("%{:02X}", u32::from(c)),
        }
    }
    if value.is_empty() { text + "__HIVE_DEFAULT_PARTITION__" } else { text }
}

fn written(table: &Table) -> Result<Vec<u8>, ParquetError> {
    let fields = table.columns.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder(table.name).with_fields(fields).build()?;
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties)?;
    let mut rows = writer.next_row_group()?;
    for column in &table.columns {
        let next = rows.next_column()?;
        let mut into =
            next.ok_or_else(|| ParquetError::General("a column is missing".to_string()))?;
        write(&mut into, &column.values)?;
        into.close()?;
    }
    rows.close()?;
    writer.into_inner()
}

fn field(column: &Column) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical, repetition) = match column.values {
        Values::Whole(_) => (Physical::INT64, None, Repetition::OPTIONAL),
        Values::Number(_) => (Physical::DOUBLE, None, Repetition::OPTIONAL),
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String), Repetition::OPTIONAL),
        Values::Truth(_) => (Physical::BOOLEAN, None, Repetition::REQUIRED),
    };
    let builder = Type::primitive_type_builder(&column.name, physical)
        .with_logical_type(logical)
        .with_repetition(repetition);
    Ok(Arc::new(builder.build()?))
}

fn write(into: &mut SerializedColumnWriter<'_>, values: &Values) -> Result<(), ParquetError> {
    match values {
        Values::Whole(values) => known::<Int64Type, _>(into, values, |value| *value),
        Values::Number(values) => known::<DoubleType, _>(into, values, |value| *value),
        Values::Text(values) => {
            known::<ByteArrayType, _>(into, values, |text| ByteArray::from(text.as_str()))
        }
        Values::Truth(values) => {
            into.typed::<BoolType>().write_batch(values, None, None).map(|_| ())
        }
    }
}

/// Writes the known values, and for each row whether its value is known.
fn known<D, T>(
    into: &mut SerializedColumnWriter<'_>,
    values: &[Option<T>],
    of: impl Fn(&T) -> D::T,
) -> Result<(), ParquetError>
where
    D: DataType,
{
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let there: Vec<D::T> = values.iter().flatten().map(of).collect();
    into.typed::<D>().write_batch(&there, Some(&levels), None).map(|_| ())
}
