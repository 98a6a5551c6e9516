//! The second pass of a restart: plays the ordered frames of each partition in the order of their sequence numbers.
//!
//! The first pass brings pages, catalog and indexes to the state of the log's end. Key-addressed tables are still in
//! the state of the image. Their changes are in ordered frames (docs/formats/ordered.md). A frame depends on earlier
//! frames, because it changes the bytes of a row or calls a procedure that reads rows. Each frame names its partitions,
//! and the transaction's sequence number in each partition. The pass
//! 1. reads the log once more, all streams together and epoch by epoch (`log`). It skips units (pieces of a stream)
//!    without ordered frames;
//! 2. compares each frame's numbers with the image's numbers (`admit`). Frames that the image reflects are skipped. The
//!    numbers of all other frames must follow without a gap;
//! 3. plays a frame once it is at the head of the queues of *all* its partitions (`queues`), on as many threads as the
//!    restart has (`play`).
//!
//! A transaction gets its number and its epoch while it holds the partition's latch. So within a partition, a higher
//! number never has an earlier epoch, and no frame has to wait for a frame of a later epoch. A limit bounds how many
//! bytes are read ahead.
//!
//! The pass does not know the effect of a frame. It calls an [`OrderedPlayer`] with the frame. The layer that knows
//! tables and procedures implements this trait.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section 4.3: commands are executed again partition by partition. A
//! command of several partitions is executed when every one of these partitions has reached the command.
//!
//! # Deviations
//! The paper replays one log in one total order, or a separate log for each site. Here a log has any number of streams,
//! and the partitions' sequence numbers define the order across streams. The numbers also reveal lost and duplicate
//! frames.

mod admit;
mod log;
mod play;
mod queues;
#[cfg(feature = "flaws")]
mod seeded;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::num::to_u64;
use perdura_base::{CkptEpoch, Epoch, Error, PartitionId, Result};
use perdura_formats::ordered::Malformed;
use perdura_heap::Heap;
use perdura_wal::Origin;

use crate::claims::Claims;
use crate::families::Family;
use crate::options::RestartOptions;
use crate::report::OrderedReport;
use crate::route::{WRITERS_BUG, refuse};
use crate::streams::Decided;
use crate::tables::Catalog;

pub use crate::divergence::{DIVERGENCES_LISTED_MAX, Differs, Divergence, Divergences};
pub use crate::ordered_player::{OrderedFrame, OrderedPlayer};

use admit::Admission;
use log::Epochs;
use play::Pass;

/// Returns the error for a frame with an unreadable payload.
#[must_use]
pub fn malformed(family: Family, why: Malformed, origin: &Origin) -> Error {
    refuse(
        origin,
        format!("a frame of {}: {}", family.name(), why.expected),
        format!("something else at byte {} of the frame", why.at),
        WRITERS_BUG,
    )
}

/// The inputs of the second pass.
pub(crate) struct Second<'a> {
    pub options: &'a RestartOptions,
    pub declared: Claims,
    /// The checkpoint epoch of the image's key-addressed rows.
    pub k: CkptEpoch,
    /// For each partition, the highest sequence number that the image reflects.
    pub pseq: Vec<u64>,
    pub heap: &'a Arc<Heap>,
    pub catalog: &'a Catalog,
    /// The last epoch that the recovered state includes.
    pub target: Epoch,
}

/// Plays the ordered frames of a log.
///
/// # Errors
/// Those of the log and the player. [`Error::Corrupt`] for a frame of an undeclared family, for a gap or a duplicate in
/// a partition's numbers, and for a frame that the image reflects only in part. [`Error::Usage`] if there is a frame to
/// play and no player.
pub(crate) fn second_pass(second: &Second<'_>, log: &mut Decided) -> Result<OrderedReport> {
    #[cfg(feature = "flaws")]
    let revived = log.revive_void_tail();
    let played = play(second, log);
    #[cfg(feature = "flaws")]
    log.drop_void_tail(revived);
    played
}

fn play(second: &Second<'_>, log: &Decided) -> Result<OrderedReport> {
    let options = second.options;
    let (clock, progress) = (options.clock.as_ref(), options.progress.as_ref());
    let partitions = second.heap.geometry().partitions;
    assert_eq!(
        second.pseq.len(),
        usize::from(partitions),
        "the image has a number for each partition"
    );
    let begin = clock.mono_ns();
    progress.enter(3);
    set_numbers(second.heap, &second.pseq);
    let player = options.ordered.as_deref();
    if let Some(player) = player {
        player.begin(second.heap, second.catalog, second.k)?;
    }
    let epochs = Epochs::new(&log.scans, second.declared, progress);
    let target = if armed(Flaw::CommandOfVoidTail) {
        Epoch(u64::MAX)
    } else {
        second.target
    };
    let admission = Admission::new(second.pseq.clone(), target, player.is_some());
    let pass = Pass::new(epochs, admission, player, clock, partitions);
    pass.run(&options.schedule)?;
    let done = pass.into_done();
    if let Some(player) = player {
        player.finish()?;
    }
    assert!(
        done.numbers
            .iter()
            .zip(&second.pseq)
            .all(|(now, was)| now >= was),
        "the log takes no number of the image away"
    );
    assert!(
        player.is_some() || done.played == 0,
        "no frame is played without a player"
    );
    set_numbers(second.heap, &done.numbers);
    let ns = clock.mono_ns().saturating_sub(begin);
    Ok(OrderedReport {
        frames: done.played + done.reflected,
        played: done.played,
        reflected: done.reflected,
        bytes: done.bytes,
        seconds: std::time::Duration::from_nanos(ns).as_secs_f64(),
        read_seconds: std::time::Duration::from_nanos(done.read_ns).as_secs_f64(),
    })
}

/// Sets the sequence number of each partition, so that new transactions get higher numbers. For each partition,
/// `numbers` has the highest number in the image and in the log.
pub(crate) fn set_numbers(heap: &Heap, numbers: &[u64]) {
    let partitions = (0..heap.geometry().partitions).map(PartitionId);
    assert_eq!(
        to_u64(partitions.len()),
        to_u64(numbers.len()),
        "a number for each"
    );
    if armed(Flaw::RowIdUsedTwice) {
        return;
    }
    for (partition, number) in partitions.zip(numbers) {
        heap.lock(partition).set_pseq(*number);
    }
}
