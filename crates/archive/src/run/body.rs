//! The records in a block. The page of a record is stored relative to the page of the previous record. Its epochs are
//! stored relative to the block's lowest epoch, and its tag relative to the block's lowest tag.
//!
//! The lowest epoch and tag are known only when the block is full. So the builder first collects the fields of the
//! records, and encodes the fields at the end. The builder keeps an upper bound of the records' encoded size. The
//! builder refuses a record if this bound would exceed the size of a block.

use perdura_base::cursor::{Reader, Writer, varint_len};
use perdura_base::num::to_u32;
use perdura_base::{CkptEpoch, Epoch, Useq};
use perdura_page::diff::Fragments;

use super::block::{BlockHead, RAW_BYTES_MAX};
use crate::record::{EpochSpan, FragmentBytes, PageAt, RunRecord, Updates};

/// The maximum size of all fields that only net records have, except the field with the last epoch, in bytes.
const NET_BYTES: usize = 10 + 4 + 8;

/// The fields of a record that is not yet encoded.
struct Waiting {
    local: u32,
    epochs: EpochSpan,
    tag: CkptEpoch,
    updates: Updates,
    fragments: u32,
    /// The end of the record's fragments, as an index in the builder's `fragments`.
    end: usize,
}

/// A collector of the records of a block.
#[derive(Default)]
pub(crate) struct BodyBuilder {
    waiting: Vec<Waiting>,
    fragments: Vec<u8>,
    first: Option<PageAt>,
    last_local: u32,
    /// An upper bound of the encoded size of the records.
    bytes_max: usize,
    epochs: Option<EpochSpan>,
    tags: (CkptEpoch, CkptEpoch),
}

/// The head of a finished block, and the highest tag and epoch in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) head: BlockHead,
    pub(crate) tag_max: CkptEpoch,
    pub(crate) epoch_max: Epoch,
}

impl BodyBuilder {
    /// Returns whether the builder has no record.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a record, which must not sort before the earlier records. `begin` is the first epoch of the run. Returns
    /// `false`, without adding the record, if the record is of a different partition or the block has no room.
    pub(crate) fn add(&mut self, record: &RunRecord<'_>, begin: Epoch) -> bool {
        let at = record.at;
        let first = *self.first.get_or_insert(at);
        if self.waiting.is_empty() {
            self.last_local = at.local;
        }
        let step = at.local.wrapping_sub(self.last_local);
        let bytes_max = upper_bound(record, step, begin);
        if at.partition != first.partition || self.bytes_max + bytes_max > RAW_BYTES_MAX {
            assert!(
                !self.waiting.is_empty(),
                "each record fits a block: {bytes_max} bytes"
            );
            return false;
        }
        assert!(at.local >= self.last_local, "records are sorted by page");
        let (epochs, tag) = (record.epochs, record.tag);
        self.tags = match self.epochs {
            None => (tag, tag),
            Some(_) => (self.tags.0.min(tag), self.tags.1.max(tag)),
        };
        self.epochs = Some(self.epochs.map_or(epochs, |all| all.join(epochs)));
        self.fragments.extend_from_slice(record.fragment_bytes());
        self.waiting.push(Waiting {
            local: at.local,
            epochs,
            tag,
            updates: record.updates,
            fragments: record.fragment_count(),
            end: self.fragments.len(),
        });
        self.last_local = at.local;
        self.bytes_max += bytes_max;
        true
    }

    /// Encodes the records into `raw` and empties the builder.
    pub(crate) fn finish(&mut self, raw: &mut Vec<u8>) -> Held {
        let (first, epochs) = self.first.zip(self.epochs).expect("a block has a record");
        let held = Held {
            head: BlockHead {
                first,
                records: to_u32(self.waiting.len()),
                tag_min: self.tags.0,
                epoch_min: epochs.first,
            },
            tag_max: self.tags.1,
            epoch_max: epochs.last,
        };
        raw.clear();
        let (mut local, mut from) = (first.local, 0);
        for record in self.waiting.drain(..) {
            let Updates {
                count,
                first,
                last,
                sum,
            } = record.updates;
            let is_net = count > 1;
            raw.put_varint(u64::from(record.local - local));
            raw.put_varint(u64::from(record.fragments) << 1 | u64::from(is_net));
            raw.put_varint(record.epochs.first.0 - held.head.epoch_min.0);
            raw.put_varint(record.tag.0 - held.head.tag_min.0);
            raw.put_u32(first.0);
            if is_net {
                raw.put_varint(count);
                raw.put_u32(last.0);
                raw.put_u64(sum);
                raw.put_varint(record.epochs.last.0 - record.epochs.first.0);
            }
            raw.extend_from_slice(&self.fragments[from..record.end]);
            (local, from) = (record.local, record.end);
        }
        assert!(
            raw.len() <= self.bytes_max,
            "{} bytes, where at most {} were counted",
            raw.len(),
            self.bytes_max
        );
        self.fragments.clear();
        self.first = None;
        self.epochs = None;
        self.bytes_max = 0;
        held
    }
}

