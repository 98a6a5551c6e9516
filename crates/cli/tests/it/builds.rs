//! A short comparison of a new build with the previous build. The long comparison is `cargo run --example builds` in
//! `perdura-differ`.

use std::path::Path;

use perdura_differ::builds::compare;

use crate::support::PERDURA;

#[test]
fn scripts_that_are_acknowledged_survive_a_kill_and_an_export_with_one_digest() {
    let program = Path::new(PERDURA);
    let report = compare(program, program, 1..41, 20).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!((report.scripts, report.kills), (40, 2));
    assert!(report.commands > 1000, "{report:?}");
    assert!(report.keys > 50, "{report:?}");
}
