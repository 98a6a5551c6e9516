//! Scenes of several connections: one client blocks or subscribes, and a second client acts.

use crate::grammar::Sentence;
use crate::step::{ACTOR, Argv, Step, Unit, WAITERS, call, calls};
use crate::tables::{Family, is_missing};
use crate::words;
use fastrand::Rng;

fn say(rng: &mut Rng, line: &str) -> Vec<Argv> {
    Sentence::parse(&format!("1 {line}")).speak(rng)
}

/// Commands that may wait. The word `wait` becomes a timeout: a short one if the wait shall time out.
const WAITS: [&str; 8] = [
    "BLPOP lkey+ wait",
    "BRPOP lkey+ wait",
    "BLMOVE lkey lkey ( LEFT | RIGHT ) ( LEFT | RIGHT ) wait",
    "BRPOPLPUSH lkey lkey wait",
    "BLMPOP wait #( lkey ) ( LEFT | RIGHT ) [ COUNT small ]",
    "BZPOPMIN zkey+ wait",
    "BZPOPMAX zkey+ wait",
    "BZMPOP wait #( zkey ) ( MIN | MAX ) [ COUNT small ]",
];

/// Commands for the client that acts. Some give a blocked client an element, and the others leave it blocked.
const ACTS: [&str; 14] = [
    "RPUSH lkey val+",
    "RPUSH lkey val+",
    "LPUSH lkey val+",
    "ZADD zkey ( score member )+",
    "ZADD zkey ( score member )+",
    "DEL key",
    "SET lkey val",
    "RENAME key lkey",
    "MULTI ; RPUSH lkey:a val+ ; RPUSH lkey val ; EXEC",
    "MULTI ; RPUSH lkey:a val ; DEL lkey:a ; EXEC",
    "MULTI ; ZADD zkey score member ; RPUSH lkey val ; EXEC",
    "LMOVE lkey lkey LEFT RIGHT",
    "SADD tkey:t small+ ; DEL lkey:a ; SORT tkey:t STORE lkey:a",
    "COPY lkey lkey REPLACE",
];

/// Makes clients wait for lists and sorted sets, and other clients push to them.
pub fn blocking(rng: &mut Rng) -> Unit {
    let known = |line: &&&str| {
        let sentence = Sentence::parse(&format!("1 {line}"));
        sentence.names().iter().all(|name| !is_missing(name))
    };
    let waits: Vec<&&str> = WAITS.iter().filter(known).collect();
    let acts: Vec<&&str> = ACTS.iter().filter(known).collect();
    if waits.is_empty() || acts.is_empty() || is_missing("CLIENT|UNBLOCK") {
        return Vec::new();
    }
    let mut unit = Unit::new();
    if rng.bool() {
        let pool: Vec<String> = (1..5)
            .flat_map(|n| [format!("l{n}"), format!("z{n}")])
            .collect();
        let mut argv = vec![b"DEL".to_vec()];
        argv.extend(pool.into_iter().map(String::into_bytes));
        unit.push(Step::Call { conn: ACTOR, argv });
    }
    let timed_out = rng.u8(..) < 20;
    let waiters = &WAITERS[..rng.usize(1..=2)];
    for conn in waiters {
        let line = waits[rng.usize(..waits.len())];
        let line = if timed_out {
            line.replace("wait", "secs0")
        } else {
            (*line).to_string()
        };
        for argv in say(rng, &line) {
            unit.push(Step::Block { conn: *conn, argv });
        }
    }
    if timed_out {
        unit.push(Step::Sleep(120));
    } else {
        for _ in 0..rng.usize(..5) {
            let line = acts[rng.usize(..acts.len())];
            unit.extend(calls(ACTOR, say(rng, line)));
        }
    }
    for conn in waiters {
        let error = rng.bool();
        unit.push(Step::Settle { conn: *conn, error });
    }
    unit
}

/// Makes one client listen to channels, and a second client publish.
pub fn listening(rng: &mut Rng) -> Unit {
    if is_missing("SUBSCRIBE") {
        return Vec::new();
    }
    let conn = WAITERS[0];
    let mut unit = vec![Step::Fresh { conn }];
    for n in 0..rng.usize(2..10) {
        let line = match rng.u8(..24) {
            0..5 => "SUBSCRIBE chan+",
            5..8 => "PSUBSCRIBE chanpat+",
            8..10 => "UNSUBSCRIBE [ chan ]",
            10..12 => "PUNSUBSCRIBE [ chanpat ]",
            12 => "SSUBSCRIBE chan",
            13 => "SUNSUBSCRIBE [ chan ]",
            14 => "( GET skey | PING val | SUBSCRIBE | PUBLISH chan val | MULTI junk | FOO )",
            15 => "SPUBLISH chan val",
            16 => "PUBSUB ( CHANNELS | NUMPAT | NUMSUB chan chan | SHARDNUMSUB chan )",
            _ => "PUBLISH chan",
        };
        for mut argv in say(rng, line) {
            let heard = line.contains("SUBSCRIBE") || line.starts_with('(');
            if line == "PUBLISH chan" {
                argv.push(format!("message {n}").into_bytes());
            }
            unit.push(if heard {
                Step::Hear { conn, argv }
            } else {
                Step::Call { conn: ACTOR, argv }
            });
        }
    }
    unit.push(Step::Hear {
        conn,
        argv: Vec::new(),
    });
    unit.push(Step::Fresh { conn });
    unit
}

/// Makes a client listen to the events of keys.
pub fn notifications(rng: &mut Rng, families: &[&Family]) -> Unit {
    if is_missing("PSUBSCRIBE") {
        return Vec::new();
    }
    let conn = WAITERS[0];
    let classes = [
        "KEA",
        "KA",
        "EA",
        "Kg$lshzxet",
        "E$",
        "Kl",
        "AKE",
        "KEd",
        "KEn",
        "KEAn",
        "KEm",
        "KEAnm",
        "foo",
    ];
    let classes = classes[rng.usize(..classes.len())];
    let set = |classes: &str| call(ACTOR, &["CONFIG", "SET", "notify-keyspace-events", classes]);
    let listen = ["PSUBSCRIBE", "__key*"].map(|word| word.as_bytes().to_vec());
    // Redis keeps an expired key until a client uses it, and would then send an event. So all keys
    // are used first.
    let mut ask = vec![b"EXISTS".to_vec()];
    ask.extend(words::all_keys());
    let mut unit = vec![
        Step::Call {
            conn: ACTOR,
            argv: ask,
        },
        set(classes),
        Step::Fresh { conn },
        Step::Hear {
            conn,
            argv: listen.to_vec(),
        },
    ];
    for _ in 0..rng.usize(1..12) {
        let family = families[rng.usize(..families.len())];
        // After a failed command on several keys, Redis has sent `m` events for only some of the
        // keys.
        if classes.ends_with('m') && family.name != "hash" {
            continue;
        }
        if family.sentences.is_empty() || matches!(family.name, "client" | "pubsub" | "blocking") {
            continue;
        }
        let sentence = &family.sentences[rng.usize(..family.sentences.len())];
        let commands = sentence.speak(rng);
        if commands.iter().any(|argv| argv[0].starts_with(b"@")) {
            continue;
        }
        unit.extend(calls(ACTOR, commands));
    }
    unit.push(Step::Hear {
        conn,
        argv: Vec::new(),
    });
    unit.push(set(""));
    unit.push(Step::Fresh { conn });
    unit.push(call(ACTOR, &["SELECT", "0"]));
    unit
}
