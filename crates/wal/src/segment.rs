//! Segments: the files a stream is cut into, and their life from preparation to recycling.
#![doc = include_str!("../../../docs/formats/segment.md")]

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::flaw::{Flaw, armed};
use perdura_base::limits::{FORMAT_VERSION, SECTOR_BYTES};
use perdura_base::{Error, Incarnation, Pos, Result, StreamId, Uuid};
use perdura_device::{Access, Disk};

use crate::sizes::{SegmentSizes, Span};

/// The directory of log segments on each log disk.
pub const LOG_DIR: &str = "log";
/// Bytes before the first block.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;

const MAGIC: &[u8; 4] = b"PSEG";
const CRC_AT: usize = 4092;

/// What a segment's name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentId {
    /// The stream.
    pub stream: StreamId,
    /// Position of its first byte after the header.
    pub start: Pos,
    /// The life of the database that wrote it.
    pub incarnation: Incarnation,
}

impl SegmentId {
    /// Its path on the log disk.
    #[must_use]
    pub fn path(&self) -> String {
        format!(
            "{LOG_DIR}/s{:02}-i{:010}-p{:020}.log",
            self.stream.0, self.incarnation.0, self.start.0
        )
    }

    /// The inverse of [`path`](Self::path) for a file name without its directory.
    #[must_use]
    pub fn parse(name: &str) -> Option<SegmentId> {
        // No log gets that far; a name that says so is not of ours.
        const START_MAX: u64 = 1 << 62;
        let rest = name.strip_prefix('s')?.strip_suffix(".log")?;
        let (stream, rest) = rest.split_once("-i")?;
        let (incarnation, start) = rest.split_once("-p")?;
        let id = SegmentId {
            stream: StreamId(padded(stream, 2)?.try_into().ok()?),
            incarnation: Incarnation(padded(incarnation, 10)?.try_into().ok()?),
            start: Pos(padded(start, 20)?),
        };
        let is_ours = id.start.0 <= START_MAX;
        is_ours.then_some(id)
    }
}

/// A number as `{:0width$}` writes it and in no other way: a database that lists its segments all the
/// time reads their names without writing them again.
fn padded(digits: &str, width: usize) -> Option<u64> {
    let is_padded = digits.len() == width || (digits.len() > width && !digits.starts_with('0'));
    let is_number = is_padded && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// The header of a segment. `followed`: the stream goes on in a next segment, whose name is
/// durable.
#[must_use]
pub fn encode_header(id: SegmentId, uuid: &Uuid, segment_bytes: u64, followed: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(SECTOR_BYTES);
    out.put(MAGIC);
    out.put_u16(FORMAT_VERSION);
    out.put_u8(id.stream.0);
    out.put_u8(u8::from(followed));
    out.put(&uuid.0);
    out.put_u32(id.incarnation.0);
    out.put_u32(0);
    out.put_u64(id.start.0);
    out.put_u64(segment_bytes);
    out.put_zeros(CRC_AT - out.len());
    out.put_u32(crc32c(&out));
    out
}

const OTHER_DATABASE: &str = "it belongs to database";

/// Whether what [`check_header`] found wrong is that the segment is another database's.
#[must_use]
pub fn is_foreign(fault: &str) -> bool {
    fault.starts_with(OTHER_DATABASE)
}

/// Whether a segment says that it is followed by another; or what is wrong with its header.
pub fn check_header(id: SegmentId, uuid: &Uuid, bytes: &[u8]) -> Result<bool, String> {
    let read = || {
        let mut r = Reader::new(bytes.get(..SECTOR_BYTES)?);
        let magic = r.array::<4>()?;
        let version = r.u16()?;
        let stream = r.u8()?;
        let followed = r.u8()?;
        let owner = Uuid(r.array::<16>()?);
        let incarnation = r.u32()?;
        r.u32()?;
        let start = r.u64()?;
        let crc = u32::from_le_bytes(bytes.get(CRC_AT..SECTOR_BYTES)?.try_into().ok()?);
        let whole = crc == crc32c(&bytes[..CRC_AT]);
        Some((
            magic,
            version,
            stream,
            owner,
            incarnation,
            start,
            followed,
            whole,
        ))
    };
    match read() {
        None => Err("shorter than a header".into()),
        Some((magic, ..)) if magic != *MAGIC => Err("not a log segment".into()),
        Some((.., false)) => Err("the header's checksum does not hold".into()),
        Some((_, version, ..)) if version != FORMAT_VERSION => Err(format!("version {version}")),
        Some((_, _, _, owner, ..)) if owner != *uuid => Err(format!("{OTHER_DATABASE} {owner}")),
        Some((_, _, stream, _, incarnation, start, ..))
            if (stream, incarnation, start) != (id.stream.0, id.incarnation.0, id.start.0) =>
        {
            Err(format!(
                "stream {stream}, incarnation {incarnation}, start {start}"
            ))
        }
        Some((.., followed, _)) if followed <= 1 => Ok(followed == 1),
        Some(_) => Err("unknown flags".into()),
    }
}

/// Whose segments a shelf holds, and what the anchor says of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShelfPlace {
    pub stream: StreamId,
    pub uuid: Uuid,
    pub sizes: SegmentSizes,
    /// Where this life starts.
    pub life: Pos,
}

