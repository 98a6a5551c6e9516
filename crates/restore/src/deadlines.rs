//! The deadlines of restored keys.
//!
//! A key may have a deadline, after which the server removes it. In an old state, many deadlines have passed by the time
//! of the restore. So a restore counts the keys that its server will remove, or changes the deadlines.

use perdura_base::{Error, Result};
use perdura_page::layout::{self, PageKind};
use perdura_page::row::{Row, has_expiry};

/// The treatment of deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deadlines {
    /// Keys keep their deadlines. The server removes the keys whose deadlines have passed.
    #[default]
    Keep,
    /// Each deadline moves by the time between the restored moment and now. So keys have the time to live that they had.
    Shift,
    /// Keys lose their deadlines.
    Drop,
}

/// The treatment of deadlines in a restore at a time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Settling {
    deadlines: Deadlines,
    /// The time of the restore, milliseconds since 1970.
    now_ms: u64,
    /// The time between the restored moment and the restore, milliseconds.
    age_ms: u64,
}

/// Counts of keys with deadlines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Keys whose deadline had passed.
    pub(crate) passed: u64,
    /// Keys whose deadline was changed.
    pub(crate) changed: u64,
}

impl Settling {
    /// Returns the treatment for a restore of a moment at `moment_us`, which is made at `now_us`, microseconds since
    /// 1970. A moment without a known time has 0.
    ///
    /// # Errors
    /// [`Error::Usage`] if deadlines are to be moved, and the time of the moment is not known.
    pub(crate) fn of(deadlines: Deadlines, moment_us: u64, now_us: u64) -> Result<Settling> {
        if deadlines == Deadlines::Shift && moment_us == 0 {
            return Err(Error::Usage(
                "the time of this moment is not known, so deadlines cannot be moved. Keep or drop them".into(),
            ));
        }
        Ok(Settling {
            deadlines,
            now_ms: now_us / 1000,
            age_ms: now_us.saturating_sub(moment_us) / 1000,
        })
    }

    /// Counts the deadlines on a page and changes them.
    pub(crate) fn settle(&self, page: &mut [u8], settled: &mut Settled) {
        let class = match (layout::kind(page), layout::class(page)) {
            (Some(PageKind::Slotted), Some(class)) => class,
            _ => return,
        };
        let expires = |number: &usize| has_expiry(layout::slot(page, class, *number));
        let expiring: Vec<usize> = layout::taken(page, class).filter(expires).collect();
        for number in expiring {
            let slot = layout::slot(page, class, number);
            let Some(deadline) = Row::decode(slot).and_then(|row| row.expiry_ms) else {
                continue;
            };
            settled.passed += u64::from(deadline <= self.now_ms);
            let new = match self.deadlines {
                Deadlines::Keep => continue,
                Deadlines::Shift => Some(deadline.saturating_add(self.age_ms)),
                Deadlines::Drop => None,
            };
            let before = slot.to_vec();
            let row = Row::decode(&before).expect("it was decoded");
            let row = Row {
                expiry_ms: new,
                ..row
            };
            assert!(row.bytes() <= before.len(), "a row does not grow");
            let slot = &mut page[class.slot_range(number)];
            slot.fill(0);
            row.encode(slot);
            settled.changed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use perdura_base::TableId;
    use perdura_page::class::SlotClass;
    use perdura_page::layout::PAGE_BYTES;

    use super::*;

    const HOUR_US: u64 = 3_600_000_000;

    /// Returns a page with a key without a deadline, one at 5 s, and one at two hours.
    fn page() -> (Vec<u8>, SlotClass) {
        let mut page = vec![0; PAGE_BYTES];
        let class = SlotClass::for_bytes(64).expect("a class");
        layout::format(&mut page, TableId(1), class, PageKind::Slotted);
        for (slot, deadline) in [(0, None), (1, Some(5_000)), (3, Some(7_200_000))] {
            let row = Row::inline(b"key", b"value", deadline);
            row.encode(&mut page[class.slot_range(slot)]);
            layout::set_taken(&mut page, slot, true);
        }
        (page, class)
    }

    fn deadlines(page: &[u8], class: SlotClass) -> Vec<Option<u64>> {
        let rows = layout::taken(page, class).map(|slot| layout::slot(page, class, slot));
        rows.map(|slot| Row::decode(slot).expect("a row").expiry_ms)
            .collect()
    }

    fn settled(how: Deadlines) -> (Vec<Option<u64>>, Settled) {
        let (mut page, class) = page();
        let mut settled = Settled::default();
        let settling = Settling::of(how, HOUR_US, 2 * HOUR_US - 1000).expect("a time");
        settling.settle(&mut page, &mut settled);
        (deadlines(&page, class), settled)
    }

    #[test]
    fn deadlines_are_kept_moved_or_dropped() {
        let (kept, counts) = settled(Deadlines::Keep);
        assert_eq!(kept, [None, Some(5_000), Some(7_200_000)]);
        assert_eq!((counts.passed, counts.changed), (1, 0));
        let (moved, counts) = settled(Deadlines::Shift);
        assert_eq!(moved, [None, Some(3_604_999), Some(10_799_999)]);
        assert_eq!((counts.passed, counts.changed), (1, 2));
        let (dropped, counts) = settled(Deadlines::Drop);
        assert_eq!(dropped, [None, None, None]);
        assert_eq!((counts.passed, counts.changed), (1, 2));
    }

    #[test]
    fn deadlines_of_an_unknown_time_are_not_moved() {
        let refused = Settling::of(Deadlines::Shift, 0, HOUR_US).map(drop);
        assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
        assert!(Settling::of(Deadlines::Drop, 0, HOUR_US).is_ok());
    }
}
