//! The tree's file on a disk that tears and loses writes, fills up and damages data. After every crash each page must
//! be whole and not older than its durable version.

use fastrand::Rng;
use perdura_base::flaw::{Flaw, arm};
use perdura_base::{Error, Gsn, Pid, TableId};
use perdura_device::{
    Access, AlignedBuf, CrashProfile, Disk, FaultPlan, FileDisk, MemDisk, SimDisk, SyncFailure,
};
use perdura_page::tree_page::{Kind, Node, NodeMut, NodeSpec, format};
use perdura_tree::file::{PageFile, Repaired, Shape};
use std::sync::Arc;

const SHAPE: Shape = Shape {
    page_bytes: 2048,
    database: *b"database",
};
const PAGES: u32 = 12;
const DIR: &str = "tree";

/// The maximum number of runs of the search for a seeded bug. One of these runs must fail.
const HUNT_RUNS: u64 = 5_000;

/// Returns a sealed page. Every byte depends on the version.
fn page(pid: Pid, version: u64) -> Box<[u8]> {
    sized_page(SHAPE.page_bytes, pid, version)
}

fn sized_page(bytes: usize, pid: Pid, version: u64) -> Box<[u8]> {
    let spec = NodeSpec {
        kind: Kind::Leaf,
        level: 0,
        pid,
        table: TableId(1),
        database: SHAPE.database,
        low: b"",
        high: None,
    };
    let mut bytes = format(bytes, &spec);
    let mut page = NodeMut::over(&mut bytes);
    for key in 0..4 {
        let value = vec![version.to_le_bytes()[0] ^ key; 400];
        assert_eq!(page.put(&[key], &value), Ok(true));
    }
    page.set_plsn(Gsn(version));
    page.seal();
    bytes
}

/// Returns the version of a page on disk.
fn read(file: &PageFile, pid: Pid) -> Result<u64, Error> {
    let mut buffer = file.buffer();
    file.read(pid, &mut buffer)?;
    let node = Node::open(&buffer, pid, SHAPE.database).expect("it was checked");
    Ok(node.plsn().0)
}

/// Counts of the events in all runs.
#[derive(Debug, Default)]
struct Counts {
    batches: u64,
    crashes: u64,
    restored: usize,
    rewritten: usize,
}

