//! Tests of users who may access only some keys. The tests check the effects of the users' commands, and the messages
//! to the users' clients.

use super::client::{Client, Running, start};
use std::net::TcpStream;

const NO_KEY: &str =
    "-NOPERM this user has no permissions to access one of the keys used as arguments";

/// Returns two clients: an administrator, and a user limited to the keys `STREAMS`, `STORE` and those that begin with
/// `a:`. The administrator has made a secret string and a secret stream.
fn limited(running: &Running) -> (Client<TcpStream>, Client<TcpStream>) {
    let mut root = running.connect();
    root.expect(&[
        (
            "ACL SETUSER u on >pw +@all -@admin ~a:* ~STREAMS ~STORE",
            "+OK",
        ),
        ("SET secret:1 kept", "+OK"),
        ("GEOADD a:g 13.361389 38.115556 m", ":1"),
        ("RPUSH a:l 2 1", ":2"),
        ("XADD secret:s 1-1 f hidden", "\"1-1\""),
        ("XGROUP CREATE secret:s STREAMS 0", "+OK"),
    ]);
    let mut client = running.connect();
    client.expect(&[("AUTH u pw", "+OK")]);
    (root, client)
}

#[test]
fn the_last_store_of_a_georadius_is_the_key_that_is_judged() {
    let running = start();
    let (mut root, mut client) = limited(&running);
    let centre = "GEORADIUS a:g 13.36 38.11 10 km";
    let member = "GEORADIUSBYMEMBER a:g m 10 km";
    for search in [centre, member] {
        for options in [
            "STORE a:o STORE secret:1",
            "STOREDIST a:o STOREDIST secret:1",
            "STORE a:o STOREDIST secret:1",
            "STOREDIST a:o STORE secret:1",
            "STORE STORE STORE secret:1",
            "COUNT 1 STORE a:o STORE secret:1",
        ] {
            assert_eq!(
                client.send(&format!("{search} {options}")),
                NO_KEY,
                "{options}"
            );
            let words: Vec<&str> = search.split(' ').chain(options.split(' ')).collect();
            let script = b"return redis.call(unpack(ARGV))";
            let mut request: Vec<&[u8]> = vec![b"EVAL", script, b"0"];
            request.extend(words.iter().map(|word| word.as_bytes()));
            let reply = client.call(&request);
            assert!(reply.contains("can't access at least one"), "{reply}");
            let source = "\"a:g\"";
            assert_eq!(
                client.send(&format!("COMMAND GETKEYS {search} {options}")),
                format!("[{source}, \"secret:1\"]")
            );
        }
        // Only the last STORE counts, so the secret key is named but not used. Redis 7.0 refuses such a request.
        let reply = client.send(&format!("{search} STORE secret:1 STORE a:o"));
        assert_eq!(reply, ":1");
        let reply = client.send(&format!("{search} STORE a:o nonsense"));
        assert_eq!(reply, "-ERR syntax error");
    }
    root.expect(&[
        ("GET secret:1", "\"kept\""),
        ("ZCARD a:o", ":1"),
        ("EXISTS STORE", ":0"),
    ]);
}

#[test]
fn a_group_or_consumer_named_streams_hides_no_key() {
    let running = start();
    let (_root, mut client) = limited(&running);
    client.expect(&[
        (
            "XREADGROUP COUNT 1 GROUP STREAMS a:1 STREAMS secret:s >",
            NO_KEY,
        ),
        (
            "XREADGROUP COUNT 1 GROUP STREAMS STREAMS STREAMS a:1 secret:s > >",
            NO_KEY,
        ),
        (
            "XREADGROUP COUNT 1 NOACK GROUP STREAMS STREAMS STREAMS secret:s >",
            NO_KEY,
        ),
        (
            "COMMAND GETKEYS XREADGROUP COUNT 1 GROUP STREAMS a:1 STREAMS secret:s >",
            "[\"secret:s\"]",
        ),
        ("XREAD STREAMS a:1 secret:s 0 0", NO_KEY),
    ]);
}

