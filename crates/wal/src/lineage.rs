//! The lives of a database by their random numbers, and the comparison of two histories.
//!
//! Each restart begins a life and draws a number for it. Two copies of a database count their lives alike, but draw
//! different numbers. So the number of a life identifies the whole history up to the life's start. Within a life, the
//! history is known by its last epoch.
//!
//! The archive ends with epoch 200. It has life a up to epoch 80 and then life b.
//!
//! | lives of the database | verdict |
//! |---|---|
//! | a to 80, b to 230, c | one history |
//! | a to 80, b to 100, c | set back: it left life b at epoch 100 |
//! | a to 80, d | another history: life b is unknown |
//!
//! # Invariants
//! * The ends of past lives do not fall. Each life but the first begins after the end of the life before it.
//! * A life with the number 0 was begun by a build without such numbers. It agrees with every life.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::num::{to_u32, to_u64};
use perdura_base::{Epoch, Error, Incarnation, LifeId, Result};

/// The tag of the anchor's section with the lineage.
pub const SECTION: [u8; 4] = *b"LIFE";
/// The size of an encoded past life, bytes.
pub(crate) const PAST_BYTES: usize = 24;
/// The size of an encoded lineage without past lives, bytes.
pub(crate) const HEAD_BYTES: usize = 16;
/// The maximum number of past lives that an anchor or a segment's header keeps.
pub const PAST_MAX: usize = 160;

/// A life that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastLife {
    /// The number of the life.
    pub id: LifeId,
    /// The count of lives, this one included.
    pub incarnation: Incarnation,
    /// The last epoch that the life kept.
    pub end: Epoch,
}

/// The newest life, and the lives before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The number of the newest life.
    pub id: LifeId,
    /// The lives before it, the oldest first. The oldest ones may be forgotten.
    pub past: Vec<PastLife>,
}

impl Lineage {
    /// Ends the newest life and begins the next one. A life without a durable epoch leaves no trace.
    pub fn begin(&mut self, ended: PastLife, next: LifeId) {
        let before = self.past.last().map_or(Epoch(0), |life| life.end);
        assert!(ended.end >= before, "a life ends after the one before it");
        if ended.end > before {
            self.past.push(PastLife {
                id: self.id,
                ..ended
            });
        }
        self.id = next;
    }

    /// Forgets the oldest lives, and keeps [`PAST_MAX`] of them.
    ///
    /// An archive may be away for many restarts, so any life may still be compared.
    pub fn forget(&mut self) {
        let many = self.past.len().saturating_sub(PAST_MAX);
        self.past.drain(..many);
        assert!(
            self.past.len() <= PAST_MAX,
            "the anchor has room for the lives"
        );
    }

    /// Returns the lineage without the oldest lives, as [`forget`](Self::forget) leaves it.
    #[must_use]
    pub(crate) fn bounded(&self) -> Lineage {
        let mut bounded = self.clone();
        bounded.forget();
        bounded
    }

    /// Returns the lineage at the end of `epoch`: the life that has the epoch, and the lives before it.
    #[must_use]
    pub fn at(&self, epoch: Epoch) -> Lineage {
        let nth = self.past.partition_point(|life| life.end < epoch);
        Lineage {
            id: self.life_at(epoch),
            past: self.past[..nth].to_vec(),
        }
    }

    /// Returns the number of the life that has `epoch`. 0: it is not known.
    #[must_use]
    pub fn life_at(&self, epoch: Epoch) -> LifeId {
        let nth = self.past.partition_point(|life| life.end < epoch);
        self.past.get(nth).map_or(self.id, |life| life.id)
    }

    /// Fails unless this database's history has the archive's history up to `end`, the archive's last epoch.
    ///
    /// # Errors
    /// [`Error::OtherHistory`].
    pub fn check_has(&self, archived: &Lineage, end: Epoch) -> Result<()> {
        let unknown = LifeId(0);
        // An archive without epochs has no history. The life that made it may have left no trace.
        if end == Epoch(0) || archived.id == unknown || archived.id == self.id {
            return Ok(());
        }
        let known = self.past.iter().find(|life| life.id == archived.id);
        match known {
            Some(life) if life.end >= end => Ok(()),
            Some(life) => Err(Error::OtherHistory {
                archived: end,
                common: life.end,
            }),
            // Lives of older builds have no number, so their histories cannot be compared.
            None if self.id == unknown || self.past.iter().any(|life| life.id == unknown) => Ok(()),
            // The archive ends in a life that may be forgotten.
            None if self.may_have_forgotten(end) => Ok(()),
            None => Err(Error::OtherHistory {
                archived: end,
                common: self.common(archived),
            }),
        }
    }

    /// Returns whether the life that has the epoch `end` may be forgotten.
    fn may_have_forgotten(&self, end: Epoch) -> bool {
        let Some(oldest) = self.past.first() else {
            return false;
        };
        let is_full = self.past.len() >= PAST_MAX;
        // An older build forgot lives that the archive's backlog had.
        end <= oldest.end && (is_full || oldest.incarnation > Incarnation(1))
    }

    /// Returns the last epoch that both histories are known to have.
    fn common(&self, other: &Lineage) -> Epoch {
        let mut newest_first = self.past.iter().rev();
        let found = newest_first.find_map(|own| {
            let same = other.past.iter().find(|life| life.id == own.id)?;
            Some(own.end.min(same.end))
        });
        found.unwrap_or_default()
    }

