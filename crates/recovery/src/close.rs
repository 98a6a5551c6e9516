//! The change of the anchor that closes the crashed incarnation and begins the next one. The next incarnation uses only
//! epochs and numbers above all those that the restart has seen in the log.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, Error, Gsn, ImageSlot, Incarnation, LifeId, Result};
use perdura_wal::{BlockRef, ChainLink, Cut, PastLife, StreamScan, Vouched};

use crate::anchor::Anchor;
use crate::image::folder;
use crate::options::RestartOptions;
use crate::plan::ImagePlan;

/// The maximum number of closed lives in the anchor when a database begins to serve. Only the closed lives that
/// checkpoints could remove are counted. If there are more, two checkpoints run first.
const CHAIN_LONG: usize = 32;

/// Rewrites and syncs the log that this restart has read, so that it is durable. Only then may the anchor vouch for the
/// log. The crashed process may have written blocks and created files without syncing them.
pub(crate) fn make_durable(
    options: &RestartOptions,
    anchor: &Anchor,
    scans: &[StreamScan],
) -> Result<()> {
    assert_eq!(
        scans.len(),
        options.disks.logs.len(),
        "what is written again is every stream"
    );
    for scan in scans {
        let disk = options.disks.logs[usize::from(scan.stream.0)].as_ref();
        scan.write_again(disk, anchor)?;
    }
    for slot in ImageSlot::ALL {
        for disk in &options.disks.images {
            disk.sync_dir(folder(slot))?;
        }
        options.disks.data.sync_dir(folder(slot))?;
    }
    options.disks.data.sync_dir("")
}

/// Asserts invariant I8 (docs/how/concurrency.md): the new anchor vouches only for log that is durable. Log is durable
/// if [`make_durable`] has rewritten it, or if the old anchor vouches for it.
///
/// # Panics
/// If the new anchor vouches for log that is not durable.
pub(crate) fn assert_believed_is_durable(before: &Anchor, record: &Anchor, scans: &[StreamScan]) {
    for scan in scans {
        let stream = usize::from(scan.stream.0);
        let written = scan.blocks.last().map(BlockRef::end);
        let durable = before.vouched.ends[stream].max(written.unwrap_or_default());
        let named = record.vouched.ends[stream];
        assert!(
            named <= durable,
            "the anchor names position {named} of stream {stream}, durable is {durable}"
        );
    }
    assert_eq!(
        record.incarnation,
        Incarnation(before.incarnation.0 + 1),
        "a restart begins one life"
    );
}

/// Changes the anchor's record: the crashed incarnation ends, and the next one begins. Called before the next
/// incarnation does any work.
///
/// # Errors
/// [`Error::LogFull`] if the anchor has no room for the chain link of the crashed incarnation.
pub(crate) fn close_incarnation(
    record: &mut Anchor,
    cut: &Cut,
    damaged: &[ImageSlot],
) -> Result<()> {
    check_cut_keeps_what_was_acknowledged(record, cut);
    for slot in damaged {
        record.image_mut(*slot).discard();
    }
    let incarnation = record.incarnation;
    let start = record.open_start();
    if start != cut.cut {
        let max = record.chain_max();
        if record.chain.len() >= max {
            return Err(Error::LogFull(format!(
                "the anchor lists {max} restarts since the oldest checkpoint and has no room for \
                 another. Nothing is lost. Copy the directory and report the bug"
            )));
        }
        record.chain.push(ChainLink {
            incarnation,
            durable: cut.durable,
            start,
            cut: cut.cut.clone(),
        });
    }
    record.incarnation = Incarnation(incarnation.0 + 1);
    record.epoch_floor = cut.epoch_max.max(cut.durable);
    record.ckpt_max = cut.ckpt_max;
    record.vouched = durable_end(cut);
    record.clean = false;
    Ok(())
}

/// Notes the number of the life that begins, and the end of the one that is closed. An archive compares them.
pub(crate) fn name_life(record: &mut Anchor, closed: Incarnation, cut: &Cut, life: LifeId) {
    let ended = PastLife {
        id: record.lineage.id,
        incarnation: closed,
        end: cut.durable,
    };
    record.lineage.begin(ended, life);
    record.lineage.forget();
}

/// Returns the end of the log at the cut that the restart chose.
pub(crate) fn durable_end(cut: &Cut) -> Vouched {
    Vouched {
        epoch: cut.durable,
        wall_us: cut.wall_us,
        ends: cut.cut.clone(),
    }
}

/// Asserts invariant I4 (docs/how/concurrency.md) at a restart: the cut keeps everything that the anchor vouched for.
/// The anchor has the highest epoch and the highest checkpoint epoch that were known before the restart. The highest
/// epochs that the restart has seen must not be lower.
fn check_cut_keeps_what_was_acknowledged(record: &Anchor, cut: &Cut) {
    assert!(
        cut.durable >= record.vouched.epoch,
        "the cut at epoch {} is behind epoch {}, which the anchor vouches for",
        cut.durable,
        record.vouched.epoch
    );
    assert!(
        cut.epoch_max >= record.epoch_floor && cut.ckpt_max >= record.ckpt_max,
        "numbers seen before are seen again"
    );
}

/// Returns the first epoch of the next incarnation. An epoch that was seen in the log, even in a void part of it, is
/// never used again.
pub(crate) fn first_epoch(cut: &Cut) -> Epoch {
    if armed(Flaw::EpochReused) {
        return Epoch(cut.durable.0 + 1);
    }
    let first = Epoch(cut.epoch_max.max(cut.durable).0 + 1);
    assert!(first > cut.durable, "epoch {first} is durable already");
    first
}

/// Returns the highest operation number that was seen in the log, including its void parts. New operations get higher
/// numbers.
pub(crate) fn last_number(cut: &Cut) -> Gsn {
    if armed(Flaw::NumberReused) {
        return Gsn(cut.gsn_max.0.saturating_sub(8));
    }
    assert!(
        cut.epoch_max >= cut.durable || cut.gsn_max == Gsn(0),
        "what was seen covers what counts"
    );
    cut.gsn_max
}

/// Returns the lowest value that `G`, the heap's checkpoint epoch, may have after the restart. The next checkpoint gets
/// the epoch after `G`, so no image has that epoch yet.
pub(crate) fn ckpt_floor(anchor: &Anchor, image: &ImagePlan) -> CkptEpoch {
    let images = anchor.images.iter().map(|image| image.k);
    images.max().unwrap_or_default().max(image.k)
}

/// Returns whether the anchor has more than [`CHAIN_LONG`] closed lives that checkpoints could remove. Lives that are
/// not yet archived are not counted, because checkpoints do not remove them.
pub(crate) fn is_chain_long(record: &Anchor, options: &RestartOptions) -> bool {
    let archived = options.archived.as_ref().or(record.archived.as_ref());
    let is_archived = |link: &&ChainLink| {
        archived.is_none_or(|archived| {
            let mut cuts = link.cut.iter().zip(&archived.ends);
            cuts.all(|(cut, end)| cut <= end)
        })
    };
    record.chain.iter().filter(is_archived).count() > CHAIN_LONG
}