struct Run {
    rng: Rng,
    disk: Arc<SimDisk>,
    /// The durable version of each page. `under_way` has the versions that a batch in progress is writing.
    durable: Vec<u64>,
    under_way: Vec<u64>,
    version: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let disk = SimDisk::new(seed);
        disk.make_dir(DIR).expect("a directory");
        disk.sync_dir("").expect("its name");
        let file = PageFile::create(&*disk, DIR, SHAPE, PAGES).expect("files");
        let first: Vec<_> = (0..PAGES).map(|pid| page(Pid(pid), 1)).collect();
        let pages: Vec<_> = (0..PAGES)
            .map(Pid)
            .zip(first.iter().map(|page| &**page))
            .collect();
        file.write(&pages).expect("a first batch");
        Run {
            rng: Rng::with_seed(seed),
            disk,
            durable: vec![1; PAGES as usize],
            under_way: vec![1; PAGES as usize],
            version: 1,
        }
    }

    /// Writes batches until an I/O fails, or stops earlier at random. Then crashes.
    fn live(&mut self, counts: &mut Counts) {
        let rng = &mut self.rng;
        let sync_fails = rng.u8(..3) == 0;
        self.disk.set_plan(FaultPlan {
            cut_after_ops: Some(rng.u64(1..40)),
            fail_sync_at: sync_fails.then(|| (rng.u64(1..12), SyncFailure::KeepsNew)),
            fail_write_at: (rng.u8(..8) == 0).then(|| rng.u64(1..20)),
            ..FaultPlan::default()
        });
        let disk = self.disk.life();
        let ended = PageFile::open(&*disk, DIR, SHAPE, Access::Buffered).and_then(|file| {
            loop {
                self.write(&file)?;
                counts.batches += 1;
                if self.rng.u8(..6) == 0 {
                    return Ok(());
                }
            }
        });
        if let Err(error) = ended {
            assert!(!matches!(error, Error::Corrupt(_)), "{error}");
        }
        let profile = CrashProfile::ALL[self.rng.usize(..CrashProfile::ALL.len())];
        self.disk.crash(profile, self.rng.u64(..));
        counts.crashes += 1;
    }

    fn write(&mut self, file: &PageFile) -> Result<(), Error> {
        self.version += 1;
        let mut pids: Vec<u32> = (0..PAGES).filter(|_| self.rng.bool()).collect();
        if pids.is_empty() {
            pids.push(0);
        }
        let pages: Vec<_> = pids
            .iter()
            .map(|pid| page(Pid(*pid), self.version))
            .collect();
        let batch: Vec<_> = pids
            .iter()
            .map(|pid| Pid(*pid))
            .zip(pages.iter().map(|page| &**page))
            .collect();
        for pid in &pids {
            self.under_way[*pid as usize] = self.version;
        }
        file.write(&batch)?;
        for pid in pids {
            self.durable[pid as usize] = self.version;
        }
        Ok(())
    }

    /// Restarts, sometimes after crashes during the restart, and reads every page.
    fn restart(&mut self, counts: &mut Counts) -> Result<(), String> {
        while self.rng.u8(..3) == 0 {
            self.disk.set_plan(FaultPlan {
                cut_after_ops: Some(self.rng.u64(1..8)),
                ..FaultPlan::default()
            });
            let disk = self.disk.life();
            let repaired =
                PageFile::open(&*disk, DIR, SHAPE, Access::Buffered).and_then(|file| file.repair());
            if let Err(error @ Error::Corrupt(_)) = repaired {
                return Err(error.to_string());
            }
            let profile = CrashProfile::ALL[self.rng.usize(..CrashProfile::ALL.len())];
            self.disk.crash(profile, self.rng.u64(..));
        }
        self.disk.set_plan(FaultPlan::default());
        let file =
            PageFile::open(&*self.disk, DIR, SHAPE, Access::Buffered).map_err(|e| e.to_string())?;
        let repaired = file.repair().map_err(|e| e.to_string())?;
        counts.restored += repaired.restored.len();
        counts.rewritten += repaired.rewritten;
        for pid in 0..PAGES {
            let at = pid as usize;
            let found = read(&file, Pid(pid)).map_err(|e| e.to_string())?;
            if found != self.durable[at] && found != self.under_way[at] {
                return Err(format!(
                    "page {pid} has version {found}, and {} was durable",
                    self.durable[at]
                ));
            }
            // The version that was read now counts as durable, because the restart builds on it.
            self.durable[at] = found;
            self.under_way[at] = found;
        }
        Ok(())
    }
}

fn run(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let mut run = Run::new(seed);
    for _ in 0..4 {
        run.live(counts);
        run.restart(counts)?;
    }
    Ok(())
}

#[test]
fn each_page_is_whole_and_no_older_than_what_was_durable() {
    let mut counts = Counts::default();
    for seed in 0..1500 {
        assert_eq!(run(seed, &mut counts), Ok(()), "seed {seed}");
    }
    println!("{counts:?}");
    assert!(
        counts.restored > 500 && counts.rewritten > 500,
        "{counts:?}"
    );
}

#[test]
fn every_mistake_shows() {
    for flaw in Flaw::TREE_FILE {
        let shown = (0..HUNT_RUNS).find_map(|seed| {
            arm(Some(flaw));
            let ran = run(seed, &mut Counts::default());
            arm(None);
            Some((seed, ran.err()?))
        });
        println!("{flaw:?}: {shown:?}");
        let (seed, _) = shown.unwrap_or_else(|| panic!("{flaw:?} does not show"));
        assert_eq!(run(seed, &mut Counts::default()), Ok(()), "{flaw:?}");
    }
}

#[test]
fn a_page_that_rots_is_named_and_none_of_an_old_batch_takes_its_place_but_its_own() {
    let run = Run::new(1);
    let file = PageFile::open(&*run.disk, DIR, SHAPE, Access::Buffered).expect("files");
    file.write(&[(Pid(3), &page(Pid(3), 2))]).expect("a batch");
    assert!(run.disk.flip("tree/pages", 5 * 2048 + 2040, 1));
    assert!(run.disk.flip("tree/pages", 3 * 2048 + 2040, 1));
    let want = Repaired {
        restored: vec![Pid(3)],
        rewritten: 0,
    };
    assert_eq!(file.repair().expect("a repair"), want);
    assert_eq!(read(&file, Pid(3)).expect("a page"), 2);
    let error = read(&file, Pid(5)).expect_err("rot").to_string();
    let told = "damaged: tree/pages at byte 10240: expected the checksum of what follows in page 5";
    assert!(error.starts_with(told), "{error}");
}

