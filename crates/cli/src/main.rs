//! The `perdura` command.
fn main() {}
