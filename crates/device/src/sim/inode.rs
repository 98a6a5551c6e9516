//! The bytes of one simulated file. Programs see `live`, and the disk holds `durable`. The pending changes have been
//! applied to `live` only.
//!
//! # Invariants
//!
//! `live` and `durable` differ only within the `dirty` ranges of pending changes and within the `stale` ranges. So the
//! cost of a sync or a crash depends on the number of changed bytes, not on the size of the file. This makes a thousand
//! crashes a second possible.

use std::mem;
use std::ops::Range;

use fastrand::Rng;

use super::Meters;
use super::content::{Content, Written};

/// The size of a sector, in bytes. A torn write keeps or loses whole sectors. Disks promise no more than that.
pub(super) const TORN_BYTES: usize = 512;
/// The maximum number of garbage bytes when a crash lengthens a file. The other new bytes are zeros.
const GARBAGE_BYTES_MAX: usize = 16 * 1024;

/// A change that no sync has made durable.
#[derive(Clone)]
pub(super) struct Pending {
    /// The number of the change. The disk numbers all its changing operations in sequence.
    pub(super) seq: u64,
    change: Change,
    /// The range where the change made `live` differ from `durable`.
    dirty: Range<usize>,
}

#[derive(Clone)]
enum Change {
    Write(Written),
    Resize { len: usize },
}

/// The effect of a crash on a pending change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Lost,
    /// A write keeps its first sectors. A resize is kept.
    TornPrefix,
    /// A write keeps a random subset of its sectors. A resize is kept.
    TornSubset,
    /// The file gets the length that the change requires. The bytes of a write are lost.
    LengthOnly,
}

#[derive(Clone, Default)]
pub(super) struct Inode {
    pub(super) live: Content,
    durable: Content,
    pub(super) pending: Vec<Pending>,
    /// The ranges in which `live` still has bytes of a failed sync or a failed durable write. `durable` may have other
    /// bytes there.
    stale: Vec<Range<usize>>,
    /// Count of open handles. Each life of the machine begins with 0.
    pub(super) handles: usize,
}

impl Inode {
    pub(super) fn write(&mut self, seq: u64, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        let dirty = self.live.len().min(offset)..end;
        self.live.write(offset, data);
        assert!(
            end <= self.live.len(),
            "a write up to {end} leaves {} bytes",
            self.live.len()
        );
        let change = Change::Write(Written::of(&self.live, offset..end));
        self.push(seq, change, dirty);
    }

    pub(super) fn resize(&mut self, seq: u64, len: usize) {
        let old = self.live.len();
        self.live.resize(len);
        let dirty = old.min(len)..old.max(len);
        self.push(seq, Change::Resize { len }, dirty);
    }

    fn push(&mut self, seq: u64, change: Change, dirty: Range<usize>) {
        assert!(
            self.pending.last().is_none_or(|last| last.seq < seq),
            "changes of a file are pending in their order"
        );
        self.pending.push(Pending { seq, change, dirty });
    }

    /// Makes all pending changes durable. If no range is stale, `durable` shares the changed chunks with `live`
    /// afterwards.
    pub(super) fn sync(&mut self) {
        let Inode {
            live,
            durable,
            pending,
            stale,
            ..
        } = self;
        for one in pending.drain(..) {
            match one.change {
                _ if stale.is_empty() => durable.share(live, &one.dirty),
                Change::Write(written) => written.put(written.range().clone(), durable),
                Change::Resize { len } => durable.resize(len),
            }
        }
        assert!(
            !stale.is_empty() || live.len() == durable.len(),
            "a sync makes the length durable"
        );
        #[cfg(test)]
        assert!(
            !stale.is_empty() || live.to_vec() == durable.to_vec(),
            "a sync left a change behind"
        );
    }

