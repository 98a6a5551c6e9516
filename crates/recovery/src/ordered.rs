//! The second pass of a restart: plays the ordered frames, those of each partition in the order of their numbers.
//!
//! The first pass leaves pages, catalog and indexes in the state of the log's end, except key-addressed tables, which
//! are in the state of the image. The changes of these tables are in ordered frames (docs/formats/ordered.md). A frame
//! depends on earlier ones through a row's bytes or a procedure's reads. Each frame names its partitions, with the
//! transaction's number in each. The pass
//! 1. reads the log once more, all streams together and epoch by epoch (`log`), without units that have no ordered
//!    frames;
//! 2. compares each frame's numbers with the image's. Frames that the image has are skipped; the numbers of the others
//!    must follow without a gap (`admit`);
//! 3. plays a frame once it is at the head of the queues of *all* its partitions (`queues`), on as many threads as the
//!    restart has (`play`).
//!
//! Within a partition a later number never has an earlier epoch, because both are taken under the partition's latch. So
//! no frame has to wait for a frame of a later epoch. The bytes that are read ahead are bounded.
//!
//! The pass does not know the effect of a frame. It passes the frame to an [`OrderedPlayer`], which a layer that knows
//! tables and procedures implements.
//!
//! # Source
//! *Rethinking Main Memory OLTP Recovery* (001), section 4.3: commands are executed again partition by partition. A
//! command of several partitions is executed when all of them have come to it.
//!
//! # Deviations
//! The paper replays one log in one total order, or a log for each site. Here a log has any number of streams, and the
//! partitions' numbers define the order across streams. The numbers also show lost and doubled frames.

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

/// Returns the error for a frame whose payload cannot be read.
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
    /// The image's checkpoint epoch.
    pub k: CkptEpoch,
    /// The number of each partition that the image reflects.
    pub pseq: Vec<u64>,
    pub heap: &'a Arc<Heap>,
    pub catalog: &'a Catalog,
    /// The last epoch that the recovered state includes.
    pub target: Epoch,
}

/// Plays the ordered frames of a log.
///
/// # Errors
/// Those of the log and the player. [`Error::Corrupt`] for frames of a family that is not declared, and for frames
/// whose numbers are missing, doubled, or reflected by the image only in part. [`Error::Usage`] if there is a frame to
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

/// Sets each partition's number to `numbers`, the highest that image and log have. New transactions get higher numbers.
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
