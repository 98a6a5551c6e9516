//! Disks that are full, read-only or no directories at all.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Reply, Server, arg, ended};

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
    let Some(_disk) = Tmpfs::mount(dir.path(), "40m") else {
        return;
    };
    let ballast = dir.path().join("ballast");
    std::fs::write(&ballast, vec![1; 16 << 20]).unwrap();
    let data = dir.path().join("db");
    // No checkpoint makes room meanwhile.
    let extra = ["--checkpoint-log-size", "1GiB"];
    let server = Server::start(&data, &extra);
    let mut client = server.connect().unwrap();
    let value = |i: u32| {
        format!(
            "{i}:{}",
            "x".repeat(30_000 + usize::try_from(i % 7).unwrap())
        )
    };
    let mut acknowledged = Vec::new();
    let refusal = loop {
        let i = u32::try_from(acknowledged.len()).unwrap();
        assert!(i < 5_000, "the disk does not fill up");
        match client.ask(&["SET", &format!("key{i}"), &value(i)]).unwrap() {
            Reply::Status(_) => acknowledged.push(i),
            Reply::Error(text) => break text,
            other => panic!("{other:?}"),
        }
    };
    assert!(refusal.to_lowercase().contains("full"), "{refusal}");
    assert!(acknowledged.len() > 100);
    let holds = |client: &mut crate::support::Client| {
        for i in &acknowledged {
            let found = client.ask(&["GET", &format!("key{i}")]).unwrap();
            assert_eq!(found, Reply::Bulk(Some(value(*i).into_bytes())), "key{i}");
        }
    };
    holds(&mut client);
    std::fs::remove_file(&ballast).unwrap();
    let begin = Instant::now();
    while !matches!(
        client.ask(&["SET", "again", "1"]).unwrap(),
        Reply::Status(_)
    ) {
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "writes do not resume"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    holds(&mut client);
    server.kill();
    let server = Server::start(&data, &extra);
    let mut client = server.connect().unwrap();
    holds(&mut client);
    assert_eq!(
        client.ask(&["GET", "again"]).unwrap(),
        Reply::Bulk(Some(b"1".to_vec()))
    );
}
