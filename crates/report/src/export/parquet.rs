//! Parquet: the tables of the CSV with types, one file each. Unknown values are null.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use trial::Trial;

use super::Exported;
use super::tables::{Column, Table, Values, tables};
use crate::Error;
use crate::analysis::Analysis;

/// The tables of a trial.
///
/// # Errors
/// [`Error::Table`], if one cannot be written.
pub fn parquet(trial: &Trial, analysis: &Analysis) -> Result<Vec<Exported>, Error> {
    let file = |table: &Table| match written(table) {
        Ok(bytes) => Ok(Exported { name: format!("{}.parquet", table.name), bytes }),
        Err(error) => Err(Error::Table {
            trial: analysis.trial.name.clone(),
            table: table.name,
            what: error.to_string(),
        }),
    };
    tables(trial, analysis).iter().map(file).collect()
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
