//! Describes users as text of rules. ACL LIST and ACL GETUSER show this text, and ACL SAVE writes it. If the text is
//! applied to a new user, that user equals the described user.

use super::catalog::{CATALOG, CATEGORIES};
use super::selector::Selector;
use super::user::User;
use std::fmt::Write;

impl User {
    /// Returns the words that follow `user` in a line: name, flags, passwords, rules. Returns `None` while a password
    /// of the user is not hashed yet.
    pub(crate) fn describe(&self) -> Option<Vec<u8>> {
        let mut text = self.name.clone();
        for flag in self.flags() {
            text.push(b' ');
            text.extend_from_slice(flag.as_bytes());
        }
        for secret in &self.passwords {
            text.extend_from_slice(b" #");
            text.extend_from_slice(secret.text()?.as_bytes());
        }
        text.push(b' ');
        self.root.describe(&mut text);
        for selector in &self.selectors {
            text.extend_from_slice(b" (");
            selector.describe(&mut text);
            text.push(b')');
        }
        Some(text)
    }

    /// Returns the user's flags as words of a rule.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static str> {
        let sanitize = match self.sanitize {
            Some(true) => Some("sanitize-payload"),
            Some(false) => Some("skip-sanitize-payload"),
            None => None,
        };
        let enabled = if self.enabled { "on" } else { "off" };
        [Some(enabled), self.nopass.then_some("nopass"), sanitize]
            .into_iter()
            .flatten()
    }
}

/// Returns bytes, for example a hash, as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

impl Selector {
    fn describe(&self, text: &mut Vec<u8>) {
        let keys = self.describe_keys();
        if !keys.is_empty() {
            text.extend_from_slice(&keys);
            text.push(b' ');
        }
        if !self.all_channels {
            text.extend_from_slice(b"resetchannels ");
        }
        let channels = self.describe_channels();
        if !channels.is_empty() {
            text.extend_from_slice(&channels);
            text.push(b' ');
        }
        text.extend_from_slice(&self.describe_commands());
    }

    /// Returns the patterns of keys: `~a* %R~b*`.
    pub(crate) fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let pattern = |known: &super::selector::KeyPattern| {
            let prefix: &[u8] = match (known.access.read, known.access.write) {
                (true, false) => b"%R~",
                (false, true) => b"%W~",
                // `~*` would be read as the rule `allkeys`, after which no pattern may follow.
                _ if known.pattern == b"*" => b"%RW~",
                _ => b"~",
            };
            [prefix, &known.pattern].concat()
        };
        self.keys
            .iter()
            .map(pattern)
            .collect::<Vec<_>>()
            .join(&b' ')
    }

    /// Returns the patterns of channels: `&a* &b`.
    pub(crate) fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let pattern = |known: &Vec<u8>| [&b"&"[..], known].concat();
        self.channels
            .iter()
            .map(pattern)
            .collect::<Vec<_>>()
            .join(&b' ')
    }

    /// Returns the rules for commands, for example `-@all +@read -keys`. As in Redis, categories come first, then
    /// single commands. A rule for a category is used if it is right for most of the category's commands. Among these
    /// rules, the rule that is wrong for the fewest commands comes first.
    pub(crate) fn describe_commands(&self) -> Vec<u8> {
        let additive = !self.future;
        let mut said = Selector::new(true);
        said.change_all(!additive);
        let mut text = String::from(if additive { "-@all" } else { "+@all" });
        // A copy of the selector without the categories that are already named.
        let mut rest = self.clone();
        loop {
            let mut best: Option<(usize, usize, usize)> = None;
            for category in 0..CATEGORIES.len() {
                let (mut same, mut different) = (0, 0);
                for (number, entry) in CATALOG.iter() {
                    if entry.is_in(category) {
                        if rest.allows(number) == additive {
                            same += 1;
                        } else {
                            different += 1;
                        }
                    }
                }
                let better = best.is_none_or(|(_, least, most)| {
                    different < least || (different == least && same > most)
                });
                if same > different && better {
                    best = Some((category, different, same));
                }
            }
            let Some((category, ..)) = best else { break };
            said.change_category(category, additive);
            rest.change_category(category, !additive);
            let sign = if additive { '+' } else { '-' };
            let _ = write!(text, " {sign}@{}", CATEGORIES[category]);
        }
        let mut text = text.into_bytes();
        for (number, entry) in CATALOG.iter() {
            if self.allows(number) != said.allows(number) {
                said.change(number, self.allows(number));
                let sign = if self.allows(number) { '+' } else { '-' };
                text.extend_from_slice(format!(" {sign}{}", entry.name).as_bytes());
            }
            for word in self.first_words.get(&number).into_iter().flatten() {
                text.extend_from_slice(format!(" +{}|", entry.name).as_bytes());
                text.extend_from_slice(word);
            }
        }
        text
    }
}
