//! Sends random commands to our server and to a real Redis 7.0, and compares the replies.
//!
//! ```sh
//! PERDURA_DIFF_FAMILY=hash,set PERDURA_DIFF_FAILURES=10 cargo test -p perdura-differ --test differential
//! PERDURA_DIFF_COMMANDS=1000000 PERDURA_DIFF_JOBS=2 cargo test --release -p perdura-differ
//! ```

mod differential {
    mod idle;
    mod scripts;
    mod sketches;
    mod tracking;
}

use perdura_differ::hunt::{Settings, hunt};
use perdura_differ::pair::{Pair, Side};
use perdura_differ::stall::{LOADS, MORE_LOADS, measure};
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

/// The maximum time of one round of our server's loop under a load. If twice the time of Redis's round is longer, that
/// is the maximum instead.
const ROUND_MAX: Duration = Duration::from_millis(20);
/// The maximum time of a round in the short run. Other work may share its machine and halve its speed.
const SHORT_ROUND_MAX: Duration = Duration::from_millis(40);
/// The maximum number of repetitions of a load whose round was too long. The verdict uses the shortest measured round.
const AGAIN: usize = 5;
/// The maximum time of a PING.
const PING_MAX: Duration = Duration::from_millis(50);

/// The short run checks only the rounds. A long run also checks the times of PINGs, and needs a release build on a
/// quiet machine. Rounds are measured in processor time. `PERDURA_STALL_LOADS` selects loads by a part of their names.
///
/// ```sh
/// PERDURA_STALL_LOADS=SORT scripts/bench-stalls.sh
/// ```
#[test]
fn no_load_makes_the_loop_stall_longer_than_redis_or_some_milliseconds() {
    let size = std::env::var("PERDURA_STALL_SIZE").ok();
    let only = std::env::var("PERDURA_STALL_LOADS").unwrap_or_default();
    let long = size.is_some();
    let round_max = if long { ROUND_MAX } else { SHORT_ROUND_MAX };
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
    for load in LOADS
        .iter()
        .chain(MORE_LOADS)
        .filter(|load| load.name.contains(&only))
    {
        let sides = [Side::Theirs, Side::Ours].map(|side| measure(&pair, side, load, size));
        let [theirs, mut ours] = match sides {
            [Ok(theirs), Ok(ours)] => [theirs, ours],
            [Err(e), _] | [_, Err(e)] => {
                eprintln!("{:34} {e:#}", load.name);
                late.push(format!("{}: {e:#}", load.name));
                continue;
            }
        };
        for _ in 0..AGAIN {
            // A longer round may have had other causes: the log made a file, or the processor of a shared machine was
            // slow.
            if ours.round <= round_max.max(theirs.round * 2) {
                break;
            }
            let again = measure(&pair, Side::Ours, load, size).expect(load.name);
            ours.round = ours.round.min(again.round);
            ours.worst = ours.worst.min(again.worst);
        }
        let round = ours.round > round_max.max(theirs.round * 2);
        let ping = long && ours.worst > PING_MAX;
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

/// Settings that limit the size of a packed collection, and small values for them.
const PACKED_LIMITS: [(&str, usize); 7] = [
    ("hash-max-listpack-entries", 8),
    ("hash-max-ziplist-value", 12),
    ("set-max-intset-entries", 8),
    ("zset-max-ziplist-entries", 8),
    ("zset-max-listpack-value", 12),
    ("list-max-listpack-size", 8),
    ("hash-max-listpack-value", 12),
];

/// Returns a random write to a small collection. Its second word is the key.
fn packed_write(rng: &mut fastrand::Rng) -> Vec<String> {
    let n = |rng: &mut fastrand::Rng, most: usize| rng.usize(..most).to_string();
    let text =
        |rng: &mut fastrand::Rng| format!("t{}{}", rng.u8(..12), "x".repeat(rng.usize(..14)));
    let key = |rng: &mut fastrand::Rng, kind: &str| format!("{kind}{}", rng.u8(..3));
    let words: Vec<String> = match rng.u8(..24) {
        0..3 => vec!["HSET".into(), key(rng, "h"), text(rng), text(rng)],
        3 => vec!["HSETNX".into(), key(rng, "h"), text(rng), text(rng)],
        4 => vec![
            "HINCRBY".into(),
            key(rng, "h"),
            format!("n{}", n(rng, 9)),
            n(rng, 99),
        ],
        5 => vec!["HDEL".into(), key(rng, "h"), text(rng)],
        6..9 => vec!["SADD".into(), key(rng, "i"), n(rng, 12)],
        9 => vec!["SREM".into(), key(rng, "i"), n(rng, 12)],
        10 => vec!["SADD".into(), key(rng, "m"), n(rng, 12), text(rng)],
        11 => vec![
            "SUNIONSTORE".into(),
            key(rng, "u"),
            key(rng, "i"),
            key(rng, "m"),
        ],
        12 => vec![
            "SINTERSTORE".into(),
            key(rng, "u"),
            key(rng, "i"),
            key(rng, "i"),
        ],
        13..16 => vec!["ZADD".into(), key(rng, "z"), n(rng, 9), text(rng)],
        16 => vec!["ZINCRBY".into(), key(rng, "z"), n(rng, 9), text(rng)],
        17 => vec!["ZREM".into(), key(rng, "z"), text(rng)],
        18 => vec![
            "ZUNIONSTORE".into(),
            key(rng, "z"),
            "2".into(),
            key(rng, "z"),
            key(rng, "i"),
        ],
        19 => vec![
            "ZRANGESTORE".into(),
            key(rng, "z"),
            key(rng, "z"),
            "0".into(),
            n(rng, 9),
        ],
        20 => vec!["RPUSH".into(), key(rng, "l"), text(rng)],
        21 => vec!["LSET".into(), key(rng, "l"), "0".into(), text(rng)],
        22 => vec![
            "COPY".into(),
            key(rng, "z"),
            key(rng, "c"),
            "REPLACE".into(),
        ],
        _ => {
            let kind = ["h", "i", "m", "z", "l", "c"][rng.usize(..6)];
            vec!["DEL".into(), key(rng, kind)]
        }
    };
    words
}

/// ```sh
/// PERDURA_DIFF_ENCODINGS=200000 cargo test --release -p perdura-differ encodings
/// ```
#[test]
fn encodings_follow_changing_limits_as_in_redis() {
    let steps =
        std::env::var("PERDURA_DIFF_ENCODINGS").map_or(6000, |n| n.parse().expect("a number"));
    let pair = Pair::start().expect("both servers");
    let mut wires =
        [Side::Ours, Side::Theirs].map(|side| pair.connect(side).expect("a connection"));
    // The test loses no data, so our server need not wait until changes are durable.
    let at_once = wires[0].call(&["CLIENT", "DURABILITY", "mem"]);
    assert_eq!(at_once.expect("ours").kind, b'+');
    let mut both = |words: &[&str]| {
        let [ours, theirs] = &mut wires;
        let replies = (
            ours.call(words).expect("ours"),
            theirs.call(words).expect("Redis"),
        );
        assert_eq!(replies.0, replies.1, "{words:?}");
        replies.0
    };
    let mut rng = fastrand::Rng::with_seed(16);
    let mut seen = std::collections::BTreeSet::new();
    for step in 0..steps {
        if step % 30 == 0 {
            let (name, most) = PACKED_LIMITS[rng.usize(..PACKED_LIMITS.len())];
            both(&["CONFIG", "SET", name, &rng.usize(..=most).to_string()]);
            both(&["CONFIG", "GET", name]);
        }
        let words = packed_write(&mut rng);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        both(&words);
        let encoding = both(&[
            "OBJECT",
            "ENCODING",
            if words[0] == "COPY" {
                words[2]
            } else {
                words[1]
            },
        ]);
        seen.extend(
            encoding
                .text()
                .map(|text| String::from_utf8_lossy(text).into_owned()),
        );
    }
    let all = ["hashtable", "intset", "listpack", "quicklist", "skiplist"];
    assert!(all.iter().all(|form| seen.contains(*form)), "{seen:?}");
}
