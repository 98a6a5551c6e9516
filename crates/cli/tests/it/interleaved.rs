//! Databases of interleaved transactions, tested through the command. Every legal method and level of restart must give
//! the same digest. Illegal methods and levels are refused with the reason. Damage is repaired and reported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perdura_base::PartitionId;
use perdura_device::{Disk, FileDisk, SystemClock};
use perdura_recovery::Disks;
use perdura_steal::{Route, Steal, StealEnv, StealOptions};
use perdura_wal::Scheme;

use crate::support::{arg, ended, perdura};

const IMAGES: usize = 2;
const STREAMS: usize = 3;

/// A crashed database: the directories, and the digest of the acknowledged data.
struct Crashed {
    data: PathBuf,
    logs: Vec<PathBuf>,
    images: Vec<PathBuf>,
    digest: String,
}

/// Runs random transactions. A few are open at once, and some are rolled back.
fn work(db: &Steal, rng: &mut fastrand::Rng, transactions: usize) {
    let row = |rng: &mut fastrand::Rng| -> Vec<u8> { (0..120).map(|_| rng.u8(..)).collect() };
    let partitions = db.heap().geometry().partitions;
    for _ in 0..transactions {
        let mut open: Vec<_> = (0..4).map(|_| db.begin()).collect();
        for _ in 0..3 {
            for txn in &mut open {
                let row = row(rng);
                match db
                    .places(PartitionId(rng.u16(0..partitions)))
                    .into_iter()
                    .next()
                {
                    Some(place) if rng.bool() => {
                        db.update(txn, place, &row).unwrap();
                    }
                    _ => {
                        while db.insert(txn, &row).unwrap().is_none() {
                            let _durable_below =
                                db.grow(PartitionId(rng.u16(0..partitions))).unwrap();
                        }
                    }
                }
            }
        }
        for txn in open {
            if rng.u8(..5) == 0 {
                db.abort(txn);
            } else {
                let _durable_below = db.commit(txn);
            }
        }
        db.flush_all().unwrap();
    }
}

impl Crashed {
    fn new(dir: &Path, scheme: Scheme) -> Crashed {
        let dirs = |name: &str, count: usize| -> Vec<PathBuf> {
            (0..count).map(|i| dir.join(format!("{name}{i}"))).collect()
        };
        let (data, logs) = (dir.join("data"), dirs("log", STREAMS));
        let images = dirs("image", IMAGES);
        let disk = |dir: &PathBuf| -> Arc<dyn Disk> { Arc::new(FileDisk::new(dir).unwrap()) };
        let env = StealEnv {
            disks: Disks {
                data: disk(&data),
                images: images.iter().map(disk).collect(),
                logs: logs.iter().map(disk).collect(),
            },
            clock: Arc::new(SystemClock::new()),
            seed: 1,
        };
        let options = StealOptions {
            partitions: 8,
            segment_bytes: 1 << 20,
            route: Route::Scattered,
            ..StealOptions::new(scheme, 128)
        };
        let db = Steal::create(env, options).unwrap();
        let mut rng = fastrand::Rng::with_seed(7);
        for checkpoint in [true, true, false] {
            work(&db, &mut rng, 20);
            if checkpoint {
                db.checkpoint_now().unwrap();
            }
        }
        let digest = db.digest();
        // This transaction never ends, but its changes become durable before the crash.
        let mut loser = db.begin();
        for p in 0..8 {
            if let Some(place) = db.places(PartitionId(p)).into_iter().next() {
                db.update(&mut loser, place, b"never committed").unwrap();
            }
        }
        db.flush_all().unwrap();
        std::mem::forget(loser);
        Crashed {
            data,
            logs,
            images,
            digest,
        }
    }

    fn places(&self) -> Vec<&str> {
        let logs = self.logs.iter().flat_map(|dir| ["--log-dir", arg(dir)]);
        let images = self.images.iter().flat_map(|dir| ["--image-dir", arg(dir)]);
        logs.chain(images).collect()
    }

