#![doc = include_str!("../../../docs/formats/tree-double.md")]

use perdura_base::checksum::crc32c;
use perdura_base::cursor::Writer;
use perdura_base::num::to_u32;
use perdura_base::{Gsn, Pid};

use perdura_base::fields::Fields;
pub use perdura_base::fields::Malformed;

/// The length of the head, bytes. The copies of the pages follow the head.
pub const HEAD_BYTES: usize = 4096;
/// The maximum number of pages in a batch.
pub const PAGES_MAX: usize = 128;

const MAGIC: &[u8; 4] = b"PDBL";
const VERSION: u16 = 2;
const CRC: usize = HEAD_BYTES - 4;
/// The offsets of three fields: the database, the highest operation number, and a separate checksum. This checksum
/// covers all bytes before its field.
const DATABASE: usize = 12;
const NEWEST: usize = 20;
const NEWEST_CRC: usize = NEWEST + 8;

/// The head of the file: it describes the newest batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchHead {
    /// The size of a page, in bytes.
    pub page_bytes: usize,
    /// First 8 bytes of the database's uuid.
    pub database: [u8; 8],
    /// The highest operation number (`Gsn`) in any page of this batch or of an earlier batch.
    pub newest: Gsn,
    /// The pages, ascending, each with its checksum.
    pub pages: Vec<(Pid, u32)>,
}

/// Returns the highest operation number in any page that was written. The number is in the first sector. So even after
/// a torn write of the head, the old number or the new number can be read. `None`: no batch was written yet, the sector
/// is damaged, or the file belongs to another database.
#[must_use]
pub fn newest_number(bytes: &[u8], database: [u8; 8]) -> Option<Gsn> {
    let (covered, rest) = bytes.split_at_checked(NEWEST_CRC)?;
    let crc = rest.first_chunk()?;
    let is_ours = covered.starts_with(MAGIC) && covered[DATABASE..NEWEST] == database;
    let holds = is_ours && *crc == crc32c(covered).to_le_bytes();
    let number = covered[NEWEST..].first_chunk()?;
    holds.then(|| Gsn(u64::from_le_bytes(*number)))
}

impl BatchHead {
    /// Writes the head.
    ///
    /// # Panics
    /// If `pages` is empty, has too many pages, or does not ascend.
    pub fn encode(&self, out: &mut [u8]) {
        assert!(out.len() >= HEAD_BYTES);
        assert!((1..=PAGES_MAX).contains(&self.pages.len()));
        assert!(self.pages.is_sorted_by(|a, b| a.0 < b.0), "pages ascend");
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.put(MAGIC);
        head.put_u16(VERSION);
        head.put_u16(u16::try_from(self.pages.len()).unwrap_or(0));
        head.put_u32(to_u32(self.page_bytes));
        head.put(&self.database);
        head.put_u64(self.newest.0);
        assert_eq!(head.len(), NEWEST_CRC);
        let crc = crc32c(&head);
        head.put_u32(crc);
        for (pid, crc) in &self.pages {
            head.put_u32(pid.0);
            head.put_u32(*crc);
        }
        head.resize(CRC, 0);
        let crc = crc32c(&head);
        head.put_u32(crc);
        out[..HEAD_BYTES].copy_from_slice(&head);
    }

    /// Reads a head. `None`: the head is cut off or has a wrong checksum, so the head never was durable.
    ///
    /// # Errors
    /// Returns the first fault of the format.
    pub fn decode(bytes: &[u8]) -> Result<Option<BatchHead>, Malformed> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        if head[CRC..] != crc32c(&head[..CRC]).to_le_bytes() {
            return Ok(None);
        }
        let mut r = Fields::new(&head[..CRC]);
        r.take("the name of a double-write file", |r| {
            r.array().filter(|magic| magic == MAGIC)
        })?;
        r.take("version 2: another build wrote it", |r| {
            r.u16().filter(|version| *version == VERSION)
        })?;
        let count = r.take("1 to 128 pages", |r| {
            let count = usize::from(r.u16()?);
            (1..=PAGES_MAX).contains(&count).then_some(count)
        })?;
        let page_bytes = r.take("bytes of a page", |r| usize::try_from(r.u32()?).ok())?;
        let database = r.take("a database", |r| r.array())?;
        let newest = Gsn(r.take("a number", |r| r.u64())?);
        let crc = crc32c(&head[..NEWEST_CRC]);
        r.take("a checksum of what is before it", |r| {
            r.u32().filter(|found| *found == crc)
        })?;
        let mut pages: Vec<(Pid, u32)> = Vec::with_capacity(count);
        for _ in 0..count {
            let last = pages.last().map(|(pid, _)| *pid);
            let entry = r.take("a page above the one before it", |r| {
                let entry = (Pid(r.u32()?), r.u32()?);
                last.is_none_or(|last| entry.0 > last).then_some(entry)
            })?;
            pages.push(entry);
        }
        r.take("zeros", |r| r.zeros(r.remaining()))?;
        Ok(Some(BatchHead {
            page_bytes,
            database,
            newest,
            pages,
        }))
    }
}
