//! The seeded bug of algorithm 3 as printed: the tables CTT and ATT with a BackupID of one bit; see
//! [`perdura_base::flaw`].

use std::collections::BTreeSet;

use perdura_base::flaw::{Flaw, armed};
use perdura_base::{CkptEpoch, TxnId};
use perdura_page::TxnRecord;
use perdura_wal::frame::EndRecord;
use perdura_wal::{Frame, Role};

use crate::base::begun_by;
use crate::rule::{Gate, Skip};

/// Where the algorithm is in its stream, and its table of active transactions.
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

impl Printed {
    /// Whether the algorithm takes the place of the rule.
    pub fn is_armed() -> bool {
        armed(Flaw::PrintedRule) || armed(Flaw::ListRace)
    }

    /// Notes a mark of the image's checkpoint `k`. The transactions that an end mark lists as active
    /// are open, but for those that committed after it.
    #[cold]
    pub fn note_mark(
        &mut self,
        frame: Frame<'_>,
        k: CkptEpoch,
        is_committed: impl Fn(TxnId) -> bool,
    ) {
        match frame.kind.role() {
            Role::BeginMark if begun_by(frame.payload) == Some(k) => {
                self.phase = Phase::BeforeBegin;
            }
            Role::EndMark => {
                if let Some(mark) = EndRecord::decode(frame.payload).filter(|mark| mark.k == k) {
                    let active = mark.active.unwrap_or_default();
                    let open = active.into_iter().map(|entry| entry.txn);
                    self.att = open.filter(|txn| !is_committed(*txn)).collect();
                    self.phase = Phase::Window;
                }
            }
            Role::BeginMark | Role::Records | Role::Log => {}
        }
    }

    /// Notes a record that is no change.
    #[cold]
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

    /// What to do with a change of `txn`: the BackupID is the parity of the tag.
    #[cold]
    pub fn gate(&self, txn: TxnId, is_committed: bool, tag: CkptEpoch, k: CkptEpoch) -> Gate {
        let same_id = tag.0 % 2 == k.0 % 2;
        let apply = match self.phase {
            Phase::AfterEnd => is_committed,
            Phase::Window => is_committed == same_id,
            Phase::BeforeBegin => self.att.contains(&txn),
        };
        if apply {
            Gate::Apply
        } else {
            Gate::Skip(Skip::NotWanted)
        }
    }
}
