//! Callers that wait until a commit is durable, callers that wait because the disk lags, and the measured lag.

use std::time::{Duration, Instant};

use perdura::{Db, Durability, Options, Ticket};

use crate::with_threads::set;

/// Returns a database with at most one log write a second.
fn slow(dir: &std::path::Path, durability: Durability) -> Db {
    let mut options = Options::new(dir);
    options.segment_bytes = 4 << 20;
    options.flush_every = Duration::from_secs(1);
    options.durability = durability;
    Db::open(options).unwrap()
}

/// Makes a write when the log has just been written, so that the write is not durable for a while.
fn written(db: &Db) -> Ticket {
    let begun = Instant::now();
    loop {
        let ticket = set(db, b"key", b"value");
        db.wait_at(Durability::Disk, ticket).unwrap();
        let ticket = set(db, b"key", &[7; 5000]);
        if db.durable() < ticket.epoch {
            return ticket;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no write waits");
    }
}

#[test]
fn a_ticket_is_waited_for_at_the_rung_that_the_caller_names() {
    let dir = tempfile::tempdir().unwrap();
    let db = slow(dir.path(), Durability::Disk);
    let ticket = written(&db);
    db.wait_at(Durability::Mem, ticket).unwrap();
    assert!(db.durable() < ticket.epoch, "nothing was waited for");
    db.wait_at(Durability::Mirror, ticket).unwrap();
    assert!(db.durable() >= ticket.epoch, "without nodes it is the disk");
    let ticket = written(&db);
    db.wait(ticket).unwrap();
    assert!(db.durable() >= ticket.epoch, "the default");
}

#[test]
fn the_options_say_how_durable_a_write_is_when_it_returns() {
    let dir = tempfile::tempdir().unwrap();
    let db = slow(dir.path(), Durability::Mem);
    let before = written(&db);
    db.write(|tx| tx.put(db.database(0), b"other", b"value", None))
        .unwrap();
    assert!(db.durable() < before.epoch, "it has waited for no rung");
}

/// With `mem`, a caller does not continue while a write that is more than 10 ms old is not durable.
#[test]
fn a_caller_that_waits_for_no_rung_is_held_back_while_the_disk_is_far_behind() {
    let dir = tempfile::tempdir().unwrap();
    let db = slow(dir.path(), Durability::Mem);
    let ticket = written(&db);
    assert!(db.is_mem_in_time());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!db.is_mem_in_time() || db.durable() >= ticket.epoch);
    db.wait(ticket).unwrap();
    assert!(db.durable() >= ticket.epoch);
    assert!(db.is_mem_in_time());
}

#[test]
fn what_is_not_on_disk_is_counted_and_its_worst_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let db = slow(dir.path(), Durability::Disk);
    let ticket = written(&db);
    std::thread::sleep(Duration::from_millis(30));
    let now = db.stats().log;
    assert!(db.durable() < ticket.epoch, "a second has not passed");
    assert!(now.unsynced_bytes >= 5000, "{now:?}");
    assert!(now.durable_lag_us >= 30_000, "{now:?}");
    assert!(now.mirror_lag_us >= now.durable_lag_us, "without nodes");
    assert_eq!(db.exposure().bytes, now.unsynced_bytes);
    let begun = Instant::now();
    db.wait(ticket).unwrap();
    let waited = begun.elapsed();
    let later = db.stats().log;
    assert_eq!((later.unsynced_bytes, later.durable_lag_us), (0, 0));
    assert!(later.unsynced_max_bytes >= now.unsynced_bytes, "{later:?}");
    // The maximum includes the whole duration of the write, although no figures were read during
    // it.
    let least = now.durable_lag_us + u64::try_from(waited.as_micros()).unwrap() / 2;
    assert!(
        later.durable_lag_max_us >= least,
        "{later:?} after {waited:?}"
    );
}
