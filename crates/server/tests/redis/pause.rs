//! Tests that nothing is appended to the log during CLIENT PAUSE WRITE. So the files of a running server can be
//! copied.

use super::client::{Client, Running, encode, local, start_with};
use perdura_server::{DebugAccess, ServerOptions};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// If the files of the log stay unchanged for this time, all work from before the pause has ended.
const QUIET: Duration = Duration::from_millis(700);
const EXPIRING: u64 = 200;
const MEMBERS: usize = 20_000;

const LIBRARY: &str = "#!lua name=mine\nredis.register_function('f', function() return 7 end)";

/// Returns the files of the log.
fn log(running: &Running) -> BTreeMap<PathBuf, Vec<u8>> {
    let folder = running._dir.path().join("data").join("log");
    let entries = std::fs::read_dir(folder).expect("a log");
    let files = entries.map(|entry| entry.expect("an entry").path());
    files
        .map(|path| (path.clone(), std::fs::read(path).expect("a file")))
        .collect()
}

/// Waits until all earlier work has ended. Returns the files of the log.
fn settled_log(running: &Running) -> BTreeMap<PathBuf, Vec<u8>> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut before = log(running);
    loop {
        std::thread::sleep(QUIET);
        let now = log(running);
        if now == before {
            return now;
        }
        assert!(Instant::now() < deadline, "the log still changes");
        before = now;
    }
}

fn differences(
    before: &BTreeMap<PathBuf, Vec<u8>>,
    after: &BTreeMap<PathBuf, Vec<u8>>,
) -> Vec<String> {
    let changed = after
        .iter()
        .filter(|(path, bytes)| before.get(*path) != Some(bytes));
    changed
        .map(|(path, _)| path.display().to_string())
        .collect()
}

/// Sends a request that is not answered before the pause ends.
fn push(client: &mut Client<TcpStream>, line: &str) {
    client.push(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
}

/// Stores data that later causes work outside of requests. Some keys will expire, one large set will be removed, and
/// another large set will be copied in steps.
fn fill(client: &mut Client<TcpStream>) {
    client.call(&[b"FUNCTION", b"LOAD", LIBRARY.as_bytes()]);
    for number in 0..EXPIRING {
        client.write(&encode(&[b"SET", format!("k{number}").as_bytes(), b"v"]));
    }
    for _ in 0..EXPIRING {
        assert_eq!(client.read(), "+OK");
    }
    let members: Vec<String> = (0..MEMBERS)
        .map(|number| format!("member{number}"))
        .collect();
    for key in [&b"orphaned"[..], b"source"] {
        let mut words: Vec<&[u8]> = vec![b"SADD", key];
        words.extend(members.iter().map(String::as_bytes));
        assert_eq!(client.call(&words), format!(":{MEMBERS}"));
    }
    client.expect(&[
        ("PFADD sketch a", ":1"),
        ("XGROUP CREATE s g $ MKSTREAM", "+OK"),
    ]);
}

#[test]
fn the_log_does_not_change_in_a_pause_of_writes() {
    let running = start_with(ServerOptions {
        enable_debug_command: DebugAccess::Yes,
        ..local()
    });
    let mut client = running.connect();
    fill(&mut client);
    let mut waiter = running.waiting("BLPOP queue 0");
    let mut reader = running.waiting("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    client.expect(&[("DEBUG STEP-ELEMENTS 1", "+OK")]);
    let mut stepped = running.connect();
    push(&mut stepped, "COPY source copied");
    let mut block = running.connect();
    block.expect(&[("MULTI", "+OK"), ("FUNCTION FLUSH", "+QUEUED")]);
    // The transaction that begins the pause also makes work for the two waiting clients and for the purge.
    let expire = "EVAL for\ti=0,199\tdo\tredis.call('PEXPIRE','k'..i,300)\tend 0";
    client.expect(&[
        ("MULTI", "+OK"),
        ("RPUSH queue item", "+QUEUED"),
        ("XADD s 1-1 f v", "+QUEUED"),
        ("DEL orphaned", "+QUEUED"),
        (expire, "+QUEUED"),
        ("CLIENT PAUSE 60000 WRITE", "+QUEUED"),
        ("EXEC", "[:1, \"1-1\", :1, nil, +OK]"),
    ]);
    let before = settled_log(&running);
    push(&mut block, "EXEC");
    let held = [
        ("FUNCTION DELETE none", "-ERR Library not found"),
        ("FUNCTION FLUSH", "+OK"),
        ("EVAL return(redis.call('INCR','n')) 0", ":1"),
        ("PFCOUNT sketch", ":1"),
        ("SET k v", "+OK"),
        ("GETEX none", "nil"),
    ];
    let mut held = held.map(|(line, reply)| (running.connect(), line, reply));
    for (client, line, _) in &mut held {
        push(client, line);
    }
    client.expect(&[
        ("GET k0", "nil"),
        ("FUNCTION STATS", "[\"running_script\", nil, \"engines\", [\"LUA\", [\"libraries_count\", :1, \"functions_count\", :1]]]"),
        ("EVAL_RO return(redis.call('EXISTS','source')) 0", ":1"),
    ]);
    assert_eq!(client.figure("expired_keys"), 0, "the purge rests");
    std::thread::sleep(QUIET);
    let changed = differences(&before, &log(&running));
    assert!(changed.is_empty(), "{changed:?} changed in the pause");
    client.expect(&[("CLIENT UNPAUSE", "+OK"), ("DEBUG STEP-ELEMENTS 0", "+OK")]);
    assert_eq!(block.read(), "[+OK]");
    for (mut client, line, reply) in held {
        assert_eq!(client.read(), reply, "{line}");
    }
    assert_eq!(waiter.read(), "[\"queue\", \"item\"]");
    assert_eq!(reader.read(), "[[\"s\", [[\"1-1\", [\"f\", \"v\"]]]]]");
    assert_eq!(stepped.read(), ":1");
    running.await_figure("expired_keys", EXPIRING);
}

#[test]
fn a_pause_that_ends_by_itself_lets_everything_go_on() {
    let running = start_with(local());
    let mut client = running.connect();
    let mut waiter = running.waiting("BLPOP queue 0");
    client.expect(&[("SET k v PX 50", "+OK")]);
    client.expect(&[
        ("MULTI", "+OK"),
        ("RPUSH queue item", "+QUEUED"),
        ("CLIENT PAUSE 400 WRITE", "+QUEUED"),
        ("EXEC", "[:1, +OK]"),
    ]);
    assert_eq!(waiter.read(), "[\"queue\", \"item\"]");
    running.await_figure("expired_keys", 1);
}
