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

/// The longest round that any load may cause on this machine's processor, if Redis's is shorter.
const ROUND_MAX: Duration = Duration::from_millis(20);
/// The longest that another client may wait for its PING, if it waits less for Redis.
const PING_MAX: Duration = Duration::from_millis(50);

/// The short run judges rounds by the processor's clock alone; a long one judges PINGs too, and is for
/// a release build on a quiet machine. `PERDURA_STALL_LOADS` names the loads to run by a part of their
/// names.
///
/// ```sh
/// PERDURA_STALL_LOADS=SORT scripts/bench-stalls.sh
/// ```
#[test]
fn no_load_makes_the_loop_stall_longer_than_redis_or_twenty_milliseconds() {
    let size = std::env::var("PERDURA_STALL_SIZE").ok();
    let only = std::env::var("PERDURA_STALL_LOADS").unwrap_or_default();
    let long = size.is_some();
    let size = size.map_or(10_000, |n| n.parse().expect("a number"));
    let pair = if long {
        Pair::start_with(|db| db.memory_limit = Some(6 << 30))
    } else {
        Pair::start()
    };
    let pair = pair.expect("both servers");
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let mut late = Vec::new();
    let row = |cells: [&str; 6]| {
        let [name, numbers @ ..] = cells;
        eprintln!(
            "{name:34} {}",
            numbers.map(|cell| format!("{cell:>11}")).concat()
        );
    };
    row([
        &format!("n = {size}, milliseconds"),
        "Redis PING",
        "our PING",
        "its round",
        "our round",
        "verdict",
    ]);
    for load in LOADS.iter().filter(|load| load.name.contains(&only)) {
        let sides = [Side::Theirs, Side::Ours].map(|side| measure(&pair, side, load, size));
        let [theirs, ours] = match sides {
            [Ok(theirs), Ok(ours)] => [theirs, ours],
            [Err(e), _] | [_, Err(e)] => {
                eprintln!("{:34} {e:#}", load.name);
                late.push(format!("{}: {e:#}", load.name));
                continue;
            }
        };
        let round = ours.round > ROUND_MAX.max(theirs.round * 2);
        let ping = long && ours.worst > PING_MAX.max(theirs.worst * 2);
        let verdict = match (ping, round) {
            (false, false) => "ok",
            (true, false) => "PING",
            (false, true) => "ROUND",
            (true, true) => "PING, ROUND",
        };
        let times = [theirs.worst, ours.worst, theirs.round, ours.round].map(ms);
        let [a, b, c, d] = &times;
        row([load.name, a, b, c, d, verdict]);
        if ping || round {
            late.push(format!("{}: {verdict}", load.name));
        }
    }
    assert!(late.is_empty(), "n = {size}: {}", late.join("; "));
}
