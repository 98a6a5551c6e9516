//! The *cover* of a checkpoint: the part of the log that its image needs.
//!
//! At the end of the sweep, the [`Window`](crate::window::Window) builds the cover from the begin marks and the end
//! marks. The checkpointer waits until the cover's epoch is durable, and then puts the cover into the anchor unchanged.
//! A restart reads it from the anchor.

use perdura_base::{Epoch, Pos};

/// The part of the log that an image needs: for each stream, the first position to read, and the end of the bytes that
/// must be durable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cover {
    /// For each stream, the first position that a restart from the image reads. The position is the window's begin
    /// mark, or the first record of a transaction that was active at the window's end.
    pub begin: Vec<Pos>,
    /// For each stream, the end of the window: its end mark.
    pub end: Vec<Pos>,
    /// The newest commit epoch of the end marks: once it is durable, so is every record that the
    /// image reflects.
    pub end_epoch: Epoch,
}

impl Cover {
    /// Returns the cover of an image that was never written.
    #[must_use]
    pub fn empty(streams: u8) -> Cover {
        Cover {
            begin: vec![Pos(0); usize::from(streams)],
            end: vec![Pos(0); usize::from(streams)],
            end_epoch: Epoch(0),
        }
    }

    /// Returns the cover of a window with these begin and end marks.
    ///
    /// # Panics
    /// If an end mark is missing or lies before its stream's begin mark.
    #[must_use]
    pub fn of_window(begin: &[Pos], end: Vec<Pos>, end_epoch: Epoch) -> Cover {
        assert_eq!(begin.len(), end.len(), "a window in every stream");
        assert!(
            begin.iter().zip(&end).all(|(begin, end)| begin <= end),
            "a window ends behind its begin"
        );
        Cover {
            begin: begin.to_vec(),
            end,
            end_epoch,
        }
    }

    /// Extends the cover back to these positions. A stream without a position keeps its begin.
    ///
    /// # Panics
    /// If a position is after a stream's end mark.
    #[must_use]
    pub fn keeping(mut self, from: &[Option<Pos>]) -> Cover {
        assert!(
            from.is_empty() || from.len() == self.begin.len(),
            "a position for each stream"
        );
        for ((begin, from), end) in self.begin.iter_mut().zip(from).zip(&self.end) {
            let from = from.unwrap_or(*begin);
            assert!(from <= *end, "what is kept begins ahead of the end mark");
            *begin = from.min(*begin);
        }
        self
    }

    /// Extends the cover back to `undo_low`. For each stream, `undo_low` has the first record of any transaction that
    /// was active at the window's end. If no transaction was active, it has the end mark.
    ///
    /// # Panics
    /// If `undo_low` is after a stream's end mark.
    #[must_use]
    pub fn reaching(mut self, undo_low: &[Pos]) -> Cover {
        assert_eq!(undo_low.len(), self.end.len(), "a list in every stream");
        for ((begin, low), end) in self.begin.iter_mut().zip(undo_low).zip(&self.end) {
            assert!(low <= end, "an active transaction began ahead of the mark");
            *begin = (*begin).min(*low);
        }
        self
    }
}

/// The state of the cover while a checkpoint runs.
pub(crate) enum Covering {
    /// The begin marks are appended.
    Open { marks: Vec<Pos> },
    /// The end marks are appended.
    Closed(Cover),
    /// The anchor has the cover. According to the anchor, no restart needs the log below `floor`.
    Named { floor: Vec<Pos> },
}

impl Covering {
    /// Returns the begin marks of the window, which must be open.
    pub fn marks(&self) -> &[Pos] {
        match self {
            Covering::Open { marks } => marks,
            Covering::Closed(_) | Covering::Named { .. } => panic!("a window ends once"),
        }
    }

    /// Returns the cover. The window must have ended, and the anchor must not have the cover yet.
    pub fn closed(&self) -> &Cover {
        match self {
            Covering::Closed(cover) => cover,
            Covering::Open { .. } => panic!("the end marks are appended before they are awaited"),
            Covering::Named { .. } => panic!("an image is named once"),
        }
    }

    /// Returns whether the window is open: its end marks are not appended yet.
    pub fn is_open(&self) -> bool {
        matches!(self, Covering::Open { .. })
    }

    /// Returns, for each stream, the highest position up to which the log may be cut.
    pub fn floor(&self) -> &[Pos] {
        match self {
            Covering::Named { floor } => floor,
            Covering::Open { .. } | Covering::Closed(_) => {
                panic!("the anchor names the image before the log is cut")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions<const N: usize>(of: [u64; N]) -> Vec<Pos> {
        of.map(Pos).to_vec()
    }

    #[test]
    fn a_cover_reaches_back_to_the_first_record_of_an_active_transaction_and_no_further() {
        let begin = positions([10, 20, 30]);
        let cover = Cover::of_window(&begin, positions([11, 25, 30]), Epoch(7));
        assert_eq!(cover.begin, begin);
        let cover = cover.reaching(&positions([3, 22, 30]));
        assert_eq!(cover.begin, positions([3, 20, 30]));
        assert_eq!(
            (cover.end, cover.end_epoch),
            (positions([11, 25, 30]), Epoch(7))
        );
    }

    #[test]
    fn marks_that_no_window_has_panic() {
        let window = |begin: &[u64], end: &[u64], low: &[u64]| {
            let of = |positions: &[u64]| positions.iter().copied().map(Pos).collect::<Vec<_>>();
            let (begin, end, low) = (of(begin), of(end), of(low));
            std::panic::catch_unwind(|| Cover::of_window(&begin, end, Epoch(1)).reaching(&low))
                .is_ok()
        };
        assert!(window(&[1, 1], &[2, 1], &[2, 1]));
        assert!(!window(&[1, 1], &[2], &[2]), "a stream without an end mark");
        assert!(
            !window(&[1, 2], &[2, 1], &[1, 1]),
            "an end before its begin"
        );
        assert!(
            !window(&[1, 1], &[2, 2], &[2, 3]),
            "active since a record behind the mark"
        );
        assert!(!window(&[1, 1], &[2, 2], &[2]), "a stream without a list");
    }

    #[test]
    fn the_cover_of_a_running_checkpoint_is_read_in_its_state_only() {
        let cover = Cover::of_window(&[Pos(1)], vec![Pos(2)], Epoch(3));
        let states = || {
            [
                Covering::Open {
                    marks: vec![Pos(1)],
                },
                Covering::Closed(cover.clone()),
                Covering::Named {
                    floor: vec![Pos(1)],
                },
            ]
        };
        for (at, state) in states().into_iter().enumerate() {
            let reads = |read: fn(&Covering) -> usize| {
                let state = std::panic::AssertUnwindSafe(&state);
                std::panic::catch_unwind(|| read(&state)).ok()
            };
            let one = |is: usize| (at == is).then_some(1);
            assert_eq!(reads(|state| state.marks().len()), one(0));
            assert_eq!(reads(|state| state.closed().end.len()), one(1));
            assert_eq!(reads(|state| state.floor().len()), one(2));
            assert_eq!(state.is_open(), at == 0);
        }
    }
}
