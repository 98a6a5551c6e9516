//! The contents of log frames as text, as `perdura dump log` shows them.

mod numbered;
mod ordered;
mod pages;

use perdura_base::cursor::Reader;
use perdura_wal::{EndRecord, Frame, FrameKind, RestartRecord};
use serde::Serialize;

pub(crate) use numbered::{operations, tree};
pub use ordered::DumpedOrdered;
pub(crate) use pages::{group, txn_record};

/// The text shown for a payload that does not parse.
const MALFORMED: &str = "does not parse";

/// A frame as text.
#[derive(Debug, Serialize)]
pub struct DumpedFrame {
    /// The frame's kind.
    pub kind: &'static str,
    /// Bytes of the payload.
    pub bytes: usize,
    /// The frame's contents.
    #[serde(flatten)]
    pub contents: FrameDump,
}

/// The contents of a frame as text.
#[derive(Debug, Default, Serialize)]
pub struct FrameDump {
    /// A line that describes the frame. It leaves out what `records` and `ordered` contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The records, if the frame is a group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<DumpedRecord>,
    /// The partitions, command and effects, if the frame is ordered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<DumpedOrdered>,
}

/// A record of a page.
#[derive(Debug, Serialize)]
pub struct DumpedRecord {
    /// The page.
    pub page: u32,
    /// The sequence number of the change on its page.
    pub useq: u32,
    /// The record's tag: the checkpoint epoch of the page when it was changed.
    pub tag: u64,
    /// Count of the record's fragments.
    pub fragments: usize,
    /// Bytes of all the fragments.
    pub bytes: usize,
}

impl FrameDump {
    /// Makes the dump of a frame that `detail`, a single line, describes completely.
    pub(crate) fn line(detail: String) -> FrameDump {
        FrameDump {
            detail: Some(detail),
            ..FrameDump::default()
        }
    }
}

/// Describes a frame that has no owner: one about the log itself, or about a checkpoint.
pub(crate) fn log_frame(frame: Frame<'_>) -> FrameDump {
    let payload = frame.payload;
    match frame.kind {
        FrameKind::BeginCheckpoint => {
            let k = Reader::new(payload).varint();
            FrameDump::line(k.map_or(MALFORMED.into(), |k| format!("checkpoint {k}")))
        }
        FrameKind::EndCheckpoint => FrameDump::line(end_detail(payload)),
        FrameKind::Restart => FrameDump::line(restart_detail(payload)),
        _ => FrameDump::default(),
    }
}

fn end_detail(payload: &[u8]) -> String {
    let Some(record) = EndRecord::decode(payload) else {
        return MALFORMED.into();
    };
    let active: Vec<String> = record
        .active
        .iter()
        .flatten()
        .map(|entry| format!("{} from {}", entry.txn, entry.first))
        .collect();
    let listed = match record.active {
        None => String::new(),
        Some(_) => format!(", active: [{}]", active.join(", ")),
    };
    format!("checkpoint {}{listed}", record.k)
}

fn restart_detail(payload: &[u8]) -> String {
    let Some(record) = RestartRecord::decode(payload) else {
        return MALFORMED.into();
    };
    let cut: Vec<u64> = record.cut.iter().map(|pos| pos.0).collect();
    format!(
        "incarnation {}, kept up to epoch {}, checkpoints up to {}, cut at {cut:?}",
        record.incarnation, record.durable, record.ckpt_max
    )
}
