//! Tests of streams: clients that wait for entries, deliveries to a group's consumers, and a group's state after a
//! restart.

use super::client::{Client, start};
use super::durability::started;
use std::net::TcpStream;
use tempfile::TempDir;

#[test]
fn each_reader_that_waits_gets_an_entry_and_one_of_a_group() {
    let running = start();
    let mut adder = running.connect();
    adder.expect(&[
        ("XADD s 1-0 f old", "\"1-0\""),
        ("XGROUP CREATE s g $", "+OK"),
        ("XGROUP CREATE t g $ MKSTREAM", "+OK"),
    ]);
    let mut newest = running.waiting("XREAD BLOCK 0 STREAMS t s $ $");
    let mut behind = running.waiting("XREAD COUNT 1 BLOCK 0 STREAMS s 1-1");
    let mut first = running.waiting("XREADGROUP GROUP g a BLOCK 0 STREAMS t s > >");
    let mut second = running.waiting("XREADGROUP GROUP g b BLOCK 0 STREAMS s >");
    adder.expect(&[("XADD s 1-1 f x", "\"1-1\"")]);
    assert_eq!(newest.read(), "[[\"s\", [[\"1-1\", [\"f\", \"x\"]]]]]");
    assert_eq!(first.read(), "[[\"s\", [[\"1-1\", [\"f\", \"x\"]]]]]");
    adder.expect(&[("XADD s 1-2 f y", "\"1-2\"")]);
    assert_eq!(behind.read(), "[[\"s\", [[\"1-2\", [\"f\", \"y\"]]]]]");
    assert_eq!(second.read(), "[[\"s\", [[\"1-2\", [\"f\", \"y\"]]]]]");
    adder.expect(&[(
        "XPENDING s g",
        "[:2, \"1-1\", \"1-2\", [[\"a\", \"1\"], [\"b\", \"1\"]]]",
    )]);
}

#[test]
fn a_group_that_goes_ends_the_waiting_of_its_consumers() {
    let running = start();
    let mut other = running.connect();
    other.expect(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
    let mut waiter = running.waiting("XREADGROUP GROUP g a BLOCK 0 STREAMS s >");
    other.expect(&[("XGROUP DESTROY s g", ":1")]);
    let told = waiter.read();
    assert!(
        told.starts_with("-NOGROUP the consumer group this client was blocked on"),
        "{told}"
    );
}

#[test]
fn a_consumer_is_told_when_its_stream_has_expired() {
    let running = start();
    let mut other = running.connect();
    for expiry in ["PEXPIRE s 150", "EXPIRE s 1"] {
        other.expect(&[("XGROUP CREATE s g $ MKSTREAM", "+OK")]);
        let mut waiter = running.waiting("XREADGROUP GROUP g a BLOCK 0 STREAMS s >");
        other.expect(&[(expiry, ":1")]);
        assert_eq!(waiter.read(), "-UNBLOCKED the stream key no longer exists");
    }
    // Here the key's expiry is set before the client begins to wait.
    for _ in 0..20 {
        other.expect(&[
            ("XGROUP CREATE s g $ MKSTREAM", "+OK"),
            ("PEXPIRE s 30", ":1"),
        ]);
        let told = other.send("XREADGROUP GROUP g a BLOCK 0 STREAMS s >");
        let gone = "-UNBLOCKED the stream key no longer exists";
        assert!(told == gone || told.starts_with("-NOGROUP"), "{told}");
    }
}

#[test]
fn nobody_waits_in_a_block_and_no_longer_than_asked() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("MULTI", "+OK"),
        ("XREAD BLOCK 0 STREAMS s $", "+QUEUED"),
        ("EXEC", "[nil array]"),
        ("XREAD BLOCK 20 STREAMS s $", "nil array"),
        ("XREAD BLOCK -1 STREAMS s $", "-ERR timeout is negative"),
    ]);
}

#[test]
fn what_was_delivered_is_pending_after_a_restart_from_the_log() {
    let dir = TempDir::new().expect("a directory");
    let running = started(&dir);
    let mut client = running.connect();
    client.expect(&[("XGROUP CREATE s g 0 MKSTREAM", "+OK")]);
    for number in 1..=300 {
        let id = format!("{number}-0");
        let value = "v".repeat(number % 90);
        client.push(&[b"XADD", b"s", id.as_bytes(), b"f", value.as_bytes()]);
        assert_eq!(client.read(), format!("\"{id}\""));
    }
    let words = "XREADGROUP GROUP g a COUNT 120 STREAMS s >".split(' ');
    client.push(&words.map(str::as_bytes).collect::<Vec<_>>());
    assert!(client.read().starts_with("[[\"s\", [[\"1-0\""));
    client.expect(&[
        ("XACK s g 1-0 2-0 3-0 3-0 999-0", ":3"),
        ("XDEL s 4-0 200-0", ":2"),
        ("XTRIM s MAXLEN 290", ":8"),
    ]);
    let questions = [
        "XLEN s",
        "XPENDING s g",
        "XINFO GROUPS s",
        "XRANGE s - + COUNT 3",
        "XREVRANGE s + - COUNT 3",
        "XREADGROUP GROUP g a COUNT 2 STREAMS s 0",
    ];
    let ask = |client: &mut Client<TcpStream>| {
        questions.map(|line| {
            client.push(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
            client.read()
        })
    };
    let before = ask(&mut client);
    assert_eq!(client.send("SHUTDOWN NOSAVE"), "closed");
    running.server.join().expect("an end without a checkpoint");
    assert_eq!(ask(&mut started(&dir).connect()), before);
}
