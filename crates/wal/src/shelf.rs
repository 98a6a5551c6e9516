//! The shelf: the files of one stream on its disk. A file is prepared, becomes a segment, and is later recycled or
//! removed.
//!
//! # Invariants
//! * A life's segments have no gaps: each segment begins at the end of its predecessor.
//! * A file is either a segment or a spare. No two files have the same name.
//! * A segment is retired only if it ends at or below the floor that the caller passes.
//! * With a mirror, a takeover may replace a writer that is still alive. A write of the replaced writer may reach the
//!   file later, even if the file already has a new use. So files of former lives are removed and never reused.

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::SECTOR_BYTES;
use perdura_base::{Error, Incarnation, Pos, Result, StreamId, Uuid};
use perdura_device::{Access, Disk};

use crate::segment::{LOG_DIR, SEGMENT_HEADER_BYTES, SegmentId, check_header, is_foreign};
use crate::sizes::{SegmentSizes, Span};

/// The stream and the life that a shelf serves, and the facts about them in the anchor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamLife {
    pub stream: StreamId,
    pub uuid: Uuid,
    pub sizes: SegmentSizes,
    pub incarnation: Incarnation,
    /// This life's start in the stream.
    pub life: Pos,
    /// True if writers of former lives may still be alive. This is possible only with a mirror.
    pub has_deposed: bool,
}

/// The files of one stream on disk: segments, and unused spares.
pub(crate) struct SegmentShelf {
    pub disk: Arc<dyn Disk>,
    owner: StreamLife,
    /// The end of this life's last segment; the life's start if no segment exists yet.
    placed_end: Pos,
    /// The live segments, oldest first, each with its file size in bytes.
    live: BTreeMap<SegmentId, u64>,
    /// Prepared or recycled files that are not segments yet.
    spares: Vec<Spare>,
    next_spare: u64,
}

/// A prepared or recycled file that is not a segment yet.
pub(crate) struct Spare {
    path: String,
    bytes: u64,
}

/// The maximum number of spares of the largest size. They suffice for one checkpoint interval with the default
/// settings, so that a database under constant load zeroes no new files. A life needs only one segment of each smaller
/// size, so only one such spare is kept.
const SPARES_MAX: usize = 8;
/// The number of bytes to fill with zeros between two pauses.
const ZERO_BYTES: u64 = 1 << 20;

impl SegmentShelf {
    /// Opens the shelf: lists the stream's files, and retires the segments that are not live. `is_live` identifies live
    /// segments.
    pub fn open(
        disk: Arc<dyn Disk>,
        owner: StreamLife,
        is_live: impl Fn(&SegmentId) -> bool,
    ) -> Result<Self> {
        let mut shelf = SegmentShelf {
            disk,
            owner,
            placed_end: owner.life,
            live: BTreeMap::new(),
            spares: Vec::new(),
            next_spare: 0,
        };
        let mut dead = Vec::new();
        let mut found = Vec::new();
        let stream = owner.stream;
        let prefix = SegmentId::prefix(stream);
        let spare_prefix = format!("spare-{prefix}");
        for name in shelf.disk.list(LOG_DIR)? {
            if name.starts_with(&prefix)
                && let Some(id) = SegmentId::parse(&name)
            {
                let bytes = shelf.disk.open(&id.path(), Access::Buffered)?.len()?;
                if is_live(&id) {
                    shelf.live.insert(id, bytes);
                } else {
                    dead.push((id, bytes));
                }
            } else if let Some(rest) = name.strip_prefix(&spare_prefix) {
                let (prepared, half_made) = (rest.strip_suffix(".log"), rest.strip_suffix(".tmp"));
                let number = prepared.or(half_made).and_then(|n| n.parse::<u64>().ok());
                let Some(number) = number else { continue };
                let path = format!("{LOG_DIR}/{name}");
                // The number is reserved even if the half-made file cannot be removed now.
                shelf.next_spare = shelf.next_spare.max(number.saturating_add(1));
                if prepared.is_some() {
                    found.push(path);
                } else {
                    left_for_later(shelf.disk.remove(&path))?;
                }
            }
        }
        for path in found {
            left_for_later(shelf.take_spare(path))?;
        }
        // Retiring renames segments to spares, so all names in use must be known first.
        for (id, bytes) in dead {
            let owned = shelf.check_owner(id);
            left_for_later(owned.and_then(|()| shelf.retire(id, bytes)))?;
        }
        Ok(shelf)
    }

