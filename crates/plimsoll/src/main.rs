//! The plimsoll command: flags, help, exit codes; glue only.

fn main() {}
