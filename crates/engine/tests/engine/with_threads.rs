//! The database with threads, in a directory.

use std::time::Duration;

use perdura::{Db, Error, Options};

fn options(dir: &tempfile::TempDir) -> Options {
    Options {
        segment_bytes: 1 << 20,
        lock_wait: Duration::from_millis(100),
        ..Options::new(dir.path().join("data"))
    }
}

pub fn set(db: &Db, key: &[u8], value: &[u8]) -> perdura::Ticket {
    let parts = [db.partition_of(key)].into_iter().collect();
    db.transact(&parts, |tx| tx.put(db.database(0), key, value, None))
        .expect("a put")
        .1
}

#[test]
fn a_database_comes_back_with_and_without_a_clean_end() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(options(&dir)).unwrap();
    for i in 0..1000u32 {
        let ticket = set(&db, &i.to_le_bytes(), &[7; 100]);
        if i % 100 == 99 {
            db.wait(ticket).unwrap();
        }
    }
    let digest = db.digest().unwrap();
    db.abandon();
    let db = Db::open(options(&dir)).unwrap();
    assert!(!db.report().clean);
    assert_eq!(db.rows(0).unwrap(), (1000, 0));
    assert_eq!(db.digest().unwrap(), digest);
    db.close().unwrap();
    let db = Db::open(options(&dir)).unwrap();
    assert!(db.report().clean);
    assert_eq!(db.digest().unwrap(), digest);
    assert_eq!(db.report().records.applied, 0);
}

#[test]
fn many_threads_commit_checkpoint_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&dir);
    options.checkpoint_log_bytes = 2 << 20;
    options.streams = 2;
    let db = Db::open(options.clone()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let db = db.clone();
            scope.spawn(move || {
                for i in 0..3000u32 {
                    let key = [thread.to_le_bytes(), (i % 500).to_le_bytes()].concat();
                    let ticket = set(&db, &key, &[i.to_le_bytes()[0]; 400]);
                    if i % 64 == 0 {
                        db.wait(ticket).unwrap();
                    }
                }
            });
        }
    });
    let last = set(&db, b"last", b"x");
    db.wait(last).unwrap();
    db.checkpoint().unwrap();
    let digest = db.digest().unwrap();
    assert!(db.stats().checkpoint.completed > 0, "{:?}", db.stats());
    db.abandon();
    let db = Db::open(options).unwrap();
    assert_eq!(db.digest().unwrap(), digest);
}

#[test]
fn a_directory_is_open_once_and_foreign_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(options(&dir)).unwrap();
    assert!(matches!(Db::open(options(&dir)), Err(Error::Locked { .. })));
    drop(db);
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("thesis.txt"), "years of work").unwrap();
    assert!(matches!(
        Db::open(Options::new(other.path())),
        Err(Error::Foreign { .. })
    ));
    assert_eq!(
        std::fs::read_dir(other.path()).unwrap().count(),
        1,
        "nothing was added"
    );
}

#[test]
fn another_version_and_wrong_settings_are_refused_with_their_name() {
    let dir = tempfile::tempdir().unwrap();
    drop(Db::open(options(&dir)).unwrap());
    let two_streams = Options {
        streams: 2,
        ..options(&dir)
    };
    assert!(matches!(Db::open(two_streams), Err(Error::Usage(_))));
    let odd = Options {
        partitions: 3,
        ..options(&dir)
    };
    assert!(matches!(Db::open(odd), Err(Error::Usage(text)) if text.contains("partitions")));
    let version = dir.path().join("data/VERSION");
    std::fs::write(&version, "perdura 9\n").unwrap();
    std::fs::write(dir.path().join("data/anchor"), vec![0; 8192]).unwrap();
    assert!(matches!(
        Db::open(options(&dir)),
        Err(Error::Version { found: 9, .. })
    ));
}

/// Found in review: a database directory without its anchor was treated as an empty directory.
#[test]
fn a_database_without_its_anchor_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(options(&dir)).unwrap();
    let ticket = set(&db, b"key", b"value");
    db.wait(ticket).unwrap();
    db.close().unwrap();
    let (anchor, aside) = (dir.path().join("data/anchor"), dir.path().join("anchor"));
    std::fs::rename(&anchor, &aside).unwrap();
    let refused = Db::open(options(&dir));
    assert!(matches!(refused, Err(Error::Corrupt(c)) if c.file.ends_with("anchor")));
    std::fs::rename(&aside, &anchor).unwrap();
    assert_eq!(Db::open(options(&dir)).unwrap().rows(0).unwrap().0, 1);
}

#[test]
fn other_handles_of_a_closed_database_see_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(options(&dir)).unwrap();
    let other = db.clone();
    db.close().unwrap();
    let parts = [other.partition_of(b"k")].into_iter().collect();
    let refused = other.transact(&parts, |tx| tx.put(other.database(0), b"k", b"v", None));
    assert!(matches!(refused, Err(Error::Stopped(_))));
    assert!(matches!(other.checkpoint(), Err(Error::Stopped(_))));
}

#[test]
fn the_anchor_vouches_for_an_idle_database_without_being_asked() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(options(&dir)).unwrap();
    let mut vouched = 0;
    for turn in 0..2u8 {
        db.wait(set(&db, &[turn], b"value")).unwrap();
        let written = db.durable().0;
        assert!(written > vouched);
        let begun = std::time::Instant::now();
        while db.stats().log.vouched_epoch < written {
            assert!(begun.elapsed().as_secs() < 60, "nobody tells the anchor");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        vouched = db.stats().log.vouched_epoch;
        assert!(vouched <= db.durable().0, "never more than is durable");
    }
}

