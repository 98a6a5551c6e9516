//! The marks that a restart sets on changed slots. The sidecar entry of a marked slot is void.
//!
//! Each entry of the image's sidecar belongs to one slot. The entry is true as long as the slot stays taken and no
//! record changes the slot's *identity*. The identity is the first bytes of the row, which contain the row's kind and
//! key. Changes of the value do no harm.
//!
//! A record names bytes, not slots. Image and log are read at the same time, so a record may be read before its page.
//! The class of the page's slots is then unknown. So the changed runs of bytes are kept. When the page is complete, the
//! slots that these runs touch are determined. The length of the page's longest identity is noted when the page is read
//! from the image. A changed byte of the bitmap counts as a change of the byte's eight slots. So a slot without a mark
//! was taken in the image, is taken now, and has the identity that it had in the image.
//!
//! A record that touches the page's header marks the whole page, because the class or the table may have changed. The
//! whole page is also marked when the cost of keeping runs exceeds the cost of reading the rows.
//!
//! Invariant: no record has changed a page without a mark, so its bytes are those of the image.

use perdura_page::SlotClass;
use perdura_page::layout::{HEADER_BYTES, PAGE_BYTES};

use crate::pages::index;

/// The number of words in a slot bitmap.
pub(crate) const SLOT_WORDS: usize = 1024 / 64;
/// The maximum number of runs kept for a page.
const RUNS_MAX: usize = 128;

/// A set of slots of a page, one bit for each slot.
pub(crate) type Slots = [u64; SLOT_WORDS];

/// A run of bytes of a page: start and end.
type Run = (u16, u16);

#[derive(Clone, Default)]
enum Mark {
    #[default]
    Nothing,
    Runs(Vec<Run>),
    All,
}

/// The marks of a partition's pages, by local page.
#[derive(Default)]
pub(crate) struct Marks {
    pages: Vec<Mark>,
}

impl Marks {
    /// Makes room for the marks of all pages below `pages`.
    pub(crate) fn grow(&mut self, pages: usize) {
        if self.pages.len() < pages {
            self.pages.resize(pages, Mark::Nothing);
        }
    }

    /// Notes that a record changes a run of bytes of a page.
    #[inline]
    pub(crate) fn note(&mut self, local: u32, offset: usize, len: usize) {
        debug_assert!(
            0 < len && offset + len <= PAGE_BYTES,
            "a run of bytes of a page"
        );
        let mark = &mut self.pages[index(local)];
        let run = (narrow(offset), narrow(offset + len));
        match mark {
            Mark::All => {}
            _ if offset < HEADER_BYTES => *mark = Mark::All,
            Mark::Nothing => *mark = Mark::Runs(vec![run]),
            Mark::Runs(runs) => {
                runs.push(run);
                if runs.len() == RUNS_MAX {
                    merge(runs);
                    if runs.len() > RUNS_MAX * 3 / 4 {
                        *mark = Mark::All;
                    }
                }
            }
        }
    }

    /// Reads the mark of a page, so that it is in the cache afterwards.
    #[inline]
    pub(crate) fn fetch(&self, local: u32) -> u16 {
        match self.pages.get(index(local)) {
            Some(Mark::Runs(runs)) => runs.last().map_or(0, |run| run.0),
            _ => 0,
        }
    }

    /// Returns whether a page has no mark.
    pub(crate) fn is_unmarked(&self, local: u32) -> bool {
        matches!(self.pages.get(index(local)), None | Some(Mark::Nothing))
    }

    /// Returns whether the whole page is marked.
    pub(crate) fn is_all_marked(&self, local: u32) -> bool {
        matches!(self.pages.get(index(local)), Some(Mark::All))
    }

    /// Returns the slots of a page that have void sidecar entries. `class` is the page's class. `identity` is the
    /// length of the page's longest identity. If that length is unknown, a change of any byte of a slot makes the
    /// slot's entry void.
    pub(crate) fn void_slots(
        &self,
        local: u32,
        class: SlotClass,
        identity: Option<usize>,
    ) -> Slots {
        let mut void = [0; SLOT_WORDS];
        let runs = match self.pages.get(index(local)) {
            None | Some(Mark::Nothing) => return void,
            Some(Mark::All) => return [u64::MAX; SLOT_WORDS],
            Some(Mark::Runs(runs)) => runs,
        };
        let first = class.slot_offset(0);
        let mut set = |slot: usize| void[slot / 64] |= 1 << (slot % 64);
        for run in runs {
            let (from, to) = (usize::from(run.0), usize::from(run.1));
            assert!(
                from >= HEADER_BYTES,
                "a run in the header marks all of a page"
            );
            for byte in from..to.min(first) {
                (0..8).for_each(|bit| set((byte - HEADER_BYTES) * 8 + bit));
            }
            if to > first {
                let at = from.max(first) - first;
                let is_behind = identity.is_some_and(|identity| at % class.bytes() >= identity);
                let begin = at / class.bytes() + usize::from(is_behind);
                let end = (to - first).div_ceil(class.bytes()).min(class.slots());
                (begin..end).for_each(&mut set);
            }
        }
        void
    }
}

