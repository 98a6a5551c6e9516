//! Compares the tree with a map, over several crashes and restarts on a disk that tears and loses pages. Pools have few
//! pages. Pages are tiny, so they split often. After each crash every method of redo must restore the rows that the
//! stable log has.

mod fetches;
pub mod log;
mod preload;
mod redo;
pub mod restart;
pub mod run;

use fastrand::Rng;
use log::{Entry, TestLog};
use perdura_base::flaw::{Flaw, arm};
use perdura_base::{Gsn, TableId};
use perdura_device::{Access, Disk, SimDisk};
use perdura_tree::analysis::Detail;
use perdura_tree::contract::Answer;
use perdura_tree::file::{PageFile, Shape};
use perdura_tree::monitor::{Monitor, Tells};
use perdura_tree::tree::Tree;
use restart::{Method, insist, restart};
use run::{Met, Rows, Run, TABLES, change, rows_of};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of runs of the search for a seeded bug. One of these runs must fail.
const HUNT_RUNS: u64 = 3_000;

fn shape(page_bytes: usize) -> Shape {
    Shape {
        page_bytes,
        database: *b"database",
    }
}

/// Makes a tree without tables, on a new disk.
fn new_tree(seed: u64, shape: Shape, frames: usize) -> (Arc<SimDisk>, Tree) {
    let disk = SimDisk::new(seed);
    disk.make_dir("tree").expect("a directory");
    disk.sync_dir("").expect("its name");
    Tree::make(&*disk, "tree", shape).expect("a tree");
    let file = PageFile::open(&*disk, "tree", shape, Access::Buffered).expect("files");
    let mut monitor = Monitor::new(restart::LIMITS, 0, Tells::DeltasWithNumbers);
    monitor.end_restart();
    let tree = Tree::new(file, shape, frames, monitor);
    insist(&tree, Gsn(0), || tree.find_tables()).expect("no tables");
    (disk, tree)
}

#[test]
fn the_tree_is_a_map_of_maps_in_few_frames() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let size = [512, 1024, 4096][rng.usize(..3)];
        let (_disk, tree) = new_tree(seed, shape(size), rng.usize(8..40));
        let log = TestLog::default();
        let mut rows = Rows::new();
        for table in TABLES {
            insist(&tree, Gsn(0), || tree.make_table(table, &log)).expect("a table");
        }
        for round in 0..1500 {
            log.flush(log.unstable());
            change(&tree, &log, &mut rng, &mut rows, log.eosl()).expect("a change");
            tree.cut_notes(log.eosl(), &log);
            if round % 100 == 0 {
                let found = rows_of(&tree, log.eosl(), &TABLES).expect("rows");
                assert_eq!(found, rows, "seed {seed}");
            }
        }
        assert_eq!(rows_of(&tree, log.eosl(), &TABLES).expect("rows"), rows);
    }
}

#[test]
fn rows_in_ascending_order_fill_their_pages() {
    let (disk, tree) = new_tree(1, shape(1024), 40);
    let log = TestLog::default();
    let table = TABLES[0];
    insist(&tree, Gsn(0), || tree.make_table(table, &log)).expect("a table");
    for key in 0u32..2000 {
        log.flush(log.unstable());
        let row = (table, &key.to_be_bytes()[..]);
        insist(&tree, log.eosl(), || {
            tree.apply(row.0, row.1, Some(&[7; 30]), &log)
        })
        .expect("a row");
    }
    log.flush(log.unstable());
    let file = disk
        .files()
        .into_iter()
        .find(|(path, _)| path == "tree/pages");
    let (_, bytes) = file.expect("a file");
    // A row takes 38 bytes: a cell of 36 bytes and a slot of 2. A page has 1024 - 48 - 64 bytes for rows.
    let least = 2000 * 38;
    assert!(bytes < least * 13 / 10, "{bytes} bytes for {least}");
}

