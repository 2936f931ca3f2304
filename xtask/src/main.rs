//! tidy and the other chores.

fn main() {}
