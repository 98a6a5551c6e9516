//! The exact set of pages that have a record in a run.
//!
//! Each partition has a bitmap with a bit for each local page. Only the spans of nonzero bytes are stored. So an
//! isolated page takes a few bytes, and a page among many neighbours takes one bit.

use perdura_base::PartitionId;
use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_u64, to_usize};

use super::header::RunHeader;
use crate::record::PageAt;

/// The maximum size of a partition's bitmap, bytes. A local page index has 32 bits, so the bitmap has at most 2^32
/// bits.
const BITMAP_BYTES_MAX: u64 = 1 << 29;

/// The pages of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Bitmap {
    pages: u32,
    /// Two indexes of the first byte of each stored span. The first index counts in the whole bitmap, the second in
    /// `bytes`.
    spans: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl Bitmap {
    /// Returns the bytes of span `i`. Also returns the position of the first of these bytes in the whole bitmap.
    fn span(&self, i: usize) -> (u64, &[u8]) {
        let (index, from) = self.spans[i];
        let end = self
            .spans
            .get(i + 1)
            .map_or(self.bytes.len(), |(_, end)| *end);
        debug_assert!(from < end, "a span has a byte");
        (index, &self.bytes[from..end])
    }

    /// Returns the index after the last stored byte, counted in the whole bitmap.
    fn end(&self) -> u64 {
        self.spans
            .last()
            .map_or(0, |(index, from)| index + to_u64(self.bytes.len() - from))
    }

    fn byte(&self, index: u64) -> u8 {
        let behind = self.spans.partition_point(|(first, _)| *first <= index);
        let Some(i) = behind.checked_sub(1) else {
            return 0;
        };
        let (first, bytes) = self.span(i);
        bytes.get(to_usize(index - first)).copied().unwrap_or(0)
    }

    /// Adds a page. The pages of successive calls must not descend. Returns whether the page was not yet in the set.
    fn push(&mut self, local: u32) -> bool {
        let (index, bit) = (u64::from(local / 8), 1u8 << (local % 8));
        let end = self.end();
        if index + 1 == end {
            let last = self
                .bytes
                .last_mut()
                .expect("a bitmap with an end has a byte");
            assert!(bit >= 1 << (7 - last.leading_zeros()), "pages ascend");
            let is_new = *last & bit == 0;
            *last |= bit;
            self.pages += u32::from(is_new);
            return is_new;
        }
        assert!(index >= end, "pages ascend");
        if index > end || self.spans.is_empty() {
            self.spans.push((index, self.bytes.len()));
        }
        self.bytes.push(bit);
        self.pages += 1;
        true
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut end = 0;
        for i in 0..self.spans.len() {
            let (index, bytes) = self.span(i);
            out.put_varint(index - end);
            out.put_varint(to_u64(bytes.len()));
            out.put(bytes);
            end = index + to_u64(bytes.len());
        }
    }

    /// Decodes a bitmap. `None`: [`encode`](Self::encode) never writes these bytes.
    fn decode(bytes: &[u8]) -> Option<Bitmap> {
        let mut r = Reader::new(bytes);
        let mut bitmap = Bitmap::default();
        while r.remaining() > 0 {
            let (gap, len) = (r.varint()?, r.varint_usize()?);
            let bytes = r.bytes(len)?;
            let index = bitmap.end().checked_add(gap)?;
            let is_sound = len > 0
                && (gap > 0 || bitmap.spans.is_empty())
                && index.checked_add(to_u64(len))? <= BITMAP_BYTES_MAX
                && !bytes.contains(&0);
            if !is_sound {
                return None;
            }
            bitmap.spans.push((index, bitmap.bytes.len()));
            bitmap.bytes.extend_from_slice(bytes);
            for byte in bytes {
                bitmap.pages = bitmap.pages.checked_add(byte.count_ones())?;
            }
        }
        Some(bitmap)
    }
}

/// A set of pages, each identified by its partition and local index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageSet {
    /// The bitmaps, by partition. The list ends with the last partition that has a page.
    partitions: Vec<Bitmap>,
}

impl PageSet {
    /// Returns whether a page is in the set.
    #[must_use]
    pub fn contains(&self, at: PageAt) -> bool {
        let bitmap = self.partitions.get(usize::from(at.partition.0));
        bitmap.is_some_and(|bitmap| bitmap.byte(u64::from(at.local / 8)) >> (at.local % 8) & 1 == 1)
    }

