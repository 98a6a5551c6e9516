//! The append of a transaction's frames.

use perdura_base::{Epoch, PartitionSet, StreamId};
use perdura_heap::GroupBuilder;
use perdura_wal::{FrameKind, LaneId, Wal};
use smallvec::SmallVec;

use crate::lane::lane;

/// Appends a transaction's group and ordered frame in one epoch. Returns the epoch.
pub(super) fn append(
    wal: &Wal,
    stream: StreamId,
    partitions: &PartitionSet,
    group: &mut GroupBuilder,
    rows: Option<(FrameKind, &[u8])>,
) -> Epoch {
    let tag = group.tag_max();
    let is_large = group.is_large();
    if rows.is_none() && !is_large {
        let lane = lane();
        let id = LaneId { stream, lane };
        return wal.append_group(id, group.finish(), partitions, tag);
    }
    let parts: SmallVec<[&[u8]; 1]> = match (group.is_empty(), is_large) {
        (true, _) => SmallVec::new(),
        (false, true) => group.parts().into(),
        (false, false) => SmallVec::from_slice(&[group.finish()]),
    };
    let group = (FrameKind::Group, parts.as_slice());
    let appended = match rows {
        None => wal.append_together(stream, [group], partitions, tag),
        Some((kind, payload)) if parts.is_empty() => {
            wal.append_together(stream, [(kind, &[payload][..])], partitions, tag)
        }
        Some((kind, payload)) => {
            wal.append_together(stream, [group, (kind, &[payload][..])], partitions, tag)
        }
    };
    appended.epoch
}
