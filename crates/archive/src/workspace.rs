//! The workspace. Records wait there until the run is written. The workspace has an arena with the records' bytes, and
//! a key for each record.
//!
//! In the arena, each record is a tag and then fragments. The *key* of a record is a number of 128 bits. From the
//! highest bits down it consists of the partition, the local page, the epoch, the update number, and the record's
//! position in the arena. So keys sort like the records of a run, and a key gives the position of its record.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_usize};
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result, Useq};
use perdura_page::{Chunks, PageRecord};

use crate::name::EpochRange;
use crate::record::{EpochSpan, FragmentBytes, PageAt, RunRecord, Updates};
use crate::writer::{Progress, RunWriter};

/// The key of a record. The module describes it.
pub(crate) type Key = u128;

/// The size of a key, in bytes.
pub(crate) const KEY_BYTES: usize = 16;
/// The alignment of records in the arena, in bytes. A record's position counts units of this size, so 32 bits address
/// 32 GiB.
const ALIGN: usize = 8;
/// The maximum number of epochs in a run: a key stores an epoch's distance from the run's first epoch in 24 bits.
pub(crate) const EPOCHS_MAX: u64 = 1 << 24;
/// The size, in bytes, of the fields before a record's fragments. The fields are the tag, the number of fragments, and
/// the total length of the fragments.
const HEAD_BYTES: usize = 8 + 4 + 4;

/// The bytes of the records of one run.
#[derive(Debug)]
pub(crate) struct Arena {
    begin: Epoch,
    chunks: Chunks,
    bytes: Vec<u8>,
}

impl Arena {
    /// Returns an empty arena for a run that begins with epoch `begin`.
    pub fn new(begin: Epoch, chunks: Chunks) -> Arena {
        Arena {
            begin,
            chunks,
            bytes: Vec::new(),
        }
    }

    /// Returns the total size of the records, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a record from a block of epoch `epoch`. Returns the record's key.
    ///
    /// # Errors
    /// [`Error::Usage`] for an epoch before the run's first epoch, or for an epoch [`EPOCHS_MAX`] or more after it. In
    /// the second case the caller should have ended the run earlier.
    ///
    /// # Panics
    /// If the records of one epoch take 32 GiB.
    #[inline]
    pub fn add(&mut self, epoch: Epoch, record: &PageRecord<'_>) -> Result<Key> {
        let after = epoch.0.checked_sub(self.begin.0);
        let Some(after) = after.filter(|after| *after < EPOCHS_MAX) else {
            return Err(Error::Usage(format!(
                "a record of epoch {epoch} cannot be added to a run that begins with epoch {}",
                self.begin
            )));
        };
        let place = to_u32(self.bytes.len() / ALIGN);
        let at = PageAt {
            partition: self.chunks.partition_of(record.page),
            local: self.chunks.local_index(record.page),
        };
        let (count, bytes) = record.encoded_fragments();
        let arena = &mut self.bytes;
        arena.put_u64(record.tag.0);
        arena.put_u32(u32::try_from(count).unwrap_or(u32::MAX));
        arena.put_u32(to_u32(bytes.len()));
        arena.put(bytes);
        let end = to_usize(u64::from(place)) * ALIGN + Arena::bytes_of(bytes.len());
        debug_assert!(
            (arena.len()..arena.len() + ALIGN).contains(&end),
            "records begin at whole words"
        );
        arena.resize(end, 0);
        Ok(pack(at, after, record.useq, place))
    }

    /// Returns the number of bytes that a record takes in an arena. `fragments` is the size of its fragments in bytes.
    #[inline]
    pub fn bytes_of(fragments: usize) -> usize {
        (HEAD_BYTES + fragments).next_multiple_of(ALIGN)
    }