    fn verb(&self, words: &[&str]) -> (i32, String) {
        ended(&[words, &["--data", arg(&self.data)], &self.places()].concat())
    }

    fn report(&self, words: &[&str]) -> serde_json::Value {
        let args = ["restart", "--dry-run", "--json", "--data", arg(&self.data)];
        let output = perdura(&[&args[..], words, &self.places()].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {text}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Returns the methods and levels that are legal for a scheme. `auto` selects the first method.
fn legal(scheme: Scheme) -> (&'static [&'static str], &'static [&'static str]) {
    match scheme {
        Scheme::Dl1p => (&["dl1p"], &["1", "2", "3", "4"]),
        Scheme::Dl2p => (&["dl2p", "dl1p"], &["1", "2", "3", "4"]),
        Scheme::Pl2p
        | Scheme::Differential
        | Scheme::Value
        | Scheme::Command
        | Scheme::Unlogged
        | Scheme::Logical
        | Scheme::Physiological => (&["pl2p", "pl2p-part"], &["1", "2", "3"]),
    }
}

#[test]
fn every_legal_way_to_restart_gives_what_was_committed() {
    for scheme in [Scheme::Dl1p, Scheme::Dl2p, Scheme::Pl2p] {
        let dir = tempfile::tempdir().unwrap();
        let crashed = Crashed::new(dir.path(), scheme);
        let (methods, levels) = legal(scheme);
        let auto = crashed.report(&[]);
        assert_eq!(auto["method"], methods[0]);
        assert_eq!(auto["scheme"], scheme.name());
        assert_eq!(auto["level"].to_string(), levels[levels.len() - 1]);
        for method in methods {
            for level in levels {
                for threads in ["1", "2"] {
                    let way = ["--method", method, "--level", level, "--threads", threads];
                    let report = crashed.report(&way);
                    assert_eq!(report["digest"], crashed.digest, "{way:?}: {report}");
                    assert!(report["pages_fetched"].as_u64() > Some(0), "{report}");
                }
            }
        }
        let (code, text) = crashed.verb(&["digest"]);
        assert_eq!((code, text.trim()), (0, crashed.digest.as_str()));
        let (code, text) = crashed.verb(&["verify", "--strict"]);
        assert_eq!(code, 0, "{text}");
        // This restart writes its result to the disks. The next restart must find the same data.
        let (code, text) = crashed.verb(&["restart"]);
        assert_eq!(code, 0, "{text}");
        let again = crashed.report(&[]);
        assert_eq!(again["digest"], crashed.digest);
        assert_eq!(again["clean"], true, "it was closed: {again}");
        assert!(again["checkpoint"].as_u64() > auto["checkpoint"].as_u64());
    }
}

#[test]
fn illegal_methods_and_levels_are_refused_with_the_reason() {
    let all = BTreeSet::from(["differential", "dl1p", "dl2p", "pl2p", "pl2p-part"]);
    for scheme in [Scheme::Dl1p, Scheme::Dl2p, Scheme::Pl2p] {
        let dir = tempfile::tempdir().unwrap();
        let crashed = Crashed::new(dir.path(), scheme);
        let (methods, levels) = legal(scheme);
        for method in all.difference(&methods.iter().copied().collect()) {
            let (code, text) = crashed.verb(&["restart", "--dry-run", "--method", method]);
            assert_eq!(code, 2, "{text}");
            assert!(text.contains(scheme.name()), "{text}");
        }
        if !levels.contains(&"4") {
            for real in [
                &["restart", "--level", "4"][..],
                &["restart", "--dry-run", "--level", "4"],
            ] {
                let (code, text) = crashed.verb(real);
                assert_eq!(code, 2, "{text}");
                assert!(text.contains("in order after the image"), "{text}");
            }
        }
        let (code, text) = crashed.verb(&["restart", "--accept-divergence"]);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("no procedures"), "{text}");
        // `serve` must refuse a database of interleaved transactions.
        let (code, text) = ended(&[
            "serve",
            "--data",
            arg(&crashed.data),
            "--listen",
            "127.0.0.1:0",
        ]);
        assert_ne!(code, 0);
        assert!(text.contains(scheme.name()), "{text}");
        assert_eq!(crashed.report(&[])["digest"], crashed.digest);
    }
}

