//! Tests of requests that tools, client libraries and the tear-downs of test suites send because they expect Redis.

use super::client::{Client, start};
use std::net::TcpStream;

#[test]
fn there_are_no_modules_and_a_client_that_asks_is_told_so() {
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
    let reply = client.send("MODULE LOAD x");
    assert!(reply.contains(" is not supported: "), "{reply}");
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

/// Returns a field from a client's line in the reply to CLIENT LIST.
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

#[test]
fn the_keys_of_a_request_and_what_it_does_to_them_are_those_of_redis() {
    let running = start();
    let mut client = running.connect();
    let flags = |words: &str| {
        let words: Vec<String> = words.split(' ').map(|word| format!("+{word}")).collect();
        format!("[{}]", words.join(", "))
    };
    for (request, keys) in [
        ("SET k v", "k OW update"),
        ("SET k v GET", "k RW access update"),
        ("DEL a b", "a RM delete; b RM delete"),
        ("RENAMENX a b", "a RW access delete; b OW insert"),
        ("LPUSH k v", "k RW insert"),
        ("STRLEN k", "k RO"),
        ("SORT k STORE a STORE b", "k RO access; b OW update"),
        ("EVAL x 2 a b c", "a RW access update; b RW access update"),
        ("XREAD COUNT 1 STREAMS a b 1 2", "a RO access; b RO access"),
        ("GEORADIUS k 0 0 1 m STORE a", "k RO access; a OW update"),
        ("XGROUP CREATE k g 0", "k RW insert"),
    ] {
        let shown: Vec<String> = keys
            .split("; ")
            .map(|key| {
                let (key, words) = key.split_once(' ').expect("a key and flags");
                format!("[\"{key}\", {}]", flags(words))
            })
            .collect();
        let reply = client.send(&format!("COMMAND GETKEYSANDFLAGS {request}"));
        assert_eq!(reply, format!("[{}]", shown.join(", ")), "{request}");
    }
    client.expect(&[
        ("COMMAND GETKEYS EVAL x 0", "[]"),
        (
            "COMMAND GETKEYS OBJECT HELP",
            "-ERR The command has no key arguments",
        ),
        (
            "COMMAND GETKEYS OBJECT FOO k",
            "-ERR Invalid command specified",
        ),
    ]);
}

#[test]
fn the_list_of_commands_has_their_subcommands_and_can_be_filtered() {
    let running = start();
    let mut client = running.connect();
    let all = client.send("COMMAND LIST");
    let count: usize = client.send("COMMAND COUNT")[1..].parse().expect("a count");
    let words = all.matches('|').count();
    assert_eq!(all.matches('"').count(), 2 * (count + words));
    assert!(all.contains("\"config|get\"") && all.contains("\"xinfo|stream\""));
    let scripting = client.send("COMMAND LIST FILTERBY ACLCAT scripting");
    assert!(scripting.contains("\"script|load\"") && !scripting.contains("\"script\""));
    client.expect(&[
        (
            "COMMAND LIST FILTERBY PATTERN config|re*",
            "[\"config|resetstat\", \"config|rewrite\"]",
        ),
        ("COMMAND LIST FILTERBY ACLCAT foo", "[]"),
        ("COMMAND LIST FILTERBY MODULE foo", "[]"),
        ("COMMAND LIST FILTERBY foo bar", "-ERR syntax error"),
    ]);
}

/// Returns the value of a field of INFO.
fn figure(info: &str, name: &str) -> u64 {
    let mut lines = info.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value
        .unwrap_or_else(|| panic!("no {name}"))
        .trim()
        .parse()
        .expect("a number")
}

#[test]
fn changes_are_counted_until_a_checkpoint_holds_them() {
    let running = start();
    let mut client = running.connect();
    let unsaved = "rdb_changes_since_last_save";
    client.expect(&[("SAVE", "+OK")]);
    assert_eq!(figure(&client.send("INFO"), unsaved), 0);
    client.expect(&[
        ("MSET a 1 b 2", "+OK"),
        ("GET a", "\"1\""),
        ("DEL a none", ":1"),
    ]);
    assert_eq!(figure(&client.send("INFO"), unsaved), 3);
    client.expect(&[("SAVE", "+OK"), ("SET c 3", "+OK")]);
    assert_eq!(figure(&client.send("INFO"), unsaved), 1);
    client.expect(&[("FLUSHALL", "+OK")]);
    assert_eq!(figure(&client.send("INFO"), unsaved), 3);
}

#[test]
fn what_monitoring_reads_of_info_is_there() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[("SET k v PX 1", "+OK"), ("SET l v PX 1", "+OK")]);
    let begin = std::time::Instant::now();
    let mut info = client.send("INFO stats");
    while figure(&info, "expired_keys") < 2 {
        assert!(begin.elapsed().as_secs() < 20, "{info}");
        info = client.send("INFO stats");
    }
    let reads = figure(&info, "total_reads_processed");
    assert!(reads >= 3, "{info}");
    assert!(figure(&info, "total_writes_processed") >= 2, "{info}");
    assert_eq!(figure(&info, "unexpected_error_replies"), 0);
    let rate = |name: &str| {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.expect("a rate")
            .trim()
            .parse::<f64>()
            .expect("a number")
    };
    assert!(rate("instantaneous_input_kbps") >= 0.0 && rate("instantaneous_output_kbps") >= 0.0);
    client.expect(&[("CONFIG RESETSTAT", "+OK")]);
    assert_eq!(figure(&client.send("INFO"), "expired_keys"), 0);
}

