//! Tests of channels, patterns, and events of keys.

use super::client::{Client, Running, start};
use std::net::TcpStream;

fn pair(running: &Running) -> (Client<TcpStream>, Client<TcpStream>) {
    (running.connect(), running.connect())
}

#[test]
fn messages_reach_those_who_listen_by_name_or_by_pattern() {
    let running = start();
    let (mut listener, mut speaker) = pair(&running);
    listener.expect(&[("SUBSCRIBE news", "[\"subscribe\", \"news\", :1]")]);
    listener.expect(&[("PSUBSCRIBE n* o*", "[\"psubscribe\", \"n*\", :2]")]);
    assert_eq!(listener.read(), "[\"psubscribe\", \"o*\", :3]");
    speaker.expect(&[("PUBLISH news hi", ":2"), ("PUBLISH other x", ":1")]);
    speaker.expect(&[("PUBLISH none x", ":1"), ("PUBLISH x x", ":0")]);
    assert_eq!(listener.read(), "[\"message\", \"news\", \"hi\"]");
    assert_eq!(listener.read(), "[\"pmessage\", \"n*\", \"news\", \"hi\"]");
    assert_eq!(listener.read(), "[\"pmessage\", \"o*\", \"other\", \"x\"]");
    assert_eq!(listener.read(), "[\"pmessage\", \"n*\", \"none\", \"x\"]");
    speaker.expect(&[
        ("PUBSUB CHANNELS", "[\"news\"]"),
        ("PUBSUB CHANNELS x*", "[]"),
        ("PUBSUB NUMSUB news x", "[\"news\", :1, \"x\", :0]"),
        ("PUBSUB NUMPAT", ":2"),
        (
            "PUBSUB FOO",
            "-ERR unknown subcommand 'FOO'. Try PUBSUB HELP.",
        ),
    ]);
    listener.expect(&[("UNSUBSCRIBE news old", "[\"unsubscribe\", \"news\", :2]")]);
    assert_eq!(listener.read(), "[\"unsubscribe\", \"old\", :2]");
    listener.expect(&[("PUNSUBSCRIBE", "[\"punsubscribe\", \"n*\", :1]")]);
    assert_eq!(listener.read(), "[\"punsubscribe\", \"o*\", :0]");
    listener.expect(&[
        ("UNSUBSCRIBE", "[\"unsubscribe\", nil, :0]"),
        ("GET k", "nil"),
    ]);
}

#[test]
fn the_messages_of_a_block_leave_when_it_is_done() {
    let running = start();
    let (mut listener, mut speaker) = pair(&running);
    speaker.send("HELLO 3");
    for (client, sign) in [(&mut listener, ""), (&mut speaker, ">")] {
        let reply = format!("{sign}[\"subscribe\", \"a\", :1]");
        client.expect(&[("SUBSCRIBE a", &reply)]);
    }
    for (line, reply) in [("SET k v", "[:2, +OK]"), ("PING", "[:2, +PONG]")] {
        speaker.expect(&[("MULTI", "+OK"), ("PUBLISH a hi", "+QUEUED")]);
        speaker.expect(&[(line, "+QUEUED"), ("EXEC", reply)]);
        assert_eq!(listener.read(), "[\"message\", \"a\", \"hi\"]");
        assert_eq!(speaker.read(), ">[\"message\", \"a\", \"hi\"]");
    }
    speaker.expect(&[("MULTI", "+OK"), ("PUBLISH a hi", "+QUEUED")]);
    speaker.expect(&[("DISCARD", "+OK"), ("PING", "+PONG")]);
}

#[test]
fn a_listener_of_version_2_does_nothing_else() {
    let running = start();
    let (mut listener, mut speaker) = pair(&running);
    listener.expect(&[
        ("SUBSCRIBE a", "[\"subscribe\", \"a\", :1]"),
        ("PING", "[\"pong\", \"\"]"),
        ("PING hi", "[\"pong\", \"hi\"]"),
        ("CLIENT LIST", "-ERR Can't execute 'client|list': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"),
        ("RESET", "+RESET"),
        ("PING", "+PONG"),
    ]);
    speaker.expect(&[("PUBLISH a x", ":0")]);
    listener.send("HELLO 3");
    listener.expect(&[
        ("SUBSCRIBE a", ">[\"subscribe\", \"a\", :1]"),
        ("PING", "+PONG"),
        ("GET k", "nil"),
        ("PUBLISH a me", ">[\"message\", \"a\", \"me\"]"),
    ]);
    assert_eq!(listener.read(), ":1");
    listener.expect(&[("QUIT", "+OK")]);
    assert_eq!(listener.read(), "closed");
}

