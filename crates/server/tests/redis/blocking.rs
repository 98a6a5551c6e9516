//! Tests of clients that wait for a key: their order, the reply, and the end of the waiting.

use super::client::{Client, start};
use std::time::{Duration, Instant};

#[test]
fn those_who_wait_for_a_list_are_served_in_the_order_in_which_they_came() {
    let running = start();
    let mut first = running.waiting("BLPOP a b 0");
    let mut second = running.waiting("BRPOP b 0");
    let mut third = running.waiting("BLMPOP 0 2 c b LEFT COUNT 5");
    let mut pusher = running.connect();
    pusher.expect(&[("RPUSH b 1 2 3 4", ":4")]);
    assert_eq!(first.read(), "[\"b\", \"1\"]");
    assert_eq!(second.read(), "[\"b\", \"4\"]");
    assert_eq!(third.read(), "[\"b\", [\"2\", \"3\"]]");
    pusher.expect(&[("EXISTS b", ":0")]);
}

#[test]
fn a_block_serves_those_who_wait_when_it_is_done() {
    let running = start();
    let mut waiter = running.waiting("BLPOP l 0");
    let mut pusher = running.connect();
    pusher.expect(&[
        ("MULTI", "+OK"),
        ("RPUSH l 1", "+QUEUED"),
        ("RPUSH l 2", "+QUEUED"),
        ("LPOP l", "+QUEUED"),
        ("BLPOP none 0", "+QUEUED"),
        ("BLMOVE none l LEFT LEFT 0", "+QUEUED"),
        ("EXEC", "[:1, :2, \"1\", nil array, nil]"),
    ]);
    assert_eq!(waiter.read(), "[\"l\", \"2\"]");
    let mut waiter = running.waiting("BLPOP l 0");
    pusher.expect(&[
        ("MULTI", "+OK"),
        ("RPUSH l 1", "+QUEUED"),
        ("DEL l", "+QUEUED"),
    ]);
    pusher.expect(&[("EXEC", "[:1, :1]"), ("RPUSH l 9", ":1")]);
    assert_eq!(waiter.read(), "[\"l\", \"9\"]", "it never saw the first");
}

#[test]
fn what_serves_one_may_serve_the_next() {
    let running = start();
    let mut last = running.waiting("BLPOP c 0");
    let mut middle = running.waiting("BLMOVE b c LEFT RIGHT 0");
    let mut first = running.waiting("BRPOPLPUSH a b 0");
    running.connect().expect(&[("LPUSH a x", ":1")]);
    for waiter in [&mut first, &mut middle] {
        assert_eq!(waiter.read(), "\"x\"");
    }
    assert_eq!(last.read(), "[\"c\", \"x\"]");
}

#[test]
fn keys_of_other_types_do_not_wake_anybody() {
    let running = start();
    let mut list = running.waiting("BLPOP k m 0");
    let mut sorted = running.waiting("BZPOPMIN k 0");
    let mut other = running.connect();
    other.expect(&[("SET k text", "+OK"), ("DEL k", ":1"), ("ZADD k 1 a", ":1")]);
    assert_eq!(sorted.read(), "[\"k\", \"a\", \"1\"]");
    other.expect(&[("SET k text", "+OK"), ("RPUSH m 1", ":1")]);
    assert_eq!(
        list.read(),
        "[\"m\", \"1\"]",
        "the wrong type of k is passed over"
    );
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    other.expect(&[("BLPOP k m 0", wrong)]);
    let mut mover = running.waiting("BLMOVE m k LEFT LEFT 0");
    other.expect(&[("RPUSH m 1", ":1"), ("LLEN m", ":1")]);
    assert_eq!(mover.read(), wrong);
}

#[test]
fn time_unblock_and_hanging_up_end_the_waiting() {
    let running = start();
    let mut client = running.connect();
    let begin = Instant::now();
    client.expect(&[("BLPOP none 0.1", "nil array")]);
    assert!(begin.elapsed() >= Duration::from_millis(100));
    for (reason, reply) in [
        ("", "nil array"),
        (" TIMEOUT", "nil array"),
        (" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        let id = client.send("CLIENT ID")[1..].to_owned();
        client.push(&[b"BLPOP", b"none", b"0"]);
        running.await_figure("blocked_clients", 1);
        let mut other = running.connect();
        let line = format!("CLIENT UNBLOCK {id}{reason}");
        other.expect(&[(&line, ":1"), (&line, ":0")]);
        assert_eq!(client.read(), reply);
    }
    drop(running.waiting("BLPOP l 0"));
    running.await_figure("blocked_clients", 0);
    client.expect(&[("RPUSH l 1", ":1"), ("LLEN l", ":1")]);
    client.write(b"BLPOP none 0.05\r\nPING\r\n");
    assert_eq!(
        (client.read(), client.read()),
        ("nil array".into(), "+PONG".into())
    );
}

#[test]
fn who_asks_and_hangs_up_at_once_takes_nothing() {
    let running = start();
    let mut pusher = running.connect();
    for _ in 0..20 {
        let mut client = running.connect();
        client.push(&[b"BLPOP", b"l", b"0"]);
        drop(client);
        running.await_figure("connected_clients", 2);
        pusher.expect(&[("RPUSH l 1", ":1"), ("LPOP l", "\"1\"")]);
    }
}

#[test]
fn those_who_are_served_and_those_who_serve_hear_of_it() {
    let running = start();
    let (mut waiter, mut pusher) = (running.connect(), running.connect());
    pusher.expect(&[("CONFIG SET notify-keyspace-events El", "+OK")]);
    let channel = "__keyevent@0__:lpop";
    for client in [&mut waiter, &mut pusher] {
        client.send("HELLO 3");
        let reply = format!(">[\"subscribe\", \"{channel}\", :1]");
        client.expect(&[(&format!("SUBSCRIBE {channel}"), &reply)]);
    }
    waiter.push(&[b"BLPOP", b"l", b"0"]);
    running.await_figure("blocked_clients", 1);
    pusher.expect(&[("RPUSH l 1", ":1")]);
    assert_eq!(waiter.read(), "[\"l\", \"1\"]");
    for client in [&mut waiter, &mut pusher] {
        assert_eq!(
            client.read(),
            format!(">[\"message\", \"{channel}\", \"l\"]")
        );
        client.expect(&[("PING", "+PONG")]);
    }
}

#[test]
fn many_wait_and_each_gets_one() {
    let running = start();
    let mut waiters: Vec<_> = (0..50)
        .map(|_| {
            let mut client = running.connect();
            client.push(&[b"BLPOP", b"l", b"0"]);
            client
        })
        .collect();
    running.await_figure("blocked_clients", 50);
    let mut pusher = running.connect();
    for i in 0..50 {
        pusher.push(&[b"RPUSH", b"l", format!("{i}").as_bytes()]);
    }
    let mut got: Vec<String> = waiters.iter_mut().map(Client::read).collect();
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 50);
}
