//! Claims: the kinds of frames that a restart plays in later passes over the log, not in the first pass.

use perdura_wal::{FrameKind, Holds, Role};

/// The set of the kinds of frames that owners play after the first pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Claims(u32);

impl Claims {
    /// Returns this set with `kind` added.
    #[must_use]
    pub fn with(self, kind: FrameKind) -> Claims {
        Claims(self.0 | 1 << kind.code())
    }

    /// Returns whether frames of a kind are claimed.
    #[must_use]
    pub fn has(self, kind: FrameKind) -> bool {
        self.0 & 1 << kind.code() != 0
    }

    /// Returns whether a kind of frames with this role is claimed.
    #[must_use]
    pub fn has_some(self, role: Role) -> bool {
        let mut kinds = FrameKind::ALL.into_iter();
        kinds.any(|kind| kind.role() == role && self.has(kind))
    }

    /// Returns the union of this set and `others`.
    ///
    /// # Panics
    /// If the two sets have a common kind. Frames of one kind have one owner.
    #[must_use]
    pub fn and(self, others: Claims) -> Claims {
        assert_eq!(self.0 & others.0, 0, "frames of one kind have one owner");
        Claims(self.0 | others.0)
    }

    /// Returns whether no frame is claimed.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether later passes read every frame of a unit, which is all blocks of one read. If so, the first pass
    /// need not read the unit. If an ordered frame belongs to a family that is not declared, a later pass refuses it.
    #[must_use]
    pub fn cover(self, holds: Holds) -> bool {
        let Holds {
            ordered,
            operations,
            tree,
            others,
        } = holds;
        let is_numbered = operations || tree;
        !others
            && (!ordered || self.has_some(Role::Ordered))
            && (!is_numbered || self.has_some(Role::Numbered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_left_to_later_passes_if_they_read_all_of_it() {
        let none = Holds::default();
        let (ordered, tree) = (Holds::of(FrameKind::Effects), Holds::of(FrameKind::Tree));
        let mut both = ordered;
        both.add(tree);
        let effects = Claims::default().with(FrameKind::Effects);
        let all = effects.with(FrameKind::Tree).with(FrameKind::Operations);
        for (claims, holds, covered) in [
            (effects, ordered, true),
            (effects, Holds::of(FrameKind::Command), true),
            (effects, tree, false),
            (effects, both, false),
            (all, both, true),
            (all, Holds::of(FrameKind::Group), false),
            (Claims::default(), ordered, false),
            (Claims::default(), none, true),
        ] {
            assert_eq!(claims.cover(holds), covered, "{claims:?} {holds:?}");
        }
    }
}
