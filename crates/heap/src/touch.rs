//! A summary of the update numbers that a restart has applied to a page. The check for lost and doubled records needs
//! only the summary.

use perdura_base::Useq;
use perdura_base::checksum::mix64;

/// The update numbers applied to one page.
#[derive(Clone, Copy, Default)]
pub(crate) struct Touch {
    pub(crate) count: u32,
    /// The first number that was noted. `min` and `max` are signed distances from this number, with absolute values
    /// below 2^31.
    base: Useq,
    min: i32,
    max: i32,
    sum: u64,
}

impl Touch {
    pub(crate) fn note(&mut self, useq: Useq) {
        if self.count == 0 {
            self.base = useq;
        }
        let distance = useq.since(self.base).cast_signed();
        self.min = self.min.min(distance);
        self.max = self.max.max(distance);
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.wrapping_add(mix64(u64::from(useq.0)));
    }

    /// Reads the entry, so that the processor's cache has it.
    pub(crate) fn fetch(&self) -> u8 {
        u8::from(self.count == 0)
    }

    pub(crate) fn first(&self) -> Useq {
        Useq(self.base.0.wrapping_add_signed(self.min))
    }

    pub(crate) fn last(&self) -> Useq {
        Useq(self.base.0.wrapping_add_signed(self.max))
    }

    /// Returns whether the noted numbers are exactly the `count` numbers that follow `image`, each once.
    pub(crate) fn is_dense_after(&self, image: Useq) -> bool {
        debug_assert!(
            self.min <= 0 && 0 <= self.max,
            "distances begin with the first number's, which is 0"
        );
        self.first() == image.next()
            && self.last().since(image) == self.count
            && self.sum
                == (1..=self.count)
                    .map(|i| mix64(u64::from(image.0.wrapping_add(i))))
                    .fold(0, u64::wrapping_add)
    }
}
