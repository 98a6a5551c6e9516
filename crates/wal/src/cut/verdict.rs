//! A restart's decision about the log, as one table of the facts that the scans and the anchor prove.
//!
//! The *candidate* is the higher of two epochs: the highest complete epoch of the log, and the *vouched* epoch, which
//! is the newest durable epoch in the anchor. Either the candidate becomes the durable epoch D, or evidence contradicts
//! it and the database refuses to start. No acknowledged block is ever cut off.

/// The source of the log's highest complete epoch. An epoch is complete if every stream reaches the epoch's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    /// The epoch is the last one of the previous life, because no epoch of the newest life is complete.
    LifeBefore,
    /// The epoch belongs to the newest life. A block names the epoch's end in each stream.
    Ends,
}

/// The vouched epoch, compared with the highest complete epoch of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vouch {
    /// The vouched epoch is not higher.
    Reached,
    /// The vouched epoch is higher, and every stream reaches the end that the anchor names. The block with the ends of
    /// that epoch may be missing and is not needed.
    Held,
    /// The vouched epoch is higher, and a stream ends before the end that the anchor names.
    Short,
}

/// The facts for the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    pub log: Log,
    pub vouch: Vouch,
    /// True if a block names a durable epoch above the candidate.
    pub proven_beyond: bool,
    /// True if a valid block lies beyond the valid end of its stream, and farther than writes in flight can reach. Then
    /// bytes after that end had been synced and are missing.
    pub out_of_reach: bool,
    /// True if a block names an acknowledged epoch above the candidate, and the caller does not accept the loss of that
    /// epoch.
    pub acked_beyond: bool,
    /// True if a block lies before the candidate's cut, but the block's epoch is above the candidate.
    pub stray: bool,
}

/// The decision of a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// D is the last durable epoch of the life before. Nothing of the newest life is kept.
    KeepLifeBefore,
    /// D is the log's highest complete epoch. A block names the epoch's ends, and every stream reaches its end.
    KeepEnds,
    /// D is the vouched epoch.
    KeepVouched,
    /// Refused: the log ends before the vouched epoch.
    ShortOfVouched,
    /// Refused: a block proves that a higher epoch was durable.
    ProvenMissing,
    /// Refused: a block proves that bytes beyond the valid end of its stream had been synced.
    SyncedMissing,
    /// Refused: a block proves that a higher epoch was acknowledged. Only the mirror had this epoch.
    AckedMissing,
    /// Refused: the order of epochs and positions is broken.
    Contradiction,
}

