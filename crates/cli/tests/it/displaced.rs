//! Files of a database are renamed or removed while a server has them open. The server must soon stop for good, because
//! a restart would not find the server's later writes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::support::{Reply, Server, arg, ended, signal};

/// The exit code that forbids a restart by a service manager.
const FOR_GOOD: i32 = 5;

/// Calls `strike` while a client writes to a server. Checks that the server's last message contains `words`. Returns
/// the data directory.
fn ends_when(dir: &Path, extra: &[&str], strike: impl FnOnce(&Path), words: &[&str]) -> PathBuf {
    let data = dir.join("db");
    let server = Server::start(&data, extra);
    let mut client = server.connect().unwrap();
    let set = |client: &mut crate::support::Client, number: usize| {
        client.ask(&["SET", &format!("key{number}"), "value"])
    };
    for number in 0..100 {
        assert_eq!(
            set(&mut client, number).unwrap(),
            Reply::Status("OK".into())
        );
    }
    strike(&data);
    let begin = Instant::now();
    let mut number = 100;
    while let Ok(Reply::Status(_)) = set(&mut client, number) {
        number += 1;
        // The server must notice the change before the current segment is full.
        std::thread::sleep(Duration::from_millis(2));
        let late = begin.elapsed() > Duration::from_secs(20);
        assert!(!late, "{number} writes: {}", server.said());
    }
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(FOR_GOOD), "{said}");
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
    data
}

#[test]
fn a_data_directory_that_is_removed_or_replaced_stops_the_server_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let remove = |data: &Path| std::fs::remove_dir_all(data).unwrap();
    ends_when(
        dir.path(),
        &[],
        remove,
        &["were moved, removed or replaced", "it is gone"],
    );

    let dir = tempfile::tempdir().unwrap();
    let replace = |data: &Path| {
        std::fs::rename(data, dir.path().join("aside")).unwrap();
        std::fs::create_dir(data).unwrap();
    };
    ends_when(
        dir.path(),
        &[],
        replace,
        &["another file or directory has its name"],
    );
    let aside = dir.path().join("aside");
    assert_eq!(ended(&["verify", "--data", arg(&aside)]).0, 0);
}

#[test]
fn an_anchor_or_a_segment_that_is_replaced_stops_the_server_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let replace = |data: &Path| {
        let beside = data.join("beside");
        std::fs::copy(data.join("anchor"), &beside).unwrap();
        std::fs::rename(beside, data.join("anchor")).unwrap();
    };
    ends_when(dir.path(), &[], replace, &["anchor: another file"]);

    let dir = tempfile::tempdir().unwrap();
    let aside = dir.path().join("aside");
    let mut moved = None;
    let move_away = |data: &Path| {
        let names = std::fs::read_dir(data.join("log")).unwrap();
        let paths = names.map(|entry| entry.unwrap().path());
        let is_segment = |path: &PathBuf| arg(path).contains("/s00-");
        let segment = paths.filter(is_segment).min().unwrap();
        std::fs::rename(&segment, &aside).unwrap();
        moved = Some(segment);
    };
    let data = ends_when(dir.path(), &[], move_away, &["/log/s00-", "it is gone"]);
    std::fs::rename(&aside, moved.unwrap()).unwrap();
    let server = Server::start(&data, &[]);
    assert_eq!(server.ask(&["EXISTS", "key0", "key99"]), Reply::Number(2));
    server.stop();
}

#[test]
fn a_log_directory_that_is_removed_stops_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let logs = [dir.path().join("log0"), dir.path().join("log1")];
    let extra = [
        ["--streams", "2"],
        ["--log-dir", arg(&logs[0])],
        ["--log-dir", arg(&logs[1])],
    ];
    let remove = |_: &Path| std::fs::remove_dir_all(&logs[1]).unwrap();
    ends_when(dir.path(), &extra.concat(), remove, &["log1", "it is gone"]);
}

/// Regression: a second process created a new lock file, and then the two processes acknowledged writes.
#[test]
fn without_its_lock_file_a_database_is_still_locked_and_its_server_stops() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("db");
    let server = Server::start(&data, &[]);
    assert_eq!(
        server.ask(&["SET", "key", "value"]),
        Reply::Status("OK".into())
    );
    signal(server.pid(), rustix::process::Signal::STOP);
    std::fs::remove_file(data.join("LOCK")).unwrap();
    let (code, said) = ended(&["verify", "--data", arg(&data)]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("in use: another process has locked it"),
        "{said}"
    );
    // The anchor is still locked after a move into another directory.
    let copy = dir.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for name in ["anchor", "VERSION", "log", "image-a", "image-b"] {
        std::fs::rename(data.join(name), copy.join(name)).unwrap();
    }
    let (code, said) = ended(&["verify", "--data", arg(&copy)]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("in use: another process has locked it"),
        "{said}"
    );
    signal(server.pid(), rustix::process::Signal::CONT);
    let (status, said) = server.wait();
    assert_eq!(status.code(), Some(FOR_GOOD), "{said}");
    let server = Server::start(&copy, &[]);
    assert_eq!(
        server.ask(&["GET", "key"]),
        Reply::Bulk(Some(b"value".to_vec()))
    );
    server.stop();
}
