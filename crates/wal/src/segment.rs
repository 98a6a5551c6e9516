//! Segments, which are the files of a stream: their names and headers.
#![doc = include_str!("../../../docs/formats/segment.md")]

use perdura_base::checksum::crc32c;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::{FORMAT_VERSION, SECTOR_BYTES};
use perdura_base::{Incarnation, Pos, StreamId, Uuid};

use crate::lineage::{HEAD_BYTES, Lineage, PAST_BYTES, PAST_MAX};

/// The directory of log segments on each log disk.
pub const LOG_DIR: &str = "log";
/// The size of a segment's header in bytes. The first block follows the header.
pub const SEGMENT_HEADER_BYTES: u64 = 4096;

/// The number of digits of the highest 64-bit number.
const DIGITS_MAX: usize = 20;
/// The capacity reserved for the path of a segment.
const PATH_BYTES: usize = 48;
const MAGIC: &[u8; 4] = b"PSEG";
const CRC_AT: usize = 4092;
/// The offset of the lives in the header.
const LIVES_AT: usize = 48;
const _: () = assert!(
    LIVES_AT + HEAD_BYTES + PAST_BYTES * PAST_MAX <= CRC_AT,
    "a header has room for the lives"
);
/// The offset of the mark *followed* in the header.
const FOLLOWED_AT: usize = 7;

/// The parts of a segment's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentId {
    /// The stream.
    pub stream: StreamId,
    /// The position of the first byte after the header.
    pub start: Pos,
    /// The life of the database that made the segment.
    pub incarnation: Incarnation,
}

impl SegmentId {
    /// Returns the segment's path on the log disk.
    #[must_use]
    pub fn path(&self) -> String {
        let mut path = String::with_capacity(PATH_BYTES);
        path.push_str(LOG_DIR);
        path.push('/');
        push_prefix(&mut path, self.stream);
        path.push('i');
        push_padded(&mut path, u64::from(self.incarnation.0), 10);
        path.push_str("-p");
        push_padded(&mut path, self.start.0, 20);
        path.push_str(".log");
        path
    }

    /// Returns the prefix of the names of this stream's segments. No other stream's segments have it.
    #[must_use]
    pub(crate) fn prefix(stream: StreamId) -> String {
        let mut prefix = String::new();
        push_prefix(&mut prefix, stream);
        prefix
    }

    /// Parses the file name of a segment: the part of [`path`](Self::path) after the directory. Returns `None` for any
    /// other name.
    #[must_use]
    pub fn parse(name: &str) -> Option<SegmentId> {
        // No log reaches this position, so a name with a higher position is not the name of a segment.
        const START_MAX: u64 = 1 << 62;
        let rest = name.strip_prefix('s')?.strip_suffix(".log")?;
        let (stream, rest) = rest.split_once('-')?;
        let (incarnation, start) = rest.strip_prefix('i')?.split_once('-')?;
        let start = start.strip_prefix('p')?;
        let id = SegmentId {
            stream: StreamId(padded(stream, 2)?.try_into().ok()?),
            incarnation: Incarnation(padded(incarnation, 10)?.try_into().ok()?),
            start: Pos(padded(start, 20)?),
        };
        let is_ours = id.start.0 <= START_MAX;
        is_ours.then_some(id)
    }
}

fn push_prefix(out: &mut String, stream: StreamId) {
    out.push('s');
    push_padded(out, u64::from(stream.0), 2);
    out.push('-');
}

/// Appends a number in the form of `{:0width$}`. A restart makes the name of every segment several times, and the
/// formatter would take most of that time.
fn push_padded(out: &mut String, number: u64, width: usize) {
    let mut digits = [b'0'; DIGITS_MAX];
    let (mut first, mut rest) = (DIGITS_MAX, number);
    while rest > 0 || first == DIGITS_MAX {
        first -= 1;
        digits[first] = b"0123456789"[usize::try_from(rest % 10).unwrap_or(0)];
        rest /= 10;
    }
    let from = first.min(DIGITS_MAX - width.min(DIGITS_MAX));
    out.push_str(str::from_utf8(&digits[from..]).expect("digits are ASCII"));
}

