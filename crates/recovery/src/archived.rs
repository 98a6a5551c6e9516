//! The end of the part of the log that the archive holds: the section `ARCH` of the anchor (docs/formats/anchor.md).
//!
//! An archive copies the log from the log's own files, so the log must not be cut beyond the archive's end. The end of
//! the archive is kept in two places. The *section* is durable. The log may have been cut up to the section's
//! positions, because the archive holds that part. The *progress*, in memory only, is the end of the log that the
//! archive durably holds now. The next update of the anchor that cuts the log moves the section up to the progress. So
//! archiving costs the anchor no separate update.
//!
//! ```text
//!  declared ─ section ≤ progress ≤ D ─ next naming of an image: section := progress, log cut below ─► …
//! ```
//!
//! # Invariants
//! * Section and progress only grow, and lie at or before D.
//! * The log is cut at or below the section's positions. The section is made durable before the cut (`truncate`).
//! * If an archive ends before the section's positions, some of its runs are lost. If an archive ends beyond D, the end
//!   of the log is lost.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{Epoch, Error, Pos, Result};
use perdura_wal::anchor::ANCHOR_PATH;
use perdura_wal::{Archived, EpochEnds, FrameKind, Rung, Vouched, Wal};

use crate::anchor::Anchor;
use crate::anchor_cell::AnchorCell;
use crate::branch::TimelineName;
use crate::owner::claims;

/// The tag of the section.
pub const SECTION: [u8; 4] = *b"ARCH";

/// Returns the section's payload.
#[must_use]
pub(crate) fn encode(archived: &EpochEnds) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + 8 * archived.ends.len());
    out.put_u64(archived.epoch.0);
    archived.ends.iter().for_each(|pos| out.put_u64(pos.0));
    out
}

/// Decodes a payload that [`encode`] wrote, for a database of `streams` streams.
#[must_use]
pub(crate) fn decode(payload: &[u8], streams: u8) -> Option<EpochEnds> {
    let mut r = Reader::new(payload);
    let epoch = Epoch(r.u64()?);
    let ends = (0..streams).map(|_| r.u64().map(Pos));
    let ends = ends.collect::<Option<Vec<_>>>()?;
    (r.remaining() == 0).then_some(EpochEnds { epoch, ends })
}

/// Checks, at a restart, that the log and the configured archive fit together. The log is durable up to `durable`, and
/// the archive ends at `given`. The anchor's section and `given` must both lie at or before `durable`. `given` must lie
/// at or after the section.
///
/// # Errors
/// [`Error::Usage`] as [`Anchor::check_archivable`]. [`Error::LostLog`] if the archive holds epochs that the log does
/// not reach. [`Error::Corrupt`] if the archive ends before the anchor's section, or belongs to a different log.
pub fn check_archive(anchor: &Anchor, given: Option<&EpochEnds>, durable: &Vouched) -> Result<()> {
    if given.is_some() || anchor.archived.is_some() {
        anchor.check_archivable()?;
    }
    for end in anchor.archived.iter().chain(given) {
        end.check_durable(durable)?;
    }
    match (given, &anchor.archived) {
        (Some(given), Some(named)) => check_not_behind(given, named),
        _ => Ok(()),
    }
}

/// Fails if the archive ends before `named`: the log may have been cut up to `named`.
fn check_not_behind(given: &EpochEnds, named: &EpochEnds) -> Result<()> {
    assert_eq!(given.ends.len(), named.ends.len(), "both are of this log");
    let behind = given.ends.iter().zip(&named.ends).any(|(a, b)| a < b);
    if given.epoch >= named.epoch && !behind {
        return Ok(());
    }
    Err(Error::corrupt(
        "the archive",
        0,
        format!(
            "the log up to epoch {}, as {ANCHOR_PATH} says, and at {:?}",
            named.epoch, named.ends
        ),
        format!("the log up to epoch {} and {:?}", given.epoch, given.ends),
        "The archive has lost files, or is another archive. The log between may have been \
         removed. The database is intact. Restore the archive's files, or run `perdura archive \
         end` and begin a new archive in another directory.",
    ))
}