    /// Makes the last write durable. The earlier pending writes that overlap it become durable first, because a device
    /// never restores older bytes.
    pub(super) fn sync_last(&mut self) {
        let last = self.pop_write();
        let range = last.dirty.clone();
        assert!(
            range.start < range.end && range.end <= self.live.len(),
            "a write of {range:?} is in the file"
        );
        let is_below = |one: &mut Pending| {
            let overlaps = one.dirty.start < range.end && range.start < one.dirty.end;
            overlaps && matches!(one.change, Change::Write(_))
        };
        let (durable, below) = (&mut self.durable, self.pending.extract_if(.., is_below));
        for one in below {
            if let Change::Write(written) = &one.change {
                written.put(written.range().clone(), durable);
            }
        }
        if let Change::Write(written) = &last.change {
            written.put(written.range().clone(), &mut self.durable);
        }
        #[cfg(test)]
        assert!(
            {
                let (live, durable) = (self.live.to_vec(), self.durable.to_vec());
                live[range.clone()] == durable[range]
            },
            "a durable write left a byte behind"
        );
    }

    /// Fails the last write, which should have been durable. The write is lost, or a random subset of its sectors
    /// becomes durable. If `keeps` is set, reads still show all bytes of the write. Otherwise they show the durable
    /// bytes.
    pub(super) fn fail_last(&mut self, keeps: bool, rng: &mut Rng, meters: &mut Meters) {
        let last = self.pop_write();
        assert!(
            last.dirty.end <= self.live.len(),
            "a write up to {} is in the file",
            last.dirty.end
        );
        let fate = match rng.u8(0..4) {
            0 => Fate::TornSubset,
            _ => Fate::Lost,
        };
        self.persist(&last, fate, rng, meters);
        if keeps {
            self.stale.push(last.dirty);
        } else {
            self.live.share(&self.durable, &last.dirty);
        }
    }

    fn pop_write(&mut self) -> Pending {
        let last = self.pending.pop();
        let last = last.expect("the write that was made last is pending");
        assert!(
            matches!(last.change, Change::Write(_)),
            "a durable write is a write"
        );
        last
    }

    /// Fails a sync. Each change is lost, or a random subset of its sectors becomes durable. Reads still show all the
    /// new bytes.
    pub(super) fn fail_sync_keeping(&mut self, rng: &mut Rng, meters: &mut Meters) {
        let pending = mem::take(&mut self.pending);
        for one in &pending {
            let fate = if rng.bool() {
                Fate::TornSubset
            } else {
                Fate::Lost
            };
            self.persist(one, fate, rng, meters);
        }
        self.stale.extend(pending.into_iter().map(|one| one.dirty));
    }

    /// Makes the file read like its durable state.
    pub(super) fn revert(&mut self, meters: &mut Meters) {
        meters.add("lost_write", self.pending.len());
        self.forget_changes();
    }

    /// Crashes the file. `fate` decides what happens to each pending change.
    pub(super) fn crash(
        &mut self,
        mut fate: impl FnMut(&Pending, &mut Rng) -> Fate,
        rng: &mut Rng,
        meters: &mut Meters,
    ) {
        let pending = mem::take(&mut self.pending);
        for one in &pending {
            let fate = fate(one, rng);
            self.persist(one, fate, rng, meters);
        }
        self.pending = pending;
        self.forget_changes();
        self.handles = 0;
    }

    /// Makes `live` equal to `durable`. Only the differing ranges are copied.
    fn forget_changes(&mut self) {
        let Inode {
            live,
            durable,
            pending,
            stale,
            ..
        } = self;
        if live.len() != durable.len() {
            live.resize(durable.len());
        }
        let changed = pending.drain(..).map(|one| one.dirty);
        for range in changed.chain(stale.drain(..)) {
            live.share(durable, &range);
        }
        assert_eq!(
            live.len(),
            durable.len(),
            "readers see the length that the disk has"
        );
        #[cfg(test)]
        assert!(
            live.to_vec() == durable.to_vec(),
            "a difference outside the dirty ranges"
        );
    }

