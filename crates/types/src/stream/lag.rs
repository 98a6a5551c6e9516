//! The numbers of entries that a group has read and has not read, as Redis 7.0 estimates them. They are exact unless
//! entries were deleted from the middle.

use super::{Group, Head, Id};

impl Head {
    /// Returns whether no entry behind the stream's first entry was deleted by name.
    fn is_dense(&self) -> bool {
        self.deleted_max == Id::MIN || self.deleted_max < self.first
    }

    /// Returns whether an entry behind this id may have been deleted by name.
    #[must_use]
    pub fn has_gap_behind(&self, id: Id) -> bool {
        self.length > 0 && !self.is_dense() && id <= self.deleted_max
    }

    /// Returns the number of entries that were added up to this id, deleted ones included; `None` if it is not known.
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

    /// Returns the number of entries that a group has not read; `None` if it is not known. It is negative if a client
    /// has set the number of read entries higher than the number of added ones.
    #[must_use]
    pub fn lag(&self, group: &Group) -> Option<i64> {
        let read = match group.read {
            _ if self.added == 0 => Some(0),
            Some(read) if !self.has_gap_behind(group.last) => Some(read),
            _ => self.added_up_to(group.last),
        };
        read.map(|read| self.added.wrapping_sub(read).cast_signed())
    }

    /// Notes that a group has delivered the entry with this id, which is behind all that it had delivered.
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
