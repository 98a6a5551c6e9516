//! Deciding what survives: the durable epoch D and the cut of every stream.
//!
//! D is the highest epoch whose ends are known and which every stream holds in full. Everything
//! beyond the ends of D is void for ever. If any block names a higher durable epoch than that,
//! acknowledged data is missing and the database refuses to start: a torn tail is an expected
//! end, a missing acknowledged block never is.

use perdura_base::flaw::{Flaw, armed};
use perdura_base::moment::moment;
use perdura_base::{CkptEpoch, Epoch, Error, Pos, Result};

use crate::anchor::History;
use crate::scan::StreamScan;

/// What a damaged database can be, too, without a fault of any disk.
pub const COPIED: &str = "If this is a copy of a running database, a checkpoint or writes went on \
                          while it was copied: copy it again as docs/operations.md says.";

/// What a restart keeps.
#[derive(Debug, Clone)]
pub struct Cut {
    /// The durable epoch.
    pub durable: Epoch,
    /// Where each stream is cut.
    pub cut: Vec<Pos>,
    /// The highest commit epoch seen anywhere, void ones included.
    pub epoch_max: Epoch,
    /// The highest checkpoint epoch seen anywhere.
    pub ckpt_max: CkptEpoch,
    /// The latest wall clock seen, microseconds.
    pub wall_us: u64,
}

/// What is intact without the log, because an image holds it. It serves the texts of errors alone.
#[derive(Debug, Clone, Copy)]
pub struct Elsewhere {
    /// The epoch up to which.
    pub epoch: Epoch,
    /// Wall clock when that was written, microseconds since 1970.
    pub wall_us: u64,
}

/// Computes the cut from the scans of all streams. An error names what is intact `elsewhere`.
///
/// # Errors
/// [`Error::Corrupt`] if a block proves that acknowledged data is missing.
pub fn decide_cut(
    anchor: &History,
    scans: &[StreamScan],
    elsewhere: Option<Elsewhere>,
) -> Result<Cut> {
    let mut durable = anchor.chain.last().map_or(Epoch(0), |link| link.durable);
    let mut cut = anchor.open_start();
    let held = |ends: &[Pos]| {
        scans
            .iter()
            .zip(ends)
            .all(|(scan, end)| scan.valid_end >= *end)
    };
    let mut proven: Option<(Epoch, Pos, usize)> = None;
    let mut ends_of_proven: Option<&Vec<Pos>> = None;
    let mut summary = Cut {
        durable,
        cut: Vec::new(),
        epoch_max: anchor.epoch_floor,
        ckpt_max: anchor.ckpt_max,
        wall_us: 0,
    };
    for (number, scan) in scans.iter().enumerate() {
        for (epoch, ends) in &scan.evidence.ends {
            if *epoch > durable && held(ends) {
                durable = *epoch;
                cut.clone_from(ends);
            }
        }
        if let Some((epoch, pos)) = scan.evidence.durable
            && proven.is_none_or(|(best, ..)| epoch > best)
        {
            proven = Some((epoch, pos, number));
        }
        summary.epoch_max = summary.epoch_max.max(scan.evidence.epoch_max);
        summary.ckpt_max = summary.ckpt_max.max(scan.evidence.ckpt_max);
        summary.wall_us = summary.wall_us.max(scan.evidence.wall_us);
    }
    let vouched = &anchor.vouched;
    if vouched.epoch > durable {
        if !held(&vouched.ends) {
            return Err(short_of_vouched(anchor, scans, elsewhere, durable));
        }
        durable = vouched.epoch;
        cut.clone_from(&vouched.ends);
    }
    if let Some((epoch, pos, witness)) = proven.filter(|(epoch, ..)| *epoch > durable) {
        for scan in scans {
            ends_of_proven = ends_of_proven.or(scan.evidence.ends.get(&epoch));
        }
        return Err(missing(scans, durable, epoch, pos, witness, ends_of_proven));
    }
    if let Some((scan, pos)) = scans
        .iter()
        .find_map(|scan| scan.evidence.out_of_reach.map(|pos| (scan, pos)))
    {
        return Err(Error::corrupt(
            format!("log stream {}", scan.stream),
            scan.valid_end.0,
            format!("a valid block: the one at position {pos} was written after a sync of it"),
            scan.torn.clone().unwrap_or_else(|| "no block".into()),
            format!(
                "Acknowledged transactions after epoch {durable} are damaged or missing. Restore \
                 the file from a backup. {COPIED}"
            ),
        ));
    }
    if armed(Flaw::CutIgnored) {
        cut = scans.iter().map(|scan| scan.valid_end).collect();
    }
    for scan in scans {
        let end = cut[usize::from(scan.stream.0)];
        let stray = scan
            .blocks
            .iter()
            .find(|b| b.pos < end && b.epoch > durable);
        if let Some(block) = stray.filter(|_| !armed(Flaw::CutIgnored)) {
            return Err(Error::corrupt(
                format!("log stream {}", scan.stream),
                block.pos.0,
                format!("an epoch up to {durable}"),
                format!("epoch {}", block.epoch),
                "The log contradicts itself. Keep a copy and report it.",
            ));
        }
    }
    summary.durable = durable;
    summary.cut = cut;
    Ok(summary)
}

