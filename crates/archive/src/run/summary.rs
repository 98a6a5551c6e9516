//! The parts of a run that describe it as a whole: digests, moments and ends.

use std::collections::BTreeMap;

use perdura_base::cursor::{Reader, Writer};
use perdura_base::limits::STREAMS_MAX;
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{CkptEpoch, Epoch, PartitionId, Pos};

use super::MOMENTS_MAX;
use crate::name::EpochRange;

/// The size of a digest's entry, bytes.
const DIGEST_BYTES: usize = 18;

/// XOR of the digests of records, for each tag (checkpoint epoch) and partition. Each record's digest also covers the
/// id of its page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digests {
    sums: BTreeMap<(CkptEpoch, PartitionId), u64>,
}

impl Digests {
    /// Adds a record's digest, which already covers the id of the record's page.
    pub fn add(&mut self, tag: CkptEpoch, partition: PartitionId, digest: u64) {
        *self.sums.entry((tag, partition)).or_default() ^= digest;
    }

    /// Returns the sums that are not zero, ascending by tag, then partition.
    pub fn sums(&self) -> impl Iterator<Item = (CkptEpoch, PartitionId, u64)> + '_ {
        let sums = self.sums.iter().filter(|(_, digest)| **digest != 0);
        sums.map(|((tag, partition), digest)| (*tag, *partition, *digest))
    }

    /// Returns the XOR of the digests of all records whose tag is at least `from` and below `to`. The digest of image
    /// `from` XOR this value is the digest of image `to`.
    #[must_use]
    pub fn between(&self, from: CkptEpoch, to: CkptEpoch) -> u64 {
        let (low, high) = ((from, PartitionId(0)), (to, PartitionId(0)));
        if from >= to {
            return 0;
        }
        let sums = self.sums.range(low..high);
        sums.fold(0, |sum, (_, digest)| sum ^ digest)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(to_u32(self.sums().count()));
        for (tag, partition, digest) in self.sums() {
            out.put_u64(tag.0);
            out.put_u16(partition.0);
            out.put_u64(digest);
        }
    }

    /// Decodes the digests. `None`: the list is malformed or names a partition that is not below `partitions`.
    pub(crate) fn decode(bytes: &[u8], partitions: u16) -> Option<Digests> {
        let mut r = Reader::new(bytes);
        let count = u64::from(r.u32()?);
        if to_u64(r.remaining()) != count * to_u64(DIGEST_BYTES) {
            return None;
        }
        let mut sums = BTreeMap::new();
        for _ in 0..count {
            let key = (CkptEpoch(r.u64()?), PartitionId(r.u16()?));
            let digest = r.u64()?;
            let ascends = sums.last_key_value().is_none_or(|(last, _)| *last < key);
            if !ascends || key.1.0 >= partitions || digest == 0 {
                return None;
            }
            sums.insert(key, digest);
        }
        Some(Digests { sums })
    }
}

/// A point in time that a database can be restored to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The last epoch that a restore to this moment includes.
    pub epoch: Epoch,
    /// The wall clock at the end of that epoch, microseconds since 1970. If the clock was set back, it is lower than
    /// that of an earlier moment.
    pub wall_us: u64,
}

/// The listed moments of a run, ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moments {
    list: Vec<Moment>,
}

impl Moments {
    /// Selects at most 1,000 moments of `all`. They are evenly spread over `all`, and always include the last moment.
    ///
    /// # Panics
    /// If the epochs do not ascend.
    #[must_use]
    pub fn sampled(all: &[Moment]) -> Moments {
        let keep = all.len().min(MOMENTS_MAX);
        let mut list: Vec<Moment> = Vec::with_capacity(keep);
        for i in 1..=keep {
            let moment = all[all.len() * i / keep - 1];
            assert!(
                list.last().is_none_or(|last| last.epoch < moment.epoch),
                "moments ascend"
            );
            list.push(moment);
        }
        debug_assert_eq!(list.len(), keep, "no moment is taken twice");
        Moments { list }
    }

    /// Returns the moments.
    #[must_use]
    pub fn list(&self) -> &[Moment] {
        &self.list
    }

    /// Returns whether this epoch is a listed moment.
    #[must_use]
    pub fn has(&self, epoch: Epoch) -> bool {
        self.list.binary_search_by_key(&epoch, |m| m.epoch).is_ok()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>, begin: Epoch) {
        out.put_u32(to_u32(self.list.len()));
        let (mut epoch, mut wall_us) = (begin.0, 0u64);
        for moment in &self.list {
            out.put_varint(moment.epoch.0 - epoch);
            out.put_varint(moment.wall_us.wrapping_sub(wall_us));
            (epoch, wall_us) = (moment.epoch.0, moment.wall_us);
        }
    }

