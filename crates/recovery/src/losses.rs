//! The losses that an operator has accepted: the section `LOSS` of the anchor (docs/formats/anchor.md).
//!
//! A database that may have lost acknowledged transactions begins its next life only if an operator accepts the loss.
//! The acceptance adds an entry that names the last kept epoch. The entry is never removed. It stays after the life's
//! log and the life's link in the anchor's chain are gone. So a receipt from the life that lost transactions can still
//! be judged.

use perdura_base::cursor::{Reader, Writer};
use perdura_base::{Epoch, Error, Incarnation, Result};
use perdura_wal::History;

/// The tag of the section.
pub const SECTION: [u8; 4] = *b"LOSS";
/// The maximum number of entries in the section.
pub const LOSSES_MAX: usize = 256;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 28;

/// A loss that an operator accepted when a life of the database was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// The life that lost transactions.
    pub incarnation: Incarnation,
    /// The last epoch of this life that was kept.
    pub durable: Epoch,
    /// The highest epoch known to be acknowledged; 0 if unknown.
    pub acked: Epoch,
    /// The time of the acceptance, microseconds since 1970.
    pub wall_us: u64,
}

impl AcceptedLoss {
    /// Describes the known lost epochs that were acknowledged.
    #[must_use]
    pub fn text(&self) -> String {
        let (life, durable) = (self.incarnation, self.durable);
        match self.acked {
            Epoch(0) => {
                format!(
                    "life {life} of the database is kept up to epoch {durable}: everything \
                     acknowledged after it is lost"
                )
            }
            acked => format!(
                "life {life} of the database is kept up to epoch {durable}: epochs {} to {acked} \
                 had been acknowledged and are lost",
                durable.0 + 1
            ),
        }
    }

    fn is_loss(&self) -> bool {
        self.acked == Epoch(0) || self.acked > self.durable
    }

    /// Returns whether the loss agrees with the history. The life of the loss must be closed. If the chain has a link
    /// of that life, the link and the loss must name the same last epoch.
    pub(crate) fn agrees_with(&self, history: &History) -> bool {
        let mut links = history.chain.iter();
        let link = links.find(|link| link.incarnation == self.incarnation);
        self.incarnation < history.incarnation
            && link.is_none_or(|link| link.durable == self.durable)
    }

    /// Returns whether this loss may follow `other` in the list. This loss must have a later life, and its durable
    /// epoch must be at least that of `other`.
    fn follows(&self, other: &AcceptedLoss) -> bool {
        self.incarnation > other.incarnation && self.durable >= other.durable
    }
}

/// All accepted losses, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses(Vec<AcceptedLoss>);

impl Losses {
    /// Returns whether no loss was accepted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns all losses, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &AcceptedLoss> {
        self.0.iter()
    }

    /// Returns the loss of a life, if one was accepted.
    #[must_use]
    pub fn of(&self, life: Incarnation) -> Option<&AcceptedLoss> {
        self.iter().find(|loss| loss.incarnation == life)
    }

    /// Adds the loss of the life that is being closed. Adding a loss a second time changes nothing, so that a delayed
    /// update of the anchor can be repeated.
    ///
    /// # Errors
    /// [`Error::LogFull`] if the section has no room for the loss.
    ///
    /// # Panics
    /// If nothing is lost, or the loss may not follow the last loss in the list.
    pub(crate) fn accept(&mut self, loss: AcceptedLoss) -> Result<()> {
        assert!(loss.is_loss(), "nothing is lost: {}", loss.text());
        if self.0.last() == Some(&loss) {
            return Ok(());
        }
        let last = self.0.last();
        assert!(
            last.is_none_or(|last| loss.follows(last)),
            "{} after {last:?}",
            loss.text()
        );
        if self.0.len() >= LOSSES_MAX {
            return Err(no_room());
        }
        self.0.push(loss);
        Ok(())
    }
}

/// Returns the error for a loss that the anchor has no room for.
pub(crate) fn no_room() -> Error {
    Error::LogFull(
        "the anchor has no room to record another accepted loss. Nothing was changed. Copy the \
         directory and restore a backup"
            .into(),
    )
}

/// Returns the section's payload.
#[must_use]
pub(crate) fn encode(losses: &Losses) -> Vec<u8> {
    let mut out = Vec::with_capacity(losses.0.len() * ENTRY_BYTES);
    for loss in &losses.0 {
        out.put_u32(loss.incarnation.0);
        out.put_u64(loss.durable.0);
        out.put_u64(loss.acked.0);
        out.put_u64(loss.wall_us);
    }
    assert_eq!(out.len(), losses.0.len() * ENTRY_BYTES, "whole entries");
    out
}

