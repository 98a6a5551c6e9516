//! What tools, client libraries and tear-downs of test suites ask, whose authors only ever met a Redis.

use super::client::start;

#[test]
fn there_are_no_scripts_functions_or_modules_and_a_client_that_asks_is_told_so() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("FUNCTION FLUSH", "+OK"),
        ("FUNCTION FLUSH SYNC", "+OK"),
        (
            "FUNCTION FLUSH FOO",
            "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option",
        ),
        ("FUNCTION LIST", "[]"),
        ("FUNCTION LIST LIBRARYNAME a WITHCODE", "[]"),
        ("FUNCTION LIST FOO", "-ERR Unknown argument FOO"),
        (
            "FUNCTION LIST LIBRARYNAME",
            "-ERR library name argument was not given",
        ),
        (
            "FUNCTION STATS",
            "[\"running_script\", nil, \"engines\", [\"LUA\", [\"libraries_count\", :0, \
             \"functions_count\", :0]]]",
        ),
        (
            "FUNCTION KILL",
            "-NOTBUSY No scripts in execution right now.",
        ),
        ("FUNCTION DELETE a", "-ERR Library not found"),
        (
            "FUNCTION FOO",
            "-ERR unknown subcommand 'FOO'. Try FUNCTION HELP.",
        ),
        ("SCRIPT FLUSH", "+OK"),
        ("SCRIPT FLUSH ASYNC", "+OK"),
        (
            "SCRIPT FLUSH a b",
            "-ERR SCRIPT FLUSH only support SYNC|ASYNC option",
        ),
        ("SCRIPT EXISTS a b", "[:0, :0]"),
        (
            "SCRIPT EXISTS",
            "-ERR wrong number of arguments for 'script|exists' command",
        ),
        ("SCRIPT KILL", "-NOTBUSY No scripts in execution right now."),
        ("MODULE LIST", "[]"),
        ("MULTI", "+OK"),
        ("SCRIPT FLUSH", "+QUEUED"),
        ("EXEC", "[+OK]"),
    ]);
    for brings in [
        "SCRIPT LOAD x",
        "EVAL x 0",
        "EVALSHA x 0",
        "FCALL f 0",
        "FUNCTION LOAD x",
        "FUNCTION RESTORE x",
        "MODULE LOAD x",
    ] {
        let reply = client.send(brings);
        assert!(reply.contains(" is not supported: "), "{brings}: {reply}");
    }
}

#[test]
fn a_client_that_wants_no_replies_still_gets_what_is_pushed() {
    let running = start();
    let mut client = running.connect();
    client.write(b"CLIENT REPLY OFF\r\nSUBSCRIBE a\r\nPING\r\nSUBSCRIBE\r\nUNSUBSCRIBE\r\n");
    assert_eq!(client.read(), "[\"subscribe\", \"a\", :1]");
    assert_eq!(client.read(), "[\"unsubscribe\", \"a\", :0]");
    client.write(b"MULTI\r\nSUBSCRIBE b\r\nGET k\r\nEXEC\r\n");
    assert_eq!(client.read(), "[\"subscribe\", \"b\", :1]");
    let mut other = running.connect();
    other.expect(&[("PUBLISH b text", ":1")]);
    assert_eq!(client.read(), "[\"message\", \"b\", \"text\"]");
    other.send("HELLO 3");
    other
        .write(b"CLIENT REPLY SKIP\r\nSUBSCRIBE c\r\nCLIENT REPLY SKIP\r\nPUBLISH c x\r\nPING\r\n");
    for wanted in [
        "[\"subscribe\", \"c\", :1]",
        "[\"message\", \"c\", \"x\"]",
        "+PONG",
    ] {
        assert_eq!(other.read().trim_start_matches('>'), wanted);
    }
}

#[test]
fn what_looks_for_the_version_in_lolwut_finds_it() {
    let running = start();
    let reply = running.connect().send("LOLWUT VERSION 5 1 2 3");
    assert!(reply.contains("Redis ver. 7.0"), "{reply}");
}

/// A field of CLIENT LIST's line about a client.
fn field(line: &str, name: &str) -> usize {
    let values = line.split_whitespace();
    let value = values.filter_map(|word| word.strip_prefix(name)).next();
    let value = value.and_then(|rest| rest.strip_prefix('=')?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {line}"))
}

#[test]
fn the_list_of_clients_says_what_their_buffers_take() {
    let running = start();
    let (mut client, mut waiter) = (running.connect(), running.connect());
    let own = client.send("CLIENT INFO");
    assert_eq!(field(&own, "argv-mem"), "CLIENTINFO".len());
    assert!(field(&own, "qbuf") >= "CLIENT INFO\r\n".len(), "{own}");
    client.call(&[b"ECHO", &[b'x'; 20_000]]);
    let own = client.send("CLIENT INFO");
    assert!(
        field(&own, "rbs") >= 20_000 && field(&own, "tot-mem") > 20_000,
        "{own}"
    );
    waiter.write(b"*3\r\n$5\r\nBLPOP\r\n$3\r\nkey\r\n$1\r\n0\r\n*2\r\n$3\r\nGET\r\n$90\r\nhalf");
    let waits = |list: &str| {
        let line = list.lines().find(|line| line.contains("cmd=blpop"));
        line.map(str::to_owned)
    };
    let line = loop {
        match waits(&client.send("CLIENT LIST")) {
            Some(line) if field(&line, "qbuf") > 0 => break line,
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    };
    assert_eq!(field(&line, "argv-mem"), "BLPOPkey0".len(), "{line}");
    assert_eq!(field(&line, "qbuf"), "*2\r\n$3\r\nGET\r\n$90\r\nhalf".len());
    assert!(field(&line, "tot-mem") > field(&line, "qbuf") + 9, "{line}");
}
