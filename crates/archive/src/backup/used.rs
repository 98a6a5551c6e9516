//! The list of used pages in an increment: for each page of a key-addressed table, the file that holds its bytes.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_u64, to_usize};
use perdura_base::{CkptEpoch, Useq};
use perdura_page::Chunks;

use super::section::PageEntry;

/// The size of a used page's entry, bytes.
const USED_BYTES: usize = 28;

/// A page that the cut of an increment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsedPage {
    /// The entry of the page.
    pub entry: PageEntry,
    /// The checkpoint epoch of the backup or increment that holds the page's bytes.
    pub holder: CkptEpoch,
}

/// Returns whether a page may belong to a key-addressed table. Such tables take pages of odd chunks, counted within the
/// partition. In a database of an early build they may have other pages, which have no update number.
#[must_use]
pub fn is_keyed(chunks: Chunks, entry: &PageEntry) -> bool {
    let chunk = entry.local / u32::from(chunks.pages);
    !chunk.is_multiple_of(2) || entry.useq == Useq(0)
}

/// Returns the bytes of a partition's list.
#[must_use]
pub fn encode_used(pages: &[UsedPage]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + pages.len() * USED_BYTES);
    out.put_u32(to_u32(pages.len()));
    for UsedPage { entry, holder } in pages {
        out.put_u32(entry.local);
        out.put_u32(entry.useq.0);
        out.put_u32(entry.crc);
        out.put_u64(entry.digest);
        out.put_u64(holder.0);
    }
    assert_eq!(
        out.len(),
        4 + pages.len() * USED_BYTES,
        "an entry has the length it is read by"
    );
    out
}

/// Decodes a partition's list. `None`: the bytes are malformed, or the pages do not ascend.
#[must_use]
pub fn decode_used(bytes: &[u8]) -> Option<Vec<UsedPage>> {
    let mut r = Reader::new(bytes);
    let count = r.u32()?;
    if to_u64(r.remaining()) != u64::from(count) * to_u64(USED_BYTES) {
        return None;
    }
    let mut pages: Vec<UsedPage> = Vec::with_capacity(to_usize(u64::from(count)));
    for _ in 0..count {
        let entry = PageEntry {
            local: r.u32()?,
            useq: Useq(r.u32()?),
            crc: r.u32()?,
            digest: r.u64()?,
        };
        let holder = CkptEpoch(r.u64()?);
        if pages
            .last()
            .is_some_and(|last| last.entry.local >= entry.local)
        {
            return None;
        }
        pages.push(UsedPage { entry, holder });
    }
    debug_assert_eq!(r.remaining(), 0, "the length was checked");
    Some(pages)
}