impl Anchor {
    /// Returns where an archive keeps this database's changes. This depends on the kinds of frames that the owners of
    /// log records claim. If no kind is claimed, the changes are in the archive's runs.
    #[must_use]
    pub fn archive(&self) -> Archived {
        let claims = claims(self);
        let claimed = FrameKind::ALL.into_iter().filter(|kind| claims.has(*kind));
        claimed
            .map(FrameKind::archive)
            .fold(Archived::Runs, Ord::max)
    }

    /// Fails if archives and backups would not contain the changes in this log.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn check_archivable(&self) -> Result<()> {
        let Archived::Refused(why) = self.archive() else {
            return Ok(());
        };
        Err(Error::Usage(format!(
            "{why}. It cannot be backed up into an archive either. Run it without an archive, \
             and copy its directories while it is stopped"
        )))
    }

    /// Moves the anchor's archive section up to `progress`, the end of the log that the archive holds. Called in an
    /// update that cuts the log. If the anchor has no such section, there is no archive, and nothing changes.
    pub(crate) fn move_archived(&mut self, progress: Option<&EpochEnds>) {
        let (Some(named), Some(progress)) = (&mut self.archived, progress) else {
            return;
        };
        if named.epoch < progress.epoch {
            assert!(
                named.ends.iter().zip(&progress.ends).all(|(a, b)| a <= b),
                "epoch {} ends before epoch {} in a stream",
                progress.epoch,
                named.epoch
            );
            named.clone_from(progress);
        }
    }
}

impl AnchorCell {
    /// Returns the end of the part of the log that the archive holds. `None`: the database is not archived.
    #[must_use]
    pub fn archived(&self) -> Option<EpochEnds> {
        let mut record = Anchor::clone(&self.get());
        record.move_archived(self.archive_progress().lock().as_ref());
        record.archived
    }

    /// Notes that the archive durably holds the log up to `end`. The first call declares the archive in the anchor.
    /// From then on the log after `end` is kept for the archive. Later calls change memory only.
    ///
    /// # Errors
    /// As [`check_archive`], for the log that is durable now. The first call also fails as
    /// [`update_running`](Self::update_running). It fails with [`Error::LogFull`] if the anchor's chain links leave no
    /// room for the section. Nothing is archived in that case.
    pub fn set_archived(&self, wal: &Wal, end: &EpochEnds) -> Result<()> {
        self.get().check_archivable()?;
        end.check_durable(&wal.durable_end(Rung::Disk))?;
        match self.archived() {
            Some(before) => check_not_behind(end, &before)?,
            None => self.declare_archive(wal, end)?,
        }
        *self.archive_progress().lock() = Some(end.clone());
        Ok(())
    }

    fn declare_archive(&self, wal: &Wal, end: &EpochEnds) -> Result<()> {
        let mut next = Anchor::clone(&self.get());
        next.archived = Some(end.clone());
        if next.chain.len() > next.chain_max() {
            return Err(Error::LogFull(format!(
                "the anchor lists {} restarts since the oldest checkpoint and has no room to \
                 declare an archive. Take a checkpoint first",
                next.chain.len()
            )));
        }
        let updated = self.update_running(wal, |anchor| {
            anchor.archived = Some(end.clone());
        })?;
        assert!(
            updated.archived.is_some(),
            "the anchor that was written declares the archive"
        );
        Ok(())
    }

