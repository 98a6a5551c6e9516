//! A user: a name, passwords and rules.

use super::catalog::{Access, CATALOG};
use super::secret::{Mark, Secret};
use super::selector::Selector;
use crate::command::{Command, Keys};
use crate::denial::Denied;
use crate::resp::parse::Args;
use std::sync::Arc;

/// The verdict on a password, before any hashing.
#[derive(Debug)]
pub(crate) enum Judged {
    /// The user can log in with the password.
    Right,
    /// The user cannot log in with the password.
    Wrong,
    /// The password may belong to one of these secrets. They have no [`Mark`] yet, so only hashing can tell.
    Unknown(Vec<Arc<Secret>>),
}

/// A user of the server: its passwords and rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// The name.
    pub name: Vec<u8>,
    /// True if clients can log in as this user.
    pub enabled: bool,
    /// True if any password is accepted.
    pub nopass: bool,
    /// Redis's flag for checking payloads of RESTORE. It is only kept and shown, because payloads are always checked.
    /// `None`: no rule has set the flag.
    pub sanitize: Option<bool>,
    /// The user's passwords.
    pub passwords: Vec<Arc<Secret>>,
    /// The user's main set of rules.
    pub root: Selector,
    /// The user's other sets of rules, besides `root`. Each set is checked by itself.
    pub selectors: Vec<Selector>,
    /// True if the rules allow everything.
    unlimited: bool,
}

impl User {
    /// Returns a user that can do nothing. If `all_channels` is true, the user may use every channel.
    pub(crate) fn new(name: &[u8], all_channels: bool) -> Self {
        User {
            name: name.to_vec(),
            enabled: false,
            nopass: false,
            sanitize: None,
            passwords: Vec::new(),
            root: Selector::new(all_channels),
            selectors: Vec::new(),
            unlimited: false,
        }
    }

    /// Returns a user that can do everything and needs no password. The user `default` begins with these rights.
    pub(crate) fn all_powerful(name: &[u8]) -> Self {
        let mut user = User::new(name, true);
        user.enabled = true;
        user.nopass = true;
        user.root.all_keys = true;
        user.root.change_all(true);
        user.note_limits();
        user
    }

    /// Updates the field `unlimited` after a change of the user's rules.
    pub(crate) fn note_limits(&mut self) {
        self.unlimited = self.root.unlimited();
        debug_assert!(
            !self.unlimited || self.root.all_keys,
            "who is unlimited may use each key"
        );
    }

    /// Returns whether the user's requests need no check.
    #[inline]
    pub(crate) fn unlimited(&self) -> bool {
        self.unlimited
    }

    /// Checks a password by its mark.
    pub(crate) fn judge(&self, mark: &Mark) -> Judged {
        if !self.enabled {
            return Judged::Wrong;
        }
        let (mut right, mut unknown) = (self.nopass, Vec::new());
        for secret in &self.passwords {
            match secret.is(mark) {
                Some(same) => right |= same,
                None => unknown.push(Arc::clone(secret)),
            }
        }
        match right {
            true => Judged::Right,
            false if unknown.is_empty() => Judged::Wrong,
            false => Judged::Unknown(unknown),
        }
    }

    /// Checks a request. If every selector of the user denies it, the error is the greatest of these denials, in the
    /// order of [`Denied`].
    pub(crate) fn check(&self, command: &Command, args: &Args<'_>) -> Result<(), Denied> {
        if self.unlimited {
            return Ok(());
        }
        let number = CATALOG.number(command, (args.len() > 1).then(|| args.at(1)));
        let mut nearest = match self.root.check(number, args) {
            Ok(()) => return Ok(()),
            Err(denied) => denied,
        };
        for selector in &self.selectors {
            match selector.check(number, args) {
                Ok(()) => return Ok(()),
                Err(denied) => nearest = nearest.max(denied),
            }
        }
        Err(nearest)
    }

    /// Fails if an option of SORT uses keys that the request does not name, unless the user may read every key. The
    /// error is the name of the option.
    pub(crate) fn check_sort(
        &self,
        command: &Command,
        args: &Args<'_>,
    ) -> Result<(), &'static str> {
        let Keys::Sort(grammar) = command.keys else {
            return Ok(());
        };
        if self.unlimited {
            return Ok(());
        }
        let number = CATALOG.number(command, None);
        let full = |s: &Selector| s.reads_every_key() && s.check(number, args).is_ok();
        if full(&self.root) || self.selectors.iter().any(full) {
            return Ok(());
        }
        for found in grammar.walk(args) {
            match found.word.map(|word| word.name) {
                Some("BY") if args.at(found.at + 1).contains(&b'*') => return Err("BY"),
                Some("GET") => return Err("GET"),
                Some(_) => {}
                // SORT itself also stops parsing here: the argument is no option, or an option lacks an argument.
                None => break,
            }
        }
        Ok(())
    }

    /// Returns whether each of the user's selectors allows every key.
    #[inline]
    pub(crate) fn has_every_key(&self) -> bool {
        let has_all = || {
            let mut all = std::iter::once(&self.root).chain(&self.selectors);
            all.all(|selector| selector.all_keys)
        };
        self.unlimited || has_all()
    }

    /// Returns whether one of the user's selectors allows the wanted access to a key.
    pub(crate) fn may_use(&self, key: &[u8], wanted: Access) -> bool {
        let mut all = std::iter::once(&self.root).chain(&self.selectors);
        all.any(|selector| selector.allows_key(key, wanted))
    }

    /// Returns whether the user may listen to a channel or a pattern.
    pub(crate) fn may_listen(&self, channel: &[u8], is_pattern: bool) -> bool {
        let mut all = std::iter::once(&self.root).chain(&self.selectors);
        all.any(|selector| selector.allows_channel(channel, is_pattern))
    }
}
