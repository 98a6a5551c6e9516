//! Decides whether a database contains the write of a receipt, from the database's anchor and the end of its log.
//!
//! A *life* is the time between two restarts. The anchor's *chain* has a *link* for each ended life with a log that is
//! still needed.
//!
//! | the receipt's life | decided by |
//! |---|---|
//! | is the newest | the end of the log, if no process has the database open; else the anchor's vouched epoch |
//! | has a link in the anchor's chain | the link's durable epoch |
//! | has an accepted loss | the last epoch that was kept |
//! | has neither, and an older life has a link | lost: the life left nothing in the log |
//! | has neither, and no older life has a link | kept; but with durability `mem` undecided, because it is not known where that life ended |
//!
//! In the last row the write is kept: a life loses durable epochs only by an accepted loss, and the anchor keeps each
//! accepted loss for ever.

use perdura_base::Epoch;
use perdura_recovery::Anchor;

use super::Receipt;
use crate::durability::Durability;

/// The end of the newest life of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Newest {
    /// The last epoch of the life, as a restart would find it.
    Ends(Epoch),
    /// The life has not ended: a process has the database open.
    Open,
    /// The end cannot be found: a restart refuses the database with this error.
    Refused(String),
}

/// The fate of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The write is in the database.
    Kept,
    /// The write is not in the database.
    Lost,
    /// The receipt is of a different database.
    Other,
    /// The fate is not decided yet, or can no longer be decided.
    Undecided,
}

impl Fate {
    /// All fates.
    pub const ALL: [Fate; 4] = [Fate::Kept, Fate::Lost, Fate::Other, Fate::Undecided];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fate::Kept => "kept",
            Fate::Lost => "lost",
            Fate::Other => "other",
            Fate::Undecided => "undecided",
        }
    }
}

/// The fate of a write, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The fate of the write.
    pub fate: Fate,
    /// The evidence for the fate.
    pub why: String,
}

impl Receipt {
    /// Decides whether a database contains the write. The inputs are the database's anchor and the end of the newest
    /// life.
    #[must_use]
    pub fn judge(&self, anchor: &Anchor, newest: &Newest) -> Judged {
        let (fate, why) = if self.is_of(&anchor.uuid) {
            self.judge_by_life(anchor, newest)
        } else {
            (Fate::Other, self.stranger(anchor))
        };
        match newest {
            // If a restart refuses the database, the write cannot be read, whatever the anchor's
            // links and losses say.
            Newest::Refused(error) if fate == Fate::Kept => Judged {
                fate: Fate::Undecided,
                why: format!("{why}, but a restart refuses the database: {error}"),
            },
            _ => Judged { fate, why },
        }
    }

    fn stranger(&self, anchor: &Anchor) -> String {
        let of_parent = |parent: &&perdura_wal::Parent| self.is_of(&parent.uuid);
        match anchor.parent.as_ref().filter(of_parent) {
            Some(parent) => format!(
                "it is of database {}, from which this database was restored as of epoch {}",
                parent.uuid, parent.epoch
            ),
            None => format!("this is database {}", anchor.uuid),
        }
    }

    fn judge_by_life(&self, anchor: &Anchor, newest: &Newest) -> (Fate, String) {
        let life = self.incarnation;
        if life > anchor.incarnation {
            let last = anchor.incarnation;
            let why = format!("this directory is an older copy: it knows lives only up to {last}");
            return (Fate::Lost, why);
        }
        if life == anchor.incarnation {
            return self.judge_newest(anchor, newest);
        }
        if let Some(link) = anchor.link_of(life) {
            let loss = anchor.losses.of(life);
            assert!(
                loss.is_none_or(|loss| loss.durable == link.durable),
                "{loss:?}, and the chain has {link:?}"
            );
            let why = format!(
                "life {life} of the database is kept up to epoch {}",
                link.durable
            );
            return (self.up_to(link.durable), why);
        }
        if let Some(loss) = anchor.losses.of(life) {
            return (self.up_to(loss.durable), loss.text());
        }
        if anchor
            .chain
            .first()
            .is_some_and(|link| link.incarnation < life)
        {
            return (Fate::Lost, format!("life {life} left nothing in the log"));
        }
        let gone = format!("the log of life {life} was removed, and no loss of it was accepted");
        match self.durability {
            Durability::Mem => (
                Fate::Undecided,
                format!("{gone}: a receipt of durability mem can no longer be checked"),
            ),
            Durability::Mirror | Durability::Disk => (Fate::Kept, gone),
        }
    }

    fn judge_newest(&self, anchor: &Anchor, newest: &Newest) -> (Fate, String) {
        let life = self.incarnation;
        assert_eq!(life, anchor.incarnation, "a closed life is another case");
        match newest {
            Newest::Ends(end) => {
                let why = format!("life {life} is the newest and ends with epoch {end}");
                (self.up_to(*end), why)
            }
            _ if self.epoch <= anchor.vouched.epoch => {
                let vouched = anchor.vouched.epoch;
                let why = format!(
                    "the anchor says that life {life} was durable up to epoch \
                                   {vouched}"
                );
                (Fate::Kept, why)
            }
            Newest::Open => {
                let why =
                    format!("life {life} is still running, or its process ended and left its lock");
                (Fate::Undecided, why)
            }
            Newest::Refused(error) => {
                let why = format!("a restart refuses the database: {error}");
                (Fate::Undecided, why)
            }
        }
    }

