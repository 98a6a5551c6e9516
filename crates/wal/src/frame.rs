//! Frames, which are the contents of blocks. A frame may cross block boundaries. Frames can be read forward or
//! backward.

use perdura_base::cursor::{Reader, Writer, varint_len};
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Incarnation, Pos, TxnId};

/// The kind of a frame. No `match` on it has a catch-all arm, so for a new kind the compiler lists all code that must
/// handle it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// The records of one transaction, opaque to the log.
    Group = 1,
    /// Marks the beginning of a checkpoint's window.
    BeginCheckpoint = 2,
    /// Marks the end of a checkpoint's window.
    EndCheckpoint = 3,
    /// Records a restart: the kept durable epoch, and the cut of each stream.
    Restart = 4,
    /// An empty frame. The header of its block is evidence of the durable epoch.
    Beacon = 5,
    /// One record of a transaction that interleaves with other transactions. The record is opaque to the log.
    Record = 6,
    /// The changes of one transaction, row by row, opaque to the log.
    Effects = 7,
    /// The procedure and arguments of one transaction, opaque to the log.
    Command = 8,
    /// Operations on rows of a tree, opaque to the log.
    Operations = 9,
    /// A tree's notes about its pages, opaque to the log.
    Tree = 10,
}

/// The treatment of a frame by a reader that replays the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The frame has records of transactions. A reader that expects another kind of records refuses the frame.
    Records,
    /// The frame marks the beginning of a checkpoint's window.
    BeginMark,
    /// The frame marks the end of a checkpoint's window.
    EndMark,
    /// The frame describes the log and changes no data.
    Log,
    /// The frame is replayed in a separate pass, after all frames of other roles. Frames of one partition are replayed
    /// in order.
    Ordered,
    /// The frame's operations have numbers. They are replayed in numerical order, in a separate part of the restart.
    Numbered,
}

impl Role {
    /// Returns whether frames of this role describe the log or a checkpoint, and change no data.
    #[must_use]
    pub fn is_log(self) -> bool {
        match self {
            Role::BeginMark | Role::EndMark | Role::Log => true,
            Role::Records | Role::Ordered | Role::Numbered => false,
        }
    }
}

/// The treatment of frames by an archive. The greatest value among the frames of a log applies to the whole log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Archived {
    /// The frames change no data and are omitted.
    Omitted,
    /// The archive's runs contain the frames' changes.
    Runs,
    /// The archive's runs do not contain the frames' changes. A backup contains the changes made before the backup.
    Carried,
    /// Neither the archive's runs nor its backups can contain the frames' changes. A log with these frames cannot be
    /// archived. The text gives the reason.
    Refused(&'static str),
}

impl FrameKind {
    /// Every kind.
    pub const ALL: [FrameKind; 10] = [
        FrameKind::Group,
        FrameKind::BeginCheckpoint,
        FrameKind::EndCheckpoint,
        FrameKind::Restart,
        FrameKind::Beacon,
        FrameKind::Record,
        FrameKind::Effects,
        FrameKind::Command,
        FrameKind::Operations,
        FrameKind::Tree,
    ];

    /// Returns the role of a frame of this kind for a reader that replays the log.
    #[must_use]
    pub fn role(self) -> Role {
        match self {
            FrameKind::Group | FrameKind::Record => Role::Records,
            FrameKind::BeginCheckpoint => Role::BeginMark,
            FrameKind::EndCheckpoint => Role::EndMark,
            FrameKind::Restart | FrameKind::Beacon => Role::Log,
            FrameKind::Effects | FrameKind::Command => Role::Ordered,
            FrameKind::Operations | FrameKind::Tree => Role::Numbered,
        }
    }

    /// Returns how an archive handles a frame of this kind.
    #[inline]
    #[must_use]
    pub fn archive(self) -> Archived {
        match self {
            FrameKind::Group => Archived::Runs,
            FrameKind::Effects | FrameKind::Command => Archived::Carried,
            FrameKind::BeginCheckpoint
            | FrameKind::EndCheckpoint
            | FrameKind::Restart
            | FrameKind::Beacon => Archived::Omitted,
            FrameKind::Record => Archived::Refused(
                "a database in steal mode cannot be archived. Open it without \
                                   an archive",
            ),
            FrameKind::Operations | FrameKind::Tree => Archived::Refused(
                "a database that stores its rows in a tree cannot be archived. Open it without \
                 an archive",
            ),
        }
    }

