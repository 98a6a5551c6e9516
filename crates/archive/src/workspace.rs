//! The place where records wait until their run is written: an arena of their bytes, and a key for each.
//!
//! A record's fragments lie behind its tag in the arena. Its *key* is one number of 128 bits. From the top down it has
//! partition, local page, epoch, update number, and the record's place in the arena. So keys sort as the records of a
//! run do, and name the records' places.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_usize};
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result, Useq};
use perdura_page::{Chunks, PageRecord};

use crate::name::EpochRange;
use crate::record::{EpochSpan, FragmentBytes, PageAt, RunRecord, Updates};
use crate::writer::{Progress, RunWriter};

/// A record's key.
pub(crate) type Key = u128;

/// The size of a key, bytes.
pub(crate) const KEY_BYTES: usize = 16;
/// The alignment of records in the arena, bytes. With it 32 bits name 32 GiB of places.
const ALIGN: usize = 8;
/// The largest distance of an epoch from the first that fits the key.
pub(crate) const EPOCHS_MAX: u64 = 1 << 24;
/// The bytes before a record's fragments: its tag, their number and their length.
const HEAD_BYTES: usize = 8 + 4 + 4;

/// The bytes of a run's records.
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

    /// Returns the size of the records, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a record of a block of this epoch. Returns its key.
    ///
    /// # Errors
    /// [`Error::Usage`] for an epoch before the run's or too far behind it: the workspace was full long before.
    ///
    /// # Panics
    /// If an epoch fills 32 GiB.
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

    /// Returns the size of a record with `fragments` bytes of fragments.
    #[inline]
    pub fn bytes_of(fragments: usize) -> usize {
        (HEAD_BYTES + fragments).next_multiple_of(ALIGN)
    }

    /// Returns the record of a key.
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

/// The records of a run that leave a workspace in their order.
pub(crate) trait InOrder {
    /// Returns the next record. `None`: all have left.
    fn next_record(&mut self) -> Option<RunRecord<'_>>;
}

/// Encodes records until one write has been made or no record is left.
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

/// Returns the epochs of a run that begins with `begin` and is cut before `end`. Its records reach up to epoch `last`.
///
/// # Errors
/// [`Error::Usage`] if `end` or a later epoch has a record, of which the run would have a part, or if the run would
/// have no epoch.
pub(crate) fn cut_range(begin: Epoch, end: Epoch, last: Option<Epoch>) -> Result<EpochRange> {
    if let Some(last) = last.filter(|last| *last >= end) {
        return Err(Error::Usage(format!(
            "a run with records of epoch {last} cannot end before epoch {end}"
        )));
    }
    EpochRange::new(begin, end)
        .ok_or_else(|| Error::Usage(format!("a run of epochs {begin} to {end} has none")))
}

/// Returns a key: 8 bits of partition, 32 of local page, 24 of epoch, 32 of update number, 32 of place.
#[inline]
fn pack(at: PageAt, epoch: u64, useq: Useq, place: u32) -> u128 {
    debug_assert!(
        at.partition.0 < 256 && epoch < EPOCHS_MAX,
        "the fields have their bits"
    );
    let page = u64::from(at.partition.0) << 56 | u64::from(at.local) << 24 | epoch;
    u128::from(page) << 64 | u128::from(u64::from(useq.0) << 32 | u64::from(place))
}

/// Splits a key of [`pack`].
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
