//! A disk that has less space than it reports. The disk is a loop device with a file system. The loop device's file is
//! sparse and in memory, and no memory is left for it to grow. So even an *overwrite* of the log's prepared segment is
//! refused for lack of space.
//!
//! # The trap
//! If a write of two pages finds space for only the first page, the kernel's loop device reports success. No database
//! survives a device that reports false success. So each write of this test is one page long.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::mounts::{cannot_run, command};
use crate::support::{Client, Reply, Server, arg};

const MIB: u64 = 1 << 20;
/// The block size of the file system, in bytes.
const BLOCK: u64 = 4096;

/// The mounted file system, and the file system in memory that holds the file of the loop device.
struct Thin {
    memory: PathBuf,
    mount: PathBuf,
}

impl Thin {
    fn make(dir: &Path) -> Result<Thin, String> {
        let thin = Thin {
            memory: dir.join("memory"),
            mount: dir.join("mount"),
        };
        for made in [&thin.memory, &thin.mount] {
            std::fs::create_dir(made).map_err(|error| error.to_string())?;
        }
        command(
            "mount",
            &["-t", "tmpfs", "-o", "size=160m", "none", arg(&thin.memory)],
        )?;
        let file = std::fs::File::create(thin.file()).map_err(|error| error.to_string())?;
        file.set_len(128 * MIB).map_err(|error| error.to_string())?;
        command("mkfs.ext4", &["-q", "-F", "-b", "4096", arg(&thin.file())])?;
        // At first memory is allocated for the whole file, including the journal and the tables. Later only the punched
        // part has to grow.
        command("fallocate", &["-l", "128MiB", arg(&thin.file())])?;
        command(
            "mount",
            &["-o", "loop,nodiscard", arg(&thin.file()), arg(&thin.mount)],
        )?;
        Ok(thin)
    }

    fn file(&self) -> PathBuf {
        self.memory.join("disk")
    }

    fn filler(&self) -> PathBuf {
        self.memory.join("filler")
    }

    /// Frees the memory of a file's second half, which contains only zeros.
    fn punch(&self, path: &Path) {
        let half = std::fs::metadata(path).unwrap().len() / BLOCK / 2;
        let extents = command("filefrag", &["-v", "-s", arg(path)]).unwrap();
        let (file, mut punched) = (self.file(), 0);
        for line in extents.lines() {
            let numbers: Vec<u64> = line
                .split(|c: char| !c.is_ascii_digit())
                .filter_map(|word| word.parse().ok())
                .collect();
            let [_, from, to, at, _, ..] = numbers[..] else {
                continue;
            };
            if !line.trim_start().starts_with(|c: char| c.is_ascii_digit()) || to < half {
                continue;
            }
            let skipped = half.saturating_sub(from);
            let (offset, blocks) = ((at + skipped) * BLOCK, to + 1 - from - skipped);
            let (offset, length) = (offset.to_string(), (blocks * BLOCK).to_string());
            let hole = ["-p", "-o", &offset, "-l", &length];
            command("fallocate", &[&hole[..], &[arg(&file)]].concat()).unwrap();
            punched += blocks;
        }
        assert_eq!(punched, half, "{extents}");
    }

    /// Uses up all memory that is left.
    fn fill(&self) {
        let mut filler = std::fs::File::create(self.filler()).unwrap();
        while filler.write_all(&[1; 65536]).is_ok() {}
    }
}

impl Drop for Thin {
    fn drop(&mut self) {
        for mounted in [&self.mount, &self.memory] {
            let _ = Command::new("umount").arg(mounted).output();
        }
    }
}

/// Returns the segment that is being written: the newest one of the first stream.
fn newest_segment(log: &Path) -> PathBuf {
    let entries = std::fs::read_dir(log)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let is_segment = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("s00-")
    };
    entries.filter(is_segment).max().unwrap()
}

fn value(nth: u64) -> String {
    format!("{nth:08}").repeat(32)
}

fn set(client: &mut Client, nth: u64) -> std::io::Result<Reply> {
    let value = value(nth);
    client.ask(&["SET", &format!("key{nth}"), &value])
}

#[test]
fn an_overwrite_that_finds_no_space_is_repeated_and_nothing_acknowledged_is_lost() {
    for log_io in ["ring", "sync"] {
        overwrite_without_space(log_io);
    }
}

fn overwrite_without_space(log_io: &str) {
    let dir = tempfile::tempdir().unwrap();
    let thin = match Thin::make(dir.path()) {
        Ok(thin) => thin,
        Err(why) => return cannot_run("thin disks", "root, loop devices, tmpfs and ext4", &why),
    };
    let data = thin.mount.join("db");
    let extra = ["--partitions", "16", "--log-io", log_io];
    let server = Server::start(&data, &extra);
    let mut client = server.connect().unwrap();
    client.set_patience(Duration::from_millis(500));
    let ok = Reply::Status("OK".into());
    let mut acknowledged = 0;
    while acknowledged < 20 {
        assert_eq!(set(&mut client, acknowledged).unwrap(), ok);
        acknowledged += 1;
    }
    thin.punch(&newest_segment(&data.join("log")));
    thin.fill();
    // A write whose block is refused waits until the client gives up. A later write is refused at once.
    let last = loop {
        match set(&mut client, acknowledged) {
            Ok(reply) if reply == ok => acknowledged += 1,
            last => break last,
        }
        assert!(acknowledged < 16_000, "the disk is not full");
    };
    let mut other = server
        .connect()
        .unwrap_or_else(|error| panic!("{error}: {}", server.said()));
    other.set_patience(Duration::from_secs(5));
    let refused = set(&mut other, u64::MAX).unwrap();
    let says = "no space is left on the log's disk";
    assert!(
        matches!(&refused, Reply::Error(text) if text.contains(says)),
        "{refused:?}"
    );
    std::fs::remove_file(thin.filler()).unwrap();
    let begin = Instant::now();
    while set(&mut other, acknowledged + 1).unwrap() != ok {
        assert!(begin.elapsed() < Duration::from_secs(10), "it stays full");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    let server = Server::start(&data, &extra);
    for nth in 0..acknowledged + 2 {
        let found = server.ask(&["GET", &format!("key{nth}")]);
        // A later write was acknowledged. So a last write whose outcome was unknown must be there.
        let is_undecided = match &last {
            Ok(Reply::Error(text)) => text.starts_with("UNKNOWN "),
            Ok(_) => false,
            Err(_) => true,
        };
        let is_there = nth != acknowledged || is_undecided;
        let expected = is_there.then(|| value(nth).into_bytes());
        assert_eq!(found, Reply::Bulk(expected), "key{nth}, {last:?}");
    }
    println!("log written by {log_io}: {acknowledged} writes before the disk was full, none lost");
    server.stop();
}