    /// Returns the number of pages in the set.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.partitions.iter().map(|p| u64::from(p.pages)).sum()
    }

    /// Returns the local indexes of a partition's pages, ascending.
    pub fn pages(&self, partition: PartitionId) -> impl Iterator<Item = u32> + '_ {
        let bitmap = self.partitions.get(usize::from(partition.0));
        let spans = bitmap
            .into_iter()
            .flat_map(|bitmap| (0..bitmap.spans.len()).map(|i| bitmap.span(i)));
        let bytes = spans.flat_map(|(first, bytes)| (first..).zip(bytes.iter().copied()));
        bytes.flat_map(|(index, byte)| {
            let bits = (0..8).filter(move |bit| byte >> bit & 1 == 1);
            bits.map(move |bit| u32::try_from(8 * index + bit).unwrap_or(u32::MAX))
        })
    }

    /// Adds a page. Within a partition, the pages of successive calls must not descend. Returns whether the page was
    /// not yet in the set.
    pub(crate) fn push(&mut self, at: PageAt) -> bool {
        let partition = usize::from(at.partition.0);
        if self.partitions.len() <= partition {
            self.partitions.resize(partition + 1, Bitmap::default());
        }
        self.partitions[partition].push(at.local)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let taken = (0u16..).zip(&self.partitions).filter(|(_, p)| p.pages > 0);
        let sets: Vec<_> = taken.collect();
        out.put_u16(u16::try_from(sets.len()).expect("a database has at most 256 partitions"));
        for (partition, bitmap) in sets {
            out.put_u16(partition);
            out.put_u32(bitmap.pages);
            let length_at = out.len();
            out.put_u32(0);
            bitmap.encode(out);
            let len = to_u32(out.len() - length_at - 4);
            out[length_at..length_at + 4].copy_from_slice(&len.to_le_bytes());
        }
    }

    /// Decodes a set. `None`: [`encode`](Self::encode) would write different bytes, or a page does not exist in the
    /// database.
    pub(crate) fn decode(bytes: &[u8], header: &RunHeader) -> Option<PageSet> {
        let mut r = Reader::new(bytes);
        let mut set = PageSet::default();
        for _ in 0..r.u16()? {
            let partition = PartitionId(r.u16()?);
            let pages = r.u32()?;
            let len = to_usize(u64::from(r.u32()?));
            let bitmap = Bitmap::decode(r.bytes(len)?)?;
            let place = usize::from(partition.0);
            let ascends = place >= set.partitions.len() && partition.0 < header.chunks.partitions;
            if !ascends || pages == 0 || bitmap.pages != pages {
                return None;
            }
            let last = u32::try_from(8 * bitmap.end() - 1).ok()?;
            let unused = bitmap.bytes.last().map_or(0, |byte| byte.leading_zeros());
            header.chunks.page_id(partition, last - unused)?;
            set.partitions.resize(place, Bitmap::default());
            set.partitions.push(bitmap);
        }
        (r.remaining() == 0).then_some(set)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use perdura_base::{Epoch, Uuid};
    use perdura_page::Chunks;

    use super::*;
    use crate::name::{EpochRange, RunId};

    fn header() -> RunHeader {
        RunHeader {
            uuid: Uuid([1; 16]),
            id: RunId {
                epochs: EpochRange::new(Epoch(1), Epoch(2)).expect("a range"),
                level: 0,
                generation: 0,
            },
            chunks: Chunks {
                partitions: 4,
                pages: 128,
            },
            only_listed_moments: false,
            carries_frames: false,
            life: perdura_base::LifeId(0),
        }
    }

    #[test]
    fn a_set_has_exactly_the_pages_that_were_added() {
        let mut rng = fastrand::Rng::with_seed(1);
        for density in [1, 2, 7, 100, 5000] {
            let pages: BTreeSet<PageAt> = (0..500)
                .map(|_| PageAt {
                    partition: PartitionId(rng.u16(1..4)),
                    local: rng.u32(0..density * 100),
                })
                .collect();
            let mut set = PageSet::default();
            for at in &pages {
                assert!(set.push(*at));
                assert!(!set.push(*at));
            }
            let mut out = Vec::new();
            set.encode(&mut out);
            let read = PageSet::decode(&out, &header()).expect("a set");
            assert_eq!(read, set);
            assert_eq!(read.count(), to_u64(pages.len()));
            for partition in (0..5).map(PartitionId) {
                for local in 0..density * 100 + 20 {
                    let at = PageAt { partition, local };
                    assert_eq!(read.contains(at), pages.contains(&at));
                }
                let listed: Vec<u32> = read.pages(partition).collect();
                let want = pages.iter().filter(|at| at.partition == partition);
                assert_eq!(listed, want.map(|at| at.local).collect::<Vec<_>>());
            }
            for cut in 0..out.len() {
                assert_eq!(PageSet::decode(&out[..cut], &header()), None);
            }
        }
    }

    #[test]
    fn the_last_page_that_has_an_id_is_a_page_and_the_next_one_is_not() {
        for (local, is_page) in [((1 << 30) - 1, true), (1 << 30, false)] {
            let mut set = PageSet::default();
            set.push(PageAt {
                partition: PartitionId(3),
                local,
            });
            let mut out = Vec::new();
            set.encode(&mut out);
            assert_eq!(PageSet::decode(&out, &header()).is_some(), is_page);
        }
    }
}