/// Returns the sizes of a directory's log files, in order.
fn log_files(dir: &tempfile::TempDir) -> Vec<u64> {
    let log = dir.path().join("data/log");
    loop {
        let files = std::fs::read_dir(&log).unwrap();
        let sizes = files.map(|file| Ok(file?.metadata()?.len()));
        match sizes.collect::<std::io::Result<Vec<u64>>>() {
            Ok(mut sizes) => {
                sizes.sort_unstable();
                return sizes;
            }
            // A prepared file got its name after the directory was read.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn two_keys_take_a_small_log_whose_segments_double_as_it_grows() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(Options::new(dir.path().join("data"))).unwrap();
    for key in [b"a", b"b"] {
        db.wait(set(&db, key, b"value")).unwrap();
    }
    // There is one segment, and soon a second one.
    let files = log_files(&dir);
    let files: Vec<u64> = files
        .into_iter()
        .filter(|bytes| *bytes != 8 * MIB)
        .collect();
    assert!(files == [4 * MIB] || files[0] < 8 * MIB, "{files:?}");
    let value = vec![7; 100_000];
    let mut last = None;
    for i in 0..400u32 {
        last = Some(set(&db, &i.to_le_bytes(), &value));
    }
    db.wait(last.unwrap()).unwrap();
    let files = log_files(&dir);
    for bytes in [4, 8, 16, 32] {
        assert!(files.contains(&(bytes * MIB)), "{bytes} MiB: {files:?}");
    }
    db.abandon();
    let db = Db::open(Options::new(dir.path().join("data"))).unwrap();
    assert_eq!(db.rows(0).unwrap(), (402, 0));
}

#[test]
fn a_value_longer_than_all_files_ahead_waits_for_them_and_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::new(dir.path().join("data"));
    options.segment_bytes = 8 << 20;
    options.value_bytes_max = 64 << 20;
    let db = Db::open(options).unwrap();
    let value = vec![7; 40 << 20];
    db.wait(set(&db, b"long", &value)).unwrap();
    assert!(db.delayed().is_empty());
    let written: u64 = log_files(&dir).iter().sum();
    assert!(written >= 40 * MIB, "{written}");
}

/// Each life begins with the smallest segment size again, and uses or removes the segments of earlier lives.
#[test]
fn many_short_lives_leave_a_small_log() {
    let dir = tempfile::tempdir().unwrap();
    for life in 0..16u32 {
        let db = Db::open(Options::new(dir.path().join("data"))).unwrap();
        db.wait(set(&db, &life.to_le_bytes(), b"value")).unwrap();
        match life % 2 {
            0 => db.abandon(),
            _ => db.close().unwrap(),
        }
    }
    let files = log_files(&dir);
    let sum: u64 = files.iter().sum();
    assert!(sum <= 40 * MIB, "{files:?}");
    let db = Db::open(Options::new(dir.path().join("data"))).unwrap();
    assert_eq!(db.rows(0).unwrap(), (16, 0));
}

/// There was a bug: MSET, EXEC and DEL of many keys started again and again while the log made files for these
/// commands.
#[test]
fn a_transaction_that_says_how_much_it_will_change_changes_nothing_twice() {
    const ROWS: usize = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(options(&dir)).unwrap();
    let all = db.all_partitions();
    let key = |i: usize| format!("key {i}");
    let mut puts = 0;
    let put = db.transact(&all, |tx| {
        tx.expect_rows(ROWS, ROWS * 110)?;
        (0..ROWS).try_for_each(|i| {
            puts += 1;
            tx.put(db.database(0), key(i).as_bytes(), &[7; 100], None)
        })
    });
    db.wait(put.unwrap().1).unwrap();
    assert_eq!(puts, ROWS);
    let mut deletes = 0;
    let deleted = db.transact(&all, |tx| {
        tx.expect_removals(ROWS)?;
        (0..ROWS).try_for_each(|i| {
            deletes += 1;
            tx.delete(db.database(0), key(i).as_bytes()).map(drop)
        })
    });
    db.wait(deleted.unwrap().1).unwrap();
    assert_eq!(deletes, ROWS);
}

#[test]
fn flushes_keep_a_fixed_spacing_however_many_callers_wait() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&dir);
    options.flush_every = Duration::from_secs(2);
    let refused = Db::open(options.clone()).err().unwrap();
    assert!(matches!(refused, Error::Usage(_)), "{refused}");
    options.flush_every = Duration::from_millis(30);
    let db = Db::open(options).unwrap();
    let (begin, syncs) = (std::time::Instant::now(), db.stats().log.syncs);
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let db = &db;
            scope.spawn(move || {
                for i in 0..5u8 {
                    let ticket = set(db, &[thread, i], &[i]);
                    db.wait(ticket).unwrap();
                }
            });
        }
    });
    let took = begin.elapsed();
    let syncs = u32::try_from(db.stats().log.syncs - syncs).unwrap();
    assert!(
        syncs >= 5,
        "each of a thread's writes waits for its own flush"
    );
    assert!(
        took >= Duration::from_millis(30) * (syncs - 1),
        "{syncs} in {took:?}"
    );
    assert!(db.stats().log.spaced);
    db.close().unwrap();
}