    /// Ends archiving. The log is then kept only for the images. The database continues on the timeline `next`, or on
    /// the one that it has if `next` is `None`.
    ///
    /// # Errors
    /// As [`update_running`](Self::update_running).
    pub fn end_archive(&self, wal: &Wal, next: Option<&TimelineName>) -> Result<()> {
        let anchor = self.get();
        let next = next.or(anchor.timeline.as_ref());
        if anchor.archived.is_some() || anchor.timeline.as_ref() != next {
            self.update_running(wal, |anchor| {
                anchor.archived = None;
                anchor.timeline = next.cloned();
            })?;
        }
        *self.archive_progress().lock() = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use perdura_base::{CkptEpoch, Gsn};

    use super::*;
    use crate::families::{Families, Family};
    use crate::sections::tree::TreeAnchor;

    fn ends(epoch: u64, ends: &[u64]) -> EpochEnds {
        EpochEnds {
            epoch: Epoch(epoch),
            ends: ends.iter().copied().map(Pos).collect(),
        }
    }

    fn durable(epoch: u64, at: &[u64]) -> Vouched {
        let EpochEnds { epoch, ends } = ends(epoch, at);
        Vouched {
            epoch,
            wall_us: 0,
            ends,
        }
    }

    #[test]
    fn where_an_archive_has_the_changes_is_told_by_what_the_log_may_hold() {
        let mut anchor = Anchor::for_tests(2);
        assert_eq!(anchor.archive(), Archived::Runs);
        anchor.families = Families::default().with(Family::Commands);
        assert_eq!(anchor.archive(), Archived::Carried);
        assert!(anchor.check_archivable().is_ok());
        anchor.tree = Some(TreeAnchor {
            scheme: perdura_wal::Scheme::Logical,
            page_bytes: 8192,
            rssp: Gsn(0),
            k: CkptEpoch(0),
        });
        assert!(matches!(anchor.archive(), Archived::Refused(_)));
        let refused = anchor.check_archivable().unwrap_err().to_string();
        assert!(refused.contains("rows in a tree cannot"), "{refused}");
    }

    #[test]
    fn the_example_on_the_format_page_is_read_and_written() {
        let page = include_str!("../../../docs/formats/anchor.md");
        let example = page.split("```text hex").nth(3).unwrap();
        let example = example.split("```").next().unwrap();
        let digits: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        let archived = ends(1000, &[0x3000, 0x5000]);
        let bytes = encode(&archived);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        assert_eq!(decode(&bytes, 2), Some(archived));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], 2), None);
        }
        assert_eq!(decode(&bytes, 1), None);
        assert_eq!(decode(&bytes, 3), None);
    }

    #[test]
    fn an_archive_ahead_of_the_log_and_one_behind_the_anchor_are_refused() {
        let mut anchor = Anchor::for_tests(2);
        let check = |anchor: &Anchor, given: Option<EpochEnds>, at: &Vouched| {
            check_archive(anchor, given.as_ref(), at)
        };
        let log = durable(10, &[4096, 8192]);
        assert!(check(&anchor, None, &log).is_ok());
        assert!(check(&anchor, Some(ends(10, &[4096, 8192])), &log).is_ok());
        let lost = check(&anchor, Some(ends(11, &[4096, 8192])), &log).unwrap_err();
        assert!(matches!(lost, Error::LostLog { .. }), "{lost}");
        let other = check(&anchor, Some(ends(9, &[4096])), &log).unwrap_err();
        assert!(other.to_string().contains("each of 2 streams"), "{other}");

        anchor.archived = Some(ends(8, &[4096, 4096]));
        for (epoch, at) in [(7, [4096, 4096]), (8, [0, 4096]), (9, [8192, 0])] {
            let behind = check(&anchor, Some(ends(epoch, &at)), &durable(10, &[8192; 2]));
            let behind = behind.unwrap_err();
            assert!(behind.to_string().contains("has lost files"), "{behind}");
        }
        assert!(check(&anchor, Some(ends(8, &[4096, 4096])), &log).is_ok());
        // The anchor's section alone, without an archive, is enough to find the loss.
        let lost = check(&anchor, None, &durable(7, &[4096, 4096])).unwrap_err();
        assert!(
            matches!(
                lost,
                Error::LostLog {
                    archived: Epoch(8),
                    durable: Epoch(7)
                }
            ),
            "{lost}"
        );
    }
}