    /// Takes over the lives of `later`, a lineage that [has](Self::check_has) this one. Lives that `later` has forgotten
    /// stay.
    pub fn extend(&mut self, later: &Lineage) {
        if later.id == self.id {
            return;
        }
        match later.past.iter().position(|life| life.id == self.id) {
            Some(nth) => self.past.extend_from_slice(&later.past[nth..]),
            None => self.past.clone_from(&later.past),
        }
        self.id = later.id;
        assert!(
            self.past.is_sorted_by_key(|life| life.end),
            "lives end one after another"
        );
    }

    /// Returns the encoded size, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        to_u64(HEAD_BYTES + PAST_BYTES * self.past.len())
    }

    /// Appends the encoded lineage.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.id.0);
        out.put_u32(to_u32(self.past.len()));
        out.put_u32(0);
        for life in &self.past {
            out.put_u64(life.id.0);
            out.put_u32(life.incarnation.0);
            out.put_u32(0);
            out.put_u64(life.end.0);
        }
    }

    /// Decodes a lineage. `None`: [`encode`](Self::encode) never writes these bytes.
    #[must_use]
    pub fn decode(r: &mut Reader<'_>) -> Option<Lineage> {
        let id = LifeId(r.u64()?);
        let count = usize::try_from(r.u32()?).ok()?;
        r.zeros(4)?;
        if r.remaining() / PAST_BYTES < count {
            return None;
        }
        let mut past: Vec<PastLife> = Vec::with_capacity(count);
        for _ in 0..count {
            let id = LifeId(r.u64()?);
            let incarnation = Incarnation(r.u32()?);
            r.zeros(4)?;
            let end = Epoch(r.u64()?);
            if past.last().is_some_and(|last| end < last.end) {
                return None;
            }
            past.push(PastLife {
                id,
                incarnation,
                end,
            });
        }
        Some(Lineage { id, past })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a lineage with these past lives, and the newest life.
    fn lives(past: &[(u64, u64)], id: u64) -> Lineage {
        let past = (1..).zip(past).map(|(incarnation, (id, end))| PastLife {
            id: LifeId(*id),
            incarnation: Incarnation(incarnation),
            end: Epoch(*end),
        });
        Lineage {
            id: LifeId(id),
            past: past.collect(),
        }
    }

    fn common(database: &Lineage, archive: &Lineage, end: u64) -> Option<u64> {
        match database.check_has(archive, Epoch(end)) {
            Ok(()) => None,
            Err(Error::OtherHistory { archived, common }) => {
                assert_eq!(archived, Epoch(end));
                Some(common.0)
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_copy_that_was_set_back_is_told_from_the_database() {
        let archive = lives(&[(7, 80)], 8);
        assert_eq!(common(&lives(&[(7, 80)], 8), &archive, 200), None, "open");
        let later = lives(&[(7, 80), (8, 230)], 9);
        assert_eq!(common(&later, &archive, 200), None, "later");
        assert_eq!(
            common(&lives(&[(8, 200)], 9), &archive, 200),
            None,
            "just so"
        );
        let set_back = lives(&[(7, 80), (8, 100)], 9);
        assert_eq!(common(&set_back, &archive, 200), Some(100));
        assert_eq!(
            common(&lives(&[(7, 80)], 9), &archive, 200),
            Some(80),
            "left earlier"
        );
        assert_eq!(common(&lives(&[(7, 60)], 9), &archive, 200), Some(60));
        assert_eq!(
            common(&lives(&[(5, 60)], 9), &archive, 200),
            Some(0),
            "another one"
        );
    }

    /// A server made an archive and was killed before anything was durable. Its next start was refused. The crash test
    /// found this in its first run.
    #[test]
    fn an_archive_without_epochs_is_of_every_history() {
        let database = lives(&[], 9);
        assert_eq!(common(&database, &lives(&[], 8), 0), None);
        assert_eq!(common(&database, &lives(&[], 8), 1), Some(0));
    }

    #[test]
    fn lives_of_older_builds_agree_with_every_history() {
        assert_eq!(common(&lives(&[(7, 80)], 9), &lives(&[], 0), 200), None);
        assert_eq!(
            common(&lives(&[(0, 80)], 9), &lives(&[(0, 80)], 8), 200),
            None
        );
    }

    #[test]
    fn a_lineage_is_known_at_every_epoch_and_is_extended() {
        let mut lineage = Lineage::default();
        let mut archived = Lineage::default();
        for life in 1..40u64 {
            let ended = PastLife {
                id: LifeId(0),
                incarnation: Incarnation(u32::try_from(life).unwrap()),
                end: Epoch(10 * (life - 1)),
            };
            lineage.begin(ended, LifeId(life));
            let end = Epoch(10 * life - 3);
            let at = lineage.at(end);
            assert_eq!(at.id, LifeId(life));
            let archived_end = Epoch(end.0.saturating_sub(9));
            lineage.check_has(&archived, archived_end).unwrap();
            archived.extend(&at);
            assert_eq!(archived.id, LifeId(life));
        }
        assert_eq!(archived.past.len(), 38, "an archive keeps them all");
        assert_eq!(archived.at(Epoch(155)).id, LifeId(16));
        let mut out = Vec::new();
        archived.encode(&mut out);
        assert_eq!(to_u64(out.len()), archived.bytes());
        assert_eq!(Lineage::decode(&mut Reader::new(&out)), Some(archived));
        for len in 0..out.len() {
            assert_eq!(Lineage::decode(&mut Reader::new(&out[..len])), None);
        }
    }
}
