//! The facts that the anchor and the scans give about the end of the log.

use std::borrow::Cow;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{Epoch, Pos};

use crate::anchor::History;
use crate::evidence::Evidence;
use crate::scan::{BlockRef, StreamScan};

use super::verdict::{Facts, Log, Vouch};

/// An epoch, and the epoch's end position in each stream.
#[derive(Clone)]
pub(super) struct Ended<'a> {
    pub epoch: Epoch,
    pub ends: Cow<'a, [Pos]>,
}

/// A block that proves an epoch durable or acknowledged.
#[derive(Clone, Copy)]
pub(super) struct Proof {
    pub epoch: Epoch,
    pub pos: Pos,
    /// The index of the scan that found the block.
    pub witness: usize,
}

/// Everything that the decision and its errors need.
pub(super) struct Known<'a> {
    pub anchor: &'a History,
    pub scans: &'a [StreamScan],
    /// The highest epoch that the blocks show to be complete in every stream; the last epoch of the life before if no
    /// epoch of the newest life is complete.
    pub log: Ended<'a>,
    by: Log,
    pub proof: Option<Proof>,
    /// The block that names the highest acknowledged epoch.
    pub acked: Option<Proof>,
    accept_loss: bool,
}

impl<'a> Known<'a> {
    pub(super) fn gather(
        anchor: &'a History,
        scans: &'a [StreamScan],
        accept_loss: bool,
    ) -> Known<'a> {
        let mut log = Ended {
            epoch: anchor.chain.last().map_or(Epoch(0), |link| link.durable),
            ends: anchor.open_start().into(),
        };
        let mut by = Log::LifeBefore;
        for scan in scans {
            for (epoch, ends) in &scan.evidence.ends {
                if *epoch > log.epoch && are_held(scans, ends) {
                    by = Log::Ends;
                    log = Ended {
                        epoch: *epoch,
                        ends: ends.into(),
                    };
                }
            }
        }
        Known {
            anchor,
            scans,
            log,
            by,
            proof: highest(scans, |seen| seen.durable),
            acked: highest(scans, |seen| seen.acked),
            accept_loss,
        }
    }

    pub(super) fn facts(&self) -> Facts {
        let vouched = &self.anchor.vouched;
        let (candidate, _) = self.candidate();
        let overlooked = armed(Flaw::DamageForHole);
        Facts {
            log: self.by,
            vouch: match vouched.epoch > self.log.epoch {
                false => Vouch::Reached,
                true if are_held(self.scans, &vouched.ends) => Vouch::Held,
                true => Vouch::Short,
            },
            proven_beyond: !overlooked && self.proof.is_some_and(|proof| proof.epoch > candidate),
            out_of_reach: !overlooked && self.out_of_reach().is_some(),
            acked_beyond: !self.accept_loss && self.acked_beyond().is_some(),
            stray: self.stray().is_some(),
        }
    }

    /// Returns the candidate and the candidate's end in each stream. The candidate is the epoch that becomes D unless
    /// evidence contradicts it.
    pub(super) fn candidate(&self) -> (Epoch, &[Pos]) {
        let vouched = &self.anchor.vouched;
        match vouched.epoch > self.log.epoch {
            true => (vouched.epoch, &vouched.ends),
            false => (self.log.epoch, &self.log.ends),
        }
    }

    /// Returns the block with the highest acknowledged epoch, if this epoch is above the candidate.
    pub(super) fn acked_beyond(&self) -> Option<Proof> {
        let (candidate, _) = self.candidate();
        self.acked.filter(|acked| acked.epoch > candidate)
    }

    /// Returns the first stream that lacks synced bytes, and the position of the block with the proof. The block comes
    /// after the missing bytes and was written after the sync.
    pub(super) fn out_of_reach(&self) -> Option<(&StreamScan, Pos)> {
        let mut scans = self.scans.iter();
        scans.find_map(|scan| scan.evidence.out_of_reach.map(|pos| (scan, pos)))
    }

    /// Returns the first block that lies before the candidate's cut, although the block's epoch is above the candidate.
    pub(super) fn stray(&self) -> Option<(&StreamScan, &BlockRef)> {
        if armed(Flaw::CutIgnored) {
            return None;
        }
        let (epoch, cut) = self.candidate();
        self.scans.iter().find_map(|scan| {
            let end = cut[usize::from(scan.stream.0)];
            let mut blocks = scan.blocks.iter();
            let stray = blocks.find(|block| block.pos < end && block.epoch > epoch);
            stray.map(|block| (scan, block))
        })
    }
}

/// Returns the block that names the highest epoch. `named` returns the epoch that a scan's blocks name, and the block's
/// position. If several scans have this epoch, the first scan counts.
fn highest(
    scans: &[StreamScan],
    named: impl Fn(&Evidence) -> Option<(Epoch, Pos)>,
) -> Option<Proof> {
    let mut best = None::<Proof>;
    for (witness, scan) in scans.iter().enumerate() {
        if let Some((epoch, pos)) = named(&scan.evidence)
            && best.is_none_or(|best| epoch > best.epoch)
        {
            best = Some(Proof {
                epoch,
                pos,
                witness,
            });
        }
    }
    best
}

/// Returns whether every stream reaches its end in `ends`. Ends for a different number of streams prove nothing.
fn are_held(scans: &[StreamScan], ends: &[Pos]) -> bool {
    let mut ended = scans.iter().zip(ends);
    ends.len() == scans.len() && ended.all(|(scan, end)| scan.valid_end >= *end)
}