    fn up_to(&self, end: Epoch) -> Fate {
        match self.epoch <= end {
            true => Fate::Kept,
            false => Fate::Lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use perdura_base::{Incarnation, Pos, Uuid};
    use perdura_heap::Geometry;
    use perdura_recovery::AcceptedLoss;
    use perdura_wal::Parent;
    use perdura_wal::{ChainLink, History, Scheme, SegmentSizes};

    use super::*;

    const UUID: Uuid = Uuid([0xab; 16]);

    /// Returns an anchor. Life 9 runs. Lives 5 and 7 have links up to epochs 500 and 700. Life 6 left nothing. In life
    /// 3, the loss of everything after epoch 300 was accepted.
    fn anchor() -> Anchor {
        let sizes = SegmentSizes::fixed(64 << 20);
        let mut history = History::begin(UUID, 1, Scheme::Differential, 1, sizes);
        history.incarnation = Incarnation(9);
        history.vouched.epoch = Epoch(900);
        history.chain = [(5, 500), (7, 700)]
            .map(|(life, durable)| ChainLink {
                incarnation: Incarnation(life),
                durable: Epoch(durable),
                start: vec![Pos(u64::from(life) << 20)],
                cut: vec![Pos((u64::from(life) << 20) + 4096)],
            })
            .to_vec();
        let geometry = Geometry {
            partitions: 4,
            chunk_pages: 128,
            hash_seed: 1,
        };
        let mut anchor = Anchor::new(history, geometry, 1);
        let loss = AcceptedLoss {
            incarnation: Incarnation(3),
            durable: Epoch(300),
            acked: Epoch(310),
            wall_us: 1,
        };
        anchor.accept_loss(loss).expect("room");
        anchor.parent = Some(Parent {
            uuid: Uuid([0xcd; 16]),
            epoch: Epoch(99),
        });
        anchor
    }

    fn fate(token: &str, newest: &Newest) -> Fate {
        let receipt: Receipt = token.parse().expect("a receipt");
        receipt.judge(&anchor(), newest).fate
    }

    #[test]
    fn each_life_is_decided_by_what_is_known_of_it() {
        let ends = Newest::Ends(Epoch(950));
        let refused = Newest::Refused("a hole".into());
        for (token, by_log, open) in [
            // The newest life.
            ("abababab-9-950-mem", Fate::Kept, Fate::Undecided),
            ("abababab-9-951-mem", Fate::Lost, Fate::Undecided),
            ("abababab-9-951-disk", Fate::Lost, Fate::Undecided),
            ("abababab-9-900-mem", Fate::Kept, Fate::Kept),
            // A life with a link.
            ("abababab-7-700-mem", Fate::Kept, Fate::Kept),
            ("abababab-7-701-mem", Fate::Lost, Fate::Lost),
            ("abababab-5-501-disk", Fate::Lost, Fate::Lost),
            // A life without link or loss, after a life that has a link.
            ("abababab-6-600-mem", Fate::Lost, Fate::Lost),
            ("abababab-8-800-mirror", Fate::Lost, Fate::Lost),
            // A life with an accepted loss.
            ("abababab-3-300-mem", Fate::Kept, Fate::Kept),
            ("abababab-3-301-mirror", Fate::Lost, Fate::Lost),
            ("abababab-3-311-disk", Fate::Lost, Fate::Lost),
            // A life without link or loss, and no older life has a link.
            ("abababab-4-400-disk", Fate::Kept, Fate::Kept),
            ("abababab-4-400-mirror", Fate::Kept, Fate::Kept),
            ("abababab-4-400-mem", Fate::Undecided, Fate::Undecided),
            // A life after the newest: the directory is an older copy.
            ("abababab-10-1-disk", Fate::Lost, Fate::Lost),
            // Other databases.
            ("cdcdcdcd-9-950-disk", Fate::Other, Fate::Other),
            ("00000000-9-950-disk", Fate::Other, Fate::Other),
        ] {
            assert_eq!(fate(token, &ends), by_log, "{token}");
            assert_eq!(fate(token, &Newest::Open), open, "{token}");
            let by_anchor = match open {
                Fate::Kept | Fate::Undecided => Fate::Undecided,
                other => other,
            };
            assert_eq!(fate(token, &refused), by_anchor, "{token}");
        }
    }

    #[test]
    fn the_reason_names_what_decides() {
        let why = |token: &str| {
            let receipt: Receipt = token.parse().expect("a receipt");
            receipt.judge(&anchor(), &Newest::Ends(Epoch(950))).why
        };
        assert!(why("abababab-7-1-mem").contains("life 7 of the database is kept up to epoch 700"));
        assert!(why("abababab-3-305-disk").contains("epochs 301 to 310 had been acknowledged"));
        assert!(why("cdcdcdcd-1-1-disk").contains("restored as of epoch 99"));
        assert!(why("abababab-4-1-mem").contains(
            "a receipt of durability mem can no longer be \
                                                  checked"
        ));
    }
}
