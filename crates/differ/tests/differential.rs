//! The same random commands to our server and to a real Redis 7.0.
//!
//! ```sh
//! PERDURA_DIFF_FAMILY=hash,set PERDURA_DIFF_FAILURES=10 cargo test -p perdura-differ --test differential
//! PERDURA_DIFF_COMMANDS=1000000 PERDURA_DIFF_JOBS=2 cargo test --release -p perdura-differ
//! ```

use perdura_differ::hunt::{Settings, hunt};

#[test]
fn random_commands_have_the_replies_of_redis() {
    let settings = Settings::from_environment().expect("settings");
    let report = hunt(&settings).expect("both servers");
    eprintln!(
        "{} commands of {} seeds in {:.1} s",
        report.commands,
        report.seeds,
        report.elapsed.as_secs_f64()
    );
    assert!(
        report.failures.is_empty(),
        "{} difference(s):\n{}",
        report.failures.len(),
        report.failures.join("\n")
    );
}