#[test]
fn a_full_disk_refuses_to_grow_and_nothing_else() {
    let run = Run::new(1);
    let file = PageFile::open(&*run.disk, DIR, SHAPE, Access::Buffered).expect("files");
    run.disk.set_plan(FaultPlan {
        capacity_bytes: Some(600 << 10),
        ..FaultPlan::default()
    });
    let error = file.grow(1000).expect_err("a full disk");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    file.write(&[(Pid(3), &page(Pid(3), 2))]).expect("a batch");
    assert_eq!(read(&file, Pid(3)).expect("a page"), 2);
}

#[test]
fn pages_side_by_side_are_one_read_and_each_is_checked_by_itself() {
    let run = Run::new(1);
    let file = PageFile::open(&*run.disk, DIR, SHAPE, Access::Buffered).expect("files");
    assert!(run.disk.flip("tree/pages", 5 * 2048 + 2040, 1));
    let mut buffer = AlignedBuf::zeroed(4 * 2048);
    let whole = file.read_run(Pid(4), &mut buffer).expect("a read");
    assert_eq!(whole, [true, false, true, true]);
    let whole = file.read_run(Pid(PAGES - 2), &mut buffer).expect("a read");
    assert_eq!(whole, [true, true, false, false], "the file ends there");
    let whole = file.read_run(Pid(u32::MAX), &mut buffer[..2048]);
    assert_eq!(whole.expect("a read"), [false]);
}

#[test]
fn pages_of_whole_sectors_may_go_around_the_systems_cache() {
    let disk = MemDisk::new();
    disk.make_dir(DIR).expect("a directory");
    for page_bytes in [512, 2048, 4096, 8192, 32768] {
        let shape = Shape {
            page_bytes,
            ..SHAPE
        };
        let file = PageFile::create(&disk, DIR, shape, 2).expect("files");
        assert!(!file.is_direct());
        let opened = PageFile::open(&disk, DIR, shape, Access::Direct);
        if page_bytes < 4096 {
            let error = opened.expect_err("a refusal");
            assert!(matches!(error, Error::Usage(_)), "{error}");
        } else {
            assert!(opened.expect("files").is_direct());
        }
        disk.remove("tree/pages").expect("a file");
        disk.remove("tree/double").expect("a file");
    }
}

/// Each access that bypasses the cache must be aligned. A real disk would silently serve an unaligned access through
/// the cache.
#[test]
fn every_access_that_goes_around_the_cache_is_aligned() {
    let dir = tempfile::tempdir().expect("a directory");
    let disk = FileDisk::new(dir.path()).expect("a disk");
    disk.make_dir(DIR).expect("a directory");
    let shape = Shape {
        page_bytes: 4096,
        ..SHAPE
    };
    drop(PageFile::create(&disk, DIR, shape, PAGES).expect("files"));
    let file = PageFile::open(&disk, DIR, shape, Access::Direct).expect("files");
    let pages: Vec<_> = [3, 4, 9]
        .map(|pid| (Pid(pid), sized_page(4096, Pid(pid), 7)))
        .into();
    let pages: Vec<_> = pages.iter().map(|(pid, page)| (*pid, &**page)).collect();
    file.write(&pages).expect("a batch");
    let mut buffer = AlignedBuf::zeroed(2 * 4096);
    assert_eq!(
        file.read_run(Pid(3), &mut buffer).expect("a read"),
        [true, true]
    );
    assert_eq!(file.repair().expect("a repair").rewritten, 3);
    assert_eq!(read(&file, Pid(9)).expect("a page"), 7);
}

#[test]
fn files_of_another_database_or_size_are_refused() {
    let run = Run::new(1);
    let other = Shape {
        database: *b"another!",
        ..SHAPE
    };
    let large = Shape {
        page_bytes: 4096,
        ..SHAPE
    };
    for (shape, told) in [
        (other, "expected the double-write file of this database"),
        (large, "expected pages of 4096 bytes"),
    ] {
        let file = PageFile::open(&*run.disk, DIR, shape, Access::Buffered).expect("files");
        let error = file.repair().expect_err("a refusal").to_string();
        assert!(error.contains(told), "{error}");
    }
    let file = PageFile::open(&*run.disk, DIR, other, Access::Buffered).expect("files");
    let error = read(&file, Pid(3)).expect_err("a refusal").to_string();
    assert!(error.contains("a page of this database"), "{error}");
    let odd = Shape {
        page_bytes: 1000,
        ..SHAPE
    };
    let error = PageFile::open(&*run.disk, DIR, odd, Access::Buffered).expect_err("a refusal");
    assert!(error.to_string().contains("not 1000"), "{error}");
}
