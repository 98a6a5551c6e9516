//! Closes the crashed incarnation in the anchor, and gives the next incarnation numbers above all that were seen.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, Epoch, Error, Gsn, ImageSlot, Incarnation, Result};
use perdura_wal::{BlockRef, ChainLink, Cut, StreamScan, Vouched};

use crate::anchor::Anchor;
use crate::image::folder;
use crate::options::RestartOptions;
use crate::plan::ImagePlan;

/// Makes the log that this restart has read durable, before the anchor vouches for it. The process that crashed may
/// have written blocks and created files without syncing either.
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

/// Asserts I8: the anchor that is about to be written vouches only for log that [`make_durable`] wrote again or that
/// the last anchor vouched for.
///
/// # Panics
/// If the anchor vouches for more.
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

/// Ends the incarnation that crashed and begins the next one in the anchor's record, before the new incarnation does
/// any work.
///
/// # Errors
/// [`Error::LogFull`] if the incarnations that ended without a checkpoint leave no room for another in the anchor.
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

/// Returns the end of the log at the cut that the restart chose.
pub(crate) fn durable_end(cut: &Cut) -> Vouched {
    Vouched {
        epoch: cut.durable,
        wall_us: cut.wall_us,
        ends: cut.cut.clone(),
    }
}

/// Asserts I4 at a restart: the cut keeps everything that the anchor vouched for. The highest numbers that the cut
/// counts as seen are not below those that the anchor notes as used.
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

/// Returns the first epoch of the next life. An epoch that was seen anywhere, even in a void part of the log, is never
/// used again.
pub(crate) fn first_epoch(cut: &Cut) -> Epoch {
    if armed(Flaw::EpochReused) {
        return Epoch(cut.durable.0 + 1);
    }
    let first = Epoch(cut.epoch_max.max(cut.durable).0 + 1);
    assert!(first > cut.durable, "epoch {first} is durable already");
    first
}

/// Returns the highest number of an operation that was seen anywhere, even in a void part of the log. No number up to
/// it is given again.
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

/// Returns the lowest value of `G` after the restart. The next checkpoint's epoch is one more, which is unused.
pub(crate) fn ckpt_floor(anchor: &Anchor, image: &ImagePlan) -> CkptEpoch {
    let images = anchor.images.iter().map(|image| image.k);
    images.max().unwrap_or_default().max(image.k)
}
