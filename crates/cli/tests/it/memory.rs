//! Tests that the memory for clients stays within its share of `maxmemory`.
//!
//! The tests compare the peak resident memory (`VmHWM`) of the loaded and the idle server. Every Linux reports this
//! peak, while not every Linux offers memory cgroups. With `PERDURA_MEMORY_LONG=1`, the tests send as much data as a
//! real attack.

use crate::support::{Client, Reply, Server, number_from_env, request};
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// The setting `maxmemory` of the tested servers, in bytes. Clients may use the default share, which is 5 %.
const LIMIT: u64 = 1024 * MIB;
const SHARE: u64 = LIMIT / 100 * 5;
/// The memory that a server may use beyond the budget in [`Watched::check`], in bytes.
const SLACK: u64 = LIMIT / 100;

struct Watched {
    server: Server,
    idle: u64,
    _dir: TempDir,
}

fn start() -> Watched {
    let dir = TempDir::new().unwrap();
    let limit = format!("{LIMIT}");
    let server = Server::start(&dir.path().join("data"), &["--maxmemory", &limit]);
    let idle = peak(&server);
    Watched {
        server,
        idle,
        _dir: dir,
    }
}

fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib << 10
}

fn figure(server: &Server, section: &str, name: &str) -> u64 {
    let Reply::Bulk(Some(info)) = server.ask(&["INFO", section]) else {
        panic!("INFO is a bulk");
    };
    let info = String::from_utf8(info).unwrap();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
}

impl Watched {
    /// Fails if the server's memory has grown by more than the sum of the clients' share, `data` bytes and the slack.
    fn check(&self, data: u64) {
        let took = peak(&self.server) - self.idle;
        let budget = SHARE + data;
        println!("{} MiB of {} MiB", took / MIB, budget / MIB);
        assert!(
            took <= budget + SLACK,
            "{took} bytes, and the budget is {budget}"
        );
        assert_eq!(self.server.ask(&["PING"]), Reply::Status("PONG".into()));
    }

    fn evicted(&self) -> u64 {
        figure(&self.server, "stats", "evicted_clients")
    }
}

fn is_long() -> bool {
    number_from_env("PERDURA_MEMORY_LONG", 0) > 0
}

/// Sends bytes until the server closes the connection, or accepts nothing for a while.
fn pour(socket: &mut TcpStream, bytes: &[u8]) {
    let patience = Some(Duration::from_millis(300));
    socket.set_write_timeout(patience).unwrap();
    for part in bytes.chunks(64 << 10) {
        match socket.write_all(part) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return,
            Err(_) => return,
        }
    }
}

#[test]
fn monitors_that_do_not_read_stay_within_the_share_of_clients() {
    let watched = start();
    let mut monitors = Vec::new();
    for _ in 0..10 {
        let mut client = watched.server.connect().unwrap();
        assert_eq!(
            client.ask(&["MONITOR"]).unwrap(),
            Reply::Status("OK".into())
        );
        monitors.push(client);
    }
    let mut writer = watched.server.connect().unwrap();
    let value = vec![b'v'; 64 << 10];
    let total = if is_long() { 2048 } else { 256 } * MIB;
    for _ in 0..total / 10 / (64 << 10) {
        writer.send(&request(&[b"SET", b"k", &value])).unwrap();
        assert_eq!(writer.reply().unwrap(), Reply::Status("OK".into()));
    }
    watched.check(0);
    assert!(watched.evicted() > 0, "nobody was in the way");
}

#[test]
fn half_sent_values_stay_within_the_share_of_clients_and_spare_who_is_not_to_be_evicted() {
    let watched = start();
    let mut spared = watched.server.connect().unwrap();
    let on = spared.ask(&["CLIENT", "NO-EVICT", "ON"]).unwrap();
    assert_eq!(on, Reply::Status("OK".into()));
    let value = vec![b'v'; 60 << 20];
    let whole = request(&[b"SET", b"k", &value]);
    let half = &whole[..if is_long() { 59 << 20 } else { 6 << 20 }];
    let kept = request(&[b"SET", b"spared", &value[..1 << 20]]);
    let (first, rest) = kept.split_at(1000);
    spared.send(first).unwrap();
    let port = watched.server.port();
    let clients: Vec<_> = (0..40)
        .map(|_| {
            let half = half.to_vec();
            std::thread::spawn(move || {
                let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
                pour(&mut socket, &half);
                socket
            })
        })
        .collect();
    let sockets: Vec<TcpStream> = clients.into_iter().map(|c| c.join().unwrap()).collect();
    watched.check(0);
    // The client with the largest buffer no longer sends. The server must disconnect it, so that the others can
    // continue.
    let begin = Instant::now();
    while watched.evicted() == 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "all wait for ever"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    spared.send(rest).unwrap();
    assert_eq!(spared.reply().unwrap(), Reply::Status("OK".into()));
    drop(sockets);
}

