//! Tests of a consumer that waits in XREADGROUP while a command removes or replaces its stream.
//! They cover every command that can do so. The expectations are the replies of Redis 7.0.15.

use super::{LIBRARY, ask, call, finish_jobs, owed, ready, word_of};
use crate::command::flag;
use crate::command::steps::Steps;
use crate::command::table::all;
use crate::engine::Durability;
use crate::state::State;
use crate::testbed::Testbed;
use std::collections::BTreeSet;

const CONSUMER: usize = 0;
const WRITER: usize = 1;

/// The effect on the waiting consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Unblocked,
    NoGroup,
    Served,
    Waits,
}

use Then::{NoGroup, Served, Unblocked, Waits};

/// Each row: one or more requests, separated by `;`, and their effect on the waiting consumer of group `g` of
/// stream `s`.
const WAYS: &[(&str, Then)] = &[
    ("DEL s", Unblocked),
    ("DEL missing", Waits),
    ("UNLINK s", Unblocked),
    ("FLUSHDB", Unblocked),
    ("FLUSHALL ASYNC", Unblocked),
    ("SELECT 1 ; FLUSHDB ; SELECT 0", Waits),
    ("EXPIRE s -1", Unblocked),
    ("EXPIRE s 1000", Waits),
    ("PEXPIRE s 0", Unblocked),
    ("EXPIREAT s 1", Unblocked),
    ("PEXPIREAT s 1", Unblocked),
    ("RENAME s other", Unblocked),
    ("RENAME string s", Unblocked),
    ("RENAME filled s", Served),
    ("RENAME ungrouped s", NoGroup),
    ("RENAMENX s other", Unblocked),
    ("SET s v", Unblocked),
    ("SET s v PXAT 1", Unblocked),
    ("SETEX s 100 v", Unblocked),
    ("PSETEX s 1000 v", Unblocked),
    ("MSET a b s v", Unblocked),
    ("SWAPDB 0 1", Unblocked),
    ("SWAPDB 1 0", Unblocked),
    ("SWAPDB 1 2", Waits),
    ("COPY string s REPLACE", Unblocked),
    ("COPY filled s REPLACE", Served),
    ("COPY ungrouped s REPLACE", NoGroup),
    ("MOVE s 1", Unblocked),
    ("RESTORE s 0 $string REPLACE", Unblocked),
    ("RESTORE s 0 $filled REPLACE", Served),
    ("RESTORE s 1 $string ABSTTL REPLACE", Unblocked),
    ("RESTORE s 0 $string", Waits),
    ("SORT list ALPHA STORE s", Unblocked),
    ("SORT missing STORE s", Unblocked),
    ("BITOP NOT s string", Unblocked),
    ("BITOP AND s missing", Unblocked),
    ("ZUNIONSTORE s 1 zset", Unblocked),
    ("ZUNIONSTORE s 1 missing", Unblocked),
    ("ZINTERSTORE s 1 zset", Unblocked),
    ("ZDIFFSTORE s 1 zset", Unblocked),
    ("ZRANGESTORE s zset 0 -1", Unblocked),
    ("ZRANGESTORE s missing 0 -1", Unblocked),
    ("SUNIONSTORE s set", Unblocked),
    ("SINTERSTORE s set", Unblocked),
    ("SDIFFSTORE s set", Unblocked),
    ("SDIFFSTORE s missing", Unblocked),
    (
        "GEOSEARCHSTORE s places FROMLONLAT 13 38 BYRADIUS 100 m",
        Unblocked,
    ),
    (
        "GEOSEARCHSTORE s missing FROMLONLAT 13 38 BYRADIUS 100 m",
        Unblocked,
    ),
    ("GEORADIUS places 13 38 100 m STORE s", Unblocked),
    ("GEORADIUS missing 13 38 100 m STORE s", Unblocked),
    ("GEORADIUSBYMEMBER places p 100 m STORE s", Unblocked),
    ("XGROUP DESTROY s g", NoGroup),
    ("XGROUP DELCONSUMER s g c", Waits),
    ("XADD s 2-1 f v", Served),
    ("XREADGROUP GROUP g d STREAMS s >", Waits),
    ("EVAL redis.call('DEL','s') 0", Unblocked),
    ("EVAL redis.call('FLUSHALL') 0", Unblocked),
    ("EVALSHA $sha 0", Unblocked),
    ("FCALL gone 1 s", Unblocked),
    ("MULTI ; DEL s ; EXEC", Unblocked),
    ("MULTI ; SWAPDB 0 1 ; EXEC", Unblocked),
    ("MULTI ; DEL s ; SADD s a ; EXEC", Unblocked),
    ("MULTI ; DEL s ; XADD s 1-1 f v ; EXEC", NoGroup),
    ("MULTI ; DEL s ; XGROUP CREATE s g $ MKSTREAM ; EXEC", Waits),
    (
        "MULTI ; DEL s ; XADD s 1-1 f v ; XGROUP CREATE s g 0 ; EXEC",
        Served,
    ),
    (
        "MULTI ; XGROUP DESTROY s g ; XGROUP CREATE s g 0 ; EXEC",
        Waits,
    ),
];

