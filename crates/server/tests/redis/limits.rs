use super::client::{Client, Running, encode, local, start, start_with};
use perdura_server::ServerOptions;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn malformed_requests_get_the_words_of_redis_and_are_closed() {
    let running = start();
    let cases: [(&[u8], &str); 6] = [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (
            b"*2\r\n$3\r\nGET\r\n$999999999999\r\n",
            "invalid bulk length",
        ),
        (b"SET \"k\r\n", "unbalanced quotes in request"),
    ];
    for (bytes, text) in cases {
        let mut client = running.connect();
        client.write(b"PING\r\n");
        client.write(bytes);
        assert_eq!(client.read(), "+PONG");
        assert_eq!(client.read(), format!("-ERR Protocol error: {text}"));
        assert_eq!(client.read(), "closed");
    }
    let mut client = running.connect();
    client.write(&[b'x'; 70_000]);
    assert_eq!(client.read(), "-ERR Protocol error: too big inline request");
    assert_eq!(running.connect().send("PING"), "+PONG");
}

#[test]
fn values_and_keys_beyond_their_limits_are_refused() {
    let running = start();
    let mut client = running.connect();
    let long = vec![b'v'; (1 << 20) + 1];
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert_eq!(client.call(&[b"SET", b"k", &long]), too_long);
    assert_eq!(client.call(&[b"SET", b"k", &long[1..]]), "+OK");
    assert_eq!(client.send("APPEND k x"), too_long);
    assert_eq!(client.call(&[b"MSET", b"a", b"1", b"b", &long]), too_long);
    assert_eq!(client.send("EXISTS a"), ":0");
    assert_eq!(client.call(&[b"SETNX", b"n", &long]), too_long);
    let key = vec![b'k'; 65_537];
    assert_eq!(client.call(&[b"SET", &key[1..], b"v"]), "+OK");
    let refused = "-ERR a key has 65537 bytes; the most is 65536";
    assert_eq!(client.call(&[b"SET", &key, b"v"]), refused);
    assert_eq!(client.call(&[b"MGET", b"a", &key]), refused);
    assert_eq!(client.send("PING"), "+PONG");
}

#[test]
fn requests_and_replies_have_a_limit() {
    let options = ServerOptions {
        query_bytes_max: 100_000,
        reply_bytes_max: 50_000,
        ..local()
    };
    let running = start_with(options);
    let mut client = running.connect();
    let value = vec![b'v'; 20_000];
    for key in [b"a", b"b", b"c"] {
        assert_eq!(client.call(&[b"SET", key, &value]), "+OK");
    }
    let reply = client.send("MGET a b c");
    assert!(
        reply.starts_with("-ERR the reply is longer than the 50000 bytes allowed"),
        "{reply}"
    );
    client.expect(&[("MULTI", "+OK"), ("SET n 1", "+QUEUED")]);
    client.expect(&[("MGET a b", "+QUEUED"), ("MGET c", "+QUEUED")]);
    assert!(client.send("EXEC").starts_with("-ERR the reply is longer"));
    assert_eq!(client.send("GET n"), "nil", "nothing of the block happened");
    let text = "-ERR the transaction is too big (client-query-buffer-limit)";
    client.expect(&[("MULTI", "+OK")]);
    for i in 0..5 {
        let reply = client.call(&[b"SET", b"k", &value]);
        assert_eq!(reply, if i < 4 { "+QUEUED" } else { text });
    }
    assert!(client.send("EXEC").starts_with("-EXECABORT"));
    let mut client = running.connect();
    client.write(b"*2\r\n$4\r\nECHO\r\n$200000\r\n");
    assert_eq!(
        client.read(),
        "-ERR the request is too big (client-query-buffer-limit)"
    );
    assert_eq!(client.read(), "closed");
}

#[test]
fn clients_beyond_the_limit_are_turned_away() {
    let running = start_with(ServerOptions {
        maxclients: 2,
        ..local()
    });
    let mut first = running.connect();
    assert_eq!(first.send("PING"), "+PONG");
    let mut second = running.connect();
    while second.send("PING") != "+PONG" {
        // The connection that waited for loading may still be there.
        second = running.connect();
    }
    assert_eq!(
        running.connect().read(),
        "-ERR max number of clients reached"
    );
    drop(second);
    // This waits until the server has seen that the client is gone.
    while running.connect().send("PING") != "+PONG" {}
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let running = start();
    let mut client = running.connect();
    let value = vec![b'v'; 100_000];
    assert_eq!(client.call(&[b"SET", b"k", &value]), "+OK");
    let rounds = 2_000;
    let stream = client.socket().try_clone().expect("a second handle");
    let writer = std::thread::spawn(move || {
        let mut stream = stream;
        let request = encode(&[b"GET", b"k"]);
        for _ in 0..rounds {
            stream.write_all(&request).expect("a write");
        }
    });
    writer
        .join()
        .expect("requests fit into the socket's buffers");
    std::thread::sleep(Duration::from_millis(100));
    let list = running.connect().send("CLIENT LIST");
    let held = list
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("obl="))
        .map(|bytes| bytes.parse::<usize>().expect("a number"))
        .max();
    let held = held.expect("a client");
    assert!(
        held < 8 << 20,
        "{held} bytes wait for a client that does not read"
    );
    for _ in 0..rounds {
        assert_eq!(client.read().len(), value.len() + 2);
    }
    assert_eq!(client.send("PING"), "+PONG");
}

