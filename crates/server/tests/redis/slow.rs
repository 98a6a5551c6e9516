//! Tests of SLOWLOG, LATENCY, MEMORY, DEBUG, and INFO's figures about commands. Also tests the replies to requests
//! about replicas and Redis clusters, which this server does not have.

use super::client::{Client, local, start, start_with};
use perdura_server::{DebugAccess, ServerOptions};
use std::net::TcpStream;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

#[test]
fn slow_commands_are_noted_with_their_arguments_cut_short() {
    let running = start_with(ServerOptions {
        slowlog_slower_than_us: 0,
        slowlog_len_max: 3,
        ..local()
    });
    let mut client = running.connect();
    client.expect(&[("SLOWLOG RESET", "+OK"), ("CLIENT SETNAME me", "+OK")]);
    let long = vec![b'x'; 200];
    client.call(&[b"SET", &long, b"1"]);
    let keys: Vec<String> = (0..40).map(|i| format!("k{i}")).collect();
    let line = format!("MGET {}", keys.join(" "));
    client.send(&line);
    let log = client.send("SLOWLOG GET 2");
    assert!(log.contains("\"MGET\", \"k0\""), "{log}");
    assert!(log.contains("\"... (10 more arguments)\""), "{log}");
    assert!(log.contains("... (72 more bytes)\", \"1\"]"), "{log}");
    assert!(log.ends_with("\"me\"]]"), "{log}");
    client.expect(&[
        ("SLOWLOG LEN", ":3"),
        ("CONFIG SET slowlog-log-slower-than -1", "+OK"),
        ("SLOWLOG RESET", "+OK"),
        ("SLOWLOG GET", "[]"),
        (
            "SLOWLOG GET x",
            "-ERR count should be greater than or equal to -1",
        ),
        (
            "SLOWLOG GET -2",
            "-ERR count should be greater than or equal to -1",
        ),
        (
            "SLOWLOG GET 1 2",
            "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
        ),
    ]);
}

#[test]
fn latency_is_told_by_command_and_by_spike() {
    let running = start_with(ServerOptions {
        enable_debug_command: DebugAccess::Local,
        ..local()
    });
    let mut client = running.connect();
    client.expect(&[
        ("SET k v", "+OK"),
        ("LATENCY LATEST", "[]"),
        ("CONFIG SET latency-monitor-threshold 5", "+OK"),
        ("DEBUG SLEEP 0.02", "+OK"),
    ]);
    let latest = client.send("LATENCY LATEST");
    assert!(latest.starts_with("[[\"command\", :"), "{latest}");
    assert!(client.send("LATENCY HISTORY command").starts_with("[[:"));
    assert!(
        client
            .send("LATENCY DOCTOR")
            .contains("1 spikes above 5 ms")
    );
    assert!(client.send("LATENCY GRAPH command").contains('#'));
    client.expect(&[
        ("LATENCY HISTORY nothing", "[]"),
        ("LATENCY GRAPH x", "-ERR No samples available for event 'x'"),
        ("LATENCY RESET command other", ":1"),
        ("LATENCY LATEST", "[]"),
    ]);
    let times = client.send("LATENCY HISTOGRAM set get config");
    assert!(
        times.contains("\"set\", [\"calls\", :1, \"histogram_usec\", [:"),
        "{times}"
    );
    assert!(
        times.contains("\"config|set\"") && !times.contains("\"get\""),
        "{times}"
    );
    client.expect(&[("CONFIG RESETSTAT", "+OK"), ("LATENCY HISTOGRAM set", "[]")]);
}