/// Commands that write, but never remove or replace a stream.
const NEVER: &[&str] = &[
    "append",
    "bitfield",
    "blmove",
    "blmpop",
    "blpop",
    "brpop",
    "brpoplpush",
    "bzmpop",
    "bzpopmax",
    "bzpopmin",
    "decr",
    "decrby",
    "geoadd",
    "getdel",
    "getex",
    "getset",
    "hdel",
    "hincrby",
    "hincrbyfloat",
    "hmset",
    "hset",
    "hsetnx",
    "incr",
    "incrby",
    "incrbyfloat",
    "linsert",
    "lmove",
    "lmpop",
    "lpop",
    "lpush",
    "lpushx",
    "lrem",
    "lset",
    "ltrim",
    "msetnx",
    "persist",
    "pfadd",
    "pfdebug",
    "pfmerge",
    "restore-asking",
    "rpop",
    "rpoplpush",
    "rpush",
    "rpushx",
    "sadd",
    "setbit",
    "setnx",
    "setrange",
    "smove",
    "spop",
    "srem",
    "xack",
    "xautoclaim",
    "xclaim",
    "xdel",
    "xsetid",
    "xtrim",
    "zadd",
    "zincrby",
    "zmpop",
    "zpopmax",
    "zpopmin",
    "zrem",
    "zremrangebylex",
    "zremrangebyrank",
    "zremrangebyscore",
];

/// Requests that create the stream `s` and all other keys.
const KEYS: &[&str] = &[
    "XGROUP CREATE s g $ MKSTREAM",
    "XADD filled 1-1 f v",
    "XGROUP CREATE filled g 0",
    "XGROUP CREATE ungrouped other $ MKSTREAM",
    "SET string v",
    "RPUSH list b a",
    "SADD set 1 2",
    "ZADD zset 1 m",
    "GEOADD places 13 38 p",
];

/// Sends the requests of `lines` one at a time. Each command ends before the next request is sent.
fn say(state: &mut State, client: usize, lines: &str) {
    for line in lines.split(';') {
        let words: Vec<Vec<u8>> = line
            .split_whitespace()
            .map(|word| word_of(state, WRITER, word))
            .collect();
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let (mut reply, _) = call(state, client, &words);
        finish_jobs(state);
        reply += &owed(state, client).0;
        assert!(!reply.starts_with("-ERR"), "{line}: {reply}");
    }
}

/// Checks the effect of `lines` on a waiting consumer.
fn check(state: &mut State, lines: &str, then: Then) {
    say(state, WRITER, "FLUSHALL");
    KEYS.iter().for_each(|line| say(state, WRITER, line));
    say(state, CONSUMER, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    say(state, WRITER, lines);
    let (told, waits_for) = owed(state, CONSUMER);
    let found = match told.as_str() {
        "" => Waits,
        "-UNBLOCKED the stream key no longer exists\r\n" => Unblocked,
        "-NOGROUP the consumer group this client was blocked on no longer exists\r\n" => NoGroup,
        entries if entries.starts_with("*1\r\n") => Served,
        other => panic!("{lines}: {other}"),
    };
    assert_eq!(found, then, "{lines}");
    if then == Waits {
        assert_eq!(ask(state, WRITER, &["CLIENT", "UNBLOCK", "1"]), ":1\r\n");
        owed(state, CONSUMER);
    } else {
        assert_eq!(
            waits_for,
            Some(Durability::Disk),
            "{lines}: the change is durable first"
        );
    }
    let (count, ends) = state
        .common
        .blocking
        .with(|blocking| (blocking.count(), blocking.any_ends()));
    assert!(count == 0 && !ends);
}

#[test]
fn a_consumer_that_waits_is_told_that_its_stream_is_gone_whatever_removed_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    ask(&mut state, WRITER, &["FUNCTION", "LOAD", LIBRARY]);
    for (lines, then) in WAYS {
        check(&mut state, lines, *then);
    }
    state.steps = Steps {
        long: 0,
        elements: 1,
    };
    for (lines, then) in WAYS {
        check(&mut state, lines, *then);
    }
}