/// The log ends before the epoch that the anchor vouches for.
fn short_of_vouched(
    anchor: &History,
    scans: &[StreamScan],
    elsewhere: Option<Elsewhere>,
    durable: Epoch,
) -> Error {
    let vouched = &anchor.vouched;
    let short = scans
        .iter()
        .find(|scan| scan.valid_end < vouched.ends[usize::from(scan.stream.0)])
        .expect("a stream that ends too early was found");
    let end = vouched.ends[usize::from(short.stream.0)];
    let written = |scan: &StreamScan| {
        let whole = scan.blocks.iter().rev().find(|b| b.epoch <= durable);
        whole.map_or(0, |block| block.wall_us)
    };
    let since = scans.iter().map(written).max().unwrap_or(0);
    let (durable, since) = match elsewhere {
        Some(held) if held.epoch > durable => (held.epoch, held.wall_us),
        _ => (durable, since),
    };
    let lost_from = vouched.epoch.min(Epoch(durable.0 + 1));
    Error::corrupt(
        format!("log stream {}", short.stream),
        short.valid_end.0,
        format!(
            "a valid block: the anchor vouches for this log up to position {end}, epoch {}, durable \
             at {}",
            vouched.epoch,
            moment(vouched.wall_us)
        ),
        short.torn.clone().unwrap_or_else(|| "no block".into()),
        format!(
            "Acknowledged transactions of epochs {} to {} at least, written after {}, are damaged or \
             missing; everything up to epoch {durable} is intact. Restore the log's files from a \
             backup. If this is a copy of a running database, the log was copied before the anchor: \
             copy the data directory first and the log directories after it.",
            lost_from,
            vouched.epoch,
            moment(since)
        ),
    )
}

fn missing(
    scans: &[StreamScan],
    durable: Epoch,
    proven: Epoch,
    pos: Pos,
    witness: usize,
    ends: Option<&Vec<Pos>>,
) -> Error {
    let short = scans
        .iter()
        .find(|scan| ends.is_some_and(|ends| scan.valid_end < ends[usize::from(scan.stream.0)]));
    let short = short.or_else(|| scans.iter().find(|scan| scan.torn.is_some()));
    let short = short.unwrap_or(&scans[witness]);
    Error::corrupt(
        format!("log stream {}", short.stream),
        short.valid_end.0,
        format!(
            "a valid block: stream {witness} proves at position {pos} that epoch {proven} was \
             durable"
        ),
        short.torn.clone().unwrap_or_else(|| "no block".into()),
        format!(
            "Acknowledged transactions of epochs {} to {proven} are damaged or missing; \
             everything up to epoch {durable} is intact. Restore the file from a backup. {COPIED}",
            durable.0 + 1
        ),
    )
}