#[test]
fn uploads_that_wait_for_the_server_stay_within_the_share_of_clients_and_nobody_is_closed() {
    let watched = start();
    let pause = ["CLIENT", "PAUSE", "60000", "WRITE"];
    assert_eq!(watched.server.ask(&pause), Reply::Status("OK".into()));
    let mut clients: Vec<_> = (0..12)
        .map(|i| {
            let mut client = watched.server.connect().unwrap();
            std::thread::spawn(move || {
                let key = format!("k{i}");
                let value = vec![b'v'; 8 << 20];
                client.send(&request(&[b"SET", key.as_bytes(), &value]))?;
                client.reply()
            })
        })
        .collect();
    // Half of the clients are enough to fill the clients' share. The server must not read from the other half until the
    // commands of the first half have run.
    std::thread::sleep(Duration::from_millis(1500));
    watched.check(0);
    let unpaused = watched.server.ask(&["CLIENT", "UNPAUSE"]);
    assert_eq!(unpaused, Reply::Status("OK".into()));
    for client in clients.drain(..) {
        let reply = client.join().unwrap();
        assert_eq!(reply.unwrap(), Reply::Status("OK".into()));
    }
    assert_eq!(watched.evicted(), 0);
}

#[test]
fn large_replies_that_are_not_read_stay_within_the_share_of_clients() {
    let watched = start();
    let value = vec![b'v'; 8 << 20];
    let mut writer = watched.server.connect().unwrap();
    writer.send(&request(&[b"SET", b"k", &value])).unwrap();
    assert_eq!(writer.reply().unwrap(), Reply::Status("OK".into()));
    // The value, its request, its before-image and its log record each need memory.
    let data = 5 * 8 * MIB;
    let readers: Vec<Client> = (0..40)
        .map(|_| {
            let mut reader = watched.server.connect().unwrap();
            reader.send(&request(&[b"GET", b"k"])).unwrap();
            reader
        })
        .collect();
    assert_eq!(watched.server.ask(&["PING"]), Reply::Status("PONG".into()));
    let begin = Instant::now();
    while watched.evicted() == 0 {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "nobody was in the way"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    watched.check(data);
    drop(readers);
}

#[test]
fn a_block_of_a_million_commands_stays_within_the_share_of_clients() {
    let watched = start();
    let mut client = TcpStream::connect(("127.0.0.1", watched.server.port())).unwrap();
    let mut commands = request(&[b"MULTI"]);
    let count = if is_long() { 1_000_000 } else { 300_000 };
    for n in 0..count {
        let key = format!("key:{n:012}");
        commands.extend_from_slice(&request(&[b"SET", key.as_bytes(), &[b'v'; 100]]));
    }
    // The replies that the client does not read count against it too. The server must stop reading from it, or
    // disconnect it.
    pour(&mut client, &commands);
    watched.check(0);
}

#[test]
fn data_at_the_limit_refuses_writes_and_disconnects_nobody() {
    let watched = start();
    let mut idle = watched.server.connect().unwrap();
    assert_eq!(idle.ask(&["PING"]).unwrap(), Reply::Status("PONG".into()));
    let mut writer = watched.server.connect().unwrap();
    let limit = format!("{}", watched.idle / 4);
    let set = writer.ask(&["CONFIG", "SET", "maxmemory", &limit]).unwrap();
    assert_eq!(set, Reply::Status("OK".into()));
    let value = vec![b'v'; 64 << 10];
    let refused = (0..20_000).any(|n| {
        let key = format!("k{n}");
        writer
            .send(&request(&[b"SET", key.as_bytes(), &value]))
            .unwrap();
        matches!(writer.reply().unwrap(), Reply::Error(text) if text.starts_with("OOM "))
    });
    assert!(refused, "there is no limit");
    assert_eq!(watched.evicted(), 0);
    assert_eq!(idle.ask(&["PING"]).unwrap(), Reply::Status("PONG".into()));
}
