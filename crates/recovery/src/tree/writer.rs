//! Logs the tree's records. All records of trees are appended to stream 0, so that these records have an order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura_base::cursor::varint_len;
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Gsn, PartitionSet, StreamId};
use perdura_formats::tree_record::TreeRecord;
use perdura_tree::contract::Records;
use perdura_wal::{FrameKind, Wal};

/// The stream that all of the tree's records go to.
pub const TREE_STREAM: StreamId = StreamId(0);

/// Counts of the bytes that a writer has appended, by kind of record. The heads of the frames count too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordBytes {
    /// Bytes of Δ records.
    pub delta: u64,
    /// Bytes of BW records.
    pub writes: u64,
    /// Bytes of records that describe changes of the tree's structure.
    pub structure: u64,
}

#[derive(Debug, Default)]
struct Counters {
    delta: AtomicU64,
    writes: AtomicU64,
    structure: AtomicU64,
}

/// The writer of the tree's records to a log.
#[derive(Clone)]
pub struct TreeWriter {
    wal: Arc<Wal>,
    counters: Arc<Counters>,
}

impl std::fmt::Debug for TreeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TreeWriter")
    }
}

impl TreeWriter {
    /// Makes a writer to this log.
    #[must_use]
    pub fn new(wal: Arc<Wal>) -> TreeWriter {
        TreeWriter {
            wal,
            counters: Arc::default(),
        }
    }

    /// Returns how many bytes this writer and its clones have appended.
    #[must_use]
    pub fn bytes(&self) -> RecordBytes {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RecordBytes {
            delta: load(&self.counters.delta),
            writes: load(&self.counters.writes),
            structure: load(&self.counters.structure),
        }
    }

    fn count(&self, record: &TreeRecord, payload_bytes: usize) {
        let counter = match record {
            TreeRecord::Delta(_) => &self.counters.delta,
            TreeRecord::Writes(_) => &self.counters.writes,
            TreeRecord::Structure(_) => &self.counters.structure,
            TreeRecord::RedoStart | TreeRecord::EndCheckpoint(_) => return,
        };
        let framed = 1 + varint_len(to_u64(payload_bytes)) + payload_bytes;
        counter.fetch_add(to_u64(framed), Ordering::Relaxed);
    }
}

impl Records for TreeWriter {
    fn record(&self, record: &TreeRecord) -> Gsn {
        let none = PartitionSet::empty();
        let kind = (FrameKind::Tree, 1);
        let (_, gsn) = self
            .wal
            .append_numbered(TREE_STREAM, kind, (&none, CkptEpoch(0)), |gsn| {
                let mut payload = Vec::new();
                record.encode(&mut payload, gsn);
                self.count(record, payload.len());
                payload
            });
        assert!(gsn > Gsn(0), "numbers begin at 1");
        gsn
    }
}
