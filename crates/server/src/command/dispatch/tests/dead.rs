//! Tests of two kinds of writes: with a deadline in the past, and with an unchanged value. The tests check the
//! receipts. They also check the effects on WATCH, on tracking clients, and on clients that listen to events. The
//! expected effects are those of Redis 7.0.15, which has no receipts.

use super::{ask, leave, newcomer, owed, ready, sync, word_of};
use crate::engine::Epoch;
use crate::state::State;
use crate::testbed::Testbed;

const WRITER: usize = 0;

/// Requests that write a key, each with a flag and the events that the request causes. The flag is true if the key
/// exists before the request. An event means that the key has changed.
const WRITES: &[(bool, &str, &[&str])] = &[
    (
        false,
        "SET k v PXAT 1",
        &["new", "set", "expire", "expired"],
    ),
    (
        false,
        "SET k v EXAT 1",
        &["new", "set", "expire", "expired"],
    ),
    (
        false,
        "SET k v NX PXAT 1",
        &["new", "set", "expire", "expired"],
    ),
    (
        false,
        "SET k v GET PXAT 1",
        &["new", "set", "expire", "expired"],
    ),
    (false, "SET k v XX PXAT 1", &[]),
    (false, "GETEX k PXAT 1", &[]),
    (false, "EXPIRE k -1", &[]),
    (false, "RESTORE k 1 $dump ABSTTL", &[]),
    (false, "RESTORE k 1 $dump ABSTTL REPLACE", &[]),
    (false, "DEL k", &[]),
    (false, "APPEND k ", &["new", "append"]),
    (false, "SETRANGE k 0 ", &[]),
    (true, "SET k v PXAT 1", &["set", "expire", "expired"]),
    (true, "SET k v XX EXAT 1", &["set", "expire", "expired"]),
    (true, "SET k v GET PXAT 1", &["set", "expire", "expired"]),
    (true, "SET k v NX PXAT 1", &[]),
    (true, "GETEX k PXAT 1", &["del"]),
    (true, "GETEX k EXAT 1", &["del"]),
    (true, "EXPIRE k -1", &["del"]),
    (true, "EXPIRE k 0", &["del"]),
    (true, "PEXPIREAT k 1", &["del"]),
    (true, "RESTORE k 1 $dump ABSTTL REPLACE", &["del"]),
    (true, "RESTORE k 1 $dump ABSTTL", &[]),
    (true, "SET k old", &["set"]),
    (true, "SET k old KEEPTTL", &["set"]),
    (true, "SETNX k v", &[]),
    (true, "MSETNX k v", &[]),
    (true, "PERSIST k", &[]),
    (true, "GETEX k", &[]),
    (true, "APPEND k ", &["append"]),
    (true, "SETRANGE k 0 ", &[]),
];

fn say(state: &mut State, client: usize, line: &str) -> String {
    let words: Vec<Vec<u8>> = line
        .split(' ')
        .map(|word| word_of(state, WRITER, word))
        .collect();
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    super::call(state, client, &words).0
}

/// Returns the names of the events in the pending replies of a client that listens to all events.
fn events(told: &str) -> Vec<String> {
    let lines = told
        .lines()
        .filter_map(|line| line.strip_prefix("__keyevent@0__:"));
    lines
        .filter(|name| *name != "*")
        .map(String::from)
        .collect()
}

#[test]
fn a_key_that_is_gone_at_once_has_changed_for_all_who_observe_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    say(&mut state, WRITER, "CONFIG SET notify-keyspace-events KEAn");
    for (is_there, request, published) in WRITES {
        say(&mut state, WRITER, "FLUSHALL");
        if *is_there {
            say(&mut state, WRITER, "SET k old");
        }
        let [listener, watcher, tracker] = [(); 3].map(|()| newcomer(&mut state));
        say(&mut state, listener, "PSUBSCRIBE __keyevent@0__:*");
        for line in ["WATCH k", "MULTI", "PING"] {
            say(&mut state, watcher, line);
        }
        for line in ["HELLO 3", "CLIENT TRACKING ON", "GET k"] {
            say(&mut state, tracker, line);
        }
        say(&mut state, WRITER, request);
        let told = events(&owed(&mut state, listener).0);
        assert_eq!(told, *published, "{request}, there: {is_there}");
        let ran = say(&mut state, watcher, "EXEC");
        assert_eq!(
            ran == "*-1\r\n",
            !published.is_empty(),
            "{request}, there: {is_there}: {ran}"
        );
        let invalidated = owed(&mut state, tracker).0.contains("invalidate");
        assert_eq!(
            invalidated,
            !published.is_empty(),
            "{request}, there: {is_there}"
        );
        for client in [listener, watcher, tracker] {
            leave(&mut state, client);
        }
    }
}

/// Each row: a request, and whether it counts as a write of its client. A request that writes an unchanged value
/// counts, too.
const RECEIPTS: &[(&str, bool)] = &[
    ("SET k old", true),
    ("SET k old KEEPTTL", true),
    ("GETSET k old", true),
    ("MSET k old", true),
    ("SETRANGE k 0 old", true),
    ("HSET h f v", true),
    ("LSET l 0 a", true),
    ("SETBIT bits 0 0", false),
    ("PEXPIREAT timed 9999999999999", true),
    ("EVAL redis.call('SET','k','old') 0", true),
    ("SET k v NX", false),
    ("SETNX k v", false),
    ("DEL missing", false),
    ("SADD s a", false),
    ("ZADD z 1 a", false),
    ("EXPIRE missing 5", false),
    ("GET k", false),
    ("EVAL return(redis.call('GET','k')) 0", false),
];

fn receipt_of(state: &mut State, request: &str) -> String {
    let client = newcomer(state);
    let reply = say(state, client, request);
    assert!(!reply.starts_with('-'), "{request}: {reply}");
    let receipt = ask(state, client, &["CLIENT", "RECEIPT"]);
    leave(state, client);
    receipt
}

#[test]
fn a_client_that_writes_what_is_there_already_gets_a_receipt() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    for line in [
        "SET k old",
        "HSET h f v",
        "RPUSH l a",
        "SETBIT bits 0 0",
        "SET timed v PXAT 9999999999999",
        "SADD s a",
        "ZADD z 1 a",
    ] {
        say(&mut state, WRITER, line);
    }
    sync(&mut state);
    for (request, writes) in RECEIPTS {
        let receipt = receipt_of(&mut state, request);
        assert_eq!(receipt != "$-1\r\n", *writes, "{request}: {receipt}");
    }
    state
        .db()
        .expect("a database")
        .checkpoint()
        .expect("all is durable");
    drop(state);
    // The database is opened again. Earlier writes now count as writes at the time of the opening.
    let mut state = ready(&around, dir.path());
    state.reached = state.db().expect("a database").reached();
    assert!(state.reached.at(crate::engine::Rung::Disk) > Epoch(0));
    for (request, writes) in RECEIPTS {
        let receipt = receipt_of(&mut state, request);
        assert_eq!(receipt != "$-1\r\n", *writes, "{request}: {receipt}");
    }
}
