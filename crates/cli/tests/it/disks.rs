//! Disks that are full, read-only or no directories at all.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Client, Reply, Server, arg, ended};

/// A mounted tmpfs; unmounted when dropped.
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

#[test]
fn a_full_disk_stops_writes_keeps_reads_loses_nothing_and_resumes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = Tmpfs::mount(dir.path(), "72m") else {
        return;
    };
    let ballast = dir.path().join("ballast");
    std::fs::write(&ballast, vec![1; 32 << 20]).unwrap();
    let data = dir.path().join("db");
    // No checkpoint makes room meanwhile.
    let extra = ["--segment-size", "8MiB", "--checkpoint-log-size", "1GiB"];
    let server = Server::start(&data, &extra);
    let mut client = server.connect().unwrap();
    let value = |i: u32| {
        format!(
            "{i}:{}",
            "x".repeat(30_000 + usize::try_from(i % 7).unwrap())
        )
    };
    let mut acknowledged = Vec::new();
    let mut waiting = Vec::new();
    let refusal = loop {
        let i = u32::try_from(acknowledged.len() + waiting.len()).unwrap();
        assert!(i < 5_000 && waiting.len() < 5, "no write is refused");
        client.set_patience(Duration::from_secs(3));
        match client.ask(&["SET", &format!("key{i}"), &value(i)]) {
            Ok(Reply::Status(_)) => acknowledged.push(i),
            Ok(Reply::Error(text)) => break text,
            Ok(other) => panic!("{other:?}"),
            // It was taken before the disk was known to be full, and waits for space.
            Err(_) => waiting.push(std::mem::replace(&mut client, server.connect().unwrap())),
        }
    };
    assert!(refusal.to_lowercase().contains("space"), "{refusal}");
    assert!(acknowledged.len() > 100);
    let is_there = |client: &mut Client, i: u32| match client.ask(&["GET", &format!("key{i}")]) {
        Ok(found) => {
            assert_eq!(found, Reply::Bulk(Some(value(i).into_bytes())), "key{i}");
            true
        }
        Err(_) => false,
    };
    // Only what rests on a waiting write may wait with it.
    let mut answered = 0;
    for i in &acknowledged[..100] {
        let mut client = server.connect().unwrap();
        client.set_patience(Duration::from_secs(1));
        answered += usize::from(is_there(&mut client, *i));
    }
    assert!(
        answered >= 100 - 5 * waiting.len(),
        "only {answered} of 100 reads are answered"
    );
    std::fs::remove_file(&ballast).unwrap();
    for mut client in waiting {
        client.set_patience(Duration::from_secs(30));
        assert_eq!(client.reply().unwrap(), Reply::Status("OK".into()));
    }
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
    server.kill();
    let server = Server::start(&data, &extra);
    let mut client = server.connect().unwrap();
    assert!(acknowledged.iter().all(|i| is_there(&mut client, *i)));
    assert_eq!(
        client.ask(&["GET", "again"]).unwrap(),
        Reply::Bulk(Some(b"1".to_vec()))
    );
}
