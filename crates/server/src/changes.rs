//! The number of changes that a restart would have to replay from the log. These are the changes of keys since
//! the newest checkpoint began. Redis likewise counts the changes since its last save.
//!
//! The engine begins checkpoints by itself. The loop looks regularly ([`Changes::look`]), and sees only that a
//! checkpoint is running or has completed. The checkpoint holds at least the changes counted at the previous look.
//! Changes between that look and the checkpoint's begin still count as unsaved. So the number may be too high, but
//! never too low.

/// The counters of changes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// The number of changes since the server started.
    made: u64,
    /// The number of changes that the newest checkpoint certainly holds.
    saved: u64,
    /// The value of `made` at the newest call of [`Changes::look`].
    seen: u64,
    /// The number of changes that the running checkpoint certainly holds. `None`: no checkpoint is running.
    begun: Option<u64>,
    completed: u64,
}

impl Changes {
    /// Counts changes.
    pub(crate) fn add(&mut self, count: u64) {
        self.made += count;
    }

    /// Updates the counters. `running` means that a checkpoint is running; `completed` counts completed
    /// checkpoints. The loop calls this regularly, and before it requests a checkpoint.
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

/// The outcome of the newest ended checkpoint. It is computed from two counts that INFO reads.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    completed: u64,
    cancelled: u64,
    failed: bool,
}

impl Checkpoints {
    /// Returns whether the newest ended checkpoint was cancelled, from the counts of completed and cancelled
    /// checkpoints. If both counts have grown since the last call, the result is `false`.
    pub(crate) fn failed(&mut self, completed: u64, cancelled: u64) -> bool {
        if completed > self.completed {
            self.failed = false;
        } else if cancelled > self.cancelled {
            self.failed = true;
        }
        (self.completed, self.cancelled) = (completed, cancelled);
        self.failed
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

    #[test]
    fn the_newest_checkpoint_decides_what_is_told() {
        let mut seen = Checkpoints::default();
        let told = [(0, 0), (1, 0), (1, 1), (1, 1), (2, 1), (3, 2), (3, 4)];
        let failed = told.map(|(completed, cancelled)| seen.failed(completed, cancelled));
        assert_eq!(failed, [false, false, true, true, false, false, true]);
    }
}
