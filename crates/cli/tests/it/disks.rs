//! Data directories on a full or read-only disk, and paths that are not directories.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::status::get;
use crate::support::{Client, Reply, Server, arg, ended, free_port};

/// A mounted tmpfs, which is unmounted when this value is dropped.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Tmpfs<'a>> {
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs", arg(at)])
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Tmpfs(at)),
            _ => {
                eprintln!("NOT TESTED: a small disk cannot be mounted here (it needs root)");
                None
            }
        }
    }

    fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        let done = Command::new("mount")
            .args(["-o", &options, arg(self.0)])
            .output()
            .unwrap();
        assert!(done.status.success());
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

#[test]
fn a_data_directory_that_cannot_be_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    for place in [
        file.as_path(),
        &file.join("below"),
        Path::new("/proc/perdura"),
    ] {
        let (code, text) = ended(&["serve", "--data", arg(place), "--listen", "127.0.0.1:0"]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(arg(place)), "{text}");
    }
}

#[test]
fn a_read_only_disk_is_refused_for_writing_and_fine_for_reading() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Tmpfs::mount(dir.path(), "32m") else {
        return;
    };
    let data = dir.path().join("db");
    let server = Server::start(&data, &[]);
    server.ask(&["SET", "a", "1"]);
    server.kill();
    disk.remount("ro");
    let (code, text) = ended(&["serve", "--data", arg(&data), "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("Read-only file system"), "{text}");
    for verb in ["verify", "digest"] {
        let (code, text) = ended(&[verb, "--data", arg(&data)]);
        assert_eq!(code, 0, "{text}");
    }
    disk.remount("rw");
    let server = Server::start(&data, &[]);
    assert_eq!(server.ask(&["GET", "a"]), Reply::Bulk(Some(b"1".to_vec())));
}

/// Checks that the status page, the metrics and the health check report the full disk.
fn is_red(port: u16) {
    // The server may show figures that are up to a tenth of a second old.
    std::thread::sleep(Duration::from_millis(150));
    let health = get(port, "/healthz");
    assert!(health.starts_with("HTTP/1.1 503"), "{health}");
    assert!(
        health.contains("\r\ndisk_full: no space is left on the disk of the log"),
        "{health}"
    );
    let json = get(port, "/status.json");
    assert!(
        json.contains("\"stage\":\"alarm\"") && json.contains("\"name\":\"disk_full\""),
        "{json}"
    );
    let metrics = get(port, "/metrics");
    assert!(
        metrics.contains("perdura_alarm{name=\"disk_full\"} 1\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("perdura_alarm{name=\"stopped\"} 0\n"),
        "{metrics}"
    );
}

#[test]
fn a_full_disk_stops_writes_keeps_reads_loses_nothing_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = Tmpfs::mount(dir.path(), "72m") else {
        return;
    };
    let ballast = dir.path().join("ballast");
    std::fs::write(&ballast, vec![1; 32 << 20]).unwrap();
    let data = dir.path().join("db");
    // The limits are so high that no checkpoint frees log during the test.
    let port = free_port();
    let metrics = format!("127.0.0.1:{port}");
    let extra = [
        "--segment-size",
        "8MiB",
        "--checkpoint-log-size",
        "1GiB",
        "--metrics-listen",
        &metrics,
    ];
    let server = Server::start(&data, &extra);
    let health = get(port, "/healthz");
    assert!(
        health.starts_with("HTTP/1.1 200") && health.ends_with("\r\nok\n"),
        "{health}"
    );
    let mut client = server.connect().unwrap();
    let value = |i: u32| {
        format!(
            "{i}:{}",
            "x".repeat(30_000 + usize::try_from(i % 7).unwrap())
        )
    };
    let mut acknowledged = Vec::new();
    let mut unknown = Vec::new();
    let refusal = loop {
        let i = u32::try_from(acknowledged.len() + unknown.len()).unwrap();
        assert!(i < 5_000 && unknown.len() < 5, "no write is refused");
        match client.ask(&["SET", &format!("key{i}"), &value(i)]).unwrap() {
            Reply::Status(_) => acknowledged.push(i),
            // The server accepted this write before it knew that the disk was full.
            Reply::Error(text) if text.starts_with("UNKNOWN ") => unknown.push(i),
            Reply::Error(text) => break text,
            other => panic!("{other:?}"),
        }
    };
    is_red(port);
    assert!(refusal.to_lowercase().contains("space"), "{refusal}");
    assert!(acknowledged.len() > 100);
    let is_there = |client: &mut Client, i: u32| match client.ask(&["GET", &format!("key{i}")]) {
        Ok(found) => {
            assert_eq!(found, Reply::Bulk(Some(value(i).into_bytes())), "key{i}");
            true
        }
        Err(_) => false,
    };
    // Only reads that depend on a waiting write may wait.
    let mut answered = 0;
    for i in &acknowledged[..100] {
        let mut client = server.connect().unwrap();
        client.set_patience(Duration::from_secs(1));
        answered += usize::from(is_there(&mut client, *i));
    }
    assert!(
        answered >= 100 - 5 * unknown.len(),
        "only {answered} of 100 reads are answered"
    );
    std::fs::remove_file(&ballast).unwrap();
    let begin = Instant::now();
    while !matches!(
        client.ask(&["SET", "again", "1"]).unwrap(),
        Reply::Status(_)
    ) {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "writes do not resume"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let resumed = "The log has room again: writes resume";
    server.await_line(resumed, &["The log has no room", resumed]);
    let begin = Instant::now();
    while !get(port, "/healthz").starts_with("HTTP/1.1 200") {
        assert!(begin.elapsed() < Duration::from_secs(30), "it stays red");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    let server = Server::start(&data, &extra);
    let mut client = server.connect().unwrap();
    assert!(acknowledged.iter().all(|i| is_there(&mut client, *i)));
    assert_eq!(
        client.ask(&["GET", "again"]).unwrap(),
        Reply::Bulk(Some(b"1".to_vec()))
    );
}
