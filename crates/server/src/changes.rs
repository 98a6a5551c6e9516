//! The number of changes of keys that a restart would have to replay from the log. They are the changes
//! since the newest checkpoint began, as Redis counts those since its last save.
//!
//! The engine begins checkpoints by itself, so the loop only sees that one is running or has completed. The
//! count at the look before that is the least that the checkpoint holds. Changes between that look and the
//! checkpoint's begin are counted once too often, but never too rarely.

/// The counters of changes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// All changes of this life of the server.
    made: u64,
    /// The changes that the newest checkpoint holds.
    saved: u64,
    /// The changes at the newest look.
    seen: u64,
    /// The changes that the running checkpoint holds. `None`: no checkpoint is running.
    begun: Option<u64>,
    completed: u64,
}

impl Changes {
    /// Counts changes.
    pub(crate) fn add(&mut self, count: u64) {
        self.made += count;
    }

    /// Looks at the checkpoints: whether one is running, and the number of completed ones. The loop calls
    /// it regularly, and before a checkpoint is requested.
    pub(crate) fn look(&mut self, running: bool, completed: u64) {
        if completed > self.completed {
            self.saved = self.begun.take().unwrap_or(self.seen);
            self.completed = completed;
        }
        self.begun = running.then(|| self.begun.unwrap_or(self.seen));
        self.seen = self.made;
        debug_assert!(
            self.saved <= self.seen,
            "a checkpoint has what was made before it began"
        );
        debug_assert!(
            self.begun.is_none_or(|begun| begun <= self.seen),
            "a checkpoint began behind what it has"
        );
    }

    /// Returns the number of changes that the newest checkpoint does not hold.
    pub(crate) fn unsaved(&self) -> u64 {
        debug_assert!(self.saved <= self.made, "what is saved was made");
        self.made - self.saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_holds_what_was_changed_before_it_began() {
        let mut changes = Changes::default();
        changes.add(3);
        changes.look(false, 0);
        assert_eq!(changes.unsaved(), 3);
        changes.look(true, 0);
        changes.add(2);
        changes.look(true, 0);
        changes.look(false, 1);
        assert_eq!(changes.unsaved(), 2, "of the running one, the begin counts");
        changes.add(1);
        changes.look(false, 1);
        changes.look(false, 2);
        assert_eq!(changes.unsaved(), 0, "one that nobody saw running");
        changes.add(5);
        changes.look(false, 3);
        assert_eq!(changes.unsaved(), 5, "rather too many than too few");
        changes.look(true, 3);
        changes.look(false, 3);
        assert_eq!(changes.unsaved(), 5, "a cancelled one holds nothing");
    }
}
