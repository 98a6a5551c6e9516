use super::client::{Client, Running, encode, local, small, start};
use perdura::{Db, Durability};
use perdura_server::{OnStop, Server, ServerOptions};
use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Returns a server over the database in `dir`. The database is made if it does not exist.
pub fn started(dir: &TempDir) -> super::client::Running {
    let data = small(&dir.path().join("data"));
    let server = Server::start(local(), data).expect("a server");
    let running = super::client::Running {
        server,
        _dir: TempDir::new().expect("another directory"),
    };
    running.wait_until_loaded(None);
    running
}

#[test]
fn what_was_written_is_there_after_every_kind_of_end() {
    let dir = TempDir::new().expect("a directory");
    let running = started(&dir);
    let mut client = running.connect();
    client.expect(&[("SET k 1", "+OK"), ("SET ttl v EXAT 4000000000", "+OK")]);
    assert_eq!(client.send("SHUTDOWN NOSAVE"), "closed");
    running.server.join().expect("an end without a checkpoint");

    let running = started(&dir);
    let mut client = running.connect();
    client.expect(&[
        ("GET k", "\"1\""),
        ("EXPIRETIME ttl", ":4000000000"),
        ("INCR k", ":2"),
    ]);
    client.expect(&[
        ("SHUTDOWN FOO", "-ERR syntax error"),
        ("SHUTDOWN SAVE NOSAVE", "-ERR syntax error"),
        ("SHUTDOWN ABORT", "-ERR No shutdown in progress."),
    ]);
    assert_eq!(client.send("SHUTDOWN"), "closed");
    running.server.join().expect("an end with a checkpoint");

    let running = started(&dir);
    running
        .connect()
        .expect(&[("GET k", "\"2\""), ("DBSIZE", ":2")]);
    running.server.stop().expect("a stop");

    let running = started(&dir);
    let mut client = running.connect();
    client.expect(&[("GET k", "\"2\""), ("DBSIZE", ":2"), ("MULTI", "+OK")]);
    for line in ["SET gone 1", "FLUSHALL", "SET kept 1"] {
        assert_eq!(client.send(line), "+QUEUED");
    }
    assert_eq!(client.send("EXEC"), "[+OK, +OK, +OK]");
    assert_eq!(client.send("SHUTDOWN NOSAVE"), "closed");
    running.server.join().expect("an end without a checkpoint");

    let running = started(&dir);
    running.connect().expect(&[
        ("MGET k gone kept", "[nil, nil, \"1\"]"),
        ("DBSIZE", ":1"),
        ("FLUSHALL", "+OK"),
    ]);
    running.server.stop().expect("a stop");
}

#[test]
fn a_pipeline_before_shutdown_is_answered() {
    let running = start();
    let mut client = running.connect();
    for i in 0..500 {
        client.push(&[b"SET", format!("k{i}").as_bytes(), b"v"]);
    }
    client.push(&[b"SHUTDOWN"]);
    for _ in 0..500 {
        assert_eq!(client.read(), "+OK");
    }
    assert_eq!(client.read(), "closed");
    running.server.join().expect("an end");
}

#[test]
fn clients_at_both_levels_see_each_other() {
    let running = start();
    let (mut fast, mut safe) = (running.connect(), running.connect());
    fast.expect(&[("CLIENT DURABILITY mem", "+OK")]);
    for i in 0..200 {
        fast.expect(&[("INCR n", format!(":{}", i * 2 + 1).as_str())]);
        safe.expect(&[("INCR n", format!(":{}", i * 2 + 2).as_str())]);
    }
}

/// Returns a server that writes its log at most once a second.
fn slow(options: ServerOptions) -> Running {
    let dir = TempDir::new().expect("a directory");
    let mut data = small(&dir.path().join("data"));
    data.flush_every = Duration::from_secs(1);
    let server = Server::start(options, data).expect("a server");
    let running = Running { server, _dir: dir };
    running.wait_until_loaded(None);
    running
}

