//! Keys, each declared once. The reader of files, `check` and the documentation all use the same
//! list.
//!
//! A [`Key`] has a name, a [`Kind`] (type, unit, bounds) and a help text; a type that is written as
//! a table lists its keys ([`Table`]). The default of a key is the value in the type's
//! `Default`, shown as a file would write it, so defaults are in one place too. What never
//! happens: reading stops at the first mistake; a key is accepted but not read.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::here::{Here, a_type, join, listed};
use super::value::Kind;

/// A type that a file writes as a table. Its `Default` is the empty table; required keys have a
/// meaningless value there.
pub(crate) trait Table: Default + 'static {
    /// Its keys, in the order of the documentation.
    const KEYS: &'static [Key<Self>];

    /// Checks for mistakes that no single key shows.
    fn check(&self, _here: &mut Here<'_, '_>) {}
}

/// A table that may have parts: tables of the same type, each of which has what the table around it
/// has, unless it says otherwise.
pub(crate) trait Whole: Table {
    /// A part that writes only these keys, before they are read.
    fn begun_part(&self, written: &[&str]) -> Self;

    /// Takes a part that has been read.
    fn add_part(&mut self, part: Self);
}

/// One key of a table of type `T`.
pub(crate) struct Key<T: 'static> {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) holds: Holds<T>,
    /// The table is invalid without it.
    pub(crate) required: bool,
    /// A change of it needs a restart to take effect.
    pub(crate) at_restart: bool,
    /// The value in the example file, if it is not the default.
    pub(crate) example: Option<&'static str>,
}

