//! Restricts a command to the keys that access control has checked.

use super::Data;
use crate::acl::User;
use crate::command::{Command, Keys, flag};
use crate::resp::parse::Args;
use perdura_base::flaw::{Flaw, armed};

impl Data<'_, '_> {
    /// Sets the user for whom the commands run. If the user may not use every key, a command that uses an undeclared
    /// key fails. So a bug in a command's list of keys cannot circumvent access control.
    pub(crate) fn run_for(&mut self, user: &User) {
        self.keeps_to_keys |= !user.has_every_key();
    }

    /// Runs `work`, the body of a command. If the user may not use every key, the work can use only the keys
    /// that the command declares.
    #[inline]
    pub(super) fn with_keys<R>(
        &mut self,
        command: &Command,
        args: &Args<'_>,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        match self.keeps_to_keys {
            false => work(self),
            true => self.with_judged_keys(command, args, work),
        }
    }

    #[inline(never)]
    fn with_judged_keys<R>(
        &mut self,
        command: &Command,
        args: &Args<'_>,
        work: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let any_key = matches!(command.keys, Keys::All) || command.has(flag::SCRIPTS);
        // The seeded bug also disables this check: tests must notice the bug by its effects alone.
        if any_key || armed(Flaw::FirstTargetJudged) {
            return work(self);
        }
        self.tx.allow_only(command.key_args(args));
        let done = work(self);
        self.tx.allow_all_keys();
        done
    }
}
