#![doc = include_str!("../../../docs/formats/txn-record.md")]

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{CkptEpoch, PageId, TxnId};

use crate::diff::{FragmentWriter, Fragments, next_span, xor_into};
use crate::layout::{self, HEADER_BYTES, META_BYTES, PAGE_BYTES};

/// The maximum number of slots in a page. All slot numbers are lower.
pub(crate) const SLOTS_MAX: u16 = 1024;

const BEGIN: u8 = 0;
const COMMIT: u8 = 1;
const ABORT: u8 = 2;
const XOR: u8 = 3;
const XOR_COMPENSATION: u8 = 4;
const IMAGES: u8 = 5;
const IMAGES_COMPENSATION: u8 = 6;

/// One record of a transaction.
#[derive(Debug, Clone)]
pub enum TxnRecord<'a> {
    /// The transaction's first record.
    Begin {
        /// The transaction.
        txn: TxnId,
    },
    /// The transaction committed. Its commit epoch is the epoch of the record's block.
    Commit {
        /// The transaction.
        txn: TxnId,
    },
    /// The transaction was rolled back.
    Abort {
        /// The transaction.
        txn: TxnId,
        /// True if a compensation record was logged for each change. False: the rollback was not logged.
        compensated: bool,
        /// The checkpoint epoch at the end of the rollback: the epoch of the newest checkpoint that had begun.
        ckpt: CkptEpoch,
    },
    /// The transaction changed a page.
    Update(Update<'a>),
}

impl TxnRecord<'_> {
    /// Returns the transaction.
    #[must_use]
    pub fn txn(&self) -> TxnId {
        match self {
            TxnRecord::Begin { txn } | TxnRecord::Commit { txn } | TxnRecord::Abort { txn, .. } => {
                *txn
            }
            TxnRecord::Update(update) => update.txn,
        }
    }
}

/// One change of one page.
#[derive(Debug, Clone)]
pub struct Update<'a> {
    /// The transaction.
    pub txn: TxnId,
    /// True if the update undoes an earlier change of the transaction.
    pub compensation: bool,
    /// The page.
    pub page: PageId,
    /// The page's checkpoint epoch at the change.
    pub tag: CkptEpoch,
    /// The change.
    pub change: Change<'a>,
}

/// A change, in the form that the logging scheme uses.
#[derive(Debug, Clone)]
pub enum Change<'a> {
    /// The XOR of the bytes before and after the change.
    Xor(Delta<'a>),
    /// The bytes before the change and the bytes after the change.
    Assign(Images<'a>),
}

/// A change as an XOR difference.
#[derive(Debug, Clone)]
pub struct Delta<'a> {
    count: u64,
    bytes: &'a [u8],
}

impl<'a> Delta<'a> {
    /// Returns the fragments in ascending order. Their offsets are from the start of the page.
    #[must_use]
    pub fn fragments(&self) -> Fragments<'a> {
        Fragments::new(self.bytes, self.count)
    }
}

/// A change of one slot, as the bytes before the change and the bytes after the change.
#[derive(Debug, Clone)]
pub struct Images<'a> {
    /// The change's sequence number, which orders changes over all streams.
    pub gseq: u64,
    /// The slot.
    pub slot: u16,
    /// The slot's bit in the allocation bitmap before the change.
    pub taken_before: bool,
    /// The slot's bit in the allocation bitmap after the change.
    pub taken_after: bool,
    count: u64,
    bytes: &'a [u8],
}

/// A run of bytes before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The offset of these bytes in the page.
    pub offset: usize,
    /// The bytes before the change.
    pub before: &'a [u8],
    /// The bytes after the change.
    pub after: &'a [u8],
}

/// An iterator that reads the pieces of a change and checks each. It ends early at a malformed piece.
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    reader: Reader<'a>,
    left: u64,
    end: usize,
}

impl<'a> Pieces<'a> {
    fn new(bytes: &'a [u8], count: u64) -> Self {
        Pieces {
            reader: Reader::new(bytes),
            left: count,
            end: META_BYTES,
        }
    }

    fn step(&mut self) -> Option<Piece<'a>> {
        let (offset, len) = next_span(&mut self.reader, self.end)?;
        self.end = offset + len;
        Some(Piece {
            offset,
            before: self.reader.bytes(len)?,
            after: self.reader.bytes(len)?,
        })
    }

    /// Reads to the end of the list. Returns the list's length in bytes; `None` if the list is malformed.
    fn check(mut self) -> Option<usize> {
        for _ in 0..self.left {
            self.step()?;
        }
        Some(self.reader.at())
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        self.left = self.left.checked_sub(1)?;
        self.step()
    }
}

impl<'a> Images<'a> {
    /// Returns the pieces in ascending order. Their offsets are from the start of the page.
    #[must_use]
    pub fn pieces(&self) -> Pieces<'a> {
        Pieces::new(self.bytes, self.count)
    }
}

