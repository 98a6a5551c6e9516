//! A selector: one set of rules about commands, keys and channels. A request is allowed if one of the user's selectors
//! allows the command, every key and every channel.

use super::catalog::{Access, CATALOG, Entry};
use crate::denial::{Denied, Reason};
use crate::glob::matches;
use crate::resp::parse::Args;
use std::collections::BTreeMap;

/// A pattern of keys for reading, writing or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyPattern {
    /// The access that is allowed.
    pub access: Access,
    /// The pattern of the keys.
    pub pattern: Vec<u8>,
}

impl KeyPattern {
    fn allows(&self, key: &[u8], wanted: Access) -> bool {
        (self.access.read || !wanted.read)
            && (self.access.write || !wanted.write)
            && matches(&self.pattern, key)
    }
}

/// One set of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    /// The allowed commands: one bit for each entry of the catalog.
    allowed: Vec<u64>,
    /// True if commands that do not exist yet are allowed too.
    pub future: bool,
    /// The first arguments that allow an otherwise denied command. The keys of the map are the commands' numbers in the
    /// catalog.
    pub first_words: BTreeMap<usize, Vec<Vec<u8>>>,
    /// True if every key is allowed.
    pub all_keys: bool,
    /// The keys that are allowed.
    pub keys: Vec<KeyPattern>,
    /// True if every channel is allowed.
    pub all_channels: bool,
    /// The channels that are allowed.
    pub channels: Vec<Vec<u8>>,
}

impl Selector {
    /// Returns a selector that allows no command and no key. If `all_channels` is true, it allows every channel.
    pub(crate) fn new(all_channels: bool) -> Self {
        Selector {
            allowed: vec![0; CATALOG.len().div_ceil(64)],
            future: false,
            first_words: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            all_channels,
            channels: Vec::new(),
        }
    }

    /// Returns whether the command or subcommand with this catalog number is allowed.
    pub(crate) fn allows(&self, number: usize) -> bool {
        self.allowed[number / 64] & (1 << (number % 64)) != 0
    }

    /// Allows or denies a command with its subcommands, or one subcommand.
    pub(crate) fn change(&mut self, number: usize, allow: bool) {
        self.change_one(number, allow);
        for subcommand in CATALOG.subcommands(number) {
            self.change_one(subcommand, allow);
        }
    }

    fn change_one(&mut self, number: usize, allow: bool) {
        let bit = 1 << (number % 64);
        if allow {
            self.allowed[number / 64] |= bit;
        } else {
            self.allowed[number / 64] &= !bit;
        }
        self.first_words.remove(&number);
    }

    /// Allows or denies all commands, including commands that do not exist yet.
    pub(crate) fn change_all(&mut self, allow: bool) {
        self.allowed.fill(if allow { u64::MAX } else { 0 });
        self.future = allow;
        self.first_words.clear();
    }

    /// Allows or denies the commands of a category.
    pub(crate) fn change_category(&mut self, category: usize, allow: bool) {
        for (number, entry) in CATALOG.iter() {
            if entry.is_in(category) {
                self.change(number, allow);
            }
        }
    }

    /// Returns whether the selector allows everything.
    pub(crate) fn unlimited(&self) -> bool {
        let all_commands = self.future && self.allowed.iter().all(|bits| *bits == u64::MAX);
        all_commands && self.all_keys && self.all_channels
    }

    /// Returns whether a key may be used with the wanted access.
    pub(crate) fn allows_key(&self, key: &[u8], wanted: Access) -> bool {
        self.all_keys || self.keys.iter().any(|pattern| pattern.allows(key, wanted))
    }

    /// Returns whether every key may be read.
    pub(crate) fn reads_every_key(&self) -> bool {
        let every = |p: &KeyPattern| p.pattern == b"*" && p.access.read;
        self.all_keys || self.keys.iter().any(every)
    }

    /// Returns whether a channel may be used. A pattern may be used only if the allowed channels contain this pattern.
    pub(crate) fn allows_channel(&self, channel: &[u8], is_pattern: bool) -> bool {
        let allows = |allowed: &Vec<u8>| match is_pattern {
            true => allowed == channel,
            false => matches(allowed, channel),
        };
        self.all_channels || self.channels.iter().any(allows)
    }

    /// Checks a request for the command with this catalog number.
    pub(crate) fn check(&self, number: usize, args: &Args<'_>) -> Result<(), Denied> {
        let entry = CATALOG.at(number);
        let by_first_word = || {
            let words = self.first_words.get(&number);
            let given = (args.len() > 1).then(|| args.at(1));
            words.zip(given).is_some_and(|(words, given)| {
                words.iter().any(|word| given.eq_ignore_ascii_case(word))
            })
        };
        let needs_leave = !entry.command.has(crate::command::flag::NO_AUTH);
        if needs_leave && !self.allows(number) && !by_first_word() {
            return Err(Denied {
                reason: Reason::Command,
                at: 0,
                object: entry.name.clone().into_bytes(),
            });
        }
        if !self.all_keys {
            self.check_keys(entry, args)?;
        }
        if !self.all_channels {
            self.check_channels(entry, args)?;
        }
        Ok(())
    }

    fn check_keys(&self, entry: &Entry, args: &Args<'_>) -> Result<(), Denied> {
        let check = |at: usize, key: &[u8], wanted: Access| {
            if self.allows_key(key, wanted) {
                Ok(())
            } else {
                Err(Denied {
                    reason: Reason::Key,
                    at,
                    object: key.to_vec(),
                })
            }
        };
        let first = entry.key_use(args, true).access();
        for (at, key) in entry.command.key_args(args).enumerate() {
            check(at, key, if at == 0 { first } else { entry.others })?;
        }
        Ok(())
    }

    fn check_channels(&self, entry: &Entry, args: &Args<'_>) -> Result<(), Denied> {
        let (count, is_pattern) = match entry.name.as_str() {
            "publish" | "spublish" => (1, false),
            "subscribe" | "ssubscribe" => (args.len(), false),
            "psubscribe" => (args.len(), true),
            _ => return Ok(()),
        };
        for (at, channel) in args.from(1).take(count).enumerate() {
            if !self.allows_channel(channel, is_pattern) {
                return Err(Denied {
                    reason: Reason::Channel,
                    at,
                    object: channel.to_vec(),
                });
            }
        }
        Ok(())
    }
}
