//! A seeded bug: algorithm 3 exactly as the paper prints it, with the tables CTT and ATT and a BackupID of one bit.
//! See [`perdura_base::flaw`].

use std::collections::BTreeSet;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, TxnId};
use perdura_page::TxnRecord;
use perdura_wal::frame::EndRecord;
use perdura_wal::{Frame, Role};

use super::Backward;
use crate::base::begun_by;
use crate::rule::{Fate, Gate, ImageKind, Skip};

/// The state of the paper's algorithm: the phase of the scan, and the table of active transactions (ATT).
#[derive(Default)]
pub(super) struct Printed {
    phase: Phase,
    att: BTreeSet<TxnId>,
}

#[derive(Default, PartialEq, Eq)]
enum Phase {
    #[default]
    AfterEnd,
    Window,
    BeforeBegin,
}

/// Returns whether a seeded bug makes the restart use the paper's algorithm and not the rule of this crate.
fn is_armed() -> bool {
    armed(Flaw::PrintedRule) || armed(Flaw::ListRace)
}

impl Backward {
    /// Notes a checkpoint's begin or end mark, which only the paper's algorithm uses. The end mark of the image's
    /// checkpoint lists the active transactions. Of these, the transactions that did not commit after the mark go into
    /// ATT.
    pub(crate) fn note_mark(&mut self, frame: Frame<'_>, image: ImageKind) {
        let ImageKind::Sweep(k) = image else { return };
        match frame.kind.role() {
            Role::BeginMark if begun_by(frame.payload) == Some(k) => {
                self.printed.phase = Phase::BeforeBegin;
            }
            Role::EndMark => {
                if let Some(mark) = EndRecord::decode(frame.payload).filter(|mark| mark.k == k) {
                    let active = mark.active.unwrap_or_default();
                    let open = active.into_iter().map(|entry| entry.txn);
                    self.printed.att = open
                        .filter(|txn| !is_committed(self.fates.get(txn).copied()))
                        .collect();
                    self.printed.phase = Phase::Window;
                }
            }
            Role::BeginMark | Role::Records | Role::Log | Role::Ordered | Role::Numbered => {}
        }
    }
}

fn is_committed(fate: Option<Fate>) -> bool {
    matches!(fate, Some(Fate::Committed(_)))
}

impl Printed {
    /// Notes a record other than a change.
    pub fn note(&mut self, record: &TxnRecord<'_>) {
        match record {
            TxnRecord::Begin { txn } => {
                self.att.remove(txn);
            }
            TxnRecord::Abort { txn, .. } if self.phase == Phase::Window => {
                self.att.insert(*txn);
            }
            TxnRecord::Abort { .. } | TxnRecord::Commit { .. } | TxnRecord::Update(_) => {}
        }
    }

    /// Returns the decision of the paper's algorithm about a change of `txn`. `None`: the restart does not use the
    /// paper's algorithm. The BackupID is the parity of the tag.
    pub fn gate(
        &self,
        txn: TxnId,
        fate: Option<Fate>,
        tag: CkptEpoch,
        image: ImageKind,
    ) -> Option<Gate> {
        let ImageKind::Sweep(k) = image else {
            return None;
        };
        if !is_armed() {
            return None;
        }
        let same_id = tag.0 % 2 == k.0 % 2;
        let apply = match self.phase {
            Phase::AfterEnd => is_committed(fate),
            Phase::Window => is_committed(fate) == same_id,
            Phase::BeforeBegin => self.att.contains(&txn),
        };
        Some(if apply {
            Gate::Apply
        } else {
            Gate::Skip(Skip::NotWanted)
        })
    }
}
