//! The same random commands to our server and to a real Redis 7.0.
//!
//! ```sh
//! PERDURA_DIFF_FAMILY=hash,set PERDURA_DIFF_FAILURES=10 cargo test -p perdura-differ --test differential
//! PERDURA_DIFF_COMMANDS=1000000 PERDURA_DIFF_JOBS=2 cargo test --release -p perdura-differ
//! ```

use perdura_differ::hunt::{Settings, hunt};
use perdura_differ::pair::{Pair, Side};
use perdura_differ::stall::{LOADS, measure};
use std::time::Duration;

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

/// The longest round that any load may cause on this machine's processor, if Redis is no slower.
const ROUND_MAX: Duration = Duration::from_millis(20);

/// ```sh
/// PERDURA_STALL_SIZE=1000000 cargo test --release -p perdura-differ stall -- --nocapture
/// ```
#[test]
fn no_load_makes_the_loop_stall_longer_than_redis_or_twenty_milliseconds() {
    let size = std::env::var("PERDURA_STALL_SIZE").map_or(10_000, |n| n.parse().expect("a number"));
    let pair = Pair::start().expect("both servers");
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let mut late = Vec::new();
    eprintln!(
        "{:32} {:>12} {:>12} {:>12}",
        "load", "PING", "Redis", "round (CPU)"
    );
    for load in LOADS {
        let ours = measure(&pair, Side::Ours, load, size).expect(load.name);
        let theirs = measure(&pair, Side::Theirs, load, size).expect(load.name);
        let round = ours.round.expect("ours tells");
        eprintln!(
            "{:32} {:>12} {:>12} {:>12}",
            load.name,
            ms(ours.worst),
            ms(theirs.worst),
            ms(round)
        );
        if round > ROUND_MAX.max(theirs.worst * 2) {
            late.push(format!(
                "{}: {}, Redis {}",
                load.name,
                ms(round),
                ms(theirs.worst)
            ));
        }
    }
    assert!(late.is_empty(), "n = {size}: {}", late.join("; "));
}