/// Sorts runs, and merges runs that overlap or touch.
fn merge(runs: &mut Vec<Run>) {
    runs.sort_unstable();
    runs.dedup_by(|next, run| {
        let meet = next.0 <= run.1;
        if meet {
            run.1 = run.1.max(next.1);
        }
        meet
    });
}

fn narrow(at: usize) -> u16 {
    u16::try_from(at).expect("a page is shorter than 2^16")
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: usize = 19;

    fn bit(slots: &Slots, slot: usize) -> bool {
        slots[slot / 64] >> (slot % 64) & 1 == 1
    }

    /// Returns the void slots of page 1 after records have changed these runs.
    fn void(class: SlotClass, identity: Option<usize>, runs: &[(usize, usize)]) -> Vec<usize> {
        let mut marks = Marks::default();
        marks.grow(3);
        for (offset, len) in runs {
            marks.note(1, *offset, *len);
        }
        assert!(marks.is_unmarked(0) && !marks.is_unmarked(1) && marks.is_unmarked(7));
        let slots = marks.void_slots(1, class, identity);
        (0..class.slots())
            .filter(|slot| bit(&slots, *slot))
            .collect()
    }

    #[test]
    fn a_value_may_change_and_an_identity_may_not() {
        let class = SlotClass::for_bytes(120).expect("a class");
        let at = |slot| class.slot_offset(slot);
        let of = |runs: &[(usize, usize)]| void(class, Some(IDENTITY), runs);
        assert_eq!(of(&[(at(5) + IDENTITY, 100)]), []);
        assert_eq!(of(&[(at(5) + IDENTITY - 1, 1)]), [5]);
        assert_eq!(of(&[(at(5), 1), (at(70) + 3, 2)]), [5, 70]);
        assert_eq!(of(&[(at(5) + IDENTITY, 300)]), [6, 7]);
        assert_eq!(void(class, None, &[(at(5) + 119, 1)]), [5]);
        let last = class.slots() - 1;
        assert_eq!(of(&[(at(last), PAGE_BYTES - at(last))]), [last]);
    }

    #[test]
    fn a_byte_of_the_bitmap_stands_for_eight_slots_and_the_header_for_all() {
        let class = SlotClass::for_bytes(120).expect("a class");
        let eight: Vec<usize> = (8..16).collect();
        assert_eq!(void(class, Some(IDENTITY), &[(HEADER_BYTES + 1, 1)]), eight);
        let all: Vec<usize> = (0..class.slots()).collect();
        assert_eq!(void(class, Some(IDENTITY), &[(16, 1)]), all);
        let bitmap = class.slot_offset(0) - HEADER_BYTES;
        let into_the_first = [(HEADER_BYTES, bitmap + 1)];
        assert_eq!(void(class, Some(IDENTITY), &into_the_first), all);
    }

    /// Notes a random number of random runs, and compares the marks with the set of changed bytes.
    #[test]
    fn no_slot_is_missed_however_many_runs_there_are() {
        let mut rng = fastrand::Rng::with_seed(1);
        for round in 0..300 {
            let class = SlotClass::for_bytes(rng.usize(16..3000)).expect("a class");
            let runs: Vec<(usize, usize)> = (0..rng.usize(1..400))
                .map(|_| {
                    let offset = rng.usize(HEADER_BYTES..PAGE_BYTES);
                    (offset, rng.usize(1..=40.min(PAGE_BYTES - offset)))
                })
                .collect();
            let found = void(class, Some(IDENTITY), &runs);
            let touched = |bytes: std::ops::Range<usize>| {
                let mut runs = runs.iter();
                runs.any(|(at, len)| *at < bytes.end && bytes.start < at + len)
            };
            for slot in 0..class.slots() {
                let at = class.slot_offset(slot);
                let byte = HEADER_BYTES + slot / 8;
                let is_void =
                    touched(at..at + IDENTITY.min(class.bytes())) || touched(byte..byte + 1);
                assert!(
                    !is_void || found.contains(&slot),
                    "round {round}: slot {slot}"
                );
                let few = runs.len() < RUNS_MAX;
                assert!(
                    is_void || !few || !found.contains(&slot),
                    "round {round}: {slot}"
                );
            }
        }
    }
}
