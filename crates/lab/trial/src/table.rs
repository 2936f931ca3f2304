//! How rows of a table are written and read: one description for both directions.
//!
//! Each module of rows implements [`Table`] for its structs. Where a struct has a field for each
//! column, [`columns!`] writes the two functions.

use rusqlite::{Connection, Row, Statement, params_from_iter};

use crate::error::{Error, Place};

/// Numbers of intervals.
pub(crate) type Span = std::ops::Range<u64>;

/// All intervals: SQLite's numbers are signed.
pub(crate) const WHOLE: Span = 0..i64::MAX.cast_unsigned();

/// A row of a table.
pub(crate) trait Table: Sized {
    /// The table's name in the file.
    const NAME: &'static str;
    /// Its columns, as [`Table::write`] binds them and [`Table::read`] reads them.
    const COLUMNS: &'static str;
    /// Which rows are read, all or those of the span whose two ends are the parameters, and their
    /// order.
    const ROWS: &'static str;
    /// How a row is written.
    const VERB: &'static str = "INSERT";
    /// What happens if a row with the same key exists. By default that is an error.
    const CONFLICT: &'static str = "";
    /// Whether a file of an older version may lack the table.
    const OPTIONAL: bool = true;

    /// The statement that writes a row.
    fn insert_sql() -> String {
        let values = vec!["?"; Self::COLUMNS.split(',').count()].join(", ");
        let (verb, name, columns) = (Self::VERB, Self::NAME, Self::COLUMNS);
        format!("{verb} INTO {name} ({columns}) VALUES ({values}) {}", Self::CONFLICT)
    }

    /// The statement that reads the rows.
    fn select_sql() -> String {
        format!("SELECT {} FROM {} {}", Self::COLUMNS, Self::NAME, Self::ROWS)
    }

    /// Stores the name that the row refers to by number. Most rows have none.
    fn intern(&self, _connection: &Connection) -> rusqlite::Result<()> {
        Ok(())
    }

    /// Runs [`Table::insert_sql`] with this row's values.
    fn write(&self, insert: &mut Statement<'_>) -> rusqlite::Result<usize>;

    /// Reads a row of [`Table::select_sql`].
    fn read(row: &Row<'_>) -> rusqlite::Result<Self>;
}

/// Implements [`Table::write`] and [`Table::read`] for a struct with a field for each column, in
/// this order.
macro_rules! columns {
    ($($field:ident),+ $(,)?) => {
        fn write(&self, insert: &mut rusqlite::Statement<'_>) -> rusqlite::Result<usize> {
            insert.execute(rusqlite::params![$(self.$field),+])
        }

        fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
            let mut columns = 0..;
            let mut next = || columns.next().expect("the range has no end");
            Ok(Self { $($field: row.get::<usize, _>(next())?),+ })
        }
    };
}

/// Stores an enum as the index of its value in `ALL`.
macro_rules! stored_as_index {
    ($name:ty) => {
        impl rusqlite::ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
                Ok((*self as u8).into())
            }
        }

        impl rusqlite::types::FromSql for $name {
            fn column_result(
                value: rusqlite::types::ValueRef<'_>,
            ) -> rusqlite::types::FromSqlResult<Self> {
                let index = value.as_i64()?;
                let known = usize::try_from(index).ok().and_then(|index| Self::ALL.get(index));
                known.copied().ok_or(rusqlite::types::FromSqlError::OutOfRange(index))
            }
        }
    };
}

pub(crate) use {columns, stored_as_index};

/// Writes rows, if there are any.
pub(crate) fn insert<R: Table>(rows: &[R], connection: &Connection) -> rusqlite::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut insert = connection.prepare_cached(&R::insert_sql())?;
    for row in rows {
        row.intern(connection)?;
        row.write(&mut insert)?;
    }
    Ok(())
}

/// Reads the rows of a table, those of a span where rows belong to intervals. A trial without
/// an optional table (an older one) has no rows.
pub(crate) fn read<R: Table>(
    connection: &Connection,
    place: &Place<'_>,
    span: &Span,
) -> Result<Vec<R>, Error> {
    let rows = || {
        if R::OPTIONAL && !exists(connection, R::NAME)? {
            return Ok(Vec::new());
        }
        let mut select = connection.prepare(&R::select_sql())?;
        let parameters =
            params_from_iter([span.start, span.end].into_iter().take(select.parameter_count()));
        select.query_map(parameters, R::read)?.collect()
    };
    rows().map_err(|error| place.in_table(R::NAME, error))
}

/// Whether the file has this table. A trial of an older version may lack it.
pub(crate) fn exists(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = ?",
        [name],
        |row| row.get(0),
    )
}
