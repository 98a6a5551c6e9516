#![doc = include_str!("../../../docs/formats/ordered.md")]

use perdura_base::cursor::{Reader, Writer};
pub use perdura_base::fields::Malformed;
use perdura_base::fields::{Fields, malformed, put_bytes};
use perdura_base::limits::PARTITIONS_MAX;
use perdura_base::num::to_u64;
use perdura_base::{PartitionId, TableId};

/// A partition, and the transaction's sequence number in that partition.
pub type Part = (PartitionId, u64);

const HASHED: u8 = 1;
const HASH_BYTES: usize = 8;

const DELETE: u8 = 0;
const PUT: u8 = 1;
const COLUMNS: u8 = 2;
const REPLACE: u8 = 3;
const CREATE_TABLE: u8 = 4;
const DROP_TABLE: u8 = 5;

/// The head of an ordered frame, which is a command frame or an effects frame.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrderedHead {
    /// The transaction's partitions, ascending, each with the transaction's sequence number there.
    pub parts: Vec<Part>,
    /// True if this is a command frame that ends with the hash of the command's effects.
    pub hashed: bool,
}

/// A command: a procedure and the arguments of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandFrame<'a> {
    /// The procedure's id.
    pub procedure: u32,
    /// The time that the procedure saw, milliseconds since 1970.
    pub time_ms: u64,
    /// The arguments of the call.
    pub args: &'a [u8],
    /// A hash of the command's effects. `None`: the hash was not logged.
    pub effects_hash: Option<u64>,
}

/// The place of an effect: the partitions that it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// One of the frame's parts, as an index into [`OrderedHead::parts`]. If the frame has only one part, every effect
    /// is read with the index 0.
    Part(usize),
    /// All parts of the frame.
    All,
}

/// The kind of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// The row was deleted.
    Delete,
    /// The row was put: it is new, or replaced an earlier row.
    Put {
        /// The row.
        row: &'a [u8],
    },
    /// Columns of the row changed.
    Columns {
        /// The change, in the encoding of the table's owner.
        patch: &'a [u8],
    },
    /// The row replaced an earlier row. The frame has the old and the new row.
    Replace {
        /// The row before.
        before: &'a [u8],
        /// The row after.
        after: &'a [u8],
    },
    /// The table was created.
    CreateTable {
        /// The table's definition, in the encoding of the catalog's owner.
        definition: &'a [u8],
    },
    /// The table was dropped.
    DropTable,
}

impl Op<'_> {
    /// Returns the name that dumps use for this kind of effect.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Op::Delete => "delete",
            Op::Put { .. } => "put",
            Op::Columns { .. } => "columns",
            Op::Replace { .. } => "replace",
            Op::CreateTable { .. } => "create-table",
            Op::DropTable => "drop-table",
        }
    }

    /// Returns whether the effect concerns a whole table, and not one of its rows.
    #[must_use]
    pub fn is_of_table(&self) -> bool {
        match self {
            Op::CreateTable { .. } | Op::DropTable => true,
            Op::Delete | Op::Put { .. } | Op::Columns { .. } | Op::Replace { .. } => false,
        }
    }

    fn code(&self) -> u8 {
        match self {
            Op::Delete => DELETE,
            Op::Put { .. } => PUT,
            Op::Columns { .. } => COLUMNS,
            Op::Replace { .. } => REPLACE,
            Op::CreateTable { .. } => CREATE_TABLE,
            Op::DropTable => DROP_TABLE,
        }
    }
}

/// The change of one row or of a whole table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect<'a> {
    /// The table.
    pub table: TableId,
    /// The parts of the frame that the effect changes: one part, or all.
    pub at: At,
    /// The kind of the effect.
    pub op: Op<'a>,
    /// The row's primary key; empty for a whole table.
    pub key: &'a [u8],
}

/// Appends the head of a frame. Effects follow, each by [`Effect::encode`].
///
/// # Panics
/// If `parts` is empty, or does not ascend because the writer took its latches out of order.
pub fn encode_head(out: &mut Vec<u8>, parts: &[Part], hashed: bool) {
    assert!(!parts.is_empty(), "an ordered frame has a partition");
    assert!(
        parts.is_sorted_by(|a, b| a.0 < b.0),
        "the partitions of an ordered frame ascend"
    );
    out.put_u8(if hashed { HASHED } else { 0 });
    out.put_varint(to_u64(parts.len()));
    for (partition, pseq) in parts {
        assert!(*pseq > 0, "numbers of a partition begin at 1");
        out.put_varint(u64::from(partition.0));
        out.put_varint(*pseq);
    }
}