#[test]
fn debug_is_for_those_who_may() {
    let running = start();
    let mut client = running.connect();
    let reply = client.send("DEBUG SLEEP 0");
    assert!(
        reply.starts_with("-ERR DEBUG command not allowed. If the"),
        "{reply}"
    );
    let running = start_with(ServerOptions {
        enable_debug_command: DebugAccess::Yes,
        ..local()
    });
    let mut client = running.connect();
    client.expect(&[("SET k 12", "+OK"), ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK")]);
    assert!(client.send("DEBUG OBJECT k").contains("encoding:int"));
    client.expect(&[
        (
            "DEBUG STEP-ELEMENTS x",
            "-ERR value is not an integer or out of range",
        ),
        ("DEBUG STEP-ELEMENTS 2", "+OK"),
        ("RPUSH steps a b c", ":3"),
        ("LRANGE steps 0 -1", "[\"a\", \"b\", \"c\"]"),
        ("DEBUG STEP-ELEMENTS 0", "+OK"),
        ("DEBUG OBJECT none", "-ERR no such key"),
        ("DEBUG ERROR oh", "-oh"),
        (
            "DEBUG FOO",
            "-ERR unknown subcommand or wrong number of arguments for 'FOO'. Try DEBUG HELP.",
        ),
    ]);
}

#[test]
fn memory_of_a_key_grows_with_it() {
    let running = start();
    let mut client = running.connect();
    let usage = |client: &mut super::client::Client<std::net::TcpStream>| {
        let reply = client.send("MEMORY USAGE k");
        reply[1..].parse::<u64>().expect("a number")
    };
    client.expect(&[("MEMORY USAGE k", "nil"), ("SET k v", "+OK")]);
    let little = usage(&mut client);
    client.call(&[b"SET", b"k", &[b'v'; 1000]]);
    assert!(usage(&mut client) >= little + 999);
    client.expect(&[
        ("MEMORY USAGE k SAMPLES", "-ERR syntax error"),
        ("MEMORY USAGE k SAMPLES -1", "-ERR syntax error"),
        (
            "MEMORY USAGE k SAMPLES x",
            "-ERR value is not an integer or out of range",
        ),
        ("MEMORY PURGE", "+OK"),
    ]);
    assert!(client.send("MEMORY STATS").contains("\"keys.count\", :1"));
}

#[test]
fn there_are_no_other_servers() {
    let running = start();
    let mut client = running.connect();
    let cluster = "-ERR This instance has cluster support disabled";
    client.expect(&[
        ("ROLE", "[\"master\", :0, []]"),
        ("WAIT 0 0", ":0"),
        ("WAIT 1 10", ":0"),
        ("WAIT x 0", "-ERR value is not an integer or out of range"),
        ("WAIT 0 x", "-ERR timeout is not an integer or out of range"),
        ("WAIT 0 -1", "-ERR timeout is negative"),
        ("REPLICAOF NO ONE", "+OK"),
        ("FAILOVER", "-ERR FAILOVER requires connected replicas."),
        ("CLUSTER INFO", cluster),
        ("READONLY", cluster),
        ("ASKING", cluster),
        ("CLIENT DURABILITY mem", "+OK"),
        ("SET k 1", "+OK"),
        ("WAITAOF 1 0 0", "[:1, :0]"),
        (
            "WAITAOF 2 0 0",
            "-ERR value is out of range, must be positive",
        ),
    ]);
    assert!(
        client
            .send("REPLICAOF a 1")
            .starts_with("-ERR replication is not")
    );
}

#[test]
fn the_slow_log_shows_no_passwords() {
    let running = start_with(ServerOptions {
        slowlog_slower_than_us: 0,
        ..local()
    });
    let mut client = running.connect();
    client.expect(&[
        ("ACL SETUSER u on >hidden ~*", "+OK"),
        ("CONFIG SET timeout 9 masterauth hidden", "+OK"),
    ]);
    let log = client.send("SLOWLOG GET");
    assert!(!log.contains("hidden"), "{log}");
    assert!(
        log.contains("[\"CONFIG\", \"SET\", \"timeout\", \"9\", \"masterauth\", \"(redacted)\"]"),
        "{log}"
    );
}

#[test]
fn clients_that_are_all_heavy_at_once_do_not_share_one_round() {
    let running = start_with(ServerOptions {
        // The rounds of several loops share the test's two CPUs.
        loops: Some(NonZeroUsize::MIN),
        enable_debug_command: DebugAccess::Local,
        ..local()
    });
    let mut control = running.connect();
    let mut clients: Vec<_> = (0..40).map(|_| running.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.send("PING"), "+PONG");
    }
    // On a busy machine, a long round may spoil one attempt, but hardly all three.
    let apart = (0..3).any(|_| heavy_at_once_take_rounds(&mut control, &mut clients));
    assert!(apart, "all were one round, three times");
}

/// Makes all clients send a request at the same time. Each request takes 5 ms. Returns whether the event loop spread
/// the requests over several rounds.
fn heavy_at_once_take_rounds(
    control: &mut Client<TcpStream>,
    clients: &mut [Client<TcpStream>],
) -> bool {
    control.expect(&[("CONFIG RESETSTAT", "+OK")]);
    let began = Instant::now();
    // While the event loop runs the sleep of `control`, all clients become ready.
    control.push(&[b"DEBUG", b"SLEEP", b"0.05"]);
    for client in &mut *clients {
        client.push(&[b"DEBUG", b"SLEEP", b"0.005"]);
    }
    for client in clients {
        assert_eq!(client.read(), "+OK");
    }
    let all = began.elapsed();
    assert_eq!(control.read(), "+OK");
    let longest = Duration::from_micros(control.figure("loop_longest_round_us"));
    longest * 2 < all
}
