//! Tests of WATCH: changes that make EXEC reply null, and changes that do not.

use super::client::{Client, Running, start};
use std::net::TcpStream;
use std::time::Duration;

/// Watches `keys` in one client, sends `between` from a second client, and returns the first client's reply to EXEC.
fn exec_after(running: &Running, keys: &str, between: &[&str]) -> String {
    let (mut client, mut other) = (running.connect(), running.connect());
    assert_eq!(client.send(&format!("WATCH {keys}")), "+OK");
    for line in between {
        let reply = other.send(line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
    }
    begin(&mut client);
    client.send("EXEC")
}

fn begin(client: &mut Client<TcpStream>) {
    client.expect(&[("MULTI", "+OK"), ("PING", "+QUEUED")]);
}

const RUN: &str = "[+PONG]";
const REFUSED: &str = "nil array";

#[test]
fn a_change_by_another_client_refuses_the_block() {
    let running = start();
    running
        .connect()
        .expect(&[("SET k 1", "+OK"), ("SET other 1", "+OK")]);
    for (between, answer) in [
        (&["SET k 2"][..], REFUSED),
        (&["SET k 2", "SET k 1"], REFUSED),
        (&["SET other 2"], RUN),
        (&["GET k", "EXISTS k", "TTL k"], RUN),
        (&["APPEND k x"], REFUSED),
        (&["EXPIRE k 100"], REFUSED),
        (&["PERSIST k"], REFUSED),
        (&["PERSIST k"], RUN),
        (&["SET k 3 XX GET"], REFUSED),
        (&["SET k 3 NX"], RUN),
        (&["SELECT 1", "SET k 1"], RUN),
        (&["DEL k"], REFUSED),
        (&["DEL k"], RUN),
        (&["SET k 1", "DEL k"], REFUSED),
        (&["MSET a 1 k 1"], REFUSED),
        (&["MULTI", "SET k 5", "EXEC"], REFUSED),
        (&["MULTI", "SET k 5", "DISCARD"], RUN),
    ] {
        assert_eq!(exec_after(&running, "n k", between), answer, "{between:?}");
    }
}

#[test]
fn a_flush_changes_those_keys_that_were_there() {
    let running = start();
    let mut client = running.connect();
    for flush in ["FLUSHALL", "FLUSHDB"] {
        client.expect(&[("SET k 1", "+OK")]);
        assert_eq!(exec_after(&running, "absent", &[flush]), RUN);
        client.expect(&[("SET k 1", "+OK")]);
        assert_eq!(exec_after(&running, "k", &[flush]), REFUSED);
        assert_eq!(exec_after(&running, "k", &[flush]), RUN, "it was gone");
    }
}

#[test]
fn a_client_that_changes_its_own_key_is_refused_too() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[("WATCH k", "+OK"), ("SET k 1", "+OK")]);
    begin(&mut client);
    client.expect(&[("EXEC", REFUSED), ("MULTI", "+OK"), ("EXEC", "[]")]);
    client.expect(&[("WATCH k", "+OK"), ("MULTI", "+OK"), ("SET k 2", "+QUEUED")]);
    client.expect(&[("EXEC", "[+OK]"), ("GET k", "\"2\"")]);
    client.send("HELLO 3");
    client.expect(&[("WATCH k", "+OK"), ("SET k 3", "+OK")]);
    begin(&mut client);
    client.expect(&[("EXEC", "nil"), ("GET k", "\"3\"")]);
}

#[test]
fn a_key_that_expires_meanwhile_has_changed() {
    let running = start();
    let mut client = running.connect();
    // Both requests arrive in one write. So the key is watched before it expires, however long the first reply takes.
    client.write(b"SET k 1 PX 100\r\nWATCH k\r\n");
    assert_eq!([client.read(), client.read()], ["+OK", "+OK"]);
    begin(&mut client);
    std::thread::sleep(Duration::from_millis(120));
    client.expect(&[("EXEC", REFUSED)]);
    client.expect(&[("SET k 1 PX 1", "+OK")]);
    std::thread::sleep(Duration::from_millis(20));
    client.expect(&[("WATCH k", "+OK")]);
    begin(&mut client);
    client.expect(&[("EXEC", RUN)]);
}

#[test]
fn what_ends_a_watch() {
    let running = start();
    let (mut client, mut other) = (running.connect(), running.connect());
    let endings: [&[(&str, &str)]; 4] = [
        &[("UNWATCH", "+OK")],
        &[("MULTI", "+OK"), ("DISCARD", "+OK")],
        &[("MULTI", "+OK"), ("EXEC", "[]")],
        &[("RESET", "+RESET")],
    ];
    for ending in endings {
        client.expect(&[("WATCH k", "+OK")]);
        client.expect(ending);
        other.expect(&[("SET k 1", "+OK")]);
        begin(&mut client);
        client.expect(&[("EXEC", RUN)]);
    }
    client.expect(&[("WATCH k", "+OK"), ("SET k 1", "+OK")]);
    client.expect(&[("MULTI", "+OK"), ("UNWATCH", "+QUEUED"), ("EXEC", REFUSED)]);
    client.expect(&[("WATCH k", "+OK"), ("SET k 1", "+OK"), ("MULTI", "+OK")]);
    assert!(client.send("FOO").starts_with("-ERR unknown command"));
    assert!(
        client.send("EXEC").starts_with("-EXECABORT"),
        "the error goes first"
    );
    client.expect(&[("MULTI", "+OK"), ("EXEC", "[]")]);
}
