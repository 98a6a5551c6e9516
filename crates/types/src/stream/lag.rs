//! Two counts for a group, estimated as in Redis 7.0: the entries that it has read, and those that it has not read. The
//! counts are exact unless entries were deleted from the middle of the stream.

use super::{Group, Head, Id};

impl Head {
    /// Returns whether all entries deleted by id came before the stream's first entry. Trimming does not count as
    /// deleting.
    fn is_dense(&self) -> bool {
        self.deleted_max == Id::MIN || self.deleted_max < self.first
    }

    /// Returns whether a command may have deleted the entry `id` or a later entry. Trimming does not count as deleting.
    #[must_use]
    pub fn has_gap_behind(&self, id: Id) -> bool {
        self.length > 0 && !self.is_dense() && id <= self.deleted_max
    }

    /// Returns the number of entries added up to this id, deleted entries included; `None` if the number is unknown.
    #[must_use]
    pub fn added_up_to(&self, id: Id) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if self.length == 0 && id <= self.last {
            return Some(self.added);
        }
        if id >= self.last {
            return (id == self.last).then_some(self.added);
        }
        let before = self.added.saturating_sub(self.length);
        match id.cmp(&self.first) {
            std::cmp::Ordering::Less if self.is_dense() => Some(before),
            std::cmp::Ordering::Equal if self.is_dense() => Some(before + 1),
            _ => None,
        }
    }

    /// Returns the number of entries that a group has not read; `None` if it is not known. The number is negative if a
    /// client has set the number of read entries higher than the number of added entries.
    #[must_use]
    pub fn lag(&self, group: &Group) -> Option<i64> {
        let read = match group.read {
            _ if self.added == 0 => Some(0),
            Some(read) if !self.has_gap_behind(group.last) => Some(read),
            _ => self.added_up_to(group.last),
        };
        read.map(|read| self.added.wrapping_sub(read).cast_signed())
    }

    /// Records that a group has delivered the entry `id`. All entries that the group delivered earlier must have
    /// smaller ids.
    pub fn delivered(&self, group: &mut Group, id: Id) {
        assert!(id > group.last, "groups go forward");
        match group.read {
            Some(read) if !self.has_gap_behind(id) => group.read = Some(read + 1),
            _ if self.added > 0 => group.read = self.added_up_to(id),
            _ => {}
        }
        group.last = id;
        debug_assert!(
            group.last > Id::MIN,
            "an entry has a greater id than the least"
        );
    }
}
