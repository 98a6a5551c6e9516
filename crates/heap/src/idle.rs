//! The time since each key was last used: the partition's interface to [accesses](crate::accesses).

use perdura_base::TableId;

use crate::accesses::seconds;
use crate::geometry::KeyHash;
use crate::partition::Partition;

impl Partition {
    /// Switches the noting of last accesses on or off, for the keys of all tables.
    pub fn note_accesses(&mut self, on: bool, now_ms: u64) {
        self.set_now(now_ms);
        self.notes_accesses = on;
        let since = on.then_some(self.now_second);
        for table in self.tables.values_mut() {
            table.hash.note_accesses(since);
            table.account(&self.pages.memory);
        }
    }

    /// Sets the time that is noted for later accesses. It is the time of the transaction that holds the latch.
    pub fn set_now(&mut self, now_ms: u64) {
        let second = seconds(now_ms);
        // A write would take the cache line from other threads.
        if self.now_second != second {
            self.now_second = second;
        }
    }

    /// Returns the whole seconds since the last use of a key, or `None` if the key does not exist or accesses are not
    /// noted. The result is 0 if the clock was set back to a time before the last use.
    #[must_use]
    pub fn idle_seconds(&self, table: TableId, key: &[u8], hash: KeyHash) -> Option<u64> {
        let table = self.tables.get(table)?;
        let found = self.pages.locate(&table.hash, key, hash)?;
        let last = table.hash.accessed(found.place)?;
        Some(u64::from(self.now_second.saturating_sub(last)))
    }

