//! The tree's records in the log: in stream 0, so that they have an order by themselves.

use std::sync::Arc;

use perdura_base::{CkptEpoch, Gsn, PartitionSet, StreamId};
use perdura_page::tree_record::TreeRecord;
use perdura_tree::contract::Records;
use perdura_wal::{FrameKind, Wal};

/// The stream of the tree's records.
pub const TREE_STREAM: StreamId = StreamId(0);

/// Appends the tree's records to a log.
#[derive(Clone)]
pub struct TreeWriter {
    wal: Arc<Wal>,
}

impl std::fmt::Debug for TreeWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TreeWriter")
    }
}

impl TreeWriter {
    /// A writer to this log.
    #[must_use]
    pub fn new(wal: Arc<Wal>) -> TreeWriter {
        TreeWriter { wal }
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
                payload
            });
        assert!(gsn > Gsn(0), "numbers begin at 1");
        gsn
    }
}
