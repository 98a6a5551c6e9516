//! Rungs: where a commit may be durable, and how far each rung has got.
//!
//! The durable epoch D is always D *of a rung*. A caller names the rung that it relies on: replies
//! wait for their session's, while checkpoints, truncation, beacons and the anchor's vouching rely on
//! [`Rung::Disk`], because a restart reads segments and nothing else.
//!
//! # Invariants
//! * D of a rung never goes back.
//! * The ends of an epoch are kept until the slowest rung has passed it.

use crossbeam_utils::CachePadded;
use perdura_base::Epoch;

use crate::sync::{AtomicU64, Ordering};

/// Where an epoch is durable. A further rung needs a variant, a line in `ALL`, and a caller of
/// `Wal::pass`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// In the segments on the log's disks, synced.
    Disk,
    /// A second rung, so that tests see which code assumes that there is only one.
    #[cfg(test)]
    Dummy,
}

impl Rung {
    /// All rungs, in the order of their variants.
    pub const ALL: [Rung; Rung::COUNT] = [
        Rung::Disk,
        #[cfg(test)]
        Rung::Dummy,
    ];
    /// How many rungs there are.
    pub const COUNT: usize = if cfg!(test) { 2 } else { 1 };

    const fn number(self) -> usize {
        match self {
            Rung::Disk => 0,
            #[cfg(test)]
            Rung::Dummy => 1,
        }
    }
}

/// A value for each rung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PerRung<T>([T; Rung::COUNT]);

impl<T> PerRung<T> {
    pub fn new(make: impl Fn(Rung) -> T) -> PerRung<T> {
        PerRung(Rung::ALL.map(make))
    }
}

impl<T> std::ops::Index<Rung> for PerRung<T> {
    type Output = T;

    fn index(&self, rung: Rung) -> &T {
        &self.0[rung.number()]
    }
}

impl<T> std::ops::IndexMut<Rung> for PerRung<T> {
    fn index_mut(&mut self, rung: Rung) -> &mut T {
        &mut self.0[rung.number()]
    }
}

/// D of each rung, each on a separate cache line because every reply reads it.
pub(crate) type DurableEpochs = PerRung<CachePadded<AtomicU64>>;

impl DurableEpochs {
    pub fn all_at(start: Epoch) -> DurableEpochs {
        PerRung::new(|_| CachePadded::new(AtomicU64::new(start.0)))
    }

    /// The D of the rung that is farthest behind.
    pub fn slowest(&self) -> u64 {
        let all = Rung::ALL.map(|rung| self[rung].load(Ordering::SeqCst));
        all.into_iter().fold(u64::MAX, u64::min)
    }
}

/// The durable epoch of every rung, as read at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached(PerRung<Epoch>);

impl Reached {
    /// Reads the durable epoch of each rung.
    #[must_use]
    pub fn new(durable: impl Fn(Rung) -> Epoch) -> Reached {
        Reached(PerRung::new(durable))
    }

    /// The durable epoch of a rung.
    #[must_use]
    pub fn at(&self, rung: Rung) -> Epoch {
        self.0[rung]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_base::{CkptEpoch, Gsn, Incarnation, PartitionSet, Pos, StreamId, Uuid};
    use perdura_device::{Disk, ManualClock, MemDisk};

    use super::*;
    use crate::segment::LOG_DIR;
    use crate::{FlushProgress, FrameKind, SegmentSizes, Wal, WalOptions, WalStart};

    fn log(streams: u8) -> Wal {
        let disk: Arc<dyn Disk> = Arc::new(MemDisk::new());
        disk.make_dir(LOG_DIR).unwrap();
        let start = WalStart {
            uuid: Uuid([3; 16]),
            incarnation: Incarnation(1),
            start: vec![Pos(0); usize::from(streams)],
            epoch: Epoch(1),
            durable: Epoch(0),
            wall_us: 0,
            gsn: Gsn(0),
        };
        let options = WalOptions {
            segments: SegmentSizes::fixed(64 << 10),
            ..WalOptions::default()
        };
        let disks = vec![disk; usize::from(streams)];
        let clock = Arc::new(ManualClock::at(1));
        Wal::open(&disks, clock, options, start, |_| true).unwrap()
    }

    /// Appends to every stream, closes the epoch and syncs it on disk.
    fn commit(wal: &Wal) -> Epoch {
        for stream in (0..wal.streams()).map(StreamId) {
            let none = PartitionSet::empty();
            wal.append(stream, FrameKind::Group, b"group", &none, CkptEpoch(0));
        }
        let epoch = wal.close_epoch().unwrap();
        for stream in (0..wal.streams()).map(StreamId) {
            while wal.flush_step(stream).unwrap() != FlushProgress::Idle {}
        }
        epoch
    }

    #[test]
    fn each_rung_has_a_durable_epoch_that_its_own_streams_decide() {
        let wal = log(2);
        let epoch = commit(&wal);
        assert_eq!(wal.durable(Rung::Disk), epoch);
        let end = |stream| wal.synced(StreamId(stream));
        wal.pass(Rung::Dummy, &wal.streams[0], end(0));
        assert_eq!(wal.durable(Rung::Dummy), Epoch(0), "one stream of two");
        wal.pass(Rung::Dummy, &wal.streams[1], end(1));
        let reached = wal.reached();
        assert!(Rung::ALL.iter().all(|rung| reached.at(*rung) == epoch));
        assert_eq!(
            wal.durable_end(Rung::Dummy).ends,
            wal.durable_end(Rung::Disk).ends
        );
    }

    #[test]
    fn an_epochs_ends_are_kept_until_the_slowest_rung_has_passed_it() {
        let wal = log(1);
        let kept = || wal.ends.lock().closed.len();
        let mut ends = Vec::new();
        for _ in 0..3 {
            commit(&wal);
            ends.push(wal.synced(StreamId(0)));
        }
        assert_eq!((wal.durable(Rung::Disk), kept()), (Epoch(3), 3));
        wal.pass(Rung::Dummy, &wal.streams[0], ends[1]);
        assert_eq!((wal.durable(Rung::Dummy), kept()), (Epoch(2), 1));
        // A rung ahead of the disk changes nothing about what is durable there.
        let ahead = Pos(ends[2].0 + (1 << 20));
        wal.pass(Rung::Dummy, &wal.streams[0], ahead);
        assert_eq!((wal.durable(Rung::Dummy), kept()), (Epoch(3), 0));
        let none = PartitionSet::empty();
        wal.append(StreamId(0), FrameKind::Group, b"group", &none, CkptEpoch(0));
        wal.close_epoch();
        wal.pass(Rung::Dummy, &wal.streams[0], ahead);
        assert_eq!(wal.durable(Rung::Dummy), Epoch(4));
        assert_eq!((wal.durable(Rung::Disk), kept()), (Epoch(3), 1));
        assert!(!wal.is_idle(), "what is not on disk is not durable there");
    }
}
