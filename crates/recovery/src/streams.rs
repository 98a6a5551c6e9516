//! The streams of a database as a [`LogSource`]. Each stream is a part, and the log ends at the end of the durable
//! epoch.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use perdura_base::num::to_u64;
use perdura_base::{Error, Pos, Result, StreamId};
use perdura_device::Disk;
use perdura_wal::{Check, Cut, RawUnit, StreamScan, scan_stream};

use crate::anchor::Anchor;
use crate::claims::Claims;
use crate::source::{LogEnd, LogSource};

/// The approximate size in bytes of a unit, which is a piece of a stream. A unit is small enough to stay in the
/// processor's cache between the unit's check and its application.
pub const UNIT_BYTES: u64 = 256 << 10;

/// The streams of a database. Each is read from a given position.
pub struct Streams<'a> {
    disks: &'a [Arc<dyn Disk>],
    anchor: &'a Anchor,
    from: &'a [Pos],
    accept_loss: bool,
    later: Claims,
    scanned: Mutex<Vec<StreamScan>>,
    decided: OnceLock<Decided>,
}

/// The scanned streams, and the decision where each stream is cut.
pub struct Decided {
    /// The scan of each stream, with the stream's blocks up to its cut.
    pub scans: Vec<StreamScan>,
    /// The cut of the log.
    pub cut: Cut,
    /// Count of blocks beyond the cut.
    pub void_blocks: u64,
    /// Each stream's units as ranges of its blocks, oldest first.
    units: Vec<Vec<Range<usize>>>,
    /// The void blocks that a seeded bug keeps.
    #[cfg(feature = "flaws")]
    pub(crate) void_tail: Vec<Vec<perdura_wal::BlockRef>>,
}

impl<'a> Streams<'a> {
    /// Returns the streams on `disks`, each read from its position in `from`.
    #[must_use]
    pub fn new(disks: &'a [Arc<dyn Disk>], anchor: &'a Anchor, from: &'a [Pos]) -> Streams<'a> {
        assert_eq!(disks.len(), from.len(), "one beginning for each stream");
        Streams {
            disks,
            anchor,
            from,
            accept_loss: false,
            later: Claims::default(),
            scanned: Mutex::new(Vec::new()),
            decided: OnceLock::new(),
        }
    }

    /// Sets whether the log may lack acknowledged transactions that only the memory of nodes held.
    #[must_use]
    pub fn accepting_loss(self, accept_loss: bool) -> Streams<'a> {
        Streams {
            accept_loss,
            ..self
        }
    }

    /// Sets the kinds of frames that later passes play. If all frames of a unit are of these kinds, this pass does not
    /// read the unit.
    #[must_use]
    pub fn leaving(self, later: Claims) -> Streams<'a> {
        Streams { later, ..self }
    }

    /// Returns the result of the scans and of [`end`](LogSource::end).
    ///
    /// # Errors
    /// [`Error::Stopped`] if the end was not decided.
    pub fn into_decided(self) -> Result<Decided> {
        self.decided.into_inner().ok_or_else(undecided)
    }
}

impl LogSource for Streams<'_> {
    type Raw = RawUnit;

    fn parts(&self) -> usize {
        self.disks.len()
    }

    fn scan(&self, part: usize) -> Result<()> {
        let stream = StreamId(u8::try_from(part).expect("at most 16 streams"));
        let (disk, lives) = (self.disks[part].as_ref(), self.anchor.lives());
        let scan = scan_stream(disk, &lives, stream, self.from[part], Check::InDoubt)?;
        self.scanned.lock().push(scan);
        Ok(())
    }

    fn end(&self) -> Result<LogEnd> {
        let mut scans = std::mem::take(&mut *self.scanned.lock());
        scans.sort_by_key(|scan| scan.stream);
        assert_eq!(scans.len(), self.disks.len(), "every stream is scanned");
        let cut = self.anchor.decide_cut(&scans, self.accept_loss)?;
        assert!(
            scans
                .iter()
                .zip(0u8..)
                .all(|(scan, number)| scan.stream == StreamId(number)),
            "every stream is scanned once"
        );
        #[cfg(feature = "flaws")]
        let void_tail = void_tail(&scans, &cut);
        let mut void_blocks = 0;
        for scan in &mut scans {
            let blocks = scan.blocks.len();
            scan.cut_at(cut.cut[usize::from(scan.stream.0)]);
            void_blocks += to_u64(blocks - scan.blocks.len());
        }
        let mut units: Vec<_> = scans.iter().map(|scan| scan.units(UNIT_BYTES)).collect();
        for (scan, units) in scans.iter().zip(&units) {
            let in_units: usize = units.iter().map(ExactSizeIterator::len).sum();
            assert_eq!(
                in_units,
                scan.blocks.len(),
                "each block of stream {} is in one unit",
                scan.stream
            );
        }
        // If later passes play every frame of a unit, only those passes read the unit.
        let later = self.later;
        for (scan, units) in scans.iter().zip(&mut units) {
            units.retain(|unit| !later.cover(scan.holds(unit)));
        }
        let body_bytes = |(scan, units): (&StreamScan, &Vec<Range<usize>>)| {
            let blocks = units.iter().flat_map(|unit| &scan.blocks[unit.clone()]);
            blocks.map(|block| u64::from(block.body_len)).sum::<u64>()
        };
        let bytes = scans.iter().zip(&units).map(body_bytes).sum();
        let end = LogEnd {
            epoch: cut.durable,
            ckpt_max: cut.ckpt_max,
            units: units.iter().map(Vec::len).collect(),
            bytes,
        };
        let decided = Decided {
            scans,
            cut,
            void_blocks,
            units,
            #[cfg(feature = "flaws")]
            void_tail,
        };
        assert!(self.decided.set(decided).is_ok(), "decided once");
        Ok(end)
    }

    fn read(&self, part: usize, number: usize) -> Result<RawUnit> {
        let decided = self.decided.get().ok_or_else(undecided)?;
        let blocks = decided.units[part][number].clone();
        assert!(
            blocks.end <= decided.scans[part].blocks.len(),
            "unit {number} of stream {part} lies before the cut"
        );
        decided.scans[part].read_raw(blocks)
    }
}

/// Returns the void blocks that the restart will play because of a seeded bug: each stream's blocks beyond the cut. If
/// the bug is not armed, returns no blocks.
#[cfg(feature = "flaws")]
fn void_tail(scans: &[StreamScan], cut: &Cut) -> Vec<Vec<perdura_wal::BlockRef>> {
    use perdura_base::flaw::{Flaw, armed};
    let beyond = |scan: &StreamScan| {
        let end = cut.cut[usize::from(scan.stream.0)];
        let blocks = scan.blocks.iter().filter(|block| block.pos >= end);
        blocks.cloned().collect()
    };
    if armed(Flaw::CommandOfVoidTail) {
        scans.iter().map(beyond).collect()
    } else {
        vec![Vec::new(); scans.len()]
    }
}

fn undecided() -> Error {
    Error::Stopped("the end of the log is not known".into())
}