    /// Returns the name of the kind in dumps.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FrameKind::Group => "group",
            FrameKind::BeginCheckpoint => "begin-checkpoint",
            FrameKind::EndCheckpoint => "end-checkpoint",
            FrameKind::Restart => "restart",
            FrameKind::Beacon => "beacon",
            FrameKind::Record => "record",
            FrameKind::Effects => "effects",
            FrameKind::Command => "command",
            FrameKind::Operations => "operations",
            FrameKind::Tree => "tree",
        }
    }

    /// Returns the byte that represents the kind in a file.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the kind that the byte `code` represents in a file; `None` if it represents no kind.
    #[must_use]
    pub fn from_code(code: u8) -> Option<FrameKind> {
        FrameKind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// A frame read from the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The kind of the frame.
    pub kind: FrameKind,
    /// The payload of the frame.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// Returns the number of bytes in front of the payload: the frame's kind and length. They may lie in an older block
    /// than the payload.
    pub(crate) fn head_bytes(&self) -> usize {
        1 + varint_len(to_u64(self.payload.len()))
    }
}

/// The reading direction of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Oldest first.
    Forward,
    /// Newest first.
    Backward,
}

/// Appends the first bytes of a frame to `out`: kind and length.
pub(crate) fn put_frame_head(kind: FrameKind, payload_len: u64, out: &mut Vec<u8>) {
    out.put_u8(kind.code());
    out.put_varint(payload_len);
}

/// Passes each frame in `bytes` to `each`. `bytes` are the joined bodies of consecutive blocks, and begin at the start
/// of a frame. Returns the offset of the first byte that is not part of a whole frame. The caller must know whether an
/// incomplete frame is permitted there.
pub fn for_each_frame<'a, E>(
    bytes: &'a [u8],
    direction: Direction,
    mut each: impl FnMut(Frame<'a>) -> Result<(), E>,
) -> Result<usize, E> {
    let mut r = Reader::new(bytes);
    let mut whole = 0;
    let mut later = Vec::new();
    while let Some(frame) = next_frame(&mut r) {
        whole = r.at();
        match direction {
            Direction::Forward => each(frame)?,
            Direction::Backward => later.push(frame),
        }
    }
    while let Some(frame) = later.pop() {
        each(frame)?;
    }
    Ok(whole)
}

fn next_frame<'a>(r: &mut Reader<'a>) -> Option<Frame<'a>> {
    let kind = FrameKind::from_code(r.u8()?)?;
    let len = r.varint_usize()?;
    Some(Frame {
        kind,
        payload: r.bytes(len)?,
    })
}

/// The decision of a restart, as it is recorded in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartRecord {
    /// The incarnation that begins.
    pub incarnation: Incarnation,
    /// The durable epoch that the restart kept.
    pub durable: Epoch,
    /// The highest checkpoint epoch in the log before the restart, including its void blocks.
    pub ckpt_max: CkptEpoch,
    /// The cut of each stream.
    pub cut: Vec<Pos>,
}

impl RestartRecord {
    /// Returns the frame's payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_varint(u64::from(self.incarnation.0));
        out.put_varint(self.durable.0);
        out.put_varint(self.ckpt_max.0);
        out.put_varint(perdura_base::num::to_u64(self.cut.len()));
        for pos in &self.cut {
            out.put_varint(pos.0);
        }
        out.put_varint(0);
        out
    }

    /// Decodes a payload that [`encode`](Self::encode) has returned; `None` if it is malformed.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<RestartRecord> {
        let mut r = Reader::new(payload);
        let incarnation = Incarnation(u32::try_from(r.varint()?).ok()?);
        let durable = Epoch(r.varint()?);
        let ckpt_max = CkptEpoch(r.varint()?);
        let streams = r.varint_usize()?;
        if streams > usize::from(perdura_base::limits::STREAMS_MAX) {
            return None;
        }
        let cut = (0..streams)
            .map(|_| r.varint().map(Pos))
            .collect::<Option<Vec<_>>>()?;
        (r.varint()? == 0 && r.remaining() == 0).then_some(RestartRecord {
            incarnation,
            durable,
            ckpt_max,
            cut,
        })
    }
}