/// Decodes a payload that [`encode`] wrote. `None`: an entry has a form that no build writes, or disagrees with the
/// anchor's history.
#[must_use]
pub(crate) fn decode(payload: &[u8], history: &History) -> Option<Losses> {
    let count = payload.len() / ENTRY_BYTES;
    if count == 0 || count > LOSSES_MAX {
        return None;
    }
    let mut r = Reader::new(payload);
    let mut losses = Vec::with_capacity(count);
    while r.remaining() > 0 {
        let loss = AcceptedLoss {
            incarnation: Incarnation(r.u32()?),
            durable: Epoch(r.u64()?),
            acked: Epoch(r.u64()?),
            wall_us: r.u64()?,
        };
        let is_next = losses.last().is_none_or(|last| loss.follows(last));
        if !is_next || !loss.is_loss() || !loss.agrees_with(history) {
            return None;
        }
        losses.push(loss);
    }
    assert_eq!(losses.len(), count, "{} bytes", payload.len());
    Some(Losses(losses))
}

#[cfg(test)]
mod tests {
    use perdura_base::{Pos, Uuid};
    use perdura_wal::{ChainLink, Scheme, SegmentSizes};

    use super::*;

    fn loss(life: u32, durable: u64, acked: u64) -> AcceptedLoss {
        AcceptedLoss {
            incarnation: Incarnation(life),
            durable: Epoch(durable),
            acked: Epoch(acked),
            wall_us: 1_000_000,
        }
    }

    /// Returns a history whose newest life is `newest`. Its chain has a link for life 3.
    fn history(newest: u32) -> History {
        let sizes = SegmentSizes::fixed(64 << 20);
        let mut history = History::begin(Uuid([1; 16]), 1, Scheme::Differential, 1, sizes);
        history.incarnation = Incarnation(newest);
        history.chain.push(ChainLink {
            incarnation: Incarnation(3),
            durable: Epoch(1000),
            start: vec![Pos(0)],
            cut: vec![Pos(4096)],
        });
        history
    }

    fn without_links(newest: u32) -> History {
        let chain = Vec::new();
        History {
            chain,
            ..history(newest)
        }
    }

    fn accepted(all: &[AcceptedLoss]) -> Losses {
        let mut losses = Losses::default();
        for loss in all {
            losses.accept(*loss).unwrap();
        }
        losses
    }

    #[test]
    fn the_example_on_the_format_page_is_read_and_written() {
        let page = include_str!("../../../docs/formats/anchor.md");
        let example = page.split("```text hex").nth(6).unwrap();
        let example = example.split("```").next().unwrap();
        let digits: String = example.chars().filter(char::is_ascii_hexdigit).collect();
        let losses = accepted(&[loss(3, 1000, 1004), loss(7, 2000, 0)]);
        let bytes = encode(&losses);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, hex);
        assert_eq!(decode(&bytes, &history(8)), Some(losses));
        assert_eq!(decode(&bytes, &history(7)), None, "a life that is open");
        let mut other = history(8);
        other.chain[0].durable = Epoch(999);
        assert_eq!(decode(&bytes, &other), None, "its link says something else");
        for len in (0..bytes.len()).filter(|len| *len != ENTRY_BYTES) {
            assert_eq!(decode(&bytes[..len], &history(8)), None, "{len}");
        }
        let longer = [bytes.as_slice(), &[0]].concat();
        assert_eq!(decode(&longer, &history(8)), None);
    }

    #[test]
    fn what_no_build_writes_is_damage() {
        for odd in [
            [loss(3, 10, 11), loss(3, 10, 11)],
            [loss(4, 10, 11), loss(3, 10, 11)],
            [loss(3, 10, 11), loss(4, 9, 11)],
            [loss(3, 10, 10), loss(4, 10, 11)],
            [loss(3, 10, 9), loss(4, 10, 11)],
        ] {
            let bytes = encode(&Losses(odd.to_vec()));
            assert_eq!(decode(&bytes, &without_links(9)), None, "{odd:?}");
        }
    }

    #[test]
    fn a_loss_is_accepted_once_however_often_the_update_is_made() {
        let mut losses = accepted(&[loss(3, 10, 12), loss(3, 10, 12)]);
        assert_eq!(losses.iter().count(), 1);
        assert_eq!(losses.of(Incarnation(3)), Some(&loss(3, 10, 12)));
        assert_eq!(losses.of(Incarnation(4)), None);
        for life in 4.. {
            if losses.accept(loss(life, 20, 0)).is_err() {
                break;
            }
        }
        assert_eq!(losses.iter().count(), LOSSES_MAX);
        let bytes = encode(&losses);
        assert_eq!(decode(&bytes, &without_links(u32::MAX)), Some(losses));
    }

    #[test]
    fn the_epochs_that_are_lost_are_named() {
        assert_eq!(
            loss(3, 10, 12).text(),
            "life 3 of the database is kept up to epoch 10: epochs 11 to 12 had been \
             acknowledged and are lost"
        );
        assert!(
            loss(3, 10, 0)
                .text()
                .ends_with("everything acknowledged after it is lost")
        );
    }
}