#[test]
fn a_tree_that_is_emptied_gives_its_pages_back_and_shrinks_to_a_leaf() {
    let (disk, tree) = new_tree(1, shape(512), 60);
    let log = TestLog::default();
    let table = TABLES[0];
    insist(&tree, Gsn(0), || tree.make_table(table, &log)).expect("a table");
    let pages = || {
        let file = disk
            .files()
            .into_iter()
            .find(|(path, _)| path == "tree/pages");
        file.expect("a file").1 / 512
    };
    let mut most = 0;
    for round in 0..4u64 {
        let mut keys: Vec<u32> = (0..1500).collect();
        Rng::with_seed(round).shuffle(&mut keys);
        for value in [Some(&[7; 30][..]), None] {
            for key in &keys {
                log.flush(log.unstable());
                let row = (table, &key.to_be_bytes()[..]);
                let put = insist(&tree, log.eosl(), || tree.apply(row.0, row.1, value, &log));
                if put.expect("a row").is_sparse {
                    insist(&tree, log.eosl(), || tree.merge(table, row.1, &log)).expect("a merge");
                }
            }
            Rng::with_seed(round + 100).shuffle(&mut keys);
        }
        assert_eq!(
            rows_of(&tree, log.eosl(), &TABLES[..1]).expect("rows"),
            Rows::new()
        );
        most = if round == 0 { pages() } else { most };
    }
    assert!(
        pages() <= most + most / 10,
        "{} pages, and {most} were enough",
        pages()
    );
    // Only one leaf is left, which is the root.
    let next = insist(&tree, log.eosl(), || tree.scan(table, b"", |_, _| ())).expect("a leaf");
    assert_eq!(next, None);
}

#[test]
fn what_does_not_fit_or_is_not_there_is_refused() {
    let (_disk, tree) = new_tree(1, shape(512), 8);
    let log = TestLog::default();
    let table = TABLES[0];
    insist(&tree, Gsn(0), || tree.make_table(table, &log)).expect("a table");
    let refused = |row: (TableId, &[u8]), value: &[u8]| {
        let answer = tree.apply(row.0, row.1, Some(value), &log);
        answer.map(|_| ()).expect_err("a refusal").to_string()
    };
    assert_eq!(
        refused((table, &[0; 33]), b""),
        "a key has 33 bytes; the most is 32"
    );
    assert_eq!(
        refused((table, b"k"), &[0; 126]),
        "a row has 129 bytes; the most is 128"
    );
    assert_eq!(refused((TABLES[1], b"k"), b""), "there is no table 7");
    let again = tree.make_table(table, &log).map(|_| ());
    assert_eq!(
        again.expect_err("a refusal").to_string(),
        "there is a table 1"
    );
}

fn run(seed: u64, met: &mut Met) -> Result<(), String> {
    let mut rng = Rng::with_seed(seed);
    let shape = shape([512, 512, 1024, 4096][rng.usize(..4)]);
    let frames = rng.usize(10..40);
    let (disk, mut tree) = new_tree(seed, shape, frames);
    let log = TestLog::default();
    for table in TABLES {
        insist(&tree, Gsn(0), || tree.make_table(table, &log)).map_err(|e| e.to_string())?;
    }
    log.flush(log.unstable());
    let mut run = Run {
        rng,
        disk,
        shape,
        frames,
        log,
    };
    for _ in 0..4 {
        run.live(&tree);
        drop(tree);
        run.crash(met);
        tree = run.restart(met)?;
        met.structures += run
            .log
            .entries()
            .iter()
            .filter(|(_, entry)| matches!(entry, Entry::Record(bytes) if bytes[0] == 5))
            .count() as u64;
    }
    Ok(())
}

#[test]
fn every_method_comes_to_the_rows_that_the_log_tells_after_each_crash() {
    let mut met = Met::default();
    for seed in 0..150 {
        assert_eq!(run(seed, &mut met), Ok(()), "seed {seed}");
    }
    println!("{met:?}");
    assert!(
        met.skipped > 10_000 && met.applied > 10_000 && met.structures > 500,
        "{met:?}"
    );
}

#[test]
#[ignore = "some minutes: what every change of the tree should pass"]
fn twenty_thousand_chains_of_lives_hold() {
    let mut met = Met::default();
    for seed in 0..20_000 {
        assert_eq!(run(seed, &mut met), Ok(()), "seed {seed}");
    }
    println!("{met:?}");
}