/// Returns the maximum number of bytes that a record can take in a block. The lowest epoch and tag of the block are not
/// known yet. So the bound assumes the lowest possible values: the run's first epoch `begin` and tag 0.
fn upper_bound(record: &RunRecord<'_>, step: u32, begin: Epoch) -> usize {
    debug_assert!(
        begin <= record.epochs.first,
        "the run begins at {begin} or before"
    );
    let head = varint_len(u64::from(step))
        + varint_len(u64::from(record.fragment_count()) << 1)
        + varint_len(record.epochs.first.0 - begin.0)
        + varint_len(record.tag.0)
        + 4;
    let net = if record.is_net() {
        NET_BYTES + varint_len(record.epochs.last.0 - record.epochs.first.0)
    } else {
        0
    };
    head + net + record.fragment_bytes().len()
}

/// A decoded record. Its fragments stay in the block's bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoded {
    at: PageAt,
    epochs: EpochSpan,
    tag: CkptEpoch,
    updates: Updates,
    fragments: u32,
    from: usize,
    /// The offset of the next record in the block's bytes.
    pub(crate) end: usize,
}

impl Decoded {
    /// Decodes the record at offset `from` of a block's bytes. `before` is the page of the previous record. `None`: the
    /// record is malformed. Does not check that the page exists.
    #[inline]
    pub(crate) fn read(
        raw: &[u8],
        from: usize,
        head: &BlockHead,
        before: PageAt,
    ) -> Option<Decoded> {
        let mut r = Reader::new(raw.get(from..)?);
        let step = u32::try_from(r.varint()?).ok()?;
        let shape = r.varint()?;
        let (is_net, fragments) = (shape & 1 == 1, u32::try_from(shape >> 1).ok()?);
        let epoch = Epoch(head.epoch_min.0.checked_add(r.varint()?)?);
        let tag = CkptEpoch(head.tag_min.0.checked_add(r.varint()?)?);
        let first = Useq(r.u32()?);
        let (updates, epochs) = if is_net {
            let updates = Updates {
                count: r.varint()?,
                first,
                last: Useq(r.u32()?),
                sum: r.u64()?,
            };
            let last = Epoch(epoch.0.checked_add(r.varint()?)?);
            (updates, EpochSpan { first: epoch, last })
        } else {
            (Updates::one(first), EpochSpan::one(epoch))
        };
        if is_net == (updates.count < 2) || (!is_net && fragments == 0) {
            return None;
        }
        let from = from + r.at();
        let taken = Fragments::new(raw.get(from..)?, u64::from(fragments)).check()?;
        debug_assert!(
            from + taken <= raw.len(),
            "no fragment passes the block's end"
        );
        Some(Decoded {
            at: PageAt {
                local: before.local.checked_add(step)?,
                ..before
            },
            epochs,
            tag,
            updates,
            fragments,
            from,
            end: from + taken,
        })
    }

    /// Returns the record. `raw` are the record's encoded bytes.
    #[inline]
    pub(crate) fn record<'a>(&self, raw: &'a [u8]) -> RunRecord<'a> {
        let bytes = &raw[self.from..self.end];
        let fragments = FragmentBytes {
            count: self.fragments,
            bytes,
        };
        RunRecord::checked(self.at, self.epochs, self.tag, self.updates, fragments)
    }

    /// Returns the page of the record.
    #[inline]
    pub(crate) fn at(&self) -> PageAt {
        self.at
    }

    /// Returns the record's sort key in a run.
    #[inline]
    pub(crate) fn key(&self) -> (PageAt, Epoch, u32) {
        (self.at, self.epochs.first, self.updates.first.0)
    }

    /// Returns whether the record is the sum of several changes.
    #[inline]
    pub(crate) fn is_net(&self) -> bool {
        self.updates.count > 1
    }

    /// Returns the tag and the epochs of the record.
    #[inline]
    pub(crate) fn bounds(&self) -> (CkptEpoch, EpochSpan) {
        (self.tag, self.epochs)
    }
}

const _: () = {
    // The longest record has a fragment for each byte of the page. Each such fragment takes three bytes.
    let longest = 3 * perdura_base::limits::PAGE_BYTES + 5 + 5 + 10 + 10 + 4 + NET_BYTES + 10;
    assert!(longest <= RAW_BYTES_MAX, "each record fits a block");
};
