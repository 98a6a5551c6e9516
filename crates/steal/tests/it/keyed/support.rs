//! A database of transactions over keys on a simulated disk.

use std::sync::Arc;

use perdura_base::{Error, TableId};
use perdura_device::{CrashProfile, Disk as _, ManualClock, SimDisk};
use perdura_recovery::{Disks, METHODS, Method, Player};
use perdura_steal::{KeyTxn, Keyed, KeyedOptions, StealEnv, Write};
use perdura_tree::monitor::Limits;
use perdura_wal::Scheme;

pub const TABLE: TableId = TableId(1);

pub fn env(disk: &Arc<SimDisk>, streams: usize) -> StealEnv {
    // The disk keeps its locks until its last write has ended. A database that is opened by its directories asks the
    // same of its log disks.
    disk.keep_locked(&vec![Box::new(())]);
    StealEnv {
        disks: Disks::on_one(disk.life(), streams),
        clock: Arc::new(ManualClock::at(1)),
        seed: 7,
    }
}

/// Returns options for a pool of few small pages. The low limits cause frequent log records about dirty pages.
pub fn options(scheme: Scheme) -> KeyedOptions {
    KeyedOptions {
        page_bytes: 512,
        segment_bytes: 1 << 20,
        block_bytes_max: 16 << 10,
        limits: Some(Limits {
            notes: 24,
            written: 8,
        }),
        ..KeyedOptions::new(scheme, 16)
    }
}

pub fn open(disk: &Arc<SimDisk>, streams: usize, options: &KeyedOptions) -> Keyed {
    let opened = Keyed::open(env(disk, streams), options.clone());
    opened.expect("a restart").expect("a database")
}

/// Repeats a call until the log has room for it. Flushes the log after each failure.
pub fn insist<T>(keyed: &Keyed, mut call: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match call() {
            Ok(value) => return value,
            Err(Error::LogFull(_)) => keyed.flush_all().expect("no disk fails"),
            Err(error) => panic!("{error}"),
        }
    }
}

pub fn put(keyed: &Keyed, txn: &mut KeyTxn, key: &[u8], value: Option<&[u8]>) -> Option<Vec<u8>> {
    let written = insist(keyed, || keyed.txns().write(txn, TABLE, key, value));
    match written {
        Write::Done(before) => before,
        Write::Taken => panic!("key {key:?} belongs to another transaction"),
    }
}

pub fn digest_of(keyed: &Keyed) -> String {
    insist(keyed, || keyed.txns().contents()).hex()
}

/// Returns the methods that restart a tree of this scheme.
pub fn methods(scheme: Scheme) -> impl Iterator<Item = &'static Method> {
    let of_tree = |method: &&Method| matches!(method.player, Player::Tree(_));
    let legal = move |method: &&Method| method.schemes.contains(&scheme);
    METHODS.iter().filter(of_tree).filter(legal)
}

pub fn crash(disk: &SimDisk, seed: u64) {
    disk.crash(CrashProfile::ALL[0], seed);
}