/// Restarts with a file overwritten by an old copy. Its pages are whole, but older than the log expects. The
/// restart may find wrong rows or return an error, but must not panic.
#[test]
fn pages_of_an_earlier_time_are_no_reason_to_panic() {
    let (mut refused, mut restarted) = (0, 0);
    for seed in 0..300 {
        let (disk, tree) = new_tree(seed, shape(512), 30);
        let log = TestLog::default();
        insist(&tree, Gsn(0), || tree.make_table(TABLES[0], &log)).expect("a table");
        insist(&tree, Gsn(0), || tree.make_table(TABLES[1], &log)).expect("a table");
        let (mut rng, mut rows) = (Rng::with_seed(seed), Rows::new());
        let mut early = None;
        for round in 0..600 {
            log.flush(log.unstable());
            change(&tree, &log, &mut rng, &mut rows, log.eosl()).expect("a change");
            log.flush(log.unstable());
            while tree.pool().monitor().lock().dirty_count() > 6 {
                tree.pool().write_step(log.eosl()).expect("a step");
            }
            if round == 200 {
                early = disk.read_all("tree/pages").ok();
            } else if round == 400 {
                let begun = tree.begin_checkpoint(&log);
                let begun = begun.expect("no disk fails");
                assert!(begun != Answer::NoFrame, "the meta page is in memory");
            } else if round > 400 && tree.pool().monitor().lock().is_in_checkpoint() {
                tree.pool().write_step(log.eosl()).expect("a step");
                tree.end_checkpoint(&log);
            }
        }
        log.flush(log.unstable());
        drop(tree);
        log.crash();
        let file = disk.open("tree/pages", Access::Buffered).expect("a file");
        file.write_at(0, &early.expect("pages")).expect("a write");
        let method = [Method::Log0, Method::Sql1, Method::Aries][rng.usize(..3)];
        match restart(&*disk, (shape(512), 30), &log, method, |_| Ok(())) {
            Ok(_) => restarted += 1,
            Err(error) => {
                assert!(error.to_string().contains("in page"), "{error}");
                refused += 1;
            }
        }
    }
    println!("{refused} refused, {restarted} restarted");
    assert!(refused > 30, "{refused}");
}

/// A seeded bug shows as a wrong state, as an error, or as an assertion that fails.
#[test]
fn every_mistake_shows() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut hidden = Vec::new();
    for flaw in Flaw::TREE
        .into_iter()
        .chain(Flaw::TREE_FILE)
        .chain(Flaw::TREE_PAGES)
    {
        let shown = (0..HUNT_RUNS).find_map(|seed| {
            arm(Some(flaw));
            let ran = std::panic::catch_unwind(|| run(seed, &mut Met::default()));
            arm(None);
            let how = match ran {
                Ok(ran) => ran.err()?,
                Err(_) => String::from("an assertion"),
            };
            Some((seed, how))
        });
        println!("{flaw:?}: {shown:?}");
        match shown {
            Some((seed, _)) => assert_eq!(run(seed, &mut Met::default()), Ok(()), "{flaw:?}"),
            None => hidden.push(flaw),
        }
    }
    drop(std::panic::take_hook());
    assert!(hidden.is_empty(), "{hidden:?} do not show");
}

#[test]
fn a_table_of_dirty_pages_saves_fetches() {
    let (disk, tree) = new_tree(5, shape(512), 30);
    let log = TestLog::default();
    insist(&tree, Gsn(0), || tree.make_table(TABLES[0], &log)).expect("a table");
    let mut rng = Rng::with_seed(5);
    let mut row = |log: &TestLog| {
        let key = rng.u32(..5000).to_be_bytes();
        log.flush(log.unstable());
        let eosl = log.eosl();
        insist(&tree, eosl, || {
            tree.apply(TABLES[0], &key, Some(&[1; 20]), log)
        })
        .expect("a row");
        // The writer keeps a third of the pool clean, so at most 20 pages are dirty.
        while tree.pool().monitor().lock().dirty_count() > 20 {
            tree.pool().write_step(eosl).expect("a step");
        }
        tree.cut_notes(eosl, log);
    };
    (0..4000).for_each(|_| row(&log));
    drop(tree);
    log.crash();
    let mut fetches = BTreeMap::new();
    for method in [Method::Log0, Method::Log1(Detail::Standard), Method::Sql1] {
        let before = disk.snapshot();
        let restarted = restart(&*disk, (shape(512), 30), &log, method, |_| Ok(()));
        let (_, report) = restarted.expect("a restart");
        fetches.insert(format!("{method:?}"), report.data_fetches);
        disk.restore(&before);
    }
    println!("{fetches:?}");
    let (log0, log1) = (fetches["Log0"], fetches["Log1(Standard)"]);
    assert!(log1 * 5 < log0, "{fetches:?}");
}
