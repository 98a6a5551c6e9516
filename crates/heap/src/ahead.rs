//! Looking ahead: keys that will be used soon are touched together.
//!
//! A random key costs two waits for memory: for the key's place in the index, and then for its row. A processor
//! overlaps independent loads within its window of instructions. So a batch first touches the index places of all keys,
//! and then all rows. A batch waits about twice in all. The next commands find these cache lines in the cache.
//!
//! Touching is only a hint. It writes nothing, counts nothing, notes no access, decodes nothing and keeps no result:
//! each command searches for its key again. Touching may miss a key, or touch the row of another key with the same
//! hash bits.
//!
//! A batch takes all latches before the first load, and releases the latches after the last load. The reason is that an
//! atomic instruction waits for the loads before it.

use perdura_base::{PartitionId, TableId};
use perdura_page::layout;
use smallvec::SmallVec;

use crate::entry::spread;
use crate::geometry::KeyHash;
use crate::hash_index::{HashIndex, Range};
use crate::latches::{Heap, PartitionGuard};
use crate::pages::Pages;
use crate::partition::Partition;

/// The number of keys touched together. A core can wait for about this number of loads at once.
pub const AHEAD_KEYS: usize = 16;

/// The size of a cache line in bytes.
const LINE_BYTES: usize = 64;
/// The number of cache lines of a row that are touched. The processor itself reads ahead beyond these lines.
const ROW_LINES: usize = 4;

/// A key whose place in the index, and then whose row, is to be touched.
struct Sought<'a> {
    pages: &'a Pages,
    /// The index range that contains the key's hash.
    range: &'a Range,
    hash: KeyHash,
    spread: u64,
}

/// Touches each key's place in the index of its table, and then each key's row. Does nothing for a single key.
pub fn touch<'a>(keys: impl Iterator<Item = (&'a Partition, TableId, KeyHash)>) {
    let mut last: Option<(&Partition, TableId, &HashIndex)> = None;
    let sought = keys.filter_map(|(part, table, hash)| {
        let index = match last {
            Some((same, of, index)) if std::ptr::eq(same, part) && of == table => index,
            _ => &part.tables.get(table)?.hash,
        };
        last = Some((part, table, index));
        let spread = spread(hash, index.salt());
        Some(Sought {
            pages: &part.pages,
            range: index.range_of(spread),
            hash,
            spread,
        })
    });
    let sought: SmallVec<[Sought<'_>; AHEAD_KEYS]> = sought.collect();
    if sought.len() < 2 {
        return;
    }
    debug_assert!(
        sought.len() <= AHEAD_KEYS,
        "what is touched is still in the cache when it is used"
    );
    let mut seen = 0;
    for key in &sought {
        seen ^= key.range.touch(key.spread);
    }
    for key in &sought {
        seen ^= key.touch_row();
    }
    std::hint::black_box(seen);
}

impl Sought<'_> {
    /// Returns the page and the slot of the row that probably has the key; `None` if no near entry has the key's hash.
    fn row(&self) -> Option<(&[u8], &[u8])> {
        let mut near = self.range.near(self.spread);
        let entry = near.find(|entry| entry.hash_is(self.hash))?;
        debug_assert!(
            self.pages.is_used(entry.local()),
            "an index names pages that are used"
        );
        let class = self.pages.class(entry.local());
        let page = self.pages.page(entry.local());
        Some((page, layout::slot(page, class, entry.slot())))
    }

    /// Loads a byte of each of the row's first cache lines, and the head of the page. A commit changes the head.
    fn touch_row(&self) -> u64 {
        let Some((page, slot)) = self.row() else {
            return 0;
        };
        let row = &slot[..slot.len().min(ROW_LINES * LINE_BYTES)];
        let number = u64::from(layout::useq(page).0);
        let last = row.last().map_or(number, |byte| number ^ u64::from(*byte));
        let lines = row.chunks(LINE_BYTES);
        lines.fold(last, |seen, line| seen ^ u64::from(line[0]))
    }
}

