//! The end of a checkpoint: the anchor names the image, and then the log is cut.
//!
//! The update that names the image also moves the anchor's archive section. So before a part of the
//! log is cut, the anchor says that the archive holds this part.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, ImageSlot, Pos, Result};
use perdura_wal::{EpochEnds, Rung};

use super::phase::Event;
use super::{CheckpointProgress, Checkpointer, Leftover, Sweep, Taken};
use crate::anchor::Anchor;
use crate::cover::{Cover, Covering};
use crate::image::remove_old_directories;
use crate::images::Completion;
use crate::truncate::truncation_floor;

impl Sweep {
    /// Enters the completed image in the anchor's record.
    pub(crate) fn name_image(&self, record: &mut Anchor, wall_us: u64) {
        let completion = Completion {
            directory_crc: self.directory_crc,
            wall_us,
            cover: self.covering.closed().clone(),
            consistent: self.cut.is_some(),
            begin_epoch: Some(self.begin_epoch),
        };
        let image = record.image_mut(self.slot);
        if armed(Flaw::NoBuildingMark) {
            image.mark_building(self.k);
        }
        image.mark_complete(self.k, completion);
    }
}

impl Checkpointer {
    /// Removes the log that is not needed any more, now that the anchor names the sweep's image. The image counts even
    /// if old log segments and directories cannot be removed now. In that case [`clear_away`](Self::clear_away) tries
    /// again later.
    pub(super) fn cut_log(&mut self, sweep: &Sweep) -> Taken {
        self.leftover = Some(Leftover {
            slot: sweep.slot,
            k: sweep.k,
            floor: sweep.covering.floor().to_vec(),
        });
        let _later = self.remove_old();
        Taken {
            event: Event::Truncated,
            next: None,
            progress: CheckpointProgress::Done,
        }
    }

    /// Returns whether everything that the image reflects is durable.
    pub(super) fn is_durable(&self, cover: &Cover) -> bool {
        let rung = match armed(Flaw::ImageOnMirror) {
            true => Rung::Mirror,
            false => Rung::Disk,
        };
        self.parts.wal.durable(rung) >= cover.end_epoch || armed(Flaw::AnchorBeforeLog)
    }

    /// Removes log segments and directories that the last checkpoint could not remove. Does nothing while a checkpoint
    /// runs: the end of that checkpoint removes them.
    ///
    /// # Errors
    /// Errors of the disk. The remaining files do no harm except that they take space. The caller tries again later.
    pub fn clear_away(&mut self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        self.remove_old()
    }

    fn remove_old(&mut self) -> Result<()> {
        let Some(Leftover { slot, k, floor }) = &self.leftover else {
            return Ok(());
        };
        let (slot, k) = (*slot, *k);
        // An archive may have been declared since the image was named, and it may need more of the log.
        let now = truncation_floor(&self.parts.anchor.get());
        let floor: Vec<Pos> = floor.iter().zip(&now).map(|(a, b)| *a.min(b)).collect();
        self.assert_named(slot, k, &floor);
        let segments = self.parts.wal.truncate(&floor);
        remove_old_directories(self.parts.disks.data.as_ref(), slot, k)?;
        segments?;
        self.leftover = None;
        Ok(())
    }

    /// Asserts invariant I6 (docs/how/concurrency.md) before the log is cut: the durable anchor names the image, and
    /// `floor` lies at or before the positions where a restart from that image begins.
    fn assert_named(&self, slot: ImageSlot, k: CkptEpoch, floor: &[Pos]) {
        let anchor = self.parts.anchor.get();
        let image = anchor.image(slot);
        assert!(
            image.is_complete() && image.k == k,
            "the log is cut after the anchor names checkpoint {k}"
        );
        let mut reach = floor.iter().zip(&image.cover.begin);
        assert!(
            reach.all(|(floor, begin)| floor <= begin),
            "the log is cut ahead of where a restart from checkpoint {k} begins"
        );
    }

    /// Names the image in the anchor. Asserts invariant I5 (docs/how/concurrency.md): every record that the image
    /// reflects is durable.
    pub(super) fn name_sweep(&mut self, sweep: &mut Sweep) -> Result<()> {
        if armed(Flaw::TruncateBeforeAnchor) {
            self.parts.wal.truncate(&sweep.covering.closed().begin)?;
        }
        let cover = sweep.covering.closed();
        assert!(
            self.is_durable(cover),
            "checkpoint {} is named before the log of its window is durable",
            sweep.k
        );
        assert!(
            sweep.writer.is_none(),
            "checkpoint {} is named before its directory is durable",
            sweep.k
        );
        let archived = self.parts.anchor.archived();
        let mut cut_below = Vec::new();
        self.parts
            .anchor
            .update_running(&self.parts.wal, |record| {
                for share in self.parts.shares {
                    share.name_in(record, &self.parts, sweep);
                }
                record.ckpt_max = record.ckpt_max.max(sweep.k);
                record.move_archived(archived.as_ref());
                let floor = truncation_floor(record);
                // The last link stays: it holds the position at which the open incarnation starts.
                let last = record.chain.last().map(|link| link.incarnation);
                record.chain.retain(|link| {
                    Some(link.incarnation) == last
                        || link.cut.iter().zip(&floor).any(|(cut, floor)| cut > floor)
                });
                cut_below = floor;
            })?;
        sweep.covering = Covering::Named { floor: cut_below };
        Ok(())
    }

    /// Notes the end of the log that an archive holds; see
    /// [`AnchorCell::set_archived`](crate::AnchorCell::set_archived).
    ///
    /// # Errors
    /// As [`AnchorCell::set_archived`](crate::AnchorCell::set_archived).
    pub fn set_archived(&mut self, end: &EpochEnds) -> Result<()> {
        self.parts.anchor.set_archived(&self.parts.wal, end)
    }
}