    /// Makes a key look as if it was last used `idle` seconds ago. Does nothing if the key does not exist or accesses
    /// are not noted.
    pub fn set_idle_seconds(&self, table: TableId, key: &[u8], hash: KeyHash, idle: u64) {
        let idle = u32::try_from(idle).unwrap_or(u32::MAX);
        let Some(table) = self.tables.get(table) else {
            return;
        };
        if let Some(found) = self.pages.locate(&table.hash, key, hash) {
            let last = self.now_second.saturating_sub(idle).max(1);
            table.hash.note_access(found.place, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::address::TableKey;
    use crate::geometry::Geometry;
    use crate::latches::Heap;
    use crate::memory::{MemoryAccount, MemoryUse};
    use crate::undo::Undo;
    use perdura_base::{CkptEpoch, PartitionId};

    const TABLE: TableId = TableId(1);

    fn heap() -> Heap {
        let geometry = Geometry {
            partitions: 1,
            chunk_pages: 4,
            hash_seed: 5,
        };
        let heap = Heap::new(geometry, Arc::new(MemoryAccount::new(u64::MAX)));
        heap.set_ckpt_epoch(CkptEpoch(1));
        heap.lock(PartitionId(0)).attach_table(TABLE, false);
        heap
    }

    fn hash(heap: &Heap, key: u32) -> KeyHash {
        heap.geometry().hash(&key.to_le_bytes())
    }

    fn put(heap: &Heap, part: &mut Partition, undo: &mut Undo, key: u32, value: &[u8]) {
        let put = part.put(
            undo,
            TableKey::new(TABLE, &key.to_le_bytes(), hash(heap, key)),
            value,
            None,
        );
        put.expect("room");
    }

    fn idle(heap: &Heap, part: &Partition, key: u32) -> Option<u64> {
        part.idle_seconds(TABLE, &key.to_le_bytes(), hash(heap, key))
    }

    #[test]
    fn times_move_with_their_keys_as_the_index_grows_closes_gaps_and_shrinks() {
        let heap = heap();
        let mut part = heap.lock(PartitionId(0));
        part.note_accesses(true, 1_000_000);
        let mut undo = Undo::new();
        // Key n is written at second 1000 + n, so that each key has a different idle time.
        for key in 0..3000 {
            part.set_now(1_000_000 + u64::from(key) * 1000);
            put(&heap, &mut part, &mut undo, key, b"value");
        }
        part.set_now(10_000_000);
        for key in (0..3000u32).step_by(3) {
            let there = part.delete(&mut undo, TABLE, &key.to_le_bytes(), hash(&heap, key));
            assert!(there.is_some());
        }
        let check = |part: &Partition| {
            for key in 0..3000 {
                let expected = (key % 3 != 0).then(|| 9000 - u64::from(key));
                assert_eq!(idle(&heap, part, key), expected, "{key}");
            }
        };
        check(&part);
        for _ in 0..3 {
            let table = part.tables.get_mut(TABLE).expect("attached");
            table.hash.reserve(10_000);
            check(&part);
            let table = part.tables.get_mut(TABLE).expect("attached");
            table.hash.shrink_all();
            check(&part);
        }
    }

    #[test]
    fn reads_and_writes_are_noted_and_looking_is_not() {
        let heap = heap();
        let mut part = heap.lock(PartitionId(0));
        part.note_accesses(true, 1_000_000);
        let mut undo = Undo::new();
        for key in 0..4 {
            put(&heap, &mut part, &mut undo, key, b"value");
        }
        part.set_now(1_100_000);
        let get = |part: &Partition, key: u32| {
            let row = part.get(TABLE, &key.to_le_bytes(), hash(&heap, key));
            assert!(row.is_some());
        };
        get(&part, 1);
        put(&heap, &mut part, &mut undo, 2, b"other");
        let row = part.peek(TABLE, &3u32.to_le_bytes(), hash(&heap, 3));
        assert!(row.is_some());
        part.set_now(1_150_999);
        let all: Vec<_> = (0..5).map(|key| idle(&heap, &part, key)).collect();
        assert_eq!(all, [Some(150), Some(50), Some(50), Some(150), None]);
        part.set_idle_seconds(TABLE, &1u32.to_le_bytes(), hash(&heap, 1), 400);
        assert_eq!(idle(&heap, &part, 1), Some(400));
        part.set_now(500_000);
        assert_eq!(idle(&heap, &part, 2), Some(0), "the clock was set back");
    }

    #[test]
    fn keys_count_as_used_when_noting_began_and_what_a_rollback_brings_back_as_used_now() {
        let heap = heap();
        let mut part = heap.lock(PartitionId(0));
        put(&heap, &mut part, &mut Undo::new(), 1, b"value");
        assert_eq!(idle(&heap, &part, 1), None, "nothing is noted");
        part.note_accesses(true, 1_000_000);
        part.set_now(1_007_000);
        assert_eq!(idle(&heap, &part, 1), Some(7));
        let mut undo = Undo::new();
        let key = 1u32.to_le_bytes();
        assert!(
            part.delete(&mut undo, TABLE, &key, hash(&heap, 1))
                .is_some()
        );
        part.rollback(&undo);
        assert_eq!(idle(&heap, &part, 1), Some(0));
        part.attach_table(TableId(2), false);
        let hash_of = hash(&heap, 1);
        let put = part.put(
            &mut Undo::new(),
            TableKey::new(TableId(2), &key, hash_of),
            b"",
            None,
        );
        put.expect("room");
        part.set_now(1_009_000);
        assert_eq!(part.idle_seconds(TableId(2), &key, hash_of), Some(2));
    }

    #[test]
    fn times_are_on_the_account_while_they_are_noted() {
        let heap = heap();
        let mut part = heap.lock(PartitionId(0));
        let mut undo = Undo::new();
        for key in 0..1000 {
            put(&heap, &mut part, &mut undo, key, b"value");
        }
        let before = heap.memory().get(MemoryUse::Indexes);
        part.note_accesses(true, 1_000_000);
        assert_eq!(heap.memory().get(MemoryUse::Indexes), before + before / 2);
        part.note_accesses(false, 1_000_000);
        assert_eq!(heap.memory().get(MemoryUse::Indexes), before);
        assert_eq!(idle(&heap, &part, 1), None);
    }
}