impl Heap {
    /// Touches each key's place in an index of the table, and then each key's row. Skips partitions whose latches are
    /// held. Does nothing for a single key.
    pub fn look_ahead(&self, table: TableId, keys: &[KeyHash]) {
        for batch in keys.chunks(AHEAD_KEYS).filter(|batch| batch.len() > 1) {
            let mut guards: SmallVec<[(PartitionId, PartitionGuard<'_>); AHEAD_KEYS]> =
                SmallVec::new();
            for hash in batch {
                let id = self.geometry().partition_of(*hash);
                if guards.iter().all(|(held, _)| *held != id)
                    && let Some(guard) = self.try_lock(id)
                {
                    guards.push((id, guard));
                }
            }
            debug_assert!(
                guards.iter().all(|(id, part)| part.id() == *id),
                "a latch is of the partition it is noted for"
            );
            let held = batch.iter().filter_map(|hash| {
                let id = self.geometry().partition_of(*hash);
                let (_, guard) = guards.iter().find(|(held, _)| *held == id)?;
                Some((&**guard, table, *hash))
            });
            touch(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::address::TableKey;
    use crate::geometry::Geometry;
    use crate::memory::MemoryAccount;
    use crate::undo::Undo;
    use perdura_base::CkptEpoch;

    const TABLE: TableId = TableId(1);
    const KEYS: u32 = 300;

    /// Returns a heap of four partitions. Its keys have been idle for some time and have expired.
    fn heap() -> (Heap, Vec<KeyHash>) {
        let geometry = Geometry {
            partitions: 4,
            chunk_pages: 4,
            hash_seed: 5,
        };
        let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
        heap.set_ckpt_epoch(CkptEpoch(1));
        for id in (0..4).map(PartitionId) {
            let mut part = heap.lock(id);
            part.attach_table(TABLE, false);
            part.note_accesses(true, 100_000);
        }
        let hashes: Vec<_> = (0..KEYS).map(|i| geometry.hash(&i.to_le_bytes())).collect();
        for (i, hash) in (0..KEYS).zip(&hashes) {
            let mut part = heap.lock(geometry.partition_of(*hash));
            let value = vec![7; usize::try_from(i % 7 * 300).expect("a length")];
            let mut undo = Undo::default();
            let put = part.put(
                &mut undo,
                TableKey::new(TABLE, &i.to_le_bytes(), *hash),
                &value,
                Some(200_000),
            );
            put.expect("room");
        }
        (heap, hashes)
    }

    /// The visible state of a partition: pages, idle times of keys, and expired keys.
    type Seen = (Vec<u8>, Vec<Option<u64>>, Vec<Vec<u8>>);

    /// Returns the visible state of the heap.
    fn seen(heap: &Heap, hashes: &[KeyHash]) -> Vec<Seen> {
        let parts = (0..heap.geometry().partitions).map(|id| {
            let part = heap.lock(PartitionId(id));
            let pages = (0..part.pages()).filter_map(|local| part.page_bytes(local));
            let mine = (0..KEYS).zip(hashes);
            let idle = mine
                .map(|(i, hash)| part.idle_seconds(TABLE, &i.to_le_bytes(), *hash))
                .collect();
            let due = part.expired(TABLE, u64::MAX, usize::MAX);
            (pages.flatten().copied().collect(), idle, due)
        });
        parts.collect()
    }

    #[test]
    fn a_touch_changes_no_byte_counts_no_key_as_used_and_expires_none() {
        let (heap, mut hashes) = heap();
        for id in (0..4).map(PartitionId) {
            heap.lock(id).set_now(900_000);
        }
        let before = seen(&heap, &hashes);
        assert!(before.iter().all(|(_, _, due)| !due.is_empty()));
        heap.look_ahead(TABLE, &hashes);
        heap.look_ahead(TableId(9), &hashes);
        hashes.extend((0..1000).map(KeyHash));
        heap.look_ahead(TABLE, &hashes);
        assert!(seen(&heap, &hashes) == before);
    }

    #[test]
    fn a_latched_partition_is_passed_over_and_none_stays_latched() {
        let (heap, hashes) = heap();
        let held = heap.lock(PartitionId(2));
        heap.look_ahead(TABLE, &hashes);
        for id in [0, 1, 3].map(PartitionId) {
            assert!(heap.try_lock(id).is_some(), "{id} is free");
        }
        drop(held);
        heap.look_ahead(TABLE, &hashes);
        assert!(heap.try_lock(PartitionId(2)).is_some());
    }

    #[test]
    fn the_rows_that_are_touched_are_those_of_the_keys() {
        let (heap, hashes) = heap();
        let is_found = |hash: &&KeyHash| {
            let part = heap.lock(heap.geometry().partition_of(**hash));
            let index = &part.tables.get(TABLE).expect("attached").hash;
            let spread = spread(**hash, index.salt());
            let sought = Sought {
                pages: &part.pages,
                range: index.range_of(spread),
                hash: **hash,
                spread,
            };
            sought
                .row()
                .is_some_and(|(page, slot)| page.len() > slot.len())
        };
        let found = hashes.iter().filter(is_found).count();
        assert!(
            found * 10 > hashes.len() * 9,
            "{found} are near their homes"
        );
        let strangers: Vec<_> = (0..1000).map(|i| KeyHash(i << 40 | i)).collect();
        assert_eq!(strangers.iter().filter(is_found).count(), 0);
    }
}
