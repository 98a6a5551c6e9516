//! A server is killed under load, and its database is restored from the archive. Backups are made and listed while
//! the server runs.
//!
//! A restore without the database's disk has only the writes that reached the archive. So the last writes before the
//! kill may be missing. The restored writes of a client must be its first ones, in order and without a gap. After a
//! restart, the server archives the rest of the log. A restored database must then equal the server's database.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{Client, Reply, Server, arg, ended, number_from_env};

const CLIENTS: u64 = 4;

pub fn done(args: &[&str]) -> String {
    let (code, text) = ended(args);
    assert_eq!(code, 0, "{args:?}: {text}");
    text
}

/// Returns the value of the field `archive_NAME` of INFO archive.
pub fn field(server: &Server, name: &str) -> String {
    let Reply::Bulk(Some(info)) = server.ask(&["INFO", "archive"]) else {
        panic!("no INFO");
    };
    let info = String::from_utf8_lossy(&info).into_owned();
    let name = format!("archive_{name}:");
    let line = info.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no field {name} in {info}"))
        .to_owned()
}

pub fn wait_until(server: &Server, name: &str, holds: impl Fn(&str) -> bool) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let value = field(server, name);
        if holds(&value) {
            return value;
        }
        assert!(Instant::now() < until, "{name} is {value}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets each client append numbers to its own list and count the acknowledged numbers, until the server is killed.
fn load(server: Server, answered: &[AtomicU64], lasts: Duration) {
    let (port, is_over) = (server.port(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (id, answered) in answered.iter().enumerate() {
            let is_over = &is_over;
            scope.spawn(move || {
                let Ok(mut client) = Client::connect(port) else {
                    return;
                };
                let (list, key) = (format!("list {id}"), format!("key {id}"));
                let mut number = answered.load(Ordering::Relaxed);
                while !is_over.load(Ordering::Relaxed) {
                    let text = number.to_string();
                    let value = text.repeat(200);
                    let block: [&[&str]; 4] = [
                        &["MULTI"],
                        &["RPUSH", &list, &text],
                        &["SET", &key, &value],
                        &["EXEC"],
                    ];
                    for words in block {
                        if client.ask(words).is_err() {
                            return;
                        }
                    }
                    number += 1;
                    answered.store(number, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(lasts);
        server.kill();
        is_over.store(true, Ordering::Relaxed);
    });
}

fn numbers(server: &Server, id: usize) -> u64 {
    let list = format!("list {id}");
    let Reply::Array(items) = server.ask(&["LRANGE", &list, "0", "-1"]) else {
        panic!("no list {id}");
    };
    for (number, item) in items.iter().enumerate() {
        let expected = Reply::Bulk(Some(number.to_string().into_bytes()));
        assert_eq!(
            *item, expected,
            "list {id} has its client's writes in order"
        );
    }
    let count = u64::try_from(items.len()).unwrap();
    if let Some(last) = count.checked_sub(1) {
        let value = Reply::Bulk(Some(last.to_string().repeat(200).into_bytes()));
        let key = format!("key {id}");
        assert_eq!(server.ask(&["GET", &key]), value, "both or none of a block");
    }
    count
}

pub fn restore(archive: &Path, to: &Path) {
    drop(std::fs::remove_dir_all(to));
    done(&["restore", "--from", arg(archive), "--to", arg(to)]);
}

/// `PERDURA_KILL_ARCHIVE_ROUNDS=20` gives the long form.
#[test]
fn a_server_killed_under_load_is_restored_from_its_archive_again_and_again() {
    let rounds = number_from_env("PERDURA_KILL_ARCHIVE_ROUNDS", 3);
    let dir = tempfile::tempdir().unwrap();
    let [data, archive, to] = ["data", "archive", "restored"].map(|name| dir.path().join(name));
    let with_archive = ["--archive", arg(&archive), "--checkpoint-log-size", "8mb"];
    let answered: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let mut rng = fastrand::Rng::with_seed(number_from_env("PERDURA_KILL_SEED", 1));
    let mut restored_rows = 0;
    for round in 0..rounds {
        let server = Server::start(&data, &with_archive);
        if round == 0 {
            wait_until(&server, "backups", |backups| backups != "0");
        }
        load(server, &answered, Duration::from_millis(rng.u64(500..2500)));
        restore(&archive, &to);
        let server = Server::start(&to, &[]);
        for (id, answered) in answered.iter().enumerate() {
            let count = numbers(&server, id);
            let most = answered.load(Ordering::Relaxed) + 1;
            assert!(
                count <= most,
                "round {round}: {count} of {most} writes of client {id}"
            );
            restored_rows += count;
        }
        server.kill();
        // The next life archives the rest of the log, so the restore after it must have every write.
        let server = Server::start(&data, &with_archive);
        for (id, answered) in answered.iter().enumerate() {
            let kept = numbers(&server, id);
            assert!(
                kept >= answered.load(Ordering::Relaxed),
                "round {round}, client {id}"
            );
            answered.store(kept, Ordering::Relaxed);
        }
        assert_eq!(field(&server, "proof_failed"), "0");
        server.stop();
        restore(&archive, &to);
        let digests = [&data, &to].map(|dir| done(&["digest", "--data", arg(dir)]));
        assert_eq!(digests[0], digests[1], "round {round}");
    }
    assert!(restored_rows > 0, "something was restored");
    done(&["archive", "verify", "--archive", arg(&archive)]);
}

#[test]
fn a_running_server_makes_and_lists_backups_and_proves_its_checkpoints() {
    let dir = tempfile::tempdir().unwrap();
    let [data, archive, to] = ["data", "archive", "restored"].map(|name| dir.path().join(name));
    let server = Server::start(&data, &["--archive", arg(&archive)]);
    server.ask(&["SET", "one", "1"]);
    wait_until(&server, "restorable", |restorable| restorable == "yes");
    server.ask(&["SET", "two", "2"]);
    server.ask(&["RPUSH", "list", "a", "b"]);
    let mut other = Client::connect_to(server.port(), 3).unwrap();
    other.ask(&["HSET", "hash", "field", "value"]).unwrap();
    let address = format!("127.0.0.1:{}", server.port());
    let made = done(&["backup", "create", "--server", &address]);
    assert!(made.starts_with("backup    backup-"), "{made}");
    let listed = done(&["backup", "list", "--server", &address]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let name = made
        .split([' ', ':'])
        .find(|word| word.starts_with("backup-"));
    assert!(listed.contains(name.unwrap()), "{listed} {made}");
    assert_eq!(
        wait_until(&server, "proof_result", |result| result == "holds"),
        "holds"
    );
    assert_eq!(field(&server, "alarm"), "");

    let drill = [
        "archive",
        "drill",
        "--archive",
        arg(&archive),
        "--to",
        arg(&to),
    ];
    let drilled = done(&drill);
    assert!(drilled.contains("holds") && !to.exists(), "{drilled}");
    assert!(
        drilled.contains("\ncounted   db0: 2 strings, 1 lists; db3: 1 hashes\n"),
        "{drilled}"
    );
    let status = done(&["archive", "status", "--archive", arg(&archive)]);
    let reported = |what| status.lines().find(|line| line.starts_with(what));
    for what in ["proof", "drill"] {
        let holds = reported(what).is_some_and(|line| line.contains("holds"));
        assert!(holds, "{status}");
    }
    wait_until(&server, "drill_result", |result| result == "holds");

    let stopped = [
        "backup",
        "create",
        "--data",
        arg(&data),
        "--archive",
        arg(&archive),
    ];
    let (code, text) = ended(&stopped);
    assert!(code != 0 && text.contains("--server"), "{text}");
    let (code, text) = ended(&["backup", "create", "--data", arg(&data)]);
    assert!(code == 2 && text.contains("--server"), "{text}");
    assert!(status.contains("\nrestore   about "), "{status}");
    server.kill();
    let dry = [
        "restore",
        "--dry-run",
        "--from",
        arg(&archive),
        "--to",
        arg(&to),
    ];
    for more in [&[][..], &["--log-dir", arg(&data)]] {
        let said = done(&[&dry[..], more].concat());
        assert!(said.starts_with("would be  epoch "), "{said}");
        assert!(said.ends_with("made      nothing\n"), "{said}");
        assert!(!to.exists(), "{said}");
    }
    restore(&archive, &to);
    let server = Server::start(&to, &[]);
    assert_eq!(
        server.ask(&["GET", "two"]),
        Reply::Bulk(Some(b"2".to_vec()))
    );
    assert_eq!(field(&server, "enabled"), "0");
    let refused = server.ask(&["BACKUP", "CREATE"]);
    assert!(
        matches!(&refused, Reply::Error(text) if text.contains("no archive")),
        "{refused:?}"
    );
}
