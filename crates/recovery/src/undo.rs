//! The second pass: taking out what transactions did that never ended.
//!
//! Their records are read backward, from the end of the life they were lost in to the first of
//! them. For a scheme that commutes every record of a loser is XORed once more, compensations
//! included, for all of them are in the state by then. For before images the order matters, which
//! is the record's own, backward; compensations are passed over, since the record they take back
//! is undone anyway.
//!
//! # Source
//! *Differential Logging* (000), section 2.2, step 3, and section 5.1 (PL2P, DL2P).

use perdura_base::{PartitionId, Result};
use perdura_heap::{Batch, SlotChange};
use perdura_page::{Change, TxnRecord};
use perdura_wal::{Direction, Role};

use crate::base::Image;
use crate::fates::Losers;
use crate::judge::txn_record;
use crate::pass::Pass;
use crate::route::Route;
use crate::source::{Frames, LogSource, Raw};
use crate::stats::ReplayStats;

/// Undoes the losers of one life of a stream on the partitions that `own` names.
///
/// # Errors
/// Those of reading the log again.
pub(crate) fn undo_losers<I: Image, S: LogSource>(
    pass: &Pass<'_, I, S>,
    part: usize,
    losers: &Losers,
    own: &dyn Fn(PartitionId) -> bool,
) -> Result<()> {
    let (heap, image) = (pass.heap, pass.image);
    let geometry = heap.geometry();
    let mut stats = ReplayStats::default();
    for number in losers.units.clone().rev() {
        let unit = pass.log.read(part, number)?.open()?;
        let mut batch = Batch::<SlotChange<'_>>::new();
        unit.for_each(Direction::Backward, |frame, origin| {
            match (pass.players.route(frame, origin)?, frame.kind.role()) {
                (Route::Method, Role::Records) => {}
                (Route::Method, Role::BeginMark | Role::EndMark | Role::Log)
                | (Route::Supplied(_), _) => return Ok(()),
            }
            let update = match txn_record(frame.payload, origin)? {
                TxnRecord::Update(update) => update,
                TxnRecord::Begin { .. } | TxnRecord::Commit { .. } | TxnRecord::Abort { .. } => {
                    return Ok(());
                }
            };
            let is_undone = image
                .base_of(update.page)
                .is_some_and(|base| base.reaches(origin.stream, origin.pos))
                && match update.change {
                    Change::Xor(_) => true,
                    Change::Assign(_) => !update.compensation,
                };
            let ours = own(geometry.partition_of_page(update.page));
            if ours && is_undone && losers.txns.contains(&update.txn) {
                stats.undone += 1;
                batch.push(
                    geometry,
                    SlotChange {
                        page: update.page,
                        change: update.change,
                        undo: true,
                    },
                );
            }
            Ok(())
        })?;
        batch.play(heap)?;
    }
    pass.add_stats(stats);
    Ok(())
}