#[test]
fn a_request_that_trickles_in_is_understood() {
    let running = start();
    let mut client = running.connect();
    for byte in encode(&[b"SET", b"key", b"value"]) {
        client.write(&[byte]);
    }
    assert_eq!(client.read(), "+OK");
    let value: Vec<u8> = (0..900_000u32)
        .map(|i| b'a' + i.to_le_bytes()[1] % 26)
        .collect();
    for part in encode(&[b"SET", b"big", &value]).chunks(7_777) {
        client.write(part);
    }
    assert_eq!(client.read(), "+OK");
    assert_eq!(client.send("STRLEN big"), ":900000");
}

#[test]
fn a_request_may_have_very_many_arguments() {
    let running = start();
    let mut client: Client<_> = running.connect();
    let keys: Vec<String> = (0..100_000).map(|i| format!("k{i}")).collect();
    let mut words: Vec<&[u8]> = vec![b"MSET"];
    for key in &keys {
        words.push(key.as_bytes());
        words.push(b"v");
    }
    assert_eq!(client.call(&words), "+OK");
    assert_eq!(client.send("DBSIZE"), ":100000");
    let mut words: Vec<&[u8]> = vec![b"DEL"];
    words.extend(keys.iter().map(String::as_bytes));
    assert_eq!(client.call(&words), ":100000");
}

#[test]
fn at_the_memory_limit_writes_fail_and_reads_and_deletes_work() {
    let running = start();
    let mut client = running.connect();
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    client.expect(&[
        ("MSET a 1 b 2", "+OK"),
        ("CONFIG SET maxmemory 1", "+OK"),
        ("SET c 3", oom),
        ("INCR a", oom),
        ("GET a", "\"1\""),
        ("MULTI", "+OK"),
        ("DEL a", "+QUEUED"),
        ("SET c 3", "+QUEUED"),
        ("EXEC", oom),
        ("GET a", "\"1\""),
        ("DEL a", ":1"),
        ("CONFIG SET maxmemory 0", "+OK"),
        ("SET c 3", "+OK"),
        ("MGET a b c", "[nil, \"2\", \"3\"]"),
    ]);
}

/// The size of an upload: one mebibyte. Two uploads do not fit into `maxmemory-clients`.
const UPLOAD: usize = 1 << 20;

fn start_squeezed() -> Running {
    let running = start();
    let share = format!("CONFIG SET maxmemory-clients {UPLOAD}");
    running.connect().expect(&[(&share, "+OK")]);
    running
}

/// Begins an upload: sends the start of the request, with the first `bytes` bytes of the value.
fn begin_upload(running: &Running, bytes: usize) -> Client<TcpStream> {
    let mut client = running.connect();
    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${UPLOAD}\r\n");
    client.write(head.as_bytes());
    client.write(&vec![b'v'; bytes]);
    client
}

/// Waits until requests use more than three quarters of `maxmemory-clients`. From then on, the server reads only one of
/// the clients with large requests.
fn await_squeeze(control: &mut Client<TcpStream>) {
    loop {
        let info = control.send("INFO memory");
        let field = info.lines().find_map(|l| l.strip_prefix("memory_clients:"));
        let bytes = field.and_then(|text| text.parse::<usize>().ok());
        if bytes.expect("a figure") > UPLOAD / 4 * 3 {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_client_that_trickles_while_it_is_read_alone_does_not_keep_the_others_waiting() {
    let running = start_squeezed();
    let mut control = running.connect();
    let mut slow = begin_upload(&running, UPLOAD / 10 * 8);
    await_squeeze(&mut control);
    let mut stream = slow.socket().try_clone().expect("a second handle");
    let trickle = std::thread::spawn(move || {
        while stream.write_all(b"v").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    // This request fits into the share, but not together with the first one.
    let mut other = running.connect();
    other.push(&[b"SET", b"k", &vec![b'v'; UPLOAD / 2]]);
    assert_eq!(other.read(), "+OK");
    trickle
        .join()
        .expect("the trickle ends with its connection");
    let stats = control.send("INFO stats");
    assert!(stats.contains("evicted_clients:1\r"), "{stats}");
}

#[test]
fn lifting_the_limit_of_clients_memory_lets_a_client_be_read_again_that_had_to_wait() {
    for _ in 0..5 {
        let running = start_squeezed();
        let mut control = running.connect();
        let mut first = begin_upload(&running, UPLOAD / 10 * 8);
        await_squeeze(&mut control);
        let mut second = begin_upload(&running, UPLOAD);
        second.write(b"\r\n");
        std::thread::sleep(Duration::from_millis(100));
        control.expect(&[("CONFIG SET maxmemory-clients 0", "+OK")]);
        if control.send("INFO stats").contains("evicted_clients:1\r") {
            // The machine was so busy that the first client counted as stalled, so the test tries again.
            continue;
        }
        assert_eq!(second.read(), "+OK");
        first.write(&vec![b'v'; UPLOAD - UPLOAD / 10 * 8]);
        first.write(b"\r\n");
        assert_eq!(first.read(), "+OK");
        return;
    }
    panic!("the machine was too busy five times");
}
