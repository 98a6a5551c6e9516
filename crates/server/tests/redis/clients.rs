//! Tests of CLIENT KILL, PAUSE, REPLY and LIST, and of MONITOR. Also tests that unauthenticated clients, and clients
//! with unread replies, are disconnected.

use super::client::{Client, Running, local, start, start_with};
use perdura_server::ServerOptions;
use perdura_server::settings::{OutputLimit, OutputLimits};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn id_of(client: &mut Client<TcpStream>) -> String {
    client.send("CLIENT ID")[1..].to_owned()
}

#[test]
fn clients_are_killed_by_what_they_are() {
    let running = start();
    let mut killer = running.connect();
    for option in [
        "ID {id}",
        "ADDR {addr}",
        "LADDR {laddr} SKIPME yes",
        "TYPE pubsub",
    ] {
        let mut victim = running.connect();
        let id = id_of(&mut victim);
        let line = victim.send("CLIENT INFO");
        let field = |name: &str| {
            let words = line.split_whitespace();
            let found = words.filter_map(|w| w.strip_prefix(name)).next();
            found.expect("a field").to_owned()
        };
        let (addr, laddr) = (field("addr="), field("laddr="));
        if option.starts_with("TYPE") {
            victim.send("SUBSCRIBE a");
        }
        let option = option.replace("{id}", &id).replace("{addr}", &addr);
        let option = option.replace("{laddr}", &laddr);
        let reply = killer.send(&format!("CLIENT KILL {option}"));
        assert!(reply.starts_with(':') && reply != ":0", "{option}: {reply}");
        assert_eq!(victim.read(), "closed", "{option}");
    }
    killer.expect(&[
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
        (
            "CLIENT KILL ID x",
            "-ERR client-id should be greater than 0",
        ),
        ("CLIENT KILL ID 999999", ":0"),
        ("CLIENT KILL TYPE foo", "-ERR Unknown client type 'foo'"),
        ("CLIENT KILL USER foo", "-ERR No such user 'foo'"),
        ("CLIENT KILL ID 1 SKIPME", "-ERR syntax error"),
        ("CLIENT KILL FOO x", "-ERR syntax error"),
        ("CLIENT LIST TYPE foo", "-ERR Unknown client type 'foo'"),
        ("CLIENT LIST TYPE master", "\"\""),
        ("CLIENT LIST ID", "-ERR syntax error"),
        ("CLIENT LIST ID x", "-ERR Invalid client ID"),
        ("CLIENT UNBLOCK 1", ":0"),
        (
            "CLIENT UNBLOCK 1 foo",
            "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
        ),
        ("CLIENT GETREDIR", ":-1"),
        ("CLIENT TRACKING off", "+OK"),
    ]);
    let id = id_of(&mut killer);
    assert!(
        killer
            .send(&format!("CLIENT LIST ID {id}"))
            .starts_with(&format!("\"id={id} "))
    );
    let reply = killer.send(&format!("CLIENT KILL ID {id} SKIPME no"));
    assert_eq!(reply, ":1", "it is told before it goes");
    assert_eq!(killer.read(), "closed");
}

#[test]
fn a_pause_keeps_back_writes_or_everything() {
    let running = start();
    let (mut client, mut other) = (running.connect(), running.connect());
    other.expect(&[("SET k 1", "+OK"), ("CLIENT PAUSE 10000 WRITE", "+OK")]);
    client.expect(&[("GET k", "\"1\""), ("MULTI", "+OK"), ("GET k", "+QUEUED")]);
    client.expect(&[("EXEC", "[\"1\"]")]);
    client.write(b"SET k 2\r\nGET k\r\n");
    sleep(Duration::from_millis(50));
    other.expect(&[("GET k", "\"1\""), ("CLIENT UNPAUSE", "+OK")]);
    assert_eq!(
        (client.read(), client.read()),
        ("+OK".into(), "\"2\"".into())
    );
    let begin = Instant::now();
    other.expect(&[("CLIENT PAUSE 100", "+OK"), ("GET k", "\"2\"")]);
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(95), "{took:?}");
    other.expect(&[
        (
            "CLIENT PAUSE x",
            "-ERR timeout is not an integer or out of range",
        ),
        ("CLIENT PAUSE -1", "-ERR timeout is negative"),
        (
            "CLIENT PAUSE 1 FOO",
            "-ERR CLIENT PAUSE mode must be WRITE or ALL",
        ),
    ]);
}