impl Change<'_> {
    /// Applies the change to a page.
    pub fn redo(&self, page: &mut [u8]) {
        match self {
            Change::Xor(delta) => xor_delta(delta, page),
            Change::Assign(images) => {
                for piece in images.pieces() {
                    let end = piece.offset + piece.after.len();
                    page[piece.offset..end].copy_from_slice(piece.after);
                }
                layout::set_taken(page, usize::from(images.slot), images.taken_after);
            }
        }
    }

    /// Calls `take` with the offset and the length of each run of bytes that the change writes.
    pub fn for_each_run(&self, mut take: impl FnMut(usize, usize)) {
        match self {
            Change::Xor(delta) => delta
                .fragments()
                .for_each(|run| take(run.offset, run.bytes.len())),
            Change::Assign(images) => {
                if images.taken_before != images.taken_after {
                    take(HEADER_BYTES + usize::from(images.slot) / 8, 1);
                }
                images
                    .pieces()
                    .for_each(|run| take(run.offset, run.after.len()));
            }
        }
    }

    /// Undoes the change.
    pub fn undo(&self, page: &mut [u8]) {
        match self {
            Change::Xor(delta) => xor_delta(delta, page),
            Change::Assign(images) => {
                for piece in images.pieces() {
                    let end = piece.offset + piece.before.len();
                    page[piece.offset..end].copy_from_slice(piece.before);
                }
                layout::set_taken(page, usize::from(images.slot), images.taken_before);
            }
        }
    }
}

fn xor_delta(delta: &Delta<'_>, page: &mut [u8]) {
    assert_eq!(page.len(), PAGE_BYTES);
    for fragment in delta.fragments() {
        let end = fragment.offset + fragment.bytes.len();
        xor_into(&mut page[fragment.offset..end], fragment.bytes);
    }
}

/// Reads a whole record and checks it. `None`: a byte is wrong or left over. The heap checks whether the page exists.
#[must_use]
pub fn decode_txn_record(payload: &[u8]) -> Option<TxnRecord<'_>> {
    let mut r = Reader::new(payload);
    let kind = r.u8()?;
    let txn = TxnId(r.varint()?);
    let record = match kind {
        BEGIN => TxnRecord::Begin { txn },
        COMMIT => TxnRecord::Commit { txn },
        ABORT => TxnRecord::Abort {
            txn,
            compensated: bool_of(r.u8()?)?,
            ckpt: CkptEpoch(r.varint()?),
        },
        XOR | XOR_COMPENSATION | IMAGES | IMAGES_COMPENSATION => {
            let page = PageId(r.u32()?);
            let tag = CkptEpoch(r.varint()?);
            let change = if matches!(kind, XOR | XOR_COMPENSATION) {
                Change::Xor(decode_delta(&mut r, payload)?)
            } else {
                Change::Assign(decode_images(&mut r, payload)?)
            };
            TxnRecord::Update(Update {
                txn,
                compensation: matches!(kind, XOR_COMPENSATION | IMAGES_COMPENSATION),
                page,
                tag,
                change,
            })
        }
        _ => return None,
    };
    (r.remaining() == 0).then_some(record)
}

fn bool_of(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn decode_delta<'a>(r: &mut Reader<'a>, payload: &'a [u8]) -> Option<Delta<'a>> {
    let count = r.varint()?;
    if count == 0 {
        return None;
    }
    let len = Fragments::new(payload.get(r.at()..)?, count).check()?;
    let bytes = r.bytes(len)?;
    Some(Delta { count, bytes })
}

fn decode_images<'a>(r: &mut Reader<'a>, payload: &'a [u8]) -> Option<Images<'a>> {
    let gseq = r.varint()?;
    let slot = u16::try_from(r.varint()?).ok()?;
    let bit = r.u8()?;
    let count = r.varint()?;
    let idle = count == 0 && matches!(bit, 0 | 3);
    if slot >= SLOTS_MAX || bit > 3 || idle {
        return None;
    }
    let len = Pieces::new(payload.get(r.at()..)?, count).check()?;
    Some(Images {
        gseq,
        slot,
        taken_before: bit & 1 != 0,
        taken_after: bit & 2 != 0,
        count,
        bytes: r.bytes(len)?,
    })
}

/// Appends a begin record.
pub fn encode_begin(out: &mut Vec<u8>, txn: TxnId) {
    out.put_u8(BEGIN);
    out.put_varint(txn.0);
}

/// Appends a commit record.
pub fn encode_commit(out: &mut Vec<u8>, txn: TxnId) {
    out.put_u8(COMMIT);
    out.put_varint(txn.0);
}

/// Appends an abort record.
pub fn encode_abort(out: &mut Vec<u8>, txn: TxnId, compensated: bool, ckpt: CkptEpoch) {
    out.put_u8(ABORT);
    out.put_varint(txn.0);
    out.put_u8(u8::from(compensated));
    out.put_varint(ckpt.0);
}

/// The fields that precede the change in the record of an update.
#[derive(Debug, Clone, Copy)]
pub struct UpdateHead {
    /// The transaction.
    pub txn: TxnId,
    /// True if the update undoes an earlier change.
    pub compensation: bool,
    /// The page.
    pub page: PageId,
    /// The page's checkpoint epoch at the change.
    pub tag: CkptEpoch,
}

/// A range of a page before and after a change.
#[derive(Debug, Clone, Copy)]
pub struct Range<'a> {
    /// The offset of the range in the page, in bytes.
    pub offset: usize,
    /// The bytes before the change.
    pub before: &'a [u8],
    /// The bytes after the change.
    pub after: &'a [u8],
    /// True if the record stores all bytes of the range, including unchanged bytes, as a full record does.
    pub whole: bool,
}