    /// Decodes the moments. `None`: the list is malformed or too long, or an epoch is not in the run.
    pub(crate) fn decode(bytes: &[u8], epochs: EpochRange) -> Option<Moments> {
        let mut r = Reader::new(bytes);
        let count = usize::try_from(r.u32()?).ok()?;
        if count > MOMENTS_MAX {
            return None;
        }
        let mut list: Vec<Moment> = Vec::with_capacity(count);
        for _ in 0..count {
            let (step, more_us) = (r.varint()?, r.varint()?);
            let moment = match list.last() {
                None => Moment {
                    epoch: Epoch(epochs.begin.0.checked_add(step)?),
                    wall_us: more_us,
                },
                Some(_) if step == 0 => return None,
                Some(last) => Moment {
                    epoch: Epoch(last.epoch.0.checked_add(step)?),
                    wall_us: last.wall_us.wrapping_add(more_us),
                },
            };
            if !epochs.contains(moment.epoch) {
                return None;
            }
            list.push(moment);
        }
        (r.remaining() == 0).then_some(Moments { list })
    }
}

pub(crate) fn encode_ends(out: &mut Vec<u8>, ends: &[Pos]) {
    let streams = u8::try_from(ends.len()).unwrap_or(u8::MAX);
    assert!((1..=STREAMS_MAX).contains(&streams), "{streams} streams");
    out.put_u8(streams);
    for end in ends {
        out.put_u64(end.0);
    }
}

pub(crate) fn decode_ends(bytes: &[u8]) -> Option<Vec<Pos>> {
    let mut r = Reader::new(bytes);
    let streams = r.u8()?;
    let ends: Option<Vec<Pos>> = (0..streams).map(|_| r.u64().map(Pos)).collect();
    let is_sound = (1..=STREAMS_MAX).contains(&streams) && r.remaining() == 0;
    ends.filter(|_| is_sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_at_most_a_thousand_moments_the_last_one_among_them() {
        for count in [0usize, 1, 999, 1000, 1001, 27_000] {
            let all: Vec<Moment> = (0..to_u64(count))
                .map(|i| Moment {
                    epoch: Epoch(10 + 2 * i),
                    wall_us: 1_000_000 + i % 700,
                })
                .collect();
            let moments = Moments::sampled(&all);
            assert_eq!(moments.list().len(), count.min(1000));
            let last = |list: &[Moment]| list.last().map(|m| m.epoch);
            assert_eq!(last(moments.list()), last(&all));
            let epochs = EpochRange::new(Epoch(10), Epoch(10 + 2 * to_u64(count) + 1));
            let epochs = epochs.expect("a range");
            let mut out = Vec::new();
            moments.encode(&mut out, epochs.begin);
            assert_eq!(Moments::decode(&out, epochs), Some(moments.clone()));
            if let Some(end) = last(&all) {
                assert!(moments.has(end) && !moments.has(Epoch(end.0 - 1)));
                let short = EpochRange::new(epochs.begin, end.max(Epoch(11)));
                let short = short.expect("a range");
                assert_eq!(Moments::decode(&out, short).is_none(), end >= short.end);
            }
        }
    }

    #[test]
    fn digests_add_up_by_tags() {
        let mut digests = Digests::default();
        for (tag, partition, digest) in [(5, 0, 1), (5, 3, 2), (6, 1, 4), (7, 0, 8), (9, 2, 16)] {
            digests.add(CkptEpoch(tag), PartitionId(partition), digest);
        }
        digests.add(CkptEpoch(6), PartitionId(1), 4);
        let between = |from, to| digests.between(CkptEpoch(from), CkptEpoch(to));
        assert_eq!((between(5, 6), between(6, 7), between(5, 10)), (3, 0, 27));
        assert_eq!((between(6, 6), between(7, 5)), (0, 0));
        assert_eq!(digests.sums().count(), 4, "sums that are zero are left out");
        let mut out = Vec::new();
        digests.encode(&mut out);
        let read = Digests::decode(&out, 4).expect("digests");
        assert!(read.sums().eq(digests.sums()));
        assert_eq!(Digests::decode(&out, 3), None);
    }
}