#[test]
fn a_client_may_want_no_replies() {
    let running = start();
    let mut client = running.connect();
    client.write(b"CLIENT REPLY OFF\r\nSET k 1\r\nFOO\r\nCLIENT REPLY ON\r\n");
    assert_eq!(client.read(), "+OK");
    client.write(b"CLIENT REPLY SKIP\r\nINCR k\r\nINCR k\r\n");
    assert_eq!(client.read(), ":3");
    client.expect(&[("CLIENT REPLY foo", "-ERR syntax error"), ("PING", "+PONG")]);
}

#[test]
fn a_client_that_wants_no_replies_gets_none_later_either() {
    let running = start();
    let (mut client, mut other) = (running.connect(), running.connect());
    client.write(b"PING\r\nCLIENT REPLY OFF\r\nSET k v\r\n");
    sleep(Duration::from_millis(50));
    client.write(b"SAVE\r\nCLIENT REPLY ON\r\n");
    assert_eq!(
        (client.read(), client.read()),
        ("+PONG".into(), "+OK".into())
    );
    client.write(b"CLIENT REPLY SKIP\r\nBLPOP l 0\r\n");
    sleep(Duration::from_millis(50));
    other.expect(&[("RPUSH l 1", ":1"), ("EXISTS l", ":0")]);
    client.expect(&[("GET k", "\"v\"")]);
}

#[test]
fn who_monitors_sees_its_own_commands_and_nobody_else_does() {
    let running = start();
    let (mut watcher, mut client) = (running.connect(), running.connect());
    watcher.expect(&[("MONITOR", "+OK"), ("PING", "+PONG")]);
    client.expect(&[("GET k", "nil"), ("GET k", "nil")]);
    for shown in ["\"PING\"", "\"GET\" \"k\"", "\"GET\" \"k\""] {
        let line = watcher.read();
        assert!(line.ends_with(shown), "{line}");
    }
}

#[test]
fn who_monitors_and_does_not_read_is_disconnected() {
    let limit = OutputLimit {
        hard_bytes: 1 << 20,
        soft_bytes: 0,
        soft_seconds: 0,
    };
    let running = start_with(ServerOptions {
        output_limits: OutputLimits {
            replica: limit,
            ..OutputLimits::default()
        },
        ..local()
    });
    let (mut watcher, mut client) = (running.connect(), running.connect());
    watcher.expect(&[("MONITOR", "+OK")]);
    let text = vec![b'x'; 500_000];
    let gone = (0..200).any(|_| {
        client.call(&[b"ECHO", &text]);
        !client.send("CLIENT LIST").contains("cmd=monitor")
    });
    assert!(gone, "100 MB were kept for somebody who does not read");
}

#[test]
fn who_monitors_sees_what_runs_but_no_secrets() {
    let running = start();
    let (mut watcher, mut client) = (running.connect(), running.connect());
    watcher.expect(&[("MONITOR", "+OK")]);
    client.send("SELECT 2");
    client.call(&[b"SET", b"k", b"a\0\"\n"]);
    client.expect(&[("MULTI", "+OK"), ("GET k", "+QUEUED")]);
    client.send("EXEC");
    client.send("AUTH secret");
    client.send("CONFIG GET save");
    client.send("GET");
    client.expect(&[("PING", "+PONG")]);
    for shown in [
        "[2 {peer}] \"SELECT\" \"2\"",
        "[2 {peer}] \"SET\" \"k\" \"a\\x00\\\"\\n\"",
        "[2 {peer}] \"MULTI\"",
        "[2 {peer}] \"GET\" \"k\"",
        "[2 {peer}] \"EXEC\"",
        "[2 {peer}] \"AUTH\" \"(redacted)\"",
        "[2 {peer}] \"PING\"",
    ] {
        let peer = client
            .socket()
            .local_addr()
            .expect("an address")
            .to_string();
        let line = watcher.read();
        let (time, rest) = line.split_once(' ').expect("a time");
        assert!(time.starts_with('+') && time.contains('.'), "{line}");
        assert_eq!(rest, shown.replace("{peer}", &peer));
    }
}