#[test]
fn options_given_twice_count_as_in_redis() {
    let running = start();
    let (mut root, mut client) = limited(&running);
    client.expect(&[
        ("SORT a:l STORE a:o STORE secret:1", NO_KEY),
        ("SORT a:l STORE secret:1 STORE a:o", ":2"),
        (
            "SORT a:l BY secret:* BY nosort",
            "-ERR BY option of SORT denied due to insufficient ACL permissions.",
        ),
        ("SORT_RO a:l STORE secret:1", "-ERR syntax error"),
        ("COMMAND GETKEYS SORT_RO a:l STORE x", "[\"a:l\"]"),
    ]);
    root.expect(&[
        ("MSET w_1 2 w_2 1", "+OK"),
        ("SORT a:l BY w_*", "[\"2\", \"1\"]"),
        ("SORT a:l BY w_* BY x_*", "[\"1\", \"2\"]"),
        ("SORT a:l BY nosort BY w_*", "[\"2\", \"1\"]"),
        ("SORT a:l LIMIT 0 1 LIMIT 1 1 DESC ASC", "[\"2\"]"),
        (
            "GEORADIUS a:g 13.36 38.11 10 km COUNT 0 COUNT 1",
            "-ERR COUNT must be > 0",
        ),
        ("GET secret:1", "\"kept\""),
    ]);
}

fn told(client: &mut Client<TcpStream>) -> Vec<String> {
    client.push(&[b"PING", b"there"]);
    let mut told = Vec::new();
    loop {
        match client.read() {
            reply if reply == "\"there\"" => return told,
            reply => told.push(reply),
        }
    }
}

/// Returns a client of the limited user that speaks RESP3 and tracks keys.
fn tracking(running: &Running, options: &str) -> Client<TcpStream> {
    let mut client = running.connect();
    assert!(client.send("HELLO 3 AUTH u pw").contains("\"proto\": :3"));
    assert_eq!(client.send(&format!("CLIENT TRACKING ON {options}")), "+OK");
    client
}

#[test]
fn tracking_of_prefixes_tells_no_name_that_a_user_may_not_read() {
    let running = start();
    let (mut root, _client) = limited(&running);
    root.expect(&[("ACL SETUSER u %W~write:*", "+OK")]);
    let mut all = tracking(&running, "BCAST");
    let mut named = tracking(&running, "BCAST PREFIX secret: PREFIX a: PREFIX write:");
    let mut shown = running.connect();
    let id = shown.send("CLIENT ID")[1..].to_owned();
    assert!(shown.send("HELLO 3").contains("\"proto\": :3"));
    let mut redirecting = tracking(&running, &format!("BCAST REDIRECT {id}"));
    root.expect(&[
        ("MSET secret:1 x secret:2 y write:1 z", "+OK"),
        ("DEL secret:2", ":1"),
        ("SET a:1 x", "+OK"),
    ]);
    // The messages leave at the end of a round of the loop. The next request of each client runs in a later
    // round.
    redirecting.expect(&[("PING", "+PONG")]);
    for client in [&mut all, &mut named, &mut shown] {
        assert_eq!(told(client), [">[\"invalidate\", [\"a:1\"]]"]);
    }
    // A message is sent only if the rules of that time allow it.
    root.expect(&[
        ("ACL SETUSER u resetkeys ~b:*", "+OK"),
        ("SET a:1 y", "+OK"),
    ]);
    for client in [&mut all, &mut named, &mut shown] {
        assert_eq!(told(client), Vec::<String>::new());
    }
}

#[test]
fn a_key_that_a_user_may_no_longer_use_is_not_told_either() {
    let running = start();
    let (mut root, _client) = limited(&running);
    let mut reader = tracking(&running, "NOLOOP");
    reader.expect(&[("MGET a:1 a:2", "[nil, nil]")]);
    root.expect(&[
        ("ACL SETUSER u resetkeys ~a:2", "+OK"),
        ("MSET a:1 x a:2 x", "+OK"),
    ]);
    assert_eq!(told(&mut reader), [">[\"invalidate\", [\"a:2\"]]"]);
}