impl Facts {
    /// Returns the verdict. Evidence of loss takes precedence over a contradiction, because an error about loss says
    /// what is lost. Evidence from the anchor takes precedence over evidence from blocks, because the anchor names the
    /// epochs.
    pub(super) fn decide(self) -> Verdict {
        let Facts {
            log,
            vouch,
            proven_beyond,
            out_of_reach,
            acked_beyond,
            stray,
        } = self;
        match (vouch, proven_beyond, out_of_reach, acked_beyond, stray, log) {
            (
                Vouch::Short,
                true | false,
                true | false,
                true | false,
                true | false,
                Log::LifeBefore | Log::Ends,
            ) => Verdict::ShortOfVouched,
            (
                Vouch::Reached | Vouch::Held,
                true,
                true | false,
                true | false,
                true | false,
                Log::LifeBefore | Log::Ends,
            ) => Verdict::ProvenMissing,
            (
                Vouch::Reached | Vouch::Held,
                false,
                true,
                true | false,
                true | false,
                Log::LifeBefore | Log::Ends,
            ) => Verdict::SyncedMissing,
            (
                Vouch::Reached | Vouch::Held,
                false,
                false,
                true,
                true | false,
                Log::LifeBefore | Log::Ends,
            ) => Verdict::AckedMissing,
            (
                Vouch::Reached | Vouch::Held,
                false,
                false,
                false,
                true,
                Log::LifeBefore | Log::Ends,
            ) => Verdict::Contradiction,
            (Vouch::Held, false, false, false, false, Log::LifeBefore | Log::Ends) => {
                Verdict::KeepVouched
            }
            (Vouch::Reached, false, false, false, false, Log::Ends) => Verdict::KeepEnds,
            (Vouch::Reached, false, false, false, false, Log::LifeBefore) => {
                Verdict::KeepLifeBefore
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The table has a row for each pair of `log` and `vouch`, and a column for each set of the other facts. In this
    /// text, `s` means stray, `a` acknowledged beyond, `o` out of reach, and `p` proven beyond. Columns are in groups
    /// of four: no fact, `s`, `a`, and both `s` and `a`. In the second group `o` is also true, in the third `p`, and in
    /// the last both. In the table, `b` means keep the life before, `e` keep ends, `v` keep vouched, and `V` short of
    /// vouched. `P` means proven missing, `S` synced missing, `A` acknowledged missing, and `C` contradiction.
    const TABLE: [(Log, Vouch, &str); 6] = [
        (Log::LifeBefore, Vouch::Reached, "bCAA SSSS PPPP PPPP"),
        (Log::LifeBefore, Vouch::Held, "vCAA SSSS PPPP PPPP"),
        (Log::LifeBefore, Vouch::Short, "VVVV VVVV VVVV VVVV"),
        (Log::Ends, Vouch::Reached, "eCAA SSSS PPPP PPPP"),
        (Log::Ends, Vouch::Held, "vCAA SSSS PPPP PPPP"),
        (Log::Ends, Vouch::Short, "VVVV VVVV VVVV VVVV"),
    ];

    fn letter(verdict: Verdict) -> char {
        match verdict {
            Verdict::KeepLifeBefore => 'b',
            Verdict::KeepEnds => 'e',
            Verdict::KeepVouched => 'v',
            Verdict::ShortOfVouched => 'V',
            Verdict::ProvenMissing => 'P',
            Verdict::SyncedMissing => 'S',
            Verdict::AckedMissing => 'A',
            Verdict::Contradiction => 'C',
        }
    }

    /// Returns all combinations of facts, each with its letter in the table.
    pub(in super::super) fn all() -> impl Iterator<Item = (Facts, char)> {
        TABLE.into_iter().flat_map(|(log, vouch, row)| {
            let cells = row.chars().filter(|cell| *cell != ' ');
            assert_eq!(cells.clone().count(), 16);
            cells.zip(0u8..).map(move |(cell, column)| {
                let facts = Facts {
                    log,
                    vouch,
                    proven_beyond: column & 8 != 0,
                    out_of_reach: column & 4 != 0,
                    acked_beyond: column & 2 != 0,
                    stray: column & 1 != 0,
                };
                (facts, cell)
            })
        })
    }

    #[test]
    fn every_combination_of_what_is_known_of_the_log_is_decided_as_the_table_says() {
        assert_eq!(all().count(), 96);
        for (facts, cell) in all() {
            assert_eq!(letter(facts.decide()), cell, "{facts:?}");
        }
    }

    /// States the rule independently of the table: nothing acknowledged is cut off, and nothing is refused without
    /// evidence.
    #[test]
    fn a_log_is_kept_if_and_only_if_no_evidence_contradicts_the_candidate() {
        for (facts, _) in all() {
            let evidence = facts.vouch == Vouch::Short
                || facts.proven_beyond
                || facts.out_of_reach
                || facts.acked_beyond
                || facts.stray;
            let kept = match facts.decide() {
                Verdict::KeepLifeBefore => {
                    assert_eq!((facts.log, facts.vouch), (Log::LifeBefore, Vouch::Reached));
                    true
                }
                Verdict::KeepEnds => {
                    assert_eq!((facts.log, facts.vouch), (Log::Ends, Vouch::Reached));
                    true
                }
                Verdict::KeepVouched => {
                    assert_eq!(facts.vouch, Vouch::Held);
                    true
                }
                Verdict::ShortOfVouched
                | Verdict::ProvenMissing
                | Verdict::SyncedMissing
                | Verdict::AckedMissing
                | Verdict::Contradiction => false,
            };
            assert_eq!(kept, !evidence, "{facts:?}");
        }
    }
}
