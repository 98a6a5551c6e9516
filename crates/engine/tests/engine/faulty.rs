//! The database with threads, on a disk that delays, reorders, refuses, tears and fails log writes at random, by seed.
//! After each life, each client's data must be the result of a prefix of the client's operations. The prefix must
//! contain all acknowledged operations.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use perdura::{Db, Error, LogIo, Options, Progress, Result};
use perdura_device::{Disk, FileDisk};
use perdura_recovery::disks::{Demand, Opening};

use crate::faulty_disk::{Faults, FaultyDisk};

const CLIENTS: u8 = 4;
const KEYS: u32 = 24;

/// The operations of one client: its n-th operation puts n under the key n modulo [`KEYS`].
#[derive(Default, Clone, Copy)]
struct Done {
    /// The number of the last operation that was run.
    ran: u32,
    /// The number of the last operation that was acknowledged.
    acknowledged: u32,
}

fn key(client: u8, op: u32) -> [u8; 2] {
    [client, u8::try_from(op % KEYS).unwrap()]
}

/// Opens the database on disks that may fail once `faults` is armed.
pub fn open(options: &Options, faults: &Arc<Faults>) -> Result<Db> {
    let paths = options.paths();
    let open_dir = |dir: &Path| -> Result<Arc<dyn Disk>> {
        let inner = Arc::new(FileDisk::new(dir)?.with_log_io(options.log_io));
        let faults = Arc::clone(faults);
        Ok(Arc::new(FaultyDisk { inner, faults }))
    };
    let opening = Opening::begin(&paths, &open_dir)?;
    opening.write_version()?;
    let (disks, locks) = opening.finish(options.streams, 1, Demand::OfExisting)?;
    Db::open_on(options.clone(), disks, locks, Arc::new(Progress::default()))
}

/// Runs a random number of operations, or fewer if the log stops.
fn work(db: &Db, client: u8, done: &mut Done, mut rng: Rng) {
    let last = done.ran + rng.u32(50..400);
    while done.ran < last {
        let (op, size) = (done.ran + 1, rng.usize(4..3000));
        let mut value = op.to_le_bytes().to_vec();
        value.resize(size, client);
        let key = key(client, op);
        let parts = [db.partition_of(&key)].into_iter().collect();
        let put = db.transact(&parts, |tx| tx.put(db.database(0), &key, &value, None));
        // A put that fails because the log has stopped may still be in the log, so it counts as run.
        done.ran = op;
        let ticket = match put {
            Ok((_, ticket)) => ticket,
            Err(Error::LogFull(_)) => {
                // The put was refused and is not in the log, so try it again.
                std::thread::yield_now();
                done.ran -= 1;
                continue;
            }
            Err(error) => return assert!(matches!(error, Error::Stopped(_)), "{error}"),
        };
        if rng.u8(0..3) == 0 {
            match db.wait(ticket) {
                Ok(()) => done.acknowledged = op,
                Err(error) => return assert!(matches!(error, Error::Stopped(_)), "{error}"),
            }
        }
    }
}

/// Checks that a client's data is a prefix of its operations. The client then continues from the
/// end of that prefix.
fn check(db: &Db, client: u8, done: &mut Done) {
    let found = |op: u32| {
        let key = key(client, op);
        let parts = [db.partition_of(&key)].into_iter().collect();
        let read = db.transact(&parts, |tx| {
            let row = tx.get(db.database(0), &key)?;
            Ok::<_, Error>(row.map_or(0, |row| {
                let number = row.value()[..4].try_into().unwrap();
                u32::from_le_bytes(number)
            }))
        });
        read.unwrap().0
    };
    let all: Vec<u32> = (0..KEYS).map(found).collect();
    let last = all.iter().copied().max().unwrap_or(0);
    assert!(
        (done.acknowledged..=done.ran).contains(&last),
        "client {client} finds {last} operations; it ran {} and {} were acknowledged",
        done.ran,
        done.acknowledged
    );
    for (at, found) in (0..KEYS).zip(all) {
        // The newest operation, up to `last`, that wrote this key.
        let back = (last + KEYS - at) % KEYS;
        let expected = last.saturating_sub(back);
        let expected = if back > last { 0 } else { expected };
        assert_eq!(found, expected, "client {client}, key {at}: no prefix");
    }
    *done = Done {
        ran: last,
        acknowledged: last,
    };
}

fn lives(log_io: LogIo, streams: u8, seed: u64, count: u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes: 1 << 20,
        partitions: 8,
        streams,
        checkpoint_log_bytes: 2 << 20,
        log_io,
        lock_wait: Duration::from_secs(10),
        ..Options::new(dir.path().join("data"))
    };
    let mut rng = Rng::with_seed(seed);
    let mut done = [Done::default(); CLIENTS as usize];
    let mut struck = [0; 3];
    for _ in 0..count {
        let fails = [0, 100, 20][rng.usize(0..3)];
        let faults = Faults::new(rng.u64(..), fails);
        let db = open(&options, &faults).unwrap();
        for (client, done) in (0..).zip(&mut done) {
            check(&db, client, done);
        }
        faults.arm();
        std::thread::scope(|scope| {
            for (client, done) in (0..).zip(&mut done) {
                let (db, rng) = (&db, rng.fork());
                scope.spawn(move || work(db, client, done, rng));
            }
        });
        // Ends the life without waiting for writes in flight.
        db.abandon();
        for (sum, count) in struck.iter_mut().zip(&faults.struck) {
            *sum += count.load(Ordering::SeqCst);
        }
    }
    let db = Db::open(options).unwrap();
    for (client, done) in (0..).zip(&mut done) {
        check(&db, client, done);
    }
    let acknowledged: u32 = done.iter().map(|done| done.acknowledged).sum();
    let [held, refused, failed] = struck;
    println!(
        "{count} lives by {}, {streams} streams: {acknowledged} operations kept; {held} writes held, {refused} refused, \
         {failed} failed",
        log_io.name()
    );
    assert!(held > 0 && refused > 0 && failed > 0, "{struck:?}");
}

/// Returns the number of database lives in a test, and the seed of the first life.
fn rounds() -> (u64, u64) {
    let number = |name: &str, default| {
        let text = std::env::var(name).ok();
        text.map_or(default, |text| text.parse().expect(name))
    };
    (
        number("PERDURA_FAULTY_LIVES", 12),
        number("PERDURA_FAULTY_SEED", 1),
    )
}

#[test]
fn nothing_acknowledged_is_lost_whatever_becomes_of_writes_that_nobody_waits_for() {
    let (count, seed) = rounds();
    // With `Auto`, the database measures the methods of writing, and may choose `io_uring`.
    lives(LogIo::Auto, 1, seed, count);
    lives(LogIo::Auto, 2, seed, count);
}

#[test]
fn nothing_acknowledged_is_lost_whatever_becomes_of_writes_that_a_thread_waits_for() {
    let (count, seed) = rounds();
    lives(LogIo::Sync, 1, seed, count);
}