/// A transaction that was active when a checkpoint ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveTxn {
    /// The transaction.
    pub txn: TxnId,
    /// The position of the block with the start of the transaction's first record. The block is in the stream of the
    /// frame that lists the transaction.
    pub first: Pos,
}

/// The end-checkpoint frame of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndRecord {
    /// The checkpoint.
    pub k: CkptEpoch,
    /// The active transactions of this stream; `None` in executor mode, which keeps no list.
    pub active: Option<Vec<ActiveTxn>>,
}

/// Appends the list of active transactions to an end-checkpoint payload, after the checkpoint epoch `k`.
pub fn encode_active(active: &[ActiveTxn], out: &mut Vec<u8>) {
    out.put_varint(perdura_base::num::to_u64(active.len()));
    for entry in active {
        out.put_varint(entry.txn.0);
        out.put_varint(entry.first.0);
    }
}

impl EndRecord {
    /// Decodes the frame's payload; `None` if it is malformed.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<EndRecord> {
        let mut r = Reader::new(payload);
        let k = CkptEpoch(r.varint()?);
        if r.remaining() == 0 {
            return Some(EndRecord { k, active: None });
        }
        let count = r.varint()?;
        let mut active = Vec::new();
        for _ in 0..count {
            active.push(ActiveTxn {
                txn: TxnId(r.varint()?),
                first: Pos(r.varint()?),
            });
        }
        let active = Some(active);
        (r.remaining() == 0).then_some(EndRecord { k, active })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_record_round_trips_with_and_without_its_active_list() {
        let mut payload = vec![7];
        let none = EndRecord {
            k: CkptEpoch(7),
            active: None,
        };
        assert_eq!(EndRecord::decode(&payload), Some(none));
        let active = vec![
            ActiveTxn {
                txn: TxnId(300),
                first: Pos(8192),
            },
            ActiveTxn {
                txn: TxnId(2),
                first: Pos(0),
            },
        ];
        encode_active(&active, &mut payload);
        let whole = EndRecord {
            k: CkptEpoch(7),
            active: Some(active),
        };
        assert_eq!(EndRecord::decode(&payload), Some(whole));
        for len in 2..payload.len() {
            assert_eq!(EndRecord::decode(&payload[..len]), None);
        }
    }

    #[test]
    fn frames_come_back_in_both_directions() {
        let mut bytes = Vec::new();
        for (kind, payload) in [
            (FrameKind::Group, &b"one"[..]),
            (FrameKind::Beacon, b""),
            (FrameKind::Group, b"two"),
        ] {
            put_frame_head(kind, payload.len() as u64, &mut bytes);
            bytes.extend_from_slice(payload);
        }
        let whole = bytes.len();
        bytes.extend_from_slice(&[1, 9, b'x']);
        let read = |direction| {
            let mut seen = Vec::new();
            let end = for_each_frame(&bytes, direction, |f| {
                seen.push(f.payload.to_vec());
                Ok::<_, ()>(())
            });
            assert_eq!(end, Ok(whole));
            seen
        };
        let forward = read(Direction::Forward);
        assert_eq!(forward, [b"one".to_vec(), b"".to_vec(), b"two".to_vec()]);
        let mut backward = read(Direction::Backward);
        backward.reverse();
        assert_eq!(forward, backward);
    }

    #[test]
    fn a_restart_record_round_trips_and_refuses_every_cut() {
        let record = RestartRecord {
            incarnation: Incarnation(9),
            durable: Epoch(300),
            ckpt_max: CkptEpoch(4),
            cut: vec![Pos(4096), Pos(1 << 40)],
        };
        let bytes = record.encode();
        assert_eq!(RestartRecord::decode(&bytes), Some(record));
        for len in 0..bytes.len() {
            assert_eq!(RestartRecord::decode(&bytes[..len]), None);
        }
    }
}