/// Appends the XOR record of a change. `ranges` ascend. Returns false, and leaves `out` unchanged, if there is nothing
/// to record. The contents of `scratch` do not matter.
pub fn encode_xor(
    out: &mut Vec<u8>,
    head: &UpdateHead,
    ranges: &[Range<'_>],
    scratch: &mut Vec<u8>,
) -> bool {
    scratch.clear();
    let mut fragments = FragmentWriter::new(scratch);
    for range in ranges {
        if range.whole {
            fragments.whole(range.offset, range.before, range.after);
        } else {
            fragments.range(range.offset, range.before, range.after);
        }
    }
    let count = fragments.count();
    if count == 0 {
        return false;
    }
    let kind = if head.compensation {
        XOR_COMPENSATION
    } else {
        XOR
    };
    put_head(out, kind, head);
    out.put_varint(u64::from(count));
    out.extend_from_slice(scratch);
    true
}

/// The fields that a record of a change has only if the record stores the bytes before and after the change.
#[derive(Debug, Clone, Copy)]
pub struct SlotChange {
    /// The change's sequence number, which orders changes over all streams.
    pub gseq: u64,
    /// The slot.
    pub slot: u16,
    /// The slot's bit in the allocation bitmap, before the change and after the change.
    pub taken: (bool, bool),
}

/// Appends a record that stores the bytes before and after a change. `ranges` ascend and lie outside the bitmap.
/// Returns false, and leaves `out` unchanged, if there is nothing to record. The contents of `scratch` do not matter.
pub fn encode_images(
    out: &mut Vec<u8>,
    head: &UpdateHead,
    slot: &SlotChange,
    ranges: &[Range<'_>],
    scratch: &mut Vec<u8>,
) -> bool {
    scratch.clear();
    let mut pieces = PieceWriter {
        out: scratch,
        end: META_BYTES,
        count: 0,
    };
    for range in ranges {
        pieces.range(range);
    }
    let count = pieces.count;
    let (before, after) = slot.taken;
    if count == 0 && before == after {
        return false;
    }
    assert!(slot.slot < SLOTS_MAX);
    let kind = if head.compensation {
        IMAGES_COMPENSATION
    } else {
        IMAGES
    };
    put_head(out, kind, head);
    out.put_varint(slot.gseq);
    out.put_varint(u64::from(slot.slot));
    out.put_u8(u8::from(before) | u8::from(after) << 1);
    out.put_varint(count);
    out.extend_from_slice(scratch);
    true
}

fn put_head(out: &mut Vec<u8>, kind: u8, head: &UpdateHead) {
    out.put_u8(kind);
    out.put_varint(head.txn.0);
    out.put_u32(head.page.0);
    out.put_varint(head.tag.0);
}

struct PieceWriter<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
    count: u64,
}

impl PieceWriter<'_> {
    fn range(&mut self, range: &Range<'_>) {
        if range.whole {
            self.piece(range.offset, range.before, range.after);
            return;
        }
        // A record of images splits a range into pieces as an XOR record splits it into fragments.
        let mut differences = Vec::new();
        let mut fragments = FragmentWriter::new(&mut differences);
        fragments.range(range.offset, range.before, range.after);
        let count = u64::from(fragments.count());
        for fragment in Fragments::new(&differences, count) {
            let from = fragment.offset - range.offset;
            let to = from + fragment.bytes.len();
            self.piece(
                fragment.offset,
                &range.before[from..to],
                &range.after[from..to],
            );
        }
    }

    fn piece(&mut self, offset: usize, before: &[u8], after: &[u8]) {
        assert!(before.len() == after.len() && offset >= self.end);
        assert!(!before.is_empty() && offset + before.len() <= PAGE_BYTES);
        let widen = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.out.put_varint(widen(offset - self.end));
        self.out.put_varint(widen(before.len()));
        self.out.put(before);
        self.out.put(after);
        self.end = offset + before.len();
        self.count += 1;
    }
}