#[test]
fn settings_are_changed_together_or_not_at_all() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("CONFIG SET maxclients 77 timeout 5", "+OK"),
        ("CONFIG GET maxclients", "[\"maxclients\", \"77\"]"),
    ]);
    let several: [&[u8]; 8] = [
        b"CONFIG",
        b"SET",
        b"save",
        b"",
        b"maxclients",
        b"78",
        b"appendonly",
        b"yes",
    ];
    assert_eq!(client.call(&several), "+OK");
    for bad in [
        "appendonly no",
        "port 1",
        "nonsense 1",
        "timeout x",
        "maxclients 9",
    ] {
        let reply = client.send(&format!("CONFIG SET maxclients 99 {bad}"));
        assert!(reply.starts_with("-ERR "), "{bad}: {reply}");
        client.expect(&[("CONFIG GET maxclients", "[\"maxclients\", \"78\"]")]);
    }
}

#[test]
fn config_set_of_several_names_changes_all_or_none_and_takes_an_empty_save() {
    let running = start();
    let mut client = running.connect();
    client.call(&[
        b"CONFIG", b"SET", b"timeout", b"60", b"save", b"", b"hz", b"20",
    ]);
    let shown = |client: &mut Client<TcpStream>| {
        let names = ["timeout", "maxclients", "hz", "hash-max-listpack-value"];
        names.map(|name| client.send(&format!("CONFIG GET {name}")))
    };
    let before = shown(&mut client);
    assert_eq!(before[0], "[\"timeout\", \"60\"]");
    assert_eq!(before[2], "[\"hz\", \"20\"]");
    for (last, why) in [
        (
            "maxclients many",
            "'maxclients') - argument couldn't be parsed into an integer",
        ),
        ("databases 3", "'databases') - can't set immutable config"),
        ("timeout 9", "'timeout') - duplicate parameter"),
        ("save nonsense", "'save') - Invalid save parameters"),
        (
            "nothing 1",
            "Unknown option or number of arguments for CONFIG SET - 'nothing'",
        ),
    ] {
        let names = "timeout 5 hz 30 hash-max-listpack-value 9";
        let reply = client.send(&format!("CONFIG SET {names} {last}"));
        assert!(reply.starts_with("-ERR ") && reply.contains(why), "{reply}");
        assert_eq!(shown(&mut client), before, "{last}");
    }
}
