//! A user: a name, passwords and rules.

use super::catalog::{Access, CATALOG};
use super::secret::{Mark, Secret};
use super::selector::{Denied, Selector};
use crate::command::{Command, Keys};
use crate::resp::parse::Args;
use std::sync::Arc;

/// The verdict on a password, as far as it is known without hashing.
#[derive(Debug)]
pub(crate) enum Judged {
    /// The user can log in with it.
    Right,
    /// The user cannot.
    Wrong,
    /// The password may be that of one of these secrets, which have no mark yet.
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
    /// Redis's flag for checking payloads of RESTORE, which is only kept and shown: payloads are
    /// always checked. `None`: no rule names it.
    pub sanitize: Option<bool>,
    /// The user's passwords.
    pub passwords: Vec<Arc<Secret>>,
    /// The user's main set of rules.
    pub root: Selector,
    /// Further sets of rules, each judged by itself.
    pub selectors: Vec<Selector>,
    /// True if the rules allow everything.
    unlimited: bool,
}

impl User {
    /// Returns a user that can do nothing, except use every channel if `all_channels`.
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

    /// Returns the user of every client that has not authenticated. It can do everything, and needs
    /// no password until it gets one.
    pub(crate) fn all_powerful(name: &[u8]) -> Self {
        let mut user = User::new(name, true);
        user.enabled = true;
        user.nopass = true;
        user.root.all_keys = true;
        user.root.change_all(true);
        user.note_limits();
        user
    }

    /// Updates the user after a change of its rules.
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

    /// Checks a request. The error is the greatest denial of all the user's selectors.
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

    /// Fails if an option of SORT reaches keys that the request does not name, unless the user may
    /// read every key. The error is the name of the option.
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
                // SORT stops parsing here, too.
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