#[test]
fn each_command_that_writes_is_known_to_remove_a_stream_or_not_to() {
    let ways = WAYS.iter().flat_map(|(lines, _)| lines.split(';'));
    let named = ways.filter_map(|line| line.split_whitespace().next());
    let known: BTreeSet<String> = named
        .map(str::to_lowercase)
        .chain(NEVER.iter().map(|name| (*name).into()))
        .collect();
    for command in all().filter(|command| {
        command.has(flag::WRITE) || command.has(flag::SCRIPTS) && !command.has(flag::READ)
    }) {
        assert!(
            known.contains(command.name),
            "{} is in neither list",
            command.name
        );
    }
}

#[test]
fn those_that_wait_for_entries_or_elements_wait_on_when_their_key_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    for wait in [
        "XREAD BLOCK 0 STREAMS s $",
        "BLPOP s 0",
        "BZPOPMIN s 0",
        "BLMOVE s t LEFT LEFT 0",
    ] {
        for change in [
            "DEL s",
            "SET s v",
            "SWAPDB 0 1",
            "FLUSHALL",
            "RENAME s other",
        ] {
            say(&mut state, WRITER, "FLUSHALL");
            if wait.starts_with("XREAD") {
                say(&mut state, WRITER, "XADD s 1-1 f v");
            }
            say(&mut state, CONSUMER, wait);
            call(
                &mut state,
                WRITER,
                &change.split(' ').map(str::as_bytes).collect::<Vec<_>>(),
            );
            assert_eq!(owed(&mut state, CONSUMER).0, "", "{wait}, {change}");
            assert_eq!(
                ask(&mut state, WRITER, &["CLIENT", "UNBLOCK", "1"]),
                ":1\r\n"
            );
            owed(&mut state, CONSUMER);
        }
    }
}

#[test]
fn the_waiting_ends_with_any_of_several_streams() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    for key in ["s", "t"] {
        for key in ["s", "t"] {
            call(
                &mut state,
                WRITER,
                &[
                    b"XGROUP",
                    b"CREATE",
                    key.as_bytes(),
                    b"g",
                    b"$",
                    b"MKSTREAM",
                ],
            );
        }
        say(
            &mut state,
            CONSUMER,
            "XREADGROUP GROUP g c BLOCK 0 STREAMS s t > >",
        );
        ask(&mut state, WRITER, &["SELECT", "1"]);
        ask(&mut state, WRITER, &["SWAPDB", "0", "1"]);
        ask(&mut state, WRITER, &["SWAPDB", "0", "1"]);
        let told = owed(&mut state, CONSUMER).0;
        assert!(told.starts_with("-UNBLOCKED"), "{told}");
        ask(&mut state, WRITER, &["SELECT", "0"]);
        say(
            &mut state,
            CONSUMER,
            "XREADGROUP GROUP g c BLOCK 0 STREAMS s t > >",
        );
        ask(&mut state, WRITER, &["DEL", key]);
        let told = owed(&mut state, CONSUMER).0;
        assert!(told.starts_with("-UNBLOCKED"), "{key}: {told}");
    }
}

#[test]
fn a_stream_that_has_expired_and_is_made_anew_has_no_group() {
    let dir = tempfile::tempdir().expect("a directory");
    let around = Testbed::new();
    let mut state = ready(&around, dir.path());
    say(&mut state, WRITER, "XGROUP CREATE s g $ MKSTREAM");
    say(
        &mut state,
        CONSUMER,
        "XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
    );
    say(&mut state, WRITER, "PEXPIRE s 1");
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(
        owed(&mut state, CONSUMER).0,
        "",
        "the purge has not reported it"
    );
    say(&mut state, WRITER, "XADD s 1-1 f v");
    let (told, waits_for) = owed(&mut state, CONSUMER);
    assert!(told.starts_with("-NOGROUP the consumer group"), "{told}");
    assert_eq!(waits_for, Some(Durability::Disk));
}