    /// Returns the record that has this key.
    #[inline]
    pub fn record(&self, key: Key) -> RunRecord<'_> {
        let (at, after, useq, place) = unpack(key);
        let from = to_usize(u64::from(place)) * ALIGN;
        let (head, rest) = self.bytes[from..].split_at(HEAD_BYTES);
        let mut r = Reader::new(head);
        let fields = (r.u64(), r.u32(), r.u32());
        let (Some(tag), Some(count), Some(len)) = fields else {
            unreachable!("a head has {HEAD_BYTES} bytes");
        };
        let bytes = &rest[..to_usize(u64::from(len))];
        debug_assert!(count > 0 && len > 0, "a record of the log has a fragment");
        RunRecord::checked(
            at,
            EpochSpan::one(Epoch(self.begin.0 + after)),
            CkptEpoch(tag),
            Updates::one(useq),
            FragmentBytes { count, bytes },
        )
    }
}

/// A source of the sorted records of one run.
pub(crate) trait InOrder {
    /// Returns the next record. `None`: no record is left.
    fn next_record(&mut self) -> Option<RunRecord<'_>>;
}

/// Encodes records until one write has been made or no record is left. Returns `Done` if no record is left.
///
/// # Errors
/// Those of [`RunWriter::push`].
pub(crate) fn write_some(
    records: &mut impl InOrder,
    writer: &mut RunWriter,
) -> Result<Progress<()>> {
    let writes = writer.writes();
    while let Some(record) = records.next_record() {
        writer.push(&record)?;
        if writer.writes() > writes {
            return Ok(Progress::More);
        }
    }
    Ok(Progress::Done(()))
}

/// Returns the epochs of a run that begins with `begin` and is cut just before `end`. `last` is the last epoch of the
/// run's records. `None`: the run has no record.
///
/// # Errors
/// [`Error::Usage`] for an empty range of epochs, or if `last` is `end` or later: the run would have only some records
/// of epoch `last`.
pub(crate) fn cut_range(begin: Epoch, end: Epoch, last: Option<Epoch>) -> Result<EpochRange> {
    if let Some(last) = last.filter(|last| *last >= end) {
        return Err(Error::Usage(format!(
            "a run with records of epoch {last} cannot end before epoch {end}"
        )));
    }
    EpochRange::new(begin, end)
        .ok_or_else(|| Error::Usage(format!("a run of epochs {begin} to {end} has none")))
}

/// Returns a key. It has 8 bits for the partition, 32 for the local page, 24 for `epoch`, 32 for the update number and
/// 32 for the position. `epoch` is the distance from the run's first epoch.
#[inline]
fn pack(at: PageAt, epoch: u64, useq: Useq, place: u32) -> u128 {
    debug_assert!(
        at.partition.0 < 256 && epoch < EPOCHS_MAX,
        "the fields have their bits"
    );
    let page = u64::from(at.partition.0) << 56 | u64::from(at.local) << 24 | epoch;
    u128::from(page) << 64 | u128::from(u64::from(useq.0) << 32 | u64::from(place))
}

/// Splits a key that [`pack`] has made into its fields.
#[inline]
fn unpack(key: u128) -> (PageAt, u64, Useq, u32) {
    let bytes = key.to_be_bytes();
    let word = |from: usize| {
        let four = [
            bytes[from],
            bytes[from + 1],
            bytes[from + 2],
            bytes[from + 3],
        ];
        u32::from_be_bytes(four)
    };
    let at = PageAt {
        partition: PartitionId(u16::from(bytes[0])),
        local: word(1),
    };
    (at, u64::from(word(4) & 0xff_ffff), Useq(word(8)), word(12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_round_trip_and_sort_as_records_do() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut keys = Vec::new();
        for _ in 0..1000 {
            let at = PageAt {
                partition: PartitionId(rng.u16(0..256)),
                local: rng.u32(..),
            };
            let (epoch, useq, place) = (rng.u64(0..EPOCHS_MAX), Useq(rng.u32(..)), rng.u32(..));
            assert_eq!(
                unpack(pack(at, epoch, useq, place)),
                (at, epoch, useq, place)
            );
            keys.push((pack(at, epoch, useq, place), (at, epoch, useq.0)));
        }
        keys.sort_unstable_by_key(|(key, _)| *key);
        assert!(keys.is_sorted_by_key(|(_, fields)| *fields));
    }
}