#[test]
fn waitdur_is_answered_when_the_rung_is_reached_or_the_time_is_over() {
    let running = slow(ServerOptions {
        durability: Durability::Mem,
        ..local()
    });
    let mut client = running.connect();
    client.expect(&[
        ("CLIENT DURABILITY", "\"mem\""),
        ("SET k v", "+OK"),
        ("WAITDUR disk 0", ":1"),
        // The log has just been written, and will not be written again for a second.
        ("SET k w", "+OK"),
        ("WAITDUR mem 0", ":1"),
    ]);
    let begun = Instant::now();
    client.expect(&[("WAITDUR disk 100", ":0")]);
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(100), "{waited:?}");
    let unanswered = client.send("WAITDUR mirror 0");
    assert_eq!(unanswered, ":1", "without nodes the disk counts");
    client.expect(&[
        ("SET k x", "+OK"),
        ("WAITDUR disk 0", ":1"),
        ("GET k", "\"x\""),
    ]);
}

/// Waits until one client is blocked. Returns that client's line of CLIENT LIST, and its id. The replies to
/// CLIENT LIST wait for no write.
fn await_blocked(other: &mut Client<TcpStream>) -> (String, String) {
    let begun = Instant::now();
    loop {
        let list = other.send("CLIENT LIST");
        if let Some(line) = list.lines().find(|line| line.contains(" flags=b ")) {
            let line = line.trim_start_matches('"').to_owned();
            let id = line[3..line.find(' ').expect("a blank")].to_owned();
            return (line, id);
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{list}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until INFO shows fields. It shows older figures of another loop that does not end its round in time.
///
/// The section `clients` shows no data. So its reply waits for no write.
fn await_fields(other: &mut Client<TcpStream>, fields: &[&str]) {
    let begun = Instant::now();
    let mut info = other.send("INFO clients");
    while !fields.iter().all(|field| info.contains(field)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{info}");
        std::thread::sleep(Duration::from_millis(1));
        info = other.send("INFO clients");
    }
}

/// Returns a client that waits in WAITDUR until its SET is on disk. The log reaches the disk only after a while.
fn waiting(running: &Running, milliseconds: &[u8]) -> Client<TcpStream> {
    let mut client = running.connect();
    client.expect(&[
        ("CLIENT DURABILITY mem", "+OK"),
        ("SET k v", "+OK"),
        ("WAITDUR disk 0", ":1"),
        ("SET k w", "+OK"),
    ]);
    client.push(&[b"WAITDUR", b"disk", milliseconds]);
    client
}

#[test]
fn a_client_in_waitdur_is_counted_and_can_be_released() {
    let running = slow(local());
    let mut other = running.connect();
    for (how, answer) in [
        ("TIMEOUT", ":0"),
        ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"),
    ] {
        let mut client = waiting(&running, b"60000");
        // A request that follows WAITDUR in a pipeline runs after the wait.
        client.push(&[b"GET", b"k"]);
        let (line, id) = await_blocked(&mut other);
        assert!(line.contains(" durability=mem"), "{line}");
        await_fields(
            &mut other,
            &["blocked_clients:1", "clients_in_timeout_table:1"],
        );
        assert_eq!(other.send(&format!("CLIENT UNBLOCK {id} {how}")), ":1");
        assert_eq!(client.read(), answer);
        assert_eq!(client.read(), "\"w\"");
    }
    let _gone = waiting(&running, b"0");
    let (_, id) = await_blocked(&mut other);
    assert_eq!(other.send(&format!("CLIENT KILL ID {id}")), ":1");
    await_fields(&mut other, &["blocked_clients:0"]);
}

/// Returns a server and a channel that delivers the database. The server continues to answer after the database stops.
fn with_handle(durability: Durability, flush_every: Duration) -> (Running, Receiver<Db>) {
    let dir = TempDir::new().expect("a directory");
    let mut data = small(&dir.path().join("data"));
    data.flush_every = flush_every;
    let (give, take) = channel();
    let open = move |progress| {
        let db = Db::open_with_progress(data, progress)?;
        give.send(db.clone()).expect("the test waits");
        Ok(db)
    };
    let stays = ServerOptions {
        on_stop: OnStop::Stay,
        durability,
        ..local()
    };
    let server = Server::start_with(stays, 1 << 20, open).expect("a server");
    let running = Running { server, _dir: dir };
    running.wait_until_loaded(None);
    (running, take)
}

#[test]
fn a_client_in_waitdur_is_told_when_the_database_stops() {
    let (running, take) = with_handle(Durability::Mem, Duration::from_secs(1));
    let mut client = running.connect();
    client.expect(&[
        ("SET k v", "+OK"),
        ("WAITDUR disk 0", ":1"),
        ("SET k w", "+OK"),
    ]);
    client.push(&[b"WAITDUR", b"disk", b"0"]);
    await_blocked(&mut running.connect());
    take.recv().expect("a handle").abandon();
    let reply = client.read();
    assert!(
        reply == ":1" || reply.starts_with("-ERR the database has stopped: "),
        "{reply}"
    );
    let reply = running.connect().send("WAITDUR disk 0");
    assert!(
        reply.starts_with("-ERR the database has stopped: "),
        "{reply}"
    );
}

#[test]
fn a_stopped_database_acknowledges_nothing_more() {
    let (running, take) = with_handle(Durability::Disk, Duration::ZERO);
    let mut client = running.connect();
    client.expect(&[("SET k v", "+OK")]);
    let db = take.recv().expect("a handle");
    db.close().expect("closed behind the server's back");
    for line in ["SET k w", "INCR n", "FLUSHALL", "BGSAVE"] {
        let reply = running.connect().send(line);
        assert!(
            reply.starts_with("-ERR the database has stopped: "),
            "{line}: {reply}"
        );
    }
    let info = running.connect().send("INFO server");
    assert!(info.contains("stopped:it was closed"), "{info}");
}

#[test]
fn what_a_stopping_database_acknowledged_is_there_afterwards() {
    let dir = TempDir::new().expect("a directory");
    let data = small(&dir.path().join("data"));
    let (give, take) = channel();
    let theirs = data.clone();
    let open = move |progress| {
        let db = Db::open_with_progress(theirs, progress)?;
        give.send(db.clone()).expect("the test waits");
        Ok(db)
    };
    let server = Server::start_with(local(), 1 << 20, open).expect("a server");
    let running = Running { server, _dir: dir };
    running.wait_until_loaded(None);
    let clients: Vec<_> = (0..4)
        .map(|i| {
            let mut client = running.connect();
            let key = format!("n{i}");
            std::thread::spawn(move || {
                let mut acknowledged = 0u64;
                let pipeline = encode(&[b"INCR", key.as_bytes()]).repeat(50);
                // The server's end may show as an error, as a closed connection or as a reset connection.
                while client.socket().write_all(&pipeline).is_ok() {
                    for _ in 0..50 {
                        let reply = client.read();
                        let Some(count) = reply.strip_prefix(':') else {
                            let stopped = reply.starts_with("-ERR the database has stopped: ");
                            assert!(stopped || reply == "closed", "{reply}");
                            return acknowledged;
                        };
                        acknowledged = count.parse().expect("a count");
                    }
                }
                acknowledged
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    let db = take.recv().expect("a handle");
    db.close().expect("closed behind the server's back");
    let acknowledged: Vec<u64> = clients
        .into_iter()
        .map(|client| client.join().expect("a client"))
        .collect();
    drop(running.server.stop());
    let db = Db::open(data).expect("the database again");
    for (i, acknowledged) in acknowledged.into_iter().enumerate() {
        let key = format!("n{i}");
        let parts = [db.partition_of(key.as_bytes())].into_iter().collect();
        let read = db.transact(&parts, |tx| {
            let mut value = Vec::new();
            if let Some(row) = tx.get(db.database(0), key.as_bytes())? {
                row.copy_value(&mut value);
            }
            Ok::<_, perdura::Error>(value)
        });
        let (value, _) = read.expect("a read");
        let stored: u64 = String::from_utf8_lossy(&value).parse().expect("a count");
        assert!(
            acknowledged > 0 && stored >= acknowledged,
            "{stored} < {acknowledged}"
        );
    }
}