fn slow_listener(running: &Running) -> Client<TcpStream> {
    let mut listener = running.connect();
    listener.send("SUBSCRIBE a");
    listener
}

#[test]
fn a_listener_that_does_not_read_is_disconnected() {
    let limit = |hard_bytes, soft_bytes| OutputLimits {
        pubsub: OutputLimit {
            hard_bytes,
            soft_bytes,
            soft_seconds: 0,
        },
        ..OutputLimits::default()
    };
    for limits in [limit(4 << 20, 0), limit(0, 4 << 20)] {
        let running = start_with(ServerOptions {
            output_limits: limits,
            ..local()
        });
        let _listener = slow_listener(&running);
        let mut speaker = running.connect();
        let text = vec![b'x'; 500_000];
        let heard = (0..200).any(|_| {
            sleep(Duration::from_millis(1));
            speaker.call(&[b"PUBLISH", b"a", &text]) == ":0"
        });
        assert!(heard, "100 MB were kept for somebody who does not read");
        speaker.expect(&[("PUBSUB CHANNELS", "[]")]);
    }
}

#[test]
fn a_stranger_costs_little() {
    let running = start_with(ServerOptions {
        requirepass: Some(String::from("secret")),
        ..local()
    });
    // This request is never complete.
    let mut client = running.connect();
    client.write(b"*3\r\n$4\r\nAUTH\r\n$3000\r\n");
    client.write(&[b'x'; 2000]);
    let mut talker = running.connect();
    let request = b"GET k\r\n".repeat(20_000);
    talker.socket().set_nonblocking(true).expect("a setting");
    // The replies are never read, so after a while the server stops reading requests.
    let _ = std::io::Write::write(talker.socket(), &request);
    sleep(Duration::from_millis(100));
    let mut admin = running.connect();
    admin.expect(&[("AUTH secret", "+OK")]);
    let list = admin.send("CLIENT LIST");
    for line in list.lines().filter(|line| line.contains("cmd=NULL")) {
        let total: usize = line
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("tot-mem="))
            .map(|bytes| bytes.parse::<usize>().expect("a number"))
            .sum();
        assert!(total <= 15 * 1024, "{line}");
    }
    let mut greedy = running.connect();
    greedy.write(b"*2\r\n$4\r\nAUTH\r\n$9000\r\n");
    let refused = "-ERR the request is too big (client-query-buffer-limit)";
    assert_eq!(greedy.read(), refused);
    assert_eq!(greedy.read(), "closed");
}

/// Returns the resident memory of this process, bytes.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("a Linux");
    let pages = text.split(' ').nth(1).expect("a second number");
    pages.parse::<usize>().expect("a number") * 4096
}

#[test]
#[ignore = "takes 10,000 descriptors and wants the process for itself"]
fn an_idle_client_takes_less_than_ten_kibibytes() {
    const CLIENTS: usize = 4_500;
    let running = start_with(ServerOptions {
        maxclients: 20_000,
        ..local()
    });
    let before = resident_bytes();
    let address = running.server.local_addr().expect("an address");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut stream = TcpStream::connect(address).expect("a connection");
        std::io::Write::write_all(&mut stream, b"PING\r\n").expect("a write");
        let mut reply = [0; 7];
        std::io::Read::read_exact(&mut stream, &mut reply).expect("a reply");
        clients.push(stream);
    }
    sleep(Duration::from_secs(4));
    let grown = resident_bytes().saturating_sub(before);
    println!("{CLIENTS} idle clients: {} KiB", grown / 1024);
    assert!(grown < CLIENTS * 10 * 1024, "{grown} bytes");
}
