//! Tests that DEBUG DIGEST depends only on the data. It must not depend on the data's history, on its form in memory,
//! or on the database's internal numbers.

use super::client::{Client, Running, local, start_with};
use perdura_server::{DebugAccess, ServerOptions};
use std::fmt::Write as _;
use std::net::TcpStream;

fn start() -> Running {
    start_with(ServerOptions {
        enable_debug_command: DebugAccess::Yes,
        ..local()
    })
}

/// Sends the commands and returns the digest. No command may fail.
fn after(client: &mut Client<TcpStream>, commands: &[String]) -> String {
    for command in commands {
        let reply = client.send(command);
        assert!(!reply.starts_with('-'), "{command}: {reply}");
    }
    client.send("DEBUG DIGEST")
}

fn words(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns a command with an argument for each number of `range`.
fn each(command: &str, range: impl Iterator<Item = u32>, form: fn(u32) -> String) -> String {
    let mut text = command.to_owned();
    for n in range {
        write!(text, " {}", form(n)).expect("a string grows");
    }
    text
}

#[test]
fn equal_data_has_an_equal_digest_whatever_its_history_and_form() {
    let (one, other) = (start(), start());
    let (mut one, mut other) = (one.connect(), other.connect());
    let text = |n: u32| n.to_string();
    let field = |n: u32| format!("f{n} v{n}");
    let member = |n: u32| format!("{n} m{n}");
    // The short history: all is packed except for the collections that are too large.
    let short = [
        words(&[
            "SET s text",
            "SET t text EX 1000000000",
            "PEXPIREAT t 99999999999999",
        ]),
        vec![
            each("HSET h", 0..100, field),
            each("HSET hh", 0..500, field),
            each("RPUSH l", 0..100, text),
            each("RPUSH ll", 0..500, text),
            each("SADD u", 0..100, text),
            each("SADD uu", 0..500, text),
            each("ZADD z", 0..100, member),
            each("ZADD zz", 0..500, member),
        ],
        words(&["ZADD zz 0 zero", "SELECT 3", "SADD u 1"]),
    ]
    .concat();
    // The long history: other tables, other databases, collections that were larger before, items pushed
    // from the other end.
    let long = [
        words(&["SADD u 1", "FLUSHALL", "SADD u 1", "SWAPDB 0 3"]),
        vec![
            each("HSET hh", 0..700, field),
            each("HSET x", 0..600, field),
            each("HDEL x", 100..600, |n| format!("f{n}")),
            each("HDEL hh", 500..700, |n| format!("f{n}")),
            each("LPUSH ll", (0..250).rev(), text),
            each("RPUSH ll", 250..500, text),
            each("LPUSH l", (0..100).rev(), text),
            each("SADD uuu", (0..900).rev(), text),
            each("SREM uuu", 500..900, text),
            each("SADD u", (0..600).rev(), text),
            each("SREM u", 100..600, text),
            each("ZADD zz", (0..500).rev(), member),
            each("ZADD z", (0..900).rev(), member),
            "ZREMRANGEBYRANK z 100 -1".into(),
        ],
        words(&[
            "RENAME uuu uu",
            "COPY x h",
            "DEL x",
            "SET t 1",
            "SET t text PXAT 99999999999999",
        ]),
        words(&["APPEND s te", "DEL s", "APPEND s te", "APPEND s xt"]),
        // The score is -0, which becomes 0 in an export and its import.
        words(&[
            "ZADD q 0 zero",
            "ZUNIONSTORE zz 2 zz q WEIGHTS 1 -1",
            "DEL q",
        ]),
    ]
    .concat();
    let digest = after(&mut one, &short);
    assert_eq!(digest.len(), 41, "{digest}");
    assert_eq!(after(&mut other, &long), digest);
    assert_eq!(other.send("ZSCORE zz zero"), "\"-0\"");
}

#[test]
fn a_digest_tells_apart_what_differs_in_one_thing() {
    let running = start();
    let mut client = running.connect();
    let mut seen = std::collections::BTreeMap::new();
    let large = |command: &str| each(command, 0..300, |n| n.to_string());
    let contents: Vec<Vec<String>> = vec![
        vec![],
        words(&["SET a b"]),
        words(&["SET b a"]),
        words(&["SET a b PXAT 99999999999998"]),
        words(&["SET a b PXAT 99999999999999"]),
        words(&["SELECT 1", "SET a b", "SELECT 0"]),
        words(&["HSET a b c"]),
        words(&["HSET a c b"]),
        words(&["HSET a bc d"]),
        words(&["HSET a b cd"]),
        words(&["RPUSH a b c"]),
        words(&["RPUSH a c b"]),
        words(&["SADD a b c"]),
        words(&["SADD a b"]),
        words(&["ZADD a 1 b 2 c"]),
        words(&["ZADD a 2 b 1 c"]),
        words(&["ZADD a 1.5 b 1 c"]),
        vec![large("SADD a")],
        vec![large("RPUSH a")],
        vec![large("RPUSH a"), "LSET a 0 1".into(), "LSET a 1 0".into()],
        vec![large("RPUSH b")],
        vec![large("HSET a")],
        vec![large("HSET a"), "HSET a 0 2".into()],
        vec![large("ZADD a")],
        vec![large("ZADD a"), "ZINCRBY a 0.5 1".into()],
    ];
    for content in contents {
        assert_eq!(client.send("FLUSHALL"), "+OK");
        let digest = after(&mut client, &content);
        if let Some(same) = seen.insert(digest, content.clone()) {
            panic!("one digest of {same:?} and of {content:?}");
        }
    }
}
