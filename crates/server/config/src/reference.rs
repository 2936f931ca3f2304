//! Generates `docs/configuration.md` and `docs/example.toml` from the list of keys.

use std::fmt::Write;

use super::keys::Root;
use super::table::{Row, RowKind, rows};

const HEAD: &str = "# The configuration file

Made by `plimsoll reference --configuration` from the list of keys in the program; do not edit.

```sh
plimsoll check FILE        # reports its mistakes, or what it would do
plimsoll serve -c FILE     # serves with it
```

The file is TOML. A time is written with its unit (`\"250ms\"`, `\"30s\"`, `\"5m\"`, `\"2h\"`,
`\"1d\"`). A number of bytes may have a unit (`\"64KiB\"`, `\"256MiB\"`) or none (`65536`). Units
are powers of 1024. File names are relative to the directory of the configuration. An unknown key
is an error, and so is a value out of its bounds. All mistakes of a file are reported together. Each
has its file, line and column, and an unknown key has the nearest known key.

SIGHUP and `POST /reload` on the admin address put a changed file in force. Open connections and the
store stay. New listeners are bound, and listeners that the file no longer has are drained. A file
with a mistake changes nothing, and the log and the answer give the reason. Keys marked **restart**
keep their value until the process is replaced ([how](serve.md#restart)). If a reload finds a change
of such a key, its answer and the log name the key. [`example.toml`](example.toml) has every key.
";

/// `docs/configuration.md`.
pub fn markdown() -> String {
    let mut out = HEAD.to_owned();
    for row in rows::<Root>() {
        section(&mut out, &row, "");
    }
    out
}

fn section(out: &mut String, row: &Row, above: &str) {
    let RowKind::Tables { many, rows } = &row.kind else { return };
    let name = format!("{above}{}", row.name);
    let title = if *many { format!("[[{name}]]") } else { format!("[{name}]") };
    let level = "#".repeat(2 + name.matches('.').count());
    let _ = write!(out, "\n{level} `{title}`\n\n");
    wrapped(out, "", row.help);
    out.push('\n');
    let values: Vec<_> = rows.iter().filter(|row| matches!(row.kind, RowKind::Value(..))).collect();
    if !values.is_empty() {
        out.push_str("| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
        for row in values {
            let RowKind::Value(kind, default) = &row.kind else { continue };
            let default = match default {
                _ if row.required => "required".to_owned(),
                Some(default) => format!("`{default}`"),
                None => String::new(),
            };
            let restart = if row.at_restart { " **restart**" } else { "" };
            let (name, words, help) = (row.name, kind.words(), sentence(row.help));
            let help = help.replace('|', "\\|");
            let _ = writeln!(out, "| `{name}` | {words} | {default} | {help}{restart} |");
        }
    }
    for row in rows {
        section(out, row, &format!("{name}."));
    }
}

/// The help with single spaces; line breaks in the list mean nothing.
fn sentence(help: &str) -> String {
    help.split_whitespace().collect::<Vec<_>>().join(" ")
}

const EXAMPLE_HEAD: &str = "\
# An example configuration: every key there is. What is not commented out is set; what is shows the
# default, or an example where there is no default. docs/configuration.md says more.
#
#   plimsoll check docs/example.toml
#   plimsoll serve -c docs/example.toml
";

/// `docs/example.toml`.
pub fn example() -> String {
    let mut out = EXAMPLE_HEAD.to_owned();
    for row in rows::<Root>() {
        example_section(&mut out, &row, "", true);
    }
    out
}

fn example_section(out: &mut String, row: &Row, above: &str, above_shown: bool) {
    let RowKind::Tables { many, rows } = &row.kind else { return };
    let name = format!("{above}{}", row.name);
    let title = if *many { format!("[[{name}]]") } else { format!("[{name}]") };
    // A list without an item is commented out; so is a table that would change behaviour.
    let shown = above_shown && (row.example.is_some() || (above.is_empty() && !*many));
    out.push('\n');
    comment(out, row.help);
    let _ = writeln!(out, "{}{title}", if shown { "" } else { "# " });
    for row in rows {
        let RowKind::Value(kind, default) = &row.kind else { continue };
        comment(out, row.help);
        comment(out, &format!("({}{})", kind.words(), restart(row)));
        let value = row.example.map(str::to_owned).or_else(|| default.clone());
        let live = shown && row.required;
        let value = value.unwrap_or_default();
        let _ = writeln!(out, "{}{} = {value}", if live { "" } else { "# " }, row.name);
    }
    for row in rows {
        example_section(out, row, &format!("{name}."), shown);
    }
}

fn restart(row: &Row) -> &'static str {
    if row.at_restart { "; changed by a restart only" } else { "" }
}

fn comment(out: &mut String, text: &str) {
    wrapped(out, "# ", text);
}

/// Wraps the text to a maximum width, with a prefix on each line.
fn wrapped(out: &mut String, prefix: &str, text: &str) {
    const WIDTH: usize = 98;
    let mut line = String::from(prefix);
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = String::from(prefix);
        }
        if line.len() > prefix.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push_str(line.trim_end());
    out.push('\n');
}
