use super::client::{Running, encode, local, small, start};
use perdura::Db;
use perdura_server::{OnStop, Server, ServerOptions};
use std::io::Write;
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;

/// A server over the database in a directory, which is made if it is not there.
pub fn started(dir: &TempDir) -> super::client::Running {
    let data = small(&dir.path().join("data"));
    let server = Server::start(local(), data, |_| {}).expect("a server");
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

#[test]
fn a_stopped_database_acknowledges_nothing_more() {
    let dir = TempDir::new().expect("a directory");
    let data = small(&dir.path().join("data"));
    let (give, take) = channel();
    let open = move |progress| {
        let db = Db::open_with_progress(data, progress)?;
        give.send(db.clone()).expect("the test waits");
        Ok(db)
    };
    let stays = ServerOptions {
        on_stop: OnStop::Stay,
        ..local()
    };
    let server = Server::start_with(stays, 1 << 20, open, |_| {}).expect("a server");
    let running = Running { server, _dir: dir };
    running.wait_until_loaded(None);
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
    let server = Server::start_with(local(), 1 << 20, open, |_| {}).expect("a server");
    let running = Running { server, _dir: dir };
    running.wait_until_loaded(None);
    let clients: Vec<_> = (0..4)
        .map(|i| {
            let mut client = running.connect();
            let key = format!("n{i}");
            std::thread::spawn(move || {
                let mut acknowledged = 0u64;
                let pipeline = encode(&[b"INCR", key.as_bytes()]).repeat(50);
                // The end may show as an error, a closed connection or a reset one.
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