#[test]
fn shard_channels_are_a_space_of_their_own() {
    let running = start();
    let (mut listener, mut speaker) = pair(&running);
    listener.expect(&[("SSUBSCRIBE a", "[\"ssubscribe\", \"a\", :1]")]);
    speaker.expect(&[
        ("PUBLISH a x", ":0"),
        ("SPUBLISH a y", ":1"),
        ("PUBSUB SHARDCHANNELS", "[\"a\"]"),
        ("PUBSUB SHARDNUMSUB a", "[\"a\", :1]"),
        ("PUBSUB CHANNELS", "[]"),
        ("MULTI", "+OK"),
        ("SSUBSCRIBE b", "+QUEUED"),
        (
            "EXEC",
            "[-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client]",
        ),
    ]);
    assert_eq!(listener.read(), "[\"smessage\", \"a\", \"y\"]");
    drop(listener);
    running.await_figure("connected_clients", 2);
    speaker.expect(&[("PUBSUB SHARDCHANNELS", "[]")]);
}

#[test]
fn events_of_keys_are_published_as_asked_for() {
    let running = start();
    let (mut listener, mut speaker) = pair(&running);
    listener.expect(&[("PSUBSCRIBE __key*", "[\"psubscribe\", \"__key*\", :1]")]);
    speaker.expect(&[
        ("SET quiet 1", "+OK"),
        ("CONFIG SET notify-keyspace-events KE$g", "+OK"),
        (
            "CONFIG GET notify-keyspace-events",
            "[\"notify-keyspace-events\", \"g$KE\"]",
        ),
        ("SET k 1", "+OK"),
        ("GET k", "\"1\""),
        ("MULTI", "+OK"),
        ("DEL k", "+QUEUED"),
        ("EXEC", "[:1]"),
        ("CONFIG SET notify-keyspace-events KEh", "+OK"),
        ("SET quiet 1", "+OK"),
        ("PUBLISH __key end", ":1"),
    ]);
    for (channel, text) in [
        ("__keyspace@0__:k", "set"),
        ("__keyevent@0__:set", "k"),
        ("__keyspace@0__:k", "del"),
        ("__keyevent@0__:del", "k"),
        ("__key", "end"),
    ] {
        let message = format!("[\"pmessage\", \"__key*\", \"{channel}\", \"{text}\"]");
        assert_eq!(listener.read(), message);
    }
}

#[test]
fn a_key_whose_time_is_over_is_told_of_when_it_is_removed() {
    let running = start();
    let (mut listener, mut speaker) = pair(&running);
    speaker.send("CONFIG SET notify-keyspace-events Ex");
    listener.send("SUBSCRIBE __keyevent@0__:expired");
    speaker.expect(&[("SET k v PX 30", "+OK")]);
    let message = "[\"message\", \"__keyevent@0__:expired\", \"k\"]";
    assert_eq!(listener.read(), message);
}

/// After a command has ended, the server no longer treats the command's client as busy. So a message to this client
/// goes to the connection at once, and does not wait for the client's next command.
#[test]
fn the_client_of_the_last_command_hears_of_a_key_that_is_removed_by_itself() {
    let running = start();
    let mut client = running.connect();
    client.send("HELLO 3");
    client.send("CONFIG SET notify-keyspace-events Ex");
    client.send("SUBSCRIBE __keyevent@0__:expired");
    client.expect(&[("SET k v PX 30", "+OK")]);
    let message = ">[\"message\", \"__keyevent@0__:expired\", \"k\"]";
    assert_eq!(client.read(), message);
}

#[test]
fn keys_that_appear_and_keys_that_are_not_there_are_told_of_if_asked_for() {
    let running = start();
    let (mut listener, mut speaker) = pair(&running);
    speaker.send("CONFIG SET notify-keyspace-events E$lsgnm");
    listener.send("PSUBSCRIBE __key*");
    speaker.expect(&[
        ("GET a", "nil"),
        ("SET a 1", "+OK"),
        ("SET a 2", "+OK"),
        ("MGET a b", "[\"2\", nil]"),
        ("RENAME a c", "+OK"),
        ("INCR n", ":1"),
        ("LPOP none", "nil"),
        ("WATCH none", "+OK"),
        ("MULTI", "+OK"),
        ("SUNIONSTORE s x", "+QUEUED"),
        ("LPUSH l v", "+QUEUED"),
        ("EXEC", "[:0, :1]"),
        ("PUBLISH __key end", ":1"),
    ]);
    for (event, key) in [
        ("keymiss", "a"),
        ("new", "a"),
        ("set", "a"),
        ("set", "a"),
        ("keymiss", "b"),
        ("new", "c"),
        ("rename_from", "a"),
        ("rename_to", "c"),
        ("new", "n"),
        ("incrby", "n"),
        ("keymiss", "x"),
        ("new", "l"),
        ("lpush", "l"),
    ] {
        let channel = format!("__keyevent@0__:{event}");
        let message = format!("[\"pmessage\", \"__key*\", \"{channel}\", \"{key}\"]");
        assert_eq!(listener.read(), message);
    }
    assert_eq!(
        listener.read(),
        "[\"pmessage\", \"__key*\", \"__key\", \"end\"]"
    );
}
