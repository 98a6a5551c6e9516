//! Databases with transactions that change a tree by keys, tested through the command. Every restart method must give
//! the same digest for a crashed database. A dry run, and any number of pages in memory, must also give this digest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perdura_base::{Error, TableId};
use perdura_device::{Disk, FileDisk, SystemClock};
use perdura_recovery::Disks;
use perdura_steal::{Keyed, KeyedOptions, StealEnv, Write};
use perdura_wal::Scheme;

use crate::support::{arg, ended, perdura};

const TABLE: TableId = TableId(1);
const STREAMS: usize = 2;
const ROWS: u64 = 4000;
/// The size of a page, bytes.
pub const PAGE_BYTES: usize = 1024;

/// A crashed database: the directories, and the acknowledged rows.
pub struct Crashed {
    pub data: PathBuf,
    pub logs: Vec<PathBuf>,
    pub digest: String,
    pub rows: u64,
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

/// Repeats a call while it fails because the log is full. Flushes the log after each failure.
fn insist<T>(keyed: &Keyed, mut call: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match call() {
            Ok(value) => return value,
            Err(Error::LogFull(_)) => keyed.flush_all().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs random transactions, which put, change and remove rows. A few are open at once, and some are rolled back.
fn work(keyed: &Keyed, rng: &mut fastrand::Rng, rounds: usize) {
    for _ in 0..rounds {
        let mut open: Vec<_> = (0..4).map(|_| keyed.txns().begin()).collect();
        for _ in 0..5 {
            for txn in &mut open {
                let key = key(rng.u64(..ROWS * 2));
                let value: Vec<u8> = (0..rng.usize(8..60)).map(|_| rng.u8(..)).collect();
                let value = (rng.u8(..4) > 0).then_some(&value[..]);
                let _taken: Write = insist(keyed, || keyed.txns().write(txn, TABLE, &key, value));
            }
        }
        for mut txn in open {
            if rng.u8(..5) == 0 {
                while !insist(keyed, || keyed.txns().abort_step(&mut txn)) {}
            } else {
                let _durable_below = keyed.txns().commit(txn);
            }
        }
        keyed.flush_all().unwrap();
        while keyed.is_dirty() {
            keyed.txns().write_step().unwrap();
        }
    }
}

impl Crashed {
    pub fn new(dir: &Path, scheme: Scheme) -> Crashed {
        Crashed::new_seeded(dir, scheme, 1)
    }

    /// Creates and crashes a database. The database's identity comes from `seed`.
    pub fn new_seeded(dir: &Path, scheme: Scheme, seed: u64) -> Crashed {
        let logs: Vec<PathBuf> = (0..STREAMS).map(|i| dir.join(format!("log{i}"))).collect();
        let data = dir.join("data");
        let disk = |dir: &PathBuf| -> Arc<dyn Disk> { Arc::new(FileDisk::new(dir).unwrap()) };
        let env = StealEnv {
            disks: Disks {
                data: disk(&data),
                images: vec![disk(&data)],
                logs: logs.iter().map(disk).collect(),
            },
            clock: Arc::new(SystemClock::new()),
            seed,
        };
        let options = KeyedOptions {
            page_bytes: PAGE_BYTES,
            segment_bytes: 1 << 20,
            ..KeyedOptions::new(scheme, 96)
        };
        let mut rows = (0..ROWS).map(|number| (key(number * 2), vec![7; 40]));
        let keyed = Keyed::create(env, options, Some(&mut rows)).unwrap();
        let mut rng = fastrand::Rng::with_seed(7);
        for checkpoint in [true, true, false] {
            work(&keyed, &mut rng, 40);
            if checkpoint {
                keyed.checkpoint_now().unwrap();
            }
        }
        let found = insist(&keyed, || keyed.txns().contents());
        // This transaction never ends, but its changes and some of the changed pages become durable before the crash.
        let mut loser = keyed.txns().begin();
        for number in (0..ROWS).step_by(40) {
            let key = key(number * 2 + 1);
            insist(&keyed, || {
                keyed
                    .txns()
                    .write(&mut loser, TABLE, &key, Some(b"never committed"))
            });
        }
        keyed.flush_all().unwrap();
        while keyed.is_dirty() {
            keyed.txns().write_step().unwrap();
        }
        let dirty = insist(&keyed, || keyed.txns().contents());
        assert_ne!(dirty, found, "the loser has changed something");
        std::mem::forget(loser);
        Crashed {
            data,
            logs,
            digest: found.hex(),
            rows: found.rows,
        }
    }

    pub fn verb(&self, words: &[&str]) -> (i32, String) {
        ended(&[words, &self.places()].concat())
    }

    fn places(&self) -> Vec<&str> {
        let logs = self.logs.iter().flat_map(|dir| ["--log-dir", arg(dir)]);
        ["--data", arg(&self.data)]
            .into_iter()
            .chain(logs)
            .collect()
    }

    pub fn report(&self, words: &[&str]) -> serde_json::Value {
        let output = perdura(&[words, &["--json"], &self.places()].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {text}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the content of all files of the database except lock files.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        let mut dirs: Vec<PathBuf> = self.logs.clone();
        dirs.push(self.data.clone());
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if name.starts_with("LOCK") {
                    continue;
                }
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    let bytes = std::fs::read(&path).unwrap();
                    files.insert(path, bytes);
                }
            }
        }
        files
    }
}

/// Returns the restart methods of a scheme. `auto` selects the first method.
fn methods(scheme: Scheme) -> &'static [&'static str] {
    match scheme {
        Scheme::Logical => &["log2", "log1", "log0", "sql1", "sql2", "aries"],
        _ => &["sql2", "sql1", "log0", "aries"],
    }
}

