use super::client::start;

#[test]
fn a_block_runs_as_one_and_answers_in_order() {
    let running = start();
    let (mut client, mut other) = (running.connect(), running.connect());
    client.expect(&[
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("INCR b", "+QUEUED"),
        ("PING", "+QUEUED"),
        ("SELECT 3", "+QUEUED"),
        ("SET a 3", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("SELECT 0", "+QUEUED"),
        ("MGET a b", "+QUEUED"),
    ]);
    assert_eq!(other.send("GET a"), "nil");
    assert_eq!(
        client.send("EXEC"),
        "[+OK, :1, +PONG, +OK, +OK, :1, +OK, [\"1\", \"1\"]]"
    );
    assert_eq!(other.send("GET a"), "\"1\"");
    other.expect(&[("SELECT 3", "+OK"), ("GET a", "\"3\"")]);
}

#[test]
fn an_error_at_run_time_stands_alone() {
    let running = start();
    let mut client = running.connect();
    client.expect(&[
        ("SET text x", "+OK"),
        ("MULTI", "+OK"),
        ("SET a 1", "+QUEUED"),
        ("INCR text", "+QUEUED"),
        ("SET b 2", "+QUEUED"),
        (
            "EXEC",
            "[+OK, -ERR value is not an integer or out of range, +OK]",
        ),
        ("MGET a b text", "[\"1\", \"2\", \"x\"]"),
    ]);
}

#[test]
fn an_error_while_queueing_aborts_the_block() {
    let running = start();
    let mut client = running.connect();
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    for broken in ["FOO", "GET", "SHUTDOWN", "SAVE"] {
        client.expect(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED")]);
        assert!(client.send(broken).starts_with("-ERR "));
        client.expect(&[("EXEC", aborted), ("GET a", "nil")]);
    }
    client.expect(&[
        ("EXEC", "-ERR EXEC without MULTI"),
        ("DISCARD", "-ERR DISCARD without MULTI"),
        ("MULTI", "+OK"),
        ("MULTI", "-ERR MULTI calls can not be nested"),
        ("WATCH k", "-ERR WATCH inside MULTI is not allowed"),
        ("SET a 1", "+QUEUED"),
        ("DISCARD", "+OK"),
        ("GET a", "nil"),
        ("MULTI", "+OK"),
        ("EXEC", "[]"),
    ]);
}

#[test]
fn a_flush_is_part_of_its_block() {
    let running = start();
    let (mut client, mut other) = (running.connect(), running.connect());
    client.expect(&[
        ("MSET a 1 b 2", "+OK"),
        ("SELECT 1", "+OK"),
        ("SET c 3", "+OK"),
        ("SELECT 0", "+OK"),
        ("MULTI", "+OK"),
        ("INCR a", "+QUEUED"),
        ("FLUSHDB", "+QUEUED"),
        ("INCR a", "+QUEUED"),
        ("FLUSHDB FOO", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("FLUSHDB", "+QUEUED"),
        ("GET a", "+QUEUED"),
        ("SET d 4", "+QUEUED"),
        ("SELECT 1", "+QUEUED"),
        ("GET c", "+QUEUED"),
    ]);
    assert_eq!(other.send("GET a"), "\"1\"");
    assert_eq!(
        client.send("EXEC"),
        "[:2, +OK, :1, -ERR syntax error, :1, +OK, nil, +OK, +OK, \"3\"]"
    );
    other.expect(&[("MGET a b d", "[nil, nil, \"4\"]"), ("DBSIZE", ":1")]);
    client.expect(&[
        ("MULTI", "+OK"),
        ("FLUSHALL ASYNC", "+QUEUED"),
        ("SET e 5", "+QUEUED"),
        ("DBSIZE", "+QUEUED"),
        ("EXEC", "[+OK, +OK, :1]"),
        ("MGET c e", "[nil, \"5\"]"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":0"),
    ]);
}

#[test]
fn a_block_that_does_not_happen_flushes_nothing() {
    let running = start();
    let mut client = running.connect();
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    client.expect(&[
        ("MSET a 1 b 2", "+OK"),
        ("CONFIG SET maxmemory 1", "+OK"),
        ("MULTI", "+OK"),
        ("DEL a", "+QUEUED"),
        ("FLUSHALL", "+QUEUED"),
        ("SET c 3", "+QUEUED"),
        ("EXEC", oom),
        ("MGET a b c", "[\"1\", \"2\", nil]"),
        ("CONFIG SET maxmemory 0", "+OK"),
        ("SET c 3", "+OK"),
        ("CONFIG SET maxmemory 1", "+OK"),
        ("MULTI", "+OK"),
        ("FLUSHALL", "+QUEUED"),
        ("EXEC", "[+OK]"),
        ("DBSIZE", ":0"),
        ("CONFIG SET maxmemory 0", "+OK"),
        ("SET c 4", "+OK"),
        ("MGET a b c", "[nil, nil, \"4\"]"),
    ]);
}

#[test]
fn concurrent_blocks_do_not_mix() {
    let running = start();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let mut client = running.connect();
            std::thread::spawn(move || {
                for _ in 0..50 {
                    for line in ["MULTI", "INCR x", "INCR y", "EXEC"] {
                        client.push(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>());
                    }
                    let replies: Vec<String> = (0..4).map(|_| client.read()).collect();
                    let pair = replies[3].trim_matches(['[', ']']).split(", ");
                    let pair: Vec<&str> = pair.collect();
                    assert_eq!(pair[0], pair[1], "both counters move together");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("a worker");
    }
    running
        .connect()
        .expect(&[("MGET x y", "[\"200\", \"200\"]")]);
}