/// Parses a number in exactly the form that [`push_padded`] writes.
fn padded(digits: &str, width: usize) -> Option<u64> {
    let is_padded = digits.len() == width || (digits.len() > width && !digits.starts_with('0'));
    let is_number = is_padded && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Returns the header of a segment. `followed` is true if the stream's next segment has a durable name. `lives` is the
/// lineage of the life that wrote the segment.
#[must_use]
pub(crate) fn encode_header(
    id: SegmentId,
    uuid: &Uuid,
    segment_bytes: u64,
    followed: bool,
    lives: &Lineage,
) -> Vec<u8> {
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
    assert_eq!(out.len(), LIVES_AT, "the lives follow");
    lives.bounded().encode(&mut out);
    out.put_zeros(CRC_AT - out.len());
    assert_eq!(out.len(), CRC_AT, "the fields fill the header");
    out.put_u32(crc32c(&out));
    assert_eq!(
        check_header(id, uuid, &out),
        Ok(followed),
        "a header reads back as it was written"
    );
    out
}

/// Returns the lives in a header that [`check_header`] has accepted. An older build wrote no lives; they are unknown.
#[must_use]
pub(crate) fn lives_in(header: &[u8]) -> Lineage {
    let bytes = header.get(LIVES_AT..CRC_AT).unwrap_or_default();
    Lineage::decode(&mut Reader::new(bytes)).unwrap_or_default()
}

const OTHER_DATABASE: &str = "it belongs to database";

/// Returns whether a fault of [`check_header`] says that the segment belongs to another database.
#[must_use]
pub fn is_foreign(fault: &str) -> bool {
    fault.starts_with(OTHER_DATABASE)
}

/// Returns the mark of a header, and whether the header's checksum is correct. Mark and checksum are in different disk
/// sectors. So a crash while the mark is being written may leave a new mark with an old checksum, or an old mark with a
/// new checksum. For a torn mark, returns 0 and true.
fn whole_mark(bytes: &[u8]) -> Option<(u8, bool)> {
    let (covered, crc) = bytes.get(..SECTOR_BYTES)?.split_at(CRC_AT);
    let crc = u32::from_le_bytes(crc.try_into().ok()?);
    let mark = covered[FOLLOWED_AT];
    if crc == crc32c(covered) {
        return Some((mark, true));
    }
    if mark > 1 {
        return Some((mark, false));
    }
    let mut other = covered.to_vec();
    other[FOLLOWED_AT] ^= 1;
    // A torn mark counts as 0: it was not durable, so no block of a next segment had been written.
    Some((0, crc == crc32c(&other)))
}

/// Returns whether a segment's header has the mark *followed*. If the header is faulty, the error describes the fault
/// in words. A mark that a crash has torn counts as a missing mark, not as a fault.
pub fn check_header(id: SegmentId, uuid: &Uuid, bytes: &[u8]) -> Result<bool, String> {
    let read = || {
        let (followed, whole) = whole_mark(bytes)?;
        let mut r = Reader::new(bytes);
        let magic = r.array::<4>()?;
        let version = r.u16()?;
        let stream = r.u8()?;
        r.u8()?;
        let owner = Uuid(r.array::<16>()?);
        let incarnation = r.u32()?;
        r.u32()?;
        let start = r.u64()?;
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
        Some((.., false)) => Err("the header's checksum is wrong".into()),
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

#[cfg(test)]
mod tests {
    use perdura_base::{Epoch, LifeId};

    use super::*;
    use crate::lineage::PastLife;

    #[test]
    fn names_round_trip_and_foreign_names_are_not_ours() {
        let id = SegmentId {
            stream: StreamId(3),
            incarnation: Incarnation(12),
            start: Pos(1 << 33),
        };
        for id in [
            id,
            SegmentId {
                stream: StreamId(255),
                incarnation: Incarnation(u32::MAX),
                start: Pos(0),
            },
        ] {
            let path = id.path();
            let name = format!(
                "s{:02}-i{:010}-p{:020}.log",
                id.stream.0, id.incarnation.0, id.start.0
            );
            assert_eq!(path, format!("{LOG_DIR}/{name}"));
            assert_eq!(SegmentId::parse(&name), Some(id));
        }
        let mut number = String::new();
        push_padded(&mut number, u64::MAX, 3);
        push_padded(&mut number, 0, 0);
        assert_eq!(number, "184467440737095516150");
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

    /// Returns as many lives as an anchor keeps.
    fn many_lives() -> Lineage {
        let past = (1..=200_u32).map(|nth| PastLife {
            id: LifeId(u64::from(nth) << 40),
            incarnation: Incarnation(nth),
            end: Epoch(u64::from(nth)),
        });
        let mut lives = Lineage {
            id: LifeId(9),
            past: past.collect(),
        };
        lives.forget();
        assert_eq!(lives.past.len(), PAST_MAX);
        lives
    }

    #[test]
    fn a_header_of_an_older_build_has_no_lives() {
        assert_eq!(lives_in(&[0; SECTOR_BYTES]), Lineage::default());
        assert_eq!(lives_in(&[]), Lineage::default());
    }

    /// Crash run 16135 found this bug. The power failed while the mark was being written, the disk kept only one of the
    /// header's sectors, and the restart reported a damaged header.
    #[test]
    fn a_mark_that_a_crash_tears_does_not_count_and_is_no_damage() {
        let id = SegmentId {
            stream: StreamId(0),
            incarnation: Incarnation(1),
            start: Pos(0),
        };
        let uuid = Uuid([7; 16]);
        let lives = many_lives();
        let before = encode_header(id, &uuid, 65536, false, &lives);
        let after = encode_header(id, &uuid, 65536, true, &lives);
        let disk_sector = 512;
        let sectors = SECTOR_BYTES / disk_sector;
        for kept in 0..1_u32 << sectors {
            let mut torn = before.clone();
            for sector in (0..sectors).filter(|sector| kept >> sector & 1 == 1) {
                let range = sector * disk_sector..(sector + 1) * disk_sector;
                torn[range.clone()].copy_from_slice(&after[range]);
            }
            let is_whole = torn == after;
            assert_eq!(check_header(id, &uuid, &torn), Ok(is_whole), "{kept:b}");
        }
    }

    #[test]
    fn a_header_names_its_segment_and_notices_every_flip() {
        let id = SegmentId {
            stream: StreamId(0),
            incarnation: Incarnation(1),
            start: Pos(0),
        };
        let uuid = Uuid([7; 16]);
        let lives = many_lives();
        let bytes = encode_header(id, &uuid, 65536, false, &lives);
        assert_eq!(check_header(id, &uuid, &bytes), Ok(false));
        assert_eq!(lives_in(&bytes), lives);
        let followed = encode_header(id, &uuid, 65536, true, &lives);
        assert_eq!(check_header(id, &uuid, &followed), Ok(true));
        assert!(check_header(id, &Uuid([8; 16]), &bytes).is_err());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(check_header(id, &uuid, &damaged).is_err(), "byte {at}");
        }
    }
}
