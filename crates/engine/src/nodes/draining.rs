//! The drain of what nodes have returned, stream by stream.

use std::sync::Arc;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Pos, Result, StreamId};
use perdura_device::Disk;
use perdura_mirror::Kept;
use perdura_recovery::Anchor;
use perdura_recovery::truncate::truncation_floor;
use perdura_wal::drain::{DrainLife, Drained, KeptTail, drain};

/// Returns, for each stream, the position at which a drain starts. That is the end of the part that the anchor vouches
/// for. If the part of the log up to a later position is no longer needed, the drain starts at that later position.
pub(super) fn drained_from(anchor: &Anchor) -> Vec<Pos> {
    let floor = truncation_floor(anchor);
    assert_eq!(
        floor.len(),
        anchor.vouched.ends.len(),
        "the log is cut in each stream"
    );
    let vouched = anchor.vouched.ends.iter();
    let both = vouched.zip(floor);
    both.map(|(end, cut)| match armed(Flaw::DrainedFromVouched) {
        true => *end,
        false => cut.max(*end),
    })
    .collect()
}

/// Returns the facts for a drain of each stream of the anchor's newest life.
pub(super) fn lives_to_drain(anchor: &Anchor) -> Vec<DrainLife> {
    let from = drained_from(anchor);
    assert_eq!(
        from.len(),
        usize::from(anchor.streams),
        "each stream is drained"
    );
    let streams = (0u8..).map(StreamId).zip(from);
    let lives = streams.map(|(stream, from)| {
        let life = anchor.drain_life(stream);
        DrainLife {
            vouched: life.vouched.max(from),
            ..life
        }
    });
    lives.collect()
}

/// Drains the nodes' bytes of one stream into its segments on `disk`. The notes of the result begin with a line about
/// the blocks that were written.
pub(super) fn drain_stream(
    disk: &Arc<dyn Disk>,
    life: &DrainLife,
    kept: &[Kept],
) -> Result<Drained> {
    let tails: Vec<KeptTail<'_>> = kept
        .iter()
        .map(|kept| KeptTail {
            holder: kept.holder.clone(),
            from: kept.from,
            bytes: &kept.bytes,
        })
        .collect();
    let mut drained = drain(disk, life, &tails)?;
    assert!(
        drained.from <= drained.end && life.vouched <= drained.end,
        "a drain ends behind what it begins with"
    );
    if drained.blocks > 0 {
        let note = format!(
            "stream {}: {} blocks, {} bytes from position {} on, came from nodes",
            life.stream, drained.blocks, drained.bytes_written, drained.from
        );
        drained.notes.insert(0, note);
    }
    Ok(drained)
}