/// The contents of a key.
pub(crate) enum Holds<T: 'static> {
    /// A value.
    Value {
        kind: Kind,
        read: fn(&mut T, &Spanned<DeValue<'_>>, &Kind, &mut Here<'_, '_>),
        /// The value as a file writes it; `None` if there is none.
        show: fn(&T, &Kind) -> Option<String>,
    },
    /// A table, or several of them.
    Tables {
        many: bool,
        read: fn(&mut T, &Spanned<DeValue<'_>>, &mut Here<'_, '_>),
        describe: fn() -> Vec<Row>,
        differ: fn(&T, &T, &str, &mut Vec<String>),
    },
    /// Parts of the table, which are read after all other keys.
    Parts(fn(&mut T, &Spanned<DeValue<'_>>, &mut Here<'_, '_>)),
}

/// A key as documented.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: RowKind,
    pub(crate) required: bool,
    pub(crate) at_restart: bool,
    pub(crate) example: Option<&'static str>,
}

/// The contents of a documented key.
#[derive(Clone, Debug)]
pub(crate) enum RowKind {
    /// A value of this kind, with its default.
    Value(Kind, Option<String>),
    /// A table with these keys, or several.
    Tables { many: bool, rows: Vec<Row> },
}

/// The keys of a table, for the documentation.
pub(crate) fn rows<T: Table>() -> Vec<Row> {
    let blank = T::default();
    let row = |key: &Key<T>| Row {
        name: key.name,
        help: key.help,
        kind: match &key.holds {
            Holds::Value { kind, show, .. } => {
                let default = if key.required { None } else { show(&blank, kind) };
                RowKind::Value(*kind, default)
            }
            Holds::Tables { many, describe, .. } => {
                RowKind::Tables { many: *many, rows: describe() }
            }
            // Its keys are those of the table itself.
            Holds::Parts(_) => RowKind::Tables { many: true, rows: Vec::new() },
        },
        required: key.required,
        at_restart: key.at_restart,
        example: key.example,
    };
    T::KEYS.iter().map(row).collect()
}

/// The keys, by full name, that differ and need a restart to take effect.
pub(crate) fn at_restart<T: Table>(now: &T, then: &T, path: &str, found: &mut Vec<String>) {
    for key in T::KEYS {
        let path = join(path, key.name);
        match &key.holds {
            Holds::Value { kind, show, .. } => {
                if key.at_restart && show(now, kind) != show(then, kind) {
                    found.push(path);
                }
            }
            Holds::Tables { differ, .. } => differ(now, then, &path, found),
            Holds::Parts(_) => {}
        }
    }
}

/// Reads a table key by key. Mistakes are reported, and the value stays as it was.
pub(crate) fn read_table<T: Table>(into: &mut T, table: &DeTable<'_>, here: &mut Here<'_, '_>) {
    let mut parts = None;
    for (name, value) in table {
        let Some(key) = T::KEYS.iter().find(|key| key.name == name.get_ref().as_ref()) else {
            let known: Vec<&str> = T::KEYS.iter().map(|key| key.name).collect();
            here.mistake(name.span(), unknown_key(name.get_ref(), &here.path, &known));
            continue;
        };
        let path = join(&here.path, key.name);
        let mut inner = here.enter(path, value.span());
        match &key.holds {
            Holds::Value { kind, read, .. } => read(into, value, kind, &mut inner),
            Holds::Tables { read, .. } => read(into, value, &mut inner),
            Holds::Parts(read) => parts = Some((read, key.name, value)),
        }
    }
    if let Some((read, name, value)) = parts {
        let path = join(&here.path, name);
        read(into, value, &mut here.enter(path, value.span()));
    }
    for key in T::KEYS.iter().filter(|key| key.required) {
        if !table.iter().any(|(name, _)| name.get_ref() == key.name) {
            let place = section_name(&here.path);
            here.mistake_here(format!("`{}` is missing{place}: {}", key.name, key.help));
        }
    }
    into.check(here);
}

/// Reads a key that is a table.
pub(crate) fn read_one<T: Table>(
    into: &mut T,
    value: &Spanned<DeValue<'_>>,
    here: &mut Here<'_, '_>,
) {
    match value.get_ref() {
        DeValue::Table(table) => read_table(into, table, here),
        other => {
            let name = &here.path;
            let message =
                format!("`{name}` is a table, not {}: write [{name}]", a_type(other.type_str()));
            here.mistake(value.span(), message);
        }
    }
}

/// Reads a table that may be absent.
pub(crate) fn read_optional<T: Table>(
    into: &mut Option<T>,
    value: &Spanned<DeValue<'_>>,
    here: &mut Here<'_, '_>,
) {
    read_one(into.insert(T::default()), value, here);
}

/// Reads the tables of a list.
pub(crate) fn read_many<T: Table>(
    into: &mut Vec<T>,
    value: &Spanned<DeValue<'_>>,
    here: &mut Here<'_, '_>,
) {
    read_each(value, here, |item, here| {
        let mut one = T::default();
        read_one(&mut one, item, here);
        into.push(one);
    });
}

/// Reads the parts of a table.
pub(crate) fn read_parts<T: Whole>(
    whole: &mut T,
    value: &Spanned<DeValue<'_>>,
    here: &mut Here<'_, '_>,
) {
    read_each(value, here, |item, here| {
        let table = item.get_ref().as_table();
        let names = table.into_iter().flatten().map(|(name, _)| name.get_ref().as_ref());
        let mut part = whole.begun_part(&names.collect::<Vec<_>>());
        read_one(&mut part, item, here);
        whole.add_part(part);
    });
}

fn read_each(
    value: &Spanned<DeValue<'_>>,
    here: &mut Here<'_, '_>,
    mut read: impl FnMut(&Spanned<DeValue<'_>>, &mut Here<'_, '_>),
) {
    let name = here.path.clone();
    let DeValue::Array(items) = value.get_ref() else {
        let message = format!("`{name}` is a list of tables: write [[{name}]]");
        return here.mistake(value.span(), message);
    };
    for (index, item) in items.iter().enumerate() {
        read(item, &mut here.enter(format!("{name}[{index}]"), item.span()));
    }
}

/// The section of a key, in words.
fn section_name(path: &str) -> String {
    let plain: String = path.split('.').map(|part| part.split('[').next().unwrap_or(part)).fold(
        String::new(),
        |mut all, part| {
            if !all.is_empty() {
                all.push('.');
            }
            all.push_str(part);
            all
        },
    );
    match path {
        "" => String::new(),
        _ if path.ends_with(']') => format!(" in [[{plain}]]"),
        _ => format!(" in [{plain}]"),
    }
}

fn unknown_key(name: &str, path: &str, known: &[&str]) -> String {
    let place = section_name(path);
    let nearest = known
        .iter()
        .map(|other| (strsim::damerau_levenshtein(name, other), *other))
        .min_by_key(|(distance, _)| *distance)
        // At most a third of the word may differ; more is another word.
        .filter(|(distance, other)| *distance <= other.len().max(3) / 3)
        .or_else(|| {
            let whole = |other: &&&str| other.contains(name) || name.contains(**other);
            known.iter().find(whole).map(|other| (0, *other))
        });
    match nearest {
        Some((_, other)) => format!("there is no key `{name}`{place}; did you mean `{other}`?"),
        None => format!("there is no key `{name}`{place}; the known keys are {}", listed(known)),
    }
}

/// Declares the keys of a table. A value is `name: kind, field, "help"`, followed by `required !`,
/// `restart !` and `example "text"` where they apply. A table is `[name]: field, "help"`, an
/// optional one `(name): field, "help"`, a list of tables `[[name]]: field, "help"`. Parts of the
/// table are `{name}: "help"`.
macro_rules! keys {
    (@rows $table:ty; [$($done:expr,)*]) => { &[$($done),*] };
    (@rows $table:ty; [$($done:expr,)*]
        [[$name:ident]]: $($field:tt).+, $help:literal $(, example $example:literal)?; $($rest:tt)*
    ) => {
        keys!(@rows $table; [$($done,)* keys!(@tables $table; $name: $($field).+, $help, true,
            read_many, rows_of_many, |_, _, _, _| {}, $($example)?),] $($rest)*)
    };
    (@rows $table:ty; [$($done:expr,)*] {$name:ident}: $help:literal; $($rest:tt)*) => {
        keys!(@rows $table; [$($done,)* $crate::table::Key {
            name: stringify!($name),
            help: $help,
            holds: $crate::table::Holds::Parts(|whole: &mut $table, value, here| {
                $crate::table::read_parts(whole, value, here);
            }),
            required: false,
            at_restart: false,
            example: None,
        },] $($rest)*)
    };
    (@rows $table:ty; [$($done:expr,)*]
        [$name:ident]: $($field:tt).+, $help:literal $(, example $example:literal)?; $($rest:tt)*
    ) => {
        keys!(@rows $table; [$($done,)* keys!(@tables $table; $name: $($field).+, $help, false,
            read_one, rows_of_one, |now: &$table, then: &$table, path, found| {
                let (now, then) = (&now.$($field).+, &then.$($field).+);
                $crate::table::at_restart(now, then, path, found);
            }, $($example)?),] $($rest)*)
    };
    (@rows $table:ty; [$($done:expr,)*]
        ($name:ident): $($field:tt).+, $help:literal $(, example $example:literal)?; $($rest:tt)*
    ) => {
        keys!(@rows $table; [$($done,)* keys!(@tables $table; $name: $($field).+, $help, false,
            read_optional, rows_of_optional, |_, _, _, _| {}, $($example)?),] $($rest)*)
    };
    (@tables $table:ty; $name:ident: $($field:tt).+, $help:literal, $many:literal,
        $read:ident, $rows:ident, $differ:expr, $($example:literal)?
    ) => {
        $crate::table::Key {
            name: stringify!($name),
            help: $help,
            holds: $crate::table::Holds::Tables {
                many: $many,
                read: |table: &mut $table, value, here| {
                    $crate::table::$read(&mut table.$($field).+, value, here);
                },
                describe: || $crate::table::$rows(|table: &$table| &table.$($field).+),
                differ: $differ,
            },
            required: false,
            at_restart: false,
            example: keys!(@text $($example)?),
        }
    };
    (@rows $table:ty; [$($done:expr,)*]
        $name:ident: $kind:expr, $($field:tt).+, $help:literal
        $(, required $required:tt)? $(, restart $restart:tt)? $(, example $example:literal)?;
        $($rest:tt)*
    ) => {
        keys!(@rows $table; [$($done,)* $crate::table::Key {
            name: stringify!($name),
            help: $help,
            holds: $crate::table::Holds::Value {
                kind: $kind,
                read: |table: &mut $table, value, kind, here| {
                    use $crate::value::Setting;
                    if let Some(read) = Setting::read(value, kind, here) {
                        table.$($field).+ = read;
                    }
                },
                show: |table: &$table, kind| {
                    $crate::value::Setting::show(&table.$($field).+, kind)
                },
            },
            required: keys!(@flag $($required)?),
            at_restart: keys!(@flag $($restart)?),
            example: keys!(@text $($example)?),
        },] $($rest)*)
    };
    (@flag) => { false };
    (@flag !) => { true };
    (@text) => { None };
    (@text $text:literal) => { Some($text) };
    ($table:ty; $($rows:tt)*) => { keys!(@rows $table; [] $($rows)*) };
}
pub(crate) use keys;

/// The keys of the tables in a list; the field only determines their type.
pub(crate) fn rows_of_many<T, L: Table>(_field: fn(&T) -> &Vec<L>) -> Vec<Row> {
    rows::<L>()
}

/// The keys of an optional table.
pub(crate) fn rows_of_optional<T, F: Table>(_field: fn(&T) -> &Option<F>) -> Vec<Row> {
    rows::<F>()
}

/// The keys of a table.
pub(crate) fn rows_of_one<T, F: Table>(_field: fn(&T) -> &F) -> Vec<Row> {
    rows::<F>()
}
