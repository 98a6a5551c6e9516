//! A database on disks in memory, and the rows that it must hold after a crash.
//!
//! A crash drops the engine. Blocks written to the disks stay; all other blocks are lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::{Epoch, StreamId};
use perdura_device::{Clock, Disk, ManualClock, MemDisk};
use perdura_recovery::{Level, Schedule};
use perdura_steal::{Committed, Place, Records, Route, Steal, StealEnv, StealOptions, Txn};
use perdura_wal::{FlushProgress, Scheme};

pub const STEAL_SCHEMES: [Scheme; 3] = [Scheme::Dl1p, Scheme::Dl2p, Scheme::Pl2p];

/// The disks of a database.
#[derive(Clone)]
pub struct Disks {
    pub env: StealEnv,
}

impl Disks {
    pub fn new(streams: usize, images: usize) -> Disks {
        let disk = || -> Arc<dyn Disk> { Arc::new(MemDisk::new()) };
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(1));
        Disks {
            env: StealEnv {
                disks: perdura_recovery::disks::Disks {
                    data: disk(),
                    images: (0..images).map(|_| disk()).collect(),
                    logs: (0..streams).map(|_| disk()).collect(),
                },
                clock,
                seed: 7,
            },
        }
    }
}

pub fn options(scheme: Scheme, records: Records) -> StealOptions {
    StealOptions {
        records,
        partitions: 2,
        chunk_pages: 2,
        segment_bytes: 64 << 10,
        block_bytes_max: 4096,
        queue_bytes_max: 1 << 30,
        route: Route::Scattered,
        schedule: Schedule::inline(Level::Two, 0),
        ..StealOptions::new(scheme, 1000)
    }
}

/// The writes of a transaction. If a place occurs more than once, the last entry counts.
pub type Writes = Vec<(Place, Option<Vec<u8>>)>;

/// All committed transactions, in the order of their commits.
#[derive(Default)]
pub struct History {
    pub committed: Vec<(Committed, Writes)>,
}

impl History {
    /// Returns the rows after all transactions of epochs up to `durable`.
    pub fn rows(&self, durable: Epoch) -> BTreeMap<Place, Vec<u8>> {
        let mut rows = BTreeMap::new();
        for (committed, writes) in &self.committed {
            if committed.epoch > durable {
                continue;
            }
            for (place, row) in writes {
                match row {
                    Some(row) => rows.insert(*place, row.clone()),
                    None => rows.remove(place),
                };
            }
        }
        rows
    }

    /// Removes the transactions of epochs after `durable`. The restart has lost them.
    pub fn forget_after(&mut self, durable: Epoch) {
        self.committed.retain(|(c, _)| c.epoch <= durable);
    }
}

/// Returns the rows in all taken slots.
pub fn rows(steal: &Steal) -> BTreeMap<Place, Vec<u8>> {
    let mut rows = BTreeMap::new();
    for id in 0..steal.heap().geometry().partitions {
        for place in steal.places(perdura_base::PartitionId(id)) {
            let mut row = Vec::new();
            assert!(steal.read(place, &mut row));
            while row.last() == Some(&0) {
                row.pop();
            }
            rows.insert(place, row);
        }
    }
    rows
}

/// Returns a row that differs from the rows of all other numbers.
pub fn row(number: u64) -> Vec<u8> {
    let mut row = number.to_le_bytes().to_vec();
    row.resize(40 + usize::try_from(number % 7).unwrap(), 0x5a);
    row
}

/// An open transaction and its writes.
pub struct Open {
    pub txn: Txn,
    pub writes: Writes,
}

pub fn insert(steal: &Steal, open: &mut Open, row: Vec<u8>) -> Option<Place> {
    let place = steal.insert(&mut open.txn, &row).unwrap()?;
    open.writes.push((place, Some(row)));
    Some(place)
}

pub fn update(steal: &Steal, open: &mut Open, place: Place, row: Vec<u8>) -> bool {
    let done = steal.update(&mut open.txn, place, &row).unwrap();
    if done {
        open.writes.push((place, Some(row)));
    }
    done
}

pub fn delete(steal: &Steal, open: &mut Open, place: Place) -> bool {
    let done = steal.delete(&mut open.txn, place).unwrap();
    if done {
        open.writes.push((place, None));
    }
    done
}

pub fn begin(steal: &Steal) -> Open {
    Open {
        txn: steal.begin(),
        writes: Vec::new(),
    }
}

pub fn commit(steal: &Steal, history: &mut History, open: Open) -> Committed {
    let committed = steal.commit(open.txn);
    history.committed.push((committed, open.writes));
    committed
}

/// Flushes one stream without closing an epoch.
pub fn flush_stream(steal: &Steal, stream: u8) {
    while steal.flush_step(StreamId(stream)).unwrap() != FlushProgress::Idle {}
}
