//! The seeded bug of playing frames beyond the cut; see [`perdura_base::flaw`].

use perdura_base::Pos;

use crate::streams::Decided;

impl Decided {
    /// Makes the void blocks of each stream valid. Returns the positions at which the streams ended before.
    pub(super) fn revive_void_tail(&mut self) -> Vec<Pos> {
        let ends = self.cut.cut.clone();
        if self.void_tail.iter().all(Vec::is_empty) {
            return ends;
        }
        let tails = std::mem::take(&mut self.void_tail);
        for (scan, tail) in self.scans.iter_mut().zip(tails) {
            scan.blocks.extend(tail);
        }
        ends
    }

    /// Makes these blocks void again: cuts the streams at `ends`.
    pub(super) fn drop_void_tail(&mut self, ends: Vec<Pos>) {
        for (scan, end) in self.scans.iter_mut().zip(ends) {
            scan.cut_at(end);
        }
    }
}
