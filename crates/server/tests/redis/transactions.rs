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
    for broken in ["FOO", "GET", "SHUTDOWN", "SAVE", "FLUSHALL"] {
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
    assert!(
        client
            .send("WATCH k")
            .starts_with("-ERR WATCH is not supported")
    );
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