/// Appends the payload of a command frame.
pub fn encode_command(out: &mut Vec<u8>, parts: &[Part], command: &CommandFrame<'_>) {
    encode_head(out, parts, command.effects_hash.is_some());
    out.put_varint(u64::from(command.procedure));
    out.put_varint(command.time_ms);
    out.put(command.args);
    if let Some(hash) = command.effects_hash {
        out.put_u64(hash);
    }
}

/// Appends the index of the part that has the effect's row. For [`At::All`], appends the count of parts instead.
/// Appends nothing if the frame has one part.
pub fn encode_place(out: &mut Vec<u8>, at: At, parts: usize) {
    let index = match at {
        At::Part(index) => {
            assert!(index < parts, "part {index} of {parts}");
            index
        }
        At::All => parts,
    };
    if parts > 1 {
        out.put_varint(to_u64(index));
    }
}

impl Op<'_> {
    /// Appends the fields of an effect that come before its place.
    #[inline]
    pub fn encode_front(&self, out: &mut Vec<u8>, table: TableId) {
        out.put_u8(self.code());
        out.put_varint(u64::from(table.0));
    }

    /// Appends the fields of an effect that come after its place.
    #[inline]
    pub fn encode_back(&self, out: &mut Vec<u8>, key: &[u8]) {
        assert!(
            !self.is_of_table() || key.is_empty(),
            "a whole table has no key"
        );
        put_bytes(out, key);
        match *self {
            Op::Delete | Op::DropTable => {}
            Op::Put { row: image }
            | Op::Columns { patch: image }
            | Op::CreateTable { definition: image } => put_bytes(out, image),
            Op::Replace { before, after } => {
                put_bytes(out, before);
                put_bytes(out, after);
            }
        }
    }
}

impl<'a> Effect<'a> {
    /// Appends the effect to a frame with `parts` parts in its head.
    pub fn encode(&self, out: &mut Vec<u8>, parts: usize) {
        self.op.encode_front(out, self.table);
        encode_place(out, self.at, parts);
        self.op.encode_back(out, self.key);
    }

    fn decode(r: &mut Fields<'a>, parts: usize) -> Result<Effect<'a>, Malformed> {
        let op_at = r.reader.at();
        let op = r.take("an effect's op", Reader::u8)?;
        let table = TableId(r.varint_u32("a table's id")?);
        let at = if parts > 1 {
            let limit = |index: usize| (index <= parts).then_some(index);
            let index = r.take("the index of a part, or their count", |r| {
                r.varint_usize().and_then(limit)
            })?;
            if index == parts {
                At::All
            } else {
                At::Part(index)
            }
        } else {
            At::Part(0)
        };
        let key_at = r.reader.at();
        let key = r.bytes("a key")?;
        let op = match op {
            DELETE => Op::Delete,
            PUT => Op::Put {
                row: r.bytes("a row")?,
            },
            COLUMNS => Op::Columns {
                patch: r.bytes("a patch")?,
            },
            REPLACE => Op::Replace {
                before: r.bytes("the row before")?,
                after: r.bytes("the row after")?,
            },
            CREATE_TABLE => Op::CreateTable {
                definition: r.bytes("a table's definition")?,
            },
            DROP_TABLE => Op::DropTable,
            _ => return Err(malformed(op_at, "an effect's op")),
        };
        if op.is_of_table() && !key.is_empty() {
            return Err(malformed(key_at, "no key: the effect is a whole table's"));
        }
        Ok(Effect { table, at, op, key })
    }
}

/// A frame's payload. Its head has been read, and its body has not.
#[derive(Debug, Clone)]
pub struct OrderedPayload<'a> {
    /// The head.
    pub head: OrderedHead,
    body: Fields<'a>,
}