#[test]
fn every_method_restarts_a_crashed_tree_to_what_was_committed_and_a_dry_restart_changes_nothing() {
    for scheme in [Scheme::Logical, Scheme::Physiological] {
        let dir = tempfile::tempdir().unwrap();
        let crashed = Crashed::new(dir.path(), scheme);
        let before = crashed.files();
        for method in methods(scheme) {
            for pool in ["8", "4096"] {
                let way = [
                    "restart",
                    "--dry-run",
                    "--method",
                    method,
                    "--pool-pages",
                    pool,
                ];
                let report = crashed.report(&way);
                assert_eq!(report["digest"], crashed.digest, "{way:?}: {report}");
                assert_eq!(report["rows"], crashed.rows, "{way:?}: {report}");
                assert_eq!(report["records"]["undone"], 100, "{way:?}: {report}");
                let tree = &report["tree"];
                assert_eq!(tree["losers"], 1, "{way:?}: {report}");
                // Eight pages of memory cannot hold all pages that redo changes, so some must be written to the scratch
                // file.
                let wrote = tree["pages_written"].as_u64() > Some(0);
                assert_eq!(wrote, pool == "8", "{way:?}: {report}");
            }
        }
        let auto = crashed.report(&["restart", "--dry-run"]);
        assert_eq!(auto["method"], methods(scheme)[0]);
        for level in ["1", "2", "3"] {
            let report = crashed.report(&["restart", "--dry-run", "--level", level]);
            assert_eq!(report["digest"], crashed.digest, "level {level}: {report}");
        }
        let (code, text) = crashed.verb(&["digest", "--pool-pages", "64"]);
        assert_eq!((code, text.trim()), (0, crashed.digest.as_str()));
        let elsewhere = tempfile::tempdir().unwrap();
        let scratch = [
            "digest",
            "--pool-pages",
            "16",
            "--scratch",
            arg(elsewhere.path()),
        ];
        assert_eq!(crashed.report(&scratch)["rows"], crashed.rows);
        assert!(crashed.files() == before, "a dry restart changes nothing");
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        // This restart writes its result to the disks. The next restart must find the same data.
        let report = crashed.report(&["restart", "--pool-pages", "64"]);
        assert_eq!(report["digest"], crashed.digest, "{report}");
        assert_eq!(report["rows"], crashed.rows, "{report}");
        assert_eq!(report["records"]["undone"], 100, "{report}");
        let again = crashed.report(&["restart", "--dry-run"]);
        assert_eq!(again["digest"], crashed.digest, "{again}");
        assert_eq!(again["records"]["undone"], 0, "{again}");
        assert_eq!(again["clean"], true, "it was closed: {again}");
        assert_eq!(
            again["tree"]["operations"], 0,
            "the checkpoint has all: {again}"
        );
        assert!(again["checkpoint"].as_u64() > auto["checkpoint"].as_u64());
    }
}
