//! The reference of a program in Markdown, generated from its flags.

use std::fmt::Write;

/// The section of a command or subcommand.
pub fn section(name: &str, command: &clap::Command, out: &mut String) {
    let _ = write!(out, "\n## plimsoll {name}\n\n");
    if let Some(about) = command.get_about() {
        let _ = write!(out, "{about}.\n\n");
    }
    let mut rows = String::new();
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        row_of(arg, &mut rows);
    }
    if !rows.is_empty() {
        let _ = write!(out, "| flag | meaning | default |\n| --- | --- | --- |\n{rows}");
    }
}

fn row_of(arg: &clap::Arg, rows: &mut String) {
    let mut name = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        _ => String::new(),
    };
    let takes_value = arg.get_action().takes_values();
    if takes_value {
        for value in arg.get_value_names().unwrap_or_default() {
            if !name.is_empty() {
                name.push(' ');
            }
            name.push_str(value);
        }
    }
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    let defaults: Vec<_> = if takes_value {
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect()
    } else {
        Vec::new()
    };
    let _ = writeln!(rows, "| `{name}` | {} | {} |", help.replace('|', "\\|"), defaults.join(" "));
}