#[test]
fn a_damaged_image_page_on_any_disk_is_rebuilt_at_every_level() {
    for scheme in [Scheme::Dl1p, Scheme::Pl2p] {
        let dir = tempfile::tempdir().unwrap();
        let crashed = Crashed::new(dir.path(), scheme);
        let (_, text) = crashed.verb(&["dump", "checkpoint", "--entries", "--json"]);
        let images: serde_json::Value = serde_json::from_str(&text).unwrap();
        let images = images.as_array().unwrap();
        let newest = images
            .iter()
            .max_by_key(|i| i["checkpoint"].as_u64())
            .unwrap();
        let slot = newest["slot"].as_str().unwrap().to_lowercase();
        let entries = newest["entries"].as_array().unwrap();
        // Chunks are assigned to the partitions in turn, and partitions to the disks in turn.
        let chunk = StealOptions::new(scheme, 128).chunk_pages;
        let mut hit = Vec::new();
        for (disk, image) in crashed.images.iter().enumerate() {
            let of_disk =
                |page: u64| usize::try_from(page / u64::from(chunk) % 8).unwrap() % IMAGES == disk;
            let number = |entry: &serde_json::Value| entry["page"].as_u64().unwrap();
            let entry = entries.iter().find(|entry| of_disk(number(entry))).unwrap();
            let at = entry["offset"].as_u64().unwrap() + 999;
            let file = image.join(format!("image-{slot}")).join("pages");
            let mut bytes = std::fs::read(&file).unwrap();
            bytes[usize::try_from(at).unwrap()] ^= 1;
            std::fs::write(&file, bytes).unwrap();
            hit.push(number(entry));
        }
        for level in legal(scheme).1 {
            let report = crashed.report(&["--level", level]);
            assert_eq!(report["digest"], crashed.digest, "{level}: {report}");
            assert_eq!(report["pages_rebuilt"], IMAGES, "{level}: {report}");
            let notes = report["notes"].to_string();
            for page in &hit {
                assert!(notes.contains(&format!("page {page} ")), "{level}: {notes}");
            }
        }
        let (code, text) = crashed.verb(&["verify", "--strict"]);
        assert_eq!(code, 3, "{text}");
        let (code, text) = crashed.verb(&["restart"]);
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("rebuilt"), "{text}");
        assert_eq!(crashed.report(&[])["digest"], crashed.digest);
    }
}

#[test]
fn a_wrong_number_of_directories_is_a_usage_error_and_a_missing_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut crashed = Crashed::new(dir.path(), Scheme::Dl1p);
    let (logs, images) = (crashed.logs.clone(), crashed.images.clone());
    crashed.images.truncate(1);
    let (code, text) = crashed.verb(&["restart", "--dry-run"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("has 2 image director(ies), but 1 would be used"),
        "{text}"
    );
    crashed.images.clear();
    assert_eq!(crashed.verb(&["restart", "--dry-run"]).0, 2);
    crashed.images.clone_from(&images);
    crashed.logs.truncate(2);
    let (code, text) = crashed.verb(&["restart", "--dry-run"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("3 stream"), "{text}");
    crashed.logs = logs;
    // After two image disks were swapped, each has the pages of the other.
    crashed.images.reverse();
    let (code, text) = crashed.verb(&["restart", "--dry-run"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("but it is number 1"), "{text}");
    crashed.images[0] = dir.path().join("nowhere");
    let (code, text) = crashed.verb(&["restart"]);
    assert_eq!(code, 3, "{text}");
    assert!(
        text.contains("image disk 0") && text.contains("nowhere"),
        "{text}"
    );
    assert!(!dir.path().join("nowhere").exists());
    crashed.images = images;
    assert_eq!(crashed.report(&[])["digest"], crashed.digest);
}
