//! Tests of libraries of functions over real sockets.

use super::client::{Client, local, small, start};
use perdura_server::Server;
use std::net::TcpStream;
use tempfile::TempDir;

const LIBRARY: &str = "#!lua name=lib\nlocal function bump(keys, args)\n  return redis.call('INCRBY', keys[1], \
                       args[1])\nend\nredis.register_function('bump', bump)\n\
                       redis.register_function{function_name='look', callback=function(keys) return \
                       redis.call('GET', keys[1]) end, flags={'no-writes'}, description='reads'}";

fn load(client: &mut Client<TcpStream>, text: &str) -> String {
    client.call(&[b"FUNCTION", b"LOAD", text.as_bytes()])
}

#[test]
fn functions_are_called_by_name() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[("FCALL bump 1 n 5", "-ERR Function not found")]);
    assert_eq!(load(&mut client, LIBRARY), "\"lib\"");
    client.expect(&[
        ("FCALL bump 1 n 5", ":5"),
        ("FCALL look 1 n", "\"5\""),
        ("FCALL_RO look 1 n", "\"5\""),
        (
            "FCALL_RO bump 1 n 5",
            "-ERR Can not execute a script with write flag using *_ro command.",
        ),
        ("FCALL look -1", "-ERR Number of keys can't be negative"),
        ("FCALL look x", "-ERR Bad number of keys provided"),
        (
            "FUNCTION LIST",
            "[[\"library_name\", \"lib\", \"engine\", \"LUA\", \"functions\", [[\"name\", \"bump\", \
             \"description\", nil, \"flags\", []], [\"name\", \"look\", \"description\", \"reads\", \
             \"flags\", [+no-writes]]]]]",
        ),
        (
            "FUNCTION STATS",
            "[\"running_script\", nil, \"engines\", [\"LUA\", [\"libraries_count\", :1, \
             \"functions_count\", :2]]]",
        ),
        ("FUNCTION LIST LIBRARYNAME x*", "[]"),
        ("MULTI", "+OK"),
        ("FCALL bump 1 n 1", "+QUEUED"),
        ("FCALL look 1 n", "+QUEUED"),
        ("EXEC", "[:6, \"6\"]"),
        ("FLUSHALL", "+OK"),
        ("FCALL bump 1 n 1", ":1"),
    ]);
    let reply = client.send("FCALL bump 1 n x");
    assert_eq!(
        reply,
        "-ERR value is not an integer or out of range script: bump, on @user_function:3."
    );
    assert_eq!(client.figure("number_of_functions"), 2);
    client.expect(&[
        ("FUNCTION DELETE lib", "+OK"),
        ("FCALL bump 1 n 1", "-ERR Function not found"),
        ("FUNCTION DELETE lib", "-ERR Library not found"),
    ]);
}

#[test]
fn libraries_that_cannot_be_are_refused_and_change_nothing() {
    let running = start();
    let mut client = running.connect();
    assert_eq!(load(&mut client, LIBRARY), "\"lib\"");
    for (text, error) in [
        (LIBRARY, "Library 'lib' already exists"),
        ("x", "Missing library metadata"),
        ("#!lua name=a", "Invalid library metadata"),
        ("#!js name=a\nx", "Engine 'js' not found"),
        ("#!lua name=a\nlocal a = 1", "No functions registered"),
        (
            "#!lua name=a\nredis.register_function('bump', function() end)",
            "Function bump already exists",
        ),
        (
            "#!lua name=a\nredis.call('GET', 'x')",
            "Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable \
             'call'",
        ),
        (
            "#!lua name=a\nwhile true do end",
            "the script was ended: it ran longer than the 1000 ms allowed. Nothing of it was kept",
        ),
    ] {
        assert_eq!(load(&mut client, text), format!("-ERR {error}"), "{text}");
    }
    let other = "#!lua name=lib\nredis.register_function('other', function() return 7 end)";
    assert_eq!(
        client.call(&[b"FUNCTION", b"LOAD", b"REPLACE", other.as_bytes()]),
        "\"lib\""
    );
    client.expect(&[
        ("FCALL other 0", ":7"),
        ("FCALL bump 1 n 1", "-ERR Function not found"),
    ]);
    assert_eq!(
        client.call(&[b"FUNCTION", b"LOAD", b"FOO", other.as_bytes()]),
        "-ERR Unknown option given: FOO"
    );
}

#[test]
fn libraries_are_there_after_a_restart_and_deleted_ones_are_not() {
    let dir = TempDir::new().expect("a directory");
    let open = || Server::start(local(), small(&dir.path().join("data"))).expect("a server");
    let connect = |server: &Server| {
        let address = server.local_addr().expect("an address");
        let mut client = Client::new(TcpStream::connect(address).expect("a connection"));
        while client.send("PING").starts_with("-LOADING") {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        client
    };
    let end = |mut client: Client<TcpStream>, server: Server| {
        assert_eq!(client.send("SHUTDOWN NOSAVE"), "closed");
        server.join().expect("an end");
    };
    let server = open();
    let mut client = connect(&server);
    assert_eq!(load(&mut client, LIBRARY), "\"lib\"");
    // This library is longer than a page.
    let long = format!(
        "#!lua name=long\n-- {}\nredis.register_function('long', function() return 1 end)",
        "x".repeat(100_000)
    );
    assert_eq!(load(&mut client, &long), "\"long\"");
    let gone = "#!lua name=gone\nredis.register_function('gone', function() return 1 end)";
    assert_eq!(load(&mut client, gone), "\"gone\"");
    client.expect(&[("FUNCTION DELETE gone", "+OK"), ("FCALL bump 1 n 2", ":2")]);
    end(client, server);
    let server = open();
    let mut client = connect(&server);
    client.expect(&[
        ("FCALL bump 1 n 2", ":4"),
        ("FCALL long 0", ":1"),
        ("FCALL gone 0", "-ERR Function not found"),
    ]);
    assert!(client.send("FUNCTION LIST WITHCODE").contains(&long));
    client.expect(&[("FUNCTION FLUSH", "+OK"), ("FUNCTION LIST", "[]")]);
    end(client, server);
    let server = open();
    let mut client = connect(&server);
    client.expect(&[("FUNCTION LIST", "[]"), ("GET n", "\"4\"")]);
    end(client, server);
}

#[test]
fn a_dump_is_restored_as_its_policy_says() {
    let running = start();
    let mut client = running.connect();
    assert_eq!(load(&mut client, LIBRARY), "\"lib\"");
    client.push(&[b"FUNCTION", b"DUMP"]);
    let payload = client.read_bulk();
    let mut restore = |policy: &[&[u8]]| {
        let words = [&[&b"FUNCTION"[..], b"RESTORE", &payload], policy].concat();
        client.call(&words)
    };
    assert_eq!(restore(&[]), "-ERR Library lib already exists");
    assert_eq!(restore(&[b"REPLACE"]), "+OK");
    assert_eq!(
        restore(&[b"FOO"]),
        "-ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
    );
    assert_eq!(restore(&[b"FLUSH"]), "+OK");
    client.expect(&[("FCALL bump 1 n 5", ":5"), ("FUNCTION FLUSH", "+OK")]);
    assert_eq!(client.call(&[b"FUNCTION", b"RESTORE", &payload]), "+OK");
    client.expect(&[("FCALL bump 1 n 5", ":10")]);
    let mut damaged = payload.clone();
    damaged[3] ^= 1;
    assert_eq!(
        client.call(&[b"FUNCTION", b"RESTORE", &damaged]),
        "-ERR DUMP payload version or checksum are wrong"
    );
}