    /// Keeps an existing file as a spare, or removes it if there are enough spares of its size.
    fn take_spare(&mut self, path: String) -> Result<()> {
        let bytes = self.disk.open(&path, Access::Buffered)?.len()?;
        if self.has_enough(bytes) {
            return self.disk.remove(&path);
        }
        self.spares.push(Spare { path, bytes });
        Ok(())
    }

    /// Returns whether there are enough spares of this size. If there are, the caller removes a file of this size
    /// instead of keeping it.
    fn has_enough(&self, bytes: u64) -> bool {
        let kept = self.spares.iter().filter(|spare| spare.bytes == bytes);
        let limit = match () {
            () if bytes == self.owner.sizes.max => SPARES_MAX,
            () if self.owner.sizes.contain(bytes) => 1,
            () => 0,
        };
        kept.count() >= limit
    }

    /// Fails if the header of a segment names another database.
    fn check_owner(&self, id: SegmentId) -> Result<()> {
        let mut header = vec![0; SECTOR_BYTES];
        let file = self.disk.open(&id.path(), Access::Buffered)?;
        let got = file.read_at(0, &mut header)?;
        match check_header(id, &self.owner.uuid, &header[..got]) {
            Err(fault) if is_foreign(&fault) => Err(Error::Foreign {
                file: id.path(),
                why: fault,
            }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns whether there is a spare of this size.
    pub fn has_spare(&self, bytes: u64) -> bool {
        self.spares.iter().any(|spare| spare.bytes == bytes)
    }

    /// Reserves a name for a file of this size. The caller prepares the file without holding the shelf's lock.
    pub fn plan_spare(&mut self, bytes: u64) -> SparePlan {
        let number = self.next_spare;
        self.next_spare += 1;
        let base = format!("{LOG_DIR}/spare-s{:02}-{number}", self.owner.stream.0);
        SparePlan {
            disk: Arc::clone(&self.disk),
            tmp: format!("{base}.tmp"),
            path: format!("{base}.log"),
            bytes,
        }
    }

    pub fn add_spare(&mut self, spare: Spare) {
        assert!(
            self.spares.iter().all(|other| other.path != spare.path),
            "two spares are named {}",
            spare.path
        );
        self.spares.push(spare);
    }

    /// Sets the position of the next segment to `start`. The segments before it already exist.
    pub fn skip_to(&mut self, start: Pos) {
        assert!(
            self.placed_end <= start,
            "segments are placed up to {}, and the next one at {start}",
            self.placed_end
        );
        self.placed_end = start;
    }

    /// Makes a spare into a segment: renames a spare that has the span's size. Syncs nothing. The caller writes the
    /// header, and syncs the file and the directory before it acknowledges writes to the segment.
    ///
    /// # Panics
    /// Panics if there is no spare of that size.
    pub fn place(&mut self, id: SegmentId, span: Span) -> Result<()> {
        let bytes = span.bytes;
        assert_eq!(
            (id.start, id.stream),
            (span.start, self.owner.stream),
            "a segment is named after its position"
        );
        assert_eq!(
            span.start, self.placed_end,
            "a segment is placed where the last one ends"
        );
        let at = self.spares.iter().position(|spare| spare.bytes == bytes);
        let at = at.expect("the flusher has prepared a spare of this size");
        self.disk.rename(&self.spares[at].path, &id.path())?;
        self.spares.swap_remove(at);
        let before = self.live.insert(id, bytes);
        assert_eq!(before, None, "a segment is placed once");
        self.placed_end = span.end();
        Ok(())
    }

    /// Returns the segments that have files.
    pub fn live(&self) -> impl Iterator<Item = SegmentId> {
        self.live.keys().copied()
    }

    /// Returns whether a file has the name of this segment.
    pub fn is_placed(&self, id: SegmentId) -> bool {
        self.live.contains_key(&id)
    }

    /// Returns the span of this life's first segment that has neither a file nor a spare.
    pub fn next_span(&self) -> Span {
        self.walk_spares().0
    }

    /// Returns [`next_span`](Self::next_span), and the spares that no segment before this span needs.
    fn walk_spares(&self) -> (Span, Vec<&Spare>) {
        let StreamLife { sizes, life, .. } = self.owner;
        let mut left: Vec<&Spare> = self.spares.iter().collect();
        let mut next = sizes.span_at(life, self.placed_end);
        while let Some(at) = left.iter().position(|spare| spare.bytes == next.bytes) {
            left.swap_remove(at);
            next = sizes.span_at(life, next.end());
        }
        assert!(
            self.placed_end <= next.start,
            "the next segment begins at {}, placed ones end at {}",
            next.start,
            self.placed_end
        );
        (next, left)
    }

    /// Removes the largest spare that the next segments do not need, to make space for a spare that they need. Returns
    /// whether a spare was removed.
    ///
    /// # Errors
    /// Fails with the disk's error.
    pub fn give_up_spare(&mut self) -> Result<bool> {
        let (_, unneeded) = self.walk_spares();
        let largest = unneeded.into_iter().max_by_key(|spare| spare.bytes);
        let Some(path) = largest.map(|spare| spare.path.clone()) else {
            return Ok(false);
        };
        self.disk.remove(&path)?;
        let before = self.spares.len();
        self.spares.retain(|spare| spare.path != path);
        assert_eq!(self.spares.len() + 1, before, "one spare has this name");
        Ok(true)
    }

    /// Keeps the spares for the next segments, up to the first segment for which `enough` returns true. Removes all
    /// other spares.
    ///
    /// # Errors
    /// Fails with the disk's first error. A spare that could not be removed stays.
    pub fn give_back(&mut self, enough: impl Fn(&Span) -> bool) -> Result<()> {
        let StreamLife { sizes, life, .. } = self.owner;
        let mut left = std::mem::take(&mut self.spares);
        let before = left.len();
        let mut next = sizes.span_at(life, self.placed_end);
        while !enough(&next)
            && let Some(at) = left.iter().position(|spare| spare.bytes == next.bytes)
        {
            self.spares.push(left.swap_remove(at));
            next = sizes.span_at(life, next.end());
        }
        let mut removed = Ok(());
        for spare in left {
            let gone = self.disk.remove(&spare.path);
            if gone.is_err() {
                self.spares.push(spare);
            }
            removed = removed.and(gone);
        }
        assert!(
            self.spares.len() <= before,
            "no spare is made by giving back"
        );
        removed
    }

    /// Retires every live segment that ends at or below `floor`. Returns the number of retired segments.
    ///
    /// # Errors
    /// Fails with the disk's first error. The segment that failed stays live, and the next call tries it again.
    pub fn truncate(&mut self, floor: Pos) -> Result<usize> {
        let end =
            |id: &SegmentId, bytes: u64| id.start.0 + bytes.saturating_sub(SEGMENT_HEADER_BYTES);
        let dead: Vec<(SegmentId, u64)> = self
            .live
            .iter()
            .filter(|(id, bytes)| end(id, **bytes) <= floor.0)
            .map(|(id, bytes)| (*id, *bytes))
            .collect();
        for (id, bytes) in &dead {
            self.retire(*id, *bytes)?;
            let was = self.live.remove(id);
            assert_eq!(was, Some(*bytes), "a live segment is retired");
        }
        Ok(dead.len())
    }

    /// Returns the total size of this stream's segments and spares, in bytes.
    pub fn bytes(&self) -> u64 {
        let spares = self.spares.iter().map(|spare| spare.bytes);
        self.live.values().copied().chain(spares).sum()
    }

    fn retire(&mut self, id: SegmentId, bytes: u64) -> Result<()> {
        let is_former = id.incarnation != self.owner.incarnation;
        let is_unsafe =
            self.owner.has_deposed && is_former && !armed(Flaw::RecycledUnderNextWriter);
        if is_unsafe || self.has_enough(bytes) {
            return self.disk.remove(&id.path());
        }
        let spare = self.plan_spare(bytes).path;
        self.disk.rename(&id.path(), &spare)?;
        self.add_spare(Spare { path: spare, bytes });
        Ok(())
    }
}

/// Ignores a failure to remove or rename an unneeded file; the next opening of the shelf tries again.
fn left_for_later(cleared: Result<()>) -> Result<()> {
    match cleared {
        Err(Error::Io { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A file that is to be prepared without holding a lock, because zeroing 64 MiB takes time.
pub(crate) struct SparePlan {
    disk: Arc<dyn Disk>,
    tmp: String,
    path: String,
    bytes: u64,
}

impl SparePlan {
    /// Creates, zeroes and syncs the file. Calls `pause` from time to time, so that the log's own syncs can reach the
    /// disk. Removes the file on failure.
    pub fn prepare(&self, pause: &dyn Fn()) -> Result<Spare> {
        let made = self
            .disk
            .create(&self.tmp, Access::Direct)
            .and_then(|file| {
                let mut len = 0;
                while len < self.bytes {
                    len = (len + ZERO_BYTES).min(self.bytes);
                    file.allocate(len)?;
                    pause();
                }
                file.sync()?;
                self.disk.rename(&self.tmp, &self.path)
            });
        if let Err(error) = made {
            // The half-made file must not occupy space that the log needs to resume. If it cannot be removed now, the
            // next opening of the shelf removes it.
            return Err(match self.disk.remove(&self.tmp) {
                Ok(()) => error,
                Err(second) if second.is_not_found() => error,
                Err(second) => Error::io(
                    "remove",
                    self.tmp.clone(),
                    std::io::Error::other(format!("{second}, after: {error}")),
                ),
            });
        }
        Ok(Spare {
            path: self.path.clone(),
            bytes: self.bytes,
        })
    }
}

/// Syncs the log directory, so that a new segment's name survives.
pub(crate) fn sync_log_dir(disk: &dyn Disk) -> Result<()> {
    if armed(Flaw::NoDirSync) {
        return Ok(());
    }
    disk.sync_dir(LOG_DIR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> StreamLife {
        StreamLife {
            stream: StreamId(0),
            uuid: Uuid([1; 16]),
            sizes: SegmentSizes::fixed(65536),
            incarnation: Incarnation(2),
            life: Pos(0),
            has_deposed: false,
        }
    }

    /// The simulator found this bug. Dead segments were retired while the directory was still being listed, and
    /// "s00-..." comes before "spare-...". So a retired segment was renamed to the name of an existing spare.
    #[test]
    fn a_retired_segment_never_takes_the_name_of_a_spare_that_is_there() {
        let disk: Arc<dyn Disk> = Arc::new(perdura_device::MemDisk::new());
        disk.make_dir(LOG_DIR).unwrap();
        let dead = SegmentId {
            stream: StreamId(0),
            incarnation: Incarnation(1),
            start: Pos(0),
        };
        for path in [dead.path(), format!("{LOG_DIR}/spare-s00-0.log")] {
            disk.create(&path, Access::Buffered)
                .unwrap()
                .set_len(65536)
                .unwrap();
        }
        let mut shelf = SegmentShelf::open(Arc::clone(&disk), owner(), |_| false).unwrap();
        assert_eq!(shelf.spares.len(), 2);
        for number in 0..2 {
            let start = Pos(number * 61440);
            shelf
                .place(
                    SegmentId {
                        incarnation: Incarnation(2),
                        start,
                        ..dead
                    },
                    Span {
                        start,
                        bytes: 65536,
                    },
                )
                .unwrap();
        }
        assert!(!shelf.has_spare(65536));
    }

    #[test]
    fn an_open_keeps_no_more_spares_than_a_checkpoint_frees() {
        let disk: Arc<dyn Disk> = Arc::new(perdura_device::MemDisk::new());
        disk.make_dir(LOG_DIR).unwrap();
        for number in 0..20 {
            let path = format!("{LOG_DIR}/spare-s00-{number}.log");
            let file = disk.create(&path, Access::Buffered).unwrap();
            file.set_len(65536).unwrap();
        }
        let shelf = SegmentShelf::open(Arc::clone(&disk), owner(), |_| false).unwrap();
        assert_eq!(shelf.spares.len(), SPARES_MAX);
        assert_eq!(disk.list(LOG_DIR).unwrap().len(), SPARES_MAX);
    }

    /// The simulator found this bug. A replaced writer was still alive and had a write in progress. The write's file
    /// had become a segment of the next life.
    #[test]
    fn a_late_write_of_a_writer_that_was_replaced_reaches_no_segment_of_the_next_one() {
        let disk: Arc<dyn Disk> = Arc::new(perdura_device::MemDisk::new());
        disk.make_dir(LOG_DIR).unwrap();
        let id = |incarnation, start| SegmentId {
            stream: StreamId(0),
            incarnation: Incarnation(incarnation),
            start: Pos(start),
        };
        let files = [id(1, 0), id(1, 61440)].map(|id| {
            let file = disk.create(&id.path(), Access::Buffered).unwrap();
            file.set_len(65536).unwrap();
            file
        });
        let owner = StreamLife {
            has_deposed: true,
            life: Pos(122_880),
            ..owner()
        };
        // One segment is void when the next life begins. The other is retired after a checkpoint.
        let is_live = |segment: &SegmentId| segment.start == Pos(0);
        let mut shelf = SegmentShelf::open(Arc::clone(&disk), owner, is_live).unwrap();
        assert_eq!(shelf.truncate(Pos(61440)).unwrap(), 1);
        for number in 2..4 {
            let start = Pos(number * 61440);
            if !shelf.has_spare(65536) {
                let spare = shelf.plan_spare(65536).prepare(&|| {}).unwrap();
                shelf.add_spare(spare);
            }
            let bytes = 65536;
            shelf.place(id(2, start.0), Span { start, bytes }).unwrap();
        }
        for file in &files {
            file.write_at(0, &[7; 512]).unwrap();
        }
        for number in 2..4 {
            let mut bytes = [0; 512];
            let segment = disk.open(&id(2, number * 61440).path(), Access::Buffered);
            segment.unwrap().read_at(0, &mut bytes).unwrap();
            assert!(
                bytes == [0; 512],
                "segment {number} is written by another life"
            );
        }
    }

    /// The simulator found this bug in steal mode. When the shelf was opened, a half-made spare could not be removed.
    /// The next spare was given the name of this file. It could not be created, so the log could not grow.
    #[test]
    fn a_half_made_spare_that_cannot_be_removed_keeps_its_number() {
        let sim = perdura_device::SimDisk::new(1);
        let disk: Arc<dyn Disk> = sim.life();
        disk.make_dir(LOG_DIR).unwrap();
        let half_made = format!("{LOG_DIR}/spare-s00-0.tmp");
        disk.create(&half_made, Access::Buffered).unwrap();
        sim.set_plan(perdura_device::FaultPlan {
            fail_name_at: Some(1),
            ..perdura_device::FaultPlan::default()
        });
        let shelf = SegmentShelf::open(disk, owner(), |_| false);
        let spare = shelf.unwrap().plan_spare(65536).prepare(&|| {}).unwrap();
        assert_eq!(spare.path, format!("{LOG_DIR}/spare-s00-1.log"));
        assert!(sim.files().iter().any(|(path, _)| *path == half_made));
    }
}
