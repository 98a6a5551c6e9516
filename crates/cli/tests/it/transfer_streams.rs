//! Tests that move streams and libraries of functions between Redis and Perdura: by dump file, from server to server,
//! as commands, and as payloads of DUMP.

use crate::support::{Client, Reply, Server, arg, ended, request};
use crate::transfer::{Redis, done, import_file};

const LIBRARY: &str = "#!lua name=lib\nredis.register_function('f', function() return 7 end)";

fn ask(client: &mut Client, line: &str) -> Reply {
    let words: Vec<&str> = line.split(' ').collect();
    client.ask(&words).unwrap()
}

/// Creates streams of all kinds: empty, short, in several pieces, with groups, consumers, deletions and pending
/// entries.
fn make_streams(port: u16) {
    let mut client = Client::connect(port).unwrap();
    let mut lines = vec![
        "XGROUP CREATE empty group 5-5 MKSTREAM ENTRIESREAD 3".to_owned(),
        "XADD drained 7-7 a b".to_owned(),
        "XDEL drained 7-7".to_owned(),
        "XGROUP CREATE short g 0 MKSTREAM".to_owned(),
        "PEXPIREAT short 4000000000000".to_owned(),
    ];
    for n in 1..=1500 {
        lines.push(format!("XADD long {n}-0 field {n} other text{n}"));
        if n % 100 == 0 {
            lines.push(format!("XADD long {n}-1 alone {n}"));
            lines.push(format!("XADD short {n}-0 field {n}"));
        }
    }
    // 512 entries are exactly one piece, so no second piece follows.
    lines.extend((1..=512).map(|n| format!("XADD exact {n}-0 f v")));
    lines.push("XTRIM long MINID 20-0".to_owned());
    lines.push("XDEL long 30-0 400-1 500-0".to_owned());
    lines.push("XGROUP CREATE long two 250-0 ENTRIESREAD 9".to_owned());
    lines.push("XGROUP CREATECONSUMER long two idler".to_owned());
    lines.push("XGROUP CREATE long one 0".to_owned());
    for (consumer, count) in [("alice", 700), ("bob", 20), ("alice", 5)] {
        lines.push(format!(
            "XREADGROUP GROUP one {consumer} COUNT {count} STREAMS long >"
        ));
    }
    lines.push("XACK long one 21-0 22-0 23-0".to_owned());
    lines.push("XCLAIM long one bob 0 25-0 26-0 TIME 1700000000000 RETRYCOUNT 9".to_owned());
    lines.push("XREADGROUP GROUP g carol COUNT 3 STREAMS short >".to_owned());
    for line in &lines {
        let reply = ask(&mut client, line);
        assert!(!matches!(reply, Reply::Error(_)), "{line}: {reply:?}");
    }
}

/// Returns everything that a client can see of the streams. Times of deliveries and of the consumers' last activity are
/// replaced by a fixed text.
fn shown(port: u16) -> Vec<String> {
    let mut client = Client::connect(port).unwrap();
    let mut all = Vec::new();
    for key in ["empty", "drained", "long", "short", "exact"] {
        let full = ask(&mut client, &format!("XINFO STREAM {key} FULL COUNT 0"));
        all.push(format!("{key}: {}", without_shape(full)));
        all.push(format!(
            "{:?}",
            ask(&mut client, &format!("PEXPIRETIME {key}"))
        ));
    }
    all
}

/// Returns a reply as text. Times become a fixed text. Fields about a stream's layout in memory are left out.
fn without_shape(reply: Reply) -> String {
    let Reply::Array(parts) = reply else {
        return match reply {
            Reply::Number(ms) if ms > 1_690_000_000_000 => "a time".to_owned(),
            Reply::Bulk(Some(text)) => String::from_utf8_lossy(&text).into_owned(),
            other => format!("{other:?}"),
        };
    };
    let mut out = String::from("[");
    let mut hide = false;
    for part in parts {
        let is_named = |name: &str| part == Reply::Bulk(Some(name.as_bytes().to_vec()));
        let next = is_named("radix-tree-keys") || is_named("radix-tree-nodes");
        if !hide {
            out += &without_shape(part);
            out += " ";
        }
        hide = next;
    }
    out + "]"
}