    fn persist(&mut self, one: &Pending, fate: Fate, rng: &mut Rng, meters: &mut Meters) {
        let durable = &mut self.durable;
        match (&one.change, fate) {
            (_, Fate::Lost) => meters.add("lost_write", 1),
            (Change::Write(written), Fate::Kept) => written.put(written.range().clone(), durable),
            (Change::Write(written), Fate::TornPrefix | Fate::TornSubset) => {
                let first = written.range().start / TORN_BYTES;
                let sectors = written.range().end.div_ceil(TORN_BYTES) - first;
                let kept = rng.usize(0..=sectors);
                let lost = tear(durable, written, |sector| match fate {
                    Fate::TornPrefix => sector - first < kept,
                    _ => rng.bool(),
                });
                assert!(lost <= sectors, "{lost} of {sectors} sectors are lost");
                meters.add("torn_sector", lost);
            }
            (Change::Write(written), Fate::LengthOnly) => {
                meters.add("lost_write", 1);
                lengthen(durable, written.range().end, rng, meters);
            }
            (Change::Resize { len }, Fate::LengthOnly) if *len > durable.len() => {
                lengthen(durable, *len, rng, meters);
            }
            (Change::Resize { len }, _) => durable.resize(*len),
        }
    }

    /// Flips the bits of `mask` in one byte of all copies. `byte` is its offset. Returns whether the file has that
    /// byte.
    pub(super) fn flip(&mut self, byte: usize, mask: u8) -> bool {
        let mut found = false;
        for bytes in [&mut self.live, &mut self.durable] {
            found |= bytes.flip(byte, mask);
        }
        for one in &mut self.pending {
            if let Change::Write(written) = &mut one.change {
                written.flip(byte, mask);
            }
        }
        found
    }

    /// Sets all bytes from `at` on to zero in all copies.
    pub(super) fn zero_from(&mut self, at: usize) {
        for bytes in [&mut self.live, &mut self.durable] {
            bytes.zero_from(at);
        }
        for one in &mut self.pending {
            if let Change::Write(written) = &mut one.change {
                written.zero_from(at);
            }
        }
    }

    /// Shortens all copies to `len` bytes.
    pub(super) fn truncate(&mut self, len: usize) {
        for bytes in [&mut self.live, &mut self.durable] {
            bytes.resize(len.min(bytes.len()));
        }
        self.pending.retain_mut(|one| {
            one.dirty = one.dirty.start.min(len)..one.dirty.end.min(len);
            match &mut one.change {
                Change::Write(written) => written.truncate(len),
                Change::Resize { len: to } => {
                    *to = len.min(*to);
                    true
                }
            }
        });
    }
}

/// Applies to `bytes` the sectors of `written` for which `keep` returns true. `keep` gets the sector's number in the
/// file. Returns the number of sectors that were not applied.
fn tear(bytes: &mut Content, written: &Written, mut keep: impl FnMut(usize) -> bool) -> usize {
    let (mut at, end, mut lost) = (written.range().start, written.range().end, 0);
    while at < end {
        let sector = at / TORN_BYTES;
        let next = end.min((sector + 1) * TORN_BYTES);
        assert!(at < next, "sector {sector} has bytes from {at} on");
        if keep(sector) {
            written.put(at..next, bytes);
        } else {
            lost += 1;
        }
        at = next;
    }
    lost
}

/// Lengthens a file to `len` bytes. The new bytes are zeros or garbage.
fn lengthen(bytes: &mut Content, len: usize, rng: &mut Rng, meters: &mut Meters) {
    let old = bytes.len();
    if len <= old {
        return;
    }
    bytes.resize(len);
    if rng.bool() {
        let mut garbage = vec![0; (len - old).min(GARBAGE_BYTES_MAX)];
        rng.fill(&mut garbage);
        bytes.write(old, &garbage);
        meters.add("garbage_tail", 1);
    } else {
        meters.add("zero_tail", 1);
    }
}
