//! A seeded bug: the second pass plays frames after the log's cut. See [`perdura_base::flaw`].

use perdura_base::Pos;

use crate::streams::Decided;

impl Decided {
    /// Revives the void blocks after each stream's cut, so that they count as valid. Returns the cuts.
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

    /// Makes the revived blocks void again by cutting each stream at its position in `ends`.
    pub(super) fn drop_void_tail(&mut self, ends: Vec<Pos>) {
        for (scan, end) in self.scans.iter_mut().zip(ends) {
            scan.cut_at(end);
        }
    }
}