fn is_same(found: &[String], expected: &[String], how: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{how}");
    }
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

fn payload(port: u16, key: &str) -> Vec<u8> {
    match ask(&mut Client::connect(port).unwrap(), &format!("DUMP {key}")) {
        Reply::Bulk(Some(payload)) => payload,
        other => panic!("{other:?}"),
    }
}

#[test]
fn streams_and_libraries_come_from_a_dump_file_as_they_were() {
    let redis = Redis::start();
    make_streams(redis.port);
    redis.ask(&["FUNCTION", "LOAD", LIBRARY]);
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let (code, text) = import_file(&redis.dump_file(), &data);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("libraries of functions: 1 read, 1 written"),
        "{text}"
    );
    let server = Server::start(&data, &[]);
    is_same(&shown(server.port()), &shown(redis.port), "a dump file");
    assert_eq!(server.ask(&["FCALL", "f", "0"]), Reply::Number(7));
    // Import again, although the streams refuse ids that they already have, and the library already exists.
    drop(server);
    let file = redis.dump_file();
    for (how, libraries, kept) in [("--replace", 1, ""), ("--keep", 0, "not changed: 6")] {
        let (code, text) = ended(&["import", "rdb", arg(&file), "--data", arg(&data), how]);
        assert_eq!(code, 0, "{text}");
        assert!(
            text.contains(&format!("1 read, {libraries} written")),
            "{text}"
        );
        assert!(text.contains(kept), "{text}");
    }
    let server = Server::start(&data, &[]);
    is_same(&shown(server.port()), &shown(redis.port), "a second time");
}

#[test]
fn streams_and_libraries_go_from_server_to_server_and_back() {
    let redis = Redis::start();
    make_streams(redis.port);
    redis.ask(&["FUNCTION", "LOAD", LIBRARY]);
    let expected = shown(redis.port);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("db"), &[]);
    let (ours, theirs) = (url(server.port()), redis.url());
    let (code, text) = ended(&["import", "--from", &theirs, "--to", &ours]);
    assert_eq!(code, 0, "{text}");
    is_same(&shown(server.port()), &expected, "from Redis");
    let other = Redis::start();
    let (code, text) = ended(&["import", "--from", &ours, "--to", &other.url()]);
    assert_eq!(code, 0, "{text}");
    is_same(&shown(other.port), &expected, "to Redis");
    assert_eq!(other.ask(&["FCALL", "f", "0"]), Reply::Number(7));
    // Now the export prints commands, and redis-cli loads them.
    let commands = done(&["export", "--from", &ours, "--replace"]);
    other.pipe(&commands);
    other.pipe(&commands);
    is_same(&shown(other.port), &expected, "as commands");
}

#[test]
fn payloads_of_streams_go_both_ways() {
    let redis = Redis::start();
    make_streams(redis.port);
    // The deleted entry stays pending. Commands cannot achieve that, but a payload of DUMP can.
    redis.ask(&["XDEL", "long", "60-0"]);
    let expected = shown(redis.port);
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir.path().join("db"), &[]);
    let restore = |port: u16, key: &str, payload: &[u8]| {
        let ttl = if key == "short" { "4000000000000" } else { "0" };
        let bytes = request(&[
            b"RESTORE",
            key.as_bytes(),
            ttl.as_bytes(),
            payload,
            b"REPLACE",
            b"ABSTTL",
        ]);
        let mut client = Client::connect(port).unwrap();
        client.send(&bytes).unwrap();
        assert_eq!(client.reply().unwrap(), Reply::Status("OK".into()), "{key}");
    };
    let keys = ["empty", "drained", "long", "short", "exact"];
    for key in keys {
        restore(server.port(), key, &payload(redis.port, key));
    }
    is_same(
        &shown(server.port()),
        &expected,
        "RESTORE of what Redis dumps",
    );
    redis.ask(&["FLUSHALL"]);
    for key in keys {
        restore(redis.port, key, &payload(server.port(), key));
    }
    is_same(&shown(redis.port), &expected, "RESTORE of what we dump");
}