impl<'a> OrderedPayload<'a> {
    /// Reads the head of a payload.
    ///
    /// # Errors
    /// Returns the position of the first wrong byte, and the expected content.
    pub fn decode(payload: &'a [u8]) -> Result<OrderedPayload<'a>, Malformed> {
        let mut r = Fields::new(payload);
        let hashed = match r.take("flags", Reader::u8)? {
            0 => false,
            HASHED => true,
            _ => return Err(malformed(0, "flags that this build knows")),
        };
        let count = r.take("the number of partitions", |r| {
            r.varint_usize()
                .filter(|count| (1..=usize::from(PARTITIONS_MAX)).contains(count))
        })?;
        let mut parts: Vec<Part> = Vec::with_capacity(count);
        for _ in 0..count {
            let least = parts.last().map_or(0, |(partition, _)| partition.0 + 1);
            let partition = r.take("a partition above the one before it", |r| {
                let partition = u16::try_from(r.varint()?).ok()?;
                (least..PARTITIONS_MAX)
                    .contains(&partition)
                    .then_some(PartitionId(partition))
            })?;
            let pseq = r.take("a number of at least 1", |r| {
                r.varint().filter(|pseq| *pseq > 0)
            })?;
            parts.push((partition, pseq));
        }
        debug_assert_eq!(parts.len(), count, "as many parts as the head says");
        Ok(OrderedPayload {
            head: OrderedHead { parts, hashed },
            body: r,
        })
    }

    /// Returns the position of the body in the payload.
    #[must_use]
    pub fn body_at(&self) -> usize {
        self.body.reader.at()
    }

    /// Returns the value that [`decode`](Self::decode) returned for this payload, without reading the
    /// head again. `body_at` is the result of [`body_at`](Self::body_at).
    ///
    /// # Panics
    /// If the payload is shorter than its head.
    #[must_use]
    pub fn resume(head: OrderedHead, payload: &'a [u8], body_at: usize) -> OrderedPayload<'a> {
        let mut reader = Reader::new(payload);
        let skipped = reader.bytes(body_at);
        assert!(skipped.is_some(), "the body begins in the payload");
        let body = Fields { reader };
        OrderedPayload { head, body }
    }

    /// Returns the body of a command frame.
    ///
    /// # Errors
    /// Returns the position of the first wrong byte, and the expected content.
    pub fn command(&self) -> Result<CommandFrame<'a>, Malformed> {
        let mut r = self.body.clone();
        let procedure = r.varint_u32("a procedure's id")?;
        let time_ms = r.take("a time", Reader::varint)?;
        let hash_bytes = if self.head.hashed { HASH_BYTES } else { 0 };
        let args = r.take("arguments and a hash", |r| {
            r.bytes(r.remaining().checked_sub(hash_bytes)?)
        })?;
        let effects_hash = if self.head.hashed {
            Some(r.take("a hash", Reader::u64)?)
        } else {
            None
        };
        debug_assert_eq!(
            r.reader.remaining(),
            0,
            "the arguments are all that is left"
        );
        Ok(CommandFrame {
            procedure,
            time_ms,
            args,
            effects_hash,
        })
    }

    /// Returns the effects of an effects frame, in order.
    #[must_use]
    pub fn effects(&self) -> Effects<'a> {
        let refused = self
            .head
            .hashed
            .then_some(malformed(0, "flags of zero before effects"));
        Effects {
            parts: self.head.parts.len(),
            body: self.body.clone(),
            refused,
        }
    }
}

/// An iterator that reads effects. It ends after the first error.
#[derive(Debug, Clone)]
pub struct Effects<'a> {
    parts: usize,
    body: Fields<'a>,
    /// The fault of the frame's head, if it has one. The iterator returns this fault instead of the first effect.
    refused: Option<Malformed>,
}

impl<'a> Iterator for Effects<'a> {
    type Item = Result<Effect<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(refused) = self.refused.take() {
            self.end();
            return Some(Err(refused));
        }
        if self.body.reader.remaining() == 0 {
            return None;
        }
        let effect = Effect::decode(&mut self.body, self.parts);
        if effect.is_err() {
            self.end();
        }
        Some(effect)
    }
}

impl Effects<'_> {
    fn end(&mut self) {
        self.body.reader = Reader::new(&[]);
    }
}