/// The segments of one stream on its disk: which exist, which wait to be used.
pub(crate) struct SegmentShelf {
    pub disk: Arc<dyn Disk>,
    place: ShelfPlace,
    /// Where the last segment of this life ends; the start of the life before its first.
    placed_end: Pos,
    /// Live segments, oldest first, with the size of each, bytes.
    live: BTreeMap<SegmentId, u64>,
    /// Prepared or recycled files without a place yet.
    spares: Vec<Spare>,
    next_spare: u64,
}

/// A prepared or recycled file without a place yet.
pub(crate) struct Spare {
    path: String,
    bytes: u64,
}

/// Recycled files of the largest size kept beside those in use; more are removed. A checkpoint
/// interval's worth by default, so that a database in its stride zeroes no new ones. Of each
/// smaller size a life needs one.
const SPARES_MAX: usize = 8;
/// Bytes zeroed between two pauses.
const ZERO_BYTES: u64 = 1 << 20;

impl SegmentShelf {
    /// Takes stock of a stream's log directory, keeping `live` segments.
    pub fn open(
        disk: Arc<dyn Disk>,
        place: ShelfPlace,
        is_live: impl Fn(&SegmentId) -> bool,
    ) -> Result<Self> {
        let mut shelf = SegmentShelf {
            disk,
            place,
            placed_end: place.life,
            live: BTreeMap::new(),
            spares: Vec::new(),
            next_spare: 0,
        };
        let mut dead = Vec::new();
        let mut found = Vec::new();
        let stream = place.stream;
        let spare_prefix = format!("spare-s{:02}-", stream.0);
        for name in shelf.disk.list(LOG_DIR)? {
            let path = format!("{LOG_DIR}/{name}");
            if let Some(id) = SegmentId::parse(&name).filter(|id| id.stream == stream) {
                let bytes = shelf.disk.open(&path, Access::Buffered)?.len()?;
                if is_live(&id) {
                    shelf.live.insert(id, bytes);
                } else {
                    dead.push((id, bytes));
                }
            } else if let Some(rest) = name.strip_prefix(&spare_prefix) {
                let (prepared, half_made) = (rest.strip_suffix(".log"), rest.strip_suffix(".tmp"));
                let number = prepared.or(half_made).and_then(|n| n.parse::<u64>().ok());
                let Some(number) = number else { continue };
                // A half-made file that cannot be removed now keeps its number.
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
        // Retiring gives files new names as spares: the names in use must all be known before.
        for (id, bytes) in dead {
            let owned = shelf.check_owner(id);
            left_for_later(owned.and_then(|()| shelf.retire(&id.path(), bytes)))?;
        }
        Ok(shelf)
    }

    /// Keeps a file that was found as a spare, or removes it if there are enough of its size.
    fn take_spare(&mut self, path: String) -> Result<()> {
        let bytes = self.disk.open(&path, Access::Buffered)?.len()?;
        if self.has_enough(bytes) {
            return self.disk.remove(&path);
        }
        self.spares.push(Spare { path, bytes });
        Ok(())
    }

    /// Whether a file of this size that is free is not worth keeping.
    fn has_enough(&self, bytes: u64) -> bool {
        let kept = self.spares.iter().filter(|spare| spare.bytes == bytes);
        let limit = match () {
            () if bytes == self.place.sizes.max => SPARES_MAX,
            () if self.place.sizes.contain(bytes) => 1,
            () => 0,
        };
        kept.count() >= limit
    }

    /// Refuses to touch a segment whose header names another database.
    fn check_owner(&self, id: SegmentId) -> Result<()> {
        let mut header = vec![0; SECTOR_BYTES];
        let file = self.disk.open(&id.path(), Access::Buffered)?;
        let got = file.read_at(0, &mut header)?;
        match check_header(id, &self.place.uuid, &header[..got]) {
            Err(fault) if is_foreign(&fault) => Err(Error::Foreign {
                file: id.path(),
                why: fault,
            }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Whether a file of this size waits for its place.
    pub fn has_spare(&self, bytes: u64) -> bool {
        self.spares.iter().any(|spare| spare.bytes == bytes)
    }

    /// The path for a file of this size to prepare, outside the lock.
    pub fn plan_spare(&mut self, bytes: u64) -> SparePlan {
        let number = self.next_spare;
        self.next_spare += 1;
        let base = format!("{LOG_DIR}/spare-s{:02}-{number}", self.place.stream.0);
        SparePlan {
            disk: Arc::clone(&self.disk),
            tmp: format!("{base}.tmp"),
            path: format!("{base}.log"),
            bytes,
        }
    }

    pub fn add_spare(&mut self, spare: Spare) {
        self.spares.push(spare);
    }

    /// Gives a spare of `bytes` its name in the stream. Nothing is synced here; the caller writes
    /// the header and syncs file and directory before it acknowledges what it writes.
    ///
    /// # Panics
    /// If no spare of that size was prepared.
    pub fn place(&mut self, id: SegmentId, span: Span) -> Result<()> {
        let bytes = span.bytes;
        let at = self.spares.iter().position(|spare| spare.bytes == bytes);
        let at = at.expect("the flusher has prepared a spare of this size");
        self.disk.rename(&self.spares[at].path, &id.path())?;
        self.spares.swap_remove(at);
        self.live.insert(id, bytes);
        self.placed_end = span.end();
        Ok(())
    }

    /// The first segment of this life for which there is neither a file nor a spare.
    pub fn next_span(&self) -> Span {
        self.walk_spares().0
    }

    /// That segment, and the spares that no segment before it needs.
    fn walk_spares(&self) -> (Span, Vec<&Spare>) {
        let ShelfPlace { sizes, life, .. } = self.place;
        let mut left: Vec<&Spare> = self.spares.iter().collect();
        let mut next = sizes.span_at(life, self.placed_end);
        while let Some(at) = left.iter().position(|spare| spare.bytes == next.bytes) {
            left.swap_remove(at);
            next = sizes.span_at(life, next.end());
        }
        (next, left)
    }

    /// Removes the largest spare that the next segments do not need, to make space for one that they
    /// do. Returns whether there was one.
    ///
    /// # Errors
    /// The disk's.
    pub fn give_up_spare(&mut self) -> Result<bool> {
        let (_, unneeded) = self.walk_spares();
        let largest = unneeded.into_iter().max_by_key(|spare| spare.bytes);
        let Some(path) = largest.map(|spare| spare.path.clone()) else {
            return Ok(false);
        };
        self.disk.remove(&path)?;
        self.spares.retain(|spare| spare.path != path);
        Ok(true)
    }

    /// Removes all spares but those that the next segments need, up to the first segment for which
    /// there is `enough` room before it.
    ///
    /// # Errors
    /// The first of the disk's. What could not be removed stays a spare.
    pub fn give_back(&mut self, enough: impl Fn(&Span) -> bool) -> Result<()> {
        let ShelfPlace { sizes, life, .. } = self.place;
        let mut left = std::mem::take(&mut self.spares);
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
        removed
    }

    /// Retires every live segment that ends at or below `floor`. Returns how many.
    ///
    /// # Errors
    /// The first of the disk's. The segment stays live, and the next call meets it again.
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
            self.retire(&id.path(), *bytes)?;
            self.live.remove(id);
        }
        Ok(dead.len())
    }

    /// Bytes of all files of this stream's log.
    pub fn bytes(&self) -> u64 {
        let spares = self.spares.iter().map(|spare| spare.bytes);
        self.live.values().copied().chain(spares).sum()
    }

    fn retire(&mut self, path: &str, bytes: u64) -> Result<()> {
        if self.has_enough(bytes) {
            return self.disk.remove(path);
        }
        let spare = self.plan_spare(bytes).path;
        self.disk.rename(path, &spare)?;
        self.spares.push(Spare { path: spare, bytes });
        Ok(())
    }
}

/// Lets an open go on when a file of which nothing is needed cannot be cleared away: the next open
/// meets it again.
fn left_for_later(cleared: Result<()>) -> Result<()> {
    match cleared {
        Err(Error::Io { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A file to be prepared without holding a lock: zeroing 64 MiB takes its time.
pub(crate) struct SparePlan {
    disk: Arc<dyn Disk>,
    tmp: String,
    path: String,
    bytes: u64,
}

impl SparePlan {
    /// Creates, zeroes and syncs the file, with a `pause` now and then so that the log's own syncs
    /// get their turn on the disk. A full disk leaves nothing behind.
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
            // The half-made file must not eat the space that would bring the log back; if it
            // cannot be removed now, the next open removes it.
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

    fn place() -> ShelfPlace {
        ShelfPlace {
            stream: StreamId(0),
            uuid: Uuid([1; 16]),
            sizes: SegmentSizes::fixed(65536),
            life: Pos(0),
        }
    }

    #[test]
    fn names_round_trip_and_foreign_names_are_not_ours() {
        let id = SegmentId {
            stream: StreamId(3),
            incarnation: Incarnation(12),
            start: Pos(1 << 33),
        };
        let path = id.path();
        assert_eq!(
            SegmentId::parse(path.strip_prefix("log/").unwrap()),
            Some(id)
        );
        for name in [
            "s3-i12-p0.log",
            "spare-s00-1.log",
            "notes.txt",
            "s03-i0000000012-p.log",
            "s03-i0000000012-p18446744073709551615.log",
            "s+3-i0000000012-p00000000008589934592.log",
            "s003-i0000000012-p00000000008589934592.log",
            "s03-i00000000012-p00000000008589934592.log",
            "s256-i0000000012-p00000000008589934592.log",
        ] {
            assert_eq!(SegmentId::parse(name), None, "{name}");
        }
    }

    /// Found by the simulator: dead segments were retired while the directory was still being
    /// listed, "s00-..." before "spare-...", so a new spare took the name of one that was there.
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
        let mut shelf = SegmentShelf::open(Arc::clone(&disk), place(), |_| false).unwrap();
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
        let shelf = SegmentShelf::open(Arc::clone(&disk), place(), |_| false).unwrap();
        assert_eq!(shelf.spares.len(), SPARES_MAX);
        assert_eq!(disk.list(LOG_DIR).unwrap().len(), SPARES_MAX);
    }

    /// Found by the simulator in steal mode: a half-made spare could not be removed at the
    /// start, and the next one was to be made under its name, so the log could not be extended.
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
        let shelf = SegmentShelf::open(disk, place(), |_| false);
        let spare = shelf.unwrap().plan_spare(65536).prepare(&|| {}).unwrap();
        assert_eq!(spare.path, format!("{LOG_DIR}/spare-s00-1.log"));
        assert!(sim.files().iter().any(|(path, _)| *path == half_made));
    }

    #[test]
    fn a_header_names_its_segment_and_notices_every_flip() {
        let id = SegmentId {
            stream: StreamId(0),
            incarnation: Incarnation(1),
            start: Pos(0),
        };
        let uuid = Uuid([7; 16]);
        let bytes = encode_header(id, &uuid, 65536, false);
        assert_eq!(check_header(id, &uuid, &bytes), Ok(false));
        let followed = encode_header(id, &uuid, 65536, true);
        assert_eq!(check_header(id, &uuid, &followed), Ok(true));
        assert!(check_header(id, &Uuid([8; 16]), &bytes).is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(check_header(id, &uuid, &damaged).is_err(), "byte {at}");
        }
    }
}
