//! The reference of flags and metrics, made from the lists that the program itself uses.
//!
//! `docs/reference.md` is this text; a test holds the file against it.

use std::fmt::Write;

use clap::CommandFactory;
use command::reference::section;

use crate::cli::Cli;

/// `docs/reference.md`.
pub(crate) fn markdown() -> String {
    let mut out = String::from(
        "# Reference: flags and metrics\n\nMade by `plimsoll reference` from the lists in the \
         program; do not edit.\n",
    );
    let command = Cli::command();
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        section(verb.get_name(), verb, &mut out);
        for below in verb.get_subcommands() {
            section(&format!("{} {}", verb.get_name(), below.get_name()), below, &mut out);
        }
    }
    out.push_str("\n## Metrics\n\nServed as OpenMetrics on `/metrics` of the admin address.\n\n");
    out.push_str("| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n");
    for metric in server::described_metrics() {
        let (name, kind) = (metric.full_name(), metric.shape.name());
        let labels = metric.shape.labels().join(", ");
        let _ = writeln!(out, "| `{name}` | {kind} | {labels} | {} |", metric.help);
    }
    log_codes(&mut out);
    out
}

fn log_codes(out: &mut String) {
    out.push_str(
        "\n## Codes of log formats\n\nWhat a format string of the access log may hold: \
         Squid's codes behind `squid:`,\nApache's behind `apache:`.\n\n",
    );
    out.push_str("| dialect | code | meaning |\n| --- | --- | --- |\n");
    for code in server::log_codes() {
        let _ = writeln!(out, "| {} | `{}` | {} |", code.dialect, code.code, code.help);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checked_in_reference_is_what_the_program_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == super::markdown(),
            "docs/reference.md is not up to date: \
             cargo run -p plimsoll -- reference > docs/reference.md"
        );
    }
}
