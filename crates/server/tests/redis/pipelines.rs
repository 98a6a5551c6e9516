//! Tests of clients that write all requests before they read a reply.

use super::client::{Client, Running, encode, local, small, start_with};
use perdura_logging::Capture;
use perdura_server::{Server, ServerOptions};
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The number of requests. Each is 1 kB long. Together they are 20 MB long, which is more than the buffers of two
/// sockets hold.
const REQUESTS: usize = 20_000;
const KEY: [u8; 1000] = [b'k'; 1000];
/// A value of 10 KiB. The replies with this value have a total length of 200 MB.
const VALUE: [u8; 10 << 10] = [b'v'; 10 << 10];

/// Returns a server with at most `share` bytes of clients' buffers.
fn start(share: u64) -> Running {
    let running = start_with(local());
    let share = format!("CONFIG SET maxmemory-clients {share}");
    running.connect().expect(&[(&share, "+OK")]);
    let set: [&[u8]; 3] = [b"SET", &KEY, &VALUE];
    assert_eq!(running.connect().call(&set), "+OK");
    running
}

/// Writes the whole pipeline. Fails if a write does not progress for a while.
fn write_all(client: &mut Client<TcpStream>, request: &[u8]) -> std::io::Result<()> {
    let patience = Some(Duration::from_secs(20));
    client
        .socket()
        .set_write_timeout(patience)
        .expect("a timeout");
    client.socket().write_all(&request.repeat(REQUESTS))
}

#[test]
fn a_client_that_reads_only_after_it_has_written_a_whole_pipeline_gets_every_reply() {
    let running = start(256 << 20);
    let mut client = running.connect();
    write_all(&mut client, &encode(&[b"GET", &KEY])).expect("the server reads");
    for _ in 0..REQUESTS {
        assert_eq!(client.read_bulk().len(), VALUE.len());
    }
    assert_eq!(client.send("PING"), "+PONG");
}

#[test]
fn a_client_that_half_closes_behind_its_pipeline_gets_every_reply() {
    let running = start(256 << 20);
    let mut client = running.connect();
    write_all(&mut client, &encode(&[b"GET", &KEY])).expect("the server reads");
    let end = std::net::Shutdown::Write;
    client.socket().shutdown(end).expect("a half-close");
    for _ in 0..REQUESTS {
        assert_eq!(client.read_bulk().len(), VALUE.len());
    }
    assert_eq!(client.read(), "closed");
}

#[test]
fn a_pipeline_behind_a_command_that_waits_for_another_client_is_read() {
    let running = start(256 << 20);
    let mut client = running.connect();
    client.push(&[b"BLPOP", b"q", b"0"]);
    write_all(&mut client, &encode(&[b"EXISTS", &KEY])).expect("the server reads");
    assert_eq!(running.connect().send("LPUSH q x"), ":1");
    assert_eq!(client.read(), "[\"q\", \"x\"]");
    for _ in 0..REQUESTS {
        assert_eq!(client.read(), ":1");
    }
}

#[test]
fn when_buffers_are_full_the_largest_holder_goes_and_the_log_names_it_and_the_setting() {
    let log = Capture::default();
    let dir = tempfile::TempDir::new().expect("a directory");
    let data = small(&dir.path().join("data"));
    let server = log.run(|| Server::start(local(), data));
    let running = Running {
        server: server.expect("a server"),
        _dir: dir,
    };
    running.wait_until_loaded(None);
    let mut control = running.connect();
    let set: [&[u8]; 3] = [b"SET", &KEY, &VALUE];
    assert_eq!(control.call(&set), "+OK");
    control.expect(&[("CONFIG SET maxmemory-clients 4mb", "+OK")]);
    let mut other = running.connect();
    let half: Vec<u8> = encode(&[b"GET", &KEY]).repeat(300);
    other.write(&half);
    let mut client = running.connect();
    client.expect(&[("CLIENT SETNAME greedy", "+OK")]);
    let ended = write_all(&mut client, &encode(&[b"GET", &KEY])).expect_err("it is disconnected");
    assert_ne!(
        ended.kind(),
        ErrorKind::WouldBlock,
        "both wait for each other"
    );
    for _ in 0..300 {
        assert_eq!(
            other.read_bulk().len(),
            VALUE.len(),
            "a smaller holder stays"
        );
    }
    assert_eq!(control.figure("evicted_clients"), 1);
    let lines = log.lines();
    let told = lines.iter().find(|line| line.contains("is disconnected"));
    let told = told.expect("a line about it");
    let address = client.socket().local_addr().expect("its address");
    for part in [
        &address.to_string(),
        "\"greedy\"",
        "\"default\"",
        "4194304",
        "maxmemory-clients",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn requests_that_wait_beyond_the_limit_of_one_client_end_its_connection() {
    let running = start_with(ServerOptions {
        query_bytes_max: 2 << 20,
        ..local()
    });
    let mut client = running.connect();
    client.push(&[b"BLPOP", b"q", b"0"]);
    let ended =
        write_all(&mut client, &encode(&[b"EXISTS", &KEY])).expect_err("it is disconnected");
    assert_ne!(
        ended.kind(),
        ErrorKind::WouldBlock,
        "both wait for each other"
    );
    let mut control = running.connect();
    assert_eq!(
        control.figure("client_query_buffer_limit_disconnections"),
        1
    );
}
