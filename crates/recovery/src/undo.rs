//! The second pass: undoes the changes of transactions that never ended.
//!
//! Such a transaction is a *loser*. The pass reads the log of the losers' life backward, from the end of that log to
//! the first record of any loser. In a scheme of XOR records, the state contains every record of a loser before this
//! pass. The pass XORs each of these records again, compensations included, and so removes it from the state. In a
//! scheme of before-images, the pass restores the before-images in the reverse order of the changes. In such a scheme
//! the pass skips compensations, because it also undoes the changes that they compensate.
//!
//! # Source
//! *Differential Logging* (000), section 2.2, step 3, and section 5.1 (PL2P, DL2P).

use perdura_base::num::to_u64;
use perdura_base::{PartitionId, Result};
use perdura_heap::{Batch, SlotChange};
use perdura_page::{Change, TxnRecord};
use perdura_wal::{Direction, Role};

use crate::base::Image;
use crate::fates::Losers;
use crate::judge::txn_record;
use crate::pass::Pass;
use crate::route::{Route, foreign};
use crate::source::{Frames, LogSource, Raw};
use crate::stats::ReplayStats;

/// Undoes the losers of one life of a stream. Changes only partitions for which `own` returns true.
///
/// # Errors
/// The errors of reading the log again.
pub(crate) fn undo_losers<I: Image, S: LogSource>(
    pass: &Pass<'_, I, S>,
    part: usize,
    losers: &Losers,
    own: &dyn Fn(PartitionId) -> bool,
) -> Result<()> {
    let (heap, image) = (pass.heap, pass.image);
    let geometry = heap.geometry();
    let (mut stats, mut to_play) = (ReplayStats::default(), 0);
    assert!(
        losers.txns.is_empty() || !losers.units.is_empty(),
        "{} losers without a unit",
        losers.txns.len()
    );
    for number in losers.units.clone().rev() {
        let unit = pass.log.read(part, number)?.open()?;
        let mut batch = Batch::<SlotChange<'_>>::new();
        unit.for_each(Direction::Backward, |frame, origin| {
            match (pass.routes.of(frame.kind), frame.kind.role()) {
                (Some(Route::Records), Role::Records) => {}
                (
                    Some(Route::Records),
                    Role::BeginMark | Role::EndMark | Role::Log | Role::Ordered | Role::Numbered,
                )
                | (Some(Route::Later), _) => return Ok(()),
                (None, _) => return Err(foreign(frame, origin)),
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
        to_play += to_u64(batch.len());
        batch.play(heap)?;
    }
    assert_eq!(
        stats.undone, to_play,
        "each record that counts as undone is played"
    );
    pass.add_stats(stats);
    Ok(())
}
